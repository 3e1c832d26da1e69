//! The status matches what the API server holds.

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, message_of};

use crate::test_namespace::TestNamespace;

#[tokio::test]
async fn the_reason_for_an_unavailable_pod_is_the_message_of_the_scheduler_or_of_the_quota() {
    let ns = TestNamespace::new().await;
    ns.config_map(NAME, "one").await;
    let of = format!("{}-node", ns.namespace);
    let taints = json!([{"key": "for", "value": of, "effect": "NoSchedule"}]);
    let node = json!({"metadata": {"name": of, "labels": {"for": of}}, "spec": {"taints": taints}});
    ns.client.create("/api/v1/nodes", &node).await.unwrap().ok().unwrap();
    let labels = json!({"app": NAME});
    let pod = json!({"containers": [{"name": "app", "image": "app"}], "nodeSelector": {"for": of},
        "tolerations": [{"key": "for", "value": of, "effect": "NoSchedule"}]});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod}});
    ns.create("deployments", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    ns.ready_pods(APP, 2).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
    ns.settled(NAME, "UpToDate").await;

    let label = async |value: Value| {
        let patch = json!({"metadata": {"labels": {"for": value}}});
        ns.client.merge_patch(&format!("/api/v1/nodes/{of}"), &patch).await.unwrap().ok().unwrap();
    };
    label(json!(null)).await;
    ns.edit(NAME, "two").await;
    let halted = ["1 of 2 pods deleted", "the budget allows no further deletion", "Unschedulable: 0/"];
    let waits = ns.messages_have(&halted).await;
    assert_eq!(waits["status"]["restart"]["progress"], "1/2");
    assert!(message_of(&waits, "Reconciling").starts_with("waiting: the budget"), "{}", waits["status"]);
    label(json!(of)).await;
    ns.settled(NAME, "UpToDate").await;

    let quota =
        ns.create("resourcequotas", json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}})).await;
    let used = json!({"status": {"hard": quota["spec"]["hard"], "used": {"pods": "0"}}});
    ns.patch("resourcequotas", "few/status", used).await;
    ns.edit(NAME, "three").await;
    ns.messages_have(&["ReplicaSet", "has 1 of 2 available (exceeded quota: few"]).await;
    ns.delete("resourcequotas", "few").await;
    ns.settled(NAME, "UpToDate").await;
}
