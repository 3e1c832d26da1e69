//! What is a change of content, and what is not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use testenv::operator::message;

use crate::world::World;
use testenv::fixture::{APP, NAME};

#[tokio::test]
async fn an_edit_replaces_every_selected_pod_once_and_no_other() {
    let world = World::with_pods(3).await;
    world.deployment("other", 2, json!({"app": "other"})).await;
    let operator = world.operator().await;
    let monitor = world.monitor(NAME, json!({})).await;
    let (before, others) = (world.pods(APP).await, world.pods("app=other").await);

    world.edit(NAME, "two").await;
    world.replaced(APP, &before).await;
    let after = world.settled(NAME, "UpToDate").await;
    assert_eq!(world.pods("app=other").await, others);
    assert_eq!(world.deletions().unwrap(), 3);
    assert_ne!(after["status"]["configHash"], monitor["status"]["configHash"]);
    let history = &after["status"]["history"];
    assert_eq!(history.as_array().unwrap().len(), 1);
    assert_eq!((&history[0]["result"], &history[0]["pods"]), (&json!("Completed"), &json!(3)));
    assert_eq!(history[0]["configHash"], after["status"]["configHash"]);
    for (kind, reason) in
        [("ConfigMonitor", "RestartStarted"), ("ConfigMonitor", "RestartCompleted"), ("ConfigMap", "RestartCompleted")]
    {
        world.event(kind, reason).await;
    }
    for message in ["starting", "synced", "modification detected", "restart started", "restart over"] {
        operator.wait_for_message(message).await.unwrap();
    }
    let log = operator.log().unwrap();
    let deleted = log.iter().filter(|line| message(line) == "pod deleted").map(|line| line["uid"].as_str().unwrap());
    assert_eq!(deleted.collect::<BTreeSet<_>>(), before.values().map(String::as_str).collect());
}

#[tokio::test]
async fn more_restarts_than_watches_on_pods_all_come_to_their_end() {
    let world = World::new().await;
    world.config_map(NAME, "one").await;
    let _operator = world.operator().await;
    let names: Vec<String> = (0..70).map(|number| format!("app-{number}")).collect();
    for name in &names {
        world.create_deployment(name, 1, &json!({"app": name, "all": "of-them"})).await;
        world.create_monitor(name, json!({"podSelector": {"app": name}})).await;
    }
    let before = world.ready_pods("all=of-them", names.len()).await;
    for name in &names {
        world.settled(name, "UpToDate").await;
    }
    world.edit(NAME, "two").await;
    world.replaced("all=of-them", &before).await;
    for name in &names {
        world.settled(name, "UpToDate").await;
    }
    assert_eq!(world.deletions().unwrap(), names.len());
}

#[tokio::test]
async fn an_immutable_config_map_that_is_created_anew_restarts_and_is_warned_of() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    world.patch("configmaps", NAME, json!({"immutable": true})).await;
    world.settled(NAME, "UpToDate").await;
    let before = world.pods(APP).await;
    world.delete("configmaps", NAME).await;
    world.settled(NAME, "ConfigMapNotFound").await;
    world.config_map(NAME, "two").await;
    world.replaced(APP, &before).await;
    world.settled(NAME, "UpToDate").await;
    for kind in ["ConfigMonitor", "ConfigMap"] {
        let event = world.event(kind, "ImmutableConfigMapReplaced").await;
        assert_eq!(event["type"], "Warning");
    }
    // The new one can be edited, and kubelets watch it.
    world.edit(NAME, "three").await;
    world.settled(NAME, "UpToDate").await;
    assert_eq!(world.events("ConfigMonitor", "ImmutableConfigMapReplaced").await.len(), 1);
}

/// The pods that the first restart brings have the content of both.
#[tokio::test]
async fn config_maps_whose_quiet_periods_overlap_restart_the_same_pods_once() {
    const PODS: usize = 20;
    let world = World::with_pods(PODS).await;
    let operator = world.operator().await;
    for name in [NAME, "second"] {
        if name != NAME {
            world.config_map(name, "one").await;
        }
        world.monitor(name, json!({"configMap": name, "quietPeriodSeconds": 3600})).await;
    }
    let before = world.pods(APP).await;
    for name in [NAME, "second"] {
        world.edit(name, "two").await;
        world.settled(name, "QuietPeriod").await;
    }
    // Both quiet periods are over in the same moment, however slow this machine is.
    operator.process().pause().unwrap();
    for name in [NAME, "second"] {
        world.patch("configmonitors", name, json!({"spec": {"quietPeriodSeconds": 0}})).await;
    }
    operator.process().resume().unwrap();
    for name in [NAME, "second"] {
        world.settled(name, "UpToDate").await;
    }
    let after = world.replaced(APP, &before).await;
    let asked = world.asked_to_go();
    let times_asked = |pods: &BTreeMap<String, String>| asked.iter().filter(|name| pods.contains_key(*name)).count();
    let times = times_asked(&before);
    // In the moment in which two decide, one may not know of the other.
    assert!((PODS..=PODS + PODS / 5).contains(&times), "{times} deletions of {PODS} pods");
    assert_eq!(times_asked(&after), 0);
    assert_eq!(world.deletions().unwrap(), PODS, "a pod that came after the edits was deleted");
}
