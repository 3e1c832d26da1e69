//! Which pods may be handed over: how much room `maxSurge` leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strum::IntoStaticStr;

use super::sight::{DeploymentState, OwnerStates, Sight};
use super::targets::Targets;
use crate::kube::objects::{DEPLOYMENTS, Owner};
use crate::monitor::pod::Pod;
use crate::monitor::spec::Policy;

/// How a ready pod may go.
pub(super) enum Way<'a> {
    /// By a deletion within the budget. Says why it cannot be handed over.
    Deletion(Obstacle),
    /// By handing it over. `or_deletion`: or by a deletion within the budget.
    HandingOver { to: &'a Arc<Owner>, or_deletion: bool },
    /// Later: something else is under way with its Deployment.
    Later(Obstacle),
}

/// Why a pod is not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
pub(crate) enum Obstacle {
    #[strum(serialize = "spec.maxSurge is absent")]
    NotWanted,
    #[strum(serialize = "not of a Deployment's own ReplicaSet")]
    NoDeployment,
    #[strum(serialize = "the Deployment's strategy allows no surge")]
    Strategy,
    #[strum(serialize = "the Deployment is rolling out")]
    Rollout,
    #[strum(serialize = "other pods of the Deployment are handed over")]
    Others,
}

/// The Deployments of the pods, counted.
pub(super) struct Surge<'a> {
    policy: &'a Policy,
    owners: &'a OwnerStates,
    counts: BTreeMap<&'a Arc<Owner>, Count<'a>>,
}

struct Count<'a> {
    state: &'a DeploymentState,
    handed_over: usize,
    /// Whether this restart does not replace one of these pods: it is given back, or another ConfigMonitor deletes it.
    has_strangers: bool,
}

impl<'a> Surge<'a> {
    pub(super) fn of(sight: &Sight<'a>) -> Self {
        let Sight { policy, owners, deployments, pods, targets, .. } = *sight;
        let count = |state| Count { state, handed_over: 0, has_strangers: false };
        let mut counts: BTreeMap<_, _> = deployments.iter().map(|(owner, state)| (owner, count(state))).collect();
        let others = deployments.values().flat_map(|state| &state.others);
        for pod in pods.values().chain(others).filter(|pod| pod.is_present()) {
            let to = pod.handed_over.as_ref().map(|handed_over| &handed_over.to);
            let Some(count) = to.and_then(|to| counts.get_mut(to)) else { continue };
            count.handed_over += 1;
            count.has_strangers |= !targets.is_old(pod);
        }
        Self { policy, owners, counts }
    }

    /// Returns how a ready pod may go that is not handed over.
    pub(super) fn way(&self, pod: &Pod) -> Way<'a> {
        let Some(surge) = self.policy.max_surge else { return Way::Deletion(Obstacle::NotWanted) };
        let state = pod.controller.as_ref().and_then(|owner| self.owners.get(owner));
        let named = state.filter(|state| state.is_named_after_controller);
        let controller = named.and_then(|state| state.controller.as_ref());
        match controller.and_then(|to| self.counts.get_key_value(to)) {
            Some((_, count)) if !count.state.may_surge => Way::Deletion(Obstacle::Strategy),
            Some((_, count)) if count.state.is_rolling => Way::Later(Obstacle::Rollout),
            Some((_, count)) if count.has_strangers => Way::Later(Obstacle::Others),
            Some((to, _)) => Way::HandingOver { to, or_deletion: !surge.is_alone },
            None => Way::Deletion(Obstacle::NoDeployment),
        }
    }

    /// Returns the pods that are not handed over although `maxSurge` is set, with what is in the way.
    pub(super) fn obstacles(&self, pods: &[&'a Pod]) -> Vec<(&'a str, Obstacle)> {
        let surging = pods.iter().filter(|pod| self.policy.max_surge.is_some() && pod.handed_over.is_none());
        let obstacle = |pod: &&&'a Pod| match self.way(pod) {
            Way::Deletion(obstacle) | Way::Later(obstacle) => Some((&*pod.name, obstacle)),
            Way::HandingOver { .. } => None,
        };
        surging.filter_map(|pod| obstacle(&pod)).collect()
    }

    /// Hands one more pod over to this Deployment, if there is room.
    pub(super) fn take_room(&mut self, to: &Arc<Owner>) -> bool {
        let Some((surge, count)) = self.policy.max_surge.zip(self.counts.get_mut(to)) else { return false };
        let is_there = count.handed_over < surge.of(count.state.desired);
        count.handed_over += usize::from(is_there);
        is_there
    }
}

/// Returns the Deployments that must be read: with `maxSurge`, those to which pods are handed over, or may be.
pub(super) fn deployments<'a>(
    policy: &Policy,
    targets: &Targets,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    owners: &OwnerStates,
) -> Vec<Arc<Owner>> {
    let of_pod = |pod: &Arc<Pod>| match (&pod.handed_over, &pod.controller) {
        (Some(handed_over), _) => Some(Arc::clone(&handed_over.to)),
        (None, Some(set)) if targets.is_old(pod) => owners.get(set)?.controller.clone(),
        _ => None,
    };
    let pods = pods.filter(|_| policy.max_surge.is_some());
    let all: BTreeSet<_> = pods.filter_map(of_pod).filter(|owner| owner.is_of(DEPLOYMENTS)).collect();
    all.into_iter().collect()
}
