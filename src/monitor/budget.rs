//! How many pods may be made unavailable: what the owners of the pods want, less what they have, against what may be missing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::spec::MaxUnavailable;
use crate::kube::ServerTime;
use crate::kube::objects::{Owner, Pod};

/// What one owner has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// Pods that are neither finished nor terminating.
    pub(super) present: usize,
    /// Of these, the available ones.
    pub(super) available: usize,
    /// Pods that are on their way out.
    pub(super) terminating: usize,
    /// Of these, the ones that do not end although they should have.
    pub(super) stuck: usize,
    /// Old pods that are still in sight.
    pub(super) old: usize,
    /// New pods that are there, and selected.
    pub(super) new: usize,
    /// Pods that take the place of replaced ones and are not there yet, or not available.
    pub(super) coming: usize,
}

/// What may still be taken from the owners of pods.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    allowed: usize,
    /// How many pods are missing, but for those that are held back.
    missing: usize,
    owners: BTreeMap<&'a Owner, Account>,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    expected: usize,
    available: usize,
    /// How many pods are missing because others are stuck in their places.
    held_back: usize,
    /// How many are on their way out, or in.
    on_their_way: usize,
    /// Its pods may be members of a quorum, where one that is not ready may still vote.
    is_stateful: bool,
}

impl Account {
    fn of(owner: &Owner, expected: usize, Holding { available, terminating, stuck, coming, .. }: Holding) -> Self {
        // These do not wait for the end of a pod.
        let waits = !matches!(&*owner.kind, "ReplicaSet" | "ReplicationController");
        let held_back = if waits { stuck.min(expected.saturating_sub(available)) } else { 0 };
        let (on_their_way, is_stateful) = (terminating + coming, owner.kind == "StatefulSet");
        Self { expected, available, held_back, on_their_way, is_stateful }
    }

    fn missing(&self) -> usize {
        self.expected.saturating_sub(self.available)
    }
}

/// Whether a pod has been ready for so long, and stays. Both times are whole seconds, so one more must have passed.
pub(super) fn is_available(pod: &Pod, min_ready: Duration, now: ServerTime) -> bool {
    let ready = |since| min_ready.is_zero() || now.since(since) > min_ready;
    pod.ready_since.is_some_and(ready) && !pod.finished && pod.gone_by.is_none()
}

impl<'a> Budget<'a> {
    /// The budget of owners that each expect so many pods and hold these.
    pub(super) fn new(most: MaxUnavailable, owners: impl Iterator<Item = (&'a Owner, usize, Holding)>) -> Self {
        let owners: BTreeMap<_, _> =
            owners.map(|(owner, expected, holding)| (owner, Account::of(owner, expected, holding))).collect();
        let expected = owners.values().map(|account| account.expected).sum();
        let missing = owners.values().map(|account| account.missing() - account.held_back).sum();
        Self { allowed: most.of(expected), missing, owners }
    }

    /// Takes a pod that is ready from an owner, if there is room for it.
    ///
    /// What stuck pods of this owner hold back counts for it. What those of others do does not.
    pub(super) fn take(&mut self, owner: &Owner, is_available: bool) -> bool {
        let Some(account) = self.owners.get(owner).filter(|account| account.expected > 0) else {
            // Nobody counts on it.
            return true;
        };
        // An owner that has more than it wants is about to delete some itself, nobody knows which.
        let scaling_down = account.available > account.expected;
        if scaling_down || self.missing + account.held_back >= self.allowed {
            return false;
        }
        // One that is not available yet is missing already.
        self.missing += usize::from(is_available);
        true
    }

    /// Takes a pod that is not ready. It serves nobody and costs nothing, but of a StatefulSet no more are on their way at a time than the budget
    /// allows.
    pub(super) fn take_unready(&mut self, owner: &Owner) -> bool {
        let Some(account) = self.owners.get_mut(owner).filter(|account| account.is_stateful) else { return true };
        let allowed = account.on_their_way < self.allowed;
        account.on_their_way += usize::from(allowed);
        allowed
    }
}
