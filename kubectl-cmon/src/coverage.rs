//! `coverage`: what no ConfigMonitor watches, and what more than one controller restarts.

use std::collections::{BTreeMap, BTreeSet};

use configmonitor_operator::monitor::source::SourceName;
use serde_json::{Value, json};

use crate::ambassador::Ambassador;
use crate::convert::CHECKSUM;
use crate::create::references;
use crate::monitors::{Monitor, all, name_of};
use crate::options::{Format, Search, WORKLOADS};
use crate::outcome::Failure;
use crate::text::{Node, count, pretty_json, print};

/// The beginnings of annotations by which other tools restart pods when content changes.
const OTHERS: [(&str, &str); 4] = [
    ("reloader.stakater.com/", "Reloader"),
    ("configmap.reloader.stakater.com/", "Reloader"),
    ("secret.reloader.stakater.com/", "Reloader"),
    ("wave.pusher.com/", "wave"),
];
/// The ends of annotations that these tools write in pod templates.
const WRITTEN: [&str; 2] = ["/last-reloaded-from", "/config-hash"];

/// A workload with what its pods refer to.
struct Workload {
    name: String,
    labels: BTreeMap<String, String>,
    sources: Vec<SourceName>,
    /// What else restarts it.
    others: BTreeSet<String>,
}

/// An object, and what was found.
struct About {
    object: String,
    findings: Vec<String>,
}

pub(crate) async fn run(ambassador: &Ambassador, search: &Search) -> Result<(), Failure> {
    let client = ambassador.client_for(search.all_namespaces);
    let mut namespaces: BTreeMap<String, (Vec<Workload>, Vec<Monitor>)> = BTreeMap::new();
    for resource in WORKLOADS {
        let listed = client.list(&all(resource), None, |object: Value| object).await?;
        // What a Deployment owns is the Deployment's.
        let own = listed.items.iter().filter(|object| object["metadata"]["ownerReferences"].is_null());
        for object in own {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            namespaces.entry(namespace).or_default().0.push(Workload::of(resource.kind, object)?);
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
    fn of(kind: &str, object: &Value) -> Result<Self, Failure> {
        let template = &object["spec"]["template"];
        let labels = serde_json::from_value(template["metadata"]["labels"].clone()).unwrap_or_default();
        let sources = references(&template["spec"])?.into_iter().map(|(name, _)| name).collect();
        // What is off counts for nothing, and neither does what the tools write themselves.
        let keys = |metadata: &Value| {
            let annotations = metadata["annotations"].as_object().into_iter().flatten();
            let on =
                annotations.filter(|(key, value)| *value != "false" && !WRITTEN.iter().any(|end| key.ends_with(end)));
            on.map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        let (own, of_template) = (keys(&object["metadata"]), keys(&template["metadata"]));
        let by_tool = own.iter().chain(&of_template).filter_map(|key| {
            let (_, tool) = OTHERS.iter().find(|(beginning, _)| key.starts_with(beginning))?;
            Some(format!("{tool}, by the annotation {key}"))
        });
        let by_chart = of_template.iter().filter(|key| key.starts_with(CHECKSUM));
        let by_chart = by_chart.map(|key| format!("its chart, by the annotation {key} of the pod template"));
        let others = by_tool.chain(by_chart).collect();
        Ok(Self { name: format!("{kind}/{}", name_of(object)), labels, sources, others })
    }
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
