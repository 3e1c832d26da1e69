//! What the annotations of Reloader and of wave mean, and what of that a ConfigMonitor says.
//!
//! From Reloader's `pkg/common/common.go` and `internal/pkg/cmd/reloader.go` at 655a2b38, and wave's README at b4e8d70c.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::source::SourceName;
use jiff::SignedDuration;
use regex_lite::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// As the schema allows, in seconds.
const MAX_QUIET_PERIOD: u64 = 3600;
const KINDS: [Kind; 2] = [Kind::ConfigMap, Kind::Secret];
const WAVE: &str = "wave.pusher.com/update-on-config-change";
/// Further sources of wave, as `NAMESPACE/NAME,...`.
const WAVE_EXTRA: [&str; 2] = ["wave.pusher.com/extra-configmaps", "wave.pusher.com/extra-secrets"];
/// The beginning of the annotations of a pod template by which charts restart pods.
pub(crate) const CHECKSUM: &str = "checksum/";
/// Annotations about what the Secrets Store CSI driver mounts.
const CSI: &str = "secretproviderclass";

/// The flags of Reloader that matter here, with their names in its ConfigMap.
const FLAGS: [(&str, &str, Form); 19] = [
    ("auto-reload-all", "autoReloadAll", Form::Switch),
    ("reload-on-create", "reloadOnCreate", Form::Switch),
    ("reload-on-delete", "reloadOnDelete", Form::Switch),
    ("is-Argo-Rollouts", "isArgoRollouts", Form::Switch),
    ("resources-to-ignore", "resourcesToIgnore", Form::List),
    ("namespaces-to-ignore", "namespacesToIgnore", Form::List),
    ("namespace-selector", "namespaceSelectors", Form::List),
    ("resource-label-selector", "resourceSelectors", Form::List),
    ("configmap-annotation", "configmapUpdateOnChangeAnnotation", Form::Text),
    ("secret-annotation", "secretUpdateOnChangeAnnotation", Form::Text),
    ("auto-annotation", "reloaderAutoAnnotation", Form::Text),
    ("configmap-auto-annotation", "configmapReloaderAutoAnnotation", Form::Text),
    ("secret-auto-annotation", "secretReloaderAutoAnnotation", Form::Text),
    ("auto-search-annotation", "autoSearchAnnotation", Form::Text),
    ("search-match-annotation", "searchMatchAnnotation", Form::Text),
    ("ignore-annotation", "ignoreResourceAnnotation", Form::Text),
    ("pause-deployment-annotation", "pauseDeploymentAnnotation", Form::Text),
    ("pause-deployment-time-annotation", "pauseDeploymentTimeAnnotation", Form::Text),
    ("webhook-url", "webhookUrl", Form::Text),
];

/// How a flag has a value.
enum Form {
    Switch,
    Text,
    /// Several, separated by commas.
    List,
}

pub(super) type Annotations = BTreeMap<String, String>;

/// Reloader's own settings, by their names in the ConfigMap `reloader-meta-info`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Settings {
    auto_reload_all: bool,
    configmap_update_on_change_annotation: String,
    secret_update_on_change_annotation: String,
    reloader_auto_annotation: String,
    configmap_reloader_auto_annotation: String,
    secret_reloader_auto_annotation: String,
    configmap_exclude_reloader_annotation: String,
    secret_exclude_reloader_annotation: String,
    auto_search_annotation: String,
    search_match_annotation: String,
    ignore_resource_annotation: String,
    pause_deployment_annotation: String,
    pause_deployment_time_annotation: String,
    resources_to_ignore: Option<Vec<String>>,
    namespaces_to_ignore: Option<Vec<String>>,
    namespace_selectors: Option<Vec<String>>,
    resource_selectors: Option<Vec<String>>,
    is_argo_rollouts: bool,
    webhook_url: String,
    reload_on_create: bool,
    reload_on_delete: bool,
    /// Whether it sends alerts, which the ConfigMap does not say.
    #[serde(skip)]
    pub(super) alerts: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            auto_reload_all: false,
            configmap_update_on_change_annotation: "configmap.reloader.stakater.com/reload".to_owned(),
            secret_update_on_change_annotation: "secret.reloader.stakater.com/reload".to_owned(),
            reloader_auto_annotation: "reloader.stakater.com/auto".to_owned(),
            configmap_reloader_auto_annotation: "configmap.reloader.stakater.com/auto".to_owned(),
            secret_reloader_auto_annotation: "secret.reloader.stakater.com/auto".to_owned(),
            configmap_exclude_reloader_annotation: "configmaps.exclude.reloader.stakater.com/reload".to_owned(),
            secret_exclude_reloader_annotation: "secrets.exclude.reloader.stakater.com/reload".to_owned(),
            auto_search_annotation: "reloader.stakater.com/search".to_owned(),
            search_match_annotation: "reloader.stakater.com/match".to_owned(),
            ignore_resource_annotation: "reloader.stakater.com/ignore".to_owned(),
            pause_deployment_annotation: "deployment.reloader.stakater.com/pause-period".to_owned(),
            pause_deployment_time_annotation: "deployment.reloader.stakater.com/paused-at".to_owned(),
            resources_to_ignore: None,
            namespaces_to_ignore: None,
            namespace_selectors: None,
            resource_selectors: None,
            is_argo_rollouts: false,
            webhook_url: String::new(),
            reload_on_create: false,
            reload_on_delete: false,
            alerts: false,
        }
    }
}

/// A workload as Reloader reads it.
pub(super) struct Workload<'a> {
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    pub(super) annotations: Annotations,
    pub(super) template_annotations: Annotations,
    pub(super) is_paused: bool,
    /// The objects to which its pods refer.
    pub(super) refers: BTreeSet<SourceName>,
}

/// What becomes of a workload.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Conversion {
    pub(super) sources: BTreeSet<SourceName>,
    /// Further sources that may be missing.
    pub(super) optional: BTreeSet<SourceName>,
    /// The kinds that are discovered.
    pub(super) kinds: BTreeSet<Kind>,
    /// What is not discovered.
    pub(super) exclude: BTreeSet<SourceName>,
    pub(super) quiet_period_seconds: Option<u64>,
    /// What was not translated, or as of now only.
    pub(super) notes: Vec<String>,
}

impl Conversion {
    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.kinds.is_empty()
    }

    /// Returns the fields of the spec that say which content counts.
    pub(super) fn fields(&self) -> Vec<(&'static str, Value)> {
        let entry = |name: &SourceName, object: Value| match name.kind {
            Kind::ConfigMap => json!({"configMap": object}),
            Kind::Secret => json!({"secret": object}),
        };
        let required = self.sources.iter().map(|name| entry(name, json!({"name": name.name})));
        let optional = self.optional.difference(&self.sources);
        let optional = optional.map(|name| entry(name, json!({"name": name.name, "optional": true})));
        let sources: Vec<Value> = required.chain(optional).collect();
        let mut fields = Vec::new();
        if !sources.is_empty() {
            fields.push(("sources", sources.into()));
        }
        if !self.kinds.is_empty() {
            let exclude: Vec<Value> = self.exclude.iter().map(|name| json!(name)).collect();
            let mut discover = json!({"kinds": self.kinds});
            if !exclude.is_empty() {
                discover["exclude"] = exclude.into();
            }
            fields.push(("discover", discover));
        }
        fields.extend(self.quiet_period_seconds.map(|seconds| ("quietPeriodSeconds", json!(seconds))));
        fields
    }
}

impl Settings {
    /// Returns whether Reloader restarts nothing in the namespace.
    pub(super) fn ignores(&self, namespace: &str) -> bool {
        self.namespaces_to_ignore.iter().flatten().any(|ignored| ignored == namespace)
    }

    /// Returns whether one of the annotations is for Reloader or wave.
    pub(super) fn mean(&self, annotations: &Annotations) -> bool {
        let renamed = [
            &self.configmap_update_on_change_annotation,
            &self.secret_update_on_change_annotation,
            &self.reloader_auto_annotation,
            &self.configmap_reloader_auto_annotation,
            &self.secret_reloader_auto_annotation,
            &self.auto_search_annotation,
        ];
        let is_one = |key: &String| key.contains("reloader.stakater.com/") || key == WAVE || renamed.contains(&key);
        annotations.keys().any(is_one)
    }

    /// Returns what no ConfigMonitor says.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.namespace_selectors.iter().flatten().next().is_some() {
            notes.push("Reloader works in namespaces with certain labels only: see that this is one".to_owned());
        }
        if self.resource_selectors.iter().flatten().next().is_some() {
            let note = "Reloader watches ConfigMaps and Secrets with certain labels only: exclude the others, or name the sources";
            notes.push(note.to_owned());
        }
        if self.is_argo_rollouts {
            notes.push(
                "the pods of Argo Rollouts are not converted: write a ConfigMonitor with their labels".to_owned(),
            );
        }
        if !self.webhook_url.is_empty() {
            notes
                .push("Reloader calls a webhook instead of restarting pods: use Events or metrics for that".to_owned());
        }
        if self.alerts {
            notes.push("Reloader sends alerts when it restarts pods: use Events or metrics for that".to_owned());
        }
        if self.reload_on_create || self.reload_on_delete {
            notes.push("Reloader restarts pods when a source is created or deleted: of a ConfigMonitor only a source with `optional` does".to_owned());
        }
        notes
    }

    /// Reads the arguments of Reloader, for versions without the ConfigMap.
    pub(super) fn of_arguments(arguments: &[String]) -> serde_json::Result<Self> {
        let mut settings = Map::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(flag) = argument.strip_prefix("--") else { continue };
            let (flag, value) = flag.split_once('=').map_or((flag, None), |(flag, value)| (flag, Some(value)));
            let Some((_, field, form)) = FLAGS.iter().find(|(its, ..)| *its == flag) else { continue };
            let mut text = || value.or_else(|| rest.next().map(String::as_str)).unwrap_or_default();
            match form {
                Form::Switch => drop(settings.insert((*field).to_owned(), json!(value != Some("false")))),
                Form::Text => drop(settings.insert((*field).to_owned(), json!(text()))),
                Form::List => {
                    let list = settings.entry(*field).or_insert_with(|| json!([]));
                    list.as_array_mut().into_iter().for_each(|list| list.extend(text().split(',').map(Value::from)));
                }
            }
        }
        serde_json::from_value(settings.into())
    }

    /// Translates the annotations of a workload, given the annotations of the ConfigMaps and Secrets that exist.
    pub(super) fn convert(&self, workload: &Workload<'_>, existing: &BTreeMap<SourceName, Annotations>) -> Conversion {
        let mut conversion = Conversion::default();
        KINDS.into_iter().for_each(|kind| self.convert_kind(kind, workload, existing, &mut conversion));
        wave(workload, &mut conversion);
        let both = || workload.annotations.iter().chain(&workload.template_annotations);
        if both().any(|(key, _)| key.starts_with(CSI)) {
            conversion.notes.push("the annotations for the Secrets Store CSI driver are not translated".to_owned());
        }
        if !conversion.is_empty() && workload.template_annotations.keys().any(|key| key.starts_with(CHECKSUM)) {
            let note = "its chart rolls its pods, too, by a checksum in the pod template: take that away, or exclude these sources";
            conversion.notes.push(note.to_owned());
        }
        if let Some(period) =
            workload.annotations.get(&self.pause_deployment_annotation).filter(|_| workload.kind == "Deployment")
        {
            match SignedDuration::from_str(period).ok().and_then(|period| u64::try_from(period.as_secs()).ok()) {
                Some(seconds) => {
                    let kept = seconds.clamp(1, MAX_QUIET_PERIOD);
                    conversion.quiet_period_seconds = Some(kept);
                    if kept != seconds {
                        conversion.notes.push(format!("the pause period {period} becomes a quiet period of {kept} s"));
                    }
                }
                None => conversion.notes.push(format!("the pause period {period:?} is no duration")),
            }
        }
        if workload.is_paused && workload.annotations.contains_key(&self.pause_deployment_time_annotation) {
            conversion.notes.push(
                "it is paused by Reloader, and nobody resumes it without Reloader: kubectl rollout resume".to_owned(),
            );
        }
        conversion
    }

    fn convert_kind(
        &self,
        kind: Kind,
        workload: &Workload<'_>,
        existing: &BTreeMap<SourceName, Annotations>,
        conversion: &mut Conversion,
    ) {
        let (named, typed_auto, exclude, plural) = match kind {
            Kind::ConfigMap => (
                &self.configmap_update_on_change_annotation,
                &self.configmap_reloader_auto_annotation,
                &self.configmap_exclude_reloader_annotation,
                "configmaps",
            ),
            Kind::Secret => (
                &self.secret_update_on_change_annotation,
                &self.secret_reloader_auto_annotation,
                &self.secret_exclude_reloader_annotation,
                "secrets",
            ),
        };
        if self.resources_to_ignore.iter().flatten().any(|ignored| ignored.eq_ignore_ascii_case(plural)) {
            return;
        }
        // The template's count only if the workload has none of these.
        let decisive = [named, &self.reloader_auto_annotation, typed_auto, &self.auto_search_annotation];
        let is_own = decisive.iter().any(|key| workload.annotations.contains_key(*key));
        let annotations = if is_own { &workload.annotations } else { &workload.template_annotations };
        let value = |key: &str| annotations.get(key).map_or("", String::as_str);
        let has = |name: &SourceName, key: &str| {
            existing.get(name).is_some_and(|its| its.get(key).is_some_and(|value| value == "true"))
        };
        let excluded = workload.annotations.get(exclude).map_or("", String::as_str);
        let excluded: BTreeSet<SourceName> =
            words(excluded).map(|name| SourceName { kind, name: name.into() }).collect();
        let of_kind = || existing.keys().filter(|name| name.kind == kind);
        let is_ignored = |name: &SourceName| excluded.contains(name) || has(name, &self.ignore_resource_annotation);
        for pattern in words(value(named)) {
            let its: Vec<SourceName> = if is_name(pattern) {
                vec![SourceName { kind, name: pattern.into() }]
            } else {
                // Ungrouped, as there: `a|b` is all that begin with a or end with b.
                let Ok(regex) = Regex::new(&format!("^{pattern}$")) else {
                    conversion.notes.push(format!("{pattern:?} is no regular expression"));
                    continue;
                };
                let its: Vec<_> = of_kind().filter(|name| regex.is_match(&name.name)).cloned().collect();
                let names: Vec<&str> = its.iter().map(|name| &*name.name).collect();
                conversion.notes.push(format!("{pattern:?} stands for those that exist now: {}", names.join(", ")));
                its
            };
            for name in its.into_iter().filter(|name| !is_ignored(name)) {
                if !existing.contains_key(&name) {
                    conversion.notes.push(format!("{name} does not exist: its restarts wait for it"));
                }
                conversion.sources.insert(name);
            }
        }
        let (auto, typed) = (value(&self.reloader_auto_annotation), value(typed_auto));
        let is_auto = is_on(auto) || is_on(typed) || auto.is_empty() && typed.is_empty() && self.auto_reload_all;
        // What is on by itself does not search.
        if value(&self.auto_search_annotation) == "true" && !is_auto {
            let found =
                workload.refers.iter().filter(|name| name.kind == kind && has(name, &self.search_match_annotation));
            conversion.sources.extend(found.filter(|name| !is_ignored(name)).cloned());
        }
        if is_auto {
            conversion.kinds.insert(kind);
            let ignored = workload.refers.iter().filter(|name| name.kind == kind && is_ignored(name));
            conversion.exclude.extend(ignored.cloned().chain(excluded.iter().cloned()));
        }
    }
}

/// Translates the annotations of wave, which counts all that pods refer to.
fn wave(workload: &Workload<'_>, conversion: &mut Conversion) {
    if workload.annotations.get(WAVE).is_none_or(|value| value != "true") {
        return;
    }
    conversion.kinds.extend(KINDS);
    for (kind, key) in KINDS.into_iter().zip(WAVE_EXTRA) {
        for extra in words(workload.annotations.get(key).map_or("", String::as_str)) {
            let (namespace, name) = extra.split_once('/').unwrap_or((workload.namespace, extra));
            match namespace == workload.namespace {
                // wave goes on without it.
                true => drop(conversion.optional.insert(SourceName { kind, name: name.into() })),
                false => conversion.notes.push(format!("{extra} is in another namespace, and is not translated")),
            }
        }
    }
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// As Go reads a bool.
fn is_on(value: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&value)
}

/// Returns whether this is a name, and no pattern.
fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: &str = "reloader.stakater.com/auto";
    const SEARCH: &str = "reloader.stakater.com/search";
    const NAMED: &str = "configmap.reloader.stakater.com/reload";

    fn map(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn config_map(name: &str) -> SourceName {
        SourceName { kind: Kind::ConfigMap, name: name.into() }
    }

    fn secret(name: &str) -> SourceName {
        SourceName { kind: Kind::Secret, name: name.into() }
    }

    /// A Deployment that refers to the ConfigMaps `app` and `shared` and the Secret `token`.
    fn workload(annotations: &[(&str, &str)], of_template: &[(&str, &str)]) -> Workload<'static> {
        Workload {
            kind: "Deployment",
            namespace: "ns",
            annotations: map(annotations),
            template_annotations: map(of_template),
            is_paused: false,
            refers: [config_map("app"), config_map("shared"), secret("token")].into(),
        }
    }

    fn existing() -> BTreeMap<SourceName, Annotations> {
        let matched = map(&[("reloader.stakater.com/match", "true")]);
        [
            (config_map("app"), matched.clone()),
            (config_map("shared"), Annotations::new()),
            (config_map("other"), matched),
            (config_map("ignored"), map(&[("reloader.stakater.com/ignore", "true")])),
            (secret("token"), Annotations::new()),
        ]
        .into()
    }

    fn converted(annotations: &[(&str, &str)], of_template: &[(&str, &str)]) -> Conversion {
        Settings::default().convert(&workload(annotations, of_template), &existing())
    }

    #[test]
    fn auto_discovers_and_its_typed_forms_one_kind() {
        let kinds = |annotations: &[(&str, &str)]| converted(annotations, &[]).kinds.into_iter().collect::<Vec<_>>();
        assert_eq!(kinds(&[(AUTO, "true")]), KINDS);
        assert_eq!(kinds(&[("configmap.reloader.stakater.com/auto", "true")]), [Kind::ConfigMap]);
        assert_eq!(kinds(&[("secret.reloader.stakater.com/auto", "true")]), [Kind::Secret]);
        assert_eq!(kinds(&[(AUTO, "false"), ("secret.reloader.stakater.com/auto", "true")]), [Kind::Secret]);
        assert_eq!(kinds(&[(AUTO, "yes")]), []);
        let excluded =
            converted(&[(AUTO, "true"), ("configmaps.exclude.reloader.stakater.com/reload", "shared, x")], &[]);
        assert_eq!(excluded.exclude, [config_map("shared"), config_map("x")].into());
    }

    #[test]
    fn all_workloads_are_auto_if_the_settings_say_so() {
        let all = Settings { auto_reload_all: true, ..Settings::default() };
        assert_eq!(all.convert(&workload(&[], &[]), &existing()).kinds.len(), 2);
        assert!(all.convert(&workload(&[(AUTO, "false")], &[]), &existing()).is_empty());
        let no_secrets = Settings { resources_to_ignore: Some(vec!["secrets".to_owned()]), ..all };
        assert_eq!(no_secrets.convert(&workload(&[], &[]), &existing()).kinds, [Kind::ConfigMap].into());
    }

    #[test]
    fn named_sources_need_no_reference_and_patterns_are_expanded_as_there() {
        assert_eq!(converted(&[(NAMED, "other, ignored")], &[]).sources, [config_map("other")].into());
        let missing = converted(&[(NAMED, "gone")], &[]);
        assert_eq!((missing.sources, missing.notes.len()), ([config_map("gone")].into(), 1));
        let pattern = converted(&[(NAMED, "app|er")], &[]);
        assert_eq!(pattern.sources, [config_map("app"), config_map("other")].into(), "begins with app or ends with er");
        assert_eq!(pattern.notes, ["\"app|er\" stands for those that exist now: app, other"]);
        assert_eq!(converted(&[(NAMED, "(")], &[]).notes, ["\"(\" is no regular expression"]);
    }

    #[test]
    fn search_needs_a_reference_and_a_match() {
        assert_eq!(converted(&[(SEARCH, "true")], &[]).sources, [config_map("app")].into());
        assert_eq!(converted(&[(SEARCH, "true"), (AUTO, "true")], &[]).sources, BTreeSet::new());
    }

    #[test]
    fn annotations_of_the_template_count_if_the_workload_has_none() {
        assert_eq!(converted(&[], &[(AUTO, "true")]).kinds.len(), 2);
        assert!(converted(&[(SEARCH, "false")], &[(AUTO, "true")]).is_empty());
    }

    #[test]
    fn a_pause_period_is_a_quiet_period() {
        let pause = "deployment.reloader.stakater.com/pause-period";
        assert_eq!(converted(&[(AUTO, "true"), (pause, "5m")], &[]).quiet_period_seconds, Some(300));
        let long = converted(&[(AUTO, "true"), (pause, "2h")], &[]);
        assert_eq!((long.quiet_period_seconds, long.notes.len()), (Some(3600), 1));
        let paused = Workload {
            is_paused: true,
            ..workload(&[(AUTO, "true"), ("deployment.reloader.stakater.com/paused-at", "x")], &[])
        };
        assert!(Settings::default().convert(&paused, &existing()).notes[0].contains("kubectl rollout resume"));
    }

    #[test]
    fn what_has_no_counterpart_is_said() {
        let csi = converted(&[("secretproviderclass.reloader.stakater.com/auto", "true")], &[]);
        assert_eq!((csi.is_empty(), csi.notes.len()), (true, 1));
        assert_eq!(converted(&[(AUTO, "true")], &[("checksum/config", "1")]).notes.len(), 1);
        let settings = Settings::of_arguments(&[
            "--webhook-url".to_owned(),
            "http://a".to_owned(),
            "--reload-on-create=true".to_owned(),
        ])
        .unwrap();
        assert_eq!(settings.notes().len(), 2);
        assert_eq!(Settings { alerts: true, ..Settings::default() }.notes().len(), 1);
        let selects = ["--namespaces-to-ignore=a,b", "--namespace-selector=c:d", "--is-Argo-Rollouts=true"];
        let settings = Settings::of_arguments(&selects.map(ToOwned::to_owned)).unwrap();
        assert_eq!((settings.notes().len(), settings.ignores("b"), settings.ignores("c")), (2, true, false));
    }

    #[test]
    fn wave_discovers_all_and_names_more() {
        let wave = converted(&[(WAVE, "true"), (WAVE_EXTRA[0], "ns/more,own,else/where")], &[]);
        assert_eq!(
            (wave.kinds.len(), wave.optional, wave.notes.len()),
            (2, [config_map("more"), config_map("own")].into(), 1)
        );
        assert!(converted(&[(WAVE, "false")], &[]).is_empty());
    }

    #[test]
    fn what_has_an_annotation_under_whatever_name_is_meant() {
        let settings = Settings::of_arguments(&["--auto-annotation=my/auto".to_owned()]).unwrap();
        let is_meant = ["my/auto", WAVE, SEARCH, "other/auto"].map(|key| settings.mean(&map(&[(key, "true")])));
        assert_eq!(is_meant, [true, true, true, false]);
    }

    #[test]
    fn settings_are_read_from_the_config_map_or_from_arguments() {
        let of_config_map: Settings = serde_json::from_str(
            r#"{"autoReloadAll":false,"reloaderAutoAnnotation":"my/auto","resourcesToIgnore":null}"#,
        )
        .unwrap();
        let of_arguments = Settings::of_arguments(&["--auto-annotation=my/auto".to_owned()]).unwrap();
        for settings in [of_config_map, of_arguments] {
            assert_eq!(settings.convert(&workload(&[("my/auto", "true")], &[]), &existing()).kinds.len(), 2);
        }
    }
}
