//! One restart: which pods it replaces, and what may be done next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::budget::{Budget, Holding, is_available};
use super::selector::Selector;
use super::spec::{Policy, UnmanagedPods};
use super::status::Restart;
use crate::kube::objects::{Owner, Pod};
use crate::kube::{ServerTime, Uid};

/// Pods created so long after the content was first read may have been created before: both are whole seconds.
const SLACK: Duration = Duration::from_secs(1);
/// A pod that is still there so long after it should have ended is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The pods that one restart replaces, and what the owners of all selected pods had when it began. Fixed for the whole restart.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    old: BTreeSet<Uid>,
    owners: BTreeMap<Owner, AtStart>,
    skipped: Vec<Skipped>,
    /// Which pods were counted.
    selector: Selector,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct AtStart {
    selected: usize,
    available: usize,
    /// Some of its pods are replaced.
    is_concerned: bool,
}

/// A selected pod with old content that is not restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The name of the pod.
    pub pod: String,
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

/// What an owner of pods wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// So many pods of the kind that is selected: none if it is gone.
    Pods(usize),
    /// Pods that are not selected, as its template has other labels.
    OtherPods {
        /// How many of them are missing, as it last counted.
        missing: usize,
    },
}

/// What the owners of the pods want now. One that is not in it wants as many as were selected at the start.
pub type Wanted = BTreeMap<Owner, Wish>;

/// What can be seen of the world, and when.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The pods that are selected now.
    pub pods: &'a BTreeMap<Uid, Pod>,
    /// What their owners want.
    pub wanted: &'a Wanted,
    /// Pods whose deletion was refused. Others go first.
    pub refused: &'a BTreeSet<Uid>,
    /// The operator's own pod.
    pub own_pod: Option<&'a Uid>,
    /// The API server's time.
    pub now: ServerTime,
}

/// Where a restart stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing<'a> {
    /// What to do.
    pub next: Move,
    /// How many of the old pods are left.
    pub remaining: usize,
    /// How many available pods the owners lack of those that they had.
    pub lacking: usize,
    /// Owners that have another number of pods available than they are to have.
    pub unsettled: Vec<Unsettled<'a>>,
    /// New pods that are not available, by name.
    pub unavailable: Vec<&'a str>,
    /// Old pods that are on their way out, by name.
    pub terminating: Vec<&'a str>,
    /// Old pods that do not end, by name; they are not waited for.
    pub stuck: Vec<&'a str>,
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
}

/// What to do next in a restart.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Delete these pods now, in this order.
    Remove(Vec<Uid>),
    /// Nothing, until a pod changes, or until this time.
    Wait(Option<ServerTime>),
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

impl Plan {
    /// Plans a restart from the list of pods that it is about, which was made when it started: those that were there when the new
    /// content was first read.
    #[must_use]
    pub fn new(policy: &Policy, restart: &Restart, started: ServerTime, pods: &[Pod], own_pod: Option<&Uid>) -> Self {
        let newest = restart.observed_at.plus(SLACK);
        let oldest = restart.revert.then(|| restart.since.minus(SLACK));
        let (old, owners, skipped) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        let mut plan = Self { old, owners, skipped, selector: policy.selector.clone() };
        // A pod that was created before may have read what came later: it waited for its image, or a container was started anew.
        let may_have_read = |pod: &Pod, oldest| pod.created >= oldest || pod.started.is_none_or(|at| at >= oldest);
        for pod in pods {
            let is_old = pod.created <= newest && oldest.is_none_or(|oldest| may_have_read(pod, oldest));
            let why = exempt(policy, pod, own_pod);
            if let Some(owner) = &pod.controller {
                let at_start = plan.owners.entry(owner.clone()).or_default();
                // In the list of a restart that is resumed there may be pods that are not selected any more.
                let stays = !pod.finished && pod.gone_by.is_none();
                at_start.selected += usize::from(stays && policy.selector.matches(&pod.labels));
                at_start.available += usize::from(is_available(pod, policy.min_ready, started));
                at_start.is_concerned |= is_old && !pod.finished && why.is_none();
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

    /// The owners of the pods that were selected when it began, and of these pods.
    #[must_use]
    pub fn owners<'a>(&'a self, pods: &'a BTreeMap<Uid, Pod>) -> BTreeSet<&'a Owner> {
        self.owners.keys().chain(pods.values().filter_map(|pod| pod.controller.as_ref())).collect()
    }

    /// Where the restart stands, given what can be seen now.
    #[must_use]
    pub fn standing<'a>(&'a self, policy: &Policy, sight: &Sight<'a>) -> Standing<'a> {
        let Sight { pods, now, .. } = *sight;
        let mut removable = Vec::new();
        let (mut unavailable, mut terminating, mut stuck) = (Vec::new(), Vec::new(), Vec::new());
        let mut remaining = 0;
        let mut until: Option<ServerTime> = None;
        let mut look_again = |at: ServerTime| until = until.into_iter().chain([at.plus(SLACK)]).min();
        for pod in pods.values().filter(|pod| !pod.finished) {
            let starting = pod.gone_by.is_none() && !is_available(pod, policy.min_ready, now);
            if let Some(since) = pod.ready_since.filter(|_| starting) {
                look_again(since.plus(policy.min_ready));
            }
            if !self.old.contains(&pod.uid) {
                if starting && pod.controller.as_ref().is_some_and(|owner| self.at_start(owner).is_concerned) {
                    unavailable.push(&*pod.name);
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
        let holdings = holdings(policy, pods, now);
        let accounts: Vec<(&Owner, usize, Holding)> = self
            .owners(pods)
            .into_iter()
            .map(|owner| (owner, holdings.get(owner).copied().unwrap_or_default()))
            .map(|(owner, holding)| (owner, self.expected(policy, owner, sight.wanted, holding), holding))
            .collect();
        let lacking = accounts.iter().map(|account| self.lacking(sight.wanted, *account)).sum();
        let unsettled =
            accounts.iter().filter(|(_, expected, holding)| *expected > 0 && holding.available != *expected);
        let unsettled = unsettled
            .map(|(owner, expected, holding)| Unsettled { owner, available: holding.available, expected: *expected })
            .collect();
        let remove = affordable(policy, sight, &accounts, removable);
        let next = if !remove.is_empty() {
            Move::Remove(remove)
        } else if remaining > 0 || lacking > 0 {
            Move::Wait(until)
        } else {
            Move::Done
        };
        Standing { next, remaining, lacking, unsettled, unavailable, terminating, stuck }
    }

    /// How many pods an owner is to have. Of one that cannot be asked no more is known than how many it had; and that counts for nothing
    /// once other pods are selected and none of them is one of its.
    fn expected(&self, policy: &Policy, owner: &Owner, wanted: &Wanted, holding: Holding) -> usize {
        match wanted.get(owner) {
            // It does not count, but leaves alone, pods on nodes that new ones are not made for any more.
            Some(Wish::Pods(pods)) if owner.kind == "DaemonSet" => holding.available.max(*pods),
            Some(Wish::Pods(pods)) => *pods,
            // It may not have counted yet what is terminating.
            Some(Wish::OtherPods { missing }) => {
                holding.available + (*missing).max(holding.terminating - holding.stuck)
            }
            // It makes no new pod for one that it has lost to a restart, or makes it when it likes.
            None if owner.kind == "Job" => 0,
            None if self.selector != policy.selector && holding.present == 0 => 0,
            None => self.at_start(owner).selected.max(holding.present),
        }
    }

    /// How many pods are missing until an owner of replaced pods has as many available as it had, or as it is to have if that is less.
    fn lacking(&self, wanted: &Wanted, (owner, expected, holding): (&Owner, usize, Holding)) -> usize {
        let at_start = self.at_start(owner);
        // Where they are other pods, the new ones cannot be seen.
        if !at_start.is_concerned || matches!(wanted.get(owner), Some(Wish::OtherPods { .. })) {
            return 0;
        }
        expected.min(at_start.available).saturating_sub(holding.available)
    }

    fn at_start(&self, owner: &Owner) -> AtStart {
        self.owners.get(owner).copied().unwrap_or_default()
    }
}

/// Which of the old pods may be deleted now. Those that are not ready cost nothing and go first, then the oldest. One that is ready,
/// but not for long enough to be available, serves all the same, and is not for nothing. Where one was refused, so may be the others
/// of its owner: they are put off, too.
fn affordable(
    policy: &Policy,
    sight: &Sight<'_>,
    accounts: &[(&Owner, usize, Holding)],
    mut pods: Vec<&Pod>,
) -> Vec<Uid> {
    let is_ready = |pod: &Pod| pod.ready_since.is_some();
    let is_refused = |pod: &Pod| sight.refused.contains(&pod.uid);
    let refusing: BTreeSet<Option<&Owner>> =
        pods.iter().filter(|pod| is_refused(pod)).map(|pod| pod.controller.as_ref()).collect();
    pods.sort_by_key(|pod| (is_refused(pod), refusing.contains(&pod.controller.as_ref()), is_ready(pod), pod.created));
    let mut budget = policy.max_unavailable.map(|most| Budget::new(most, accounts.iter().copied()));
    let affordable = pods.into_iter().filter(|pod| match (&mut budget, &pod.controller) {
        (Some(budget), Some(owner)) if is_ready(pod) => {
            budget.take(owner, is_available(pod, policy.min_ready, sight.now))
        }
        _ => true,
    });
    affordable.map(|pod| pod.uid.clone()).collect()
}

/// What the owners of these pods have.
fn holdings<'a>(policy: &Policy, pods: &'a BTreeMap<Uid, Pod>, now: ServerTime) -> BTreeMap<&'a Owner, Holding> {
    let mut holdings: BTreeMap<&Owner, Holding> = BTreeMap::new();
    for pod in pods.values().filter(|pod| !pod.finished) {
        let Some(owner) = &pod.controller else { continue };
        let holding = holdings.entry(owner).or_default();
        holding.present += usize::from(pod.gone_by.is_none());
        holding.available += usize::from(is_available(pod, policy.min_ready, now));
        holding.terminating += usize::from(pod.gone_by.is_some());
        holding.stuck += usize::from(is_stuck(pod, now));
    }
    holdings
}

fn is_stuck(pod: &Pod, now: ServerTime) -> bool {
    pod.gone_by.is_some_and(|gone_by| gone_by.plus(STUCK_AFTER) < now)
}

#[cfg(test)]
mod tests;
