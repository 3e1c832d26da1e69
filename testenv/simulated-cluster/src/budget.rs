//! What `maxUnavailable` allows, and how many pods are really missing.

use std::collections::BTreeSet;
use std::time::Duration;

use rules::Moment;
use rules::budget::allowed;

use crate::ledger::{Caller, Knower, STUCK_AFTER, Seen};
use crate::state::{ClusterState, Pod, Workload};

impl ClusterState {
    /// Returns by how many pods the deletion of this pod exceeds the budget, as far as the process that sends it can
    /// know.
    ///
    /// An unready pod is already missing. A pod stuck at one owner does not use the budget of another. Owners whose
    /// desired replicas cannot be read do not count.
    pub(crate) fn over_budget(&mut self, caller: &Caller, id: usize) -> usize {
        let now = self.moment();
        let Some((seen, lists)) = self.ledger.goes_by(caller) else { return 0 };
        lists.into_iter().map(|known| self.over_budget_by(caller, id, &seen, known, now)).min().unwrap_or(0)
    }

    fn over_budget_by(&self, caller: &Caller, id: usize, seen: &Seen, known: BTreeSet<usize>, now: Moment) -> usize {
        let Seen { spec, status } = seen;
        let Some(most) = &spec.max_unavailable else { return 0 };
        let places: BTreeSet<usize> = known.into_iter().map(|pod| self.ledger.pods[pod].place.0).collect();
        let owners: Vec<&Workload> = places.into_iter().filter_map(|owner| self.workloads.get(owner)).collect();
        let its = |owner: &Workload, pod: &Pod| pod.controller.as_ref() == Some(&owner.owner);
        let Some(pod) = self.pods.iter().find(|pod| pod.id == id && pod.ready.is_some()) else { return 0 };
        let Some(own) = owners.iter().find(|owner| owner.replicas > 0 && its(owner, pod)) else { return 0 };
        if !own.owner.kind.can_be_asked() {
            return 0;
        }
        // A wave is judged in the order in which it was sent.
        let overtaking = self.ledger.overtaking(caller, now.ms);
        let Some(grounds) = caller.grounds.first() else { return 0 };
        let (life, book) = (caller.life, &self.ledger.books[grounds.book]);
        let start = status.begun().and_then(|begun| book.start_of(begun));
        let listed = grounds.lists.iter().map(|(at, _)| *at).max();
        let knower = Knower { life, book, began: start.map(|start| start.at), listed };
        let least = |pod: &Pod| self.ledger.least_ready(knower, (pod.id, now), spec);
        let counts = |pod: &Pod| is_available(pod, least(pod), now) || overtaking.contains(&pod.id);
        let missing = |owner: &Workload| {
            if !owner.owner.kind.can_be_asked() {
                return 0;
            }
            let pods = || self.pods.iter().filter(|pod| its(owner, pod));
            let available = pods().filter(|pod| pod.id != id && counts(pod)).count();
            let missing = owner.replicas.saturating_sub(available);
            let in_the_way = pods().filter(|pod| !owner.owner.kind.replaces_at_once() && self.is_stuck(pod)).count();
            if owner.owner == own.owner { missing } else { missing.saturating_sub(in_the_way) }
        };
        let desired: usize = owners.iter().map(|owner| owner.replicas).sum();
        owners.into_iter().map(missing).sum::<usize>().saturating_sub(allowed(most, desired))
    }

    pub(crate) fn is_stuck(&self, pod: &Pod) -> bool {
        let latest = self.second().plus(Duration::from_secs(self.skew));
        pod.gone_by.is_some_and(|gone_by| latest > gone_by.plus(STUCK_AFTER))
    }
}

fn is_available(pod: &Pod, least: u64, at: Moment) -> bool {
    let ready = pod.ready.is_some_and(|ready| ready < at && ready.ms + least <= at.ms);
    ready && !pod.finished && pod.gone_by.is_none()
}
