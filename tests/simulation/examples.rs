//! The exceptions, each with the shortest story that needs it: whoever removes one from guarantees.md finds its story
//! here. Also stories that random choices produce too rarely.

use crate::exceptions::Exception;
use crate::player::{Played, play};
use crate::story::Move::{
    self, Crash, DeleteConfigMap, Edit as EditContent, EditLabels, EditSecondKey, KillPod, LoseReadiness,
    NewPodsStayUnready, Relabel, Request, Scale, Spec, Start, Stop, Until, Wait, Watch,
};
use crate::story::{AT_ONCE, Edit, PodCount, Pods, Story, Windows};
use crate::{judge, stale_pods};
use simulated_cluster::network::Process::{First, Second};
use simulated_cluster::network::{Fate, RequestKind, Served, WatchFault, Watched};
use simulated_cluster::state::{Owners, Pace};

pub(crate) const SETTINGS: &str = "flaskapp-config";
pub(crate) const OTHER: &str = "extra";

const STALL: Move = Watch(First, Watched::ConfigMaps, WatchFault::Stall);
/// The watch is opened anew and resumes at its version.
const RESUME: Move = Watch(First, Watched::ConfigMaps, WatchFault::End);

/// Returns a story in which controllers and kubelets act at once.
pub(crate) fn story(moves: &[Move]) -> Story {
    let pace = Pace { creation: 0, readiness: 0, termination: 0 };
    Story::plain(vec![(0, AT_ONCE)], pace, moves.to_vec())
}

/// Plays a story, and checks that every rule holds.
pub(crate) fn play_well(story: &Story) -> Played {
    let played = play(story);
    assert_eq!(judge(&played.ledger), Ok(()), "{story:?}");
    played
}

/// Returns the exceptions by which pods keep outdated content after this story.
fn exceptions(moves: &[Move]) -> Vec<Option<Exception>> {
    let ledger = play(&story(moves)).ledger;
    let mut exceptions: Vec<_> =
        stale_pods(&ledger, &ledger.books[0]).into_iter().map(|(_, exception)| exception).collect();
    exceptions.dedup();
    exceptions
}

fn assert_needs(exception: Exception, moves: &[Move]) {
    assert_eq!(exceptions(moves), [Some(exception)], "{moves:#?}");
}

pub(crate) const fn spec(edit: Edit) -> Move {
    Spec(0, edit)
}

#[test]
fn pods_keep_content_that_was_reverted_before_it_was_read() {
    let story = [Wait(200), EditContent(SETTINGS, 'b'), KillPod(0), EditContent(SETTINGS, 'a')];
    assert_needs(Exception::CameAndWentUnread, &story);
}

#[test]
fn pods_keep_content_that_was_reverted_before_it_was_recorded() {
    let listing = Request(First, RequestKind::ListPods, 1, Fate::LateAnswer(500));
    let read = [Wait(200), listing, EditContent(SETTINGS, 'b'), KillPod(0), Until(First, RequestKind::ListPods, 1)];
    let back = [Crash(First), EditContent(SETTINGS, 'a'), Start(First)];
    assert_needs(Exception::CameAndWentUnread, &[&read[..], &back].concat());
}

/// Content that could not be written down came and went in between.
#[test]
fn content_is_at_rest_though_no_write_succeeds() {
    let refused = Move::Lasting(RequestKind::PutStatus, Some(Fate::NotSent));
    let pending = [spec(Edit::QuietPeriod(1)), Wait(200), EditContent(SETTINGS, 'b'), Wait(200), refused];
    let unread = [KillPod(0), EditContent(SETTINGS, 'c'), Wait(500), EditContent(SETTINGS, 'b'), Wait(8000)];
    assert_eq!(exceptions(&[&pending[..], &unread, &[EditContent(SETTINGS, 'a')]].concat()), []);
}

#[test]
fn pods_keep_content_from_before_a_baseline() {
    let moves = [EditContent(SETTINGS, 'b'), Wait(200)];
    assert_needs(Exception::BeforeFirstLook, &moves);
    let wiped = [Wait(200), Stop(First), spec(Edit::WipeStatus), EditContent(SETTINGS, 'b'), Start(First)];
    assert_needs(Exception::StatusWiped, &wiped);
    assert_needs(Exception::AnotherSource, &[EditContent(OTHER, 'b'), Wait(200), spec(Edit::Source(OTHER))]);
    let one_key = [spec(Edit::OneKey(true)), Wait(200), EditSecondKey(SETTINGS, 'b'), Wait(200)];
    assert_eq!(exceptions(&one_key), []);
    assert_needs(Exception::AnotherSource, &[&one_key[..], &[spec(Edit::OneKey(false))]].concat());
}

#[test]
fn a_pod_that_is_selected_only_later_is_left_alone() {
    let (back, all) = (spec(Edit::Select(Pods::Back)), spec(Edit::Select(Pods::All)));
    assert_needs(Exception::LeftAlone, &[back, Wait(200), EditContent(SETTINGS, 'b'), Wait(200), all]);
    let (front, out, again) = (spec(Edit::Select(Pods::Front)), Relabel(4, None), Relabel(4, Some("front")));
    let restarted = [EditContent(SETTINGS, 'b'), Wait(5000)];
    assert_needs(Exception::LeftAlone, &[&[front, Wait(200), out][..], &restarted, &[again]].concat());
    assert_eq!(exceptions(&[&[front, Wait(200), out, again][..], &restarted].concat()), []);
}

#[test]
fn pods_keep_content_that_was_read_late_and_reverted_during_its_restart() {
    let born = [spec(Edit::Suspend(true)), Wait(1200), STALL, EditContent(SETTINGS, 'b'), KillPod(0)];
    let back = [RESUME, Wait(200), EditContent(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&born[..], &back].concat()), []);
    assert_needs(Exception::ReadLateAndWent, &[&born[..], &[Wait(2500)], &back].concat());
}

#[test]
fn a_new_process_goes_by_when_the_contents_were_settled() {
    let suspended = [Wait(200), spec(Edit::Suspend(true)), Wait(200), Stop(First)];
    let born = [EditContent(SETTINGS, 'b'), Wait(2500), KillPod(0), Wait(2500)];
    let back = [Start(First), Wait(2500), EditContent(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&suspended[..], &born, &back].concat()), []);
    let forbidden = Request(First, RequestKind::GetConfigMap, 1, Fate::Forbidden);
    assert_eq!(exceptions(&[&suspended[..], &born, &[forbidden], &back].concat()), []);
}

/// Another keeper has read this version for this keeper, after a version that this keeper has not read.
#[test]
fn a_keeper_after_a_panic_goes_by_when_the_contents_were_settled() {
    let suspended = [KillPod(0), spec(Edit::Suspend(true)), Spec(1, Edit::Suspend(true)), Wait(20_000)];
    let panic = Request(First, RequestKind::ListPods, 1, Fate::Panic);
    let there = [panic, EditContent(SETTINGS, 'b'), Wait(100), EditLabels(SETTINGS), Wait(100), EditLabels(SETTINGS)];
    let back = [Wait(2500), EditContent(SETTINGS, 'a'), Wait(2500), spec(Edit::Suspend(false)), Wait(2500)];
    let moves = [&suspended[..], &there, &back].concat();
    play_well(&Story { monitors: vec![(0, AT_ONCE); 2], ..story(&moves) });
}

/// Nothing was read meanwhile, as if no process had run.
#[test]
fn a_spec_that_is_valid_again_goes_by_when_the_contents_were_settled() {
    let spoiled = [Wait(200), spec(Edit::Suspend(true)), Wait(200), spec(Edit::Invalidate(true)), Wait(200)];
    let born = [EditContent(SETTINGS, 'b'), Wait(2500), KillPod(0), Wait(2500)];
    let back = [spec(Edit::Invalidate(false)), Wait(2500), EditContent(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&spoiled[..], &born, &back].concat()), []);
}

/// A write of the status that is not about the last reading does not record that reading.
#[test]
fn a_revert_that_is_recorded_late_counts_from_its_reading() {
    let put = |fate| Request(First, RequestKind::PutStatus, 1, fate);
    let there = [Wait(200), EditContent(SETTINGS, 'b'), Until(First, RequestKind::PutStatus, 1)];
    let back = [put(Fate::NotSent), EditContent(SETTINGS, 'a'), Until(First, RequestKind::PutStatus, 1)];
    let forbidden = [EditLabels(SETTINGS), Scale(2, 2), Request(First, RequestKind::GetConfigMap, 1, Fate::Forbidden)];
    let late = [Wait(2500), put(Fate::AnswerLost), EditLabels(SETTINGS), spec(Edit::QuietPeriod(0))];
    let pace = Pace { creation: 2000, readiness: 0, termination: 0 };
    let moves = [&there[..], &back, &forbidden, &late].concat();
    play_well(&Story { monitors: vec![(1, AT_ONCE)], pace, ..story(&moves) });
}

/// A list from before the GET would miss a pod created in between with the old content.
#[test]
fn a_pod_that_is_born_while_pods_are_listed_is_not_missed() {
    let listing = Request(First, RequestKind::ListPods, 1, Fate::LateAnswer(500));
    let rings = [Wait(200), listing, EditLabels(SETTINGS), Until(First, RequestKind::ListPods, 1), Wait(10)];
    let born = [KillPod(0), EditContent(SETTINGS, 'b')];
    play_well(&story(&[&rings[..], &born].concat()));
    assert_eq!(exceptions(&[&rings[..], &born].concat()), []);
}

/// While the status cannot be written, the watch is not waited for.
#[test]
fn a_restart_is_not_over_by_pods_from_before_a_failed_write() {
    let refused = [1, 2].map(|nth| Request(First, RequestKind::PutStatus, nth, Fate::Refused));
    let begun = [Wait(200), EditContent(SETTINGS, 'b'), Until(First, RequestKind::PutStatus, 1)];
    let unready = [Until(First, RequestKind::PutStatus, 1), LoseReadiness(0, Some(20_000)), Wait(60_000)];
    let moves = [&begun[..], &refused, &unready].concat();
    let pace = Pace { creation: 0, readiness: 300, termination: 0 };
    play_well(&Story { pace, ..story(&moves) });
}

/// A list that takes a second is followed by a pause of 8.7 s.
#[test]
fn constant_changes_of_a_config_map_do_not_cause_constant_lists() {
    let halted = [Wait(200), NewPodsStayUnready(true), EditContent(SETTINGS, 'b'), Wait(2000)];
    let slow = Move::Lasting(RequestKind::ListPods, Some(Fate::LateAnswer(1000)));
    let rings = [EditLabels(SETTINGS), Wait(1500)].repeat(20);
    let moves = [&halted[..], &[slow], &rings, &[Wait(1)]].concat();
    let Played { trace, moves, .. } =
        play_well(&Story { monitors: vec![(0, Some(PodCount::Pods(1)))], ..story(&moves) });
    let (from, to) = (moves[halted.len()].1, moves[moves.len() - 1].1);
    let is_list = |path: &str| path.contains("/pods?") && path.contains("limit=200") && path.contains("labelSelector");
    let lists = trace[from..to].iter().filter(|sent| is_list(&sent.path)).count();
    assert!((1..=5).contains(&lists), "{lists} lists in 30 s");
}

/// The pods that the first restart creates have the content of both ConfigMaps.
#[test]
fn config_maps_whose_quiet_periods_overlap_restart_the_same_pods_once() {
    let edits = [EditContent(SETTINGS, 'b'), Wait(1000), EditContent(OTHER, 'b'), Wait(20_000)];
    let moves = [&[Spec(1, Edit::Source(OTHER)), Wait(200)][..], &edits].concat();
    let played = play_well(&Story { monitors: vec![(3, AT_ONCE); 2], ..story(&moves) });
    assert_eq!(played.ledger.deletions.len(), 5, "each pod is deleted once");
}

/// A heartbeat in an annotation, as of a leader election, would else be a write each time.
#[test]
fn an_edit_that_leaves_the_content_writes_no_status() {
    let beats = [EditLabels(SETTINGS), Wait(1000), EditLabels(SETTINGS), Wait(60_000)];
    let Played { ledger, moves, .. } = play_well(&story(&[&[Wait(5000)][..], &beats, &beats, &[Wait(1)]].concat()));
    let [first, last] = [1, moves.len() - 1].map(|nth| moves[nth].0);
    let meanwhile = ledger.books[0].writes.iter().filter(|write| (first..last).contains(&write.at.ms));
    assert_eq!(meanwhile.count(), 0);
}

/// Other content came and went within a second, after the first GET, about which nothing was written. A list from
/// before does not show the pod that was created with that content.
#[test]
fn pods_are_listed_again_after_each_reading_that_could_not_be_recorded() {
    let conflict = Request(First, RequestKind::PutStatus, 1, Fate::Conflict);
    let begins = [Wait(200), conflict, EditContent(SETTINGS, 'b'), Until(First, RequestKind::ListPods, 1)];
    let returns = [EditContent(SETTINGS, 'a'), Scale(1, 3), EditContent(SETTINGS, 'b'), Wait(5000)];
    assert_eq!(exceptions(&[begins, returns].concat()), []);
}

/// The selector has come to select more pods since, and the process that resumes the restart has not seen its
/// beginning.
#[test]
fn a_restart_is_about_the_pods_that_were_selected_as_it_began() {
    let halted = [NewPodsStayUnready(true), EditContent(SETTINGS, 'b'), Wait(2000)];
    let widened = [spec(Edit::Select(Pods::All)), Stop(First), Start(First), Wait(2000)];
    let front = [spec(Edit::Select(Pods::Front)), Wait(200)];
    let moves = [&front[..], &halted, &widened, &[NewPodsStayUnready(false), Wait(100_000)]].concat();
    let played = play_well(&Story { monitors: vec![(0, Some(PodCount::Pods(1)))], ..story(&moves) });
    let back = |pod: usize| played.ledger.pods[pod].place.0 == 1;
    assert!(played.ledger.deletions.iter().all(|deletion| !back(deletion.pod)));
    assert_eq!(played.ledger.deletions.len(), 3, "those of the front");
}

/// A conflict means that somebody else has written: no reason to wait.
#[test]
fn a_conflict_is_retried_at_once() {
    let moves =
        [Wait(200), Request(First, RequestKind::PutStatus, 1, Fate::Conflict), EditContent(SETTINGS, 'b'), Wait(5000)];
    let Played { ledger, moves, .. } = play_well(&story(&moves));
    let waited = ledger.deletions[0].at.ms - moves[2].0;
    assert!(waited < 100, "{waited} ms");
}

/// An owner that cannot be read may desire fewer pods than it had when the restart began.
#[test]
fn an_owner_that_cannot_be_read_may_be_scaled_down() {
    for owner in [3, 4] {
        let moves = [Wait(200), EditContent(SETTINGS, 'b'), Wait(500), Scale(owner, 0)];
        let pace = Pace { creation: 700, readiness: 0, termination: 3000 };
        play_well(&Story { owners: Owners::Odd, pace, ..story(&moves) });
    }
}

/// Returns how many pods are deleted before the last move of a story, without those that healing deletes.
fn deleted_in_time(moves: &[Move]) -> usize {
    let moves = [&[Wait(200)], moves, &[Wait(1)]].concat();
    let Played { ledger, moves, .. } =
        play_well(&Story { monitors: vec![(0, Some(PodCount::Pods(1)))], ..story(&moves) });
    let (last, _, _) = moves[moves.len() - 1];
    ledger.deletions.iter().filter(|deletion| deletion.at.ms < last).count()
}

/// The safety net below the watches: ten minutes after a list there is another one.
#[test]
fn an_event_of_a_watch_that_is_lost_is_made_up_for_by_a_list() {
    let miss = Watch(First, Watched::ConfigMaps, WatchFault::Miss);
    assert_eq!(deleted_in_time(&[miss, EditContent(SETTINGS, 'b'), Wait(700_000)]), 5, "each pod is deleted once");
}

/// The watches would resume at revisions that no longer exist, and stay silent. The content is the same as before the
/// restore, and only the ConfigMonitor shows that the pods have not been restarted for it.
#[test]
fn a_status_from_a_backup_is_observed_at_once() {
    let restored = [EditContent(SETTINGS, 'b'), Move::BackUp, Wait(60_000), Move::Restore, Wait(60_000)];
    assert_eq!(deleted_in_time(&restored), 10, "each pod is deleted once more");
}

/// The edit was read because the spec was edited, before the watch had shown it, and was undone while the list of pods
/// hung. The list that follows has the version of the last doorbell.
#[test]
fn content_that_a_restore_undoes_is_read_again() {
    let hangs = Request(First, RequestKind::ListPods, 1, Fate::NeverAnswered);
    let edited = [Wait(200), Move::BackUp, STALL, EditContent(SETTINGS, 'b'), hangs, spec(Edit::MinReady(1))];
    let played = play_well(&story(&[&edited[..], &[Wait(5000), Move::Restore, Wait(60_000)]].concat()));
    assert_eq!(played.ledger.deletions.len(), 0);
}

/// The ConfigMap did not exist before the restore and does not exist again. A pod of the backup has read it in between.
#[test]
fn an_absence_from_before_a_restore_counts_anew() {
    let gone = [Move::BackUp, KillPod(0), Wait(200), DeleteConfigMap(SETTINGS), Wait(200)];
    let moves = [&[Wait(200)][..], &gone, &[Move::Restore, DeleteConfigMap(SETTINGS)]].concat();
    play_well(&Story { optional: true, monitors: vec![(1, AT_ONCE)], ..story(&moves) });
}

/// As above, but the list of ConfigMonitors comes late: with this seed the keeper has read the restored status by then.
#[test]
fn an_absence_that_the_restored_status_does_not_know_counts_anew() {
    let gone = [Move::BackUp, Move::FinishPod(6), DeleteConfigMap(SETTINGS), Wait(200)];
    let late = Watch(First, Watched::Monitors, WatchFault::End);
    let moves = [&[Wait(200), late][..], &gone, &[Move::Restore, DeleteConfigMap(SETTINGS)]].concat();
    play_well(&Story { seed: 13, optional: true, monitors: vec![(1, AT_ONCE)], ..story(&moves) });
}

/// A list that shows pods of one more owner than the turn covers may be older than the deletions in a turn with that
/// owner.
#[test]
fn a_turn_with_a_new_owner_needs_a_new_list() {
    let begun = [
        Spec(0, Edit::Select(Pods::Front)),
        Spec(1, Edit::Select(Pods::Back)),
        Wait(200),
        EditContent(SETTINGS, 'b'),
        Wait(100),
        Spec(0, Edit::Suspend(true)),
        Spec(1, Edit::Suspend(true)),
        Wait(8000),
    ];
    let widened = [
        Request(First, RequestKind::ListPods, 1, Fate::LateAnswer(3000)),
        Spec(0, Edit::Select(Pods::All)),
        Spec(0, Edit::Suspend(false)),
        Wait(100),
        Spec(1, Edit::Suspend(false)),
        Wait(20_000),
    ];
    let (monitors, pace) =
        (vec![(0, Some(PodCount::Pods(1))); 2], Pace { creation: 50, readiness: 5000, termination: 200 });
    play_well(&Story { monitors, pace, ..story(&[&begun[..], &widened].concat()) });
}

/// Evictions may take longer than a wave may last.
#[test]
fn slow_evictions_are_recorded_as_they_come() {
    let slow = Move::Lasting(RequestKind::Delete, Some(Fate::LateAnswer(20_000)));
    let moves = [Wait(200), spec(Edit::Evict(true)), slow, EditContent(SETTINGS, 'b'), Wait(200_000)];
    let pace = Pace { creation: 0, readiness: 0, termination: 200 };
    let played = play_well(&Story { pace, ..story(&moves) });
    let written: Vec<&str> =
        played.ledger.books[0].writes.iter().filter_map(|write| write.after.begun()?.progress.as_deref()).collect();
    assert!(written.iter().any(|progress| !["0/5", "5/5"].contains(progress)), "{written:?}");
}

/// An owner whose desired replicas are unknown for the moment does not count as one that desires none.
#[test]
fn a_restart_is_not_over_while_an_owner_does_not_answer() {
    let begun = [Scale(1, 0), Until(First, RequestKind::GetMonitor, 1), EditContent(SETTINGS, 'b'), Wait(4000)];
    let refused = [Request(First, RequestKind::ListPods, 3, Fate::NotSent), Wait(100_000)];
    let (monitors, pace) =
        (vec![(1, AT_ONCE), (3, AT_ONCE)], Pace { creation: 700, readiness: 0, termination: 20_000 });
    play_well(&Story { seed: 900_420, monitors, pace, ..story(&[&begun[..], &refused].concat()) });
}

/// A step that only waits until it may list again is no success: the earlier failure is still retried with backoff.
#[test]
fn a_denied_write_is_retried_with_backoff_even_if_lists_are_slow() {
    let denied = Move::Lasting(RequestKind::Any, Some(Fate::Denied(409)));
    let moves = [Wait(60_000), EditSecondKey(SETTINGS, 'b'), Wait(2500), denied, Wait(60_000)];
    let (monitors, pace) = (
        vec![(0, Some(PodCount::Percent("40%"))), (1, AT_ONCE), (3, AT_ONCE)],
        Pace { creation: 2000, readiness: 0, termination: 20_000 },
    );
    play_well(&Story { seed: 2_015_674, monitors, pace, page: 2, ..story(&moves) });
}

/// Another ConfigMonitor deletes a pod after the list of the selected ones, and its successor comes before that of the owner's.
#[test]
fn a_pod_and_its_successor_do_not_count_together() {
    let canary = Edit::Canary(Some((PodCount::Pods(1), 0)));
    let asks = [Move::RequestRestart(1, 'y'), EditLabels(SETTINGS), Wait(10_000), Move::RequestRestart(1, 'x')];
    let begun = [
        &[Wait(200), spec(Edit::Windows(Windows::Both)), Spec(2, Edit::QuietPeriod(3))],
        &asks[..],
        &[Move::RequestRestart(2, 'z'), Stop(First)],
    ];
    let moves = [&begun.concat()[..], &[Spec(2, canary), Move::ShutDown(1), Until(First, RequestKind::ListPods, 3)]];
    let pace = Pace { creation: 50, readiness: 0, termination: 3_600_000 };
    let monitors = vec![(3, None), (0, Some(PodCount::Percent("100%"))), (0, None)];
    let story = Story { monitors, both: 3, pace, owners: Owners::Odd, lag: 4000, page: 2, ..story(&moves.concat()) };
    play_well(&Story { seed: 130_106_153, namespaces: Served::Two, ..story });
}

/// Random stories are too short for six restarts within ten minutes.
#[test]
fn an_application_that_writes_its_own_source_waits_for_its_sixth_restart() {
    let edits = ['b', 'c'].repeat(3);
    let moves: Vec<Move> =
        edits.into_iter().flat_map(|content| [EditContent(SETTINGS, content), Wait(20_000)]).collect();
    let played = play_well(&story(&[&[Wait(200)], &moves[..], &[Wait(700_000)]].concat()));
    let starts = played.ledger.books[0].writes.iter().filter(|write| write.start().is_some());
    let starts: Vec<u64> = starts.map(|write| write.at.ms).collect();
    assert!(starts.len() == 6 && starts[5] - starts[4] >= 300_000, "{starts:?}");
}

/// No watch event announces the revert.
#[test]
fn content_is_read_again_after_its_quiet_period() {
    let moves = [Wait(200), EditContent(SETTINGS, 'b'), Wait(500), STALL, EditContent(SETTINGS, 'a'), Wait(20_000)];
    let played = play_well(&Story { monitors: vec![(3, AT_ONCE)], ..story(&moves) });
    assert_eq!(played.ledger.deletions.len(), 0);
}

/// A client that keeps writing annotations must not block the restart.
#[test]
fn writes_that_change_neither_spec_nor_status_stop_no_deletion() {
    let slow = Move::Lasting(RequestKind::GetMonitor, Some(Fate::LateAnswer(200)));
    let touches = [spec(Edit::Touch), Wait(50)].repeat(600);
    let one = [EditContent(SETTINGS, 'b'), Until(First, RequestKind::Delete, 1), slow];
    assert_eq!(deleted_in_time(&[&one[..], &touches].concat()), 5);
}

/// An admission webhook may deny a deletion with any code. An unready pod is deleted beyond the budget.
#[test]
fn a_deletion_that_is_denied_as_a_conflict_or_as_not_found_is_reported_and_stalls() {
    for (code, is_ready) in [(409, true), (404, true), (409, false), (404, false)] {
        let denied = Move::Lasting(RequestKind::Delete, Some(Fate::Denied(code)));
        let unready = [LoseReadiness(0, None), LoseReadiness(1, None)];
        let before =
            [&[Wait(200), spec(Edit::Deadline(60)), denied][..], if is_ready { &[] } else { &unready }].concat();
        let moves = [&before[..], &[EditContent(SETTINGS, 'b'), Wait(100_000)]].concat();
        let monitors = vec![(0, Some(PodCount::Pods(1)))];
        let played = play_well(&Story { monitors, owners: Owners::One, ..story(&moves) });
        let mut reasons: Vec<&str> =
            played.ledger.books[0].writes.iter().filter_map(|write| write.after.reason()).collect();
        reasons.dedup();
        let expected = ["UpToDate", "RestartInProgress", "DeletionRefused", "ProgressDeadlineExceeded"];
        assert_eq!(reasons[..4], expected, "{code}, {is_ready}");
    }
}

/// Returns the pods for which DELETEs or evictions were sent before the last move, without those that healing sends.
fn asked(owners: Owners, edit: Edit, moves: &[Move]) -> Vec<String> {
    let moves = [&[Wait(200), spec(edit)], moves, &[Wait(1)]].concat();
    let Played { trace, moves, .. } = play_well(&Story { owners, ..story(&moves) });
    let sent = trace[..moves[moves.len() - 1].1]
        .iter()
        .filter(|sent| sent.method == "DELETE" || sent.path.ends_with("/eviction"));
    sent.map(|sent| sent.path.trim_end_matches("/eviction").rsplit('/').next().unwrap().to_owned()).collect()
}

/// Each owner has a row of evictions.
#[test]
fn a_row_of_evictions_ends_when_the_server_is_busy_or_refuses() {
    let busy = Move::Lasting(RequestKind::Delete, Some(Fate::Busy(Some(30))));
    let unready = [LoseReadiness(0, None), LoseReadiness(1, None), busy, EditContent(SETTINGS, 'b'), Wait(900)];
    let tried = asked(Owners::One, Edit::Evict(true), &unready);
    assert_eq!(tried.len(), 1, "{tried:?}");
    let refused = Request(First, RequestKind::Delete, 1, Fate::Denied(403));
    let last = asked(Owners::One, Edit::Evict(true), &[refused, EditContent(SETTINGS, 'b'), Wait(20_000)]);
    assert!(last.len() == 3 && last[0] == last[2] && last[0] != last[1], "who was refused goes last: {last:?}");
}

/// Another process has read later content as the baseline.
#[test]
fn what_another_process_has_read_is_read_before_a_conflict_is_resolved() {
    let late = Request(First, RequestKind::PutStatus, 1, Fate::Late(500));
    let moves = [late, Wait(100), STALL, EditContent(SETTINGS, 'b'), Start(Second), Wait(20_000)];
    assert_eq!(play_well(&story(&moves)).ledger.deletions.len(), 0, "the baseline is the content of all pods");
}

/// Until the operator has read the new source, no ConfigMonitor refers to it, and its watch events are dropped.
#[test]
fn an_edit_of_a_new_source_before_the_watch_shows_the_edited_spec_is_acted_on() {
    let stall = Watch(First, Watched::Monitors, WatchFault::Stall);
    let unanswered = Request(First, RequestKind::Delete, 1, Fate::ProxyError);
    let begun = [stall, unanswered, EditContent(SETTINGS, 'b'), Until(First, RequestKind::Delete, 1)];
    let edited = [spec(Edit::Source(OTHER)), Wait(10_000), EditContent(OTHER, 'b'), Wait(100)];
    let resumed = [Watch(First, Watched::Monitors, WatchFault::End), Wait(20_000)];
    assert_eq!(deleted_in_time(&[&begun[..], &edited, &resumed].concat()), 7, "the first restart ends with its source");
}

/// Returns when the two pods are deleted, in seconds since the first of `moves`, which comes two seconds before a
/// minute begins. The API server's times are whole seconds, so what waits for one begins a second later.
fn deleted_at(edits: &[Edit], moves: &[Move]) -> Vec<u64> {
    let edits: Vec<Move> = edits.iter().map(|edit| spec(*edit)).collect();
    let moves = [&edits[..], &[Wait(BEFORE_A_MINUTE)], moves, &[Wait(1)]].concat();
    let Played { ledger, moves, .. } = play_well(&Story { owners: Owners::One, ..story(&moves) });
    let (first, last) = (moves[edits.len() + 1].0, moves[moves.len() - 1].0);
    let in_time = ledger.deletions.iter().filter(|deletion| deletion.at.ms < last);
    in_time.map(|deletion| (deletion.at.ms - first) / 1000).collect()
}

/// Stories begin 40 s after a full minute. This wait ends 58 s after the next one.
const BEFORE_A_MINUTE: u64 = 78_000;
const EVERY_MINUTE: Edit = Edit::Windows(Windows::EveryMinute);
pub(crate) const FROZEN: Edit = Edit::Windows(Windows::FarAway);
pub(crate) const EDIT: Move = EditContent(SETTINGS, 'b');

#[test]
fn a_window_that_closes_while_pods_are_listed_or_owners_are_read_starts_no_restart() {
    let rolling = [EVERY_MINUTE, Edit::MaxUnavailable(Some(PodCount::Pods(1)))];
    for (what, edits) in [(RequestKind::ListPods, &rolling[..1]), (RequestKind::GetOwner, &rolling)] {
        let slow = Request(First, what, 1, Fate::Late(20_000));
        let deleted = deleted_at(edits, &[Wait(15_000), slow, EDIT, Wait(100_000)]);
        assert_eq!(deleted.first(), Some(&63), "{what:?}");
    }
}

/// A restart that has begun continues.
#[test]
fn a_closing_window_stops_no_restart() {
    let rolling = [EVERY_MINUTE, Edit::MaxUnavailable(Some(PodCount::Pods(1)))];
    let held = [NewPodsStayUnready(true), EDIT, Wait(30_000), NewPodsStayUnready(false), Wait(5000)];
    assert_eq!(deleted_at(&rolling, &held), [3, 30]);
}

/// Without it the StatefulSet does not create the others again.
#[test]
fn of_members_that_are_not_ready_the_first_one_goes_first() {
    let broken = (0..9).map(|nth| LoseReadiness(nth, None));
    let moves: Vec<Move> = [Wait(200)].into_iter().chain(broken).chain([EDIT, Wait(30_000), Wait(1)]).collect();
    let monitors = vec![(0, Some(PodCount::Pods(1)))];
    let Played { ledger, moves, .. } = play_well(&Story { monitors, ordered: true, ..story(&moves) });
    let in_time = ledger.deletions.iter().filter(|deletion| deletion.at.ms < moves[moves.len() - 1].0);
    let places: Vec<_> = in_time.map(|deletion| ledger.pods[deletion.pod].place).filter(|place| place.0 == 1).collect();
    assert_eq!(places, [(1, 0), (1, 1)]);
}

/// Without a watch on the pods, passes follow each other with backoff, up to half a minute apart.
#[test]
fn the_next_pass_is_due_when_the_canaries_have_stayed_available() {
    let bake = Edit::Canary(Some((PodCount::Pods(1), 30)));
    let blind = Move::Lasting(RequestKind::Watch, Some(Fate::Forbidden));
    assert_eq!(deleted_at(&[bake], &[blind, EDIT, Wait(100_000)]), [0, 31]);
}

#[test]
fn a_failed_canary_is_over_once_somebody_else_has_replaced_the_other_pods() {
    let canary = spec(Edit::Canary(Some((PodCount::Pods(1), 5))));
    let failed = [canary, Wait(200), EDIT, Wait(3000), Move::RestartContainer(0), Wait(1000)];
    for (moves, is_over) in [(&[Wait(130_000)][..], false), (&[KillPod(0), Wait(65_000)], true)] {
        let moves = [&failed[..], moves, &[Wait(1)]].concat();
        let Played { ledger, moves, .. } = play_well(&Story { owners: Owners::One, ..story(&moves) });
        let last = ledger.books[0].writes.iter().rfind(|write| write.at.ms < moves[moves.len() - 1].0).unwrap();
        assert_eq!(last.after.restart.is_none(), is_over);
    }
}

/// No list shows it.
#[test]
fn a_canary_that_fails_and_is_deleted_before_the_next_list_has_failed() {
    let canary = spec(Edit::Canary(Some((PodCount::Pods(1), 30))));
    let moves = [canary, Wait(200), EDIT, Wait(8000), Move::RestartContainer(0), KillPod(1), Wait(20_000), Wait(1)];
    let pace = Pace { creation: 2000, readiness: 2000, termination: 0 };
    let Played { ledger, .. } = play_well(&Story { owners: Owners::One, pace, ..story(&moves) });
    assert!(ledger.books[0].writes.iter().any(|write| write.after.has_failed_canaries()));
}

/// The list that another keeper made right after the edit, and keeps while its Event hangs, is older than the window.
#[test]
fn a_restart_that_shares_a_list_begins_when_it_is_written() {
    let hang = [RequestKind::Event, RequestKind::ListPods].into_iter().zip([2, 1]);
    let hang: Vec<Move> = hang.map(|(what, nth)| Request(First, what, nth, Fate::NeverAnswered)).collect();
    let before = [spec(Edit::Windows(Windows::EveryMinute)), Wait(2500)];
    let moves = [&before[..], &hang, &[EditSecondKey(SETTINGS, 'b'), Wait(60_000)]].concat();
    let pace = Pace { creation: 2000, readiness: 300, termination: 0 };
    play_well(&Story { seed: 20301185937, monitors: vec![(1, AT_ONCE), (0, AT_ONCE)], pace, ..story(&moves) });
}

/// The watch has stalled, and does not show that a pod is no longer available. After a slow list, the next one comes
/// after a pause that is longer than the bake.
#[test]
fn canaries_pass_by_a_list() {
    let canary = spec(Edit::Canary(Some((PodCount::Pods(1), 10))));
    let slow = Move::Lasting(RequestKind::ListPods, Some(Fate::LateAnswer(2000)));
    let stall = Watch(First, Watched::Pods, WatchFault::Stall);
    let moves = [canary, Wait(2500), slow, EDIT, Wait(9500), stall, LoseReadiness(0, None), Wait(30_000)];
    play_well(&Story { pace: Pace { creation: 2000, readiness: 0, termination: 0 }, ..story(&moves) });
}

/// The absence is first seen by a process that cannot write at first, or seen while it cannot.
#[test]
fn an_absence_that_is_written_down_later_counts_from_when_the_config_monitor_was_settled() {
    let gone = [Wait(5000), Crash(First), DeleteConfigMap(SETTINGS), KillPod(0), Wait(10_000)];
    let refused = Request(First, RequestKind::PutStatus, 1, Fate::Busy(None));
    let written = [refused, Start(First), Until(First, RequestKind::PutStatus, 2)];
    let back =
        [Move::Lasting(RequestKind::PutStatus, Some(Fate::Busy(None))), Wait(20_000), EditContent(SETTINGS, 'a')];
    let moves = [&gone[..], &written, &back].concat();
    let played = play_well(&Story { optional: true, monitors: vec![(1, AT_ONCE)], ..story(&moves) });
    assert_eq!(played.ledger.deletions.len(), 1);
    let refuses = |is_refused: bool| Move::Lasting(RequestKind::PutStatus, is_refused.then_some(Fate::Busy(None)));
    let gone = [Wait(5000), refuses(true), DeleteConfigMap(SETTINGS), KillPod(0), Wait(20_000), refuses(false)];
    let back = [Until(First, RequestKind::PutStatus, 1), refuses(true), Wait(20_000), EditContent(SETTINGS, 'a')];
    let moves = [&gone[..], &back].concat();
    let played = play_well(&Story { optional: true, monitors: vec![(1, AT_ONCE)], ..story(&moves) });
    // It has been there for longer than the quiet period, so that the pods restart for it, too.
    assert_eq!(played.ledger.deletions.len(), 5 + 5);
}

/// The edit that a restore has undone had made the spec valid again, and the one after that has the same generation.
#[test]
fn a_spec_of_the_same_generation_after_a_restore_is_another_one() {
    let lost = Request(Second, RequestKind::GetConfigMap, 3, Fate::AnswerLost);
    let begun =
        [spec(Edit::Windows(Windows::Both)), Wait(400), spec(Edit::Canary(None)), lost, Wait(8000), Start(Second)];
    let busy = Move::Lasting(RequestKind::Delete, Some(Fate::Busy(None)));
    let halted = [Wait(1500), busy, EditSecondKey(SETTINGS, 'b'), Wait(60_000)];
    let undone = [
        spec(Edit::Invalidate(true)),
        Move::BackUp,
        spec(Edit::Select(Pods::Back)),
        Move::Lasting(RequestKind::Delete, None),
        Until(First, RequestKind::PutStatus, 1),
        Move::Restore,
    ];
    let moves =
        [&begun[..], &halted, &undone, &[spec(Edit::Canary(Some((PodCount::Pods(1), 2)))), Wait(8000)]].concat();
    let pace = Pace { creation: 2000, readiness: 300, termination: 200 };
    let monitors = vec![(3, Some(PodCount::Percent("40%"))), (0, AT_ONCE)];
    let story =
        Story { seed: 20961410354, monitors, both: 2, pace, owners: Owners::Odd, optional: true, ..story(&moves) };
    play_well(&Story { namespaces: Served::Two, ..story });
}

/// The list of the other namespace's ConfigMonitors is held up for three seconds, and a new pod becomes ready.
#[test]
fn a_late_answer_does_not_set_the_clock_back() {
    let late = [Until(First, RequestKind::Any, 1), Request(First, RequestKind::ListAll, 4, Fate::LateAnswer(3000))];
    let again = [Wait(1500), EDIT, Watch(First, Watched::Monitors, WatchFault::Expire), Wait(1500)];
    let undone = [Request(First, RequestKind::GetOwner, 2, Fate::CrashAfter), EDIT, Wait(100_000)];
    let pace = Pace { creation: 2000, readiness: 5000, termination: 3000 };
    let moves = [&late[..], &again, &undone].concat();
    let slow =
        Story { seed: 20601124562, monitors: vec![(1, Some(PodCount::Pods(1)))], pace, nodes: -600, ..story(&moves) };
    play_well(&Story { min_ready: 2, namespaces: Served::Two, ..slow });
}

#[test]
fn the_larger_min_ready_seconds_of_the_owner_and_of_the_spec_counts() {
    let next = |of_owner, own| {
        let moves = [spec(Edit::MinReady(own)), Wait(200), EDIT, Wait(30_000)];
        let monitors = vec![(0, Some(PodCount::Pods(1)))];
        let played = play_well(&Story { monitors, min_ready: of_owner, owners: Owners::One, ..story(&moves) });
        let [first, second] = &played.ledger.deletions[..] else { panic!("two pods") };
        (second.at.ms - first.at.ms) / 1000
    };
    assert_eq!([(0, 0), (4, 0), (0, 4), (4, 2)].map(|(of_owner, own)| next(of_owner, own)), [0, 5, 5, 5]);
}

/// No pod is left for the request in between, whether other content has to wait for the interval or not.
#[test]
fn a_request_that_is_made_again_during_the_restart_for_another_one_is_handled_next() {
    let asks = |value| Move::RequestRestart(0, value);
    let begun = [Scale(0, 0), asks('y'), Wait(60_000), asks('x'), Wait(400)];
    let gone = [EditContent(SETTINGS, 'b'), asks('y'), Move::ShutDown(1), Wait(20_000), Wait(1)];
    let pace = Pace { creation: 700, readiness: 300, termination: 200 };
    for interval in [0, 10] {
        let moves = [&[spec(Edit::MinInterval(interval))], &begun[..], &gone].concat();
        let Played { ledger, moves, .. } = play_well(&Story { monitors: vec![(3, None)], pace, ..story(&moves) });
        let writes = ledger.books[0].writes.iter().filter(|write| write.at.ms < moves[moves.len() - 1].0);
        let starts = writes.filter_map(|write| write.start()?.request.as_ref());
        assert_eq!(starts.map(|request| &*request.value).collect::<Vec<_>>(), ["x", "y"], "{interval}");
    }
}
