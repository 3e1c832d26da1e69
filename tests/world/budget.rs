//! What `maxUnavailable` allows, and what is really missing.

use std::collections::BTreeSet;
use std::time::Duration;

use configmonitor_operator::monitor::spec::{IntOrString, Spec};

use crate::ledger::Moment;
use crate::world::{Living, Workload, World};

/// A pod is stuck so long after it should have been gone.
const STUCK_AFTER: Duration = Duration::from_secs(60);

impl World {
    /// How many more pods than may be are missing once the process that asks for it has deleted this pod, as far as it can know.
    ///
    /// A pod that is not ready is missing already. What is stuck at one owner is in nobody else's way.
    pub(crate) fn over_budget(&mut self, id: usize) -> usize {
        let now = self.moment();
        let Some((spec, known)) = self.ledger.goes_by(self.caller.0) else { return 0 };
        let Some(most) = &spec.max_unavailable else { return 0 };
        let births = known.into_iter().map(|pod| &self.ledger.pods[pod]).filter(|pod| pod.is_selected(spec));
        let places: BTreeSet<usize> = births.map(|pod| pod.place.0).collect();
        let owners: Vec<&Workload> = places.into_iter().filter_map(|owner| self.workloads.get(owner)).collect();
        let its = |owner: &Workload, living: &Living| living.pod.controller.as_ref() == Some(&owner.owner);
        let Some(pod) = self.pods.iter().find(|living| living.id == id && living.pod.ready_since.is_some()) else {
            return 0;
        };
        let Some(own) = owners.iter().find(|owner| owner.replicas > 0 && its(owner, pod)) else { return 0 };
        let missing = |owner: &Workload| {
            let pods = || self.pods.iter().filter(|living| its(owner, living));
            let available = pods().filter(|living| living.id != id && is_available(living, spec, now)).count();
            let missing = owner.replicas.saturating_sub(available);
            let in_the_way = pods().filter(|living| owner.owner.kind != "ReplicaSet" && self.is_stuck(living)).count();
            if owner.owner == own.owner { missing } else { missing.saturating_sub(in_the_way) }
        };
        let wanted: usize = owners.iter().map(|owner| owner.replicas).sum();
        let allowed = match most {
            IntOrString::Int(pods) => usize::try_from(*pods).unwrap(),
            IntOrString::String(text) => (text.trim_end_matches('%').parse::<usize>().unwrap() * wanted / 100).max(1),
        };
        owners.into_iter().map(missing).sum::<usize>().saturating_sub(allowed)
    }

    pub(crate) fn is_stuck(&self, living: &Living) -> bool {
        living.pod.gone_by.is_some_and(|gone_by| self.second() > gone_by.plus(STUCK_AFTER))
    }
}

fn is_available(living: &Living, spec: &Spec, at: Moment) -> bool {
    let least = u64::try_from(spec.min_ready_seconds.unwrap_or(0)).unwrap() * 1000;
    let pod = &living.pod;
    let ready = living.ready.is_some_and(|ready| ready < at && ready.ms + least <= at.ms);
    ready && !pod.finished && pod.gone_by.is_none()
}
