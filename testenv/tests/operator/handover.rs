//! What Kubernetes does with a pod that is handed over: from its ReplicaSet to the Deployment, as its controller. Surge
//! relies on it.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME};
use testenv::{Answer, DEADLINE, eventually, is_ready};
use tokio::time::sleep;

use crate::test_namespace::TestNamespace;

/// Longer than a controller takes to answer a change that concerns it.
const A_WHILE: Duration = Duration::from_secs(3);

/// A Deployment with its ReplicaSet.
struct Deployed {
    ns: TestNamespace,
    deployment: Value,
    replica_set: Value,
}

fn reference(owner: &Value, kind: &str) -> Value {
    let metadata = &owner["metadata"];
    json!({"apiVersion": "apps/v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": true})
}

fn controller(pod: &Value) -> &Value {
    &pod["metadata"]["ownerReferences"][0]["kind"]
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

impl Deployed {
    async fn new(replicas: usize) -> Self {
        let ns = TestNamespace::new().await;
        ns.deployment(NAME, replicas, json!({"app": NAME})).await;
        let deployment = ns.get("deployments", NAME).await;
        let replica_set = ns.client.list(&ns.collection("replicasets")).await.unwrap().remove(0);
        // `list` leaves out the kind, which nothing here needs.
        Self { ns, deployment, replica_set }
    }

    async fn pods(&self) -> Vec<Value> {
        let pods = self.ns.client.list(&self.ns.path("pods", &format!("?labelSelector={APP}"))).await.unwrap();
        pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect()
    }

    /// The PATCH that moves a pod from one controller to the other.
    async fn swap(&self, pod: &Value, uid: &Value, version: &Value, back: bool) -> Answer {
        let of_set = (&self.replica_set, "ReplicaSet");
        let (from, to) = match back {
            false => (of_set, (&self.deployment, "Deployment")),
            true => ((&self.deployment, "Deployment"), of_set),
        };
        let gone = json!({"$patch": "delete", "uid": from.0["metadata"]["uid"]});
        let owners = json!([gone, reference(to.0, to.1)]);
        let metadata = json!({"uid": uid, "resourceVersion": version, "ownerReferences": owners});
        let path = self.ns.path("pods", name(pod));
        self.ns.client.strategic_patch(&path, &json!({"metadata": metadata})).await.unwrap()
    }

    async fn hand_over(&self, pod: &Value) -> Value {
        let metadata = &pod["metadata"];
        self.swap(pod, &metadata["uid"], &metadata["resourceVersion"], false).await.ok().unwrap()
    }

    async fn give_back(&self, pod: &Value) -> Value {
        self.swap(pod, &pod["metadata"]["uid"], &Value::Null, true).await.ok().unwrap()
    }

    /// Hands a pod over, and waits until its successor is ready. Returns both.
    async fn with_successor(&self) -> (Value, Value) {
        let before = self.pods().await;
        let old = self.hand_over(&before[0]).await;
        self.ns.ready_pods(APP, before.len() + 1).await;
        let is_new = |pod: &Value| !before.iter().any(|old| name(old) == name(pod));
        let new = self.pods().await.into_iter().find(is_new).unwrap();
        (old, new)
    }

    async fn is_gone(&self, pod: &Value) {
        eventually("the pod is gone", DEADLINE, async || {
            let left = self.pods().await;
            ensure!(!left.iter().any(|it| name(it) == name(pod)), "{left:?}");
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn stays(&self, pod: &Value) {
        sleep(A_WHILE).await;
        let there = self.ns.get("pods", name(pod)).await;
        assert!(is_ready(&there) && there["metadata"]["uid"] == pod["metadata"]["uid"], "{there}");
    }
}

#[tokio::test]
async fn a_pod_that_is_handed_over_goes_on_serving_and_its_replica_set_creates_another() {
    let deployed = Deployed::new(2).await;
    let ns = &deployed.ns;
    let spec = json!({"selector": {"app": NAME}, "ports": [{"port": 80}]});
    ns.create("services", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    let (old, _) = deployed.with_successor().await;
    assert_eq!(controller(&old), "Deployment");
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", ns.namespace);
    eventually("all three pods serve", DEADLINE, async || {
        let slices = ns.client.list(&slices).await?;
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count();
        ensure!(ready == 3, "{ready} pods serve");
        Ok(())
    })
    .await
    .unwrap();
    deployed.stays(&old).await;
    let now = ns.get("deployments", NAME).await;
    assert_eq!(now["metadata"]["generation"], deployed.deployment["metadata"]["generation"]);
    assert_eq!((&now["spec"]["replicas"], &now["status"]["readyReplicas"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn of_its_pods_and_one_that_is_given_back_a_replica_set_deletes_the_one_with_the_lowest_deletion_cost() {
    let deployed = Deployed::new(1).await;
    let (old, new) = deployed.with_successor().await;
    let cost = json!({"controller.kubernetes.io/pod-deletion-cost": "-2147483648"});
    deployed.ns.patch("pods", name(&new), json!({"metadata": {"annotations": cost}})).await;
    deployed.give_back(&old).await;
    deployed.is_gone(&new).await;
    deployed.stays(&old).await;
    assert_eq!(controller(&deployed.pods().await[0]), "ReplicaSet");
}

#[tokio::test]
async fn a_rollout_and_a_scale_leave_a_pod_alone_that_is_handed_over() {
    let deployed = Deployed::new(2).await;
    let (old, new) = deployed.with_successor().await;
    let template = json!({"metadata": {"annotations": {"example.com/note": "two"}}});
    deployed.ns.patch("deployments", NAME, json!({"spec": {"template": template}})).await;
    deployed.is_gone(&new).await;
    deployed.ns.patch("deployments", NAME, json!({"spec": {"replicas": 0}})).await;
    deployed.ns.ready_pods(APP, 1).await;
    deployed.stays(&old).await;
    // The ReplicaSet wants none.
    deployed.give_back(&old).await;
    deployed.is_gone(&old).await;
}

#[tokio::test]
async fn a_pod_that_is_handed_over_ends_with_its_deployment_or_goes_back_if_that_is_orphaned() {
    for (policy, ends) in [("Background", true), ("Foreground", true), ("Orphan", false)] {
        let deployed = Deployed::new(1).await;
        let (old, _) = deployed.with_successor().await;
        let path = format!("{}?propagationPolicy={policy}", deployed.ns.path("deployments", NAME));
        deployed.ns.client.delete(&path).await.unwrap().ok().unwrap();
        if ends {
            deployed.is_gone(&old).await;
            continue;
        }
        eventually("one is left, of the ReplicaSet", DEADLINE, async || {
            let left = deployed.pods().await;
            ensure!(left.len() == 1 && controller(&left[0]) == "ReplicaSet", "{left:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_pod_that_is_given_back_to_a_replica_set_that_is_gone_ends() {
    let deployed = Deployed::new(1).await;
    let (old, _) = deployed.with_successor().await;
    let template = json!({"metadata": {"annotations": {"example.com/note": "two"}}});
    let spec = json!({"template": template, "revisionHistoryLimit": 0});
    deployed.ns.patch("deployments", NAME, json!({"spec": spec})).await;
    eventually("the ReplicaSet is gone", DEADLINE, async || {
        let path = deployed.ns.path("replicasets", name(&deployed.replica_set));
        let answer = deployed.ns.client.get(&path).await?;
        ensure!(answer.status == 404, "{}", answer.body);
        Ok(())
    })
    .await
    .unwrap();
    deployed.give_back(&old).await;
    deployed.is_gone(&old).await;
}

#[tokio::test]
async fn a_disruption_budget_lets_the_only_replica_go_once_its_successor_is_ready() {
    let deployed = Deployed::new(1).await;
    let ns = &deployed.ns;
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": NAME}}});
    ns.create("poddisruptionbudgets", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    let evict = async |pod: &Value| {
        let metadata = json!({"name": name(pod), "namespace": ns.namespace});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
        ns.client.create(&format!("{}/eviction", ns.path("pods", name(pod))), &eviction).await
    };
    let only = deployed.pods().await.remove(0);
    eventually("the eviction is refused", DEADLINE, async || {
        let answer = evict(&only).await?;
        ensure!(answer.status == 429, "{}", answer.body);
        Ok(())
    })
    .await
    .unwrap();
    let (old, _) = deployed.with_successor().await;
    eventually("the old pod may go", DEADLINE, async || evict(&old).await?.ok()).await.unwrap();
    deployed.is_gone(&old).await;
}
