//! What the fields of the spec do.

use std::time::Duration;

use serde_json::{Value, json};
use testenv::operator::message;
use tokio::time::sleep;

use crate::world::{World, control_plane};
use testenv::fixture::{APP, NAME, condition};

#[tokio::test]
async fn the_lab_spells_config_map_in_lower_case() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    let spec = json!({"configmap": NAME, "podSelector": {"app": NAME}, "quietPeriodSeconds": 0});
    let object = json!({
        "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": "flakapp-config-monitor"}, "spec": spec,
    });
    world.create("configmonitors", object).await;
    world.settled("flakapp-config-monitor", "UpToDate").await;
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    world.replaced(APP, &before).await;
}

#[tokio::test]
async fn suspend_remembers_and_its_lift_restarts() {
    let world = World::with_pods(2).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    world.patch("configmonitors", NAME, json!({"spec": {"suspend": true}})).await;
    let idle = world.settled(NAME, "Suspended").await;
    assert_eq!(condition(&idle, "Ready")["status"], "True");
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    testenv::eventually("the change is remembered", testenv::DEADLINE, async || {
        let monitor = world.get("configmonitors", NAME).await;
        anyhow::ensure!(condition(&monitor, "Ready")["status"] == "False", "{}", monitor["status"]);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(world.pods(APP).await, before);
    world.patch("configmonitors", NAME, json!({"spec": {"suspend": false}})).await;
    world.replaced(APP, &before).await;
    assert_eq!(world.deletions().unwrap(), 2);
}

#[tokio::test]
async fn suspend_holds_a_restart_in_the_middle_and_its_lift_goes_on_with_the_same_pods() {
    let world = World::with_pods(2).await;
    let operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let before = world.pods(APP).await;
    world.revoke("pods", "delete").await;
    world.edit(NAME, "two").await;
    world.settled(NAME, "Forbidden").await;
    world.patch("configmonitors", NAME, json!({"spec": {"suspend": true}})).await;
    let held = world.settled(NAME, "Suspended").await;
    assert!(!held["status"]["restart"]["startedAt"].is_null());
    world.grant("pods", "delete").await;
    assert_eq!(world.pods(APP).await, before);
    world.patch("configmonitors", NAME, json!({"spec": {"suspend": false}})).await;
    world.replaced(APP, &before).await;
    world.settled(NAME, "UpToDate").await;
    // The plan was never made again: the list that it is made of may be forgotten by then.
    assert!(operator.log().unwrap().iter().all(|line| message(line) != "restart resumed"));
}

#[tokio::test]
async fn pods_that_nobody_would_create_again_are_skipped_and_told_of() {
    let world = World::with_pods(1).await;
    let bare = json!({"metadata": {"name": "bare", "labels": {"app": NAME}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    world.create("pods", bare).await;
    // Its pod is made here, as no controller manages the Job; and it stays Pending, as nobody schedules it.
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "app"}]}});
    let job = world
        .create(
            "jobs",
            json!({"metadata": {"name": "job"}, "spec": {"managedBy": "example.com/nobody", "template": template}}),
        )
        .await;
    let owner = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job["metadata"]["uid"], "controller": true,
    }]);
    let of_job = json!({
        "metadata": {"name": "of-job", "labels": {"app": NAME}, "ownerReferences": owner},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "app", "image": "app"}]},
    });
    world.create("pods", of_job).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;

    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    world.event("ConfigMonitor", "PodSkipped").await;
    world.settled(NAME, "UpToDate").await;
    let after = world.pods(APP).await;
    let kept: Vec<&String> = before.keys().filter(|name| after.get(*name) == before.get(*name)).collect();
    assert_eq!(kept, ["bare", "of-job"]);
    // One for each reason.
    assert_eq!(world.events("ConfigMonitor", "PodSkipped").await.len(), 2);

    world.patch("configmonitors", NAME, json!({"spec": {"unmanagedPods": "Delete"}})).await;
    world.settled(NAME, "UpToDate").await;
    assert_eq!(world.deletions().unwrap(), 1, "an edit of the ConfigMonitor restarts nothing");
    world.edit(NAME, "three").await;
    world.settled(NAME, "UpToDate").await;
    let left = world.ready_pods(APP, 1).await;
    assert!(!left.contains_key("bare") && !left.contains_key("of-job"));
}

#[tokio::test]
async fn grace_period_and_progress_deadline_are_obeyed() {
    let world = World::with_pods(1).await;
    // No kubelet ends it, as there is no such node.
    let spec = json!({"nodeName": "nowhere", "containers": [{"name": "app", "image": "app"}]});
    world.create("pods", json!({"metadata": {"name": "held", "labels": {"app": NAME}}, "spec": spec})).await;
    let _operator = world.operator().await;
    let spec = json!({"gracePeriodSeconds": 7, "progressDeadlineSeconds": 1, "unmanagedPods": "Delete"});
    world.monitor(NAME, spec).await;
    world.edit(NAME, "two").await;
    let stalled = world.settled(NAME, "ProgressDeadlineExceeded").await;
    assert_eq!(condition(&stalled, "Stalled")["status"], "True");
    assert_ne!(stalled["status"]["configHash"], stalled["status"]["restart"]["configHash"]);
    world.event("ConfigMonitor", "RestartStalled").await;
    let held = world.get("pods", "held").await;
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 7);

    // Nothing was given up.
    world.delete("pods", "held?gracePeriodSeconds=0").await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(condition(&settled, "Stalled")["status"], "False");
    world.event("ConfigMonitor", "RestartCompleted").await;
}

#[tokio::test]
async fn going_back_in_the_middle_replaces_only_what_may_have_read_the_new_content() {
    let world = World::with_pods(2).await;
    let _operator = world.operator().await;
    let monitor = world.monitor(NAME, json!({})).await;
    let before = world.pods(APP).await;
    // Pods created in the second before the change are not told from those after it.
    sleep(Duration::from_millis(2100)).await;
    world.revoke("pods", "delete").await;
    world.edit(NAME, "two").await;
    world.settled(NAME, "Forbidden").await;
    world.patch("deployments", NAME, json!({"spec": {"replicas": 3}})).await;
    let born_between: Vec<String> =
        world.ready_pods(APP, 3).await.into_values().filter(|uid| !before.values().any(|old| old == uid)).collect();
    world.edit(NAME, "one").await;
    testenv::eventually("it is a restart back", testenv::DEADLINE, async || {
        let monitor = world.get("configmonitors", NAME).await;
        let restart = &monitor["status"]["restart"];
        anyhow::ensure!(restart["revert"] == true && !restart["startedAt"].is_null(), "{restart}");
        Ok(())
    })
    .await
    .unwrap();
    world.grant("pods", "delete").await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(settled["status"]["configHash"], monitor["status"]["configHash"]);
    let results: Vec<&Value> =
        settled["status"]["history"].as_array().unwrap().iter().map(|entry| &entry["result"]).collect();
    assert_eq!(results, ["Completed", "Superseded"]);
    let after = world.ready_pods(APP, 3).await;
    assert!(
        before.values().all(|uid| after.values().any(|left| left == uid)),
        "a pod with the right content was deleted"
    );
    assert!(born_between.iter().all(|uid| !after.values().any(|left| left == uid)), "a pod with other content is left");
}

#[tokio::test]
async fn kubectl_get_answers_in_one_line() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let kubectl = control_plane().await.kubectl();
    let table = kubectl.ok(&["get", "cmon", "-n", &world.namespace]).await.unwrap();
    let columns = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let lines: Vec<Vec<String>> = table.lines().map(columns).collect();
    assert_eq!(lines[0], ["NAME", "SOURCE", "READY", "REASON", "PROGRESS", "LAST RESTART", "AGE"]);
    assert_eq!(lines[1][..4], [NAME, "ConfigMap/frontend", "True", "UpToDate"]);
}
