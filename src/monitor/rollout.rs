//! One restart: which pods it replaces, and what may be done next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::spec::{Policy, UnmanagedPods};
use super::status::Restart;
use crate::kube::objects::{Owner, Pod};
use crate::kube::{ServerTime, Uid};

/// Pods created so long after the content was first read may have been created before: both are whole seconds.
const SLACK: Duration = Duration::from_secs(1);
/// A pod that is still there so long after it should have ended is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The pods that one restart replaces, and what their owners had when it began. Fixed for the whole restart.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    old: BTreeSet<Uid>,
    owners: BTreeMap<Owner, AtStart>,
    skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct AtStart {
    selected: usize,
    available: usize,
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

/// What the owners of the pods want now. An owner that is not in it wants as many as were selected at the start.
pub type Wanted = BTreeMap<Owner, usize>;

/// Where a restart stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// What to do.
    pub next: Move,
    /// How many of the old pods are left.
    pub remaining: usize,
    /// How many available pods the owners lack.
    pub lacking: usize,
    /// Old pods that do not end, by name; they are not waited for.
    pub stuck: Vec<String>,
}

/// What to do next in a restart.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Delete these pods now.
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
    /// Plans a restart from the list of pods that it is about: those that were there when the new content was first read.
    #[must_use]
    pub fn new(policy: &Policy, restart: &Restart, pods: &[Pod], own_pod: Option<&Uid>) -> Self {
        let newest = restart.observed_at.plus(SLACK);
        let oldest = restart.revert.then(|| restart.since.minus(SLACK));
        let mut plan = Self { old: BTreeSet::new(), owners: BTreeMap::new(), skipped: Vec::new() };
        // A pod that was created before may have read what came later: it waited for its image, or a container was started anew.
        let may_have_read = |pod: &Pod, oldest| pod.created >= oldest || pod.started.is_none_or(|at| at >= oldest);
        for pod in pods.iter().filter(|pod| {
            !pod.finished && pod.created <= newest && oldest.is_none_or(|oldest| may_have_read(pod, oldest))
        }) {
            if let Some(why) = exempt(policy, pod, own_pod) {
                plan.skipped.push(Skipped { pod: pod.name.clone(), why });
                continue;
            }
            plan.old.insert(pod.uid.clone());
            if let Some(owner) = &pod.controller {
                plan.owners.entry(owner.clone()).or_default();
            }
        }
        for (owner, at_start) in &mut plan.owners {
            let its = pods.iter().filter(|pod| !pod.finished && pod.controller.as_ref() == Some(owner));
            at_start.selected = its.clone().count();
            at_start.available = its.filter(|pod| is_available(pod)).count();
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

    /// The owners of the pods that it replaces.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.keys()
    }

    /// Where the restart stands, given the pods that are selected now.
    #[must_use]
    pub fn standing<'a>(
        &self,
        policy: &Policy,
        pods: impl Iterator<Item = &'a Pod> + Clone,
        own_pod: Option<&Uid>,
        wanted: &Wanted,
        now: ServerTime,
    ) -> Standing {
        let mut remove = Vec::new();
        let mut stuck = Vec::new();
        let mut remaining = 0;
        let mut until: Option<ServerTime> = None;
        for pod in pods.clone().filter(|pod| self.old.contains(&pod.uid) && !pod.finished) {
            match pod.gone_by.map(|gone_by| gone_by.plus(STUCK_AFTER)) {
                Some(deadline) if deadline < now => {
                    stuck.push(pod.name.clone());
                    continue;
                }
                Some(deadline) => until = Some(until.map_or(deadline, |until| until.min(deadline))),
                None if exempt(policy, pod, own_pod).is_some() => continue,
                None => remove.push(pod.uid.clone()),
            }
            remaining += 1;
        }
        let lacking = self.lacking(pods, wanted);
        let next = if !remove.is_empty() {
            Move::Remove(remove)
        } else if remaining > 0 || lacking > 0 {
            Move::Wait(until.map(|until| until.plus(SLACK)))
        } else {
            Move::Done
        };
        Standing { next, remaining, lacking, stuck }
    }

    /// How many pods are missing until every owner has as many available as it had, or as it wants if that is less.
    fn lacking<'a>(&self, pods: impl Iterator<Item = &'a Pod>, wanted: &Wanted) -> usize {
        let mut available: BTreeMap<&Owner, usize> = BTreeMap::new();
        for owner in pods.filter(|pod| is_available(pod)).filter_map(|pod| pod.controller.as_ref()) {
            *available.entry(owner).or_default() += 1;
        }
        let lacking = |(owner, at_start): (&Owner, &AtStart)| {
            // A Job makes no new pod for one that it has lost to a restart, or makes it when it likes.
            let default = if owner.kind == "Job" { 0 } else { at_start.selected };
            let expected = wanted.get(owner).copied().unwrap_or(default);
            expected.min(at_start.available).saturating_sub(available.get(owner).copied().unwrap_or(0))
        };
        self.owners.iter().map(lacking).sum()
    }
}

fn is_available(pod: &Pod) -> bool {
    pod.ready && !pod.finished && pod.gone_by.is_none()
}

#[cfg(test)]
mod tests;
