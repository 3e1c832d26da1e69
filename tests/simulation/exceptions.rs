//! Why a pod may run with outdated content: the numbered exceptions of docs/guarantees.md. Each is found in the facts. The
//! operator's own view serves only for the time since which the ConfigMonitor was settled.

use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use rules::status::Status;
use rules::{A_SECOND, Moment};
use simulated_cluster::content::{Content, Data, KEYS, Source, discovers};
use simulated_cluster::ledger::{Book, Ledger, Owed, Reading, Write};

/// A numbered exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exception {
    /// 1: content that came and went before it was read.
    CameAndWentUnread,
    /// 1: content that came and went, because the process that read it crashed or failed before it could write that
    /// down. Not while a restart is interrupted.
    CameAndWentUnnoted,
    /// 1: content that came and went within its quiet period.
    CameAndWentInQuietPeriod,
    /// 8: content that was read late, and left while its restart was pending or under way. Pods created with that
    /// content before the reading count as older pods.
    ReadLateAndWent,
    /// 2: whatever was before the first look.
    BeforeFirstLook,
    /// 3: a source or a key that was added.
    AnotherSource,
    /// 4: a pod that is skipped, or that was selected only later.
    LeftAlone,
    /// 6: a status that was wiped.
    StatusWiped,
    /// 10: a container that started, by the slow clock of its node, before the content that it has read.
    SlowNode,
}

/// Returns the exception that explains why a selected pod runs with outdated content in the end; none if a change is
/// lost.
pub(crate) fn excuse(ledger: &Ledger, book: &Book, source: Source, now: Content, pod: usize) -> Option<Exception> {
    let (read_at, content) = ledger.first_content(source, pod)?;
    let restarts = book.writes.iter().filter(|write| write.at > read_at);
    let owed: Vec<Owed> =
        restarts.filter_map(|write| Some(write.completes(ledger, book)?.owes(ledger, book, write, pod))).collect();
    if owed.contains(&Owed::Replacement) {
        return None;
    }
    if owed.contains(&Owed::LeftAlone) {
        return Some(Exception::LeftAlone);
    }
    let others = source.parts().filter(|part| source.of_part(*part, content) != source.of_part(*part, now));
    // The scope has been edited since.
    let end = Moment { step: u64::MAX, ms: u64::MAX };
    let has_been_scoped = |part: Source| book.specs_between(read_at, end).any(|spec| discovers(spec, part.name()));
    let excuses = others.map(|part| {
        if has_been_scoped(part) && !ledger.pods[pod].refers_to(part.name()) {
            return Some(Exception::LeftAlone);
        }
        let mut part = part;
        let mut baseline = baseline_of(book, part)?;
        let is_edit_of_keys = baseline.before.covers(part.name(), KEYS[0]);
        let first = [now, content].map(|content| source.of_part(part.first_key(), content));
        if is_edit_of_keys && first[0] != first[1] {
            // It is a baseline only of the key that did not count before.
            part = part.first_key();
            baseline = baseline_of(book, part)?;
        }
        // Of what is discovered, nobody knows which answers make a reading.
        let read = baseline.spec.discover.as_ref().map(|_| baseline.at).or(baseline.read);
        if read.is_some_and(|read| read_at < read) {
            return Some(why_baseline(book, baseline));
        }
        let [now, content] = [now, content].map(|content| source.of_part(part, content));
        came_and_went(ledger, book, part, now?, pod, read_at, content?)
    });
    let is_slow = ledger.pods[pod].is_slow(read_at).then_some(Exception::SlowNode);
    excuses.collect::<Option<Vec<_>>>().map_or(is_slow, |excuses| excuses.first().copied())
}

/// Returns the last write with the first content of all keys of a part.
fn baseline_of(book: &Book, part: Source) -> Option<&Write> {
    let covers = |status: &Status| part.keys().all(|key| status.covers(part.name(), key));
    book.writes.iter().rfind(|write| covers(&write.after) && !covers(&write.before))
}

fn why_baseline(book: &Book, baseline: &Write) -> Exception {
    let another = baseline.before.is_baselined();
    let was_baselined = book.writes.iter().any(|write| write.at < baseline.at && write.after.is_baselined());
    match (another, was_baselined) {
        (true, _) => Exception::AnotherSource,
        (false, true) => Exception::StatusWiped,
        (false, false) => Exception::BeforeFirstLook,
    }
}

/// Returns the exception for a pod that was created with content that came after the recorded one and was reverted.
fn came_and_went(
    ledger: &Ledger,
    book: &Book,
    part: Source,
    now: Data,
    pod: usize,
    born: Moment,
    content: Data,
) -> Option<Exception> {
    let gone = ledger.lasts_until(part, born, part.known(|_| Some(content))?)?;
    // A reading may combine an answer about another ConfigMap with what was there before.
    let meanwhile =
        |reading: &&Reading| reading.of_part(part) == Some(content) && reading.at > born && reading.at < gone;
    let until = book.kept(part).find(meanwhile).map_or(born, |read| read.at);
    let mut known: Vec<&Reading> = book.kept(part).filter(|reading| reading.at <= until).collect();
    // The answers about two ConfigMaps may come in another order than they were given.
    known.sort_by_key(|reading| reading.recorded);
    // If the current content was read only later, the restart for it owed the pod a replacement.
    let is_now = |reading: &Reading| reading.of_part(part) == Some(now);
    let Some(last) = known.iter().rposition(|reading| is_now(reading)) else {
        // The process still goes by what it read before a restore.
        let is_undone = book.readings.iter().any(|reading| reading.at <= until && is_now(reading));
        let was_read = book.readings.iter().any(|reading| meanwhile(&reading));
        return (is_undone && !was_read).then_some(Exception::CameAndWentUnread);
    };
    let Some(left) = known[last + 1..].iter().find(|reading| !reading.is_outdone_by(known[last])) else {
        let was_read = book.readings.iter().any(|reading| meanwhile(&reading));
        // Whatever was not written down in an interruption, the restart has ended with it, unless a restore has undone
        // what was written.
        let last = book.writes.iter().rfind(|write| write.at < gone).filter(|write| write.undone.is_none());
        let is_interrupted = last.is_some_and(|write| write.after.interrupted().is_some());
        return match was_read {
            true => (!is_interrupted).then_some(Exception::CameAndWentUnnoted),
            false => Some(Exception::CameAndWentUnread),
        };
    };
    // Of two answers the second one may have been received first, and been combined with what was there before. Another
    // process may have read the content that came back before the first one had written down what it had read.
    let is_of_another = |reading: &Reading| reading.life != left.life && reading.at > left.at;
    let is_later =
        |reading: &&Reading| reading.at > until && (reading.recorded > left.recorded || is_of_another(reading));
    let back = book.kept(part).filter(is_later).find(|reading| reading.of_part(part) == Some(now))?;
    // `an_interrupted_restart_goes_on_in_time` judges whether the content was back in time.
    // Another source may come back only later.
    let writes = book.writes.iter().skip_while(|write| Some(write.at) != back.recorded);
    let is_interrupted = |write: &&Write| write.before.interrupted().is_some();
    let ended = writes.take_while(is_interrupted).find(|write| write.after.interrupted().is_none());
    let never_at_rest = match ended {
        Some(ended) => ended.goes_on().is_some(),
        None => never_at_rest(ledger, book, part, left, back),
    };
    if never_at_rest {
        return Some(Exception::CameAndWentInQuietPeriod);
    }
    // After a panic nobody may know whose first look it was.
    let is_first_look = left.is_first_of(part) && !ledger.is_forgetful(left.life, left.at);
    let read = if is_first_look { may_have_left(book, left, true) } else { left.last_at().second() };
    let before = read.minus(A_SECOND).plus(ledger.skew);
    (born.second() < before && !ledger.pods[pod].may_have_read(before, back.at)).then_some(Exception::ReadLateAndWent)
}

/// Returns when the content of this reading may have come at the earliest. For a process that has just started, the
/// condition `Reconciling` shows since when the ConfigMonitor was settled.
pub(crate) fn may_have_left(book: &Book, left: &Reading, is_first_look: bool) -> ServerTime {
    let written = book.writes.iter().rfind(|write| write.at < left.at).filter(|_| is_first_look);
    let conditions = written.into_iter().flat_map(|write| &write.after.conditions);
    let settled = conditions.filter(|condition| condition.r#type == "Reconciling");
    settled.map(|condition| condition.last_transition_time).chain([left.at.second()]).min().unwrap()
}

/// Returns whether from one reading to the other no content of this source lasted for the quiet period, which begins when a
/// reading is written down. A process that has just started goes by the times of two answers.
fn never_at_rest(ledger: &Ledger, book: &Book, part: Source, from: &Reading, to: &Reading) -> bool {
    let quiet = book.specs_between(from.at, to.at).filter_map(|spec| spec.quiet_period_seconds).max().unwrap_or(0);
    let quiet = Duration::from_secs(quiet.into());
    let between = book.kept_or_first(part).filter(|reading| reading.at >= from.at && reading.at <= to.at);
    let mut last: Option<(Moment, Option<Data>)> = None;
    let mut began = from.recorded;
    // The time in the status, from which another process counts, is a whole second.
    let is_resumed = |reading: &Reading| reading.may_be_first && reading.life != from.life;
    let mut resumed = false;
    // When other content was first read that could not be written down.
    let mut interrupted: Option<Moment> = None;
    for reading in between {
        let is_lost = reading.recorded.is_none() && !reading.is_first();
        let content = reading.of_part(part);
        let is_same = last.is_some_and(|(_, before)| before == content);
        // Another process does not know that reading.
        if is_lost && (is_same || reading.life != to.life) {
            continue;
        }
        // Another keeper may have read it before, and the content had left then.
        let at = reading.first_at().min(reading.at);
        let at = reading.tried.map_or(at, |tried| tried.min(at));
        let since = |before: Moment| Duration::from_millis(at.ms.saturating_sub(before.ms));
        let room = if is_lost || reading.may_be_first { ledger.skew } else { Duration::ZERO };
        let room = if resumed { room + 2 * A_SECOND } else { room };
        resumed |= is_resumed(reading);
        let rested = last.is_some_and(|(recorded, _)| since(recorded) >= quiet + room);
        if interrupted.is_none() && (rested || began.is_some_and(|began| since(began) >= quiet * 10)) {
            return false;
        }
        if interrupted.is_some_and(|interrupted| since(interrupted) >= quiet) {
            began = Some(reading.recorded.unwrap_or(at));
        }
        if is_lost {
            interrupted.get_or_insert(at);
            continue;
        }
        let goes_on = interrupted.take().is_none();
        let recorded = reading.recorded.unwrap_or(reading.at);
        // An answer about another ConfigMap was combined with what was there before.
        if last.is_some_and(|(before, _)| recorded < before) {
            continue;
        }
        if reading.may_be_first {
            // A process that has just started begins the quiet period again.
            began = Some(recorded);
        }
        if !goes_on || last.is_none_or(|(_, before)| before != content) {
            last = Some((recorded, content));
        }
    }
    true
}
