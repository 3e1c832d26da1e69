//! `convert`: a suspended ConfigMonitor for each workload that Reloader or wave restarts.
//!
//! Pods say themselves to what they refer, so `discover` stands for most annotations. Names are taken over, and the rest is said in
//! notes. From Reloader's `pkg/common/common.go` at 655a2b38, and wave's README at b4e8d70c.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use configmonitor_operator::kube::Resource;
use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::spec::Policy;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::ambassador::Ambassador;
use crate::create::{Fields, NO_SURGE, manifest, references, strategy};
use crate::documents::{self, Document};
use crate::monitors::{Labels, Monitor, all, labels_of, name_of};
use crate::options::{Access, Convert, WORKLOADS};
use crate::outcome::Failure;
use crate::request::SUSPENDED_AT;
use crate::restarters::{Annotations, annotations, is_made_by_its_owner, marks, mention, tool};
use crate::text::{print, say_notes};

const KINDS: [(Kind, &str); 2] = [(Kind::ConfigMap, "configmap"), (Kind::Secret, "secret")];
/// As the schema allows.
const MAX_SOURCES: usize = 16;
const BATCH: [Resource; 2] = [
    Resource { api_version: "batch/v1", kind: "CronJob", plural: "cronjobs" },
    Resource { api_version: "batch/v1", kind: "Job", plural: "jobs" },
];
/// Annotations that make each referenced object count.
const AUTOMATIC: [&str; 3] =
    ["reloader.stakater.com/auto", "reloader.stakater.com/search", "wave.pusher.com/update-on-config-change"];
const RENDER: &str = "render it first (helm template, kustomize build), and convert what comes of it";
/// What becomes of other annotations, by parts of their keys.
const NOTES: [(&str, &str); 6] = [
    ("/extra-", "add to sources each object that the pods do not refer to"),
    ("/search", "the ConfigMonitor discovers all that the pods refer to: exclude what does not count"),
    ("/pause-period", "set quietPeriodSeconds, at most 3600"),
    ("/paused-at", "what Reloader has paused, nobody else resumes: kubectl rollout resume"),
    ("/rollout-strategy", "pods are deleted, whatever it says"),
    ("secretproviderclass", "what the Secrets Store CSI driver mounts is no source"),
];

pub(crate) async fn run(access: &Access, ambassador: &Ambassador, convert: &Convert) -> Result<(), Failure> {
    let documents = match &convert.filename {
        Some(file) => documents::read(file).await?,
        None => listed(&ambassador.client.within(&ambassador.namespace)).await?,
    };
    let surges = convert.surge || ambassador.surges().await?;
    let mut monitors: BTreeMap<String, Vec<(String, Policy)>> = BTreeMap::new();
    let (mut notes, mut leaves_out) = (Vec::new(), false);
    for Document { place, object } in documents {
        let object = match object {
            Ok(object) => object,
            Err(why) => {
                notes.push(format!("{place}: skipped: {why}"));
                continue;
            }
        };
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), name_of(&object));
        // What was listed says its namespace, too.
        let own = object["metadata"]["namespace"].as_str().filter(|_| convert.filename.is_some());
        let own = own.or(access.namespace.as_deref());
        let namespace = own.unwrap_or(&ambassador.namespace);
        let about = match own.filter(|own| access.namespace.as_deref() != Some(own)) {
            _ if name.is_empty() => place,
            Some(own) => format!("{kind}/{name} in {own}"),
            None => format!("{kind}/{name}"),
        };
        let converted = Conversion::of(&object, surges);
        let Conversion { monitor, notes: more } =
            converted.unwrap_or_else(|why| Conversion { monitor: None, notes: vec![why] });
        notes.extend(more.into_iter().map(|note| format!("{about}: {note}")));
        let Some(Converted { policy, fields, labels, lacks_surge }) = monitor else { continue };
        let known = match monitors.entry(namespace.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(existing(ambassador, namespace, &mut notes).await?),
        };
        if let Some((other, _)) = known.iter().find(|(_, policy)| policy.selector.matches(&labels)) {
            notes.push(format!("{about}: ConfigMonitor/{other} selects its pods already"));
            continue;
        }
        let is_taken = known.iter().any(|(known, _)| *known == name);
        let of_monitor = if is_taken { format!("{name}-{}", kind.to_lowercase()) } else { name };
        // As if `kubectl cmon suspend` had done it, so that `resume --all` finds it.
        let annotations = [(SUSPENDED_AT, "before the move")];
        print(format_args!("---\n{}", manifest(&of_monitor, own, &annotations, &fields)))?;
        known.push((of_monitor, policy));
        leaves_out |= lacks_surge;
    }
    if leaves_out {
        notes.push(format!("maxSurge is {NO_SURGE}"));
    }
    if notes.is_empty() && monitors.is_empty() {
        notes.push("no workload is to be converted".to_owned());
    }
    say_notes(&notes);
    Ok(())
}

/// Returns the ConfigMonitors of a namespace. The CustomResourceDefinition may come later.
async fn existing(
    ambassador: &Ambassador,
    namespace: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, Policy)>, Failure> {
    let known = match Monitor::all(&ambassador.client.within(&namespace.into())).await {
        Ok(known) => known,
        Err(error @ Error { cause: Cause::Forbidden(_) | Cause::NoSuchResource, .. }) => {
            notes.push(format!("{error}: see that no pods get a second ConfigMonitor"));
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    Ok(known.into_iter().filter_map(|its| Some((its.metadata.name.to_string(), its.policy.ok()?))).collect())
}

/// Lists what may have annotations.
async fn listed(client: &Client) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    for resource in WORKLOADS.into_iter().chain(BATCH) {
        // Objects of a list do not say their kind.
        let with_kind = |mut object: Value| {
            object["kind"] = resource.kind.into();
            Document { place: resource.plural.to_owned(), object: Ok(object) }
        };
        documents.extend(client.list(&all(resource), None, with_kind).await?.items);
    }
    Ok(documents)
}

/// What becomes of an object.
#[derive(Debug, Default)]
struct Conversion {
    monitor: Option<Converted>,
    /// What no ConfigMonitor does, or does otherwise.
    notes: Vec<String>,
}

/// A ConfigMonitor for a workload.
#[derive(Debug)]
struct Converted {
    policy: Policy,
    /// The fields of its spec.
    fields: Fields,
    /// The labels of the pods.
    labels: Labels,
    /// Whether maxSurge is left out.
    lacks_surge: bool,
}

impl Conversion {
    /// # Errors
    /// Why it cannot be converted.
    fn of(object: &Value, surges: bool) -> Result<Self, String> {
        let kind = object["kind"].as_str().unwrap_or_default();
        // A ConfigMap may hold any text, and what a source has as annotations is for `search`.
        if KINDS.iter().any(|(source, _)| source.resource().kind == kind) || is_made_by_its_owner(object) {
            return Ok(Self::default());
        }
        let Some(mention) = mention(object) else { return Ok(Self::default()) };
        if BATCH.iter().any(|resource| resource.kind == kind) {
            return Err("pods of Jobs are not restarted".to_owned());
        }
        let (spec, template) = (&object["spec"], &object["spec"]["template"]);
        // The template's count only if the workload has none.
        let carriers = [&object["metadata"], &template["metadata"]].map(annotations);
        let found = carriers.into_iter().find(|its| its.keys().any(|key| tool(key).is_some()));
        let Some(annotations) = found.filter(|_| template["spec"]["containers"].is_array()) else {
            return Err(format!("it has {mention}, but is not a complete workload: {RENDER}"));
        };
        if !object["metadata"]["name"].is_string() {
            return Err("quote its metadata.name, which is no text".to_owned());
        }
        let refers = references(&template["spec"]).map_err(|error| format!("its pod template: {error}"))?;
        let refers: BTreeSet<SourceName> = refers.into_iter().map(|(name, _)| name).collect();
        let mut notes: Vec<String> = annotations.keys().filter_map(|key| note(key)).collect();
        let mut fields = sources(&annotations, &refers, &mut notes);
        if fields.is_empty() {
            return Ok(Self { monitor: None, notes });
        }
        let selector = &spec["selector"];
        let labels = if kind == "ReplicationController" { selector } else { &selector["matchLabels"] };
        fields.extend([
            ("podSelector", labels.clone()),
            ("podSelectorExpressions", selector["matchExpressions"].clone()),
        ]);
        let (strategy, lacks_surge) = strategy(kind, spec, surges);
        fields.extend(strategy);
        fields.push(("suspend", json!(true)));
        fields.retain(|(_, value)| !value.is_null());
        let of_fields: BTreeMap<_, _> = fields.iter().cloned().collect();
        let policy = Policy::of(to_raw_value(&of_fields).ok().as_deref());
        let policy = policy.map_err(|why| format!("write its ConfigMonitor by hand: {why}"))?;
        let marks = marks(template)
            .into_iter()
            .map(|key| format!("its pods restart, too, when the annotation {key} of the pod template changes"));
        notes.extend(marks);
        if spec["updateStrategy"]["type"] == "OnDelete" {
            notes
                .push("its strategy is OnDelete, by which no edit has replaced its pods: this deletes them".to_owned());
        }
        let labels = labels_of(&template["metadata"]);
        Ok(Self { monitor: Some(Converted { policy, fields, labels, lacks_surge }), notes })
    }
}

fn note(key: &str) -> Option<String> {
    tool(key)?;
    let (_, what) = NOTES.iter().find(|(part, _)| key.contains(part))?;
    Some(format!("{key}: {what}"))
}

/// Returns the fields of the spec that say which content counts.
fn sources(annotations: &Annotations, refers: &BTreeSet<SourceName>, notes: &mut Vec<String>) -> Fields {
    let is_on =
        |key: &str| annotations.get(key).is_some_and(|value| ["1", "t", "true"].contains(&&*value.to_lowercase()));
    let words = |key: String| words(annotations.get(&key).map_or("", String::as_str));
    let (mut kinds, mut named, mut exclude) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (kind, word) in KINDS {
        let (names, patterns): (Vec<&str>, Vec<&str>) =
            words(format!("{word}.reloader.stakater.com/reload")).partition(|word| is_name(word));
        if !patterns.is_empty() {
            let patterns = patterns.join(",");
            notes.push(format!("{patterns:?} is a pattern: the ConfigMonitor discovers all that the pods refer to"));
        }
        let is_automatic = AUTOMATIC.into_iter().any(is_on) || is_on(&format!("{word}.reloader.stakater.com/auto"));
        if is_automatic || !patterns.is_empty() {
            kinds.insert(kind);
        }
        named.extend(names.into_iter().map(|name| SourceName { kind, name: name.into() }));
        let excluded = words(format!("{word}s.exclude.reloader.stakater.com/reload")).filter(|word| is_name(word));
        exclude.extend(excluded.map(|name| json!({"kind": kind, "name": name})));
    }
    if named.len() > MAX_SOURCES {
        let number = named.len();
        notes.push(format!("it names {number} objects: the ConfigMonitor discovers those to which the pods refer"));
        kinds.extend(std::mem::take(&mut named).into_iter().map(|name| name.kind));
    }
    named.retain(|name| !(kinds.contains(&name.kind) && refers.contains(name)));
    let unreferred = named.iter().filter(|name| !refers.contains(name));
    notes.extend(
        unreferred.map(|name| format!("{name} is named, but its pods do not refer to it: check that it exists")),
    );
    // A name of an object that does not exist restarts nothing there, and holds up nothing here.
    let entry = |SourceName { kind, name }: &SourceName| {
        let field = if *kind == Kind::Secret { "secret" } else { "configMap" };
        json!({field: {"name": name, "optional": true}})
    };
    let mut fields = Fields::new();
    if !named.is_empty() {
        fields.push(("sources", named.iter().map(entry).collect()));
    }
    if !kinds.is_empty() {
        let mut discover = json!({"kinds": kinds});
        if !exclude.is_empty() {
            discover["exclude"] = exclude.into();
        }
        fields.push(("discover", discover));
    }
    fields
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// Returns whether this is a name, and no pattern.
fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: &str = "reloader.stakater.com/auto";
    const NAMED: &str = "configmap.reloader.stakater.com/reload";
    const WAVE: &str = "wave.pusher.com/update-on-config-change";

    /// A Deployment that refers to the ConfigMap `app` and the Secret `token`.
    fn deployment(annotations: &Value) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {"name": "shop", "namespace": "ns", "annotations": annotations},
            "spec": {
                "selector": {"matchLabels": {"app": "shop"}},
                "template": {"metadata": {"labels": {"app": "shop"}}, "spec": {
                    "containers": [{"envFrom": [{"configMapRef": {"name": "app"}}, {"secretRef": {"name": "token"}}], "env": null}],
                }},
            },
        })
    }

    fn converted(annotations: &Value) -> Conversion {
        Conversion::of(&deployment(annotations), false).unwrap()
    }

    /// Returns a field of the spec, and the number of notes.
    fn field(annotations: &Value, name: &str) -> (Value, usize) {
        let Conversion { monitor, notes } = converted(annotations);
        let fields = monitor.map_or_else(Vec::new, |monitor| monitor.fields);
        (fields.into_iter().find(|(field, _)| *field == name).map(|(_, value)| value).unwrap_or_default(), notes.len())
    }

    #[test]
    fn what_is_automatic_is_discovered_and_names_are_taken_over() {
        let both = json!({"kinds": ["ConfigMap", "Secret"]});
        for annotation in [AUTO, WAVE, "reloader.stakater.com/search"] {
            assert_eq!(field(&json!({annotation: "true"}), "discover").0, both, "{annotation}");
        }
        assert_eq!(
            field(&json!({"secret.reloader.stakater.com/auto": "true"}), "discover").0,
            json!({"kinds": ["Secret"]})
        );
        let excluding = json!({AUTO: "true", "secrets.exclude.reloader.stakater.com/reload": "token"});
        assert_eq!(field(&excluding, "discover").0["exclude"], json!([{"kind": "Secret", "name": "token"}]));
        let entry = |name: &str| json!({"configMap": {"name": name, "optional": true}});
        assert_eq!(field(&json!({NAMED: "app"}), "sources"), (json!([entry("app")]), 0));
        assert_eq!(
            field(&json!({NAMED: "app, gone"}), "sources"),
            (json!([entry("app"), entry("gone")]), 1),
            "it may not exist"
        );
        assert_eq!(field(&json!({NAMED: "app-.*"}), "discover"), (json!({"kinds": ["ConfigMap"]}), 1));
        let extra = json!({WAVE: "true", "wave.pusher.com/extra-configmaps": "ns/more,own,else/where,app"});
        assert_eq!(field(&extra, "sources"), (json!(null), 1));
        let many: Vec<String> = (0..17).map(|number| format!("c{number}")).collect();
        assert_eq!(field(&json!({NAMED: many.join(",")}), "discover"), (json!({"kinds": ["ConfigMap"]}), 1));
    }

    #[test]
    fn what_restarts_nothing_becomes_no_config_monitor_and_what_is_left_out_is_said() {
        let said = |annotations: &Value| {
            let Conversion { monitor, notes } = converted(annotations);
            (monitor.is_some(), notes.len())
        };
        assert_eq!(said(&json!({})), (false, 0));
        assert_eq!(said(&json!({AUTO: "false"})), (false, 0));
        assert_eq!(said(&json!({"deployment.reloader.stakater.com/pause-period": "5m"})), (false, 1));
        assert_eq!(said(&json!({"secretproviderclass.reloader.stakater.com/auto": "true"})), (false, 1));
        assert_eq!(said(&json!({AUTO: "true", "deployment.reloader.stakater.com/pause-period": "5m"})), (true, 1));
        let mut marked = deployment(&json!({AUTO: "true"}));
        marked["spec"]["template"]["metadata"]["annotations"] = json!({"checksum/config": "5e1f"});
        marked["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
        assert_eq!(Conversion::of(&marked, false).unwrap().notes.len(), 2);
    }

    #[test]
    fn what_is_no_workload_as_a_whole_is_named_with_what_to_do() {
        let why = |change: &dyn Fn(&mut Value)| {
            let mut object = deployment(&json!({AUTO: "true"}));
            change(&mut object);
            Conversion::of(&object, false).map(|conversion| conversion.monitor.is_some())
        };
        assert_eq!(why(&|_| {}), Ok(true));
        assert!(why(&|patch| patch["spec"] = Value::Null).unwrap_err().contains("helm template"));
        assert!(why(&|patch| patch["spec"]["template"] = Value::Null).unwrap_err().contains("helm template"));
        let release = json!({"kind": "HelmRelease", "spec": {"values": {"podAnnotations": {AUTO: "true"}}}});
        assert!(why(&|object| *object = release.clone()).unwrap_err().contains("spec.values.podAnnotations"));
        assert!(
            why(&|pods| pods["spec"]["template"]["spec"]["containers"] = json!([{"env": 1}]))
                .unwrap_err()
                .contains("pod template")
        );
        assert!(
            why(&|all| all["spec"]["selector"] = json!({"matchExpressions": []})).unwrap_err().contains("podSelector")
        );
        assert!(why(&|object| object["metadata"]["name"] = 12.into()).unwrap_err().contains("metadata.name"));
        assert!(why(&|job| job["kind"] = "CronJob".into()).unwrap_err().contains("Jobs"));
        let owned_by = |kind: &'static str| {
            move |object: &mut Value| object["metadata"]["ownerReferences"] = json!([{"kind": kind}])
        };
        assert_eq!((why(&owned_by("Deployment")), why(&owned_by("Keycloak"))), (Ok(false), Ok(true)));
    }

    #[test]
    fn annotations_of_the_template_count_if_the_workload_has_none() {
        let mut object = deployment(&json!({}));
        object["spec"]["template"]["metadata"]["annotations"] = json!({AUTO: "true"});
        assert!(Conversion::of(&object, false).unwrap().monitor.is_some());
        object["metadata"]["annotations"] = json!({AUTO: "false"});
        assert!(Conversion::of(&object, false).unwrap().monitor.is_none());
    }
}
