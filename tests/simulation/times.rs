//! The rules about when restarts begin and which pods go first: windows, the interval, the guard against loops,
//! canaries, requests.

use std::collections::BTreeSet;
use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::monitor::window::WindowSpec;

use crate::ledger::{Book, Deletion, Grounds, Ledger, Moment, Nature, PodRecord, SKEW, Write};
use crate::status::{Canary, Restart};
use crate::store::Selection;

/// The guard against loops: after 5 restarts within 10 minutes the next one waits for 30 s, and each later one twice as
/// long, up to 15 minutes.
const LOOP: usize = 5;
const TEN_MINUTES: Duration = Duration::from_secs(600);
const FIRST_WAIT: u64 = 30;
const LONGEST_WAIT: u64 = 900;

/// Returns the restarts that begin without a request, each with the write that begins it.
fn unrequested(book: &Book) -> impl Iterator<Item = (&Write, &Restart)> {
    book.writes
        .iter()
        .filter_map(|write| Some((write, write.start()?)))
        .filter(|(_, restart)| restart.request.is_none())
}

/// A restart without a request begins while a window is open by the clock of one of the API servers, at some time
/// between the last list of the process and the write. These clocks show whole seconds.
pub(crate) fn a_restart_begins_in_a_window(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for (write, restart) in unrequested(book).filter(|(write, _)| !write.spec.windows.is_empty()) {
        let from = write.listed.max(write.shared).unwrap_or(write.at).ms / 1000;
        let until = write.sent / 1000 + ledger.skew.as_secs();
        let is_open = |second: u64| write.spec.windows.iter().any(|window| is_open(window, second));
        if !(from - 1..=until).any(is_open) {
            return Err(format!("at {:?} none of {:?} was open: {restart:?}", write.at, write.spec.windows));
        }
    }
    Ok(())
}

/// Returns whether a window of the stories is open. They all recur at multiples of a minute.
fn is_open(window: &WindowSpec, second: u64) -> bool {
    let period = match &*window.schedule {
        "* * * * *" => 60,
        "*/2 * * * *" => 120,
        "0 0 1 1 *" => 365 * 24 * 3600,
        other => panic!("no story has {other:?}"),
    };
    second % period < window.duration_seconds.unsigned_abs()
}

/// Returns the starts that the status still shows at this write, and that neither a wipe nor a restore has removed.
fn starts_before<'a>(book: &'a Book, write: &'a Write) -> impl Iterator<Item = (&'a Write, &'a Restart)> {
    let is_past = |undone: Option<Moment>| undone.is_none_or(|undone| undone > write.at);
    let wiped = book.wiped.iter().filter(|(at, undone)| *at < write.at && is_past(*undone)).map(|(at, _)| *at).max();
    let is_known = move |before: &&Write| before.at < write.at && Some(before.at) > wiped && is_past(before.undone);
    book.writes.iter().filter(is_known).filter_map(|before| Some((before, before.start()?)))
}

fn started_at(restart: &Restart) -> ServerTime {
    restart.started_at.expect("it has begun")
}

/// The interval counts from the start of one restart to the start of the next one without a request.
pub(crate) fn a_restart_begins_once_the_interval_is_over(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for (write, restart) in unrequested(book) {
        let interval = Duration::from_secs(write.spec.min_interval_seconds.unwrap_or(0).unsigned_abs());
        let Some((_, last)) = starts_before(book, write).last().filter(|_| !interval.is_zero()) else { continue };
        if started_at(restart).plus(ledger.skew) < started_at(last).plus(interval) {
            return Err(format!("at {:?} too early: {restart:?} begins after {last:?}", write.at));
        }
    }
    Ok(())
}

/// The guard against loops, counted from the starts. `minIntervalSeconds` replaces it.
pub(crate) fn a_loop_of_restarts_is_held(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for (write, restart) in unrequested(book).filter(|(write, _)| write.spec.min_interval_seconds.unwrap_or(0) == 0) {
        let starts: Vec<_> = starts_before(book, write).collect();
        let Some((_, last)) = starts.last() else { continue };
        let Some(wait) = wait_after(&starts).filter(|_| !is_forgotten(started_at(last), restart)) else { continue };
        let due = started_at(last).max(restart.since).plus(Duration::from_secs(wait));
        if started_at(restart).plus(ledger.skew) < due {
            return Err(format!("at {:?}, but due at {due:?}: {restart:?} begins after {last:?}", write.at));
        }
    }
    Ok(())
}

/// Returns whether nothing had changed for ten minutes when the restart became necessary.
fn is_forgotten(last: ServerTime, restart: &Restart) -> bool {
    restart.since.since(last) >= TEN_MINUTES
}

/// Returns for how many seconds the next restart must wait.
fn wait_after(starts: &[(&Write, &Restart)]) -> Option<u64> {
    let mut wait = None;
    for (number, (write, restart)) in starts.iter().enumerate() {
        let at = started_at(restart);
        let recent = starts[..number].iter().filter(|(_, before)| at.since(started_at(before)) < TEN_MINUTES).count();
        let goes_on = number > 0 && !is_forgotten(started_at(starts[number - 1].1), restart);
        wait = match wait {
            _ if write.spec.min_interval_seconds.unwrap_or(0) > 0 => None,
            Some(before) if goes_on => Some(u64::min(before * 2, LONGEST_WAIT)),
            _ => (recent + 1 >= LOOP).then_some(FIRST_WAIT),
        };
    }
    wait
}

/// The number of canaries is fixed when the restart begins. `Passed` and `Failed` are final.
pub(crate) fn the_outcome_of_canaries_is_final(_: &Ledger, book: &Book) -> Result<(), String> {
    let order = |state: &str| ["Replacing", "Baking", "Passed"].iter().position(|known| *known == state);
    for write in &book.writes {
        let (Some(before), Some(after)) = (write.before.begun(), write.after.begun()) else { continue };
        let is_right = |before: &Canary, after: &Canary| {
            let goes_on = match (&*before.state, &*after.state) {
                (one, other) if one == other => true,
                ("Failed" | "Passed", _) => false,
                (_, "Failed") => true,
                // The bake time begins anew.
                ("Baking", "Replacing") => write.goes_on().is_some(),
                (one, other) => order(one) < order(other),
            };
            after.pods == before.pods && goes_on
        };
        let is_right = match (&before.canary, &after.canary) {
            (Some(before), Some(after)) => is_right(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if before.which().is_some() && before.which() == after.which() && !is_right {
            return Err(format!("at {:?} from {before:?} to {after:?}", write.at));
        }
    }
    Ok(())
}

/// The other pods may go once all canaries are gone and all their successors have been available for long enough,
/// without a restart of a container, by a list that the process has made.
pub(crate) fn canaries_pass_if_they_stay_available(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let has_passed = |restart: &Restart| restart.canary.as_ref().is_some_and(|canary| canary.state == "Passed");
    // A pod that a restore brings back is a new record here, and the same pod for the operator.
    let is_known = |write: &&Write| !write.by_times && !ledger.restored.iter().any(|restored| *restored < write.at);
    for write in book.writes.iter().filter(is_known) {
        let Some(begun) = write.after.begun().filter(|begun| has_passed(begun)) else { continue };
        if write.before.begun().is_some_and(|before| has_passed(before) && before.which() == begun.which()) {
            continue;
        }
        let Some(list) = begun.pods_resource_version.as_ref().and_then(|version| ledger.list(version)) else {
            continue;
        };
        let is_start = |its: &&Write| its.start().is_some_and(|start| start.which() == begun.which());
        let began = book.writes.iter().rfind(is_start).map_or(list, |its| its.listed.max(its.shared).unwrap_or(list));
        // A task does not know the lists that other tasks of its process have made since.
        let from = write.listed.or(write.shared);
        let bake = write.spec.canary.as_ref().map_or(0, |its| its.bake_seconds.unsigned_abs());
        // A kubelet sets the time at which a pod becomes available.
        let bake = Duration::from_secs(bake).saturating_sub(ledger.skew);
        // An interruption does not count.
        let goes_on =
            |its: &&Write| its.at < write.at && its.goes_on().is_some_and(|(on, _)| on.which() == begun.which());
        let gone_on = book.writes.iter().rfind(goes_on).map_or(0, |its| its.at.ms);
        if !ledger
            .moments(from.unwrap_or(list), write.at)
            .chain(write.shared)
            .any(|at| is_baked(ledger, begun, (list, began), (bake, gone_on), write, at))
        {
            return Err(format!("at {:?} they had not passed: {begun:?}", write.at));
        }
    }
    Ok(())
}

/// Returns whether the canaries had passed at this moment. The restart is about the pods of its list that still existed
/// when it began.
fn is_baked(
    ledger: &Ledger,
    begun: &Restart,
    (list, began): (Moment, Moment),
    (bake, gone_on): (Duration, u64),
    write: &Write,
    at: Moment,
) -> bool {
    let selection = Selection::parse(begun.pod_selector.as_deref());
    let managed = || ledger.pods.iter().filter(|pod| pod.nature == Nature::Managed);
    let is_old = |pod: &&PodRecord| {
        pod.born < list && pod.gone.is_none_or(|gone| gone > list) && selection.matches(pod.labels_at(list))
    };
    let is_left = |pod: &&PodRecord| pod.gone.is_none_or(|gone| gone > began);
    let owners: BTreeSet<usize> = managed().filter(is_old).filter(is_left).map(|pod| pod.place.0).collect();
    let has_gone = |pod: &&PodRecord| pod.ended.is_some_and(|ended| ended <= at) || !pod.was_selected(&write.spec, at);
    let (old, gone) = (managed().filter(is_old).count(), managed().filter(is_old).filter(has_gone).count());
    let mut new = managed().filter(|pod| {
        let is_there = pod.born > list && pod.born <= at && pod.ended.is_none_or(|ended| ended > at);
        let is_there = is_there && has_to_prove(pod, begun);
        is_there && owners.contains(&pod.place.0) && pod.was_selected(&write.spec, at)
    });
    let canaries = begun.canary.as_ref().map_or(0, |canary| canary.pods);
    // The owners have created the pods that they still desire in place of the replaced ones.
    let have_come = write.desired.iter().filter(|(owner, _)| owners.contains(owner)).all(|(owner, desired)| {
        let of_it = |pod: &&PodRecord| pod.place.0 == *owner;
        let had = managed().filter(is_old).filter(is_left).filter(of_it).count();
        let is_there = |pod: &&PodRecord| pod.born <= at && pod.ended.is_none_or(|ended| ended > at);
        managed().filter(of_it).filter(is_there).count() >= had.min(*desired)
    });
    have_come
        && gone >= canaries.min(old)
        && new.all(|pod| {
            let mut ready = pod.ready_times();
            let is_ready = ready.any(|(from, until)| {
                u128::from(at.ms - from.ms.max(gone_on).min(at.ms)) >= bake.as_millis()
                    && from <= at
                    && until.is_none_or(|until| until > at)
            });
            is_ready && pod.restarted.iter().all(|restarted| *restarted > at)
        })
}

/// Returns whether a pod was created after the restart began, within the clock skew.
fn has_to_prove(pod: &PodRecord, begun: &Restart) -> bool {
    begun.started_at.is_none_or(|began| pod.created.plus(SKEW) >= began)
}

/// A restart begins once for each value: the value was requested and is not the last one handled. A value recorded as
/// handled was requested.
pub(crate) fn a_request_is_handled_once(_: &Ledger, book: &Book) -> Result<(), String> {
    for write in &book.writes {
        let is_requested =
            |value: &str| book.requests.iter().any(|(at, asked)| *at < write.at && value.chars().eq([*asked]));
        let handled = write.before.last_handled_restart_request.as_deref();
        let started = write.start().and_then(|restart| restart.request.as_deref());
        // Another value may have come in between and been superseded by other content, or that content takes over the
        // request.
        let is_earlier =
            |other: &&Write| other.at < write.at && other.start().is_some_and(|start| start.request.is_some());
        let last =
            book.writes.iter().rfind(is_earlier).and_then(Write::start).and_then(|start| start.request.as_deref());
        let is_again = started.is_some() && started == handled && last.is_none_or(|last| Some(last) == started);
        let taken_over = write.before.restart.as_ref().and_then(|restart| restart.request.as_deref());
        let is_again = is_again && taken_over != started;
        let done = write.after.last_handled_restart_request.as_deref();
        if is_again || started.into_iter().chain(done).any(|value| !is_requested(value)) {
            return Err(format!("at {:?}, after {handled:?}: {:?}", write.at, write.after));
        }
    }
    Ok(())
}

/// Until the canaries have passed, no more pods are deleted than there are canaries, as far as the process knows by its
/// own deletions and its lists.
pub(crate) fn the_canaries_go_first(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let Some(begun) = grounds.seen.status.begun() else { return true };
    // Without `spec.canary` nobody waits for the canaries.
    let canary = begun.canary.as_ref().filter(|canary| canary.state != "Passed" && grounds.seen.spec.canary.is_some());
    // If the API server has forgotten the list of the restart, nobody knows which pods went first (exception 7).
    let Some(canary) = canary.filter(|_| !grounds.by_times) else { return true };
    let listed = grounds.lists.iter().map(|(at, _)| *at).max();
    let is_of_it = |other: &&Deletion| {
        let is_same = |its: &Grounds| {
            its.book == grounds.book && its.seen.status.begun().is_some_and(|other| other.which() == begun.which())
        };
        let is_known = other.life == deletion.life || Some(other.at) < listed;
        other.pod != deletion.pod && other.at < deletion.at && is_known && other.grounds.iter().any(is_same)
    };
    // If all new pods are gone again, as after scaling down, another pod must prove the content.
    let Some(list) = begun.pods_resource_version.as_ref().and_then(|version| ledger.list(version)) else { return true };
    let (at, selection) = (listed.unwrap_or(deletion.at), Selection::parse(begun.pod_selector.as_deref()));
    let managed = || ledger.pods.iter().filter(|pod| pod.nature == Nature::Managed);
    let is_there = |pod: &&PodRecord, at: Moment| pod.born < at && pod.ended.is_none_or(|ended| ended > at);
    let is_old = |pod: &&PodRecord| is_there(pod, list) && selection.matches(pod.labels_at(list));
    // Pods that others replaced before the restart began are not part of it.
    let is_left = |pod: &&PodRecord| pod.ended.is_none_or(|ended| Some(ended.second()) >= begun.started_at);
    let owners: BTreeSet<usize> = managed().filter(is_old).filter(is_left).map(|pod| pod.place.0).collect();
    let is_new = |pod: &&PodRecord| pod.born > list && has_to_prove(pod, begun) && is_there(pod, at);
    let mut new = managed().filter(is_new).filter(|pod| owners.contains(&pod.place.0));
    let is_proven_by_none = !new.any(|pod| pod.was_selected(&grounds.seen.spec, at));
    is_proven_by_none || ledger.deletions.iter().filter(is_of_it).count() < canary.pods
}

pub(crate) fn nothing_is_deleted_after_a_canary_has_failed(_: &Ledger, _: &Deletion, grounds: &Grounds) -> bool {
    !grounds.seen.status.has_failed_canaries()
}
