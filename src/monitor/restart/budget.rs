//! How many pods may be made unavailable: what `maxUnavailable` allows of each owner, and `maxUnavailableTotal` of all,
//! less what they already lack of their desired replicas. By default all StatefulSets together are like one owner.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kube::ServerTime;
use crate::kube::objects::Owner;
use crate::monitor::pod::Pod;
use crate::monitor::spec::{MaxUnavailable, PodCount};

/// The pods of one owner, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// Pods that are neither finished nor terminating.
    pub(super) present: usize,
    /// Of these, the available ones.
    pub(super) available: usize,
    /// Terminating pods that should have ended by now.
    pub(super) stuck: usize,
    /// Old pods that are neither finished nor terminating.
    pub(super) old: usize,
    /// Selected new pods that are neither finished nor terminating.
    pub(super) new: usize,
    /// Of the old ones that are not terminating, those that go last and are not available.
    pub(super) last: usize,
    /// Successors of replaced pods that are missing or not available yet.
    pub(super) coming: usize,
    /// Whether an edited selector selects none of the owner's pods: missing pods use the total, but the desired
    /// replicas add nothing.
    pub(super) is_former: bool,
}

/// An owner, counted, with what its budget is for. Pods without an owner are one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) owner: Option<&'a Owner>,
    pub(super) group: Option<&'a Owner>,
    /// The number of pods that the owner is expected to have.
    pub(super) expected: usize,
    pub(super) holding: Holding,
}

/// What may still be taken from the owners of pods.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    owners: BTreeMap<Option<&'a Owner>, Member<'a>>,
    groups: BTreeMap<Option<&'a Owner>, Group>,
    total: Option<Total>,
}

/// Owners with one budget, such as the ReplicaSets of a Deployment.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    expected: usize,
    missing: usize,
    coming: usize,
    /// How many of its pods may be missing.
    allowed: usize,
}

/// What may still be taken of all owners together.
#[derive(Debug)]
struct Total {
    allowed: usize,
    /// How many pods are unavailable, without those that stuck pods hold back.
    missing: usize,
    /// The largest number held back by stuck pods of one owner from which an available pod was taken. It is a maximum,
    /// because the pods of a wave are deleted in no order.
    held_back: usize,
}

impl Member<'_> {
    fn missing(&self) -> usize {
        self.expected.saturating_sub(self.holding.available)
    }

    /// Returns how many pods are missing because stuck pods hold their places.
    fn held_back(&self) -> usize {
        if self.owner.is_some_and(waits_for_termination) { self.holding.stuck.min(self.missing()) } else { 0 }
    }

    /// The pods of a StatefulSet may be members of a quorum, where an unready one may still vote.
    fn is_stateful(&self) -> bool {
        self.owner.is_some_and(is_stateful)
    }
}

impl Total {
    /// Nobody knows whether pods without an owner are created again, so they would use the total for good.
    fn of(most: PodCount, owners: &BTreeMap<Option<&Owner>, Member<'_>>) -> Self {
        let members = || owners.values().filter(|member| member.owner.is_some());
        let expected = members().filter(|member| !member.holding.is_former).map(|member| member.expected).sum();
        let missing = members().map(|member| member.missing() - member.held_back()).sum();
        Self { allowed: most.of(expected), missing, held_back: 0 }
    }
}

/// Returns whether an owner replaces a pod only once the pod has ended.
pub(in crate::monitor::restart) fn waits_for_termination(owner: &Owner) -> bool {
    !matches!(&*owner.kind, "ReplicaSet" | "ReplicationController")
}

/// Returns whether an owner's pods are members, each of which has an ordinal.
pub(super) fn is_stateful(owner: &Owner) -> bool {
    owner.kind == "StatefulSet"
}

/// Returns whether a pod has been ready for `min_ready` and is not terminating. Times are whole seconds, so one more
/// second must have passed.
pub(in crate::monitor) fn is_available(pod: &Pod, min_ready: Duration, now: ServerTime) -> bool {
    let ready = |since| min_ready.is_zero() || now.since(since) > min_ready;
    pod.ready_from().is_some_and(ready) && !pod.finished && pod.gone_by.is_none()
}

impl<'a> Budget<'a> {
    /// Returns the budget for the owners whose pods are replaced.
    pub(super) fn new(most: MaxUnavailable, members: impl Iterator<Item = Member<'a>>) -> Self {
        let owners: BTreeMap<_, _> = members.map(|member| (member.owner, member)).collect();
        let mut groups: BTreeMap<_, Group> = BTreeMap::new();
        for member in owners.values() {
            let group = groups.entry(member.group).or_default();
            group.expected += member.expected;
            group.missing += member.missing();
            group.coming += member.holding.coming;
            let is_one_of_all = most.is_default && member.is_stateful();
            group.allowed = if is_one_of_all { 1 } else { most.of_owner.of(group.expected) };
        }
        let total = most.total.map(|most| Total::of(most, &owners));
        Self { owners, groups, total }
    }

    /// Takes a ready pod from an owner, if the budget allows it.
    pub(super) fn take(&mut self, owner: Option<&'a Owner>, is_available: bool) -> bool {
        let Some(member) = self.owners.get(&owner) else { return false };
        let Some(group) = self.groups.get_mut(&member.group).filter(|_| member.expected > 0) else {
            // No pod of this owner is expected.
            return true;
        };
        // An owner with a surplus is about to delete some of its pods, and it is unknown which.
        let is_scaling_down = member.holding.available > member.expected;
        let mut total = self.total.as_mut().filter(|_| owner.is_some());
        // Of the total, pods that this owner's stuck pods hold back count, and those of other owners do not.
        let held_back = total.as_ref().map_or(0, |total| total.held_back.max(member.held_back()));
        let is_in_total = total.as_ref().is_none_or(|total| total.missing + held_back < total.allowed);
        if is_scaling_down || group.missing >= group.allowed || !is_in_total {
            return false;
        }
        // A ready pod that is not available yet counts as missing already. It is taken only if the budget allows one
        // more pod: otherwise all pods would be deleted at once after a restart with a long `minReadySeconds`, although
        // they serve.
        if is_available {
            group.missing += 1;
            if let Some(total) = &mut total {
                (total.missing, total.held_back) = (total.missing + 1, held_back);
            }
        }
        true
    }

    /// Takes a pod that is not ready. It serves no traffic and uses no budget, except in a StatefulSet: no more of its
    /// pods are coming than the budget allows.
    pub(super) fn take_unready(&mut self, owner: Option<&'a Owner>) -> bool {
        let Some(member) = self.owners.get(&owner).filter(|member| member.is_stateful()) else { return true };
        let Some(group) = self.groups.get_mut(&member.group) else { return true };
        let most = self.total.as_ref().map_or(usize::MAX, |total| total.allowed);
        let is_allowed = group.coming < most.min(group.allowed);
        group.coming += usize::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU8, NonZeroU32};

    use super::*;

    fn owner(kind: &str) -> Owner {
        Owner { api_version: "apps/v1".into(), kind: kind.into(), name: "web".into(), uid: kind.into() }
    }

    fn alone(owner: Option<&Owner>, expected: usize, holding: Holding) -> Member<'_> {
        Member { owner, group: owner, expected, holding }
    }

    #[derive(Clone, Copy)]
    enum Of {
        Each,
        All,
    }

    /// A budget of this many pods of each owner, or of all of them together.
    fn budget<'a>(most: u32, of: Of, owners: &[(&'a Owner, usize, Holding)]) -> Budget<'a> {
        let most = PodCount::Pods(NonZeroU32::new(most).expect("at least one"));
        let everything = PodCount::Percent(NonZeroU8::new(100).expect("a percentage"));
        let most = match of {
            Of::Each => MaxUnavailable { of_owner: most, is_default: false, total: None },
            Of::All => MaxUnavailable { of_owner: everything, is_default: false, total: Some(most) },
        };
        Budget::new(most, owners.iter().map(|(owner, expected, holding)| alone(Some(*owner), *expected, *holding)))
    }

    fn holding(present: usize, available: usize) -> Holding {
        Holding { present, available, ..Holding::default() }
    }

    #[test]
    fn the_pods_of_an_owner_that_desires_none_use_no_budget() {
        let (web, job) = (owner("ReplicaSet"), owner("Job"));
        for of in [Of::Each, Of::All] {
            let mut one = budget(1, of, &[(&web, 2, holding(1, 1)), (&job, 0, holding(1, 1))]);
            assert_eq!((one.take(Some(&web), true), one.take(Some(&job), true)), (false, true));
        }
    }

    #[test]
    fn each_available_pod_that_is_taken_uses_the_budget() {
        let (web, unknown) = (owner("ReplicaSet"), owner("DaemonSet"));
        for of in [Of::Each, Of::All] {
            let mut two = budget(2, of, &[(&web, 3, holding(3, 3))]);
            assert_eq!([true; 3].map(|is_available| two.take(Some(&web), is_available)), [true, true, false]);
            let mut one = budget(1, of, &[(&web, 3, holding(3, 3))]);
            assert_eq!(
                [false, false, true, false].map(|is_available| one.take(Some(&web), is_available)),
                [true, true, true, false]
            );
            let mut none = budget(1, of, &[(&web, 3, holding(3, 2))]);
            assert!(!none.take(Some(&web), true), "one is missing already");
            assert!(!none.take(Some(&unknown), true), "nobody knows how many pods are missing there");
        }
    }

    /// The pods without an owner are one group, beside the total.
    #[test]
    fn each_owner_has_a_budget_of_its_own_and_the_total_bounds_all_of_them() {
        let (web, db) = (owner("ReplicaSet"), owner("StatefulSet"));
        let taken = |total| {
            let of_owner = PodCount::Percent(NonZeroU8::new(40).expect("a percentage"));
            let total = NonZeroU32::new(total).map(PodCount::Pods);
            let owners = [(Some(&web), 5, holding(5, 5)), (Some(&db), 2, holding(2, 1)), (None, 3, holding(3, 3))];
            let owners = owners.into_iter().map(|(owner, expected, holding)| alone(owner, expected, holding));
            let mut budget = Budget::new(MaxUnavailable { of_owner, is_default: false, total }, owners);
            [Some(&web), Some(&db), None].map(|owner| (0..5).filter(|_| budget.take(owner, true)).count())
        };
        assert_eq!([taken(0), taken(3), taken(2)], [[2, 0, 1], [2, 0, 1], [1, 0, 1]]);
    }

    /// A rollout is under way.
    #[test]
    fn the_replica_sets_of_a_deployment_have_one_budget() {
        let (deployment, before, after) = (owner("Deployment"), owner("ReplicaSet"), owner("DaemonSet"));
        let of_owner = PodCount::Pods(NonZeroU32::MIN);
        let taken = |available| {
            let member =
                |owner, expected, holding| Member { owner: Some(owner), group: Some(&deployment), expected, holding };
            let members = [member(&before, 3, holding(3, 3)), member(&after, 1, holding(1, available))];
            let mut budget =
                Budget::new(MaxUnavailable { of_owner, is_default: false, total: None }, members.into_iter());
            (0..3).filter(|_| budget.take(Some(&before), true)).count()
        };
        assert_eq!([taken(0), taken(1)], [0, 1]);
    }

    #[test]
    fn no_pod_is_taken_from_an_owner_with_a_surplus() {
        let web = owner("ReplicaSet");
        assert!(!budget(9, Of::Each, &[(&web, 2, holding(3, 3))]).take(Some(&web), true));
        assert!(budget(9, Of::Each, &[(&web, 3, holding(3, 3))]).take(Some(&web), true));
    }

    #[test]
    fn a_stuck_pod_holds_the_place_of_its_successor_unless_its_owner_replaces_terminating_pods() {
        let other = owner("DaemonSet");
        for (of, kind, own, others) in [
            (Of::Each, "StatefulSet", false, true),
            (Of::Each, "ReplicaSet", false, true),
            (Of::All, "StatefulSet", false, true),
            (Of::All, "ReplicaSet", false, false),
        ] {
            let stuck = owner(kind);
            let holding_of_it = Holding { stuck: 1, ..holding(1, 1) };
            let owners = [(&stuck, 2, holding_of_it), (&other, 2, holding(2, 2))];
            assert_eq!(budget(1, of, &owners).take(Some(&stuck), true), own, "{kind}");
            assert_eq!(budget(1, of, &owners).take(Some(&other), true), others, "the other owner of a {kind}");
        }
        let stuck = owner("StatefulSet");
        let owners = [(&stuck, 3, Holding { stuck: 1, ..holding(2, 2) }), (&other, 2, holding(2, 2))];
        for (first, second) in [(&stuck, &other), (&other, &stuck)] {
            let mut two = budget(2, Of::All, &owners);
            let taken = (two.take(Some(first), true), two.take(Some(second), true));
            assert_eq!(taken, (true, false), "whichever is first");
        }
        let (stuck, full) = (owner("StatefulSet"), Holding { stuck: 1, ..holding(2, 2) });
        assert!(budget(1, Of::Each, &[(&stuck, 2, full)]).take(Some(&stuck), true), "its place is taken by nobody");
    }

    #[test]
    fn the_budget_limits_the_unready_pods_taken_from_a_stateful_set() {
        let (db, web) = (owner("StatefulSet"), owner("ReplicaSet"));
        let two = Holding { coming: 2, ..holding(3, 1) };
        let mut three = budget(3, Of::Each, &[(&db, 4, two), (&web, 4, two)]);
        assert_eq!([(); 2].map(|()| three.take_unready(Some(&db))), [true, false]);
        assert_eq!([(); 3].map(|()| three.take_unready(Some(&web))), [true; 3]);
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
