//! Why a pod may run with outdated content: the numbered exceptions of docs/guarantees.md. Each is found in the facts. Only the
//! time of a change is what the operator has written, which a rule of its own judges.

use std::cmp::Reverse;

use rules::status::{Change, Status};
use rules::{A_SECOND, Moment};
use simulated_cluster::content::{Content, Data, KEYS, Source, discovers};
use simulated_cluster::ledger::{Book, Ledger, Owed, Reading, Write};

/// A numbered exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exception {
    /// 1: content that came and went before it was read and written down.
    CameAndWentUnread,
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
        restarts.filter_map(|write| Some(write.completes(ledger)?.owes(ledger, book, write, pod))).collect();
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
        came_and_went(ledger, book, part, pod, read_at, source.of_part(part, content)?)
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

/// Returns the exception for a pod that was created with content that came and went.
fn came_and_went(
    ledger: &Ledger,
    book: &Book,
    part: Source,
    pod: usize,
    born: Moment,
    content: Data,
) -> Option<Exception> {
    let gone = ledger.lasts_until(part, born, part.known(|_| Some(content))?)?;
    let is_it = |reading: &Reading| reading.of_part(part) == Some(content) && reading.at < gone;
    // The answers about two ConfigMaps may come in another order than they were given.
    let last = book.kept(part).filter(|reading| reading.at < gone).max_by_key(|reading| reading.recorded);
    let Some(read) = last.filter(|reading| is_it(reading)) else {
        // What a task has read is in the next status that it writes, unless the spec is invalid.
        let goes_by_it = |write: &Write| write.goes_by(book, part).is_some_and(|its| its.at > born && is_it(its));
        let ignores = |write: &Write| write.after.reason() != Some("InvalidSpec") && goes_by_it(write);
        // Of two tasks, nobody knows here which one has read what.
        let writes = book.writes.iter().filter(|write| write.undone.is_none() && ledger.books.len() == 1);
        let is_ignored = writes.into_iter().any(ignores);
        return (!is_ignored).then_some(Exception::CameAndWentUnread);
    };
    let (write, change) = noted(ledger, book, part, read, gone)?;
    let known = write.before.sources.iter().find(|known| known.name == part.name());
    let before = known.and_then(|known| known.changes.last()).map(|before| before.observed_at);
    // What counts is how the process that appended the entry read this: another one may take it from the status.
    let is_its = |reading: &&Reading| reading.life == write.life && reading.at < write.at && is_it(reading);
    let read = book.kept(part).filter(is_its).max_by_key(|reading| reading.recorded).unwrap_or(read);
    // After a panic nobody may know whose first look it was.
    let is_first_look = read.is_first_of(part) && !ledger.is_forgetful(read.life, read.at);
    let settled = write.before.settled_at.max(before).filter(|_| is_first_look);
    let since = settled.map_or(change.since, |settled| settled.min(change.since));
    (!ledger.pods[pod].may_have_read(since.minus(A_SECOND), gone)).then_some(Exception::ReadLateAndWent)
}

/// Returns the entry for the last reading of a content before it went, with the write that appended it.
fn noted<'a>(
    ledger: &Ledger,
    book: &'a Book,
    part: Source,
    reading: &Reading,
    gone: Moment,
) -> Option<(&'a Write, &'a Change)> {
    let of_write = |write: &'a Write| {
        let its = write.after.sources.iter().filter(|known| known.name == part.name());
        its.flat_map(|known| &known.changes).map(move |change| (write, change))
    };
    let is_it = |(_, change): &(&Write, &Change)| {
        reading.has_hash(part.name(), &change.hash) && change.observed_at <= gone.second().plus(ledger.skew)
    };
    let entries = book.writes.iter().flat_map(of_write).filter(is_it);
    entries.max_by_key(|(write, change)| (change.observed_at, Reverse(write.at)))
}
