//! What tests and benchmarks create in a namespace, with the operator's rights in it and the proxy as shipped.
//!
//! Everything here panics at the first unexpected result, because tests rely on it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::client::{Client, DEADLINE, eventually, is_ready};
use crate::control_plane::ControlPlane;
use crate::kubectl::Kubectl;
use crate::proxy::Proxy;
use crate::run_dir::RunDir;
use crate::{manifests, project};

/// The name of each object of which a test needs only one.
pub const NAME: &str = "frontend";

/// The label of the pods with that name.
pub const APP: &str = "app=frontend";

static DEPLOYMENT: OnceCell<Value> = OnceCell::const_new();
static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// A namespace, and the administrator's rights in it.
#[derive(Debug)]
pub struct Fixture {
    pub namespace: String,
    pub client: Client,
}

pub fn file(name: &str) -> String {
    project(name).to_str().expect("a path in UTF-8").to_owned()
}

/// Returns a file or folder of the project as a kustomization in the folder `from` names it: kustomize takes no
/// absolute paths.
pub fn relative(from: &Path, name: &str) -> String {
    // Up to the root of the file system. The canonical path is the folder itself, whatever symbolic links led to it.
    let from = fs::canonicalize(from).expect("a folder");
    let to = fs::canonicalize(project(name)).expect("a path of the project");
    format!("{}{}", "../".repeat(from.components().count() - 1), to.to_str().expect("UTF-8").trim_start_matches('/'))
}

/// Installs `crd.yml` and waits until the API server serves it.
pub async fn install_crd(control_plane: &ControlPlane) {
    let kubectl = control_plane.kubectl();
    kubectl.ok(&["apply", "-f", &file("crd.yml")]).await.expect("crd.yml");
    is_established(kubectl, "configmonitors.magalix.com").await;
}

/// Creates another CustomResourceDefinition and waits until the API server serves it.
pub async fn create_crd(control_plane: &ControlPlane, crd: &Value) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let created = control_plane.client().create(path, crd).await.unwrap().ok().unwrap();
    is_established(control_plane.kubectl(), created["metadata"]["name"].as_str().expect("a name")).await;
}

/// Waits until the API server serves the objects of a CustomResourceDefinition.
pub async fn is_established(kubectl: &Kubectl, crd: &str) {
    let wait = ["wait", "--for=condition=Established", &format!("crd/{crd}"), "--timeout=10m"];
    // kubectl fails at an object whose conditions are null, as they are at first.
    eventually("the CRD is established", DEADLINE, async || kubectl.ok(&wait).await).await.expect("an established CRD");
}

pub async fn create_namespace(control_plane: &ControlPlane, labels: Value) -> String {
    let name = format!("test-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
    let object = json!({"metadata": {"name": name, "labels": labels}});
    control_plane.client().create("/api/v1/namespaces", &object).await.unwrap().ok().unwrap();
    name
}

/// Returns the Deployment with everything that a Component lets kubectl proxy pass.
pub async fn shipped_deployment(control_plane: &ControlPlane) -> &'static Value {
    let components = ["deploy/secrets/proxy", "deploy/high-availability", "deploy/surge/proxy"];
    DEPLOYMENT.get_or_init(|| deployment_with(control_plane, &components)).await
}

pub async fn deployment_with(control_plane: &ControlPlane, components: &[&str]) -> Value {
    let dir = RunDir::create().unwrap();
    let components: Vec<String> = components.iter().map(|name| relative(dir.path(), name)).collect();
    let kustomization = json!({"resources": [relative(dir.path(), "deploy/operator")], "components": components});
    fs::write(dir.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let args = ["create", "--dry-run=client", "--output=json", "-k", dir.path().to_str().unwrap()];
    let objects = control_plane.kubectl().ok(&args).await.unwrap();
    let objects = serde_json::Deserializer::from_str(&objects).into_iter::<Value>();
    objects.map(Result::unwrap).find(|object| object["kind"] == "Deployment").unwrap()
}

/// Applies this folder with these Components into a namespace, as the docs say.
pub async fn apply(control_plane: &ControlPlane, namespace: &str, resource: &str, components: &[&str]) {
    let dir = RunDir::create().unwrap();
    let folder = |name: &str| relative(dir.path(), name);
    let components: Vec<String> = components.iter().map(|name| folder(name)).collect();
    let kustomization = json!({"namespace": namespace, "resources": [folder(resource)], "components": components});
    fs::write(dir.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    control_plane.kubectl().ok(&["apply", "-k", dir.path().to_str().unwrap()]).await.unwrap();
}

/// Returns the arguments of a Deployment's proxy in the namespace `own`, except for its address. The paths that it
/// accepts are regular expressions, so the namespace may be one too.
pub fn proxy_args(deployment: &Value, namespace: &str, own: &str) -> Vec<String> {
    let proxy = &deployment["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!((&proxy["name"], &proxy["args"][0]), (&json!("proxycontainer"), &json!("proxy")));
    let value_of = |variable: &Value| match (variable["name"].as_str().unwrap(), variable["value"].as_str()) {
        ("res_namespace", _) => namespace.to_owned(),
        (_, Some(value)) => value.to_owned(),
        (_, None) => {
            assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace");
            own.to_owned()
        }
    };
    let expanded = |arg: String, variable: &Value| {
        arg.replace(&format!("$({})", variable["name"].as_str().unwrap()), &value_of(variable))
    };
    let env = proxy["env"].as_array().unwrap();
    let args = proxy["args"].as_array().unwrap()[1..].iter().map(|arg| arg.as_str().unwrap());
    let narrowing = args.filter(|arg| !arg.starts_with("--address=") && !arg.starts_with("--port="));
    narrowing.map(|arg| env.iter().fold(arg.to_owned(), expanded)).collect()
}

/// Gives an operator in the namespace the right to change pods, without the policy that fences it.
pub async fn grant_surge_without_policy(control_plane: &ControlPlane, namespace: &str) {
    let objects = manifests(&project("deploy/surge/policy/policy.yml")).unwrap();
    let right = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    control_plane.client().create(roles, right).await.unwrap().ok().unwrap();
    let binding = ["apply", "-n", namespace, "-f", &file("deploy/surge/binding/binding.yml")];
    control_plane.kubectl().ok(&binding).await.unwrap();
}

/// Starts the operator's proxy for a namespace in which the operator has its rights.
pub async fn start_proxy(control_plane: &ControlPlane, namespace: &str) -> Proxy {
    start_proxy_of(control_plane, shipped_deployment(control_plane).await, namespace).await
}

/// Starts the proxy of this Deployment, as if it were in this namespace.
pub async fn start_proxy_of(control_plane: &ControlPlane, deployment: &Value, namespace: &str) -> Proxy {
    let token = control_plane.service_account_token(namespace, "configmonitor-operator").await.unwrap();
    control_plane.proxy_with(&token, &proxy_args(deployment, namespace, namespace)).await.unwrap()
}

/// Starts one proxy for several namespaces, with the operator's rights in all of them.
pub async fn share_proxy(control_plane: &ControlPlane, fixtures: &[Fixture]) -> Proxy {
    let names: Vec<&str> = fixtures.iter().map(|fixture| fixture.namespace.as_str()).collect();
    for fixture in &fixtures[1..] {
        fixture.bind("configmonitor-operator", names[0]).await;
    }
    let token = control_plane.service_account_token(names[0], "configmonitor-operator").await.unwrap();
    let args = proxy_args(shipped_deployment(control_plane).await, &format!("({})", names.join("|")), names[0]);
    control_plane.proxy_with(&token, &args).await.unwrap()
}

impl Fixture {
    /// Creates a namespace of this control plane, in which the operator has its rights.
    pub async fn new(control_plane: &ControlPlane) -> Self {
        let namespace = create_namespace(control_plane, json!({})).await;
        let [account, role] = ["deploy/serviceaccount.yml", "deploy/role/role.yml"].map(file);
        control_plane.kubectl().ok(&["apply", "-n", &namespace, "-f", &account, "-f", &role]).await.unwrap();
        Self { namespace, client: control_plane.client() }
    }

    pub fn collection(&self, resource: &str) -> String {
        self.path(resource, "").trim_end_matches('/').to_owned()
    }

    pub fn path(&self, resource: &str, name: &str) -> String {
        let root = match resource {
            "configmonitors" => "apis/magalix.com/v1",
            "deployments" | "replicasets" | "statefulsets" | "daemonsets" => "apis/apps/v1",
            "poddisruptionbudgets" => "apis/policy/v1",
            "leases" => "apis/coordination.k8s.io/v1",
            "roles" | "rolebindings" => "apis/rbac.authorization.k8s.io/v1",
            "events" => "apis/events.k8s.io/v1",
            _ => "api/v1",
        };
        format!("/{root}/namespaces/{}/{resource}/{name}", self.namespace)
    }

    pub async fn create(&self, resource: &str, object: Value) -> Value {
        self.client.create(&self.collection(resource), &object).await.unwrap().ok().unwrap()
    }

    pub async fn get(&self, resource: &str, name: &str) -> Value {
        self.client.get(&self.path(resource, name)).await.unwrap().ok().unwrap()
    }

    pub async fn patch(&self, resource: &str, name: &str, patch: Value) -> Value {
        self.client.merge_patch(&self.path(resource, name), &patch).await.unwrap().ok().unwrap()
    }

    pub async fn delete(&self, resource: &str, name: &str) {
        self.client.delete(&self.path(resource, name)).await.unwrap().ok().unwrap();
    }

    pub async fn config_map(&self, name: &str, content: &str) {
        self.create("configmaps", json!({"metadata": {"name": name}, "data": {"config.cfg": content}})).await;
    }

    pub async fn edit(&self, name: &str, content: &str) {
        self.patch("configmaps", name, json!({"data": {"config.cfg": content}})).await;
    }

    /// Creates a Deployment with `replicas` pods and waits until they are Ready.
    pub async fn deployment(&self, name: &str, replicas: usize, labels: Value) {
        self.create_deployment(name, replicas, &labels).await;
        let (key, value) = labels.as_object().unwrap().iter().next_back().unwrap();
        self.ready_pods(&format!("{key}={}", value.as_str().unwrap()), replicas).await;
    }

    /// Creates a Deployment without waiting.
    pub async fn create_deployment(&self, name: &str, replicas: usize, labels: &Value) {
        let spec = json!({
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}},
        });
        self.create("deployments", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    /// Returns the UIDs of the pods that match, by name.
    pub async fn pods(&self, selector: &str) -> BTreeMap<String, String> {
        let pods = self.client.list(&self.path("pods", &format!("?labelSelector={selector}"))).await.unwrap();
        pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).map(name_and_uid).collect()
    }

    pub async fn ready_pods(&self, selector: &str, count: usize) -> BTreeMap<String, String> {
        eventually(&format!("{count} pods {selector} are Ready"), DEADLINE, async || {
            let pods = self.client.list(&self.path("pods", &format!("?labelSelector={selector}"))).await?;
            let ready: BTreeMap<_, _> = pods.iter().filter(|pod| is_ready(pod)).map(name_and_uid).collect();
            ensure!(ready.len() == count && pods.len() == count, "{} of {} pods are Ready", ready.len(), pods.len());
            Ok(ready)
        })
        .await
        .unwrap()
    }

    /// Waits until as many pods match as in `before`, all are Ready, and none is one of `before`.
    pub async fn replaced(&self, selector: &str, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        eventually(&format!("the pods {selector} are replaced"), DEADLINE, async || {
            let pods = self.client.list(&self.path("pods", &format!("?labelSelector={selector}"))).await?;
            let after: BTreeMap<_, _> = pods.iter().filter(|pod| is_ready(pod)).map(name_and_uid).collect();
            ensure!(
                pods.len() == before.len() && after.len() == before.len(),
                "{} of {} are Ready",
                after.len(),
                pods.len()
            );
            ensure!(after.values().all(|uid| !before.values().any(|old| old == uid)), "some old pods still exist");
            Ok(after)
        })
        .await
        .unwrap()
    }

    /// Creates a ConfigMonitor for `app=frontend` and the ConfigMap `frontend`, without a quiet period and with `more`
    /// in its spec, and waits for its baseline.
    pub async fn monitor(&self, name: &str, more: Value) -> Value {
        self.create_monitor(name, more).await;
        self.settled(name, "UpToDate").await
    }

    /// Creates a ConfigMonitor without waiting. It restarts all pods at once, without a quiet period.
    pub async fn create_monitor(&self, name: &str, more: Value) {
        let mut spec =
            json!({"configMap": NAME, "podSelector": {"app": NAME}, "quietPeriodSeconds": 0, "maxUnavailable": "100%"});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let kind =
            json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec});
        self.create("configmonitors", kind).await;
    }

    /// Waits until the ConfigMonitor has this reason, is about its newest spec and has read the newest ConfigMap.
    pub async fn settled(&self, name: &str, reason: &str) -> Value {
        eventually(&format!("configmonitor {name} is {reason}"), DEADLINE, async || {
            let monitor = self.client.get(&self.path("configmonitors", name)).await?.ok()?;
            let mut config_maps = Vec::new();
            for source in sources(&monitor["spec"]) {
                config_maps.push(self.client.get(&self.path("configmaps", source)).await?.body);
            }
            let versions = config_maps.iter().map(|config_map| config_map["metadata"]["resourceVersion"].as_str());
            ensure_settled(&monitor, reason, "resourceVersion", versions)?;
            Ok(monitor)
        })
        .await
        .unwrap()
    }

    /// Waits until every word is in the messages of the conditions of the ConfigMonitor `frontend`.
    pub async fn messages_have(&self, words: &[&str]) -> Value {
        eventually(&format!("{words:?} are in the messages"), DEADLINE, async || {
            let monitor = self.get("configmonitors", NAME).await;
            let messages = ["Ready", "Reconciling", "Stalled"].map(|r#type| message_of(&monitor, r#type));
            let is_said = |word: &&str| messages.iter().any(|message| message.contains(word));
            ensure!(words.iter().all(is_said), "{}", monitor["status"]);
            Ok(monitor)
        })
        .await
        .unwrap()
    }

    /// Waits for an Event about this object with this reason.
    pub async fn event(&self, kind: &str, reason: &str) -> Value {
        eventually(&format!("an Event {reason}"), DEADLINE, async || {
            self.events(kind, reason).await.pop().context("no Event so far")
        })
        .await
        .unwrap()
    }

    pub async fn events(&self, kind: &str, reason: &str) -> Vec<Value> {
        let events = self.client.list(&self.collection("events")).await.unwrap();
        events.into_iter().filter(|event| event["reason"] == reason && event["regarding"]["kind"] == kind).collect()
    }

    /// Binds a Role of this namespace to the operator that runs in the namespace `operator`, as docs/install.md
    /// says.
    pub async fn bind(&self, role: &str, operator: &str) {
        let subject = json!({"kind": "ServiceAccount", "name": "configmonitor-operator", "namespace": operator});
        let of = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
        let metadata = json!({"name": format!("{role}-shared")});
        self.create("rolebindings", json!({"metadata": metadata, "roleRef": of, "subjects": [subject]})).await;
    }
}

/// The reasons of ConfigMonitors that have nothing left to do.
const SETTLED: [&str; 3] = ["UpToDate", "NoPodsSelected", "KeyNotFound"];

fn sources(spec: &Value) -> Vec<&str> {
    let several = spec["sources"].as_array().into_iter().flatten().map(|source| &source["configMap"]["name"]);
    let short = [&spec["configMap"], &spec["configmap"]];
    short.into_iter().chain(several).filter_map(Value::as_str).collect()
}

/// Checks that a ConfigMonitor has this reason, is about its newest spec and, if nothing is left to do, has these values in this
/// field of its sources.
pub fn ensure_settled<'a>(
    monitor: &'a Value,
    reason: &str,
    field: &str,
    values: impl Iterator<Item = Option<&'a str>>,
) -> Result<()> {
    let (ready, status) = (condition(monitor, "Ready"), &monitor["status"]);
    ensure!(ready["reason"] == reason, "{ready}");
    ensure!(status["observedGeneration"] == monitor["metadata"]["generation"], "the status is about an older spec");
    let read = status["sources"].as_array().into_iter().flatten().map(|source| source[field].as_str());
    ensure!(!SETTLED.contains(&reason) || read.eq(values), "the status is about an older ConfigMap");
    Ok(())
}

pub fn condition<'a>(monitor: &'a Value, r#type: &str) -> &'a Value {
    let conditions = monitor["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == r#type).unwrap_or(&Value::Null)
}

pub fn message_of<'a>(monitor: &'a Value, r#type: &str) -> &'a str {
    condition(monitor, r#type)["message"].as_str().unwrap_or_default()
}

fn name_and_uid(pod: &Value) -> (String, String) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
    (text("name"), text("uid"))
}
