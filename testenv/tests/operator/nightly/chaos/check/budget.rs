//! Checks the budgets of restarts: after each deletion by the operator at most the allowed number of pods may be
//! missing, of the desired replicas of the pod's owner.
//!
//! The check goes by what the operator could know. A deletion relies on the operator's last list of pods; what others
//! have done since does not count. An edit of the ConfigMonitor may not have reached the operator yet: it must have
//! kept one of the specs of the last seconds. Not judged are deletions that may belong to a ConfigMonitor without a
//! budget or to one of two operators, and those under way when their operator ended.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use rules::Moment;

use super::{Timestamp, Verdict};
use crate::nightly::chaos::requests::{Deletion, OperatorRequests};
use crate::nightly::chaos::timeline::{Monitor, MonitorVersion, Owner, Pod, Timeline, ms};

/// A request that took longer than this may have been given up by then.
const LATE: Duration = Duration::from_millis(500);

/// One deletion, by the spec that it may have relied on.
pub(super) struct Case<'a> {
    timeline: &'a Timeline,
    requests: &'a OperatorRequests,
    deletion: &'a Deletion,
    version: &'a MonitorVersion,
    /// When the pods were listed.
    listed: SystemTime,
    /// The revision of the deletion.
    at: u64,
}

pub(in crate::nightly::chaos) fn check_budgets(timeline: &Timeline, requests: &OperatorRequests) -> Verdict {
    let mut verdict = Verdict::default();
    for deletion in requests.first_deletions() {
        let Some(pod) = timeline.pods.get(&deletion.uid) else { continue };
        let Some(over) = over_budget(timeline, requests, deletion, pod) else { continue };
        verdict.judged += 1;
        if over > 0 {
            verdict.violations.push(format!(
                "over budget: {over} more pods than allowed were missing after pod {} was deleted at {:?}, as sent at {}",
                pod.name,
                pod.deleted.map(|(at, _)| at),
                Timestamp::try_from(deletion.sent).unwrap()
            ));
        }
    }
    verdict
}

/// Returns by how many pods a deletion exceeded the budget of every spec that it may have relied on; none if that
/// cannot be known.
fn over_budget(timeline: &Timeline, requests: &OperatorRequests, deletion: &Deletion, pod: &Pod) -> Option<usize> {
    let mut keepers = BTreeSet::new();
    let has_budget = |monitor: &Monitor, version: &MonitorVersion| {
        keepers.insert(monitor.name.clone());
        version.allowed(0).is_some()
    };
    let over = |case: &Case<'_>| case.over(pod.owner.as_ref()?);
    let least = least((timeline, requests), (deletion, pod), has_budget, over);
    let late = deletion.received.duration_since(deletion.sent).is_ok_and(|time| time > LATE);
    // One ConfigMonitor does not know that another has given up a request.
    least.filter(|_| !late || keepers.len() == 1)
}

/// Returns the least that is counted by any spec on which a deletion may have relied; none if that cannot be known, or if
/// one of them does not count.
pub(super) fn least(
    (timeline, requests): (&Timeline, &OperatorRequests),
    (deletion, pod): (&Deletion, &Pod),
    mut counts: impl FnMut(&Monitor, &MonitorVersion) -> bool,
    count: impl Fn(&Case<'_>) -> Option<usize>,
) -> Option<usize> {
    let ((at, _), ready) = (pod.deleted?, pod.ready.periods().next()?.0);
    let mut least: Option<usize> = None;
    for monitor in timeline.monitors.values() {
        for version in monitor.recently(at, deletion.sent).filter(|version| version.selects(&pod.labels)) {
            if !counts(monitor, version) {
                return None;
            }
            let Some(listed) = requests.listed(&version.query(), deletion.sent) else { continue };
            // The pod may not have been ready when it was listed, so that its deletion used no budget.
            if ready.ms >= ms(listed) || requests.has_overlap((listed, deletion.answered)) {
                return None;
            }
            let counted = count(&Case { timeline, requests, deletion, version, listed, at })?;
            least = Some(least.map_or(counted, |least| least.min(counted)));
        }
    }
    least
}

impl Case<'_> {
    /// Returns by how many pods the deletion of a pod of this owner exceeded the budget.
    fn over(&self, own: &str) -> Option<usize> {
        // The owner does not need the pod.
        let owner = self.timeline.owners.get(own)?;
        let least = self.desired(owner).min()?;
        if least == 0 {
            return Some(0);
        }
        let missing = least.saturating_sub(self.available(|pod| pod.owner.as_deref() == Some(own)));
        Some(missing.saturating_sub(self.version.allowed(self.desired(owner).max()?)?))
    }

    /// Returns how many available successors were lacking when this pod of a Deployment was deleted.
    pub(super) fn lacking(&self, pod: &Pod, deployment: &String) -> Option<usize> {
        let least = self.desired(self.timeline.deployments.get(deployment)?).min()?;
        let is_ready = pod.ready.since(Moment { step: self.at, ms: u64::MAX }).is_some();
        if pod.handed_over_at(self.at).is_none() {
            return Some(least.min(usize::from(is_ready)));
        }
        let of = |pod: &Pod| self.timeline.deployment_of(pod);
        let serves = |pod: &Pod| pod.handed_over_at(self.at).is_none() && of(pod) == Some(deployment);
        Some(least.saturating_sub(self.available(serves)))
    }

    /// Returns the selected pods, up to this deletion.
    fn selected(&self) -> impl Iterator<Item = (&String, &Pod)> {
        let pods = self.timeline.pods.iter();
        pods.filter(|(_, pod)| pod.born <= self.at && self.version.selects(&pod.labels))
    }

    /// Returns the desired replicas of an owner since the list.
    fn desired(&self, owner: &Owner) -> impl Iterator<Item = usize> {
        owner.desired_since(self.listed, self.at)
    }

    fn available(&self, is_its: impl Fn(&Pod) -> bool) -> usize {
        let its = self.selected().filter(|(_, pod)| is_its(pod));
        its.filter(|(uid, pod)| self.is_available(pod) && !self.is_missed(uid, pod)).count()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let least = self.version.spec["minReadySeconds"].as_i64().unwrap_or_default();
        let sent = Timestamp::try_from(self.deletion.sent).unwrap();
        let long_enough = |since| least == 0 || sent.duration_since(since) > SignedDuration::from_secs(least);
        let mut ready = pod.ready.periods();
        ready.any(|(from, _)| from.step <= self.at) && pod.ready_since.is_some_and(long_enough)
    }

    /// Returns whether a pod is gone and the operator knew: it had deleted the pod after that list, or had the answer
    /// before it.
    fn is_missed(&self, uid: &str, pod: &Pod) -> bool {
        let Some((_, observed)) = pod.deleted.filter(|(gone, _)| *gone <= self.at) else { return false };
        match self.requests.deletion(uid) {
            Some(deletion) => deletion.sent >= self.listed || deletion.answered < self.listed,
            None => observed < self.listed,
        }
    }
}
