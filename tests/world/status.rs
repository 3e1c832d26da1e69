//! The status of a ConfigMonitor as it stands on the wire: only the fields that the rules judge by. It never uses the operator's own types,
//! so that a mistake in them is seen.

use std::collections::BTreeMap;

use configmonitor_operator::kube::ServerTime;
use serde::Deserialize;
use serde_json::Value;

/// A status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) source: Option<String>,
    pub(crate) sources: Vec<SourceStatus>,
    pub(crate) pods: Option<usize>,
    pub(crate) restart: Option<Restart>,
    pub(crate) history: Vec<Entry>,
    pub(crate) conditions: Vec<Condition>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// What is known of a source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceStatus {
    pub(crate) name: String,
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) resource_version: Option<String>,
    pub(crate) hash: Option<String>,
}

/// A restart that is pending, or under way once it has `startedAt`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Restart {
    sources: Vec<SourceStatus>,
    pub(crate) observed_at: ServerTime,
    /// Absent in a superseded restart, which has that of the restart that supersedes it.
    since: Option<ServerTime>,
    #[serde(default)]
    pub(crate) revert: bool,
    superseded: Option<Box<Self>>,
    pub(crate) started_at: Option<ServerTime>,
    pub(crate) pods_resource_version: Option<String>,
    pub(crate) since_pods_resource_version: Option<String>,
    pub(crate) pod_selector: Option<String>,
    pub(crate) progress: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// A restart that is over.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    started_at: ServerTime,
    pub(crate) replaced: usize,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    pub(crate) r#type: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) last_transition_time: ServerTime,
}

impl Status {
    /// Whether the content that pods run with is known, or being brought to them.
    pub(crate) fn is_baselined(&self) -> bool {
        self.config_hash().is_some() || self.restart.is_some()
    }

    /// The hash of the content that the pods have been restarted for.
    pub(crate) fn config_hash(&self) -> Option<String> {
        joined(&self.sources, |source| source.hash.as_deref())
    }

    /// The version of the source as last read.
    pub(crate) fn source_version(&self) -> Option<String> {
        joined(&self.sources, |source| source.resource_version.as_deref())
    }

    /// What the hashes are of.
    pub(crate) fn watched(&self) -> Vec<(&str, Option<&[String]>)> {
        self.sources.iter().map(|source| (&*source.name, source.keys.as_deref())).collect()
    }

    /// The hash of the content that the pods are to have.
    pub(crate) fn target(&self) -> Option<String> {
        self.restart.as_ref().map(Restart::config_hash).or_else(|| self.config_hash())
    }

    /// Whether it is about this generation.
    pub(crate) fn is_of(&self, generation: i64) -> bool {
        self.rest.get("observedGeneration").and_then(Value::as_i64) == Some(generation)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.r#type == "Ready" && condition.status == "True")
    }

    /// The reason of the conditions.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.conditions.first().map(|condition| &*condition.reason)
    }

    /// The restart that has begun.
    pub(crate) fn begun(&self) -> Option<&Restart> {
        self.restart.as_ref().filter(|restart| restart.has_begun())
    }
}

impl Entry {
    /// Whether it is about this restart.
    pub(crate) fn tells_of(&self, restart: &Restart) -> bool {
        Some(self.started_at) == restart.started_at
    }
}

impl Restart {
    /// The hash of the content that pods are restarted for.
    pub(crate) fn config_hash(&self) -> String {
        joined(&self.sources, |source| source.hash.as_deref()).unwrap_or_default()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.started_at.is_some()
    }

    pub(crate) fn since(&self) -> ServerTime {
        self.since.unwrap_or(self.observed_at)
    }

    /// The restart under way that this one is about to take the place of, as it goes on.
    pub(crate) fn before(&self) -> Option<Self> {
        let before = self.superseded.as_deref()?.clone();
        Some(Self { since: self.since, ..before })
    }
}

/// What is known of each source, in the order of their names, if it is known of all.
fn joined<'a>(sources: &'a [SourceStatus], of: impl Fn(&'a SourceStatus) -> Option<&'a str>) -> Option<String> {
    let mut sources: Vec<&SourceStatus> = sources.iter().collect();
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let known = sources.into_iter().map(of).collect::<Option<Vec<&str>>>()?;
    (!known.is_empty()).then(|| known.join(","))
}
