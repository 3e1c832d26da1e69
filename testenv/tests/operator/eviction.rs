//! With `deletionPolicy: Evict` PodDisruptionBudgets hold, and nothing is ever deleted in another way.

use serde_json::{Value, json};
use testenv::{DEADLINE, eventually};

use crate::world::World;
use testenv::fixture::{APP, NAME, message_of};

/// The server's words.
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const MORE_THAN_ONE: &str = "more than one PodDisruptionBudget";

/// Creates a PodDisruptionBudget for `app=frontend` and waits until it counts.
pub(crate) async fn disruption_budget(world: &World, name: &str, spec: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": NAME}});
    world.create("poddisruptionbudgets", json!({"metadata": {"name": name}, "spec": spec})).await;
    eventually("the budget counts", DEADLINE, async || {
        let budget = world.get("poddisruptionbudgets", name).await;
        let observed = &budget["status"]["observedGeneration"];
        anyhow::ensure!(*observed == budget["metadata"]["generation"] && *observed != Value::Null, "{budget}");
        Ok(())
    })
    .await
    .unwrap();
}

/// What the operator has asked of pods: how many evictions took place, how many were refused, and how many deletions it asked for.
fn asked(world: &World) -> (usize, usize, usize) {
    let requests = world.requests().unwrap();
    let of_pods = |entry: &&Value| entry["objectRef"]["resource"] == "pods";
    let evictions: Vec<bool> = requests
        .iter()
        .filter(of_pods)
        .filter(|entry| entry["verb"] == "create" && entry["objectRef"]["subresource"] == "eviction")
        .map(|entry| entry["responseStatus"]["code"].as_u64().is_some_and(|code| (200..300).contains(&code)))
        .collect();
    let evicted = evictions.iter().filter(|evicted| **evicted).count();
    let deletions =
        requests.iter().filter(of_pods).filter(|entry| entry["verb"].as_str().unwrap().starts_with("delete"));
    (evicted, evictions.len() - evicted, deletions.count())
}

#[tokio::test]
async fn a_refused_eviction_is_told_in_the_words_of_the_server_and_its_budget_lets_it_go_on() {
    for policy in [json!({"deletionPolicy": "Evict"}), json!({"deletionPolicy": "Evict", "maxUnavailable": 2})] {
        let (world, observer) = World::observed(3).await;
        disruption_budget(&world, NAME, json!({"maxUnavailable": 0})).await;
        let operator = world.operator().await;
        world.monitor(NAME, policy).await;
        let before = world.pods(APP).await;
        world.edit(NAME, "two").await;
        let blocked = world.settled(NAME, "EvictionBlocked").await;
        assert!(message_of(&blocked, "Ready").contains(VIOLATES), "{}", message_of(&blocked, "Ready"));
        assert_eq!(world.pods(APP).await, before);
        world.patch("poddisruptionbudgets", NAME, json!({"spec": {"maxUnavailable": 1}})).await;
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        let (evicted, refused, deleted) = asked(&world);
        assert!((evicted, deleted) == (3, 0) && refused > 0, "{evicted}, {refused}, {deleted}");
        assert_eq!(observer.end(&settled).await.most_missing(), 1);
        let log = operator.log().unwrap();
        let told = ["pods not deleted", "restart no longer blocked"]
            .map(|text| log.iter().filter(|line| testenv::operator::message(line) == text).count());
        assert_eq!(told, [1, 1], "once when it begins, and once when it is over");
    }
}

/// The server does not evict such a pod at all, and says so with a status of its own faults (500).
#[tokio::test]
async fn a_pod_that_two_disruption_budgets_are_about_is_told_of() {
    let (world, observer) = World::observed(2).await;
    for name in ["one", "two"] {
        disruption_budget(&world, name, json!({"maxUnavailable": 1})).await;
    }
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"deletionPolicy": "Evict"})).await;
    let before = world.pods(APP).await;
    world.edit(NAME, "two").await;
    let blocked = world.settled(NAME, "EvictionBlocked").await;
    assert!(message_of(&blocked, "Ready").contains(MORE_THAN_ONE), "{}", message_of(&blocked, "Ready"));
    assert_eq!(world.pods(APP).await, before);
    world.delete("poddisruptionbudgets", "two").await;
    let settled = world.settled(NAME, "UpToDate").await;
    world.replaced(APP, &before).await;
    assert_eq!(observer.end(&settled).await.most_missing(), 1);
    assert_eq!(asked(&world).2, 0);
}

/// A pod that resists holds up those of its own owner only.
#[tokio::test]
async fn a_disruption_budget_of_one_owner_holds_up_no_other() {
    let (world, _) = World::observed(0).await;
    for name in ["held", "free"] {
        world.deployment(name, 3, json!({"app": NAME, "of": name})).await;
    }
    let spec = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"of": "held"}}});
    world.create("poddisruptionbudgets", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": 1, "deletionPolicy": "Evict"})).await;
    let (held, free) = (world.pods("of=held").await, world.pods("of=free").await);
    world.edit(NAME, "two").await;
    world.replaced("of=free", &free).await;
    world.settled(NAME, "EvictionBlocked").await;
    assert_eq!(world.pods("of=held").await, held);
}
