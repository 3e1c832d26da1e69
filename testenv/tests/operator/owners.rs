//! What owners of pods do about a restart: those of a kind that the operator does not know, which the test plays, and
//! StatefulSets as their settings say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::client::is_ready;
use testenv::fixture::{APP, NAME};
use testenv::{DEADLINE, History, Operator, Past, eventually};
use tokio::join;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::availability::{Observer, revision};
use crate::test_namespace::{TestNamespace, control_plane};

/// The revision of the template that a pod of a StatefulSet has.
const REVISION: &str = "/metadata/labels/controller-revision-hash";

/// What an owner does about a pod that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Creates another one at once, as a ReplicaSet does.
    AtOnce,
    /// Creates it again under its name, once it is gone, as a StatefulSet does.
    AfterTheEnd,
    /// Creates one with a number that no pod has had, once it is gone.
    Renames,
}

/// What the pods of a played owner have.
pub(crate) struct Look {
    /// Their names are this, a hyphen and a number.
    pub(crate) name: &'static str,
    pub(crate) labels: Value,
    /// `apiVersion`, `kind`, `name` and `uid` of the owner.
    pub(crate) owner: Value,
}

/// The owner of the pods of a namespace, until it is dropped.
pub(crate) struct PlayedOwner {
    scaled: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl PlayedOwner {
    pub(crate) async fn start(ns: &TestNamespace, shape: Shape, replicas: usize, look: Look) -> Self {
        let scaled = Arc::new(AtomicUsize::new(replicas));
        let Look { name: prefix, labels, mut owner } = look;
        owner["controller"] = json!(true);
        let selector = selector(&labels);
        let (client, pods, scaled_to) = (ns.client.clone(), ns.collection("pods"), Arc::clone(&scaled));
        let task = tokio::spawn(async move {
            let (mut created, mut wanted) = (0, replicas);
            loop {
                let listed = client.list(&pods).await.unwrap_or_default();
                let is_ending = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
                let counts = |pod: &&Value| shape != Shape::AtOnce || !is_ending(pod);
                let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let mut there: Vec<String> = listed.iter().filter(counts).map(name).collect();
                if listed.iter().filter(|pod| !is_ending(pod)).count() < wanted {
                    wanted = scaled_to.load(Ordering::Relaxed);
                }
                there.sort();
                for surplus in there.split_off(there.len().min(wanted)) {
                    let _ = client.delete(&format!("{pods}/{surplus}")).await;
                }
                for _ in there.len()..wanted {
                    let named = |number| format!("{prefix}-{number}");
                    let from = if shape == Shape::AfterTheEnd { 0 } else { created };
                    let name = (from..).map(named).find(|name| !there.contains(name)).unwrap_or_default();
                    created += 1;
                    let metadata = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
                    let spec = json!({"containers": [{"name": "app", "image": "app"}]});
                    let _ = client.create(&pods, &json!({"metadata": metadata, "spec": spec})).await;
                    there.push(name);
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
        ns.ready_pods(&selector, replicas).await;
        Self { scaled, _task: AbortOnDropHandle::new(task) }
    }

    /// Scales the owner once it has lost the next of its pods.
    fn scale_at_a_loss(&self, replicas: usize) {
        self.scaled.store(replicas, Ordering::Relaxed);
    }
}

/// Returns the selector of these labels.
pub(crate) fn selector(labels: &Value) -> String {
    let pairs = labels.as_object().unwrap().iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap()));
    pairs.collect::<Vec<_>>().join(",")
}

/// How many pods were available at the worst, since so many were, and up to this version of an object. [`Observer`]
/// counts against what owners desire, which these do not say.
pub(crate) async fn fewest_available(history: History, desired: usize, last: &Value) -> Option<usize> {
    history.reach(revision(last)).await.unwrap();
    let (mut available, mut fewest) = (BTreeMap::new(), None);
    for version in history.end().versions() {
        let serves = |pod: &Value| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
        available.insert(version.key.clone(), version.object.as_ref().is_some_and(serves));
        let count = available.values().filter(|serves| **serves).count();
        fewest = fewest.map(|fewest: usize| fewest.min(count)).or((count == desired).then_some(desired));
    }
    fewest
}

/// A namespace with three pods of a played owner, an operator that restarts them one at a time, and the content changed.
struct Restart {
    ns: TestNamespace,
    _owner: PlayedOwner,
    before: BTreeMap<String, String>,
    history: History,
    _operator: Operator,
}

impl Restart {
    /// The owner is scaled to so many once it has lost the first pod.
    async fn begin(shape: Shape, replicas: usize) -> Self {
        let ns = TestNamespace::new().await;
        let history = control_plane().await.history(&[&format!("/registry/pods/{}/", ns.namespace)], Past::default());
        ns.config_map(NAME, "one").await;
        let member = json!({"apiVersion": "example.com/v1", "kind": "Member", "name": "m", "uid": "m"});
        let look = Look { name: "member", labels: json!({"app": NAME}), owner: member };
        let owner = PlayedOwner::start(&ns, shape, 3, look).await;
        owner.scale_at_a_loss(replicas);
        let operator = ns.operator().await;
        let spec = json!({"maxUnavailable": 1, "minReadySeconds": 1, "progressDeadlineSeconds": 10});
        ns.monitor(NAME, spec).await;
        let before = ns.pods(APP).await;
        ns.edit(NAME, "two").await;
        Self { ns, _owner: owner, before, history, _operator: operator }
    }

    /// The restart ends with so many pods, none of which is old. Once all were available, no fewer than these were.
    async fn ends_with(self, pods: usize, fewest: usize) {
        let Self { ns, before, .. } = &self;
        let settled = ns.settled(NAME, "UpToDate").await;
        let after = ns.ready_pods(APP, pods).await;
        assert!(before.values().all(|uid| !after.values().any(|other| other == uid)), "{before:?}, {after:?}");
        assert_eq!(settled["status"]["history"][0]["result"], "Completed");
        assert_eq!(fewest_available(self.history, 3, &settled).await, Some(fewest));
    }
}

async fn for_each_shape(test: impl AsyncFn(Shape)) {
    join!(test(Shape::AtOnce), test(Shape::AfterTheEnd), test(Shape::Renames));
}

#[tokio::test]
async fn the_pods_of_an_owner_of_unknown_kind_go_one_at_a_time_however_it_creates_others() {
    for_each_shape(async |shape| Restart::begin(shape, 3).await.ends_with(3, 2).await).await;
}

#[tokio::test]
async fn an_owner_of_unknown_kind_that_scales_up_in_the_middle_is_expected_to_have_the_pods_that_exist() {
    for_each_shape(async |shape| Restart::begin(shape, 4).await.ends_with(4, 2).await).await;
}

/// The operator cannot know that fewer are desired, so it waits for the third pod, up to the deadline. Then one of two may
/// be unavailable.
#[tokio::test]
async fn an_owner_of_unknown_kind_that_scales_down_in_the_middle_holds_the_restart_up_to_the_deadline() {
    for_each_shape(async |shape| {
        let restart = Restart::begin(shape, 2).await;
        restart.ns.settled(NAME, "ProgressDeadlineExceeded").await;
        restart.ns.messages_have(&["Member m has 2 of 3 available"]).await;
        restart.ends_with(2, 1).await;
    })
    .await;
}

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

async fn edit_template(ns: &TestNamespace) {
    let template = json!({"metadata": {"annotations": {"example.com/edited": "true"}}});
    ns.patch("statefulsets", NAME, json!({"spec": {"template": template}})).await;
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
    assert_eq!(observer.end(&settled).await.most_missing(), 3);
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
