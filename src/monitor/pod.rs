//! A pod as a ConfigMonitor sees it.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::kube::objects::{DEPLOYMENTS, HasPodSpec, Labels, MAX_NAME, Owner, PodAnswer, PodSpec, REPLICA_SETS};
use crate::kube::{Resource, ResourceVersion, ServerTime, Uid, cut};

/// The label of a pod that is handed over.
pub const HANDED_OVER: &str = "magalix.com/handed-over";
/// The selector of these pods.
pub const SELECTS_HANDED_OVER: &str = "magalix.com/handed-over=true";
/// The annotation of such a pod with its ReplicaSet, as `NAME/UID`.
pub(crate) const HANDED_OVER_FROM: &str = "magalix.com/handed-over-from";
/// The annotation of such a pod that says who has handed it over, and when, as `NAME/UID/RESTART/TIME`.
pub(crate) const HANDED_OVER_BY: &str = "magalix.com/handed-over-by";

/// The annotation by which a ReplicaSet chooses the pod to delete, and its lowest value.
pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(crate) const LOWEST_COST: &str = "-2147483648";

/// Who has handed a pod over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandedOver {
    /// The controller of the pod now.
    pub(crate) to: Arc<Owner>,
    /// `NAME/UID/RESTART/TIME`.
    pub(crate) by: Arc<str>,
}

/// A pod. Its labels are not kept, as there may be many pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "PodAnswer<PodAnnotations, PodSpec>")]
pub struct Pod {
    /// The name.
    pub name: Arc<str>,
    /// The identity.
    pub uid: Uid,
    /// The version of the object.
    pub version: ResourceVersion,
    /// The `creationTimestamp`.
    pub created: ServerTime,
    /// The time at which the grace period of the deletion ends. None if the pod is not being deleted.
    pub gone_by: Option<ServerTime>,
    /// The controller. Of a pod that is handed over, the ReplicaSet that it comes from.
    pub controller: Option<Arc<Owner>>,
    pub(crate) handed_over: Option<Arc<HandedOver>>,
    /// Whether an annotation says when its ReplicaSet deletes it.
    pub(crate) has_cost: bool,
    /// Whether `spec.restartLast` of the ConfigMonitor for which the pod was read selects it.
    pub(crate) goes_last: bool,
    /// Whether the pod mirrors a static pod, which only its kubelet can restart.
    pub(crate) mirror: bool,
    /// Whether the pod ends by itself, with a result: its containers are not restarted for ever.
    pub(crate) completes: bool,
    /// Whether the pod has succeeded or failed.
    pub finished: bool,
    /// The time since which the pod is ready, on the clock of its node. None if the pod is not ready.
    pub ready_since: Option<ServerTime>,
    /// Whether all containers are ready.
    pub(crate) are_containers_ready: bool,
    /// Whether somebody ends the pod for a reason that is not its own.
    pub(crate) is_disrupted: bool,
    /// The time since which all containers and the started sidecars run, on the clock of the node. None if a container
    /// does not run.
    pub(crate) started: Option<ServerTime>,
    /// Why the pod is not ready, as far as the pod says.
    pub trouble: Option<Arc<str>>,
    /// Which container restarted, and how its previous run ended, or why the pod as a whole has failed. None if neither
    /// happened.
    pub(crate) crash: Option<Arc<str>>,
}

/// A pod with its labels, and what is kept of its spec.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "PodAnswer<PodAnnotations, S>", bound = "S: HasPodSpec + Deserialize<'de>")]
pub(crate) struct LabelledPod<S = PodSpec> {
    pub(crate) pod: Pod,
    pub(crate) labels: Labels,
    pub(crate) spec: S,
}

/// A pod with its labels, and its spec as JSON.
pub(crate) type WholePod = LabelledPod<Option<Box<RawValue>>>;

impl Pod {
    /// Returns whether the pod serves in place of a successor that is not available yet.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.handed_over.is_some()
    }

    /// Returns since when the pod is ready, but no time before its creation: the clock of its node may be slow.
    pub(crate) fn ready_from(&self) -> Option<ServerTime> {
        self.ready_since.map(|since| since.max(self.created))
    }

    /// Returns whether the pod may serve: it is ready, or at least all its containers are.
    pub(crate) fn may_serve(&self) -> bool {
        self.ready_since.is_some() || self.are_containers_ready
    }

    /// Whether the pod is not ready although its containers are.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.ready_since.is_none() && self.are_containers_ready
    }

    /// Returns the pod. Without surge nobody hands pods over, whatever one says of itself.
    pub(crate) fn handed_over_if(mut self, surges: bool) -> Self {
        if let Some(handed_over) = self.handed_over.take_if(|_| !surges) {
            self.controller = Some(Arc::clone(&handed_over.to));
        }
        self
    }

    /// Whether the pod is ready and is not being deleted.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_since.is_some() && self.gone_by.is_none()
    }

    /// Whether the pod has neither finished nor is being deleted.
    pub(crate) fn is_present(&self) -> bool {
        !self.finished && self.gone_by.is_none()
    }

    /// Returns whether the owner, if the pod has one, creates another pod when this one is gone.
    pub(crate) fn counts(&self) -> bool {
        !self.completes || self.controller.is_none()
    }
}

#[derive(Default, Deserialize)]
struct PodAnnotations {
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
    #[serde(rename = "controller.kubernetes.io/pod-deletion-cost")]
    deletion_cost: Option<IgnoredAny>,
    #[serde(rename = "magalix.com/handed-over-from")]
    handed_over_from: Option<String>,
    #[serde(rename = "magalix.com/handed-over-by")]
    handed_over_by: Option<String>,
}

impl PodAnnotations {
    /// Returns the ReplicaSet from which a pod with this controller was handed over, and by whom, if it was. Whoever
    /// may edit pods can say anything here.
    fn handed_over(&self, controller: Option<&Arc<Owner>>) -> Option<(Arc<Owner>, HandedOver)> {
        let to = controller.filter(|owner| owner.is_of(DEPLOYMENTS))?;
        let (name, uid) = self.handed_over_from.as_deref()?.split_once('/')?;
        let Resource { api_version, kind, .. } = REPLICA_SETS;
        let [api_version, kind, name] = [api_version, kind, name].map(str::to_owned);
        let from = Owner { api_version, kind, name, uid: uid.into() }.bounded();
        let by = cut(self.handed_over_by.as_deref()?, 2 * MAX_NAME).into();
        from.is_named_after(to).then(|| (Arc::new(from), HandedOver { to: Arc::clone(to), by }))
    }
}

impl<S: HasPodSpec> From<PodAnswer<PodAnnotations, S>> for LabelledPod<S> {
    fn from(mut answer: PodAnswer<PodAnnotations, S>) -> Self {
        let labels = std::mem::take(&mut answer.metadata.labels);
        let (pod, spec) = Pod::of(answer);
        Self { pod, labels, spec }
    }
}

impl From<PodAnswer<PodAnnotations, PodSpec>> for Pod {
    fn from(answer: PodAnswer<PodAnnotations, PodSpec>) -> Self {
        Self::of(answer).0
    }
}

impl Pod {
    fn of<S: HasPodSpec>(PodAnswer { metadata, spec, status }: PodAnswer<PodAnnotations, S>) -> (Self, S) {
        let (controller, handed_over) = match metadata.annotations.handed_over(metadata.controller.as_ref()) {
            Some((from, handed_over)) => (Some(from), Some(Arc::new(handed_over))),
            None => (metadata.controller, None),
        };
        let pod = Self {
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version,
            created: metadata.creation_timestamp,
            gone_by: metadata.deletion_timestamp,
            controller,
            handed_over,
            has_cost: metadata.annotations.deletion_cost.is_some(),
            goes_last: false,
            mirror: metadata.annotations.mirror.is_some(),
            completes: spec.pod_spec().completes(),
            finished: status.is_finished(),
            ready_since: status.ready_since(metadata.creation_timestamp),
            are_containers_ready: status.are_containers_ready(),
            is_disrupted: status.is_disrupted() || status.is_lost(),
            started: status.started(),
            trouble: status.trouble(metadata.creation_timestamp),
            crash: status.crash(metadata.deletion_timestamp.is_some()),
        };
        (pod, spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pod {
        /// Creates a pod without a controller that is not ready.
        pub(crate) fn named(name: &str) -> Self {
            Self {
                name: name.into(),
                uid: name.into(),
                version: "1".into(),
                created: ServerTime::from_second(0),
                gone_by: None,
                controller: None,
                handed_over: None,
                has_cost: false,
                goes_last: false,
                mirror: false,
                completes: false,
                finished: false,
                ready_since: None,
                are_containers_ready: false,
                is_disrupted: false,
                started: None,
                trouble: None,
                crash: None,
            }
        }
    }

    #[test]
    fn a_pod_has_the_owner_and_the_readiness_that_the_api_server_reports() {
        let text = r#"{"metadata":{"name":"web-0","uid":"u1","resourceVersion":"7","creationTimestamp":"2026-11-21T10:00:00Z",
            "labels":{"app":"web"},"annotations":{"kubernetes.io/config.mirror":"x","other":"y"},
            "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u0"},
              {"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"u2","controller":true}]},
            "spec":{"containers":[]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True",
              "lastTransitionTime":"2026-11-21T10:00:07Z"}]}}"#;
        let pod: Pod = serde_json::from_str(text).expect("a pod");
        assert_eq!(pod.controller.as_ref().map(|owner| &*owner.kind), Some("StatefulSet"));
        assert_eq!(pod.ready_since.map(|at| at.to_string()).as_deref(), Some("2026-11-21T10:00:07Z"));
        assert!(pod.mirror && !pod.finished && pod.gone_by.is_none());
    }
}
