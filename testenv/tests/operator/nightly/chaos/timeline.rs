//! The timeline of one namespace, from the history of all objects: the content of ConfigMaps and Secrets, the pods, and
//! every version of each ConfigMonitor. Revisions are those of the store, which counts every write once, so their order does
//! not depend on clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use configmonitor_operator::monitor::spec::Spec;
use rules::status::Status;
use rules::{Event, Moment, Write};
use serde_json::{Map, Value, from_value, json};
use testenv::history::Version;

/// The part of a source's `data` and `binaryData` that counts, as text; for a Secret with its UID.
pub(crate) type Content = String;

/// The annotation that requests a restart.
pub(crate) const REQUEST: &str = "magalix.com/restart-requested-at";
/// The prefix of a Secret's name.
const SECRET: &str = "Secret/";

#[derive(Default)]
pub(crate) struct Timeline {
    /// The content of each source, and since when; none while the object did not exist. A source is a ConfigMap, or
    /// some keys of it: `NAME` or `NAME[KEY,KEY]`. A Secret begins with `Secret/`.
    pub(crate) sources: BTreeMap<String, Vec<(u64, Option<Content>)>>,
    pub(crate) pods: BTreeMap<String, Pod>,
    /// The ConfigMonitors by UID, including deleted ones.
    pub(crate) monitors: BTreeMap<String, Monitor>,
    /// The Events that were noted.
    events: BTreeSet<String>,
}

pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) labels: Value,
    /// How often it was handed over to its Deployment, and whether it is.
    pub(crate) handed_over: usize,
    pub(crate) is_handed_over: bool,
    /// The UID of the owner that would create the pod again, if there is one.
    pub(crate) owner: Option<String>,
    pub(crate) born: u64,
    /// Since when the pod has been terminating.
    pub(crate) deleted: Option<u64>,
}

pub(crate) struct Monitor {
    pub(crate) name: String,
    pub(crate) versions: Vec<MonitorVersion>,
    pub(crate) is_removed: bool,
    /// When a restart was requested, and with which value.
    pub(crate) requests: Vec<(Moment, String)>,
    pub(crate) events: Vec<Event>,
}

pub(crate) struct MonitorVersion {
    pub(crate) revision: u64,
    pub(crate) observed: SystemTime,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

impl Timeline {
    pub(crate) fn of<'a>(past: impl Iterator<Item = &'a Version>, namespace: &str) -> Self {
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
                "events" => timeline.event(version),
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

    fn pod(&mut self, name: String, version: &Version) {
        let Some(object) = &version.object else {
            let living = self.pods.values_mut().find(|pod| pod.name == name && pod.deleted.is_none());
            living.into_iter().for_each(|pod| pod.deleted = Some(version.revision));
            return;
        };
        let metadata = &object["metadata"];
        let controller = controller(metadata);
        let pod = self.pods.entry(text(&metadata["uid"])).or_insert_with(|| Pod {
            name,
            labels: metadata["labels"].clone(),
            owner: controller.map(|owner| text(&owner["uid"])),
            handed_over: 0,
            is_handed_over: false,
            born: version.revision,
            deleted: None,
        });
        let is_handed_over = controller.is_some_and(|owner| owner["kind"] == "Deployment");
        pod.handed_over += usize::from(is_handed_over && !pod.is_handed_over);
        pod.is_handed_over = is_handed_over;
        if !metadata["deletionTimestamp"].is_null() {
            pod.deleted = pod.deleted.or(Some(version.revision));
        }
    }

    fn monitor(&mut self, name: String, version: &Version) {
        let Some(object) = &version.object else {
            let living = self.monitors.values_mut().find(|monitor| monitor.name == name && !monitor.is_removed);
            living.into_iter().for_each(|monitor| monitor.is_removed = true);
            return;
        };
        let monitor = self.monitors.entry(text(&object["metadata"]["uid"])).or_insert_with(|| Monitor {
            name,
            versions: Vec::new(),
            is_removed: false,
            requests: Vec::new(),
            events: Vec::new(),
        });
        let request = &object["metadata"]["annotations"][REQUEST];
        if request.is_string() && monitor.requests.last().is_none_or(|(_, last)| request != last) {
            monitor.requests.push((moment(version), text(request)));
        }
        monitor.versions.push(MonitorVersion {
            revision: version.revision,
            observed: version.observed,
            spec: object["spec"].clone(),
            status: object["status"].clone(),
        });
    }

    /// Notes an Event about a ConfigMonitor, if this is its first version.
    fn event(&mut self, version: &Version) {
        let Some(object) = &version.object else { return };
        // The store has another version of the Events API than the operator.
        let about = object.get("involvedObject").unwrap_or(&object["regarding"]);
        let Some(monitor) = self.monitors.get_mut(&text(&about["uid"])) else { return };
        if self.events.insert(text(&object["metadata"]["uid"])) {
            monitor.events.push(Event { at: moment(version), reason: text(&object["reason"]) });
        }
    }
}

impl Monitor {
    /// Returns the versions up to a revision, the latest first.
    pub(crate) fn until(&self, revision: u64) -> impl Iterator<Item = &MonitorVersion> {
        self.versions.iter().rev().filter(move |version| version.revision <= revision)
    }

    /// Returns the writes of the status.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let mut before = Status::default();
        let written = self.versions.iter().filter_map(|version| {
            let after = Some(&version.status).filter(|status| !status.is_null());
            let after: Status = after.map(|status| from_value(status.clone()).unwrap()).unwrap_or_default();
            let write = Write {
                at: version.moment(),
                spec: from_value::<Spec>(version.spec.clone()).unwrap(),
                before: std::mem::replace(&mut before, after.clone()),
                after,
                undone: None,
            };
            (write.before != write.after).then_some(write)
        });
        written.collect()
    }
}

impl MonitorVersion {
    pub(crate) fn moment(&self) -> Moment {
        Moment { step: self.revision, ms: ms(self.observed) }
    }

    pub(crate) fn sources(&self) -> Vec<String> {
        let Some(several) = self.spec["sources"].as_array() else {
            return vec![with_keys("ConfigMap", &json!({"name": self.spec["configMap"], "keys": self.spec["keys"]}))];
        };
        let source = |entry: &Value| match entry.get("secret") {
            Some(secret) => with_keys("Secret", secret),
            None => with_keys("ConfigMap", &entry["configMap"]),
        };
        several.iter().map(source).collect()
    }

    pub(crate) fn sources_read(&self) -> Vec<String> {
        self.known().map(|known| with_keys(&text(&known["kind"]), known)).collect()
    }

    /// Returns the status, if a restart has begun.
    pub(crate) fn begun(&self) -> Option<Status> {
        from_value::<Status>(self.status.clone()).ok().filter(|status| status.begun().is_some())
    }

    fn known(&self) -> impl Iterator<Item = &Value> {
        self.status["sources"].as_array().into_iter().flatten()
    }

    pub(crate) fn selects(&self, labels: &Value) -> bool {
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

    fn expressions(&self) -> impl Iterator<Item = &Value> {
        self.spec["podSelectorExpressions"].as_array().into_iter().flatten()
    }
}

fn controller(metadata: &Value) -> Option<&Value> {
    metadata["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
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

fn moment(version: &Version) -> Moment {
    Moment { step: version.revision, ms: ms(version.observed) }
}

fn ms(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis().try_into().unwrap_or_default()
}

/// Returns the resource, the namespace and the name in a key of the store.
pub(crate) fn place(key: &str) -> Option<(&str, &str, &str)> {
    let mut parts = key.rsplit('/');
    let (name, namespace) = (parts.next()?, parts.next()?);
    Some((parts.next()?, namespace, name))
}

pub(crate) fn text(value: &Value) -> String {
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
