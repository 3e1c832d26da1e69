//! Owners that the operator must count itself, or cannot ask at all: their own word is stale, their templates lack the labels that are
//! selected, or their kind is unknown.

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::{DEADLINE, eventually};

use crate::availability::EVER;
use crate::refusal::wait_for_not_ready;
use crate::rolling::{remaining, restart};
use crate::world::World;
use testenv::fixture::{APP, NAME};

/// Labels that controllers give their pods and that are in no template.
const GIVEN: [(&str, &str); 3] = [
    ("statefulsets", "apps.kubernetes.io/pod-index"),
    ("statefulsets", "controller-revision-hash"),
    ("daemonsets", "controller-revision-hash"),
];

/// Selects the pods `app=frontend` that have this label, whatever its value.
fn with_label(key: &str, more: Value) -> Value {
    let mut spec = more;
    spec["podSelectorExpressions"] = json!([{"key": key, "operator": "Exists"}]);
    spec
}

/// Gives these pods a label that their owner knows nothing of.
async fn label_by_hand(world: &World, names: impl IntoIterator<Item = String>) {
    for name in names {
        world.patch("pods", &name, json!({"metadata": {"labels": {"by": "hand"}}})).await;
    }
}

#[tokio::test]
async fn selected_replacements_that_the_status_of_their_owner_does_not_count_yet_halt_a_rolling_restart() {
    for (resource, label) in GIVEN {
        let (world, observer) = World::observed(0).await;
        world.workload(resource, 3).await;
        let _operator = world.operator().await;
        world.monitor(NAME, with_label(label, json!({"maxUnavailable": 1, "progressDeadlineSeconds": 2}))).await;
        let before = world.pods(APP).await;
        let stale = world.keep_status_stale(resource).await;
        let refusal = world.keep_new_pods_from_getting_ready().await;
        world.edit(NAME, "two").await;
        let (monitor, reason) = world.over_or_stalled().await;
        assert_eq!(reason, "ProgressDeadlineExceeded", "{resource}, {label}: {}", monitor["status"]);
        wait_for_not_ready(&world, 1).await;
        stale.lift().await;
        refusal.lift_for_all().await;
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        let seen = observer.end(&settled).await;
        assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (1, 3), "{resource}, {label}");
        assert_eq!(seen.most_missing_while_up_to_date(), 0, "{resource}, {label}");
    }
}

#[tokio::test]
async fn selected_replacements_are_waited_for_when_the_template_of_their_owner_lacks_the_label() {
    for (resource, label) in GIVEN {
        let (world, observer) = World::observed(0).await;
        world.workload(resource, 2).await;
        let _operator = world.operator().await;
        world.monitor(NAME, with_label(label, json!({"progressDeadlineSeconds": 2}))).await;
        let before = world.pods(APP).await;
        let refusal = world.keep_new_pods_from_getting_ready().await;
        world.edit(NAME, "two").await;
        let (monitor, reason) = world.over_or_stalled().await;
        assert_eq!(reason, "ProgressDeadlineExceeded", "{resource}, {label}: {}", monitor["status"]);
        // A StatefulSet makes one after the other.
        refusal.lift_for_all().await;
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        assert_eq!(observer.end(&settled).await.most_missing_while_up_to_date(), 0, "{resource}, {label}");
    }
}

/// The replacements do not have the label: only a list of all pods of the owner shows them.
#[tokio::test]
async fn replacements_of_pods_labelled_by_hand_that_their_owner_does_not_count_yet_halt_a_rolling_restart() {
    let (world, observer) = World::observed(4).await;
    let _operator = world.operator().await;
    label_by_hand(&world, world.pods(APP).await.into_keys().take(2)).await;
    let by_hand = json!({"podSelector": {"by": "hand"}, "maxUnavailable": 1, "progressDeadlineSeconds": 2});
    world.monitor(NAME, by_hand).await;
    let stale = world.keep_status_stale("replicasets").await;
    let refusal = world.keep_new_pods_from_getting_ready().await;
    world.edit(NAME, "two").await;
    let (monitor, reason) = world.over_or_stalled().await;
    assert_eq!(reason, "ProgressDeadlineExceeded", "{}", monitor["status"]);
    wait_for_not_ready(&world, 1).await;
    stale.lift().await;
    refusal.lift_for_all().await;
    let settled = world.settled(NAME, "UpToDate").await;
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (1, 2));
    assert_eq!(seen.most_missing_while_up_to_date(), 0);
}

#[tokio::test]
async fn replacements_of_pods_labelled_by_hand_are_waited_for() {
    for policy in [json!({"progressDeadlineSeconds": 2}), json!({"progressDeadlineSeconds": 2, "maxUnavailable": 2})] {
        let (world, observer) = World::observed(3).await;
        let _operator = world.operator().await;
        label_by_hand(&world, world.pods(APP).await.into_keys().take(2)).await;
        let mut spec = policy;
        spec["podSelector"] = json!({"by": "hand"});
        world.monitor(NAME, spec).await;
        let refusal = world.keep_new_pods_from_getting_ready().await;
        world.edit(NAME, "two").await;
        let (monitor, reason) = world.over_or_stalled().await;
        assert_eq!(reason, "ProgressDeadlineExceeded", "{}", monitor["status"]);
        wait_for_not_ready(&world, 2).await;
        refusal.lift_for_all().await;
        let settled = world.settled(NAME, "UpToDate").await;
        world.ready_pods(APP, 3).await;
        let seen = observer.end(&settled).await;
        assert_eq!((seen.gone(EVER).len(), seen.most_missing_while_up_to_date()), (2, 0));
    }
}

/// As people do to look at a pod in quiet. Its owner selects by another label, and so still counts it.
#[tokio::test]
async fn a_pod_that_has_lost_the_selected_label_does_not_halt_a_rolling_restart() {
    let (world, observer) = World::observed(0).await;
    let template = json!({
        "metadata": {"labels": {"app": NAME, "of": "some"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    });
    let spec = json!({"replicas": 4, "selector": {"matchLabels": {"of": "some"}}, "template": template});
    world.create("deployments", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    let (quiet, uid) = world.ready_pods("of=some", 4).await.pop_first().unwrap();
    world.patch("pods", &quiet, json!({"metadata": {"labels": {"app": null}}})).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": 1})).await;
    let before = world.ready_pods(APP, 3).await;
    world.edit(NAME, "two").await;
    let settled = world.settled(NAME, "UpToDate").await;
    world.replaced(APP, &before).await;
    assert_eq!(world.ready_pods("of=some", 4).await.get(&quiet), Some(&uid));
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (1, 3));
}

/// Members that are not Ready may still vote.
#[tokio::test]
async fn unready_members_of_a_stateful_set_go_one_after_the_other() {
    for policy in ["Delete", "Evict"] {
        let (world, observer) = World::observed(0).await;
        world.workload_with("statefulsets", 5, json!({"podManagementPolicy": "Parallel"})).await;
        let before = world.pods(APP).await;
        for member in before.keys().take(3) {
            world.lose_readiness(member).await;
        }
        let _operator = world.operator().await;
        world.monitor(NAME, json!({"maxUnavailable": 1, "deletionPolicy": policy})).await;
        // However slow the operator is, no replacement is available before it has had the time to take the next member.
        let refusal = world.keep_new_pods_from_getting_ready().await;
        world.edit(NAME, "two").await;
        remaining(&world, 4).await;
        refusal.lift_for_all().await;
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        let seen = observer.end(&settled).await;
        assert_eq!((seen.most_on_their_way(), seen.gone(EVER).len()), (1, 5), "{policy}");
        // Three were missing before anything went.
        assert_eq!(seen.most_missing(EVER), 3, "{policy}");
    }
}

#[tokio::test]
async fn a_replication_controller_is_asked_how_many_pods_it_wants() {
    for policy in [json!({}), json!({"maxUnavailable": 1})] {
        let (world, observer) = World::observed(0).await;
        world.workload("replicationcontrollers", 4).await;
        let _operator = world.operator().await;
        let rolls = policy["maxUnavailable"] == 1;
        world.monitor(NAME, policy).await;
        let before = world.pods(APP).await;
        let refusal = world.keep_new_pods_from_getting_ready().await;
        world.edit(NAME, "two").await;
        remaining(&world, if rolls { 3 } else { 0 }).await;
        world.patch("replicationcontrollers", NAME, json!({"spec": {"replicas": 2}})).await;
        eventually("it is scaled down", DEADLINE, async || {
            let pods = world.pods(APP).await;
            ensure!(pods.len() == 2, "{pods:?}");
            Ok(())
        })
        .await
        .unwrap();
        refusal.lift_for_all().await;
        let settled = world.settled(NAME, "UpToDate").await;
        let after = world.ready_pods(APP, 2).await;
        assert!(before.values().all(|uid| !after.values().any(|left| left == uid)), "an old pod is left");
        let seen = observer.end(&settled).await;
        assert!(!rolls || seen.most_missing(EVER) == 1, "{}", seen.most_missing(EVER));
        let asked =
            |entry: &&Value| entry["verb"] == "get" && entry["objectRef"]["resource"] == "replicationcontrollers";
        let requests = world.requests().unwrap();
        let codes: Vec<&Value> = requests.iter().filter(asked).map(|entry| &entry["responseStatus"]["code"]).collect();
        assert!(!codes.is_empty() && codes.iter().all(|code| **code == 200), "{codes:?}");
    }
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

#[tokio::test]
async fn an_owner_of_unknown_kind_that_is_scaled_down_counts_as_what_is_present_after_the_deadline() {
    // A Gang takes less time than that to create a pod.
    for policy in [json!({"progressDeadlineSeconds": 5}), json!({"progressDeadlineSeconds": 5, "maxUnavailable": 1})] {
        let (world, observer) = World::observed(0).await;
        let gang = world.gang(5).await;
        let _operator = world.operator().await;
        let rolls = policy["maxUnavailable"] == 1;
        world.monitor(NAME, policy).await;
        let before = world.pods(APP).await;
        let refusal = world.keep_new_pods_from_getting_ready().await;
        world.edit(NAME, "two").await;
        remaining(&world, if rolls { 4 } else { 0 }).await;
        gang.scale_down(3).await;
        refusal.lift_for_all().await;
        let settled = world.settled(NAME, "UpToDate").await;
        let after = world.ready_pods(APP, 3).await;
        assert!(before.values().all(|uid| !after.values().any(|left| left == uid)), "an old pod is left");
        let most = observer.end(&settled).await.most_missing(EVER);
        assert!(!rolls || most == 1, "{most}");
    }
}
