//! What happened in one namespace, read from the history of all objects: what ConfigMaps held, which pods came and went, and
//! what every ConfigMonitor said. Revisions are those of the store, which counts every write once, so that "before" and "after"
//! are never a matter of clocks.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};
use testenv::Past;
use testenv::history::Version;

/// `data` and `binaryData` of a ConfigMap, as text.
pub(super) type Content = String;

#[derive(Default)]
pub(super) struct Story {
    /// What each ConfigMap held, and since when; nothing while it did not exist.
    pub(super) config_maps: BTreeMap<String, Vec<(u64, Option<Content>)>>,
    pub(super) pods: BTreeMap<String, Pod>,
    /// The ConfigMonitors by UID, also those that are gone.
    pub(super) monitors: BTreeMap<String, Monitor>,
}

pub(super) struct Pod {
    pub(super) name: String,
    pub(super) labels: Value,
    /// Whether somebody would create it again.
    pub(super) controlled: bool,
    pub(super) born: u64,
    pub(super) created: String,
    /// Since when it has been going.
    pub(super) deleted: Option<(u64, SystemTime)>,
}

pub(super) struct Monitor {
    pub(super) name: String,
    pub(super) said: Vec<Said>,
    pub(super) removed: Option<(u64, SystemTime)>,
}

/// One version of a ConfigMonitor.
pub(super) struct Said {
    pub(super) revision: u64,
    pub(super) heard: SystemTime,
    pub(super) spec: Value,
    pub(super) status: Value,
}

impl Story {
    pub(super) fn of(past: &Past, namespace: &str) -> Self {
        let mut story = Self::default();
        for version in past.versions() {
            let mut parts = version.key.trim_start_matches("/registry/").rsplit('/');
            let (name, Some(of)) = (parts.next().unwrap_or_default().to_owned(), parts.next()) else { continue };
            if of != namespace {
                continue;
            }
            match parts.next() {
                Some("configmaps") => story.config_map(name, version),
                Some("pods") => story.pod(name, version),
                Some("configmonitors") => story.monitor(name, version),
                _ => {}
            }
        }
        story
    }

    fn config_map(&mut self, name: String, version: &Version) {
        let content = version.object.as_ref().map(|object| {
            let parts = ["data", "binaryData"].map(|part| match &object[part] {
                Value::Null => json!({}),
                pairs => pairs.clone(),
            });
            json!(parts).to_string()
        });
        let held = self.config_maps.entry(name).or_default();
        if held.last().is_none_or(|(_, last)| *last != content) {
            held.push((version.revision, content));
        }
    }

    fn pod(&mut self, name: String, version: &Version) {
        let living = self.pods.values_mut().find(|pod| pod.name == name && pod.deleted.is_none());
        let Some(object) = &version.object else {
            if let Some(pod) = living {
                pod.deleted = Some((version.revision, version.heard));
            }
            return;
        };
        let metadata = &object["metadata"];
        let owners = metadata["ownerReferences"].as_array();
        let pod = self.pods.entry(text(&metadata["uid"])).or_insert_with(|| Pod {
            name,
            labels: metadata["labels"].clone(),
            controlled: owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true)),
            born: version.revision,
            created: text(&metadata["creationTimestamp"]),
            deleted: None,
        });
        if pod.deleted.is_none() && !metadata["deletionTimestamp"].is_null() {
            pod.deleted = Some((version.revision, version.heard));
        }
    }

    fn monitor(&mut self, name: String, version: &Version) {
        let Some(object) = &version.object else {
            let living = self.monitors.values_mut().find(|monitor| monitor.name == name && monitor.removed.is_none());
            if let Some(monitor) = living {
                monitor.removed = Some((version.revision, version.heard));
            }
            return;
        };
        let monitor = self.monitors.entry(text(&object["metadata"]["uid"])).or_insert_with(|| Monitor {
            name,
            said: Vec::new(),
            removed: None,
        });
        monitor.said.push(Said {
            revision: version.revision,
            heard: version.heard,
            spec: object["spec"].clone(),
            status: object["status"].clone(),
        });
    }

    /// What a ConfigMap held at a revision. A pod that is born while it does not exist starts with what comes next.
    pub(super) fn content(&self, config_map: &str, revision: u64) -> Option<&Content> {
        let held = self.config_maps.get(config_map)?;
        let at = held.iter().rposition(|(since, _)| *since <= revision).unwrap_or(0);
        held[at..].iter().find_map(|(_, content)| content.as_ref())
    }

    /// Since when a ConfigMap holds what it does in the end.
    pub(super) fn since(&self, config_map: &str) -> u64 {
        let last = self.config_maps.get(config_map).and_then(|held| held.last());
        last.map_or(0, |(since, _)| *since)
    }

    /// What a ConfigMap held after one revision and up to another.
    pub(super) fn contents(&self, config_map: &str, after: u64, to: u64) -> impl Iterator<Item = &Content> {
        let held = self.config_maps.get(config_map).into_iter().flatten();
        held.filter(move |(since, _)| *since > after && *since <= to).filter_map(|(_, content)| content.as_ref())
    }

    /// What the operator had read when it wrote this, by its own word.
    pub(super) fn read(&self, said: &Said) -> Option<&Content> {
        let version = said.status["sourceResourceVersion"].as_str()?.parse().ok()?;
        self.content(said.source_read()?, version)
    }

    /// What pods run with or are being restarted for, by the operator's word; nothing while a restart is only pending.
    pub(super) fn acted(&self, said: &Said) -> Option<&Content> {
        if said.is_pending() { None } else { self.read(said) }
    }
}

impl Monitor {
    /// What it said at a revision.
    pub(super) fn at(&self, revision: u64) -> Option<&Said> {
        self.said.iter().rev().find(|said| said.revision <= revision)
    }

    /// What it said up to a revision, the latest first.
    pub(super) fn until(&self, revision: u64) -> impl Iterator<Item = &Said> {
        self.said.iter().rev().filter(move |said| said.revision <= revision)
    }
}

impl Said {
    pub(super) fn source(&self) -> &str {
        self.spec["configMap"].as_str().unwrap_or_default()
    }

    pub(super) fn source_read(&self) -> Option<&str> {
        self.status["source"].as_str()?.strip_prefix("ConfigMap/")
    }

    pub(super) fn selects(&self, labels: &Value) -> bool {
        let pairs = self.spec["podSelector"].as_object().into_iter().flatten();
        pairs.into_iter().all(|(key, value)| labels[key] == *value)
    }

    pub(super) fn is_begun(&self) -> bool {
        !self.status["restart"]["startedAt"].is_null()
    }

    pub(super) fn is_pending(&self) -> bool {
        !self.status["restart"].is_null() && !self.is_begun()
    }

    pub(super) fn quiet_seconds(&self) -> u64 {
        self.spec["quietPeriodSeconds"].as_u64().unwrap_or(3)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
