//! A scripted API server for a restart: a ConfigMonitor `m` of the ConfigMap `c`, and pods that are recreated when they
//! are deleted.
//!
//! An earlier process has read content 0 of `c`. Content 1 follows when the test changes `c`.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use configmonitor_operator::kube::objects::DataObject;
use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::content::Kind;
use serde_json::{Value, json};

use crate::api::{line, list, metadata, modified, refusal};
use crate::held::Feed;
use crate::operator::Operator;
use crate::request::Request;
use crate::script::{Answer, Server};
use crate::time::DEADLINE;

/// A text in each content of a ConfigMap, by number.
pub(crate) const CONTENTS: [&str; 2] = ["correct-horse", "battery-staple"];
/// The status write of `m`.
pub(crate) const PUT: &str = "put configmonitors/m/status";
/// The version of the list of pods before the first change.
const FIRST_VERSION: usize = 20;

/// A scripted server and its objects.
pub(crate) struct Scenario {
    pub(crate) server: Server,
    pub(crate) objects: Arc<Mutex<Objects>>,
    /// The events of the watch on ConfigMaps.
    config_maps: Feed,
    /// The events of the watch on ConfigMonitors.
    monitors: Feed,
}

/// The objects on the API server.
pub(crate) struct Objects {
    /// The ConfigMonitor `m`.
    pub(crate) monitor: Value,
    pods: Vec<Value>,
    /// The number of changes of the pods. Each makes a version.
    changes: usize,
    /// The events of the watch on pods, one text for each change.
    pod_events: Feed,
}

/// Returns the ConfigMap `c` with this content.
pub(crate) fn config_map(content: usize, version: &str) -> Value {
    let mut object = metadata("c", version);
    object["data"] = json!({ "password": CONTENTS[content] });
    object
}

pub(crate) fn hash(content: usize) -> String {
    let object: DataObject = serde_json::from_value(config_map(content, "1")).unwrap();
    ContentHash::of(Kind::ConfigMap, &object, None).to_string()
}

/// Returns a ready pod of the ReplicaSet `r`.
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

/// Returns a pod that was created before the content changed.
pub(crate) fn old(name: &str) -> Value {
    pod(name, "2026-11-21T09:00:00Z")
}

/// Returns a ConfigMonitor without a status.
pub(crate) fn monitor(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "spec": spec,
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "5",
            "generation": 1 } })
}

/// Returns `status.sources` after a restart for this content of `c`, at this version.
pub(crate) fn sources(version: &str, content: usize) -> Value {
    json!([{ "kind": "ConfigMap", "name": "c", "resourceVersion": version, "hash": hash(content) }])
}

impl Scenario {
    /// Starts a server with these pods and the ConfigMonitor `m`, which has no quiet period.
    pub(crate) fn with(pods: &[Value]) -> Self {
        let selector = json!({ "app": "web" });
        let spec =
            json!({ "configMap": "c", "podSelector": selector, "quietPeriodSeconds": 0, "maxUnavailable": "100%" });
        let mut monitor = monitor("m", &spec);
        monitor["status"] =
            json!({ "observedGeneration": 1, "source": "ConfigMap/c", "sources": sources("7", 0), "pods": 3 });
        let objects = Objects { monitor, pods: pods.to_vec(), changes: 0, pod_events: Feed::default() };
        let (config_maps, monitors) = (Feed::default(), Feed::default());
        let scenario = Self { server: Server::start(), objects: Arc::new(Mutex::new(objects)), config_maps, monitors };
        let server = &scenario.server;
        server.always("list configmaps", |_| list("10", &[metadata("c", "7"), metadata("d", "7")]));
        let (config_maps, monitors) = (scenario.config_maps.clone(), scenario.monitors.clone());
        server.always("watch configmaps from 10", move |_| Answer::feed(&config_maps));
        server.always("watch configmonitors from 10", move |_| Answer::feed(&monitors));
        scenario.answer("list configmonitors", |objects, _| list("10", std::slice::from_ref(&objects.monitor)));
        scenario.answer("get configmonitors", Objects::get);
        scenario.answer("put configmonitors", Objects::put);
        scenario.answer("list pods", |objects, request| objects.list(request));
        scenario.answer("delete pods", Objects::delete);
        scenario.answer("watch pods", |objects, request| {
            let from = request.query("resourceVersion").unwrap().parse().unwrap_or(FIRST_VERSION);
            Answer::feed(&objects.pod_events.after(from.saturating_sub(FIRST_VERSION)))
        });
        scenario.answer("get replicasets", |objects, _| objects.replica_set());
        scenario.answer("post events", |_, request| Answer::json(201, &request.json()));
        scenario
    }

    /// Answers these requests from the objects.
    fn answer(&self, words: &str, mut answer: impl FnMut(&mut Objects, &Request) -> Answer + Send + 'static) {
        let objects = Arc::clone(&self.objects);
        self.server.always(words, move |request| answer(&mut objects.lock().unwrap(), request));
    }

    /// Sets a field of the spec of `m`, before the operator starts.
    pub(crate) fn set(&self, field: &str, value: Value) {
        self.objects.lock().unwrap().monitor["spec"][field] = value;
    }

    /// Starts an operator and waits until it has read content 0 and written the status.
    pub(crate) fn operator(&self, variables: &[(&str, &str)]) -> Operator {
        self.server.on("get configmaps/c", [Answer::json(200, &config_map(0, "7"))]);
        let operator = Operator::start_with(&self.server, variables);
        self.server.wait_for(PUT, 1);
        self.server.wait_for("watch configmaps", 1);
        self.server.wait_for("watch configmonitors", 1);
        operator
    }

    /// Changes `c` to content 1. Returns the number of requests before the change.
    pub(crate) fn change(&self) -> usize {
        let before = self.server.requests().len();
        self.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
        self.config_maps.push(modified("unrelated", "8"));
        self.config_maps.push(modified("c", "8"));
        before
    }

    /// Sends events of the watch on ConfigMonitors.
    pub(crate) fn send(&self, lines: String) {
        self.monitors.push(lines);
    }

    /// Returns the bodies of the status writes of `m`, in order.
    pub(crate) fn writes(&self) -> Vec<Value> {
        let requests = self.server.requests().into_iter().filter(|request| request.words() == PUT);
        requests.map(|request| request.json()).collect()
    }

    /// Waits until the restart is over.
    pub(crate) fn wait_until_over(&self, operator: &Operator) {
        operator.wait_for("restart over", 1);
        assert_eq!(self.objects.lock().unwrap().monitor["status"]["sources"][0]["hash"], hash(1));
    }

    /// Waits until the objects are in this state.
    pub(crate) fn wait_until(&self, what: &str, is_reached: impl Fn(&Objects) -> bool) {
        let start = Instant::now();
        loop {
            let objects = self.objects.lock().unwrap();
            if is_reached(&objects) {
                return;
            }
            let now = objects.monitor["status"].to_string();
            drop(objects);
            assert!(start.elapsed() < DEADLINE, "waited for {what}; the status is {now}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Objects {
    /// Returns `m` if a request is about it.
    fn named(&mut self, request: &Request) -> Option<&mut Value> {
        Some(&mut self.monitor).filter(|monitor| monitor["metadata"]["name"] == name_in(request, "configmonitors"))
    }

    fn get(&mut self, request: &Request) -> Answer {
        let monitor = self.named(request);
        monitor.map_or_else(|| refusal(404, "NotFound"), |monitor| Answer::json(200, monitor))
    }

    /// Handles a write of the status, which must name the current version.
    pub(crate) fn put(&mut self, request: &Request) -> Answer {
        let update = request.json();
        let Some(monitor) = self.named(request) else { return refusal(404, "NotFound") };
        if update["metadata"]["resourceVersion"] != monitor["metadata"]["resourceVersion"] {
            return refusal(409, "Conflict");
        }
        monitor["status"] = update["status"].clone();
        self.touch();
        Answer::json(200, &self.monitor)
    }

    /// Gives the ConfigMonitor `m` a new version.
    pub(crate) fn touch(&mut self) {
        let version = &mut self.monitor["metadata"]["resourceVersion"];
        *version = json!((version.as_str().unwrap().parse::<u32>().unwrap() + 1).to_string());
    }

    /// Lists the pods. Returns only their metadata if the request says so.
    fn list(&self, request: &Request) -> Answer {
        let mut pods = self.pods.clone();
        assert_eq!(request.query("labelSelector").as_deref(), Some("app=web"));
        if request.header("accept").is_some_and(|accept| accept.contains("PartialObjectMetadataList")) {
            for pod in &mut pods {
                *pod = json!({ "kind": "PartialObjectMetadata", "metadata": pod["metadata"] });
            }
        }
        list(&(FIRST_VERSION + self.changes).to_string(), &pods)
    }

    /// Returns the ReplicaSet of the pods. Each has a successor as soon as it is deleted.
    fn replica_set(&self) -> Answer {
        let (pods, labels) = (self.pods.len(), json!({ "app": "web" }));
        let set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": "r", "namespace": "default", "uid": "uid-of-r", "generation": 1, "resourceVersion": "4" },
            "spec": { "replicas": pods, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } } },
            "status": { "observedGeneration": 1, "replicas": pods, "readyReplicas": pods, "availableReplicas": pods } });
        Answer::json(200, &set)
    }

    /// Handles a DELETE: replaces the pod, if the UID matches.
    fn delete(&mut self, request: &Request) -> Answer {
        let name = name_in(request, "pods");
        let Some(at) = self.pods.iter().position(|pod| pod["metadata"]["name"] == name) else {
            return refusal(404, "NotFound");
        };
        if self.pods[at]["metadata"]["uid"] != request.json()["preconditions"]["uid"] {
            return refusal(409, "Conflict");
        }
        let gone = self.pods[at].clone();
        self.replace_pod(at, pod(&format!("{name}-new"), "2026-11-21T10:01:00Z"));
        Answer::json(200, &gone)
    }

    /// Replaces a pod.
    pub(crate) fn replace_pod(&mut self, at: usize, mut new: Value) {
        self.changes += 1;
        let version = json!((FIRST_VERSION + self.changes).to_string());
        new["metadata"]["resourceVersion"] = version.clone();
        let mut gone = std::mem::replace(&mut self.pods[at], new.clone());
        gone["metadata"]["resourceVersion"] = version;
        self.pod_events.push(line("DELETED", &gone) + &line("ADDED", &new));
    }
}

/// Returns the name of the object in the path of a request.
fn name_in<'a>(request: &'a Request, plural: &str) -> &'a str {
    let path = request.target.split('?').next().unwrap();
    let mut parts = path.split('/').skip_while(|part| *part != plural);
    parts.nth(1).unwrap_or_default()
}
