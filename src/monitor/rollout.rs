//! One restart: which pods it replaces, and what may be done next.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::budget::{Budget, Holding, is_available, waits_for_the_end};
use super::canary::{CanarySight, Proof, Verdict};
use super::spec::{Policy, UnmanagedPods};
use super::status::{CanaryState, Restart};
use crate::kube::objects::{Owner, Pod, PodIdentity};
use crate::kube::{ServerTime, Uid};

/// Times are whole seconds: what came so long after another may have come with it.
const SLACK: Duration = Duration::from_secs(1);
/// The clocks of two API servers may be so far apart.
pub(super) const SKEW: Duration = Duration::from_secs(10);
/// A pod that is still there so long after it should have ended is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The pods that one restart replaces, which is fixed, and what the owners of all selected pods had when it began, or when others came to be selected.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    old: BTreeSet<Uid>,
    owners: BTreeMap<Arc<Owner>, AtStart>,
    skipped: Vec<Skipped>,
    /// The label selector of the pods that were counted.
    selector: String,
    /// It is another one than that with which the restart began.
    is_edited: bool,
}

/// From which lists it is known which pods may run with other content. Where the API server has forgotten one, times must do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suspects {
    /// Those that were there right after the content was read: no others may.
    pub listed: Option<Arc<Listed>>,
    /// Those that were there right after the content had left what it is back to: of these, most do not.
    pub since: Option<Arc<Listed>>,
}

/// A list of pods, of which only the identities are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The pods.
    pub pods: BTreeSet<Uid>,
    /// Their owners. All pods of one may have been deleted since, and it is to be counted all the same.
    pub owners: BTreeSet<Arc<Owner>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct AtStart {
    selected: usize,
    /// So many of its pods are replaced.
    old: usize,
    /// It is taken at what was there when the deadline had passed.
    is_lowered: bool,
    /// None of its pods was selected any more when the selector was edited.
    is_former: bool,
}

/// A selected pod with old content that is not restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The name of the pod.
    pub pod: Arc<str>,
    /// Why it is not restarted.
    pub why: Exempt,
}

/// Why a pod is not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// It is the operator's own.
    Own,
    /// It mirrors a static pod.
    Mirror,
    /// No controller would create it again.
    Bare,
    /// It belongs to a Job, which would fail or begin anew.
    Job,
}

/// The state of an owner of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerState {
    /// The desired replicas: none if the owner is gone.
    pub desired: usize,
    /// The owner's pods that are not selected.
    pub others: Vec<Arc<Pod>>,
    /// Why the owner cannot create pods, for a person.
    pub failure: Option<String>,
}

/// The state of the owners of the pods. The desired replicas of an owner that is missing here are the pods that were selected at the start, or those
/// that exist now.
pub type OwnerStates = BTreeMap<Arc<Owner>, OwnerState>;

/// What became of the deletion of a pod that is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undeleted {
    /// Nothing yet.
    Untried,
    /// It was asked for, and may take place yet.
    Unanswered,
    /// The API server does not want it.
    Refused,
}

/// What can be seen of the world, and when.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The pods that are selected now.
    pub pods: &'a BTreeMap<Uid, Arc<Pod>>,
    /// The state of their owners.
    pub owners: &'a OwnerStates,
    /// Pods that were not deleted when that was tried. Others go before those that were refused.
    pub undeleted: &'a BTreeMap<Uid, Undeleted>,
    /// The operator's own pod.
    pub own_pod: Option<&'a Uid>,
    /// The pods that go first, until the others may.
    pub canary: Option<CanarySight<'a>>,
    /// The progress deadline has passed: what has not come by then is not counted on any more.
    pub is_overdue: bool,
    /// The API server's time.
    pub now: ServerTime,
}

/// Where a restart stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing<'a> {
    /// What to do.
    pub next: Move,
    /// How many of the old pods are left,
    pub remaining: usize,
    /// and how many of these are not terminating.
    pub waiting: usize,
    /// Old pods could be deleted, but the budget allows none of them.
    pub is_halted: bool,
    /// How many available pods the owners of replaced pods lack of those that they want.
    pub lacking: usize,
    /// How many of their pods are on their way out, or in.
    pub on_their_way: usize,
    /// Owners that have another number of pods available than they are to have.
    pub unsettled: Vec<Unsettled<'a>>,
    /// New pods that are not available.
    pub unavailable: Vec<&'a Pod>,
    /// Old pods that are on their way out, by name.
    pub terminating: Vec<&'a str>,
    /// Old pods that do not end, by name; they are not waited for.
    pub stuck: Vec<&'a str>,
    /// Those that go first, until the others may.
    pub canary: Option<CanaryStanding>,
}

/// Where the pods stand that go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanaryStanding {
    /// How many they are.
    pub pods: usize,
    /// How long they must stay available, once they are.
    pub until: Option<ServerTime>,
}

/// An owner that has another number of pods available than it is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsettled<'a> {
    /// The owner.
    pub owner: &'a Owner,
    /// How many pods it has available,
    pub available: usize,
    /// and how many it is to have.
    pub expected: usize,
    /// Why the owner cannot create pods, for a person.
    pub failure: Option<&'a str>,
}

/// What to do next in a restart.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Delete these pods now, in this order.
    Remove(Vec<Uid>),
    /// Nothing, until a pod changes, or until this time.
    Wait(Option<ServerTime>),
    /// Write down what has become of the pods that went first.
    Canary(CanaryState),
    /// It is over.
    Done,
}

/// Why this pod must not be restarted under this policy, if so.
#[must_use]
pub fn exempt(policy: &Policy, pod: &Pod, own_pod: Option<&Uid>) -> Option<Exempt> {
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
    /// Takes the identities out of a list.
    #[must_use]
    pub fn of(pods: impl IntoIterator<Item = PodIdentity>) -> Self {
        let mut listed = Self::default();
        for PodIdentity { uid, controller } in pods {
            listed.pods.insert(uid);
            listed.owners.extend(controller);
        }
        listed
    }
}

impl Plan {
    /// Plans a restart from a list of pods with these labels: as it begins, or as it was right after the content was read. It replaces those of
    /// them that are suspects.
    #[must_use]
    pub fn new(
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
        // A pod that was created before may have read what came later: it waited for its image, or a container was started anew.
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

    /// How many pods it replaces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.old.len()
    }

    /// Whether there is nothing to replace.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.old.is_empty()
    }

    /// The pods that are not restarted although they have old content.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The pods to replace that are exempt by now, and so are left alone.
    #[must_use]
    pub fn left_alone(&self, policy: &Policy, pods: &BTreeMap<Uid, Arc<Pod>>, own_pod: Option<&Uid>) -> Vec<Skipped> {
        let old = pods.values().filter(|pod| self.old.contains(&pod.uid) && pod.is_present());
        let left = old.filter_map(|pod| Some(Skipped { pod: pod.name.clone(), why: exempt(policy, pod, own_pod)? }));
        left.collect()
    }

    /// Whether it replaces this pod.
    #[must_use]
    pub fn replaces(&self, pod: &Uid) -> bool {
        self.old.contains(pod)
    }

    /// The owners of the pods that were selected when it began, and of these pods.
    #[must_use]
    pub fn owners<'a>(&'a self, pods: &'a BTreeMap<Uid, Arc<Pod>>) -> BTreeSet<&'a Arc<Owner>> {
        self.owners.keys().chain(pods.values().filter_map(|pod| pod.controller.as_ref())).collect()
    }

    /// Whether pods of this owner are replaced.
    #[must_use]
    pub fn concerns(&self, owner: &Owner) -> bool {
        self.at_start(owner).old > 0
    }

    /// These pods are selected now. Once that is by other labels than before, their owners are the ones that count.
    pub fn select(&mut self, policy: &Policy, pods: &BTreeMap<Uid, Arc<Pod>>) {
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

    /// The progress deadline has passed, and these pods are there. An owner that cannot be asked as its kind is not known may have been scaled down:
    /// what has not come by now is not to come. That is believed once, or one that makes no pods any more would lose all of them, one after the
    /// other.
    pub fn lower_expectations(&mut self, pods: &BTreeMap<Uid, Arc<Pod>>) {
        let believed =
            |(owner, at_start): &(&Arc<Owner>, &mut AtStart)| owner.workload().is_none() && !at_start.is_lowered;
        for (owner, at_start) in self.owners.iter_mut().filter(believed) {
            let is_its = |pod: &&Arc<Pod>| pod.controller.as_ref() == Some(owner) && pod.is_present();
            let there = pods.values().filter(is_its).count();
            at_start.is_lowered = there < at_start.selected;
            at_start.selected = at_start.selected.min(there);
        }
    }

    /// Where the restart stands, given what can be seen now.
    #[must_use]
    pub fn standing<'a>(&'a self, policy: &Policy, sight: &Sight<'a>) -> Standing<'a> {
        let Sight { pods, now, .. } = *sight;
        let mut removable: Vec<&Pod> = Vec::new();
        let (mut unavailable, mut terminating, mut stuck) = (Vec::new(), Vec::new(), Vec::new());
        let (mut remaining, mut new) = (0, Vec::new());
        let mut until: Option<ServerTime> = None;
        let mut look_again = |at: ServerTime| until = until.into_iter().chain([at.plus(SLACK)]).min();
        for pod in pods.values().filter(|pod| !pod.finished) {
            let starting = pod.gone_by.is_none() && !is_available(pod, policy.min_ready, now);
            if let Some(since) = pod.ready_since.filter(|_| starting) {
                look_again(since.plus(policy.min_ready));
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
                    look_again(gone_by.plus(STUCK_AFTER));
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
            .filter(|(owner, _)| !self.is_out_of_it(policy, owner, sight))
            .map(|(owner, holding)| {
                let expected = self.expected(owner, sight, holding);
                // Old pods that are gone and not replaced yet, if they are still desired.
                let absent = self.at_start(owner).old.saturating_sub(holding.old + holding.new);
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
        let made_again = self.made_again();
        // Whether a pod that can prove the content will take the place of this one. If no old pod has such a successor, each of them counts.
        let proves = |pod: &Pod| made_again == 0 || pod.controller.as_deref().is_some_and(makes_again);
        let verdict = canary.map(|(canary, policy)| {
            let all = if made_again == 0 { self.old.len() } else { made_again };
            let old = pods.values().filter(|pod| self.old.contains(&pod.uid) && pod.is_present());
            let kept = old.filter(|pod| proves(pod)).count();
            let to_go = canary.canary.pods.min(all).saturating_sub(all.saturating_sub(kept));
            let left = if made_again == 0 { 0 } else { kept };
            // A ReplicaSet does not wait for the end of a pod that is stuck.
            let is_settled = concerned().all(|(owner, _, holding)| {
                let stuck = if waits_for_the_end(owner) { 0 } else { holding.stuck };
                holding.terminating == stuck && holding.coming == 0
            });
            let is_settled = is_settled && !self.may_have_missed_one(sight);
            canary.judge(policy, Proof { to_go, left, is_settled, new: &new, now })
        });
        let (mut remove, is_used_up) = affordable(policy, sight, &accounts, removable);
        let is_halted = waiting > 0 && remove.is_empty() && is_used_up;
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
            look_again(at);
        }
        let is_waiting = remaining > 0 || lacking > 0 || matches!(verdict, Some(Verdict::Wait(_)));
        let next = match verdict {
            Some(Verdict::Becomes(state)) => Move::Canary(state),
            _ if !remove.is_empty() => Move::Remove(remove),
            _ if is_waiting => Move::Wait(until),
            _ => Move::Done,
        };
        let canary = canary.map(|(sight, _)| CanaryStanding { pods: sight.canary.pods, until: baked_at });
        Standing {
            next,
            remaining,
            waiting,
            is_halted,
            lacking,
            on_their_way,
            unsettled,
            unavailable,
            terminating,
            stuck,
            canary,
        }
    }

    /// Whether an owner has a pod that may have been created since the pods were listed, so that it only seems not to be selected.
    fn may_have_missed_one(&self, sight: &Sight<'_>) -> bool {
        let mut others =
            sight.owners.iter().filter(|(owner, _)| self.concerns(owner)).flat_map(|(_, state)| &state.others);
        others.any(|pod| pod.created >= sight.now)
    }

    /// How many of the old pods have an owner that creates another one in their place.
    fn made_again(&self) -> usize {
        self.owners.iter().filter(|(owner, _)| makes_again(owner)).map(|(_, at_start)| at_start.old).sum()
    }

    /// Whether an owner has nothing to do with the pods that are selected since the selector was edited: it has as many available as it wants, and
    /// they are others. As long as it lacks some, these may be selected when they come.
    fn is_out_of_it(&self, policy: &Policy, owner: &Owner, sight: &Sight<'_>) -> bool {
        let is_available = |pod: &&Arc<Pod>| is_available(pod, policy.min_ready, sight.now);
        let has_others = |state: &OwnerState| state.others.iter().filter(is_available).count() >= state.desired;
        self.is_former(owner, sight) && sight.owners.get(owner).is_none_or(has_others)
    }

    /// Whether none of the pods of an owner is selected any more since the selector was edited: none was then, or the last one that was has gone and
    /// its successors are not. Of one that was not asked nobody can tell the latter from pods that are still to come.
    fn is_former(&self, owner: &Owner, sight: &Sight<'_>) -> bool {
        let is_in_sight = || sight.pods.values().any(|pod| pod.controller.as_deref() == Some(owner));
        let may_be = self.at_start(owner).is_former || (self.is_edited && sight.owners.contains_key(owner));
        may_be && !is_in_sight()
    }

    /// How many pods an owner is to have. Of one that cannot be asked no more is known than how many it had.
    fn expected(&self, owner: &Owner, sight: &Sight<'_>, holding: Holding) -> usize {
        match sight.owners.get(owner) {
            // It does not count, but leaves alone, pods on nodes that new ones are not made for any more.
            Some(state) if owner.kind == "DaemonSet" => holding.available.max(state.desired),
            Some(state) => state.desired,
            // It makes no new pod for one that it has lost to a restart, or makes it when it likes.
            None if owner.kind == "Job" => 0,
            None => self.at_start(owner).selected.max(holding.present),
        }
    }

    /// What the owners of these pods have.
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

/// Which of the old pods may be deleted now. Those that are not ready cost nothing and go first, then the oldest. One that is ready,
/// but not for long enough to be available, serves all the same, and is not for nothing. Where one was refused, so may be the others
/// of its owner: they are put off, too. And whether the budget is used up.
fn affordable(
    policy: &Policy,
    sight: &Sight<'_>,
    accounts: &[(&Owner, usize, Holding)],
    mut pods: Vec<&Pod>,
) -> (Vec<Uid>, bool) {
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
    let affordable = affordable.map(|pod| pod.uid.clone()).collect();
    (affordable, budget.is_some_and(|budget| budget.is_used_up()))
}

/// Whether it creates another pod when one is deleted. A Job does so when it likes, or fails.
fn makes_again(owner: &Owner) -> bool {
    owner.kind != "Job"
}

fn is_stuck(pod: &Pod, now: ServerTime) -> bool {
    pod.gone_by.is_some_and(|gone_by| gone_by.plus(STUCK_AFTER) < now)
}

#[cfg(test)]
mod tests;
