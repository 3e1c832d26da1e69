//! What owners do about a restart, as their settings say.

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME};
use testenv::{DEADLINE, Operator, eventually};

use crate::availability::Observer;
use crate::test_namespace::TestNamespace;

/// The revision of the template that a pod of a StatefulSet has.
const REVISION: &str = "/metadata/labels/controller-revision-hash";

/// An observed namespace with a StatefulSet of three pods with these settings, and an operator.
async fn with_stateful_set(settings: Value, monitor: Value) -> (TestNamespace, Observer, Operator) {
    let (ns, observer) = TestNamespace::observed(0).await;
    ns.workload("statefulsets", 3).await;
    ns.patch("statefulsets", NAME, json!({"spec": settings})).await;
    let operator = ns.operator().await;
    ns.monitor(NAME, monitor).await;
    (ns, observer, operator)
}

/// A text of each pod, by ordinal.
async fn of_pods(ns: &TestNamespace, path: &str) -> Vec<String> {
    let mut pods = ns.client.list(&ns.collection("pods")).await.unwrap();
    pods.sort_by_key(|pod| pod["metadata"]["name"].to_string());
    pods.iter().map(|pod| pod.pointer(path).and_then(Value::as_str).unwrap().to_owned()).collect()
}

fn edited_template() -> Value {
    json!({"metadata": {"annotations": {"example.com/edited": "true"}}})
}

async fn edit_template(ns: &TestNamespace) {
    ns.patch("statefulsets", NAME, json!({"spec": {"template": edited_template()}})).await;
    eventually("the edit has been observed", DEADLINE, async || {
        let set = ns.get("statefulsets", NAME).await;
        let status = &set["status"];
        ensure!(status["observedGeneration"] == set["metadata"]["generation"], "{status}");
        ensure!(status["updateRevision"] != status["currentRevision"], "{status}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn of_a_stateful_set_whose_pods_start_in_order_all_may_go_at_once_and_come_back_in_order() {
    let (ns, observer, _operator) = with_stateful_set(json!({}), json!({"maxUnavailable": "100%"})).await;
    assert_eq!(ns.get("statefulsets", NAME).await["spec"]["podManagementPolicy"], "OrderedReady");
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(observer.end(&settled).await.most_missing(3, ""), 3);
    let created = of_pods(&ns, "/metadata/creationTimestamp").await;
    assert!(created.is_sorted(), "{created:?}");
    assert_eq!(ns.deletions().unwrap(), 3);
}

#[tokio::test]
async fn a_restart_rolls_out_a_template_that_waits_but_for_ordinals_below_the_partition() {
    let partition = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}});
    for (strategy, rolled_out) in [(partition, 0), (json!({"type": "OnDelete", "rollingUpdate": null}), 3)] {
        let settings = json!({"updateStrategy": strategy});
        let (ns, _, _operator) = with_stateful_set(settings, json!({"maxUnavailable": 1})).await;
        let (before, old) = (ns.pods(APP).await, of_pods(&ns, REVISION).await);
        edit_template(&ns).await;
        assert_eq!(of_pods(&ns, REVISION).await, old);
        ns.edit(NAME, "two").await;
        ns.replaced(APP, &before).await;
        ns.settled(NAME, "UpToDate").await;
        let now = of_pods(&ns, REVISION).await;
        assert_eq!(now.iter().zip(&old).filter(|(now, old)| now != old).count(), rolled_out, "{now:?}, {old:?}");
    }
}

#[tokio::test]
async fn of_a_paused_deployment_pods_come_back_with_their_own_template() {
    let ns = TestNamespace::with_pods(2).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
    ns.patch("deployments", NAME, json!({"spec": {"paused": true, "template": edited_template()}})).await;
    let (before, template) = (ns.pods(APP).await, of_pods(&ns, "/metadata/labels/pod-template-hash").await);
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    ns.settled(NAME, "UpToDate").await;
    assert_eq!(of_pods(&ns, "/metadata/labels/pod-template-hash").await, template);
}
