//! The status of a ConfigMonitor as JSON: only the fields by which the rules judge. The types are not the operator's
//! own, so that a mistake in those is seen.

use std::collections::BTreeMap;
use std::iter::once;
use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use serde::Deserialize;
use serde_json::Value;

/// The content of an optional source that does not exist.
pub const ABSENT: &str = "absent";
/// Several contents, or content under other keys: no content is the same, not even itself.
pub const OTHER_KEYS: &str = "other-keys";
/// The most entries in the journal of a source.
pub const MAX_CHANGES: usize = 4;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub source: Option<String>,
    pub sources: Vec<SourceStatus>,
    pub settled_at: Option<ServerTime>,
    pub outdated: Option<usize>,
    pub pods: Option<usize>,
    pub restart: Option<Restart>,
    pub last_handled_restart_request: Option<String>,
    pub history: Vec<Entry>,
    pub conditions: Vec<Condition>,
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
    /// The content that pods have been restarted for.
    pub hash: Option<String>,
    /// The journal: the contents that were read since, oldest first.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// A content that came after another one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub hash: String,
    pub since: ServerTime,
    pub observed_at: ServerTime,
    pub pods_resource_version: Option<String>,
    #[serde(default)]
    pub begun: bool,
}

/// A restart: pending, or under way once it has a number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    pub changing_since: Option<ServerTime>,
    pub request: Option<Request>,
    pub number: Option<u64>,
    pub started_at: Option<ServerTime>,
    pub pod_selector: Option<String>,
    pub progress: Option<String>,
    pub remaining: Option<usize>,
    pub canary: Option<Canary>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
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
    pub number: u64,
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

impl Status {
    /// Returns whether a baseline is recorded, or a restart brings content to the pods.
    pub fn is_baselined(&self) -> bool {
        self.config_hash().is_some() || self.restart.is_some()
    }

    /// Returns the hashes of the content that the pods were restarted for.
    pub fn config_hash(&self) -> Option<String> {
        joined(&self.sources, |source| source.hash.as_deref())
    }

    /// Returns the hashes of the content that the pods must get.
    pub fn last_hash(&self) -> Option<String> {
        joined(&self.sources, SourceStatus::last)
    }

    /// Returns what is known of the same source.
    pub fn of(&self, source: &SourceStatus) -> Option<&SourceStatus> {
        self.sources.iter().find(|known| known.is_of(source))
    }

    /// Returns the version of each known source, or that it does not exist.
    pub fn source_version(&self) -> Option<String> {
        joined(&self.sources, SourceStatus::version)
    }

    pub fn versions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.iter().filter_map(|source| Some((&*source.name, source.version()?)))
    }

    /// Returns whether the content of this source under these keys is known.
    fn knows(&self, source: &SourceStatus) -> bool {
        self.of(source).is_some_and(|known| known.keys == source.keys && known.hash.is_some())
    }

    /// Returns the sources that are known here and were not in an earlier status, or under other keys, unless that has
    /// shown a change.
    pub fn new_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a str> {
        let is_new = |source: &&SourceStatus| !before.knows(source) && source.appended(before).is_none();
        self.known().filter(is_new).map(|source| &*source.name)
    }

    /// Returns whether the content of a source is known that includes this key.
    pub fn covers(&self, name: &str, key: &str) -> bool {
        let has = |keys: &Vec<String>| keys.iter().any(|its| its == key);
        self.known().any(|known| known.name == name && known.keys.as_ref().is_none_or(has))
    }

    pub fn known(&self) -> impl Iterator<Item = &SourceStatus> {
        self.sources.iter().filter(|source| source.hash.is_some())
    }

    /// Returns whether the hash of a source that an earlier status knew has changed since.
    pub fn advances(&self, before: &Self) -> bool {
        let is_other = |source: &&SourceStatus| before.of(source).is_some_and(|known| known.hash != source.hash);
        self.known().filter(|source| before.knows(source)).any(|source| is_other(&source))
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
        let is_it = |its: &Request| *its.value == *request.encode_utf8(&mut [0; 4]);
        self.has_handled(request) || self.request().is_some_and(is_it)
    }

    /// Returns the status after the end of what was pending in an earlier one, if the next restart has begun since: the request
    /// is handled, and the one before it is made again.
    pub fn in_between(&self, before: &Self) -> Option<Self> {
        let handled = self.last_handled_restart_request.as_ref().filter(|_| self.begun().is_some())?;
        let is_of_before = before.request().is_some_and(|request| request.value == *handled);
        let is_new = before.last_handled_restart_request.as_ref() != Some(handled);
        (is_of_before && is_new).then(|| Self { restart: None, outdated: None, ..self.clone() })
    }

    pub fn request(&self) -> Option<&Request> {
        self.restart.as_ref()?.request.as_ref()
    }

    pub fn has_failed_canaries(&self) -> bool {
        self.begun().and_then(|begun| begun.canary.as_ref()).is_some_and(|canary| canary.state == "Failed")
    }

    pub fn begun(&self) -> Option<&Restart> {
        self.restart.as_ref().filter(|restart| restart.number.is_some())
    }

    /// Returns what identifies the restart under way. After a wipe or a restore, numbers come again.
    pub fn which(&self) -> Option<(u64, ServerTime)> {
        let begun = self.begun()?;
        Some((begun.number?, begun.started_at?))
    }

    /// Returns the changes of all sources.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.sources.iter().flat_map(|known| &known.changes)
    }

    /// Returns the last changes that the restart under way has not begun for.
    pub fn unmarked(&self) -> impl Iterator<Item = &Change> {
        self.sources.iter().filter_map(|known| known.changes.last()).filter(|last| !last.begun)
    }

    /// Returns whether the content is that which the restart under way has begun for.
    pub fn is_on_target(&self) -> bool {
        self.sources.iter().all(|known| known.has(known.target()))
    }

    /// Returns until when this quiet period lasts for content that no restart has begun for.
    pub fn quiet_until(&self, quiet: Duration) -> Option<ServerTime> {
        let last = self.unmarked().map(|change| change.observed_at).max().filter(|_| !quiet.is_zero())?;
        Some(self.limited(last.plus(quiet), quiet))
    }

    /// Returns this end of a quiet period, or that of ten periods since the first of many changes.
    pub fn limited(&self, until: ServerTime, quiet: Duration) -> ServerTime {
        let first = self.restart.as_ref().and_then(|restart| restart.changing_since);
        first.map_or(until, |first| until.min(first.plus(quiet * 10)))
    }

    /// Returns whether content has come back, so that it depends on times which pods may have read other content.
    pub fn has_reverted(&self) -> bool {
        self.sources.iter().any(|known| known.former().count() < known.changes.len())
    }

    /// Returns each list of pods that says which ones are old.
    pub fn lists(&self) -> impl Iterator<Item = &String> {
        let of_changes = self.changes().filter_map(|change| change.pods_resource_version.as_ref());
        of_changes.chain(self.request().and_then(|request| request.pods_resource_version.as_ref()))
    }

    /// Returns the times of the readings that these lists followed.
    pub fn observations(&self) -> impl Iterator<Item = ServerTime> {
        let of_changes = self.changes().map(|change| change.observed_at);
        of_changes.chain(self.request().map(|request| request.observed_at))
    }
}

impl SourceStatus {
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.kind, &self.name) == (&other.kind, &other.name)
    }

    fn version(&self) -> Option<&str> {
        self.resource_version.as_deref().or_else(|| self.hash.is_some().then_some(ABSENT))
    }

    /// Returns the content as last read.
    pub fn last(&self) -> Option<&str> {
        self.changes.last().map(|change| &*change.hash).or(self.hash.as_deref())
    }

    /// Returns the content that the restart under way has begun for.
    pub fn target(&self) -> Option<&str> {
        self.changes.iter().find(|change| change.begun).map(|change| &*change.hash).or(self.hash.as_deref())
    }

    /// Returns whether this is the content as last read. If nothing has changed, it is.
    pub fn has(&self, content: Option<&str>) -> bool {
        self.changes.last().is_none_or(|last| last.begun || content == Some(&*last.hash) && last.hash != OTHER_KEYS)
    }

    /// Returns whether pods have been restarted for other content than the last one.
    pub fn differs(&self) -> bool {
        self.changes.last().is_some_and(|last| last.hash == OTHER_KEYS || Some(&last.hash) != self.hash.as_ref())
    }

    /// Returns the last change, unless an earlier status has it.
    pub fn appended(&self, before: &Status) -> Option<&Change> {
        let known = before.of(self);
        let is_it = |last: &Change| {
            let before = known.and_then(|known| known.changes.last());
            before.is_some_and(|before| last.is_at(before) && (last.hash == before.hash || !self.has_keys_of(known)))
        };
        let is_longer = known.is_some_and(|known| known.changes.len() < self.changes.len());
        self.changes.last().filter(|last| is_longer || !is_it(last))
    }

    pub fn has_keys_of(&self, other: Option<&Self>) -> bool {
        other.is_some_and(|other| other.keys == self.keys)
    }

    /// Returns each content that is not the last one: the change with which it came, unless it was there before, and the
    /// next one.
    pub fn former(&self) -> impl Iterator<Item = (Option<&Change>, &Change)> {
        let came = once(None).chain(self.changes.iter().map(Some));
        came.zip(&self.changes).filter(|(change, _)| {
            let hash = change.map_or(self.hash.as_deref(), |change| Some(&*change.hash));
            hash == Some(OTHER_KEYS) || hash != self.last()
        })
    }
}

impl Change {
    /// Returns whether both were read at the same time.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.since, self.observed_at) == (other.since, other.observed_at)
    }
}

impl Restart {
    pub fn is_requested(&self) -> bool {
        self.request.as_ref().is_some_and(|request| !request.taken_over)
    }
}

/// Returns a value of each source, ordered by name.
fn joined<'a>(sources: &'a [SourceStatus], of: impl Fn(&'a SourceStatus) -> Option<&'a str>) -> Option<String> {
    let mut sources: Vec<&SourceStatus> = sources.iter().collect();
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    let known: Vec<&str> = sources.into_iter().filter_map(of).collect();
    (!known.is_empty()).then(|| known.join(","))
}
