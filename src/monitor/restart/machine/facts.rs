//! What a restart takes for true of its pods and owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Machine;
use crate::kube::objects::Owner;
use crate::kube::{ServerTime, Uid};
use crate::monitor::pod::Pod;
use crate::monitor::restart::budget::waits_for_termination;
use crate::monitor::restart::sight::Deployments;
use crate::monitor::restart::sight::{OwnerQuery, OwnerStates, Undeleted};
use crate::monitor::restart::surge_room;
use crate::monitor::status::{Canary, CanaryState};

impl<P> Machine<P> {
    /// Records the pods of a list, when it was made and how long it took.
    pub(super) fn listed(&mut self, pods: &[Arc<Pod>], at: ServerTime, took: Duration, now: Instant) {
        let is_unanswered = |uid: &Uid| self.attempts.undeleted.get(uid) == Some(&Undeleted::Unanswered);
        let is_leaving = |pod: &&Arc<Pod>| self.is_leaving(pod) && !is_unanswered(&pod.uid);
        let leaving: Vec<Uid> = self.pods.pods().values().filter(is_leaving).map(|pod| pod.uid.clone()).collect();
        self.pods.list(pods, at, self.needs_dates());
        // After an edit of the selector it may only not be selected any more.
        let is_gone = self.selects_as_at_the_start();
        let has_left = |uid: &&Uid| self.pods.pods().get(uid).map_or(is_gone, |pod| !pod.is_present());
        self.begun.deleted += leaving.iter().filter(has_left).count();
        pods.iter().for_each(|pod| self.record_sight(pod));
        self.count_unanswered();
        self.attempts.retain(|uid| self.pods.pods().contains_key(uid));
        self.targets.select(&self.policy, self.pods.pods());
        self.pace.put_off(took, now);
    }

    /// Returns whether it matters since when pods are ready, or may matter until the owners are read. Undated pods are
    /// shared between keepers. After a failed canary it does not matter: lists come once a minute.
    fn needs_dates(&self) -> bool {
        let has_failed = |canary: &Canary| matches!(canary.state, CanaryState::Failed { .. });
        let matters = self.owners.is_empty() || !self.min_ready().is_zero() || self.policy.canary.is_some();
        matters && !self.begun.canary.as_ref().is_some_and(has_failed)
    }

    /// While the canary is unproven: records that a new pod is ready, or has failed.
    pub(super) fn record_sight(&mut self, pod: &Arc<Pod>) {
        if !self.is_proving() || !self.targets.is_successor(pod) {
            return;
        }
        if pod.ready_since.is_some() {
            self.seen_ready.insert(pod.uid.clone());
        }
        // One from before the restart must not hide another. Of two that are as old, the first one stays, or they would take turns.
        let is_older = |known: &Arc<Pod>| known.created < pod.created || known.uid == pod.uid;
        if pod.crash.is_some() && self.seen_failed.as_ref().is_none_or(is_older) {
            self.seen_failed = Some(Arc::clone(pod));
        }
    }

    pub(super) fn is_proving(&self) -> bool {
        self.begun.canary.as_ref().is_some_and(|canary| canary.state.is_proving())
    }

    /// Counts unanswered deletions whose pods are gone or terminating.
    pub(super) fn count_unanswered(&mut self) {
        let is_left = |uid: &Uid| self.pods.pods().get(uid).is_some_and(|pod| pod.gone_by.is_none());
        let done = self.attempts.done_without_answer(is_left);
        self.begun.deleted += done;
        if done > 0 {
            self.advance.progressed(self.pods.at);
        }
    }

    /// Returns the owners to read. If nothing counts them, only those whose pods are replaced.
    pub(crate) fn owners_to_read(&self) -> Vec<OwnerQuery> {
        let mut selected: BTreeMap<&Owner, usize> = BTreeMap::new();
        for pod in self.pods.pods().values() {
            // A terminating pod may hold the place of its successor.
            let counts = |owner: &&Owner| pod.is_present() || pod.gone_by.is_some() && waits_for_termination(owner);
            if let Some(owner) = pod.controller.as_deref().filter(counts) {
                *selected.entry(owner).or_default() += 1;
            }
        }
        let owners = self.targets.owners(self.pods.pods()).into_iter();
        let counts = |owner: &&Arc<Owner>| self.policy.counts_owners() || self.targets.concerns(owner);
        let asked = owners.filter(counts).filter_map(|owner| {
            let selected = selected.get(&**owner).copied().unwrap_or(0);
            Some(OwnerQuery { owner: Arc::clone(owner), resource: owner.workload()?, selected })
        });
        asked.collect()
    }

    pub(super) fn deployments_to_read(&self) -> Vec<Arc<Owner>> {
        surge_room::deployments(&self.policy, &self.targets, self.pods.pods().values(), &self.owners)
    }

    pub(super) fn deployments_read(&mut self, mut states: Deployments, took: Duration, now: Instant) {
        for state in states.values_mut() {
            state.others.retain(|pod| !self.pods.pods().contains_key(&pod.uid));
        }
        self.pace.put_off(took, now);
        self.deployments = states;
    }

    /// Records the states of owners and how long reading took.
    pub(super) fn owners_read(&mut self, mut owners: OwnerStates, took: Duration, now: Instant) {
        for state in owners.values_mut() {
            state.others.retain(|pod| !self.pods.pods().contains_key(&pod.uid));
        }
        if owners.values().any(|state| !state.others.is_empty()) {
            // Finding these pods took a list.
            self.pace.put_off(took, now);
        }
        self.owners = owners;
    }
}
