//! How a restart stands: what its pods and their owners are waiting for, and the next move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::budget::{Budget, Holding, Member, is_available, is_stateful};
use super::canary::Verdict;
use super::sight::{OwnerState, Sight, Undeleted};
use super::surge_room::{Obstacle, Surge, Way};
use super::targets::AtStart;
use super::{SKEW, SLACK};
use crate::kube::objects::Owner;
use crate::kube::{ServerTime, Uid};
use crate::monitor::exempt::exempt;
use crate::monitor::pod::Pod;
use crate::monitor::status::CanaryState;

/// How long past the end of its grace period a terminating pod is stuck: it holds the place of its successor.
const STUCK_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing<'a> {
    pub(crate) next: Move,
    /// How many old pods remain that are not terminating.
    pub(crate) remaining: usize,
    /// How many available pods the owners of replaced pods lack of their expected number.
    pub(crate) lacking: usize,
    /// How many pods of these owners are terminating or coming.
    pub(crate) on_their_way: usize,
    pub(crate) unsettled: Vec<Unsettled<'a>>,
    /// New pods that are not available, and old ones that are not ready although their containers are.
    pub(crate) unavailable: Vec<&'a Pod>,
    /// The names of old pods that may not go, because they refer to a source which does not exist.
    pub(crate) unstartable: Vec<&'a str>,
    /// The names of old pods that have to wait: those that go last, or, until any pod does, those that serve.
    pub(crate) last: Vec<&'a str>,
    /// Whether `restartLast` selects any pod.
    pub(crate) is_any_last: bool,
    /// The names of old pods that are terminating. The restart waits for their successors, and not for their end.
    pub(crate) terminating: Vec<&'a str>,
    /// The names of old pods that are handed over and not terminating.
    pub(crate) handed_over: Vec<&'a str>,
    /// The names of old pods that are not handed over although `maxSurge` is set, with what is in the way.
    pub(crate) obstacles: Vec<(&'a str, Obstacle)>,
    /// How many pods the canary has, until it has passed or failed, and until when it must stay available, once it is.
    pub(crate) canary: Option<(usize, Option<ServerTime>)>,
}

/// An owner whose available pods are not as many as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsettled<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) available: usize,
    pub(crate) expected: usize,
    pub(crate) failure: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Move {
    /// Delete pods now, and hand others over to their Deployments. The first ones are sent first, but a wave waits for no
    /// answer in between.
    Replace {
        remove: Vec<Uid>,
        hand_over: Vec<(Uid, Arc<Owner>)>,
    },
    /// Wait until a pod changes, or until this time.
    Wait(Option<ServerTime>),
    Canary(CanaryState),
    Done,
}

/// The selected pods, by what becomes of them. Finished and exempt ones are missing.
#[derive(Default)]
struct Classes<'a> {
    /// Old pods that may be deleted.
    removable: Vec<&'a Pod>,
    terminating: Vec<&'a str>,
    /// New pods that are not terminating, of owners whose pods are replaced.
    new: Vec<&'a Pod>,
    /// New pods that are not available, and old pods that are not ready although their containers are.
    unavailable: Vec<&'a Pod>,
    /// When time alone changes how a pod counts.
    changes_at: Option<ServerTime>,
}

/// The pods of one owner, counted, against the number that it should have.
struct OwnerCount<'a> {
    owner: &'a Owner,
    expected: usize,
    holding: Holding,
    /// Whether pods of this owner are replaced.
    is_concerned: bool,
}

impl<'a> Sight<'a> {
    pub(crate) fn standing(&self) -> Standing<'a> {
        let classes = self.classify();
        let counts = self.count();
        let verdict = self.judge(&classes, &counts);
        let baked_at = match &verdict {
            Some(Verdict::Wait(baked_at)) => *baked_at,
            _ => None,
        };
        let is_default = self.policy.max_unavailable.is_some_and(|most| most.is_default);
        let of_groups = self.concerned(&counts, is_default);
        let concerned = || counts.iter().filter(|count| count.is_concerned);
        let lacking = concerned().map(|count| count.expected.saturating_sub(count.holding.available)).sum();
        let mut surge = Surge::of(self);
        let (pods, last) = self.in_order(&classes, &counts, verdict.is_some());
        let next = self.choose(pods, &classes, &of_groups, lacking, &mut surge, verdict);
        let canary = self.canary.zip(self.policy.canary);
        let Classes { removable, terminating, unavailable, .. } = classes;
        let is_handed_over = |pod: &&&Pod| pod.handed_over.is_some();
        let handed_over: Vec<&str> = removable.iter().filter(is_handed_over).map(|pod| &*pod.name).collect();
        Standing {
            next,
            remaining: removable.len(),
            lacking,
            obstacles: surge.obstacles(&removable),
            on_their_way: concerned().map(|count| count.holding.coming).sum(),
            unsettled: of_groups.iter().filter_map(|(count, _)| self.unsettled(count)).collect(),
            handed_over,
            unavailable,
            unstartable: removable
                .iter()
                .filter(|pod| self.unstartable.contains(&pod.uid))
                .map(|pod| &*pod.name)
                .collect(),
            last,
            is_any_last: self.is_any_last(),
            terminating,
            canary: canary.map(|(sight, _)| (sight.canary.pods, baked_at)),
        }
    }

    fn classify(&self) -> Classes<'a> {
        let Self { targets, policy, pods, .. } = *self;
        let mut classes = Classes::default();
        for pod in pods.values().filter(|pod| !pod.finished) {
            let is_starting = pod.gone_by.is_none() && !self.is_available(pod);
            if let Some(since) = pod.ready_from().filter(|_| is_starting) {
                classes.wake_at(since.plus(self.min_ready(pod)));
            }
            match pod.gone_by {
                None if targets.is_successor(pod) => {
                    classes.unavailable.extend(is_starting.then_some(&**pod));
                    classes.new.push(pod);
                }
                _ if !targets.is_old(pod) => {}
                Some(gone_by) => {
                    if !is_stuck(pod, self.at) {
                        classes.wake_at(gone_by.plus(STUCK_AFTER));
                    }
                    classes.terminating.push(&*pod.name);
                }
                None if exempt(policy.unmanaged_pods, pod, self.own_pod).is_some() => {}
                None => {
                    classes.unavailable.extend(pod.is_cut_off().then_some(&**pod));
                    classes.removable.push(pod);
                }
            }
        }
        classes
    }

    fn count(&self) -> Vec<OwnerCount<'a>> {
        let holdings = self.holdings();
        let owners = self.targets.owners(self.pods).into_iter().map(|owner| &**owner);
        let counts = owners.filter(|owner| !self.is_uninvolved(owner)).map(|owner| {
            let holding = holdings.get(owner).copied().unwrap_or_default();
            let expected = self.expected(owner, holding);
            // Pods that are gone and not replaced yet, if the owner still desires them. Some of the owner's pods may
            // have been newer than the content when the restart began.
            let AtStart { selected, old, ending, .. } = self.targets.at_start(owner);
            let absent = (old.max(selected) + ending).saturating_sub(holding.old + holding.new);
            let coming = holding.coming + absent.min(expected.saturating_sub(holding.present));
            let holding = Holding { coming, is_former: self.is_former(owner), ..holding };
            OwnerCount { owner, expected, holding, is_concerned: old + ending > 0 || holding.old > 0 }
        });
        counts.collect()
    }

    /// Judges the canary. Only a pod with a successor can prove the content. If no old pod has one, each of them counts.
    fn judge(&self, classes: &Classes<'a>, counts: &[OwnerCount<'a>]) -> Option<Verdict> {
        let (canary, policy) = self.canary.zip(self.policy.canary.as_ref())?;
        let recreated = self.targets.recreated();
        let all = if recreated == 0 { self.targets.len() } else { recreated };
        let old = self.pods.values().filter(|pod| self.targets.is_old(pod) && pod.is_present());
        let kept = old.filter(|pod| self.targets.proves(pod)).count();
        let to_go = canary.canary.pods.min(all).saturating_sub(all.saturating_sub(kept));
        let left = if recreated == 0 { 0 } else { kept };
        let is_settled = counts.iter().filter(|count| count.is_concerned).all(|count| count.holding.coming == 0);
        let is_settled = is_settled && !self.may_have_missed_a_pod();
        Some(canary.judge(policy, (to_go, left, is_settled), &classes.new, self.at))
    }

    fn choose(
        &self,
        pods: Vec<&'a Pod>,
        classes: &Classes<'a>,
        concerned: &[(&OwnerCount<'a>, &'a Owner)],
        lacking: usize,
        surge: &mut Surge<'a>,
        verdict: Option<Verdict>,
    ) -> Move {
        let (mut remove, hand_over) = self.affordable(pods, concerned, surge);
        let mut changes_at = classes.changes_at;
        let is_left = !classes.removable.is_empty() || lacking > 0;
        let is_waiting = is_left || matches!(verdict, Some(Verdict::Wait(_)));
        match verdict {
            None => {}
            Some(Verdict::Becomes(state)) => return Move::Canary(state),
            Some(Verdict::Replace(most)) => remove.truncate(most),
            Some(Verdict::Wait(baked_at)) => {
                remove.clear();
                changes_at = earlier(changes_at, baked_at.map(|at| at.plus(SLACK)));
            }
        }
        let uid = |pod: &Pod| pod.uid.clone();
        let remove: Vec<Uid> = remove.into_iter().map(uid).collect();
        let hand_over: Vec<_> = hand_over.into_iter().map(|(pod, to)| (uid(pod), Arc::clone(to))).collect();
        match remove.is_empty() && hand_over.is_empty() {
            false => Move::Replace { remove, hand_over },
            true if is_waiting => Move::Wait(changes_at),
            true => Move::Done,
        }
    }

    /// Returns the old pods that may go, regardless of the budget, and those that wait for others. Pods that are handed
    /// over are left to the surge task. Pods that serve nobody go first, as they use no budget, then the oldest, and
    /// then members of StatefulSets, from the highest ordinal, or, if they serve nobody, from the lowest, without which
    /// no other one is created. A pod that serves and is not available uses the budget. If a deletion was refused, the
    /// other pods of its owner go last. The order is the same in each pass: a pod whose deletion was not answered must
    /// go first again.
    fn in_order(
        &self,
        classes: &Classes<'a>,
        counts: &[OwnerCount<'a>],
        is_proving: bool,
    ) -> (Vec<&'a Pod>, Vec<&'a str>) {
        let is_refused = |pod: &Pod| self.undeleted.get(&pod.uid) == Some(&Undeleted::Refused);
        let refused = classes.removable.iter().filter(|pod| is_refused(pod));
        let refusing: BTreeSet<Option<&Owner>> = refused.map(|pod| pod.controller.as_deref()).collect();
        // Until the canaries have passed, no other pod goes.
        let goes = |pod: &&&Pod| !is_proving || self.targets.proves(pod);
        let removable = || classes.removable.iter().filter(goes);
        let is_free = |pod: &&Pod| pod.handed_over.is_none() && !self.unstartable.contains(&pod.uid);
        let mut pods: Vec<&'a Pod> = removable().copied().filter(is_free).collect();
        pods.sort_by_key(|pod| {
            let is_refusing = refusing.contains(&pod.controller.as_deref());
            let place = ordinal(pod).map(|ordinal| if pod.may_serve() { u64::MAX - ordinal } else { ordinal });
            (is_refused(pod), is_refusing, pod.may_serve(), place, pod.created)
        });
        let (is_any_last, are_others_gone) = (self.is_any_last(), removable().all(|pod| pod.goes_last));
        if self.policy.restart_last.is_none() || is_any_last && are_others_gone && self.are_replaced(counts) {
            return (pods, Vec::new());
        }
        // If no pod is a last one, a failover may be under way, and any pod that serves may become one. A last one that
        // serves nobody may keep the others from going: it uses the budget, or an ordered StatefulSet creates no
        // others. So it does not wait when the deadline has passed.
        let waits = |pod: &Pod| match is_any_last {
            true => pod.goes_last && (pod.may_serve() || !self.is_overdue),
            false => pod.may_serve(),
        };
        let held = pods.extract_if(.., |pod| waits(pod)).map(|pod| &*pod.name).collect();
        (pods, held)
    }

    fn is_any_last(&self) -> bool {
        self.pods.values().any(|pod| pod.goes_last && pod.is_present())
    }

    /// Returns whether the owners lack only available pods that go last. If all pods go last, an owner only has to have
    /// created one: then the budget alone orders them.
    fn are_replaced(&self, counts: &[OwnerCount<'a>]) -> bool {
        let mut selected = self.pods.values().filter(|pod| !pod.finished);
        let are_all_last = self.policy.max_unavailable.is_some() && selected.all(|pod| pod.goes_last);
        self.concerned(counts, false).into_iter().all(|(OwnerCount { expected, holding, .. }, _)| {
            holding.available + holding.last >= *expected || are_all_last && holding.new > 0
        })
    }

    /// Returns the owners in the same group, such as a Deployment, as an owner of replaced pods, with the group: a
    /// rollout may have made a new ReplicaSet. If all StatefulSets are one application, one of them stands for all.
    fn concerned<'b>(
        &self,
        counts: &'b [OwnerCount<'a>],
        are_members_one: bool,
    ) -> Vec<(&'b OwnerCount<'a>, &'a Owner)> {
        let members = counts.iter().map(|count| count.owner).find(|owner| are_members_one && is_stateful(owner));
        let group = |owner| members.filter(|_| is_stateful(owner)).unwrap_or_else(|| self.group(owner));
        let is_concerned = |count: &&OwnerCount<'_>| count.is_concerned || self.targets.is_by_times;
        let concerned = counts.iter().filter(is_concerned).map(|count| count.owner);
        let former = self.targets.owners(self.pods).into_iter().filter(|owner| self.targets.concerns(owner));
        let groups: BTreeSet<&Owner> = concerned.chain(former.map(|owner| &**owner)).map(group).collect();
        let with_groups = counts.iter().map(|count| (count, group(count.owner)));
        with_groups.filter(|(_, group)| groups.contains(group)).collect()
    }

    /// Returns, of pods in this order, those that may be deleted now, and those that may be handed over now.
    fn affordable(
        &self,
        mut pods: Vec<&'a Pod>,
        concerned: &[(&OwnerCount<'a>, &'a Owner)],
        surge: &mut Surge<'a>,
    ) -> (Vec<&'a Pod>, Vec<(&'a Pod, &'a Arc<Owner>)>) {
        let Some(most) = self.policy.max_unavailable else { return (pods, Vec::new()) };
        let concerned = concerned.iter().map(|(count, group)| {
            // Past the deadline, what does not come may wait for the old pods.
            let coming = if self.is_overdue { 0 } else { count.holding.coming };
            let holding = Holding { coming, ..count.holding };
            Member { owner: Some(count.owner), group: Some(group), expected: count.expected, holding }
        });
        let mut budget = Budget::new(most, concerned.chain(self.bare()));
        let mut hand_over = Vec::new();
        pods.retain(|pod| match (pod.controller.as_deref(), surge.way(pod)) {
            (owner, _) if !pod.may_serve() => budget.take_unready(owner),
            (owner, Way::Deletion(_)) => budget.take(owner, self.is_available(pod)),
            (_, Way::Later(_)) => false,
            (owner, Way::HandingOver { or_deletion: true, .. }) if budget.take(owner, self.is_available(pod)) => true,
            (_, Way::HandingOver { to, .. }) => {
                hand_over.extend(surge.take_room(to).then_some((*pod, to)));
                false
            }
        });
        (pods, hand_over)
    }

    /// Returns the pods without an owner, counted, if some of them are replaced. Nobody knows who creates others.
    fn bare(&self) -> Option<Member<'a>> {
        let AtStart { selected, .. } = self.targets.bare()?;
        let there = self.pods.values().filter(|pod| pod.controller.is_none() && pod.is_present());
        let available = there.clone().filter(|pod| self.is_available(pod)).count();
        let (expected, holding) = (selected.max(there.count()), Holding { available, ..Holding::default() });
        Some(Member { owner: None, group: None, expected, holding })
    }

    /// Returns what a budget is for: the Deployment of a ReplicaSet, which may have others, or the owner itself.
    fn group(&self, owner: &'a Owner) -> &'a Owner {
        let state = self.owners.get(owner).filter(|_| owner.kind == "ReplicaSet");
        state.and_then(|state| state.controller.as_deref()).unwrap_or(owner)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.min_ready(pod), self.at)
    }

    /// Returns how long a pod must be ready: the larger of what the ConfigMonitor and its owner say.
    fn min_ready(&self, pod: &Pod) -> Duration {
        let of_owner = pod.controller.as_ref().and_then(|owner| self.owners.get(owner)).map(|state| state.min_ready);
        self.policy.min_ready.max(of_owner.unwrap_or_default())
    }

    /// Returns an owner whose available pods are not as many as expected.
    fn unsettled(&self, count: &OwnerCount<'a>) -> Option<Unsettled<'a>> {
        let OwnerCount { owner, expected, holding: Holding { available, .. }, .. } = *count;
        let failure = self.owners.get(owner).and_then(|state| state.failure.as_deref());
        (expected > 0 && available != expected).then_some(Unsettled { owner, available, expected, failure })
    }

    /// Returns whether a pod of an owner may have been created after the list of selected pods, and so only seems not
    /// to be selected.
    fn may_have_missed_a_pod(&self) -> bool {
        let concerned = self.owners.iter().filter(|(owner, _)| self.targets.concerns(owner));
        // The clocks of two API servers may differ.
        concerned.flat_map(|(_, state)| &state.others).any(|pod| pod.created.plus(SKEW) >= self.at)
    }

    /// Returns whether an edited selector no longer concerns an owner: it has its desired pods available, and none is
    /// selected. Pods that it still lacks may be selected when they come.
    fn is_uninvolved(&self, owner: &Owner) -> bool {
        let is_available = |pod: &&Arc<Pod>| self.is_available(pod);
        let has_others = |state: &OwnerState| state.others.iter().filter(is_available).count() >= state.desired;
        self.is_former(owner) && self.owners.get(owner).is_none_or(has_others)
    }

    /// Returns whether none of an owner's pods is selected since the selector was edited: none was then, or the last
    /// one has gone and its successors are not. Without the state of the owner, the latter looks like pods that are
    /// still to come.
    fn is_former(&self, owner: &Owner) -> bool {
        let is_in_sight = || self.pods.values().any(|pod| pod.controller.as_deref() == Some(owner));
        let may_be = self.targets.may_be_former(owner, self.owners.contains_key(owner));
        may_be && !is_in_sight()
    }

    /// Without the state of an owner, the number of pods that it had.
    fn expected(&self, owner: &Owner, holding: Holding) -> usize {
        match self.owners.get(owner) {
            // A DaemonSet leaves pods on nodes that it no longer counts, and creates no new ones there.
            Some(state) if owner.kind == "DaemonSet" => holding.available.max(state.desired),
            Some(state) => state.desired,
            // A Deployment creates no pods itself.
            None if self.targets.completes(owner) || owner.kind == "Deployment" => 0,
            None => self.targets.at_start(owner).selected.max(holding.present),
        }
    }

    fn holdings(&self) -> BTreeMap<&'a Owner, Holding> {
        let mut holdings: BTreeMap<&Owner, Holding> = BTreeMap::new();
        let others = self.owners.values().flat_map(|state| &state.others).map(|pod| (pod, false));
        let pods = self.pods.values().map(|pod| (pod, true)).chain(others);
        // A pod that is handed over is none of its ReplicaSet any more.
        let counts = |pod: &Pod| !pod.finished && pod.handed_over.is_none() && pod.counts();
        for (pod, is_selected) in pods.filter(|(pod, _)| counts(pod)) {
            let Some(owner) = pod.controller.as_deref() else { continue };
            let (is_old, is_present) = (self.targets.is_old(pod), pod.gone_by.is_none());
            let (is_available, is_stuck) = (self.is_available(pod), is_stuck(pod, self.at));
            let holding = holdings.entry(owner).or_default();
            holding.present += usize::from(is_present);
            holding.available += usize::from(is_available);
            holding.stuck += usize::from(is_stuck);
            holding.old += usize::from(is_old && is_present);
            holding.new += usize::from(!is_old && is_present && is_selected);
            holding.last += usize::from(is_old && is_present && pod.goes_last && !is_available);
            holding.coming += usize::from(!is_old && is_present && !is_available && !self.is_overdue);
        }
        holdings
    }
}

impl Classes<'_> {
    fn wake_at(&mut self, at: ServerTime) {
        self.changes_at = earlier(self.changes_at, Some(at.plus(SLACK)));
    }
}

/// Returns the ordinal of a member of a StatefulSet.
fn ordinal(pod: &Pod) -> Option<u64> {
    pod.controller.as_deref().filter(|owner| is_stateful(owner))?;
    Some(pod.name.rsplit('-').next().and_then(|ordinal| ordinal.parse().ok()).unwrap_or_default())
}

fn earlier(one: Option<ServerTime>, other: Option<ServerTime>) -> Option<ServerTime> {
    one.into_iter().chain(other).min()
}

fn is_stuck(pod: &Pod, now: ServerTime) -> bool {
    pod.gone_by.is_some_and(|gone_by| gone_by.plus(STUCK_AFTER) < now)
}
