//! One namespace of a control plane that all tests share, with the shipped rights, a proxy and an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testenv::{Client, ControlPlane, DEADLINE, Operator, Proxy, eventually, is_ready, project};
use tokio::sync::OnceCell;

/// The name of everything there is one of in a test.
pub(crate) const NAME: &str = "frontend";

/// The label of the pods of a test.
pub(crate) const APP: &str = "app=frontend";

static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
static DEPLOYMENT: OnceCell<Value> = OnceCell::const_new();
static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// A namespace with everything a test needs. Its proxy lets through what the shipped one does.
pub(crate) struct World {
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) proxy: Proxy,
}

/// A file of the project.
pub(crate) fn file(name: &str) -> String {
    project(name).to_str().expect("a path in UTF-8").to_owned()
}

/// The control plane that all tests share, with what belongs to the cluster installed.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    CONTROL_PLANE
        .get_or_init(|| async {
            let control_plane = ControlPlane::start().await.expect("a control plane");
            install_crd(&control_plane).await;
            let roles = file("deploy/cluster-roles.yml");
            control_plane.kubectl().ok(&["apply", "-f", &roles]).await.expect("cluster-roles.yml");
            control_plane
        })
        .await
}

/// Installs `crd.yml` and waits until it is served.
pub(crate) async fn install_crd(control_plane: &ControlPlane) {
    let kubectl = control_plane.kubectl();
    kubectl.ok(&["apply", "-f", &file("crd.yml")]).await.expect("crd.yml");
    kubectl
        .ok(&["wait", "--for=condition=Established", "crd/configmonitors.magalix.com", "--timeout=60s"])
        .await
        .expect("an established CRD");
}

/// Creates a namespace with these labels.
pub(crate) async fn create_namespace(control_plane: &ControlPlane, labels: Value) -> String {
    let name = format!("test-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
    let object = json!({"metadata": {"name": name, "labels": labels}});
    control_plane.client().create("/api/v1/namespaces", &object).await.unwrap().ok().unwrap();
    name
}

/// The operator's Deployment as it is shipped.
pub(crate) async fn shipped_deployment(control_plane: &ControlPlane) -> &'static Value {
    DEPLOYMENT
        .get_or_init(|| async {
            let args = ["create", "--dry-run=client", "--output=json", "-f", &file("deploy/deployment.yml")];
            serde_json::from_str(&control_plane.kubectl().ok(&args).await.unwrap()).unwrap()
        })
        .await
}

/// What the shipped proxy is started with in this namespace, but for where it listens.
fn proxy_args(deployment: &Value, namespace: &str) -> Vec<String> {
    let proxy = &deployment["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!((&proxy["name"], &proxy["args"][0]), (&json!("proxycontainer"), &json!("proxy")));
    let variable = &proxy["env"][0];
    assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace");
    let reference = format!("$({})", variable["name"].as_str().unwrap());
    let args = proxy["args"].as_array().unwrap()[1..].iter().map(|arg| arg.as_str().unwrap());
    let narrowing = args.filter(|arg| !arg.starts_with("--address=") && !arg.starts_with("--port="));
    narrowing.map(|arg| arg.replace(&reference, namespace)).collect()
}

/// Starts the operator's proxy for a namespace in which it has its rights.
pub(crate) async fn start_proxy(control_plane: &ControlPlane, namespace: &str) -> Proxy {
    let token = control_plane.service_account_token(namespace, "configmonitor-operator").await.unwrap();
    let args = proxy_args(shipped_deployment(control_plane).await, namespace);
    Proxy::start(control_plane, &token, &args).await.unwrap()
}

impl World {
    /// A new namespace of the shared control plane.
    pub(crate) async fn new() -> Self {
        Self::on(control_plane().await).await
    }

    /// A new namespace with a ConfigMap and so many pods.
    pub(crate) async fn with_pods(replicas: usize) -> Self {
        let world = Self::new().await;
        world.config_map(NAME, "one").await;
        world.deployment(NAME, replicas, json!({"app": NAME})).await;
        world
    }

    /// A new namespace of this control plane.
    pub(crate) async fn on(control_plane: &ControlPlane) -> Self {
        let namespace = create_namespace(control_plane, json!({})).await;
        let rights = file("deploy/rbac.yml");
        control_plane.kubectl().ok(&["apply", "-n", &namespace, "-f", &rights]).await.unwrap();
        let proxy = start_proxy(control_plane, &namespace).await;
        Self { namespace, client: control_plane.client(), proxy }
    }

    /// Starts an operator and waits until it is synced.
    pub(crate) async fn operator(&self) -> Operator {
        let operator = self.unsynced_operator();
        operator.wait_for_message("synced").await.unwrap();
        operator
    }

    /// Starts an operator.
    pub(crate) fn unsynced_operator(&self) -> Operator {
        self.operator_behind(&self.proxy.url())
    }

    /// Starts an operator that takes what is at this address for its proxy.
    pub(crate) fn operator_behind(&self, url: &str) -> Operator {
        let binary = testenv::operator::binary().unwrap();
        Operator::start(&binary, url, &self.namespace, &["--log", "info,configmonitor_operator=debug"], &[]).unwrap()
    }

    /// The path of all objects of a kind in this namespace.
    pub(crate) fn collection(&self, resource: &str) -> String {
        self.path(resource, "").trim_end_matches('/').to_owned()
    }

    /// The path of an object in this namespace.
    pub(crate) fn path(&self, resource: &str, name: &str) -> String {
        let root = match resource {
            "configmonitors" => "apis/magalix.com/v1",
            "deployments" | "replicasets" | "statefulsets" | "daemonsets" => "apis/apps/v1",
            "jobs" => "apis/batch/v1",
            "poddisruptionbudgets" => "apis/policy/v1",
            "roles" => "apis/rbac.authorization.k8s.io/v1",
            "events" => "apis/events.k8s.io/v1",
            _ => "api/v1",
        };
        format!("/{root}/namespaces/{}/{resource}/{name}", self.namespace)
    }

    pub(crate) async fn create(&self, resource: &str, object: Value) -> Value {
        self.client.create(&self.collection(resource), &object).await.unwrap().ok().unwrap()
    }

    pub(crate) async fn get(&self, resource: &str, name: &str) -> Value {
        self.client.get(&self.path(resource, name)).await.unwrap().ok().unwrap()
    }

    pub(crate) async fn patch(&self, resource: &str, name: &str, patch: Value) -> Value {
        self.client.merge_patch(&self.path(resource, name), &patch).await.unwrap().ok().unwrap()
    }

    pub(crate) async fn delete(&self, resource: &str, name: &str) {
        self.client.delete(&self.path(resource, name)).await.unwrap().ok().unwrap();
    }

    /// Creates a ConfigMap with one key.
    pub(crate) async fn config_map(&self, name: &str, content: &str) {
        self.create("configmaps", json!({"metadata": {"name": name}, "data": {"config.cfg": content}})).await;
    }

    /// Gives a ConfigMap other content.
    pub(crate) async fn edit(&self, name: &str, content: &str) {
        self.patch("configmaps", name, json!({"data": {"config.cfg": content}})).await;
    }

    /// Creates a Deployment of so many pods and waits until they are Ready.
    pub(crate) async fn deployment(&self, name: &str, replicas: usize, labels: Value) {
        self.create_deployment(name, replicas, &labels).await;
        let (key, value) = labels.as_object().unwrap().iter().next_back().unwrap();
        self.ready_pods(&format!("{key}={}", value.as_str().unwrap()), replicas).await;
    }

    /// The same without waiting.
    pub(crate) async fn create_deployment(&self, name: &str, replicas: usize, labels: &Value) {
        let spec = json!({
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}},
        });
        self.create("deployments", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// The UIDs of the pods that match, by name.
    pub(crate) async fn pods(&self, selector: &str) -> BTreeMap<String, String> {
        let pods = self.client.list(&self.path("pods", &format!("?labelSelector={selector}"))).await.unwrap();
        pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).map(name_and_uid).collect()
    }

    /// Waits until exactly so many pods match and all are Ready.
    pub(crate) async fn ready_pods(&self, selector: &str, count: usize) -> BTreeMap<String, String> {
        eventually(&format!("{count} pods {selector} are Ready"), DEADLINE, async || {
            let pods = self.client.list(&self.path("pods", &format!("?labelSelector={selector}"))).await?;
            let ready: BTreeMap<_, _> = pods.iter().filter(|pod| is_ready(pod)).map(name_and_uid).collect();
            ensure!(ready.len() == count && pods.len() == count, "{} of {} are", ready.len(), pods.len());
            Ok(ready)
        })
        .await
        .unwrap()
    }

    /// Waits until so many pods match, all are Ready, and none is one of `before`.
    pub(crate) async fn replaced(&self, selector: &str, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        eventually(&format!("the pods {selector} are replaced"), DEADLINE, async || {
            let pods = self.client.list(&self.path("pods", &format!("?labelSelector={selector}"))).await?;
            let after: BTreeMap<_, _> = pods.iter().filter(|pod| is_ready(pod)).map(name_and_uid).collect();
            ensure!(
                pods.len() == before.len() && after.len() == before.len(),
                "{} of {} are Ready",
                after.len(),
                pods.len()
            );
            ensure!(after.values().all(|uid| !before.values().any(|old| old == uid)), "some are still there");
            Ok(after)
        })
        .await
        .unwrap()
    }

    /// Creates a ConfigMonitor for `app=frontend` and the ConfigMap `frontend` that acts at once, with more in its spec,
    /// and waits for its baseline.
    pub(crate) async fn monitor(&self, name: &str, more: Value) -> Value {
        self.create_monitor(name, more).await;
        self.settled(name, "UpToDate").await
    }

    /// The same without waiting.
    pub(crate) async fn create_monitor(&self, name: &str, more: Value) {
        let mut spec = json!({"configMap": NAME, "podSelector": {"app": NAME}, "quietPeriodSeconds": 0});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let kind =
            json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec});
        self.create("configmonitors", kind).await;
    }

    /// Waits until the ConfigMonitor has this reason, is about its newest spec and has read the newest ConfigMap.
    pub(crate) async fn settled(&self, name: &str, reason: &str) -> Value {
        eventually(&format!("configmonitor {name} is {reason}"), DEADLINE, async || {
            let monitor = self.client.get(&self.path("configmonitors", name)).await?.ok()?;
            let spec = &monitor["spec"];
            let source = spec["configMap"].as_str().or(spec["configmap"].as_str()).unwrap_or_default();
            let config_map = self.client.get(&self.path("configmaps", source)).await?;
            let version = config_map.body["metadata"]["resourceVersion"].as_str();
            ensure_settled(&monitor, reason, version)?;
            Ok(monitor)
        })
        .await
        .unwrap()
    }

    /// Waits for an Event about this object with this reason.
    pub(crate) async fn event(&self, kind: &str, reason: &str) -> Value {
        eventually(&format!("an Event {reason}"), DEADLINE, async || {
            self.events(kind, reason).await.pop().context("none so far")
        })
        .await
        .unwrap()
    }

    /// The Events so far about objects of this kind with this reason.
    pub(crate) async fn events(&self, kind: &str, reason: &str) -> Vec<Value> {
        let events = self.client.list(&self.collection("events")).await.unwrap();
        events.into_iter().filter(|event| event["reason"] == reason && event["regarding"]["kind"] == kind).collect()
    }

    /// Takes a verb on a resource from the operator.
    pub(crate) async fn revoke(&self, resource: &str, verb: &str) {
        self.change_rights(|rule| {
            if rule["resources"][0] == resource {
                let verbs = rule["verbs"].as_array_mut().unwrap();
                verbs.retain(|held| held != verb);
                // The API takes no rule without a verb.
                if verbs.is_empty() {
                    verbs.push("nothing".into());
                }
            }
        })
        .await;
    }

    /// Gives it back.
    pub(crate) async fn grant(&self, resource: &str, verb: &str) {
        self.change_rights(|rule| {
            if rule["resources"][0] == resource {
                rule["verbs"].as_array_mut().unwrap().push(verb.into());
            }
        })
        .await;
    }

    async fn change_rights(&self, change: impl Fn(&mut Value)) {
        let mut role = self.get("roles", "configmonitor-operator").await;
        role["rules"].as_array_mut().unwrap().iter_mut().for_each(change);
        self.client.replace(&self.path("roles", "configmonitor-operator"), &role).await.unwrap().ok().unwrap();
    }

    /// How many pods of this namespace the operator has deleted. The pods of a Deployment never share a name, and a pod that
    /// is terminating already can be deleted again without harm. When a client is killed, the server writes down 504 for what it
    /// then does all the same.
    pub(crate) fn deletions(&self) -> Result<usize> {
        let deleted: BTreeSet<String> = self
            .requests()?
            .iter()
            .filter(|entry| {
                entry["verb"] == "delete"
                    && entry["objectRef"]["resource"] == "pods"
                    && entry["responseStatus"]["code"].as_u64().is_some_and(|code| code == 200 || code >= 500)
            })
            .map(|entry| entry["objectRef"]["name"].to_string())
            .collect();
        Ok(deleted.len())
    }

    /// What the operator of this namespace has asked for so far, as the audit log has it.
    pub(crate) fn requests(&self) -> Result<Vec<Value>> {
        self.requests_on(CONTROL_PLANE.get().context("no shared control plane")?)
    }

    /// The same on another control plane.
    pub(crate) fn requests_on(&self, control_plane: &ControlPlane) -> Result<Vec<Value>> {
        let operator = format!("system:serviceaccount:{}:configmonitor-operator", self.namespace);
        let entries = control_plane.audit_log()?.into_iter();
        Ok(entries.filter(|entry| entry["user"]["username"] == operator.as_str()).collect())
    }
}

/// Whether a ConfigMonitor has this reason, is about its newest spec, and, if it is up to date, has read this version of the ConfigMap.
pub(crate) fn ensure_settled(monitor: &Value, reason: &str, version: Option<&str>) -> Result<()> {
    let (ready, status) = (condition(monitor, "Ready"), &monitor["status"]);
    ensure!(ready["reason"] == reason, "{ready}");
    ensure!(status["observedGeneration"] == monitor["metadata"]["generation"], "an older spec");
    ensure!(reason != "UpToDate" || status["sourceResourceVersion"].as_str() == version, "an older ConfigMap");
    Ok(())
}

/// A condition of a ConfigMonitor.
pub(crate) fn condition<'a>(monitor: &'a Value, r#type: &str) -> &'a Value {
    let conditions = monitor["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == r#type).unwrap_or(&Value::Null)
}

fn name_and_uid(pod: &Value) -> (String, String) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
    (text("name"), text("uid"))
}
