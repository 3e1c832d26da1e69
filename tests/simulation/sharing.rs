//! ConfigMonitors share requests, permits and turns: none holds up another without need, and none reads what another
//! has just read.

use crate::examples::{OTHER, SETTINGS, play_well, story};
use crate::player::Played;
use crate::story::Move::{Edit as EditContent, Lasting, Spec, Until, Wait};
use crate::story::{AT_ONCE, Edit, Move, PodCount, Pods, Story, Windows};
use simulated_cluster::network::Process::First;
use simulated_cluster::network::{Fate, RequestKind, Served, WatchFault, Watched};
use simulated_cluster::state::{Owners, Pace};

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

/// Another keeper made the list before the API server was away. It may name pods that are not selected any more.
#[test]
fn a_restart_begins_with_no_list_from_before_an_outage() {
    let begun = [Wait(200), EDIT, Move::BackUp, Until(First, RequestKind::PutStatus, 2)];
    let moves = [&begun[..], &[Wait(2), EditContent(SETTINGS, 'c'), Wait(3), Move::Restore]].concat();
    let pace = Pace { creation: 0, readiness: 5000, termination: 0 };
    let monitors = vec![(0, Some(PodCount::Percent("40%"))), (0, AT_ONCE)];
    (0..6).for_each(|seed| _ = play_well(&Story { seed, pace, monitors: monitors.clone(), ..story(&moves) }));
}

/// A wave takes fewer permits than there are, and a rolling restart a turn with its own owners only.
#[test]
fn deletions_that_hang_do_not_hold_up_the_restart_of_pods_of_other_owners() {
    for (most, pods) in [(AT_ONCE, 6), (Some(PodCount::Pods(1)), 2)] {
        let moves = [Move::Scale(0, pods), Wait(1000), HANG, EDIT, Wait(1000), EditContent(OTHER, 'b'), Wait(1000)];
        let played = play_with(1, [Pods::Front, Pods::Back], most, &moves);
        assert!(sent_after(&played, 5, "DELETE", "/pods/db-").is_some_and(|waited| waited < 1000), "{most:?}");
    }
}

/// A wave that takes long does not count among the keepers that are awake.
#[test]
fn waves_that_hang_do_not_hold_up_the_reading_of_another_config_map() {
    let moves = [HANG, EDIT, Wait(3000), EditContent(OTHER, 'b'), Wait(1000)];
    let played = play_with(MANY, [Pods::All; 2], AT_ONCE, &moves);
    assert!(sent_after(&played, 3, "GET", "/configmaps/extra").is_some_and(|waited| waited < 1000));
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
