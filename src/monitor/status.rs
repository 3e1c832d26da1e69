//! What the operator remembers of a ConfigMonitor, at the object itself. See `crd.yml` for what each field means.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::content::ContentHash;
use super::source::{Contents, SourceName};
use crate::kube::{ResourceVersion, ServerTime};

/// So many restarts are kept.
const HISTORY: usize = 10;

/// What almost every condition says; held once for all of them.
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
    /// What is watched, for a column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What is known of each source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceStatus>,
    /// When the content of a source was last recorded without a restart: the selected pods that existed by then are assumed to run with it.
    /// Absent after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baselined_at: Option<ServerTime>,
    /// How many pods the selector matched when they were last listed. Absent until the pods have been listed for the current spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<usize>,
    /// How many selected pods with earlier content were left alone at the last change,
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: usize,
    /// and which ones and why, for a person.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub skipped_pods: String,
    /// The restart that is pending or under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Box<Restart>>,
    /// Once restarts have come too fast: how many seconds after the start of the last one, and after the change, the next one may begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_back_off_seconds: Option<u32>,
    /// The request for a restart that was handled last: the value of its annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handled_restart_request: Option<Arc<str>>,
    /// Restarts that are over, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Entry>,
    /// Ready, Reconciling and Stalled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What is known of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// Which object it is.
    #[serde(flatten)]
    pub name: SourceName,
    /// The keys that the hash is of; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<BTreeSet<String>>,
    /// The object as last read. Absent while an optional one is not there, and until it is there first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<ResourceVersion>,
    /// The content that the selected pods have been restarted for. Absent until the first content is recorded, and while a restart goes on that was
    /// about a source which the spec does not name any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
}

/// A restart that is pending, or under way once it has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// The content of each source that pods are restarted for.
    #[serde(rename = "sources")]
    pub contents: Contents,
    /// When this content was first read.
    pub observed_at: ServerTime,
    /// The version of the list of pods that was read right after that: which pods may run with earlier content. Absent until it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_resource_version: Option<ResourceVersion>,
    /// When the content first differed from what pods had been restarted for.
    pub since: ServerTime,
    /// The version of the list of pods that was read right after that, if other content has come since: which pods come from before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_pods_resource_version: Option<ResourceVersion>,
    /// Whether the content is back to what pods had been restarted for, so that only pods that have come since `since` are restarted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revert: bool,
    /// The request that it handles: the value of the annotation. Without a change of content, that is what it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Arc<str>>,
    /// How far it is.
    #[serde(flatten)]
    pub stage: Stage,
}

/// How far a restart is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "StageFields", into = "StageFields")]
pub enum Stage {
    /// It is pending, and there is no other one.
    Pending,
    /// It is pending in the middle of one that has begun, and that goes on if its content comes back before this one's has come to rest.
    Superseding(Box<Superseded>),
    /// It has begun.
    UnderWay(Begun),
}

/// In the status, it is told by the fields that are there.
#[derive(Serialize, Deserialize)]
struct StageFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    superseded: Option<Box<Superseded>>,
    #[serde(flatten)]
    begun: Option<Begun>,
}

impl From<StageFields> for Stage {
    fn from(StageFields { superseded, begun }: StageFields) -> Self {
        match (begun, superseded) {
            (Some(begun), _) => Self::UnderWay(begun),
            (None, Some(superseded)) => Self::Superseding(superseded),
            (None, None) => Self::Pending,
        }
    }
}

impl From<Stage> for StageFields {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Pending => Self { superseded: None, begun: None },
            Stage::Superseding(superseded) => Self { superseded: Some(superseded), begun: None },
            Stage::UnderWay(begun) => Self { superseded: None, begun: Some(begun) },
        }
    }
}

/// A restart that has begun, and that other content came in the middle of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// The content of each source that pods are restarted for.
    #[serde(rename = "sources")]
    pub contents: Contents,
    /// When this content was first read.
    pub observed_at: ServerTime,
    /// As in the restart that it was,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_resource_version: Option<ResourceVersion>,
    /// and this,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revert: bool,
    /// and this, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Arc<str>>,
    /// The rest of it.
    #[serde(flatten)]
    pub begun: Begun,
}

/// Why pods are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The content has changed.
    Changed,
    /// It is back to what pods had been restarted for.
    Reverted,
    /// Somebody asks for it.
    Requested,
}

/// What is known of a restart that has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Begun {
    /// When it began.
    pub started_at: ServerTime,
    /// The label selector, as it was then.
    pub pod_selector: String,
    /// How many pods it replaces.
    pub pods: usize,
    /// How many of them are still there.
    pub remaining: usize,
    /// How many of them this restart has deleted; the others were deleted by somebody else. After a crash nobody knows who deleted a missing pod:
    /// it counts as deleted by this restart. So does a pod that somebody else deleted after the list, as the API server accepts both DELETEs.
    #[serde(default)]
    pub deleted: usize,
    /// For a column: how many are gone or terminating, of how many.
    #[serde(default)]
    pub progress: String,
    /// When it last came nearer to its end.
    pub last_progress_at: ServerTime,
    /// The pods that go first, if some do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
}

/// The pods of a restart that go before the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// How many they are.
    pub pods: usize,
    /// How they are.
    #[serde(flatten)]
    pub state: CanaryState,
}

/// How the pods are that go before the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all_fields = "camelCase")]
pub enum CanaryState {
    /// They are being replaced.
    Replacing,
    /// New pods have taken their place, and must stay available for a while.
    Baking {
        /// When all of these were first seen to be available.
        available_at: ServerTime,
    },
    /// They have stayed available: the others may go.
    Passed,
    /// One has not: no other may go.
    Failed {
        /// Which one, and why.
        message: String,
    },
}

/// A restart that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The sources whose content had changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceName>,
    /// When it began.
    pub started_at: ServerTime,
    /// When it ended.
    pub completed_at: ServerTime,
    /// How many pods it was to replace.
    pub pods: usize,
    /// How many of them it has deleted. The others were deleted by somebody else, or not at all if it was superseded.
    #[serde(default)]
    pub replaced: usize,
    /// How it ended.
    pub result: Outcome,
}

/// How a restart ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every pod was replaced.
    Completed,
    /// Other content came before the end.
    Superseded,
}

impl Outcome {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Superseded => "Superseded",
        }
    }
}

/// A condition, as everywhere in Kubernetes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Ready, Reconciling or Stalled.
    #[serde(deserialize_with = "word")]
    pub r#type: Cow<'static, str>,
    /// True or False.
    #[serde(deserialize_with = "word")]
    pub status: Cow<'static, str>,
    /// The generation that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed.
    pub last_transition_time: ServerTime,
    /// Why, in one word.
    #[serde(deserialize_with = "word")]
    pub reason: Cow<'static, str>,
    /// Why, for a person.
    #[serde(deserialize_with = "word")]
    pub message: Cow<'static, str>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    let word = String::deserialize(deserializer)?;
    let usual = USUAL_WORDS.into_iter().find(|usual| *usual == word);
    Ok(usual.map_or(Cow::Owned(word), Cow::Borrowed))
}

impl Restart {
    /// The restart under way that it is about to take the place of, as it goes on.
    #[must_use]
    pub fn before(&self) -> Option<Self> {
        let Stage::Superseding(superseded) = &self.stage else { return None };
        let Superseded { contents, observed_at, pods_resource_version, revert, request, begun } =
            (**superseded).clone();
        let stage = Stage::UnderWay(begun);
        Some(Self { contents, observed_at, pods_resource_version, revert, request, stage, ..self.clone() })
    }

    /// The same restart, if it has begun, when another one is to take its place.
    #[must_use]
    pub fn superseded(&self) -> Stage {
        match &self.stage {
            Stage::UnderWay(begun) => Stage::Superseding(Box::new(Superseded {
                contents: self.contents.clone(),
                observed_at: self.observed_at,
                pods_resource_version: self.pods_resource_version.clone(),
                revert: self.revert,
                request: self.request.clone(),
                begun: begun.clone(),
            })),
            pending => pending.clone(),
        }
    }

    /// What is known of it, if it has begun.
    #[must_use]
    pub fn begun(&self) -> Option<&Begun> {
        match &self.stage {
            Stage::UnderWay(begun) => Some(begun),
            Stage::Superseding(_) | Stage::Pending => None,
        }
    }
}

impl Begun {
    /// A restart of so many pods that begins now.
    #[must_use]
    pub fn new(started_at: ServerTime, pod_selector: String, pods: usize) -> Self {
        let (remaining, deleted, last_progress_at) = (pods, 0, started_at);
        let progress = format!("0/{pods}");
        Self { started_at, pod_selector, pods, remaining, deleted, progress, last_progress_at, canary: None }
    }

    /// How many of its pods are gone or terminating, if so many are neither.
    #[must_use]
    pub fn gone(&self, waiting: usize) -> usize {
        self.pods - waiting.min(self.pods)
    }

    /// The same when `remaining` of its pods exist, and `waiting` of these are not terminating.
    #[must_use]
    pub fn with_remaining(self, remaining: usize, waiting: usize) -> Self {
        let progress = format!("{}/{}", self.gone(waiting), self.pods);
        Self { remaining, progress, ..self }
    }
}

impl Status {
    /// Records that the content of a source is a baseline: the selected pods are assumed to run with it.
    pub fn baseline(&mut self, at: ServerTime) {
        self.baselined_at = Some(at);
        (self.skipped, self.skipped_pods) = (0, String::new());
    }

    /// Records that a change is dealt with, by a restart if it had begun: the selected pods run with its content, except for those that were skipped.
    pub fn complete(
        &mut self,
        contents: &Contents,
        begun: Option<&Begun>,
        (skipped, skipped_pods): (usize, String),
        at: ServerTime,
    ) {
        let changed = self.changed(contents);
        for source in &mut self.sources {
            source.hash = contents.get(&source.name).or(source.hash.as_ref()).cloned();
        }
        self.baseline(at);
        (self.skipped, self.skipped_pods) = (skipped, skipped_pods);
        if let Some(request) = self.restart.take().and_then(|restart| restart.request) {
            self.last_handled_restart_request = Some(request);
        }
        if let Some(begun) = begun {
            self.baselined_at = None;
            self.add_to_history(changed, begun, at, Outcome::Completed);
        }
    }

    /// The sources that have another content in `contents` than pods have been restarted for.
    #[must_use]
    pub fn changed(&self, contents: &Contents) -> Vec<SourceName> {
        let recorded = |name: &SourceName| self.sources.iter().find(|source| source.name == *name)?.hash.as_ref();
        let changed = contents.iter().filter(|(name, hash)| recorded(name) != Some(*hash));
        changed.map(|(name, _)| name.clone()).collect()
    }

    /// Puts a restart that has ended at the front of the history.
    fn add_to_history(&mut self, sources: Vec<SourceName>, begun: &Begun, completed_at: ServerTime, result: Outcome) {
        let (pods, replaced, started_at) = (begun.pods, begun.deleted, begun.started_at);
        self.history.insert(0, Entry { sources, started_at, completed_at, pods, replaced, result });
        self.history.truncate(HISTORY);
    }

    /// The restart that has ended between this status and the one before it, if one has.
    #[must_use]
    pub fn ended_since(&self, before: &Self) -> Option<&Entry> {
        // Two that end within a second may be equal.
        self.history.first().filter(|_| self.history != before.history)
    }

    /// Puts the restart that the pending one takes the place of into the history: it will not go on any more.
    pub fn give_up_superseded(&mut self, at: ServerTime) {
        let Some(restart) = &mut self.restart else { return };
        let Stage::Superseding(superseded) = &restart.stage else { return };
        let Superseded { contents, begun, request, .. } = (**superseded).clone();
        restart.stage = Stage::Pending;
        // The restart that takes its place is about all pods, too, and does what was asked for: but it waits like any other.
        if request.is_some() {
            restart.request = restart.request.take().or_else(|| request.clone());
            self.last_handled_restart_request = request;
        }
        self.add_to_history(self.changed(&contents), &begun, at, Outcome::Superseded);
    }

    /// Whether this request for a restart was handled last, or is being handled.
    #[must_use]
    pub fn has_handled(&self, request: &Arc<str>) -> bool {
        let is_it = |known: &Option<Arc<str>>| known.as_ref() == Some(request);
        let is_of = |restart: &Restart| match &restart.stage {
            Stage::Superseding(superseded) => is_it(&restart.request) || is_it(&superseded.request),
            Stage::Pending | Stage::UnderWay(_) => is_it(&restart.request),
        };
        is_it(&self.last_handled_restart_request) || self.restart.as_deref().is_some_and(is_of)
    }

    /// Whether this restart is asked for now, and does not only take over what an earlier one, which other content has superseded, was asked for.
    #[must_use]
    pub fn asks_for(&self, restart: &Restart) -> bool {
        restart.request.is_some() && restart.request != self.last_handled_restart_request
    }

    /// Records a first content: what somebody asked for before that is not about it.
    pub fn ignore_request(&mut self, request: Option<&Arc<str>>) {
        self.last_handled_restart_request = request.cloned();
    }

    /// Why pods are to be restarted, or are being restarted.
    #[must_use]
    pub fn why(&self) -> Why {
        match self.restart.as_deref() {
            Some(restart) if restart.revert => Why::Reverted,
            Some(restart) if restart.request.is_some() && self.changed(&restart.contents).is_empty() => Why::Requested,
            _ => Why::Changed,
        }
    }

    /// When restarts began that are over, superseded or under way, as far as is known: the last one first.
    #[must_use]
    pub fn starts(&self) -> Vec<ServerTime> {
        let latest = self.restart.as_ref().and_then(|restart| match &restart.stage {
            Stage::Pending => None,
            Stage::Superseding(superseded) => Some(superseded.begun.started_at),
            Stage::UnderWay(begun) => Some(begun.started_at),
        });
        latest.into_iter().chain(self.history.iter().map(|entry| entry.started_at)).collect()
    }

    /// The restart that brought the content to the pods.
    #[must_use]
    pub fn last_restart(&self) -> Option<&Entry> {
        let last = self.history.first().filter(|_| self.baselined_at.is_none())?;
        (last.result == Outcome::Completed).then_some(last)
    }

    /// Whether the content that pods run with is known, or being brought to them. If not, the next content is the baseline.
    #[must_use]
    pub fn is_baselined(&self) -> bool {
        self.restart.is_some() || self.sources.iter().any(|source| source.hash.is_some())
    }

    /// What pods have been restarted for: for each source, which keys of it count, and their content.
    pub fn recorded(&self) -> impl Iterator<Item = (&SourceName, Option<&BTreeSet<String>>, Option<&ContentHash>)> {
        self.sources.iter().map(|source| (&source.name, source.keys.as_ref(), source.hash.as_ref()))
    }

    /// The versions of the sources as last read.
    #[must_use]
    pub fn versions(&self) -> Vec<Option<ResourceVersion>> {
        self.sources.iter().map(|source| source.resource_version.clone()).collect()
    }

    /// The version of this source as last read.
    #[must_use]
    pub fn version_of(&self, name: &SourceName) -> Option<&ResourceVersion> {
        self.sources.iter().find(|source| source.name == *name)?.resource_version.as_ref()
    }

    /// Whether it is the same but for versions of sources.
    #[must_use]
    pub fn is_same_but_for_versions(&self, other: &Self) -> bool {
        let bare = |status: &Self| {
            let mut bare = status.clone();
            bare.sources.iter_mut().for_each(|source| source.resource_version = None);
            bare
        };
        bare(self) == bare(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_has_begun_when_it_has_the_fields_of_one_that_has() {
        let pending = r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"}],"observedAt":"2026-11-21T10:00:00Z","podsResourceVersion":"7","since":"2026-11-21T10:00:00Z"}"#;
        let restart: Restart = serde_json::from_str(pending).expect("a restart");
        assert_eq!(restart.stage, Stage::Pending);
        assert_eq!(serde_json::to_string(&restart).expect("JSON"), pending);
        let begun = pending.replace(
            "00Z\"}",
            r#"00Z","startedAt":"2026-11-21T10:00:03Z","podSelector":"app=web","pods":3,"remaining":1,"deleted":2,"progress":"2/3","lastProgressAt":"2026-11-21T10:00:04Z"}"#,
        );
        let restart: Restart = serde_json::from_str(&begun).expect("a restart");
        assert_eq!(restart.begun().map(|begun| begun.remaining), Some(1));
        assert_eq!(serde_json::to_string(&restart).expect("JSON"), begun);
        let superseded = pending.replace(r#""7""#, r#""9""#).replace(
            "00Z\"}",
            &format!(r#"00Z","superseded":{}}}"#, begun.replace(r#","since":"2026-11-21T10:00:00Z""#, "")),
        );
        let restart: Restart = serde_json::from_str(&superseded).expect("a restart");
        let before = restart.before().expect("it goes on if its content comes back");
        assert!(restart.begun().is_none() && before.begun().is_some());
        assert_eq!(before.pods_resource_version, Some("7".into()));
        assert_eq!(serde_json::to_string(&restart).expect("JSON"), superseded);
        let broken = superseded.replace(r#""pods":3"#, r#""pods":"three""#);
        assert!(serde_json::from_str::<Restart>(&broken).is_err(), "it must not be forgotten");
    }

    #[test]
    fn a_condition_is_read_as_it_was_written() {
        let text = r#"{"type":"Ready","status":"Unknown","lastTransitionTime":"2026-11-21T10:00:00Z","reason":"Else","message":"why"}"#;
        let condition: Condition = serde_json::from_str(text).expect("a condition");
        assert!(matches!((&condition.r#type, &condition.reason), (Cow::Borrowed("Ready"), Cow::Owned(_))));
        assert_eq!(serde_json::to_string(&condition).expect("JSON"), text);
    }

    #[test]
    fn a_restart_has_ended_also_if_it_is_equal_to_the_one_before() {
        let text = r#"{"startedAt":"2026-11-21T10:00:00Z","completedAt":"2026-11-21T10:00:00Z","pods":2,"replaced":2,"result":"Completed"}"#;
        let entry: Entry = serde_json::from_str(text).expect("an entry");
        let status = |ended| Status { history: vec![entry.clone(); ended], ..Status::default() };
        assert_eq!(status(0).ended_since(&status(0)), None);
        assert_eq!(status(1).ended_since(&status(1)), None);
        assert_eq!(status(1).ended_since(&status(0)), Some(&entry));
        assert_eq!(status(2).ended_since(&status(1)), Some(&entry));
    }

    #[test]
    fn content_is_known_from_the_baseline_on() {
        let status = |text| serde_json::from_str::<Status>(text).expect("a status");
        assert!(!status("{}").is_baselined());
        assert!(status(r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"}]}"#).is_baselined());
        let at = "2026-11-21T10:00:00Z";
        let restart = format!(r#"{{"restart":{{"sources":[],"observedAt":"{at}","since":"{at}"}}}}"#);
        assert!(status(&restart).is_baselined());
    }

    #[test]
    fn the_column_counts_the_pods_that_are_gone_or_terminating() {
        let begun = Begun::new(ServerTime::from_second(0), "app=web".to_owned(), 3);
        let progress = [3, 1, 0, 9].map(|waiting| begun.clone().with_remaining(3, waiting).progress);
        assert_eq!((&*begun.progress, progress), ("0/3", ["0/3", "2/3", "3/3", "0/3"].map(str::to_owned)));
    }

    #[test]
    fn the_history_keeps_the_newest() {
        let at = ServerTime::from_second(0);
        let begun = |pods| Begun::new(at, "app=web".to_owned(), pods);
        let mut status = Status::default();
        for pods in 0..12 {
            status.complete(&Contents::default(), Some(&begun(pods)), (0, String::new()), at);
        }
        let pods: Vec<usize> = status.history.iter().map(|entry| entry.pods).collect();
        assert_eq!(pods, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
    }
}
