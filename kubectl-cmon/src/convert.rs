//! `convert`: a suspended ConfigMonitor for each workload that Reloader or wave restarts.

mod reloader;

pub(crate) use self::reloader::CHECKSUM;

use std::collections::{BTreeMap, BTreeSet};

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::objects::DEPLOYMENTS;
use configmonitor_operator::kube::{CONFIG_MAPS, Resource};
use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::source::SourceName;
use serde_json::{Value, json};

use self::reloader::{Annotations, Settings, Workload};
use crate::ambassador::Ambassador;
use crate::create::{manifest, references, strategy};
use crate::manifests;
use crate::monitors::{Monitor, all, name_of};
use crate::options::{Access, Convert, WORKLOADS};
use crate::outcome::Failure;
use crate::request::SUSPENDED_AT;
use crate::text::{print, say_notes};

/// The label and the key of the ConfigMap in which Reloader says its settings.
const META_INFO: &str = "reloader.stakater.com/meta-info=reloader";
const SETTINGS: &str = "reloaderOptions";
const BATCH: [Resource; 2] = [
    Resource { api_version: "batch/v1", kind: "CronJob", plural: "cronjobs" },
    Resource { api_version: "batch/v1", kind: "Job", plural: "jobs" },
];

pub(crate) async fn run(access: &Access, ambassador: &Ambassador, convert: &Convert) -> Result<(), Failure> {
    let (settings, is_guess) = match settings(ambassador).await {
        Err(Error { cause: Cause::Forbidden(_), .. }) => (Ok(Settings::default()), true),
        answer => (answer?, false),
    };
    let settings = settings.map_err(|error| Failure::Failed(format!("Reloader's settings: {error}")))?;
    let namespace = &*ambassador.namespace;
    if settings.ignores(namespace) {
        return Err(Failure::Failed(format!(
            "Reloader ignores namespace {namespace:?}, so that there is nothing to convert"
        )));
    }
    let client = ambassador.client.within(&ambassador.namespace);
    let workloads = match &convert.filename {
        Some(file) => manifests::as_written(access, namespace, file).await?,
        None => listed(&client, WORKLOADS.iter().chain(&BATCH).copied(), false).await?,
    };
    let sources = [Kind::ConfigMap, Kind::Secret].map(Kind::resource);
    let sources = listed(&client, sources.into_iter(), true).await?;
    let mut names: BTreeSet<String> = Monitor::objects(&client).await?.items.iter().map(name_of).collect();
    let existing: BTreeMap<SourceName, Annotations> = sources.iter().chain(&workloads).filter_map(source).collect();
    let mut notes = settings.notes();
    notes.extend(is_guess.then(|| "Reloader's settings may not be read: its defaults count".to_owned()));
    for object in workloads {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let is_of = |resource: &&Resource| resource.kind == kind;
        let workload = WORKLOADS.iter().filter(|its| its.kind != "ReplicaSet").find(is_of);
        let template = &object["spec"]["template"];
        // What an owner has made has the annotations of the owner.
        if !object["metadata"]["ownerReferences"].is_null() {
            continue;
        }
        let Some(resource) = workload else {
            let of_cron_job = &object["spec"]["jobTemplate"]["spec"]["template"];
            let mut carriers = [&object, template, of_cron_job].into_iter().map(|carrier| &carrier["metadata"]);
            if source(&object).is_none() && carriers.any(|metadata| settings.mean(&annotations(metadata))) {
                let is_job = BATCH.iter().any(|resource| is_of(&resource));
                let other = "its kind is not converted: write a ConfigMonitor that selects the labels of its pods";
                notes.push(format!("{kind}/{name}: {}", if is_job { "pods of Jobs are not restarted" } else { other }));
            }
            continue;
        };
        let refers: BTreeSet<SourceName> = references(&template["spec"])?.into_iter().map(|(name, _)| name).collect();
        let workload = Workload {
            kind: resource.kind,
            namespace,
            annotations: annotations(&object["metadata"]),
            template_annotations: annotations(&template["metadata"]),
            is_paused: object["spec"]["paused"] == true,
            refers,
        };
        let conversion = settings.convert(&workload, &existing);
        notes.extend(conversion.notes.iter().map(|note| format!("{kind}/{name}: {note}")));
        if conversion.is_empty() {
            continue;
        }
        let selector = &object["spec"]["selector"];
        let mut fields = conversion.fields();
        fields.extend([
            ("podSelector", selector["matchLabels"].clone()),
            ("podSelectorExpressions", selector["matchExpressions"].clone()),
        ]);
        fields.extend(strategy(*resource, &object["spec"]));
        fields.push(("suspend", json!(true)));
        // As if `kubectl cmon suspend` had done it, so that `resume --all` finds it.
        let with_kind = format!("{name}-{}", kind.to_lowercase());
        let of_monitor = if names.contains(&name) { with_kind } else { name.clone() };
        if of_monitor != name {
            notes.push(format!("{kind}/{name}: its ConfigMonitor is {of_monitor}, as there is another {name}"));
        }
        print(format_args!("---\n{}", manifest(&of_monitor, &[(SUSPENDED_AT, "before the move")], &fields)))?;
        names.insert(of_monitor);
    }
    say_notes(&notes);
    Ok(())
}

/// Reads Reloader's settings: from its ConfigMap, or else from its arguments; and whether it sends alerts.
async fn settings(ambassador: &Ambassador) -> Result<serde_json::Result<Settings>, Error> {
    let said = Selection { labels: Some(META_INFO.to_owned()), ..all(CONFIG_MAPS) };
    let said = ambassador.client.list(&said, None, |object: Value| text(&object["data"][SETTINGS])).await?;
    let of_reloader = |deployment: Value| {
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
        containers.iter().find(|its| text(&its["image"]).contains("stakater/reloader")).cloned()
    };
    let deployments = ambassador.client.list(&all(DEPLOYMENTS), None, of_reloader).await?;
    let container = deployments.items.into_iter().flatten().next().unwrap_or_default();
    let settings = match said.items.first() {
        Some(said) => serde_json::from_str(said),
        None => {
            let arguments = container["args"].as_array().into_iter().flatten().map(text);
            Settings::of_arguments(&arguments.collect::<Vec<_>>())
        }
    };
    let mut env = container["env"].as_array().into_iter().flatten();
    let alerts = env.any(|variable| variable["name"] == "ALERT_ON_RELOAD" && variable["value"] == "true");
    Ok(settings.map(|mut settings| {
        settings.alerts = alerts;
        settings
    }))
}

/// Lists the objects of these resources.
async fn listed(
    client: &Client,
    resources: impl Iterator<Item = Resource>,
    metadata_only: bool,
) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    for resource in resources {
        // Objects of a list do not say their kind.
        let with_kind = |mut object: Value| {
            object["kind"] = resource.kind.into();
            object
        };
        let all = Selection { metadata_only, ..all(resource) };
        objects.extend(client.list(&all, None, with_kind).await?.items);
    }
    Ok(objects)
}

fn source(object: &Value) -> Option<(SourceName, Annotations)> {
    let kind = [Kind::ConfigMap, Kind::Secret].into_iter().find(|kind| object["kind"] == kind.resource().kind)?;
    let name = SourceName { kind, name: text(&object["metadata"]["name"]).into() };
    Some((name, annotations(&object["metadata"])))
}

fn annotations(metadata: &Value) -> Annotations {
    serde_json::from_value(metadata["annotations"].clone()).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
