//! Several ConfigMonitors of the same pods.

use std::collections::BTreeMap;

use serde_json::json;

use crate::world::World;
use testenv::fixture::{APP, NAME};

const PODS: usize = 20;
const MONITORS: usize = 10;

/// In the moment in which two decide, one may not know of the other.
const AT_MOST: usize = PODS + PODS / 5;

/// How often the operator has asked for the deletion of these pods.
fn times_asked(world: &World, pods: &BTreeMap<String, String>) -> usize {
    world.asked_to_go().iter().filter(|name| pods.contains_key(*name)).count()
}

/// The names of the ConfigMonitors.
fn monitors() -> impl Iterator<Item = String> {
    (0..MONITORS).map(|number| format!("monitor-{number}"))
}

#[tokio::test]
async fn config_monitors_of_the_same_pods_ask_for_each_pod_once() {
    let world = World::with_pods(PODS).await;
    let _operator = world.operator().await;
    for name in monitors() {
        world.monitor(&name, json!({})).await;
    }
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    world.replaced(APP, &before).await;
    for name in monitors() {
        world.settled(&name, "UpToDate").await;
    }
    let asked = times_asked(&world, &before);
    assert!((PODS..=AT_MOST).contains(&asked), "{asked} deletions of {PODS} pods");
}

/// The pods that the first restart brings have the content of both.
#[tokio::test]
async fn config_maps_whose_quiet_periods_overlap_restart_the_same_pods_once() {
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
    let asked = times_asked(&world, &before);
    assert!((PODS..=AT_MOST).contains(&asked), "{asked} deletions of {PODS} pods");
    assert_eq!(times_asked(&world, &after), 0);
    assert_eq!(world.deletions().unwrap(), PODS, "a pod that came after the edits was deleted");
}

#[tokio::test]
async fn config_monitors_of_the_same_config_map_read_it_at_most_three_times() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    for name in monitors() {
        world.monitor(&name, json!({})).await;
    }
    let read = || {
        let requests = world.requests().unwrap().into_iter();
        requests.filter(|entry| entry["verb"] == "get" && entry["objectRef"]["resource"] == "configmaps").count()
    };
    let before = read();
    world.edit(NAME, "two").await;
    for name in monitors() {
        world.settled(&name, "UpToDate").await;
    }
    let times = read() - before;
    assert!((1..=3).contains(&times), "{times}");
}
