//! The pods that `restartLast` selects go after the others, by the labels that they have at the time.

use serde_json::{Value, json};
use testenv::Operator;
use testenv::fixture::{APP, NAME};

use crate::test_namespace::TestNamespace;

/// A StatefulSet of three members, of which the first is the primary, and an operator that restarts them with this spec.
async fn members(spec: Value) -> (TestNamespace, Operator) {
    let ns = TestNamespace::new().await;
    ns.config_map(NAME, "one").await;
    ns.workload("statefulsets", 3).await;
    label(&ns, "frontend-0", "primary").await;
    let operator = ns.operator().await;
    ns.monitor(NAME, spec).await;
    (ns, operator)
}

async fn label(ns: &TestNamespace, pod: &str, role: &str) {
    ns.patch("pods", pod, json!({"metadata": {"labels": {"role": role}}})).await;
}

fn last(role: &str) -> Value {
    json!({"matchExpressions": [{"key": "role", "operator": "In", "values": [role]}]})
}

#[tokio::test]
async fn the_primary_of_three_members_goes_once_both_others_have_successors_also_without_a_budget() {
    let (ns, _operator) = members(json!({"restartLast": last("primary"), "minReadySeconds": 1})).await;
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    ns.messages_have(&["waiting: goes last (spec.restartLast): frontend-0"]).await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(settled["status"]["history"][0]["replaced"], 3);
    let mut deleted = ns.sent_deletions();
    deleted[..2].sort();
    assert_eq!(deleted, ["frontend-1", "frontend-2", "frontend-0"]);
}
