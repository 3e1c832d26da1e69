//! A namespace is served while it has the label of the selector.

use crate::examples::{SETTINGS, play_well, spec, story};
use crate::player::Played;
use crate::story::Move::{self, Edit as EditContent, LabelNamespace, Wait, Watch};
use crate::story::{Edit, PodCount, Story};
use simulated_cluster::network::Process::First;
use simulated_cluster::network::{Served, WatchFault, Watched};
use simulated_cluster::state::Pace;

const EDIT: Move = EditContent(SETTINGS, 'b');

fn play_labelled(moves: &[Move]) -> Played {
    play_well(&Story { namespaces: Served::Labelled, ..story(moves) })
}

/// When pods were deleted, in seconds since the story began.
fn deletions(played: &Played) -> Vec<u64> {
    let began = played.moves[0].0;
    let mut seconds: Vec<u64> =
        played.ledger.deletions.iter().map(|deletion| (deletion.at.ms - began) / 1000).collect();
    seconds.dedup();
    seconds
}

#[test]
fn an_edit_restarts_pods_once_the_namespace_has_the_label() {
    let moves = [Wait(200), LabelNamespace(false), Wait(800), EDIT, Wait(9000), LabelNamespace(true), Wait(500)];
    let played = play_labelled(&moves);
    assert_eq!(deletions(&played), [10]);
}

/// The label is seen by a list, because the watch has lost an event.
#[test]
fn a_list_shows_which_namespaces_have_the_label() {
    let miss = Watch(First, Watched::Namespaces, WatchFault::Miss);
    let list = Watch(First, Watched::Namespaces, WatchFault::Expire);
    let gone = [Wait(200), miss, LabelNamespace(false), Wait(100), list, Wait(9700), EDIT];
    assert_eq!(deletions(&play_labelled(&[&gone[..], &[Wait(9900), LabelNamespace(true), Wait(500)]].concat())), [19]);
    assert_eq!(
        deletions(&play_labelled(&[&gone[..], &[miss, LabelNamespace(true), Wait(10_000), list]].concat())),
        [20]
    );
}

#[test]
fn a_restart_stops_with_the_label_and_goes_on_with_it() {
    let one_by_one = spec(Edit::MaxTotal(Some(PodCount::Pods(1))));
    let begun = [one_by_one, Wait(1000), EDIT, Wait(3000), LabelNamespace(false), Wait(60_000), LabelNamespace(true)];
    let pace = Pace { creation: 0, readiness: 2000, termination: 0 };
    let story = Story { namespaces: Served::Labelled, pace, ..story(&begun) };
    let played = play_well(&story);
    let (before, after): (Vec<u64>, Vec<u64>) = deletions(&played).into_iter().partition(|second| *second < 64);
    assert!(before.last() < Some(&4) && after.first() == Some(&64), "{before:?} {after:?}");
    let history = &played.ledger.books[0].end.as_ref().unwrap().status.history;
    assert_eq!(history.len(), 1, "{history:?}");
}
