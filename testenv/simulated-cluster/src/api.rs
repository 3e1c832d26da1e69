//! The API server: serves requests as they come over the wire, whoever sends them. The ledger notes what no operator
//! may ever send.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use configmonitor_operator::kube::transport;
use reqwest::{Method, Url};
use rules::Moment;
use rules::status::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::NAMESPACE;
use crate::content::{CONFIG_MAPS, Stored};
use crate::ledger::{Caller, Seen, Written};
use crate::network::{Watched, is_of_handed_over, is_of_references};
use crate::objects;
use crate::state::{ClusterState, Monitor, OwnerKind, Pod};
use crate::store::Selection;
use crate::watching::Watch;

/// A request as it arrives.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) accept: Cow<'static, str>,
    pub(crate) body: Bytes,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) retry_after: Option<u32>,
    pub(crate) body: Reply,
    pub(crate) fact: Option<Fact>,
}

pub(crate) enum Reply {
    Json(String),
    Text(&'static str),
    Watch(Box<Watch>),
}

pub(crate) enum Fact {
    /// Only the last page shows which ConfigMonitors are gone.
    Monitors {
        all: Vec<(usize, Arc<Seen>)>,
        is_whole: bool,
    },
    /// Whether the namespace with the objects has the labels.
    Namespace {
        is_selected: bool,
    },
    /// The ConfigMonitor of this name, and the deleted ones of the same name.
    Monitor {
        found: Option<(usize, Arc<Seen>)>,
        gone: Vec<usize>,
    },
    ConfigMap(Moment, &'static str, Option<Stored>),
    /// The generation of the Deployment, and whether its status shows that a rollout is under way.
    Deployment {
        generation: u64,
        is_rolling: bool,
    },
    Pods {
        at: Moment,
        version: String,
        query: Option<String>,
        metadata_only: bool,
        is_whole: bool,
        selected: BTreeSet<usize>,
        all: BTreeSet<usize>,
    },
    /// The last page of the list of pods at this revision.
    LastPage(u64),
    Owner(usize, usize),
    Patched,
    Deleted,
    Forgotten(String),
    Refused(String),
}

/// A path of the API: resource, name and subresource.
struct Path<'a> {
    plural: &'a str,
    name: Option<&'a str>,
    sub: Option<&'a str>,
}

type Query<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate {
    metadata: UpdateMetadata,
    status: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateMetadata {
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    grace_period_seconds: Option<u64>,
    preconditions: Preconditions,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    reason: String,
    regarding: Regarding,
}

#[derive(Deserialize)]
struct Regarding {
    kind: String,
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Eviction {
    delete_options: DeleteOptions,
}

impl From<transport::Request> for Request {
    fn from(request: transport::Request) -> Self {
        let transport::Request { method, url, accept, body, .. } = request;
        Self { method, url, accept: accept.into(), body: body.unwrap_or_default() }
    }
}

impl Answer {
    fn new(code: u16, body: String) -> Self {
        Self { code, retry_after: None, body: Reply::Json(body), fact: None }
    }

    pub(crate) fn ok(body: String, fact: Option<Fact>) -> Self {
        Self { fact, ..Self::new(200, body) }
    }

    /// Returns a failure with a `Status` object.
    pub(crate) fn status(code: u16, reason: &str, message: &str, details: &str) -> Self {
        let body = format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","details":{{{details}}},"code":{code}}}"#
        );
        Self::new(code, body)
    }

    pub(crate) fn text(code: u16, text: &'static str) -> Self {
        Self { body: Reply::Text(text), ..Self::new(code, String::new()) }
    }

    /// Returns 429, with or without `Retry-After` in seconds.
    pub(crate) fn busy(retry_after: Option<u32>) -> Self {
        Self { retry_after, ..Self::text(429, "Too many requests, please try again later.\n") }
    }

    pub(crate) fn not_found() -> Self {
        Self::status(404, "NotFound", "not found", r#""name":"its""#)
    }

    pub(crate) fn conflict(message: &str) -> Self {
        Self::status(409, "Conflict", message, "")
    }
}

impl ClusterState {
    pub(crate) fn serve(&mut self, caller: &Caller, request: &Request) -> Answer {
        let path: Vec<&str> = request.url.path_segments().unwrap().collect();
        let (namespace, path) = match path[..] {
            ["api", "v1", "namespaces", namespace, ref rest @ ..]
            | ["apis", _, _, "namespaces", namespace, ref rest @ ..] => (Some(namespace), rest.to_vec()),
            ["api", "v1", ref rest @ ..] | ["apis", _, _, ref rest @ ..] => (None, rest.to_vec()),
            _ => (None, Vec::new()),
        };
        let part = |nth: usize| path.get(nth).copied();
        let path = Path { plural: part(0).unwrap_or_default(), name: part(1), sub: part(2) };
        let query: Query<'_> = request.url.query_pairs().collect();
        if query.get("resourceVersion").is_some_and(|version| version == "0" || version.is_empty()) {
            self.ledger.improper.push(format!("{} accepts any version of a cache", request.url));
        }
        let (accept, body) = (&*request.accept, &*request.body);
        let everywhere = match path.plural {
            "configmaps" => Some(Watched::ConfigMaps),
            "secrets" => Some(Watched::Secrets),
            "configmonitors" => Some(Watched::Monitors),
            "namespaces" => Some(Watched::Namespaces),
            _ => None,
        };
        if let (true, Some(what), None) = (request.method == "GET", everywhere, path.name) {
            if what == Watched::Secrets && self.network.only_gets_secrets {
                return Answer::status(403, "Forbidden", "secrets is forbidden", "");
            }
            // All objects are in one namespace.
            let is_there = namespace.is_none_or(|namespace| namespace == NAMESPACE);
            return self.list((what, is_there), caller, accept, &query);
        }
        if is_of_handed_over(request) {
            let is_there = namespace.is_none_or(|namespace| namespace == NAMESPACE);
            return self.list((Watched::Pods, is_there), caller, accept, &query);
        }
        if namespace != Some(NAMESPACE) {
            self.ledger.improper.push(format!("{} {} is in no namespace with objects", request.method, request.url));
        }
        match (request.method.as_str(), path.plural, path.name, path.sub) {
            ("GET", "pods", None, None) if is_of_references(request) => {
                self.list((Watched::References, true), caller, accept, &query)
            }
            ("GET", "pods", None, None) => self.list((Watched::Pods, true), caller, accept, &query),
            ("GET", plural @ ("configmaps" | "secrets"), Some(name), None) => {
                self.get_config_map(plural == "secrets", name)
            }
            ("GET", "configmonitors", Some(name), None) => self.get_monitor(name),
            ("PUT", "configmonitors", Some(name), Some("status")) => self.put_status(caller, name, body),
            ("DELETE", "pods", Some(name), None) => {
                let options: DeleteOptions = serde_json::from_slice(body).unwrap_or_default();
                self.delete(caller, name, &options, false)
            }
            ("POST", "pods", Some(name), Some("eviction")) => {
                let eviction: Eviction = serde_json::from_slice(body).expect("an Eviction");
                self.delete(caller, name, &eviction.delete_options, true)
            }
            ("POST", "events", None, None) => self.post_event(body),
            ("PATCH", "pods", Some(name), None) => self.patch(caller, name, body),
            ("GET", "deployments", Some(name), None) => self.get_deployment(name),
            ("GET", plural, Some(name), None) => self.get_workload(plural, name),
            _ => {
                self.ledger.improper.push(format!("{} {} has no route", request.method, request.url));
                Answer::text(404, "404 page not found\n")
            }
        }
    }

    fn list(&mut self, (what, is_there): (Watched, bool), caller: &Caller, accept: &str, query: &Query<'_>) -> Answer {
        let unfinished = "status.phase!=Succeeded,status.phase!=Failed";
        if query.get("fieldSelector").is_some_and(|fields| fields != unfinished) {
            self.ledger.improper.push(format!("{query:?} selects by unknown fields"));
        }
        let selection = match is_there {
            true => Selection::parse(query.get("labelSelector").map(|text| &**text)),
            false => Selection::nothing(),
        };
        let metadata_only = accept.contains("as=PartialObjectMetadata");
        let asked = query.get("resourceVersion").map(|version| version.parse::<u64>().expect("a revision of ours"));
        if query.get("watch").is_some_and(|watch| watch == "true") {
            let from = asked.expect("a watch from somewhere");
            if from < self.compacted {
                return Answer::status(410, "Expired", "too old resource version", "");
            }
            let seconds = query["timeoutSeconds"].parse().unwrap();
            let watch = Watch::new(self, caller.life, (what, selection, metadata_only), from, seconds);
            return Answer { body: Reply::Watch(Box::new(watch)), ..Answer::new(200, String::new()) };
        }
        // The revision of the list, and how many of its objects were in earlier pages.
        let (revision, read) = match (query.get("continue"), asked) {
            (Some(_), Some(_)) => return Answer::status(400, "BadRequest", "continue with resourceVersion", ""),
            (Some(token), None) => {
                let (revision, read) = token.split_once('-').expect("a token of ours");
                (revision.parse().unwrap(), read.parse().unwrap())
            }
            (None, Some(_)) if query.get("resourceVersionMatch").is_none_or(|kind| kind != "Exact") => {
                return Answer::status(422, "Invalid", "resourceVersionMatch is forbidden or unknown", "");
            }
            (None, Some(exactly)) => (exactly, 0),
            (None, None) => (self.revision, 0_usize),
        };
        if revision < self.compacted {
            let mut answer = Answer::status(410, "Expired", "too old resource version", "");
            answer.fact = Some(Fact::Forgotten(revision.to_string()));
            return answer;
        }
        if revision > self.revision {
            let details = r#""causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]"#;
            return Answer::status(504, "Timeout", "Too large resource version", details);
        }
        let limit = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap()).min(self.network.page);
        let at = self.moment();
        let store = what.store(self);
        let all = store.at(revision);
        let selected: Vec<_> = all.iter().filter(|version| selection.matches(&version.labels)).collect();
        let page: Vec<String> =
            selected.iter().skip(read).take(limit).map(|version| store.json(version, metadata_only)).collect();
        let next = read + page.len();
        let token = if next < selected.len() { format!(r#","continue":"{revision}-{next}""#) } else { String::new() };
        let (api_version, kind) =
            if metadata_only { ("meta.k8s.io/v1", "PartialObjectMetadata") } else { (store.api_version, store.kind) };
        let body = format!(
            r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{revision}"{token}}},"items":[{}]}}"#,
            page.join(",")
        );
        let ids = |versions: &[&crate::store::Version]| versions.iter().map(|version| version.id).collect();
        let fact = match what {
            Watched::ConfigMaps | Watched::Secrets | Watched::References => None,
            Watched::Namespaces => Some(Fact::Namespace { is_selected: !selected.is_empty() }),
            Watched::Monitors if !is_there => None,
            Watched::Monitors => {
                let all = selected.iter().map(|version| (version.id, self.seen(version.id))).collect();
                Some(Fact::Monitors { all, is_whole: token.is_empty() })
            }
            // A list at an earlier version is about the restart, not about the present.
            Watched::Pods if asked.is_some() => None,
            // The first page already holds the other facts.
            Watched::Pods if read > 0 => Some(Fact::LastPage(revision)).filter(|_| token.is_empty()),
            Watched::Pods => {
                let query = query.get("labelSelector").map(ToString::to_string);
                let selected = selected.into_iter().map(|version| version.id).collect();
                let (version, all, is_whole) = (revision.to_string(), ids(&all), token.is_empty());
                Some(Fact::Pods { at, version, query, metadata_only, is_whole, selected, all })
            }
        };
        Answer::ok(body, fact)
    }

    fn seen(&self, monitor: usize) -> Arc<Seen> {
        let monitor = &self.monitors[monitor];
        Arc::new(Seen { version: monitor.version, spec: monitor.spec.clone(), status: monitor.status.clone() })
    }

    pub(crate) fn get_config_map(&mut self, secret: bool, name: &str) -> Answer {
        let is_it = |one: &&str| *one == name && self.is_secret(one) == secret;
        let Some(name) = CONFIG_MAPS.into_iter().find(is_it) else { return Answer::not_found() };
        let fact = Some(Fact::ConfigMap(self.moment(), name, self.config_maps.get(name).copied()));
        let store = if secret { &self.secret_store } else { &self.config_map_store };
        match store.get(name) {
            Some(version) => Answer::ok(store.json(version, false), fact),
            None => Answer { fact, ..Answer::not_found() },
        }
    }

    pub(crate) fn get_monitor(&self, name: &str) -> Answer {
        let is_gone = |id: &usize| &*self.monitors[*id].name == name && self.monitors[*id].gone;
        let gone = (0..self.monitors.len()).filter(is_gone).collect();
        let found = self.monitor_by_name(name).map(|monitor| (monitor, self.seen(monitor)));
        let fact = Some(Fact::Monitor { found, gone });
        match self.monitor_store.get(name) {
            Some(version) => Answer::ok(self.monitor_store.json(version, false), fact),
            None => Answer { fact, ..Answer::not_found() },
        }
    }

    /// Compare and swap: 409 if the ConfigMonitor was written since the version in the request.
    fn put_status(&mut self, caller: &Caller, name: &str, body: &[u8]) -> Answer {
        let StatusUpdate { metadata, status } = serde_json::from_slice(body).expect("an update of a status");
        let Some(monitor) = self.monitor_by_name(name) else { return Answer::not_found() };
        if metadata.resource_version.is_none() || metadata.uid.is_none() {
            self.ledger.improper.push(format!("a status is written without a precondition: {metadata:?}"));
        }
        let before = &self.monitors[monitor];
        if metadata.uid.as_ref() != Some(&before.uid) {
            return Answer::conflict("the UID in the precondition does not match");
        }
        if metadata.resource_version != Some(before.version.to_string()) {
            return Answer::conflict("the object has been modified");
        }
        let (status, raw) = (serde_json::from_str(status.get()).expect("a status"), status.get().to_owned());
        if raw != before.raw_status {
            let (spec, before, alive) = (before.spec.clone(), before.status.clone(), self.running());
            self.set_status(monitor, status, raw);
            let (at, after) = (self.moment(), self.monitors[monitor].status.clone());
            self.ledger.record_write(at, caller, monitor, Written { spec, before, after, alive });
        }
        self.get_monitor(name)
    }

    /// Records that a status was sent: its sender has read the versions that it names.
    pub(crate) fn record_attempt(&mut self, caller: &Caller, request: &Request) {
        let name = request.url.path_segments().and_then(|mut parts| parts.nth_back(1));
        let Some(monitor) = name.and_then(|name| self.monitor_by_name(name)) else { return };
        let StatusUpdate { metadata, status } = serde_json::from_slice(&request.body).expect("an update of a status");
        let status: Status = serde_json::from_str(status.get()).expect("a status");
        if metadata.uid.as_ref() == Some(&self.monitors[monitor].uid) {
            self.ledger.record_attempt(caller, monitor, &status);
        }
    }

    fn post_event(&mut self, body: &[u8]) -> Answer {
        let Event { reason, regarding } = serde_json::from_slice(body).expect("an Event");
        let is_about = |monitor: &Monitor| regarding.kind == "ConfigMonitor" && monitor.uid == regarding.uid;
        if let Some(monitor) = self.monitors.iter().position(is_about) {
            let at = self.moment();
            self.ledger.books[monitor].events.push(rules::Event { at, reason });
        }
        Answer::new(201, "{}".to_owned())
    }

    /// Deletes the pod of this name, if its UID and version match the preconditions. The pod takes its time to end.
    fn delete(&mut self, caller: &Caller, name: &str, options: &DeleteOptions, evict: bool) -> Answer {
        let Preconditions { uid, resource_version } = &options.preconditions;
        if uid.is_none() || options.grace_period_seconds == Some(0) {
            self.ledger.improper.push(format!("{name} is deleted without a UID, or by force"));
        }
        let Some(index) = self.pods.iter().position(|pod| *pod.name == *name) else { return Answer::not_found() };
        let pod = &self.pods[index];
        if uid.as_ref().is_some_and(|uid| **uid != *pod.uid) {
            return Answer::conflict("the UID in the precondition does not match the UID in record");
        }
        if resource_version.as_ref().is_some_and(|version| *version != pod.version.to_string()) {
            return Answer::conflict("the ResourceVersion in the precondition does not match");
        }
        if let Some(refusal) = Some(pod).filter(|_| evict).and_then(|pod| self.refuses_eviction(pod)) {
            return refusal;
        }
        let (id, code) = (pod.id, if evict { 201 } else { 200 });
        // An eviction first sets a condition.
        if evict && !std::mem::replace(&mut self.pods[index].is_disrupted, true) {
            self.store_pod(index);
        }
        if self.ledger.looks_after(caller) {
            return self.end_by_itself(caller, id, evict);
        }
        let over_budget = self.over_budget(caller, id).max(self.over_surge_by_deletion(caller, id));
        let is_news = self.terminate(id, options.grace_period_seconds);
        let at = self.moment();
        if is_news {
            self.ledger.record_deletion(at, caller, (id, evict), over_budget);
        } else {
            self.ledger.deleted_again.push((at, caller.life, id));
        }
        let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;
        Answer { fact: Some(Fact::Deleted), ..Answer::new(code, body.to_owned()) }
    }

    /// Returns how the PodDisruptionBudgets refuse the eviction of a pod. They cover the managed pods.
    fn refuses_eviction(&self, pod: &Pod) -> Option<Answer> {
        let is_covered = |pod: &Pod| pod.controller.is_some() && !pod.finished;
        if !is_covered(pod) || pod.gone_by.is_some() {
            return None;
        }
        let healthy = self.pods.iter().filter(|pod| is_covered(pod) && pod.ready.is_some() && pod.gone_by.is_none());
        let healthy = healthy.count();
        match self.disruption_budgets[..] {
            [] => None,
            [least] if healthy > least || (pod.ready.is_none() && healthy >= least) => None,
            [least] => {
                let message =
                    format!("The disruption budget web needs {least} healthy pods and has {healthy} currently");
                let details = format!(r#""causes":[{{"reason":"DisruptionBudget","message":"{message}"}}]"#);
                let text = "Cannot evict pod as it would violate the pod's disruption budget.";
                Some(Answer::status(429, "TooManyRequests", text, &details))
            }
            _ => Some(Answer::status(500, "InternalError", "This pod has more than one PodDisruptionBudget", "")),
        }
    }

    fn get_workload(&mut self, plural: &str, name: &str) -> Answer {
        let kind = match plural {
            "replicasets" => OwnerKind::ReplicaSet,
            "statefulsets" => OwnerKind::StatefulSet,
            "daemonsets" => OwnerKind::DaemonSet,
            "replicationcontrollers" => OwnerKind::ReplicationController,
            _ => {
                self.ledger.improper.push(format!("{plural} have no route"));
                return Answer::text(404, "404 page not found\n");
            }
        };
        let is_it = |owner: &usize| self.workloads[*owner].owner.kind == kind && !self.is_collected(*owner);
        let Some(owner) = self.owner_by_name(name).filter(is_it) else {
            return Answer::not_found();
        };
        let workload = &self.workloads[owner];
        let its = || self.present_pods_of(workload);
        let available = its().filter(|pod| pod.ready.is_some()).count();
        let fact = Some(Fact::Owner(owner, workload.replicas));
        Answer::ok(objects::workload(workload, its().count(), available, self.ledger.min_ready), fact)
    }
}

impl std::fmt::Debug for UpdateMetadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "uid {:?}, resourceVersion {:?}", self.uid, self.resource_version)
    }
}
