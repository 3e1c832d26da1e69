//! What is known of the pods of a restart, and of their owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::canary::CanarySight;
use super::targets::Targets;
use crate::kube::objects::Owner;
use crate::kube::{Resource, ServerTime, Uid};
use crate::monitor::pod::Pod;
use crate::monitor::referrers::Snapshot;
use crate::monitor::spec::Policy;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerState {
    /// The desired replicas. 0 if the owner is gone.
    pub(crate) desired: usize,
    /// How long a pod must be ready before it counts as available.
    pub(crate) min_ready: Duration,
    /// The owner's pods that are not selected.
    pub(crate) others: Vec<Arc<Pod>>,
    /// Why the owner cannot create pods, as text for users.
    pub(crate) failure: Option<String>,
    /// The owner's own controller, such as the Deployment of a ReplicaSet.
    pub(crate) controller: Option<Arc<Owner>>,
    /// Whether the owner's name is that of its controller and the hash of its template.
    pub(crate) is_named_after_controller: bool,
}

/// An owner whose state is to be read.
pub(crate) struct OwnerQuery {
    pub(crate) owner: Arc<Owner>,
    pub(crate) resource: Resource,
    /// The number of selected pods that the owner has.
    pub(crate) selected: usize,
}

/// The state of the owners of the pods. An owner that is missing here is expected to have the pods that were selected
/// at the start, or those that exist now if these are more.
pub(crate) type OwnerStates = BTreeMap<Arc<Owner>, OwnerState>;

/// Why an existing pod is not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undeleted {
    /// There was no answer: the pod may still be deleted.
    Unanswered,
    Refused,
}

/// What is known of the pods of a restart and of their owners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) targets: &'a Targets,
    pub(crate) policy: &'a Policy,
    pub(crate) pods: &'a BTreeMap<Uid, Arc<Pod>>,
    /// When the pods were listed.
    pub(crate) at: ServerTime,
    pub(crate) owners: &'a OwnerStates,
    pub(crate) deployments: &'a Deployments,
    /// Existing pods whose deletion failed. Refused ones go after all others.
    pub(crate) undeleted: &'a BTreeMap<Uid, Undeleted>,
    /// Pods that refer to a missing source, and so may not go.
    pub(crate) unstartable: &'a Snapshot,
    pub(crate) own_pod: Option<&'a Uid>,
    /// The canary, until it has passed or failed.
    pub(crate) canary: Option<CanarySight<'a>>,
    /// Whether the progress deadline has passed. Missing pods are then no longer expected to come.
    pub(crate) is_overdue: bool,
}

/// The Deployments of the pods, as last read. One that is gone is missing.
pub(crate) type Deployments = BTreeMap<Arc<Owner>, DeploymentState>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeploymentState {
    pub(crate) desired: usize,
    /// How long a pod must be ready before it counts as available.
    pub(crate) min_ready: Duration,
    /// Its pods that are not selected.
    pub(crate) others: Vec<Arc<Pod>>,
    /// Whether its strategy lets two pods exist where one is desired.
    pub(crate) may_surge: bool,
    /// Whether some of its pods are of an earlier template.
    pub(crate) is_rolling: bool,
}
