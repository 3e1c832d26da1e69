//! The status of a ConfigMonitor: what the operator records between processes. See `crd.yml` for what each field means.
//!
//! Each source has a journal: the content that pods have been restarted for, and each content that was read since. Which
//! pods may have other content than the last one follows from that (`restart/stale.rs`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use strum::IntoStaticStr;

use super::content::ContentHash;
use super::source::{Keys, SourceName};
use crate::kube::{ResourceVersion, ServerTime};

/// The maximum number of recorded restarts.
pub(super) const HISTORY: usize = 10;
/// The maximum number of sources that a recorded restart names. It may have had more.
pub const MAX_SOURCES_OF_ENTRY: usize = 12;
pub(super) const A_SECOND: Duration = Duration::from_secs(1);

/// The usual words of conditions, held once for all ConfigMonitors.
const USUAL_WORDS: [&str; 8] =
    ["Ready", "Reconciling", "Stalled", "True", "False", "UpToDate", NO_RESTART_PENDING, NO_ACTION_NEEDED];

/// The message of Reconciling when there is nothing to do.
pub(super) const NO_RESTART_PENDING: &str = "no restart is pending";
/// The message of Stalled when nobody needs to do anything.
pub const NO_ACTION_NEEDED: &str = "no action is needed";

/// The status of a ConfigMonitor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The sources in short, for a column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What is known of each source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceStatus>,
    /// When the content of a source was last recorded without a restart. The selected pods that existed by then are
    /// assumed to run with it. Absent after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baselined_at: Option<ServerTime>,
    /// When all contents were last known to be those that pods have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<ServerTime>,
    /// How many of the selected pods may have other content than the last one, by the first list since the last change.
    /// Absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outdated: Option<usize>,
    /// How many pods the selector matched when they were last listed. Absent until the pods have been listed for the
    /// current spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<usize>,
    /// How many selected pods with earlier content were skipped at the last change.
    #[serde(skip_serializing_if = "is_default")]
    pub skipped: usize,
    /// Which pods were skipped and why, as text for users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub skipped_pods: String,
    /// The restart that is pending or under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Box<Restart>>,
    /// The value of the request annotation that was handled last: all selected pods were restarted for it, or it is
    /// older than the first content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handled_restart_request: Option<Arc<str>>,
    /// The restarts that are over, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Entry>,
    /// The conditions Ready, Reconciling and Stalled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What is known of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The identity of the object.
    #[serde(flatten)]
    pub name: SourceName,
    /// Whether the source was found in the pods. The spec does not name it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub discovered: bool,
    /// Since when no selected pod has referred to the source, by the lists of pods, if it was found in pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreferenced_since: Option<ServerTime>,
    /// The keys that the hash covers. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Keys,
    /// The version of the object when this content was first read. Absent while an optional source is missing, and until a
    /// source first exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<ResourceVersion>,
    /// The content of the last baseline, or at the end of the last restart: the journal begins with it. Absent until the first
    /// content is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
    /// The contents that were read since, oldest first. The last one is the current content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// When the last restarts for changes of it began, newest first, as far as the guard against loops counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<ServerTime>,
}

/// A content of a source that came after another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The content. Neighbours may be merged into a content that no other equals.
    pub hash: ContentHash,
    /// When the previous content was last known. This content may have come at any time since.
    pub since: ServerTime,
    /// When this content was first read.
    pub observed_at: ServerTime,
    /// The version of the list of pods that was read right after that: no other pod has read earlier content. Absent until
    /// the list has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_resource_version: Option<ResourceVersion>,
    /// Whether the restart under way has begun for this content.
    #[serde(default, skip_serializing_if = "is_default")]
    pub begun: bool,
}

/// A restart that is pending, or under way once it has begun.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// When the first of the changes was read that extend one quiet period: the restart waits for at most ten quiet
    /// periods from then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing_since: Option<ServerTime>,
    /// The request that the restart handles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RestartRequest>,
    /// What is known since the restart began. Absent while it is pending.
    #[serde(flatten)]
    pub begun: Option<Begun>,
}

/// A request for a restart of all selected pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartRequest {
    /// The value of the annotation.
    pub value: Arc<str>,
    /// Whether a restart for other content has taken the request over from the restart that it follows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub taken_over: bool,
    /// When the restart for it was first to begin.
    pub observed_at: ServerTime,
    /// The version of the pod list with which that restart began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_resource_version: Option<ResourceVersion>,
}

/// The reason for a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Changed,
    /// The content is back to what pods had been restarted for.
    Reverted,
    Requested,
}

/// What is known of a restart that has begun.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Begun {
    /// Distinguishes the restarts of a ConfigMonitor: counts up with each that begins.
    pub number: u64,
    /// When the restart began.
    pub started_at: ServerTime,
    /// The label selector when the restart began.
    pub pod_selector: String,
    /// How many pods the restart replaces.
    pub pods: usize,
    /// How many of these pods remain and are not terminating.
    pub remaining: usize,
    /// How many pods this restart has deleted. Others were deleted by somebody else. After a crash nobody knows who
    /// deleted a missing pod: it counts as deleted by this restart. So does a pod that somebody else deleted after the
    /// list, as the API server accepts both DELETEs.
    #[serde(default)]
    pub deleted: usize,
    /// How many of the remaining pods are handed over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub handed_over: usize,
    /// How many pods are gone or terminating, of how many, for a column.
    #[serde(default)]
    pub progress: String,
    /// When the restart last made progress.
    pub last_progress_at: ServerTime,
    /// The canary, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
}

/// The pods of a restart that go before the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// How many pods go first.
    pub pods: usize,
    /// The state of the canary.
    #[serde(flatten)]
    pub state: CanaryState,
}

/// The state of a canary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all_fields = "camelCase")]
pub enum CanaryState {
    /// The pods are being replaced.
    Replacing,
    /// The successors are available, and must stay so for the bake time.
    Baking {
        /// When all successors were first seen available.
        available_at: ServerTime,
    },
    /// The successors have stayed available: the other pods may go.
    Passed,
    /// A successor has failed: no other pod may go.
    Failed {
        /// Which pod failed, and why.
        message: String,
    },
}

impl CanaryState {
    /// Returns whether the canary has neither passed nor failed.
    pub(crate) fn is_proving(&self) -> bool {
        matches!(self, Self::Replacing | Self::Baking { .. })
    }
}

/// A restart that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The number of the restart.
    pub number: u64,
    /// The sources whose content had changed. None after a revert or a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceName>,
    /// When the restart began.
    pub started_at: ServerTime,
    /// When the restart ended.
    pub completed_at: ServerTime,
    /// How many pods the restart was to replace.
    pub pods: usize,
    /// How many of these pods the restart deleted. Others were deleted by somebody else, or not at all if the restart
    /// was superseded.
    #[serde(default)]
    pub replaced: usize,
    /// How the restart ended.
    pub result: Outcome,
    /// Whether the restart was requested. One for other content that took a request over was not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requested: bool,
}

/// How a restart ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
pub enum Outcome {
    /// Every pod was replaced.
    Completed,
    /// Other content came before the end, or an edit of the sources, or a request after the canary had failed.
    Superseded,
}

/// A Kubernetes condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Ready, Reconciling or Stalled.
    #[serde(deserialize_with = "word")]
    pub r#type: Cow<'static, str>,
    /// True or False.
    #[serde(deserialize_with = "word")]
    pub status: Cow<'static, str>,
    /// The generation that the condition is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed.
    pub last_transition_time: ServerTime,
    /// The reason, as one word.
    #[serde(deserialize_with = "word")]
    pub reason: Cow<'static, str>,
    /// The reason, as text for users.
    #[serde(deserialize_with = "word")]
    pub message: Cow<'static, str>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    let word = String::deserialize(deserializer)?;
    let usual = USUAL_WORDS.into_iter().find(|usual| *usual == word);
    Ok(usual.map_or(Cow::Owned(word), Cow::Borrowed))
}

impl SourceStatus {
    /// Returns the content as last read.
    pub fn last(&self) -> Option<&ContentHash> {
        self.changes.last().map(|change| &change.hash).or(self.hash.as_ref())
    }

    /// Returns the change for which the restart under way has begun, if it has for one.
    pub(super) fn marked(&self) -> Option<&Change> {
        self.changes.iter().find(|change| change.begun)
    }

    /// Returns the content that the restart under way has begun for.
    pub(super) fn target(&self) -> Option<&ContentHash> {
        self.marked().map(|change| &change.hash).or(self.hash.as_ref())
    }

    /// Returns whether pods have been restarted for other content than the last one.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.last() != self.hash.as_ref()
    }

    /// Returns the last change, unless the restart under way has begun for it. If other content has come and gone since, the
    /// restart may be for the same content.
    pub(crate) fn awaiting(&self) -> Option<&Change> {
        self.changes.last().filter(|change| !change.begun)
    }
}

impl Begun {
    /// Returns the record of a restart of `pods` pods that begins now.
    pub fn new(number: u64, started_at: ServerTime, pod_selector: String, pods: usize) -> Self {
        let begun = Self { number, started_at, pod_selector, pods, last_progress_at: started_at, ..Self::default() };
        begun.with_remaining(pods)
    }

    /// Returns how many of the pods are gone or terminating if `remaining` are neither.
    pub(crate) fn gone(&self, remaining: usize) -> usize {
        self.pods - remaining.min(self.pods)
    }

    /// Returns the record when `remaining` of the pods are neither gone nor terminating.
    #[must_use]
    pub fn with_remaining(self, remaining: usize) -> Self {
        let progress = format!("{}/{}", self.gone(remaining), self.pods);
        Self { remaining, progress, ..self }
    }
}

impl Status {
    pub(crate) fn source(&self, name: &SourceName) -> Option<&SourceStatus> {
        self.sources.iter().find(|known| known.name == *name)
    }

    pub(crate) fn begun(&self) -> Option<&Begun> {
        self.restart.as_ref()?.begun.as_ref()
    }

    /// Returns why the canary of the restart under way has failed, if it has.
    pub(super) fn canary_failure(&self) -> Option<&str> {
        match &self.begun()?.canary.as_ref()?.state {
            CanaryState::Failed { message } => Some(message),
            CanaryState::Replacing | CanaryState::Baking { .. } | CanaryState::Passed => None,
        }
    }

    pub(crate) fn request(&self) -> Option<&RestartRequest> {
        self.restart.as_ref()?.request.as_ref()
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.sources.iter().flat_map(|known| &known.changes)
    }

    /// Returns the last changes for which no restart has begun.
    pub(crate) fn awaiting(&self) -> impl Iterator<Item = &Change> {
        self.sources.iter().filter_map(SourceStatus::awaiting)
    }

    /// Returns the sources whose content differs from what pods have been restarted for.
    #[must_use]
    pub fn changed(&self) -> Vec<SourceName> {
        self.sources.iter().filter(|known| known.differs()).map(|known| known.name.clone()).collect()
    }

    /// Returns whether the restart under way has begun for all current contents.
    pub(super) fn is_on_target(&self) -> bool {
        self.sources.iter().all(|known| known.last() == known.target())
    }

    /// Returns whether the restart was requested for this content, so that it waits for no window.
    pub(crate) fn is_requested(&self) -> bool {
        self.request().is_some_and(|request| !request.taken_over)
    }

    /// Returns the reason for the restart that is pending or under way.
    pub(crate) fn why(&self) -> Why {
        match self.request() {
            _ if self.sources.iter().any(SourceStatus::differs) => Why::Changed,
            Some(_) => Why::Requested,
            None => Why::Reverted,
        }
    }

    /// Returns whether a restart is pending or under way.
    pub(super) fn has_work(&self) -> bool {
        self.changes().next().is_some() || self.request().is_some() || self.begun().is_some()
    }

    /// Returns when the newest content was first read, or, without any, when a restart was requested.
    pub(crate) fn observed_at(&self) -> Option<ServerTime> {
        let read = self.sources.iter().filter_map(|known| known.changes.last()).map(|change| change.observed_at).max();
        read.or_else(|| self.request().map(|request| request.observed_at))
    }

    /// Returns since when the pods wait: since a request, or since the newest content was first read.
    pub(crate) fn waits_since(&self) -> Option<ServerTime> {
        let requested = self.request().filter(|_| self.is_requested()).map(|request| request.observed_at);
        requested.or_else(|| self.observed_at())
    }

    pub(crate) fn ended_since(&self, before: &Self) -> Option<&Entry> {
        self.history.first().filter(|last| before.history.first().is_none_or(|known| known.number != last.number))
    }

    /// Returns since when ten restarts have begun, if that is recorded.
    #[must_use]
    pub fn ten_restarts_since(&self) -> Option<ServerTime> {
        self.history.get(HISTORY - 1).map(|entry| entry.started_at)
    }

    /// Returns the sources that are discovered.
    pub(crate) fn discovered(&self) -> impl Iterator<Item = &SourceName> {
        self.sources.iter().filter(|known| known.discovered).map(|known| &known.name)
    }

    /// Returns whether this request was handled last, or is being handled.
    pub fn has_handled(&self, request: &Arc<str>) -> bool {
        let known = self.request().map(|request| &request.value).into_iter();
        known.chain(&self.last_handled_restart_request).any(|known| known == request)
    }

    /// Returns when the last restart began.
    pub(crate) fn last_start(&self) -> Option<ServerTime> {
        self.begun().map(|begun| begun.started_at).or_else(|| Some(self.history.first()?.started_at))
    }

    /// Returns the restart that brought the content to the pods, if one did.
    pub(crate) fn last_restart(&self) -> Option<&Entry> {
        let last = self.history.first().filter(|_| self.baselined_at.is_none())?;
        (last.result == Outcome::Completed).then_some(last)
    }

    /// Returns whether it is known which content pods run with, or a restart brings it to them. If not, the next
    /// content is the baseline.
    pub(crate) fn is_baselined(&self) -> bool {
        self.restart.is_some() || self.sources.iter().any(|source| source.hash.is_some())
    }

    /// Returns the first hash that cannot be compared, which is no change of content: another version has made it.
    pub(crate) fn unknown_hash(&self) -> Option<&ContentHash> {
        let hashes = self.sources.iter().filter_map(|known| known.hash.as_ref());
        hashes.chain(self.changes().map(|change| &change.hash)).find(|hash| !hash.has_known_framing())
    }
}

#[cfg(test)]
mod tests;
