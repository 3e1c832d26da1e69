//! What is a change of content, and what is not.

use std::collections::BTreeSet;

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
    assert_ne!(after["status"]["sources"][0]["hash"], monitor["status"]["sources"][0]["hash"]);
    let history = &after["status"]["history"];
    assert_eq!(history.as_array().unwrap().len(), 1);
    assert_eq!((&history[0]["result"], &history[0]["pods"]), (&json!("Completed"), &json!(3)));
    assert_eq!(history[0]["sources"], json!([{"kind": "ConfigMap", "name": NAME}]));
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
