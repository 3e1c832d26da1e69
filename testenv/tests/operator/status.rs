//! The status matches what the API server holds.

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, condition, message_of};
use testenv::{DEADLINE, eventually};

use crate::refusal::wait_for_not_ready;
use crate::test_namespace::TestNamespace;

/// Returns the last completed restart.
fn last_restart(monitor: &Value) -> &Value {
    &monitor["status"]["history"][0]
}

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
async fn a_baseline_says_what_it_assumes_and_so_does_a_corrected_name() {
    let ns = TestNamespace::with_pods(3).await;
    ns.config_map("other", "one").await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    let assumed = "and the 3 selected pods are assumed to run with it; to be sure, run kubectl rollout restart";
    let settled = wait_for_pods(&ns, 3).await;
    let says = message_of(&settled, "Ready");
    let at = settled["status"]["baselinedAt"].as_str().unwrap();
    assert_eq!(says, format!("the content of ConfigMap/frontend was recorded at {at}, {assumed}"));
    ns.edit(NAME, "two").await;
    ns.messages_have(&["3 of 3 pods restarted for the content of ConfigMap/frontend"]).await;
    ns.patch("configmonitors", NAME, json!({"spec": {"configMap": "other"}})).await;
    let corrected = ns.messages_have(&["the content of ConfigMap/other was recorded", assumed]).await;
    assert_eq!(corrected["status"]["history"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_missing_key_is_named_and_so_are_the_existing_ones() {
    let ns = TestNamespace::with_pods(2).await;
    let _operator = ns.operator().await;
    ns.create_monitor(NAME, json!({"keys": ["absent"]})).await;
    let missing = ns.settled(NAME, "KeyNotFound").await;
    let config_map = ns.get("configmaps", NAME).await;
    let existing = config_map["data"].as_object().unwrap().keys().next().unwrap().clone();
    let says = format!("ConfigMap {NAME:?} lacks \"absent\", which the spec names, and has {existing:?}");
    assert!(message_of(&missing, "Ready").starts_with(&says), "{}", message_of(&missing, "Ready"));
    assert_eq!(condition(&missing, "Ready")["status"], "True");
    ns.event("ConfigMonitor", "KeyNotFound").await;
    let before = ns.pods(APP).await;
    ns.patch("configmaps", NAME, json!({"data": {"absent": "here"}})).await;
    ns.replaced(APP, &before).await;
    ns.settled(NAME, "UpToDate").await;
}

#[tokio::test]
async fn skipped_pods_stay_in_the_message_of_the_restart_that_skipped_them() {
    let ns = TestNamespace::with_pods(3).await;
    let pod = json!({"metadata": {"name": "bare", "labels": {"app": NAME}},
        "spec": {"containers": [{"name": "app", "image": "app"}]}});
    ns.create("pods", pod).await;
    ns.ready_pods(APP, 4).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    wait_for_pods(&ns, 4).await;
    ns.edit(NAME, "two").await;
    let over = ns.messages_have(&["3 of 4 pods restarted", "skipped: bare (no controller)"]).await;
    let last = last_restart(&over);
    assert_eq!((&last["pods"], &last["replaced"]), (&json!(3), &json!(3)));
    let status = &over["status"];
    assert_eq!((&status["skipped"], &status["skippedPods"]), (&json!(1), &json!("bare (no controller)")));
    assert_eq!(status["pods"], 4);
}

#[tokio::test]
async fn two_config_monitors_of_the_same_pods_count_each_pod_once() {
    let ns = TestNamespace::with_pods(4).await;
    let _operator = ns.operator().await;
    for name in [NAME, "second"] {
        ns.monitor(name, json!({})).await;
        ns.settled(name, "UpToDate").await;
    }
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    let mut replaced = 0;
    for name in [NAME, "second"] {
        let over = eventually("the restart is in the history", DEADLINE, async || {
            let monitor = ns.settled(name, "UpToDate").await;
            anyhow::ensure!(monitor["status"]["history"].is_array(), "{}", monitor["status"]);
            Ok(monitor)
        })
        .await
        .unwrap();
        replaced += last_restart(&over)["replaced"].as_u64().unwrap();
    }
    assert_eq!(replaced, 4);
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
    let halted = ["1 of 2 pods deleted", "the budget (maxUnavailable) allows no further deletion", "Unschedulable: 0/"];
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

/// Here a patch reports what a kubelet would.
#[tokio::test]
async fn the_reason_for_a_failed_container_is_the_kubelet_s_message() {
    let ns = TestNamespace::with_pods(1).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.edit(NAME, "two").await;
    let new = wait_for_not_ready(&ns, 1).await.remove(0);
    let last_state = json!({"terminated": {"exitCode": 3}});
    let states = [
        (
            json!({"waiting": {"reason": "ErrImagePull", "message": "x"}}),
            json!({}),
            0,
            r#"ImagePullBackOff: image "app""#,
        ),
        (
            json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            last_state,
            2,
            r#"CrashLoopBackOff: container "app", last exit code 3"#,
        ),
        (
            json!({"running": {"startedAt": "2026-11-23T00:00:00Z"}}),
            json!({}),
            0,
            r#"container "app" runs and is not ready: see its probes"#,
        ),
    ];
    for (state, last_state, restarts, words) in states {
        let container = json!({"name": "app", "image": "app", "imageID": "", "ready": false, "restartCount": restarts,
            "state": state, "lastState": last_state});
        ns.patch("pods", &format!("{new}/status"), json!({"status": {"containerStatuses": [container]}})).await;
        ns.messages_have(&[&format!("unavailable: {new} ({words}")]).await;
    }
    refusal.lift_for_all().await;
    ns.settled(NAME, "UpToDate").await;
}

#[tokio::test]
async fn the_message_stays_the_same_from_retry_to_retry_and_names_a_missing_right() {
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

    ns.revoke("pods/eviction", "create").await;
    let forbidden = ns.settled(NAME, "Forbidden").await;
    let says = message_of(&forbidden, "Ready");
    assert_eq!(says, "the restart of 3 pods waits for the right to create pods/eviction");
    let stalled = message_of(&forbidden, "Stalled");
    assert!(stalled.starts_with("grant the operator the right to create pods/eviction; "), "{stalled}");
}
