//! A wave of a restart: the deletions that are sent before anything else is decided, and what the replies mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kube::ServerTime;
use crate::kube::error::Error;
use crate::kube::objects::{Owner, Pod};
use crate::monitor::spec::{DeletionPolicy, Policy};

/// Deletions, of which those of a row are sent one after the other.
pub(crate) struct Wave {
    pub(crate) rows: Vec<Vec<Attempt>>,
    /// The most deletions at a time.
    pub(crate) width: usize,
}

pub(crate) struct Attempt {
    pub(crate) pod: Arc<Pod>,
    /// Whether the deletion names the pod's resourceVersion. The pod is not ready, so its deletion uses no budget, and
    /// fails if it has become ready.
    pub(crate) names_version: bool,
}

/// What became of the deletion of a pod.
pub(crate) enum Reply {
    /// The pod is terminating. `here`: this restart has deleted it, not another ConfigMonitor's.
    Deleted {
        by: ServerTime,
        here: bool,
    },
    /// The API server says that the pod is gone, replaced or changed. The next list shows whether that is so.
    /// `about_version`: perhaps only that its version has changed.
    ReportedGone {
        about_version: bool,
        error: Error,
    },
    Failed(Error),
}

impl Wave {
    /// Deletes each pod in a row of its own. Evicts those of an owner one after the other: a PodDisruptionBudget is
    /// usually about one owner's pods, and concurrent evictions under one PodDisruptionBudget fail.
    pub(super) fn new(policy: &Policy, pods: Vec<Arc<Pod>>, width: usize) -> Self {
        let attempt = |pod: Arc<Pod>| {
            let names_version = policy.max_unavailable.is_some() && pod.ready_since.is_none();
            Attempt { pod, names_version }
        };
        let rows = match policy.deletion_policy {
            DeletionPolicy::Delete => pods.into_iter().map(|pod| vec![attempt(pod)]).collect(),
            DeletionPolicy::Evict => {
                let mut rows: BTreeMap<Option<Arc<Owner>>, Vec<Attempt>> = BTreeMap::new();
                for pod in pods {
                    rows.entry(pod.controller.clone()).or_default().push(attempt(pod));
                }
                rows.into_values().collect()
            }
        };
        Self { rows, width }
    }
}

impl Attempt {
    /// Returns whether the rest of the row is not sent: a ready pod was refused, or the failure is no refusal. The next
    /// pass begins with the remaining pods.
    pub(crate) fn ends_row(&self, answer: &Reply) -> bool {
        match answer {
            Reply::Deleted { .. } | Reply::ReportedGone { .. } => false,
            Reply::Failed(error) => self.pod.ready_since.is_some() || !error.cause.is_refusal(),
        }
    }
}
