//! The exceptions, each with the shortest story that needs it: whoever removes one from guarantees.md finds its story
//! here. Also stories that random choices produce too rarely.

use crate::exceptions::Exception;
use crate::player::{Played, play};
use crate::story::Move::{
    self, Crash, DeleteConfigMap, Edit as EditContent, EditLabels, EditSecondKey, Freeze, KillPod, LoseReadiness,
    NewPodsStayUnready, Relabel, Request, RequestRestart, RestartContainer, Scale, Spec, Start, Stop, Until, Wait,
    Watch,
};
use crate::story::{AT_ONCE, Edit, PodCount, Pods, Story, Windows};
use crate::{judge, stale_pods};
use rules::status::Status;
use simulated_cluster::ledger::End;
use simulated_cluster::network::Process::{First, Second};
use simulated_cluster::network::{Fate, RequestKind, Served, WatchFault, Watched};
use simulated_cluster::state::{Owners, Pace, References};

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

/// The answer about the other ConfigMap was given first, and came last.
#[test]
fn the_order_of_two_answers_loses_no_change() {
    let edited = [Wait(200), STALL, EditLabels(SETTINGS), EditContent(OTHER, 'b'), spec(Edit::MinReady(1))];
    let unread = [Wait(60_000), EditContent(OTHER, 'a'), KillPod(0), EditContent(OTHER, 'b')];
    let moves = [edited.as_slice(), &unread].concat();
    (0..10).for_each(|seed| _ = play_well(&Story { seed, both: 1, ..story(&moves) }));
}

#[test]
fn pods_keep_content_that_was_reverted_before_it_was_recorded() {
    let listing = Request(First, RequestKind::ListPods, 1, Fate::LateAnswer(500));
    let read = [Wait(200), listing, EditContent(SETTINGS, 'b'), KillPod(0), Until(First, RequestKind::ListPods, 1)];
    let back = [Crash(First), EditContent(SETTINGS, 'a'), Start(First)];
    assert_needs(Exception::CameAndWentUnnoted, &[&read[..], &back].concat());
}

#[test]
fn pods_keep_content_that_was_reverted_within_its_quiet_period() {
    let quiet = spec(Edit::QuietPeriod(3));
    let story = |ms| [quiet, Wait(200), EditContent(SETTINGS, 'b'), KillPod(0), Wait(ms), EditContent(SETTINGS, 'a')];
    assert_needs(Exception::CameAndWentInQuietPeriod, &story(1000));
    assert_eq!(exceptions(&story(5000)), []);
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

/// Whether the content changed before or after the edit of the keys, nobody knows.
#[test]
fn an_edit_of_the_keys_hides_no_change() {
    for (before, after) in [(false, true), (true, false)] {
        let unseen = [Wait(200), Stop(First), EditContent(SETTINGS, 'b'), spec(Edit::OneKey(after)), Start(First)];
        let moves = [&[spec(Edit::OneKey(before))], &unseen[..], &[Wait(20_000)]].concat();
        assert_eq!((exceptions(&moves), deleted_for(0, &moves)), (vec![], 5));
        let held = [spec(Edit::Windows(Windows::FarAway)), Wait(200), EditContent(SETTINGS, 'b'), Wait(5000)];
        let moves = [&[spec(Edit::OneKey(before))], &held[..], &[spec(Edit::OneKey(after)), Wait(200)]].concat();
        let open = [EditSecondKey(SETTINGS, 'c'), Wait(200), spec(Edit::Windows(Windows::Always)), Wait(20_000)];
        let moves = [&moves[..], &open].concat();
        assert_eq!((exceptions(&moves), deleted_for(0, &moves)), (vec![], 5));
    }
}

#[test]
fn a_pod_that_is_selected_only_later_is_left_alone() {
    let (back, all) = (spec(Edit::Select(Pods::Back)), spec(Edit::Select(Pods::All)));
    assert_needs(Exception::LeftAlone, &[back, Wait(200), EditContent(SETTINGS, 'b'), Wait(200), all]);
    let (front, out, again) = (spec(Edit::Select(Pods::Front)), Relabel(4, None), Relabel(4, Some("front")));
    let restarted = [EditContent(SETTINGS, 'b'), Wait(5000)];
    assert_needs(Exception::LeftAlone, &[&[front, Wait(200), out][..], &restarted, &[again]].concat());
    assert_eq!(exceptions(&[&[front, Wait(200), out, again][..], &restarted].concat()), []);
    let reverted =
        [EditContent(SETTINGS, 'b'), Wait(50), KillPod(0), Wait(4000), EditContent(SETTINGS, 'a'), Wait(4000)];
    let moves = [&[back, Wait(200)][..], &reverted, &[all]].concat();
    let pace = Pace { creation: 0, readiness: 0, termination: 20_000 };
    // The seed says which server answers.
    (0..10)
        .for_each(|seed| _ = play_well(&Story { seed, monitors: vec![(3, AT_ONCE)], skew: 3, pace, ..story(&moves) }));
}

#[test]
fn pods_keep_content_that_was_read_late_and_reverted_during_its_restart() {
    let born = [spec(Edit::Suspend(true)), Wait(1200), STALL, EditContent(SETTINGS, 'b'), KillPod(0)];
    let back = [RESUME, Wait(200), EditContent(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&born[..], &back].concat()), []);
    assert_needs(Exception::ReadLateAndWent, &[&born[..], &[Wait(2500)], &back].concat());
}

#[test]
fn a_new_process_goes_by_the_transition_times_of_the_conditions() {
    let suspended = [Wait(200), spec(Edit::Suspend(true)), Wait(200), Stop(First)];
    let born = [EditContent(SETTINGS, 'b'), Wait(2500), KillPod(0), Wait(2500)];
    let back = [Start(First), Wait(2500), EditContent(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&suspended[..], &born, &back].concat()), []);
    let forbidden = Request(First, RequestKind::GetConfigMap, 1, Fate::Forbidden);
    assert_eq!(exceptions(&[&suspended[..], &born, &[forbidden], &back].concat()), []);
}

/// Another keeper has read this version for this keeper, after a version that this keeper has not read.
#[test]
fn a_keeper_after_a_panic_goes_by_the_transition_times_of_the_conditions() {
    let suspended = [KillPod(0), spec(Edit::Suspend(true)), Spec(1, Edit::Suspend(true)), Wait(20_000)];
    let panic = Request(First, RequestKind::ListPods, 1, Fate::Panic);
    let there = [panic, EditContent(SETTINGS, 'b'), Wait(100), EditLabels(SETTINGS), Wait(100), EditLabels(SETTINGS)];
    let back = [Wait(2500), EditContent(SETTINGS, 'a'), Wait(2500), spec(Edit::Suspend(false)), Wait(2500)];
    let moves = [&suspended[..], &there, &back].concat();
    play_well(&Story { monitors: vec![(0, AT_ONCE); 2], ..story(&moves) });
}

/// Nothing was read meanwhile, as if no process had run.
#[test]
fn a_spec_that_is_valid_again_goes_by_the_transition_times_of_the_conditions() {
    let spoiled = [Wait(200), spec(Edit::Suspend(true)), Wait(200), spec(Edit::Invalidate(true)), Wait(200)];
    let born = [EditContent(SETTINGS, 'b'), Wait(2500), KillPod(0), Wait(2500)];
    let back = [spec(Edit::Invalidate(false)), Wait(2500), EditContent(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&spoiled[..], &born, &back].concat()), []);
}

#[test]
fn a_pod_that_waited_for_the_config_map_is_replaced() {
    let suspend = spec(Edit::Suspend(true));
    let moves = [Wait(200), suspend, DeleteConfigMap(SETTINGS), Wait(200), KillPod(0), Wait(2500)];
    let back = [EditContent(SETTINGS, 'b'), Wait(200), EditContent(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&moves[..], &back].concat()), []);
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
    let rings = [Wait(200), listing, EditLabels(SETTINGS), Until(First, RequestKind::ListPods, 1)];
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

/// Each change begins a quiet period of its own, whatever happened to the write that recorded it.
#[test]
fn the_quiet_period_begins_with_the_last_content() {
    let lost = Request(First, RequestKind::PutStatus, 1, Fate::AnswerLost);
    let moves = [Wait(200), EditContent(SETTINGS, 'b'), Wait(2900), lost, EditContent(SETTINGS, 'c'), Wait(10_000)];
    let played = play(&Story { monitors: vec![(3, AT_ONCE)], ..story(&moves) });
    assert_eq!(judge(&played.ledger), Ok(()));
}

/// The content must be unchanged for the quiet period.
#[test]
fn an_edit_of_labels_does_not_extend_the_quiet_period() {
    let moves = [Wait(200), EditContent(SETTINGS, 'b'), Wait(1500), EditLabels(SETTINGS), Wait(20_000)];
    let Played { ledger, moves, .. } = play_well(&Story { monitors: vec![(3, AT_ONCE)], ..story(&moves) });
    let waited = ledger.deletions[0].at.ms - moves[1].0;
    assert!((3000..3200).contains(&waited), "{waited} ms");
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

/// Kubelets do not watch an immutable ConfigMap, so a user must be informed.
#[test]
fn the_replacement_of_an_immutable_config_map_is_reported_once() {
    let moves = [Freeze(SETTINGS), Wait(200), EditContent(SETTINGS, 'b'), Wait(5000), EditLabels(SETTINGS), Wait(5000)];
    let played = play_well(&story(&moves));
    let reasons = played.ledger.books[0].events.iter().map(|event| &event.reason);
    assert_eq!(reasons.filter(|reason| *reason == "ImmutableSourceReplaced").count(), 1);
}

/// The watch has not shown the deletion, and both keepers read the replacement.
#[test]
fn the_keeper_of_a_deleted_config_monitor_may_report_the_replacement_of_an_immutable_config_map() {
    let again = [Move::DeleteMonitor(0), Move::CreateMonitor(0), Watch(First, Watched::Monitors, WatchFault::Miss)];
    let replaced = [Wait(200), EditSecondKey(SETTINGS, 'b'), Wait(8000)];
    let played = play_well(&story(&[&[Freeze(SETTINGS), Wait(100)], &again[..], &replaced].concat()));
    let reasons = played.ledger.books.iter().flat_map(|book| &book.events).map(|event| &event.reason);
    assert_eq!(reasons.filter(|reason| *reason == "ImmutableSourceReplaced").count(), 2);
}

/// A pipeline waits until the operator has read what it wrote, whether the content differs or not.
#[test]
fn each_version_of_the_config_map_is_recorded() {
    let moves = [Wait(200), EditLabels(SETTINGS), Wait(1000), EditLabels(SETTINGS), Wait(1000), EditLabels(SETTINGS)];
    let Played { ledger, moves, .. } = play_well(&story(&[&moves[..], &[Wait(60_000), Wait(1)]].concat()));
    let (last, _, _) = moves[moves.len() - 1];
    let written = ledger.books[0].writes.iter().filter(|write| write.at.ms < last);
    let mut versions: Vec<_> = written.map(|write| write.after.source_version()).collect();
    versions.dedup();
    assert_eq!(versions.len(), 4, "at first sight, and for each edit: {versions:?}");
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

/// The pod has no labels as the restart begins, and has them again later.
#[test]
fn a_pod_that_lost_its_labels_for_the_beginning_is_not_counted() {
    let edited = [spec(Edit::Select(Pods::Front)), Wait(200), EditContent(SETTINGS, 'b'), Wait(200), Relabel(8, None)];
    let moves = [&edited[..], &[Wait(1500), Relabel(8, Some("front")), Wait(60_000)]].concat();
    let pace = Pace { creation: 0, readiness: 5000, termination: 20_000 };
    (0..10).for_each(|seed| _ = play_well(&Story { seed, monitors: vec![(1, AT_ONCE)], pace, ..story(&moves) }));
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

/// A wave ends with its ConfigMonitor, and the next one of that name begins with a baseline.
#[test]
fn a_wave_stops_when_its_config_monitor_is_deleted() {
    let slow = [1, 2, 3].map(|nth| Request(First, RequestKind::Delete, nth, Fate::Late(3000)));
    let begun = [EditContent(SETTINGS, 'b'), Until(First, RequestKind::PutStatus, 1), Wait(20)];
    let moves = [&[Wait(200)][..], &slow, &begun, &[Move::DeleteMonitor(0), Wait(10_000)]].concat();
    let played = play_well(&story(&moves));
    assert_eq!(played.ledger.deletions.len(), 3, "those that were under way");
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

/// The second process reads the content that is back before the first one has written that it was gone.
#[test]
fn pods_keep_content_that_another_process_finds_reverted_within_the_quiet_period() {
    let late = Request(First, RequestKind::GetConfigMap, 1, Fate::LateAnswer(20_000));
    let moves = [Wait(50), EditContent(SETTINGS, 'c'), Wait(5), late, KillPod(1), Start(Second)];
    let moves = [&moves[..], &[EditContent(SETTINGS, 'a'), Wait(100)]].concat();
    let pace = Pace { creation: 0, readiness: 5000, termination: 20_000 };
    for seed in 0..20 {
        let story = Story { seed, monitors: vec![(1, AT_ONCE)], nodes: 600, pace, ..story(&moves) };
        play_well(&story);
    }
}

/// A restart was interrupted by content that a pod had read, and the restore has undone the interruption.
#[test]
fn pods_keep_content_that_came_after_the_backup() {
    let deleted = [Wait(10), EditSecondKey(OTHER, 'b'), Wait(10), DeleteConfigMap(SETTINGS), Wait(1000), Move::BackUp];
    let read = [Spec(0, Edit::QuietPeriod(3)), EditContent(SETTINGS, 'b'), Wait(200), EditContent(SETTINGS, 'a')];
    let story = story(&[&[Wait(200)][..], &deleted, &read, &[Move::Restore]].concat());
    let pace = Pace { creation: 700, readiness: 5000, termination: 3000 };
    let monitors = vec![(0, Some(PodCount::Pods(1)))];
    let story = Story { owners: Owners::Odd, both: 1, min_ready: 2, monitors, pace, ..story };
    let ledger = play_well(&story).ledger;
    let stale = stale_pods(&ledger, &ledger.books[0]);
    assert!(stale.iter().any(|(_, exception)| *exception == Some(Exception::CameAndWentUnnoted)), "{stale:?}");
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

/// The ConfigMap came while the watch was stalled, was read because the spec was edited, and has gone again. The list that
/// shows that shows what the watch had shown.
#[test]
fn a_source_that_came_and_went_while_the_watch_was_stalled_is_missing_again() {
    let gone = [
        Wait(200),
        DeleteConfigMap(SETTINGS),
        Wait(1000),
        Watch(First, Watched::ConfigMaps, WatchFault::Stall),
        Wait(8000),
    ];
    let back = [
        EditSecondKey(SETTINGS, 'a'),
        NewPodsStayUnready(true),
        Spec(0, Edit::Suspend(false)),
        Wait(8000),
        DeleteConfigMap(SETTINGS),
    ];
    let (moves, monitors) = ([&gone[..], &back].concat(), vec![(1, Some(PodCount::Pods(1)))]);
    play_well(&Story { optional: true, monitors, ..story(&moves) });
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

/// The first source had the same content within the same second, before this source was named.
#[test]
fn old_pods_are_listed_for_each_source() {
    let pending = [Wait(50), EditContent(SETTINGS, 'b'), Until(First, RequestKind::PutStatus, 1), KillPod(0)];
    let moves = [&pending[..], &[spec(Edit::Source(OTHER)), Wait(200), EditContent(OTHER, 'b')]].concat();
    let pace = Pace { creation: 50, readiness: 0, termination: 0 };
    play_well(&Story { monitors: vec![(1, AT_ONCE)], pace, ..story(&moves) });
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

/// Returns the milliseconds between the deletions of one owner's pods, and how many deletions were sent.
fn intervals(monitor: (u32, Option<PodCount>), before: &[Move]) -> (Vec<u64>, usize) {
    let moves = [&[Wait(200)], before, &[EditContent(SETTINGS, 'b'), Wait(200_000), Wait(1)]].concat();
    let pace = Pace { creation: 50, readiness: 4000, termination: 200 };
    let story = Story { monitors: vec![monitor], owners: Owners::One, pace, ..story(&moves) };
    let Played { ledger, trace, .. } = play_well(&story);
    let at: Vec<u64> = ledger.deletions.iter().map(|deletion| deletion.at.ms).collect();
    let asked = trace.iter().filter(|sent| sent.method == "DELETE" || sent.path.ends_with("/eviction")).count();
    let is_blocked = ledger.books[0].events.iter().any(|event| event.reason == "EvictionBlocked");
    assert!(!is_blocked, "a budget that allows one pod after the other is normal");
    (at.windows(2).map(|pair| pair[1] - pair[0]).collect(), asked)
}

/// A pod takes 4 s to become ready. The next pod does not wait for the next pass, which is due 10 s after the previous
/// one.
#[test]
fn the_next_pod_goes_as_soon_as_the_previous_one_is_available() {
    let one = (0, Some(PodCount::Pods(1)));
    let soon = |(intervals, asked): (Vec<u64>, usize), due: std::ops::Range<u64>, most: usize| {
        assert!(intervals.len() == 1 && due.contains(&intervals[0]) && asked <= most, "{intervals:?}, {asked} asked");
    };
    soon(intervals(one, &[]), 4000..4200, 2);
    soon(intervals(one, &[spec(Edit::MinReady(2))]), 6000..7200, 2);
    // The disruption controller sees the new pod half a second later, and has refused the second pod once.
    let budget = Move::DisruptionBudgets([Some(2), None]);
    soon(intervals((0, AT_ONCE), &[spec(Edit::Evict(true)), budget]), 4500..4700, 3);
}

/// Returns how many pods are deleted in a story of a ConfigMonitor with both ConfigMaps, or the first one, and a quiet
/// period of 3 s.
fn deleted_for(both: usize, moves: &[Move]) -> usize {
    let moves = [&[Wait(200)], moves, &[Wait(20_000)]].concat();
    play_well(&Story { both, monitors: vec![(3, AT_ONCE)], ..story(&moves) }).ledger.deletions.len()
}

/// Each pod is deleted once: the pods that a restart creates have the content of both.
#[test]
fn changes_of_two_sources_within_a_quiet_period_are_one_restart() {
    let edits = [EditContent(SETTINGS, 'b'), Wait(2000), EditContent(OTHER, 'b')];
    assert_eq!(deleted_for(1, &edits), 5);
    assert_eq!(deleted_for(1, &[&edits[..1], &[Wait(20_000)], &edits[2..]].concat()), 10);
    let back = [EditContent(SETTINGS, 'a'), Wait(500), EditContent(OTHER, 'a')];
    assert_eq!(deleted_for(1, &[&edits[..], &[Wait(500)], &back].concat()), 0);
}

#[test]
fn an_added_source_is_a_baseline_and_the_known_one_still_counts() {
    let both = spec(Edit::Both);
    assert_eq!(deleted_for(0, &[EditContent(OTHER, 'b'), both, Wait(5000), EditLabels(OTHER)]), 0);
    let meanwhile = [Stop(First), EditContent(SETTINGS, 'b'), EditContent(OTHER, 'b'), both, Start(First)];
    assert_eq!(deleted_for(0, &meanwhile), 5);
    assert_eq!(deleted_for(0, &[EditContent(SETTINGS, 'b'), Wait(1000), both]), 5);
}

#[test]
fn removing_a_source_restarts_nothing() {
    let first = spec(Edit::Source(SETTINGS));
    assert_eq!(deleted_for(1, &[first, EditContent(OTHER, 'b')]), 0);
    assert_eq!(deleted_for(1, &[first, Wait(5000), EditContent(OTHER, 'b'), spec(Edit::Both)]), 0);
    // The content of the pending restart may still be reverted.
    let pending = [EditContent(SETTINGS, 'b'), Wait(1000), first, Wait(500), EditContent(SETTINGS, 'a')];
    assert_eq!(deleted_for(1, &pending), 0);
}

/// Holds whatever happens to the remaining sources.
#[test]
fn a_restart_about_a_removed_source_continues() {
    let removed = [EditContent(OTHER, 'b'), Wait(1000), spec(Edit::Source(SETTINGS)), Wait(500)];
    assert_eq!(deleted_for(1, &removed), 5);
    let there_and_back = [EditContent(SETTINGS, 'b'), Wait(500), EditContent(SETTINGS, 'a')];
    assert_eq!(deleted_for(1, &[&removed[..], &there_and_back].concat()), 5);
}

/// Changes meanwhile are known, whichever process has seen them.
#[test]
fn a_restart_is_held_while_a_source_is_missing() {
    let missing = [DeleteConfigMap(OTHER), Wait(1000), EditContent(SETTINGS, 'b'), Wait(60_000)];
    let crash = [Stop(First), Start(First), Wait(1000)];
    for crash in [&[][..], &crash] {
        let back = |content| [&missing[..], crash, &[EditContent(OTHER, content)]].concat();
        assert_eq!(deleted_for(1, &back('a')), 5);
        assert_eq!(deleted_for(1, &back('b')), 5);
        assert_eq!(deleted_for(1, &[&missing[..], crash, &[EditContent(SETTINGS, 'a')]].concat()), 0);
    }
    let moves = [&[Wait(200)], &missing[..], &[EditContent(OTHER, 'a'), Wait(20_000)]].concat();
    let Played { ledger, moves, .. } = play_well(&Story { both: 1, monitors: vec![(3, AT_ONCE)], ..story(&moves) });
    assert!(ledger.deletions.iter().all(|deletion| deletion.at.ms >= moves[5].0), "it was held");
}

/// The earlier source stays recorded until the newly named ones exist.
#[test]
fn a_missing_new_source_makes_the_operator_forget_nothing() {
    let one_key = spec(Edit::OneKey(true));
    let misspelt = [DeleteConfigMap(OTHER), EditContent(SETTINGS, 'b'), spec(Edit::Both)];
    let misspelt = [&[one_key, Wait(1000), Stop(First)], &misspelt[..], &[Start(First), Wait(1000)]].concat();
    let fixed = [spec(Edit::Source(SETTINGS)), one_key];
    assert_eq!(deleted_for(0, &[&misspelt[..], &fixed].concat()), 5);
}

/// The pods that were created with the other content restart once more.
#[test]
fn content_that_is_back_along_with_an_edit_of_the_keys_is_a_revert() {
    let back = [EditContent(SETTINGS, 'b'), Wait(10), spec(Edit::OneKey(true)), EditContent(SETTINGS, 'a')];
    let moves = [&[Wait(5000)][..], &back, &[Wait(20_000)]].concat();
    let pace = Pace { creation: 0, readiness: 300, termination: 3000 };
    let played = play_well(&Story { monitors: vec![(0, AT_ONCE)], pace, ..story(&moves) });
    assert_eq!(replaced(&played), [2, 5]);
}

/// Returns how many pods each restart in the final history has replaced, the last one first.
pub(crate) fn replaced(played: &Played) -> Vec<usize> {
    let Some(End { status, .. }) = &played.ledger.books[0].end else { panic!("it has an end") };
    status.history.iter().map(|entry| entry.replaced).collect()
}

#[test]
fn a_request_in_the_middle_of_a_restart_is_handled_after_it() {
    let halted = [Wait(200), NewPodsStayUnready(true), EditContent(SETTINGS, 'b'), Wait(2000), RequestRestart(0, 'x')];
    for crash in [&[][..], &[Stop(First), Start(First), Wait(1000)]] {
        let moves = [&halted[..], crash, &[NewPodsStayUnready(false), Wait(60_000)]].concat();
        let played = play_well(&Story { monitors: vec![(0, Some(PodCount::Pods(1)))], ..story(&moves) });
        assert_eq!(replaced(&played), [5, 5]);
    }
}

/// No watch event announces the revert.
#[test]
fn content_is_read_again_after_its_quiet_period() {
    let moves = [EditContent(SETTINGS, 'b'), Wait(500), STALL, EditContent(SETTINGS, 'a')];
    assert_eq!(deleted_for(0, &moves), 0);
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
    assert_eq!(deleted_in_time(&[&begun[..], &edited, &resumed].concat()), 10, "each pod for each source");
}

/// Returns when the two pods are deleted, in seconds since the first of `moves`, which comes two seconds before a
/// minute begins. The API server's times are whole seconds, so what waits for one begins a second later.
pub(crate) fn deleted_at(edits: &[Edit], moves: &[Move]) -> Vec<u64> {
    let edits: Vec<Move> = edits.iter().map(|edit| spec(*edit)).collect();
    let moves = [&edits[..], &[Wait(BEFORE_A_MINUTE)], moves, &[Wait(1)]].concat();
    let Played { ledger, moves, .. } = play_well(&Story { owners: Owners::One, ..story(&moves) });
    let (first, last) = (moves[edits.len() + 1].0, moves[moves.len() - 1].0);
    let in_time = ledger.deletions.iter().filter(|deletion| deletion.at.ms < last);
    in_time.map(|deletion| (deletion.at.ms - first) / 1000).collect()
}

const STARTING: Pace = Pace { creation: 0, readiness: 4000, termination: 0 };

/// A pod that the operator has seen to become ready is ready since then, whatever the clock of its node says.
#[test]
fn the_clock_of_a_node_does_not_shorten_the_time_for_which_a_pod_must_be_ready() {
    let rolling = [spec(Edit::MaxUnavailable(Some(PodCount::Pods(1)))), spec(Edit::MinReady(10))];
    let moves = [&rolling[..], &[Wait(30_000), EditContent(SETTINGS, 'b'), Wait(60_000)]].concat();
    let deleted_at = |nodes, moves: &[Move]| -> Vec<u64> {
        let Played { ledger, moves, .. } =
            play_well(&Story { nodes, pace: STARTING, owners: Owners::One, ..story(moves) });
        ledger.deletions.iter().map(|deletion| (deletion.at.ms - moves[3].0) / 1000).collect()
    };
    assert_eq!([0, -600].map(|nodes| deleted_at(nodes, &moves)), [[0, 15], [0, 16]]);
    assert_eq!(deleted_at(600, &moves), [11, 32], "a list shows that the clock is fast, and one comes every 10 s");
}

/// The second pod is replaced by somebody else while the first one bakes. Its successor bakes as long.
#[test]
fn the_clock_of_a_node_does_not_shorten_the_time_for_which_a_canary_bakes() {
    let moves = [spec(CANARY), Wait(200), EDIT, Wait(6000), KillPod(0), Wait(30_000)];
    let passed_at = |nodes| {
        let Played { ledger, moves, .. } =
            play_well(&Story { nodes, pace: STARTING, owners: Owners::One, ..story(&moves) });
        let has_passed = |status: &Status| {
            let canary = status.begun().and_then(|begun| begun.canary.as_ref());
            canary.is_some_and(|canary| canary.state == "Passed")
        };
        let passed = ledger.books[0].writes.iter().find(|write| has_passed(&write.after));
        passed.map(|write| (write.at.ms - moves[2].0) / 1000)
    };
    let passed_at = [0, -600].map(passed_at);
    assert!(passed_at.iter().all(|at| at.is_some_and(|at| (15..=17).contains(&at))), "{passed_at:?} s");
}

/// Stories begin 40 s after a full minute. This wait ends 58 s after the next one.
const BEFORE_A_MINUTE: u64 = 78_000;
const EVERY_MINUTE: Edit = Edit::Windows(Windows::EveryMinute);
pub(crate) const FROZEN: Edit = Edit::Windows(Windows::FarAway);
pub(crate) const EDIT: Move = EditContent(SETTINGS, 'b');

/// One of the two pods goes first, and must stay available for five seconds.
pub(crate) const CANARY: Edit = Edit::Canary(Some((PodCount::Pods(1), 5)));

#[test]
fn a_restart_waits_for_its_window_also_after_downtime_and_several_changes() {
    assert_eq!(deleted_at(&[EVERY_MINUTE], &[EDIT, Wait(10_000)]), [3, 3]);
    assert_eq!(deleted_at(&[EVERY_MINUTE], &[Wait(5000), EDIT, Wait(10_000)]), [5, 5], "in the window");
    let down = [EDIT, Wait(500), Stop(First), Wait(30_000), Start(First), Wait(60_000)];
    assert_eq!(deleted_at(&[EVERY_MINUTE], &down), [63, 63], "in the next one");
    let several = [EDIT, Wait(500), EditContent(SETTINGS, 'c'), Wait(500), EditContent(SETTINGS, 'd'), Wait(60_000)];
    assert_eq!(deleted_at(&[EVERY_MINUTE], &several), [3, 3], "one restart");
    let back = [EDIT, Wait(500), EditContent(SETTINGS, 'a'), Wait(60_000)];
    assert_eq!(deleted_at(&[EVERY_MINUTE], &back), [0; 0], "back before anything has come of it");
}

/// The window is open for 20 s.
#[test]
fn a_change_in_the_last_second_of_a_window_restarts_once_in_this_or_the_next_window() {
    let late = |quiet, ms| [spec(Edit::QuietPeriod(quiet)), Wait(ms), EDIT, Wait(70_000)];
    assert_eq!(deleted_at(&[EVERY_MINUTE], &late(0, 21_500)), [21, 21]);
    assert_eq!(deleted_at(&[EVERY_MINUTE], &late(1, 21_500)), [63, 63]);
    assert_eq!(deleted_at(&[EVERY_MINUTE], &late(0, 22_000)), [63, 63]);
}

#[test]
fn a_window_that_closes_while_the_pods_are_listed_starts_no_restart() {
    let slow = Request(First, RequestKind::ListPods, 1, Fate::Late(20_000));
    assert_eq!(deleted_at(&[EVERY_MINUTE], &[Wait(15_000), slow, EDIT, Wait(100_000)]), [63, 63]);
}

/// A restart that has begun continues.
#[test]
fn a_closing_window_stops_no_restart() {
    let rolling = [EVERY_MINUTE, Edit::MaxUnavailable(Some(PodCount::Pods(1)))];
    let held = [NewPodsStayUnready(true), EDIT, Wait(30_000), NewPodsStayUnready(false), Wait(5000)];
    assert_eq!(deleted_at(&rolling, &held), [3, 30]);
}

#[test]
fn a_request_passes_windows_and_the_interval_once_and_covers_pending_changes() {
    let ask = RequestRestart(0, 'x');
    assert_eq!(deleted_at(&[FROZEN], &[ask, Wait(5000), ask, Wait(5000)]), [0, 0], "without a change of content");
    assert_eq!(
        deleted_at(&[FROZEN], &[EDIT, Wait(3000), ask, Wait(100_000)]),
        [3, 3],
        "and not once more for the change"
    );
    let soon = [
        EDIT,
        Wait(5000),
        ask,
        Wait(5000),
        RequestRestart(0, 'y'),
        Wait(5000),
        EditContent(SETTINGS, 'c'),
        Wait(100_000),
    ];
    assert_eq!(deleted_at(&[Edit::MinInterval(60)], &soon), [0, 0, 5, 5, 10, 10, 71, 71]);
    let suspended = [spec(Edit::Suspend(true)), ask, Wait(10_000), spec(Edit::Suspend(false)), Wait(10_000)];
    assert_eq!(deleted_at(&[], &suspended), [10, 10], "but not suspend");
}

/// The window does not open before the end of the story, and one of two pods was replaced when other content came. A
/// pipeline waits for the field.
#[test]
fn a_request_counts_as_handled_once_all_pods_are_restarted_and_not_before() {
    let rolling = spec(Edit::MaxUnavailable(Some(PodCount::Pods(1))));
    let asked = [spec(FROZEN), rolling, Wait(200), NewPodsStayUnready(true), EDIT, Wait(1000), RequestRestart(0, 'x')];
    for content in ['a', 'c'] {
        let other = [Wait(1000), EditContent(SETTINGS, content), Wait(10_000), NewPodsStayUnready(false), Wait(30_000)];
        let moves = [&asked[..], &other, &[Wait(1)]].concat();
        let Played { ledger, moves, .. } = play_well(&Story { owners: Owners::One, ..story(&moves) });
        let held = moves[moves.len() - 1].0;
        assert_eq!(ledger.deletions.iter().filter(|deletion| deletion.at.ms < held).count(), 1, "{content}");
        let writes = &ledger.books[0].writes;
        let last = writes.iter().rfind(|write| write.at.ms < held).unwrap();
        assert_eq!((last.after.reason(), last.after.has_handled('x')), (Some("OutsideWindow"), false), "{content}");
        assert!(writes.last().unwrap().after.has_handled('x'), "{content}");
        assert_eq!(ledger.deletions.len(), 3, "{content}: all pods, whatever the content is by then");
    }
}

/// The sixth restart within ten minutes begins 30 s after the first change that it is for, at 25 s, and brings the last
/// content.
#[test]
fn a_loop_of_restarts_is_held_and_ends_with_the_last_content() {
    let edits: Vec<_> = "bcbcbcdcdc".chars().flat_map(|content| [EditContent(SETTINGS, content), Wait(5000)]).collect();
    let mut at = deleted_at(&[], &[&edits[..], &[Wait(1_000_000)]].concat());
    at.dedup();
    assert_eq!(at, [0, 5, 10, 15, 20, 56]);
}

/// As in an upgrade: seven restarts within ten minutes, none of which is held.
#[test]
fn edits_of_many_sources_are_no_loop() {
    let both = |content| [SETTINGS, OTHER].map(|name| [EditContent(name, content), Wait(5000)]).concat();
    let moves = [
        &[Wait(200)][..],
        &"bcb".chars().flat_map(both).collect::<Vec<_>>(),
        &[EditContent(SETTINGS, 'c'), Wait(5000)],
    ];
    let played = play_well(&Story { both: 1, ..story(&moves.concat()) });
    let starts = played.ledger.books[0].writes.iter().filter(|write| write.begins());
    assert_eq!(starts.filter(|write| write.at.ms < 1_035_200).count(), 7);
}

/// After five edits within ten minutes, somebody asks for a restart: only a further edit waits, and not for longer.
#[test]
fn a_request_makes_no_loop() {
    let edits = ['b', 'c'].map(|content| [EditContent(SETTINGS, content), Wait(5000)]).concat().repeat(2);
    let asks = [RequestRestart(0, 'x'), Wait(5000), RequestRestart(0, 'y'), Wait(5000)];
    let moves = [&edits[..], &[EDIT, Wait(5000)], &asks, &[EditContent(SETTINGS, 'd'), Wait(100_000)]].concat();
    let mut at = deleted_at(&[], &moves);
    at.dedup();
    assert_eq!(at, [0, 5, 10, 15, 20, 25, 30, 66]);
}

/// Without a watch on the pods, passes follow each other with backoff, up to half a minute apart.
#[test]
fn the_next_pass_is_due_when_the_canaries_have_stayed_available() {
    let bake = Edit::Canary(Some((PodCount::Pods(1), 30)));
    let blind = Move::Lasting(RequestKind::Watch, Some(Fate::Forbidden));
    assert_eq!(deleted_at(&[bake], &[blind, EDIT, Wait(100_000)]), [0, 31]);
}

/// The pod becomes unready, or becomes ready again after a container restart, or is evicted by its kubelet.
#[test]
fn after_a_failed_canary_nothing_is_deleted_until_the_content_changes_or_a_request_comes() {
    for fails in [LoseReadiness(0, None), RestartContainer(0), Move::EvictFromNode(0)] {
        let failed = [EDIT, Wait(3000), fails, Wait(100_000)];
        let then = |moves: &[Move]| deleted_at(&[CANARY], &[&failed[..], moves].concat());
        assert_eq!(then(&[]), [0]);
        assert_eq!(then(&[Stop(First), Start(First), Wait(10_000)]), [0], "whoever has seen it");
        assert_eq!(then(&[EditContent(SETTINGS, 'a'), Wait(60_000)]), [0, 103], "the one that has the other content");
        assert_eq!(then(&[EditContent(SETTINGS, 'c'), Wait(60_000)]).len(), 3, "both, with a canary");
        assert_eq!(then(&[RequestRestart(0, 'x'), Wait(60_000)]).len(), 3, "both, with a canary");
    }
}

#[test]
fn a_failed_canary_is_over_once_somebody_else_has_replaced_the_other_pods() {
    let failed = |canary| [spec(canary), Wait(200), EDIT, Wait(3000), RestartContainer(0), Wait(1000)];
    let is_over_with = |canary, moves: &[Move]| {
        let moves = [&failed(canary)[..], moves, &[Wait(1)]].concat();
        let Played { ledger, moves, .. } = play_well(&Story { owners: Owners::One, ..story(&moves) });
        let written = ledger.books[0].writes.iter().rfind(|write| write.at.ms < moves[moves.len() - 1].0).unwrap();
        let in_time = ledger.deletions.iter().filter(|deletion| deletion.at < written.at).count();
        let replaced = written.after.history.first().map_or(in_time, |last| last.replaced);
        assert_eq!(replaced, in_time, "somebody else deleted the other");
        (written.after.restart.is_none(), in_time)
    };
    let is_over = |moves: &[Move]| is_over_with(CANARY, moves);
    assert_eq!(is_over(&[Wait(130_000)]), (false, 1));
    let both = Edit::Canary(Some((PodCount::Pods(2), 5)));
    assert_eq!(is_over_with(both, &[Wait(130_000)]), (false, 2), "nobody has replaced the one that failed");
    assert_eq!(is_over_with(both, &[KillPod(1), Wait(65_000)]), (true, 2));
    assert_eq!(is_over(&[KillPod(0), Wait(65_000)]), (true, 1));
    assert_eq!(is_over(&[KillPod(0), Stop(First), Start(First), Wait(65_000)]), (true, 1), "whoever has seen it");
    assert_eq!(is_over(&[KillPod(0), Wait(500), LoseReadiness(0, None), Wait(130_000)]), (false, 1));
    assert_eq!(is_over(&[spec(Edit::Select(Pods::Back)), Wait(130_000)]), (false, 1), "it is there, not selected");
}

/// A StatefulSet deletes the evicted pod at once and creates another one, which becomes available.
#[test]
fn a_canary_that_its_kubelet_has_evicted_has_failed_even_if_it_is_gone() {
    let evicted = [spec(CANARY), spec(Edit::Select(Pods::Back)), Wait(200), EDIT, Wait(3000), Move::EvictFromNode(0)];
    let Played { ledger, moves, .. } = play_well(&story(&[&evicted[..], &[Wait(60_000), Wait(1)]].concat()));
    let in_time = ledger.deletions.iter().filter(|deletion| deletion.at.ms < moves[moves.len() - 1].0);
    assert_eq!(in_time.count(), 1, "the other pod stays");
}

/// The ReplicaSet of the canary, which is stuck, lacks the successor of another pod.
#[test]
fn a_canary_does_not_pass_while_a_pod_is_missing_beside_a_stuck_one() {
    let canary = spec(Edit::Canary(Some((PodCount::Pods(1), 10))));
    let begun = [Wait(100), spec(Edit::Select(Pods::Front)), RequestRestart(0, 'y'), Move::PodsKeepTerminating(true)];
    let evicted = [canary, Wait(100_000), Move::EvictFromNode(2), Move::EvictFromNode(3), Wait(2500)];
    let pace = Pace { creation: 2000, readiness: 300, termination: 3000 };
    let monitors = vec![(0, None)];
    let story =
        Story { seed: 31135942, monitors, pace, skew: 3, nodes: -600, ..story(&[&begun[..], &evicted].concat()) };
    play_well(&Story { namespaces: Served::Labelled, secret: true, ..story });
}

/// The selector does not select the canary any more, and a pod that is older than the restart was gone for a while.
#[test]
fn a_pod_that_a_restore_brings_back_proves_nothing() {
    let before = [spec(CANARY), Wait(5000), EditContent(SETTINGS, 'b'), spec(Edit::QuietPeriod(3)), KillPod(4)];
    let begun = [LoseReadiness(0, Some(4000)), RequestRestart(0, 'x'), Wait(4000), Move::BackUp];
    let front = spec(Edit::Select(Pods::Front));
    let undone =
        [front, RestartContainer(1), EditSecondKey(SETTINGS, 'b'), Until(First, RequestKind::Delete, 3), Move::Restore];
    let unread = [Request(First, RequestKind::GetMonitor, 1, Fate::NeverAnswered), Wait(8000)];
    let pace = Pace { creation: 700, readiness: 5000, termination: 0 };
    let moves = [&before[..], &begun, &undone, &unread].concat();
    play_well(&Story { monitors: vec![(0, Some(PodCount::Percent("40%")))], pace, ..story(&moves) });
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

/// One of two sources goes back, and the pod of an owner that only the restart before has replaced is still terminating.
#[test]
fn a_revert_beside_another_change_counts_only_the_owners_of_its_own_pods() {
    let stall = Watch(First, Watched::ConfigMaps, WatchFault::Stall);
    let begun = [Wait(100_000), KillPod(4), EditSecondKey(OTHER, 'b'), Wait(3), stall];
    let most = spec(Edit::MaxTotal(Some(PodCount::Pods(2))));
    let rolled = [most, Wait(1500), Move::RollOut, EditLabels(SETTINGS), Until(First, RequestKind::GetConfigMap, 3)];
    let selected = [spec(Edit::Select(Pods::NotBack)), EDIT, Wait(8000), EditContent(SETTINGS, 'a')];
    let pace = Pace { creation: 700, readiness: 300, termination: 3000 };
    let moves = [&begun[..], &rolled, &selected].concat();
    let story = Story { seed: 21261058041, pace, skew: 3, nodes: -600, min_ready: 2, ..story(&moves) };
    play_well(&Story { both: 1, ..story });
}

/// Exception 10: the successor of one pod becomes ready as labels and selector leave it to its owner.
#[test]
fn a_pod_that_is_not_selected_any_more_is_ready_since_its_slow_node_says() {
    let canary = spec(Edit::Canary(Some((PodCount::Percent("40%"), 10))));
    let begun = [canary, Wait(200), RequestRestart(0, 'x'), LoseReadiness(0, None), Wait(30_000)];
    let unready = [NewPodsStayUnready(true), Wait(60_000)];
    let edited = [Relabel(4, Some("front")), spec(Edit::Select(Pods::NotBack))];
    let pace = Pace { creation: 0, readiness: 5000, termination: 3000 };
    let monitors = vec![(0, Some(PodCount::Pods(1)))];
    let slow = Story { monitors, pace, nodes: -600, min_ready: 2, ..story(&[&begun[..], &unready, &edited].concat()) };
    (0..10).for_each(|seed| _ = play_well(&Story { seed, ..slow.clone() }));
}

/// Exception 10: without a canary it did not matter since when the pods were ready, so the slow clock of the node counts.
#[test]
fn a_canary_that_is_set_during_a_restart_goes_by_the_clock_of_the_node() {
    let canary = spec(Edit::Canary(Some((PodCount::Pods(1), 10))));
    let begun = [canary, Wait(8000), RequestRestart(0, 'z'), Wait(1500)];
    let unready = [spec(Edit::Canary(None)), LoseReadiness(0, Some(4998)), Wait(5000), canary, Wait(30_000)];
    let monitors = vec![(0, Some(PodCount::Percent("40%")))];
    let slow = Story { monitors, nodes: -600, ..story(&[&begun[..], &unready].concat()) };
    (0..10).for_each(|seed| _ = play_well(&Story { seed, ..slow.clone() }));
}

/// Exception 7, the other way round: a late list has pods that were created long after the reading, and times of
/// creation tell these from the old ones. In the second story they are all that is left.
#[test]
fn a_pod_that_was_created_long_after_the_reading_stays_if_a_late_list_is_forgotten() {
    let (hold, lift) = (spec(Edit::Suspend(true)), spec(Edit::Suspend(false)));
    let unlisted =
        [hold, Wait(200), Request(First, RequestKind::ListPods, 1, Fate::NotSent), EDIT, Wait(100), Crash(First)];
    let forgotten = [Start(First), Wait(1000), Stop(First), Move::ForgetLists, lift, Start(First), Wait(20_000)];
    for (killed, deletions) in [(1, 4), (5, 0)] {
        let killed = [&[Wait(100_000)][..], &vec![KillPod(0); killed]].concat();
        let moves = [&unlisted[..], &killed, &forgotten].concat();
        let Played { ledger, .. } = play_well(&story(&moves));
        assert_eq!(ledger.deletions.len(), deletions);
    }
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
    assert_eq!(played.ledger.deletions.len(), 1);
}

/// The content in between could not be recorded, and the other source is missing meanwhile.
#[test]
fn content_is_at_rest_while_another_source_is_missing() {
    let pending = [Wait(200), KillPod(0), EDIT, Wait(1000), Request(First, RequestKind::PutStatus, 1, Fate::NotSent)];
    let unrecorded = [EditContent(SETTINGS, 'c'), DeleteConfigMap(OTHER), Until(First, RequestKind::GetConfigMap, 2)];
    let back = [EDIT, Wait(4500), EditContent(SETTINGS, 'a')];
    let pace = Pace { creation: 50, readiness: 0, termination: 3000 };
    let moves = [&pending[..], &unrecorded, &back].concat();
    let monitors = vec![(2, AT_ONCE)];
    (0..10).for_each(|seed| _ = play_well(&Story { seed, both: 1, pace, monitors: monitors.clone(), ..story(&moves) }));
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

/// Exception 1: a restore brings the content back for a moment, in which a pod is created. The process goes by its absence,
/// which it had read before.
#[test]
fn content_that_a_restore_brings_back_for_a_moment_goes_unread() {
    let begun =
        [EditContent(SETTINGS, 'c'), spec(Edit::QuietPeriod(3)), Wait(1500), EditContent(SETTINGS, 'a'), Wait(5000)];
    let gone = DeleteConfigMap(SETTINGS);
    let moves = [&begun[..], &[Move::RollOut, Move::BackUp, gone, Wait(1500), Move::Restore, gone]].concat();
    let pace = Pace { creation: 700, readiness: 0, termination: 20_000 };
    let story = Story { seed: 20961412687, pace, owners: Owners::Odd, lag: 300, optional: true, ..story(&moves) };
    play_well(&Story { monitors: vec![(1, AT_ONCE)], namespaces: Served::Labelled, ..story });
}

/// The write about that first look is refused, and another source is edited meanwhile.
#[test]
fn a_change_that_a_process_has_read_at_its_first_look_has_left_at_any_time_since_the_last_restart() {
    let begun = [Wait(8000), EditContent(SETTINGS, 'b'), EditContent(OTHER, 'b'), Wait(100_000), Crash(First)];
    let edit = [Start(First), EditContent(OTHER, 'c'), Until(First, RequestKind::GetConfigMap, 2)];
    let refused = [EditSecondKey(SETTINGS, 'a'), spec(Edit::Suspend(true)), Wait(8000), EditContent(OTHER, 'b')];
    let pace = Pace { creation: 0, readiness: 0, termination: 3000 };
    let both = Story { seed: 30671513, both: 1, pace, ..story(&[&begun[..], &edit, &refused].concat()) };
    play_well(&Story { monitors: vec![(3, None)], owners: Owners::Odd, min_ready: 2, ..both });
}

/// Another process has begun the interruption, and does not exist any more.
#[test]
fn a_source_that_is_missing_at_the_end_of_an_interruption_has_the_time_of_what_is_read_beside_it() {
    let crash = Request(First, RequestKind::ListAll, 2, Fate::CrashAfter);
    let begun = [spec(Edit::Discover(true)), DeleteConfigMap(SETTINGS), Wait(5), crash, Wait(8000)];
    let expire = Watch(First, Watched::Monitors, WatchFault::Expire);
    let gone = [EditContent(SETTINGS, 'a'), Wait(4000), expire, DeleteConfigMap(SETTINGS), Wait(100_000)];
    let pace = Pace { creation: 2000, readiness: 5000, termination: 20_000 };
    let most = || Some(PodCount::Percent("40%"));
    let story = Story { seed: 31209878, pace, min_ready: 2, optional: true, ..story(&[&begun[..], &gone].concat()) };
    let by_pod = Story { namespaces: Served::One, references: References::ByPod, owners: Owners::Odd, ..story };
    play_well(&Story { monitors: vec![(1, None), (3, most()), (0, most())], ..by_pod });
}

/// Its new container may have read the other content, as far as a pod shows.
#[test]
fn a_pod_whose_container_restarts_before_the_plan_of_a_revert_is_replaced() {
    let canary = spec(Edit::Canary(Some((PodCount::Percent("40%"), 0))));
    let asked = [spec(FROZEN), canary, Wait(100_000), RequestRestart(0, 'x'), Wait(8000)];
    let there = [EditContent(SETTINGS, 'b'), Wait(200), EditContent(SETTINGS, 'a'), Wait(100_000), RestartContainer(2)];
    let pace = Pace { creation: 700, readiness: 5000, termination: 0 };
    let story = Story { seed: 30999594, pace, skew: 3, lag: 300, ..story(&[&asked[..], &there].concat()) };
    let monitors = vec![(0, Some(PodCount::Percent("40%")))];
    play_well(&Story { monitors, owners: Owners::Odd, namespaces: Served::All, secret: true, ..story });
}

/// Exception 8: the absence is read four seconds late, after a restore. Another keeper panics before it has named its
/// ConfigMonitor, so nobody knows whose first look that was.
#[test]
fn an_absence_that_is_read_late_beside_a_panic_leaves_the_pods_that_were_created_before() {
    let begun = [
        Wait(100),
        Watch(First, Watched::ConfigMaps, WatchFault::Expire),
        Wait(8000),
        KillPod(3),
        Move::BackUp,
        Spec(1, Edit::MinReady(0)),
        Request(First, RequestKind::ListPods, 1, Fate::CrashBefore),
        Move::RejectPods(3),
        Move::Lasting(RequestKind::Any, Some(Fate::Denied(409))),
        Wait(60_000),
        Spec(1, Edit::Suspend(true)),
        Until(First, RequestKind::Delete, 2),
    ];
    let undone = [
        Move::Restore,
        Request(First, RequestKind::PutStatus, 2, Fate::Timeout),
        Scale(2, 0),
        DeleteConfigMap(SETTINGS),
        Request(First, RequestKind::ListPods, 2, Fate::Panic),
        Wait(8000),
        EditContent(SETTINGS, 'a'),
    ];
    let monitors = vec![(1, Some(PodCount::Percent("40%"))), (3, None), (0, AT_ONCE)];
    let pace = Pace { creation: 2000, readiness: 300, termination: 3000 };
    let story = Story { seed: 7034931, monitors, pace, secret: true, ..story(&[&begun[..], &undone].concat()) };
    play_well(&Story { optional: true, skew: 3, ..story });
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

/// Each owner lacks one pod, or all of them together.
#[test]
fn the_budget_holds_for_each_owner_by_itself_and_the_total_for_all_of_them() {
    let gone = |most, total| {
        let begun = [spec(Edit::MaxTotal(total)), Wait(200), NewPodsStayUnready(true), EDIT, Wait(20_000)];
        let played = play(&Story { monitors: vec![(0, most)], ..story(&begun) });
        assert_eq!(judge(&played.ledger), Ok(()));
        let healed = played.moves.last().map(|(ms, ..)| ms + 20_000);
        played.ledger.deletions.iter().filter(|deletion| Some(deletion.at.ms) < healed).count()
    };
    let one = Some(PodCount::Pods(1));
    assert_eq!(
        [(one, None), (None, None), (AT_ONCE, one), (AT_ONCE, None)].map(|(most, total)| gone(most, total)),
        [3, 3, 1, 5]
    );
}

/// The selector is edited once all pods of the ReplicaSet that the restart began with are gone, by a rollout.
#[test]
fn after_a_rollout_the_deployment_still_counts_for_the_total() {
    let begun = [Wait(200), spec(Edit::Canary(Some((PodCount::Pods(1), 10)))), RequestRestart(0, 'x'), Move::RollOut];
    let edited = [Wait(1500), spec(Edit::Select(Pods::NotBack)), spec(Edit::MaxTotal(Some(PodCount::Pods(1))))];
    let pace = Pace { creation: 50, readiness: 300, termination: 200 };
    let moves = [&begun[..], &edited, &[LoseReadiness(0, Some(4000))]].concat();
    play_well(&Story { monitors: vec![(1, None)], pace, namespaces: Served::Two, ..story(&moves) });
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

/// Which was received second, with the one about the other source.
#[test]
fn an_answer_about_another_source_says_nothing_about_how_long_content_has_stood() {
    let second = |content| EditSecondKey(SETTINGS, content);
    let moves = [
        Start(Second),
        Wait(200),
        Freeze(SETTINGS),
        EditContent(OTHER, 'a'),
        Wait(200),
        second('b'),
        Until(First, RequestKind::ListPods, 3),
        spec(Edit::Suspend(false)),
        Wait(50),
        EditContent(SETTINGS, 'b'),
        Wait(2500),
        EditLabels(OTHER),
        spec(Edit::Evict(true)),
        second('a'),
        Wait(400),
        second('b'),
        Wait(3),
        Move::RollOut,
        Wait(2500),
        Wait(100),
        EditContent(SETTINGS, 'a'),
        Wait(5),
    ];
    let pace = Pace { creation: 0, readiness: 0, termination: 200 };
    let story = Story { seed: 22361825608, replicas: true, both: 1, pace, ..story(&moves) };
    let monitors = vec![(3, Some(PodCount::Percent("100%")))];
    play_well(&Story { monitors, namespaces: Served::All, ..story });
}
