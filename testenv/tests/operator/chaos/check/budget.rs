//! Checks the budgets of restarts: after each deletion by the operator at most the allowed number of pods may be
//! missing, of the desired replicas of the selected pods' owners.
//!
//! The check goes by what the operator could know. A deletion relies on the operator's last list of pods; what others
//! have done since does not count. An edit of the ConfigMonitor may not have reached the operator yet: it must have
//! kept one of the specs of the last seconds. Not judged are deletions that may belong to a ConfigMonitor without a
//! budget or to one of two operators, and those under way when their operator ended.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use rules::budget::missing;

use super::{Timestamp, Verdict};
use crate::chaos::requests::{Deletion, OperatorRequests};
use crate::timeline::{Desired, MonitorVersion, Pod, Timeline, ms};

/// A request that took longer than this may have been given up by then.
const LATE: Duration = Duration::from_millis(500);

/// One deletion, by the spec that it may have relied on.
struct Case<'a> {
    timeline: &'a Timeline,
    requests: &'a OperatorRequests,
    deletion: &'a Deletion,
    version: &'a MonitorVersion,
    /// When the pods were listed.
    listed: SystemTime,
    /// The revision of the deletion.
    at: u64,
}

pub(in crate::chaos) fn check_budgets(timeline: &Timeline, requests: &OperatorRequests) -> Verdict {
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
    let ((at, _), ready) = (pod.deleted?, pod.ready.periods().next()?.0);
    let (mut least, mut keepers): (Option<usize>, _) = (None, BTreeSet::new());
    for monitor in timeline.monitors.values() {
        for version in monitor.recently(at, deletion.sent).filter(|version| version.selects(&pod.labels)) {
            version.allowed(0)?;
            keepers.insert(&monitor.name);
            let Some(listed) = requests.listed(&version.query(), deletion.sent) else { continue };
            // The pod may not have been ready when it was listed, so that its deletion used no budget.
            if ready.ms >= ms(listed) || requests.has_overlap((listed, deletion.answered)) {
                return None;
            }
            let case = Case { timeline, requests, deletion, version, listed, at };
            let over = case.over(pod.owner.as_ref()?)?;
            least = Some(least.map_or(over, |least| least.min(over)));
        }
    }
    let late = deletion.received.duration_since(deletion.sent).is_ok_and(|time| time > LATE);
    // One ConfigMonitor does not know that another has given up a request.
    least.filter(|_| !late || keepers.len() == 1)
}

impl Case<'_> {
    /// Returns by how many pods the deletion of a pod of this owner exceeded the budget.
    fn over(&self, own: &str) -> Option<usize> {
        // The owner does not need the pod.
        if self.desired(own).min()? == 0 {
            return Some(0);
        }
        let desired = self.owners().into_iter().map(|owner| self.desired(owner).max().unwrap_or_default()).sum();
        let least = |owner| (self.desired(owner).min().unwrap_or_default(), self.available(owner));
        Some(missing(self.owners().into_iter().map(least)).saturating_sub(self.version.allowed(desired)?))
    }

    /// Returns the selected pods, up to this deletion.
    fn selected(&self) -> impl Iterator<Item = (&String, &Pod)> {
        let pods = self.timeline.pods.iter();
        pods.filter(|(_, pod)| pod.born <= self.at && self.version.selects(&pod.labels))
    }

    /// Returns the owners that the operator knows: of pods that existed when the restart began, or since.
    fn owners(&self) -> BTreeSet<&str> {
        let restart = &self.version.status["restart"];
        let began = restart["podsResourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or(self.at);
        let there = self.selected().filter(|(_, pod)| pod.deleted.is_none_or(|(gone, _)| gone >= began));
        there.filter_map(|(_, pod)| pod.owner.as_deref()).collect()
    }

    /// Returns the desired replicas of an owner since the list.
    fn desired(&self, owner: &str) -> impl Iterator<Item = usize> {
        let desired = self.timeline.owners.get(owner).into_iter().flat_map(|owner| &owner.desired).rev();
        let mut over = false;
        let since = desired.filter(|desired| desired.revision <= self.at).take_while(move |desired: &&Desired| {
            let take = !over;
            over = desired.observed < self.listed;
            take
        });
        since.map(|desired| desired.pods)
    }

    fn available(&self, owner: &str) -> usize {
        let its = self.selected().filter(|(_, pod)| pod.owner.as_deref() == Some(owner));
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
