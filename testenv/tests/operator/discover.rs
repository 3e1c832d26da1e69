//! `spec.discover`: sources are read from the pods, and a change of one restarts only the pods that refer to it.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, condition};
use testenv::{DEADLINE, eventually};

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

/// Returns the workloads of the pods that are others than before, each as often as it has such pods.
async fn replaced(ns: &TestNamespace, before: &Pods) -> Vec<String> {
    let after = ns.ready_pods(APP, before.len()).await;
    let gone = before.iter().filter(|(name, uid)| after.get(*name) != Some(*uid));
    gone.map(|(name, _)| name.split('-').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn each_edit_in_a_release_restarts_exactly_the_pods_that_refer() {
    let ns = TestNamespace::new().await;
    secrets::allow(&ns).await;
    let mut referring: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..4 {
        let [name, own] = ["w", "own-"].map(|prefix| format!("{prefix}{number}"));
        let (half, secret) = (format!("half-{}", number % 2), format!("secret-{}", number / 2));
        let variable = json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "key"}}});
        let container =
            json!({"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": own}}], "env": [variable]});
        let projected = json!({"sources": [{"configMap": {"name": half}}]});
        let volumes = json!([{"name": "all", "configMap": {"name": "all"}}, {"name": "half", "projected": projected}]);
        let resource = if number == 3 { "statefulsets" } else { "deployments" };
        workload(&ns, resource, &name, 2, json!({"containers": [container], "volumes": volumes})).await;
        let config_maps = ["all", &own, &half].map(|map| format!("ConfigMap/{map}"));
        for source in config_maps.into_iter().chain([format!("Secret/{secret}")]) {
            referring.entry(source).or_default().extend([name.clone(), name.clone()]);
        }
    }
    let sources: Vec<&str> = referring.keys().map(String::as_str).collect();
    assert_eq!(sources.len(), 7 + 2);
    create(&ns, &sources).await;
    let mut before = ns.ready_pods(APP, 8).await;
    let _operator = ns.operator().await;
    discover(&ns, json!({"discover": {"kinds": ["ConfigMap", "Secret"]}})).await;
    let baseline = settled(&ns, "UpToDate", &sources).await;
    assert_eq!(baseline["status"]["source"], "9 discovered");
    for (source, pods) in &referring {
        edit(&ns, source).await;
        settled(&ns, "UpToDate", &sources).await;
        assert_eq!(replaced(&ns, &before).await, *pods, "{source}");
        before = ns.pods(APP).await;
    }
}
