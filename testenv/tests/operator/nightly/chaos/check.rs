//! What must be true of a timeline, whatever happened in it. The numbers of exceptions are those of docs/guarantees.md.

mod account;
mod budget;
mod surge;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rules::status::Restart;

pub(super) use self::account::check_accounts;
pub(super) use self::budget::check_budgets;
pub(super) use self::surge::check_surge;
use super::requests::OperatorRequests;
use crate::nightly::chaos::timeline::{Content, Monitor, MonitorVersion, Pod, Timeline};

/// How long a request may be under way, or its sender be stopped.
const UNDER_WAY: Duration = Duration::from_secs(10);
/// The time within which a decision is written to the store.
const WRITTEN_WITHIN: Duration = Duration::from_secs(7);
/// Creation times are whole seconds.
const SLACK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) violations: Vec<String>,
    /// How often each exception was needed.
    pub(super) exceptions: BTreeMap<u8, usize>,
    pub(super) deleted: usize,
    pub(super) handed_over: usize,
    /// Deletions that were compared with a budget.
    pub(super) judged: usize,
    pub(super) restarts: usize,
}

enum Finding {
    Right,
    Excused(u8),
    Wrong(String),
}

/// Checks the end of a timeline, when everything is settled.
pub(super) fn check_end(timeline: &Timeline) -> Verdict {
    let mut verdict = Verdict { restarts: restarts(timeline), ..Verdict::default() };
    for pod in timeline.pods.values().filter(|pod| pod.deleted.is_none() && pod.owner.is_some()) {
        for monitor in timeline.monitors.values().filter(|monitor| monitor.removed.is_none()) {
            let Some(now) = monitor.versions.last().filter(|now| now.selects(&pod.labels)) else { continue };
            for source in now.sources() {
                verdict.note(pod, monitor, lost(timeline, monitor, now, &source, pod));
            }
        }
    }
    let left = surge::left_behind(timeline).map(|pod| format!("left behind: pod {} is handed over", pod.name));
    verdict.violations.extend(left);
    verdict
}

/// Checks every pod that the operator has deleted.
pub(super) fn check_deletions(timeline: &Timeline, requests: &OperatorRequests) -> Verdict {
    let mut verdict = Verdict::default();
    for deletion in requests.first_deletions() {
        let uid = &deletion.uid;
        let Some(pod) = timeline.pods.get(uid) else { continue };
        let Some((at, when)) = pod.deleted else { continue };
        verdict.deleted += 1;
        let selects = |monitor: &&Monitor| monitor.recently(at, when).any(|version| version.selects(&pod.labels));
        let monitors: Vec<&Monitor> = timeline.monitors.values().filter(selects).collect();
        let was_handed_over = pod.handed_over_at(at).is_some();
        // Without a restart, a pod goes that is handed over and is neither needed nor wanted back.
        if was_handed_over && monitors.is_empty() {
            continue;
        }
        if monitors.is_empty() || pod.owner.is_none() {
            verdict
                .violations
                .push(format!("stranger: pod {} ({uid}) was deleted and no ConfigMonitor selects it", pod.name));
            continue;
        }
        let begun = |monitor: &&&Monitor| monitor.recently(at, when).any(MonitorVersion::is_begun);
        if !was_handed_over && !monitors.iter().any(|monitor| begun(&monitor)) {
            verdict
                .violations
                .push(format!("no intent: pod {} was deleted at {at} before a restart had begun", pod.name));
        }
        let matches_policy = |monitor: &&Monitor| {
            let recently = monitor.recently(at, when).filter(|version| version.selects(&pod.labels));
            // A pod that a restore has brought back was deleted twice, perhaps in two ways.
            recently.into_iter().any(|version| requests.deletions(uid).any(|one| one.evicted == version.evicts()))
        };
        if !monitors.iter().any(matches_policy) {
            let how = if deletion.evicted { "evicted" } else { "deleted" };
            verdict.violations.push(format!("policy: pod {} was {how} at {at}, against the deletionPolicy", pod.name));
        }
        verdict.note_any(pod, monitors, |monitor| made_up((timeline, requests), monitor, pod, at));
    }
    verdict
}

/// Returns whether a living pod runs with outdated content of a source.
fn lost(timeline: &Timeline, monitor: &Monitor, now: &MonitorVersion, source: &str, pod: &Pod) -> Finding {
    let (born_with, content) = (timeline.content(source, pod.born), timeline.content(source, u64::MAX));
    if born_with == content {
        return Finding::Right;
    }
    let at_birth = monitor.at(pod.born);
    let since: Vec<&MonitorVersion> = monitor.versions.iter().filter(|version| version.revision > pod.born).collect();
    let came = timeline.since(source).max(pod.born);
    let meanwhile =
        monitor.at(came).into_iter().chain(monitor.versions.iter().filter(|version| version.revision > came));
    if meanwhile.into_iter().any(|version| !version.selects(&pod.labels)) {
        return Finding::Excused(4);
    }
    if is_baseline(timeline, &since, source, pod) {
        return Finding::Excused(3);
    }
    let read_late =
        since.iter().any(|version| timeline.read(version, source) == born_with && version.left_after(&pod.created));
    let acted = since.iter().map(|version| timeline.acted(version, source));
    let mut acted_on = acted.filter(|acted| acted.is_some() && *acted != content).peekable();
    if acted_on.peek().is_some() {
        if read_late && acted_on.all(|acted| acted == born_with) {
            return Finding::Excused(8);
        }
        return Finding::Wrong("lost: other content was restarted for after its creation".to_owned());
    }
    let Some(at_birth) = at_birth.filter(|version| timeline.has_read(version)) else { return Finding::Excused(2) };
    if at_birth.is_about_others(source) {
        return Finding::Excused(3);
    }
    let pending = at_birth.is_pending().then(|| timeline.read(at_birth, source)).flatten();
    if pending != content && acted_before(timeline, monitor, source, pod.born) != content {
        return Finding::Wrong("lost: other content was recorded at its creation".to_owned());
    }
    let at_rest = Duration::from_secs(now.quiet_seconds()) + WRITTEN_WITHIN;
    match stood_longest(timeline, monitor, source, pod.born, born_with).filter(|stood| *stood >= at_rest) {
        None => Finding::Excused(1),
        Some(_) if read_late => Finding::Excused(8),
        Some(stood) => Finding::Wrong(format!("lost: its content was unchanged for {stood:?} and then reverted")),
    }
}

/// Returns whether the current content is the baseline after the source was edited and edited back, and has not changed
/// since. A restart about the source continues meanwhile, so for its pods there is no baseline.
fn is_baseline(timeline: &Timeline, versions: &[&MonitorVersion], source: &str, pod: &Pod) -> bool {
    let Some(other) = versions.iter().rposition(|version| version.is_about_others(source)) else { return false };
    let is_in_it = versions[other].restart().is_some_and(|restart| {
        let is_old = time(&pod.created).zip(read(&restart)).is_some_and(|(created, read)| created <= read);
        is_old && listed(&restart).is_none_or(|listed| pod.born <= listed) && !restart.is_revert()
    });
    let goes_on = is_in_it && versions[other].has_forgotten();
    let (content, back) = (timeline.content(source, u64::MAX), &versions[other + 1..]);
    !goes_on && !back.is_empty() && back.iter().all(|version| timeline.read(version, source) == content)
}

/// Returns whether a pod was deleted although nothing had changed since its creation.
fn made_up(
    (timeline, requests): (&Timeline, &OperatorRequests),
    monitor: &Monitor,
    pod: &Pod,
    deleted: u64,
) -> Finding {
    let Some(begun) = monitor.until(deleted).find(|version| version.is_under_way()) else {
        return Finding::Wrong("made up: no restart had begun".to_owned());
    };
    let restart = begun.restart();
    let restart = restart.as_ref();
    let read = restart.and_then(read);
    let is_listed = restart.and_then(listed).is_some_and(|listed| pod.born <= listed);
    if is_listed && read.is_some_and(|read| is_listed_late(requests, monitor, begun, read, &pod.created)) {
        return Finding::Excused(7);
    }
    // A request restarts all existing pods.
    if is_listed && restart.is_some_and(|restart| restart.request.is_some()) {
        return Finding::Right;
    }
    let Some((created, read)) = time(&pod.created).zip(read).filter(|(created, read)| *created <= *read + SLACK) else {
        return Finding::Wrong(format!("too new: created at {}, the content was read at {read:?}", pod.created));
    };
    let named = |version: &&MonitorVersion| version.revision <= deleted;
    let sources: BTreeSet<String> = monitor.versions.iter().filter(named).flat_map(MonitorVersion::sources).collect();
    let changed = |source: &String| {
        let before = timeline.content(source, pod.born);
        timeline.contents(source, pod.born, deleted).any(|content| Some(content) != before)
    };
    // A pod created with that content is replaced for it only after a revert, or when the restart is about another
    // source.
    let is_other = |source: &String| timeline.read(begun, source) != timeline.content(source, pod.born);
    let has_reverted = restart.is_some_and(|restart| restart.changes.iter().any(|change| change.revert));
    let is_about_it = begun.sources_read().iter().any(is_other) || has_reverted || begun.has_forgotten();
    if sources.iter().any(changed) {
        // The restart began before the pod was created, and began anew for other content.
        let began_before = restart.and_then(since).is_some_and(|since| since <= created);
        if is_about_it {
            return Finding::Right;
        } else if began_before {
            return Finding::Excused(7);
        }
    }
    // The operator cannot distinguish the pods in the list of a restart any further.
    let unread =
        |source: &String| acted_before(timeline, monitor, source, pod.born) != timeline.content(source, pod.born);
    if is_listed && (created + SLACK >= read || sources.iter().any(unread)) {
        return Finding::Excused(7);
    }
    Finding::Wrong(format!(
        "made up: nothing has changed since its creation at {created}; selector at its creation: {:?}; restart begun at revision {} with the selector {:?}: {restart:?}",
        monitor.at(pod.born).map(MonitorVersion::query),
        begun.revision,
        begun.query(),
    ))
}

/// Returns whether the pods were listed right after the reading, and again after a pod was created: the first list
/// failed, and the retry backed off, or it was by another selector.
fn is_listed_late(
    requests: &OperatorRequests,
    monitor: &Monitor,
    begun: &MonitorVersion,
    read: Timestamp,
    created: &str,
) -> bool {
    let listed = |query: &str, from: Timestamp, to: Timestamp| {
        let (from, to) = (SystemTime::from(from), SystemTime::from(to));
        requests.lists.iter().any(|(at, sent)| *sent == query && from <= *at && *at <= to)
    };
    let Some(created) = time(created).filter(|created| *created > read + SLACK) else { return false };
    let mut before = monitor.until(begun.revision).map(MonitorVersion::query);
    before.any(|query| listed(&query, read, read + 2 * SLACK)) && listed(&begun.query(), created, read + UNDER_WAY)
}

/// Returns the content of a source that pods ran with at a revision, as far as the operator knew.
fn acted_before<'a>(timeline: &'a Timeline, monitor: &Monitor, source: &str, revision: u64) -> Option<&'a Content> {
    let acted = monitor.until(revision).find(|version| !version.is_pending() && timeline.has_read(version))?;
    timeline.read(acted, source)
}

/// Returns the longest time for which this content was pending after the pod's creation before it was reverted.
fn stood_longest(
    timeline: &Timeline,
    monitor: &Monitor,
    source: &str,
    born: u64,
    content: Option<&Content>,
) -> Option<Duration> {
    let pairs = monitor.versions.windows(2).filter(|pair| pair[1].revision > born);
    let pending = pairs.filter(|pair| pair[0].is_pending() && timeline.read(&pair[0], source) == content);
    let taken_back = pending.filter(|pair| timeline.read(&pair[1], source) != content);
    taken_back
        .filter_map(|pair| {
            let restart = pair[0].restart()?;
            let read =
                Timestamp::from_second(restart.interrupted_at.unwrap_or(restart.observed_at()).as_second()).ok()?;
            pair[1].observed.duration_since(SystemTime::from(read)).ok()
        })
        .max()
}

fn restarts(timeline: &Timeline) -> usize {
    let begun = |monitor: &Monitor| {
        let mut versions: Vec<String> = monitor
            .versions
            .iter()
            .filter(|version| version.is_begun())
            .map(|version| version.restart().and_then(|restart| restart.last_list().cloned()).unwrap_or_default())
            .collect();
        versions.dedup();
        versions.len()
    };
    timeline.monitors.values().map(begun).sum()
}

impl Verdict {
    pub(super) fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        for (number, count) in other.exceptions {
            *self.exceptions.entry(number).or_default() += count;
        }
        self.deleted += other.deleted;
        self.handed_over += other.handed_over;
        self.judged += other.judged;
        self.restarts += other.restarts;
    }

    /// Notes what was found about all of these ConfigMonitors, of which one has caused what happened to the pod.
    fn note_any(&mut self, pod: &Pod, monitors: Vec<&Monitor>, find: impl Fn(&Monitor) -> Finding) {
        let findings: Vec<Finding> = monitors.iter().map(|monitor| find(monitor)).collect();
        if findings.iter().any(|finding| matches!(finding, Finding::Right)) {
            return;
        }
        let excused = findings.iter().position(|finding| matches!(finding, Finding::Excused(_)));
        let findings = monitors.into_iter().zip(findings);
        // No ConfigMonitor has a reason, so any of them may have caused it.
        let count = if excused.is_some() { 1 } else { usize::MAX };
        for (monitor, finding) in findings.skip(excused.unwrap_or(0)).take(count) {
            self.note(pod, monitor, finding);
        }
    }

    fn note(&mut self, pod: &Pod, monitor: &Monitor, finding: Finding) {
        match finding {
            Finding::Right => {}
            Finding::Excused(number) => *self.exceptions.entry(number).or_default() += 1,
            Finding::Wrong(what) => self.violations.push(format!(
                "{what}: pod {} created at revision {}, deleted at {:?}, for ConfigMonitor {}",
                pod.name,
                pod.born,
                pod.deleted.map(|(at, _)| at),
                monitor.name
            )),
        }
    }
}

impl MonitorVersion {
    /// Returns whether, by this status, the earlier content left more than a second after a pod was created.
    fn left_after(&self, created: &str) -> bool {
        let since = self.restart().as_ref().and_then(since);
        time(created).zip(since).is_some_and(|(created, since)| created + SLACK < since)
    }
}

impl Monitor {
    /// Returns the version at a revision and the recent ones before, which an operator may still have gone by.
    fn recently(&self, revision: u64, when: SystemTime) -> impl Iterator<Item = &MonitorVersion> {
        let gone = self.removed.filter(|(removed, _)| *removed <= revision);
        let mut over = gone.is_some_and(|(_, at)| when.duration_since(at).is_ok_and(|age| age > UNDER_WAY));
        self.until(revision).take_while(move |version| {
            // Versions before the first old one were no longer valid.
            let take = !over;
            over |= when.duration_since(version.observed).is_ok_and(|age| age > UNDER_WAY);
            take
        })
    }
}

/// Returns when the newest content of a restart was first read.
fn read(restart: &Restart) -> Option<Timestamp> {
    Timestamp::from_second(restart.observed_at().as_second()).ok()
}

fn since(restart: &Restart) -> Option<Timestamp> {
    Timestamp::from_second(restart.since().as_second()).ok()
}

/// Returns the revision of the newest list of a restart.
fn listed(restart: &Restart) -> Option<u64> {
    restart.lists().filter_map(|version| version.parse().ok()).max()
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

#[cfg(test)]
mod tests;
