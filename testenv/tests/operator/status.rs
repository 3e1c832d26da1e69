//! What the status says while a restart is pending or under way, and what kubectl shows of it.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::{DEADLINE, eventually};

use crate::world::{World, control_plane};
use testenv::fixture::{APP, NAME};

/// What `kubectl get configmonitors` prints: the names of the columns, and the cells of the one row.
async fn table(world: &World) -> (Vec<String>, Vec<String>) {
    let args = ["get", "configmonitors", "--namespace", &world.namespace];
    let text = control_plane().await.kubectl().ok(&args).await.unwrap();
    let (header, row) = text.trim_end().split_once('\n').unwrap();
    // Between columns there are three spaces, and in the name of one there is one.
    let cells =
        |line: &str| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    (cells(header), cells(row))
}

#[tokio::test]
async fn kubectl_shows_the_progress_of_a_restart() {
    let world = World::with_pods(3).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let (columns, row) = table(&world).await;
    assert_eq!(columns, ["NAME", "SOURCE", "READY", "REASON", "PROGRESS", "LAST RESTART", "AGE"]);
    assert!(!row.iter().any(|cell| cell.contains("/3")), "{row:?}");

    let before = world.pods(APP).await;
    let (resists, _) = before.first_key_value().unwrap();
    let refusal = world.refuse_deletion(resists).await;
    world.edit(NAME, "two").await;
    eventually("two of three pods are replaced, and one is refused", DEADLINE, async || {
        let refused = world.settled(NAME, "DeletionRefused").await;
        ensure!(refused["status"]["restart"]["progress"] == "2/3", "{}", refused["status"]);
        Ok(())
    })
    .await
    .unwrap();
    let (_, row) = table(&world).await;
    assert_eq!(row[..5], [NAME, "ConfigMap/frontend", "False", "DeletionRefused", "2/3"]);

    refusal.lift().await;
    world.settled(NAME, "UpToDate").await;
    let (_, row) = table(&world).await;
    assert!(!row.iter().any(|cell| cell.contains("/3")), "{row:?}");
}

#[tokio::test]
async fn a_pending_restart_says_which_list_of_pods_it_is_about() {
    let world = World::with_pods(2).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"quietPeriodSeconds": 3600})).await;
    let before: BTreeSet<String> = world.pods(APP).await.into_keys().collect();
    world.edit(NAME, "two").await;
    let pending = world.settled(NAME, "QuietPeriod").await;
    let version = pending["status"]["restart"]["podsResourceVersion"].as_str().unwrap_or_default();
    assert_ne!(version, "", "{}", pending["status"]["restart"]);

    // Pods that come later are not in that list.
    world.patch("deployments", NAME, json!({"spec": {"replicas": 3}})).await;
    world.ready_pods(APP, 3).await;
    let list = format!("?labelSelector={APP}&resourceVersion={version}&resourceVersionMatch=Exact");
    let listed = world.client.list(&world.path("pods", &list)).await.unwrap();
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(listed.iter().map(name).collect::<BTreeSet<_>>(), before);
}
