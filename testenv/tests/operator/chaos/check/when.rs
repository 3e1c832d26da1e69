//! Checks that restarts began at allowed times: within a window, not before the interval was over, and the other pods
//! only after the canaries.
//!
//! The write that begins a restart compares the version of the ConfigMonitor, so the spec of that version is the one
//! that counts.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Verdict, time};
use crate::chaos::requests::{Deletion, OperatorRequests};
use crate::chaos::timeline::{Monitor, MonitorVersion, Timeline};

/// Times in a status are whole seconds.
const SLACK: SignedDuration = SignedDuration::from_secs(1);
/// The sender of a request that took longer than this may have ended meanwhile.
const LATE: Duration = Duration::from_millis(500);

/// Checks every restart that has begun.
pub(in crate::chaos) fn check_times(timeline: &Timeline, requests: &OperatorRequests) -> Verdict {
    let mut verdict = Verdict::default();
    for monitor in timeline.monitors.values() {
        let mut known = BTreeSet::new();
        for (place, version) in monitor.versions.iter().enumerate() {
            let Some(start) = time_of(&version.status["restart"]["startedAt"]).filter(|_| known.insert(id(version)))
            else {
                continue;
            };
            let mut wrong = |what: String| {
                verdict.violations.push(format!(
                    "{what}: at {start}, revision {} of ConfigMonitor {}",
                    version.revision, monitor.name
                ));
            };
            let is_requested = !version.status["restart"]["request"].is_null();
            if !is_requested && !is_open(&version.spec["windows"], start) {
                wrong(format!("outside of windows: {}", version.spec["windows"]));
            }
            let interval = SignedDuration::from_secs(version.spec["minIntervalSeconds"].as_i64().unwrap_or_default());
            let before = place.checked_sub(1).and_then(|before| last_start(&monitor.versions[before].status));
            if let Some(before) = before.filter(|before| !is_requested && *before + interval > start + SLACK) {
                wrong(format!("within the interval of {interval:#} since {before}"));
            }
            let gone = gone_before_the_canary_has_passed(timeline, requests, monitor, place);
            let most = version.status["restart"]["canary"]["pods"].as_u64().unwrap_or_default();
            if gone.len() as u64 > most {
                wrong(format!("{} pods before the canary of {most} has passed, {gone:?}", gone.len()));
            }
        }
    }
    verdict
}

/// Returns what distinguishes one restart from another.
fn id(version: &MonitorVersion) -> String {
    let restart = &version.status["restart"];
    format!("{} {}", restart["startedAt"], restart["podsResourceVersion"])
}

/// Returns whether one of the users' windows is open: each opens on the minute, and closes before the next one.
fn is_open(windows: &Value, at: Timestamp) -> bool {
    let Some(windows) = windows.as_array().filter(|windows| !windows.is_empty()) else { return true };
    let (minute, second) = (at.as_second() / 60 % 60, at.as_second() % 60);
    windows.iter().any(|window| {
        let is_its = window["schedule"] == "* * * * *" || minute % 2 == 1;
        is_its && second < window["durationSeconds"].as_i64().unwrap_or_default()
    })
}

/// Returns the start of the last restart in a status.
fn last_start(status: &Value) -> Option<Timestamp> {
    [&status["restart"]["startedAt"], &status["history"][0]["startedAt"]].into_iter().filter_map(time_of).max()
}

fn time_of(text: &Value) -> Option<Timestamp> {
    time(text.as_str()?)
}

/// Returns the old pods that the operator has deleted for the restart that begins here, before the status says that its
/// canaries have passed. Deletions that another ConfigMonitor, or one of two operators, may have caused do not count.
fn gone_before_the_canary_has_passed(
    timeline: &Timeline,
    requests: &OperatorRequests,
    monitor: &Monitor,
    place: usize,
) -> Vec<String> {
    let begun = &monitor.versions[place];
    let is_proving = |version: &&MonitorVersion| {
        let state = &version.status["restart"]["canary"]["state"];
        id(version) == id(begun) && !version.spec["canary"].is_null() && (state == "Replacing" || state == "Baking")
    };
    let proving = monitor.versions[place..].iter().take_while(is_proving);
    let Some(last) = proving.map(|version| version.revision).max() else { return Vec::new() };
    let listed = begun.status["restart"]["podsResourceVersion"].as_str().and_then(|version| version.parse().ok());
    let is_its = |deletion: &&Deletion| {
        let Some(pod) = timeline.pods.get(&deletion.uid) else { return false };
        let Some((at, when)) = pod.deleted.filter(|(at, _)| *at <= last) else { return false };
        let is_late = deletion.received.duration_since(deletion.sent).is_ok_and(|time| time > LATE);
        let selects = |monitor: &&Monitor| monitor.recently(at, when).any(|version| version.selects(&pod.labels));
        let is_old = listed.is_some_and(|listed: u64| pod.born <= listed);
        let has_overlap = requests.has_overlap((begun.observed, deletion.answered));
        let since = deletion.sent >= begun.observed;
        let is_its_alone = begun.selects(&pod.labels) && timeline.monitors.values().filter(selects).count() == 1;
        is_old && since && !is_late && !has_overlap && is_its_alone
    };
    requests.first_deletions().filter(is_its).map(|deletion| timeline.pods[&deletion.uid].name.clone()).collect()
}
