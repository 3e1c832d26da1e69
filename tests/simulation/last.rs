//! The rule about `restartLast`, which goes by the labels that pods have at the time, and its stories.

use std::collections::BTreeSet;

use rules::Moment;
use rules::status::{Restart, Status};
use simulated_cluster::ledger::{Deletion, Grounds, Knower, Ledger, Nature, PodRecord, Write};

use crate::canaries::{has_passed, is_replaced};
use crate::examples::{SETTINGS, play_well, spec, story};
use crate::player::Played;
use crate::story::Move::{self, Edit as EditContent, Lead, LoseReadiness, Request, Wait};
use crate::story::{Edit, Last, PodCount, Story};
use simulated_cluster::network::Process::First;
use simulated_cluster::network::{Fate, RequestKind};
use simulated_cluster::state::Pace;

/// By a list that the process may go by, no last pod goes while an old one is left that is no last one, or while an owner
/// lacks a successor. If no pod is a last one, those that are ready stay. A pod goes in any case if it is handed over, or
/// not ready when the progress deadline has passed.
///
/// Nobody knows here which pods are old after a revert, an edit of what selects them, or a restore.
pub(crate) fn the_last_pods_go_last(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let pod = &ledger.pods[deletion.pod];
    let (Some(begun), Some(last)) = (grounds.seen.status.begun(), &grounds.seen.spec.restart_last) else { return true };
    let has_reverted = grounds.seen.status.has_reverted();
    // A pod that a restore brings back is a new record here, and the same pod for the operator (exception 7).
    if grounds.by_times || pod.was_handed_over(deletion.at) || !ledger.restored.is_empty() {
        return true;
    }
    let is_last = |pod: &PodRecord, at| last.matches(pod.labels_at(at));
    grounds.lists.iter().any(|(at, pods)| {
        if pod.ready.since(*at).is_none() && may_be_overdue(ledger, *at, grounds) {
            return true;
        }
        let was_last = is_last(pod, *at);
        was_last == is_last(pod, deletion.at)
            && match was_last {
                _ if has_reverted => true,
                true => may_go_last(ledger, deletion, (grounds, begun), (*at, pods), |pod| is_last(pod, *at)),
                false => {
                    let was_there = |pod: &PodRecord| pod.ended.is_none_or(|ended| ended > *at);
                    let mut listed = pods.iter().map(|pod| &ledger.pods[*pod]);
                    pod.ready.since(*at).is_none() || listed.any(|pod| was_there(pod) && is_last(pod, *at))
                }
            }
    })
}

/// Returns whether the progress deadline may have passed at this list: for so long the restart has deleted nothing, and its
/// canaries have not passed.
fn may_be_overdue(ledger: &Ledger, at: Moment, grounds: &Grounds) -> bool {
    let Grounds { seen, book, .. } = grounds;
    let is_it = |other: &Status| other.which() == seen.status.which();
    let is_of_it = |other: &&Deletion| {
        let mut its = other.grounds.iter().filter(|its| its.book == *book);
        other.at < at && its.any(|its| is_it(&its.seen.status))
    };
    let start = ledger.books[*book].start_of(&seen.status).map(|start| start.at);
    let passes = |write: &&Write| write.at < at && is_it(&write.after) && write.after.begun().is_some_and(has_passed);
    let passed = ledger.books[*book].writes.iter().find(passes).map(|write| write.at);
    let last = ledger.deletions.iter().filter(is_of_it).map(|other| other.at).max().max(start).max(passed);
    let deadline = u64::from(seen.spec.progress_deadline_seconds.unwrap_or(600)) * 1000;
    let skew = u64::try_from(ledger.skew.as_millis()).unwrap() + 2000;
    last.is_none_or(|last| last.ms + deadline <= at.ms + skew)
}

/// Returns whether the other pods of the restart were gone and replaced at this list, or since then.
fn may_go_last(
    ledger: &Ledger,
    deletion: &Deletion,
    (grounds, begun): (&Grounds, &Restart),
    (at, pods): (Moment, &BTreeSet<usize>),
    is_last: impl Fn(&PodRecord) -> bool,
) -> bool {
    let Grounds { seen, book, desired, .. } = grounds;
    let (spec, book) = (&seen.spec, &ledger.books[*book]);
    let Some(start) = book.start_of(&seen.status) else { return true };
    let first = seen.status.lists().filter_map(|version| ledger.list(version)).min().unwrap_or(start.at);
    let mut specs = book.specs_between(first.min(start.at), deletion.at);
    if specs.any(|its| {
        let is_selecting = (&its.pod_selector, &its.pod_selector_expressions);
        is_selecting != (&spec.pod_selector, &spec.pod_selector_expressions)
            || its.unmanaged_pods != spec.unmanaged_pods
            || its.restart_last != spec.restart_last
    }) {
        // What was selected or left alone in between may be no part of the restart.
        return true;
    }
    let was_selected = |pod: &PodRecord| pod.labels.iter().all(|(since, _)| pod.was_selected(spec, *since));
    let is_old = |pod: &PodRecord| {
        let is_part = was_selected(pod) && pod.is_restartable(spec) && is_replaced(ledger, pod, &seen.status, spec);
        is_part && pod.gone.is_none_or(|gone| gone > start.at)
    };
    let is_proving = spec.canary.is_some() && begun.canary.is_some() && !has_passed(begun);
    let may_go = |pod: &PodRecord| !is_proving || pod.nature == Nature::Managed;
    let listed = || pods.iter().filter(|pod| **pod != deletion.pod).map(|pod| &ledger.pods[*pod]);
    if listed().any(|pod| is_old(pod) && may_go(pod) && !is_last(pod) && pod.is_left(at.ms)) {
        return false;
    }
    // If all pods go last, the budget orders them as soon as one is replaced.
    let are_all_last = pods.iter().all(|pod| is_last(&ledger.pods[*pod]));
    if are_all_last && pods.iter().any(|pod| !is_old(&ledger.pods[*pod])) {
        return true;
    }
    let old_last = pods.iter().copied().filter(|pod| is_old(&ledger.pods[*pod]) && is_last(&ledger.pods[*pod]));
    let old_last: BTreeSet<usize> =
        old_last.filter(|pod| ledger.pods[*pod].ended.is_none_or(|ended| ended > at)).collect();
    let of_restart = ledger.pods.iter().filter(|pod| pod.nature == Nature::Managed && is_old(pod));
    let owners: BTreeSet<usize> = of_restart.map(|pod| pod.place.0).collect();
    let (life, listed) = (deletion.life, Some(at));
    let knower = Knower { life, actor: None, book, start: Some(start), listed };
    owners.iter().filter_map(|owner| Some((*owner, *desired.get(owner)?))).all(|(owner, desired)| {
        let own = old_last.iter().filter(|pod| ledger.pods[**pod].place.0 == owner).count();
        let mut moments = ledger.moments(at, deletion.at);
        moments.any(|at| ledger.available(knower, (owner, at), spec, &old_last) + own >= desired)
    })
}

const EDIT: Move = EditContent(SETTINGS, 'b');
const LAST: Move = spec(Edit::RestartLast(Last::Leader));
const ONE_BY_ONE: Move = spec(Edit::MaxTotal(Some(PodCount::Pods(1))));
const READINESS: u64 = 2000;

/// Pod 4, of a Deployment with pod 5, leads the pods 6 and 7 of a StatefulSet and 8 of a DaemonSet as well. New pods have
/// the numbers from 9 on.
fn led(moves: &[Move]) -> Story {
    let pace = Pace { creation: 50, readiness: READINESS, termination: 500 };
    let moves = [&[LAST, Wait(200)], moves, &[Wait(1)]].concat();
    Story { leads: true, pace, ..story(&moves) }
}

/// Returns the pods that were deleted during a story, each with its time in milliseconds after the first.
fn deleted(Played { ledger, moves, .. }: &Played) -> Vec<(usize, u64)> {
    let end = moves.last().map_or(0, |(ms, ..)| *ms);
    let deletions = ledger.deletions.iter().filter(|deletion| deletion.at.ms <= end);
    let first = ledger.deletions.first().map_or(0, |deletion| deletion.at.ms);
    deletions.map(|deletion| (deletion.pod, deletion.at.ms - first)).collect()
}

fn order(moves: &[Move]) -> Vec<usize> {
    deleted(&play_well(&led(moves))).into_iter().map(|(pod, _)| pod).collect()
}

#[test]
fn the_last_pod_goes_once_the_others_have_successors_also_without_a_budget() {
    let all = deleted(&play_well(&led(&[EDIT, Wait(30_000)])));
    let (pods, times): (Vec<usize>, Vec<u64>) = all.into_iter().unzip();
    assert_eq!((pods.len(), pods[4]), (5, 4), "{pods:?}");
    assert!(times[3] < 50 && times[4] >= 500 + READINESS, "{times:?}");
    assert_eq!(order(&[ONE_BY_ONE, EDIT, Wait(60_000)]).last(), Some(&4));
    assert_eq!(order(&[spec(Edit::Evict(true)), EDIT, Wait(30_000)]).last(), Some(&4));
}

/// The label comes to the first pod while its deletion is under way.
#[test]
fn a_pod_that_gets_the_label_after_the_list_is_not_deleted() {
    let late = Request(First, RequestKind::Delete, 1, Fate::Late(500));
    let moved = order(&[ONE_BY_ONE, late, EDIT, Wait(100), Lead(3), Wait(60_000)]);
    assert_eq!((moved.len(), moved.last()), (5, Some(&5)), "{moved:?}");
}

/// As while a failover is under way.
#[test]
fn no_ready_pod_goes_while_none_has_the_label() {
    assert!(order(&[Move::LetElect(false), EDIT, Wait(30_000)]).is_empty());
    assert_eq!(order(&[Move::LetElect(false), EDIT, LoseReadiness(6, Some(9000)), Wait(9000)]), [7]);
    assert_eq!(order(&[Move::LetElect(false), EDIT, Wait(5000), Move::LetElect(true), Wait(60_000)]).len(), 5);
}

/// The leader loses its readiness, and the canary takes longer than the deadline.
#[test]
fn the_deadline_of_a_last_pod_that_is_not_ready_begins_when_the_canary_has_passed() {
    let canary = [spec(Edit::Canary(Some((PodCount::Pods(1), 10)))), spec(Edit::Deadline(5))];
    let edited = [Wait(200), EDIT, Wait(4000), LoseReadiness(4, Some(30_000)), Wait(60_000)];
    let all = deleted(&play_well(&led(&[&canary[..], &edited].concat())));
    assert!(all.len() == 5 && all[4].0 == 4 && all[4].1 >= all[3].1 + READINESS, "{all:?}");
}
