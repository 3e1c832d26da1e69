//! A budget is kept at every revision of the store, whoever owns the pods.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME};
use testenv::{DEADLINE, eventually};

use crate::availability::{Observer, Seen};
use crate::test_namespace::TestNamespace;

/// An edit, the restart that it brings, and its end: every pod was replaced once.
async fn restart(ns: &TestNamespace, observer: Observer) -> Seen {
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    let settled = ns.settled(NAME, "UpToDate").await;
    let seen = observer.end(&settled).await;
    let gone = seen.gone();
    assert_eq!(gone.len(), before.len());
    assert_eq!(gone.iter().collect::<BTreeSet<_>>(), before.values().collect(), "every pod goes once");
    let history = &settled["status"]["history"];
    assert_eq!(history.as_array().unwrap().len(), 1, "{history}");
    assert_eq!((&history[0]["result"], &history[0]["pods"]), (&json!("Completed"), &json!(before.len())));
    seen
}

/// Waits until at most so many of the old pods are left.
pub(crate) async fn remaining(ns: &TestNamespace, most: u64) -> Value {
    eventually("the restart is on its way", DEADLINE, async || {
        let monitor = ns.get("configmonitors", NAME).await;
        let remaining = &monitor["status"]["restart"]["remaining"];
        ensure!(remaining.as_u64().is_some_and(|remaining| remaining <= most), "{}", monitor["status"]);
        Ok(monitor)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn owners_of_all_kinds_have_a_budget_each_and_share_the_total() {
    const KINDS: [&str; 4] = ["statefulsets", "daemonsets", "replicasets", "replicationcontrollers"];
    let (ns, observer) = TestNamespace::observed(4).await;
    for resource in KINDS {
        ns.workload(resource, 3).await;
    }
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": null, "maxUnavailableTotal": 3})).await;
    let seen = restart(&ns, observer).await;
    assert_eq!(seen.most_missing(4 + 3 * KINDS.len(), ""), 3);
    for resource in KINDS {
        assert_eq!(seen.most_missing(3, &format!("{}-{resource}", ns.namespace)), 1, "{resource}");
    }
}
