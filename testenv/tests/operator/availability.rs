//! How many pods were missing at every moment, from the history of all objects: nothing is sampled, so a state of a
//! single revision counts.
//!
//! Missing is the difference between desired and available pods. Desired replicas count once they have been available,
//! so that scaling up makes nothing missing.

mod tests;

use std::collections::BTreeSet;

use rules::Moment;
use serde_json::{Value, json};
use testenv::{History, Past};

use crate::test_namespace::{TestNamespace, control_plane};
use crate::timeline::{Owner, Timeline};
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
    most_of_an_owner: usize,
    gone: Vec<Gone>,
}

/// A pod that has begun to terminate, or was removed without that.
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
        Availability::of(&Timeline::of(self.history.end().versions().iter(), &self.namespace), NAME)
    }
}

pub(crate) fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

impl Availability {
    /// Returns what has happened to the pods of the owners with this label in their template.
    fn of(timeline: &Timeline, app: &str) -> Self {
        let owners = timeline.owners.iter().filter(|(_, owner)| owner.labels["app"] == app);
        let mut owners: Vec<(&String, &Owner, usize)> = owners.map(|(uid, owner)| (uid, owner, 0)).collect();
        let of_pods = timeline.pods.values().flat_map(|pod| {
            let ready = pod.ready.periods().flat_map(|(from, until)| [Some(from), until]);
            ready.flatten().map(|at| at.step).chain(pod.deleted.map(|(at, _)| at))
        });
        let of_owners = owners.iter().flat_map(|(_, owner, _)| owner.desired.iter().map(|desired| desired.revision));
        let revisions: BTreeSet<u64> = of_pods.chain(of_owners).collect();
        let (mut most_missing, mut most_of_an_owner) = (0, 0);
        for revision in revisions {
            let at = Moment { step: revision, ms: u64::MAX };
            let now = owners.iter_mut().map(|(uid, owner, promised)| {
                let its = timeline.pods.values().filter(|pod| pod.owner.as_ref() == Some(*uid));
                let its = its.filter(|pod| pod.deleted.is_none_or(|(gone, _)| gone > revision));
                let available = its.filter(|pod| pod.ready.since(at).is_some()).count();
                *promised = owner.desired_at(revision).min(available.max(*promised));
                promised.saturating_sub(available)
            });
            let now: Vec<usize> = now.collect();
            most_missing = most_missing.max(now.iter().sum());
            most_of_an_owner = now.into_iter().fold(most_of_an_owner, usize::max);
        }
        let gone = timeline.pods.iter().filter_map(|(uid, pod)| Some((pod.deleted?.0, uid, &pod.name)));
        // No two pods go with one revision.
        let gone: BTreeSet<(u64, &String, &String)> = gone.collect();
        let gone = gone.into_iter().map(|(_, uid, name)| Gone { name: name.clone(), uid: uid.clone() });
        Self { most_missing, most_of_an_owner, gone: gone.collect() }
    }

    pub(crate) fn most_missing_of_an_owner(&self) -> usize {
        self.most_of_an_owner
    }

    pub(crate) fn most_missing(&self) -> usize {
        self.most_missing
    }

    pub(crate) fn gone(&self) -> &[Gone] {
        &self.gone
    }
}
