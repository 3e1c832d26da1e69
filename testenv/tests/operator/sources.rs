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
async fn sources_that_change_together_are_one_restart_and_an_absent_one_is_another() {
    let ns = TestNamespace::with_pods(2).await;
    for name in ["a", "b", "c"] {
        ns.config_map(name, "one").await;
    }
    let spec = json!({"configMap": null, "sources": sources(&["a", "b", "c"]), "quietPeriodSeconds": 2});
    ns.create_monitor(NAME, spec).await;
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
    // One of them may be missing from now on, and its absence is a content like any other.
    ns.patch("configmonitors", NAME, json!({"spec": {"sources": sources(&["a", "b?", "c"])}})).await;
    ns.settled(NAME, "UpToDate").await;
    ns.delete("configmaps", "b").await;
    ns.replaced(APP, &before).await;
    let absent = ns.settled(NAME, "UpToDate").await;
    assert_eq!((hashes(&absent)[1], &restarts(&absent)[0]), (&json!("absent"), &(vec!["b"], 2)));
}
