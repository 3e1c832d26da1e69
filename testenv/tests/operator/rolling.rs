//! A budget is kept at every revision of the store, whoever owns the pods and whatever happens meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::{DEADLINE, Fault, FaultProxy, Operator, eventually};

use crate::availability::{Availability, Observer};
use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME};

/// So many requests does a deletion take at most: the pods, their owners, the ConfigMonitor, the DELETE, the status, and what is
/// asked again as a pod comes and gets Ready.
const MOST_REQUESTS_PER_WAVE: usize = 8;
/// And so many does a restart: the ConfigMap, the intent, the watch, the end, the Events.
const MOST_REQUESTS_BESIDES: usize = 20;

/// An edit, the restart that it brings, and its end: every pod was replaced once.
async fn restart(ns: &TestNamespace, observer: Observer) -> Availability {
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    let settled = ns.settled(NAME, "UpToDate").await;
    let seen = observer.end(&settled).await;
    let mut gone: Vec<&String> = seen.gone().iter().map(|gone| &gone.uid).collect();
    let mut old: Vec<&String> = before.values().collect();
    gone.sort();
    old.sort();
    assert_eq!(gone, old, "every pod goes once");
    assert_completed(&settled, before.len());
    ns.ready_pods(APP, before.len()).await;
    seen
}

impl TestNamespace {
    /// An observed namespace with an operator that restarts these pods one after the other.
    pub(crate) async fn one_by_one(replicas: usize) -> (Self, Observer, Operator, BTreeMap<String, String>) {
        let (ns, observer) = Self::observed(replicas).await;
        let operator = ns.operator().await;
        ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
        let pods = ns.pods(APP).await;
        (ns, observer, operator, pods)
    }
}

fn assert_completed(monitor: &Value, pods: usize) {
    let history = &monitor["status"]["history"];
    assert_eq!(history.as_array().unwrap().len(), 1, "{history}");
    assert_eq!((&history[0]["result"], &history[0]["pods"]), (&json!("Completed"), &json!(pods)));
}

/// Waits until so few of the old pods are left.
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
async fn one_at_a_time_never_more_is_missing_and_each_takes_a_handful_of_requests() {
    let (ns, observer, _operator, _) = TestNamespace::one_by_one(6).await;
    let asked_before = ns.requests().unwrap().len();
    let seen = restart(&ns, observer).await;
    assert_eq!(seen.most_missing(), 1);
    assert_eq!(ns.deletions().unwrap(), 6);
    let asked = ns.requests().unwrap().len() - asked_before;
    assert!(asked <= 6 * MOST_REQUESTS_PER_WAVE + MOST_REQUESTS_BESIDES, "{asked} requests");
}

#[tokio::test]
async fn owners_of_all_kinds_have_a_budget_each_and_share_the_total() {
    let (ns, observer) = TestNamespace::observed(4).await;
    for resource in ["statefulsets", "daemonsets", "replicasets", "replicationcontrollers"] {
        ns.workload(resource, 3).await;
    }
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": null, "maxUnavailableTotal": 3})).await;
    let seen = restart(&ns, observer).await;
    assert_eq!((seen.most_missing_of_an_owner(), seen.most_missing()), (1, 3));
}

#[tokio::test]
async fn an_application_whose_pods_cannot_be_scheduled_holds_up_no_other() {
    let ns = TestNamespace::with_pods(3).await;
    let labels = json!({"app": NAME, "of": "stuck"});
    let spec = json!({"nodeSelector": {"is": "nowhere"}, "containers": [{"name": "app", "image": "app"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let stuck = json!({"replicas": 3, "selector": {"matchLabels": labels}, "template": template});
    ns.create("deployments", json!({"metadata": {"name": "stuck"}, "spec": stuck})).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": null})).await;
    let of_others = format!("{APP},of!=stuck");
    let before = ns.pods(&of_others).await;
    ns.edit(NAME, "two").await;
    ns.replaced(&of_others, &before).await;
    ns.settled(NAME, "RestartInProgress").await;
}

#[tokio::test]
async fn two_operators_at_once_keep_the_budget() {
    let (ns, observer) = TestNamespace::observed(5).await;
    let _one = ns.operator().await;
    let _other = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
    assert_eq!(restart(&ns, observer).await.most_missing(), 1);
}

#[tokio::test]
async fn a_rollout_in_the_middle_keeps_the_budget() {
    let (ns, observer, _operator, before) = TestNamespace::one_by_one(6).await;
    ns.edit(NAME, "two").await;
    remaining(&ns, 5).await;
    let image = json!([{"name": "app", "image": "another"}]);
    ns.patch("deployments", NAME, json!({"spec": {"template": {"spec": {"containers": image}}}})).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    ns.replaced(APP, &before).await;
    assert_eq!(observer.end(&settled).await.most_missing(), 1);
}

/// A pod that is not Ready costs nothing, but it is that pod no more when it gets Ready.
#[tokio::test]
async fn pods_that_get_ready_before_their_deletions_arrive_do_not_go_at_once() {
    // If the machine is so slow that this is not enough for what must happen meanwhile, nothing is shown.
    const LATE: Duration = Duration::from_secs(5);
    let (ns, observer) = TestNamespace::observed(1).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.patch("deployments", NAME, json!({"spec": {"replicas": 4}})).await;
    let faults = FaultProxy::start(&ns.proxy.url()).await.unwrap();
    let _operator = ns.operator_behind(&faults.url());
    ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
    let mut early = 3;
    faults.rule(move |request| {
        if request.method != "DELETE" || early == 0 {
            return Fault::None;
        }
        early -= 1;
        Fault::Late(LATE)
    });
    ns.edit(NAME, "two").await;
    faults.late().await;
    refusal.lift_for_all().await;
    ns.ready_pods(APP, 4).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(observer.end(&settled).await.most_missing(), 1);
}
