//! What survives the end of the operator, of its proxy and of the API server.

use serde_json::json;
use testenv::ControlPlane;

use crate::world::World;
use testenv::fixture::{APP, NAME, install_crd};

#[tokio::test]
async fn a_crash_in_the_middle_is_resumed_with_the_same_pods() {
    let world = World::with_pods(3).await;
    let mut operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let before = world.pods(APP).await;
    world.revoke("pods", "delete").await;
    world.edit(NAME, "two").await;
    let begun = world.settled(NAME, "Forbidden").await;
    assert_eq!(begun["status"]["restart"]["pods"], 3);
    assert_ne!(begun["status"]["restart"]["configHash"], begun["status"]["configHash"]);
    operator.kill();

    // These are born with the new content, in the same seconds as the restart began.
    world.patch("deployments", NAME, json!({"spec": {"replicas": 5}})).await;
    let born_later: Vec<String> =
        world.ready_pods(APP, 5).await.into_values().filter(|uid| !before.values().any(|old| old == uid)).collect();
    world.grant("pods", "delete").await;
    let operator = world.operator().await;
    operator.wait_for_message("restart resumed").await.unwrap();
    let settled = world.settled(NAME, "UpToDate").await;
    let after = world.ready_pods(APP, 5).await;
    assert!(before.values().all(|uid| !after.values().any(|new| new == uid)), "an old pod is left");
    assert!(born_later.iter().all(|uid| after.values().any(|new| new == uid)), "a new pod was deleted");
    assert_eq!(world.deletions().unwrap(), 3);
    assert_eq!(settled["status"]["history"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_change_made_while_the_proxy_was_away_is_found() {
    let mut world = World::with_pods(2).await;
    let operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let before = world.pods(APP).await;
    world.proxy.kill();
    operator.wait_for_message("waiting for the proxy and the API server").await.unwrap();
    world.edit(NAME, "two").await;
    world.proxy.start_again().await.unwrap();
    world.replaced(APP, &before).await;
    operator.wait_for_message("working again").await.unwrap();
    assert_eq!(world.deletions().unwrap(), 2);
}

#[tokio::test]
async fn the_api_server_may_go_away_and_come_back() {
    let mut control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    let world = World::on(&control_plane).await;
    world.config_map(NAME, "one").await;
    world.deployment(NAME, 2, json!({"app": NAME})).await;
    let operator = world.operator().await;
    world.monitor(NAME, json!({})).await;
    let before = world.pods(APP).await;
    control_plane.kill_api_server();
    operator.wait_for_message("waiting for the proxy and the API server").await.unwrap();
    control_plane.start_api_server().await.unwrap();
    world.edit(NAME, "two").await;
    world.replaced(APP, &before).await;
}
