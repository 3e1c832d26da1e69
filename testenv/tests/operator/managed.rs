//! The recipes of docs/managed-pods.md for pods that other operators manage. The owners are played: the test does what the
//! code that the page names does about a pod that is gone. None of these operators runs.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testenv::client::is_ready;
use testenv::fixture::{condition, create_crd, message_of};
use testenv::pages::sections;
use testenv::process::{Process, printed};
use testenv::{Client, DEADLINE, History, Operator, Past, Proxy, RunDir, eventually, project};
use tokio::join;
use tokio::sync::OnceCell;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::availability::revision;
use crate::owners::{Look, PlayedOwner, Shape, fewest_available, selector};
use crate::reader::Reader;
use crate::test_namespace::{TestNamespace, control_plane};

const PAGE: &str = "docs/managed-pods.md";
/// The module with the CustomResourceDefinition of Rollouts.
const ROLLOUTS: &str = "github.com/argoproj/argo-rollouts";
/// The annotation by which Strimzi restarts a pod.
const TO_ROLL: &str = "strimzi.io/manual-rolling-update";
/// How often a played operator looks at its pods.
const INTERVAL: Duration = Duration::from_millis(100);

/// A namespace with the pods of a recipe, an operator that follows the recipe, and all versions of pods and ConfigMonitors.
struct Recipe {
    ns: TestNamespace,
    name: String,
    config_map: String,
    pods: History,
    monitors: History,
    _operator: Operator,
}

impl Recipe {
    /// Applies the ConfigMonitor of this name, and waits for its baseline.
    async fn follow(ns: TestNamespace, name: &str) -> Self {
        let named = format!("\n  name: {name}\n");
        let mut recipes = sections(PAGE).unwrap().into_iter().flat_map(|section| section.yaml.clone());
        let recipe = recipes.find(|yaml| yaml.contains(&named)).unwrap();
        let config_map = recipe.lines().find_map(|line| line.strip_prefix("  configMap: ")).unwrap().to_owned();
        ns.config_map(&config_map, "one").await;
        let namespace = ns.client.get(&format!("/api/v1/namespaces/{}", ns.namespace)).await.unwrap().ok().unwrap();
        let history = async |resource: &str| {
            let prefix = format!("/registry/{resource}/{}/", ns.namespace);
            control_plane().await.history(&[&prefix], Past::after(revision(&namespace)))
        };
        let (pods, monitors) = (history("pods").await, history("magalix.com/configmonitors").await);
        let operator = ns.operator().await;
        Reader::new(control_plane().await, &ns.namespace).await.apply(&recipe).await;
        // Played pods have nothing to catch up with.
        if recipe.contains("minReadySeconds") {
            ns.patch("configmonitors", name, json!({"spec": {"minReadySeconds": 1}})).await;
        }
        ns.settled(name, "UpToDate").await;
        Self { ns, name: name.to_owned(), config_map, pods, monitors, _operator: operator }
    }

    async fn edit(&self, content: &str) {
        self.ns.edit(&self.config_map, content).await;
    }

    /// Waits until the ConfigMonitor has this reason.
    async fn settled(&self, reason: &str) -> Value {
        self.ns.settled(&self.name, reason).await
    }

    /// Changes the content, and waits until the restart is over and all these pods are replaced.
    async fn restart(&self, selector: &str) -> Value {
        let before = self.ns.pods(selector).await;
        self.edit("two").await;
        self.ns.replaced(selector, &before).await;
        let settled = self.settled("UpToDate").await;
        let last = &settled["status"]["history"][0];
        assert_eq!((&last["result"], &last["pods"]), (&json!("Completed"), &json!(before.len())));
        settled
    }

    /// Returns the codes with which the evictions of the operator were answered.
    fn evictions(&self) -> Vec<u64> {
        let requests = self.ns.requests().unwrap().into_iter();
        let evictions = requests.filter(|entry| entry["objectRef"]["subresource"] == "eviction");
        evictions.map(|entry| entry["responseStatus"]["code"].as_u64().unwrap()).collect()
    }
}

/// Creates the CustomResourceDefinition of a kind whose own one is not to be had as a package: any object is valid.
async fn any_kind(group: &str, kind: &str, plural: &str) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"kind": kind, "plural": plural});
    let spec = json!({"group": group, "names": names, "scope": "Namespaced", "versions": [version]});
    let crd = json!({"metadata": {"name": format!("{plural}.{group}")}, "spec": spec});
    create_crd(control_plane().await, &crd).await;
}

/// Creates an object of a vendor's kind once the API server serves it, and returns what the owner reference of its pods says.
async fn owner(ns: &TestNamespace, plural: &str, object: Value) -> Value {
    let version = object["apiVersion"].as_str().unwrap();
    let path = format!("/apis/{version}/namespaces/{}/{plural}", ns.namespace);
    let create = async || ns.client.create(&path, &object).await?.ok();
    let created = eventually(&format!("{plural} are served"), DEADLINE, create).await.unwrap();
    let metadata = &created["metadata"];
    json!({"apiVersion": version, "kind": object["kind"], "name": metadata["name"], "uid": metadata["uid"]})
}

/// Runs Go in testenv/managed.
async fn go(args: &[&str]) -> String {
    let mut command = Command::new("go");
    command.args(args).current_dir(project("testenv/managed")).env("CGO_ENABLED", "0").env("GOWORK", "off");
    printed(&command).await.unwrap()
}

async fn list(client: &Client, pods: &str, selector: &str) -> Result<Vec<Value>> {
    client.list(&format!("{pods}?labelSelector={selector}")).await
}

fn name_of(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

/// Starts the StrimziPodSet of the pods of a Kafka or a KafkaConnect, which creates a pod again under its name.
async fn strimzi_pod_set(
    ns: &TestNamespace,
    kind: &str,
    cluster: &str,
    name: &'static str,
    pods: usize,
) -> PlayedOwner {
    static KIND: OnceCell<()> = OnceCell::const_new();
    KIND.get_or_init(|| any_kind("core.strimzi.io", "StrimziPodSet", "strimzipodsets")).await;
    let labels = json!({"strimzi.io/cluster": cluster, "strimzi.io/kind": kind, "strimzi.io/name": name});
    let object = json!({"apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet",
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": cluster, "strimzi.io/kind": kind}}});
    let owner = owner(ns, "strimzipodsets", object).await;
    PlayedOwner::start(ns, Shape::AfterTheEnd, pods, Look { name, labels, owner }).await
}

/// The webhook of Strimzi's drain cleaner, for one namespace.
struct DrainCleaner {
    name: String,
    _process: Process,
    _proxy: Proxy,
    _dir: RunDir,
}

impl DrainCleaner {
    async fn start(ns: &TestNamespace, broker: &str) -> Self {
        let dir = RunDir::create().unwrap();
        let program = dir.path().join("drain-cleaner");
        go(&["build", "-o", program.to_str().unwrap(), "."]).await;
        let account = json!({"kind": "ServiceAccount", "name": "drain-cleaner"});
        ns.create("serviceaccounts", json!({"metadata": {"name": account["name"]}})).await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"});
        let binding = json!({"metadata": {"name": account["name"]}, "roleRef": role, "subjects": [account]});
        ns.create("rolebindings", binding).await;
        let token = control_plane().await.service_account_token(&ns.namespace, "drain-cleaner").await.unwrap();
        let proxy = control_plane().await.proxy_with(&token, &[]).await.unwrap();
        let mut command = Command::new(&program);
        command.arg(proxy.url());
        let process = Process::start(&command, &dir.path().join("log")).unwrap();
        let line = process.wait_for_line("serves ", DEADLINE).await.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let name = format!("drain-cleaner.{}.example.com", ns.namespace);
        let rule =
            json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]});
        let webhook = json!({
            "name": name,
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.namespace}},
            "clientConfig": {"url": words[1], "caBundle": words[2]},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
        });
        let configuration = json!({"metadata": {"name": name}, "webhooks": [webhook]});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        ns.client.create(path, &configuration).await.unwrap().ok().unwrap();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": broker}});
        eventually("the webhook refuses an eviction", DEADLINE, async || {
            let path = ns.path("pods", &format!("{broker}/eviction?dryRun=All"));
            let answer = ns.client.create(&path, &eviction).await?;
            ensure!(answer.status == 500, "{answer:?}");
            Ok(())
        })
        .await
        .unwrap();
        Self { name, _process: process, _proxy: proxy, _dir: dir }
    }
}

/// Lets Strimzi reconcile until this is dropped: the annotated pods are deleted one after the other, each once the previous
/// one has a successor that is ready.
fn reconcile(ns: &TestNamespace, selector: &str) -> AbortOnDropHandle<()> {
    let (client, pods, selector) = (ns.client.clone(), ns.collection("pods"), selector.to_owned());
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut rolled = Value::Null;
        loop {
            let listed = list(&client, &pods, &selector).await.unwrap_or_default();
            let is_over = |pod: &Value| is_ready(pod) && pod["metadata"]["uid"] != rolled["metadata"]["uid"];
            let mut marked = listed.iter().filter(|pod| pod["metadata"]["annotations"][TO_ROLL] == "true");
            if rolled.is_null() || listed.iter().any(|pod| name_of(pod) == name_of(&rolled) && is_over(pod)) {
                rolled = marked.next().cloned().unwrap_or_default();
                if !rolled.is_null() {
                    let _ = client.delete(&format!("{pods}/{}", name_of(&rolled))).await;
                }
            }
            sleep(INTERVAL).await;
        }
    }))
}

/// Who leads the members of a cluster, by a label, until this is dropped. Without a leader, a follower becomes the leader:
/// that which a restart without an order deletes next. A new member becomes a follower.
struct Election {
    promotions: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Election {
    /// One of these pods becomes the leader.
    async fn start(
        ns: &TestNamespace,
        members: &str,
        role: &'static str,
        [leader, follower]: [&'static str; 2],
    ) -> Self {
        let promotions = Arc::new(AtomicUsize::new(0));
        let (client, pods, selector) = (ns.client.clone(), ns.collection("pods"), members.to_owned());
        let counted = Arc::clone(&promotions);
        let task = tokio::spawn(async move {
            loop {
                let mut there = list(&client, &pods, &selector).await.unwrap_or_default();
                there.retain(is_ready);
                there.sort_by_key(|pod| {
                    [&pod["metadata"]["creationTimestamp"], &pod["metadata"]["uid"]].map(Value::to_string)
                });
                let role_of = |pod: &Value| pod["metadata"]["labels"][role].as_str().unwrap_or_default().to_owned();
                let has_leader = there.iter().any(|pod| role_of(pod) == leader);
                let candidate = there.iter().find(|pod| role_of(pod) == follower).or(there.first());
                let changed = match has_leader {
                    true => there.iter().find(|pod| role_of(pod).is_empty()),
                    false => candidate,
                };
                if let Some(pod) = changed {
                    let to = if has_leader { follower } else { leader };
                    let metadata = json!({"uid": pod["metadata"]["uid"], "labels": {role: to}});
                    let path = format!("{pods}/{}", name_of(pod));
                    let patched = client.merge_patch(&path, &json!({"metadata": metadata})).await;
                    let is_done = patched.is_ok_and(|answer| answer.status == 200);
                    counted.fetch_add(usize::from(is_done && !has_leader), Ordering::Relaxed);
                }
                sleep(INTERVAL).await;
            }
        });
        let count = ns.pods(members).await.len();
        ns.ready_pods(&format!("{members},{role}"), count).await;
        Self { promotions, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns how often the leader has changed.
    fn failovers(&self) -> usize {
        self.promotions.load(Ordering::Relaxed) - 1
    }
}

#[tokio::test]
async fn strimzi_restarts_its_brokers_itself_while_its_webhook_refuses_every_eviction() {
    let (ns, brokers) = (TestNamespace::new().await, "strimzi.io/name=my-cluster-kafka");
    let _pod_set = strimzi_pod_set(&ns, "Kafka", "my-cluster", "my-cluster-kafka", 3).await;
    let drain_cleaner = DrainCleaner::start(&ns, "my-cluster-kafka-0").await;
    let recipe = Recipe::follow(ns, "brokers").await;
    let ns = &recipe.ns;
    let is_quoted = |monitor: &Value, r#type: &str| {
        let message = message_of(monitor, r#type);
        assert!(message.contains(&drain_cleaner.name) && message.contains("left to the Cluster Operator"), "{message}");
    };

    // Strimzi has not reconciled yet.
    let before = ns.pods(brokers).await;
    recipe.edit("two").await;
    eventually("each broker is annotated, and an eviction is retried", DEADLINE, async || {
        let annotated = list(&ns.client, &ns.collection("pods"), brokers).await?.into_iter();
        let annotated = annotated.filter(|pod| pod["metadata"]["annotations"][TO_ROLL] == "true").count();
        let evictions = recipe.evictions();
        ensure!(annotated == 3 && evictions.len() > 3, "{annotated}, {evictions:?}");
        Ok(())
    })
    .await
    .unwrap();
    is_quoted(&recipe.settled("DeletionRefused").await, "Reconciling");
    assert_eq!(ns.pods(brokers).await, before);
    let strimzi = reconcile(ns, brokers);
    ns.replaced(brokers, &before).await;
    let settled = recipe.settled("UpToDate").await;
    recipe.monitors.reach(revision(&settled)).await.unwrap();
    drop(strimzi);

    // It does not reconcile within the deadline.
    ns.patch("configmonitors", &recipe.name, json!({"spec": {"progressDeadlineSeconds": 5}})).await;
    recipe.settled("UpToDate").await;
    let before = ns.pods(brokers).await;
    recipe.edit("three").await;
    is_quoted(&recipe.settled("ProgressDeadlineExceeded").await, "Stalled");
    assert_eq!(ns.pods(brokers).await, before);
    let _strimzi = reconcile(ns, brokers);
    ns.replaced(brokers, &before).await;
    let last = recipe.settled("UpToDate").await;

    let evictions = recipe.evictions();
    assert!(!evictions.is_empty() && evictions.iter().all(|code| *code == 500), "{evictions:?}");
    assert_eq!(ns.sent_deletions(), [""; 0]);
    let of_first = recipe.monitors.end();
    let of_first = of_first.versions().iter().filter(|version| version.revision <= revision(&settled));
    let mut stalled = of_first.filter_map(|version| version.object.as_ref().map(|object| condition(object, "Stalled")));
    assert!(stalled.all(|condition| condition["status"] != "True"), "the first restart had time");
    assert_eq!(fewest_available(recipe.pods, 3, &last).await, Some(2));
}

#[tokio::test]
async fn the_workers_of_strimzi_connect_go_one_at_a_time_and_so_does_a_single_one() {
    let test = async |workers: usize| {
        let ns = TestNamespace::new().await;
        let _pod_set = strimzi_pod_set(&ns, "KafkaConnect", "my-connect", "my-connect-connect", workers).await;
        let recipe = Recipe::follow(ns, "connect").await;
        let settled = recipe.restart("strimzi.io/name=my-connect-connect").await;
        assert_eq!(recipe.ns.sent_deletions().len(), workers);
        assert_eq!(fewest_available(recipe.pods, workers, &settled).await, Some(workers - 1));
    };
    join!(test(3), test(1));
}

#[tokio::test]
async fn the_replicas_of_cloudnativepg_restart_and_its_primary_stays() {
    let ns = TestNamespace::new().await;
    any_kind("postgresql.cnpg.io", "Cluster", "clusters").await;
    let cluster = json!({"apiVersion": "postgresql.cnpg.io/v1", "kind": "Cluster", "metadata": {"name": "pg"}});
    let owner = owner(&ns, "clusters", cluster).await;
    let labels = json!({"cnpg.io/cluster": "pg", "cnpg.io/podRole": "instance"});
    let _owner = PlayedOwner::start(&ns, Shape::AfterTheEnd, 3, Look { name: "pg", labels, owner }).await;
    let election = Election::start(&ns, "cnpg.io/cluster=pg", "cnpg.io/instanceRole", ["primary", "replica"]).await;
    let primary = ns.pods("cnpg.io/instanceRole=primary").await;
    let recipe = Recipe::follow(ns, "pg-replicas").await;
    let settled = recipe.restart("cnpg.io/instanceRole=replica").await;
    assert_eq!(recipe.ns.pods("cnpg.io/instanceRole=primary").await, primary);
    assert_eq!(election.failovers(), 0);
    assert_eq!(recipe.ns.sent_deletions().len(), 2);
    assert_eq!(fewest_available(recipe.pods, 3, &settled).await, Some(2));
}

/// A cluster whose pods are those of StatefulSets.
struct Members {
    /// The name of the ConfigMonitor.
    recipe: &'static str,
    labels: Value,
    /// Names and replicas of the StatefulSets.
    sets: &'static [(&'static str, usize)],
    role: &'static str,
    roles: [&'static str; 2],
}

async fn goes_last(members: Members) {
    let Members { recipe, labels, sets, role, roles } = members;
    let (ns, all) = (TestNamespace::new().await, selector(&labels));
    for (name, replicas) in sets {
        let mut labels = labels.clone();
        labels["set"] = json!(name);
        let spec = json!({
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}},
        });
        ns.create("statefulsets", json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    ns.ready_pods(&all, 3).await;
    let election = Election::start(&ns, &all, role, roles).await;
    let [leader, _] = roles;
    let leads = format!("{role}={leader}");
    let (old, _) = ns.pods(&leads).await.pop_first().unwrap();
    let recipe = Recipe::follow(ns, recipe).await;
    let settled = recipe.restart(&all).await;
    let deletions = recipe.ns.sent_deletions();
    assert_eq!((deletions.len(), deletions.last()), (3, Some(&old)), "{deletions:?}");
    let (new, _) = recipe.ns.pods(&leads).await.pop_first().unwrap();
    assert!(new != old && election.failovers() == 1, "{new}, {} failovers", election.failovers());
    assert_eq!(fewest_available(recipe.pods, 3, &settled).await, Some(2));
}

#[tokio::test]
async fn a_leader_with_a_label_that_moves_goes_last_and_there_is_one_failover() {
    let zalando = Members {
        recipe: "acid-minimal",
        labels: json!({"application": "spilo", "cluster-name": "acid-minimal"}),
        sets: &[("acid-minimal", 3)],
        role: "spilo-role",
        roles: ["master", "replica"],
    };
    let crunchy = Members {
        recipe: "hippo",
        labels: json!({"postgres-operator.crunchydata.com/cluster": "hippo", "postgres-operator.crunchydata.com/data": "postgres"}),
        sets: &[("hippo-instance1-a", 1), ("hippo-instance1-b", 1), ("hippo-instance1-c", 1)],
        role: "postgres-operator.crunchydata.com/role",
        roles: ["master", "replica"],
    };
    let dragonfly = Members {
        recipe: "dragonfly-sample",
        labels: json!({"app": "dragonfly-sample", "app.kubernetes.io/name": "dragonfly"}),
        sets: &[("dragonfly-sample", 3)],
        role: "role",
        roles: ["master", "replica"],
    };
    let redis = Members {
        recipe: "redisfailover",
        labels: json!({"app.kubernetes.io/component": "redis", "app.kubernetes.io/name": "redisfailover"}),
        sets: &[("rfr-redisfailover", 3)],
        role: "redisfailovers-role",
        roles: ["master", "slave"],
    };
    join!(goes_last(zalando), goes_last(crunchy), goes_last(dragonfly), goes_last(redis));
}

/// Argo's own definition of a Rollout, and Kubernetes' own controller of its ReplicaSets.
#[tokio::test]
async fn the_stable_and_the_canary_pods_of_a_rollout_share_one_budget() {
    go(&["mod", "download", ROLLOUTS]).await;
    let module = go(&["list", "-m", "-f", "{{.Dir}}", ROLLOUTS]).await;
    let crd = format!("{}/manifests/crds/rollout-crd.yaml", module.trim());
    control_plane().await.kubectl().ok(&["create", "-f", &crd]).await.unwrap();

    let (ns, app) = (TestNamespace::new().await, json!({"app": "rollouts-demo"}));
    let template = |labels: &Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let spec = json!({"replicas": 5, "selector": {"matchLabels": app}, "template": template(&app),
        "strategy": {"canary": {"steps": [{"setWeight": 40}, {"pause": {}}]}}});
    let rollout = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "rollouts-demo"}, "spec": spec});
    let mut owner = owner(&ns, "rollouts", rollout).await;
    owner["controller"] = json!(true);
    for (hash, replicas) in [("a", 3), ("b", 2)] {
        let labels = json!({"app": "rollouts-demo", "rollouts-pod-template-hash": hash});
        let metadata = json!({"name": format!("rollouts-demo-{hash}"), "labels": labels, "ownerReferences": [owner]});
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels)});
        ns.create("replicasets", json!({"metadata": metadata, "spec": spec})).await;
    }
    ns.ready_pods("app=rollouts-demo", 5).await;
    let path = format!("/apis/argoproj.io/v1alpha1/namespaces/{}/rollouts/rollouts-demo", ns.namespace);
    let before = ns.client.get(&path).await.unwrap().ok().unwrap();
    let recipe = Recipe::follow(ns, "rollouts-demo").await;
    let settled = recipe.restart("app=rollouts-demo").await;
    let pods = recipe.ns.client.list(&recipe.ns.collection("pods")).await.unwrap();
    let created = pods.iter().map(|pod| pod["metadata"]["creationTimestamp"].to_string());
    assert_eq!(
        created.collect::<BTreeSet<_>>().len(),
        5,
        "each is created once the one before has been ready for a second"
    );
    assert_eq!(recipe.evictions(), [201; 5]);
    assert_eq!(recipe.ns.sent_deletions(), [""; 0]);
    assert_eq!(recipe.ns.client.get(&path).await.unwrap().ok().unwrap(), before);
    assert_eq!(fewest_available(recipe.pods, 5, &settled).await, Some(4));
}
