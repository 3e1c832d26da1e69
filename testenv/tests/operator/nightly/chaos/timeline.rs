//! The timeline of one namespace, from the history of all objects: the content of ConfigMaps and Secrets, the pods, the
//! desired replicas of their owners, and every version of each ConfigMonitor. Revisions are those of the store, which
//! counts every write once, so their order does not depend on clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use configmonitor_operator::monitor::spec::{IntOrString, Spec};
use jiff::Timestamp;
use rules::budget::{allowed_of_owner, is_everything, surge};
use rules::pod::Readiness;
use rules::status::{Change, Restart, SourceStatus, Status};
use rules::{Event, Moment, Write};
use serde_json::{Map, Value, from_value, json};
use testenv::history::Version;
use testenv::is_ready;

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
    /// The owners of pods by UID, including deleted ones.
    pub(crate) owners: BTreeMap<String, Owner>,
    /// The Deployments by UID, including deleted ones.
    pub(crate) deployments: BTreeMap<String, Owner>,
    /// The ConfigMonitors by UID, including deleted ones.
    pub(crate) monitors: BTreeMap<String, Monitor>,
    /// The Events that were noted.
    events: BTreeSet<String>,
}

#[derive(Default)]
pub(crate) struct Owner {
    key: String,
    /// The UID of the Deployment of a ReplicaSet.
    pub(crate) controller: Option<String>,
    pub(crate) desired: Vec<Desired>,
}

impl Owner {
    /// Returns the desired replicas since a time, up to a revision.
    pub(crate) fn desired_since(&self, since: SystemTime, revision: u64) -> impl Iterator<Item = usize> {
        let mut over = false;
        let desired = self.desired.iter().rev().filter(move |desired| desired.revision <= revision);
        let desired = desired.take_while(move |desired: &&Desired| {
            let take = !over;
            over = desired.observed < since;
            take
        });
        desired.map(|desired| desired.pods)
    }
}

pub(crate) struct Desired {
    pub(crate) revision: u64,
    pub(crate) observed: SystemTime,
    pub(crate) pods: usize,
}

pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) labels: Value,
    /// Where it was handed over, to the Deployment with this UID, or given back.
    pub(crate) handed_over: Vec<(Moment, Option<String>)>,
    /// The UID of the owner that would create the pod again, if there is one.
    pub(crate) owner: Option<String>,
    pub(crate) born: u64,
    pub(crate) created: String,
    pub(crate) ready: Readiness,
    /// Since when the pod has been ready, by its node.
    pub(crate) ready_since: Option<Timestamp>,
    /// Since when the pod has been terminating.
    pub(crate) deleted: Option<(u64, SystemTime)>,
}

pub(crate) struct Monitor {
    pub(crate) name: String,
    pub(crate) versions: Vec<MonitorVersion>,
    pub(crate) removed: Option<(u64, SystemTime)>,
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
                // ReplicationControllers have a shorter name there.
                "deployments" => Self::owner(&mut timeline.deployments, version),
                "replicasets" | "statefulsets" | "daemonsets" | "controllers" => {
                    Self::owner(&mut timeline.owners, version);
                }
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

    fn owner(owners: &mut BTreeMap<String, Owner>, version: &Version) {
        let Some(object) = &version.object else {
            // Nothing is created for a deleted owner, and its UID does not come again.
            for owner in owners.values_mut().filter(|owner| owner.key == version.key) {
                owner.desired.push(Desired { revision: version.revision, observed: version.observed, pods: 0 });
            }
            return;
        };
        let replicas = object["status"]["desiredNumberScheduled"].as_u64().or(object["spec"]["replicas"].as_u64());
        let pods = if object["metadata"]["deletionTimestamp"].is_null() { replicas.unwrap_or(1) } else { 0 };
        let pods = usize::try_from(pods).unwrap_or_default();
        let owner = owners.entry(text(&object["metadata"]["uid"])).or_default();
        owner.key.clone_from(&version.key);
        owner.controller = controller(&object["metadata"]).map(|owner| text(&owner["uid"]));
        let history = &mut owner.desired;
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
        let controller = controller(metadata);
        let pod = self.pods.entry(text(&metadata["uid"])).or_insert_with(|| Pod {
            name,
            labels: metadata["labels"].clone(),
            owner: controller.map(|owner| text(&owner["uid"])),
            handed_over: Vec::new(),
            born: version.revision,
            created: text(&metadata["creationTimestamp"]),
            ready: Readiness::default(),
            ready_since: None,
            deleted: None,
        });
        let to = controller.filter(|owner| owner["kind"] == "Deployment").map(|owner| text(&owner["uid"]));
        if to.as_ref() != pod.handed_over.last().and_then(|(_, to)| to.as_ref()) {
            pod.handed_over.push((moment(version), to));
        }
        let has_finished = ["Failed", "Succeeded"].iter().any(|phase| object["status"]["phase"] == *phase);
        pod.ready.set(is_ready(object) && !has_finished, moment(version));
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        pod.ready_since =
            ready.and_then(|ready| ready["lastTransitionTime"].as_str()?.parse().ok()).or(pod.ready_since);
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

    /// Returns the content of a source at a revision. A pod created while the object does not exist starts with the
    /// next content.
    pub(crate) fn content(&self, source: &str, revision: u64) -> Option<&Content> {
        let held = self.sources.get(source)?;
        let at = held.iter().rposition(|(since, _)| *since <= revision).unwrap_or(0);
        held[at..].iter().find_map(|(_, content)| content.as_ref())
    }

    /// Returns since when a source has its final content.
    pub(crate) fn since(&self, source: &str) -> u64 {
        let last = self.sources.get(source).and_then(|held| held.last());
        last.map_or(0, |(since, _)| *since)
    }

    /// Returns the contents of a source after one revision and up to another.
    pub(crate) fn contents(&self, source: &str, after: u64, to: u64) -> impl Iterator<Item = &Content> {
        let held = self.sources.get(source).into_iter().flatten();
        held.filter(move |(since, _)| *since > after && *since <= to).filter_map(|(_, content)| content.as_ref())
    }

    /// Returns the content of a source that the operator had read, by this status.
    pub(crate) fn read(&self, version: &MonitorVersion, source: &str) -> Option<&Content> {
        let known = version.known().find(|known| with_keys(&text(&known["kind"]), known) == source)?;
        self.content(source, known["resourceVersion"].as_str()?.parse().ok()?)
    }

    /// Returns the UID of the Deployment of the pod's ReplicaSet.
    pub(crate) fn deployment_of(&self, pod: &Pod) -> Option<&String> {
        self.owners.get(pod.owner.as_ref()?)?.controller.as_ref()
    }

    pub(crate) fn has_read(&self, version: &MonitorVersion) -> bool {
        version.sources_read().iter().any(|source| self.read(version, source).is_some())
    }

    /// Returns the content that pods run with or are restarted for, by this status; none while a restart is only
    /// pending.
    pub(crate) fn acted(&self, version: &MonitorVersion, source: &str) -> Option<&Content> {
        if version.is_pending() { None } else { self.read(version, source) }
    }
}

impl Pod {
    /// Returns the UID of the Deployment to which the pod was handed over at a revision.
    pub(crate) fn handed_over_at(&self, revision: u64) -> Option<&String> {
        self.handed_over.iter().rfind(|(at, _)| at.step <= revision)?.1.as_ref()
    }
}

impl Monitor {
    pub(crate) fn at(&self, revision: u64) -> Option<&MonitorVersion> {
        self.versions.iter().rev().find(|version| version.revision <= revision)
    }

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

    /// Returns whether nobody knows any more which content pods have, because the restart is about a removed source.
    pub(crate) fn has_forgotten(&self) -> bool {
        let sources: Vec<SourceStatus> = from_value(self.status["sources"].clone()).unwrap_or_default();
        let is_unknown = |change: &Change| !sources.iter().any(|known| known.is_of(change));
        let has_unknown = |restart: Restart| restart.changes.iter().any(is_unknown);
        self.known().any(|known| known["hash"].is_null()) || self.restart().is_some_and(has_unknown)
    }

    pub(crate) fn restart(&self) -> Option<Restart> {
        from_value::<Status>(self.status.clone()).ok()?.restart
    }

    fn known(&self) -> impl Iterator<Item = &Value> {
        self.status["sources"].as_array().into_iter().flatten()
    }

    /// Returns whether the status knows other sources and not this one.
    pub(crate) fn is_about_others(&self, source: &str) -> bool {
        let known = self.sources_read();
        !known.is_empty() && !known.iter().any(|known| known == source)
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

    /// Returns the selector as the query of a list of pods.
    pub(crate) fn query(&self) -> String {
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

    pub(crate) fn evicts(&self) -> bool {
        self.spec["deletionPolicy"] == "Evict"
    }

    /// Returns how many of the `desired` pods of an owner may be missing in a restart; none if all may.
    pub(crate) fn allowed(&self, desired: usize) -> Option<usize> {
        let most = from_value::<IntOrString>(self.spec["maxUnavailable"].clone()).ok();
        (!is_everything(most.as_ref(), None)).then(|| allowed_of_owner(most.as_ref(), desired))
    }

    /// Returns how many of the `desired` pods of a Deployment may be handed over at a time.
    pub(crate) fn surge(&self, desired: usize) -> usize {
        surge(from_value(self.spec["maxSurge"].clone()).ok().as_ref(), desired)
    }

    /// Returns whether no pod of a Deployment may be missing in a restart.
    pub(crate) fn only_surges(&self) -> bool {
        !self.spec["maxSurge"].is_null() && self.spec["maxUnavailable"].is_null()
    }

    pub(crate) fn is_begun(&self) -> bool {
        !self.status["restart"]["startedAt"].is_null()
    }

    /// Returns whether the operator waits for the content, as last read, to be quiet, or for what else holds a restart.
    pub(crate) fn is_pending(&self) -> bool {
        !self.status["restart"].is_null() && !self.is_under_way()
    }

    /// Returns whether a restart has begun, and no other content interrupts it.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_begun() && self.status["restart"]["interruptedAt"].is_null()
    }

    pub(crate) fn quiet_seconds(&self) -> u64 {
        self.spec["quietPeriodSeconds"].as_u64().unwrap_or(3)
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

pub(crate) fn ms(at: SystemTime) -> u64 {
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
