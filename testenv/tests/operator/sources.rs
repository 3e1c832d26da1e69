//! Several sources: each is compared by itself, and all that change together are one restart.

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, message_of};

use crate::world::World;

/// What a spec says of these ConfigMaps.
fn sources(names: &[&str]) -> Value {
    let source = |name: &&str| match name.strip_suffix('?') {
        Some(name) => json!({"configMap": {"name": name, "optional": true}}),
        None => json!({"configMap": {"name": name}}),
    };
    json!(names.iter().map(source).collect::<Vec<_>>())
}

/// A ConfigMonitor about these ConfigMaps, and pods.
async fn about(names: &[&str], quiet: u32) -> World {
    let world = World::with_pods(2).await;
    for name in names {
        world.config_map(name, "one").await;
    }
    let spec = json!({"configMap": null, "sources": sources(names), "quietPeriodSeconds": quiet});
    world.create_monitor(NAME, spec).await;
    world
}

fn hashes(monitor: &Value) -> Vec<&Value> {
    let sources = monitor["status"]["sources"].as_array().unwrap();
    sources.iter().map(|source| &source["hash"]).collect()
}

/// The restarts that are over, newest first: which sources had changed, and how many pods were deleted.
fn restarts(monitor: &Value) -> Vec<(Vec<&str>, u64)> {
    fn restart(entry: &Value) -> (Vec<&str>, u64) {
        let Value::Array(sources) = &entry["sources"] else { panic!("{entry}") };
        let names = sources.iter().map(|source| source["name"].as_str().unwrap());
        (names.collect(), entry["replaced"].as_u64().unwrap())
    }
    monitor["status"]["history"].as_array().into_iter().flatten().map(restart).collect()
}

#[tokio::test]
async fn sources_that_change_together_are_one_restart_and_those_that_change_apart_are_two() {
    let world = about(&["a", "b", "c"], 2).await;
    let _operator = world.operator().await;
    let baseline = world.settled(NAME, "UpToDate").await;
    assert_eq!(baseline["status"]["source"], "ConfigMap/a +2");
    let before = world.ready_pods(APP, 2).await;
    world.edit("a", "two").await;
    world.edit("c", "two").await;
    let before = world.replaced(APP, &before).await;
    let together = world.settled(NAME, "UpToDate").await;
    assert_eq!(restarts(&together), [(vec!["a", "c"], 2)]);
    let changed: Vec<bool> =
        hashes(&baseline).into_iter().zip(hashes(&together)).map(|(before, after)| before != after).collect();
    assert_eq!(changed, [true, false, true]);
    assert!(message_of(&together, "Ready").contains("ConfigMap/a +2"), "{}", message_of(&together, "Ready"));
    let told = world.events("ConfigMap", "RestartCompleted").await;
    assert_eq!(told.len(), 2, "at each ConfigMap that had changed");
    world.edit("b", "two").await;
    let before = world.replaced(APP, &before).await;
    world.settled(NAME, "UpToDate").await;
    world.edit("a", "three").await;
    world.replaced(APP, &before).await;
    let apart = world.settled(NAME, "UpToDate").await;
    assert_eq!(restarts(&apart), [(vec!["a"], 2), (vec!["b"], 2), (vec!["a", "c"], 2)]);
    assert_eq!(world.deletions().unwrap(), 6);
}

#[tokio::test]
async fn a_source_that_is_added_or_removed_restarts_nothing_and_hides_no_change_of_another() {
    let world = about(&["a", "b"], 0).await;
    world.config_map("c", "one").await;
    let operator = world.operator().await;
    world.settled(NAME, "UpToDate").await;
    let before = world.ready_pods(APP, 2).await;
    let edit = |names: &[&str]| json!({"spec": {"sources": sources(names)}});
    world.patch("configmonitors", NAME, edit(&["c", "a", "b"])).await;
    let added = world.settled(NAME, "UpToDate").await;
    assert_eq!((added["status"]["source"].as_str(), hashes(&added).len()), (Some("ConfigMap/c +2"), 3));
    world.patch("configmonitors", NAME, edit(&["a"])).await;
    let removed = world.settled(NAME, "UpToDate").await;
    assert_eq!((removed["status"]["source"].as_str(), hashes(&removed).len()), (Some("ConfigMap/a"), 1));
    assert_eq!((world.pods(APP).await, world.deletions().unwrap()), (before.clone(), 0));

    // As in one apply of a chart, while the operator is away.
    drop(operator);
    world.edit("a", "two").await;
    world.patch("configmonitors", NAME, edit(&["a", "b"])).await;
    let _operator = world.operator().await;
    world.replaced(APP, &before).await;
    let changed = world.settled(NAME, "UpToDate").await;
    assert_eq!((restarts(&changed), hashes(&changed).len()), (vec![(vec!["a"], 2)], 2));
}

#[tokio::test]
async fn a_missing_source_holds_the_restart_unless_it_is_optional() {
    let world = about(&["a", "b"], 0).await;
    let _operator = world.operator().await;
    world.settled(NAME, "UpToDate").await;
    let before = world.ready_pods(APP, 2).await;
    world.delete("configmaps", "b").await;
    world.edit("a", "two").await;
    let held = world.settled(NAME, "SourceNotFound").await;
    assert!(message_of(&held, "Ready").starts_with("ConfigMap \"b\" does not exist"), "{}", message_of(&held, "Ready"));
    world.told(&["ConfigMap \"b\" does not exist; the restart is held"]).await;
    assert_eq!(world.deletions().unwrap(), 0);
    world.config_map("b", "one").await;
    let before = world.replaced(APP, &before).await;
    let over = world.settled(NAME, "UpToDate").await;
    assert_eq!(restarts(&over), [(vec!["a"], 2)]);

    world.patch("configmonitors", NAME, json!({"spec": {"sources": sources(&["a", "b?"])}})).await;
    world.settled(NAME, "UpToDate").await;
    world.delete("configmaps", "b").await;
    world.replaced(APP, &before).await;
    let absent = world.settled(NAME, "UpToDate").await;
    assert_eq!((hashes(&absent)[1], &restarts(&absent)[0]), (&json!("absent"), &(vec!["b"], 2)));
}
