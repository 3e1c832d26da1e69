//! Which pods are selected: `podSelector` and `podSelectorExpressions`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::test_namespace::{TestNamespace, control_plane};
use testenv::fixture::{APP, NAME};
use testenv::{DEADLINE, eventually};

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
    ns.monitor(NAME, json!({})).await;
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

/// The API server has defaulted these pods. Each refers in one way, or seems to.
#[tokio::test]
async fn only_the_pods_that_refer_are_restarted() {
    let ns = TestNamespace::new().await;
    ns.config_map(NAME, "one").await;
    let volume = |volume: Value| json!({"volumes": [volume]});
    let variable = |from: Value| json!([{"name": "A", "valueFrom": from}]);
    let projected = |source: Value| volume(json!({"name": "v", "projected": {"sources": [source]}}));
    let config_map = json!({"name": NAME, "items": [{"key": "config.cfg", "path": "p"}], "optional": true});
    let refer = [
        ("volume", volume(json!({"name": "v", "configMap": config_map}))),
        ("projected", projected(json!({"configMap": {"name": NAME}}))),
        ("all-variables", json!({"envFrom": [{"prefix": "A_", "configMapRef": {"name": NAME}}]})),
        ("variable", json!({"env": variable(json!({"configMapKeyRef": {"name": NAME, "key": "config.cfg"}}))})),
        ("init", json!({"init": {"envFrom": [{"configMapRef": {"name": NAME, "optional": true}}]}})),
    ];
    let others = [
        ("nothing", json!({})),
        ("another", json!({"envFrom": [{"configMapRef": {"name": "another", "optional": true}}]})),
        ("secret", volume(json!({"name": "v", "secret": {"secretName": NAME, "optional": true}}))),
        ("literal", json!({"env": [{"name": "A", "value": NAME}]})),
        ("field", json!({"env": variable(json!({"fieldRef": {"fieldPath": "metadata.name"}}))})),
        ("pull", json!({"imagePullSecrets": [{"name": NAME}]})),
        (
            "driver",
            volume(json!({"name": "v", "csi": {"driver": "d.example.com", "nodePublishSecretRef": {"name": NAME}}})),
        ),
        (
            "downward",
            projected(json!({"downwardAPI": {"items": [{"path": NAME, "fieldRef": {"fieldPath": "metadata.name"}}]}})),
        ),
    ];
    for (name, its) in refer.iter().chain(&others) {
        let mut container = json!({"name": "app", "image": "app"});
        let mut spec = json!({});
        for (field, value) in its.as_object().unwrap() {
            match &**field {
                "env" | "envFrom" => container[field] = value.clone(),
                "init" => {
                    spec["initContainers"] = json!([{"name": "init", "image": "app", "envFrom": value["envFrom"]}]);
                }
                _ => spec[field] = value.clone(),
            }
        }
        spec["containers"] = json!([container]);
        ns.create("pods", json!({"metadata": {"name": name, "labels": {"app": NAME}}, "spec": spec})).await;
    }
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"podScope": "Referring", "unmanagedPods": "Delete", "gracePeriodSeconds": 1})).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "UpToDate").await;
    assert!(ns.pods(APP).await.into_keys().eq(others.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>()));
}

/// The pods of a Deployment refer to the one or to the other. The first restart has replaced a pod.
#[tokio::test]
async fn what_a_restart_has_replaced_stays_when_another_source_changes() {
    let ns = TestNamespace::new().await;
    for name in [NAME, "other"] {
        ns.config_map(name, "one").await;
    }
    for (part, source) in [("first", NAME), ("second", "other")] {
        let labels = json!({"app": NAME, "part": part});
        let from = json!([{"configMapRef": {"name": source}}]);
        let pod = json!({"containers": [{"name": "app", "image": "app", "envFrom": from}]});
        let template = json!({"metadata": {"labels": labels}, "spec": pod});
        let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
        ns.create("deployments", json!({"metadata": {"name": part}, "spec": spec})).await;
    }
    let before = ns.ready_pods(APP, 4).await;
    let _operator = ns.operator().await;
    let sources = [NAME, "other"].map(|name| json!({"configMap": {"name": name}}));
    let one = json!({"configMap": null, "sources": sources, "podScope": "Referring", "maxUnavailableTotal": 1});
    ns.monitor(NAME, one).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.edit(NAME, "two").await;
    let changed = async |count: usize, deleted: usize| {
        eventually("the restart is about so many sources", DEADLINE, async || {
            let status = ns.client.get(&ns.path("configmonitors", NAME)).await?.ok()?["status"].take();
            let (sources, deletions) = (status["restart"]["sources"].as_array().map_or(0, Vec::len), ns.deletions()?);
            ensure!((sources, deletions) == (count, deleted), "{deletions} deletions: {status}");
            Ok(())
        })
        .await
        .unwrap();
    };
    changed(1, 1).await;
    ns.edit("other", "two").await;
    changed(2, 1).await;
    refusal.lift_for_all().await;
    let settled = ns.settled(NAME, "UpToDate").await;
    let results: Vec<&Value> =
        settled["status"]["history"].as_array().unwrap().iter().map(|it| &it["result"]).collect();
    assert_eq!(results, ["Completed", "Superseded"]);
    let mut sent = ns.sent_deletions();
    sent.sort();
    assert!(sent.iter().eq(before.keys()), "each pod once: {sent:?}");
}
