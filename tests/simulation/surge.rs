//! The rules about pods that are handed over, and examples.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use simulated_cluster::ledger::{Ledger, PodRecord};
use simulated_cluster::network::Process::{First, Second};
use simulated_cluster::network::{Fate, RequestKind, Served};
use simulated_cluster::state::{Owners, Pace, References};

use crate::examples::{SETTINGS, play_well, spec, story};
use crate::player::{Played, play};
use crate::story::Move::{
    self, DeleteDeployment, DeleteMonitor, Edit as EditContent, LabelNamespace, LetSurge, NewPodsStayUnready, Request,
    RollOut, Scale, Start, Stop, Wait,
};
use crate::story::{AT_ONCE, Edit, PodCount, Story, Windows};

/// At most `maxSurge` pods of a Deployment are handed over at a time.
pub(crate) fn never_over_max_surge(ledger: &Ledger) -> Result<(), String> {
    match ledger.handed_over.iter().find(|it| it.over_budget > 0) {
        Some(it) => Err(format!("never over maxSurge: at {:?} pod {:?}", it.at, ledger.pods[it.pod])),
        None => Ok(()),
    }
}

/// No pod is handed over twice for the same restart, unless a restore has undone that, or it was not selected in between.
pub(crate) fn none_is_handed_over_twice(ledger: &Ledger) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for it in &ledger.handed_over {
        let restarts = it.grounds.iter().filter_map(|grounds| {
            let which = grounds.seen.status.which()?;
            let restores = ledger.restored.iter().filter(|at| **at < it.at).count();
            let specs = ledger.books[grounds.book].specs.iter().filter(|(at, _)| *at < it.at).count();
            let tier = |labels: &Arc<BTreeMap<String, String>>| labels.get("tier").cloned();
            let labels = ledger.pods[it.pod].labels.iter().filter(|(at, _)| *at < it.at);
            let mut tiers: Vec<_> = labels.map(|(_, labels)| tier(labels)).collect();
            tiers.dedup();
            Some((grounds.book, which, it.pod, restores, specs, tiers))
        });
        let restarts: Vec<_> = restarts.collect();
        if !restarts.is_empty() && restarts.into_iter().all(|restart| !seen.insert(restart)) {
            return Err(format!("at {:?} pod {:?} is handed over again", it.at, ledger.pods[it.pod]));
        }
    }
    Ok(())
}

/// Once all is at rest, no pod is left that is handed over.
pub(crate) fn none_is_left(ledger: &Ledger) -> Result<(), String> {
    let is_left = |pod: &&PodRecord| pod.ended.is_none() && pod.handed_over.last().is_some_and(|(_, is_over)| *is_over);
    match ledger.pods.iter().find(is_left) {
        Some(pod) => Err(format!("in the end {pod:?} is still handed over")),
        None => Ok(()),
    }
}

const EDIT: Move = EditContent(SETTINGS, 'b');
const BACK: Move = EditContent(SETTINGS, 'a');
const STUCK: Move = NewPodsStayUnready(true);
const SURGE: [Move; 2] = [spec(Edit::MaxUnavailable(None)), spec(Edit::MaxSurge(Some(PodCount::Pods(1))))];

/// Two pods, 1 and 2, of a Deployment. Their successors have the next numbers.
fn surging(moves: &[Move]) -> Story {
    let pace = Pace { creation: 50, readiness: 2000, termination: 1000 };
    let moves = [&SURGE[..], &[Wait(200)], moves, &[Wait(1)]].concat();
    Story { surges: true, owners: Owners::One, pace, ..story(&moves) }
}

/// Returns which pods were handed over (+), given back (-), and deleted (x) or evicted (v) by the operator in time.
fn events(story: &Story) -> String {
    let Played { ledger, moves, .. } = play_well(story);
    let end = moves.last().map_or(0, |(ms, ..)| *ms);
    let mut events = Vec::new();
    for (number, pod) in ledger.pods.iter().enumerate() {
        let sign = |is_over: &bool| if *is_over { '+' } else { '-' };
        events.extend(pod.handed_over.iter().map(|(at, is_over)| (*at, format!("{}{number}", sign(is_over)))));
    }
    events.extend(ledger.deletions.iter().map(|deletion| (deletion.at, format!("x{}", deletion.pod))));
    events.extend(
        ledger.ends.iter().map(|(at, pod, evicted)| (*at, format!("{}{pod}", if *evicted { 'v' } else { 'x' }))),
    );
    events.retain(|(at, _)| at.ms <= end);
    events.sort();
    let events: Vec<String> = events.into_iter().map(|(_, event)| event).collect();
    events.join(" ")
}

fn surges(moves: &[Move]) -> String {
    events(&surging(moves))
}

#[test]
fn a_pod_is_handed_over_and_deleted_once_its_successor_is_available() {
    assert_eq!(surges(&[EDIT, Wait(30_000)]), "+1 x1 +2 x2");
    assert_eq!(surges(&[STUCK, EDIT, Wait(30_000)]), "+1", "without one, the old pods serve on");
    assert_eq!(surges(&[spec(Edit::Evict(true)), EDIT, Wait(30_000)]), "+1 v1 +2 v2");
}

#[test]
fn an_operator_that_may_hand_over_no_pods_says_so_before_any_edit() {
    for surges in [true, false] {
        let Played { ledger, .. } = play(&Story { surges, ..surging(&[]) });
        assert_eq!(ledger.books[0].writes.iter().any(|write| write.comes_to("Forbidden")), !surges);
    }
}

#[test]
fn with_a_budget_as_well_pods_are_handed_over_and_deleted_at_once() {
    let both = spec(Edit::MaxUnavailable(Some(PodCount::Pods(1))));
    assert_eq!(surges(&[both, Wait(200), EDIT, Wait(30_000)]), "x1 +2 x2");
    assert_eq!(surges(&[STUCK, EDIT, Wait(5000), both, Wait(20_000)]), "+1 x1 +2");
}

/// Otherwise the pod that is handed over could go by a budget that counts one which is about to go.
#[test]
fn pods_are_handed_over_once_the_deletions_beside_them_are_answered() {
    let both = spec(Edit::MaxUnavailable(Some(PodCount::Pods(1))));
    let late = Request(First, RequestKind::Delete, 1, Fate::Late(2000));
    assert_eq!(surges(&[both, Wait(200), late, EDIT, Wait(30_000)]), "x1 +2 x2");
}

/// The deletion that failed goes first again.
#[test]
fn no_pod_is_handed_over_while_nobody_knows_what_became_of_a_deletion() {
    let both = spec(Edit::MaxUnavailable(Some(PodCount::Pods(1))));
    let lost = Request(First, RequestKind::Delete, 1, Fate::NotSent);
    assert_eq!(surges(&[both, Wait(200), lost, EDIT, Wait(30_000)]), "x1 +2 x2");
}

/// The owner that is no Deployment has a quarter of its pods, at least one, as its budget.
#[test]
fn what_cannot_surge_goes_by_the_default_budget() {
    let story = Story { owners: Owners::Usual, ..surging(&[EDIT, Wait(30_000)]) };
    let all = events(&story);
    assert!(all.contains("+4") && all.contains("+5") && !all.contains("+6"), "{all}");
    assert_eq!(all.matches('x').count(), 5, "{all}");
    assert_eq!(surges(&[LetSurge(false), EDIT, Wait(30_000)]), "x1 x2", "the strategy allows none");
}

#[test]
fn content_that_goes_back_gives_the_pods_back_and_takes_down_nothing() {
    // A pod that is not ready serves nobody.
    assert_eq!(surges(&[STUCK, EDIT, Wait(20_000), BACK, Wait(20_000)]), "+1 x3 -1");
}

/// The successor is ready when the old pod is given back, and would stay if it had no lower cost.
#[test]
fn the_successor_with_other_content_goes_first() {
    let held = Request(First, RequestKind::GetMonitor, 3, Fate::LateAnswer(4000));
    let moves = [spec(Edit::MinReady(60)), EDIT, Wait(5000), held, BACK, Wait(30_000)];
    assert_eq!(surges(&moves), "+1 -1");
}

#[test]
fn the_pods_of_a_deleted_config_monitor_are_given_back_by_this_process_or_the_next() {
    assert_eq!(surges(&[STUCK, EDIT, Wait(5000), DeleteMonitor(0), Wait(20_000)]), "+1 -1");
    let unseen = [STUCK, EDIT, Wait(5000), Stop(First), DeleteMonitor(0), Wait(100), Start(First), Wait(20_000)];
    assert_eq!(surges(&unseen), "+1 -1");
}

/// As `resume --as-baseline` does: the content as of now counts as that of all pods.
#[test]
fn once_the_content_is_the_baseline_the_pods_are_given_back() {
    let held = [STUCK, EDIT, Wait(5000), spec(Edit::Suspend(true)), Wait(500), spec(Edit::WipeStatus)];
    let resumed = [NewPodsStayUnready(false), Wait(5000), spec(Edit::Suspend(false)), Wait(20_000)];
    assert_eq!(surges(&[&held[..], &resumed].concat()), "+1 -1");
}

/// The label goes while the Deployment is read.
#[test]
fn a_pod_is_not_given_back_in_a_namespace_that_has_lost_its_label() {
    let late = Request(First, RequestKind::GetOwner, 1, Fate::LateAnswer(4000));
    let gone = [STUCK, EDIT, Wait(5000), late, DeleteMonitor(0), Wait(2000), LabelNamespace(false), Wait(20_000)];
    let labelled = |moves: &[Move]| events(&Story { namespaces: Served::Labelled, ..surging(moves) });
    assert_eq!(labelled(&gone), "+1");
    assert_eq!(labelled(&[&gone[..], &[LabelNamespace(true), Wait(20_000)]].concat()), "+1 -1");
}

/// The deletion is under way while the Deployment is scaled up and another process gives the pod back.
#[test]
fn a_late_deletion_does_not_delete_a_pod_that_was_given_back() {
    let refused = Move::Lasting(RequestKind::Delete, Some(Fate::Refused));
    let lifted = Move::Lasting(RequestKind::Delete, None);
    let closed = spec(Edit::Windows(Windows::FarAway));
    let late = Request(First, RequestKind::Delete, 1, Fate::Late(20_000));
    let before = [refused, EDIT, Wait(5000), closed, EditContent(SETTINGS, 'c'), Wait(500), lifted, late, Wait(8000)];
    let moves = [&before[..], &[STUCK, Scale(0, 4), Start(Second), Wait(30_000)]].concat();
    assert_eq!(surges(&moves), "+1 -1");
}

#[test]
fn a_deployment_that_may_not_surge_any_more_keeps_its_pods_until_successors_are_available() {
    let begun = [STUCK, EDIT, Wait(5000), LetSurge(false), Wait(12_000)];
    assert_eq!(surges(&begun), "+1");
    assert_eq!(surges(&[&begun[..], &[NewPodsStayUnready(false), Wait(20_000)]].concat()), "+1 x2 x1", "the budget");
    assert_eq!(surges(&[&begun[..], &[DeleteMonitor(0), Wait(20_000)]].concat()), "+1 -1");
}

/// Neither the ReplicaSet that a rollout scales down nor the one that has no pods says whether a pod may go.
#[test]
fn during_a_rollout_no_pod_is_handed_over_and_what_is_stays_until_enough_others_are_available() {
    let during = surges(&[STUCK, RollOut, Wait(500), EDIT, Wait(20_000)]);
    assert_eq!(during, "x3", "it is not ready");
    assert_eq!(surges(&[STUCK, EDIT, Wait(500), RollOut, Wait(20_000)]), "+1");
    assert_eq!(surges(&[STUCK, EDIT, Wait(500), Scale(0, 0), Wait(20_000)])[..5], *"+1 x1");
    assert_eq!(surges(&[spec(Edit::MinReady(8)), EDIT, Wait(500), RollOut, Wait(30_000)]), "+1 x1", "of all templates");
}

/// The Deployment lowers its former ReplicaSet by the successors that are not ready. Given a pod more than it then desires,
/// the ReplicaSet counts it as available until it has deleted one, and the Deployment lowers it once more.
#[test]
fn during_a_rollout_no_pod_is_given_back() {
    let begun = [STUCK, EDIT, Wait(5000), RollOut, Wait(500)];
    let ended = |end| surges(&[&begun[..], &[end, Wait(10), NewPodsStayUnready(false), Wait(20_000)]].concat());
    assert_eq!(ended(BACK), "+1 x4 x1", "the pod of the other template has read other content, too");
    assert_eq!(ended(DeleteMonitor(0)), "+1 x1");
}

/// The ReplicaSet that is orphaned deletes the successor, which is not ready, and its pods go within the default budget.
#[test]
fn a_deployment_that_is_deleted_takes_its_pods_along_or_leaves_them_to_its_replica_set() {
    let with = |orphans| surges(&[STUCK, EDIT, Wait(5000), DeleteDeployment { orphans }, Wait(20_000)]);
    assert_eq!((with(false), with(true)), ("+1".to_owned(), "+1 -1 x1".to_owned()));
}

#[test]
fn the_status_of_a_deployment_may_be_late() {
    let late = |moves: &[Move]| events(&Story { status_lag: 3000, ..surging(moves) });
    assert_eq!(late(&[EDIT, Wait(30_000)]), "+1 x1 +2 x2");
    assert_eq!(late(&[STUCK, RollOut, Wait(100), EDIT, Wait(20_000)]), "x3", "the rollout is not in its numbers yet");
}

#[test]
fn a_node_whose_clock_is_fast_holds_up_nothing() {
    let ahead = |moves: &[Move]| events(&Story { nodes: 600, ..surging(moves) });
    assert_eq!(ahead(&[spec(Edit::MinReady(2)), EDIT, Wait(30_000)]), "+1 x1 +2 x2");
}

#[test]
fn a_patch_whose_answer_is_lost_hands_over_no_other_pod() {
    for fate in [Fate::AnswerLost, Fate::CrashAfter, Fate::CrashBefore, Fate::Late(3000), Fate::NotSent] {
        let all = surges(&[Request(First, RequestKind::Patch, 1, fate), EDIT, Wait(40_000)]);
        assert_eq!(all, "+1 x1 +2 x2", "{fate:?}");
    }
}

#[test]
fn two_config_monitors_of_a_deployment_have_one_surge() {
    let [quarter, one] = [Edit::MaxUnavailable(None), Edit::MaxSurge(Some(PodCount::Pods(1)))];
    let moves = [Move::Spec(1, quarter), Move::Spec(1, one), STUCK, EDIT, Wait(20_000)];
    let story = Story { monitors: vec![(0, AT_ONCE), (0, AT_ONCE)], ..surging(&moves) };
    assert_eq!(events(&story).matches('+').count(), 1);
}

/// A request and a change have been taken over, in whose lists the pod is not. Nobody else would let it go.
#[test]
fn a_pod_that_is_in_no_list_of_the_restart_is_not_held_for_it() {
    let begun = [
        spec(Edit::MaxUnavailable(None)),
        Request(First, RequestKind::Patch, 1, Fate::ProxyError),
        Move::KillPod(2),
        Wait(30_000),
        EditContent(SETTINGS, 'b'),
        Move::RejectPods(3),
        spec(Edit::MaxSurge(Some(PodCount::Percent("40%")))),
        Move::RequestRestart(0, 'x'),
        Move::Until(Second, RequestKind::GetConfigMap, 3),
    ];
    let taken_over = [Scale(0, 1), EditContent(SETTINGS, 'c'), Wait(1000), RollOut];
    let last = [EditContent(SETTINGS, 'b'), spec(Edit::QuietPeriod(3))];
    let moves = [&begun[..], &taken_over, &last].concat();
    let pace = Pace { creation: 0, readiness: 300, termination: 3000 };
    let story = Story { seed: 21261033606, pace, owners: Owners::Odd, min_ready: 2, surges: true, ..story(&moves) };
    play_well(&Story { monitors: vec![(0, Some(PodCount::Pods(1)))], references: References::ByPod, ..story });
}
