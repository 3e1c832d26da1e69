//! One restart: which pods it replaces, and the next move.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use strum::IntoStaticStr;

use super::budget::{Budget, Holding, is_available, waits_for_termination};
use super::canary::{CanarySight, Proof, Verdict};
use super::spec::{Policy, UnmanagedPods};
use super::status::{CanaryState, Restart};
use crate::kube::objects::{Owner, Pod, PodIdentity};
use crate::kube::{ServerTime, Uid};

/// Times are whole seconds: two events this far apart may have been simultaneous.
const SLACK: Duration = Duration::from_secs(1);
/// The tolerated clock skew between two API servers.
pub(super) const SKEW: Duration = Duration::from_secs(10);
/// How long past the end of its grace period a terminating pod is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The pods that one restart replaces, which never change, and the owners of all selected pods. The owners are counted
/// when the restart begins and after an edit of the selector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    old: BTreeSet<Uid>,
    owners: BTreeMap<Arc<Owner>, AtStart>,
    pub(crate) skipped: Vec<Skipped>,
    /// The label selector of the counted pods.
    selector: String,
    /// Whether the selector has been edited since the restart began.
    is_edited: bool,
}

/// The lists that show which pods may run with other content. If the API server has forgotten a list, creation times
/// decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Suspects {
    /// The list right after the content was read. Only its pods may have other content.
    pub(crate) listed: Option<Arc<Listed>>,
    /// On a revert, the list right after the content first changed. Most of its pods have the current content.
    pub(crate) since: Option<Arc<Listed>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Listed {
    pub(crate) pods: BTreeSet<Uid>,
    /// The owners of the pods. An owner counts even if all of its pods have been deleted since.
    pub(crate) owners: BTreeSet<Arc<Owner>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct AtStart {
    selected: usize,
    /// How many pods of the owner are replaced.
    old: usize,
    /// Whether `selected` was lowered to the pods that existed when the progress deadline had passed.
    is_lowered: bool,
    /// Whether the edited selector selected none of the owner's pods.
    is_former: bool,
}

/// A selected pod with old content that is not restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) pod: Arc<str>,
    pub(crate) why: Exempt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub(crate) enum Exempt {
    #[strum(serialize = "the operator's own")]
    Own,
    /// The pod mirrors a static pod.
    #[strum(serialize = "static")]
    Mirror,
    /// No controller would create the pod again.
    #[strum(serialize = "no controller")]
    Bare,
    /// The pod belongs to a Job, which would fail or start anew.
    #[strum(serialize = "of a Job")]
    Job,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerState {
    /// The desired replicas. 0 if the owner is gone.
    pub(crate) desired: usize,
    /// The owner's pods that are not selected.
    pub(crate) others: Vec<Arc<Pod>>,
    /// Why the owner cannot create pods, as text for users.
    pub(crate) failure: Option<String>,
    /// The owner's own controller, such as the Deployment of a ReplicaSet.
    pub(crate) controller: Option<Arc<Owner>>,
}

/// The state of the owners of the pods. An owner that is missing here is expected to have the pods that were selected
/// at the start, or those that exist now if these are more.
pub(crate) type OwnerStates = BTreeMap<Arc<Owner>, OwnerState>;

/// The state of the deletion of an existing pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undeleted {
    Untried,
    /// Attempted without an answer: the pod may still be deleted.
    Unanswered,
    Refused,
}

/// What is known of pods and owners, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) pods: &'a BTreeMap<Uid, Arc<Pod>>,
    pub(crate) owners: &'a OwnerStates,
    /// Existing pods that were to be deleted. Refused ones go after all others.
    pub(crate) undeleted: &'a BTreeMap<Uid, Undeleted>,
    pub(crate) own_pod: Option<&'a Uid>,
    /// The canary, until it has passed or failed.
    pub(crate) canary: Option<CanarySight<'a>>,
    /// Whether the progress deadline has passed. Missing pods are then no longer expected to come.
    pub(crate) is_overdue: bool,
    pub(crate) now: ServerTime,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing<'a> {
    pub(crate) next: Move,
    pub(crate) remaining: usize,
    /// How many old pods remain that are not terminating.
    pub(crate) waiting: usize,
    /// How many available pods the owners of replaced pods lack of their expected number.
    pub(crate) lacking: usize,
    /// How many pods of these owners are terminating or coming.
    pub(crate) on_their_way: usize,
    pub(crate) unsettled: Vec<Unsettled<'a>>,
    pub(crate) unavailable: Vec<&'a Pod>,
    /// The names of old pods that are terminating.
    pub(crate) terminating: Vec<&'a str>,
    /// The names of old pods that are stuck while terminating. The restart does not wait for them.
    pub(crate) stuck: Vec<&'a str>,
    /// The canary, until it has passed or failed.
    pub(crate) canary: Option<CanaryStanding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CanaryStanding {
    pub(crate) pods: usize,
    /// Until when the available canary must stay available.
    pub(crate) until: Option<ServerTime>,
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
    /// Delete these pods now. The first ones are sent first, but a wave waits for no answer in between.
    Remove(Vec<Uid>),
    /// Wait until a pod changes, or until this time.
    Wait(Option<ServerTime>),
    Canary(CanaryState),
    Done,
}

pub(crate) fn exempt(policy: &Policy, pod: &Pod, own_pod: Option<&Uid>) -> Option<Exempt> {
    if own_pod == Some(&pod.uid) {
        return Some(Exempt::Own);
    }
    if pod.mirror {
        return Some(Exempt::Mirror);
    }
    match (&pod.controller, policy.unmanaged_pods) {
        (None, UnmanagedPods::Skip) => Some(Exempt::Bare),
        (Some(owner), UnmanagedPods::Skip) if owner.kind == "Job" => Some(Exempt::Job),
        _ => None,
    }
}

impl Listed {
    pub(crate) fn of(pods: impl IntoIterator<Item = PodIdentity>) -> Self {
        let mut listed = Self::default();
        for PodIdentity { uid, controller } in pods {
            listed.pods.insert(uid);
            listed.owners.extend(controller);
        }
        listed
    }
}

impl Plan {
    /// Plans a restart of the suspects among `pods`: the list as the restart begins, or as it was right after the
    /// content was read.
    pub(crate) fn new(
        policy: &Policy,
        restart: &Restart,
        selector: String,
        suspects: &Suspects,
        pods: &[impl Borrow<Pod>],
        own_pod: Option<&Uid>,
    ) -> Self {
        let is_suspect = |pod: &Pod| match &suspects.listed {
            Some(listed) => listed.pods.contains(&pod.uid),
            None => pod.created <= restart.observed_at.plus(SKEW),
        };
        // A pod created earlier may have read later content: it waited for its image, or a container was restarted.
        let has_read_since = |pod: &Pod, at| pod.created >= at || pod.started.is_none_or(|started| started >= at);
        let is_affected = |pod: &Pod| match &suspects.since {
            _ if !restart.revert => true,
            Some(since) => !since.pods.contains(&pod.uid) || has_read_since(pod, restart.since.minus(SLACK)),
            None => has_read_since(pod, restart.since.minus(SKEW)),
        };
        let mut owners = BTreeMap::new();
        if let Some(listed) = &suspects.listed {
            owners.extend(listed.owners.iter().map(|owner| (Arc::clone(owner), AtStart::default())));
        }
        let (old, skipped) = (BTreeSet::new(), Vec::new());
        let mut plan = Self { old, owners, skipped, selector, is_edited: false };
        for pod in pods.iter().map(Borrow::borrow) {
            let is_old = is_suspect(pod) && is_affected(pod);
            let why = exempt(policy, pod, own_pod);
            if let Some(owner) = &pod.controller {
                let at_start = plan.owners.entry(Arc::clone(owner)).or_default();
                at_start.selected += usize::from(pod.is_present());
                at_start.old += usize::from(is_old && !pod.finished && why.is_none());
            }
            match why {
                _ if !is_old || pod.finished => {}
                Some(why) => plan.skipped.push(Skipped { pod: pod.name.clone(), why }),
                None => drop(plan.old.insert(pod.uid.clone())),
            }
        }
        plan
    }

    pub(crate) fn len(&self) -> usize {
        self.old.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.old.is_empty()
    }

    /// Returns the pods to replace that have become exempt, and so are left alone.
    pub(crate) fn left_alone(
        &self,
        policy: &Policy,
        pods: &BTreeMap<Uid, Arc<Pod>>,
        own_pod: Option<&Uid>,
    ) -> Vec<Skipped> {
        let old = pods.values().filter(|pod| self.old.contains(&pod.uid) && pod.is_present());
        let left = old.filter_map(|pod| Some(Skipped { pod: pod.name.clone(), why: exempt(policy, pod, own_pod)? }));
        left.collect()
    }

    /// Returns whether a pod is not replaced, and has an owner whose pods are.
    pub(crate) fn is_successor(&self, pod: &Pod) -> bool {
        !self.old.contains(&pod.uid) && pod.controller.as_ref().is_some_and(|owner| self.concerns(owner))
    }

    /// Returns the owners of the pods that were selected when the restart began, and of `pods`.
    pub(crate) fn owners<'a>(&'a self, pods: &'a BTreeMap<Uid, Arc<Pod>>) -> BTreeSet<&'a Arc<Owner>> {
        self.owners.keys().chain(pods.values().filter_map(|pod| pod.controller.as_ref())).collect()
    }

    pub(crate) fn concerns(&self, owner: &Owner) -> bool {
        self.at_start(owner).old > 0
    }

    /// Updates the plan to the pods selected now. After an edit of the selector, the owners of these pods count.
    pub(crate) fn select(&mut self, policy: &Policy, pods: &BTreeMap<Uid, Arc<Pod>>) {
        let selector = policy.selector.to_query();
        if self.selector == selector {
            return;
        }
        (self.selector, self.is_edited) = (selector, true);
        for at_start in self.owners.values_mut() {
            (at_start.selected, at_start.is_former) = (0, true);
        }
        for pod in pods.values().filter(|pod| !pod.finished) {
            let Some(owner) = &pod.controller else { continue };
            let at_start = self.owners.entry(Arc::clone(owner)).or_default();
            at_start.selected += usize::from(pod.gone_by.is_none());
            at_start.is_former = false;
        }
    }

    /// Lowers, once the progress deadline has passed, how many pods are expected of an owner of an unknown kind: it may
    /// have been scaled down. This happens once for each owner, or one that creates no more pods would lose all of
    /// them.
    pub(crate) fn lower_expectations(&mut self, pods: &BTreeMap<Uid, Arc<Pod>>) {
        let believed =
            |(owner, at_start): &(&Arc<Owner>, &mut AtStart)| owner.workload().is_none() && !at_start.is_lowered;
        for (owner, at_start) in self.owners.iter_mut().filter(believed) {
            let is_its = |pod: &&Arc<Pod>| pod.controller.as_ref() == Some(owner) && pod.is_present();
            let there = pods.values().filter(is_its).count();
            at_start.is_lowered = there < at_start.selected;
            at_start.selected = at_start.selected.min(there);
        }
    }

    pub(crate) fn standing<'a>(&'a self, policy: &Policy, sight: &Sight<'a>) -> Standing<'a> {
        let Sight { pods, now, .. } = *sight;
        let mut removable: Vec<&Pod> = Vec::new();
        let (mut unavailable, mut terminating, mut stuck) = (Vec::new(), Vec::new(), Vec::new());
        let (mut remaining, mut new) = (0, Vec::new());
        let mut until: Option<ServerTime> = None;
        let mut wake_at = |at: ServerTime| until = until.into_iter().chain([at.plus(SLACK)]).min();
        for pod in pods.values().filter(|pod| !pod.finished) {
            let starting = pod.gone_by.is_none() && !is_available(pod, policy.min_ready, now);
            if let Some(since) = pod.ready_from().filter(|_| starting) {
                wake_at(since.plus(policy.min_ready));
            }
            if !self.old.contains(&pod.uid) {
                if pod.controller.as_ref().is_some_and(|owner| self.concerns(owner)) {
                    if starting {
                        unavailable.push(&**pod);
                    }
                    if pod.gone_by.is_none() {
                        new.push(&**pod);
                    }
                }
                continue;
            }
            match pod.gone_by {
                Some(_) if is_stuck(pod, now) => {
                    stuck.push(&*pod.name);
                    continue;
                }
                Some(gone_by) => {
                    wake_at(gone_by.plus(STUCK_AFTER));
                    terminating.push(&*pod.name);
                }
                None if exempt(policy, pod, sight.own_pod).is_some() => continue,
                None => removable.push(pod),
            }
            remaining += 1;
        }
        let holdings = self.holdings(policy, sight);
        let accounts: Vec<(&Owner, usize, Holding)> = self
            .owners(pods)
            .into_iter()
            .map(|owner| (&**owner, holdings.get(&**owner).copied().unwrap_or_default()))
            .filter(|(owner, _)| !self.is_uninvolved(policy, owner, sight))
            .map(|(owner, holding)| {
                let expected = self.expected(owner, sight, holding);
                // Pods that are gone and not replaced yet, if the owner still desires them. Some of the owner's pods may
                // have been newer than the content when the restart began.
                let AtStart { selected, old, .. } = self.at_start(owner);
                let absent = selected.max(old).saturating_sub(holding.old + holding.new);
                let coming = holding.coming + absent.min(expected.saturating_sub(holding.present));
                (owner, expected, Holding { coming, is_former: self.is_former(owner, sight), ..holding })
            })
            .collect();
        let concerned = || accounts.iter().filter(|(owner, ..)| self.concerns(owner));
        let lacking = concerned().map(|(_, expected, holding)| expected.saturating_sub(holding.available)).sum();
        let on_their_way = concerned().map(|(.., holding)| holding.terminating + holding.coming).sum();
        let unsettled =
            accounts.iter().filter(|(_, expected, holding)| *expected > 0 && holding.available != *expected);
        let unsettled = unsettled
            .map(|(owner, expected, holding)| {
                let failure = sight.owners.get(*owner).and_then(|state| state.failure.as_deref());
                Unsettled { owner, available: holding.available, expected: *expected, failure }
            })
            .collect();
        let waiting = removable.len();
        let canary = sight.canary.zip(policy.canary.as_ref());
        let recreated = self.recreated();
        // Only a pod with a successor can prove the content. If no old pod has one, each of them counts.
        let proves = |pod: &Pod| recreated == 0 || pod.controller.as_deref().is_some_and(recreates);
        let verdict = canary.map(|(canary, policy)| {
            let all = if recreated == 0 { self.old.len() } else { recreated };
            let old = pods.values().filter(|pod| self.old.contains(&pod.uid) && pod.is_present());
            let kept = old.filter(|pod| proves(pod)).count();
            let to_go = canary.canary.pods.min(all).saturating_sub(all.saturating_sub(kept));
            let left = if recreated == 0 { 0 } else { kept };
            // A ReplicaSet does not wait for the end of a stuck pod.
            let is_settled = concerned().all(|(owner, _, holding)| {
                let stuck = if waits_for_termination(owner) { 0 } else { holding.stuck };
                holding.terminating == stuck && holding.coming == 0
            });
            let is_settled = is_settled && !self.may_have_missed_a_pod(sight);
            canary.judge(policy, Proof { to_go, left, is_settled, new: &new, now })
        });
        let mut remove = affordable(policy, sight, &accounts, removable);
        match verdict {
            Some(Verdict::Replace(most)) => {
                remove.retain(|pod| pods.get(pod).is_some_and(|pod| proves(pod)));
                remove.truncate(most);
            }
            Some(_) => remove.clear(),
            None => {}
        }
        let baked_at = match &verdict {
            Some(Verdict::Wait(baked_at)) => *baked_at,
            _ => None,
        };
        if let Some(at) = baked_at {
            wake_at(at);
        }
        let is_waiting = remaining > 0 || lacking > 0 || matches!(verdict, Some(Verdict::Wait(_)));
        let next = match verdict {
            Some(Verdict::Becomes(state)) => Move::Canary(state),
            _ if !remove.is_empty() => Move::Remove(remove),
            _ if is_waiting => Move::Wait(until),
            _ => Move::Done,
        };
        let canary = canary.map(|(sight, _)| CanaryStanding { pods: sight.canary.pods, until: baked_at });
        Standing { next, remaining, waiting, lacking, on_their_way, unsettled, unavailable, terminating, stuck, canary }
    }

    /// Returns whether a pod of an owner may have been created after the list of selected pods, and so only seems not
    /// to be selected.
    fn may_have_missed_a_pod(&self, sight: &Sight<'_>) -> bool {
        let mut others =
            sight.owners.iter().filter(|(owner, _)| self.concerns(owner)).flat_map(|(_, state)| &state.others);
        // The clocks of two API servers may differ.
        others.any(|pod| pod.created.plus(SKEW) >= sight.now)
    }

    /// Returns how many old pods have an owner that creates a successor.
    fn recreated(&self) -> usize {
        self.owners.iter().filter(|(owner, _)| recreates(owner)).map(|(_, at_start)| at_start.old).sum()
    }

    /// Returns whether an owner has nothing to do with the pods selected since the selector was edited: it has its
    /// desired number available, and none of these is selected. While it lacks pods, these may be selected when they
    /// come.
    fn is_uninvolved(&self, policy: &Policy, owner: &Owner, sight: &Sight<'_>) -> bool {
        let is_available = |pod: &&Arc<Pod>| is_available(pod, policy.min_ready, sight.now);
        let has_others = |state: &OwnerState| state.others.iter().filter(is_available).count() >= state.desired;
        self.is_former(owner, sight) && sight.owners.get(owner).is_none_or(has_others)
    }

    /// Returns whether none of an owner's pods is selected since the selector was edited: none was then, or the last
    /// one has gone and its successors are not. Without the state of the owner, the latter looks like pods that are
    /// still to come.
    fn is_former(&self, owner: &Owner, sight: &Sight<'_>) -> bool {
        let is_in_sight = || sight.pods.values().any(|pod| pod.controller.as_deref() == Some(owner));
        let may_be = self.at_start(owner).is_former || (self.is_edited && sight.owners.contains_key(owner));
        may_be && !is_in_sight()
    }

    /// Without the state of an owner, the number of pods that it had.
    fn expected(&self, owner: &Owner, sight: &Sight<'_>, holding: Holding) -> usize {
        match sight.owners.get(owner) {
            // A DaemonSet leaves pods on nodes that it no longer counts, and creates no new ones there.
            Some(state) if owner.kind == "DaemonSet" => holding.available.max(state.desired),
            Some(state) => state.desired,
            // A Job creates no pod in place of a deleted one, or does so at a time of its own.
            None if owner.kind == "Job" => 0,
            None => self.at_start(owner).selected.max(holding.present),
        }
    }

    fn holdings<'a>(&self, policy: &Policy, sight: &Sight<'a>) -> BTreeMap<&'a Owner, Holding> {
        let mut holdings: BTreeMap<&Owner, Holding> = BTreeMap::new();
        let others = sight.owners.values().flat_map(|state| &state.others).map(|pod| (pod, false));
        let pods = sight.pods.values().map(|pod| (pod, true)).chain(others);
        for (pod, is_selected) in pods.filter(|(pod, _)| !pod.finished) {
            let Some(owner) = pod.controller.as_deref() else { continue };
            let (is_old, is_present) = (self.old.contains(&pod.uid), pod.gone_by.is_none());
            let is_available = is_available(pod, policy.min_ready, sight.now);
            let holding = holdings.entry(owner).or_default();
            holding.present += usize::from(is_present);
            holding.available += usize::from(is_available);
            holding.terminating += usize::from(!is_present);
            holding.stuck += usize::from(is_stuck(pod, sight.now));
            holding.old += usize::from(is_old);
            holding.new += usize::from(!is_old && is_present && is_selected);
            holding.coming += usize::from(!is_old && is_present && !is_available && !sight.is_overdue);
        }
        holdings
    }

    fn at_start(&self, owner: &Owner) -> AtStart {
        self.owners.get(owner).copied().unwrap_or_default()
    }
}

/// The old pods that may be deleted now. Unready pods go first, as they use no budget, then the oldest. A ready pod that
/// is not available yet serves traffic and uses the budget. The other pods of an owner go last if a deletion of one of
/// them was refused. The order is the same in each pass: a pod whose deletion was not answered must go first again.
fn affordable(
    policy: &Policy,
    sight: &Sight<'_>,
    accounts: &[(&Owner, usize, Holding)],
    mut pods: Vec<&Pod>,
) -> Vec<Uid> {
    let is_ready = |pod: &Pod| pod.ready_since.is_some();
    let is_refused = |pod: &Pod| sight.undeleted.get(&pod.uid) == Some(&Undeleted::Refused);
    let refusing: BTreeSet<Option<&Owner>> =
        pods.iter().filter(|pod| is_refused(pod)).map(|pod| pod.controller.as_deref()).collect();
    pods.sort_by_key(|pod| {
        (is_refused(pod), refusing.contains(&pod.controller.as_deref()), is_ready(pod), pod.created)
    });
    let mut budget = policy.max_unavailable.map(|most| Budget::new(most, accounts.iter().copied()));
    let affordable = pods.into_iter().filter(|pod| match (&mut budget, &pod.controller) {
        (Some(budget), Some(owner)) if is_ready(pod) => {
            budget.take(owner, is_available(pod, policy.min_ready, sight.now))
        }
        (Some(budget), Some(owner)) => budget.take_unready(owner),
        _ => true,
    });
    affordable.map(|pod| pod.uid.clone()).collect()
}

/// Returns whether an owner creates a successor of a deleted pod. A Job does so at a time of its own, or fails.
fn recreates(owner: &Owner) -> bool {
    owner.kind != "Job"
}

fn is_stuck(pod: &Pod, now: ServerTime) -> bool {
    pod.gone_by.is_some_and(|gone_by| gone_by.plus(STUCK_AFTER) < now)
}

#[cfg(test)]
mod tests;
