//! The spec of a ConfigMonitor as written, and the checked policy.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU8, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use strum::IntoStaticStr;

use super::MAX_SPEC_BYTES;
use super::content::Kind;
use super::selector::{self, Selector};
use super::source::{self, Origin, Source, SourceName, SourceSpec};
use super::window::{self, Window, WindowSpec};
use crate::kube::labels::{LabelSelector, LabelSelectorRequirement};

/// The spec as written. See `crd.yml` for what each field means, and for the limits, which the API server checks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The name of the ConfigMap.
    pub config_map: Option<String>,
    /// Another spelling of `configMap`.
    #[serde(rename = "configmap")]
    pub config_map_lower_case: Option<String>,
    /// The keys that count. Absent: all.
    pub keys: Option<Vec<String>>,
    /// A list of sources, in place of the fields above.
    pub sources: Option<Vec<SourceSpec>>,
    /// Which further sources are read from the selected pods. Absent: none.
    pub discover: Option<Discover>,
    /// The labels that a pod must have.
    pub pod_selector: BTreeMap<String, String>,
    /// Further requirements on the labels of a pod.
    pub pod_selector_expressions: Vec<LabelSelectorRequirement>,
    /// How long content must have been unchanged.
    pub quiet_period_seconds: Option<u32>,
    /// How many pods of each owner may be unavailable at a time.
    pub max_unavailable: Option<IntOrString>,
    /// How many pods of all owners together may be unavailable during a restart.
    pub max_unavailable_total: Option<IntOrString>,
    /// How many pods of a Deployment may be handed over at a time.
    pub max_surge: Option<IntOrString>,
    /// Which pods go after all others.
    pub restart_last: Option<LabelSelector>,
    /// When restarts may begin. Empty: always.
    pub windows: Vec<WindowSpec>,
    /// The minimum time from the start of one restart to the start of the next.
    pub min_interval_seconds: Option<u32>,
    /// The canary, as written.
    pub canary: Option<CanarySpec>,
    /// How long a pod must have been ready to count as available.
    pub min_ready_seconds: Option<u32>,
    /// How long a restart may lack progress.
    pub progress_deadline_seconds: Option<u32>,
    /// How pods are deleted.
    pub deletion_policy: Option<DeletionPolicy>,
    /// The grace period of a deletion. With 0 the API server would not wait for the containers to stop.
    pub grace_period_seconds: Option<NonZeroU32>,
    /// What happens to pods that no controller would create again.
    pub unmanaged_pods: Option<UnmanagedPods>,
    /// Whether changes are only observed.
    pub suspend: Option<bool>,
}

/// A number or a string, as in Kubernetes fields that accept a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number of pods.
    Int(NonZeroU32),
    /// A percentage of pods, such as `25%`.
    String(String),
}

/// A canary, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanarySpec {
    /// How many pods go first.
    pub pods: IntOrString,
    /// How long their successors must have been available.
    pub bake_seconds: u32,
}

/// How pods are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
pub enum DeletionPolicy {
    /// With DELETE.
    #[default]
    Delete,
    /// With the eviction API, which a PodDisruptionBudget may refuse.
    Evict,
}

/// What happens to pods that no controller would create again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnmanagedPods {
    /// Skip and report them.
    #[default]
    Skip,
    /// Delete them like all others.
    Delete,
}

/// A checked spec. Only `Policy::of` makes one, so whoever has a `Policy` need not check again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The sources, each of them once: those that the spec names, and then those that were discovered.
    pub sources: Vec<Source>,
    pub(crate) discover: Option<Discover>,
    /// The first discovered source beyond the limit.
    pub(crate) surplus: Option<SourceName>,
    /// The discovered Secrets, which may not be watched: they stay as they are.
    pub(crate) unwatched: BTreeSet<SourceName>,
    /// The selector of the pods.
    pub selector: Selector,
    pub(crate) quiet_period: Duration,
    /// Absent: all pods may be unavailable at once.
    pub(crate) max_unavailable: Option<MaxUnavailable>,
    /// Absent: pods are not handed over.
    pub(crate) max_surge: Option<MaxSurge>,
    /// Absent: no pod has to wait for others.
    pub restart_last: Option<LabelSelector>,
    /// Empty: restarts may always begin.
    pub(crate) windows: Vec<Window>,
    /// Zero: the guard against loops applies.
    pub(crate) min_interval: Duration,
    pub(crate) canary: Option<CanaryPolicy>,
    pub(crate) min_ready: Duration,
    pub(crate) progress_deadline: Duration,
    /// How pods are removed.
    pub deletion_policy: DeletionPolicy,
    /// In seconds. Absent: that of the pod.
    pub(crate) grace_period_seconds: Option<NonZeroU32>,
    pub(crate) unmanaged_pods: UnmanagedPods,
    pub(crate) suspend: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CanaryPolicy {
    pub(crate) pods: PodCount,
    pub(crate) bake: Duration,
}

/// How many pods may be unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxUnavailable {
    /// Of each owner by itself.
    pub(crate) of_owner: PodCount,
    /// Whether the spec leaves that open. Then it is one pod of all StatefulSets together, which may be one application.
    pub(crate) is_default: bool,
    /// Of all of them together.
    pub(crate) total: Option<PodCount>,
}

/// How many pods of a Deployment may exist beside the desired ones: each is handed over until it has a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxSurge {
    most: PodCount,
    /// Whether `maxUnavailable` is absent: pods that can be handed over go only that way.
    pub(crate) is_alone: bool,
}

impl Policy {
    /// Returns how many of the desired pods may be missing when one goes that is handed over.
    pub(crate) fn may_be_missing(&self, desired: usize) -> usize {
        match self.max_unavailable {
            None => desired,
            Some(_) if self.max_surge.is_some_and(|surge| surge.is_alone) => 0,
            Some(most) => most.of_owner.of(desired),
        }
    }
}

impl MaxSurge {
    /// A percentage of `pods` is rounded up.
    pub(crate) fn of(self, pods: usize) -> usize {
        match self.most {
            PodCount::Pods(_) => self.most.of(pods),
            PodCount::Percent(percent) => pods.saturating_mul(percent.get().into()).div_ceil(100),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodCount {
    Pods(NonZeroU32),
    Percent(NonZeroU8),
}

impl PodCount {
    /// A percentage of `pods` is rounded down, but to no less than one.
    pub(crate) fn of(self, pods: usize) -> usize {
        match self {
            Self::Pods(most) => usize::try_from(most.get()).unwrap_or(usize::MAX),
            Self::Percent(percent) => (pods.saturating_mul(percent.get().into()) / 100).max(1),
        }
    }
}

/// Which objects to discover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Discover {
    /// The kinds of the objects.
    pub kinds: BTreeSet<Kind>,
    /// The objects that are no sources.
    pub exclude: Vec<ExcludedObject>,
}

/// An object that is no source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcludedObject {
    /// Absent: of any kind.
    pub kind: Option<Kind>,
    /// The name.
    pub name: Arc<str>,
}

impl Default for Discover {
    fn default() -> Self {
        Self { kinds: BTreeSet::from([Kind::ConfigMap]), exclude: Vec::new() }
    }
}

impl Discover {
    pub(crate) fn accepts(&self, object: &SourceName) -> bool {
        let excludes = |excluded: &ExcludedObject| {
            excluded.name == object.name && excluded.kind.is_none_or(|kind| kind == object.kind)
        };
        self.kinds.contains(&object.kind) && !self.exclude.iter().any(excludes)
    }
}

impl Policy {
    /// Checks what the schema cannot check, and what must hold whatever the schema says: a selector selects by labels.
    ///
    /// # Errors
    /// What is wrong, for the author of the spec.
    pub fn of(spec: Option<&RawValue>) -> Result<Self, String> {
        let spec = spec.ok_or("spec is missing")?;
        if let Ok(bytes) = serde_json::from_str::<usize>(spec.get()) {
            return Err(format!("spec has {bytes} bytes; the maximum is {MAX_SPEC_BYTES}: name fewer keys or labels"));
        }
        let spec: Spec =
            serde_json::from_str(spec.get()).map_err(|error| format!("spec cannot be decoded: {error}"))?;
        let sources = sources(&spec)?;
        let is_alone = spec.max_unavailable.is_none();
        let max_unavailable = max_unavailable(spec.max_unavailable, spec.max_unavailable_total)?;
        let max_surge = spec.max_surge.map(|most| pod_count("maxSurge", &most)).transpose()?;
        if max_surge.is_some() && spec.canary.is_some() {
            return Err("spec.canary and spec.maxSurge exclude each other".to_owned());
        }
        // All at once needs no surge.
        let max_surge = max_surge.filter(|_| max_unavailable.is_some()).map(|most| MaxSurge { most, is_alone });
        Ok(Self {
            sources,
            discover: spec.discover,
            surplus: None,
            unwatched: BTreeSet::new(),
            selector: Selector::new(spec.pod_selector, spec.pod_selector_expressions)?,
            quiet_period: seconds(spec.quiet_period_seconds.unwrap_or(3)),
            max_unavailable,
            max_surge,
            restart_last: spec.restart_last.map(selector::last).transpose()?,
            windows: window::windows(&spec.windows)?,
            min_interval: seconds(spec.min_interval_seconds.unwrap_or(0)),
            canary: spec.canary.map(canary).transpose()?,
            min_ready: seconds(spec.min_ready_seconds.unwrap_or(0)),
            progress_deadline: seconds(spec.progress_deadline_seconds.unwrap_or(600)),
            deletion_policy: spec.deletion_policy.unwrap_or_default(),
            grace_period_seconds: spec.grace_period_seconds,
            unmanaged_pods: spec.unmanaged_pods.unwrap_or_default(),
            suspend: spec.suspend.unwrap_or(false),
        })
    }

    /// Returns what the spec says, without what was discovered.
    pub(crate) fn as_written(&self) -> Self {
        let named = self.sources.iter().filter(|source| source.origin == Origin::Named);
        let (sources, unwatched) = (named.cloned().collect(), BTreeSet::new());
        Self { sources, surplus: None, unwatched, ..self.clone() }
    }

    /// Returns whether the desired replicas of the owners decide which pods may go.
    pub(crate) fn counts_owners(&self) -> bool {
        self.max_unavailable.is_some() || self.restart_last.is_some()
    }

    /// The sources in short, for a column and for messages.
    pub(crate) fn source(&self) -> String {
        let (named, discovered): (Vec<_>, Vec<_>) =
            self.sources.iter().partition(|source| source.origin == Origin::Named);
        let named = match &named[..] {
            [] => None,
            [only] => Some(only.name.to_string()),
            [first, more @ ..] => Some(format!("{} +{}", first.name, more.len())),
        };
        match (named, self.discover.is_some()) {
            (None, _) => format!("{} discovered", discovered.len()),
            (Some(named), false) => named,
            (Some(named), true) => format!("{named} +{} discovered", discovered.len()),
        }
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

fn canary(CanarySpec { pods, bake_seconds }: CanarySpec) -> Result<CanaryPolicy, String> {
    Ok(CanaryPolicy { pods: pod_count("canary.pods", &pods)?, bake: seconds(bake_seconds) })
}

/// A quarter of the pods, unless the spec says otherwise.
fn max_unavailable(
    of_owner: Option<IntOrString>,
    total: Option<IntOrString>,
) -> Result<Option<MaxUnavailable>, String> {
    let is_default = of_owner.is_none();
    let of_owner = of_owner.unwrap_or_else(|| IntOrString::String("25%".to_owned()));
    let is_everything = total.is_none() && of_owner == IntOrString::String("100%".to_owned());
    let of_owner = pod_count("maxUnavailable", &of_owner)?;
    let total = total.map(|most| pod_count("maxUnavailableTotal", &most)).transpose()?;
    Ok((!is_everything).then_some(MaxUnavailable { of_owner, is_default, total }))
}

fn pod_count(field: &str, value: &IntOrString) -> Result<PodCount, String> {
    match value {
        IntOrString::Int(pods) => Ok(PodCount::Pods(*pods)),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
            percent.map(PodCount::Percent).ok_or_else(|| format!("spec.{field}: {text:?} is not a percentage"))
        }
    }
}

/// Checks the sources of a spec: a short form for a single source, or a list.
fn sources(spec: &Spec) -> Result<Vec<Source>, String> {
    match (&spec.config_map, &spec.config_map_lower_case, &spec.sources) {
        (Some(name), None, None) | (None, Some(name), None) => {
            Ok(vec![source::source(Kind::ConfigMap, name, spec.keys.as_deref(), false)?])
        }
        (None, None, Some(sources)) if !sources.is_empty() => source::list(sources),
        (None, None, None) if spec.discover.is_some() => Ok(Vec::new()),
        (..) => Err("exactly one of configMap, configmap and sources is required, or discover".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::ConfigMonitor;

    fn policy(spec: &str) -> Result<Policy, String> {
        Policy::of(Some(&RawValue::from_string(spec.to_owned()).expect("JSON")))
    }

    #[test]
    fn both_spellings_name_the_config_map() {
        for field in ["configMap", "configmap"] {
            let policy = policy(&format!(r#"{{"{field}":"flaskapp-config","podSelector":{{"app":"frontend"}}}}"#));
            assert_eq!(policy.expect("valid").source(), "ConfigMap/flaskapp-config");
        }
    }

    #[test]
    fn of_a_spec_or_status_that_is_too_long_only_the_length_is_kept() {
        let status = serde_json::json!({"metadata": {"name": "m", "uid": "u", "resourceVersion": "1"}, "status": {"skippedPods": "x".repeat(400_000)}});
        let read: ConfigMonitor = serde_json::from_str(&status.to_string()).expect("a ConfigMonitor");
        assert!(read.status.is_some_and(|status| status.get().len() < 10));
        let monitor = |keys: usize| {
            let keys: Vec<String> = (0..keys).map(|number| format!("{number:0>253}")).collect();
            let spec = serde_json::json!({"configMap": "a", "keys": keys, "podSelector": {"app": "web"}});
            let metadata = serde_json::json!({"name": "m", "uid": "u", "resourceVersion": "1"});
            let monitor = serde_json::json!({"metadata": metadata, "spec": spec}).to_string();
            serde_json::from_str::<ConfigMonitor>(&monitor).expect("a ConfigMonitor").spec.expect("a spec")
        };
        assert!(Policy::of(Some(&monitor(64))).is_ok());
        let long = monitor(300);
        assert!(long.get().len() < 10, "{long}");
        let text = Policy::of(Some(&long)).expect_err("too long");
        assert!(text.starts_with("spec has 76") && text.contains("the maximum is 65536"), "{text}");
    }

    #[test]
    fn several_sources_are_named_by_the_first() {
        let spec = |sources: &str| policy(&format!(r#"{{"sources":[{sources}],"podSelector":{{"app":"b"}}}}"#));
        let [x, y] = [r#"{"configMap":{"name":"x","keys":["k"]}}"#, r#"{"configMap":{"name":"y","optional":true}}"#];
        assert_eq!(spec(x).expect("valid").source(), "ConfigMap/x");
        let both = spec(&format!("{y},{x}")).expect("valid");
        assert_eq!(both.source(), "ConfigMap/y +1");
        let [y, x] = &both.sources[..] else { panic!("{both:?}") };
        assert!(
            y.optional && y.keys.is_none() && !x.optional && x.keys.as_ref().is_some_and(|keys| keys.contains("k"))
        );
    }

    #[test]
    fn only_a_source_and_a_selector_are_required() {
        let policy = policy(r#"{"configMap":"a","podSelector":{"app":"b"}}"#).expect("valid");
        assert_eq!((policy.sources.len(), policy.selector.to_query()), (1, "app=b".to_owned()));
        assert!(policy.sources[0].keys.is_none() && !policy.sources[0].optional);
        assert_eq!(policy.quiet_period, Duration::from_secs(3));
        assert_eq!(policy.progress_deadline, Duration::from_secs(600));
        assert_eq!(policy.unmanaged_pods, UnmanagedPods::Skip);
        assert_eq!(policy.deletion_policy, DeletionPolicy::Delete);
        let of_owner = PodCount::Percent(NonZeroU8::new(25).expect("a percentage"));
        assert_eq!(policy.max_unavailable, Some(MaxUnavailable { of_owner, is_default: true, total: None }));
        assert!(policy.min_ready.is_zero());
        assert!(policy.windows.is_empty() && policy.min_interval.is_zero() && policy.canary.is_none());
        assert!(!policy.suspend && policy.grace_period_seconds.is_none());
    }

    #[test]
    fn a_percentage_is_rounded_down_to_no_less_than_one_pod() {
        let most = |value: &str| {
            let spec = format!(r#"{{"configMap":"a","podSelector":{{"app":"b"}},{value}}}"#);
            policy(&spec).expect("valid").max_unavailable
        };
        let of_owner = |value, pods| most(value).expect("set").of_owner.of(pods);
        let quarter = r#""maxUnavailable":"25%""#;
        assert_eq!([of_owner(quarter, 10), of_owner(quarter, 3), of_owner(quarter, 0)], [2, 1, 1]);
        assert_eq!([of_owner(r#""maxUnavailable":1"#, 10), of_owner(r#""maxUnavailable":3"#, 2)], [1, 3]);
        assert_eq!(most(r#""maxUnavailable":"100%""#), None, "there is no budget");
        let total = most(r#""maxUnavailable":"100%","maxUnavailableTotal":"50%""#).expect("set");
        assert_eq!((total.of_owner.of(4), total.total.map(|most| most.of(4))), (4, Some(2)));
    }

    /// The API server refuses most of this already: see `testenv/tests/operator/schema.rs`.
    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        let selector = r#""podSelector":{"app":"b"}"#;
        for (spec, about) in [
            (format!("{{{selector}}}"), "exactly one of configMap, configmap and sources"),
            (format!(r#"{{"configMap":"a","configmap":"a",{selector}}}"#), "exactly one of"),
            (format!(r#"{{"configMap":"a","sources":[{{"configMap":{{"name":"a"}}}}],{selector}}}"#), "exactly one of"),
            (format!(r#"{{"sources":[],{selector}}}"#), "exactly one of"),
            (format!(r#"{{"sources":[{{"config":{{"name":"a"}}}}],{selector}}}"#), "sources[0]: exactly one of"),
            (
                format!(r#"{{"sources":[{{"configMap":{{"name":"a"}}}},{{"configMap":{{"name":"a"}}}}],{selector}}}"#),
                "ConfigMap/a twice",
            ),
            (format!(r#"{{"sources":[{{"configMap":{{"name":"A b"}}}}],{selector}}}"#), "name of a ConfigMap"),
            (format!(r#"{{"configMap":"../secrets/a",{selector}}}"#), "name of a ConfigMap"),
            (r#"{"configMap":"a"}"#.to_owned(), "podSelector is empty"),
            (r#"{"configMap":"a","podSelector":{}}"#.to_owned(), "podSelector is empty"),
            (r#"{"configMap":"a","podSelector":{"a b":"c"}}"#.to_owned(), "label key"),
            (r#"{"configMap":"a","podSelector":"app"}"#.to_owned(), "cannot be decoded"),
            (format!(r#"{{"configMap":"a",{selector},"quietPeriodSeconds":-1}}"#), "cannot be decoded"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":0}}"#), "cannot be decoded"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":"0%"}}"#), "maxUnavailable"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":"3"}}"#), "maxUnavailable"),
            (
                format!(r#"{{"configMap":"a",{selector},"windows":[{{"schedule":"@never","durationSeconds":1}}]}}"#),
                "windows[0].schedule",
            ),
            (
                format!(r#"{{"configMap":"a",{selector},"canary":{{"pods":"x","bakeSeconds":1}}}}"#),
                "canary.pods: \"x\"",
            ),
            (format!(r#"{{"configMap":"a",{selector},"gracePeriodSeconds":0}}"#), "cannot be decoded"),
            (format!(r#"{{"configMap":"a",{selector},"restartLast":{{}}}}"#), "restartLast is empty"),
            (
                format!(r#"{{"configMap":"a",{selector},"restartLast":{{"matchLabels":{{"a b":"c"}}}}}}"#),
                "restartLast.matchLabels",
            ),
        ] {
            let error = policy(&spec).expect_err(&spec);
            assert!(error.contains(about), "{spec}: {error}");
        }
        assert_eq!(Policy::of(None), Err("spec is missing".to_owned()));
    }
}
