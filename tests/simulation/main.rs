//! The executable specification: these rules hold whatever happens in the cluster.
//!
//! A story (`story.rs`) is a list of events: edits, scaling, failures, crashes at any request. The player (`player.rs`)
//! runs a story with the real operator in a simulated cluster (`testenv/simulated-cluster`), in paused time and from one
//! seed. The ledger of that cluster records what really happened, and each rule below judges by the ledger alone. The
//! rules about what is written (`testenv/rules`) also judge what happens on a real control plane.
//! `exceptions.rs` says why a pod may keep content other than the current one.
//!
//! `STORIES=100000 SEED=7 cargo test --test simulation` plays more or other stories (`runs.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod canaries;
mod costs;
mod examples;
mod exceptions;
mod interruptions;
mod labels;
mod last;
mod log;
mod plans;
mod player;
mod references;
mod runs;
mod sharing;
mod story;
mod surge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::monitor::spec::{DeletionPolicy, Spec};
use rules::status::{Change, Entry, Restart, Status};
use rules::{A_SECOND, Event, Moment, reported};

use simulated_cluster::content::{CONFIG_MAPS, Content, Keys, Source, discovers, hash, names};
use simulated_cluster::ledger::{Book, Deletion, End, Grounds, Ledger, Owed, PodRecord, Reading, SKEW, Write};
use simulated_cluster::store::Selection;

use self::exceptions::{Exception, excuse, may_have_left};

/// A rule about one ConfigMonitor. Returns how the rule is broken.
type Rule = fn(&Ledger, &Book) -> Result<(), String>;

/// A rule about each deletion: whether what the process knew about a ConfigMonitor justifies the deletion.
type DeletionRule = fn(&Ledger, &Deletion, &Grounds) -> bool;

/// The most requests that a process may send in a minute, whatever happens. Further pages of lists do not count. A
/// process without backoff sends thousands.
const MAX_PER_MINUTE: usize = 1000;

/// The most requests per ConfigMonitor and minute, if there is more than one. The highest seen is 711, in a restart with
/// `maxSurge` of the pods of six owners, which cannot be watched.
const MAX_PER_MONITOR: usize = 800;

/// Answers to requests that were sent together come within this many milliseconds.
const TOGETHER: u64 = 10;

/// The most milliseconds that a list takes, unless it is late.
const A_LIST: u64 = 5;

const RULES: [(&str, Rule); 18] = [
    ("no change is lost", no_change_is_lost),
    ("the end is reached", the_end_is_reached),
    ("no hash is recorded while an old pod is alive", no_hash_is_recorded_while_an_old_pod_is_alive),
    (
        "a restart ends once the owners have their desired replicas available",
        a_restart_ends_once_the_owners_have_their_desired_replicas,
    ),
    ("a restart keeps the scope that it began with", a_restart_keeps_the_scope_that_it_began_with),
    ("a change that was not read anew keeps its list", a_change_that_was_not_read_anew_keeps_its_list),
    ("observedAt is when the content was read", observed_at_is_when_the_content_was_read),
    ("an interrupted restart goes on if its content is back", interruptions::an_interrupted_restart_goes_on_in_time),
    ("Stalled means no progress for the progress deadline", stalled_means_no_progress_for_the_progress_deadline),
    ("each Event is emitted once", each_event_is_emitted_once),
    ("the number of pods comes from a list", the_number_of_pods_comes_from_a_list),
    ("a restart counts the pods that it deleted", a_restart_counts_the_pods_that_it_deleted),
    ("the pods that remain were there", the_pods_that_remain_were_there),
    ("a handled request restarted each pod", a_handled_request_restarted_each_pod),
    ("canaries pass if they stay available", canaries::canaries_pass_if_they_stay_available),
    ("a canary fails by itself", canaries::a_canary_fails_by_itself),
    ("what pods refer to is discovered", what_pods_refer_to_is_discovered),
    ("a discovered source is forgotten only once it is gone", a_discovered_source_is_forgotten_only_once_it_is_gone),
];

const DELETION_RULES: [(&str, DeletionRule); 15] = [
    ("the intent comes first", the_intent_comes_first),
    ("nothing is deleted for a deleted ConfigMonitor", nothing_is_deleted_for_a_deleted_config_monitor),
    ("nothing restarts without a change of content", nothing_restarts_without_a_change_of_content),
    ("a revert spares the earlier pods", a_revert_spares_the_earlier_pods),
    ("only selected pods are deleted", only_selected_pods_are_deleted),
    ("only pods that refer are deleted", only_pods_that_refer_are_deleted),
    ("nothing is deleted while the restart is held", nothing_is_deleted_while_the_restart_is_held),
    ("no new pod is deleted", no_new_pod_is_deleted),
    ("a restart deletes no pod that it created", a_restart_deletes_no_pod_that_it_created),
    ("an eviction is not turned into a deletion", an_eviction_is_not_turned_into_a_deletion),
    ("nothing is deleted within the quiet period", nothing_is_deleted_within_the_quiet_period),
    ("nothing is deleted during an interruption", interruptions::nothing_is_deleted_during_an_interruption),
    ("the canaries go first", canaries::the_canaries_go_first),
    ("the last pods go last", last::the_last_pods_go_last),
    ("nothing is deleted after a canary has failed", canaries::nothing_is_deleted_after_a_canary_has_failed),
];

/// Returns the first broken rule.
fn judge(ledger: &Ledger) -> Result<(), String> {
    if let Some(improper) = ledger.improper.first() {
        return Err(format!("an improper request: {improper}"));
    }
    let busiest = ledger.busiest_minute();
    if busiest > MAX_PER_MINUTE.max(MAX_PER_MONITOR * ledger.books.len()) {
        return Err(format!("too many requests: a process sent {busiest} in a minute"));
    }
    for book in &ledger.books {
        for (name, rule) in RULES {
            rule(ledger, book).map_err(|broken| format!("{name}: {broken}"))?;
        }
        book.account(ledger.skew).broken().next().map_or(Ok(()), Err)?;
    }
    // A pod that a restore brings back has the UID of the deleted one. The operator cannot distinguish the two.
    for deletion in ledger.deletions.iter().filter(|deletion| !ledger.pods[deletion.pod].is_undone) {
        every_rule_allows(ledger, deletion)?;
    }
    for handed_over in ledger.handed_over.iter().filter(|it| !ledger.pods[it.pod].is_undone) {
        every_rule_allows(ledger, handed_over).map_err(|broken| format!("handed over: {broken}"))?;
    }
    surge::never_over_max_surge(ledger)?;
    surge::none_is_handed_over_twice(ledger)?;
    surge::none_is_left(ledger)?;
    once_per_change(ledger).map_err(|broken| format!("once per change: {broken}"))?;
    never_over_the_budget(ledger).map_err(|broken| format!("never over the budget: {broken}"))
}

/// Checks that all rules allow a deletion for one and the same ConfigMonitor.
fn every_rule_allows(ledger: &Ledger, deletion: &Deletion) -> Result<(), String> {
    let broken = |grounds: &Grounds| DELETION_RULES.iter().find(|(_, allows)| !allows(ledger, deletion, grounds));
    let mut broken = deletion.grounds.iter().map(|grounds| (broken(grounds), grounds));
    let Some((Some((name, _)), grounds)) = broken.clone().max_by_key(|(broken, _)| broken.is_none()) else {
        return if broken.next().is_none() { Err(format!("an unjustified deletion: {deletion:?}")) } else { Ok(()) };
    };
    let Deletion { at, pod, .. } = deletion;
    let (pod, restart) = (&ledger.pods[*pod], &grounds.seen.status.restart);
    Err(format!("{name}: at {at:?}, {pod:?} was deleted for {restart:?}"))
}

/// Rule 1. In the end every selected pod runs with the current content, unless a numbered exception holds.
fn no_change_is_lost(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let lost = stale_pods(ledger, book).into_iter().find(|(_, exception)| exception.is_none());
    lost.map_or(Ok(()), |(pod, _)| Err(format!("in the end {:?} still runs with outdated content", ledger.pods[pod])))
}

/// Rule 1. Once nothing fails any more, the restart ends, and the status says so.
fn the_end_is_reached(_: &Ledger, book: &Book) -> Result<(), String> {
    let Some(End { status, content, request, is_settled, .. }) = &book.end else { return Ok(()) };
    let reached = *is_settled
        && status.is_ready()
        && status.restart.is_none()
        && status.config_hash() == Some(hash(*content))
        && request.is_none_or(|request| status.has_handled(request));
    if reached { Ok(()) } else { Err(format!("content {content:?}, request {request:?}, final status {status:?}")) }
}

/// Rule 1. A hash is recorded with a baseline or at the end of a restart. At the end none of the restart's old pods is
/// alive.
fn no_hash_is_recorded_while_an_old_pod_is_alive(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in &book.writes {
        let Some(completed) = write.completes(ledger, book) else {
            if write.after.advances(&write.before) {
                return Err(format!("at {:?} without the end of a restart: {:?}", write.at, write.after));
            }
            continue;
        };
        let owed = |pod: &&usize| completed.owes(ledger, book, write, **pod) == Owed::Replacement;
        if let Some(pod) = write.alive.iter().find(owed) {
            return Err(format!("at {:?} {:?} was alive", write.at, ledger.pods[*pod]));
        }
    }
    Ok(())
}

/// Rule 1. The write that completes a restart comes once all old pods are gone or terminating, when each of their owners
/// has its desired replicas available. A restart for other content or for a request that finds no pod to replace ends the
/// previous restart and does not count itself.
fn a_restart_ends_once_the_owners_have_their_desired_replicas(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in &book.writes {
        let handled = write.after.last_handled_restart_request.as_ref();
        let is_for_another = |begun: &Restart| {
            let own = begun.request.as_ref().map(|request| &request.value);
            handled != write.before.last_handled_restart_request.as_ref() && handled != own
        };
        let begun = write.before.begun().filter(|begun| Some(begun.config_hash()) == write.after.config_hash());
        let begun = begun.filter(|begun| !is_for_another(begun) && write.supersedes().is_none());
        let completed = begun.and_then(|_| write.completes(ledger, book));
        if completed.is_some_and(|completed| !completed.was_over(ledger, book, write)) {
            return Err(format!(
                "at {:?} pods were missing or left: {:?}, then {:?}",
                write.at, write.before.restart, write.after
            ));
        }
    }
    Ok(())
}

/// A request is recorded as handled once no pod is alive that was selected all the time since it was made.
fn a_handled_request_restarted_each_pod(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| write.before.is_baselined() && !write.by_times) {
        let handled = write.after.last_handled_restart_request.as_ref();
        if handled == write.before.last_handled_restart_request.as_ref() {
            continue;
        }
        let is_for =
            |status: &Status| status.restart.as_ref().and_then(|it| Some(&it.request.as_ref()?.value)) == handled;
        // Later the same value is no other request.
        let takes_up =
            |it: &&Write| it.at <= write.at && !is_for(&it.before) && (is_for(&it.after) || it.at == write.at);
        let taken_up = book.writes.iter().rfind(takes_up).map_or(write.at, |taken_up| taken_up.at);
        let asked = book.requests.iter().rfind(|(at, value)| *at < taken_up && Some(value) == handled);
        let Some((asked, value)) = asked else { continue };
        let is_left = |pod: &&usize| {
            let pod = &ledger.pods[**pod];
            let is_meant = |spec| pod.was_selected(spec, write.at) && pod.is_restartable(spec);
            let is_same = pod.labels.iter().all(|(at, _)| at <= asked) && !pod.is_undone;
            let is_old = pod.born < *asked && pod.gone_by.is_none();
            is_old && is_same && book.specs_between(*asked, write.at).all(is_meant)
        };
        if let Some(pod) = write.alive.iter().find(is_left) {
            return Err(format!("at {:?} {value:?} is handled, and {:?} was alive", write.at, ledger.pods[*pod]));
        }
    }
    Ok(())
}

/// A restart is not reported as stalled while it deletes pods, or before its progress deadline has passed.
fn stalled_means_no_progress_for_the_progress_deadline(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| write.comes_to("ProgressDeadlineExceeded")) {
        let began = write.after.begun().and_then(|begun| begun.started_at);
        // A process does not know what another process deletes, nor a deletion that is unanswered and in no list yet.
        let is_of_it = |deletion: &&Deletion| {
            let mut books = deletion.grounds.iter().map(|grounds| &ledger.books[grounds.book]);
            write.knows_of(deletion) && deletion.at < write.at && books.any(|its| std::ptr::eq(its, book))
        };
        let deleted = ledger.deletions.iter().filter(is_of_it).map(|deletion| deletion.at.second());
        let deadline = Duration::from_secs(write.spec.progress_deadline_seconds.unwrap_or(600).into());
        // An interruption does not count for a process that has seen it.
        let has_seen = |at| {
            let mut own = book.writes.iter().filter(|its| its.at < at && its.life == write.life);
            own.any(|its| its.after.interrupted().is_some())
        };
        let goes_on = book.writes.iter().filter(|its| its.at < write.at && its.goes_on().is_some());
        let goes_on = goes_on.filter(|its| has_seen(its.at));
        // A canary that passes is progress.
        let passes = |status: &Status| {
            status.begun().is_some_and(|its| {
                canaries::has_passed(its) && Some(its.which()) == write.after.begun().map(Restart::which)
            })
        };
        let passed = book.writes.iter().filter(|its| its.at < write.at && passes(&its.after) && !passes(&its.before));
        let progress = goes_on.chain(passed).map(|its| its.at.second());
        let due = began.into_iter().chain(deleted).chain(progress).max();
        let due = due.map(|last| last.plus(deadline));
        if due.is_none_or(|due| due > write.at.second().plus(A_SECOND + ledger.skew)) {
            return Err(format!("at {:?}, but due at {due:?}: {:?}", write.at, write.after));
        }
    }
    Ok(())
}

/// One Event is about a reading and does not wait for a write.
fn each_event_is_emitted_once(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let replaced = |event: &Event| {
        let is_it = |reading: &&Reading| reading.replaces_immutable && reading.first_at() < event.at;
        book.readings.iter().filter(is_it).filter(|_| event.reason == "ImmutableSourceReplaced").count()
    };
    // The keeper of a deleted ConfigMonitor does not tell what it reads.
    // Of what is discovered, nobody knows which answers make a reading.
    let discovers = book.writes.iter().any(|write| write.spec.discover.is_some());
    let is_known = ledger.forgetful.is_empty() && book.end.is_some() && !discovers;
    let is_sure = |event: &&Event| event.reason != "ImmutableSourceReplaced" || is_known;
    let events: Vec<&Event> = book.events.iter().filter(is_sure).collect();
    reported::each_event_is_emitted_once(&book.account(ledger.skew), &events, replaced)
}

fn a_restart_keeps_the_scope_that_it_began_with(_: &Ledger, book: &Book) -> Result<(), String> {
    for write in &book.writes {
        let (before, begun) = (write.before.begun(), write.after.begun());
        let Some((before, begun)) = before.zip(begun).filter(|(before, begun)| before.which() == begun.which()) else {
            continue;
        };
        let scopes = |restart: &Restart| -> BTreeMap<String, bool> {
            restart.changes.iter().map(|change| (change.name.clone(), change.is_discovered)).collect()
        };
        if scopes(before) != scopes(begun) {
            return Err(format!("at {:?} {begun:?}", write.at));
        }
    }
    Ok(())
}

/// While a process knows what it has read, a change gets another list only for other content of its source.
fn a_change_that_was_not_read_anew_keeps_its_list(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for (number, write) in book.writes.iter().enumerate() {
        let (Some(before), Some(after)) = (&write.before.restart, &write.after.restart) else { continue };
        for known in before.changes.iter().filter(|change| change.pods_resource_version.is_some()) {
            let Some(change) = after.changes.iter().find(|change| change.name == known.name) else { continue };
            let has_it = |its: &&Write| its.after.restart.as_ref().is_some_and(|it| it.changes.contains(known));
            let its = book.writes[..number].iter().rev().take_while(has_it);
            let is_own = its.clone().all(|its| its.life == write.life);
            // Other content has interrupted what a restore has brought back.
            let is_brought_back = |began: &Write| {
                let mut restored = ledger.restored.iter();
                write.before.interrupted().is_some() && restored.any(|at| (began.at..write.at).contains(at))
            };
            let is_known = |began: &&Write| {
                let is_whole = began.after.interrupted().is_none() && !is_brought_back(began);
                is_whole && !ledger.unsure.contains(&write.life)
            };
            let Some(began) = its.last().filter(|began| is_own && is_known(began)) else { continue };
            let differs = |reading: &Reading| {
                let part = reading.source.only(|name| name == change.name);
                let content = part.and_then(|part| part.known(|_| reading.of_part(part)));
                content.is_none_or(|content| hash(content) != known.hash)
            };
            let readings = book.readings.iter().filter(|reading| reading.life == write.life);
            let mut since = readings.filter(|reading| reading.last_at() > began.at && reading.at < write.at);
            // Nothing is read while the spec is invalid.
            let is_anew =
                since.any(differs) || book.specs_between(began.at, write.at).any(|spec| Source::of(spec).is_none());
            let is_other_list = change.pods_resource_version != known.pods_resource_version;
            if change.hash == known.hash && is_other_list && !is_anew {
                return Err(format!("at {:?} {known:?} has become {change:?}", write.at));
            }
        }
    }
    Ok(())
}

/// Rule 4. The intent is in the status before the first pod is deleted.
fn the_intent_comes_first(_: &Ledger, _: &Deletion, grounds: &Grounds) -> bool {
    grounds.seen.status.begun().is_some()
}

/// Any change of `status.pods` matches a list that the process has read since the previous change. At the end of a
/// restart a watch may have shown the number.
fn the_number_of_pods_comes_from_a_list(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let counts = |write: &&Write| write.after.pods.is_some() && write.after.pods != write.before.pods;
    for write in book.writes.iter().filter(counts) {
        // A restore undoes writes, and the process may write the same number again.
        let stands = |earlier: &&Write| earlier.at < write.at && earlier.undone.is_none_or(|undone| undone > write.at);
        let counted = book.writes.iter().filter(counts).rfind(stands).map(|earlier| earlier.at);
        let is_listed = || ledger.listed_counts(write, counted).any(|count| Some(count) == write.after.pods);
        let began = || book.writes.iter().rfind(|earlier| earlier.at < write.at && earlier.begins());
        let is_watched = || {
            let began = began().filter(|_| write.ends());
            // The watch continues from a list made before that write, after the content was read.
            let since = |began: &Write| began.listed.max(began.read).unwrap_or(began.at);
            began.zip(write.after.pods).is_some_and(|(began, count)| ledger.has_selected(count, write, since(began)))
        };
        if !is_listed() && !is_watched() {
            return Err(format!("at {:?} no list has this number: {:?}", write.at, write.after));
        }
    }
    Ok(())
}

/// The number of pods that remain in a restart was true at some moment since the last list, or since the last event that
/// an open watch has delivered.
fn the_pods_that_remain_were_there(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| !write.by_times) {
        let is_known = |begun: &Restart| {
            write.before.begun().is_some_and(|it| {
                it.which() == begun.which() && it.remaining == begun.remaining && it.progress == begun.progress
            })
        };
        let Some(begun) = write.after.begun().filter(|begun| !is_known(begun)) else { continue };
        let list = latest_list(ledger, begun);
        let is_partial = begun.changes.iter().any(|change| change.revert);
        let Some(list) = list.filter(|_| !is_partial && ledger.restored.iter().all(|restored| *restored > write.at))
        else {
            continue;
        };
        let selection = Selection::parse(begun.pod_selector.as_deref());
        let is_same = |spec: &Spec| {
            spec.pod_selector == write.spec.pod_selector
                && spec.pod_selector_expressions == write.spec.pod_selector_expressions
                && spec.unmanaged_pods == write.spec.unmanaged_pods
        };
        if !book.specs_between(list, write.at).all(is_same) {
            continue;
        }
        let is_old = |pod: &&PodRecord| {
            pod.born < list
                && pod.gone.is_none_or(|gone| gone > list)
                && selection.matches(pod.labels_at(list))
                && pod.is_restartable(&write.spec)
                && ledger.is_meant(pod, begun, |_| true)
        };
        // A pod that had lost its labels as the restart began is not part of it.
        let began = book.start_of(begun).and_then(|start| start.listed.max(start.shared)).unwrap_or(list);
        let is_part = |pod: &PodRecord| selection.matches(pod.labels_at(began));
        let counts = |at: Moment| {
            let there = ledger.pods.iter().filter(is_old).filter(|pod| pod.ended.is_none_or(|ended| ended > at));
            let there: Vec<_> = there.filter(|pod| pod.was_selected(&write.spec, at)).collect();
            let least = there.iter().filter(|pod| is_part(pod)).count();
            // What another keeper is deleting counts as deleted.
            if ledger.books.len() > 1 { 0..=there.len() } else { least..=there.len() }
        };
        // The list with which a watch begins may overtake the write. The lists of other content say nothing to a restart
        // that this content interrupts.
        let by_pods = write.goes_by_pods_from(ledger, write.went_by.unwrap_or(list), false) - A_LIST;
        let from = if begun.interrupted_at.is_some() { list.ms } else { by_pods };
        let last = ledger.moments(list, write.at).filter(|at| at.ms <= from).max();
        let mut moments = ledger.moments(list, write.at).filter(|at| at.ms >= from).chain(last);
        if !moments.any(|at| begun.remaining.is_some_and(|remaining| counts(at).contains(&remaining))) {
            return Err(format!("at {:?} there were never so many since {from} ms: {begun:?}", write.at));
        }
    }
    Ok(())
}

/// Holds as far as one process has carried out the restart and received all answers. Pods that others delete at the
/// same time may count too.
fn a_restart_counts_the_pods_that_it_deleted(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| write.ends()) {
        let Some(begun) = write.before.begun() else { continue };
        let is_about = |entry: &&Entry| entry.is_about(begun) && !write.before.history.contains(entry);
        let Some(entry) = write.after.history.iter().find(is_about) else { continue };
        let is_it = |began: &&Write| began.after.begun().and_then(Restart::which) == begun.which();
        let Some(began) = book.writes.iter().find(is_it) else { continue };
        let is_meanwhile = |at: Moment| (began.at..write.at).contains(&at);
        // Another process that resumes the restart counts the pods gone by then, and writes that number for this
        // process.
        let is_of_others = book.writes.iter().any(|its| its.life != write.life && is_meanwhile(its.at));
        if is_of_others || !ledger.restored.is_empty() || write.by_times || ledger.unsure.contains(&write.life) {
            continue;
        }
        let of_process = ledger.deletions.iter().filter(|its| its.life == write.life && is_meanwhile(its.at));
        let is_own = |deletion: &&Deletion| {
            deletion.grounds.iter().any(|grounds| std::ptr::eq(&raw const ledger.books[grounds.book], book))
        };
        let own: BTreeSet<usize> = of_process.clone().filter(is_own).map(|its| its.pod).collect();
        let of_process: BTreeSet<usize> = of_process.map(|its| its.pod).collect();
        // A terminating pod may also run to its end before it is gone. Only the API server knows whether it was still
        // there.
        let again = ledger.deleted_again.iter().filter(|(at, life, _)| *life == write.life && is_meanwhile(*at));
        let again: BTreeSet<usize> = again.map(|(.., pod)| *pod).collect();
        let is_by_others = |(number, pod): &(usize, &PodRecord)| {
            let listed = began.listed.unwrap_or(began.at);
            let was_left = pod.born < began.at && pod.gone.is_none_or(|gone| gone > listed);
            let is_there = was_left || again.contains(number);
            is_there && pod.ended.is_some_and(|ended| ended < write.at) && !of_process.contains(number)
        };
        let others = ledger.pods.iter().enumerate().filter(is_by_others).count();
        if !(own.len()..=own.len() + others).contains(&entry.replaced) {
            return Err(format!("at {:?} the status has {}, the ledger {}", write.at, entry.replaced, own.len()));
        }
    }
    Ok(())
}

/// A keeper stops when a watch, a list or a GET shows that its ConfigMonitor is deleted.
fn nothing_is_deleted_for_a_deleted_config_monitor(_: &Ledger, _: &Deletion, grounds: &Grounds) -> bool {
    !grounds.gone
}

/// Rules 2 and 5. A pod is deleted only if the operator has read a change or a restart is requested.
fn nothing_restarts_without_a_change_of_content(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    // `a_request_is_handled_once` checks that the request exists.
    let is_requested = grounds.seen.status.restart.as_ref().is_some_and(|restart| restart.request.is_some());
    is_requested || ledger.books[grounds.book].changes().any(|change| change.at < deletion.at)
}

/// Rule 2. A revert replaces only pods created since the content left. If a process found other content at its first
/// look, the content may have left at any time since the ConfigMonitor was settled. If the API server has forgotten the
/// list of that time, the tolerance for clock skew applies.
fn a_revert_spares_the_earlier_pods(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let Some(restart) = &grounds.seen.status.restart else { return true };
    // Another change or a request may be meant for the pod.
    let (mut others, has_reverted) = (restart.clone(), restart.changes.iter().any(|change| change.revert));
    others.changes.retain(|change| !change.revert);
    let is_alone = others.changes.is_empty() && others.request.is_none();
    let is_for_others =
        !is_alone && (grounds.by_times || ledger.is_meant(&ledger.pods[deletion.pod], &others, |_| true));
    if !has_reverted || is_for_others {
        return true;
    }
    // A pod with other content must be replaced.
    let read = Source::by(&grounds.seen.spec, &grounds.seen.status)
        .and_then(|source| ledger.first_content(source, deletion.pod));
    let desired = grounds.seen.status.restart.as_ref().map(Restart::config_hash);
    if read.is_some_and(|(_, content)| Some(hash(content)) != desired) {
        return true;
    }
    // A pod that was not selected when the content left, by the selector now or as the restart began, is not in the
    // list of that time. The operator takes it for a newer pod.
    let restart = grounds.seen.status.restart.as_ref();
    let mut since = restart.into_iter().flat_map(|restart| &restart.changes);
    let selection = Selection::parse(restart.and_then(|restart| restart.pod_selector.as_deref()));
    let pod = &ledger.pods[deletion.pod];
    let is_listed = |at| selection.matches(pod.labels_at(at)) && pod.was_selected(&grounds.seen.spec, at);
    let was_unlisted = |change: &Change| {
        let listed = change.since_pods_resource_version.as_ref().and_then(|version| ledger.list(version));
        listed.is_some_and(|listed| !is_listed(listed))
    };
    if since.any(was_unlisted) {
        return true;
    }
    let book = &ledger.books[grounds.book];
    // A requested restart is not about a change.
    let is_of_change = |status: &Status| {
        let restart = status.restart.as_ref();
        restart.is_some_and(|restart| !restart.changes.is_empty())
    };
    let pending = |write: &&Write| write.at < deletion.at && !is_of_change(&write.before) && is_of_change(&write.after);
    let began = book.writes.iter().rev().filter(pending).filter_map(|write| Some((write, write.read?)));
    let mut left = began.filter_map(|(write, read)| {
        // The same version once more is no reading of its own.
        let is_earlier = |reading: &&Reading| reading.life == write.life && reading.at < read;
        let of_it = book.readings.iter().find(|reading| reading.at == read);
        Some((write, of_it.or_else(|| book.readings.iter().rfind(is_earlier))?))
    });
    let is_restored = |reading: &Reading| ledger.restored.iter().any(|at| (reading.at..deletion.at).contains(at));
    // Without a later reading the process goes by what it read before the restore.
    let last = left.clone().next();
    let Some((write, left)) = left.find(|(_, reading)| reading.is_kept() || !is_restored(reading)).or(last) else {
        return false;
    };
    let room = if grounds.is_since_known { A_SECOND } else { SKEW + ledger.skew };
    // The write about the first look of a process may have failed, and another source was edited since.
    let is_of_it = |it: &Reading| {
        let is_unwritten = !book.writes.iter().any(|its| its.life == it.life && (it.at..write.at).contains(&its.at));
        let mut changes = write.after.restart.iter().flat_map(|restart| &restart.changes);
        it.may_be_first && is_unwritten && changes.any(|change| it.has_hash(&change.name, &change.hash))
    };
    // The answers about two sources may come at the same moment.
    let mut earlier = book.readings.iter().filter(|it| it.life == left.life && it.at <= left.at);
    let is_first_look = left.may_be_first || earlier.any(is_of_it);
    // Another keeper may have read the content first, for both.
    let left_at = may_have_left(book, left, is_first_look).min(left.first_at().second());
    // The first look of a process, or after a restore, may have found it in the middle of a restart.
    let has_been_restored = ledger.restored.iter().any(|at| *at < write.at);
    let began = write.before.begun().filter(|_| is_first_look || has_been_restored);
    let began = began.and_then(|begun| begun.started_at);
    let left_at = began.map_or(left_at, |began| began.min(left_at));
    // Other content than that of a request has interrupted its restart.
    let interrupted = write.before.interrupted().map(|(_, at)| at);
    let left_at = interrupted.map_or(left_at, |interrupted| interrupted.min(left_at));
    // The restore has brought back the status that says since when the ConfigMonitor was settled.
    let is_brought_back = ledger.restored.iter().any(|at| *at < write.at) && book.is_of_first_look(left);
    let settled = write.before.conditions.iter().find(|condition| condition.r#type == "Reconciling");
    let settled = settled.filter(|_| is_brought_back).map(|condition| condition.last_transition_time);
    let left_at = settled.map_or(left_at, |settled| settled.min(left_at));
    // Nobody knew what a pod would read that had not started when the restart was planned.
    let planned = restart.and_then(|restart| book.start_of(restart)).map_or(deletion.at, |start| start.at);
    pod.started.is_none_or(|started| started > planned) || pod.may_have_read(left_at.minus(room), deletion.at)
}

/// Rule 3. A deleted pod was listed in this pass, with the same UID. The spec, as read after that list, selected the
/// pod at the time of the list and does not exempt it.
fn only_selected_pods_are_deleted(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let (pod, spec) = (&ledger.pods[deletion.pod], &grounds.seen.spec);
    let is_listed =
        |(at, pods): &(Moment, Arc<BTreeSet<usize>>)| pods.contains(&deletion.pod) && pod.was_selected(spec, *at);
    grounds.lists.iter().any(is_listed) && pod.is_restartable(spec)
}

/// A restart without a request deletes only pods for a source that has changed, is a source still, and to which they refer
/// if it was discovered as the restart began.
fn only_pods_that_refer_are_deleted(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let (book, pod, spec) = (&ledger.books[grounds.book], &ledger.pods[deletion.pod], &grounds.seen.spec);
    let Some(begun) = grounds.seen.status.begun().filter(|begun| begun.request.is_none()) else { return true };
    let is_source = |name: &str| discovers(spec, name) || names(spec, name);
    let concerns = |change: &Change| is_source(&change.name) && (!change.is_discovered || pod.refers_to(&change.name));
    if !begun.changes.iter().any(concerns) {
        return false;
    }
    let Some(start) = book.start_of(begun).filter(|_| begun.changes.iter().all(|change| change.is_discovered)) else {
        return true;
    };
    // The source may have been edited while the restart was pending.
    let since = begun.since().minus(A_SECOND + ledger.skew).as_second();
    let since = Moment { step: 0, ms: u64::try_from(since).unwrap_or(0) * 1000 };
    book.specs_between(since, start.at).any(|spec| pod.is_in_scope(spec))
}

/// Nothing is deleted under `suspend`, nor while the last reading says that the ConfigMap does not exist. A discovered one
/// holds only the pods that refer to it.
fn nothing_is_deleted_while_the_restart_is_held(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let Grounds { seen, missing, .. } = grounds;
    let refers = |its| ledger.pods[deletion.pod].refers_to(its);
    let holds = |missing: &Source| missing.config_maps().any(|its| !discovers(&seen.spec, its) || refers(its));
    seen.spec.suspend != Some(true) && !missing.as_ref().is_some_and(holds)
}

/// The sources are read from the pods: what one refers to that a restart could replace is a source in the end.
fn what_pods_refer_to_is_discovered(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let Some(End { spec, status, alive, .. }) = book.end.as_ref().filter(|end| end.spec.discover.is_some()) else {
        return Ok(());
    };
    let ours =
        alive.iter().map(|pod| &ledger.pods[*pod]).filter(|pod| pod.is_selected(spec) && pod.is_restartable(spec));
    let is_known = |name: &str| Keys::Both.names().iter().all(|key| status.covers(name, key));
    let lacks = |pod: &&PodRecord| {
        let is_new = |name: &str| discovers(spec, name) && pod.refers_to(name) && !is_known(name);
        CONFIG_MAPS.into_iter().any(is_new)
    };
    ours.clone().find(lacks).map_or(Ok(()), |pod| Err(format!("{pod:?} refers to a source that is none: {status:?}")))
}

/// No story lasts for a day.
fn a_discovered_source_is_forgotten_only_once_it_is_gone(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in &book.writes {
        let is_known = |name: &str| write.after.sources.iter().any(|known| known.name == name);
        let forgotten = write.before.sources.iter().filter(|known| known.discovered && known.hash.is_some());
        for known in forgotten.filter(|known| discovers(&write.spec, &known.name) && !is_known(&known.name)) {
            if !ledger.has_been_missing(&known.name, write.at) {
                return Err(format!("at {:?} {known:?}", write.at));
            }
        }
    }
    Ok(())
}

/// Rule 3. No pod is deleted that was created after the list for the change of each source that it refers to, and for the
/// request. If the API server has forgotten a list, creation times decide, with the tolerance for clock skew.
fn no_new_pod_is_deleted(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let (restart, pod) = (grounds.seen.status.restart.as_ref(), &ledger.pods[deletion.pod]);
    restart.is_some_and(|restart| {
        let refers = |change: &&Change| !change.is_discovered || pod.refers_to(&change.name);
        let of_request = restart.request.iter().map(|request| request.observed_at);
        let mut times = restart.changes.iter().filter(refers).map(|change| change.observed_at).chain(of_request);
        let by_times = grounds.by_times && times.any(|at| pod.created <= at.plus(SKEW));
        by_times || ledger.is_meant(pod, restart, |_| true)
    })
}

/// Returns when the latest of a restart's lists was made. A change that goes on may have an earlier one than a request.
fn latest_list(ledger: &Ledger, restart: &Restart) -> Option<Moment> {
    let of_changes = restart.changes.iter().map(|change| &change.pods_resource_version);
    let lists = of_changes.chain(restart.request.iter().map(|request| &request.pods_resource_version));
    lists.filter_map(|version| ledger.list(version.as_ref()?)).max()
}

/// Rule 4. A restart does not delete a pod that it created. If the API server has forgotten the list, creation times
/// decide (exception 7).
fn a_restart_deletes_no_pod_that_it_created(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let listed = grounds.seen.status.begun().and_then(|begun| latest_list(ledger, begun));
    grounds.by_times || listed.is_none_or(|listed| ledger.pods[deletion.pod].born < listed)
}

/// The rules above rely on this one: `observedAt` is the time of an answer that carried the content, and
/// `interruptedAt` that of one with other content.
fn observed_at_is_when_the_content_was_read(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in &book.writes {
        let Some(restart) = &write.after.restart else { continue };
        if ledger.restored.iter().any(|restored| *restored < write.at) || ledger.forgetful.contains_key(&write.life) {
            // After a restore the keys are unknown: the process may not have read the restored spec yet.
            continue;
        }
        let was_whole = |earlier: &&Write| earlier.at < write.at && earlier.after.interrupted().is_none();
        let whole = book.writes.iter().rfind(was_whole).filter(|_| write.before.interrupted().is_some());
        let differs = |its: &Write| its.after.watched() != write.after.watched();
        let since = whole.map(|whole| whole.at..write.at);
        if since.is_some_and(|since| book.writes.iter().any(|its| since.contains(&its.at) && differs(its))) {
            // The spec has changed the sources in the interruption.
            continue;
        }
        let before = write.before.restart.as_ref();
        let was_read = |time: ServerTime, is_own: bool| {
            let mut readings =
                book.readings.iter().filter(|reading| reading.life == write.life && reading.at < write.at);
            let mut before = None;
            readings.any(|reading| {
                let (since, until) = (before.replace(reading.at), reading.at.second());
                // Sources that are read for the first time may come one after the other. Of two answers together, the
                // earlier may be received second.
                let are_together = since.is_some_and(|since| since.ms + TOGETHER >= reading.at.ms);
                let since = since.map(Moment::second);
                let one_by_one = reading.is_first() || are_together;
                let one_by_one = one_by_one && since.is_none_or(|since| since <= time) && time <= until;
                // A missing source has its last hash, and the time of what was read beside it.
                let mut together = restart.changes.iter().filter(|change| change.observed_at == time);
                (one_by_one || reading.seconds().any(|at| [at, at.plus(ledger.skew)].contains(&time)))
                    && if is_own && !restart.changes.is_empty() {
                        together.any(|change| reading.has_hash(&change.name, &change.hash))
                    } else {
                        (hash(reading.content) == restart.config_hash()) == is_own
                    }
            })
        };
        if let Some((_, at)) = write.after.interrupted() {
            // A process that goes on with an interruption knows the time from the status.
            let is_known = before.is_some_and(|before| before.interrupted_at == Some(at));
            if !is_known && !was_read(at, false) {
                return Err(format!("at {:?} no answer has this time and other content: {restart:?}", write.at));
            }
        }
        // What is left once another source went back was read before.
        let is_left = |before: &Restart| restart.changes.last().is_some_and(|last| before.changes.contains(last));
        if before.is_some_and(|before| before.observed_at() == restart.observed_at() || is_left(before)) {
            continue;
        }
        let asked = book
            .requests
            .iter()
            .filter(|(at, value)| *at < write.at && restart.request.as_ref().is_some_and(|it| it.value == *value));
        let room = A_SECOND + ledger.skew;
        let mut asked = asked.map(|(at, _)| at.second());
        if asked.any(|at| (at.minus(room)..=write.at.second().plus(room)).contains(&restart.observed_at())) {
            continue;
        }
        // Of what is discovered, nobody knows which answers make a reading.
        let mut sources = write.before.sources.iter().chain(&write.after.sources);
        if sources.any(|known| known.discovered) && write.before.watched() != write.after.watched() {
            continue;
        }
        // A missing source has its last hash, even if that was about other keys.
        let is_known = restart
            .changes
            .last()
            .is_none_or(|change| book.readings.iter().any(|reading| reading.has_hash(&change.name, &change.hash)));
        if is_known && !was_read(restart.observed_at(), true) {
            return Err(format!("at {:?} no answer has this time: {restart:?}", write.at));
        }
    }
    Ok(())
}

/// Holds whatever the answer to the eviction is.
fn an_eviction_is_not_turned_into_a_deletion(_: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    deletion.evicted || grounds.seen.spec.deletion_policy != Some(DeletionPolicy::Evict)
}

/// A restart begins once the process has read unchanged content for the quiet period, or ten periods after the first of
/// many changes. A restart that continues because its content has come back needs no other period. A keeper that reads
/// the content for the first time goes by the time in the status, which is a whole second.
fn nothing_is_deleted_within_the_quiet_period(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let (Some(changed), Some(restart)) = (grounds.changed, &grounds.seen.status.restart) else { return true };
    if restart.request.is_some() && grounds.seen.status.config_hash() == Some(restart.config_hash()) {
        // Without a change there is no quiet period.
        return true;
    }
    // Nobody knows whether the keeper of this ConfigMonitor has forgotten what it had read.
    if ledger.is_forgetful(deletion.life, deletion.at) {
        return true;
    }
    let is_of_it = restart.config_hash() == hash(changed.content) && restart.observed_at() >= changed.at.second();
    // The source was edited in the quiet period: the first content of the new source replaced that of the old one.
    let took_over = |write: &Write| {
        let after = write.after.restart.as_ref();
        write.before.watched() != write.after.watched()
            && after.is_some_and(|after| after.config_hash() == restart.config_hash())
    };
    // Another process read the content earlier and began the restart after its quiet period, or the restart began with
    // an earlier reading and continues.
    let mut writes = ledger.books[grounds.book].writes.iter();
    let is_it = |write: &&Write| write.after.begun().is_some_and(|begun| begun.started_at == restart.started_at);
    let began = writes.clone().find(is_it);
    // The canaries had failed, or the restart was already pending for this content, and somebody has requested a
    // restart.
    let is_same = |before: &Restart| {
        let is_older = before.has_begun() || before.observed_at() < changed.at.second();
        restart.extends(before) && is_older
    };
    let is_again = |write: &Write| write.before.restart.as_ref().is_some_and(is_same);
    if restart.request.is_some() && began.is_some_and(is_again) {
        return true;
    }
    let is_own = began.is_none_or(|write| write.life == deletion.life && write.at > changed.at);
    // Its keeper had this content before, and has not read what another keeper of its process did.
    let is_this = |it: &Restart| (it.config_hash(), it.observed_at()) == (restart.config_hash(), restart.observed_at());
    let interrupts = |write: &Write| write.after.interrupted().is_some_and(|(_, at)| at == restart.observed_at());
    let has_it = |write: &&Write| write.after.restart.as_ref().is_some_and(is_this) || interrupts(write);
    let mut since = writes.clone().rev().skip_while(|write| write.at >= deletion.at).take_while(has_it);
    let was_known = since.any(|write| write.life == deletion.life && write.at < changed.at);
    if !is_of_it || !is_own || was_known || writes.any(took_over) {
        return true;
    }
    let specs = ledger.books[grounds.book].specs_between(changed.at, deletion.at);
    let least = Duration::from_secs(specs.filter_map(|spec| spec.quiet_period_seconds).min().unwrap_or(0).into());
    let least = least.saturating_sub(ledger.skew);
    if changed.at_first_look && deletion.at.second() >= restart.observed_at().plus(least) {
        return true;
    }
    let least = u64::try_from(least.as_millis()).unwrap();
    deletion.at.ms >= (changed.received_at.ms + least).min(changed.first_at.ms + 10 * least)
}

/// Rule 4. In one place all restarts together delete no more pods than there were changes and requests, with one
/// process or two. After a restore a restart may be made again. By creation times, a new pod may be deleted or handed over.
fn once_per_change(ledger: &Ledger) -> Result<(), String> {
    let mut in_place: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let by_times = |it: &Deletion| it.grounds.iter().any(|grounds| grounds.by_times);
    let of_pod = |pod: usize| ledger.handed_over.iter().filter(move |it| it.pod == pod);
    let counts = |deletion: &&Deletion| !by_times(deletion) && !of_pod(deletion.pod).any(by_times);
    for deletion in ledger.deletions.iter().filter(counts) {
        *in_place.entry(ledger.pods[deletion.pod].place).or_default() += 1;
    }
    // An absence has no version: a process that has not read the content in between takes two of them for one.
    let merged = ledger.absences().saturating_sub(1);
    let changes = |book: &Book| book.changes().count() + book.requests.len() + ledger.restored.len() + merged;
    let changes: usize = ledger.books.iter().map(changes).sum();
    if in_place.values().any(|deletions| *deletions > changes) {
        return Err(format!("with {changes} changes and requests, deletions in each place: {in_place:?}"));
    }
    Ok(())
}

/// With a budget an available pod is deleted only if its owner, and all together, then lack no more pods than it allows.
fn never_over_the_budget(ledger: &Ledger) -> Result<(), String> {
    match ledger.deletions.iter().find(|deletion| deletion.over_budget > 0) {
        Some(Deletion { at, pod, over_budget, .. }) => {
            Err(format!("at {at:?} the deletion of {:?} exceeded the budget by {over_budget}", ledger.pods[*pod]))
        }
        None => Ok(()),
    }
}

/// Returns the selected pods that run with outdated content in the end, each with the exception that explains it.
fn stale_pods(ledger: &Ledger, book: &Book) -> Vec<(usize, Option<Exception>)> {
    let Some(End { spec, source, content, alive, .. }) = &book.end else { return Vec::new() };
    let ours = |pod: &&usize| ledger.pods[**pod].is_selected(spec) && ledger.pods[**pod].is_restartable(spec);
    // What a pod does not refer to is not its content.
    let in_scope = |pod: &usize| {
        let part = ledger.pods[*pod].its_part(spec, *source)?;
        let now = part.known(|config_map| source.of_part(part.only(|name| name == config_map)?, *content))?;
        Some((*pod, part, now))
    };
    let is_stale = |(pod, part, now): &(usize, Source, Content)| {
        ledger.first_content(*part, *pod).is_some_and(|(_, its)| its != *now)
    };
    let stale = alive.iter().filter(ours).filter_map(in_scope).filter(is_stale);
    stale.map(|(pod, part, now)| (pod, excuse(ledger, book, part, now, pod))).collect()
}
