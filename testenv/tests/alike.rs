//! The API server of the simulated cluster answers like the real one: the same random requests, right and wrong
//! ones, go to both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::client::{Client, Preconditions};
use configmonitor_operator::kube::error::Error;
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::objects::{DataObject, PodIdentity, Workload};
use configmonitor_operator::kube::transport::KubectlProxy;
use configmonitor_operator::kube::{CONFIG_MAPS, PODS, Resource, ResourceVersion, Uid};
use configmonitor_operator::monitor::pod::Pod;
use configmonitor_operator::monitor::spec::Spec;
use configmonitor_operator::monitor::{CONFIG_MONITORS, ConfigMonitor};
use fastrand::Rng;
use serde_json::{Value, json};
use simulated_cluster::NAMESPACE;
use simulated_cluster::cluster::Cluster;
use simulated_cluster::content::{data, written};
use simulated_cluster::network::{Network, Process};
use simulated_cluster::serve::Server;
use simulated_cluster::state::{ClusterState, Owners, Pace, Setting};
use testenv::fixture::{Fixture, grant_surge_without_policy, install_crd, start_proxy};
use testenv::{ControlPlane, DEADLINE, Proxy, eventually};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// The number of random requests and changes.
const STEPS: usize = 200;
const MONITOR: &str = "flakapp-config-monitor";
const REPLICA_SETS: Resource = Resource { api_version: "apps/v1", kind: "ReplicaSet", plural: "replicasets" };
const DEPLOYMENTS: Resource = Resource { api_version: "apps/v1", kind: "Deployment", plural: "deployments" };
/// The Deployment, and the ReplicaSet whose pods are handed over to it.
const DEPLOYMENT: &str = "frontend";
const REPLICA_SET: &str = "frontend-a";
const HANDED_OVER: &str = "magalix.com/handed-over=true";
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
/// Longer than the test takes, in milliseconds.
const NEVER: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
enum Call {
    ConfigMap(&'static str),
    Monitor(&'static str),
    ReplicaSet(&'static str),
    Deployment(&'static str),
    /// Hands over a pod of the ReplicaSet, or gives it back.
    Patch {
        pod: usize,
        back: bool,
        uid: Which,
        version: Which,
    },
    PutStatus {
        version: Which,
        uid: Which,
        generation: i64,
    },
    List {
        selector: &'static str,
        at: At,
        metadata_only: bool,
    },
    Delete {
        pod: usize,
        evict: bool,
        uid: Which,
        version: Option<Which>,
        grace: Option<u32>,
    },
    Watch {
        resource: Resource,
        selector: Option<&'static str>,
        at: At,
    },
}

/// The current version or identity, or an earlier or foreign one.
#[derive(Clone, Copy, Debug)]
enum Which {
    Right,
    Wrong,
}

/// The version of a list.
#[derive(Clone, Copy, Debug)]
enum At {
    Now,
    /// The version after this step.
    After(usize),
    /// A version of the future that never comes.
    Future,
}

/// A change of both clusters.
#[derive(Clone, Debug)]
enum Change {
    Edit(&'static str, char),
    DeleteConfigMap(&'static str),
    Suspend(bool),
}

struct Side {
    runtime: Runtime,
    client: Client,
    /// The version of all pods after each step.
    versions: Vec<ResourceVersion>,
    /// The pods, and the ConfigMonitor, as they were at first.
    pods: BTreeMap<String, (Uid, ResourceVersion)>,
    first: Option<ResourceVersion>,
}

struct Simulated {
    side: Side,
    cluster: Arc<Cluster>,
    _server: Server,
}

struct Real {
    side: Side,
    fixture: Fixture,
    _proxy: Proxy,
    _control_plane: ControlPlane,
}

fn spec() -> Spec {
    Spec {
        config_map: Some("flaskapp-config".to_owned()),
        pod_selector: BTreeMap::from([("app".to_owned(), "frontend".to_owned())]),
        quiet_period_seconds: Some(3),
        suspend: Some(false),
        ..Spec::default()
    }
}

/// Returns a failure by its name alone: the messages of the servers differ.
fn outcome<T: Debug>(result: Result<T, Error>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(Error { cause, .. }) => {
            let text = format!("{cause:?}");
            text.split(['(', ' ']).next().unwrap_or_default().to_owned()
        }
    }
}

fn all_pods(metadata_only: bool, labels: Option<&str>) -> Selection {
    Selection { resource: PODS, labels: labels.map(str::to_owned), fields: None, metadata_only }
}

impl Side {
    fn new(runtime: Runtime, client: Client) -> Self {
        let mut side = Self { runtime, client, versions: Vec::new(), pods: BTreeMap::new(), first: None };
        side.pods = side.pods_now();
        side.first = Some(side.monitor().metadata.resource_version);
        side.note();
        side
    }

    fn pods_now(&self) -> BTreeMap<String, (Uid, ResourceVersion)> {
        let identity = |pod: Pod| (pod.name.to_string(), (pod.uid, pod.version));
        let list = self.runtime.block_on(self.client.list(&all_pods(false, None), None, identity));
        list.unwrap().items.into_iter().collect()
    }

    fn monitor(&self) -> ConfigMonitor {
        self.runtime.block_on(self.client.get(CONFIG_MONITORS, MONITOR)).unwrap().value
    }

    fn note(&mut self) {
        let list = self.runtime.block_on(self.client.list(&all_pods(true, None), None, |_: PodIdentity| ()));
        self.versions.push(list.unwrap().resource_version);
    }

    fn version(&self, at: At) -> Option<ResourceVersion> {
        match at {
            At::Now => None,
            At::After(step) => Some(self.versions[step].clone()),
            At::Future => {
                let last: u64 = self.versions.last().unwrap().as_str().parse().unwrap();
                Some((last + 1_000_000).to_string().as_str().into())
            }
        }
    }

    /// Sends a request, and describes the outcome in words that are the same on both sides.
    fn call(&self, call: &Call) -> String {
        match call {
            Call::ConfigMap(name) => {
                let answer = self.runtime.block_on(self.client.get::<DataObject>(CONFIG_MAPS, name));
                outcome(answer.map(|answer| answer.value.data))
            }
            Call::Monitor(name) => {
                let answer = self.runtime.block_on(self.client.get::<ConfigMonitor>(CONFIG_MONITORS, name));
                let status = |monitor: &ConfigMonitor| monitor.status.as_ref().map(|status| status.get().to_owned());
                outcome(answer.map(|answer| (answer.value.metadata.generation, status(&answer.value))))
            }
            Call::ReplicaSet(name) => outcome(
                self.runtime
                    .block_on(self.client.get::<Workload>(REPLICA_SETS, name))
                    .map(|answer| answer.value.replicas),
            ),
            Call::Deployment(name) => {
                let answer = self.runtime.block_on(self.client.get::<Value>(DEPLOYMENTS, name));
                let fields = ["replicas", "selector", "strategy"];
                outcome(answer.map(|answer| fields.map(|field| answer.value["spec"][field].clone())))
            }
            Call::Patch { pod, back, uid, version } => {
                let (now, of_set) = (self.pods_now(), self.pods_of_set());
                let name = of_set[pod % of_set.len()];
                let uid = match uid {
                    Which::Right => now[name].0.clone(),
                    Which::Wrong => Uid::from(NOBODY),
                };
                let version = match version {
                    Which::Right => &now[name].1,
                    Which::Wrong => &self.pods[name].1,
                };
                let patch = self.handing_over(*back, (&uid, version));
                let answer = self.runtime.block_on(async {
                    let permit = self.client.deletion_permit().await?;
                    self.client.patch_pod(&permit, name, &patch).await
                });
                format!("{} {}", outcome(answer.map(|pod: Pod| pod.gone_by.is_some())), self.controller_of(name))
            }
            Call::PutStatus { version, uid, generation } => {
                let monitor = self.monitor();
                let version = match version {
                    Which::Right => Some(monitor.metadata.resource_version),
                    Which::Wrong => self.first.clone(),
                };
                let uid = match uid {
                    Which::Right => monitor.metadata.uid,
                    Which::Wrong => Uid::from(NOBODY),
                };
                let object = json!({
                    "apiVersion": CONFIG_MONITORS.api_version, "kind": CONFIG_MONITORS.kind,
                    "metadata": {"name": MONITOR, "namespace": self.client.namespace(), "uid": uid, "resourceVersion": version},
                    "status": {"observedGeneration": generation},
                });
                let put = self.client.replace::<Value>((CONFIG_MONITORS, Some("status")), MONITOR, &object);
                outcome(self.runtime.block_on(put).map(|answer| answer.value["status"].clone()))
            }
            Call::List { selector, at, metadata_only: true } => {
                let (of, version) = (all_pods(true, Some(selector)), self.version(*at));
                let list = self.runtime.block_on(self.client.list(&of, version.as_ref(), |_: PodIdentity| ()));
                outcome(list.map(|list| list.items.len()))
            }
            Call::List { selector, at, metadata_only: false } => {
                let (of, version) = (all_pods(false, Some(selector)), self.version(*at));
                let keep = |pod: Pod| (pod.name.to_string(), pod.gone_by.is_some());
                outcome(self.runtime.block_on(self.client.list(&of, version.as_ref(), keep)).map(|list| list.items))
            }
            Call::Delete { pod, evict, uid, version, grace } => {
                let (now, names) = (self.pods_now(), self.pods.keys().collect::<Vec<_>>());
                let (name, other) = (names[pod % names.len()], names[(pod + 1) % names.len()]);
                let (right, current) = &now[name];
                let uid = match uid {
                    Which::Right => right,
                    Which::Wrong => &now[other].0,
                };
                let resource_version = version.map(|version| match version {
                    Which::Right => current,
                    // This is the right version too, unless the pod has changed.
                    Which::Wrong => &self.pods[name].1,
                });
                let only = Preconditions { uid, resource_version };
                outcome(self.runtime.block_on(async {
                    let permit = self.client.deletion_permit().await?;
                    self.client.remove(permit, name, only, *grace, *evict).await
                }))
            }
            Call::Watch { resource, selector, at } => {
                let of = Selection {
                    resource: *resource,
                    labels: selector.map(str::to_owned),
                    fields: None,
                    metadata_only: true,
                };
                let from = self.version(*at).unwrap_or_else(|| self.versions.last().unwrap().clone());
                outcome(self.runtime.block_on(self.watch(&of, &from)))
            }
        }
    }

    /// Returns the controller of a pod, and by whom it was handed over.
    fn controller_of(&self, name: &str) -> String {
        let pods = self.runtime.block_on(self.client.list(&all_pods(false, None), None, |pod: Value| pod)).unwrap();
        let metadata =
            pods.items.into_iter().map(|pod| pod["metadata"].clone()).find(|pod| pod["name"] == name).unwrap();
        let owner = metadata["ownerReferences"].as_array().unwrap().iter().find(|owner| owner["controller"] == true);
        let by = ["from", "by"].map(|key| metadata["annotations"][format!("magalix.com/handed-over-{key}")].clone());
        format!("{:?} {by:?}", owner.map(|owner| (&owner["kind"], &owner["name"])))
    }

    fn pods_of_set(&self) -> Vec<&String> {
        self.pods.keys().filter(|name| name.starts_with(REPLICA_SET)).collect()
    }

    /// Returns the patch as the operator sends it.
    fn handing_over(&self, back: bool, (uid, version): (&Uid, &ResourceVersion)) -> Value {
        let owner = |of: Resource, name: &str| {
            let owner = self.runtime.block_on(self.client.get::<Value>(of, name)).unwrap().value;
            (
                owner["metadata"]["uid"].clone(),
                json!({"apiVersion": of.api_version, "kind": of.kind, "name": name,
                "uid": owner["metadata"]["uid"], "controller": true}),
            )
        };
        let (set, deployment) = (owner(REPLICA_SETS, REPLICA_SET), owner(DEPLOYMENTS, DEPLOYMENT));
        let ((from, _), (_, to)) = if back { (deployment, set) } else { (set, deployment) };
        let value = |text: &str| if back { Value::Null } else { text.into() };
        json!({"metadata": {
            "uid": uid,
            "resourceVersion": version,
            "labels": {"magalix.com/handed-over": value("true")},
            "annotations": {
                "magalix.com/handed-over-from": value("frontend-a/uid"), "magalix.com/handed-over-by": value("flakapp-config-monitor/uid"),
            },
            "ownerReferences": [to, {"$patch": "delete", "uid": from}],
        }})
    }

    /// Returns the events of a watch up to its end, which comes after a second.
    async fn watch(&self, of: &Selection, from: &ResourceVersion) -> Result<Vec<String>, Error> {
        let mut lines = self.client.watch(of, from, Duration::from_secs(1)).await?;
        let mut events = Vec::new();
        while let Ok(Some(line)) = lines.next().await {
            let event: Value = serde_json::from_str(&line).unwrap();
            let metadata = &event["object"]["metadata"];
            if event["type"] != "BOOKMARK" && metadata["name"] != "kube-root-ca.crt" {
                events.push(format!("{} {} {}", event["type"], metadata["name"], event["object"]["code"]));
            }
        }
        Ok(events)
    }
}

impl Simulated {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let pace = Pace { creation: NEVER, readiness: NEVER, termination: NEVER };
        let setting = Setting::of(Owners::Usual, pace);
        let cluster = Cluster::new(ClusterState::new(vec![spec()], setting, Network::new(1, 500, 4)));
        let server = runtime.block_on(Server::start(&cluster, Process::First)).unwrap();
        let (transport, base) = KubectlProxy::at(server.url().parse().unwrap()).unwrap();
        let client = Client::new(Box::new(transport), base, 32, 4, Arc::new(()), CancellationToken::new());
        let side = Side::new(runtime, client.within(&NAMESPACE.into()));
        Self { side, cluster, _server: server }
    }

    fn change(&mut self, change: &Change) {
        let _in_its_time = self.side.runtime.enter();
        let mut state = self.cluster.state();
        match change {
            Change::Edit(name, letter) => {
                let content = [Some(*letter), None];
                // A write without a change makes no new version.
                if state.config_maps.get(name).is_none_or(|stored| stored.content != content) {
                    state.set_content(name, Some(content));
                }
            }
            Change::DeleteConfigMap(name) => {
                if state.config_maps.contains_key(name) {
                    state.set_content(name, None);
                }
            }
            Change::Suspend(holds) => state.set_spec(0, |spec| spec.suspend = Some(*holds)),
        }
    }
}

impl Real {
    /// Creates an API server with the objects of the simulated cluster. Its pods do not change by themselves, and do not
    /// end.
    fn start(simulated: &Simulated) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (control_plane, fixture, proxy) = runtime.block_on(async {
            let mut control_plane = ControlPlane::start().await.unwrap();
            install_crd(&control_plane).await;
            let fixture = Fixture::new(&control_plane).await;
            // The simulated cluster has no policies.
            grant_surge_without_policy(&control_plane, &fixture.namespace).await;
            let proxy = start_proxy(&control_plane, &fixture.namespace).await;
            eventually("the namespace is ready for pods", DEADLINE, async || {
                fixture.client.get(&fixture.path("serviceaccounts", "default")).await?.ok()
            })
            .await
            .unwrap();
            control_plane.end_clients();
            (control_plane, fixture, proxy)
        });
        let (pods, config_maps) = {
            let _in_its_time = simulated.side.runtime.enter();
            let state = simulated.cluster.state();
            let pods: Vec<(String, BTreeMap<String, String>)> =
                state.pods.iter().map(|pod| (pod.name.to_string(), (*pod.labels).clone())).collect();
            (pods, state.config_maps.clone())
        };
        runtime.block_on(async {
            for (name, stored) in config_maps {
                let object = json!({"metadata": {"name": name}, "data": data(stored.content)});
                fixture.create("configmaps", object).await;
            }
            let uid = create_owners(&fixture).await;
            let controller = json!({"apiVersion": REPLICA_SETS.api_version, "kind": REPLICA_SETS.kind, "name": REPLICA_SET,
                "uid": uid, "controller": true});
            for (name, labels) in pods {
                let owners = labels.get("owner").filter(|owner| *owner == REPLICA_SET).map(|_| &controller);
                let metadata = json!({"name": name, "labels": labels, "finalizers": ["example.com/stays"],
                    "ownerReferences": owners.into_iter().collect::<Vec<_>>()});
                let spec = json!({"schedulerName": "nobody", "containers": [{"name": "app", "image": "app"}]});
                fixture.create("pods", json!({"metadata": metadata, "spec": spec})).await;
            }
            let kind = (CONFIG_MONITORS.api_version, CONFIG_MONITORS.kind);
            let monitor = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": MONITOR}, "spec": written(&spec())});
            fixture.create("configmonitors", monitor).await;
        });
        let (transport, base) = KubectlProxy::at(proxy.url().parse().unwrap()).unwrap();
        let client = Client::new(Box::new(transport), base, 32, 4, Arc::new(()), CancellationToken::new());
        let client = client.within(&fixture.namespace.as_str().into());
        Self { side: Side::new(runtime, client), fixture, _proxy: proxy, _control_plane: control_plane }
    }

    fn change(&mut self, change: &Change) {
        let fixture = &self.fixture;
        self.side.runtime.block_on(async {
            match change {
                Change::Edit(name, letter) => {
                    let object = json!({"metadata": {"name": name}, "data": {"config.cfg": letter}});
                    let path = fixture.path("configmaps", name);
                    if fixture.client.get(&path).await.unwrap().status == 404 {
                        fixture.create("configmaps", object).await;
                    } else {
                        fixture
                            .client
                            .merge_patch(&path, &json!({"data": {"config.cfg": letter, "second": null}}))
                            .await
                            .unwrap();
                    }
                }
                Change::DeleteConfigMap(name) => {
                    fixture.client.delete(&fixture.path("configmaps", name)).await.unwrap();
                }
                Change::Suspend(holds) => {
                    fixture.patch("configmonitors", MONITOR, json!({"spec": {"suspend": holds}})).await;
                }
            }
        });
    }
}

/// Creates the Deployment and the ReplicaSet. Returns the UID of the ReplicaSet.
async fn create_owners(fixture: &Fixture) -> Value {
    let (labels, strategy) = (json!({"owner": REPLICA_SET}), json!({"maxSurge": 1, "maxUnavailable": 1}));
    let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let both = json!({"matchExpressions": [{"key": "owner", "operator": "In", "values": [REPLICA_SET, "frontend-b"]}]});
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": strategy});
    let deployment = json!({"replicas": 2, "selector": both, "strategy": strategy, "template": pods});
    fixture.create("deployments", json!({"metadata": {"name": DEPLOYMENT}, "spec": deployment})).await;
    let set = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": pods});
    fixture.create("replicasets", json!({"metadata": {"name": REPLICA_SET}, "spec": set})).await;
    let set = fixture.client.get(&fixture.path("replicasets", REPLICA_SET)).await.unwrap();
    set.body["metadata"]["uid"].clone()
}

/// Chooses the requests and changes.
struct Author(Rng);

impl Author {
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.0.usize(..values.len())]
    }

    fn which(&mut self) -> Which {
        self.one_of(&[Which::Right, Which::Right, Which::Wrong])
    }

    fn at(&mut self, steps: usize) -> At {
        let before = At::After(self.0.usize(..steps));
        self.one_of(&[At::Now, before, before, At::Future])
    }

    fn call(&mut self, steps: usize) -> Call {
        let selectors = [
            "app=frontend",
            "tier=back",
            "tier in (front,back)",
            "app=frontend,tier notin (back)",
            "tier",
            "!tier",
            "app=other",
        ];
        match self.0.u8(..84) {
            0..8 => Call::ConfigMap(self.one_of(&["flaskapp-config", "extra", "none"])),
            8..12 => Call::Monitor(self.one_of(&[MONITOR, "none"])),
            12 => Call::ReplicaSet("none"),
            13..22 => Call::PutStatus { version: self.which(), uid: self.which(), generation: self.0.i64(1..5) },
            22..40 => {
                Call::List { selector: self.one_of(&selectors), at: self.at(steps), metadata_only: self.0.bool() }
            }
            40..59 => {
                let version = [None, Some(Which::Right), Some(Which::Wrong)];
                let (pod, evict) = (self.0.usize(..20), self.0.bool());
                let (uid, version, grace) = (self.which(), self.one_of(&version), self.one_of(&[None, Some(60)]));
                Call::Delete { pod, evict, uid, version, grace }
            }
            59..71 => {
                Call::Patch { pod: self.0.usize(..2), back: self.0.bool(), uid: self.which(), version: self.which() }
            }
            71..74 => Call::Deployment(self.one_of(&[DEPLOYMENT, "none"])),
            // The simulation takes whoever reads more than their metadata for the task that looks after them.
            74..78 => Call::List { selector: HANDED_OVER, at: self.at(steps), metadata_only: true },
            _ => {
                let at = At::After(self.0.usize(..steps));
                match self.0.bool() {
                    true => Call::Watch { resource: PODS, selector: Some(self.one_of(&selectors)), at },
                    false => Call::Watch { resource: CONFIG_MAPS, selector: None, at },
                }
            }
        }
    }

    fn change(&mut self) -> Change {
        let name = self.one_of(&["flaskapp-config", "extra"]);
        match self.0.u8(..8) {
            0..5 => Change::Edit(name, self.one_of(&['b', 'c', 'd'])),
            5 => Change::DeleteConfigMap(name),
            _ => Change::Suspend(self.0.bool()),
        }
    }
}

#[test]
fn the_simulated_api_server_answers_like_the_real_one() {
    let mut simulated = Simulated::start();
    let mut real = Real::start(&simulated);
    let mut author = Author(Rng::with_seed(7));
    let mut seen = BTreeMap::new();
    for step in 0..STEPS {
        if author.0.u8(..4) == 0 {
            let change = author.change();
            simulated.change(&change);
            real.change(&change);
        } else {
            let call = author.call(step + 1);
            let (expected, answer) = (real.side.call(&call), simulated.side.call(&call));
            assert_eq!(answer, expected, "step {step}: {call:?}");
            let kind = format!("{call:?}").split([' ', '(']).next().unwrap_or_default().to_owned();
            let how = expected.split(['(', '[', '{', ' ']).next().unwrap_or_default().to_owned();
            *seen.entry((kind, how)).or_insert(0) += 1;
        }
        simulated.side.note();
        real.side.note();
    }
    println!("{seen:?}");
    // The comparison is worth little unless right and wrong requests of each kind were among it.
    for (kind, how) in [
        ("Delete", "Conflict"),
        ("PutStatus", "Conflict"),
        ("ConfigMap", "NotFound"),
        ("List", "Expired"),
        ("Patch", "false"),
        ("Patch", "Conflict"),
        ("Patch", "Invalid"),
    ] {
        assert!(seen.contains_key(&(kind.to_owned(), how.to_owned())), "no {kind} was answered with {how}: {seen:?}");
    }
}
