//! What is a change of content, and what is not.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testenv::operator::message;

use crate::world::World;
use testenv::fixture::{APP, NAME};

/// Waits until the operator has read the ConfigMap as it is now and found nothing to do, and counts its deletions.
async fn deletions_at_rest(world: &World) -> usize {
    world.settled(NAME, "UpToDate").await;
    world.deletions().unwrap()
}

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
async fn first_sight_is_a_baseline() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    let monitor = world.monitor(NAME, json!({})).await;
    assert!(monitor["status"]["configHash"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(monitor["status"]["source"], "ConfigMap/frontend");
    assert_eq!(deletions_at_rest(&world).await, 0);
}

#[tokio::test]
async fn the_first_content_of_a_config_map_that_comes_later_is_the_baseline() {
    let world = World::new().await;
    world.deployment(NAME, 1, json!({"app": NAME})).await;
    let _operator = world.operator().await;
    world.create_monitor(NAME, json!({})).await;
    world.settled(NAME, "ConfigMapNotFound").await;
    world.config_map(NAME, "one").await;
    assert_eq!(deletions_at_rest(&world).await, 0);
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    world.replaced(APP, &before).await;
}

#[tokio::test]
async fn edits_of_labels_and_annotations_restart_nothing() {
    let world = World::with_pods(2).await;
    let mut operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let edit = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    world.patch("configmaps", NAME, edit).await;
    assert_eq!(deletions_at_rest(&world).await, 0);

    // Nor does a restart of the operator, an edit of the ConfigMonitor, or the same content once more.
    operator.terminate().await.unwrap();
    let _operator = world.operator().await;
    world.patch("configmonitors", NAME, json!({"spec": {"progressDeadlineSeconds": 60}})).await;
    world.edit(NAME, "one").await;
    assert_eq!(deletions_at_rest(&world).await, 0);
}

#[tokio::test]
async fn a_change_made_while_the_operator_was_down_is_found() {
    let world = World::with_pods(2).await;
    let mut operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    operator.kill();
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    let _operator = world.operator().await;
    world.replaced(APP, &before).await;
    assert_eq!(world.deletions().unwrap(), 2);
}

#[tokio::test]
async fn a_config_map_created_anew_counts_by_its_content() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    world.delete("configmaps", NAME).await;
    world.settled(NAME, "ConfigMapNotFound").await;
    world.config_map(NAME, "one").await;
    assert_eq!(deletions_at_rest(&world).await, 0);

    let before = world.pods(APP).await;
    world.delete("configmaps", NAME).await;
    world.settled(NAME, "ConfigMapNotFound").await;
    world.config_map(NAME, "two").await;
    world.replaced(APP, &before).await;
}

#[tokio::test]
async fn contents_that_collide_when_joined_naively_are_changes() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let contents = [
        json!({"data": {"config.cfg": null, "a": "bc"}}),
        json!({"data": {"a": null, "ab": "c"}}),
        // YQ== is "a" in base64.
        json!({"data": {"ab": null, "k": "YQ=="}}),
        json!({"data": null, "binaryData": {"k": "YQ=="}}),
    ];
    for content in contents {
        let before = world.pods(APP).await;
        world.patch("configmaps", NAME, content).await;
        world.replaced(APP, &before).await;
        world.settled(NAME, "UpToDate").await;
    }
    assert_eq!(world.deletions().unwrap(), 4);
}

#[tokio::test]
async fn several_monitors_of_one_config_map_restart_their_own_pods() {
    let world = World::with_pods(1).await;
    world.deployment("other", 2, json!({"app": "other"})).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    world.monitor("other", json!({"podSelector": {"app": "other"}})).await;
    let (before, others) = (world.pods(APP).await, world.pods("app=other").await);
    world.edit(NAME, "two").await;
    world.replaced(APP, &before).await;
    world.replaced("app=other", &others).await;
    assert_eq!(world.deletions().unwrap(), 3);
}

#[tokio::test]
async fn config_maps_of_one_application_that_change_together_restart_its_pods_once() {
    let world = World::with_pods(4).await;
    world.config_map("second", "one").await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"quietPeriodSeconds": 3})).await;
    world.monitor("second", json!({"configMap": "second", "quietPeriodSeconds": 3})).await;
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    world.edit("second", "two").await;
    world.replaced(APP, &before).await;
    world.settled(NAME, "UpToDate").await;
    world.settled("second", "UpToDate").await;
    assert_eq!(world.deletions().unwrap(), 4);
}

#[tokio::test]
async fn every_label_of_the_selector_counts() {
    let world = World::new().await;
    world.config_map(NAME, "one").await;
    let all = json!({"app": NAME, "example.com/tier": "", "track": "stable"});
    world.deployment("all", 2, all.clone()).await;
    world.deployment("some", 2, json!({"app": NAME, "track": "canary"})).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"podSelector": all})).await;
    let (stable, canary) = ("track=stable", "track=canary");
    let (before, others) = (world.pods(stable).await, world.pods(canary).await);
    world.edit(NAME, "two").await;
    world.replaced(stable, &before).await;
    assert_eq!(world.pods(canary).await, others);
}

#[tokio::test]
async fn edits_within_the_quiet_period_are_one_restart() {
    let world = World::with_pods(2).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"quietPeriodSeconds": 2})).await;
    let before = world.pods(APP).await;
    for content in ["two", "three", "four"] {
        world.edit(NAME, content).await;
    }
    world.settled(NAME, "QuietPeriod").await;
    world.replaced(APP, &before).await;
    world.settled(NAME, "UpToDate").await;
    assert_eq!(world.deletions().unwrap(), 2);
}

#[tokio::test]
async fn there_and_back_within_the_quiet_period_restarts_nothing() {
    let world = World::with_pods(2).await;
    let _operator = world.operator().await;
    let baseline = world.monitor(NAME, json!({"quietPeriodSeconds": 60})).await;
    world.edit(NAME, "two").await;
    let pending = world.settled(NAME, "QuietPeriod").await;
    assert_ne!(pending["status"]["restart"]["configHash"], pending["status"]["configHash"]);
    world.edit(NAME, "one").await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(settled["status"]["configHash"], baseline["status"]["configHash"]);
    assert_eq!(settled["status"]["restart"], Value::Null);
    assert_eq!(world.deletions().unwrap(), 0);
}

#[tokio::test]
async fn another_source_is_a_baseline_and_its_edits_count_from_then_on() {
    let world = World::with_pods(1).await;
    world.config_map("second", "other content").await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    world.patch("configmonitors", NAME, json!({"spec": {"configMap": "second"}})).await;
    let monitor = world.settled(NAME, "UpToDate").await;
    assert_eq!(monitor["status"]["source"], "ConfigMap/second");
    assert_eq!(world.deletions().unwrap(), 0);

    let before = world.pods(APP).await;
    world.edit(NAME, "nobody minds").await;
    world.edit("second", "two").await;
    world.replaced(APP, &before).await;
    assert_eq!(world.deletions().unwrap(), 1);
}

#[tokio::test]
async fn a_status_wiped_by_hand_is_first_sight() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let mut monitor = world.get("configmonitors", NAME).await;
    monitor["status"] = json!({});
    let path = world.path("configmonitors", NAME) + "/status";
    world.client.replace(&path, &monitor).await.unwrap().ok().unwrap();
    assert_eq!(deletions_at_rest(&world).await, 0);
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
