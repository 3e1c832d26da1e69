//! The rules about canaries that go by what a process knew: which pods go first, and when the others may follow.

use std::collections::BTreeSet;
use std::time::Duration;

use configmonitor_operator::monitor::spec::Spec;
use rules::Moment;
use rules::status::{Restart, Status};
use simulated_cluster::ledger::{Book, Deletion, Grounds, Knower, Ledger, Nature, PodRecord, SKEW, Write};
use simulated_cluster::store::Selection;

pub(crate) fn has_passed(restart: &Restart) -> bool {
    restart.canary.as_ref().is_some_and(|canary| canary.state == "Passed")
}

/// The other pods may go once all canaries are gone and all their successors have been available for long enough,
/// without a restart of a container, by a list that the process has made.
pub(crate) fn canaries_pass_if_they_stay_available(ledger: &Ledger, book: &Book) -> Result<(), String> {
    // A pod that a restore brings back is a new record here, and the same pod for the operator.
    let is_known = |write: &&Write| !write.by_times && !ledger.restored.iter().any(|restored| *restored < write.at);
    for write in book.writes.iter().filter(is_known) {
        let Some(begun) = write.after.begun().filter(|begun| has_passed(begun)) else { continue };
        if write.before.begun().is_some_and(has_passed) && write.before.which() == write.after.which() {
            continue;
        }
        let Some(list) = ledger.began_with(&write.after) else { continue };
        let start = book.start_of(&write.after);
        let began = start.map_or(list, |its| its.listed.max(its.shared).unwrap_or(list));
        let listed = write.listed.max(write.shared);
        let knower = Knower { life: write.life, actor: None, book, start, listed };
        // A task does not know the lists that other tasks of its process have made since.
        let from = write.listed.or(write.shared);
        let bake = write.spec.canary.as_ref().map_or(0, |its| its.bake_seconds.into());
        // A kubelet sets the time at which a pod becomes available.
        let bake = Duration::from_secs(bake).saturating_sub(ledger.skew);
        // An interruption does not count.
        let quiet = Duration::from_secs(write.spec.quiet_period_seconds.unwrap_or(0).into());
        let gone_on = write.after.quiet_until(quiet).map_or(0, |until| until.minus(ledger.skew).as_second());
        let gone_on = u64::try_from(gone_on).unwrap_or(0) * 1000;
        if !ledger
            .moments(from.unwrap_or(list), write.at)
            .chain(write.shared)
            .any(|at| is_baked(ledger, begun, (list, began), (bake, gone_on), (write, knower), at))
        {
            return Err(format!("at {:?} they had not passed: {begun:?}", write.at));
        }
    }
    Ok(())
}

/// What somebody else does to a pod or to its node is no verdict about the content: its pod must have failed by itself.
pub(crate) fn a_canary_fails_by_itself(ledger: &Ledger, book: &Book) -> Result<(), String> {
    let is_known = |write: &&Write| !ledger.restored.iter().any(|restored| *restored < write.at);
    for write in book.writes.iter().filter(is_known) {
        if write.before.has_failed_canaries() || !write.after.has_failed_canaries() {
            continue;
        }
        let Some(begun) = write.after.begun() else { continue };
        let has_failed = |pod: &PodRecord| has_to_prove(pod, begun) && pod.failures.iter().any(|at| *at < write.at);
        if !ledger.pods.iter().any(has_failed) {
            return Err(format!("at {:?} no pod had failed: {begun:?}", write.at));
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
    (write, knower): (&Write, Knower<'_>),
    at: Moment,
) -> bool {
    let selection = Selection::parse(begun.pod_selector.as_deref());
    let managed = || ledger.pods.iter().filter(|pod| pod.nature == Nature::Managed);
    let is_old = |pod: &&PodRecord| {
        let was_there = pod.born < list && pod.gone.is_none_or(|gone| gone > list);
        was_there && selection.matches(pod.labels_at(list)) && is_replaced(ledger, pod, &write.after, &write.spec)
    };
    // A pod that has lost its labels since the list is not part of the restart.
    let is_left =
        |pod: &&PodRecord| pod.gone.is_none_or(|gone| gone > began) && selection.matches(pod.labels_at(began));
    let owners: BTreeSet<usize> = managed().filter(is_old).filter(is_left).map(|pod| pod.place.0).collect();
    let has_gone = |pod: &&PodRecord| pod.ended.is_some_and(|ended| ended <= at) || !pod.was_selected(&write.spec, at);
    let (old, gone) = (managed().filter(is_old).count(), managed().filter(is_old).filter(has_gone).count());
    let proves = |pod: &PodRecord| {
        let is_stale = || ledger.is_stale((&write.after, &write.spec), pod, (false, at));
        has_to_prove(pod, begun) && owners.contains(&pod.place.0) && pod.was_selected(&write.spec, at) && !is_stale()
    };
    let all = || ledger.pods.iter().enumerate().filter(|(_, pod)| pod.nature == Nature::Managed);
    let mut new = all().filter(|(_, pod)| {
        let is_there = pod.born > list && pod.born <= at && pod.ended.is_none_or(|ended| ended > at);
        is_there && proves(pod)
    });
    let canaries = begun.canary.as_ref().map_or(0, |canary| canary.pods);
    // The owners have created the pods that they still desire in place of the replaced ones.
    let have_come = write.desired.iter().filter(|(owner, _)| owners.contains(owner)).all(|(owner, desired)| {
        let of_it = |pod: &&PodRecord| pod.place.0 == *owner;
        let had = managed().filter(is_old).filter(is_left).filter(of_it).count();
        let is_there = |pod: &&PodRecord| pod.born <= at && pod.ended.is_none_or(|ended| ended > at);
        managed().filter(of_it).filter(is_there).count() >= had.min(*desired)
    });
    // A StatefulSet may have replaced it before anybody sees it.
    let has_failed = |pod: &PodRecord| {
        let is_seen = pod.gone_by.is_none() && pod.born > list && pod.evicted.is_some_and(|evicted| evicted <= at);
        is_seen && proves(pod)
    };
    have_come
        && !managed().any(has_failed)
        && gone >= canaries.min(old)
        && new.all(|(number, pod)| {
            let mut ready = pod.ready.periods();
            let is_ready = ready.any(|(from, until)| {
                let since = ledger.counts_from(knower, (number, at), from).max(gone_on);
                u128::from(at.ms.saturating_sub(since)) >= bake.as_millis()
                    && from <= at
                    && until.is_none_or(|until| until > at)
            });
            is_ready && pod.restarted.iter().all(|restarted| *restarted > at)
        })
}

/// Returns whether the restart that is under way in a status replaces a pod, as it was planned.
pub(crate) fn is_replaced(ledger: &Ledger, pod: &PodRecord, status: &Status, spec: &Spec) -> bool {
    let start = ledger.books.iter().find_map(|book| book.start_of(status));
    let planned = start.and_then(|start| start.listed.max(start.shared)).or_else(|| ledger.began_with(status));
    planned.is_some_and(|planned| ledger.was_stale((status, spec), pod, planned))
}

/// Returns whether a pod was created after the restart began, within the clock skew.
fn has_to_prove(pod: &PodRecord, begun: &Restart) -> bool {
    begun.started_at.is_none_or(|began| pod.created.plus(SKEW) >= began)
}

/// Until the canaries have passed, no more pods are deleted than there are canaries, as far as the process knows by its
/// own deletions and its lists.
pub(crate) fn the_canaries_go_first(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let Some(begun) = grounds.seen.status.begun() else { return true };
    // Without `spec.canary` nobody waits for the canaries.
    let canary = begun.canary.as_ref().filter(|canary| canary.state != "Passed" && grounds.seen.spec.canary.is_some());
    // If the API server has forgotten the list of the restart, nobody knows which pods went first (exception 7).
    let Some(canary) = canary.filter(|_| !grounds.by_times) else { return true };
    let Grounds { seen, .. } = grounds;
    let Some(list) = ledger.began_with(&seen.status) else { return true };
    let listed = grounds.lists.iter().map(|(at, _)| *at).max();
    let is_of_it = |other: &&Deletion| {
        let is_same = |its: &Grounds| its.book == grounds.book && its.seen.status.which() == seen.status.which();
        let is_known = other.life == deletion.life || Some(other.at) < listed;
        // A process without that list may have deleted a pod that the restart had created (exception 7).
        let is_old = ledger.pods[other.pod].born < list;
        is_old && other.pod != deletion.pod && other.at < deletion.at && is_known && other.grounds.iter().any(is_same)
    };
    // A pod that a restore brings back is a new record here, and the same pod for the operator.
    if ledger.restored.iter().any(|restored| (list..deletion.at).contains(restored)) {
        return true;
    }
    let (at, selection) = (listed.unwrap_or(deletion.at), Selection::parse(begun.pod_selector.as_deref()));
    let managed = || ledger.pods.iter().filter(|pod| pod.nature == Nature::Managed);
    let is_there = |pod: &&PodRecord, at: Moment| pod.born < at && pod.ended.is_none_or(|ended| ended > at);
    let is_old = |pod: &&PodRecord| {
        is_there(pod, list)
            && selection.matches(pod.labels_at(list))
            && is_replaced(ledger, pod, &seen.status, &seen.spec)
    };
    // Pods that others replaced before the list with which the restart began are not part of it.
    let begins =
        ledger.books[grounds.book].writes.iter().rfind(|write| write.at < deletion.at && write.start().is_some());
    let began = begins.and_then(|write| write.listed);
    let is_left = |pod: &&PodRecord| pod.ended.is_none_or(|ended| Some(ended) > began);
    let owners: BTreeSet<usize> = managed().filter(is_old).filter(is_left).map(|pod| pod.place.0).collect();
    // What has read other content meanwhile proves nothing.
    let is_stale = |pod: &&PodRecord| ledger.is_stale((&seen.status, &seen.spec), pod, (false, at));
    let is_new = |pod: &&PodRecord| pod.born > list && has_to_prove(pod, begun) && is_there(pod, at) && !is_stale(pod);
    let mut new = managed().filter(is_new).filter(|pod| owners.contains(&pod.place.0));
    // If all new pods are gone again, as after scaling down, another pod must prove the content.
    let is_proven_by_none = !new.any(|pod| pod.was_selected(&grounds.seen.spec, at));
    is_proven_by_none || ledger.deletions.iter().filter(is_of_it).count() < canary.pods
}

pub(crate) fn nothing_is_deleted_after_a_canary_has_failed(_: &Ledger, _: &Deletion, grounds: &Grounds) -> bool {
    !grounds.seen.status.has_failed_canaries()
}
