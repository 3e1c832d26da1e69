//! Checks what was written about each ConfigMonitor by the rules that also judge the simulation, and that the other pods
//! go only after the canaries.
//!
//! The write that begins a restart compares the version of the ConfigMonitor, so the spec of that version is the one
//! that counts.

use std::collections::BTreeSet;
use std::time::Duration;

use rules::status::Restart;
use rules::{A_SECOND, Account, Event, reported};

use super::{Verdict, listed};
use crate::nightly::chaos::requests::{Deletion, OperatorRequests};
use crate::nightly::chaos::timeline::{Monitor, MonitorVersion, Timeline};

/// The sender of a request that took longer than this may have ended meanwhile.
const LATE: Duration = Duration::from_millis(500);

pub(in crate::nightly::chaos) fn check_accounts(timeline: &Timeline, requests: &OperatorRequests) -> Verdict {
    let mut verdict = Verdict::default();
    for monitor in timeline.monitors.values() {
        let (writes, events) = (monitor.writes(), monitor.events.iter().collect::<Vec<_>>());
        // Times in a status are whole seconds.
        let writes = writes.iter().collect();
        let account = Account { writes, requests: &monitor.requests, wiped: &[], skew: A_SECOND };
        // Nobody knows when the operator has read that a Secret or ConfigMap was replaced.
        let replaced = |event: &Event| if event.reason == "ImmutableSourceReplaced" { events.len() } else { 0 };
        let too_many = reported::each_event_is_emitted_once(&account, &events, replaced).err();
        let mut broken: Vec<String> = account.broken().chain(too_many).collect();
        let mut known = BTreeSet::new();
        let began = |(_, version): &(usize, &MonitorVersion)| version.is_begun() && known.insert(id(version));
        for (place, version) in monitor.versions.iter().enumerate().filter(began) {
            let gone = gone_before_the_canary_has_passed(timeline, requests, monitor, place);
            let most = version.status["restart"]["canary"]["pods"].as_u64().unwrap_or_default();
            if gone.len() as u64 > most {
                broken.push(format!("{} pods before the canary of {most} has passed, {gone:?}", gone.len()));
            }
        }
        verdict.violations.extend(broken.into_iter().map(|what| format!("{what}: ConfigMonitor {}", monitor.name)));
    }
    verdict
}

/// Returns what distinguishes one restart from another.
fn id(version: &MonitorVersion) -> String {
    format!("{:?}", version.restart().as_ref().and_then(Restart::which))
}

/// Returns the old pods that the operator has deleted for the restart that begins here, before the status says that its
/// canaries have passed. Deletions that another ConfigMonitor, or one of two operators, may have caused do not count, nor
/// does a pod that was handed over before: its successor exists, so its deletion proves nothing.
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
    let listed = begun.restart().as_ref().and_then(listed);
    let is_its = |deletion: &&Deletion| {
        let Some(pod) = timeline.pods.get(&deletion.uid) else { return false };
        let Some((at, when)) = pod.deleted.filter(|(at, _)| *at <= last) else { return false };
        let is_late = deletion.received.duration_since(deletion.sent).is_ok_and(|time| time > LATE);
        let selects = |monitor: &&Monitor| monitor.recently(at, when).any(|version| version.selects(&pod.labels));
        let is_old = listed.is_some_and(|listed: u64| pod.born <= listed);
        let has_overlap = requests.has_overlap((begun.observed, deletion.answered));
        let since = deletion.sent >= begun.observed;
        let may_prove = pod.handed_over_at(begun.revision).is_none();
        let is_its_alone = begun.selects(&pod.labels) && timeline.monitors.values().filter(selects).count() == 1;
        is_old && since && may_prove && !is_late && !has_overlap && is_its_alone
    };
    requests.first_deletions().filter(is_its).map(|deletion| timeline.pods[&deletion.uid].name.clone()).collect()
}
