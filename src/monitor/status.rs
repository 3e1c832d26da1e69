//! The status of a ConfigMonitor: what the operator records between processes. See `crd.yml` for what each field means.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use strum::IntoStaticStr;

use super::content::ContentHash;
use super::source::{Contents, Keys, SourceName};
use crate::kube::{ResourceVersion, ServerTime};

/// The maximum number of recorded restarts.
const HISTORY: usize = 10;
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
    /// The content that the selected pods have been restarted for. Absent until the first content is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
    /// When the last restarts for changes of it began, newest first, as far as the guard against loops counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<ServerTime>,
    /// How many seconds after the last start, and after the change, the next restart for a change of it may begin. Set once
    /// such restarts have followed each other too fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_back_off_seconds: Option<u32>,
}

/// A restart that is pending, or under way once it has begun.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// The sources whose content has changed, in the order in which that was read.
    #[serde(rename = "sources")]
    pub changes: Vec<Change>,
    /// The request that the restart handles. Without a change, it is the only reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// What is known since the restart began. Absent while it is pending.
    #[serde(flatten)]
    pub begun: Option<Begun>,
}

/// A change of a source, for which pods are restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The identity of the object.
    #[serde(flatten)]
    pub source: SourceName,
    /// The content that pods are restarted for.
    pub hash: ContentHash,
    /// When this content was first read.
    pub observed_at: ServerTime,
    /// The version of the pod list that was read right after the content: its pods may run with earlier content. Absent
    /// until the list has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_resource_version: Option<ResourceVersion>,
    /// When the content first differed from what pods had been restarted for.
    pub since: ServerTime,
    /// The version of the pod list that was read at `since`, if other content has come later: its pods are older than
    /// the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_pods_resource_version: Option<ResourceVersion>,
    /// Whether the content is back to what pods had been restarted for. Only pods created since `since` are then
    /// restarted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revert: bool,
}

/// A request for a restart of all selected pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
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
    /// When other content was first read, which has stopped the deletions. If the content of the restart does not come
    /// back within the quiet period, the restart has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted_at: Option<ServerTime>,
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
    /// The sources whose content had changed.
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
    /// Other content came before the end.
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
            restarts: Vec::new(),
            restart_back_off_seconds: None,
        }
    }
}

impl Restart {
    pub(crate) fn change(&self, source: &SourceName) -> Option<&Change> {
        self.changes.iter().find(|change| change.source == *source)
    }

    /// Returns whether somebody has requested this restart as it is, and it waits for no window. For other content it
    /// would.
    pub(crate) fn is_requested(&self) -> bool {
        self.request.as_ref().is_some_and(|request| !request.taken_over)
    }

    /// Returns whether all content is back to what pods had been restarted for, and nobody has requested a restart.
    pub(crate) fn is_revert(&self) -> bool {
        self.request.is_none() && !self.changes.is_empty() && self.changes.iter().all(|change| change.revert)
    }

    /// Returns whether the guard against loops counts this restart, and may hold it: people make reverts and requests.
    pub(crate) fn is_for_a_change(&self) -> bool {
        !self.is_revert() && !self.is_requested()
    }

    /// Returns when the content was first read that was read last, or when a restart was requested without any.
    pub(crate) fn observed_at(&self) -> ServerTime {
        let requested = || self.request.as_ref().map(|request| request.observed_at);
        self.newest().map(|change| change.observed_at).or_else(requested).unwrap_or(ServerTime::from_second(0))
    }

    /// Returns since when the pods wait: since a request, or since the newest content was first read.
    pub(crate) fn waits_since(&self) -> ServerTime {
        let request = self.request.as_ref().filter(|request| !request.taken_over);
        request.map_or_else(|| self.observed_at(), |request| request.observed_at)
    }

    /// Returns when some content first differed from what pods had been restarted for, or when a restart was requested
    /// without any.
    pub(crate) fn since(&self) -> ServerTime {
        self.changes.iter().map(|change| change.since).min().unwrap_or_else(|| self.observed_at())
    }

    fn newest(&self) -> Option<&Change> {
        self.changes.last()
    }

    /// Returns where the list of pods right after each reading or request is named.
    pub(crate) fn lists_mut(&mut self) -> impl Iterator<Item = &mut Option<ResourceVersion>> {
        let of_changes = self.changes.iter_mut().map(|change| &mut change.pods_resource_version);
        of_changes.chain(self.request.iter_mut().map(|request| &mut request.pods_resource_version))
    }

    /// Returns the lists of pods that say which ones are old.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &ResourceVersion> {
        let of_changes = self.changes.iter().flat_map(|change| {
            let left = change.since_pods_resource_version.as_ref().filter(|_| change.revert);
            change.pods_resource_version.iter().chain(left)
        });
        of_changes.chain(self.request.iter().filter_map(|request| request.pods_resource_version.as_ref()))
    }

    /// Returns the list of pods that was made last.
    pub(crate) fn last_list(&self) -> Option<&ResourceVersion> {
        let of_changes = self.newest().and_then(|change| change.pods_resource_version.as_ref());
        let of_request = self.request.as_ref().and_then(|request| request.pods_resource_version.as_ref());
        if self.is_requested() { of_request.or(of_changes) } else { of_changes.or(of_request) }
    }

    /// Returns what distinguishes a restart that has begun from the others of its ConfigMonitor: two may begin in the same
    /// second, the second one with the same list, for what is left of the first one.
    pub(crate) fn identity(&self) -> Option<String> {
        let (began, version) = (self.begun.as_ref()?.started_at, self.last_list().map_or("", ResourceVersion::as_str));
        Some(format!("{began}/{version}/{}{}", self.changes.len(), if self.is_revert() { "/revert" } else { "" }))
    }

    pub(crate) fn interrupted_at(&self) -> Option<ServerTime> {
        self.begun.as_ref()?.interrupted_at
    }
}

impl Begun {
    /// Returns the record of a restart of `pods` pods that begins now.
    pub fn new(started_at: ServerTime, pod_selector: String, pods: usize) -> Self {
        let (remaining, deleted, last_progress_at) = (pods, 0, started_at);
        let progress = format!("0/{pods}");
        let (interrupted_at, canary) = (None, None);
        Self {
            started_at,
            pod_selector,
            pods,
            remaining,
            deleted,
            handed_over: 0,
            progress,
            last_progress_at,
            interrupted_at,
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

    /// Ends an interruption. It does not count as bake time, so that begins anew.
    pub(super) fn go_on(&mut self) {
        self.interrupted_at = None;
        if let Some(canary) = self.canary.as_mut().filter(|canary| canary.state.is_baking()) {
            canary.state = CanaryState::Replacing;
        }
    }
}

impl Status {
    /// Records the content of a source as a baseline: the selected pods are assumed to run with it.
    pub(crate) fn baseline(&mut self, at: ServerTime) {
        self.baselined_at = Some(at);
        (self.skipped, self.skipped_pods) = (0, String::new());
    }

    /// Records that a change is handled: the selected pods run with its content, except the skipped ones. `begun` is
    /// the restart for the change, if one began.
    pub(crate) fn complete(&mut self, begun: Option<&Begun>, (skipped, skipped_pods): (usize, String), at: ServerTime) {
        let changed = self.changed_by_restart();
        let restart = self.restart.take();
        let requested = restart.as_deref().is_some_and(Restart::is_requested);
        for source in &mut self.sources {
            let change = restart.as_deref().and_then(|restart| restart.change(&source.name));
            source.hash = change.map(|change| change.hash.clone()).or(source.hash.take());
        }
        self.baseline(at);
        (self.skipped, self.skipped_pods) = (skipped, skipped_pods);
        if let Some(begun) = begun {
            self.baselined_at = None;
            self.add_to_history(changed, begun, requested, at, Outcome::Completed);
        }
        let request = restart.and_then(|restart| Some(restart.request?.value));
        self.last_handled_restart_request = request.or(self.last_handled_restart_request.take());
    }

    /// Returns the sources whose content in `contents` differs from what pods have been restarted for.
    pub(crate) fn changed(&self, contents: &Contents) -> Vec<SourceName> {
        let changed = contents.iter().filter(|(name, hash)| self.hash_of(name) != Some(*hash));
        changed.map(|(name, _)| name.clone()).collect()
    }

    /// Returns those whose content differs in the restart.
    pub(crate) fn changed_by_restart(&self) -> Vec<SourceName> {
        let changes = self.restart.iter().flat_map(|restart| &restart.changes);
        changes.filter(|change| !change.revert).map(|change| change.source.clone()).collect()
    }

    /// Returns the sources that are discovered, or that were named as the restart began that is under way.
    pub(crate) fn discovered(&self) -> impl Iterator<Item = &SourceName> {
        let begun = self.restart.as_ref().filter(|restart| restart.begun.is_some());
        let is_in_restart = move |name: &SourceName| begun.is_some_and(|begun| begun.change(name).is_some());
        self.sources.iter().filter(move |known| known.discovered || is_in_restart(&known.name)).map(|known| &known.name)
    }

    /// Returns whether a source is discovered, so that a change of it concerns only the pods that refer to it.
    pub(crate) fn is_discovered(&self, name: &SourceName) -> bool {
        self.sources.iter().any(|source| source.name == *name && source.discovered)
    }

    /// Returns what pods have been restarted for.
    pub(crate) fn hash_of(&self, name: &SourceName) -> Option<&ContentHash> {
        self.sources.iter().find(|source| source.name == *name)?.hash.as_ref()
    }

    /// Returns the content of each source that pods have been, or are to be, restarted for.
    pub(crate) fn desired(&self) -> Contents {
        let mut contents = Contents::default();
        for SourceStatus { name, hash, .. } in &self.sources {
            let change = self.restart.as_ref().and_then(|restart| restart.change(name));
            if let Some(hash) = change.map(|change| &change.hash).or(hash.as_ref()) {
                contents.set(name, hash.clone());
            }
        }
        contents
    }

    /// Returns whether other content interrupts the restart under way.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.restart.as_ref().is_some_and(|restart| restart.interrupted_at().is_some())
    }

    /// Returns since when ten restarts have begun, if that is recorded.
    #[must_use]
    pub fn ten_restarts_since(&self) -> Option<ServerTime> {
        self.history.get(HISTORY - 1).map(|entry| entry.started_at)
    }

    fn add_to_history(
        &mut self,
        mut sources: Vec<SourceName>,
        begun: &Begun,
        requested: bool,
        completed_at: ServerTime,
        result: Outcome,
    ) {
        let (pods, replaced, started_at) = (begun.pods, begun.deleted, begun.started_at);
        sources.truncate(MAX_SOURCES_OF_ENTRY);
        self.history.insert(0, Entry { sources, started_at, completed_at, pods, replaced, result, requested });
        self.history.truncate(HISTORY);
    }

    pub(crate) fn ended_since(&self, before: &Self) -> Option<&Entry> {
        // Two restarts that end within a second may be equal.
        self.history.first().filter(|_| self.history != before.history)
    }

    /// Puts a pending restart in the place of the one in the status. One that has begun goes to the history.
    pub(crate) fn supersede(&mut self, next: Restart, at: ServerTime) {
        let changed = self.changed_by_restart();
        if let Some(restart) = self.restart.take()
            && let Some(begun) = &restart.begun
        {
            // See `has_superseded`: another API server's clock may be behind.
            let ended_at = at.max(next.since().plus(A_SECOND));
            self.add_to_history(changed, begun, restart.is_requested(), ended_at, Outcome::Superseded);
        }
        self.restart = Some(Box::new(next));
    }

    /// Returns whether the pending restart has taken the place of one that had begun.
    pub(crate) fn has_superseded(&self) -> bool {
        let since = self.restart.as_ref().map(|restart| restart.since());
        let last = self.history.first().filter(|last| last.result == Outcome::Superseded);
        last.map(|last| last.completed_at) > since
    }

    /// Returns whether this request was handled last, or is being handled.
    pub(crate) fn has_handled(&self, request: &Arc<str>) -> bool {
        let known = self.restart.iter().filter_map(|restart| restart.request.as_ref()).map(|request| &request.value);
        known.chain(&self.last_handled_restart_request).any(|known| known == request)
    }

    /// Marks a request as handled that was made before the first content was recorded.
    pub(crate) fn ignore_request(&mut self, request: Option<&Arc<str>>) {
        self.last_handled_restart_request = request.cloned();
    }

    pub(crate) fn why(&self) -> Why {
        match self.restart.as_deref() {
            Some(restart) if restart.is_revert() => Why::Reverted,
            Some(restart) if restart.request.is_some() && self.changed_by_restart().is_empty() => Why::Requested,
            _ => Why::Changed,
        }
    }

    /// Returns the known starts of restarts that are over or under way, newest first.
    pub(crate) fn starts(&self) -> Vec<ServerTime> {
        let latest = self.restart.as_ref().and_then(|restart| restart.begun.as_ref()).map(|begun| begun.started_at);
        latest.into_iter().chain(self.history.iter().map(|entry| entry.started_at)).collect()
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

    /// Returns what pods have been restarted for: each source with its keys and content.
    pub(crate) fn recorded(
        &self,
    ) -> impl Iterator<Item = (&SourceName, Option<&BTreeSet<String>>, Option<&ContentHash>)> {
        self.sources.iter().map(|source| (&source.name, source.keys.as_ref(), source.hash.as_ref()))
    }

    /// Returns whether this content of a source is recorded, or a restart is about it.
    pub(crate) fn knows(&self, name: &SourceName, hash: &ContentHash) -> bool {
        let change = self.restart.as_ref().and_then(|restart| restart.change(name));
        self.hash_of(name) == Some(hash) || change.is_some_and(|change| change.hash == *hash)
    }

    /// Returns the keys that the content of a source is recorded under, if it is.
    pub(crate) fn keys_of(&self, name: &SourceName) -> Option<&Keys> {
        let is_recorded = |known: &&SourceStatus| {
            let change = self.restart.as_ref().and_then(|restart| restart.change(name));
            known.name == *name && (known.hash.is_some() || change.is_some())
        };
        self.sources.iter().find(is_recorded).map(|known| &known.keys)
    }

    pub(crate) fn version_of(&self, name: &SourceName) -> Option<&ResourceVersion> {
        self.sources.iter().find(|source| source.name == *name)?.resource_version.as_ref()
    }
}

/// Returns [`Status::discovered`] of an undecoded status.
pub(crate) fn discovered(status: &RawValue) -> Vec<SourceName> {
    #[derive(Deserialize)]
    struct Sources {
        #[serde(default)]
        sources: Vec<Known>,
        restart: Option<Changed>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Changed {
        started_at: Option<IgnoredAny>,
        #[serde(default)]
        sources: Vec<SourceName>,
    }
    #[derive(Deserialize)]
    struct Known {
        #[serde(flatten)]
        name: SourceName,
        #[serde(default)]
        discovered: bool,
    }
    let Ok(Sources { sources, restart }) = serde_json::from_str(status.get()) else { return Vec::new() };
    let begun = restart.filter(|restart| restart.started_at.is_some()).map_or(Vec::new(), |restart| restart.sources);
    let known = sources.into_iter().filter(|known| known.discovered || begun.contains(&known.name));
    known.map(|known| known.name).collect()
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

    #[test]
    fn a_restart_has_begun_once_it_has_the_fields_of_that() {
        let pending = r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1","observedAt":"2026-11-21T10:00:00Z","podsResourceVersion":"7","since":"2026-11-21T10:00:00Z"}]}"#;
        let restart: Restart = serde_json::from_str(pending).expect("a restart");
        assert_eq!((&restart.begun, restart.interrupted_at()), (&None, None));
        assert_eq!(serde_json::to_string(&restart).expect("JSON"), pending);
        let begun = pending.replace(
            "}]}",
            r#"}],"startedAt":"2026-11-21T10:00:03Z","podSelector":"app=web","pods":3,"remaining":1,"deleted":2,"progress":"2/3","lastProgressAt":"2026-11-21T10:00:04Z"}"#,
        );
        let interrupted = begun.replace("04Z\"}", r#"04Z","interruptedAt":"2026-11-21T10:00:05Z"}"#);
        for (text, second) in [(begun, None), (interrupted, Some("2026-11-21T10:00:05Z".to_owned()))] {
            let restart: Restart = serde_json::from_str(&text).expect("a restart");
            assert_eq!(restart.begun.as_ref().map(|begun| begun.remaining), Some(1));
            assert_eq!(restart.interrupted_at().map(|at| at.to_string()), second);
            assert_eq!(serde_json::to_string(&restart).expect("JSON"), text);
        }
    }

    #[test]
    fn content_is_known_if_it_is_recorded_or_a_restart_is_about_it() {
        let status = r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"},{"kind":"ConfigMap","name":"b"}],
            "restart":{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:2",
            "observedAt":"2026-11-21T10:00:00Z","since":"2026-11-21T10:00:00Z"}]}}"#;
        let status: Status = serde_json::from_str(status).expect("a status");
        let name = |name: &str| SourceName { kind: Kind::ConfigMap, name: name.into() };
        let known = |source, hash: &str| status.knows(&name(source), &ContentHash::from(hash));
        assert!(known("a", "sha256:1") && known("a", "sha256:2"));
        assert!(!known("a", "sha256:3") && !known("b", "sha256:1") && !known("b", "sha256:2"));
    }

    #[test]
    fn a_condition_survives_a_round_trip() {
        let text = r#"{"type":"Ready","status":"Unknown","lastTransitionTime":"2026-11-21T10:00:00Z","reason":"Else","message":"why"}"#;
        let condition: Condition = serde_json::from_str(text).expect("a condition");
        assert!(matches!((&condition.r#type, &condition.reason), (Cow::Borrowed("Ready"), Cow::Owned(_))));
        assert_eq!(serde_json::to_string(&condition).expect("JSON"), text);
    }

    #[test]
    fn a_restart_has_ended_even_if_it_equals_the_previous_one() {
        let text = r#"{"startedAt":"2026-11-21T10:00:00Z","completedAt":"2026-11-21T10:00:00Z","pods":2,"replaced":2,"result":"Completed"}"#;
        let entry: Entry = serde_json::from_str(text).expect("an entry");
        let status = |ended| Status { history: vec![entry.clone(); ended], ..Status::default() };
        assert_eq!(status(0).ended_since(&status(0)), None);
        assert_eq!(status(1).ended_since(&status(1)), None);
        assert_eq!(status(1).ended_since(&status(0)), Some(&entry));
        assert_eq!(status(2).ended_since(&status(1)), Some(&entry));
    }

    /// As when the spec no longer names it, but pods refer to it.
    #[test]
    fn a_source_of_a_restart_that_has_begun_may_be_discovered() {
        let change = r#"{"kind":"ConfigMap","name":"b","hash":"sha256:2","observedAt":"2026-11-21T10:00:00Z","since":"2026-11-21T10:00:00Z"}"#;
        let begun = r#","startedAt":"2026-11-21T10:00:00Z","podSelector":"a=b","pods":1,"remaining":1,"lastProgressAt":"2026-11-21T10:00:00Z""#;
        for (begun, expected) in [("", &["a"][..]), (begun, &["a", "b"])] {
            let sources = ["a", "b", "c"].map(|name| {
                format!(r#"{{"kind":"ConfigMap","name":"{name}","hash":"sha256:1","discovered":{}}}"#, name == "a")
            });
            let text = format!(r#"{{"sources":[{}],"restart":{{"sources":[{change}]{begun}}}}}"#, sources.join(","));
            let status: Status = serde_json::from_str(&text).expect("a status");
            let names: Vec<&str> = status.discovered().map(|source| &*source.name).collect();
            assert_eq!(names, expected);
            let undecoded = discovered(&RawValue::from_string(text).expect("a status"));
            assert!(undecoded.iter().eq(status.discovered()), "{undecoded:?}");
        }
    }

    #[test]
    fn a_status_is_baselined_by_a_hash_or_a_restart() {
        for (text, expected) in [
            ("{}", false),
            (r#"{"sources":[{"kind":"ConfigMap","name":"a"}],"restart":null}"#, false),
            (r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"}]}"#, true),
            (r#"{"restart":{"sources":[]}}"#, true),
        ] {
            let status: Status = serde_json::from_str(text).expect("a status");
            let undecoded = RawValue::from_string(text.to_owned()).expect("a status");
            assert_eq!((status.is_baselined(), has_baseline(&undecoded)), (expected, expected), "{text}");
        }
    }

    #[test]
    fn a_pending_restart_has_superseded_one_that_has_ended_since_by_any_clock() {
        let pending = |since| {
            let at = ServerTime::from_second(since);
            let change = Change {
                source: SourceName { kind: Kind::ConfigMap, name: "a".into() },
                hash: "sha256:1".into(),
                observed_at: at,
                pods_resource_version: None,
                since: at,
                since_pods_resource_version: None,
                revert: false,
            };
            Restart { changes: vec![change], ..Restart::default() }
        };
        let mut status = Status::default();
        status.supersede(pending(10), ServerTime::from_second(10));
        assert!(!status.has_superseded() && status.history.is_empty(), "it had not begun");
        let begun = Some(Begun::new(ServerTime::from_second(13), "app=web".to_owned(), 3));
        status.restart = Some(Box::new(Restart { begun, ..pending(10) }));
        status.supersede(pending(10), ServerTime::from_second(7));
        assert!(status.has_superseded());
        status.restart = Some(Box::new(pending(20)));
        assert!(!status.has_superseded(), "that was before");
    }

    #[test]
    fn the_column_counts_the_pods_that_are_gone_or_terminating() {
        let begun = Begun::new(ServerTime::from_second(0), "app=web".to_owned(), 3);
        let progress = [3, 1, 0, 9].map(|remaining| begun.clone().with_remaining(remaining).progress);
        assert_eq!((&*begun.progress, progress), ("0/3", ["0/3", "2/3", "3/3", "0/3"].map(str::to_owned)));
    }

    #[test]
    fn the_history_keeps_the_ten_newest_restarts_and_says_how_fast_they_followed_each_other() {
        let at = |number: u32| ServerTime::from_second(i64::from(number));
        let mut status = Status::default();
        let since = [9, 10, 12].map(|end| {
            for number in status.history.first().map_or(0, |entry| entry.pods + 1)..end {
                let start = at(u32::try_from(number).unwrap());
                status.complete(Some(&Begun::new(start, "app=web".to_owned(), number)), (0, String::new()), start);
            }
            status.ten_restarts_since()
        });
        let pods: Vec<usize> = status.history.iter().map(|entry| entry.pods).collect();
        assert_eq!(pods, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
        assert_eq!(since, [None, Some(at(0)), Some(at(2))]);
    }

    /// Names and keys are as long as they may be, and each source has changed twice.
    #[test]
    fn a_status_with_as_many_sources_as_there_may_be_fits() {
        let at = ServerTime::from_second(1_764_000_000);
        let hash = || ContentHash::from(format!("hmac-sha256:{}", "0".repeat(64)).as_str());
        let version = || Some(ResourceVersion::from("1234567890123456789"));
        let name = |number: usize| SourceName { kind: Kind::ConfigMap, name: format!("{number:0>253}").into() };
        let keys: BTreeSet<String> = (0..64).map(|number| format!("{number:0>4}")).collect();
        let source = |number| SourceStatus {
            discovered: true,
            unreferenced_since: Some(at),
            resource_version: version(),
            hash: Some(hash()),
            restarts: vec![at; 5],
            restart_back_off_seconds: Some(3600),
            ..SourceStatus::new(name(number), Some(keys.clone()))
        };
        let change = |number| Change {
            source: name(number),
            hash: hash(),
            observed_at: at,
            pods_resource_version: version(),
            since: at,
            since_pods_resource_version: version(),
            revert: true,
        };
        let status = |count: usize| {
            let restart = Restart { changes: (0..count).map(change).collect(), ..Restart::default() };
            let entry = Entry {
                sources: (0..MAX_SOURCES_OF_ENTRY).map(name).collect(),
                started_at: at,
                completed_at: at,
                pods: 10_000,
                replaced: 10_000,
                result: Outcome::Superseded,
                requested: true,
            };
            let (sources, history) = ((0..count).map(source).collect(), vec![entry; HISTORY]);
            Status { sources, history, restart: Some(Box::new(restart)), ..Status::default() }
        };
        let bytes = |count| serde_json::to_string(&status(count)).expect("JSON").len();
        assert!(bytes(MAX_SOURCES) + 10_000 < MAX_STATUS_BYTES, "{} without conditions", bytes(MAX_SOURCES));
    }
}
