//! Other content in the middle of a restart: the rules that go by what a process has read, and what must come of it.

use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use simulated_cluster::ledger::{Book, Deletion, End, Grounds, Ledger, Reading};
use simulated_cluster::network::Process::First;
use simulated_cluster::network::{Fate, RequestKind};
use simulated_cluster::state::Pace;

use crate::examples::{EDIT, FROZEN, SETTINGS, play_well, spec, story};
use crate::player::Played;
use crate::story::Move::{self, Edit as EditContent, KillPod, NewPodsStayUnready, Request, Start, Stop, Wait};
use crate::story::{Edit, PodCount, Story};

/// A process deletes pods only for the last contents that it has read, which have been there for the quiet period.
pub(crate) fn nothing_is_deleted_for_other_content(ledger: &Ledger, deletion: &Deletion, grounds: &Grounds) -> bool {
    let Grounds { seen, has_read_other, .. } = grounds;
    let quiet = Duration::from_secs(seen.spec.quiet_period_seconds.unwrap_or(0).into());
    let is_quiet = |until: ServerTime| until <= deletion.at.second().plus(ledger.skew);
    let may_be_undone = !ledger.restored.is_empty() || ledger.is_forgetful(deletion.life, deletion.at);
    seen.status.is_on_target()
        && seen.status.quiet_until(quiet).is_none_or(is_quiet)
        && (!has_read_other || may_be_undone)
}

/// The status says only in which second content was read. The quiet period begins with that answer.
pub(crate) fn a_restart_begins_once_its_content_has_been_quiet(ledger: &Ledger, book: &Book) -> Result<(), String> {
    for write in book.writes.iter().filter(|write| write.start().is_some()) {
        let quiet = Duration::from_secs(write.spec.quiet_period_seconds.unwrap_or(0).into());
        let Some(read) = write.unmarked_at().filter(|_| !quiet.is_zero()) else { continue };
        if write.before.limited(read.plus(quiet), quiet) < read.plus(quiet) {
            // Content has changed for ten periods.
            continue;
        }
        let its = book.readings.iter().filter(|reading| reading.seconds().any(|at| at == read));
        // The task may have read another source before.
        let began = u64::try_from(read.as_second()).unwrap_or(0) * 1000;
        // Of two sources, only the last answer is known.
        let came = |reading: &Reading| match reading.source.count() {
            1 => reading.first_at().ms.max(began),
            _ => began,
        };
        let Some(came) = its.map(came).min() else { continue };
        let rested = Duration::from_millis(write.at.ms.saturating_sub(came)).saturating_add(ledger.skew);
        if rested < quiet {
            return Err(format!("at {:?} after {rested:?}: {:?}, then {:?}", write.at, write.before, write.after));
        }
    }
    Ok(())
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
    let ended = ledger.books[0].writes.iter().filter(|write| write.supersedes());
    ended.map(|write| write.at.ms - moves[HALTED.len()].0).collect()
}

/// Rule 2, in the middle of a restart: the content changes and is reverted within one quiet period, no pod has read the other
/// one, and the pods that the restart created stay. A new process that finds the other one does not know when it came
/// (exception 7).
#[test]
fn a_restart_goes_on_when_content_comes_back_within_its_quiet_period() {
    let further = [Wait(2000), EditContent(SETTINGS, 'd'), Wait(2000)];
    let resumed = [Stop(First), Start(First), Wait(1200)];
    for (meanwhile, again) in [(&[Wait(1000)][..], 0), (&resumed, 1), (&further, 0)] {
        let played = interrupted(&[&[OTHER], meanwhile, &[EDIT, Wait(8000)]].concat());
        assert_eq!(
            (played.ledger.deletions.len(), ended_after(&played).len()),
            (5 + again, 0),
            "each pod is deleted once"
        );
    }
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

/// Whatever else holds a restart.
#[test]
fn an_interruption_ends_with_its_quiet_period_under_suspend_and_outside_windows() {
    for held in [FROZEN, Edit::Suspend(true)] {
        let ended = ended_after(&interrupted(&[spec(held), OTHER, Wait(10_000)]));
        assert!(ended.len() == 1 && (3000..3200).contains(&ended[0]), "{ended:?} ms");
    }
}

/// The list that was made right after says so, also if it succeeds only once the restart may go on.
#[test]
fn pods_that_are_created_in_an_interruption_restart_when_it_goes_on_and_others_do_not() {
    let refused = |fate| Move::Lasting(RequestKind::ListPods, fate);
    for [before, after] in [[Wait(0), Wait(0)], [refused(Some(Fate::Refused)), refused(None)]] {
        let there = [before, OTHER, Wait(500), KillPod(3), Wait(500)];
        let back = [EDIT, Wait(5000), after, Wait(1000), NewPodsStayUnready(false), Wait(60_000)];
        let played = interrupted(&[&there[..], &back].concat());
        let born = played.ledger.pods.iter().position(|pod| pod.born.ms > played.moves[HALTED.len() + 1].0);
        let deleted: Vec<usize> = played.ledger.deletions.iter().map(|deletion| deletion.pod).collect();
        assert!(born.is_some_and(|born| deleted.contains(&born)) && deleted.len() <= 6, "{born:?} of {deleted:?}");
    }
}

/// It ends a quiet period after the content is back. The deadline passes between two passes that are due every 10 s.
#[test]
fn an_interruption_does_not_count_towards_the_progress_deadline() {
    let there_and_back = [spec(Edit::Deadline(15)), OTHER, Wait(2500), EDIT, Wait(30_000)];
    let Played { ledger, moves, .. } = interrupted(&there_and_back);
    let stalled = ledger.books[0].writes.iter().find(|write| write.comes_to("ProgressDeadlineExceeded"));
    let after = stalled.map(|write| write.at.ms - moves[HALTED.len() + 3].0 - 3000);
    assert!(
        after.is_some_and(|after| (15_000..17_000).contains(&after)),
        "{after:?} ms after the end of the interruption"
    );
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
    let Some(End { status, .. }) = &played.ledger.books[0].end else { panic!("it has an end") };
    let replaced: Vec<usize> = status.history.iter().map(|entry| entry.replaced).collect();
    assert_eq!(replaced, [played.ledger.deletions.len()]);
}
