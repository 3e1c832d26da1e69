//! With `deletionPolicy: Evict` PodDisruptionBudgets hold, and nothing is ever deleted in another way.

use serde_json::{Value, json};
use testenv::{DEADLINE, eventually};

use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME, message_of};

/// The API server's message.
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const MORE_THAN_ONE: &str = "more than one PodDisruptionBudget";

/// Creates a PodDisruptionBudget for `app=frontend` and waits until the disruption controller has observed it.
pub(crate) async fn disruption_budget(ns: &TestNamespace, name: &str, spec: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": NAME}});
    ns.create("poddisruptionbudgets", json!({"metadata": {"name": name}, "spec": spec})).await;
    eventually("the budget counts", DEADLINE, async || {
        let budget = ns.get("poddisruptionbudgets", name).await;
        let observed = &budget["status"]["observedGeneration"];
        anyhow::ensure!(*observed == budget["metadata"]["generation"] && *observed != Value::Null, "{budget}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Returns how many evictions of the operator were carried out, how many were refused, and how many DELETEs it sent.
fn eviction_counts(ns: &TestNamespace) -> (usize, usize, usize) {
    let requests = ns.requests().unwrap();
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
async fn a_refused_eviction_is_reported_with_the_server_s_message_and_retried_until_the_budget_allows_it() {
    for policy in [json!({"deletionPolicy": "Evict"}), json!({"deletionPolicy": "Evict", "maxUnavailable": 2})] {
        let (ns, observer) = TestNamespace::observed(3).await;
        disruption_budget(&ns, NAME, json!({"maxUnavailable": 0})).await;
        let operator = ns.operator().await;
        ns.monitor(NAME, policy).await;
        let before = ns.pods(APP).await;
        ns.edit(NAME, "two").await;
        let blocked = ns.settled(NAME, "EvictionBlocked").await;
        assert!(message_of(&blocked, "Reconciling").contains(VIOLATES), "{}", blocked["status"]);
        assert_eq!(ns.pods(APP).await, before);
        ns.patch("poddisruptionbudgets", NAME, json!({"spec": {"maxUnavailable": 1}})).await;
        let settled = ns.settled(NAME, "UpToDate").await;
        ns.replaced(APP, &before).await;
        let (evicted, refused, deleted) = eviction_counts(&ns);
        assert!((evicted, deleted) == (3, 0) && refused > 0, "{evicted}, {refused}, {deleted}");
        assert_eq!(observer.end(&settled).await.most_missing(3, ""), 1);
        let log = operator.log().unwrap();
        let reported = log.iter().filter(|line| testenv::operator::message(line) == "attention needed").count();
        assert_eq!(reported, 1, "one line for all refusals");
    }
}

/// The API server does not evict such a pod at all, and answers with a status for its own faults (500).
#[tokio::test]
async fn a_pod_with_two_disruption_budgets_is_reported() {
    let (ns, observer) = TestNamespace::observed(2).await;
    for name in ["one", "two"] {
        disruption_budget(&ns, name, json!({"maxUnavailable": 1})).await;
    }
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"deletionPolicy": "Evict"})).await;
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    let blocked = ns.settled(NAME, "EvictionBlocked").await;
    assert!(message_of(&blocked, "Reconciling").contains(MORE_THAN_ONE), "{}", blocked["status"]);
    assert_eq!(ns.pods(APP).await, before);
    ns.delete("poddisruptionbudgets", "two").await;
    let settled = ns.settled(NAME, "UpToDate").await;
    ns.replaced(APP, &before).await;
    assert_eq!(observer.end(&settled).await.most_missing(2, ""), 1);
    assert_eq!(eviction_counts(&ns).2, 0);
}
