//! How many pods were missing at every moment, from the history of all objects: nothing is sampled, so a state of a
//! single revision counts.
//!
//! Missing is the difference between desired and available pods. Desired replicas count once they have been available,
//! so that scaling up makes nothing missing.

mod tests;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testenv::history::Version;
use testenv::{History, Past, is_ready};

use crate::test_namespace::{TestNamespace, control_plane};
use testenv::fixture::NAME;

/// The owners of pods, by the API server's prefixes. ReplicationControllers are in `controllers`.
const OWNERS: [&str; 4] = ["replicasets", "statefulsets", "daemonsets", "controllers"];

/// The prefix of the ConfigMonitors, which are followed only for their revisions.
const MONITORS: &str = "magalix.com/configmonitors";

/// Follows the pods of a namespace and their owners.
pub(crate) struct Observer {
    history: History,
    namespace: String,
}

/// The pods that were missing, and the pods that went.
pub(crate) struct Availability {
    most_missing: usize,
    gone: Vec<Gone>,
}

/// A pod that has begun to terminate, or is removed without that.
pub(crate) struct Gone {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl TestNamespace {
    /// Creates a namespace with a ConfigMap and a Deployment of `replicas` pods, and an observer of it.
    pub(crate) async fn observed(replicas: usize) -> (Self, Observer) {
        let ns = Self::new().await;
        let observer = Observer::of(&ns).await;
        ns.config_map(NAME, "one").await;
        if replicas > 0 {
            ns.deployment(NAME, replicas, json!({"app": NAME})).await;
        }
        (ns, observer)
    }
}

impl Observer {
    /// Follows a namespace that has no pods and no ConfigMonitors yet.
    pub(crate) async fn of(ns: &TestNamespace) -> Self {
        let path = format!("/api/v1/namespaces/{}", ns.namespace);
        let namespace = ns.client.get(&path).await.unwrap().ok().unwrap();
        let prefix = |resource: &&str| format!("/registry/{resource}/{}/", ns.namespace);
        let prefixes: Vec<String> = OWNERS.iter().chain(&["pods", MONITORS]).map(prefix).collect();
        let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        let history = control_plane().await.history(&prefixes, Past::after(revision(&namespace)));
        Self { history, namespace: ns.namespace.clone() }
    }

    /// Returns what has happened to the pods `app=frontend`, up to this version of an object at least.
    pub(crate) async fn end(self, last: &Value) -> Availability {
        self.history.reach(revision(last)).await.unwrap();
        let pods = format!("/registry/pods/{}/", self.namespace);
        Availability::of(self.history.end().versions(), &pods, &json!({"app": NAME}))
    }
}

/// Returns the revision of this version of an object.
fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

impl Availability {
    fn of(versions: &[Version], pods: &str, selector: &Value) -> Self {
        let mut now = Now::default();
        let (mut most_missing, mut gone) = (0, Vec::new());
        for version in versions {
            if version.key.starts_with(pods) {
                gone.extend(now.pod(version));
            } else if !version.key.contains(MONITORS) {
                now.owner(version);
            }
            most_missing = most_missing.max(now.missing(selector));
        }
        Self { most_missing, gone }
    }

    /// Returns the most pods that were missing at once.
    pub(crate) fn most_missing(&self) -> usize {
        self.most_missing
    }

    /// Returns the pods that went, in order.
    pub(crate) fn gone(&self) -> &[Gone] {
        &self.gone
    }
}

/// The objects at a revision, by key.
#[derive(Default)]
struct Now<'a> {
    owners: BTreeMap<&'a str, Owner<'a>>,
    pods: BTreeMap<&'a str, &'a Value>,
}

struct Owner<'a> {
    object: &'a Value,
    /// The desired replicas, as far as they have been available.
    promised: usize,
}

impl<'a> Now<'a> {
    /// Returns the pod if it begins to terminate with this version.
    fn pod(&mut self, version: &'a Version) -> Option<Gone> {
        let before = match &version.object {
            Some(object) => self.pods.insert(&version.key, object),
            None => self.pods.remove(version.key.as_str()),
        }?;
        let goes = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
        let left = !goes(before) && version.object.as_ref().is_none_or(goes);
        let text = |field: &str| before["metadata"][field].as_str().unwrap_or_default().to_owned();
        left.then(|| Gone { name: text("name"), uid: text("uid") })
    }

    fn owner(&mut self, version: &'a Version) {
        let Some(object) = &version.object else {
            self.owners.remove(version.key.as_str());
            return;
        };
        let owner = self.owners.entry(&version.key).or_insert(Owner { object, promised: 0 });
        owner.object = object;
    }

    fn missing(&mut self, selector: &Value) -> usize {
        let mut missing = 0;
        for owner in self.owners.values_mut().filter(|owner| is_selected(selector, owner.object)) {
            let available = self.pods.values().filter(|pod| is_of(pod, owner.object) && is_available(pod)).count();
            owner.promised = desired(owner.object).min(owner.promised.max(available));
            missing += owner.promised.saturating_sub(available);
        }
        missing
    }
}

/// Returns whether the owner's pods are counted: its template matches.
fn is_selected(selector: &Value, owner: &Value) -> bool {
    matches(selector, &owner["spec"]["template"]["metadata"]["labels"])
}

fn desired(owner: &Value) -> usize {
    let replicas = match &owner["spec"]["replicas"] {
        Value::Null => &owner["status"]["desiredNumberScheduled"],
        replicas => replicas,
    };
    usize::try_from(replicas.as_u64().unwrap_or(0)).unwrap()
}

fn matches(selector: &Value, labels: &Value) -> bool {
    selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value)
}

fn is_of(pod: &Value, owner: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let uid = &owner["metadata"]["uid"];
    owners.into_iter().flatten().any(|reference| reference["controller"] == true && reference["uid"] == *uid)
}

/// Returns whether the pod is Ready, and neither terminating nor finished.
fn is_available(pod: &Value) -> bool {
    is_ready(pod) && pod["status"]["phase"] != "Failed" && pod["status"]["phase"] != "Succeeded"
}
