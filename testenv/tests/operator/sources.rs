//! Several sources: each is compared by itself, and all that change together are one restart.

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, message_of};

use crate::test_namespace::TestNamespace;

/// Returns the part of a spec that names these ConfigMaps.
fn sources(names: &[&str]) -> Value {
    let source = |name: &&str| match name.strip_suffix('?') {
        Some(name) => json!({"configMap": {"name": name, "optional": true}}),
        None => json!({"configMap": {"name": name}}),
    };
    json!(names.iter().map(source).collect::<Vec<_>>())
}

/// Creates pods and a ConfigMonitor of these ConfigMaps.
async fn about(names: &[&str], quiet: u32) -> TestNamespace {
    let ns = TestNamespace::with_pods(2).await;
    for name in names {
        ns.config_map(name, "one").await;
    }
    let spec = json!({"configMap": null, "sources": sources(names), "quietPeriodSeconds": quiet});
    ns.create_monitor(NAME, spec).await;
    ns
}

fn hashes(monitor: &Value) -> Vec<&Value> {
    let sources = monitor["status"]["sources"].as_array().unwrap();
    sources.iter().map(|source| &source["hash"]).collect()
}

/// Returns the completed restarts, newest first: the changed sources, and the number of deleted pods.
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
    let ns = about(&["a", "b", "c"], 2).await;
    let _operator = ns.operator().await;
    let baseline = ns.settled(NAME, "UpToDate").await;
    assert_eq!(baseline["status"]["source"], "ConfigMap/a +2");
    let before = ns.ready_pods(APP, 2).await;
    ns.edit("a", "two").await;
    ns.edit("c", "two").await;
    let before = ns.replaced(APP, &before).await;
    let together = ns.settled(NAME, "UpToDate").await;
    assert_eq!(restarts(&together), [(vec!["a", "c"], 2)]);
    let changed: Vec<bool> =
        hashes(&baseline).into_iter().zip(hashes(&together)).map(|(before, after)| before != after).collect();
    assert_eq!(changed, [true, false, true]);
    assert!(message_of(&together, "Ready").contains("ConfigMap/a +2"), "{}", message_of(&together, "Ready"));
    let events = ns.events("ConfigMap", "RestartCompleted").await;
    assert_eq!(events.len(), 2, "at each ConfigMap that had changed");
    ns.edit("b", "two").await;
    let before = ns.replaced(APP, &before).await;
    ns.settled(NAME, "UpToDate").await;
    ns.edit("a", "three").await;
    ns.replaced(APP, &before).await;
    let apart = ns.settled(NAME, "UpToDate").await;
    assert_eq!(restarts(&apart), [(vec!["a"], 2), (vec!["b"], 2), (vec!["a", "c"], 2)]);
    assert_eq!(ns.deletions().unwrap(), 6);
}

#[tokio::test]
async fn a_source_that_is_added_or_removed_restarts_nothing_and_hides_no_change_of_another() {
    let ns = about(&["a", "b"], 0).await;
    ns.config_map("c", "one").await;
    let operator = ns.operator().await;
    ns.settled(NAME, "UpToDate").await;
    let before = ns.ready_pods(APP, 2).await;
    let edit = |names: &[&str]| json!({"spec": {"sources": sources(names)}});
    ns.patch("configmonitors", NAME, edit(&["c", "a", "b"])).await;
    let added = ns.settled(NAME, "UpToDate").await;
    assert_eq!((added["status"]["source"].as_str(), hashes(&added).len()), (Some("ConfigMap/c +2"), 3));
    ns.patch("configmonitors", NAME, edit(&["a"])).await;
    let removed = ns.settled(NAME, "UpToDate").await;
    assert_eq!((removed["status"]["source"].as_str(), hashes(&removed).len()), (Some("ConfigMap/a"), 1));
    assert_eq!((ns.pods(APP).await, ns.deletions().unwrap()), (before.clone(), 0));

    // As in one apply of a chart, while the operator is not running.
    drop(operator);
    ns.edit("a", "two").await;
    ns.patch("configmonitors", NAME, edit(&["a", "b"])).await;
    let _operator = ns.operator().await;
    ns.replaced(APP, &before).await;
    let changed = ns.settled(NAME, "UpToDate").await;
    assert_eq!((restarts(&changed), hashes(&changed).len()), (vec![(vec!["a"], 2)], 2));
}

#[tokio::test]
async fn a_missing_source_holds_the_restart_unless_it_is_optional() {
    let ns = about(&["a", "b"], 0).await;
    let _operator = ns.operator().await;
    ns.settled(NAME, "UpToDate").await;
    let before = ns.ready_pods(APP, 2).await;
    ns.delete("configmaps", "b").await;
    ns.edit("a", "two").await;
    let held = ns.settled(NAME, "SourceNotFound").await;
    assert!(message_of(&held, "Ready").starts_with("ConfigMap \"b\" does not exist"), "{}", message_of(&held, "Ready"));
    ns.messages_have(&["ConfigMap \"b\" does not exist; the restart is held"]).await;
    assert_eq!(ns.deletions().unwrap(), 0);
    ns.config_map("b", "one").await;
    let before = ns.replaced(APP, &before).await;
    let over = ns.settled(NAME, "UpToDate").await;
    assert_eq!(restarts(&over), [(vec!["a"], 2)]);

    ns.patch("configmonitors", NAME, json!({"spec": {"sources": sources(&["a", "b?"])}})).await;
    ns.settled(NAME, "UpToDate").await;
    ns.delete("configmaps", "b").await;
    ns.replaced(APP, &before).await;
    let absent = ns.settled(NAME, "UpToDate").await;
    assert_eq!((hashes(&absent)[1], &restarts(&absent)[0]), (&json!("absent"), &(vec!["b"], 2)));
}
