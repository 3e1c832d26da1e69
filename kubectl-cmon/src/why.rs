//! `why`: which restart a pod comes from, and which one it is in.

use std::collections::BTreeMap;
use std::sync::Arc;

use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::{PODS, Resource, ServerTime};
use configmonitor_operator::monitor::status::Entry;
use serde::Deserialize;
use serde_json::Value;

use crate::ambassador::Ambassador;
use crate::monitors::{Monitor, all};
use crate::options::{WORKLOADS, Why};
use crate::outcome::Failure;
use crate::plan::look_ahead;
use crate::shadow::Premise;
use crate::status::cause;
use crate::text::{Node, ago, print};
use crate::verdict::{message, reason};

#[derive(Deserialize)]
struct Labelled {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    creation_timestamp: Option<ServerTime>,
}

pub(crate) async fn run(ambassador: &Ambassador, why: &Why) -> Result<(), Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let name = &why.pod;
    let (labels, created, line) = match client.get::<Labelled>(PODS, name).await {
        Ok(pod) => {
            let Metadata { labels, creation_timestamp } = pod.value.metadata;
            (labels, creation_timestamp, format!("Pod/{name}"))
        }
        Err(Error { cause: Cause::NotFound(_), .. }) => {
            let (owner, labels) = owner_of(ambassador, name).await?;
            (labels, None, format!("Pod/{name}  does not exist; by its name it was one of {owner}"))
        }
        Err(error) => return Err(error.into()),
    };
    let listed = Monitor::objects(&client).await?;
    let own_pod = ambassador.operator().await?;
    let mut nodes = Vec::new();
    for object in listed.items {
        let monitor: Monitor = Monitor::of(&object)?;
        let Ok(policy) = &monitor.policy else { continue };
        if !policy.selector.matches(&labels) {
            continue;
        }
        let status = monitor.status.unwrap_or_default();
        let mut parts: Vec<Node> = status
            .history
            .iter()
            .filter(|entry| is_of(entry, created))
            .map(|entry| {
                let when = ago(entry.started_at, Some(listed.at));
                let line = match created {
                    Some(_) => format!(
                        "created during its restart {when} for {}, which replaced {} of {} pods",
                        cause(entry),
                        entry.replaced,
                        entry.pods
                    ),
                    None => {
                        format!(
                            "its restart {when} for {} replaced {} of {} pods",
                            cause(entry),
                            entry.replaced,
                            entry.pods
                        )
                    }
                };
                Node::leaf(line)
            })
            .collect();
        if created.is_some() {
            let premise = Premise {
                namespace: Arc::clone(&ambassador.namespace),
                monitor: object,
                objects: BTreeMap::new(),
                own_pod: own_pod.clone(),
                now: listed.at,
            };
            let outlook = look_ahead(ambassador.way(), monitor.metadata.name.to_string(), premise, false).await?;
            parts.push(Node::leaf(match outlook.place_of(name) {
                Some(place) => format!("{place}: {}", message(&outlook.status)),
                None => format!("stays: {}", reason(&outlook.status)),
            }));
        }
        nodes.push(Node::with(format!("ConfigMonitor/{}", monitor.metadata.name), parts));
    }
    if nodes.is_empty() {
        nodes.push(Node::leaf("no ConfigMonitor selects it".to_owned()));
    }
    print(Node::with(line, nodes))
}

/// Returns whether a pod of this time may be a successor in the restart; each restart, if the pod is gone.
fn is_of(entry: &Entry, created: Option<ServerTime>) -> bool {
    created.is_none_or(|created| (entry.started_at..=entry.completed_at).contains(&created))
}

/// Returns the workload with the longest name that begins the name of the pod, and the labels of its pods.
async fn owner_of(ambassador: &Ambassador, pod: &str) -> Result<(String, BTreeMap<String, String>), Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let mut owners = Vec::new();
    for resource in WORKLOADS {
        let named = client.list(&all(resource), None, |object: Value| (resource, object)).await?;
        let is_it = |(_, object): &(Resource, Value)| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            pod.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
        };
        owners.extend(named.items.into_iter().filter(is_it));
    }
    let longest = owners.into_iter().max_by_key(|(_, object)| object["metadata"]["name"].as_str().map(str::len));
    let Some((resource, object)) = longest else {
        return Err(Failure::Failed(format!("there is no pod {pod:?}, and no workload whose pods have such names")));
    };
    let labels = serde_json::from_value(object["spec"]["template"]["metadata"]["labels"].clone()).unwrap_or_default();
    Ok((format!("{}/{}", resource.kind, object["metadata"]["name"].as_str().unwrap_or_default()), labels))
}
