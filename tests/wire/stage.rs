//! The scene of a restart: a ConfigMonitor `m` on the ConfigMap `c`, and pods that are created again when they are deleted.
//!
//! The operator has seen the first content of `c` in an earlier life. The second one comes when the test says so.

use std::sync::{Arc, Mutex};

use configmonitor_operator::kube::objects::ConfigMap;
use configmonitor_operator::monitor::content::ContentHash;
use serde_json::{Value, json};

use crate::api::{line, list, metadata, modified, refusal};
use crate::held::Feed;
use crate::operator::Operator;
use crate::request::Request;
use crate::script::{Answer, Server};

/// Stands in the first content of the ConfigMap, and in the second one.
pub(crate) const SECRETS: [&str; 2] = ["correct-horse", "battery-staple"];
/// Where the operator writes what it is about to do.
pub(crate) const PUT: &str = "put configmonitors/m/status";

pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) world: Arc<Mutex<World>>,
    /// What a watch on the ConfigMaps tells.
    config_maps: Feed,
}

/// What the API server holds.
pub(crate) struct World {
    pub(crate) monitor: Value,
    pub(crate) pods: Vec<Value>,
    /// What a watch on the pods tells.
    told: Feed,
}

/// The ConfigMap `c` with its first or second content.
pub(crate) fn config_map(content: usize, version: &str) -> Value {
    let mut object = metadata("c", version);
    object["data"] = json!({ "password": SECRETS[content] });
    object
}

pub(crate) fn hash(content: usize) -> String {
    let object: ConfigMap = serde_json::from_value(config_map(content, "1")).unwrap();
    ContentHash::of(&object, None).to_string()
}

/// A ready pod of the ReplicaSet `r`.
pub(crate) fn pod(name: &str, created: &str) -> Value {
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-of-r", "controller": true });
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "3",
            "creationTimestamp": created, "labels": { "app": "web" }, "ownerReferences": [owner] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

/// An old pod.
pub(crate) fn old(name: &str) -> Value {
    pod(name, "2026-11-21T09:00:00Z")
}

/// A ConfigMonitor of this name and spec that has never been looked at.
pub(crate) fn monitor(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "spec": spec,
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "5",
            "generation": 1 } })
}

/// A ConfigMonitor that acts at once, for pods with this label, and whose status is about the first content.
pub(crate) fn settled(name: &str, app: &str) -> Value {
    let spec = json!({ "configMap": "c", "podSelector": { "app": app }, "quietPeriodSeconds": 0 });
    let mut monitor = monitor(name, &spec);
    monitor["status"] = json!({ "source": "ConfigMap/c", "sourceResourceVersion": "7", "configHash": hash(0) });
    monitor
}

impl Stage {
    /// With these pods, and the ConfigMonitor `m` that acts at once.
    pub(crate) fn with(pods: &[Value]) -> Self {
        let monitor = settled("m", "web");
        let world = Arc::new(Mutex::new(World { monitor, pods: pods.to_vec(), told: Feed::default() }));
        let stage = Self { server: Server::start(), world, config_maps: Feed::default() };
        let server = &stage.server;
        server.always("list configmaps", |_| list("10", &[metadata("c", "7")]));
        let config_maps = stage.config_maps.clone();
        server.always("watch configmaps from 10", move |_| Answer::feed(&config_maps));
        stage.play("list configmonitors", |world, _| list("10", std::slice::from_ref(&world.monitor)));
        stage.play("get configmonitors/m", |world, _| Answer::json(200, &world.monitor));
        stage.play(PUT, World::put);
        stage.play("list pods", |world, _| list("20", &world.pods));
        stage.play("delete pods", World::delete);
        stage.play("watch pods", |world, _| Answer::feed(&world.told));
        stage.play("post events", |_, request| Answer::json(201, &request.json()));
        stage
    }

    /// Answers these requests from the world.
    fn play(&self, words: &str, mut answer: impl FnMut(&mut World, &Request) -> Answer + Send + 'static) {
        let world = Arc::clone(&self.world);
        self.server.always(words, move |request| answer(&mut world.lock().unwrap(), request));
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

    /// The bodies of the writes of the status, in their order.
    pub(crate) fn writes(&self) -> Vec<Value> {
        let requests = self.server.requests().into_iter().filter(|request| request.words() == PUT);
        requests.map(|request| request.json()).collect()
    }

    /// Waits until the restart is over.
    pub(crate) fn is_over(&self, operator: &Operator) {
        operator.wait_for("restart over", 1);
        assert_eq!(self.world.lock().unwrap().monitor["status"]["configHash"], hash(1));
    }
}

impl World {
    /// A write of the status, compared with the version that it names.
    pub(crate) fn put(&mut self, request: &Request) -> Answer {
        let update = request.json();
        let current = self.monitor["metadata"]["resourceVersion"].clone();
        if update["metadata"]["resourceVersion"] != current {
            return refusal(409, "Conflict");
        }
        self.monitor["status"] = update["status"].clone();
        self.touch();
        Answer::json(200, &self.monitor)
    }

    /// The ConfigMonitor gets a new version.
    pub(crate) fn touch(&mut self) {
        let version: u32 = self.monitor["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        self.monitor["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }

    /// A pod goes, if it is the one that was meant.
    fn delete(&mut self, request: &Request) -> Answer {
        let name = request.target.rsplit('/').next().unwrap().to_owned();
        let Some(at) = self.pods.iter().position(|pod| pod["metadata"]["name"] == name) else {
            return refusal(404, "NotFound");
        };
        if self.pods[at]["metadata"]["uid"] != request.json()["preconditions"]["uid"] {
            return refusal(409, "Conflict");
        }
        let gone = self.pods[at].clone();
        self.exchange(at, pod(&format!("{name}-new"), "2026-11-21T10:01:00Z"));
        Answer::json(200, &gone)
    }

    /// A pod goes, and this one comes for it.
    pub(crate) fn exchange(&mut self, at: usize, new: Value) {
        let gone = std::mem::replace(&mut self.pods[at], new.clone());
        self.told.tell(line("DELETED", &gone) + &line("ADDED", &new));
    }
}
