//! Which pods are selected: `podSelector` and `podSelectorExpressions`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::test_namespace::{TestNamespace, control_plane};
use testenv::fixture::{APP, NAME};

async fn edit_spec(ns: &TestNamespace, spec: Value) {
    ns.patch("configmonitors", NAME, json!({"spec": spec})).await;
}

#[tokio::test]
async fn expressions_select_the_same_pods_as_for_kubectl() {
    let ns = TestNamespace::new().await;
    ns.config_map(NAME, "one").await;
    for (name, tier) in [("front", Some("front")), ("back", Some("back")), ("empty", Some("")), ("none", None)] {
        let mut labels = json!({"app": NAME, "name": name});
        tier.into_iter().for_each(|tier| labels["tier"] = json!(tier));
        ns.create_deployment(name, 1, &labels).await;
    }
    ns.ready_pods(APP, 4).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"minIntervalSeconds": 1})).await;
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
        edit_spec(&ns, json!({"podSelectorExpressions": expressions})).await;
        ns.settled(NAME, "UpToDate").await;
        let before = ns.ready_pods(APP, 4).await;
        let query = format!("{APP}, {query}");
        let selected = ["get", "pods", "--namespace", &ns.namespace, "--selector", &query, "--output", "name"];
        let selected = kubectl.ok(&selected).await.unwrap();
        ns.edit(NAME, &query).await;
        ns.settled(NAME, "UpToDate").await;
        let after = ns.ready_pods(APP, 4).await;
        let replaced = before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("pod/{name}"));
        let (selected, replaced): (BTreeSet<_>, BTreeSet<_>) =
            (selected.lines().map(str::to_owned).collect(), replaced.collect());
        assert_eq!((&replaced, replaced.len()), (&selected, count), "{query}");
    }
}

#[tokio::test]
async fn the_largest_selector_fits_into_a_request() {
    let ns = TestNamespace::with_pods(1).await;
    let _operator = ns.operator().await;
    let key = |number: usize| format!("{}/{number:a>63}", "a".repeat(253));
    let values: Vec<String> = (0..32).map(|number| format!("{number:a>63}")).collect();
    let labels: BTreeMap<String, &String> = (0..32).map(|number| (key(number), &values[0])).collect();
    let expressions: Vec<Value> =
        (0..16).map(|number| json!({"key": key(number), "operator": "NotIn", "values": values})).collect();
    ns.create_monitor(NAME, json!({"podSelector": labels, "podSelectorExpressions": expressions})).await;
    let baseline = ns.settled(NAME, "NoPodsSelected").await;
    ns.edit(NAME, "two").await;
    let settled = ns.settled(NAME, "NoPodsSelected").await;
    assert_ne!(settled["status"]["sources"][0]["hash"], baseline["status"]["sources"][0]["hash"]);
    assert_eq!(settled["status"]["history"], Value::Null, "nothing had to be restarted");
}
