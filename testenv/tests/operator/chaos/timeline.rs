//! The timeline of one namespace, from the history of all objects: the content of ConfigMaps and Secrets, the pods, the
//! desired replicas of their owners, and every version of each ConfigMonitor. Revisions are those of the store, which
//! counts every write once, so their order does not depend on clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use testenv::history::Version;

/// The part of a source's `data` and `binaryData` that counts, as text; for a Secret with its UID.
pub(super) type Content = String;

/// The prefix of a Secret's name.
const SECRET: &str = "Secret/";

#[derive(Default)]
pub(super) struct Timeline {
    /// The content of each source, and since when; none while the object did not exist. A source is a ConfigMap, or
    /// some keys of it: `NAME` or `NAME[KEY,KEY]`. A Secret begins with `Secret/`.
    pub(super) sources: BTreeMap<String, Vec<(u64, Option<Content>)>>,
    pub(super) pods: BTreeMap<String, Pod>,
    /// The desired replicas of each owner, by its UID.
    pub(super) owners: BTreeMap<String, Vec<Desired>>,
    /// The ConfigMonitors by UID, including deleted ones.
    pub(super) monitors: BTreeMap<String, Monitor>,
}

/// The desired replicas of an owner from a revision on.
pub(super) struct Desired {
    pub(super) revision: u64,
    pub(super) observed: SystemTime,
    pub(super) pods: usize,
}

pub(super) struct Pod {
    pub(super) name: String,
    pub(super) labels: Value,
    /// The UID of the owner that would create the pod again, if there is one.
    pub(super) owner: Option<String>,
    pub(super) born: u64,
    pub(super) created: String,
    /// Since when the pod has been ready. Only its end takes that back here.
    pub(super) ready: Option<Ready>,
    /// Since when the pod has been terminating.
    pub(super) deleted: Option<(u64, SystemTime)>,
}

pub(super) struct Ready {
    pub(super) revision: u64,
    pub(super) observed: SystemTime,
    /// The time that the node reported.
    pub(super) since: Timestamp,
}

pub(super) struct Monitor {
    pub(super) name: String,
    pub(super) versions: Vec<MonitorVersion>,
    pub(super) removed: Option<(u64, SystemTime)>,
}

/// One version of a ConfigMonitor.
pub(super) struct MonitorVersion {
    pub(super) revision: u64,
    pub(super) observed: SystemTime,
    pub(super) spec: Value,
    pub(super) status: Value,
}

impl Timeline {
    pub(super) fn of<'a>(past: impl Iterator<Item = &'a Version>, namespace: &str) -> Self {
        let mut timeline = Self::default();
        let mut objects = Vec::new();
        for version in past {
            let Some((resource, of, name)) = place(&version.key) else { continue };
            if of != namespace {
                continue;
            }
            let name = name.to_owned();
            match resource {
                "configmaps" => objects.push((name, version)),
                "secrets" => objects.push((format!("{SECRET}{name}"), version)),
                "pods" => timeline.pod(name, version),
                "configmonitors" => timeline.monitor(name, version),
                "replicasets" | "statefulsets" | "daemonsets" => timeline.owner(version),
                _ => {}
            }
        }
        for source in timeline.named() {
            let (of, keys) = match source.split_once('[') {
                Some((name, keys)) => (name, Some(keys.trim_end_matches(']').split(',').collect())),
                None => (&*source, None),
            };
            let mut held: Vec<(u64, Option<Content>)> = Vec::new();
            for (_, version) in objects.iter().filter(|(name, _)| name == of) {
                let content = version.object.as_ref().map(|object| content(object, keys.as_ref()));
                if held.last().is_none_or(|(_, last)| *last != content) {
                    held.push((version.revision, content));
                }
            }
            timeline.sources.insert(source, held);
        }
        timeline
    }

    /// Returns the sources that any ConfigMonitor has ever named.
    fn named(&self) -> BTreeSet<String> {
        let versions = self.monitors.values().flat_map(|monitor| &monitor.versions);
        versions.flat_map(|version| [version.sources(), version.sources_read()].concat()).collect()
    }

    fn owner(&mut self, version: &Version) {
        // Nothing is created for a deleted owner, and its UID does not come again.
        let Some(object) = &version.object else { return };
        let replicas = object["status"]["desiredNumberScheduled"].as_u64().or(object["spec"]["replicas"].as_u64());
        let pods = if object["metadata"]["deletionTimestamp"].is_null() { replicas.unwrap_or(1) } else { 0 };
        let pods = usize::try_from(pods).unwrap_or_default();
        let history = self.owners.entry(text(&object["metadata"]["uid"])).or_default();
        if history.last().is_none_or(|last| last.pods != pods) {
            history.push(Desired { revision: version.revision, observed: version.observed, pods });
        }
    }

    fn pod(&mut self, name: String, version: &Version) {
        let living = self.pods.values_mut().find(|pod| pod.name == name && pod.deleted.is_none());
        let Some(object) = &version.object else {
            if let Some(pod) = living {
                pod.deleted = Some((version.revision, version.observed));
            }
            return;
        };
        let metadata = &object["metadata"];
        let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let pod = self.pods.entry(text(&metadata["uid"])).or_insert_with(|| Pod {
            name,
            labels: metadata["labels"].clone(),
            owner: owners.find(|owner| owner["controller"] == true).map(|owner| text(&owner["uid"])),
            born: version.revision,
            created: text(&metadata["creationTimestamp"]),
            ready: None,
            deleted: None,
        });
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let since = ready.and_then(|ready| ready["lastTransitionTime"].as_str()?.parse().ok());
        if let Some(since) = since.filter(|_| pod.ready.is_none()) {
            pod.ready = Some(Ready { revision: version.revision, observed: version.observed, since });
        }
        if pod.deleted.is_none() && !metadata["deletionTimestamp"].is_null() {
            pod.deleted = Some((version.revision, version.observed));
        }
    }

    fn monitor(&mut self, name: String, version: &Version) {
        let Some(object) = &version.object else {
            let living = self.monitors.values_mut().find(|monitor| monitor.name == name && monitor.removed.is_none());
            if let Some(monitor) = living {
                monitor.removed = Some((version.revision, version.observed));
            }
            return;
        };
        let monitor = self.monitors.entry(text(&object["metadata"]["uid"])).or_insert_with(|| Monitor {
            name,
            versions: Vec::new(),
            removed: None,
        });
        monitor.versions.push(MonitorVersion {
            revision: version.revision,
            observed: version.observed,
            spec: object["spec"].clone(),
            status: object["status"].clone(),
        });
    }

    /// Returns the content of a source at a revision. A pod created while the object does not exist starts with the
    /// next content.
    pub(super) fn content(&self, source: &str, revision: u64) -> Option<&Content> {
        let held = self.sources.get(source)?;
        let at = held.iter().rposition(|(since, _)| *since <= revision).unwrap_or(0);
        held[at..].iter().find_map(|(_, content)| content.as_ref())
    }

    /// Returns since when a source has its final content.
    pub(super) fn since(&self, source: &str) -> u64 {
        let last = self.sources.get(source).and_then(|held| held.last());
        last.map_or(0, |(since, _)| *since)
    }

    /// Returns the contents of a source after one revision and up to another.
    pub(super) fn contents(&self, source: &str, after: u64, to: u64) -> impl Iterator<Item = &Content> {
        let held = self.sources.get(source).into_iter().flatten();
        held.filter(move |(since, _)| *since > after && *since <= to).filter_map(|(_, content)| content.as_ref())
    }

    /// Returns the content of a source that the operator had read, by this status.
    pub(super) fn read(&self, version: &MonitorVersion, source: &str) -> Option<&Content> {
        let known = version.known().find(|known| with_keys(&text(&known["kind"]), known) == source)?;
        self.content(source, known["resourceVersion"].as_str()?.parse().ok()?)
    }

    /// Returns whether the operator had read any source, by this status.
    pub(super) fn has_read(&self, version: &MonitorVersion) -> bool {
        version.sources_read().iter().any(|source| self.read(version, source).is_some())
    }

    /// Returns the content that pods run with or are restarted for, by this status; none while a restart is only
    /// pending.
    pub(super) fn acted(&self, version: &MonitorVersion, source: &str) -> Option<&Content> {
        if version.is_pending() { None } else { self.read(version, source) }
    }
}

impl Monitor {
    /// Returns the version at a revision.
    pub(super) fn at(&self, revision: u64) -> Option<&MonitorVersion> {
        self.versions.iter().rev().find(|version| version.revision <= revision)
    }

    /// Returns the versions up to a revision, the latest first.
    pub(super) fn until(&self, revision: u64) -> impl Iterator<Item = &MonitorVersion> {
        self.versions.iter().rev().filter(move |version| version.revision <= revision)
    }
}

impl MonitorVersion {
    /// Returns the sources in the spec.
    pub(super) fn sources(&self) -> Vec<String> {
        let Some(several) = self.spec["sources"].as_array() else {
            return vec![with_keys("ConfigMap", &json!({"name": self.spec["configMap"], "keys": self.spec["keys"]}))];
        };
        let source = |entry: &Value| match entry.get("secret") {
            Some(secret) => with_keys("Secret", secret),
            None => with_keys("ConfigMap", &entry["configMap"]),
        };
        several.iter().map(source).collect()
    }

    /// Returns the sources in the status.
    pub(super) fn sources_read(&self) -> Vec<String> {
        self.known().map(|known| with_keys(&text(&known["kind"]), known)).collect()
    }

    /// Returns whether nobody knows any more which content pods have, because the restart is about a removed source.
    pub(super) fn has_forgotten(&self) -> bool {
        self.known().any(|known| known["hash"].is_null())
    }

    fn known(&self) -> impl Iterator<Item = &Value> {
        self.status["sources"].as_array().into_iter().flatten()
    }

    /// Returns whether the status knows other sources and not this one.
    pub(super) fn is_about_others(&self, source: &str) -> bool {
        let known = self.sources_read();
        !known.is_empty() && !known.iter().any(|known| known == source)
    }

    pub(super) fn selects(&self, labels: &Value) -> bool {
        let mut pairs = self.spec["podSelector"].as_object().into_iter().flatten();
        pairs.all(|(key, value)| labels[key] == *value)
            && self.expressions().all(|expression| {
                let value = &labels[text(&expression["key"])];
                let is_named = expression["values"].as_array().is_some_and(|values| values.contains(value));
                match expression["operator"].as_str() {
                    Some("In") => is_named,
                    Some("NotIn") => !is_named,
                    Some("Exists") => !value.is_null(),
                    _ => value.is_null(),
                }
            })
    }

    /// Returns the selector as the query of a list of pods.
    pub(super) fn query(&self) -> String {
        let pairs = self.spec["podSelector"].as_object().into_iter().flatten();
        let pairs = pairs.map(|(key, value)| format!("{key}={}", text(value)));
        let expressions = self.expressions().map(|expression| {
            let key = text(&expression["key"]);
            let mut values: Vec<String> = expression["values"].as_array().into_iter().flatten().map(text).collect();
            values.sort();
            match expression["operator"].as_str() {
                Some("In") => format!("{key} in ({})", values.join(",")),
                Some("NotIn") => format!("{key} notin ({})", values.join(",")),
                Some("Exists") => key,
                _ => format!("!{key}"),
            }
        });
        pairs.chain(expressions).collect::<Vec<_>>().join(",")
    }

    fn expressions(&self) -> impl Iterator<Item = &Value> {
        self.spec["podSelectorExpressions"].as_array().into_iter().flatten()
    }

    pub(super) fn evicts(&self) -> bool {
        self.spec["deletionPolicy"] == "Evict"
    }

    /// Returns how many of the `desired` pods may be missing in a restart; none if all may.
    pub(super) fn allowed(&self, desired: usize) -> Option<usize> {
        let most = &self.spec["maxUnavailable"];
        let percent = || most.as_str()?.strip_suffix('%')?.parse::<usize>().ok();
        let pods = most.as_u64().and_then(|pods| usize::try_from(pods).ok());
        pods.or_else(|| percent().map(|percent| (desired * percent / 100).max(1)))
    }

    pub(super) fn is_begun(&self) -> bool {
        !self.status["restart"]["startedAt"].is_null()
    }

    /// Returns whether the operator waits for the content, as last read, to be quiet, or for what else holds a restart.
    pub(super) fn is_pending(&self) -> bool {
        !self.status["restart"].is_null() && !self.is_under_way()
    }

    /// Returns whether a restart has begun, and no other content interrupts it.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_begun() && self.status["restart"]["interruptedAt"].is_null()
    }

    pub(super) fn quiet_seconds(&self) -> u64 {
        self.spec["quietPeriodSeconds"].as_u64().unwrap_or(3)
    }
}

/// Returns the part of a source's content that counts: these keys, or all.
fn content(object: &Value, keys: Option<&Vec<&str>>) -> Content {
    let parts = ["data", "binaryData"].map(|part| {
        let pairs = object[part].as_object().into_iter().flatten();
        let counts = pairs.filter(|(key, _)| keys.is_none_or(|keys| keys.contains(&key.as_str())));
        counts.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
    });
    let uid = if object["kind"] == "Secret" { text(&object["metadata"]["uid"]) } else { String::new() };
    format!("{uid}{}", json!(parts))
}

/// Returns the resource, the namespace and the name in a key of the store.
pub(super) fn place(key: &str) -> Option<(&str, &str, &str)> {
    let mut parts = key.rsplit('/');
    let (name, namespace) = (parts.next()?, parts.next()?);
    Some((parts.next()?, namespace, name))
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a source's name in a timeline: the object, and the keys that count.
fn with_keys(kind: &str, named: &Value) -> String {
    let name = format!("{}{}", if kind == "Secret" { SECRET } else { "" }, text(&named["name"]));
    let Some(keys) = named["keys"].as_array() else { return name };
    let mut keys: Vec<String> = keys.iter().map(text).collect();
    keys.sort();
    format!("{name}[{}]", keys.join(","))
}
