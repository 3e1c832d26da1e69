//! What `maxUnavailable` and `maxUnavailableTotal` allow, and how many pods are really missing.

use std::collections::BTreeSet;
use std::time::Duration;

use configmonitor_operator::monitor::spec::Spec;
use rules::Moment;
use rules::budget::{allowed, allowed_of_owner};

use crate::ledger::{Caller, Knower, PodRecord, STUCK_AFTER, Seen};
use crate::state::{ClusterState, OwnerKind, Pod, Workload};

/// All StatefulSets.
const MEMBERS: &str = "StatefulSets";

impl ClusterState {
    /// Returns by how many pods the deletion of this pod exceeds the budget, as far as the process that sends it can
    /// know.
    ///
    /// A pod that serves nobody is already missing. Owners whose desired replicas cannot be read do not count.
    pub(crate) fn over_budget(&mut self, caller: &Caller, id: usize) -> usize {
        let now = self.moment();
        let Some((seen, concerned)) = self.ledger.goes_by(caller) else { return 0 };
        let Some(grounds) = caller.grounds.first() else { return 0 };
        // Nobody knows by which of these lists the task goes.
        let lists = grounds.lists.iter().map(|(at, _)| Some(*at));
        let lists: Vec<Option<Moment>> = lists.chain(grounds.lists.is_empty().then_some(None)).collect();
        let ways = concerned.iter().flat_map(|pods| lists.iter().map(move |list| (pods, *list)));
        ways.map(|way| self.over_budget_by(caller, id, &seen, way, now)).min().unwrap_or(0)
    }

    /// The process replaces these pods, and goes by this list.
    fn over_budget_by(
        &self,
        caller: &Caller,
        id: usize,
        seen: &Seen,
        (pods, list): (&BTreeSet<usize>, Option<Moment>),
        now: Moment,
    ) -> usize {
        let Seen { spec, status, .. } = seen;
        let its = |owner: &Workload, pod: &Pod| pod.controller.as_ref() == Some(&owner.owner);
        let Some(pod) = self.pods.iter().find(|pod| pod.id == id && pod.serves()) else { return 0 };
        let Some(own) = self.workloads.iter().position(|owner| owner.replicas > 0 && its(owner, pod)) else { return 0 };
        let group = group(spec, &self.workloads[own]);
        if !self.workloads[own].owner.kind.can_be_asked() {
            return 0;
        }
        // A wave is judged in the order in which it was sent.
        let overtaking = self.ledger.overtaking(caller, now.ms);
        let Some(grounds) = caller.grounds.first() else { return 0 };
        let (life, book) = (caller.life, &self.ledger.books[grounds.book]);
        let start = book.start_of(status);
        let listed = grounds.lists.iter().map(|(at, _)| *at).max();
        let knower = Knower { life, actor: Some(caller.actor), book, start, listed };
        let least = |pod: &Pod| {
            let is_owner_read = self.ledger.has_read_owner(caller, self.ledger.pods[pod.id].place.0);
            self.ledger.least_ready(knower, (pod.id, now), spec, is_owner_read)
        };
        let counts = |pod: &Pod| is_available(pod, least(pod), now) || overtaking.contains(&pod.id);
        // A pod that is handed over serves like one of its ReplicaSet.
        let serves = |owner: &Workload, pod: &Pod| its(owner, pod) || pod.was_handed_over_by(owner);
        let missing = |owner: &Workload| {
            let available = self.pods.iter().filter(|pod| serves(owner, pod) && pod.id != id && counts(pod)).count();
            owner.replicas.saturating_sub(available)
        };
        let concerned = self.concerned(own, pods, spec, list);
        let desired = |owners: &[&Workload]| owners.iter().map(|owner| owner.replicas).sum();
        let of_group: Vec<&Workload> =
            concerned.iter().copied().filter(|owner| self::group(spec, owner) == group).collect();
        let of_owner: usize = of_group.iter().map(|owner| missing(owner)).sum();
        let most =
            if group == MEMBERS { 1 } else { allowed_of_owner(spec.max_unavailable.as_ref(), desired(&of_group)) };
        let of_owner = of_owner.saturating_sub(most);
        // Of a revert, nobody knows here which pods are replaced, and by creation times the process counts every owner.
        let is_unclear = grounds.by_times || status.has_reverted();
        let Some(total) = spec.max_unavailable_total.as_ref().filter(|_| !is_unclear) else { return of_owner };
        // A pod stuck at one owner does not use the total of another.
        let of_total = |owner: &Workload| {
            let in_the_way = |pod: &&Pod| its(owner, pod) && !owner.owner.kind.replaces_at_once() && self.is_stuck(pod);
            if !owner.owner.kind.can_be_asked() {
                return 0;
            }
            let held_back = if its(owner, pod) { 0 } else { self.pods.iter().filter(in_the_way).count() };
            missing(owner).saturating_sub(held_back)
        };
        let all: usize = concerned.iter().map(|owner| of_total(owner)).sum();
        of_owner.max(all.saturating_sub(allowed(total, desired(&concerned))))
    }

    /// Returns the owners that a budget counts: this one, those of the replaced pods, and of the other ReplicaSets of
    /// their Deployments those of which the process has seen pods in this list.
    fn concerned(&self, own: usize, replaced: &BTreeSet<usize>, spec: &Spec, list: Option<Moment>) -> Vec<&Workload> {
        let workload = |number: &usize| self.workloads.get(*number);
        let mut owners: BTreeSet<usize> = replaced.iter().map(|pod| self.ledger.pods[*pod].place.0).collect();
        owners.insert(own);
        let groups: BTreeSet<&str> = owners.iter().filter_map(workload).map(|owner| group(spec, owner)).collect();
        let was_seen = |pod: &&PodRecord| {
            let was_there = |at| pod.born < at && pod.gone.is_none_or(|gone| gone > at) && pod.was_selected(spec, at);
            list.is_some_and(was_there)
        };
        owners.extend(self.ledger.pods.iter().filter(was_seen).map(|pod| pod.place.0));
        owners.iter().filter_map(workload).filter(|owner| groups.contains(group(spec, owner))).collect()
    }

    pub(crate) fn is_stuck(&self, pod: &Pod) -> bool {
        let latest = self.second().plus(Duration::from_secs(self.skew));
        pod.gone_by.is_some_and(|gone_by| latest > gone_by.plus(STUCK_AFTER))
    }
}

/// Returns the name of what has one budget. Without `maxUnavailable`, all StatefulSets have one.
fn group(spec: &Spec, owner: &Workload) -> &'static str {
    let is_member = owner.owner.kind == OwnerKind::StatefulSet && spec.max_unavailable.is_none();
    if is_member { MEMBERS } else { owner.group() }
}

fn is_available(pod: &Pod, least: u64, at: Moment) -> bool {
    let ready = pod.ready.is_some_and(|ready| ready < at && ready.ms + least <= at.ms);
    ready && !pod.finished && pod.gone_by.is_none()
}
