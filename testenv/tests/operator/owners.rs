//! Owners that the operator cannot ask, as their kind is unknown.

use serde_json::json;

use crate::rolling::restart;
use crate::world::World;
use testenv::fixture::NAME;

#[tokio::test]
async fn pods_of_an_owner_of_unknown_kind_keep_the_budget_and_all_go() {
    let (world, observer) = World::observed(0).await;
    let _gang = world.gang(4).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": 1})).await;
    let seen = restart(&world, observer).await;
    assert_eq!(seen.most_missing_of("gangs"), 1);
    assert_eq!(seen.most_missing_while_up_to_date(), 0);
    assert_eq!(world.events("ConfigMonitor", "PodSkipped").await.len(), 0);
}
