//! `spec.discover`: sources are read from the pods, and a change of one restarts only the pods that refer to it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, condition, message_of};
use testenv::{DEADLINE, Operator, eventually};
use tokio::time::sleep;

use crate::injection::Injection;
use crate::refusal::{Refusal, wait_for_not_ready};
use crate::secrets;
use crate::test_namespace::TestNamespace;

type Pods = BTreeMap<String, String>;

/// Two contents of a ConfigMap or a Secret.
const ONE: &str = "b25l";
const TWO: &str = "dHdv";

/// The resource and the name of a source as the status names it, such as ConfigMap/shop.
fn resource(source: &str) -> (&str, &str) {
    let (kind, name) = source.split_once('/').unwrap();
    (if kind == "Secret" { "secrets" } else { "configmaps" }, name)
}

async fn create(ns: &TestNamespace, sources: &[&str]) {
    for (resource, name) in sources.iter().map(|source| resource(source)) {
        ns.create(resource, json!({"metadata": {"name": name}, "data": {"key": ONE}})).await;
    }
}

async fn edit(ns: &TestNamespace, source: &str) {
    let (resource, name) = resource(source);
    ns.patch(resource, name, json!({"data": {"key": TWO}})).await;
}

/// Returns the spec of a pod that refers to these ConfigMaps.
pub(crate) fn refers(names: &[&str]) -> Value {
    let from: Vec<Value> = names.iter().map(|name| json!({"configMapRef": {"name": name}})).collect();
    json!({"containers": [{"name": "app", "image": "app", "envFrom": from}]})
}

/// Creates a workload with pods of this spec. Its name has no dash.
pub(crate) async fn workload(ns: &TestNamespace, resource: &str, name: &str, replicas: usize, pod: Value) {
    let labels = json!({"app": NAME, "part": name});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
    ns.create(resource, json!({"metadata": {"name": name}, "spec": spec})).await;
}

/// Creates a ConfigMonitor that names no source.
async fn discover(ns: &TestNamespace, more: Value) {
    let mut spec = json!({"configMap": null, "discover": {}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ns.create_monitor(NAME, spec).await;
}

async fn exclude(ns: &TestNamespace, name: &str) {
    let exclude = json!([{"kind": "ConfigMap", "name": name}]);
    ns.patch("configmonitors", NAME, json!({"spec": {"discover": {"exclude": exclude}}})).await;
}

/// Waits until the ConfigMonitor has this reason, is about its newest spec, and has exactly these sources, as they are
/// now.
async fn settled(ns: &TestNamespace, reason: &str, sources: &[&str]) -> Value {
    eventually(&format!("it is {reason} with {sources:?}"), DEADLINE, async || {
        let monitor = ns.client.get(&ns.path("configmonitors", NAME)).await?.ok()?;
        let status = &monitor["status"];
        let mut now = BTreeMap::new();
        for source in sources {
            let (resource, name) = resource(source);
            let object = ns.client.get(&ns.path(resource, name)).await?.body;
            now.insert((*source).to_owned(), object["metadata"]["resourceVersion"].clone());
        }
        let named = |source: &Value| format!("{}/{}", source["kind"], source["name"]).replace('"', "");
        let read = status["sources"].as_array().into_iter().flatten();
        let read: BTreeMap<_, _> = read.map(|source| (named(source), source["resourceVersion"].clone())).collect();
        ensure!(read == now && condition(&monitor, "Ready")["reason"] == reason, "{now:?}: {status}");
        ensure!(status["observedGeneration"] == monitor["metadata"]["generation"], "an older spec: {status}");
        Ok(monitor)
    })
    .await
    .unwrap()
}

/// Waits until a restart is about these ConfigMaps.
async fn restarting(ns: &TestNamespace, sources: &[&str]) {
    eventually(&format!("a restart is about {sources:?}"), DEADLINE, async || {
        let status = ns.get("configmonitors", NAME).await["status"].take();
        let changes = status["restart"]["sources"].as_array().into_iter().flatten();
        ensure!(changes.map(|change| change["name"].as_str().unwrap()).eq(sources.iter().copied()), "{status}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Returns the workloads of the pods that are others than before, each as often as it has such pods.
async fn replaced(ns: &TestNamespace, before: &Pods) -> Vec<String> {
    let after = ns.ready_pods(APP, before.len()).await;
    let gone = before.iter().filter(|(name, uid)| after.get(*name) != Some(*uid));
    gone.map(|(name, _)| name.split('-').next().unwrap().to_owned()).collect()
}

/// Two workloads, of which one refers to the one ConfigMap, and the other to the other. A restart for the first has
/// deleted a pod, whose successor does not get ready.
async fn half_way(ns: &TestNamespace) -> (Operator, Pods, Refusal<'_>) {
    create(ns, &["ConfigMap/a", "ConfigMap/b"]).await;
    workload(ns, "deployments", "first", 2, refers(&["a"])).await;
    workload(ns, "deployments", "second", 2, refers(&["b"])).await;
    let before = ns.ready_pods(APP, 4).await;
    let operator = ns.operator().await;
    discover(ns, json!({"maxUnavailable": null, "maxUnavailableTotal": 1})).await;
    settled(ns, "UpToDate", &["ConfigMap/a", "ConfigMap/b"]).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    edit(ns, "ConfigMap/a").await;
    eventually("a pod is deleted", DEADLINE, async || {
        ensure!(ns.deletions()? == 1);
        Ok(())
    })
    .await
    .unwrap();
    (operator, before, refusal)
}

#[tokio::test]
async fn each_edit_in_a_release_restarts_exactly_the_pods_that_refer() {
    let ns = TestNamespace::new().await;
    secrets::allow(&ns).await;
    let mut referring: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..8 {
        let [name, own] = ["w", "own-"].map(|prefix| format!("{prefix}{number}"));
        let (third, secret) = (format!("third-{}", number % 3), format!("quarter-{}", number % 4));
        let variable = json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "key"}}});
        let container =
            json!({"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": own}}], "env": [variable]});
        let projected = json!({"sources": [{"configMap": {"name": third}}]});
        let volumes = json!([{"name": "all", "configMap": {"name": "all"}}, {"name": "third", "projected": projected}]);
        let resource = if number % 4 == 3 { "statefulsets" } else { "deployments" };
        workload(&ns, resource, &name, 2, json!({"containers": [container], "volumes": volumes})).await;
        let config_maps = ["all", &own, &third].map(|map| format!("ConfigMap/{map}"));
        for source in config_maps.into_iter().chain([format!("Secret/{secret}")]) {
            referring.entry(source).or_default().extend([name.clone(), name.clone()]);
        }
    }
    let sources: Vec<&str> = referring.keys().map(String::as_str).collect();
    assert_eq!(sources.len(), 12 + 4);
    create(&ns, &sources).await;
    let mut before = ns.ready_pods(APP, 16).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({"discover": {"kinds": ["ConfigMap", "Secret"]}})).await;
    let baseline = settled(&ns, "UpToDate", &sources).await;
    assert_eq!(baseline["status"]["source"], "16 discovered");
    for (source, pods) in &referring {
        edit(&ns, source).await;
        settled(&ns, "UpToDate", &sources).await;
        assert_eq!(replaced(&ns, &before).await, *pods, "{source}");
        before = ns.pods(APP).await;
    }
}

#[tokio::test]
async fn a_config_map_that_a_deployment_gets_becomes_a_source() {
    let ns = TestNamespace::new().await;
    create(&ns, &["ConfigMap/a", "ConfigMap/b"]).await;
    for name in ["first", "second"] {
        workload(&ns, "deployments", name, 2, refers(&[])).await;
    }
    ns.ready_pods(APP, 4).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({})).await;
    let none = settled(&ns, "NoSourcesFound", &[]).await;
    assert_eq!(condition(&none, "Ready")["status"], "True");
    let gets = async |name: &str, config_maps: &[&str]| {
        let part = format!("part={name}");
        let before = ns.ready_pods(&part, 2).await;
        ns.patch("deployments", name, json!({"spec": {"template": {"spec": refers(config_maps)}}})).await;
        ns.replaced(&part, &before).await;
    };
    gets("first", &["a"]).await;
    gets("second", &["a"]).await;
    settled(&ns, "UpToDate", &["ConfigMap/a"]).await;
    gets("first", &["a", "b"]).await;
    settled(&ns, "UpToDate", &["ConfigMap/a", "ConfigMap/b"]).await;
    let before = ns.ready_pods(APP, 4).await;
    edit(&ns, "ConfigMap/b").await;
    settled(&ns, "UpToDate", &["ConfigMap/a", "ConfigMap/b"]).await;
    assert_eq!(replaced(&ns, &before).await, ["first", "first"]);
}

/// For a while, admission adds a reference to each pod that is created.
#[tokio::test]
async fn pods_of_one_template_are_told_apart_by_what_admission_has_injected() {
    let ns = TestNamespace::new().await;
    create(&ns, &["ConfigMap/a", "ConfigMap/injected"]).await;
    workload(&ns, "deployments", "first", 1, refers(&["a"])).await;
    let without = ns.ready_pods(APP, 1).await;
    let Some(injection) = Injection::begin(&ns, "injected").await else { return };
    let scale = async |replicas: usize| {
        ns.patch("deployments", "first", json!({"spec": {"replicas": replicas}})).await;
        ns.ready_pods(APP, replicas).await
    };
    let mut with = scale(2).await;
    with.retain(|name, _| !without.contains_key(name));
    injection.end().await;
    scale(3).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({})).await;
    settled(&ns, "UpToDate", &["ConfigMap/a", "ConfigMap/injected"]).await;
    edit(&ns, "ConfigMap/injected").await;
    settled(&ns, "UpToDate", &["ConfigMap/a", "ConfigMap/injected"]).await;
    assert!(ns.sent_deletions().iter().eq(with.keys()), "{:?}: {with:?}", ns.sent_deletions());
}

/// The test is the owner: nothing else knows its kind.
#[tokio::test]
async fn of_a_custom_owner_with_a_config_map_for_each_pod_only_the_pod_goes_whose_config_map_is_edited() {
    let ns = TestNamespace::new().await;
    let sources = ["ConfigMap/broker-0", "ConfigMap/broker-1", "ConfigMap/broker-2"];
    create(&ns, &sources).await;
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Broker", "name": "broker", "uid": "broker", "controller": true});
    let broker = async |name: &str| {
        let metadata = json!({"name": name, "labels": {"app": NAME}, "ownerReferences": [owner]});
        ns.create("pods", json!({"metadata": metadata, "spec": refers(&[name])})).await;
    };
    for source in sources {
        broker(resource(source).1).await;
    }
    let mut before = ns.ready_pods(APP, 3).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({})).await;
    settled(&ns, "UpToDate", &sources).await;
    edit(&ns, "ConfigMap/broker-1").await;
    before.remove("broker-1");
    eventually("a pod is gone", DEADLINE, async || {
        let pods = ns.client.list(&ns.collection("pods")).await?;
        ensure!(pods.len() == before.len(), "{} pods", pods.len());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(ns.pods(APP).await, before);
    broker("broker-1").await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(ns.sent_deletions(), ["broker-1"]);
}

#[tokio::test]
async fn a_named_source_is_for_all_pods_and_is_not_discovered() {
    let ns = TestNamespace::new().await;
    let sources = ["ConfigMap/frontend", "ConfigMap/a"];
    create(&ns, &sources).await;
    workload(&ns, "deployments", "first", 1, refers(&[NAME, "a"])).await;
    workload(&ns, "deployments", "second", 1, refers(&[])).await;
    let before = ns.ready_pods(APP, 2).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({"configMap": NAME})).await;
    let baseline = settled(&ns, "UpToDate", &sources).await;
    let status = &baseline["status"];
    assert_eq!(status["source"], "ConfigMap/frontend +1 discovered");
    assert_eq!(
        (&status["sources"][0]["discovered"], &status["sources"][1]["discovered"]),
        (&Value::Null, &json!(true))
    );
    edit(&ns, "ConfigMap/a").await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["first"]);
    let before = ns.pods(APP).await;
    edit(&ns, "ConfigMap/frontend").await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["first", "second"]);
}

/// A kubelet does not start the pods that refer to it, so they are not Ready.
#[tokio::test]
async fn pods_that_refer_to_a_missing_source_stay_until_it_exists_and_the_others_are_replaced() {
    let ns = TestNamespace::new().await;
    let sources = ["ConfigMap/a", "ConfigMap/b", "ConfigMap/missing"];
    create(&ns, &sources[..2]).await;
    workload(&ns, "deployments", "healthy", 2, refers(&["a"])).await;
    workload(&ns, "deployments", "other", 1, refers(&["b"])).await;
    let (healthy, other) = (ns.ready_pods("part=healthy", 2).await, ns.ready_pods("part=other", 1).await);
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    workload(&ns, "deployments", "broken", 2, refers(&["a", "missing"])).await;
    wait_for_not_ready(&ns, 2).await;
    refusal.lift().await;
    let broken = ns.pods("part=broken").await;
    let operator = ns.operator().await;
    discover(&ns, json!({"maxUnavailable": 1})).await;
    let missing = settled(&ns, "SourceNotFound", &sources).await;
    assert!(message_of(&missing, "Stalled").contains("\"missing\""), "{}", missing["status"]);
    edit(&ns, "ConfigMap/a").await;
    ns.replaced("part=healthy", &healthy).await;
    let left: Vec<&str> = broken.keys().map(String::as_str).collect();
    ns.messages_have(&["waiting for ConfigMap \"missing\": ", left[0], left[1]]).await;
    assert_eq!(ns.pods("part=broken").await, broken);
    drop(operator);
    let _operator = ns.operator().await;
    edit(&ns, "ConfigMap/b").await;
    ns.replaced("part=other", &other).await;
    assert_eq!(ns.pods("part=broken").await, broken);
    create(&ns, &sources[2..]).await;
    settled(&ns, "UpToDate", &sources).await;
    ns.replaced("part=broken", &broken).await;
    assert_eq!(ns.sent_deletions().len(), 5, "each pod once");
}

#[tokio::test]
async fn that_an_optional_source_appears_or_goes_is_a_change_and_a_required_one_comes_back_with_its_content() {
    let ns = TestNamespace::new().await;
    let sources = ["ConfigMap/optional", "ConfigMap/required"];
    create(&ns, &sources[1..]).await;
    let from = json!([{"configMapRef": {"name": "optional", "optional": true}}]);
    let pod = json!({"containers": [{"name": "app", "image": "app", "envFrom": from}]});
    workload(&ns, "deployments", "first", 1, pod).await;
    workload(&ns, "deployments", "second", 1, refers(&["required"])).await;
    let before = ns.ready_pods(APP, 2).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({})).await;
    settled(&ns, "UpToDate", &sources).await;
    create(&ns, &sources[..1]).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["first"]);
    let before = ns.pods(APP).await;
    ns.delete("configmaps", "required").await;
    eventually("it is missed", DEADLINE, async || {
        let monitor = ns.get("configmonitors", NAME).await;
        ensure!(condition(&monitor, "Ready")["reason"] == "SourceNotFound", "{}", monitor["status"]);
        Ok(())
    })
    .await
    .unwrap();
    let first = ns.pods("part=first").await;
    ns.delete("configmaps", "optional").await;
    ns.replaced("part=first", &first).await;
    create(&ns, &sources[1..]).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["first"]);
    let before = ns.pods(APP).await;
    ns.delete("configmaps", "required").await;
    ns.create("configmaps", json!({"metadata": {"name": "required"}, "data": {"key": TWO}})).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["second"]);
}

#[tokio::test]
async fn of_two_sources_that_changed_while_suspended_the_one_that_went_back_restarts_no_pod() {
    let ns = TestNamespace::new().await;
    let sources = ["ConfigMap/a", "ConfigMap/b"];
    create(&ns, &sources).await;
    workload(&ns, "deployments", "first", 1, refers(&["a"])).await;
    workload(&ns, "deployments", "second", 1, refers(&["b"])).await;
    let before = ns.ready_pods(APP, 2).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({"suspend": true})).await;
    settled(&ns, "Suspended", &sources).await;
    // A pod that is as young as the edit may have read it: times are whole seconds.
    sleep(Duration::from_secs(3)).await;
    for source in sources {
        edit(&ns, source).await;
    }
    restarting(&ns, &["a", "b"]).await;
    ns.patch("configmaps", "a", json!({"data": {"key": ONE}})).await;
    settled(&ns, "Suspended", &sources).await;
    ns.patch("configmonitors", NAME, json!({"spec": {"suspend": false}})).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["second"]);
}

#[tokio::test]
async fn a_source_is_remembered_while_its_workload_is_scaled_to_zero() {
    let ns = TestNamespace::new().await;
    let sources = ["ConfigMap/a"];
    create(&ns, &sources).await;
    workload(&ns, "deployments", "first", 2, refers(&["a"])).await;
    ns.ready_pods(APP, 2).await;
    let operator = ns.operator().await;
    discover(&ns, json!({})).await;
    settled(&ns, "UpToDate", &sources).await;
    let scale = async |replicas: usize| {
        ns.patch("deployments", "first", json!({"spec": {"replicas": replicas}})).await;
        ns.ready_pods(APP, replicas).await
    };
    scale(0).await;
    // Another process lists the pods anew.
    drop(operator);
    let _operator = ns.operator().await;
    let unreferred = async |is: bool| {
        eventually(&format!("no pod refers: {is}"), DEADLINE, async || {
            let monitor = ns.get("configmonitors", NAME).await;
            let since = &monitor["status"]["sources"][0]["unreferencedSince"];
            ensure!(since.is_string() == is, "{}", monitor["status"]);
            Ok(())
        })
        .await
        .unwrap();
    };
    unreferred(true).await;
    edit(&ns, "ConfigMap/a").await;
    settled(&ns, "NoPodsSelected", &sources).await;
    let before = scale(2).await;
    unreferred(false).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(ns.deletions().unwrap(), 0, "the pods have the content");
    ns.patch("configmaps", "a", json!({"data": {"key": "three"}})).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["first", "first"]);
}

#[tokio::test]
async fn what_a_restart_has_replaced_stays_when_another_discovered_source_changes() {
    let ns = TestNamespace::new().await;
    let (_operator, before, refusal) = half_way(&ns).await;
    edit(&ns, "ConfigMap/b").await;
    restarting(&ns, &["a", "b"]).await;
    refusal.lift_for_all().await;
    let settled = settled(&ns, "UpToDate", &["ConfigMap/a", "ConfigMap/b"]).await;
    let history = settled["status"]["history"].as_array().unwrap().iter();
    assert_eq!(history.map(|past| &past["result"]).collect::<Vec<_>>(), ["Completed", "Superseded"]);
    let mut sent = ns.sent_deletions();
    sent.sort();
    assert!(sent.iter().eq(before.keys()), "each pod once: {sent:?}");
}

#[tokio::test]
async fn five_sources_that_change_before_a_restart_have_one_canary_and_each_pod_goes_once() {
    let ns = TestNamespace::new().await;
    let names = ["a", "b", "c", "d", "e"];
    let sources = names.map(|name| format!("ConfigMap/{name}"));
    let sources = sources.each_ref().map(String::as_str);
    create(&ns, &sources).await;
    for name in names {
        workload(&ns, "deployments", name, 2, refers(&[name])).await;
    }
    let before = ns.ready_pods(APP, 10).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({"suspend": true, "canary": {"pods": 1, "bakeSeconds": 3600}})).await;
    settled(&ns, "Suspended", &sources).await;
    for source in sources {
        edit(&ns, source).await;
    }
    restarting(&ns, &names).await;
    ns.patch("configmonitors", NAME, json!({"spec": {"suspend": false}})).await;
    eventually("the canary bakes", DEADLINE, async || {
        let status = ns.get("configmonitors", NAME).await["status"].take();
        ensure!(status["restart"]["canary"]["state"] == "Baking", "{status}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(ns.sent_deletions().len(), 1);
    ns.patch("configmonitors", NAME, json!({"spec": {"canary": null}})).await;
    let settled = settled(&ns, "UpToDate", &sources).await;
    assert_eq!(settled["status"]["history"].as_array().unwrap().len(), 1);
    let mut sent = ns.sent_deletions();
    sent.sort();
    assert!(sent.iter().eq(before.keys()), "each pod once: {sent:?}");
}

#[tokio::test]
async fn no_pod_is_restarted_for_a_source_that_is_excluded_in_the_middle_also_after_a_crash() {
    for is_crash_first in [false, true] {
        let ns = TestNamespace::new().await;
        let (mut operator, before, refusal) = half_way(&ns).await;
        edit(&ns, "ConfigMap/b").await;
        restarting(&ns, &["a", "b"]).await;
        if is_crash_first {
            operator.kill();
        }
        exclude(&ns, "a").await;
        if !is_crash_first {
            restarting(&ns, &["b"]).await;
            operator.kill();
        }
        let _operator = ns.operator().await;
        restarting(&ns, &["b"]).await;
        refusal.lift_for_all().await;
        settled(&ns, "UpToDate", &["ConfigMap/b"]).await;
        assert_eq!(replaced(&ns, &before).await, ["first", "second", "second"], "crash first: {is_crash_first}");
    }
}

#[tokio::test]
async fn a_restart_is_over_once_its_only_source_is_excluded() {
    let ns = TestNamespace::new().await;
    let (_operator, before, refusal) = half_way(&ns).await;
    exclude(&ns, "a").await;
    let settled = settled(&ns, "UpToDate", &["ConfigMap/b"]).await;
    assert_eq!(settled["status"]["history"][0]["result"], "Superseded");
    refusal.lift_for_all().await;
    assert_eq!(replaced(&ns, &before).await, ["first"]);
}

#[tokio::test]
async fn beyond_128_sources_known_ones_go_on_and_the_first_that_waits_is_named() {
    let ns = TestNamespace::new().await;
    let names: Vec<String> = (0..128).map(|number| format!("n{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let known: Vec<String> = names.iter().map(|name| format!("ConfigMap/{name}")).collect();
    let mut known: Vec<&str> = known.iter().map(String::as_str).collect();
    create(&ns, &known).await;
    create(&ns, &["ConfigMap/late-a", "ConfigMap/late-b"]).await;
    workload(&ns, "deployments", "first", 1, refers(&names)).await;
    ns.ready_pods(APP, 1).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({})).await;
    settled(&ns, "UpToDate", &known).await;
    workload(&ns, "deployments", "second", 1, refers(&["late-a", "late-b"])).await;
    let before = ns.ready_pods(APP, 2).await;
    let too_many = settled(&ns, "TooManySources", &known).await;
    assert!(message_of(&too_many, "Ready").contains("ConfigMap/late-a"), "{}", too_many["status"]);
    edit(&ns, "ConfigMap/late-a").await;
    edit(&ns, known[5]).await;
    settled(&ns, "TooManySources", &known).await;
    assert_eq!(replaced(&ns, &before).await, ["first"]);
    exclude(&ns, names[0]).await;
    known[0] = "ConfigMap/late-a";
    let too_many = settled(&ns, "TooManySources", &known).await;
    assert!(message_of(&too_many, "Ready").contains("ConfigMap/late-b"), "{}", too_many["status"]);
    let before = ns.ready_pods(APP, 2).await;
    ns.patch("configmaps", "late-a", json!({"data": {"key": "three"}})).await;
    settled(&ns, "TooManySources", &known).await;
    assert_eq!(replaced(&ns, &before).await, ["second"]);
}

#[tokio::test]
async fn discovered_secrets_need_the_right_to_all_secrets() {
    let ns = TestNamespace::new().await;
    let sources = ["ConfigMap/a", "Secret/s"];
    create(&ns, &sources).await;
    let volumes = json!([{"name": "s", "secret": {"secretName": "s"}}]);
    let container = json!({"name": "app", "image": "app"});
    workload(&ns, "deployments", "first", 1, refers(&["a"])).await;
    workload(&ns, "deployments", "second", 1, json!({"containers": [container], "volumes": volumes})).await;
    let before = ns.ready_pods(APP, 2).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({"discover": {"kinds": ["ConfigMap", "Secret"]}})).await;
    let forbidden = settled(&ns, "Forbidden", &["ConfigMap/a"]).await;
    assert_eq!(condition(&forbidden, "Stalled")["reason"], "Forbidden", "{}", forbidden["status"]);
    ns.messages_have(&["secrets", "deploy/secrets"]).await;
    edit(&ns, "ConfigMap/a").await;
    settled(&ns, "Forbidden", &["ConfigMap/a"]).await;
    assert_eq!(replaced(&ns, &before).await, ["first"], "ConfigMaps go on");
    secrets::allow(&ns).await;
    settled(&ns, "UpToDate", &sources).await;
    edit(&ns, "Secret/s").await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["first", "second"]);
    let asked = ns.requests().unwrap().into_iter().map(|entry| entry["requestURI"].to_string());
    let single: Vec<String> = asked.filter(|uri| uri.contains("/secrets?") && uri.contains("fieldSelector")).collect();
    assert_eq!(single, [""; 0], "no watch on a single Secret");
}

/// Returns the spec of a pod that reads one key of this ConfigMap.
fn reads(name: &str, key: &str) -> Value {
    let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}]);
    json!({"containers": [{"name": "app", "image": "app", "env": env}]})
}

#[tokio::test]
async fn a_key_counts_if_a_pod_reads_it_and_an_edit_of_the_keys_hides_no_change() {
    let ns = TestNamespace::new().await;
    let data = json!({"one": "a", "two": "a", "three": "a"});
    ns.create("configmaps", json!({"metadata": {"name": "shop"}, "data": data})).await;
    let edit = async |data: Value| ns.patch("configmaps", "shop", json!({"data": data})).await;
    workload(&ns, "deployments", "first", 1, reads("shop", "one")).await;
    workload(&ns, "deployments", "second", 1, reads("shop", "two")).await;
    let mut before = ns.ready_pods(APP, 2).await;
    let mut operator = ns.operator().await;
    discover(&ns, json!({})).await;
    let sources = ["ConfigMap/shop"];
    let status = settled(&ns, "UpToDate", &sources).await;
    assert_eq!(status["status"]["sources"][0]["keys"], json!(["one", "two"]));
    edit(json!({"three": "b"})).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, [""; 0]);
    edit(json!({"two": "b"})).await;
    settled(&ns, "UpToDate", &sources).await;
    assert_eq!(replaced(&ns, &before).await, ["first", "second"], "both refer to its object");
    before = ns.ready_pods(APP, 2).await;
    // Another pod reads the third key, along with a change of another one.
    operator.kill();
    edit(json!({"one": "b"})).await;
    workload(&ns, "deployments", "third", 1, reads("shop", "three")).await;
    let all = ns.ready_pods(APP, 3).await;
    before.extend(all.iter().map(|(name, uid)| (name.clone(), uid.clone())));
    let _operator = ns.operator().await;
    let status = settled(&ns, "UpToDate", &sources).await;
    assert_eq!(status["status"]["sources"][0]["keys"], json!(["one", "three", "two"]));
    assert_eq!(replaced(&ns, &before).await, ["first", "second", "third"]);
}

#[tokio::test]
async fn beyond_64_selectors_of_a_namespace_pods_are_listed_and_the_message_says_so() {
    let ns = TestNamespace::new().await;
    create(&ns, &["ConfigMap/a", "ConfigMap/b"]).await;
    workload(&ns, "deployments", "last", 1, refers(&["a"])).await;
    let before = ns.ready_pods(APP, 1).await;
    let _operator = ns.operator().await;
    // Two others are listed, too.
    for number in 0..66 {
        let spec = json!({"configMap": null, "discover": {}, "podSelector": {"number": number.to_string()}});
        ns.create_monitor(&format!("m{number}"), spec).await;
    }
    ns.settled("m65", "NoPodsSelected").await;
    discover(&ns, json!({"podSelector": {"part": "last"}})).await;
    let monitor = settled(&ns, "UpToDate", &["ConfigMap/a"]).await;
    let message = message_of(&monitor, "Ready");
    assert!(message.contains("a minute later") && message.contains("at most 64 selectors of a namespace"), "{message}");
    edit(&ns, "ConfigMap/a").await;
    settled(&ns, "UpToDate", &["ConfigMap/a"]).await;
    assert_eq!(replaced(&ns, &before).await, ["last"]);
    for number in 5..8 {
        ns.delete("configmonitors", &format!("m{number}")).await;
    }
    eventually("there is a place for it", DEADLINE, async || {
        let monitor = ns.get("configmonitors", NAME).await;
        ensure!(!message_of(&monitor, "Ready").contains("a minute later"), "{monitor}");
        Ok(())
    })
    .await
    .unwrap();
}

/// The pod as the API server has defaulted it.
#[tokio::test]
async fn all_references_of_a_pod_are_found_and_nothing_that_only_looks_like_one() {
    let ns = TestNamespace::new().await;
    secrets::allow(&ns).await;
    let item = json!([{"key": "key", "path": "path"}]);
    let field = json!([{"path": "no", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let volumes = json!([
        {"name": "a", "configMap": {"name": "volume", "items": item}},
        {"name": "b", "secret": {"secretName": "volume", "items": item}},
        {"name": "c", "projected": {"sources": [
            {"configMap": {"name": "projected"}}, {"secret": {"name": "projected"}},
            {"downwardAPI": {"items": field}}, {"serviceAccountToken": {"path": "no"}},
        ]}},
        {"name": "d", "configMap": {"name": "sub-path"}},
        {"name": "e", "configMap": {"name": "unmounted", "optional": true}},
        {"name": "token", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kube-root-ca.crt"}},
        ]}},
        {"name": "f", "downwardAPI": {"items": field}},
        {"name": "g", "csi": {"driver": "d.example.com", "nodePublishSecretRef": {"name": "no"}}},
        {"name": "h", "azureFile": {"secretName": "no", "shareName": "no"}},
        {"name": "i", "iscsi": {"targetPortal": "no", "iqn": "iqn.2026-01.com.example:no", "lun": 0, "secretRef": {"name": "no"}}},
        {"name": "j", "emptyDir": {}},
    ]);
    let from = |prefix: &str| json!([{"configMapRef": {"name": format!("{prefix}-all")}}, {"secretRef": {"name": format!("{prefix}-all")}}]);
    let env = |prefix: &str| {
        json!([
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": format!("{prefix}-key"), "key": "key"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": format!("{prefix}-key"), "key": "key"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "D", "value": "no"},
        ])
    };
    let container = |name: &str| json!({"name": name, "image": "app", "envFrom": from(name), "env": env(name)});
    let mut app = container("app");
    app["volumeMounts"] = json!([{"name": "d", "mountPath": "/d", "subPath": "key"}]);
    let pod = json!({"containers": [app], "initContainers": [container("init")], "volumes": volumes,
        "imagePullSecrets": [{"name": "no"}], "serviceAccountName": "default"});
    workload(&ns, "replicasets", "set", 1, pod).await;
    let name = eventually("the pod exists", DEADLINE, async || {
        let pods = ns.pods(APP).await;
        ensure!(pods.len() == 1);
        Ok(pods.into_keys().next().unwrap())
    })
    .await
    .unwrap();
    let debugger = json!([{"name": "debugger", "image": "app", "envFrom": from("no")}]);
    let path = ns.path("pods", &format!("{name}/ephemeralcontainers"));
    let debugger = json!({"spec": {"ephemeralContainers": debugger}});
    ns.client.strategic_patch(&path, &debugger).await.unwrap().ok().unwrap();

    let both = ["volume", "projected", "app-all", "app-key", "init-all", "init-key"];
    let mut sources: Vec<String> =
        ["ConfigMap", "Secret"].iter().flat_map(|kind| both.map(|name| format!("{kind}/{name}"))).collect();
    sources.push("ConfigMap/sub-path".to_owned());
    let required: Vec<&str> = sources.iter().map(String::as_str).collect();
    create(&ns, &required).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({"discover": {"kinds": ["ConfigMap", "Secret"]}})).await;
    let all: Vec<&str> = required.iter().copied().chain(["ConfigMap/unmounted"]).collect();
    let found = settled(&ns, "UpToDate", &all).await;
    for source in found["status"]["sources"].as_array().unwrap() {
        let name = source["name"].as_str().unwrap();
        let is_one_key = name == "volume" || name.ends_with("-key");
        let keys = if is_one_key { json!(["key"]) } else { Value::Null };
        assert_eq!((&source["discovered"], &source["keys"]), (&json!(true), &keys), "{source}");
    }
}
