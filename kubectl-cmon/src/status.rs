//! `status`: what a ConfigMonitor knows, does and waits for, joined with the pods that it selects.

use std::collections::BTreeMap;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::kube::list::List;
use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::pod::Pod;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::status::NO_ACTION_NEEDED;
use configmonitor_operator::monitor::status::{
    self, CanaryState, Change, Entry, MAX_SOURCES_OF_ENTRY, Restart, SourceStatus,
};
use serde_json::{Value, json};

use crate::ambassador::Ambassador;
use crate::conditions::{condition, is_true, message, reason};
use crate::monitors::{Monitor, pods_of};
use crate::options::{Format, Status};
use crate::outcome::Failure;
use crate::text::{Node, ago, count, pretty_json, print, say};

/// Pods that are shown of an owner, unready ones first.
const PODS_OF_OWNER: usize = 8;

/// Shows one ConfigMonitor, or all of the namespace.
pub(crate) async fn run(ambassador: &Ambassador, command: &Status) -> Result<(), Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let monitors = match &command.name {
        Some(name) => vec![Monitor::read(&client, name).await?],
        None => Monitor::all(&client).await?,
    };
    if monitors.is_empty() {
        say(format_args!("no ConfigMonitor in namespace {:?}", ambassador.namespace));
    }
    let (mut texts, mut objects) = (Vec::new(), Vec::new());
    for monitor in &monitors {
        let pods = match &monitor.policy {
            Ok(policy) => Some(client.list(&pods_of(policy), None, |pod: Pod| pod).await?),
            Err(_) => None,
        };
        match command.output {
            Some(Format::Json) => objects.push(object(monitor, pods.as_ref())),
            None => texts.push(tree(monitor, pods.as_ref()).to_string()),
        }
    }
    match command.output {
        Some(Format::Json) => print(pretty_json(&Value::Array(objects))),
        None => print(texts.join("\n")),
    }
}

/// Returns the status, which programs know, and the pods.
fn object(monitor: &Monitor, pods: Option<&List<Pod>>) -> Value {
    let content_since = monitor.status.as_ref().and_then(content_since);
    let pods = pods.map(|pods| {
        let pod = |pod: &Pod| {
            json!({
                "name": pod.name,
                "owner": owner(pod),
                "ready": pod.ready_since.is_some(),
                "createdAt": pod.created,
                "bornBeforeContent": content_since.map(|since| pod.created < since),
            })
        };
        pods.items.iter().map(pod).collect::<Vec<_>>()
    });
    json!({
        "namespace": monitor.metadata.namespace,
        "name": monitor.metadata.name,
        "generation": monitor.metadata.generation,
        "invalid": monitor.policy.as_ref().err(),
        "status": monitor.status,
        "pods": pods,
    })
}

fn tree(monitor: &Monitor, pods: Option<&List<Pod>>) -> Node {
    let name = &monitor.metadata.name;
    let invalid = monitor.policy.as_ref().err().map(|invalid| Node::leaf(format!("invalid: {invalid}")));
    let Some(status) = &monitor.status else {
        return Node::with(format!("ConfigMonitor/{name}  no status: the operator has not read it"), invalid);
    };
    let ready = if is_true(status, "Ready") { "Ready" } else { "not Ready" };
    let now = pods.map(|pods| pods.at);
    let mut parts = vec![Node::leaf(message(status))];
    let advice = condition(status, "Stalled").filter(|stalled| stalled.status != "True");
    let advice = advice.map(|stalled| stalled.message.to_string()).filter(|advice| advice != NO_ACTION_NEEDED);
    parts.extend(advice.map(Node::leaf).into_iter().chain(invalid));
    let source = |source| Node::leaf(source_line(source, now));
    parts.push(Node::with("sources".to_owned(), status.sources.iter().map(source)));
    parts.extend(status.restart.iter().map(|restart| restart_node(status, restart, now)));
    parts.extend(pods.map(|pods| pods_node(pods, status)));
    let history = Node::with("history".to_owned(), status.history.iter().map(|entry| Node::leaf(past(entry, now))));
    parts.extend(Some(history).filter(Node::has_parts));
    Node::with(format!("ConfigMonitor/{name}  {ready}: {}", reason(status)), parts)
}

/// Says when the content of a source has changed.
fn source_line(source: &SourceStatus, now: Option<ServerTime>) -> String {
    let at = |change: &Change| ago(change.observed_at, now);
    let state = match &source.changes[..] {
        [] if source.hash.is_none() => "not found".to_owned(),
        [] if source.hash == Some(ContentHash::absent()) && source.discovered => {
            "not found, or the token of a ServiceAccount, which does not count".to_owned()
        }
        [] if source.hash == Some(ContentHash::absent()) => "not found".to_owned(),
        [] => "recorded".to_owned(),
        [.., last] if !source.differs() => format!("reverted {}", at(last)),
        [only] => format!("changed {}", at(only)),
        [first, .., last] => format!("changed {}, last {}", at(first), at(last)),
    };
    let keys = source.keys.iter().map(|keys| {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        format!(", keys {}", keys.join(", "))
    });
    let found = if source.discovered { ", found in pods" } else { "" };
    let unreferred = source.unreferenced_since.map(|since| format!(", no pod refers to it since {since}"));
    format!("{}  {state}{found}{}{}", source.name, keys.collect::<String>(), unreferred.unwrap_or_default())
}

fn restart_node(status: &status::Status, restart: &Restart, now: Option<ServerTime>) -> Node {
    let of = status.changed().into_iter().map(|source| format!("for {source}"));
    let of = of.chain(restart.request.iter().map(|request| format!("requested as {:?}", request.value)));
    let of: Vec<Node> = of.map(Node::leaf).collect();
    let Some(begun) = &restart.begun else {
        let outdated = status.outdated.map(|pods| format!(", {} may have other content", count(pods, "pod")));
        return Node::with(format!("restart  pending{}", outdated.unwrap_or_default()), of);
    };
    let replaced = begun.pods.saturating_sub(begun.remaining);
    let began = ago(begun.started_at, now);
    let canary = begun.canary.iter().map(|canary| {
        let state = match &canary.state {
            CanaryState::Replacing => "is being replaced".to_owned(),
            CanaryState::Baking { available_at } => format!("is available, and bakes since {available_at}"),
            CanaryState::Passed => "has passed".to_owned(),
            CanaryState::Failed { message } => format!("has failed: {message}"),
        };
        Node::leaf(format!("canary of {}: {state}", canary.pods))
    });
    let line = format!("restart  {replaced} of {} replaced, began {began}", count(begun.pods, "pod"));
    Node::with(line, of.into_iter().chain(canary))
}

/// Returns the time of the content that pods are restarted for, if a restart is pending or under way.
fn content_since(status: &status::Status) -> Option<ServerTime> {
    let restart = status.restart.as_ref()?;
    let changed = status.sources.iter().filter_map(|source| source.changes.last()).map(|change| change.observed_at);
    changed.max().or(restart.begun.as_ref().map(|begun| begun.started_at))
}

fn owner(pod: &Pod) -> Option<String> {
    pod.controller.as_ref().map(|owner| format!("{}/{}", owner.kind, owner.name))
}

fn pods_node(pods: &List<Pod>, status: &status::Status) -> Node {
    let content_since = content_since(status);
    let mut owners: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.items.iter().filter(|pod| !pod.finished) {
        owners.entry(owner(pod).unwrap_or_else(|| "without a controller".to_owned())).or_default().push(pod);
    }
    let is_before = |pod: &&&Pod| content_since.is_some_and(|since| pod.created < since);
    let owners = owners.into_iter().map(|(owner, mut its)| {
        let before = its.iter().filter(is_before).count();
        let ready = its.iter().filter(|pod| pod.ready_since.is_some()).count();
        let before = if before > 0 { format!(", {before} born before the content") } else { String::new() };
        let line = format!("{owner}  {ready} of {} ready{before}", its.len());
        its.sort_by(|a, b| {
            (a.ready_since.is_some(), a.created, &a.name).cmp(&(b.ready_since.is_some(), b.created, &b.name))
        });
        let shown = its.iter().take(PODS_OF_OWNER).map(|pod| {
            let state = match (pod.gone_by, pod.ready_since, &pod.trouble) {
                (Some(_), ..) => "terminating",
                (None, Some(_), _) if pod.is_handed_over() => "handed over: serves until it has a successor",
                (None, Some(_), _) => "ready",
                (None, None, trouble) => trouble.as_deref().unwrap_or("not ready"),
            };
            let born = match content_since {
                None => "",
                Some(_) if is_before(&pod) => ", before the content",
                Some(_) => ", after the content",
            };
            let by = restart_of(pod, status).map(|cause| format!(" in the restart for {cause}"));
            let (age, by) = (ago(pod.created, Some(pods.at)), by.unwrap_or_default());
            Node::leaf(format!("{}  {state}, born {age}{by}{born}", pod.name))
        });
        let more = its.len().saturating_sub(PODS_OF_OWNER);
        let more = (more > 0).then(|| Node::leaf(format!("and {more} more")));
        Node::with(line, shown.chain(more).collect::<Vec<_>>())
    });
    Node::with(format!("pods  {}", pods.items.len()), owners.collect::<Vec<_>>())
}

/// Returns what the restart was for during which a pod was created.
fn restart_of(pod: &Pod, status: &status::Status) -> Option<String> {
    let begun = status.restart.as_ref().filter(|it| it.begun.as_ref().is_some_and(|it| pod.created >= it.started_at));
    let is_its = |entry: &&Entry| (entry.started_at..=entry.completed_at).contains(&pod.created);
    let past = || status.history.iter().find(is_its).map(cause);
    begun.map(|restart| purpose(status, restart)).or_else(past)
}

fn past(entry: &Entry, now: Option<ServerTime>) -> String {
    let result: &str = entry.result.into();
    let took = entry.completed_at.since(entry.started_at).as_secs();
    let (ended, why) = (ago(entry.completed_at, now), cause(entry));
    format!("{result} {ended}  {} of {} in {took}s  {why}", entry.replaced, count(entry.pods, "pod"))
}

/// Returns what a restart was for.
fn cause(entry: &Entry) -> String {
    cause_of(entry.requested, &entry.sources)
}

/// Returns what the restart is for that is pending or under way.
pub(crate) fn purpose(status: &status::Status, restart: &Restart) -> String {
    let changed = status.changed();
    cause_of(changed.is_empty() && restart.request.is_some(), &changed)
}

fn cause_of(is_requested: bool, sources: &[SourceName]) -> String {
    if is_requested {
        return "a request".to_owned();
    }
    let mut names: Vec<String> = sources.iter().take(MAX_SOURCES_OF_ENTRY).map(ToString::to_string).collect();
    match names.len() {
        0 => names.push("a revert".to_owned()),
        MAX_SOURCES_OF_ENTRY => names.push("…".to_owned()),
        _ => {}
    }
    names.join(", ")
}
