//! Which pods may be handed over: how much room `maxSurge` leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strum::IntoStaticStr;

use super::budget::is_available;
use super::sight::{DeploymentState, OwnerStates, Sight};
use super::targets::Targets;
use crate::kube::objects::{DEPLOYMENTS, Owner};
use crate::monitor::pod::{HandedOver, Pod};
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
    /// Available pods that its ReplicaSets control.
    available: usize,
    handed_over: usize,
    /// Whether one of these is none that this restart replaces: it is given back, or another ConfigMonitor deletes it.
    has_strangers: bool,
}

impl<'a> Surge<'a> {
    pub(super) fn of(sight: &Sight<'a>) -> Self {
        let Sight { policy, owners, deployments, view, targets, .. } = *sight;
        let count = |state| Count { state, available: 0, handed_over: 0, has_strangers: false };
        let mut counts: BTreeMap<_, _> = deployments.iter().map(|(owner, state)| (owner, count(state))).collect();
        let of_selected = |pod: &'a Arc<Pod>| match &pod.handed_over {
            Some(handed_over) => Some((pod, &handed_over.to)),
            None => Some((pod, owners.get(pod.controller.as_ref()?)?.controller.as_ref()?)),
        };
        let selected = view.pods.values().filter(|_| !deployments.is_empty()).filter_map(of_selected);
        let others = deployments.iter().flat_map(|(owner, state)| state.others.iter().map(move |pod| (pod, owner)));
        for (pod, deployment) in selected.chain(others).filter(|(pod, _)| pod.is_present()) {
            let Some(count) = counts.get_mut(deployment) else { continue };
            match pod.handed_over {
                Some(_) => {
                    count.handed_over += 1;
                    count.has_strangers |= !targets.is_old(pod);
                }
                None => {
                    let min_ready = policy.min_ready.max(count.state.min_ready);
                    count.available += usize::from(is_available(pod, min_ready, view.at));
                }
            }
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

    /// Returns whether a pod that is handed over may be deleted: without all such pods, enough others are available. What
    /// the ReplicaSet of the pod desires says nothing about that, as a rollout may be under way.
    pub(super) fn may_end(&self, HandedOver { to, .. }: &HandedOver) -> bool {
        let Some(Count { state, available, .. }) = self.counts.get(to) else { return false };
        let is_alone = self.policy.max_surge.is_some_and(|surge| surge.is_alone);
        let most = self.policy.max_unavailable.filter(|_| !is_alone);
        let allowed = most.map_or(0, |most| most.of_owner.of(state.desired));
        available + allowed >= state.desired
    }
}

/// Returns the Deployments that must be read: those to which pods are handed over, or may be.
pub(super) fn deployments<'a>(
    policy: &Policy,
    targets: &Targets,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    owners: &OwnerStates,
) -> Vec<Arc<Owner>> {
    let of_pod = |pod: &Arc<Pod>| match (&pod.handed_over, &pod.controller) {
        (Some(handed_over), _) => Some(Arc::clone(&handed_over.to)),
        (None, Some(set)) if policy.max_surge.is_some() && targets.is_old(pod) => owners.get(set)?.controller.clone(),
        _ => None,
    };
    let all: BTreeSet<_> = pods.filter_map(of_pod).filter(|owner| owner.is_of(DEPLOYMENTS)).collect();
    all.into_iter().collect()
}
