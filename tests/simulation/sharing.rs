//! ConfigMonitors share requests, permits and turns: none holds up another without need, and none reads what another
//! has just read.

use crate::examples::{OTHER, SETTINGS, play_well, story};
use crate::player::Played;
use crate::story::Move::{Edit as EditContent, Lasting, NewPodsStayUnready, Request, Spec, Until, Wait};
use crate::story::{AT_ONCE, Edit, Move, PodCount, Pods, Story, Windows};
use simulated_cluster::network::Process::{First, Second};
use simulated_cluster::network::{Fate, RequestKind, Served, WatchFault, Watched};
use simulated_cluster::state::{Owners, Pace, References};

/// More ConfigMonitors than keepers of a namespace may be awake.
const MANY: usize = 40;
/// No DELETE is answered from now on, and the operator gives up after a minute.
const HANG: Move = Lasting(RequestKind::Delete, Some(Fate::NeverAnswered));
const EDIT: Move = EditContent(SETTINGS, 'b');

/// Plays these moves with `count` ConfigMonitors of `settings` and then one of `other`, with these pods each.
fn play_with(count: usize, [first, last]: [Pods; 2], most: Option<PodCount>, moves: &[Move]) -> Played {
    let select = |nth, pods| Spec(nth, Edit::Select(pods));
    let other = [select(count, last), Spec(count, Edit::Source(OTHER)), Wait(2000)];
    let before: Vec<Move> = (0..count).map(|nth| select(nth, first)).chain(other).collect();
    let monitors = vec![(0, most); count + 1];
    let mut played = play_well(&Story { monitors, ..story(&[&before[..], moves, &[Wait(1)]].concat()) });
    played.moves.drain(..before.len());
    played
}

/// Returns how many milliseconds after the `nth` move such a request was sent.
fn sent_after(played: &Played, nth: usize, method: &str, path: &str) -> Option<u64> {
    let (at, before, _) = played.moves[nth];
    let mut sent = played.trace[before..].iter().filter(|sent| sent.method == method && sent.path.contains(path));
    sent.next().map(|sent| sent.ms - at)
}

/// They know nothing of each other's budget.
#[test]
fn at_a_restart_both_of_two_config_monitors_over_the_same_pods_name_the_other() {
    let back = Spec(1, Edit::Select(Pods::Back));
    let moves = [back, Wait(200), NewPodsStayUnready(true), EditContent(SETTINGS, 'b'), Wait(15_000)];
    let Played { ledger, .. } = play_well(&Story { monitors: vec![(0, AT_ONCE); 2], ..story(&moves) });
    for (book, other) in ledger.books.iter().zip(["monitor-1", "flakapp-config-monitor"]) {
        let text = format!("also selected by ConfigMonitor {other}");
        let mut messages = book.writes.iter().flat_map(|write| &write.after.conditions);
        assert!(messages.any(|condition| condition.message.contains(&text)), "{text}");
    }
}

/// Another keeper made the list before the API server was away. It may name pods that are not selected any more.
#[test]
fn a_restart_begins_with_no_list_from_before_an_outage() {
    let begun = [Wait(200), EDIT, Move::BackUp, Until(First, RequestKind::PutStatus, 2)];
    let moves = [&begun[..], &[Wait(2), EditContent(SETTINGS, 'c'), Wait(3), Move::Restore]].concat();
    let pace = Pace { creation: 0, readiness: 5000, termination: 0 };
    let monitors = vec![(0, Some(PodCount::Percent("40%"))), (0, AT_ONCE)];
    (0..6).for_each(|seed| _ = play_well(&Story { seed, pace, monitors: monitors.clone(), ..story(&moves) }));
}

/// A wave takes fewer permits than there are.
#[test]
fn deletions_that_hang_do_not_hold_up_the_restart_for_another_config_map() {
    let moves = [Move::Scale(0, 6), Wait(1000), HANG, EDIT, Wait(1000), EditContent(OTHER, 'b'), Wait(1000)];
    let played = play_with(1, [Pods::Front, Pods::Back], AT_ONCE, &moves);
    assert!(sent_after(&played, 5, "DELETE", "/pods/db-").is_some_and(|waited| waited < 1000));
}

/// A wave that takes long does not count among the keepers that are awake.
#[test]
fn waves_that_hang_do_not_hold_up_the_reading_of_another_config_map() {
    let moves = [HANG, EDIT, Wait(3000), EditContent(OTHER, 'b'), Wait(1000)];
    let played = play_with(MANY, [Pods::All; 2], AT_ONCE, &moves);
    assert!(sent_after(&played, 3, "GET", "/configmaps/extra").is_some_and(|waited| waited < 1000));
}

#[test]
fn a_slow_rolling_restart_does_not_delay_a_restart_of_pods_of_other_owners() {
    let moves = [HANG, EDIT, Wait(1000), EditContent(OTHER, 'b'), Wait(1000)];
    let played = play_with(1, [Pods::Front, Pods::Back], Some(PodCount::Pods(1)), &moves);
    assert!(sent_after(&played, 3, "DELETE", "/pods/db-").is_some_and(|waited| waited < 1000));
}

#[test]
fn a_config_monitor_that_waits_for_another_restart_can_be_suspended() {
    let suspend = Spec(1, Edit::Suspend(true));
    let moves = [HANG, EDIT, Wait(1000), EditContent(OTHER, 'b'), Wait(3000), suspend, Wait(1000)];
    let played = play_with(1, [Pods::All; 2], Some(PodCount::Pods(1)), &moves);
    let reason_at = |move_number: usize| {
        let mut before = played.ledger.books[1].writes.iter().filter(|write| write.at.ms < played.moves[move_number].0);
        before.next_back().and_then(|write| write.after.reason().map(str::to_owned))
    };
    assert_eq!(reason_at(5).as_deref(), Some("WaitingForOtherRestart"));
    assert_eq!(reason_at(7).as_deref(), Some("Suspended"));
}

/// The keeper has not sent the first DELETE when it is notified: all permits are in use. If a doorbell counted, a
/// ConfigMap that changes all the time would block every restart.
#[test]
fn an_edit_of_the_spec_counts_before_the_first_deletion_and_a_doorbell_does_not() {
    let then = |notified: Move| {
        let slow = Lasting(RequestKind::Delete, Some(Fate::LateAnswer(5000)));
        let begun = [Move::Scale(0, 6), Wait(1000), slow, EDIT, Wait(500), EditContent(OTHER, 'b'), Wait(500)];
        let moves = [&begun[..], &[notified, Wait(10_000)]].concat();
        let played = play_with(2, [Pods::Front, Pods::Back], AT_ONCE, &moves);
        let [deletion, read] = [("DELETE", "/pods/db-"), ("GET", "/configmaps/extra")]
            .map(|(method, path)| sent_after(&played, begun.len(), method, path).filter(|waited| *waited < 10_000));
        (deletion, read)
    };
    assert_eq!(then(Spec(2, Edit::Suspend(true))).0, None);
    let (deletion, read) = then(Move::EditLabels(OTHER));
    assert!(deletion.is_some() && deletion <= read, "deleted after {deletion:?} ms, read after {read:?} ms");
}

/// Each needs a list after its GET, which may be another's later list. All share the watch after that list.
#[test]
fn config_monitors_of_one_config_map_and_the_same_pods_share_a_get_a_list_and_a_watch() {
    let pace = Pace { creation: 50, readiness: 2000, termination: 200 };
    let moves = [Wait(2000), EDIT, Until(First, RequestKind::Delete, 1), Wait(20_000), Wait(1)];
    let played = play_well(&Story { monitors: vec![(0, AT_ONCE); MANY], pace, ..story(&moves) });
    let [edited, deleting, over] = [1, 3, 4].map(|nth| played.moves[nth].1);
    let count = |part: std::ops::Range<usize>, what: &str| {
        played.trace[part].iter().filter(|sent| what.split('*').all(|part| sent.path.contains(part))).count()
    };
    let reads = [count(0..edited, "/configmaps/flaskapp-config"), count(edited..over, "/configmaps/flaskapp-config")];
    assert!(reads.iter().all(|reads| (1..=8).contains(reads)), "{reads:?} GETs for the first look and for one edit");
    let lists = count(edited..deleting, "/pods?*limit=");
    assert!((1..=3).contains(&lists), "{lists} lists before the first DELETE");
    let watches = count(edited..over, "/pods?*watch=true");
    assert!((1..=3).contains(&watches), "{watches} watches");
    assert_eq!(played.ledger.deletions.len(), 5, "each pod is deleted once");
}

/// Lists fail for a while. By the time that one succeeds, its keeper has read the content again, and had deleted pods
/// before another keeper first read it.
#[test]
fn a_keeper_goes_by_a_list_of_another_one_since_it_read_the_content_itself() {
    let begun = [
        Wait(50),
        Spec(2, Edit::Select(Pods::Back)),
        Wait(5),
        Spec(2, Edit::MinReady(0)),
        Spec(0, Edit::Select(Pods::All)),
    ];
    let failed = [
        Move::DeleteConfigMap(SETTINGS),
        Wait(5),
        Request(First, RequestKind::Any, 1, Fate::Truncated),
        Request(First, RequestKind::ListPods, 3, Fate::CrashBefore),
        Wait(100_000),
    ];
    let edited = [
        EditContent(SETTINGS, 'b'),
        Until(First, RequestKind::GetOwner, 1),
        Wait(1000),
        EditContent(SETTINGS, 'c'),
        Wait(5),
    ];
    let again = [Move::DeleteMonitor(0), Wait(2500), EditContent(SETTINGS, 'b'), Wait(400), Move::CreateMonitor(0)];
    let refused = Lasting(RequestKind::ListPods, Some(Fate::Refused));
    let back = [Until(First, RequestKind::ListPods, 2), refused, EditContent(SETTINGS, 'a'), Wait(1500), Wait(1)];
    let moves = [&begun[..], &failed, &edited, &again, &back].concat();
    let monitors = vec![(0, Some(PodCount::Percent("40%"))), (1, AT_ONCE), (3, None)];
    let pace = Pace { creation: 50, readiness: 5000, termination: 3000 };
    let story = Story { seed: 20961123400, monitors, pace, owners: Owners::Odd, min_ready: 2, ..story(&moves) };
    play_well(&Story { namespaces: Served::Two, ..story });
}

/// The second process finds the content at its first look, in the middle of a requested restart of the first one. For all
/// it knows, the content had left when that began.
#[test]
fn content_that_another_process_finds_late_may_have_come_at_any_time_since_the_restart_began() {
    let windows = |monitor, windows| Spec(monitor, Edit::Windows(windows));
    let asked = [Wait(200), windows(0, Windows::EveryOtherMinute), Move::RequestRestart(1, 'y')];
    let found = [
        Until(Second, RequestKind::GetOwner, 3),
        windows(1, Windows::EveryMinute),
        Move::Start(Second),
        EditContent(SETTINGS, 'b'),
    ];
    let moves = [&asked[..], &found, &[Wait(8000), EditContent(SETTINGS, 'a')]].concat();
    let pace = Pace { creation: 2000, readiness: 5000, termination: 20_000 };
    let monitors = vec![(3, Some(PodCount::Percent("40%"))), (3, None)];
    let story =
        Story { seed: 22361103946, monitors, pace, owners: Owners::Odd, lag: 4000, nodes: 600, ..story(&moves) };
    let story = Story { min_ready: 2, namespaces: Served::All, references: References::ByPod, page: 2, ..story };
    play_well(&story);
}

/// The ConfigMap that has gone back had changed long after the other one, which the spec no longer names.
#[test]
fn a_revert_concerns_no_pod_from_before_the_change_because_an_earlier_source_was_removed() {
    let begun = [Until(First, RequestKind::GetOwner, 2), EditContent(OTHER, 'b'), Wait(8000)];
    let second = |content| Move::EditSecondKey(SETTINGS, content);
    let back = [Spec(1, Edit::Source(SETTINGS)), second('b'), Wait(100), second('a')];
    let pace = Pace { creation: 2000, readiness: 5000, termination: 0 };
    let monitors = vec![(0, Some(PodCount::Percent("40%"))), (0, None)];
    let story = Story { seed: 22361241210, monitors, both: 2, pace, ..story(&[&begun[..], &back].concat()) };
    play_well(&Story { namespaces: Served::Two, page: 2, ..story });
}

/// Other content has interrupted its restart, with the first write since then.
#[test]
fn a_change_that_a_backup_brings_back_may_get_another_list() {
    let surge = |most| Spec(2, Edit::MaxSurge(Some(most)));
    let moves = [
        Wait(200),
        surge(PodCount::Percent("40%")),
        Wait(100),
        Move::EditSecondKey(SETTINGS, 'b'),
        Wait(4000),
        surge(PodCount::Pods(2)),
        Spec(1, Edit::Select(Pods::Front)),
        Move::BackUp,
        Spec(0, Edit::WipeStatus),
        Wait(1000),
        Move::Restore,
        EditContent(SETTINGS, 'b'),
        Until(First, RequestKind::Event, 2),
        EditContent(SETTINGS, 'a'),
    ];
    let pace = Pace { creation: 0, readiness: 0, termination: 20_000 };
    let monitors = vec![(1, AT_ONCE), (0, Some(PodCount::Percent("40%"))), (0, AT_ONCE)];
    let story = Story { seed: 22361332896, monitors, replicas: true, pace, lag: 300, ..story(&moves) };
    play_well(&Story { status_lag: 4000, surges: true, ..story });
}

/// The first look of the second process finds other content in the middle of a restart: it may have come at any time since
/// that began.
#[test]
fn a_revert_may_concern_all_pods_since_the_restart_began_that_another_process_has_found() {
    let request = |monitor, value| Move::RequestRestart(monitor, value);
    let canary = |monitor, seconds| Spec(monitor, Edit::Canary(Some((PodCount::Pods(1), seconds))));
    let second = Move::EditSecondKey(SETTINGS, 'a');
    let unready = Move::LoseReadiness(0, Some(4000));
    let begun = [
        Wait(200),
        canary(0, 0),
        canary(1, 10),
        request(1, 'y'),
        Spec(2, Edit::Invalidate(false)),
        second,
        unready,
        request(0, 'y'),
        Wait(8000),
        Move::Watch(First, Watched::Monitors, WatchFault::Stall),
        Move::KillPod(0),
        request(0, 'z'),
    ];
    let found = [
        Until(First, RequestKind::GetConfigMap, 1),
        EditContent(SETTINGS, 'a'),
        Wait(2500),
        Request(First, RequestKind::Any, 3, Fate::Late(3000)),
        Move::Watch(First, Watched::ConfigMaps, WatchFault::Expire),
        unready,
        Move::Start(Second),
        EditContent(SETTINGS, 'b'),
        Wait(2500),
        EditContent(SETTINGS, 'a'),
    ];
    let pace = Pace { creation: 700, readiness: 0, termination: 3000 };
    let monitors = vec![(0, AT_ONCE), (0, AT_ONCE), (3, AT_ONCE)];
    let story = Story { seed: 22361456855, monitors, pace, ..story(&[&begun[..], &found].concat()) };
    play_well(&Story { secret: true, ..story });
}

/// The content stood for 1.02 s. The time in the status, from which the second process counts, is a whole second.
#[test]
fn another_process_may_count_a_quiet_period_for_longer() {
    let moves = [
        Spec(1, Edit::Source(OTHER)),
        Wait(100),
        EditContent(SETTINGS, 'c'),
        Move::Watch(First, Watched::ConfigMaps, WatchFault::Expire),
        Request(First, RequestKind::Watch, 3, Fate::CrashAfter),
        EditContent(OTHER, 'b'),
        Until(First, RequestKind::PutStatus, 3),
        Wait(1000),
        EditContent(SETTINGS, 'a'),
        Wait(200),
    ];
    let pace = Pace { creation: 700, readiness: 0, termination: 3000 };
    let monitors = vec![(1, AT_ONCE), (0, Some(PodCount::Pods(1)))];
    let story = Story { seed: 22361479378, monitors, pace, nodes: -600, optional: true, ..story(&moves) };
    play_well(&Story { namespaces: Served::Two, ..story });
}

/// The change goes on with its own list. The one of the request, which is taken over, was made later.
#[test]
fn the_pods_of_a_restart_are_those_of_all_its_lists() {
    let begun = [
        Move::Start(Second),
        Until(Second, RequestKind::Watch, 2),
        EditContent(SETTINGS, 'b'),
        Request(First, RequestKind::Event, 1, Fate::CrashAfter),
        Wait(8000),
        Until(Second, RequestKind::Delete, 3),
        Move::RequestRestart(1, 'z'),
        Wait(4000),
    ];
    let edited = [
        Until(First, RequestKind::GetConfigMap, 2),
        EditContent(SETTINGS, 'c'),
        Wait(200),
        Spec(1, Edit::Source(OTHER)),
        Wait(10_000),
    ];
    let pace = Pace { creation: 2000, readiness: 300, termination: 20_000 };
    let monitors = vec![(0, Some(PodCount::Pods(1))), (3, Some(PodCount::Pods(1)))];
    let story = Story { seed: 22361980963, monitors, replicas: true, pace, ..story(&[&begun[..], &edited].concat()) };
    play_well(&Story { owners: Owners::Odd, lag: 4000, ..story });
}

/// No list is known of when the content left, so times decide.
#[test]
fn content_that_interrupts_a_requested_restart_has_left_by_then() {
    let canary = |bake| Spec(0, Edit::Canary(Some((PodCount::Percent("40%"), bake))));
    let moves = [
        canary(10),
        Wait(4000),
        Move::RequestRestart(0, 'y'),
        Wait(8000),
        canary(0),
        EditContent(SETTINGS, 'b'),
        Wait(2500),
        EditContent(SETTINGS, 'a'),
    ];
    let pace = Pace { creation: 0, readiness: 0, termination: 0 };
    let monitors = vec![(3, AT_ONCE), (0, Some(PodCount::Pods(1)))];
    let story = Story { seed: 23361011798, both: 1, monitors, pace, lag: 4000, ..story(&moves) };
    play_well(&Story { namespaces: Served::Two, references: References::ByOwner, ..story });
}

/// Nobody knows which source had differed.
#[test]
fn after_a_restore_of_an_interruption_each_change_may_have_another_list() {
    let moves = [
        Spec(0, Edit::MaxUnavailable(None)),
        Wait(400),
        EditContent(OTHER, 'b'),
        Wait(4000),
        EditContent(SETTINGS, 'c'),
        Wait(1500),
        Move::BackUp,
        Wait(4000),
        Move::Restore,
    ];
    let pace = Pace { creation: 2000, readiness: 300, termination: 3000 };
    let story =
        Story { seed: 28361566885, monitors: vec![(3, AT_ONCE)], both: 1, replicas: true, pace, ..story(&moves) };
    play_well(&Story { owners: Owners::Odd, skew: 3, status_lag: 500, surges: true, secret: true, ..story });
}

/// What was read in between is not known any more.
#[test]
fn after_a_restore_other_content_may_have_interrupted_a_restart_since_it_began() {
    let moves = [
        Wait(30_000),
        Move::RequestRestart(0, 'z'),
        Wait(30_000),
        EditContent(SETTINGS, 'b'),
        Wait(100),
        EditContent(SETTINGS, 'a'),
        Move::BackUp,
        Wait(4000),
        Move::Restore,
        EditContent(SETTINGS, 'a'),
    ];
    let pace = Pace { creation: 700, readiness: 300, termination: 20_000 };
    let monitors = vec![(3, Some(PodCount::Pods(1)))];
    let story = Story { seed: 23361185785, replicas: true, monitors, pace, skew: 3, lag: 300, ..story(&moves) };
    play_well(&Story { namespaces: Served::One, ..story });
}

/// It was terminating as the restart began, and another pod of its owner is newer.
#[test]
fn the_canary_passes_only_with_the_successor_of_an_old_pod_that_was_terminating() {
    let moves = [
        Spec(1, Edit::Canary(Some((PodCount::Pods(1), 0)))),
        Wait(100),
        Spec(0, Edit::Windows(Windows::FarAway)),
        Move::ForgetLists,
        Move::RequestRestart(1, 'z'),
        Wait(8000),
        Move::Watch(First, Watched::ConfigMaps, WatchFault::End),
        Wait(1000),
        EditContent(SETTINGS, 'b'),
        Wait(2),
        EditContent(SETTINGS, 'a'),
        Wait(100),
    ];
    let pace = Pace { creation: 700, readiness: 300, termination: 3000 };
    let [one, some] = [PodCount::Pods(1), PodCount::Percent("40%")].map(Some);
    let story = Story { seed: 23361196839, monitors: vec![(3, one), (0, some), (0, one)], pace, ..story(&moves) };
    play_well(&Story { owners: Owners::Odd, namespaces: Served::All, secret: true, ..story });
}
