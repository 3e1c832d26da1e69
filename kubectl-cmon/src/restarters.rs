//! What else restarts pods when content changes, as annotations say it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Tools, by the ends of the domains of their annotations.
const TOOLS: [(&str, &str); 2] = [("reloader.stakater.com", "Reloader"), ("wave.pusher.com", "wave")];
/// The ends of annotations by which nothing restarts: what these tools write, and what is for their ConfigMaps and Secrets.
const IDLE: [&str; 6] = ["/last-reloaded-from", "/config-hash", "/paused-at", "/match", "/ignore", "/pause-period"];
/// Words in the names of annotations by which charts, operators and policies change a pod template with the content.
const MARKS: [&str; 6] = ["checksum", "hash", "sha256", "restart", "rollme", "random"];
/// What a person writes by `kubectl rollout restart`.
const BY_HAND: &str = "kubectl.kubernetes.io/restartedAt";
/// The owners whose annotations their objects have, too.
const OWNERS: [&str; 4] = ["Deployment", "Rollout", "CronJob", "Job"];

pub(crate) type Annotations = BTreeMap<String, String>;

/// Returns the annotations of an object.
pub(crate) fn annotations(metadata: &Value) -> Annotations {
    let pairs = metadata["annotations"].as_object().into_iter().flatten();
    // Manifests often lack the quotes.
    let pairs = pairs.filter(|(_, value)| !value.is_null());
    pairs.map(|(key, value)| (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))).collect()
}

/// Returns the tool that an annotation is for.
pub(crate) fn tool(key: &str) -> Option<&'static str> {
    let (domain, _) = key.split_once('/')?;
    TOOLS
        .iter()
        .find(|(its, _)| domain.strip_suffix(its).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
        .map(|(_, tool)| *tool)
}

/// Returns whether another object has made this one, and has its annotations.
pub(crate) fn is_made_by_its_owner(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter_map(|owner| owner["kind"].as_str()).any(|kind| OWNERS.contains(&kind))
}

/// Returns what else restarts the pods of a workload.
pub(crate) fn others(workload: &Value) -> Vec<String> {
    let template = &workload["spec"]["template"];
    let all = annotations(&workload["metadata"]).into_iter().chain(annotations(&template["metadata"]));
    let is_on = |(key, value): &(String, String)| value != "false" && !IDLE.iter().any(|end| key.ends_with(end));
    let by_tool = all.filter(is_on).filter_map(|(key, _)| Some(format!("{}, by the annotation {key}", tool(&key)?)));
    let marks = marks(template).into_iter();
    by_tool.chain(marks.map(|key| format!("whoever writes the annotation {key} of the pod template"))).collect()
}

/// Returns the annotations of a pod template that change with the content.
pub(crate) fn marks(template: &Value) -> Vec<String> {
    let is_one = |(key, value): &(String, String)| {
        let name = key.to_lowercase();
        let is_mark = MARKS.iter().any(|mark| name.contains(mark)) && key != BY_HAND;
        is_mark && tool(key).is_none() && !["true", "false", ""].contains(&&**value)
    };
    annotations(&template["metadata"]).into_iter().filter(is_one).map(|(key, _)| key).collect()
}

/// Returns an annotation of a tool that stands anywhere in an object, and where: as a key, or in a text such as a patch.
pub(crate) fn mention(value: &Value) -> Option<String> {
    let names_one = |text: &str| TOOLS.iter().any(|(domain, _)| text.contains(&format!("{domain}/")));
    let within = |path: String, value: &Value| {
        mention(value).map(|rest| format!("{path}{}{rest}", if rest.is_empty() { "" } else { "." }))
    };
    match value {
        Value::String(text) => names_one(text).then(String::new),
        Value::Array(items) => items.iter().find_map(mention),
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match names_one(key) {
            true => Some(key.clone()),
            false => within(key.clone(), value),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_that_change_with_the_content_restart_and_those_for_other_things_do_not() {
        let of = |key: &str, value: &str| {
            others(&json!({"spec": {"template": {"metadata": {"annotations": {key: value}}}}})).len()
        };
        for key in [
            "checksum/config",
            "checksum.config",
            "app/config-hash",
            "jenkins-x.io/hash",
            "vso.secrets.hashicorp.com/restartedAt",
            "ops.corp.com/triggerrestart",
            "corp.org/random",
            "rollme",
            "configmap.reloader.stakater.com/reload",
        ] {
            assert_eq!(of(key, "5e1f"), 1, "{key}");
        }
        for (key, value) in [
            ("kubectl.kubernetes.io/restartedAt", "2026-11-30T08:00:00Z"),
            ("checksum/config", "true"),
            ("reloader.stakater.com/match", "true"),
            ("reloader.stakater.com/ignore", "true"),
            ("reloader.stakater.com/last-reloaded-from", "{}"),
            ("reloader.stakater.com/auto", "false"),
            ("wave.pusher.com/config-hash", "5e1f"),
            ("prometheus.io/scrape", "true"),
            ("my-reloader.stakater.com/auto", "true"),
        ] {
            assert_eq!(of(key, value), 0, "{key}");
        }
    }

    #[test]
    fn an_annotation_is_found_wherever_it_stands() {
        let release = json!({"spec": {"values": {"web": {"annotations": {"reloader.stakater.com/auto": "true"}}}}});
        assert_eq!(mention(&release).as_deref(), Some("spec.values.web.annotations.reloader.stakater.com/auto"));
        let patch = json!({"patches": [{"patch": "metadata: {annotations: {wave.pusher.com/update-on-config-change: 'true'}}"}]});
        assert_eq!(mention(&patch).as_deref(), Some("patches.patch"));
        assert_eq!(mention(&json!({"a": ["b", 1, null]})), None);
    }

    #[test]
    fn what_a_controller_of_kubernetes_has_made_has_the_annotations_of_its_owner_and_what_an_operator_has_made_has_its_own()
     {
        let owned = |kind: &str| is_made_by_its_owner(&json!({"metadata": {"ownerReferences": [{"kind": kind}]}}));
        assert!(owned("Deployment") && owned("Rollout") && owned("CronJob"));
        assert!(!owned("Grafana") && !is_made_by_its_owner(&json!({})));
    }
}
