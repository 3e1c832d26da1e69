//! The targets of a restart: the pods that it replaces.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kube::Uid;
use crate::kube::objects::Owner;
use crate::monitor::exempt::{Exempt, exempt};
use crate::monitor::pod::Pod;
use crate::monitor::spec::Policy;

/// The pods that one restart replaces, and the owners of all selected pods. The owners are counted when the restart begins
/// and after an edit of the selector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Targets {
    pub(super) old: BTreeSet<Uid>,
    owners: BTreeMap<Arc<Owner>, AtStart>,
    /// The pods without an owner, counted like those of one.
    bare: AtStart,
    pub(crate) skipped: Vec<Skipped>,
    /// The label selector of the counted pods.
    selector: String,
    /// Whether the selector has been edited since the restart began.
    is_edited: bool,
    /// The list is forgotten, and creation times decide. An owner whose old pods are all gone looks as if it never had
    /// any.
    pub(super) is_by_times: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct AtStart {
    /// Without those that end by themselves.
    pub(super) selected: usize,
    /// How many pods of the owner are replaced, and were not terminating.
    pub(super) old: usize,
    /// How many old ones were terminating already, which their owner replaces anyway.
    pub(super) ending: usize,
    /// Whether `selected` was lowered to the pods that existed when the progress deadline had passed.
    is_lowered: bool,
    /// Whether the edited selector selected none of the owner's pods.
    is_former: bool,
    /// Whether one of its pods does not end by itself. A pod that does has no successor, or gets it at the owner's own
    /// time.
    lasts: bool,
}

impl AtStart {
    fn count(&mut self, pod: &Pod) {
        self.lasts |= !pod.completes;
        self.selected += usize::from(pod.is_present() && pod.counts());
    }
}

/// A selected pod with old content that is not restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) pod: Arc<str>,
    pub(crate) why: Exempt,
}

impl Targets {
    /// Selects the stale pods of the list with which the restart begins or began. `is_by_times`: `pods` is another
    /// list, or creation times decide.
    pub(crate) fn new(
        policy: &Policy,
        (is_stale, is_by_times): (impl Fn(&Pod) -> bool, bool),
        selector: String,
        pods: &[impl Borrow<Pod>],
        own_pod: Option<&Uid>,
    ) -> Self {
        let mut targets = Self {
            old: BTreeSet::new(),
            owners: BTreeMap::new(),
            bare: AtStart::default(),
            skipped: Vec::new(),
            selector,
            is_edited: false,
            is_by_times,
        };
        for pod in pods.iter().map(Borrow::borrow) {
            targets.entry(pod.controller.as_ref()).count(pod);
            if is_stale(pod) {
                targets.replace(policy, pod, own_pod);
            }
        }
        targets
    }

    /// Replaces this pod, too, unless it is exempt or has finished.
    pub(crate) fn replace(&mut self, policy: &Policy, pod: &Pod, own_pod: Option<&Uid>) {
        // One that is being deleted may have finished a moment before it is gone: its owner lacks a pod.
        if pod.finished && pod.gone_by.is_none() {
            return;
        }
        if let Some(why) = exempt(policy.unmanaged_pods, pod, own_pod) {
            self.skipped.push(Skipped { pod: pod.name.clone(), why });
            return;
        }
        self.old.insert(pod.uid.clone());
        let at_start = self.entry(pod.controller.as_ref());
        at_start.lasts |= !pod.completes;
        at_start.old += usize::from(pod.is_present());
        at_start.ending += usize::from(!pod.is_present());
    }

    fn entry(&mut self, owner: Option<&Arc<Owner>>) -> &mut AtStart {
        match owner {
            Some(owner) => self.owners.entry(Arc::clone(owner)).or_default(),
            None => &mut self.bare,
        }
    }

    /// Returns how many pods were to be replaced when the restart began, and were not terminating.
    pub(crate) fn len(&self) -> usize {
        self.owners.values().chain([&self.bare]).map(|at_start| at_start.old).sum()
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
        let old = pods.values().filter(|pod| self.is_old(pod) && pod.is_present());
        let left = old.filter_map(|pod| {
            Some(Skipped { pod: pod.name.clone(), why: exempt(policy.unmanaged_pods, pod, own_pod)? })
        });
        left.collect()
    }

    pub(super) fn is_old(&self, pod: &Pod) -> bool {
        self.old.contains(&pod.uid)
    }

    /// Returns whether a pod is not replaced, and has an owner whose pods are.
    pub(crate) fn is_successor(&self, pod: &Pod) -> bool {
        !self.is_old(pod) && pod.counts() && pod.controller.as_ref().is_some_and(|owner| self.concerns(owner))
    }

    /// Returns the owners of the pods that were selected when the restart began, and of `pods`.
    pub(crate) fn owners<'a>(&'a self, pods: &'a BTreeMap<Uid, Arc<Pod>>) -> BTreeSet<&'a Arc<Owner>> {
        self.owners.keys().chain(pods.values().filter_map(|pod| pod.controller.as_ref())).collect()
    }

    pub(crate) fn concerns(&self, owner: &Owner) -> bool {
        let AtStart { old, ending, .. } = self.at_start(owner);
        old + ending > 0
    }

    /// Updates the targets to the pods selected now. After an edit of the selector, the owners of these pods count.
    pub(crate) fn select(&mut self, policy: &Policy, pods: &BTreeMap<Uid, Arc<Pod>>) {
        let selector = policy.selector.to_query();
        if self.selector == selector {
            return;
        }
        (self.selector, self.is_edited) = (selector, true);
        for at_start in self.owners.values_mut().chain([&mut self.bare]) {
            (at_start.selected, at_start.is_former) = (0, true);
        }
        for pod in pods.values().filter(|pod| !pod.finished) {
            let at_start = self.entry(pod.controller.as_ref());
            at_start.count(pod);
            at_start.is_former = false;
        }
    }

    /// Lowers, once the progress deadline has passed, how many pods are expected of an owner of an unknown kind: it may
    /// have been scaled down. This happens once for each owner, or one that creates no more pods would lose all of
    /// them. Nobody has promised to create pods without an owner again.
    pub(crate) fn lower_expectations(&mut self, pods: &BTreeMap<Uid, Arc<Pod>>) {
        let bare = pods.values().filter(|pod| pod.controller.is_none() && pod.is_present()).count();
        self.bare.selected = self.bare.selected.min(bare);
        let believed =
            |(owner, at_start): &(&Arc<Owner>, &mut AtStart)| owner.workload().is_none() && !at_start.is_lowered;
        for (owner, at_start) in self.owners.iter_mut().filter(believed) {
            let is_its = |pod: &&Arc<Pod>| pod.controller.as_ref() == Some(owner) && pod.is_present();
            let there = pods.values().filter(is_its).count();
            at_start.is_lowered = there < at_start.selected;
            at_start.selected = at_start.selected.min(there);
        }
    }

    /// Returns how many old pods have an owner that creates a successor.
    pub(super) fn recreated(&self) -> usize {
        self.owners.values().filter(|at_start| at_start.lasts).map(|at_start| at_start.old).sum()
    }

    /// Returns whether the pod can prove the content for a canary: it has a successor, or no old pod has one.
    pub(super) fn proves(&self, pod: &Pod) -> bool {
        pod.controller.as_deref().is_some_and(|owner| !self.completes(owner)) || self.recreated() == 0
    }

    /// Returns whether an owner creates no successor of a deleted pod.
    pub(super) fn completes(&self, owner: &Owner) -> bool {
        self.owners.get(owner).is_some_and(|at_start| !at_start.lasts)
    }

    /// Returns the pods without an owner, if some of them are replaced.
    pub(super) fn bare(&self) -> Option<AtStart> {
        Some(self.bare).filter(|bare| bare.old > 0)
    }

    pub(super) fn at_start(&self, owner: &Owner) -> AtStart {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    /// Returns whether none of an owner's pods may be selected since the selector was edited. Without the state of the
    /// owner, only an owner that had none at that time is a former one.
    pub(super) fn may_be_former(&self, owner: &Owner, is_known: bool) -> bool {
        self.at_start(owner).is_former || (self.is_edited && is_known)
    }
}
