//! Pods that refer to different sources, and ConfigMonitors that restart only those.

use simulated_cluster::ledger::Deletion;
use simulated_cluster::network::Process::{First, Second};
use simulated_cluster::network::{Fate, RequestKind, Served, WatchFault, Watched};
use simulated_cluster::state::{Owners, Pace, References};

use crate::examples::{OTHER, SETTINGS, play_well, replaced, spec, story};
use crate::player::Played;
use crate::story::Move::{self, Crash, Edit as EditContent, Request, RequestRestart, Scale, Start, Until, Wait};
use crate::story::{AT_ONCE, Edit, PodCount, Pods, Story, Windows};

const REFERRING: Move = spec(Edit::Referring(true));

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
fn only_pods_that_refer_to_the_source_are_restarted() {
    let edit = EditContent(SETTINGS, 'b');
    assert_eq!(deleted(&play_well(&by_owner(&[REFERRING, Wait(200), edit, Wait(5000)]))), [2, 0, 1]);
    assert_eq!(deleted(&play_well(&by_owner(&[Wait(200), edit, Wait(5000)]))), [2, 2, 1]);
    let other = [spec(Edit::Source(OTHER)), REFERRING, Wait(200), EditContent(OTHER, 'b'), Wait(5000)];
    for secret in [false, true] {
        assert_eq!(deleted(&play_well(&Story { secret, ..by_owner(&other) })), [0, 2, 1]);
    }
}

#[test]
fn a_request_restarts_also_the_pods_that_do_not_refer() {
    let moves = [REFERRING, Wait(200), RequestRestart(0, 'x'), Wait(5000)];
    assert_eq!(deleted(&play_well(&by_owner(&moves))), [2, 2, 1]);
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
    let [referring, all] = [true, false].map(|holds| spec(Edit::Referring(holds)));
    assert_eq!(deleted(&edited_in_the_middle(&[referring], all)), [2, 0, 1]);
    assert_eq!(deleted(&edited_in_the_middle(&[all], referring)), [2, 2, 1]);
    for sources in [Edit::Source(OTHER), Edit::Both] {
        assert_eq!(deleted(&edited_in_the_middle(&[referring], spec(sources))), [2, 0, 1], "{sources:?}");
    }
}

#[test]
fn a_restart_that_waits_goes_on_for_a_source_that_is_removed() {
    let closed = [REFERRING, spec(Edit::Windows(Windows::FarAway)), Wait(200), EditContent(SETTINGS, 'b'), Wait(200)];
    let open = [spec(Edit::Source(OTHER)), Wait(200), spec(Edit::Windows(Windows::Always)), Wait(5000)];
    assert_eq!(deleted(&play_well(&by_owner(&[&closed[..], &open].concat()))), [2, 0, 1]);
}

/// The DaemonSet's pod refers to both.
#[test]
fn of_two_sources_the_pods_of_the_one_that_has_changed_are_restarted() {
    let both = |moves: &[Move]| Story { both: 1, ..by_owner(&[&[REFERRING, Wait(200)], moves].concat()) };
    let other = EditContent(OTHER, 'b');
    assert_eq!(deleted(&play_well(&both(&[other, Wait(5000)]))), [0, 2, 1]);
    let held = [spec(Edit::Windows(Windows::FarAway)), Wait(200), EditContent(SETTINGS, 'b'), Wait(5000), other];
    let back = [Wait(5000), EditContent(SETTINGS, 'a'), Wait(5000), spec(Edit::Windows(Windows::Always)), Wait(5000)];
    // The first one went back, and no pod has been created meanwhile.
    assert_eq!(deleted(&play_well(&both(&[&held[..], &back].concat()))), [0, 2, 1]);
}

/// Plays a restart for `settings` of one pod after the other, with these moves in the middle, after two pods of the
/// Deployment.
fn halfway(moves: &[Move]) -> Played {
    let one = spec(Edit::MaxTotal(Some(PodCount::Pods(1))));
    let begun = [REFERRING, spec(Edit::QuietPeriod(3)), one, Wait(200), EditContent(SETTINGS, 'b'), Wait(9500)];
    let story = by_owner(&[&begun[..], moves, &[Wait(60_000)]].concat());
    let pace = Pace { readiness: 5000, ..story.pace };
    let monitors = vec![(0, None)];
    let played = play_well(&Story { both: 1, monitors, pace, ..story });
    let half = played.moves[6].0;
    assert_eq!(played.ledger.deletions.iter().filter(|it| it.at.ms < half).count(), 2, "{:?}", played.ledger.deletions);
    played
}

/// The pod of the DaemonSet refers to both, and is deleted once.
#[test]
fn what_a_restart_has_replaced_is_not_touched_again_for_another_source() {
    let [other, again] = [OTHER, SETTINGS].map(|name| EditContent(name, 'c'));
    assert_eq!(deleted(&halfway(&[other])), [2, 2, 1]);
    assert_eq!(deleted(&halfway(&[again])), [4, 0, 1]);
    assert_eq!(deleted(&halfway(&[other, Wait(1000), again])), [4, 2, 1]);
    // One pod has read what went back.
    assert_eq!(deleted(&halfway(&[other, Wait(4000), EditContent(OTHER, 'a')])), [2, 2, 1]);
    assert_eq!(deleted(&halfway(&[other, Wait(1000), EditContent(SETTINGS, 'a')])), [4, 2, 1]);
}

/// The pod was created with content that stood for longer than the quiet period, which the other source extended.
#[test]
fn what_stood_for_the_quiet_period_is_reverted_whatever_the_other_source_does() {
    let quiet = [spec(Edit::QuietPeriod(3)), Wait(200), EditContent(SETTINGS, 'b'), Wait(2000)];
    let other =
        [EditContent(OTHER, 'b'), Wait(200), Move::KillPod(0), Wait(1800), EditContent(SETTINGS, 'a'), Wait(20_000)];
    let pace = Pace { creation: 50, readiness: 0, termination: 0 };
    let played = play_well(&Story { both: 1, pace, ..by_owner(&[&[REFERRING][..], &quiet, &other].concat()) });
    assert_eq!(deleted(&played), [1, 2, 1]);
}

/// A webhook was installed in the middle, so only some pods of the Deployment refer.
#[test]
fn a_pod_that_is_handed_over_and_refers_to_nothing_holds_up_no_restart() {
    let surge = spec(Edit::MaxSurge(Some(PodCount::Pods(1))));
    let moves =
        [surge, Wait(200), EditContent(SETTINGS, 'b'), Wait(1000), REFERRING, EditContent(SETTINGS, 'c'), Wait(60_000)];
    for seed in 0..10 {
        let story = story(&moves);
        let pace = Pace { readiness: 5000, ..story.pace };
        let story =
            Story { seed, references: References::ByPod, surges: true, monitors: vec![(0, None)], pace, ..story };
        play_well(&story);
    }
}

#[test]
fn the_canary_is_a_pod_that_refers() {
    let canary = spec(Edit::Canary(Some((PodCount::Pods(1), 10))));
    let played = play_well(&by_owner(&[REFERRING, canary, Wait(200), EditContent(SETTINGS, 'b'), Wait(30_000)]));
    assert_eq!(deleted(&played), [2, 0, 1]);
    let at: Vec<u64> = played.ledger.deletions.iter().map(|deletion| deletion.at.ms).collect();
    assert!(at[1] >= at[0] + 10_000, "{at:?}");
}

const DISCOVER: Move = spec(Edit::Discover(true));

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

/// One pod of the StatefulSet reads the first key of `settings` and all of `other`, and the other one the first key of
/// `other`.
#[test]
fn the_keys_of_a_discovered_source_are_those_that_pods_read() {
    let select = |pods| spec(Edit::Select(pods));
    let by_key = |moves: &[Move]| {
        let moves = [&[select(Pods::Back), DISCOVER, Wait(200)], moves, &[Wait(20_000)]].concat();
        deleted(&play_well(&Story { references: References::ByKey, ..by_owner(&moves) }))
    };
    let [one, other] = [SETTINGS, OTHER].map(|name| Move::EditSecondKey(name, 'b'));
    assert_eq!(by_key(&[one]), [0, 0, 0], "no pod reads it");
    assert_eq!(by_key(&[EditContent(SETTINGS, 'b')]), [0, 1, 0]);
    assert_eq!(by_key(&[other]), [0, 2, 0], "one pod reads it, and both refer to its object");
    // The pod of the DaemonSet reads all of `settings`.
    let grows = [select(Pods::All), Wait(200)];
    assert_eq!(by_key(&[&grows[..], &[one]].concat()), [2, 1, 1]);
    let unseen = [Move::Stop(First), one, select(Pods::Back), Start(First)];
    assert_eq!(by_key(&[&grows[..], &unseen].concat()), [0, 1, 0], "nobody knows what was edited first");
}

/// It has started without waiting for the other one.
#[test]
fn a_pod_has_not_read_what_it_does_not_refer_to() {
    let held = [Wait(200), Move::Spec(1, Edit::Windows(Windows::FarAway)), Move::Spec(0, Edit::Referring(true))];
    let gone = [Move::DeleteConfigMap(SETTINGS), Scale(1, 3), Wait(60_000)];
    let back = [EditContent(SETTINGS, 'b'), Wait(8000), EditContent(SETTINGS, 'a')];
    let pace = Pace { creation: 700, readiness: 0, termination: 200 };
    let story = Story { seed: 24361032351, both: 2, pace, ..by_owner(&[&held[..], &gone, &back].concat()) };
    let monitors = vec![(0, Some(PodCount::Pods(1))); 2];
    play_well(&Story { monitors, namespaces: Served::One, references: References::ByPod, ..story });
}

/// A pod that reads all of `settings` goes while the change waits.
#[test]
fn a_change_keeps_its_list_when_fewer_keys_count() {
    let spec = |edit| Move::Spec(1, edit);
    let moves = [
        spec(Edit::Windows(Windows::FarAway)),
        spec(Edit::Canary(Some((PodCount::Pods(1), 2)))),
        spec(Edit::Discover(true)),
        Until(Second, RequestKind::GetOwner, 3),
        RequestRestart(1, 'x'),
        Until(First, RequestKind::ListAll, 2),
        EditContent(SETTINGS, 'b'),
        EditContent(OTHER, 'b'),
        Wait(100_000),
        Move::EvictFromNode(1),
    ];
    let pace = Pace { creation: 2000, readiness: 300, termination: 20_000 };
    let story = Story { seed: 24361032493, replicas: true, pace, min_ready: 2, page: 2, ..by_owner(&moves) };
    let (monitors, references) = (vec![(0, AT_ONCE); 2], References::ByKey);
    play_well(&Story { monitors, namespaces: Served::All, references, ..story });
    let moves =
        [spec(Edit::Discover(true)), Wait(1000), EditContent(SETTINGS, 'c'), Wait(1050), EditContent(SETTINGS, 'b')];
    let pace = Pace { creation: 700, readiness: 5000, termination: 200 };
    let story = Story { seed: 24361089598, both: 1, replicas: true, pace, skew: 3, ..by_owner(&moves) };
    let monitors = vec![(1, Some(PodCount::Percent("40%"))), (1, AT_ONCE)];
    play_well(&Story { monitors, namespaces: Served::One, references, ..story });
}

#[test]
fn what_is_named_beside_discovered_sources_is_for_all_pods() {
    let beside = |edit| by_owner(&[spec(Edit::Beside(true)), DISCOVER, Wait(200), EditContent(edit, 'b'), Wait(5000)]);
    assert_eq!(deleted(&play_well(&beside(SETTINGS))), [2, 2, 1]);
    assert_eq!(deleted(&play_well(&beside(OTHER))), [0, 2, 1]);
}

/// The pod that is left reads fewer keys than those of the earlier selector.
#[test]
fn fewer_keys_of_another_source_are_no_change_of_it() {
    let spec = |edit| Move::Spec(1, edit);
    let moves = [spec(Edit::Discover(true)), Wait(2500), EditContent(SETTINGS, 'c'), spec(Edit::Select(Pods::Back))];
    let pace = Pace { creation: 2000, readiness: 300, termination: 0 };
    let monitors = vec![(0, Some(PodCount::Pods(1))); 2];
    let story =
        Story { seed: 920004184, both: 1, replicas: true, monitors, pace, skew: 3, page: 2, ..by_owner(&moves) };
    play_well(&Story { namespaces: Served::One, references: References::ByKey, ..story });
}

/// What went back is of a source that the pod does not refer to.
#[test]
fn what_goes_back_at_once_concerns_only_the_pods_that_refer() {
    let moves = [
        Start(Second),
        Move::Spec(0, Edit::Discover(true)),
        Move::Spec(1, Edit::Referring(true)),
        Crash(First),
        Wait(60_000),
        EditContent(SETTINGS, 'c'),
        Until(Second, RequestKind::GetOwner, 2),
        EditContent(SETTINGS, 'a'),
        Wait(400),
    ];
    let pace = Pace { creation: 0, readiness: 300, termination: 0 };
    let monitors = vec![(3, AT_ONCE), (0, Some(PodCount::Percent("40%")))];
    let story = Story { seed: 910007159, both: 2, replicas: true, monitors, pace, secret: true, ..by_owner(&moves) };
    play_well(&Story { namespaces: Served::One, references: References::ByPod, ..story });
}

/// And the other way round.
#[test]
fn a_change_of_what_was_named_and_is_discovered_now_is_seen() {
    let moves = [
        Wait(200),
        DISCOVER,
        spec(Edit::Beside(true)),
        Wait(60_000),
        Move::Stop(First),
        spec(Edit::Source(OTHER)),
        EditContent(SETTINGS, 'c'),
        Start(First),
        Wait(20_000),
    ];
    assert_eq!(deleted(&play_well(&by_owner(&moves))), [2, 0, 1]);
}

/// The status that says so is of the spec before the edit.
#[test]
fn a_status_without_discovered_sources_may_be_of_a_spec_that_discovers_none() {
    let moves = [
        Wait(200),
        DISCOVER,
        spec(Edit::Beside(true)),
        EditContent(SETTINGS, 'a'),
        Wait(60_000),
        EditContent(OTHER, 'b'),
    ];
    let pace = Pace { creation: 2000, readiness: 5000, termination: 20_000 };
    let story = Story { seed: 26361020214, monitors: vec![(3, AT_ONCE)], pace, skew: 3, lag: 300, ..by_owner(&moves) };
    let (references, secret) = (References::ByKey, true);
    play_well(&Story { nodes: 600, surges: true, namespaces: Served::Two, references, secret, ..story });
}

/// The other source is forgotten as it is deleted: no pod refers to it any more.
#[test]
fn an_optional_source_that_is_deleted_is_a_change_of_it_alone() {
    let discover = [0, 2].map(|monitor| Move::Spec(monitor, Edit::Discover(true)));
    let moves = [
        RequestRestart(2, 'y'),
        Move::RejectPods(1),
        Wait(11_500),
        Move::DeleteConfigMap(OTHER),
        Move::DeleteConfigMap(SETTINGS),
        Move::EvictFromNode(0),
        Move::Spec(2, Edit::Canary(Some((PodCount::Pods(1), 0)))),
    ];
    let pace = Pace { creation: 2000, readiness: 5000, termination: 20_000 };
    let story = by_owner(&[&[Wait(200)], &discover[..], &moves].concat());
    let (monitors, references) = (vec![(0, AT_ONCE), (3, None), (0, AT_ONCE)], References::ByKey);
    play_well(&Story { seed: 26361023866, monitors, replicas: true, pace, references, optional: true, ..story });
}

/// Its first reading is the baseline, although the process had read it before the edit.
#[test]
fn what_is_excluded_for_a_while_restarts_pods_again() {
    let moves = [
        Start(Second),
        Wait(200),
        DISCOVER,
        Move::Watch(Second, Watched::Monitors, WatchFault::Stall),
        Until(First, RequestKind::GetMonitor, 1),
        spec(Edit::Exclude(true)),
        Wait(60_000),
        spec(Edit::Exclude(false)),
        Wait(4000),
        Move::EditSecondKey(SETTINGS, 'a'),
        Until(First, RequestKind::GetConfigMap, 3),
        EditContent(OTHER, 'b'),
    ];
    let pace = Pace { creation: 2000, readiness: 0, termination: 0 };
    let monitors = vec![(0, Some(PodCount::Percent("40%")))];
    let story =
        Story { seed: 27361013011, monitors, replicas: true, pace, lag: 4000, secret: true, ..by_owner(&moves) };
    play_well(&Story { references: References::ByPod, namespaces: Served::Two, optional: true, ..story });
}

/// The revert of the other one spares it.
#[test]
fn the_canary_is_a_pod_of_the_source_that_has_changed() {
    let edits = [Edit::Discover(true), Edit::Suspend(true), Edit::Canary(Some((PodCount::Pods(1), 10)))].map(spec);
    let moves = [
        Wait(60_000),
        EditContent(SETTINGS, 'b'),
        Move::RollOut,
        Wait(700_000),
        Move::RestartContainer(3),
        Move::DeleteConfigMap(OTHER),
        Wait(8000),
        EditContent(OTHER, 'a'),
        RequestRestart(1, 'y'),
    ];
    let story = by_owner(&[&[Move::Spec(1, Edit::Referring(true))], &edits[..], &moves].concat());
    let pace = Pace { creation: 2000, readiness: 300, termination: 3000 };
    let (monitors, references) = (vec![(0, AT_ONCE), (0, None)], References::ByPod);
    let story = Story { seed: 26361036521, monitors, replicas: true, pace, nodes: 600, references, ..story };
    play_well(&Story { optional: true, ..story });
}

/// Each for its own reason: a pod did not refer to the one, and the other one was excluded.
#[test]
fn a_pod_is_left_alone_for_two_sources_that_are_named_later() {
    let moves = [
        DISCOVER,
        Wait(200),
        Move::FinishPod(7),
        Wait(4000),
        EditContent(SETTINGS, 'b'),
        Wait(4000),
        EditContent(OTHER, 'b'),
        spec(Edit::Exclude(true)),
        Wait(2500),
        spec(Edit::Beside(true)),
    ];
    assert_eq!(deleted(&play_well(&Story { both: 1, ..by_owner(&moves) })), [2, 0, 1]);
}

/// What refers to a ConfigMap that is gone would not start again.
#[test]
fn a_missing_source_that_was_discovered_holds_only_the_pods_that_refer_to_it() {
    let gone = [DISCOVER, Wait(200), Move::DeleteConfigMap(OTHER), Wait(200), EditContent(SETTINGS, 'b'), Wait(20_000)];
    let played = play_well(&by_owner(&[&gone[..], &[EditContent(OTHER, 'a'), Wait(20_000)]].concat()));
    let created = played.moves[6].0;
    let is_early = |owner| {
        let of = |it: &&Deletion| played.ledger.pods[it.pod].place.0 == owner;
        played.ledger.deletions.iter().filter(of).all(|it| it.at.ms < created)
    };
    assert_eq!((deleted(&played), is_early(0), is_early(2)), ([2, 0, 1], true, false));
}

/// As when a namespace is scaled to zero every night. The new pods have just read the earlier content.
#[test]
fn a_source_is_remembered_while_no_pod_refers_to_it() {
    let back = [spec(Edit::Select(Pods::Back)), DISCOVER, Wait(200), Scale(1, 0), Wait(700_000)];
    let moves = [&back[..], &[Scale(1, 2), Wait(60), EditContent(OTHER, 'b'), Wait(20_000)]].concat();
    let pace = Pace { creation: 50, readiness: 0, termination: 0 };
    assert_eq!(deleted(&play_well(&Story { pace, ..by_owner(&moves) })), [0, 2, 0]);
}

/// Answers about several sources need not make one reading.
#[test]
fn a_change_was_read_when_its_own_source_was() {
    let moves = [
        Wait(200),
        DISCOVER,
        EditContent(SETTINGS, 'c'),
        Move::DeleteConfigMap(OTHER),
        Wait(1500),
        EditContent(SETTINGS, 'a'),
        Wait(400),
    ];
    let pace = Pace { creation: 50, readiness: 0, termination: 20_000 };
    let story = Story { seed: 900027324, monitors: vec![(1, None)], pace, ..by_owner(&moves) };
    play_well(&Story { owners: Owners::Odd, namespaces: Served::One, ..story });
}

/// The restart of `other` is over before its write has succeeded.
#[test]
fn what_a_restart_has_deleted_is_recorded_after_a_write_that_fails() {
    let begun = [DISCOVER, EditContent(OTHER, 'b'), Wait(400), spec(Edit::MaxTotal(Some(PodCount::Pods(2)))), Wait(5)];
    let back = [EditContent(OTHER, 'a'), spec(Edit::MaxTotal(None)), Wait(200)];
    let failing = Request(First, RequestKind::PutStatus, 1, Fate::Refused);
    let story = by_owner(&[&begun[..], &back, &[failing, spec(Edit::Exclude(true)), Wait(100)]].concat());
    let pace = Pace { creation: 0, readiness: 300, termination: 200 };
    let story =
        Story { seed: 23361102015, both: 1, pace, nodes: 600, references: References::ByPod, lag: 300, ..story };
    let played = play_well(&story);
    assert_eq!(replaced(&played), [deleted(&played).iter().sum::<usize>()]);
}

/// The second one is for what is left of the first one, and has its list.
#[test]
fn two_restarts_of_the_same_second_and_list_are_two() {
    let moves = [
        Wait(200),
        DISCOVER,
        Move::NewPodsStayUnready(true),
        EditContent(OTHER, 'b'),
        Wait(20_000),
        EditContent(SETTINGS, 'c'),
        Wait(1500),
        spec(Edit::Exclude(true)),
    ];
    let pace = Pace { creation: 0, readiness: 0, termination: 200 };
    let monitors = vec![(1, Some(PodCount::Pods(1))), (1, Some(PodCount::Percent("40%")))];
    let story = Story { seed: 23361174505, both: 1, replicas: true, monitors, pace, ..by_owner(&moves) };
    play_well(&Story { namespaces: Served::All, surges: true, ..story });
}

/// The budget does not count its owner, whose other pod refers to another ConfigMap.
#[test]
fn a_pod_that_is_not_selected_any_more_as_the_restart_begins_is_no_part_of_it() {
    let moves = [
        DISCOVER,
        spec(Edit::Select(Pods::Front)),
        Wait(100_000),
        Move::DeleteConfigMap(SETTINGS),
        Until(First, RequestKind::ListAll, 1),
        spec(Edit::MaxTotal(Some(PodCount::Pods(1)))),
        Move::Relabel(4, Some("back")),
        Scale(0, 3),
    ];
    let pace = Pace { creation: 50, readiness: 0, termination: 3000 };
    let story = Story { seed: 900003362, both: 1, replicas: true, pace, nodes: -600, min_ready: 2, ..by_owner(&moves) };
    let monitors = vec![(1, Some(PodCount::Pods(1)))];
    let (namespaces, references) = (Served::All, References::ByPod);
    play_well(&Story { monitors, namespaces, references, optional: true, ..story });
}

/// The other ConfigMonitor is judged all the same.
#[test]
fn a_request_without_a_source_keeps_nothing_from_being_settled() {
    let none = [Edit::Select(Pods::Back), Edit::Discover(true), Edit::Exclude(true)].map(|edit| Move::Spec(1, edit));
    let story = by_owner(&[&none[..], &[RequestRestart(1, 'z')]].concat());
    assert_eq!(deleted(&play_well(&Story { monitors: vec![(0, None); 2], ..story })), [0, 0, 0]);
}

/// Whether it exists is not known any more.
#[test]
fn a_missing_secret_holds_nothing_once_it_may_not_be_watched() {
    let moves = [
        Move::DeleteConfigMap(OTHER),
        Wait(400),
        Request(First, RequestKind::Watch, 2, Fate::Forbidden),
        EditContent(SETTINGS, 'c'),
        DISCOVER,
        Wait(2500),
    ];
    let pace = Pace { creation: 700, readiness: 5000, termination: 200 };
    let story =
        Story { seed: 28361006363, monitors: vec![(3, AT_ONCE)], pace, lag: 300, secret: true, ..by_owner(&moves) };
    let references = References::ByKey;
    play_well(&Story { status_lag: 4000, namespaces: Served::Two, surges: true, references, ..story });
}

/// The edit makes fewer keys count, and comes before the operator has read the change.
#[test]
fn a_change_of_a_key_that_does_not_count_any_more_is_one() {
    let second = |value| Move::EditSecondKey(OTHER, value);
    let moves = [
        Wait(1000),
        second('a'),
        Request(First, RequestKind::ListPods, 1, Fate::CrashBefore),
        Wait(8000),
        second('b'),
        Wait(5),
        spec(Edit::OneKey(true)),
    ];
    let pace = Pace { creation: 0, readiness: 300, termination: 20_000 };
    let story =
        Story { seed: 28361120452, monitors: vec![(1, AT_ONCE)], both: 1, pace, optional: true, ..story(&moves) };
    play_well(&story);
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

/// The first of two lists was made before the pod had the labels that the spec now asks for.
#[test]
fn a_pod_that_the_edited_selector_selects_only_later_is_left_alone() {
    let moves = [
        Wait(60_000),
        EditContent(OTHER, 'b'),
        Until(First, RequestKind::ListAll, 1),
        Until(First, RequestKind::GetOwner, 1),
        spec(Edit::Suspend(true)),
        EditContent(OTHER, 'a'),
        REFERRING,
        Wait(1500),
        Move::Relabel(6, None),
        EditContent(SETTINGS, 'b'),
        spec(Edit::Select(Pods::NotBack)),
    ];
    let pace = Pace { creation: 700, readiness: 300, termination: 3000 };
    let story = Story { seed: 15839, both: 1, pace, skew: 3, lag: 4000, ..by_owner(&moves) };
    let monitors = vec![(0, Some(PodCount::Percent("100%")))];
    play_well(&Story { monitors, namespaces: Served::Two, ..story });
}

/// Other content has interrupted the restart when both sources are deleted and the keeper panics. The next one cannot know
/// whether the restart's own content is back.
#[test]
fn an_interrupted_restart_does_not_complete_while_nothing_exists_that_was_discovered() {
    let edits = [spec(Edit::Referring(true)), Move::Spec(1, Edit::Discover(true)), Wait(2500), EditContent(OTHER, 'c')];
    let begun = [&[Wait(200)], &edits[..], &[spec(Edit::Select(Pods::Back)), Wait(8000)]].concat();
    let touched = Move::Spec(1, Edit::Exclude(false));
    let interrupted = [touched, Move::DeleteConfigMap(SETTINGS), EditContent(OTHER, 'b'), Wait(1000)];
    let panic = Request(First, RequestKind::Any, 4, Fate::Panic);
    let gone = [Move::DeleteConfigMap(OTHER), panic, Until(First, RequestKind::Event, 2)];
    let moves = [&begun[..], &interrupted, &gone].concat();
    let monitors = vec![(0, None), (3, Some(PodCount::Pods(1)))];
    let slow = Story { lag: 4000, status_lag: 4000, ..by_owner(&moves) };
    play_well(&Story {
        seed: 30335606,
        monitors,
        both: 2,
        owners: Owners::Odd,
        skew: 3,
        page: 2,
        surges: true,
        ..slow
    });
}

/// Two sources are reverted one after the other. The pod refers to the first of them only, and was created with what that
/// went back to.
#[test]
fn a_revert_of_another_source_owes_a_pod_nothing_that_refers_to_the_first_one_only() {
    let edits = [EditContent(SETTINGS, 'b'), Wait(1000), EditContent(OTHER, 'c'), Wait(1000)];
    let reverts = [EditContent(SETTINGS, 'a'), Move::LoseReadiness(1, Some(4000)), Wait(4000), EditContent(OTHER, 'a')];
    let canary = spec(Edit::Canary(Some((PodCount::Percent("40%"), 10))));
    let begun = [DISCOVER, Wait(1000), RequestRestart(0, 'z'), Wait(10_000), canary];
    let moves = [&begun[..], &edits, &reverts].concat();
    let story = Story { seed: 30522626, monitors: vec![(0, None)], lag: 300, secret: true, ..story(&moves) };
    let pace = Pace { creation: 0, readiness: 0, termination: 200 };
    play_well(&Story { pace, replicas: true, namespaces: Served::Two, references: References::ByPod, ..story });
}

/// The selector is edited at the end of a restart, and the pods that it selects now refer to other keys of the source.
#[test]
fn the_same_version_under_other_keys_owes_nothing_to_the_pods_that_were_created_with_it() {
    let begun =
        [Move::Watch(First, Watched::Monitors, WatchFault::Break), Wait(4000), EditContent(OTHER, 'c'), Wait(4000)];
    let edited = [EditContent(SETTINGS, 'b'), spec(Edit::Select(Pods::Back)), Wait(100_000)];
    let moves = [&[DISCOVER, Move::Spec(1, Edit::Referring(true)), Wait(60_000)][..], &begun, &edited].concat();
    let pace = Pace { creation: 2000, readiness: 5000, termination: 0 };
    let monitors = vec![(0, Some(PodCount::Percent("100%"))); 2];
    let story = Story { seed: 30613828, monitors, pace, namespaces: Served::Labelled, ..story(&moves) };
    play_well(&Story { references: References::ByKey, nodes: -600, min_ready: 2, ..story });
}
