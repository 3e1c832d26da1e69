//! `coverage`: what no ConfigMonitor watches, and what more than one controller restarts.

use std::collections::BTreeMap;

use configmonitor_operator::kube::{PODS, Resource};
use configmonitor_operator::monitor::source::SourceName;
use serde_json::{Value, json};

use crate::ambassador::Ambassador;
use crate::create::references;
use crate::monitors::{Monitor, all, name_of};
use crate::options::{Format, Search, WORKLOADS};
use crate::outcome::Failure;
use crate::restarters::{is_made_by_its_owner, others};
use crate::text::{Node, count, pretty_json, print};

const REPLICATION_CONTROLLERS: Resource =
    Resource { api_version: "v1", kind: "ReplicationController", plural: "replicationcontrollers" };
/// The API groups whose objects are listed, or whose pods run to completion.
const LISTED: [&str; 3] = ["apps/v1", "batch/v1", "v1"];

/// A workload with what its pods refer to.
struct Workload {
    name: String,
    labels: BTreeMap<String, String>,
    sources: Vec<SourceName>,
    /// What else restarts it.
    others: Vec<String>,
}

/// An object, and what was found.
struct About {
    object: String,
    findings: Vec<String>,
}

pub(crate) async fn run(ambassador: &Ambassador, search: &Search) -> Result<(), Failure> {
    let client = ambassador.client_for(search.all_namespaces);
    let mut namespaces: BTreeMap<String, (Vec<Workload>, Vec<Monitor>)> = BTreeMap::new();
    for resource in WORKLOADS.into_iter().chain([REPLICATION_CONTROLLERS]) {
        let listed = client.list(&all(resource), None, |object: Value| object).await?;
        for object in listed.items.iter().filter(|object| !is_made_by_its_owner(object)) {
            let name = format!("{}/{}", resource.kind, name_of(object));
            namespaces.entry(namespace_of(object)).or_default().0.push(Workload::of(name, object)?);
        }
    }
    // The controller of a custom resource may create pods by itself. One of them stands for all.
    for pod in client.list(&all(PODS), None, |pod: Value| pod).await?.items {
        let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let Some(owner) = owners.find(|owner| owner["controller"] == true) else { continue };
        let name = format!("{}/{}", text(&owner["kind"]), text(&owner["name"]));
        let its = &mut namespaces.entry(namespace_of(&pod)).or_default().0;
        if !LISTED.contains(&text(&owner["apiVersion"])) && its.iter().all(|workload| workload.name != name) {
            its.push(Workload::of(name, &json!({"spec": {"template": pod}}))?);
        }
    }
    for monitor in Monitor::all(&client).await? {
        namespaces.entry(monitor.metadata.namespace.clone()).or_default().1.push(monitor);
    }
    let (mut objects, mut nodes) = (Vec::new(), Vec::new());
    for (namespace, (workloads, monitors)) in &namespaces {
        let found = findings(workloads, monitors);
        objects.extend(
            found.iter().map(
                |About { object, findings }| json!({"namespace": namespace, "object": object, "findings": findings}),
            ),
        );
        let its = found.into_iter().map(|about| Node::with(about.object, about.findings.into_iter().map(Node::leaf)));
        match search.all_namespaces {
            true => nodes.extend(Some(Node::with(format!("Namespace/{namespace}"), its)).filter(Node::has_parts)),
            false => nodes.extend(its),
        }
    }
    match search.output {
        Some(Format::Json) => print(pretty_json(&Value::Array(objects))),
        None if nodes.is_empty() => {
            let workloads = namespaces.values().map(|(workloads, _)| workloads.len()).sum();
            print(format_args!("each source of {} is watched once\n", count(workloads, "workload")))
        }
        None => print(nodes.iter().map(ToString::to_string).collect::<String>()),
    }
}

impl Workload {
    fn of(name: String, object: &Value) -> Result<Self, Failure> {
        let template = &object["spec"]["template"];
        let labels = serde_json::from_value(template["metadata"]["labels"].clone()).unwrap_or_default();
        let sources = references(&template["spec"])?.into_iter().map(|(name, _)| name).collect();
        Ok(Self { name, labels, sources, others: others(object) })
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn namespace_of(object: &Value) -> String {
    text(&object["metadata"]["namespace"]).to_owned()
}

fn findings(workloads: &[Workload], monitors: &[Monitor]) -> Vec<About> {
    let selects = |monitor: &Monitor, workload: &Workload| {
        monitor.policy.as_ref().is_ok_and(|policy| policy.selector.matches(&workload.labels))
    };
    // There may be no pod yet that shows what is discovered.
    let watches = |monitor: &Monitor, source: &SourceName| {
        monitor.has(source) || monitor.policy.as_ref().is_ok_and(|policy| policy.may_discover(source))
    };
    let mut found = Vec::new();
    for workload in workloads {
        let its: Vec<&Monitor> = monitors.iter().filter(|monitor| selects(monitor, workload)).collect();
        let unwatched = workload.sources.iter().filter(|source| !its.iter().any(|monitor| watches(monitor, source)));
        let mut findings: Vec<String> = unwatched.map(|source| format!("{source} is not watched")).collect();
        if its.len() > 1 {
            let names: Vec<&str> = its.iter().map(|monitor| &*monitor.metadata.name).collect();
            findings.push(format!("selected by {}", names.join(", ")));
        }
        if !its.is_empty() {
            findings.extend(workload.others.iter().map(|other| format!("also restarted by {other}")));
        }
        found.push(About { object: workload.name.clone(), findings });
    }
    for monitor in monitors {
        let selected: Vec<&Workload> = workloads.iter().filter(|workload| selects(monitor, workload)).collect();
        let is_referred = |source: &SourceName| selected.iter().any(|workload| workload.sources.contains(source));
        let named = monitor.policy.iter().flat_map(|policy| &policy.sources).map(|source| &source.name);
        let unreferred = named.filter(|source| !is_referred(source));
        let mut findings: Vec<String> =
            unreferred.map(|source| format!("no selected workload refers to {source}")).collect();
        if selected.is_empty() {
            findings = vec!["selects the pods of no workload".to_owned()];
        }
        found.push(About { object: format!("ConfigMonitor/{}", monitor.metadata.name), findings });
    }
    found.retain(|about| !about.findings.is_empty());
    found
}
