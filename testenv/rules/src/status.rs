//! The status of a ConfigMonitor as JSON: only the fields by which the rules judge. The types are not the operator's
//! own, so that a mistake in those is seen.

use std::collections::BTreeMap;

use configmonitor_operator::kube::ServerTime;
use serde::Deserialize;
use serde_json::Value;

/// The content of an optional source that does not exist.
pub const ABSENT: &str = "absent";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, from = "Stored")]
pub struct Status {
    pub source: Option<String>,
    pub sources: Vec<SourceStatus>,
    pub pods: Option<usize>,
    pub restart: Option<Restart>,
    pub last_handled_restart_request: Option<String>,
    pub history: Vec<Entry>,
    pub conditions: Vec<Condition>,
    rest: BTreeMap<String, Value>,
}

/// A status as it is stored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Stored {
    source: Option<String>,
    sources: Vec<SourceStatus>,
    pods: Option<usize>,
    restart: Option<Restart>,
    last_handled_restart_request: Option<String>,
    history: Vec<Entry>,
    conditions: Vec<Condition>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    #[serde(default)]
    kind: String,
    pub name: String,
    #[serde(default)]
    pub discovered: bool,
    pub keys: Option<Vec<String>>,
    pub resource_version: Option<String>,
    pub hash: Option<String>,
}

/// A restart: pending, or under way once it has `startedAt`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// The content of each source that the ConfigMonitor names.
    #[serde(skip)]
    sources: Vec<SourceStatus>,
    /// In the order in which they were read.
    #[serde(rename = "sources")]
    pub changes: Vec<Change>,
    pub request: Option<Request>,
    pub started_at: Option<ServerTime>,
    pub interrupted_at: Option<ServerTime>,
    pub pod_selector: Option<String>,
    pub progress: Option<String>,
    pub remaining: Option<usize>,
    pub canary: Option<Canary>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// A change of a source, for which pods are restarted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    #[serde(default)]
    kind: String,
    pub name: String,
    pub hash: String,
    pub observed_at: ServerTime,
    pub pods_resource_version: Option<String>,
    pub since: ServerTime,
    pub since_pods_resource_version: Option<String>,
    #[serde(default)]
    pub revert: bool,
    /// Whether it concerns only the pods that refer to the source.
    #[serde(skip)]
    pub is_discovered: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub value: String,
    #[serde(default)]
    pub taken_over: bool,
    pub observed_at: ServerTime,
    pub pods_resource_version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Canary {
    pub pods: usize,
    pub state: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    started_at: ServerTime,
    pub replaced: usize,
    pub result: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    pub r#type: String,
    pub status: String,
    pub reason: String,
    pub last_transition_time: ServerTime,
    #[serde(default)]
    pub message: String,
}

impl From<Stored> for Status {
    fn from(stored: Stored) -> Self {
        let Stored { source, sources, pods, mut restart, .. } = stored;
        if let Some(restart) = &mut restart {
            restart.sources = sources.iter().filter_map(|known| restart.content_of(known)).collect();
            let is_discovered = |change: &Change| sources.iter().any(|known| known.discovered && known.is_of(change));
            restart.changes.iter_mut().for_each(|change| change.is_discovered = is_discovered(change));
        }
        let Stored { last_handled_restart_request, history, conditions, rest, .. } = stored;
        Self { source, sources, pods, restart, last_handled_restart_request, history, conditions, rest }
    }
}

impl Status {
    /// Returns whether a baseline is recorded, or a restart brings content to the pods.
    pub fn is_baselined(&self) -> bool {
        self.config_hash().is_some() || self.restart.is_some()
    }

    /// Returns the hashes of the content that the pods were restarted for.
    pub fn config_hash(&self) -> Option<String> {
        joined(&self.sources, |source| source.hash.as_deref())
    }

    /// Returns the hash of the content of this source that the pods were restarted for.
    pub fn hash_of(&self, name: &str) -> Option<&String> {
        self.sources.iter().find(|known| known.name == name)?.hash.as_ref()
    }

    /// Returns the version of each known source, or that it does not exist.
    pub fn source_version(&self) -> Option<String> {
        joined(&self.sources, |source| self.version(source))
    }

    pub fn versions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.iter().filter_map(|source| Some((&*source.name, self.version(source)?)))
    }

    fn version<'a>(&self, source: &'a SourceStatus) -> Option<&'a str> {
        source.resource_version.as_deref().or_else(|| self.knows(source).then_some(ABSENT))
    }

    /// Returns whether the content that pods have, or are restarted for, is known of this source.
    fn knows(&self, source: &SourceStatus) -> bool {
        let is_it = |known: &&SourceStatus| known.name == source.name && known.keys == source.keys;
        let is_pending = |known: &SourceStatus| {
            self.restart.iter().flat_map(|restart| &restart.changes).any(|pending| known.is_of(pending))
        };
        self.sources.iter().find(is_it).is_some_and(|known| known.hash.is_some() || is_pending(known))
    }

    /// Returns the sources that are known here and were not in an earlier status, or under other keys, unless that has
    /// shown a change.
    pub fn new_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a str> {
        let is_new = |source: &&SourceStatus| !before.knows(source) && !self.has_changed_since(before, &source.name);
        self.known().filter(is_new).map(|source| &*source.name)
    }

    /// Returns whether content of a source that an earlier status knew has shown a change since.
    fn has_changed_since(&self, before: &Self, name: &str) -> bool {
        let interrupted_at = |status: &Self| status.restart.as_ref()?.interrupted_at;
        let is_same = |now: &Change, before: &Change| {
            let list = before.pods_resource_version.as_ref();
            let has_other_list = list.is_some() && list != now.pods_resource_version.as_ref();
            (now.observed_at, now.revert) == (before.observed_at, before.revert) && !has_other_list
        };
        let is_known = before.sources.iter().any(|known| known.name == name);
        let was = before.change(name);
        let is_later = self.change(name).is_some_and(|now| was.is_none_or(|was| !is_same(now, was)));
        is_known && (is_later || interrupted_at(self).is_some() && interrupted_at(self) != interrupted_at(before))
    }

    fn change(&self, name: &str) -> Option<&Change> {
        self.restart.as_ref()?.changes.iter().find(|change| change.name == name)
    }

    pub fn keys_of(&self, name: &str) -> Option<&[String]> {
        self.sources.iter().find(|known| known.name == name)?.keys.as_deref()
    }

    /// Returns whether the content of a source is known that includes this key.
    pub fn covers(&self, name: &str, key: &str) -> bool {
        let has = |keys: &Vec<String>| keys.iter().any(|its| its == key);
        self.known().any(|known| known.name == name && known.keys.as_ref().is_none_or(has))
    }

    pub fn known(&self) -> impl Iterator<Item = &SourceStatus> {
        self.sources.iter().filter(|source| self.knows(source))
    }

    /// Returns the sources that an earlier status knew with another hash of the same keys.
    pub fn recorded_since(&self, before: &Self) -> Vec<String> {
        let changed = self.sources.iter().filter(|now| before.knows_otherwise(now));
        changed.map(|source| source.name.clone()).collect()
    }

    /// Returns whether another hash is recorded of this source.
    fn knows_otherwise(&self, source: &SourceStatus) -> bool {
        let is_it = |known: &&SourceStatus| known.name == source.name && known.keys == source.keys;
        self.sources.iter().filter(is_it).any(|known| known.hash.is_some() && known.hash != source.hash)
    }

    /// Returns whether the hash of a source that an earlier status knew has changed since.
    pub fn advances(&self, before: &Self) -> bool {
        let hash_in = |status: &Self, name: &str| status.sources.iter().find(|known| known.name == name)?.hash.clone();
        let is_other = |source: &SourceStatus| {
            source.hash.is_some() && before.knows(source) && source.hash != hash_in(before, &source.name)
        };
        self.sources.iter().any(is_other)
    }

    /// Returns whether the pods now have the content of a restart in an earlier status, as far as both are about the
    /// same sources.
    pub fn has_reached(&self, restart: &Restart, before: &Self) -> bool {
        let both_know =
            |its: &&SourceStatus| before.sources.iter().any(|known| known.name == its.name && known.keys == its.keys);
        let target = |name: &str| restart.sources.iter().find(|its| its.name == name);
        let is_it = |its: &SourceStatus| target(&its.name).is_none_or(|target| target.hash == its.hash);
        self.sources.iter().filter(both_know).all(is_it)
    }

    pub fn version_of(&self, config_map: &str) -> Option<u64> {
        let known = self.known().find(|source| source.name == config_map)?;
        known.resource_version.as_ref()?.parse().ok()
    }

    /// Returns whether the pods have been looked at, and refer to no object that could be discovered.
    pub fn finds_none(&self) -> bool {
        let says_so = |source: &String| source.ends_with("discovered");
        self.is_ready() && self.source.as_ref().is_some_and(says_so) && !self.sources.iter().any(|its| its.discovered)
    }

    /// Returns the sources of the hashes, with their keys.
    pub fn watched(&self) -> Vec<(&str, Option<&[String]>)> {
        self.sources.iter().map(|source| (&*source.name, source.keys.as_deref())).collect()
    }

    /// Returns the hash of the content that the pods must get. While a restart is interrupted, no status says which that
    /// is.
    pub fn target(&self) -> Option<String> {
        match &self.restart {
            Some(restart) => restart.interrupted_at.is_none().then(|| restart.config_hash()),
            None => self.config_hash(),
        }
    }

    pub fn is_of(&self, generation: i64) -> bool {
        self.rest.get("observedGeneration").and_then(Value::as_i64) == Some(generation)
    }

    pub fn is_ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.r#type == "Ready" && condition.status == "True")
    }

    pub fn reason(&self) -> Option<&str> {
        self.conditions.first().map(|condition| &*condition.reason)
    }

    /// Returns whether pods have been restarted for this request.
    pub fn has_handled(&self, request: char) -> bool {
        self.last_handled_restart_request.as_deref() == Some(request.encode_utf8(&mut [0; 4]))
    }

    /// Returns whether the request is handled, or a restart for it is pending or under way.
    pub fn has_taken_up(&self, request: char) -> bool {
        self.has_handled(request) || self.restart.as_ref().is_some_and(|restart| restart.is_for(request))
    }

    pub fn has_failed_canaries(&self) -> bool {
        self.begun().and_then(|begun| begun.canary.as_ref()).is_some_and(|canary| canary.state == "Failed")
    }

    pub fn begun(&self) -> Option<&Restart> {
        self.restart.as_ref().filter(|restart| restart.has_begun())
    }

    /// Returns the restart that other content has interrupted.
    pub fn interrupted(&self) -> Option<(&Restart, ServerTime)> {
        let restart = self.restart.as_ref()?;
        Some((restart, restart.interrupted_at?))
    }

    /// Returns whether this restart was in an earlier status and has ended since without being completed.
    pub fn has_superseded(&self, restart: &Restart, before: &Self) -> bool {
        let is_it = |entry: &&Entry| entry.is_about(restart) && entry.result == "Superseded";
        self.history.iter().filter(is_it).count() > before.history.iter().filter(is_it).count()
    }
}

impl Entry {
    pub fn is_about(&self, restart: &Restart) -> bool {
        Some(self.started_at) == restart.started_at
    }
}

impl SourceStatus {
    pub fn is_of(&self, change: &Change) -> bool {
        (&self.kind, &self.name) == (&change.kind, &change.name)
    }
}

impl Change {
    /// Returns whether both are of the same source.
    pub fn is_of_same(&self, other: &Self) -> bool {
        (&self.kind, &self.name) == (&other.kind, &other.name)
    }
}

impl Restart {
    /// Returns the content of a known source that pods have or are restarted for.
    fn content_of(&self, known: &SourceStatus) -> Option<SourceStatus> {
        let change = self.changes.iter().find(|change| known.is_of(change));
        let hash = change.map(|change| change.hash.clone()).or(known.hash.clone());
        hash.map(|hash| SourceStatus { hash: Some(hash), ..known.clone() })
    }

    /// Returns when the newest content was first read, or when a restart was requested without a change.
    pub fn observed_at(&self) -> ServerTime {
        let requested = || self.request.as_ref().map(|request| request.observed_at);
        let read = self.changes.last().map(|change| change.observed_at);
        read.or_else(requested).unwrap_or(ServerTime::from_second(0))
    }

    /// Returns when some content first left what pods have.
    pub fn since(&self) -> ServerTime {
        self.changes.iter().map(|change| change.since).min().unwrap_or_else(|| self.observed_at())
    }

    pub fn is_requested(&self) -> bool {
        self.request.as_ref().is_some_and(|request| !request.taken_over)
    }

    /// Returns whether all content is back, and nobody has requested a restart.
    pub fn is_revert(&self) -> bool {
        self.request.is_none() && !self.changes.is_empty() && self.changes.iter().all(|change| change.revert)
    }

    /// Returns each list of pods that says which ones are old.
    pub fn lists(&self) -> impl Iterator<Item = &String> {
        let of_changes = self.changes.iter().filter_map(|change| change.pods_resource_version.as_ref());
        of_changes.chain(self.request.iter().filter_map(|request| request.pods_resource_version.as_ref()))
    }

    /// Returns the list that was made last.
    pub fn last_list(&self) -> Option<&String> {
        let of_changes = self.changes.last().and_then(|change| change.pods_resource_version.as_ref());
        let of_request = self.request.as_ref().and_then(|request| request.pods_resource_version.as_ref());
        if self.is_requested() { of_request.or(of_changes) } else { of_changes.or(of_request) }
    }

    /// Returns the hashes of the content that pods are restarted for.
    pub fn config_hash(&self) -> String {
        joined(&self.sources, |source| source.hash.as_deref()).unwrap_or_default()
    }

    pub fn has_begun(&self) -> bool {
        self.started_at.is_some()
    }

    /// Returns whether this value has requested the restart.
    pub fn is_for(&self, request: char) -> bool {
        self.request.as_ref().is_some_and(|its| *its.value == *request.encode_utf8(&mut [0; 4]))
    }

    /// Returns whether this restart is for the content of another one, and perhaps of sources that were missing then.
    pub fn extends(&self, other: &Self) -> bool {
        let has =
            |source: &SourceStatus| self.sources.iter().any(|its| its.name == source.name && its.hash == source.hash);
        other.sources.iter().all(has)
    }

    /// Returns what identifies the restart, once it has begun.
    pub fn which(&self) -> Option<(ServerTime, Option<&str>, usize)> {
        Some((self.started_at?, self.last_list().map(String::as_str), self.changes.len()))
    }
}

/// Returns a value of each source, ordered by name.
fn joined<'a>(sources: &'a [SourceStatus], of: impl Fn(&'a SourceStatus) -> Option<&'a str>) -> Option<String> {
    let mut sources: Vec<&SourceStatus> = sources.iter().collect();
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let known: Vec<&str> = sources.into_iter().filter_map(of).collect();
    (!known.is_empty()).then(|| known.join(","))
}
