//! Which part of the content counts, and which pods are meant: `keys` and `podSelectorExpressions`.

use std::collections::{BTreeMap, BTreeSet};

use configmonitor_operator::kube::objects::ConfigMap;
use configmonitor_operator::monitor::content::ContentHash;
use serde_json::{Value, json};
use testenv::operator::message;

use crate::world::{World, control_plane};
use testenv::fixture::{APP, NAME};

/// The hash of a ConfigMap with this data and nothing else.
fn hash(data: Value) -> String {
    let object = json!({"metadata": {"name": NAME, "uid": "u", "resourceVersion": "1"}, "data": data});
    ContentHash::of(&serde_json::from_value::<ConfigMap>(object).unwrap(), None).to_string()
}

async fn edit_spec(world: &World, spec: Value) {
    world.patch("configmonitors", NAME, json!({"spec": spec})).await;
}

async fn edit_data(world: &World, data: Value) {
    world.patch("configmaps", NAME, json!({"data": data})).await;
}

#[tokio::test]
async fn an_edit_of_a_key_restarts_only_if_that_key_counts() {
    let world = World::with_pods(2).await;
    let _operator = world.operator().await;
    let monitor = world.monitor(NAME, json!({"keys": ["config.cfg", "blob"]})).await;
    assert_eq!(monitor["status"]["source"], "ConfigMap/frontend[blob,config.cfg]");
    assert_eq!(monitor["status"]["configHash"], hash(json!({"config.cfg": "one"})));
    let before = world.pods(APP).await;
    for data in [json!({"other": "new"}), json!({"other": "edited"}), json!({"other": null})] {
        edit_data(&world, data).await;
        world.settled(NAME, "UpToDate").await;
    }
    assert_eq!(world.pods(APP).await, before);

    edit_data(&world, json!({"config.cfg": "two", "other": "x"})).await;
    let second = world.replaced(APP, &before).await;
    let monitor = world.settled(NAME, "UpToDate").await;
    assert_eq!(monitor["status"]["configHash"], hash(json!({"config.cfg": "two"})));
    world.patch("configmaps", NAME, json!({"binaryData": {"blob": "AAEC"}})).await;
    world.replaced(APP, &second).await;
    assert_eq!(world.deletions().unwrap(), 4);
}

#[tokio::test]
async fn expressions_select_what_they_select_for_kubectl() {
    let world = World::new().await;
    world.config_map(NAME, "one").await;
    for (name, tier) in [("front", Some("front")), ("back", Some("back")), ("empty", Some("")), ("none", None)] {
        let mut labels = json!({"app": NAME, "name": name});
        tier.into_iter().for_each(|tier| labels["tier"] = json!(tier));
        world.create_deployment(name, 1, &labels).await;
    }
    world.ready_pods(APP, 4).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let kubectl = control_plane().await.kubectl();
    for (count, expressions, query) in [
        (2, json!([{"key": "tier", "operator": "In", "values": ["front", "back"]}]), "tier in (front, back)"),
        (2, json!([{"key": "tier", "operator": "In", "values": ["front", ""]}]), "tier in (front,)"),
        (1, json!([{"key": "tier", "operator": "In", "values": [""]}]), "tier in ()"),
        (2, json!([{"key": "tier", "operator": "NotIn", "values": ["front", "back"]}]), "tier notin (front, back)"),
        (3, json!([{"key": "tier", "operator": "Exists"}]), "tier"),
        (1, json!([{"key": "tier", "operator": "DoesNotExist"}]), "!tier"),
        (
            1,
            json!([{"key": "tier", "operator": "Exists"}, {"key": "name", "operator": "NotIn", "values": ["back", "empty"]}]),
            "tier, name notin (back, empty)",
        ),
    ] {
        edit_spec(&world, json!({"podSelectorExpressions": expressions})).await;
        world.settled(NAME, "UpToDate").await;
        let before = world.ready_pods(APP, 4).await;
        let query = format!("{APP}, {query}");
        let selected = ["get", "pods", "--namespace", &world.namespace, "--selector", &query, "--output", "name"];
        let selected = kubectl.ok(&selected).await.unwrap();
        world.edit(NAME, &query).await;
        world.settled(NAME, "UpToDate").await;
        let after = world.ready_pods(APP, 4).await;
        let replaced = before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("pod/{name}"));
        let (selected, replaced): (BTreeSet<_>, BTreeSet<_>) =
            (selected.lines().map(str::to_owned).collect(), replaced.collect());
        assert_eq!((&replaced, replaced.len()), (&selected, count), "{query}");
    }
}

#[tokio::test]
async fn a_restart_in_the_middle_goes_on_with_its_pods_when_keys_or_source_are_edited() {
    let world = World::with_pods(2).await;
    world.config_map("second", "x").await;
    let operator = world.operator().await;
    world.monitor(NAME, json!({"keys": ["config.cfg"]})).await;
    let before = world.pods(APP).await;
    world.revoke("pods", "delete").await;
    edit_data(&world, json!({"config.cfg": "two", "other": "x"})).await;
    let held = world.settled(NAME, "Forbidden").await;
    for (spec, source, data) in [
        (json!({"keys": ["other"]}), "ConfigMap/frontend[other]", json!({"other": "x"})),
        (json!({"keys": null}), "ConfigMap/frontend", json!({"config.cfg": "two", "other": "x"})),
        (json!({"configMap": "second"}), "ConfigMap/second", json!({"config.cfg": "x"})),
    ] {
        edit_spec(&world, spec).await;
        let status = world.settled(NAME, "Forbidden").await["status"].take();
        let restart = &status["restart"];
        assert_eq!((&status["source"], &restart["configHash"]), (&json!(source), &json!(hash(data))));
        for field in ["startedAt", "podsResourceVersion", "pods", "remaining"] {
            assert_eq!(restart[field], held["status"]["restart"][field], "{field}");
        }
    }
    let told =
        operator.log().unwrap().into_iter().filter(|line| message(line) == "source changed; the restart goes on");
    assert_eq!(told.count(), 3);
    assert_eq!(world.pods(APP).await, before);
    world.grant("pods", "delete").await;
    world.replaced(APP, &before).await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(settled["status"]["configHash"], hash(json!({"config.cfg": "x"})));
    assert_eq!(settled["status"]["history"].as_array().map(Vec::len), Some(1));
    assert_eq!(world.deletions().unwrap(), 2);
}

#[tokio::test]
async fn the_largest_selector_fits_into_a_request() {
    let world = World::with_pods(1).await;
    let _operator = world.operator().await;
    let key = |number: usize| format!("{}/{number:a>63}", "a".repeat(253));
    let values: Vec<String> = (0..32).map(|number| format!("{number:a>63}")).collect();
    let labels: BTreeMap<String, &String> = (0..32).map(|number| (key(number), &values[0])).collect();
    let expressions: Vec<Value> =
        (0..16).map(|number| json!({"key": key(number), "operator": "NotIn", "values": values})).collect();
    world.monitor(NAME, json!({"podSelector": labels, "podSelectorExpressions": expressions})).await;
    edit_data(&world, json!({"config.cfg": "two"})).await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(settled["status"]["configHash"], hash(json!({"config.cfg": "two"})));
    assert_eq!(settled["status"]["history"], Value::Null, "nothing had to be restarted");
}
