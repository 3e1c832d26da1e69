//! A namespace of a control plane that all tests share, with the shipped rights, a proxy and an operator.

use std::collections::BTreeSet;
use std::ops::Deref;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, file, install_crd, start_proxy, start_proxy_of};
use testenv::{ControlPlane, Operator, Proxy};
use tokio::sync::OnceCell;

static CONTROL_PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// A namespace with everything a test needs. Its proxy accepts the paths that the shipped one accepts.
pub(crate) struct TestNamespace {
    fixture: Fixture,
    pub(crate) proxy: Proxy,
}

impl Deref for TestNamespace {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

/// Returns the control plane that all tests share, with the cluster's objects installed.
pub(crate) async fn control_plane() -> &'static ControlPlane {
    CONTROL_PLANE
        .get_or_init(|| async {
            let control_plane = ControlPlane::start().await.expect("a control plane");
            install_crd(&control_plane).await;
            for roles in ["cluster-roles", "cluster-role-admin"].map(|name| file(&format!("deploy/{name}.yml"))) {
                control_plane.kubectl().ok(&["apply", "-f", &roles]).await.expect("ClusterRoles");
            }
            control_plane
        })
        .await
}

/// Returns the environment of the operator in a pod of this Deployment.
fn env(deployment: &Value, namespace: &str, pod_uid: &str) -> Vec<(String, String)> {
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let value = |variable: &Value| match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
        Some("metadata.namespace") => namespace.to_owned(),
        Some("metadata.uid") => pod_uid.to_owned(),
        _ => variable["value"].as_str().unwrap().to_owned(),
    };
    env.iter().map(|variable| (variable["name"].as_str().unwrap().to_owned(), value(variable))).collect()
}

/// Lets a pod run on the nodes that were made for it, where no other pod runs.
fn only_on_own_nodes(pod: &mut Value, of: &str) {
    pod["nodeSelector"] = json!({"for": of});
    pod["tolerations"] = json!([{"key": "for", "value": of, "effect": "NoSchedule"}]);
}

/// Runs what a pod of this Deployment would run, and waits until it is synced.
pub(crate) async fn pod_of(
    control_plane: &ControlPlane,
    deployment: &Value,
    namespace: &str,
    pod_uid: &str,
) -> (Proxy, Operator) {
    let proxy = start_proxy_of(control_plane, deployment, namespace).await;
    let env = env(deployment, namespace, pod_uid);
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
    let (_, served) = env.iter().find(|(name, _)| *name == "res_namespace").unwrap();
    let binary = testenv::operator::binary().unwrap();
    let operator = Operator::start(&binary, &proxy.url(), served, &[], &env).unwrap();
    operator.wait_for_message("synced").await.unwrap();
    (proxy, operator)
}

impl TestNamespace {
    pub(crate) async fn new() -> Self {
        Self::on(control_plane().await).await
    }

    /// Creates a namespace with a ConfigMap and a Deployment of `replicas` pods.
    pub(crate) async fn with_pods(replicas: usize) -> Self {
        let ns = Self::new().await;
        ns.config_map(NAME, "one").await;
        ns.deployment(NAME, replicas, json!({"app": NAME})).await;
        ns
    }

    pub(crate) async fn on(control_plane: &ControlPlane) -> Self {
        let fixture = Fixture::new(control_plane).await;
        let proxy = start_proxy(control_plane, &fixture.namespace).await;
        Self { fixture, proxy }
    }

    /// Creates a workload of pods `app=frontend` and waits until they are Ready. A DaemonSet gets nodes of its own.
    pub(crate) async fn workload(&self, resource: &str, replicas: usize) {
        let of = format!("{}-{resource}", self.namespace);
        let labels = json!({"app": NAME, "of": of});
        let mut pod = json!({"containers": [{"name": "app", "image": "app"}]});
        let mut spec = json!({"replicas": replicas});
        if resource == "daemonsets" {
            spec = json!({});
            only_on_own_nodes(&mut pod, &of);
            self.own_nodes(&of, replicas).await;
        }
        spec["selector"] = match resource {
            "replicationcontrollers" => labels.clone(),
            _ => json!({"matchLabels": labels}),
        };
        spec["template"] = json!({"metadata": {"labels": labels}, "spec": pod});
        self.create(resource, json!({"metadata": {"name": NAME}, "spec": spec})).await;
        self.ready_pods(&format!("of={of}"), replicas).await;
    }

    /// Creates nodes for the pods of [`only_on_own_nodes`].
    async fn own_nodes(&self, of: &str, count: usize) {
        for name in (0..count).map(|number| format!("{of}-{number}")) {
            let taints = json!([{"key": "for", "value": of, "effect": "NoSchedule"}]);
            let metadata = json!({"name": name, "labels": {"for": of, "kubernetes.io/hostname": name}});
            let node = json!({"metadata": metadata, "spec": {"taints": taints}});
            self.client.create("/api/v1/nodes", &node).await.unwrap().ok().unwrap();
        }
    }

    /// Starts an operator and waits until it is synced.
    pub(crate) async fn operator(&self) -> Operator {
        let operator = self.unsynced_operator();
        operator.wait_for_message("synced").await.unwrap();
        operator
    }

    pub(crate) fn unsynced_operator(&self) -> Operator {
        self.operator_at(&self.proxy.url(), &[])
    }

    /// Starts an operator with additional arguments that uses this address as its proxy.
    pub(crate) fn operator_at(&self, url: &str, args: &[&str]) -> Operator {
        let binary = testenv::operator::binary().unwrap();
        let args = [&["--log", "info,configmonitor_operator=debug"], args].concat();
        Operator::start(&binary, url, &self.namespace, &args, &[]).unwrap()
    }

    /// Returns how many pods of this namespace the operator has deleted. The pods of a Deployment never share a name,
    /// and deleting a terminating pod again is harmless. When a client is killed, the audit log says 504 for a deletion
    /// that is still carried out.
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

    /// Returns the names of the pods for which the operator has sent DELETE, in order.
    pub(crate) fn sent_deletions(&self) -> Vec<String> {
        let requests = self.requests().unwrap().into_iter();
        let deletions = requests.filter(|entry| entry["verb"] == "delete" && entry["objectRef"]["resource"] == "pods");
        deletions.map(|entry| entry["objectRef"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn requests(&self) -> Result<Vec<Value>> {
        self.requests_on(CONTROL_PLANE.get().context("no shared control plane")?)
    }

    pub(crate) fn requests_on(&self, control_plane: &ControlPlane) -> Result<Vec<Value>> {
        requests_of(control_plane, &self.namespace)
    }
}

/// Returns the requests of the operator that runs in this namespace so far, from the audit log.
pub(crate) fn requests_of(control_plane: &ControlPlane, namespace: &str) -> Result<Vec<Value>> {
    control_plane.requests_of(&format!("system:serviceaccount:{namespace}:configmonitor-operator"))
}
