//! Pods that refer to different sources, and ConfigMonitors that restart only those.

use simulated_cluster::network::Process::First;
use simulated_cluster::network::{Fate, RequestKind};
use simulated_cluster::state::{Pace, References};

use crate::examples::{OTHER, SETTINGS, play_well, spec, story};
use crate::player::Played;
use crate::story::Move::{self, Crash, Edit as EditContent, KillPod, RequestRestart, Start, Stop, Wait};
use crate::story::{AT_ONCE, Edit, PodCount, Story, Windows};

const DISCOVER: Move = spec(Edit::Discover(true));

/// The pods of an owner refer to the same ConfigMaps: those of the Deployment to `settings`, of the StatefulSet to `other`,
/// and of the DaemonSet to both.
fn by_owner(moves: &[Move]) -> Story {
    Story { references: References::ByOwner, ..story(moves) }
}

/// Returns how many pods of the Deployment, the StatefulSet and the DaemonSet were deleted.
fn deleted(played: &Played) -> [usize; 3] {
    let of = |owner| played.ledger.deletions.iter().filter(|it| played.ledger.pods[it.pod].place.0 == owner).count();
    [0, 1, 2].map(of)
}

#[test]
fn a_request_restarts_also_the_pods_that_do_not_refer() {
    let moves = [DISCOVER, Wait(200), RequestRestart(0, 'x'), Wait(5000)];
    assert_eq!(deleted(&play_well(&by_owner(&moves))), [2, 2, 1]);
}

/// The watch is opened anew meanwhile, because pods that are gone have left their places.
#[test]
fn a_refusal_ends_though_another_watch_of_the_pods_is_open_by_then() {
    let gone = [Wait(200), Move::DeleteConfigMap(SETTINGS), Move::Lasting(RequestKind::Any, Some(Fate::Forbidden))];
    let moves = [&[Move::Spec(1, Edit::Discover(true))], &gone[..], &[Wait(60_000)]].concat();
    let story = Story { monitors: vec![(0, AT_ONCE), (0, AT_ONCE)], optional: true, ..by_owner(&moves) };
    play_well(&story);
}

/// Plays a restart of one pod after the other, an edit in the middle of it, and a crash.
fn edited_in_the_middle(before: &[Move], edit: Move) -> Played {
    let half = [Wait(200), EditContent(SETTINGS, 'b'), Wait(1000), edit, Wait(500), Crash(First), Start(First)];
    let story = by_owner(&[before, &half, &[Wait(60_000)]].concat());
    let pace = Pace { readiness: 5000, ..story.pace };
    play_well(&Story { monitors: vec![(0, Some(PodCount::Pods(1)))], pace, ..story })
}

/// The process that resumes the restart reads the list again in which the pods were found.
#[test]
fn a_restart_goes_on_with_the_scope_that_it_began_with() {
    let named = spec(Edit::Beside(true));
    assert_eq!(deleted(&edited_in_the_middle(&[DISCOVER], named)), [2, 0, 1]);
    assert_eq!(deleted(&edited_in_the_middle(&[], DISCOVER)), [2, 2, 1]);
}

/// Content came and went while nobody looked, and the spec no longer names the other source.
#[test]
fn a_pod_that_read_content_in_an_interruption_restarts_though_a_source_is_removed() {
    let begun = [spec(Edit::Both), spec(Edit::QuietPeriod(3)), Wait(200), EditContent(SETTINGS, 'b')];
    let interrupted = [EditContent(OTHER, 'b'), Wait(4000), EditContent(SETTINGS, 'c'), Wait(500), Stop(First)];
    let back = [KillPod(0), Wait(5000), EditContent(SETTINGS, 'b'), spec(Edit::Source(SETTINGS)), Start(First)];
    let story = by_owner(&[&begun[..], &interrupted, &back, &[Wait(60_000)]].concat());
    let pace = Pace { readiness: 5000, ..story.pace };
    play_well(&Story { monitors: vec![(0, Some(PodCount::Pods(1)))], both: 1, pace, ..story });
}

/// The DaemonSet's pod refers to both.
#[test]
fn of_two_sources_the_pods_of_the_one_that_has_changed_are_restarted() {
    let both = [EditContent(SETTINGS, 'b'), Wait(5000), EditContent(OTHER, 'b'), Wait(5000)];
    let held = [DISCOVER, spec(Edit::Windows(Windows::FarAway)), Wait(200)];
    // The first one goes back, and no pod has been created meanwhile.
    let back = [EditContent(SETTINGS, 'a'), Wait(5000), spec(Edit::Windows(Windows::Always)), Wait(5000)];
    assert_eq!(deleted(&play_well(&by_owner(&[&held[..], &both, &back].concat()))), [0, 2, 1]);
}

/// A webhook was installed in the middle, so only some pods of the Deployment refer.
#[test]
fn a_pod_that_is_handed_over_and_refers_to_nothing_holds_up_no_restart() {
    let surge = spec(Edit::MaxSurge(Some(PodCount::Pods(1))));
    let moves =
        [surge, Wait(200), EditContent(SETTINGS, 'b'), Wait(1000), DISCOVER, EditContent(SETTINGS, 'c'), Wait(60_000)];
    for seed in 0..10 {
        let story = story(&moves);
        let pace = Pace { readiness: 5000, ..story.pace };
        let story =
            Story { seed, references: References::ByPod, surges: true, monitors: vec![(0, None)], pace, ..story };
        play_well(&story);
    }
}

#[test]
fn a_secret_that_may_not_be_watched_is_read_again_within_a_minute() {
    let moves = [Wait(61_000), EditContent(OTHER, 'b'), Wait(61_000)];
    let story = Story { both: 1, secret: true, polled: true, ..story(&moves) };
    let played = play_well(&story);
    let edited = played.moves.iter().find(|(_, _, it)| *it == moves[1]).map(|(ms, ..)| *ms).unwrap();
    let deleted: Vec<u64> = played.ledger.deletions.iter().map(|it| it.at.ms - edited).collect();
    assert!(!deleted.is_empty() && deleted.iter().all(|after| *after <= 60_000 + 100), "{deleted:?}");
}

#[test]
fn the_sources_are_read_from_the_pods_and_a_change_restarts_those_that_refer() {
    let edit = |name| EditContent(name, 'b');
    assert_eq!(deleted(&play_well(&by_owner(&[DISCOVER, Wait(200), edit(SETTINGS), Wait(5000)]))), [2, 0, 1]);
    for secret in [false, true] {
        let story = by_owner(&[DISCOVER, Wait(200), edit(OTHER), Wait(5000)]);
        assert_eq!(deleted(&play_well(&Story { secret, ..story })), [0, 2, 1]);
    }
    let both = by_owner(&[DISCOVER, Wait(200), edit(SETTINGS), edit(OTHER), Wait(5000)]);
    assert_eq!(deleted(&play_well(&both)), [2, 2, 1]);
}

#[test]
fn what_is_named_beside_discovered_sources_is_for_all_pods() {
    let beside = |edit| by_owner(&[spec(Edit::Beside(true)), DISCOVER, Wait(200), EditContent(edit, 'b'), Wait(5000)]);
    assert_eq!(deleted(&play_well(&beside(SETTINGS))), [2, 2, 1]);
    assert_eq!(deleted(&play_well(&beside(OTHER))), [0, 2, 1]);
}

/// It ends the entry of the source, also of a restart that has begun.
#[test]
fn what_is_excluded_restarts_no_further_pod() {
    let one = spec(Edit::MaxTotal(Some(PodCount::Pods(1))));
    let begun =
        [DISCOVER, one, Wait(200), EditContent(OTHER, 'b'), Wait(1000), spec(Edit::Exclude(true)), Wait(60_000)];
    let pace = Pace { readiness: 5000, ..by_owner(&[]).pace };
    let story = Story { monitors: vec![(0, None)], pace, ..by_owner(&begun) };
    assert_eq!(deleted(&play_well(&story)).iter().sum::<usize>(), 1);
    let both = [&begun[..3], &[EditContent(SETTINGS, 'b')], &begun[3..]].concat();
    let story = Story { moves: both, ..story };
    assert_eq!(deleted(&play_well(&story))[0], 2, "the other one goes on");
}
