//! Owners that the operator must count itself, or cannot ask at all: their own word is stale, their templates lack the label that is
//! selected, or their kind is unknown.

use serde_json::json;

use crate::availability::EVER;
use crate::refusal::wait_for_not_ready;
use crate::rolling::restart;
use crate::world::World;
use testenv::fixture::{APP, NAME};

/// The replacements do not have the label: only a list of all pods of the owner shows them.
#[tokio::test]
async fn replacements_of_pods_labelled_by_hand_that_their_owner_does_not_count_yet_halt_a_rolling_restart() {
    let (world, observer) = World::observed(4).await;
    let _operator = world.operator().await;
    for name in world.pods(APP).await.into_keys().take(2) {
        world.patch("pods", &name, json!({"metadata": {"labels": {"by": "hand"}}})).await;
    }
    let by_hand = json!({"podSelector": {"by": "hand"}, "maxUnavailable": 1, "progressDeadlineSeconds": 2});
    world.monitor(NAME, by_hand).await;
    let stale = world.keep_status_stale("replicasets").await;
    let refusal = world.keep_new_pods_from_getting_ready().await;
    world.edit(NAME, "two").await;
    world.settled(NAME, "ProgressDeadlineExceeded").await;
    wait_for_not_ready(&world, 1).await;
    stale.lift().await;
    refusal.lift_for_all().await;
    let settled = world.settled(NAME, "UpToDate").await;
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (1, 2));
    assert_eq!(seen.most_missing_while_up_to_date(), 0);
}

#[tokio::test]
async fn pods_of_an_owner_of_unknown_kind_keep_the_budget_and_all_go() {
    let (world, observer) = World::observed(0).await;
    let _gang = world.gang(4).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": 1})).await;
    let seen = restart(&world, observer).await;
    assert_eq!(seen.most_missing_of("gangs", EVER), 1);
    assert_eq!(seen.most_missing_while_up_to_date(), 0);
    assert_eq!(world.events("ConfigMonitor", "PodSkipped").await.len(), 0);
}
