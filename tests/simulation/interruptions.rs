//! Other content in the middle of a restart: the rules that go by what a process has read, and what must come of it.

use std::time::Duration;

use rules::A_SECOND;
use rules::status::Restart;
use simulated_cluster::content::hash;
use simulated_cluster::ledger::{Book, Deletion, Grounds, Ledger, Reading, Write};
use simulated_cluster::network::Process::{First, Second};
use simulated_cluster::network::{Fate, RequestKind};
use simulated_cluster::state::Pace;

use crate::examples::{CANARY, EDIT, FROZEN, SETTINGS, deleted_at, play_well, replaced, spec, story};
use crate::player::Played;
use crate::story::Move::{
    self, DeleteConfigMap, Edit as EditContent, EditLabels, KillPod, LoseReadiness, NewPodsStayUnready, Request,
    RequestRestart, Start, Stop, Wait,
};
use crate::story::{AT_ONCE, Edit, PodCount, Story};

/// An interrupted restart goes on only if its content came back before `interruptedAt` and the quiet period.
pub(crate) fn an_interrupted_restart_goes_on_in_time(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| write.goes_on().is_some()) {
        let Some((restart, _)) = write.before.interrupted() else { continue };
        let quiet = Duration::from_secs(write.spec.quiet_period_seconds.unwrap_or(0).into());
        // The content of an edited source is a baseline (exception 3).
        let is_same_source = write.before.watched() == write.after.watched();
        if is_same_source && !came_back(ledger, book, write, restart, quiet) {
            return Err(format!("at {:?} it was not back in time: {restart:?}", write.at));
        }
    }
    Ok(())
}

/// Returns whether a process had read the content of a restart in time: by the time in the status, or, if it has read
/// the other content itself, by its own clock. The process may read the content again before it can write that.
fn came_back(ledger: &Ledger, book: &Book, write: &Write, restart: &Restart, quiet: Duration) -> bool {
    let Some(at) = restart.interrupted_at else { return false };
    let due = at.plus(quiet + ledger.skew);
    let known = || book.readings.iter().filter(|reading| reading.life == write.life && reading.at < write.at);
    let is_own = |reading: &Reading| hash(reading.content) == restart.config_hash();
    let in_time = |reading: &Reading| {
        let mut others = known().filter(|other| !is_own(other) && other.at < reading.at);
        let last = |other: &Reading| other.last_at().max(other.recorded.unwrap_or(other.at));
        let since = |other: &Reading| Duration::from_millis(reading.first_at().ms.saturating_sub(last(other).ms));
        others.any(|other| since(other) < quiet + ledger.skew) || reading.seconds().any(|its| its < due)
    };
    // Another keeper may have read newer content of another source. The versions in the status say what this one knew.
    let named = known().filter(|reading| is_own(reading));
    let named = named.rev().find(|reading| Some(&reading.version) == write.after.source_version().as_ref());
    let is_part_back = |reading: &Reading| {
        let (Some(own), Some(before)) = (named, known().rfind(|before| before.at < reading.at)) else { return false };
        let is_own = |reading: &Reading, part| reading.of_part(part) == own.of_part(part);
        reading.source.parts().any(|part| is_own(reading, part) && !is_own(before, part))
    };
    // A source that is missing once more has no other version.
    let is_late = |reading: &Reading| {
        let mut read = reading.seconds().chain([reading.last_at().second()]);
        read.any(|second| second.plus(A_SECOND + ledger.skew) >= at)
    };
    known().any(|reading| (is_own(reading) || is_part_back(reading)) && is_late(reading) && in_time(reading))
}

pub(crate) fn nothing_is_deleted_during_an_interruption(_: &Ledger, _: &Deletion, grounds: &Grounds) -> bool {
    grounds.seen.status.interrupted().is_none()
}

/// With a quiet period of 3 s: one pod has been deleted for `b`, and its successor is unready.
const HALTED: [Move; 5] = [ONE, Wait(200), NewPodsStayUnready(true), EDIT, Wait(8000)];
const ONE: Move = spec(Edit::MaxTotal(Some(PodCount::Pods(1))));
const OTHER: Move = EditContent(SETTINGS, 'c');

/// Plays a story in which a restart is interrupted by these moves.
fn interrupted(moves: &[Move]) -> Played {
    let moves = [&HALTED[..], moves, &[Wait(1)]].concat();
    play_well(&Story { monitors: vec![(3, Some(PodCount::Pods(1)))], ..story(&moves) })
}

/// Returns how many milliseconds after the first move of the interruption the restart has ended.
fn ended_after(Played { ledger, moves, .. }: &Played) -> Vec<u64> {
    let ended = ledger.books[0].writes.iter().filter(|write| write.supersedes().is_some());
    ended.map(|write| write.at.ms - moves[HALTED.len()].0).collect()
}

/// Rule 2, in the middle of a restart: the content changes and is reverted within one quiet period, and the pods that
/// the restart created stay.
#[test]
fn a_restart_goes_on_when_content_comes_back_within_its_quiet_period() {
    let further = [Wait(2000), EditContent(SETTINGS, 'd'), Wait(2000)];
    for meanwhile in [&[Wait(1000)][..], &[Stop(First), Start(First), Wait(1200)], &further] {
        let played = interrupted(&[&[OTHER], meanwhile, &[EDIT, Wait(8000)]].concat());
        assert_eq!((played.ledger.deletions.len(), ended_after(&played).len()), (5, 0), "each pod is deleted once");
    }
}

/// The write that says so fails, and the next pass reads the content again, once the quiet period is over.
#[test]
fn a_restart_goes_on_if_its_content_was_read_in_time_whenever_that_can_be_written() {
    let back = [OTHER, Wait(2850), Request(First, RequestKind::Any, 2, Fate::NotSent), EDIT, Wait(8000)];
    let Played { ledger, moves, .. } = interrupted(&back);
    let went_on = ledger.books[0].writes.iter().find(|write| write.goes_on().is_some());
    let after = went_on.map(|write| write.at.ms - moves[HALTED.len()].0);
    assert!(after.is_some_and(|after| after > 3000), "{after:?} ms after the other content");
}

/// Another process has read the other content in between.
#[test]
fn a_restart_goes_on_when_its_source_is_missing_again() {
    let missing = [Wait(100_000), DeleteConfigMap(SETTINGS), Wait(8000)];
    let back = [EditContent(SETTINGS, 'c'), Start(Second), Wait(200), DeleteConfigMap(SETTINGS), Wait(1)];
    let pace = Pace { creation: 50, readiness: 5000, termination: 0 };
    let optional = Story { optional: true, skew: 3, lag: 300, pace, ..story(&[&missing[..], &back].concat()) };
    let monitors = vec![(3, AT_ONCE)];
    (0..20).for_each(|seed| _ = play_well(&Story { seed, monitors: monitors.clone(), ..optional.clone() }));
}

/// It knows only the time in the status, which is a whole second, and waits up to two seconds longer.
#[test]
fn the_quiet_period_of_an_interruption_is_over_by_the_status_in_a_process_that_has_just_started() {
    let meanwhile = [OTHER, Wait(500), Stop(First), Start(First), Wait(2600)];
    let played = interrupted(&[&meanwhile[..], &[EDIT, Wait(20_000)]].concat());
    let ended = ended_after(&played);
    assert!(ended.len() == 1 && (3100..3300).contains(&ended[0]), "{ended:?} ms");
}

/// Otherwise the next pod would wait for the pass that is due every 10 s.
#[test]
fn a_restart_that_goes_on_watches_its_pods_again() {
    let back = [OTHER, Wait(1000), EDIT, Wait(25_000), NewPodsStayUnready(false), Wait(8000)];
    let Played { ledger, moves, .. } = interrupted(&back);
    let waited = ledger.deletions[1].at.ms - moves[HALTED.len() + 4].0;
    assert!(waited < 200, "{waited} ms after the new pod has become ready");
}

/// The status may still have to say what the last wave deleted.
#[test]
fn a_restart_that_goes_on_after_its_last_wave_watches_its_pods_again() {
    let suspended = [spec(Edit::Suspend(true)), Wait(1700), spec(Edit::Suspend(false)), Wait(500)];
    let halted = [Wait(200), NewPodsStayUnready(true), EDIT, Wait(300)];
    let moves = [&halted[..], &suspended, &[NewPodsStayUnready(false), Wait(20_000)]].concat();
    let Played { ledger, moves, .. } = play_well(&story(&moves));
    let ended = ledger.books[0].writes.iter().find(|write| write.ends()).map(|write| write.at.ms - moves[8].0);
    assert!(ended.is_some_and(|waited| waited < 500), "{ended:?} ms after the new pods have become ready");
}

/// The process that finds the interruption over may read anything, and a pod was created with content that it does not
/// know. The pods that the restart created are restarted once more.
#[test]
fn a_process_that_finds_an_interruption_over_restarts_all_pods_whatever_it_reads() {
    for content in ['a', 'b', 'c', 'd'] {
        let down =
            [OTHER, Wait(500), KillPod(3), Stop(First), Wait(5000), EditContent(SETTINGS, content), Start(First)];
        let played = interrupted(&[&down[..], &[Wait(20_000)]].concat());
        assert_eq!(ended_after(&played).len(), 1, "{content}");
    }
}

/// The status does not say what interrupted the restart, so only the process's own reading shows how long content has
/// been quiet.
#[test]
fn content_that_a_new_process_reads_in_an_interruption_has_a_quiet_period_of_its_own() {
    let other = [OTHER, Wait(2000), Stop(First), EditContent(SETTINGS, 'd'), Start(First)];
    let Played { ledger, moves, .. } = interrupted(&[&other[..], &[Wait(20_000)]].concat());
    let waited = ledger.deletions[1].at.ms - moves[HALTED.len() + 3].0;
    assert!((3000..5000).contains(&waited), "{waited} ms after the edit");
}

/// Whatever else holds a restart.
#[test]
fn an_interruption_ends_with_its_quiet_period_under_suspend_outside_windows_and_without_the_source() {
    let frozen = [spec(FROZEN), OTHER, Wait(10_000)];
    let suspended = [spec(Edit::Suspend(true)), OTHER, Wait(10_000)];
    let missing = [OTHER, Wait(1000), DeleteConfigMap(SETTINGS), Wait(10_000)];
    for held in [&frozen[..], &suspended, &missing] {
        let played = interrupted(held);
        let ended = ended_after(&played);
        assert!(ended.len() == 1 && (3000..3200).contains(&ended[0]), "{ended:?} ms: {held:?}");
    }
}

/// Nothing is read while the spec is invalid, so the pod may have been created with any content.
#[test]
fn pods_that_are_created_while_the_spec_is_invalid_in_an_interruption_are_restarted() {
    let unread = [EditContent(SETTINGS, 'd'), KillPod(3), Wait(100), OTHER, Wait(5000)];
    let invalid = [&[spec(Edit::Invalidate(true)), Wait(100)], &unread[..], &[spec(Edit::Invalidate(false))]].concat();
    let played = interrupted(&[&[OTHER, Wait(500)], &invalid[..], &[Wait(20_000)]].concat());
    let born = played.ledger.pods.iter().position(|pod| pod.born.ms > played.moves[HALTED.len() + 3].0);
    assert!(played.ledger.deletions.iter().any(|deletion| Some(deletion.pod) == born), "{born:?}");
}

/// A restart has its own list, which was made right after the first reading of its content.
#[test]
fn pods_that_are_created_in_an_interruption_have_its_content() {
    let other = [OTHER, Wait(500), KillPod(3), EditLabels(SETTINGS), Wait(500), EditLabels(SETTINGS), Wait(10_000)];
    let played = interrupted(&other);
    let born = played.ledger.pods.iter().position(|pod| pod.born.ms > played.moves[HALTED.len()].0);
    assert!(played.ledger.deletions.iter().all(|deletion| Some(deletion.pod) != born), "{born:?}");
}

#[test]
fn the_restart_in_whose_interruption_a_request_comes_or_the_next_one_handles_it() {
    let ask = [OTHER, Wait(1000), RequestRestart(0, 'x'), Wait(1000)];
    let back = interrupted(&[&ask[..], &[EDIT, Wait(8000), NewPodsStayUnready(false), Wait(20_000)]].concat());
    assert_eq!((back.ledger.deletions.len(), ended_after(&back).len()), (10, 0), "one restart after the other");
    let other = interrupted(&[&ask[..], &[Wait(8000), NewPodsStayUnready(false), Wait(20_000)]].concat());
    assert_eq!((other.ledger.deletions.len(), ended_after(&other).len()), (6, 1), "one pod of the first one, and all");
}

/// Without an interruption the second pod goes after nine seconds.
#[test]
fn an_interruption_does_not_count_as_bake_time() {
    let quiet = Edit::QuietPeriod(3);
    let there_and_back = [EDIT, Wait(5000), OTHER, Wait(2000), EDIT];
    assert_eq!(deleted_at(&[CANARY, quiet], &[EDIT, Wait(60_000)]), [3, 9]);
    assert_eq!(deleted_at(&[CANARY, quiet], &[&there_and_back[..], &[Wait(60_000)]].concat()), [3, 13]);
    let crash = [Stop(First), Start(First), Wait(60_000)];
    assert_eq!(deleted_at(&[CANARY, quiet], &[&there_and_back[..], &crash].concat()).len(), 2);
}

/// The deadline passes between two passes that are due every 10 s.
#[test]
fn an_interruption_does_not_count_towards_the_progress_deadline() {
    let there_and_back = [spec(Edit::Deadline(15)), OTHER, Wait(2500), EDIT, Wait(30_000)];
    let Played { ledger, moves, .. } = interrupted(&there_and_back);
    let stalled = ledger.books[0].writes.iter().find(|write| write.comes_to("ProgressDeadlineExceeded"));
    let after = stalled.map(|write| write.at.ms - moves[HALTED.len() + 3].0);
    assert!(
        after.is_some_and(|after| (15_000..17_000).contains(&after)),
        "{after:?} ms after the end of the interruption"
    );
}

/// The canary has failed before, and its content comes back, or does not.
#[test]
fn a_failed_canary_is_interrupted_like_any_other_restart() {
    let failed = [EDIT, Wait(6000), LoseReadiness(0, None), Wait(10_000)];
    let then = |moves: &[Move]| deleted_at(&[CANARY, Edit::QuietPeriod(3)], &[&failed[..], moves].concat());
    assert_eq!(then(&[OTHER, Wait(2000), EDIT, Wait(60_000)]), [3]);
    assert_eq!(then(&[OTHER, Wait(60_000)])[..2], [3, 19], "a restart for the other content");
}

/// Once the list is forgotten, only the plan of the restart under way distinguishes its new pods from the old ones.
#[test]
fn a_restart_goes_on_with_its_own_plan_after_an_interruption() {
    let other = [OTHER, Wait(500), Request(First, RequestKind::ListPods, 1, Fate::NotSent), Wait(700)];
    let back = [Move::ForgetLists, EDIT, Wait(20_000)];
    let played = interrupted(&[&other[..], &back].concat());
    assert_eq!(played.ledger.deletions.len(), 5, "each pod is deleted once");
}

/// The deletions were not written down yet, and the pods of the other restart do not exist yet. There is no quiet
/// period.
#[test]
fn the_deletions_of_a_superseded_restart_are_in_the_history() {
    let moves = [Wait(200), EDIT, Wait(200), OTHER, Wait(20_000)];
    let pace = Pace { creation: 2000, readiness: 0, termination: 0 };
    let played = play_well(&Story { pace, ..story(&moves) });
    assert_eq!(replaced(&played), [played.ledger.deletions.len()]);
}
