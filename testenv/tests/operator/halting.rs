//! A rolling restart whose new pods do not get Ready goes no further than its budget, says whom it waits for, and goes on when
//! the content is corrected, goes back, or the pods get Ready after all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use testenv::Operator;
use tokio::time::sleep;

use crate::availability::{EVER, Observer};
use crate::refusal::{Refusal, not_ready, wait_for_not_ready};
use crate::world::World;
use testenv::fixture::{APP, NAME, condition};

const PODS: usize = 5;
const BUDGET: usize = 2;

/// A restart that has halted, as its new pods do not get Ready.
struct Halted<'a> {
    observer: Observer,
    _operator: Operator,
    refusal: Refusal<'a>,
    monitor: Value,
    before: BTreeMap<String, String>,
    /// The names of the new pods.
    failed: Vec<String>,
}

/// A ConfigMonitor that halts soon.
async fn halted<'a>(world: &'a World, observer: Observer) -> Halted<'a> {
    let operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": BUDGET, "progressDeadlineSeconds": 2})).await;
    let before = world.pods(APP).await;
    let refusal = world.keep_new_pods_from_getting_ready().await;
    // Of a pod that was born in the same second as the new content it is not known which one it has.
    sleep(Duration::from_millis(2100)).await;
    world.edit(NAME, "bad").await;
    let monitor = world.settled(NAME, "ProgressDeadlineExceeded").await;
    let failed = not_ready(world).await;
    Halted { observer, _operator: operator, refusal, monitor, before, failed }
}

fn uids_left<'a>(before: &'a BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<&'a String> {
    before.values().filter(|uid| after.values().any(|left| left == *uid)).collect()
}

#[tokio::test]
async fn pods_that_do_not_get_ready_halt_it_and_are_named() {
    let (world, observer) = World::observed(PODS).await;
    let halted = halted(&world, observer).await;
    let stalled = condition(&halted.monitor, "Stalled");
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("ProgressDeadlineExceeded")));
    assert_eq!(halted.failed.len(), BUDGET);
    let message = stalled["message"].as_str().unwrap();
    assert!(halted.failed.iter().all(|name| message.contains(name.as_str())), "{:?}: {message}", halted.failed);
    assert_eq!(uids_left(&halted.before, &world.pods(APP).await).len(), PODS - BUDGET);
    world.event("ConfigMonitor", "RestartStalled").await;
    assert_eq!(halted.observer.end(&halted.monitor).await.most_missing(EVER), BUDGET);
}

#[tokio::test]
async fn pods_that_get_ready_after_all_let_it_go_on() {
    let (world, observer) = World::observed(PODS).await;
    let halted = halted(&world, observer).await;
    halted.refusal.lift_for_all().await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(condition(&settled, "Stalled")["status"], "False");
    world.replaced(APP, &halted.before).await;
    let seen = halted.observer.end(&settled).await;
    assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (BUDGET, PODS));
}

#[tokio::test]
async fn corrected_content_goes_on_with_the_pods_that_failed() {
    let (world, observer) = World::observed(PODS).await;
    let halted = halted(&world, observer).await;
    // Those that have failed stay as they are, so that nobody but the operator repairs them.
    halted.refusal.lift().await;
    world.edit(NAME, "good").await;
    let settled = world.settled(NAME, "UpToDate").await;
    world.replaced(APP, &halted.before).await;
    let results: Vec<&Value> =
        settled["status"]["history"].as_array().unwrap().iter().map(|entry| &entry["result"]).collect();
    assert_eq!(results, ["Completed", "Superseded"]);
    let seen = halted.observer.end(&settled).await;
    assert_eq!(seen.most_missing(EVER), BUDGET);
    // The first went for the bad content, then those that had failed, then the others.
    let gone: Vec<&String> = seen.gone(EVER).iter().map(|gone| &gone.name).collect();
    assert_eq!(gone.len(), PODS + BUDGET);
    assert!(halted.failed.iter().all(|name| gone[BUDGET..2 * BUDGET].contains(&name)), "{:?}: {gone:?}", halted.failed);
}

#[tokio::test]
async fn going_back_replaces_only_the_pods_that_had_been_replaced() {
    let (world, observer) = World::observed(PODS).await;
    let halted = halted(&world, observer).await;
    let kept: BTreeMap<String, String> = world.pods(APP).await;
    let kept = uids_left(&halted.before, &kept);
    halted.refusal.lift().await;
    world.edit(NAME, "one").await;
    let settled = world.settled(NAME, "UpToDate").await;
    let after = world.ready_pods(APP, PODS).await;
    assert_eq!(uids_left(&halted.before, &after), kept);
    let seen = halted.observer.end(&settled).await;
    assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (BUDGET, 2 * BUDGET));
    assert!(halted.failed.iter().all(|name| !after.contains_key(name)), "a pod that has failed is left");
}

#[tokio::test]
async fn a_halted_restart_holds_up_no_other() {
    let (world, observer) = World::observed(PODS).await;
    world.config_map("other", "one").await;
    world.deployment("other", 3, json!({"app": "other"})).await;
    let halted = halted(&world, observer).await;
    let other = json!({"configMap": "other", "podSelector": {"app": "other"}, "maxUnavailable": 1});
    world.monitor("other", other).await;
    let before = world.pods("app=other").await;
    world.edit("other", "two").await;
    world.settled("other", "UpToDate").await;
    world.replaced("app=other", &before).await;
    let still = world.settled(NAME, "ProgressDeadlineExceeded").await;
    assert_eq!(halted.observer.end(&still).await.most_missing(EVER), BUDGET);
}

#[tokio::test]
async fn owners_that_lack_pods_from_the_start_halt_it_and_are_named() {
    let (world, _observer) = World::observed(3).await;
    let _operator = world.operator().await;
    let refusal = world.refuse_new_pods().await;
    world.patch("deployments", NAME, json!({"spec": {"replicas": 4}})).await;
    world.monitor(NAME, json!({"maxUnavailable": 1, "progressDeadlineSeconds": 2})).await;
    world.edit(NAME, "two").await;
    let stalled = world.settled(NAME, "ProgressDeadlineExceeded").await;
    let message = condition(&stalled, "Stalled")["message"].as_str().unwrap();
    assert!(message.contains("0 of 3 pods deleted; ReplicaSet frontend-"), "{message}");
    assert!(message.contains("has 3 of 4 available"), "{message}");
    refusal.lift().await;
    world.settled(NAME, "UpToDate").await;
}

/// The second restart begins when nothing is available any more.
#[tokio::test]
async fn other_bad_content_after_bad_content_is_not_up_to_date_while_nothing_is_available() {
    for policy in
        [json!({"progressDeadlineSeconds": 2}), json!({"progressDeadlineSeconds": 2, "maxUnavailable": "100%"})]
    {
        let (world, observer) = World::observed(3).await;
        let _operator = world.operator().await;
        world.monitor(NAME, policy).await;
        let refusal = world.keep_new_pods_from_getting_ready().await;
        let mut before = world.pods(APP).await;
        for content in ["bad", "other bad content"] {
            world.edit(NAME, content).await;
            let (monitor, reason) = world.over_or_stalled().await;
            assert_eq!(reason, "ProgressDeadlineExceeded", "{content}: {}", monitor["status"]);
            wait_for_not_ready(&world, 3).await;
            let after = world.pods(APP).await;
            assert!(uids_left(&before, &after).is_empty(), "{content}: an old pod is left");
            before = after;
        }
        refusal.lift_for_all().await;
        let settled = world.settled(NAME, "UpToDate").await;
        let seen = observer.end(&settled).await;
        assert_eq!((seen.most_missing_while_up_to_date(), seen.gone(EVER).len()), (0, 6));
    }
}
