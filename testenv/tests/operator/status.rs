//! The status matches what the API server holds.

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, condition, message_of};
use testenv::{DEADLINE, eventually};

use crate::test_namespace::TestNamespace;

/// Waits until nothing is pending and `pods` has this count.
async fn wait_for_pods(ns: &TestNamespace, count: usize) -> Value {
    eventually(&format!("{count} pods are counted"), DEADLINE, async || {
        let monitor = ns.settled(NAME, "UpToDate").await;
        anyhow::ensure!(monitor["status"]["pods"] == count, "{}", monitor["status"]);
        Ok(monitor)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_selector_without_pods_is_reported_until_pods_exist() {
    let ns = TestNamespace::new().await;
    ns.config_map(NAME, "one").await;
    let _operator = ns.operator().await;
    ns.create_monitor(NAME, json!({})).await;
    let empty = ns.settled(NAME, "NoPodsSelected").await;
    assert_eq!((&empty["status"]["pods"], &condition(&empty, "Ready")["status"]), (&json!(0), &json!("True")));
    assert!(message_of(&empty, "Ready").contains(APP), "{}", message_of(&empty, "Ready"));
    assert_eq!(message_of(&empty, "Stalled"), "check spec.podSelector");
    ns.event("ConfigMonitor", "NoPodsSelected").await;

    // As when a chart creates the ConfigMonitor before the Deployment.
    ns.deployment(NAME, 3, json!({"app": NAME})).await;
    wait_for_pods(&ns, 3).await;
    let edited = json!({"spec": {"podSelector": {"app": "nobody"}}});
    ns.patch("configmonitors", NAME, edited).await;
    let empty = ns.settled(NAME, "NoPodsSelected").await;
    assert!(message_of(&empty, "Ready").contains("app=nobody"), "{}", message_of(&empty, "Ready"));
    ns.edit(NAME, "two").await;
    let changed = ns.settled(NAME, "NoPodsSelected").await;
    assert_eq!((&changed["status"]["history"], &changed["status"]["pods"]), (&Value::Null, &json!(0)));
}

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
    assert_eq!(waits["status"]["restart"]["progress"], "1/2, 1 Unschedulable");
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

#[tokio::test]
async fn the_message_stays_the_same_from_retry_to_retry() {
    let ns = TestNamespace::with_pods(3).await;
    let budget = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": NAME}}});
    ns.create("poddisruptionbudgets", json!({"metadata": {"name": NAME}, "spec": budget})).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"deletionPolicy": "Evict"})).await;
    ns.settled(NAME, "UpToDate").await;
    ns.edit(NAME, "two").await;
    let blocked = ns.settled(NAME, "EvictionBlocked").await;
    let refused = || {
        let requests = ns.requests().unwrap().into_iter();
        requests.filter(|entry| entry["objectRef"]["subresource"] == "eviction").count()
    };
    let tried = refused();
    eventually("two more evictions are tried", DEADLINE, async || {
        anyhow::ensure!(refused() >= tried + 2);
        Ok(())
    })
    .await
    .unwrap();
    let still = ns.get("configmonitors", NAME).await;
    assert_eq!(still["metadata"]["resourceVersion"], blocked["metadata"]["resourceVersion"], "{}", still["status"]);
}
