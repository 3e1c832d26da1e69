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

use configmonitor_operator::monitor::spec::{DeletionPolicy, Spec};
use rules::status::{Restart, Status};
use rules::{A_SECOND, Event, Moment, reported};

use simulated_cluster::content::{CONFIG_MAPS, Content, Keys, Source, discovers, hash};
use simulated_cluster::ledger::{Answer, Book, Deletion, End, Grounds, Ledger, Owed, PodRecord, Reading, Write};
use simulated_cluster::store::Selection;

use self::exceptions::{Exception, excuse};

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

/// The most milliseconds that a list takes, unless it is late.
const A_LIST: u64 = 5;

const RULES: [(&str, Rule); 16] = [
    ("no change is lost", no_change_is_lost),
    ("the end is reached", the_end_is_reached),
    ("no hash is recorded while an old pod is alive", no_hash_is_recorded_while_an_old_pod_is_alive),
    (
        "a restart ends once the owners have their desired replicas available",
        a_restart_ends_once_the_owners_have_their_desired_replicas,
    ),
    ("the journal has the times of the readings", the_journal_has_the_times_of_the_readings),
    (
        "a restart begins once its content has been quiet",
        interruptions::a_restart_begins_once_its_content_has_been_quiet,
    ),
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

const DELETION_RULES: [(&str, DeletionRule); 10] = [
    ("the intent comes first", the_intent_comes_first),
    ("nothing is deleted for a deleted ConfigMonitor", nothing_is_deleted_for_a_deleted_config_monitor),
    ("only selected pods are deleted", only_selected_pods_are_deleted),
    ("nothing is deleted while the restart is held", nothing_is_deleted_while_the_restart_is_held),
    ("only pods that may have other content are deleted", only_pods_that_may_have_other_content_are_deleted),
    ("an eviction is not turned into a deletion", an_eviction_is_not_turned_into_a_deletion),
    ("nothing is deleted for other content", interruptions::nothing_is_deleted_for_other_content),
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
    let (pod, status) = (&ledger.pods[*pod], &grounds.seen.status);
    Err(format!("{name}: at {at:?}, {pod:?} was deleted for {status:?}"))
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
        let Some(completed) = write.completes(ledger) else {
            if write.after.advances(&write.before) {
                return Err(format!("at {:?} without the end of a restart: {:?}", write.at, write.after));
            }
            continue;
        };
        let owed = |pod: &&usize| completed.owes(ledger, book, write, **pod) == Owed::Replacement;
        if let Some(pod) = write.alive.iter().find(owed) {
            return Err(format!("at {:?} {:?} was alive: {:?}", write.at, ledger.pods[*pod], write.before));
        }
    }
    Ok(())
}

/// Rule 1. The write that completes a restart comes once all old pods are gone or terminating, when each of their owners
/// has its desired replicas available. A request that finds no pod to replace ends the previous restart and does not count
/// itself.
fn a_restart_ends_once_the_owners_have_their_desired_replicas(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| write.result() == Some("Completed")) {
        let handled = write.after.last_handled_restart_request.as_ref();
        let own = write.before.request().map(|request| &request.value);
        if handled != write.before.last_handled_restart_request.as_ref() && handled != own {
            continue;
        }
        let completed = write.completes(ledger);
        if completed.is_some_and(|completed| !completed.was_over(ledger, book, write)) {
            return Err(format!(
                "at {:?} pods were missing or left: {:?}, then {:?}",
                write.at, write.before, write.after
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
        let is_for = |status: &Status| status.request().map(|request| &request.value) == handled;
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
        let is_of_it =
            |deletion: &&Deletion| write.knows_of(deletion) && deletion.at < write.at && deletion.is_of(ledger, book);
        let deleted = ledger.deletions.iter().filter(is_of_it).map(|deletion| deletion.at.second());
        let deadline = Duration::from_secs(write.spec.progress_deadline_seconds.unwrap_or(600).into());
        // An interruption does not count for a process that has seen it.
        let quiet = Duration::from_secs(write.spec.quiet_period_seconds.unwrap_or(0).into());
        let interrupts = |its: &&Write| its.at < write.at && its.life == write.life && its.appends();
        let seen = book.writes.iter().filter(interrupts).filter(|its| its.after.which() == write.after.which());
        let gone_on = seen.filter_map(|its| its.after.quiet_until(quiet)).max();
        // A canary that passes is progress.
        let passes =
            |status: &Status| status.which() == write.after.which() && status.begun().is_some_and(canaries::has_passed);
        let passed = book.writes.iter().filter(|its| its.at < write.at && passes(&its.after) && !passes(&its.before));
        let progress = passed.map(|its| its.at.second()).chain(gone_on);
        let due = began.into_iter().chain(deleted).chain(progress).max();
        let due = due.map(|last| last.plus(deadline));
        if due.is_none_or(|due| due > write.at.second().plus(A_SECOND + ledger.skew)) {
            return Err(format!("at {:?}, but due at {due:?}: {:?}", write.at, write.after));
        }
    }
    Ok(())
}

fn each_event_is_emitted_once(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let events: Vec<&Event> = book.events.iter().collect();
    reported::each_event_is_emitted_once(&book.account(ledger.skew), &events)
}

/// Rule 4. The intent is in the status before the first pod is deleted.
fn the_intent_comes_first(_: &Ledger, _: &Deletion, grounds: &Grounds) -> bool {
    grounds.seen.status.begun().is_some()
}

/// Any change of `status.pods` matches a list that the process has read since the previous change.
fn the_number_of_pods_comes_from_a_list(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let counts = |write: &&Write| write.after.pods.is_some() && write.after.pods != write.before.pods;
    for write in book.writes.iter().filter(counts) {
        // A restore undoes writes, and the process may write the same number again.
        let stands = |earlier: &&Write| earlier.at < write.at && earlier.undone.is_none_or(|undone| undone > write.at);
        let counted = book.writes.iter().filter(counts).rfind(stands).map(|earlier| earlier.at);
        if !ledger.listed_counts(write, counted).any(|count| Some(count) == write.after.pods) {
            return Err(format!("at {:?} no list has this number: {:?}", write.at, write.after));
        }
    }
    Ok(())
}

/// The number of pods that remain in a restart was true at some moment since the last list.
fn the_pods_that_remain_were_there(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| !write.by_times) {
        let was_known = |begun: &Restart| {
            let is_same = |it: &Restart| it.remaining == begun.remaining && it.progress == begun.progress;
            write.before.which() == write.after.which() && write.before.begun().is_some_and(is_same)
        };
        let Some(begun) = write.after.begun().filter(|begun| !was_known(begun)) else { continue };
        // While other content interrupts a restart, the number is about the content that it has begun for.
        let is_clear = !write.after.has_reverted() && write.after.unmarked().next().is_none();
        let is_known = is_clear && ledger.restored.iter().all(|restored| *restored > write.at);
        let Some(list) = ledger.last_listed(&write.after).filter(|_| is_known) else { continue };
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
                && ledger.is_stale((&write.after, &write.spec), pod, (false, write.at))
        };
        // A pod that had lost its labels as the restart began is not part of it.
        let began = book.start_of(&write.after).and_then(|start| start.listed.max(start.shared)).unwrap_or(list);
        let is_part = |pod: &PodRecord| selection.matches(pod.labels_at(began));
        let counts = |at: Moment| {
            let there = ledger.pods.iter().filter(is_old).filter(|pod| pod.ended.is_none_or(|ended| ended > at));
            let there: Vec<_> = there.filter(|pod| pod.was_selected(&write.spec, at)).collect();
            let least = there.iter().filter(|pod| is_part(pod)).count();
            // What another keeper is deleting counts as deleted.
            if ledger.books.len() > 1 { 0..=there.len() } else { least..=there.len() }
        };
        // A list may overtake the write.
        let from = write.went_by.unwrap_or(list).ms - A_LIST;
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
        let Some(entry) = write.recorded().find(|entry| Some(entry.number) == begun.number) else { continue };
        let is_start = |its: &&Write| its.at < write.at && its.start().is_some();
        let Some(began) = book.writes.iter().rfind(is_start) else { continue };
        let is_meanwhile = |at: Moment| (began.at..write.at).contains(&at);
        // Another process that resumes the restart counts the pods gone by then, and writes that number for this
        // process.
        let is_of_others = book.writes.iter().any(|its| its.life != write.life && is_meanwhile(its.at));
        if is_of_others || !ledger.restored.is_empty() || write.by_times || ledger.unsure.contains(&write.life) {
            continue;
        }
        let of_process = ledger.deletions.iter().filter(|its| its.life == write.life && is_meanwhile(its.at));
        let own = of_process.clone().filter(|deletion| deletion.is_of(ledger, book));
        let own: BTreeSet<usize> = own.map(|its| its.pod).collect();
        let of_process: BTreeSet<usize> = of_process.map(|its| its.pod).collect();
        // A terminating pod may also run to its end before it is gone. Only the API server knows whether it was still
        // there.
        let again = ledger.deleted_again.iter().filter(|(at, life, _)| *life == write.life && is_meanwhile(*at));
        let again: BTreeSet<usize> = again.map(|(.., pod)| *pod).collect();
        let is_by_others = |(number, pod): &(usize, &PodRecord)| {
            let listed = began.listed.unwrap_or(began.at);
            let was_left = pod.born < began.at && pod.gone.is_none_or(|gone| gone > listed);
            let is_there = was_left || again.contains(number);
            // One that was handed over counts for its restart, whoever deletes it in the end, or if its labels have changed.
            let was_handed_over = !pod.handed_over.is_empty();
            let has_ended = pod.ended.is_some_and(|ended| ended < write.at) || was_handed_over && pod.labels.len() > 1;
            (is_there || was_handed_over) && has_ended && (!of_process.contains(number) || was_handed_over)
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

/// Rule 3. A deleted pod was listed in this pass, with the same UID. The spec, as read after that list, selected the
/// pod at the time of the list and does not exempt it.
fn only_selected_pods_are_deleted(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let (pod, spec) = (&ledger.pods[deletion.pod], &grounds.seen.spec);
    let is_listed =
        |(at, pods): &(Moment, Arc<BTreeSet<usize>>)| pods.contains(&deletion.pod) && pod.was_selected(spec, *at);
    grounds.lists.iter().any(is_listed) && pod.is_restartable(spec)
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

/// Rules 2 and 3. A pod is deleted only if it may have read content that is not the last one of a source that concerns it,
/// or is in the list of a request: by the status that the process saw. So no pod is deleted that is in no list, as those
/// that the restart has created, and a revert spares those that were there before the other content. If the API server
/// has forgotten a list, creation times decide (exception 7).
fn only_pods_that_may_have_other_content_are_deleted(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let Grounds { seen, by_times, .. } = grounds;
    ledger.is_stale((&seen.status, &seen.spec), &ledger.pods[deletion.pod], (*by_times, deletion.at))
}

/// The rules above rely on this one. `observedAt` is the time of an answer that carried the content, and `since` that of
/// an answer, too; or at a first look, when the content before was last known by the status.
fn the_journal_has_the_times_of_the_readings(ledger: &Ledger, book: &Book) -> Result<(), String> {
    // After a restore the keys are unknown: the process may not have read the restored spec yet.
    let is_known = |write: &&Write| {
        !ledger.restored.iter().any(|restored| *restored < write.at) && !ledger.forgetful.contains_key(&write.life)
    };
    for write in book.writes.iter().filter(is_known) {
        // Of what is discovered, nobody knows which answers make a reading.
        for known in write.after.sources.iter().filter(|known| !known.discovered) {
            let Some(change) = known.appended(&write.before) else { continue };
            // If the GET of one source fails, the answers about the others count all the same.
            let is_own = |its: &&Answer| its.life == write.life && its.config_map == known.name && its.at < write.at;
            let own = || ledger.answers.iter().filter(is_own);
            let is_at = |its: &Answer, time| [its.at.second(), its.at.second().plus(ledger.skew)].contains(&time);
            let carried = || own().filter(|its| its.has_hash(&change.hash));
            // An absence, or what a restore brings back, may seem older than what was read before.
            let before = write.before.of(known).and_then(|known| known.changes.last()).map(|last| last.observed_at);
            let is_late = |its: &Answer| Some(its.at.second()) < before && its.at.second() <= change.observed_at;
            let is_observed = carried().any(|its| is_at(its, change.observed_at) || is_late(its));
            let settled = write.before.settled_at.max(before).map(|settled| settled.min(change.observed_at));
            // The first content may not have been written down.
            let written = book.writes.iter().rfind(|its| its.life == write.life && its.at < write.at).map(|its| its.at);
            let is_new = |its: &&Reading| its.life == write.life && its.first_at() < write.at && its.may_be_first;
            let is_first = book.readings.iter().filter(is_new).any(|its| Some(write.time_of(its)) > written);
            let is_first = is_first || !known.has_keys_of(write.before.of(known));
            // The answer with which the process began may be about this source alone: that about another one failed.
            let is_first = is_first || own().next().is_some_and(|its| its.has_hash(&change.hash));
            // Another process has recorded other content since this one last read any.
            let recorded = write.before.of(known).and_then(|known| known.last());
            let earlier = own().rfind(|its| !its.has_hash(&change.hash));
            let is_first = is_first || earlier.zip(recorded).is_some_and(|(its, hash)| !its.has_hash(hash));
            let by_status = is_first && settled.is_none_or(|it| it == change.since);
            let is_known = || own().any(|its| is_at(its, change.since)) || by_status || before == Some(change.since);
            // A missing source may have the hash of other keys.
            if carried().next().is_some() && !(is_observed && is_known()) {
                return Err(format!("at {:?} no answer has these times: {change:?} of {}", write.at, known.name));
            }
        }
    }
    Ok(())
}

/// Holds whatever the answer to the eviction is.
fn an_eviction_is_not_turned_into_a_deletion(_: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    deletion.evicted || grounds.seen.spec.deletion_policy != Some(DeletionPolicy::Evict)
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
    let appended = |book: &Book| book.writes.iter().filter(|write| write.appends()).count();
    let changes = |book: &Book| appended(book) + book.requests.len() + ledger.restored.len();
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
