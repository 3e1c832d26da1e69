//! The status of a ConfigMonitor: what the operator records between processes. See `crd.yml` for what each field means.
//!
//! Each source has a journal: the content that pods have been restarted for, and each content that was read since. Which
//! pods may have other content than the last one follows from that (`restart/stale.rs`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use strum::IntoStaticStr;

use super::content::ContentHash;
use super::source::{Keys, SourceName};
use crate::kube::{ResourceVersion, ServerTime};

/// The maximum number of recorded restarts.
const HISTORY: usize = 10;
/// The maximum number of changes of a source. Four suffice to keep the one that the restart under way has begun for: those
/// before it, that one, those after it, and the last one.
const MAX_CHANGES: usize = 4;
/// The maximum number of changes of all sources, unless each has two.
const MAX_ALL_CHANGES: usize = 256;
/// The maximum number of sources that a recorded restart names. It may have had more.
pub const MAX_SOURCES_OF_ENTRY: usize = 12;
pub(super) const A_SECOND: Duration = Duration::from_secs(1);

/// The usual words of conditions, held once for all ConfigMonitors.
const USUAL_WORDS: [&str; 8] =
    ["Ready", "Reconciling", "Stalled", "True", "False", "UpToDate", NO_RESTART_PENDING, NO_ACTION_NEEDED];

/// The message of Reconciling when there is nothing to do.
pub(super) const NO_RESTART_PENDING: &str = "no restart is pending";
/// The message of Stalled when nobody needs to do anything.
pub(super) const NO_ACTION_NEEDED: &str = "no action is needed";

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// How many seconds after the last start, and after the change, the next restart for a change of it may begin. Set once
    /// such restarts have followed each other too fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_back_off_seconds: Option<u32>,
}

/// A content of a source that came after another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The content. Several that came one after the other may be one that no other equals.
    pub hash: ContentHash,
    /// Until when the content before was known to be there: this one may have come at any time since.
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
    /// When the first of the changes was read that follow each other within a quiet period: from then on the restart waits for
    /// ten quiet periods at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing_since: Option<ServerTime>,
    /// The request that the restart handles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RestartRequest>,
    /// What is known since the restart began. Absent while it is pending.
    #[serde(flatten)]
    pub begun: Option<Begun>,
}

/// What decides which pods are old: of each changed source whether only pods that refer to it have read it, and its contents;
/// and the request. Not for which of the contents the restart has begun.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Journal {
    sources: Vec<(SourceName, bool, Option<ContentHash>, Vec<Change>)>,
    request: Option<RestartRequest>,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    pub(crate) fn is_baking(&self) -> bool {
        matches!(self, Self::Baking { .. })
    }

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
    pub(crate) fn new(name: SourceName, keys: Keys) -> Self {
        Self {
            name,
            discovered: false,
            unreferenced_since: None,
            keys,
            resource_version: None,
            hash: None,
            changes: Vec::new(),
            restarts: Vec::new(),
            restart_back_off_seconds: None,
        }
    }

    /// Returns the content as last read.
    pub fn last(&self) -> Option<&ContentHash> {
        self.changes.last().map(|change| &change.hash).or(self.hash.as_ref())
    }

    /// Returns the change for which the restart under way has begun, if it has for one.
    pub(super) fn marked(&self) -> Option<&Change> {
        self.changes.iter().find(|change| change.begun)
    }

    /// Returns the content that the restart under way has begun for.
    fn target(&self) -> Option<&ContentHash> {
        self.marked().map(|change| &change.hash).or(self.hash.as_ref())
    }

    /// Returns whether pods have been restarted for other content than the last one.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.last() != self.hash.as_ref()
    }

    /// Returns the last change, unless the restart under way has begun for it. If other content has come and gone since, the
    /// restart may be for the same content.
    pub(crate) fn unmarked(&self) -> Option<&Change> {
        self.changes.last().filter(|change| !change.begun)
    }

    pub(crate) fn append(&mut self, change: Change) {
        self.changes.push(change);
        if self.changes.len() > MAX_CHANGES {
            self.merge();
        }
    }

    /// Makes one of two changes that follow each other: pods that may have read either have other content. If possible, the
    /// restart under way has begun for neither.
    fn merge(&mut self) {
        let are_free = |at: &usize| !self.changes[*at].begun && !self.changes[at + 1].begun;
        let at = (0..self.changes.len() - 2).find(are_free).unwrap_or(0);
        let second = self.changes.remove(at + 1);
        let first = &mut self.changes[at];
        first.hash = ContentHash::unknown();
        first.begun |= second.begun;
        first.pods_resource_version = first.pods_resource_version.take().or(second.pods_resource_version);
    }

    /// Returns all contents that the journal knows.
    pub(super) fn hashes_mut(&mut self) -> impl Iterator<Item = &mut ContentHash> {
        self.hash.iter_mut().chain(self.changes.iter_mut().map(|change| &mut change.hash))
    }
}

impl Begun {
    /// Returns the record of a restart of `pods` pods that begins now.
    pub fn new(number: u64, started_at: ServerTime, pod_selector: String, pods: usize) -> Self {
        let (remaining, deleted, last_progress_at) = (pods, 0, started_at);
        let progress = format!("0/{pods}");
        let canary = None;
        Self {
            number,
            started_at,
            pod_selector,
            pods,
            remaining,
            deleted,
            handed_over: 0,
            progress,
            last_progress_at,
            canary,
        }
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

    fn changes_mut(&mut self) -> impl Iterator<Item = &mut Change> {
        self.sources.iter_mut().flat_map(|known| &mut known.changes)
    }

    /// Returns the last changes for which no restart has begun.
    pub(crate) fn unmarked(&self) -> impl Iterator<Item = &Change> {
        self.sources.iter().filter_map(SourceStatus::unmarked)
    }

    /// Returns the sources whose content differs from what pods have been restarted for.
    #[must_use]
    pub fn changed(&self) -> Vec<SourceName> {
        self.sources.iter().filter(|known| known.differs()).map(|known| known.name.clone()).collect()
    }

    /// Returns whether each content is that which the restart under way has begun for.
    pub(super) fn is_on_target(&self) -> bool {
        self.sources.iter().all(|known| known.last() == known.target())
    }

    /// Returns whether somebody has requested the restart as it is, and it waits for no window. For other content it would.
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

    /// Returns when the content was first read that was read last, or when a restart was requested without any.
    pub(crate) fn observed_at(&self) -> Option<ServerTime> {
        let read = self.sources.iter().filter_map(|known| known.changes.last()).map(|change| change.observed_at).max();
        read.or_else(|| self.request().map(|request| request.observed_at))
    }

    /// Returns since when the pods wait: since a request, or since the newest content was first read.
    pub(crate) fn waits_since(&self) -> Option<ServerTime> {
        let requested = self.request().filter(|_| self.is_requested()).map(|request| request.observed_at);
        requested.or_else(|| self.observed_at())
    }

    /// Returns when each content was read and the restart was requested, with the list of pods that was made for it.
    fn readings(&self) -> impl Iterator<Item = (Option<&ResourceVersion>, ServerTime)> {
        let of_changes = self.changes().map(|change| (change.pods_resource_version.as_ref(), change.observed_at));
        let request = self.request().into_iter();
        of_changes.chain(request.map(|request| (request.pods_resource_version.as_ref(), request.observed_at)))
    }

    /// Returns the lists of pods that the journal names, each with when the content was read or the restart requested.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&ResourceVersion, ServerTime)> {
        self.readings().filter_map(|(version, at)| Some((version?, at)))
    }

    pub(crate) fn lacks_a_list(&self) -> bool {
        self.readings().any(|(version, _)| version.is_none())
    }

    /// Names this list of pods wherever none is named. Returns whether there was such a place.
    pub(crate) fn fill(&mut self, list: &ResourceVersion) -> bool {
        let lacked = self.lacks_a_list();
        let fill = |named: &mut Option<ResourceVersion>| _ = named.get_or_insert_with(|| list.clone());
        self.changes_mut().for_each(|change| fill(&mut change.pods_resource_version));
        let request = self.restart.iter_mut().filter_map(|restart| restart.request.as_mut());
        request.for_each(|request| fill(&mut request.pods_resource_version));
        lacked
    }

    /// Returns the last of the lists with which the restart under way began.
    pub(crate) fn began_with(&self) -> Option<&ResourceVersion> {
        let of_request = self.request().and_then(|request| request.pods_resource_version.as_ref());
        let marked = self.sources.iter().filter_map(SourceStatus::marked).max_by_key(|change| change.observed_at);
        let of_changes = marked.and_then(|change| change.pods_resource_version.as_ref());
        if self.is_requested() { of_request.or(of_changes) } else { of_changes.or(of_request) }
    }

    /// Makes room for the changes of all sources.
    pub(super) fn limit(&mut self) {
        while self.changes().count() > MAX_ALL_CHANGES {
            let longest = self.sources.iter_mut().max_by_key(|known| known.changes.len());
            let Some(longest) = longest.filter(|longest| longest.changes.len() > 2) else { return };
            longest.merge();
        }
    }

    /// Takes up a request for a restart of all selected pods. It takes the place of a restart whose canary has failed.
    pub(crate) fn take_up(&mut self, value: Arc<str>, at: ServerTime) {
        self.supersede(at);
        let request = RestartRequest { value, taken_over: false, observed_at: at, pods_resource_version: None };
        self.restart.get_or_insert_default().request = Some(request);
    }

    /// Returns the number of the next restart.
    pub(crate) fn next_number(&self) -> u64 {
        self.history.first().map_or(0, |last| last.number).saturating_add(1)
    }

    /// Records that a restart begins, for the last contents and for the request.
    pub(crate) fn begin(&mut self, begun: Begun) {
        self.sources.iter_mut().filter_map(|known| known.changes.last_mut()).for_each(|change| change.begun = true);
        self.restart.get_or_insert_default().changing_since = None;
        self.record(begun);
    }

    /// Records how far the restart under way has come.
    pub(crate) fn record(&mut self, begun: Begun) {
        self.outdated = Some(begun.remaining);
        self.restart.get_or_insert_default().begun = Some(begun);
    }

    /// Ends the restart under way, so that one for the last contents is pending.
    pub(crate) fn supersede(&mut self, at: ServerTime) {
        let Some(begun) = self.restart.as_mut().and_then(|restart| restart.begun.take()) else { return };
        self.add_to_history(&begun, at, Outcome::Superseded);
        self.outdated = None;
        self.changes_mut().for_each(|change| change.begun = false);
        let request = self.restart.as_mut().and_then(|restart| restart.request.as_mut());
        request.into_iter().for_each(|request| request.taken_over = true);
    }

    /// Records that the selected pods have the last contents, except the skipped ones. `begun` is the restart for these, if
    /// one began.
    pub(crate) fn complete(&mut self, begun: Option<&Begun>, (skipped, skipped_pods): (usize, String), at: ServerTime) {
        match begun {
            Some(begun) => {
                self.add_to_history(begun, at, Outcome::Completed);
                self.baselined_at = None;
            }
            // No pod has read the other content.
            None if self.why() == Why::Reverted => {}
            None => self.baselined_at = Some(at),
        }
        (self.settled_at, self.outdated) = (Some(at), None);
        (self.skipped, self.skipped_pods) = (skipped, skipped_pods);
        for known in &mut self.sources {
            known.hash = known.changes.pop().map(|last| last.hash).or(known.hash.take());
            known.changes.clear();
        }
        let request = self.restart.take().and_then(|restart| Some(restart.request?.value));
        self.last_handled_restart_request = request.or(self.last_handled_restart_request.take());
    }

    /// Records the content of a source as a baseline: the selected pods are assumed to run with it.
    pub(crate) fn baseline(&mut self, at: ServerTime) {
        (self.baselined_at, self.settled_at) = (Some(at), Some(at));
        (self.skipped, self.skipped_pods) = (0, String::new());
    }

    fn add_to_history(&mut self, begun: &Begun, completed_at: ServerTime, result: Outcome) {
        let changed = self.sources.iter().filter(|known| known.target() != known.hash.as_ref());
        let sources = changed.map(|known| known.name.clone()).take(MAX_SOURCES_OF_ENTRY).collect();
        let Begun { number, started_at, pods, deleted: replaced, .. } = *begun;
        let requested = self.is_requested();
        let entry = Entry { number, sources, started_at, completed_at, pods, replaced, result, requested };
        self.history.insert(0, entry);
        self.history.truncate(HISTORY);
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
    pub(crate) fn has_handled(&self, request: &Arc<str>) -> bool {
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

    /// Returns what decides which pods are old.
    pub(crate) fn journal(&self) -> Journal {
        let unmarked = |change: &Change| Change { begun: false, ..change.clone() };
        let of_source = |known: &SourceStatus| {
            let changes = known.changes.iter().map(unmarked).collect();
            (known.name.clone(), known.discovered, known.hash.clone(), changes)
        };
        let changed = self.sources.iter().filter(|known| !known.changes.is_empty());
        Journal { sources: changed.map(of_source).collect(), request: self.request().cloned() }
    }

    /// Returns whether the journals and the restart of the other status are the same.
    pub(crate) fn has_recorded(&self, other: &Self) -> bool {
        fn of(known: &SourceStatus) -> (&SourceName, bool, &Keys, Option<&ContentHash>, &[Change]) {
            (&known.name, known.discovered, &known.keys, known.hash.as_ref(), &known.changes)
        }
        self.restart == other.restart && self.sources.iter().map(of).eq(other.sources.iter().map(of))
    }
}

/// Returns [`Status::discovered`] of an undecoded status.
pub(crate) fn discovered(status: &RawValue) -> Vec<SourceName> {
    #[derive(Deserialize)]
    struct Sources {
        #[serde(default)]
        sources: Vec<Known>,
    }
    #[derive(Deserialize)]
    struct Known {
        #[serde(flatten)]
        name: SourceName,
        #[serde(default)]
        discovered: bool,
    }
    let Ok(Sources { sources }) = serde_json::from_str(status.get()) else { return Vec::new() };
    sources.into_iter().filter(|known| known.discovered).map(|known| known.name).collect()
}

/// Returns whether [`Status::is_baselined`] is true for an undecoded status. Decodes no more than that takes: a watch
/// shows each write of a status.
pub(crate) fn has_baseline(status: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Baselines {
        restart: Option<IgnoredAny>,
        #[serde(default)]
        sources: Vec<Baseline>,
    }
    #[derive(Deserialize)]
    struct Baseline {
        hash: Option<IgnoredAny>,
    }
    serde_json::from_str(status.get()).is_ok_and(|Baselines { restart, sources }| {
        restart.is_some() || sources.iter().any(|source| source.hash.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::MAX_STATUS_BYTES;
    use crate::monitor::content::Kind;
    use crate::monitor::discover::MAX_SOURCES;

    fn at(second: i64) -> ServerTime {
        ServerTime::from_second(second)
    }

    fn name(name: &str) -> SourceName {
        SourceName { kind: Kind::ConfigMap, name: name.into() }
    }

    fn begun(number: u64, second: i64) -> Begun {
        Begun::new(number, at(second), "app=web".to_owned(), 3)
    }

    /// Since this second the content is another one. The list has its number. A star: a restart has begun for it.
    fn change(text: &str, second: i64) -> Change {
        let hash = format!("sha256:{}", text.trim_end_matches('*')).as_str().into();
        let list = Some(second.to_string().as_str().into());
        let (since, observed_at) = (at(second), at(second));
        Change { hash, since, observed_at, pods_resource_version: list, begun: text.ends_with('*') }
    }

    /// A source with these contents, one each second. Pods have the first one.
    fn source(source: &str, contents: &str) -> SourceStatus {
        let mut known = SourceStatus::new(name(source), None);
        for (text, second) in contents.split(' ').zip(0..) {
            match second {
                0 => known.hash = Some(change(text, 0).hash),
                _ => known.append(change(text, second)),
            }
        }
        known
    }

    fn contents(known: &SourceStatus) -> String {
        let change = |change: &Change| {
            let (hash, star) = (change.hash.to_string(), if change.begun { "*" } else { "" });
            let list = change.pods_resource_version.as_ref().map_or("-", ResourceVersion::as_str);
            format!("{}{star}:{}:{list}", hash.trim_start_matches("sha256:"), change.observed_at.as_second())
        };
        known.changes.iter().map(change).collect::<Vec<_>>().join(" ")
    }

    fn of(sources: impl IntoIterator<Item = SourceStatus>) -> Status {
        Status { sources: sources.into_iter().collect(), ..Status::default() }
    }

    #[test]
    fn a_restart_has_begun_once_it_has_the_fields_of_that() {
        let pending = r#"{"changingSince":"2026-11-21T10:00:00Z"}"#;
        let begun = r#"{"number":3,"startedAt":"2026-11-21T10:00:03Z","podSelector":"app=web","pods":3,"remaining":1,"deleted":2,"progress":"2/3","lastProgressAt":"2026-11-21T10:00:04Z"}"#;
        for (text, expected) in [(pending, None), (begun, Some(3))] {
            let restart: Restart = serde_json::from_str(text).expect("a restart");
            assert_eq!(restart.begun.as_ref().map(|begun| begun.number), expected);
            assert_eq!(serde_json::to_string(&restart).expect("JSON"), text);
        }
    }

    #[test]
    fn a_journal_survives_a_round_trip() {
        let text = r#"{"kind":"ConfigMap","name":"a","hash":"sha256:1","changes":[{"hash":"other-keys","since":"2026-11-21T10:00:00Z","observedAt":"2026-11-21T10:00:01Z","podsResourceVersion":"7","begun":true},{"hash":"sha256:2","since":"2026-11-21T10:00:02Z","observedAt":"2026-11-21T10:00:02Z"}]}"#;
        let known: SourceStatus = serde_json::from_str(text).expect("a source");
        assert!(known.differs() && known.unmarked() == known.changes.last());
        assert_eq!(serde_json::to_string(&known).expect("JSON"), text);
    }

    #[test]
    fn a_condition_survives_a_round_trip() {
        let text = r#"{"type":"Ready","status":"Unknown","lastTransitionTime":"2026-11-21T10:00:00Z","reason":"Else","message":"why"}"#;
        let condition: Condition = serde_json::from_str(text).expect("a condition");
        assert!(matches!((&condition.r#type, &condition.reason), (Cow::Borrowed("Ready"), Cow::Owned(_))));
        assert_eq!(serde_json::to_string(&condition).expect("JSON"), text);
    }

    /// The last content and that of the restart under way must stay comparable.
    #[test]
    fn of_too_many_contents_two_become_one_that_equals_none() {
        for (before, after) in [
            ("0 1 2 3 4 5", "other-keys:1:1 3:3:3 4:4:4 5:5:5"),
            ("0 1 2 3 4 5 6", "other-keys:1:1 4:4:4 5:5:5 6:6:6"),
            ("0 1* 2 3 4 5", "1*:1:1 other-keys:2:2 4:4:4 5:5:5"),
            ("0 1 2* 3 4 5 6", "1:1:1 2*:2:2 other-keys:3:3 6:6:6"),
            ("0 1 2 3* 4 5 6", "other-keys:1:1 3*:3:3 other-keys:4:4 6:6:6"),
            ("0 1 2 3 4* 5", "other-keys:1:1 3:3:3 4*:4:4 5:5:5"),
        ] {
            assert_eq!(contents(&source("a", before)), after, "{before}");
        }
        let mut unlisted = source("a", "0 1 2 3 4");
        unlisted.changes[0].pods_resource_version = None;
        unlisted.append(change("5", 5));
        assert_eq!(contents(&unlisted), "other-keys:1:2 3:3:3 4:4:4 5:5:5");
    }

    #[test]
    fn of_the_changes_of_all_sources_those_of_the_sources_with_most_make_room() {
        let many = |count, of| (0..count).map(move |number| source(&number.to_string(), of));
        for (mut status, count) in [
            (of(many(64, "0 1 2 3 4")), 256),
            (of(many(40, "0 1 2 3 4").chain(many(88, "0 1"))), 248),
            (of(many(80, "0 1 2 3 4").chain(many(48, "0 1"))), 256),
            (of(many(130, "0 1 2 3")), 260),
        ] {
            let last: Vec<_> = status.sources.iter().map(|known| known.last().cloned()).collect();
            status.limit();
            assert_eq!(status.changes().count(), count);
            assert!(status.sources.iter().map(|known| known.last().cloned()).eq(last));
        }
    }

    #[test]
    fn a_restart_begins_for_the_last_contents_and_goes_on_if_they_are_the_last_ones() {
        let mut status = of([source("a", "0 1 2"), source("b", "0")]);
        status.restart = Some(Box::new(Restart { changing_since: Some(at(1)), ..Restart::default() }));
        assert_eq!((status.unmarked().count(), status.is_on_target()), (1, false));
        status.begin(begun(status.next_number(), 5));
        assert_eq!((contents(&status.sources[0]), status.unmarked().count()), ("1:1:1 2*:2:2".to_owned(), 0));
        assert_eq!(status.restart.as_ref().expect("a restart").changing_since, None);
        assert_eq!((status.outdated, status.is_on_target()), (Some(3), true));
        for (known, text, is_on_target) in [(1, "1", false), (1, "0", true), (0, "0", false), (0, "2", true)] {
            status.sources[known].append(change(text, 6));
            assert_eq!((status.unmarked().count(), status.is_on_target()), (2 - known, is_on_target), "{known} {text}");
        }
    }

    #[test]
    fn a_superseded_restart_leaves_a_pending_one_for_what_is_left() {
        let mut status = of([source("a", "0 1"), source("b", "0")]);
        status.supersede(at(5));
        assert_eq!((status.history.len(), &status.restart), (0, &None), "none had begun");
        status.take_up("now".into(), at(2));
        status.begin(begun(4, 5));
        status.sources[1].append(change("1", 6));
        status.supersede(at(9));
        let [Entry { number: 4, sources, completed_at, result: Outcome::Superseded, requested: true, .. }] =
            &status.history[..]
        else {
            panic!("{:?}", status.history)
        };
        assert_eq!((&sources[..], *completed_at), (&[name("a")][..], at(9)));
        assert!(status.begun().is_none() && status.request().is_some_and(|request| request.taken_over));
        assert_eq!((status.unmarked().count(), status.outdated, status.next_number()), (2, None, 5));
    }

    #[test]
    fn the_end_of_a_restart_cuts_the_journal_to_its_last_entry() {
        let changed =
            Status { baselined_at: Some(at(1)), outdated: Some(2), ..of([source("a", "0 1 2"), source("b", "0")]) };
        let reverted = Status { sources: vec![source("a", "0 1 0")], restart: Some(Box::default()), ..changed.clone() };
        for (before, begun, baselined, history) in [
            (&changed, Some(begun(1, 5)), None, 1),
            (&reverted, Some(begun(1, 5)), None, 1),
            (&changed, None, Some(9), 0),
            // No pod has read the other content.
            (&reverted, None, Some(1), 0),
        ] {
            let mut status = before.clone();
            let last = status.sources[0].last().cloned();
            status.complete(begun.as_ref(), (1, "web-1".to_owned()), at(9));
            assert_eq!((&status.sources[0].hash, status.changes().count()), (&last, 0));
            assert_eq!((status.baselined_at, status.settled_at), (baselined.map(at), Some(at(9))));
            assert_eq!((status.outdated, &status.restart, status.history.len()), (None, &None, history));
            assert_eq!((status.skipped, &*status.skipped_pods), (1, "web-1"));
        }
    }

    #[test]
    fn a_list_is_named_wherever_none_is() {
        let mut status = of([source("a", "0 1 2")]);
        status.sources[0].changes[1].pods_resource_version = None;
        assert!(status.lacks_a_list());
        status.take_up("now".into(), at(7));
        assert!(status.fill(&"9".into()) && !status.fill(&"10".into()) && !status.lacks_a_list());
        let lists: Vec<_> = status.lists().map(|(list, at)| (list.as_str(), at.as_second())).collect();
        assert_eq!(lists, [("1", 1), ("9", 2), ("9", 7)]);
    }

    #[test]
    fn the_discovered_sources_of_a_status_are_the_same_undecoded() {
        let sources = ["a", "b"].map(|name| {
            format!(r#"{{"kind":"ConfigMap","name":"{name}","hash":"sha256:1","discovered":{}}}"#, name == "a")
        });
        let text = format!(r#"{{"sources":[{}],"restart":{{}}}}"#, sources.join(","));
        let status: Status = serde_json::from_str(&text).expect("a status");
        assert_eq!(status.discovered().collect::<Vec<_>>(), [&name("a")]);
        assert_eq!(discovered(&RawValue::from_string(text).expect("a status")), [name("a")]);
    }

    #[test]
    fn a_status_is_baselined_by_a_hash_or_a_restart() {
        for (text, expected) in [
            ("{}", false),
            (r#"{"sources":[{"kind":"ConfigMap","name":"a"}],"restart":null}"#, false),
            (r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"}]}"#, true),
            (r#"{"restart":{}}"#, true),
        ] {
            let status: Status = serde_json::from_str(text).expect("a status");
            let undecoded = RawValue::from_string(text.to_owned()).expect("a status");
            assert_eq!((status.is_baselined(), has_baseline(&undecoded)), (expected, expected), "{text}");
        }
    }

    #[test]
    fn the_column_counts_the_pods_that_are_gone_or_terminating() {
        let progress = [3, 1, 0, 9].map(|remaining| begun(1, 0).with_remaining(remaining).progress);
        assert_eq!((&*begun(1, 0).progress, progress), ("0/3", ["0/3", "2/3", "3/3", "0/3"].map(str::to_owned)));
    }

    #[test]
    fn the_history_keeps_the_ten_newest_restarts_and_says_how_fast_they_followed_each_other() {
        let mut status = Status::default();
        let since = [9, 10, 12].map(|last| {
            for number in status.next_number()..=last {
                let (before, start) = (status.clone(), i64::try_from(number).unwrap());
                status.complete(Some(&begun(number, start)), (0, String::new()), at(start));
                assert_eq!(status.ended_since(&before).map(|entry| entry.number), Some(number));
                assert_eq!(status.ended_since(&status), None);
            }
            status.ten_restarts_since()
        });
        let numbers: Vec<u64> = status.history.iter().map(|entry| entry.number).collect();
        assert_eq!((&numbers[..], status.next_number()), (&[12, 11, 10, 9, 8, 7, 6, 5, 4, 3][..], 13));
        assert_eq!(since, [None, Some(at(1)), Some(at(3))]);
    }

    /// Names and keys are as long as they may be, and each source has changed twice.
    #[test]
    fn a_status_with_as_many_sources_as_there_may_be_fits() {
        let at = at(1_764_000_000);
        let hash = || ContentHash::from(format!("hmac-sha256:{}", "0".repeat(64)).as_str());
        let version = || Some(ResourceVersion::from("1234567890123456789"));
        let long = |number: usize| name(&format!("{number:0>253}"));
        let keys = (0..64).map(|number| format!("{number:0>4}")).collect();
        let new = SourceStatus::new(name(""), Some(keys));
        let change = Change { hash: hash(), since: at, observed_at: at, pods_resource_version: version(), begun: true };
        let source = |number| SourceStatus {
            name: long(number),
            discovered: true,
            unreferenced_since: Some(at),
            resource_version: version(),
            hash: Some(hash()),
            changes: vec![change.clone(); MAX_ALL_CHANGES / MAX_SOURCES],
            restarts: vec![at; 5],
            restart_back_off_seconds: Some(3600),
            ..new.clone()
        };
        let entry = Entry {
            number: u64::MAX,
            sources: (0..MAX_SOURCES_OF_ENTRY).map(long).collect(),
            started_at: at,
            completed_at: at,
            pods: 10_000,
            replaced: 10_000,
            result: Outcome::Superseded,
            requested: true,
        };
        let mut status = Status { history: vec![entry; HISTORY], ..of((0..MAX_SOURCES).map(source)) };
        status.take_up("0".repeat(128).into(), at);
        status.begin(begun(u64::MAX, 0));
        let bytes = serde_json::to_string(&status).expect("JSON").len();
        assert!(bytes + 10_000 < 280_000 && 280_000 < MAX_STATUS_BYTES, "{bytes} without conditions");
    }
}
