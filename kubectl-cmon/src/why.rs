//! `why`: which restart a pod comes from, and which one it is in.

use std::collections::BTreeMap;
use std::sync::Arc;

use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::{PODS, Resource, ServerTime};
use configmonitor_operator::monitor::status::{Entry, Status};
use serde_json::{Value, json};

use crate::ambassador::Ambassador;
use crate::conditions::{message, reason};
use crate::monitors::{Labels, Monitor, all, labels_of, name_of};
use crate::options::{Format, WORKLOADS, Why};
use crate::outcome::Failure;
use crate::plan::look_ahead;
use crate::shadow::Premise;
use crate::status::{cause, purpose, source_line};
use crate::text::{Node, ago, count, pretty_json, print};

pub(crate) async fn run(ambassador: &Ambassador, why: &Why) -> Result<(), Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let name = &why.pod;
    let (labels, created, line) = match client.get::<Value>(PODS, name).await {
        Ok(pod) => {
            let metadata = &pod.value["metadata"];
            let created = serde_json::from_value(metadata["creationTimestamp"].clone()).ok();
            (labels_of(metadata), created, format!("Pod/{name}"))
        }
        Err(Error { cause: Cause::NotFound(_), .. }) => {
            let (owner, labels) = owner_of(ambassador, name).await?;
            (labels, None, format!("Pod/{name}  does not exist; by its name it was one of {owner}"))
        }
        Err(error) => return Err(error.into()),
    };
    let listed = Monitor::objects(&client).await?;
    let own_pod = ambassador.operator(&ambassador.namespace).await?;
    let (mut nodes, mut objects) = (Vec::new(), Vec::new());
    for object in listed.items {
        let monitor: Monitor = Monitor::of(&object)?;
        let Ok(policy) = &monitor.policy else { continue };
        if !policy.selector.matches(&labels) {
            continue;
        }
        let of = monitor.metadata.name.to_string();
        let status = monitor.status.unwrap_or_default();
        let restarts = restarts(&status, created, listed.at);
        let next = match created {
            Some(_) => {
                let premise = Premise {
                    namespace: Arc::clone(&ambassador.namespace),
                    monitor: object,
                    objects: BTreeMap::new(),
                    own_pod: own_pod.clone(),
                    now: listed.at,
                };
                let outlook = look_ahead(ambassador.way(), of.clone(), premise, false).await?;
                Some(match outlook.place_of(name) {
                    Some(place) => format!("{place}: {}", message(&outlook.status)),
                    None => format!("stays: {}", reason(&outlook.status)),
                })
            }
            None => None,
        };
        objects.push(json!({"name": of, "restarts": restarts, "next": next}));
        let changed = status.sources.iter().filter(|source| !source.changes.is_empty());
        let changed = changed.map(|source| source_line(source, Some(listed.at)));
        let lines = restarts.into_iter().chain(changed).chain(next);
        nodes.push(Node::with(format!("ConfigMonitor/{of}"), lines.map(Node::leaf)));
    }
    if why.output == Some(Format::Json) {
        return print(pretty_json(&json!({"pod": name, "exists": created.is_some(), "configMonitors": objects})));
    }
    if nodes.is_empty() {
        nodes.push(Node::leaf("no ConfigMonitor selects it".to_owned()));
    }
    print(Node::with(line, nodes))
}

/// Says which restarts a pod of this time may come from; all of them, if the pod is gone.
fn restarts(status: &Status, created: Option<ServerTime>, now: ServerTime) -> Vec<String> {
    let when = |at: ServerTime| ago(at, Some(now));
    let which = if created.is_some() { "created during its restart" } else { "its restart" };
    let under_way = status.restart.as_ref().and_then(|restart| Some((restart, restart.begun.as_ref()?)));
    let under_way = under_way.filter(|(_, begun)| created.is_none_or(|created| created >= begun.started_at));
    let under_way = under_way.map(|(restart, begun)| {
        let (began, pods) = (when(begun.started_at), count(begun.pods, "pod"));
        let replaced = begun.pods.saturating_sub(begun.remaining);
        let cause = purpose(status, restart);
        format!("{which} for {cause}, which began {began} and has replaced {replaced} of {pods} so far")
    });
    let past = status.history.iter().filter(|entry| is_of(entry, created)).map(|entry| {
        let (began, cause, pods) = (when(entry.started_at), cause(entry), count(entry.pods, "pod"));
        format!("{which} {began} for {cause}, which replaced {} of {pods}", entry.replaced)
    });
    under_way.into_iter().chain(past).collect()
}

/// Returns whether a pod of this time may be a successor in the restart; each restart, if the pod is gone.
fn is_of(entry: &Entry, created: Option<ServerTime>) -> bool {
    created.is_none_or(|created| (entry.started_at..=entry.completed_at).contains(&created))
}

/// Returns the workload with the longest name that begins the name of the pod, and the labels of its pods.
async fn owner_of(ambassador: &Ambassador, pod: &str) -> Result<(String, Labels), Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let mut owners = Vec::new();
    for resource in WORKLOADS {
        let named = client.list(&all(resource), None, |object: Value| (resource, object)).await?;
        let is_it = |(_, object): &(Resource, Value)| {
            pod.strip_prefix(&*name_of(object)).is_some_and(|rest| rest.starts_with('-'))
        };
        owners.extend(named.items.into_iter().filter(is_it));
    }
    let longest = owners.into_iter().max_by_key(|(_, object)| name_of(object).len());
    let Some((resource, object)) = longest else {
        return Err(Failure::Failed(format!("there is no pod {pod:?}, and no workload whose pods have such names")));
    };
    Ok((format!("{}/{}", resource.kind, name_of(&object)), labels_of(&object["spec"]["template"]["metadata"])))
}
