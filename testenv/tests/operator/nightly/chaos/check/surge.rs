//! Checks the pods that were handed over: no more at a time than `maxSurge`, each for a reason, none taken before enough
//! successors were available, and none left behind.
//!
//! As for budgets, the check goes by what the operator could know, and not while there may have been two.

use std::time::{Duration, SystemTime};

use rules::Moment;

use super::budget::least;
use super::{UNDER_WAY, Verdict, made_up};
use crate::nightly::chaos::requests::{Deletion, OperatorRequests};
use crate::nightly::chaos::timeline::{Monitor, MonitorVersion, Pod, Timeline};

pub(in crate::nightly::chaos) fn check_surge(timeline: &Timeline, requests: &OperatorRequests) -> Verdict {
    let mut verdict = Verdict::default();
    for pod in timeline.pods.values() {
        for (at, to) in &pod.handed_over {
            if let Some(deployment) = to {
                verdict.handed_over += 1;
                check_handing_over(&mut verdict, (timeline, requests), pod, (*at, deployment));
            }
        }
    }
    for deletion in requests.first_deletions() {
        let Some(pod) = timeline.pods.get(&deletion.uid) else { continue };
        let Some(lacking) = lacking(timeline, requests, deletion, pod).filter(|lacking| *lacking > 0) else { continue };
        verdict
            .violations
            .push(format!("no successor: {lacking} were not available when pod {} was deleted", pod.name));
    }
    verdict
}

/// Returns the pods that are handed over in the end.
pub(super) fn left_behind(timeline: &Timeline) -> impl Iterator<Item = &Pod> {
    timeline.pods.values().filter(|pod| pod.deleted.is_none() && pod.handed_over_at(u64::MAX).is_some())
}

fn check_handing_over(
    verdict: &mut Verdict,
    (timeline, requests): (&Timeline, &OperatorRequests),
    pod: &Pod,
    (at, deployment): (Moment, &String),
) {
    let when = SystemTime::UNIX_EPOCH + Duration::from_millis(at.ms);
    let going_by = |monitor: &&Monitor| monitor.recently(at.step, when).any(|version| version.selects(&pod.labels));
    let monitors: Vec<&Monitor> = timeline.monitors.values().filter(going_by).collect();
    if !monitors.iter().any(|monitor| monitor.recently(at.step, when).any(MonitorVersion::is_begun)) {
        verdict.violations.push(format!("no intent: pod {} was handed over without a restart", pod.name));
        return;
    }
    // The operator need not know yet that one has ended.
    let is_one = |other: &&Pod| {
        let is_there = other.deleted.is_none_or(|(gone, _)| gone > at.step) && other.ready.since(at).is_some();
        is_there && other.handed_over_at(at.step) == Some(deployment)
    };
    let count = timeline.pods.values().filter(is_one).count();
    let desired = timeline.deployments.get(deployment).into_iter();
    let desired = desired.flat_map(|owner| owner.desired_since(when - UNDER_WAY, at.step)).max().unwrap_or(0);
    let versions = monitors.iter().flat_map(|monitor| monitor.recently(at.step, when));
    let most = versions.map(|version| version.surge(desired)).max().unwrap_or(0);
    if count > most && !requests.has_overlap((when - UNDER_WAY, when)) {
        verdict.violations.push(format!("over maxSurge: {count} pods were handed over with {}", pod.name));
    }
    verdict.note_any(pod, monitors, |monitor| made_up((timeline, requests), monitor, pod, at.step));
}

/// Returns how many available successors were lacking when a pod of a Deployment was deleted; none if that cannot be
/// known, or if pods may go before their successors.
fn lacking(timeline: &Timeline, requests: &OperatorRequests, deletion: &Deletion, pod: &Pod) -> Option<usize> {
    let deployment = timeline.deployment_of(pod)?;
    let only_surges = |_: &Monitor, version: &MonitorVersion| version.only_surges();
    least((timeline, requests), (deletion, pod), only_surges, |case| case.lacking(pod, deployment))
}
