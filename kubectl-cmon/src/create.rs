//! `create`: a ConfigMonitor for a workload, or for a release, as text for `kubectl apply`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use configmonitor_operator::kube::references::{References, Referred};
use configmonitor_operator::monitor::CONFIG_MONITORS;
use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::options::DISCOVER_EXCLUDE;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::ambassador::Ambassador;
use crate::monitors::name_of;
use crate::options::{Access, Create};
use crate::outcome::Failure;
use crate::text::{compact_json, print, say_notes};

pub(crate) const NO_SURGE: &str = "left out, as no operator is seen that hands pods over: --surge adds it";

/// The fields of a spec.
pub(crate) type Fields = Vec<(&'static str, Value)>;

/// What is read of an object, over all of a pod's references to it.
pub(crate) struct Read {
    is_optional: bool,
    /// None: the whole object.
    keys: Option<BTreeSet<String>>,
}

pub(crate) async fn run(access: &Access, ambassador: &Ambassador, create: &Create) -> Result<(), Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let (name, fields) = match (&create.workload, &create.release) {
        (Some((resource, name)), _) => {
            let object: Value = client.get(*resource, name).await?.value;
            let surges = create.surge || ambassador.surges().await?;
            let (fields, notes) = of_workload(resource.kind, &object, create.secrets, surges)?;
            say_notes(&notes);
            (name, fields)
        }
        (None, Some((key, value))) => (value, of_release(key, value, create.secrets)),
        (None, None) => return Err(Failure::failed("name a workload, or a --release")),
    };
    if client.get::<IgnoredAny>(CONFIG_MONITORS, name).await.is_ok() {
        say_notes(&[format!("ConfigMonitor/{name} exists: what is printed would replace it")]);
    }
    print(manifest(name, access.namespace.as_deref(), &[], &fields))
}

/// Sources are read from the pods, so the strategy is the default: of all StatefulSets one pod at a time.
fn of_release(key: &str, value: &str, secrets: bool) -> Fields {
    let kinds = if secrets { json!({"kinds": ["ConfigMap", "Secret"]}) } else { json!({}) };
    vec![("discover", kinds), ("podSelector", json!({key: value}))]
}

/// Returns the fields of the spec, and notes for its reader.
fn of_workload(kind: &str, object: &Value, secrets: bool, surges: bool) -> Result<(Fields, Vec<String>), Failure> {
    let (sources, confidential): (Vec<_>, Vec<_>) = references(&object["spec"]["template"]["spec"])?
        .into_iter()
        .partition(|(name, _)| secrets || name.kind == Kind::ConfigMap);
    if sources.is_empty() {
        let kinds = if secrets { "ConfigMap or Secret" } else { "ConfigMap" };
        let why = format!("{kind}/{} refers to no {kinds}, so that nothing would restart its pods", name_of(object));
        return Err(Failure::Failed(why));
    }
    let entry = |(name, read): &(SourceName, Read)| {
        let mut object = json!({"name": name.name});
        if let Some(keys) = &read.keys {
            object["keys"] = json!(keys);
        }
        if read.is_optional {
            object["optional"] = true.into();
        }
        let field = if name.kind == Kind::Secret { "secret" } else { "configMap" };
        json!({field: object})
    };
    let selector = &object["spec"]["selector"];
    let mut fields = vec![
        ("sources", sources.iter().map(entry).collect()),
        ("podSelector", selector["matchLabels"].clone()),
        ("podSelectorExpressions", selector["matchExpressions"].clone()),
    ];
    let (strategy, lacks_surge) = strategy(kind, &object["spec"], surges);
    fields.extend(strategy);
    let mut notes = Vec::new();
    if lacks_surge {
        notes.push(format!("its maxSurge is {NO_SURGE}"));
    }
    if !confidential.is_empty() {
        let names: Vec<&str> = confidential.iter().map(|(name, _)| &*name.name).collect();
        notes.push(format!("it also refers to Secrets, which --secrets adds: {}", names.join(", ")));
    }
    Ok((fields, notes))
}

/// Returns to what a pod refers by its own spec, but for what platforms add.
pub(crate) fn references(pod: &Value) -> Result<Vec<(SourceName, Read)>, Failure> {
    let references: References = serde_json::from_value(without_nulls(pod)).map_err(Failure::failed)?;
    let mut read: BTreeMap<SourceName, Read> = BTreeMap::new();
    let is_own = |referred: &Referred<'_>| !DISCOVER_EXCLUDE.split(',').any(|name| name == referred.name);
    for Referred { resource, name, is_optional, keys } in references.iter().filter(is_own) {
        let kind = if resource == Kind::Secret.resource() { Kind::Secret } else { Kind::ConfigMap };
        let keys = keys.map(|keys| keys.into_iter().map(ToOwned::to_owned).collect::<BTreeSet<_>>());
        let source = SourceName { kind, name: name.into() };
        match read.get_mut(&source) {
            None => drop(read.insert(source, Read { is_optional, keys })),
            Some(known) => {
                known.is_optional &= is_optional;
                known.keys = known.keys.take().zip(keys).map(|(mut known, more)| {
                    known.extend(more);
                    known
                });
            }
        }
    }
    Ok(read.into_iter().collect())
}

/// In a manifest a list may be null, as if it were absent.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>().into()
        }
        value => value.clone(),
    }
}

/// Returns how the workload itself would replace its pods, and whether its maxSurge is left out. `surges`: whether pods may be
/// handed over.
pub(crate) fn strategy(kind: &str, spec: &Value, surges: bool) -> (Fields, bool) {
    let is_some = |count: &&Value| !count.is_null() && **count != json!(0) && **count != json!("0%");
    let field = |name: &'static str, count: &Value| Some(count).filter(is_some).map(|count| (name, count.clone()));
    let mut fields = match kind {
        "Deployment" if spec["strategy"]["type"] == "Recreate" => vec![("maxUnavailable", json!("100%"))],
        "Deployment" => {
            // A manifest may leave the defaults to the API server.
            let (rolling, default) = (&spec["strategy"]["rollingUpdate"], json!("25%"));
            let of = |name: &str| Some(&rolling[name]).filter(|count| !count.is_null()).unwrap_or(&default);
            let fields = [
                field("maxUnavailable", of("maxUnavailable")),
                field("maxSurge", of("maxSurge")),
                field("minReadySeconds", &spec["minReadySeconds"]),
            ];
            fields.into_iter().flatten().collect::<Fields>()
        }
        "DaemonSet" => {
            let of_its_own = field("maxUnavailable", &spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"]);
            vec![of_its_own.unwrap_or(("maxUnavailable", json!(1)))]
        }
        _ => vec![("maxUnavailable", json!(1))],
    };
    let number = fields.len();
    fields.retain(|(name, _)| surges || *name != "maxSurge");
    let lacks_surge = fields.len() < number;
    (fields, lacks_surge)
}

/// Writes a ConfigMonitor with these annotations, and these fields in its spec. All that comes from an object is a value in
/// JSON, which is YAML, too: nobody but this function begins a line.
pub(crate) fn manifest(
    name: &str,
    namespace: Option<&str>,
    annotations: &[(&str, &str)],
    fields: &[(&str, Value)],
) -> String {
    let mut text = "apiVersion: magalix.com/v1\nkind: ConfigMonitor\n".to_owned();
    let _ = writeln!(text, "metadata:\n  name: {}", compact_json(&json!(name)));
    let _ = namespace.map(|namespace| writeln!(text, "  namespace: {}", compact_json(&json!(namespace))));
    for (number, (key, value)) in annotations.iter().enumerate() {
        let _ = writeln!(
            text,
            "{}    {key}: {}",
            if number == 0 { "  annotations:\n" } else { "" },
            compact_json(&json!(value))
        );
    }
    text.push_str("spec:\n");
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let _ = match value.as_array().filter(|_| *field == "sources") {
            None => writeln!(text, "  {field}: {}", compact_json(value)),
            Some(entries) => {
                let entries: String = entries.iter().map(|entry| format!("\n    - {}", compact_json(entry))).collect();
                writeln!(text, "  {field}:{entries}")
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde::Deserialize;

    use crate::text::{in_one_line, printable};

    #[test]
    fn a_strategy_is_that_of_the_workload() {
        let rolling = |unavailable: Value, surge: Value| json!({"strategy": {"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}, "minReadySeconds": 5});
        let of = |kind: &str, spec: &Value| strategy(kind, spec, true).0;
        let ready = ("minReadySeconds", json!(5));
        let surging = of("Deployment", &rolling(json!(0), json!("25%")));
        assert_eq!(surging, [("maxSurge", json!("25%")), ready.clone()]);
        assert_eq!(of("Deployment", &rolling(json!(2), json!(0))), [("maxUnavailable", json!(2)), ready]);
        let default = vec![("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))];
        assert_eq!(strategy("Deployment", &json!({}), false), (default[..1].to_vec(), true));
        assert_eq!(strategy("Deployment", &json!({}), true), (default, false));
        let recreate = json!({"strategy": {"type": "Recreate"}});
        assert_eq!(of("Deployment", &recreate), [("maxUnavailable", json!("100%"))]);
        assert_eq!(of("StatefulSet", &json!({})), [("maxUnavailable", json!(1))]);
        let daemon_set = json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}}});
        assert_eq!(of("DaemonSet", &daemon_set), [("maxUnavailable", json!("10%"))]);
    }

    /// Pieces of names that whoever creates a workload may have chosen: the API server takes most strings in a pod.
    fn hostile() -> impl Strategy<Value = String> {
        const PIECES: [&str; 18] = [
            "a",
            "\n",
            "\r",
            "---\n",
            "...\n",
            "kind: ClusterRoleBinding",
            "# ",
            ": ",
            "\"",
            "\\",
            "{",
            "}]",
            "\u{85}",
            "\u{2028}",
            "\u{7f}",
            "\u{1b}[2J",
            "\u{feff}",
            "\u{1f600}",
        ];
        let any = any::<char>().prop_map(String::from);
        let piece = prop_oneof![4 => select(&PIECES[..]).prop_map(str::to_owned), 1 => any];
        vec(piece, 1..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn whatever_names_are_in_a_workload_the_manifest_is_the_one_config_monitor_that_was_meant(
            [map, key, secret, label, value, count] in [(); 6].map(|()| hostile()),
            secrets: bool,
        ) {
            let object = json!({"spec": {
                "selector": {"matchLabels": {&label: value}, "matchExpressions": [{"key": label, "operator": "In", "values": [value]}]},
                "strategy": {"rollingUpdate": {"maxSurge": count}},
                "template": {"spec": {
                    "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": map, "key": key}}}]}],
                    "volumes": [{"secret": {"secretName": secret}}],
                }},
            }});
            let (fields, notes) = of_workload("Deployment", &object, secrets, true).unwrap();
            let text = manifest(&value, Some(&label), &[], &fields);
            let mut sources = vec![json!({"configMap": {"name": map, "keys": [key]}})];
            sources.extend(secrets.then(|| json!({"secret": {"name": secret}})));
            let meant = json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": value, "namespace": label}, "spec": {
                "sources": sources,
                "podSelector": {&label: value},
                "podSelectorExpressions": [{"key": label, "operator": "In", "values": [value]}],
                "maxUnavailable": "25%",
                "maxSurge": count,
            }});
            let documents: Vec<Value> = serde_norway::Deserializer::from_str(&printable(&text))
                .map(|document| Value::deserialize(document).unwrap())
                .collect();
            prop_assert_eq!(documents, [meant]);
            let ends_a_line = |note: &String| printable(&in_one_line(note)).contains(char::is_control);
            prop_assert!(!notes.iter().any(ends_a_line), "{:?}", notes);
        }
    }

    #[test]
    fn keys_are_those_of_all_references_and_one_to_the_whole_object_counts_for_all() {
        let reads = |key: &str| json!({"valueFrom": {"configMapKeyRef": {"name": "a", "key": key, "optional": true}}});
        let mut pod = json!({"containers": [{"env": [reads("x"), reads("y")]}]});
        let (name, read) = references(&pod).unwrap().remove(0);
        assert_eq!((&*name.name, read.is_optional), ("a", true));
        assert_eq!(read.keys, Some(["x", "y"].map(ToOwned::to_owned).into()));
        pod["volumes"] = json!([{"configMap": {"name": "a"}}]);
        let (_, read) = references(&pod).unwrap().remove(0);
        assert_eq!((read.is_optional, read.keys), (false, None));
    }
}
