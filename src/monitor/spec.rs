//! The spec of a ConfigMonitor as written, and the checked policy.

use std::collections::BTreeMap;
use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::selector::Selector;
use super::source::{self, Source, SourceSpec, Written};
use super::window::{self, Window, WindowSpec};
use crate::kube::labels::LabelSelectorRequirement;

/// The maximum number of seconds or pods, as in the schema.
const MAX_INT32: i64 = i32::MAX as i64;

/// The spec as written, before it is checked. See `crd.yml` for what each field means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The name of the ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<String>,
    /// Another spelling of `configMap`.
    #[serde(rename = "configmap", skip_serializing_if = "Option::is_none")]
    pub config_map_lower_case: Option<String>,
    /// The keys that count, at least one. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// A list of sources, in place of the fields above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<SourceSpec>>,
    /// The labels that a pod must have.
    pub pod_selector: BTreeMap<String, String>,
    /// Further requirements on the labels of a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_selector_expressions: Vec<LabelSelectorRequirement>,
    /// 0 to 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_period_seconds: Option<i64>,
    /// A number of at least 1, or a percentage from "1%" to "100%".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// When restarts may begin, at most 16 windows. Empty: always.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowSpec>,
    /// At least 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_interval_seconds: Option<i64>,
    /// The canary, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanarySpec>,
    /// At least 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i64>,
    /// At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i64>,
    /// How pods are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// What happens to pods that no controller would create again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmanaged_pods: Option<UnmanagedPods>,
    /// Whether changes are only observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// A number or a string, as in Kubernetes fields that accept a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i64),
    /// A string.
    String(String),
}

/// A canary, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanarySpec {
    /// A number of at least 1, or a percentage from "1%" to "100%".
    pub pods: IntOrString,
    /// At least 0.
    pub bake_seconds: i64,
}

/// How pods are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// With DELETE.
    #[default]
    Delete,
    /// With the eviction API, which a PodDisruptionBudget may refuse.
    Evict,
}

impl DeletionPolicy {
    /// Returns the value as written in a spec.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Evict => "Evict",
        }
    }
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
    /// The sources, at least one, each of them once.
    pub sources: Vec<Source>,
    /// The selector of the pods.
    pub selector: Selector,
    /// How long content must have been unchanged before a restart begins.
    pub quiet_period: Duration,
    /// How many pods may be unavailable at a time. Absent: all.
    pub max_unavailable: Option<PodCount>,
    /// When restarts may begin. Empty: always.
    pub windows: Vec<Window>,
    /// The minimum time from the start of one restart to the start of the next. Zero: the guard against loops applies.
    pub min_interval: Duration,
    /// The canary. Absent: no pods go first.
    pub canary: Option<CanaryPolicy>,
    /// How long a pod must have been ready to count as available.
    pub min_ready: Duration,
    /// How long a restart may lack progress before it is reported as stalled.
    pub progress_deadline: Duration,
    /// How pods are deleted.
    pub deletion_policy: DeletionPolicy,
    /// The grace period of a deletion, in seconds. Absent: that of the pod.
    pub grace_period_seconds: Option<u32>,
    /// What happens to pods that no controller would create again.
    pub unmanaged_pods: UnmanagedPods,
    /// Whether changes are only observed.
    pub suspend: bool,
}

/// A checked canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanaryPolicy {
    /// How many pods go first.
    pub pods: PodCount,
    /// How long their successors must have been available before the other pods go.
    pub bake: Duration,
}

/// A number or a percentage of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodCount {
    /// This number.
    Pods(NonZeroU32),
    /// This percentage, from 1 to 100.
    Percent(NonZeroU8),
}

impl PodCount {
    /// Returns the number of pods, of `pods` in all. A percentage is rounded down, but to no less than one.
    #[must_use]
    pub fn of(self, pods: usize) -> usize {
        match self {
            Self::Pods(most) => usize::try_from(most.get()).unwrap_or(usize::MAX),
            Self::Percent(percent) => (pods.saturating_mul(percent.get().into()) / 100).max(1),
        }
    }
}

impl Policy {
    /// Checks a spec by the rules of the schema, because an object may be older than the schema.
    ///
    /// # Errors
    /// What is wrong, for the author of the spec.
    pub fn of(spec: Option<&RawValue>) -> Result<Self, String> {
        let spec = spec.ok_or("spec is missing")?;
        let spec: Spec =
            serde_json::from_str(spec.get()).map_err(|error| format!("spec cannot be decoded: {error}"))?;
        let written = Written {
            config_map: spec.config_map,
            config_map_lower_case: spec.config_map_lower_case,
            keys: spec.keys,
            sources: spec.sources,
        };
        Ok(Self {
            sources: source::sources(written)?,
            selector: Selector::new(spec.pod_selector, spec.pod_selector_expressions)?,
            quiet_period: seconds("quietPeriodSeconds", spec.quiet_period_seconds.unwrap_or(3), 0, 3600)?,
            max_unavailable: spec.max_unavailable.map(|most| pod_count("maxUnavailable", &most)).transpose()?,
            windows: window::windows(&spec.windows)?,
            min_interval: seconds("minIntervalSeconds", spec.min_interval_seconds.unwrap_or(0), 0, MAX_INT32)?,
            canary: spec.canary.map(canary).transpose()?,
            min_ready: seconds("minReadySeconds", spec.min_ready_seconds.unwrap_or(0), 0, MAX_INT32)?,
            progress_deadline: seconds(
                "progressDeadlineSeconds",
                spec.progress_deadline_seconds.unwrap_or(600),
                1,
                MAX_INT32,
            )?,
            deletion_policy: spec.deletion_policy.unwrap_or_default(),
            grace_period_seconds: spec.grace_period_seconds.map(grace_period).transpose()?,
            unmanaged_pods: spec.unmanaged_pods.unwrap_or_default(),
            suspend: spec.suspend.unwrap_or(false),
        })
    }

    /// Returns the sources in short, for a column and for messages.
    #[must_use]
    pub fn source(&self) -> String {
        source::summary(&self.sources)
    }
}

fn seconds(field: &str, value: i64, least: i64, most: i64) -> Result<Duration, String> {
    u64::try_from(value)
        .ok()
        .filter(|_| (least..=most).contains(&value))
        .map(Duration::from_secs)
        .ok_or_else(|| format!("spec.{field}: {value} is not between {least} and {most}"))
}

fn canary(CanarySpec { pods, bake_seconds }: CanarySpec) -> Result<CanaryPolicy, String> {
    let pods = pod_count("canary.pods", &pods)?;
    Ok(CanaryPolicy { pods, bake: seconds("canary.bakeSeconds", bake_seconds, 0, MAX_INT32)? })
}

fn pod_count(field: &str, value: &IntOrString) -> Result<PodCount, String> {
    let (checked, text) = match value {
        IntOrString::Int(pods) => {
            let checked = u32::try_from(*pods).ok().and_then(NonZeroU32::new).filter(|_| *pods <= MAX_INT32);
            (checked.map(PodCount::Pods), pods.to_string())
        }
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').filter(|number| !number.starts_with(['0', '+']));
            let checked =
                percent.and_then(|number| number.parse().ok()).filter(|percent: &NonZeroU8| percent.get() <= 100);
            (checked.map(PodCount::Percent), format!("{text:?}"))
        }
    };
    checked.ok_or_else(|| format!("spec.{field}: {text} is neither a number of at least 1 nor \"1%\" to \"100%\""))
}

fn grace_period(value: i64) -> Result<u32, String> {
    u32::try_from(value)
        .ok()
        .filter(|_| (1..=MAX_INT32).contains(&value))
        .ok_or_else(|| format!("spec.gracePeriodSeconds: {value} is not between 1 and {MAX_INT32}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(policy.max_unavailable.is_none() && policy.min_ready.is_zero());
        assert!(policy.windows.is_empty() && policy.min_interval.is_zero() && policy.canary.is_none());
        assert!(!policy.suspend && policy.grace_period_seconds.is_none());
    }

    #[test]
    fn a_percentage_is_rounded_down_to_no_less_than_one_pod() {
        let most = |value: &str, pods| {
            let spec = format!(r#"{{"configMap":"a","podSelector":{{"app":"b"}},"maxUnavailable":{value}}}"#);
            policy(&spec).expect("valid").max_unavailable.expect("set").of(pods)
        };
        assert_eq!(
            [most(r#""25%""#, 10), most(r#""25%""#, 3), most(r#""25%""#, 0), most(r#""100%""#, 7)],
            [2, 1, 1, 7]
        );
        assert_eq!([most("1", 10), most("3", 2)], [1, 3]);
    }

    #[test]
    fn what_the_schema_refuses_is_refused_here_too() {
        let selector = r#""podSelector":{"app":"b"}"#;
        let source = |name| format!(r#"{{"configMap":{{"name":"{name}"}}}}"#);
        let sources = |count| (0..count).map(source).collect::<Vec<_>>().join(",");
        let keys = |count| (0..count).map(|key| format!(r#""{key}""#)).collect::<Vec<_>>().join(",");
        for (spec, about) in [
            (format!("{{{selector}}}"), "name what to watch"),
            (format!(r#"{{"configMap":"a","configmap":"a",{selector}}}"#), "set one of them"),
            (
                format!(r#"{{"configMap":"a","sources":[{{"configMap":{{"name":"a"}}}}],{selector}}}"#),
                "set one of them",
            ),
            (format!(r#"{{"keys":["a"],"sources":[{{"configMap":{{"name":"a"}}}}],{selector}}}"#), "keys of its own"),
            (format!(r#"{{"sources":[],{selector}}}"#), "0 entries"),
            (format!(r#"{{"sources":[{}],{selector}}}"#, sources(17)), "17 entries"),
            (format!(r#"{{"sources":[{}],{selector}}}"#, [sources(1), sources(1)].join(",")), "ConfigMap/0 twice"),
            (format!(r#"{{"sources":[{{"config":{{"name":"a"}}}}],{selector}}}"#), "sources[0] names nothing"),
            (
                format!(r#"{{"sources":[{{"configMap":{{"name":"a"}},"secret":{{"name":"a"}}}}],{selector}}}"#),
                "sources[0] names two",
            ),
            (
                format!(r#"{{"sources":[{},{{"configMap":{{"name":"A b"}}}}],{selector}}}"#, sources(1)),
                "sources[1].configMap.name",
            ),
            (
                format!(r#"{{"sources":[{{"configMap":{{"name":"a","keys":[]}}}}],{selector}}}"#),
                "sources[0].configMap.keys has 0",
            ),
            (format!(r#"{{"configMap":"A b",{selector}}}"#), "name of a ConfigMap"),
            (r#"{"configMap":"a"}"#.to_owned(), "podSelector is empty"),
            (r#"{"configMap":"a","podSelector":{}}"#.to_owned(), "podSelector is empty"),
            (r#"{"configMap":"a","podSelector":{"a b":"c"}}"#.to_owned(), "label key"),
            (r#"{"configMap":"a","podSelector":{"a":"b c"}}"#.to_owned(), "value of the label"),
            (r#"{"configMap":"a","podSelector":"app"}"#.to_owned(), "cannot be decoded"),
            (
                format!(r#"{{"configMap":"a",{selector},"podSelectorExpressions":[{{"key":"a","operator":"Like"}}]}}"#),
                "cannot be decoded",
            ),
            (
                format!(r#"{{"configMap":"a",{selector},"podSelectorExpressions":[{{"key":"a","operator":"In"}}]}}"#),
                "In takes",
            ),
            (format!(r#"{{"configMap":"a",{selector},"keys":[]}}"#), "0 keys"),
            (format!(r#"{{"configMap":"a",{selector},"keys":[{}]}}"#, keys(65)), "65 keys"),
            (format!(r#"{{"configMap":"a",{selector},"keys":["x","x"]}}"#), "twice"),
            (format!(r#"{{"configMap":"a",{selector},"keys":["x,y"]}}"#), "key of a ConfigMap"),
            (format!(r#"{{"configMap":"a",{selector},"quietPeriodSeconds":-1}}"#), "quietPeriodSeconds"),
            (format!(r#"{{"configMap":"a",{selector},"quietPeriodSeconds":3601}}"#), "quietPeriodSeconds"),
            (format!(r#"{{"configMap":"a",{selector},"progressDeadlineSeconds":0}}"#), "progressDeadlineSeconds"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":0}}"#), "maxUnavailable: 0 is"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":"0%"}}"#), "maxUnavailable"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":"101%"}}"#), "maxUnavailable"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":"+5%"}}"#), "maxUnavailable"),
            (format!(r#"{{"configMap":"a",{selector},"maxUnavailable":"3"}}"#), "maxUnavailable"),
            (
                format!(r#"{{"configMap":"a",{selector},"windows":[{{"schedule":"@daily","durationSeconds":0}}]}}"#),
                "windows[0].durationSeconds",
            ),
            (format!(r#"{{"configMap":"a",{selector},"minIntervalSeconds":-1}}"#), "minIntervalSeconds"),
            (format!(r#"{{"configMap":"a",{selector},"canary":{{"pods":0,"bakeSeconds":1}}}}"#), "canary.pods: 0 is"),
            (format!(r#"{{"configMap":"a",{selector},"canary":{{"pods":1,"bakeSeconds":-1}}}}"#), "canary.bakeSeconds"),
            (format!(r#"{{"configMap":"a",{selector},"minReadySeconds":-1}}"#), "minReadySeconds"),
            (format!(r#"{{"configMap":"a",{selector},"deletionPolicy":"Kill"}}"#), "cannot be decoded"),
            (format!(r#"{{"configMap":"a",{selector},"gracePeriodSeconds":0}}"#), "gracePeriodSeconds"),
            (format!(r#"{{"configMap":"a",{selector},"gracePeriodSeconds":2147483648}}"#), "gracePeriodSeconds"),
            (format!(r#"{{"configMap":"a",{selector},"unmanagedPods":"Maybe"}}"#), "cannot be decoded"),
        ] {
            let error = policy(&spec).expect_err(&spec);
            assert!(error.contains(about), "{spec}: {error}");
        }
        assert_eq!(Policy::of(None), Err("spec is missing".to_owned()));
    }
}
