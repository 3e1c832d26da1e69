//! What the status says is what the API server holds.

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, condition, message_of};
use testenv::{DEADLINE, eventually};

use crate::refusal::wait_for_not_ready;
use crate::world::World;

/// The last restart that is over.
fn last_restart(monitor: &Value) -> &Value {
    &monitor["status"]["history"][0]
}

/// Waits until all is well and so many pods are counted.
async fn wait_for_pods(world: &World, count: usize) -> Value {
    eventually(&format!("{count} pods are counted"), DEADLINE, async || {
        let monitor = world.settled(NAME, "UpToDate").await;
        anyhow::ensure!(monitor["status"]["pods"] == count, "{}", monitor["status"]);
        Ok(monitor)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_selector_that_selects_nothing_is_told_until_there_are_pods() {
    let world = World::new().await;
    world.config_map(NAME, "one").await;
    let _operator = world.operator().await;
    world.create_monitor(NAME, json!({})).await;
    let empty = world.settled(NAME, "NoPodsSelected").await;
    assert_eq!((&empty["status"]["pods"], &condition(&empty, "Ready")["status"]), (&json!(0), &json!("True")));
    assert!(message_of(&empty, "Ready").contains(APP), "{}", message_of(&empty, "Ready"));
    assert_eq!(message_of(&empty, "Stalled"), "check spec.podSelector");
    world.event("ConfigMonitor", "NoPodsSelected").await;

    // As when a chart creates the ConfigMonitor before the Deployment.
    world.deployment(NAME, 3, json!({"app": NAME})).await;
    wait_for_pods(&world, 3).await;
    let edited = json!({"spec": {"podSelector": {"app": "nobody"}}});
    world.patch("configmonitors", NAME, edited).await;
    let empty = world.settled(NAME, "NoPodsSelected").await;
    assert!(message_of(&empty, "Ready").contains("app=nobody"), "{}", message_of(&empty, "Ready"));
    world.edit(NAME, "two").await;
    let changed = world.settled(NAME, "NoPodsSelected").await;
    assert_eq!((&changed["status"]["history"], &changed["status"]["pods"]), (&Value::Null, &json!(0)));
}

#[tokio::test]
async fn a_baseline_says_what_it_assumes_and_so_does_a_corrected_name() {
    let world = World::with_pods(3).await;
    world.config_map("other", "one").await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let assumed = "and the 3 selected pods are assumed to run with it; to be sure, run kubectl rollout restart";
    let settled = wait_for_pods(&world, 3).await;
    let says = message_of(&settled, "Ready");
    let at = settled["status"]["baselinedAt"].as_str().unwrap();
    assert_eq!(says, format!("the content of ConfigMap/frontend was recorded at {at}, {assumed}"));
    world.edit(NAME, "two").await;
    world.told(&["3 of 3 pods restarted for the content of ConfigMap/frontend"]).await;
    world.patch("configmonitors", NAME, json!({"spec": {"configMap": "other"}})).await;
    let corrected = world.told(&["the content of ConfigMap/other was recorded", assumed]).await;
    assert_eq!(corrected["status"]["history"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_that_is_not_there_is_named_and_so_are_those_that_are() {
    let world = World::with_pods(2).await;
    let _operator = world.operator().await;
    world.create_monitor(NAME, json!({"keys": ["absent"]})).await;
    let missing = world.settled(NAME, "KeyNotFound").await;
    let config_map = world.get("configmaps", NAME).await;
    let existing = config_map["data"].as_object().unwrap().keys().next().unwrap().clone();
    let says = format!("ConfigMap {NAME:?} lacks \"absent\", which the spec names, and has {existing:?}");
    assert!(message_of(&missing, "Ready").starts_with(&says), "{}", message_of(&missing, "Ready"));
    assert_eq!(condition(&missing, "Ready")["status"], "True");
    world.event("ConfigMonitor", "KeyNotFound").await;
    let before = world.pods(APP).await;
    world.patch("configmaps", NAME, json!({"data": {"absent": "here"}})).await;
    world.replaced(APP, &before).await;
    world.settled(NAME, "UpToDate").await;
}

#[tokio::test]
async fn skipped_pods_stay_in_the_message_of_the_restart_that_skipped_them() {
    let world = World::with_pods(3).await;
    let pod = json!({"metadata": {"name": "bare", "labels": {"app": NAME}},
        "spec": {"containers": [{"name": "app", "image": "app"}]}});
    world.create("pods", pod).await;
    world.ready_pods(APP, 4).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    wait_for_pods(&world, 4).await;
    world.edit(NAME, "two").await;
    let over = world.told(&["3 of 4 pods restarted", "skipped: bare (no controller)"]).await;
    let last = last_restart(&over);
    assert_eq!((&last["pods"], &last["replaced"]), (&json!(3), &json!(3)));
    let status = &over["status"];
    assert_eq!((&status["skipped"], &status["skippedPods"]), (&json!(1), &json!("bare (no controller)")));
    assert_eq!(status["pods"], 4);
}

#[tokio::test]
async fn two_that_restart_the_same_pods_count_each_pod_once() {
    let world = World::with_pods(4).await;
    let _operator = world.operator().await;
    for name in [NAME, "second"] {
        world.monitor(name, json!({})).await;
        world.settled(name, "UpToDate").await;
    }
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    world.replaced(APP, &before).await;
    let mut replaced = 0;
    for name in [NAME, "second"] {
        let over = eventually("the restart is in the history", DEADLINE, async || {
            let monitor = world.settled(name, "UpToDate").await;
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
async fn why_a_new_pod_is_not_available_is_said_in_the_words_of_the_scheduler_and_of_the_quota() {
    let world = World::new().await;
    world.config_map(NAME, "one").await;
    let of = format!("{}-node", world.namespace);
    let taints = json!([{"key": "for", "value": of, "effect": "NoSchedule"}]);
    let node = json!({"metadata": {"name": of, "labels": {"for": of}}, "spec": {"taints": taints}});
    world.client.create("/api/v1/nodes", &node).await.unwrap().ok().unwrap();
    let labels = json!({"app": NAME});
    let pod = json!({"containers": [{"name": "app", "image": "app"}], "nodeSelector": {"for": of},
        "tolerations": [{"key": "for", "value": of, "effect": "NoSchedule"}]});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod}});
    world.create("deployments", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    world.ready_pods(APP, 2).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": 1})).await;
    world.settled(NAME, "UpToDate").await;

    let label = async |value: Value| {
        let patch = json!({"metadata": {"labels": {"for": value}}});
        world.client.merge_patch(&format!("/api/v1/nodes/{of}"), &patch).await.unwrap().ok().unwrap();
    };
    label(json!(null)).await;
    world.edit(NAME, "two").await;
    let halted = ["1 of 2 pods deleted", "the budget (maxUnavailable) allows no further deletion", "Unschedulable: 0/"];
    let waits = world.told(&halted).await;
    assert_eq!(waits["status"]["restart"]["progress"], "1/2");
    label(json!(of)).await;
    world.settled(NAME, "UpToDate").await;

    let quota =
        world.create("resourcequotas", json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}})).await;
    let used = json!({"status": {"hard": quota["spec"]["hard"], "used": {"pods": "0"}}});
    world.patch("resourcequotas", "few/status", used).await;
    world.edit(NAME, "three").await;
    world.told(&["ReplicaSet", "has 1 of 2 available (exceeded quota: few"]).await;
    world.delete("resourcequotas", "few").await;
    world.settled(NAME, "UpToDate").await;
}

/// Here it is a patch that says what a kubelet would.
#[tokio::test]
async fn why_a_container_does_not_run_is_said_in_the_words_of_the_kubelet() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let refusal = world.keep_new_pods_from_getting_ready().await;
    world.edit(NAME, "two").await;
    let new = wait_for_not_ready(&world, 1).await.remove(0);
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
        world.patch("pods", &format!("{new}/status"), json!({"status": {"containerStatuses": [container]}})).await;
        world.told(&[&format!("unavailable: {new} ({words}")]).await;
    }
    refusal.lift_for_all().await;
    world.settled(NAME, "UpToDate").await;
}

#[tokio::test]
async fn what_waits_says_the_same_from_try_to_try_and_what_waits_for_a_right_says_so() {
    let world = World::with_pods(3).await;
    let budget = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": NAME}}});
    world.create("poddisruptionbudgets", json!({"metadata": {"name": NAME}, "spec": budget})).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"deletionPolicy": "Evict"})).await;
    world.settled(NAME, "UpToDate").await;
    world.edit(NAME, "two").await;
    let blocked = world.settled(NAME, "EvictionBlocked").await;
    let refused = || {
        let requests = world.requests().unwrap().into_iter();
        requests.filter(|entry| entry["objectRef"]["subresource"] == "eviction").count()
    };
    let tried = refused();
    eventually("it is tried twice more", DEADLINE, async || {
        anyhow::ensure!(refused() >= tried + 2);
        Ok(())
    })
    .await
    .unwrap();
    let still = world.get("configmonitors", NAME).await;
    assert_eq!(still["metadata"]["resourceVersion"], blocked["metadata"]["resourceVersion"], "{}", still["status"]);

    world.revoke("pods/eviction", "create").await;
    let forbidden = world.settled(NAME, "Forbidden").await;
    let says = message_of(&forbidden, "Ready");
    assert_eq!(says, "the restart of 3 pods waits for the right to create pods/eviction");
    let stalled = message_of(&forbidden, "Stalled");
    assert!(stalled.starts_with("grant the operator the right to create pods/eviction; "), "{stalled}");
}
