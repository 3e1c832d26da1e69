//! The rules about the journal of each source, and about what a restart is for.

use crate::status::{Change, MAX_CHANGES, OTHER_KEYS, Restart, SourceStatus, Status};
use crate::{Account, Write};

/// The journal of a source only grows at its end, or is cut to its last entry. Neighbours may become one with the content of
/// no entry, but never the last one.
pub fn the_journal_is_appended_to(account: &Account<'_>) -> Result<(), String> {
    for write in &account.writes {
        for known in &write.after.sources {
            let Some(before) = write.before.of(known) else { continue };
            let has_same_keys = known.has_keys_of(Some(before));
            let has_same_base = before.hash.is_none() || before.hash == known.hash || !has_same_keys;
            let is_appended_to = has_same_base && follows(&before.changes, &known.changes, has_same_keys);
            if !is_appended_to && !is_cut(before, known, write) {
                return Err(format!("at {:?} {before:?} has become {known:?}", write.at));
            }
        }
    }
    Ok(())
}

/// Returns whether pods now have the last content. Other keys give it another hash, and without a journal it may be content
/// that no pod has read.
fn is_cut(before: &SourceStatus, after: &SourceStatus, write: &Write) -> bool {
    let is_last = after.hash.as_deref() == before.last() || !after.has_keys_of(Some(before));
    let is_empty = after.changes.is_empty() && write.after.restart.is_none();
    is_empty && (is_last || before.resource_version != after.resource_version)
}

/// Returns whether a journal goes on with at most one more entry.
fn follows(before: &[Change], after: &[Change], has_same_keys: bool) -> bool {
    let (Some((first, rest)), Some((its, others))) = (before.split_first(), after.split_first()) else {
        return before.is_empty() && after.len() <= 1;
    };
    let keeps = |list: &Option<String>| list.is_none() || *list == its.pods_resource_version;
    let is_same = its.hash == first.hash || !has_same_keys;
    let is_kept = its.is_at(first) && is_same && keeps(&first.pods_resource_version);
    if is_kept && follows(rest, others, has_same_keys) {
        return true;
    }
    let is_merged = its.hash == OTHER_KEYS && its.is_at(first) && !others.is_empty();
    is_merged && (1..=rest.len()).any(|more| follows(&rest[more..], others, has_same_keys))
}

/// Entries are in the order of their readings. Once nothing is pending there are none.
pub fn the_journal_is_in_order(account: &Account<'_>) -> Result<(), String> {
    for write in &account.writes {
        let in_order = |known: &SourceStatus| {
            // Two API servers may have answered.
            let two_in_order = |two: &[Change]| two[0].observed_at <= two[1].observed_at.plus(account.skew);
            known.changes.windows(2).all(two_in_order)
                && known.changes.iter().all(|change| change.since <= change.observed_at)
                && known.changes.len() <= MAX_CHANGES
                && (known.hash.is_some() || known.changes.is_empty())
        };
        let has_changes = write.after.changes().next().is_some();
        let is_whole = match &write.after.restart {
            None => !has_changes && write.after.outdated.is_none(),
            Some(restart) => restart.number.is_some() || restart.request.is_some() || has_changes,
        };
        if !is_whole || !write.after.sources.iter().all(in_order) {
            return Err(format!("at {:?} {:?}", write.at, write.after));
        }
    }
    Ok(())
}

/// A restart begins for the last contents and with a list of pods for each entry. It keeps its marks as long as it is under
/// way.
pub fn a_restart_marks_the_last_contents(account: &Account<'_>) -> Result<(), String> {
    for write in &account.writes {
        let is_begun = |known: &SourceStatus| {
            let marks = known.changes.iter().rev().map(|change| change.begun);
            marks.eq((0..known.changes.len()).map(|place| place == 0))
        };
        let marks = |known: &SourceStatus| known.changes.iter().filter(|change| change.begun).count();
        let is_kept = |known: &SourceStatus| write.before.of(known).map_or(0, marks) == marks(known);
        let has_lists = || write.after.lists().count() == write.after.observations().count();
        let is_right = match write.start() {
            Some(_) => write.after.sources.iter().all(is_begun) && has_lists(),
            None if write.after.begun().is_some() => write.after.sources.iter().all(is_kept),
            None => write.after.sources.iter().all(|known| marks(known) == 0),
        };
        if !is_right {
            return Err(format!("at {:?} {:?}, then {:?}", write.at, write.before, write.after));
        }
    }
    Ok(())
}

/// The next restart has the next number. One that is under way no longer is in the history: `Completed` if the content is
/// what it has begun for, and `Superseded` for other content, or by a request once its canary has failed.
pub fn a_restart_has_a_number_and_ends_in_the_history(account: &Account<'_>) -> Result<(), String> {
    for write in &account.writes {
        let known = write.before.history.first().map(|entry| entry.number);
        let next = known.max(write.before.begun().and_then(|begun| begun.number)).unwrap_or(0) + 1;
        let is_known =
            write.recorded().all(|entry| write.before.begun().is_some_and(|it| it.number == Some(entry.number)));
        let is_next = is_known && write.start().is_none_or(|begun| begun.number == Some(next));
        let is_over = write.before.begun().is_some() && write.before.which() != write.after.which();
        let is_right = match write.result() {
            None => !is_over,
            Some("Completed") => is_over && brings_its_content(write),
            Some(_) => is_over && (!brings_its_content(write) || may_end_anyway(write)),
        };
        if !is_next || !is_right {
            return Err(format!("at {:?} {:?}, then {:?}", write.at, write.before, write.after));
        }
    }
    Ok(())
}

/// Returns whether the last content is what the restart under way has begun for, of the sources that there still are.
fn brings_its_content(write: &Write) -> bool {
    write.after.sources.iter().all(|known| {
        let before = write.before.of(known).filter(|before| known.has_keys_of(Some(before)));
        before.is_none_or(|before| known.last() == before.target())
    })
}

fn may_end_anyway(write: &Write) -> bool {
    // A request may find no pod.
    let is_requested = || {
        let handled = |status: &Status| status.last_handled_restart_request.clone();
        write.after.restart.as_ref().is_some_and(Restart::is_requested)
            || handled(&write.after) != handled(&write.before)
    };
    let is_rekeyed = |known: &SourceStatus| write.before.of(known).is_some_and(|before| before.keys != known.keys);
    write.leaves_some_out()
        || write.before.has_failed_canaries() && is_requested()
        || write.after.sources.iter().any(is_rekeyed)
}
