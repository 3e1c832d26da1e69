//! How many pods were missing at every moment, from the history of all pods: nothing is sampled, so a state of a single
//! revision counts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testenv::fixture::NAME;
use testenv::history::Version;
use testenv::{History, Past, is_ready};

use crate::test_namespace::{TestNamespace, control_plane};

/// Follows the pods of a namespace.
pub(crate) struct Observer(History);

/// All versions of the pods.
pub(crate) struct Seen(Vec<Version>);

impl TestNamespace {
    /// Creates a namespace with a ConfigMap and a Deployment of `replicas` pods, and an observer of it.
    pub(crate) async fn observed(replicas: usize) -> (Self, Observer) {
        let ns = Self::new().await;
        let path = format!("/api/v1/namespaces/{}", ns.namespace);
        let namespace = ns.client.get(&path).await.unwrap().ok().unwrap();
        let pods = format!("/registry/pods/{}/", ns.namespace);
        let history = control_plane().await.history(&[&pods], Past::after(revision(&namespace)));
        ns.config_map(NAME, "one").await;
        if replicas > 0 {
            ns.deployment(NAME, replicas, json!({"app": NAME})).await;
        }
        (ns, Observer(history))
    }
}

impl Observer {
    /// Returns what has happened to the pods, up to this version of an object at least.
    pub(crate) async fn end(self, last: &Value) -> Seen {
        self.0.reach(revision(last)).await.unwrap();
        Seen(self.0.end().versions().to_vec())
    }
}

impl Seen {
    /// Returns how many of `desired` pods were missing at the worst moment, after all of them were available for the
    /// first time. The pods are those `app=frontend` of this owner, or of all if it is empty.
    pub(crate) fn most_missing(&self, desired: usize, owner: &str) -> usize {
        let (mut available, mut most) = (BTreeMap::new(), None);
        for version in &self.0 {
            let is_its = |labels: &Value| labels["app"] == NAME && (owner.is_empty() || labels["of"] == owner);
            let serves = |pod: &Value| is_ready(pod) && is_its(&pod["metadata"]["labels"]);
            available.insert(&version.key, version.object.as_ref().is_some_and(serves));
            let missing = desired.saturating_sub(available.values().filter(|serves| **serves).count());
            most = most.map(|most: usize| most.max(missing)).or((missing == 0).then_some(0));
        }
        most.expect("all pods were available")
    }

    /// Returns how many pods were handed over and are not any more.
    pub(crate) fn given_back(&self) -> usize {
        let (mut handed_over, mut given_back) = (BTreeMap::new(), 0);
        for version in &self.0 {
            let is = version.object.as_ref().map(|pod| !pod["metadata"]["labels"]["magalix.com/handed-over"].is_null());
            let was = handed_over.insert(&version.key, is);
            given_back += usize::from(was == Some(Some(true)) && is == Some(false));
        }
        given_back
    }

    /// Returns the UIDs of the pods `app=frontend` that have begun to terminate, in order.
    pub(crate) fn gone(&self) -> Vec<String> {
        let mut gone = Vec::new();
        let pods = self.0.iter().filter_map(|version| version.object.as_ref());
        let is_its = |metadata: &Value| metadata["labels"]["app"] == NAME && !metadata["deletionTimestamp"].is_null();
        for pod in pods.filter(|pod| is_its(&pod["metadata"])) {
            let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
            if !gone.contains(&uid) {
                gone.push(uid);
            }
        }
        gone
    }
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
