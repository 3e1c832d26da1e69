//! A budget is kept although time passes between what was listed and what is deleted.

use std::mem;
use std::time::Duration;

use serde_json::json;
use testenv::{Fault, FaultProxy};

use crate::availability::EVER;
use crate::world::World;
use testenv::fixture::{APP, NAME};

/// So late are deletions here. If the machine is so slow that this is not enough for what must happen meanwhile, nothing is shown.
const LATE: Duration = Duration::from_secs(5);

/// A pod that is not Ready costs nothing, but it is that pod no more when it gets Ready.
#[tokio::test]
async fn pods_that_get_ready_before_their_deletions_arrive_do_not_go_at_once() {
    let (world, observer) = World::observed(1).await;
    let refusal = world.keep_new_pods_from_getting_ready().await;
    world.patch("deployments", NAME, json!({"spec": {"replicas": 4}})).await;
    let faults = FaultProxy::start(&world.proxy.url()).await.unwrap();
    let _operator = world.operator_behind(&faults.url());
    world.monitor(NAME, json!({"maxUnavailable": 1})).await;
    let mut early = 3;
    faults.rule(move |request| {
        if request.method != "DELETE" || early == 0 {
            return Fault::None;
        }
        early -= 1;
        Fault::Late(LATE)
    });
    world.edit(NAME, "two").await;
    faults.held().await;
    refusal.lift_for_all().await;
    world.ready_pods(APP, 4).await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(observer.end(&settled).await.most_missing(EVER), 1);
}

/// Nobody knows what has become of it, so that no other pod may go in its place.
#[tokio::test]
async fn a_deletion_without_an_answer_may_still_come() {
    let (world, observer) = World::observed(4).await;
    let faults = FaultProxy::start(&world.proxy.url()).await.unwrap();
    let _operator = world.operator_behind(&faults.url());
    world.monitor(NAME, json!({"maxUnavailable": 1})).await;
    let refusal = world.keep_new_pods_from_getting_ready().await;
    let mut first = true;
    faults.rule(
        move |request| {
            if request.method == "DELETE" && mem::take(&mut first) { Fault::Orphaned(LATE) } else { Fault::None }
        },
    );
    world.edit(NAME, "two").await;
    tokio::time::sleep(2 * LATE).await;
    refusal.lift_for_all().await;
    let settled = world.settled(NAME, "UpToDate").await;
    assert_eq!(observer.end(&settled).await.most_missing(EVER), 1);
}
