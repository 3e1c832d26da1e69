//! The scene of a restart: a ConfigMonitor `m` on the ConfigMap `c`, and pods that are created again when they are deleted.
//!
//! The operator has seen the first content of `c` in an earlier life. The second one comes when the test says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use configmonitor_operator::kube::objects::DataObject;
use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::source::Kind;
use serde_json::{Value, json};

use crate::api::{line, list, metadata, modified, refusal, too_large};
use crate::held::Feed;
use crate::operator::Operator;
use crate::request::Request;
use crate::script::{Answer, Server};
use crate::time::DEADLINE;

/// Stands in the first content of a ConfigMap, in the second one, and in the third one.
pub(crate) const SECRETS: [&str; 3] = ["correct-horse", "battery-staple", "paper-clip"];
/// Where the operator writes what it is about to do.
pub(crate) const PUT: &str = "put configmonitors/m/status";
/// The version of the pods before any of them changes.
const FIRST_VERSION: usize = 20;

pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) world: Arc<Mutex<World>>,
    /// What a watch on the ConfigMaps sends.
    config_maps: Feed,
    /// What a watch on the ConfigMonitors sends.
    monitors: Feed,
}

/// What the API server holds.
pub(crate) struct World {
    /// The ConfigMonitor `m`.
    pub(crate) monitor: Value,
    /// ConfigMonitors beside it.
    pub(crate) others: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    /// The ReplicaSets by name: how many pods each wants, and with which labels.
    pub(crate) replica_sets: BTreeMap<String, (usize, Value)>,
    /// What has happened to the pods, one version each.
    past: Vec<Change>,
    /// What a watch on the pods sends, one text for each of these.
    told: Feed,
}

/// A pod that was there before a version, and the identity of the one that is there since.
struct Change {
    before: Option<Value>,
    after: Option<Value>,
}

/// The ConfigMap `c` with one of its contents.
pub(crate) fn config_map(content: usize, version: &str) -> Value {
    config_map_of("c", content, version)
}

/// A ConfigMap of this name with one of these contents.
pub(crate) fn config_map_of(name: &str, content: usize, version: &str) -> Value {
    let mut object = metadata(name, version);
    object["data"] = json!({ "password": SECRETS[content] });
    object
}

pub(crate) fn hash(content: usize) -> String {
    let object: DataObject = serde_json::from_value(config_map(content, "1")).unwrap();
    ContentHash::of(Kind::ConfigMap, &object, None).to_string()
}

/// A ready pod of the ReplicaSet `r`.
pub(crate) fn pod(name: &str, created: &str) -> Value {
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-of-r", "controller": true });
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "3",
            "creationTimestamp": created, "labels": { "app": "web" }, "ownerReferences": [owner] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "state": { "running": { "startedAt": created } } }] },
    })
}

/// An old pod.
pub(crate) fn old(name: &str) -> Value {
    pod(name, "2026-11-21T09:00:00Z")
}

/// Old pods, so many.
pub(crate) fn old_pods(count: usize) -> Vec<Value> {
    (1..=count).map(|number| old(&format!("p{number}"))).collect()
}

/// The pod, as one of another ReplicaSet and with another label.
pub(crate) fn owned_by(mut pod: Value, replica_set: &str, app: &str) -> Value {
    pod["metadata"]["labels"]["app"] = json!(app);
    let owner = &mut pod["metadata"]["ownerReferences"][0];
    owner["name"] = json!(replica_set);
    owner["uid"] = json!(format!("uid-of-{replica_set}"));
    pod
}

/// The pod, ready or not.
pub(crate) fn ready(mut pod: Value, is_ready: bool) -> Value {
    pod["status"]["conditions"][0]["status"] = json!(if is_ready { "True" } else { "False" });
    pod
}

/// A ConfigMonitor of this name and spec that has never been looked at.
pub(crate) fn monitor(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "spec": spec,
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "5",
            "generation": 1 } })
}

/// What a status says of the sources when this ConfigMap was read at this version, and pods have been restarted for this content.
pub(crate) fn sources(config_map: &str, version: &str, content: usize) -> Value {
    json!([{ "kind": "ConfigMap", "name": config_map, "resourceVersion": version, "hash": hash(content) }])
}

/// What it says of a restart for this content of `c`.
pub(crate) fn wanted(content: usize) -> Value {
    json!([{ "kind": "ConfigMap", "name": "c", "hash": hash(content) }])
}

/// The content of the one source that pods have been restarted for.
pub(crate) fn recorded(status: &Value) -> &Value {
    &status["sources"][0]["hash"]
}

/// A ConfigMonitor that acts at once, for pods with this label, and whose status is about the first content.
pub(crate) fn settled(name: &str, app: &str) -> Value {
    settled_on("c", name, app)
}

/// The same for another ConfigMap.
pub(crate) fn settled_on(config_map: &str, name: &str, app: &str) -> Value {
    let spec = json!({ "configMap": config_map, "podSelector": { "app": app }, "quietPeriodSeconds": 0 });
    let mut monitor = monitor(name, &spec);
    let source = format!("ConfigMap/{config_map}");
    monitor["status"] =
        json!({ "observedGeneration": 1, "source": source, "sources": sources(config_map, "7", 0), "pods": 3 });
    monitor
}

/// The reason that the conditions of a ConfigMonitor have.
pub(crate) fn reason(monitor: &Value) -> &str {
    monitor["status"]["conditions"][0]["reason"].as_str().unwrap_or_default()
}

impl Stage {
    /// With these pods, and the ConfigMonitor `m` that acts at once.
    pub(crate) fn with(pods: &[Value]) -> Self {
        let mut replica_sets: BTreeMap<String, (usize, Value)> = BTreeMap::new();
        for pod in pods {
            let name = pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap().to_owned();
            replica_sets.entry(name).or_insert((0, pod["metadata"]["labels"].clone())).0 += 1;
        }
        let (monitor, pods, others, past) = (settled("m", "web"), pods.to_vec(), Vec::new(), Vec::new());
        let world = World { monitor, others, pods, replica_sets, past, told: Feed::default() };
        let (config_maps, monitors) = (Feed::default(), Feed::default());
        let stage = Self { server: Server::start(), world: Arc::new(Mutex::new(world)), config_maps, monitors };
        let server = &stage.server;
        server.always("list configmaps", |_| list("10", &[metadata("c", "7"), metadata("d", "7")]));
        let (config_maps, monitors) = (stage.config_maps.clone(), stage.monitors.clone());
        server.always("watch configmaps from 10", move |_| Answer::feed(&config_maps));
        server.always("watch configmonitors from 10", move |_| Answer::feed(&monitors));
        stage.play("list configmonitors", |world, _| {
            let others = world.others.iter().cloned();
            list("10", &others.chain([world.monitor.clone()]).collect::<Vec<_>>())
        });
        stage.play("get configmonitors/m", World::get);
        stage.play("get configmonitors", World::get);
        stage.play(PUT, World::put);
        stage.play("put configmonitors", World::put);
        stage.play("list pods", |world, request| world.list(request));
        stage.play("delete pods", World::delete);
        stage.play("watch pods", |world, request| {
            let from = request.query("resourceVersion").unwrap().parse().unwrap_or(FIRST_VERSION);
            Answer::feed(&world.told.after(from.saturating_sub(FIRST_VERSION)))
        });
        stage.play("get replicasets", |world, request| world.replica_set(name_in(request, "replicasets")));
        stage.play("post events", |_, request| Answer::json(201, &request.json()));
        stage
    }

    /// Answers these requests from the world.
    pub(crate) fn play(&self, words: &str, mut answer: impl FnMut(&mut World, &Request) -> Answer + Send + 'static) {
        let world = Arc::clone(&self.world);
        self.server.always(words, move |request| answer(&mut world.lock().unwrap(), request));
    }

    /// Answers these requests from the world in another way than so far.
    pub(crate) fn play_instead(
        &self,
        words: &str,
        mut answer: impl FnMut(&mut World, &Request) -> Answer + Send + 'static,
    ) {
        let world = Arc::clone(&self.world);
        self.server.instead(words, move |request| answer(&mut world.lock().unwrap(), request));
    }

    /// Sets a field of the spec of `m`, before the operator starts.
    pub(crate) fn set(&self, field: &str, value: Value) {
        self.world.lock().unwrap().monitor["spec"][field] = value;
    }

    /// An operator that has read the first content and has written its status.
    pub(crate) fn operator(&self, variables: &[(&str, &str)]) -> Operator {
        self.server.on("get configmaps/c", [Answer::json(200, &config_map(0, "7"))]);
        let operator = Operator::start_with(&self.server, variables);
        self.server.wait_for(PUT, 1);
        self.server.wait_for("watch configmaps", 1);
        self.server.wait_for("watch configmonitors", 1);
        operator
    }

    /// The ConfigMap changes. Gives back how many requests there were before.
    pub(crate) fn change(&self) -> usize {
        let before = self.server.requests().len();
        self.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
        self.config_maps.tell(modified("unrelated", "8"));
        self.config_maps.tell(modified("c", "8"));
        before
    }

    /// A ConfigMap gets this content, and the watch sends it.
    pub(crate) fn edit(&self, name: &str, content: usize, version: &str) {
        self.edit_unheard(name, content, version);
        self.config_maps.tell(modified(name, version));
    }

    /// A ConfigMap gets this content, and no watch sends it.
    pub(crate) fn edit_unheard(&self, name: &str, content: usize, version: &str) {
        let object = config_map_of(name, content, version);
        self.server.instead(&format!("get configmaps/{name}"), move |_| Answer::json(200, &object));
    }

    /// The watch on ConfigMonitors sends these lines.
    pub(crate) fn tell(&self, lines: String) {
        self.monitors.tell(lines);
    }

    /// The same; and the operator has heard of them when this returns.
    pub(crate) fn tell_and_wait(&self, lines: &str) {
        let next = monitor("next", &json!({ "configMap": "next", "podSelector": { "app": "next" } }));
        self.tell(lines.to_owned() + &line("ADDED", &next));
        self.server.wait_for("get configmaps/next", 1);
    }

    /// The requests in short, after so many; deletions that follow each other in the order of names.
    pub(crate) fn words_after(&self, before: usize) -> Vec<String> {
        let mut words = self.server.words().split_off(before);
        for deletions in words.chunk_by_mut(|a, b| a.starts_with("delete") && b.starts_with("delete")) {
            deletions.sort();
        }
        words
    }

    pub(crate) fn deletions(&self) -> Vec<String> {
        let mut words = self.server.words();
        words.retain(|words| words.starts_with("delete"));
        words.sort();
        words
    }

    /// The bodies of the writes of the status of `m`, in their order.
    pub(crate) fn writes(&self) -> Vec<Value> {
        let requests = self.server.requests().into_iter().filter(|request| request.words() == PUT);
        requests.map(|request| request.json()).collect()
    }

    /// Waits until the restart is over.
    pub(crate) fn is_over(&self, operator: &Operator) {
        operator.wait_for("restart over", 1);
        assert_eq!(*recorded(&self.world.lock().unwrap().monitor["status"]), hash(1));
    }

    /// Waits until the world has come to this.
    pub(crate) fn wait_until(&self, what: &str, has_come: impl Fn(&World) -> bool) {
        let start = Instant::now();
        loop {
            let world = self.world.lock().unwrap();
            if has_come(&world) {
                return;
            }
            let now = world.monitor["status"].to_string();
            drop(world);
            assert!(start.elapsed() < DEADLINE, "waited for {what}; the status is {now}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the conditions of `m` have this reason.
    pub(crate) fn wait_for_reason(&self, expected: &str) {
        self.wait_until(&format!("the reason {expected}"), |world| reason(&world.monitor) == expected);
    }
}

impl World {
    fn find(&mut self, name: &str) -> Option<&mut Value> {
        let mut all = std::iter::once(&mut self.monitor).chain(&mut self.others);
        all.find(|monitor| monitor["metadata"]["name"] == name)
    }

    fn get(&mut self, request: &Request) -> Answer {
        let monitor = self.find(name_in(request, "configmonitors"));
        monitor.map_or_else(|| refusal(404, "NotFound"), |monitor| Answer::json(200, monitor))
    }

    /// A write of the status, compared with the version that it names.
    pub(crate) fn put(&mut self, request: &Request) -> Answer {
        let update = request.json();
        let Some(monitor) = self.find(name_in(request, "configmonitors")) else {
            return refusal(404, "NotFound");
        };
        if update["metadata"]["resourceVersion"] != monitor["metadata"]["resourceVersion"] {
            return refusal(409, "Conflict");
        }
        monitor["status"] = update["status"].clone();
        touch(monitor);
        Answer::json(200, monitor)
    }

    /// The ConfigMonitor `m` gets a new version.
    pub(crate) fn touch(&mut self) {
        touch(&mut self.monitor);
    }

    /// Somebody edits the spec of `m`. Gives back what a watch sends.
    pub(crate) fn edit(&mut self, field: &str, value: Value) -> Value {
        self.monitor["spec"][field] = value;
        let generation = self.monitor["metadata"]["generation"].as_i64().unwrap();
        self.monitor["metadata"]["generation"] = json!(generation + 1);
        self.touch();
        self.monitor.clone()
    }

    /// The selected pods, as they are or as they were at a version; their metadata only, if that is asked for.
    pub(crate) fn list(&self, request: &Request) -> Answer {
        let now = FIRST_VERSION + self.past.len();
        let version = request.query("resourceVersion").map_or(now, |version| version.parse().unwrap());
        if version > now {
            return Answer::json(504, &too_large());
        }
        if version < FIRST_VERSION {
            return refusal(410, "Expired");
        }
        let mut pods = self.pods.clone();
        for Change { before, after } in self.past.iter().skip(version - FIRST_VERSION).rev() {
            pods.retain(|pod| Some(&pod["metadata"]["uid"]) != after.as_ref());
            pods.extend(before.clone());
        }
        let selector = request.query("labelSelector").unwrap_or_default();
        let wanted: Vec<_> = selector.split(',').filter_map(|label| label.split_once('=')).collect();
        pods.retain(|pod| wanted.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value));
        if request.header("accept").is_some_and(|accept| accept.contains("PartialObjectMetadataList")) {
            for pod in &mut pods {
                *pod = json!({ "kind": "PartialObjectMetadata", "metadata": pod["metadata"] });
            }
        }
        list(&version.to_string(), &pods)
    }

    /// The ReplicaSet of this name, which has counted its pods.
    fn replica_set(&self, name: &str) -> Answer {
        let Some((replicas, labels)) = self.replica_sets.get(name) else {
            return refusal(404, "NotFound");
        };
        let pods: Vec<&Value> =
            self.pods.iter().filter(|pod| pod["metadata"]["ownerReferences"][0]["name"] == name).collect();
        let available = pods.iter().filter(|pod| {
            pod["status"]["conditions"][0]["status"] == "True" && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let available = available.count();
        Answer::json(
            200,
            &json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "generation": 1,
                    "resourceVersion": "4" },
                "spec": { "replicas": replicas, "selector": { "matchLabels": labels },
                    "template": { "metadata": { "labels": labels } } },
                "status": { "observedGeneration": 1, "replicas": pods.len(), "readyReplicas": available,
                    "availableReplicas": available } }),
        )
    }

    /// Where a pod stands.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.pods.iter().position(|pod| pod["metadata"]["name"] == name)
    }

    /// A pod goes, if it is the one that was meant, and a new one comes.
    pub(crate) fn delete(&mut self, request: &Request) -> Answer {
        self.delete_for(request, |name| pod(name, "2026-11-21T10:01:00Z"))
    }

    /// A pod goes, if it is the one that was meant, and such a one of the new name comes.
    pub(crate) fn delete_for(&mut self, request: &Request, new: impl Fn(&str) -> Value) -> Answer {
        let name = name_in(request, "pods");
        let body = request.json();
        let preconditions = if body["kind"] == "Eviction" { &body["deleteOptions"] } else { &body };
        let Some(at) = self.position(name) else {
            return refusal(404, "NotFound");
        };
        if self.pods[at]["metadata"]["uid"] != preconditions["preconditions"]["uid"] {
            return refusal(409, "Conflict");
        }
        let gone = self.pods[at].clone();
        let mut new = new(&format!("{name}-new"));
        for field in ["labels", "ownerReferences"] {
            new["metadata"][field] = gone["metadata"][field].clone();
        }
        self.exchange(at, new);
        Answer::json(if request.method == "POST" { 201 } else { 200 }, &gone)
    }

    /// A pod goes, and this one comes for it; or it is the same one, and has changed.
    pub(crate) fn exchange(&mut self, at: usize, mut new: Value) {
        let version = json!((FIRST_VERSION + self.past.len() + 1).to_string());
        new["metadata"]["resourceVersion"] = version.clone();
        let before = std::mem::replace(&mut self.pods[at], new.clone());
        let mut gone = before.clone();
        gone["metadata"]["resourceVersion"] = version;
        let (after, is_same) = (new["metadata"]["uid"].clone(), gone["metadata"]["uid"] == new["metadata"]["uid"]);
        self.past.push(Change { before: Some(before), after: Some(after) });
        self.told.tell(if is_same { line("MODIFIED", &new) } else { line("DELETED", &gone) + &line("ADDED", &new) });
    }

    /// Its ReplicaSet is scaled up by this pod.
    pub(crate) fn add(&mut self, mut pod: Value) {
        pod["metadata"]["resourceVersion"] = json!((FIRST_VERSION + self.past.len() + 1).to_string());
        let owner = pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap();
        self.replica_sets.get_mut(owner).unwrap().0 += 1;
        self.past.push(Change { before: None, after: Some(pod["metadata"]["uid"].clone()) });
        self.told.tell(line("ADDED", &pod));
        self.pods.push(pod);
    }

    /// All pods become ready.
    pub(crate) fn all_get_ready(&mut self) {
        for at in 0..self.pods.len() {
            self.exchange(at, ready(self.pods[at].clone(), true));
        }
    }
}

fn touch(monitor: &mut Value) {
    let version: u32 = monitor["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    monitor["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}

/// The name of the object that a request is about.
fn name_in<'a>(request: &'a Request, plural: &str) -> &'a str {
    let path = request.target.split('?').next().unwrap();
    let mut parts = path.split('/').skip_while(|part| *part != plural);
    parts.nth(1).unwrap_or_default()
}
