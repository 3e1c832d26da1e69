//! How many pods may be made unavailable: what `maxUnavailable` allows, less what the owners already lack of their
//! desired replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kube::ServerTime;
use crate::kube::objects::{Owner, Pod};
use crate::monitor::spec::PodCount;

/// The pods of one owner, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// Pods that are neither finished nor terminating.
    pub(super) present: usize,
    /// Of these, the available ones.
    pub(super) available: usize,
    pub(super) terminating: usize,
    /// Terminating pods that should have ended by now.
    pub(super) stuck: usize,
    /// Old pods that exist and have not finished.
    pub(super) old: usize,
    /// Selected new pods that are neither finished nor terminating.
    pub(super) new: usize,
    /// Successors of replaced pods that are missing or not available yet.
    pub(super) coming: usize,
    /// Whether the selector was edited and selects none of the owner's pods any more.
    pub(super) is_former: bool,
}

/// What may still be taken from the owners of pods.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    allowed: usize,
    /// How many pods are unavailable, without those that stuck pods hold back.
    missing: usize,
    /// The largest number held back by stuck pods of one owner from which an available pod was taken. It is a maximum,
    /// because the pods of a wave are deleted in no order.
    held_back: usize,
    owners: BTreeMap<&'a Owner, Account>,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    expected: usize,
    available: usize,
    /// How many pods are missing because stuck pods hold their places.
    held_back: usize,
    on_their_way: usize,
    /// The pods of a StatefulSet may be members of a quorum, where an unready one may still vote.
    is_stateful: bool,
    /// Whether only the lacking pods of the owner count: they use the budget, but its desired replicas add nothing.
    is_former: bool,
}

impl Account {
    fn of(owner: &Owner, expected: usize, holding: Holding) -> Self {
        let Holding { available, terminating, stuck, coming, is_former, .. } = holding;
        let held_back = if waits_for_termination(owner) { stuck.min(expected.saturating_sub(available)) } else { 0 };
        let (on_their_way, is_stateful) = (terminating + coming, owner.kind == "StatefulSet");
        Self { expected, available, held_back, on_their_way, is_stateful, is_former }
    }

    fn missing(&self) -> usize {
        self.expected.saturating_sub(self.available)
    }
}

/// Returns whether an owner replaces a pod only once the pod has ended.
pub(super) fn waits_for_termination(owner: &Owner) -> bool {
    !matches!(&*owner.kind, "ReplicaSet" | "ReplicationController")
}

/// Returns whether a pod has been ready for `min_ready` and is not terminating. Times are whole seconds, so one more
/// second must have passed.
pub(super) fn is_available(pod: &Pod, min_ready: Duration, now: ServerTime) -> bool {
    let ready = |since| min_ready.is_zero() || now.since(since) > min_ready;
    pod.ready_from().is_some_and(ready) && !pod.finished && pod.gone_by.is_none()
}

impl<'a> Budget<'a> {
    /// Returns the budget for these owners, each with the number of pods that it is expected to have.
    pub(super) fn new(most: PodCount, owners: impl Iterator<Item = (&'a Owner, usize, Holding)>) -> Self {
        let owners: BTreeMap<_, _> =
            owners.map(|(owner, expected, holding)| (owner, Account::of(owner, expected, holding))).collect();
        let selected = owners.values().filter(|account| !account.is_former);
        let expected = selected.map(|account| account.expected).sum();
        let missing = owners.values().map(|account| account.missing() - account.held_back).sum();
        Self { allowed: most.of(expected), missing, held_back: 0, owners }
    }

    /// Takes a ready pod from an owner, if the budget allows it.
    ///
    /// Pods that this owner's stuck pods hold back count. Those of other owners do not.
    pub(super) fn take(&mut self, owner: &Owner, is_available: bool) -> bool {
        let Some(account) = self.owners.get(owner).filter(|account| account.expected > 0) else {
            // No pod of this owner is expected.
            return true;
        };
        // An owner with a surplus is about to delete some of its pods, and it is unknown which.
        let scaling_down = account.available > account.expected;
        let held_back = account.held_back.max(self.held_back);
        if scaling_down || self.missing + held_back >= self.allowed {
            return false;
        }
        // A ready pod that is not available yet counts as missing already. It is taken only if the budget allows one
        // more pod: otherwise all pods would be deleted at once after a restart with a long `minReadySeconds`, although
        // they serve.
        if is_available {
            (self.missing, self.held_back) = (self.missing + 1, held_back);
        }
        true
    }

    /// Takes a pod that is not ready. It serves no traffic and uses no budget, except in a StatefulSet: no more of its
    /// pods are terminating or coming than the budget allows.
    pub(super) fn take_unready(&mut self, owner: &Owner) -> bool {
        let Some(account) = self.owners.get_mut(owner).filter(|account| account.is_stateful) else { return true };
        let allowed = account.on_their_way < self.allowed;
        account.on_their_way += usize::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU8, NonZeroU32};

    use super::*;
    use crate::docs::table;

    fn owner(kind: &str) -> Owner {
        Owner { api_version: "apps/v1".into(), kind: kind.into(), name: "web".into(), uid: kind.into() }
    }

    fn budget<'a>(most: u32, owners: &[(&'a Owner, usize, Holding)]) -> Budget<'a> {
        let most = PodCount::Pods(NonZeroU32::new(most).expect("at least one"));
        Budget::new(most, owners.iter().copied())
    }

    fn holding(present: usize, available: usize) -> Holding {
        Holding { present, available, ..Holding::default() }
    }

    #[test]
    fn the_example_of_the_docs_is_right() {
        let (web, a_quarter) = (owner("ReplicaSet"), NonZeroU8::new(25).expect("a percentage"));
        let rows = table(include_str!("../../../docs/rolling-restarts.md"), "### An example");
        for row in &rows {
            let [_, available, unavailable, action] = row[..] else { panic!("{row:?}") };
            let [available, unavailable] = [available, unavailable].map(|count| count.parse().expect("a number"));
            let deleted = action.strip_prefix("deletes ").and_then(|rest| rest.split(' ').next()?.parse().ok());
            let mut budget =
                Budget::new(PodCount::Percent(a_quarter), [(&web, 10, holding(10, available))].into_iter());
            let taken = (0..10).take_while(|_| budget.take(&web, true)).count();
            assert_eq!((10 - available, taken), (unavailable, deleted.unwrap_or(0)), "{row:?}");
        }
        assert!(rows.len() >= 5, "{rows:?}");
    }

    #[test]
    fn the_pods_of_an_owner_that_desires_none_use_no_budget() {
        let (web, job) = (owner("ReplicaSet"), owner("Job"));
        let mut one = budget(1, &[(&web, 2, holding(1, 1)), (&job, 0, holding(1, 1))]);
        assert_eq!((one.take(&web, true), one.take(&job, true)), (false, true));
    }

    #[test]
    fn each_available_pod_that_is_taken_uses_the_budget() {
        let web = owner("ReplicaSet");
        let mut two = budget(2, &[(&web, 3, holding(3, 3))]);
        assert_eq!([true, true, true].map(|is_available| two.take(&web, is_available)), [true, true, false]);
        let mut one = budget(1, &[(&web, 3, holding(3, 3))]);
        assert_eq!(
            [false, false, true, false].map(|is_available| one.take(&web, is_available)),
            [true, true, true, false]
        );
        let mut none = budget(1, &[(&web, 3, holding(3, 2))]);
        assert!(!none.take(&web, true), "one is missing already");
        assert!(none.take(&owner("DaemonSet"), true), "nobody counts on the pods of an owner that expects none");
    }

    #[test]
    fn no_pod_is_taken_from_an_owner_with_a_surplus() {
        let web = owner("ReplicaSet");
        assert!(!budget(9, &[(&web, 2, holding(3, 3))]).take(&web, true));
        assert!(budget(9, &[(&web, 3, holding(3, 3))]).take(&web, true));
    }

    #[test]
    fn a_stuck_pod_holds_the_place_of_its_successor_unless_its_owner_replaces_terminating_pods() {
        let other = owner("DaemonSet");
        for (kind, own, others) in [("StatefulSet", false, true), ("ReplicaSet", false, false)] {
            let stuck = owner(kind);
            let holding_of_it = Holding { stuck: 1, ..holding(1, 1) };
            let owners = [(&stuck, 2, holding_of_it), (&other, 2, holding(2, 2))];
            assert_eq!(budget(1, &owners).take(&stuck, true), own, "{kind}");
            assert_eq!(budget(1, &owners).take(&other, true), others, "the other owner of a {kind}");
        }
        let stuck = owner("StatefulSet");
        let owners = [(&stuck, 3, Holding { stuck: 1, ..holding(2, 2) }), (&other, 2, holding(2, 2))];
        for (first, second) in [(&stuck, &other), (&other, &stuck)] {
            let mut two = budget(2, &owners);
            assert_eq!((two.take(first, true), two.take(second, true)), (true, false), "whichever is first");
        }
        let (stuck, full) = (owner("StatefulSet"), Holding { stuck: 1, ..holding(2, 2) });
        assert!(budget(1, &[(&stuck, 2, full)]).take(&stuck, true), "its place is taken by nobody");
    }

    #[test]
    fn the_budget_limits_the_unready_pods_taken_from_a_stateful_set() {
        let (db, web) = (owner("StatefulSet"), owner("ReplicaSet"));
        let on_their_way = Holding { terminating: 1, coming: 1, ..holding(3, 1) };
        let mut three = budget(3, &[(&db, 4, on_their_way), (&web, 4, on_their_way)]);
        assert_eq!([(); 2].map(|()| three.take_unready(&db)), [true, false]);
        assert_eq!([(); 3].map(|()| three.take_unready(&web)), [true; 3]);
    }

    #[test]
    fn a_pod_is_available_once_it_has_been_ready_for_min_ready() {
        let pod = |ready_since, gone_by| Pod { gone_by, ready_since, ..Pod::named("a") };
        let at = ServerTime::from_second;
        let after = |seconds, now| is_available(&pod(Some(at(10)), None), Duration::from_secs(seconds), at(now));
        assert_eq!([(0, 10), (2, 12), (2, 13)].map(|(seconds, now)| after(seconds, now)), [true, false, true]);
        let slow = Pod { created: at(10), ..pod(Some(at(0)), None) };
        assert!(!is_available(&slow, Duration::from_secs(2), at(12)), "the clock of its node is slow");
        assert!(!is_available(&pod(None, None), Duration::ZERO, at(10)));
        assert!(!is_available(&pod(Some(at(10)), Some(at(40))), Duration::ZERO, at(10)), "it is terminating");
    }
}
