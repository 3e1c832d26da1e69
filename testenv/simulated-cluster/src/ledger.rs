//! The facts of a story by which the rules judge, not the operator's own view: what the API server served, what of that
//! each process received, and what each process wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::monitor::selector::Selector;
use configmonitor_operator::monitor::spec::{Spec, UnmanagedPods};
use rules::budget::is_everything;
use rules::pod::Readiness;
use rules::status::{ABSENT, Change, OTHER_KEYS, Request, SourceStatus, Status};
use rules::{A_SECOND, Account, Event, Moment};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use tokio::task;

use crate::content::{CONFIG_MAPS, Content, Data, Source, Stored, discovers, hash, names};
use crate::store::{Labels, Selection};

/// The tolerance for clock skew where creation times decide.
pub const SKEW: Duration = Duration::from_secs(10);

/// A pod is stuck when it still exists this long after its deletion timestamp.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Milliseconds within which the requests of one wave arrive, unless one of them is late.
const A_WAVE: u64 = 10;

/// One life of a process, from its start to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life(pub usize);

/// The record of a pod from its creation on. Its place in the ledger is its identity.
#[derive(Clone, Debug)]
pub struct PodRecord {
    pub born: Moment,
    pub created: ServerTime,
    /// When all the ConfigMaps that the pod waited for existed.
    pub started: Option<Moment>,
    pub ready: Readiness,
    pub restarted: Vec<Moment>,
    /// Seconds by which the clock of the node is ahead; behind if negative.
    pub(crate) node: i64,
    /// When the pod began to terminate or finished.
    pub ended: Option<Moment>,
    /// The deletion timestamp, and when the pod was gone or had finished.
    pub gone_by: Option<ServerTime>,
    pub gone: Option<Moment>,
    /// When its kubelet evicted the pod.
    pub evicted: Option<Moment>,
    /// When the pod failed by itself: its containers ended, or were not ready any more.
    pub failures: Vec<Moment>,
    /// The owner and the place in it: a pod's successor gets the same place.
    pub place: (usize, usize),
    pub labels: Vec<(Moment, Labels)>,
    /// Whether the pod refers to each of the ConfigMaps.
    pub(crate) refers: [bool; 2],
    pub nature: Nature,
    /// When the pod was handed over (true) or given back.
    pub handed_over: Vec<(Moment, bool)>,
    /// Whether a restore brought this pod back after it was gone, or this is the record that came of that. Both have
    /// the same UID.
    pub is_undone: bool,
}

/// Who would create a pod again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Managed,
    Bare,
    /// Its owner would fail, or start anew.
    Completes,
    Mirror,
    TheOperatorsOwn,
}

/// An answer that carried the ConfigMap.
#[derive(Clone, Debug)]
pub struct Reading {
    pub at: Moment,
    pub life: Life,
    pub source: Source,
    pub content: Content,
    pub version: String,
    /// The task that read this first, and when other tasks of the process did.
    by: Vec<(usize, Moment)>,
    /// The ConfigMaps that this process had not read before: nobody knows for how long their content has existed.
    first: Vec<&'static str>,
    /// Whether the task had not read these keys of the ConfigMap before. Another task may have done so for it.
    pub may_be_first: bool,
    /// When the process wrote a status about this reading, or needed no write. Any other reading does not count.
    pub recorded: Option<Moment>,
    /// Whether a restore since then went back to a time before the reading was written down.
    is_undone: bool,
}

#[derive(Clone, Debug)]
pub struct Write {
    written: rules::Write,
    pub life: Life,
    /// The task that wrote, and when it sent the request, in milliseconds.
    sent: (usize, u64),
    /// When the process last read the ConfigMap, and listed the pods.
    pub read: Option<Moment>,
    /// When the process first read this version of the ConfigMap.
    first_read: Option<Moment>,
    pub listed: Option<Moment>,
    /// When the task had last listed more of the pods than their metadata, as the write was sent. If other tasks have
    /// listed the pods for it, nobody knows by which list it goes.
    pub went_by: Option<Moment>,
    /// When another task of the process last listed the pods.
    pub shared: Option<Moment>,
    /// The desired replicas of owners, as the task last read them.
    pub desired: BTreeMap<usize, usize>,
    /// Whether the API server had forgotten the list of the restart, so that the task did not know which pods it had
    /// replaced.
    pub by_times: bool,
    /// The existing pods: not finished, not terminating.
    pub alive: Vec<usize>,
    /// When each process first received the restart that began with this write.
    learnt: BTreeMap<Life, Moment>,
}

#[derive(Clone, Debug)]
pub struct Deletion {
    pub at: Moment,
    pub pod: usize,
    pub evicted: bool,
    pub life: Life,
    /// The task that sent the request, and the number of the request.
    sent: (usize, usize),
    received: Option<Moment>,
    /// The ConfigMonitors for which the pod may have been deleted; one, unless the task has not named its ConfigMonitor
    /// yet.
    pub grounds: Vec<Grounds>,
    /// How many pods more than allowed were then missing, if the process could know everything that had happened.
    pub over_budget: usize,
}

impl Deletion {
    /// Returns whether the pod may have been deleted for the ConfigMonitor of this book.
    pub fn is_of(&self, ledger: &Ledger, book: &Book) -> bool {
        self.grounds.iter().any(|grounds| std::ptr::eq(&raw const ledger.books[grounds.book], book))
    }
}

/// What a process knew about a ConfigMonitor when it sent a deletion.
#[derive(Clone, Debug)]
pub struct Grounds {
    pub book: usize,
    /// The ConfigMonitor as the process last received it from the API server.
    pub seen: Arc<Seen>,
    /// The lists by which the process may go, each with its time: made since the task's last answer, or else since the
    /// process read the change, and before the task read the ConfigMonitor. Tasks of a process may share a list.
    pub lists: Vec<At>,
    pub gone: bool,
    /// The required ConfigMaps of which the process had the answer that they do not exist.
    pub missing: Option<Source>,
    /// Whether the API server had forgotten the list of the restart, so that creation times had to decide.
    pub by_times: bool,
    /// Whether the task itself had read other content than the last one of a source in that status.
    pub has_read_other: bool,
    /// The desired replicas of owners, as the task last read them.
    pub desired: BTreeMap<usize, usize>,
    /// When another task of the process may have read for this one what it goes by.
    read: [Option<Moment>; 4],
}

/// A change of content, as a process has read it.
#[derive(Clone, Copy)]
struct Changed {
    at: Moment,
    content: Content,
}

#[derive(Debug, Deserialize)]
pub struct Seen {
    #[serde(rename = "metadata", deserialize_with = "version_of")]
    pub(crate) version: u64,
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

/// The end of the story for a ConfigMonitor, when nothing failed and nothing moved any more.
#[derive(Clone, Debug)]
pub struct End {
    pub spec: Spec,
    pub status: Status,
    pub source: Source,
    /// The content, which has existed unchanged for long.
    pub content: Content,
    /// The value of the annotation that requests a restart.
    pub request: Option<char>,
    pub is_settled: bool,
    /// The existing pods: not finished, not terminating.
    pub alive: Vec<usize>,
}

/// What a process knows about a ConfigMonitor and its source from the API server's answers.
#[derive(Default)]
struct View {
    /// None until the process knows the ConfigMonitor.
    seen: Option<Arc<Seen>>,
    /// Whether a restore happened since the process last received the ConfigMonitor.
    is_undone: bool,
    /// Whether the process knows that the ConfigMonitor is deleted.
    gone: bool,
    /// Whether there is no keeper, because the namespace lacks the label. The next one begins with what it is shown.
    has_no_keeper: bool,
    /// When the last keeper ended with the label, in milliseconds. Later answers to it tell the next one nothing.
    left: u64,
    source: Option<Source>,
    /// The readings of each ConfigMap of the source.
    known: BTreeMap<&'static str, Vec<Finding>>,
    /// The ConfigMaps read for the first time since the process last knew all of the source.
    fresh: Vec<&'static str>,
    /// The version of the source that the process read last: that of each ConfigMap.
    last: Option<String>,
    read: Option<Moment>,
    changed: Option<Changed>,
    /// Which keys of a ConfigMap counted by the spec, and whether the spec said that it may be missing, when each task last
    /// read it.
    readers: BTreeMap<(usize, &'static str), (Option<Source>, bool)>,
}

/// An answer about one ConfigMap, which a process has received.
pub struct Answer {
    pub at: Moment,
    pub life: Life,
    pub config_map: &'static str,
    data: Option<Data>,
}

/// What a task found when it read a ConfigMap.
struct Finding {
    at: Moment,
    actor: usize,
    stored: Option<Stored>,
}

/// A task of a process. A task that has named a ConfigMonitor in a request is its keeper.
#[derive(Default)]
struct Actor {
    life: Life,
    task: Option<task::Id>,
    book: Option<usize>,
    listed: Option<Moment>,
    /// The revision of that list.
    revision: u64,
    /// When the task last listed more of the pods than their metadata: now, and as it last sent a status.
    saw: Option<Moment>,
    /// The list of pods whose last page is still to come.
    sees: Option<Moment>,
    went_by: Option<Moment>,
    query: Option<Option<String>>,
    pods: Arc<BTreeSet<usize>>,
    /// When pods or their owners' desired replicas last changed in a way that only a list shows.
    disturbed: Option<Moment>,
    has_looked: bool,
    read: Option<Moment>,
    /// When the task last read its ConfigMonitor, and when it had received an answer before that.
    looked: Option<(Moment, Option<Moment>)>,
    answered: Option<Moment>,
    /// The ConfigMaps that do not exist, by the answers to this task.
    missing: BTreeSet<&'static str>,
    /// The versions of lists that were refused to this task.
    refused: BTreeSet<String>,
    /// The versions that the API server has forgotten, each with the first list after that, of which the task makes its
    /// plan.
    forgotten: BTreeMap<String, Option<At>>,
    desired: BTreeMap<usize, usize>,
    /// Whether the task has listed the pods of the Deployment, and since then asks only whose these are.
    asks_whose: bool,
    /// Whether this is the task for pods that are handed over.
    looks_after: bool,
    /// The generation of the Deployment when the task read it after its last list, and whether it was rolling out.
    deployment: Option<(u64, bool)>,
}

/// A process that judges pods in a restart: the write with which it began, and when the process last listed the pods.
#[derive(Clone, Copy)]
pub struct Knower<'a> {
    pub life: Life,
    /// The task, if it is known.
    pub actor: Option<usize>,
    pub book: &'a Book,
    pub start: Option<&'a Write>,
    pub listed: Option<Moment>,
}

/// When a list of pods was made, and its pods.
type At = (Moment, Arc<BTreeSet<usize>>);

/// A list of pods that a task has received.
struct Listed {
    life: Life,
    actor: usize,
    query: Option<String>,
    /// Whether the list says only which pods there are, and not whose.
    metadata_only: bool,
    /// When the list was made, and when its last page was received.
    at: Moment,
    received: Option<Moment>,
    pods: Arc<BTreeSet<usize>>,
}

/// The sender of a request, with the knowledge that justifies it.
#[derive(Clone)]
pub(crate) struct Caller {
    pub life: Life,
    pub(crate) actor: usize,
    /// The number of the request in the trace, and when it was sent, in milliseconds.
    pub number: usize,
    pub sent: u64,
    pub grounds: Vec<Grounds>,
}

#[derive(Default)]
pub struct Book {
    pub specs: Vec<(Moment, Spec)>,
    pub readings: Vec<Reading>,
    pub writes: Vec<Write>,
    pub events: Vec<Event>,
    pub requests: Vec<(Moment, String)>,
    pub wiped: Vec<(Moment, Option<Moment>)>,
    /// None if the ConfigMonitor was deleted.
    pub end: Option<End>,
    views: BTreeMap<Life, View>,
}

fn version_of<'de, D: Deserializer<'de>>(metadata: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    Metadata::deserialize(metadata)?.resource_version.parse().map_err(D::Error::custom)
}

fn may_take_everything(spec: &Spec) -> bool {
    is_everything(spec.max_unavailable.as_ref(), spec.max_unavailable_total.as_ref())
}

/// ConfigMaps by version: the name and the data.
type Versions = BTreeMap<u64, (&'static str, Data)>;

#[derive(Default)]
pub struct Ledger {
    pub pods: Vec<PodRecord>,
    pub contents: BTreeMap<Source, Vec<(Moment, Option<Content>)>>,
    /// The data of ConfigMaps, by version.
    pub versions: Versions,
    pub books: Vec<Book>,
    pub answers: Vec<Answer>,
    pub deletions: Vec<Deletion>,
    /// The pods that were handed over, each like a deletion.
    pub handed_over: Vec<Deletion>,
    /// The pods that were handed over and were deleted by no restart, and whether each was evicted.
    pub ends: Vec<(Moment, usize, bool)>,
    /// The processes that deleted a pod that was already terminating.
    pub deleted_again: Vec<(Moment, Life, usize)>,
    /// When each process sent its requests, in milliseconds.
    pub sent: BTreeMap<Life, Vec<u64>>,
    /// Requests that no process may ever send.
    pub improper: Vec<String>,
    /// By how much the clocks of the API servers differ.
    pub skew: Duration,
    /// Milliseconds by which watch events may be late.
    pub lag: u64,
    /// The `minReadySeconds` of each owner.
    pub(crate) min_ready: u32,
    /// The grace period of each pod.
    pub(crate) grace: Duration,
    /// Whether the ConfigMaps may be missing.
    pub optional: bool,
    pub restored: Vec<Moment>,
    /// Processes that received an unusual answer to a deletion or a write, so that they cannot know who deleted a pod.
    pub unsure: BTreeSet<Life>,
    /// Processes that were not allowed to list or watch Secrets. Those that they discover may exist or not.
    pub(crate) without_secrets: BTreeSet<Life>,
    /// The processes that know the namespace without its label, or do not know it: since when, in milliseconds.
    pub(crate) unserved: BTreeMap<Life, u64>,
    /// The processes of which a keeper has begun anew, after a panic or with the label of the namespace.
    panicked: BTreeSet<Life>,
    /// Processes in which a keeper panicked before it had named its ConfigMonitor, so that nobody knows which one forgot
    /// what it had read.
    pub forgetful: BTreeMap<Life, Moment>,
    /// When the pods were first listed at a version, and the pods in that list.
    lists: BTreeMap<String, (Moment, BTreeSet<usize>)>,
    /// When pods were listed, including repeated lists at a version.
    listed_at: BTreeSet<Moment>,
    received: Vec<Listed>,
    actors: Vec<Actor>,
}

impl Ledger {
    pub fn busiest_minute(&self) -> usize {
        self.sent.values().map(|sent| busiest_minute(sent)).max().unwrap_or(0)
    }

    pub(crate) fn caller(&mut self, life: Life, task: Option<task::Id>, (number, sent): (usize, u64)) -> Caller {
        let known = self.actors.iter().position(|actor| actor.life == life && actor.task == task);
        let actor = known.unwrap_or_else(|| {
            self.actors.push(Actor { life, task, ..Actor::default() });
            self.actors.len() - 1
        });
        Caller { life, actor, number, sent, grounds: Vec::new() }
    }

    /// Returns what may have made a caller send a deletion.
    pub(crate) fn grounds(&self, caller: &Caller) -> Vec<Grounds> {
        let actor = &self.actors[caller.actor];
        let books = self.books.iter().enumerate().filter(|(book, _)| actor.book.is_none_or(|own| own == *book));
        books
            .filter_map(|(book, Book { views, readings, .. })| {
                let View { seen, changed, gone, read, .. } = views.get(&caller.life)?;
                let (seen, changed, gone) = (Arc::clone(seen.as_ref()?), *changed, *gone);
                let by_times = actor.lacks_a_list_of(&seen.status);
                let restart = seen.status.last_hash();
                // By now others may have read other content, which this task does not know.
                let is_of_it = |its: &&Reading| its.life == caller.life && Some(hash(its.content)) == restart;
                let of_restart = readings.iter().rfind(is_of_it);
                let (first, own) = (of_restart.map(Reading::first_at), of_restart.map(|its| its.time_of(caller.actor)));
                let read = [changed.map(|changed| changed.at), *read, first, own];
                let shared = self.shared(caller, &seen.spec, read).map(|list| (list.at, Arc::clone(&list.pods)));
                let own = actor.listed.filter(|_| actor.has_looked).map(|at| (at, Arc::clone(&actor.pods)));
                let lists = own.into_iter().chain(shared).collect();
                let source = Source::by(&seen.spec, &seen.status).filter(|_| !self.optional);
                let is_seen = |its: &str| !self.without_secrets.contains(&caller.life) || !discovers(&seen.spec, its);
                let missing = source.and_then(|source| source.only(|its| actor.missing.contains(its) && is_seen(its)));
                let desired = actor.desired.clone();
                let has_read_other = self.has_read_other(&views[&caller.life], &seen, caller.actor);
                Some(Grounds { book, seen, lists, gone, missing, by_times, has_read_other, desired, read })
            })
            .collect()
    }

    /// Returns whether a task has received other content of a source since its process last read what a status says.
    fn has_read_other(&self, view: &View, seen: &Seen, actor: usize) -> bool {
        let is_other = |part: Source| {
            let known = seen.status.known().find(|known| known.name == part.name()).and_then(SourceStatus::last);
            let Some(last) = known.filter(|last| *last != OTHER_KEYS) else { return false };
            let differs = |finding: &&Finding| {
                let data = finding.stored.and_then(|stored| self.versions.get(&stored.version)).map(|(_, data)| *data);
                let contents = [part, part.first_key()].map(|part| part.known(|_| data));
                data.is_some() && contents.into_iter().flatten().all(|content| hash(content) != last)
            };
            let found = view.known.get(part.name()).into_iter().flatten();
            found.rev().take_while(differs).any(|finding| finding.actor == actor)
        };
        Source::by(&seen.spec, &seen.status).is_some_and(|source| source.parts().any(is_other))
    }

    /// Returns the lists of other tasks of the process that a task may go by. Another task may have read the ConfigMap
    /// for it at the times in `read`.
    fn shared(&self, caller: &Caller, spec: &Spec, read: [Option<Moment>; 4]) -> impl Iterator<Item = &Listed> {
        let (query, looked) = (query_of(spec), self.actors[caller.actor].looked);
        let (looked_at, actor) = (looked.map(|(at, _)| at), caller.actor);
        let is_own = |deletion: &&Deletion| deletion.sent.0 == actor && Some(deletion.at) < looked_at;
        let last = self.deletions.iter().rfind(is_own).map(|deletion| deletion.at);
        // Content read before a restore that is still the same is no news: a list since then shows the same pods.
        let restored = self.restored.last().copied().filter(|at| read[0].is_some_and(|changed| changed < *at));
        // Nobody knows what the keeper that panicked had read for the others.
        let forgotten = self.forgetful.get(&caller.life).copied();
        let read = read.into_iter().chain([self.actors[caller.actor].read, restored, forgotten]);
        let since = read.flatten().filter(|read| last < Some(*read)).min().or(last);
        let life = caller.life;
        self.received.iter().filter(move |list| {
            let is_in_time = looked.is_some_and(|(at, before)| {
                list.received.is_some_and(|received| received < at)
                    && (Some(list.at) > before || since.is_some_and(|since| list.at > since))
            });
            list.life == life && list.actor != actor && list.query == query && is_in_time
        })
    }

    /// Returns how many pods the spec at a write selected, by the lists of its process since another moment.
    pub fn listed_counts(&self, write: &Write, since: Option<Moment>) -> impl Iterator<Item = usize> {
        let query = query_of(&write.spec);
        let is_known = move |list: &&Listed| {
            let is_received = list.received.is_some_and(|received| received < write.at);
            list.life == write.life && list.query == query && Some(list.at) > since && is_received
        };
        self.received.iter().filter(is_known).map(|list| list.pods.len())
    }

    /// Records a restore of the backup made at `from`.
    pub(crate) fn record_restore(&mut self, at: Moment, from: Moment) {
        self.restored.push(at);
        self.books.iter_mut().for_each(|book| book.record_restore(at, from));
    }

    pub(crate) fn record_answer(&mut self, caller: &Caller, received: Moment) {
        self.actors[caller.actor].answered = Some(received);
    }

    /// Records a list of ConfigMonitors. A keeper begins with what the first list says.
    pub(crate) fn record_monitors(&mut self, life: Life, all: Vec<(usize, Arc<Seen>)>, is_whole: bool) {
        for (number, book) in self.books.iter_mut().enumerate().filter(|_| is_whole) {
            let is_listed = all.iter().any(|(listed, _)| *listed == number);
            // A ConfigMonitor that the process does not know may be newer than the list.
            let known = book.views.get_mut(&life).filter(|view| view.seen.is_some());
            known.into_iter().for_each(|view| view.gone |= !is_listed);
        }
        for (book, seen) in all {
            let view = self.books[book].views.entry(life).or_default();
            // A list that broke off is made anew before any keeper begins.
            // The next keeper may have read the ConfigMonitor since the list was made.
            let is_newer = |known: &Arc<Seen>| seen.version >= known.version || view.is_undone;
            let begins = view.source.is_none() || view.has_no_keeper;
            if view.seen.as_ref().is_none_or(|known| begins && is_newer(known)) {
                view.seen = Some(seen);
            }
            if is_whole {
                view.has_no_keeper = self.unserved.contains_key(&life);
            }
        }
    }

    /// Records that a watch has shown a ConfigMonitor or its deletion to a process.
    pub(crate) fn record_watch_event(&mut self, life: Life, book: usize, object: Option<&str>) {
        let view = self.books[book].views.entry(life).or_default();
        match object {
            Some(object) if view.seen.is_none() || view.has_no_keeper => {
                view.seen = Some(Arc::new(serde_json::from_str(object).expect("a ConfigMonitor")));
                view.has_no_keeper = self.unserved.contains_key(&life);
            }
            Some(_) => {}
            None => view.gone = true,
        }
    }

    /// Records that a process has read the ConfigMonitor of a name, or that none exists. The earlier ones of this name
    /// are deleted. The keeper of an earlier one, if the watch has not stopped it, learns nothing from the answers of
    /// another keeper.
    pub(crate) fn record_monitor(
        &mut self,
        received: Moment,
        caller: &Caller,
        found: Option<(usize, Arc<Seen>)>,
        gone: Vec<usize>,
    ) {
        let keeper_of = self.actors[caller.actor].book;
        for book in gone.into_iter().filter(|book| keeper_of.is_none_or(|own| own == *book)) {
            self.books[book].views.entry(caller.life).or_default().gone = true;
        }
        let Some((book, seen)) = found else { return };
        let view = self.books[book].views.entry(caller.life).or_default();
        if view.seen.is_none() || caller.sent < view.left {
            // Its keeper has not started, so an earlier one sent the request.
            return;
        }
        if seen.spec.pod_selector.is_empty() {
            // Nothing is read while the spec is invalid, and earlier readings are forgotten.
            view.forget();
        }
        (view.seen, view.is_undone) = (Some(Arc::clone(&seen)), false);
        if let Some(start) = self.books[book].start_of_mut(&seen.status) {
            start.learnt.entry(caller.life).or_insert(received);
        }
        let actor = &mut self.actors[caller.actor];
        (actor.book, actor.has_looked) = (Some(book), true);
        actor.looked = Some((received, actor.answered));
    }

    /// Records that a keeper panicked. The keeper that replaces it knows nothing.
    pub(crate) fn record_panic(&mut self, at: Moment, caller: &Caller) {
        self.unsure.insert(caller.life);
        self.panicked.insert(caller.life);
        let keeper_of = self.actors[caller.actor].book;
        if keeper_of.is_none() {
            self.forgetful.entry(caller.life).or_insert(at);
        }
        let its = self.books.iter_mut().enumerate().filter(|(book, _)| keeper_of.is_none_or(|own| own == *book));
        its.filter_map(|(_, book)| book.views.get_mut(&caller.life)).for_each(View::forget);
    }

    /// Records that a process has learnt whether the namespace has its label. Without it, all keepers end, and those
    /// that come with it know nothing.
    pub(crate) fn record_namespace(&mut self, at: Moment, life: Life, is_selected: bool) {
        if is_selected {
            self.unserved.remove(&life);
            // They begin with what the process has been shown meanwhile.
            self.books
                .iter_mut()
                .filter_map(|book| book.views.get_mut(&life))
                .for_each(|view| view.has_no_keeper = false);
        } else {
            self.unserved.entry(life).or_insert(at.ms);
            self.unsure.insert(life);
            self.panicked.insert(life);
            for view in self.books.iter_mut().filter_map(|book| book.views.get_mut(&life)) {
                view.forget();
                (view.has_no_keeper, view.left) = (true, at.ms);
            }
        }
    }

    /// Records that a process has read a ConfigMap. The reading counts for all of its keepers, as they may share it.
    pub(crate) fn record_reading(
        &mut self,
        at: Moment,
        caller: &Caller,
        config_map: &'static str,
        stored: Option<Stored>,
    ) {
        if stored.is_none() {
            self.actors[caller.actor].missing.insert(config_map);
        } else {
            let own = self.actors.iter_mut().filter(|actor| actor.life == caller.life);
            own.for_each(|actor| _ = actor.missing.remove(config_map));
        }
        let data = match stored {
            Some(stored) => self.versions.get(&stored.version).map(|(_, data)| *data),
            None => self.optional.then_some(Data::Absent),
        };
        self.answers.push(Answer { at, life: caller.life, config_map, data });
        let is_known =
            |book: &&Book| book.views.get(&caller.life).is_some_and(|view| view.seen.is_some() && !view.gone);
        let only = self.books.iter().filter(is_known).count() == 1;
        self.actors[caller.actor].read = Some(at);
        let keeper_of = self.actors[caller.actor].book;
        for (index, book) in self.books.iter_mut().enumerate() {
            book.record_reading(
                at,
                caller,
                keeper_of.map_or(only, |own| own == index),
                (config_map, stored),
                &self.versions,
                self.optional,
            );
        }
    }

    /// Records that a process has received a list, or its first page: the selected pods, and all the pods that existed.
    pub(crate) fn record_list(
        &mut self,
        (at, received): (Moment, Option<Moment>),
        caller: &Caller,
        (version, query, metadata_only): (String, Option<String>, bool),
        selected: BTreeSet<usize>,
        all: BTreeSet<usize>,
    ) {
        let revision = version.parse().unwrap();
        self.lists.entry(version).or_insert((at, all));
        self.listed_at.insert(at);
        let actor = &self.actors[caller.actor];
        let may_be_of = |book: &usize| actor.book.is_none_or(|own| own == *book);
        let seen = |book: usize| self.books[book].views.get(&caller.life)?.seen.as_ref();
        let mut seen = (0..self.books.len()).filter(may_be_of).filter_map(seen).peekable();
        if seen.peek().is_some() && seen.all(|seen| query_of(&seen.spec) != query) {
            // The list is about other pods, such as those of an owner.
            return;
        }
        let (life, pods) = (caller.life, Arc::new(selected));
        let actor = &mut self.actors[caller.actor];
        actor.revision = revision;
        (actor.listed, actor.pods, actor.has_looked) = (Some(at), Arc::clone(&pods), false);
        actor.deployment = None;
        actor.sees = Some(at).filter(|_| !metadata_only);
        if received.is_some() {
            actor.saw = actor.sees.take().or(actor.saw);
        }
        actor.query = Some(query.clone());
        for recalled in actor.forgotten.values_mut() {
            recalled.get_or_insert_with(|| (at, Arc::clone(&pods)));
        }
        self.received.push(Listed { life, actor: caller.actor, query, metadata_only, at, received, pods });
    }

    pub(crate) fn record_last_page(&mut self, received: Moment, caller: &Caller, revision: u64) {
        let is_its = |list: &&mut Listed| list.actor == caller.actor && self.actors[caller.actor].revision == revision;
        if let Some(list) = self.received.iter_mut().rfind(is_its) {
            list.received.get_or_insert(received);
            let actor = &mut self.actors[caller.actor];
            actor.saw = actor.sees.take().or(actor.saw);
        }
    }

    /// Records that a task sends a request. After a list of the Deployment's pods it reads ReplicaSets because it asks
    /// whose these are: what they desire, the task has read before.
    pub(crate) fn record_request(&mut self, caller: &Caller, is_of_deployment: bool, is_of_replica_set: bool) {
        let actor = &mut self.actors[caller.actor];
        actor.asks_whose = is_of_deployment || actor.asks_whose && is_of_replica_set;
    }

    pub(crate) fn record_owner_request(&mut self, caller: &Caller, owner: usize) {
        let actor = &mut self.actors[caller.actor];
        if !actor.asks_whose {
            actor.desired.remove(&owner);
        }
    }

    pub(crate) fn record_owner(&mut self, caller: &Caller, owner: usize, desired: usize) {
        let actor = &mut self.actors[caller.actor];
        if !actor.asks_whose {
            actor.desired.insert(owner, desired);
        }
    }

    /// Records that a task may not list the pods of an owner. Without a budget the task then goes by the number of pods
    /// at the start, as if it could not read the owner.
    pub(crate) fn record_owner_forbidden(&mut self, caller: &Caller, owner: usize) {
        let book = self.actors[caller.actor].book;
        let seen = book.and_then(|book| self.books[book].views.get(&caller.life)?.seen.as_ref());
        if seen.is_some_and(|seen| may_take_everything(&seen.spec)) {
            self.actors[caller.actor].desired.remove(&owner);
        }
    }

    pub(crate) fn record_forgotten_list(&mut self, caller: &Caller, version: String) {
        self.actors[caller.actor].forgotten.insert(version, None);
    }

    /// Records that a list was refused. The second time, its version counts as forgotten.
    pub(crate) fn record_refused_list(&mut self, caller: &Caller, version: String) {
        let actor = &mut self.actors[caller.actor];
        if !actor.refused.insert(version.clone()) {
            actor.forgotten.insert(version, None);
        }
    }

    /// Records that a status is sent.
    pub(crate) fn record_attempt(&mut self, caller: &Caller, book: usize, status: &Status) {
        let actor = &mut self.actors[caller.actor];
        actor.went_by = actor.saw;
        let Some(version) = status.source_version() else { return };
        self.books[book].pair(caller, status, &version, &self.versions);
    }

    pub(crate) fn record_write(&mut self, at: Moment, caller: &Caller, book: usize, write: Written) {
        let actor = &mut self.actors[caller.actor];
        actor.book = Some(book);
        let query = query_of(&write.spec);
        let is_known = |list: &&Listed| list.received.is_some_and(|received| received.ms <= caller.sent);
        let of_it =
            self.received.iter().filter(|list| list.life == caller.life && list.query == query).filter(is_known);
        let (listed, went_by, shared) = (actor.listed, actor.went_by, of_it.map(|list| list.at).max());
        let desired = actor.desired.clone();
        // The list of a restart that begins may not have been written before.
        let by_times = [&write.before, &write.after].into_iter().any(|status| actor.lacks_a_list_of(status));
        let book = &mut self.books[book];
        let Written { spec, before, after, alive } = write;
        let View { read, changed, known, .. } = &*book.views.entry(caller.life).or_default();
        let (read, changed) = (*read, changed.filter(|its| after.last_hash() == Some(hash(its.content))));
        let named = after.source_version();
        let is_own = |its: &Reading| its.life == caller.life;
        let place = book.readings.iter().rposition(|its| is_own(its) && Some(&its.version) == named.as_ref());
        // Another keeper may have read the content first, for both, and an earlier version may have had the same
        // content.
        let same = place.into_iter().flat_map(|place| {
            let now = &book.readings[place];
            let own = book.readings[..=place].iter().rev().filter(|its| is_own(its));
            // This keeper has not read what only others did in between.
            let is_known = move |its: &&Reading| its.is_like(now) || has_read_all(known, caller.actor, its);
            own.filter(is_known).take_while(move |its| its.is_like(now))
        });
        let first_read = same.map(Reading::first_at).min().or(read);
        let first_read = first_read.into_iter().chain(changed.map(|changed| changed.at)).min();
        let reading = place.map(|place| &mut book.readings[place]);
        let read = reading.as_ref().map(|reading| reading.time_of(caller.actor)).or(read);
        let mut write = Write {
            written: rules::Write { at, spec, before, after, undone: None },
            life: caller.life,
            sent: (caller.actor, caller.sent),
            read,
            first_read,
            listed,
            went_by,
            shared,
            desired,
            by_times,
            alive,
            learnt: BTreeMap::new(),
        };
        if let Some(reading) = reading.filter(|reading| reading.recorded.is_none()) {
            (reading.at, reading.recorded) = (reading.time_of(caller.actor), Some(at));
            // The process goes by a reading from before a restore that it writes down only now.
            reading.is_undone = false;
        }
        // One write may end what was pending and begin the next restart: it is two.
        if let Some(between) = write.after.in_between(&write.before) {
            let end = rules::Write { after: between.clone(), ..write.written.clone() };
            book.writes.push(Write { written: end, ..write.clone() });
            write.written.before = between;
        }
        book.writes.push(write);
        book.readings.sort_by_key(|reading| reading.at);
    }

    /// Records that somebody else changed pods or the desired replicas of their owners.
    pub(crate) fn record_disturbance(&mut self, at: Moment) {
        self.actors.iter_mut().for_each(|actor| actor.disturbed = Some(at));
    }

    /// Returns what a process goes by when it deletes a pod: the spec, and pods that show the owners whose pods are
    /// replaced: those that the restart replaces, and those that were there or selected as it began, or also those of
    /// them that are not selected any more. Returns none if something has happened since the last lists that the process
    /// cannot know.
    pub(crate) fn goes_by(&self, caller: &Caller) -> Option<(Arc<Seen>, Vec<BTreeSet<usize>>)> {
        let grounds = caller.grounds.first()?;
        let actor = Some(&self.actors[caller.actor]).filter(|actor| actor.disturbed < actor.listed)?;
        let mut shared = self.shared(caller, &grounds.seen.spec, grounds.read);
        if shared.any(|list| actor.disturbed > Some(list.at)) {
            return None;
        }
        let Seen { spec, status, .. } = &*grounds.seen;
        let replaced = status.begun().and_then(|_| self.last_list(status)).and_then(|version| {
            match actor.forgotten.get(version) {
                Some(recalled) => recalled.as_ref().map(|(at, pods)| (*at, &**pods)),
                None => self.lists.get(version).map(|(at, pods)| (*at, pods)),
            }
        });
        let Some((at, pods)) = replaced else { return Some((Arc::clone(&grounds.seen), Default::default())) };
        let book = &self.books[grounds.book];
        let is_replaced = |pod: &&usize| self.is_stale((status, spec), &self.pods[**pod], (grounds.by_times, at));
        let start = book.start_of(status);
        let began = start.and_then(|start| start.listed.max(start.shared));
        let is_left = |pod: &&usize| self.pods[**pod].gone.is_none_or(|gone| Some(gone) > began);
        let by_selection = [None, Some(at), began].into_iter().flat_map(|selected_at| {
            let is_selected =
                |pod: usize| selected_at.is_none_or(|selected_at| self.pods[pod].was_selected(spec, selected_at));
            let all: BTreeSet<usize> =
                pods.iter().filter(is_replaced).copied().filter(|pod| is_selected(*pod)).collect();
            [all.iter().filter(is_left).copied().collect(), all]
        });
        Some((Arc::clone(&grounds.seen), by_selection.collect()))
    }

    pub(crate) fn record_deletion(
        &mut self,
        at: Moment,
        caller: &Caller,
        (pod, evicted): (usize, bool),
        over_budget: usize,
    ) {
        let budgeted = !caller.grounds.iter().any(|grounds| may_take_everything(&grounds.seen.spec));
        for (index, actor) in self.actors.iter_mut().enumerate() {
            // Tasks of one process that keep a budget know each other's deletions.
            let knows = budgeted && actor.life == caller.life && !actor.looks_after;
            if index != caller.actor && !knows {
                actor.disturbed = Some(at);
            }
        }
        let sent = (caller.actor, caller.number);
        let (life, received, grounds) = (caller.life, None, caller.grounds.clone());
        self.deletions.push(Deletion { at, pod, evicted, life, sent, received, grounds, over_budget });
    }

    pub(crate) fn record_handing_over(&mut self, at: Moment, caller: &Caller, pod: usize, over_budget: usize) {
        // Tasks of one process take turns.
        let others = self.actors.iter_mut().filter(|actor| actor.life != caller.life);
        others.for_each(|actor| actor.disturbed = Some(at));
        self.pods[pod].handed_over.push((at, true));
        let (sent, received) = ((caller.actor, caller.number), None);
        let (life, grounds) = (caller.life, caller.grounds.clone());
        // Nothing is deleted yet.
        let evicted = true;
        self.handed_over.push(Deletion { at, pod, evicted, life, sent, received, grounds, over_budget });
    }

    pub(crate) fn record_giving_back(&mut self, at: Moment, caller: &Caller, pod: usize) {
        self.record_disturbance(at);
        self.pods[pod].handed_over.push((at, false));
        if !self.looks_after(caller) {
            self.improper.push(format!("at {at:?} a restart gives a pod back"));
        }
    }

    /// Records that a task looks after pods that are handed over, and is no keeper.
    pub(crate) fn record_look_after(&mut self, at: Moment, caller: &Caller) {
        let actor = &mut self.actors[caller.actor];
        (actor.looks_after, actor.listed) = (true, Some(at));
    }

    pub(crate) fn looks_after(&self, caller: &Caller) -> bool {
        self.actors[caller.actor].looks_after
    }

    /// Returns when the task last began to look.
    pub(crate) fn looks_since(&self, caller: &Caller) -> Option<Moment> {
        self.actors[caller.actor].listed
    }

    /// Returns whether nothing has happened since the task last began to look that only a list shows.
    pub(crate) fn knows_everything(&self, caller: &Caller) -> bool {
        let actor = &self.actors[caller.actor];
        actor.disturbed < actor.listed
    }

    pub(crate) fn record_deployment(&mut self, caller: &Caller, generation: u64, is_rolling: bool) {
        self.actors[caller.actor].deployment = Some((generation, is_rolling));
    }

    /// Returns the generation of the Deployment as the task has read it since its last list.
    pub(crate) fn known_generation(&self, caller: &Caller) -> Option<u64> {
        self.actors[caller.actor].deployment.map(|(generation, _)| generation)
    }

    /// Returns whether the task has read the Deployment since its last list, and no rollout was under way.
    pub(crate) fn knows_of_no_rollout(&self, caller: &Caller) -> bool {
        matches!(self.actors[caller.actor].deployment, Some((_, false)))
    }

    pub(crate) fn record_deletion_answer(&mut self, received: Moment, caller: &Caller) {
        let sent = (caller.actor, caller.number);
        let its = self.deletions.iter_mut().rfind(|deletion| deletion.sent == sent);
        its.into_iter().for_each(|deletion| deletion.received = Some(received));
    }

    /// Returns the pods that this task has deleted by later requests of the same wave, which have overtaken this one.
    pub(crate) fn overtaking(&self, caller: &Caller, ms: u64) -> BTreeSet<usize> {
        let later = |deletion: &&Deletion| {
            ms <= caller.sent + A_WAVE && deletion.sent.0 == caller.actor && deletion.sent.1 > caller.number
        };
        self.deletions.iter().filter(later).map(|deletion| deletion.pod).collect()
    }

    /// Returns whether the last read of this owner has succeeded.
    pub(crate) fn has_read_owner(&self, caller: &Caller, owner: usize) -> bool {
        self.actors[caller.actor].desired.contains_key(&owner)
    }

    /// Returns for how many milliseconds a pod must have been ready at a moment, if its owner could be read.
    pub(crate) fn least_ready(
        &self,
        knower: Knower<'_>,
        (pod, at): (usize, Moment),
        spec: &Spec,
        is_owner_read: bool,
    ) -> u64 {
        let of_owner = if is_owner_read { self.min_ready } else { 0 };
        let least = spec.min_ready_seconds.unwrap_or(0).max(of_owner);
        let least = Duration::from_secs(least.into()).saturating_sub(self.skew);
        let least = u64::try_from(least.as_millis()).unwrap();
        let Some(ready) = self.pods[pod].ready.since(at) else { return least };
        least.saturating_sub(ready.ms - self.counts_from(knower, (pod, at), ready))
    }

    /// Returns how many pods of an owner that are not in `besides` were available at a moment.
    pub fn available(
        &self,
        knower: Knower<'_>,
        (owner, at): (usize, Moment),
        spec: &Spec,
        besides: &BTreeSet<usize>,
    ) -> usize {
        let pods =
            self.pods.iter().enumerate().filter(|(_, pod)| pod.nature == Nature::Managed && pod.place.0 == owner);
        let is_available = |number: usize, pod: &PodRecord| {
            pod.is_available(at.ms, self.least_ready(knower, (number, at), spec, true), 0)
        };
        pods.filter(|(number, pod)| !besides.contains(number) && is_available(*number, pod)).count()
    }

    /// Returns from when on a pod that became ready at this moment counts as ready, in milliseconds. If the clock of its
    /// node is slow, that may be its creation: if it is ready at the first list of the restart, or if it is newer than
    /// the last list or not selected in it, so that only one of its owner's pods shows it, or if the operator did not go by
    /// this before an edit, while the restart was held by one, or after its canary had failed.
    pub fn counts_from(&self, knower: Knower<'_>, (pod, at): (usize, Moment), ready: Moment) -> u64 {
        let Knower { life, actor, book, start, listed } = knower;
        let began = start.map(|start| start.at);
        let waits = |spec: &Spec| self.min_ready > 0 || spec.min_ready_seconds.is_some_and(|least| least > 0);
        let goes_on = |spec: &Spec| !spec.pod_selector.is_empty() && spec.suspend != Some(true);
        let goes_by_this = |spec: &Spec| goes_on(spec) && (spec.canary.is_some() || waits(spec));
        let is_edited = !book.specs_between(began.unwrap_or(at), at).all(goes_by_this);
        let of_this = |write: &&Write| began <= Some(write.at) && write.at < at;
        let has_failed = book.writes.iter().filter(of_this).any(|write| write.after.has_failed_canaries());
        // Another keeper may have listed before.
        let may_be_its = |by: usize| match actor {
            Some(actor) => by == actor,
            None => self.actors[by].book.is_none_or(|its| std::ptr::eq(&self.books[its], book)),
        };
        // Before that, a process may have listed pods for a restart that another process was the first to begin. After a
        // restore it may take the restart up anew.
        let restored = self.restored.iter().copied().rfind(|restored| *restored < at);
        let learnt = start.and_then(|start| start.learnt.get(&life)).copied().max(began).max(restored);
        let its = |list: &&Listed| list.life == life && Some(list.at) > learnt && may_be_its(list.actor);
        // A process that takes a restart up may list pods to know which ones it replaces, before it looks at any.
        let takes_up = start.is_some_and(|start| start.life != life);
        let first = self.received.iter().filter(its).nth(usize::from(takes_up));
        let pod = &self.pods[pod];
        // A status has seconds: a pod that was unready within one looks as if it had been ready all the time.
        let ready = pod.ready.periods().map(|(from, _)| from).find(|it| it.second() == ready.second()).unwrap_or(ready);
        // After a panic another list is the first one of the task.
        let is_first = first.is_none_or(|first| ready <= first.at) || self.panicked.contains(&life);
        let is_selected = |at| book.specs_between(at, at).any(|spec| pod.was_selected(spec, at));
        let is_unlisted = Some(pod.born) > listed || !listed.is_none_or(is_selected);
        if is_edited || has_failed || is_first || is_unlisted { pod.ready_by_node(ready) } else { ready.ms }
    }

    fn first_list_after(&self, moment: Option<Moment>) -> Option<Moment> {
        self.listed_at.iter().copied().find(|at| Some(*at) > moment)
    }

    /// Returns the moments from `from` to `to` at which a pod was created, went, or changed its labels or its readiness.
    pub fn moments(&self, from: Moment, to: Moment) -> impl Iterator<Item = Moment> {
        let of = |pod: &PodRecord| {
            let ready = pod.ready.periods().flat_map(|(from, until)| until.into_iter().chain([from]));
            let labelled = pod.labels.iter().map(|(at, _)| *at);
            pod.gone.into_iter().chain(pod.ended).chain([pod.born]).chain(labelled).chain(ready).collect::<Vec<_>>()
        };
        self.pods.iter().flat_map(of).filter(move |at| (from..=to).contains(at)).chain([from, to])
    }

    /// Returns whether a pod may have read other content than the last one of a source that concerns it, or is meant by a
    /// request, by what a process could know at this moment. `by_times`: a list was forgotten, so that it was made up for by
    /// times of creation.
    pub fn is_stale(&self, by: (&Status, &Spec), pod: &PodRecord, (by_times, known_at): (bool, Moment)) -> bool {
        self.is_stale_by(by, pod, (by_times, known_at), None)
    }

    /// Returns whether a pod was stale by the list of pods with which a restart began. Of a container that had started by
    /// then, the clock of its node said when.
    pub fn was_stale(&self, by: (&Status, &Spec), pod: &PodRecord, planned: Moment) -> bool {
        self.is_stale_by(by, pod, (false, planned), Some(planned))
    }

    fn is_stale_by(
        &self,
        (status, spec): (&Status, &Spec),
        pod: &PodRecord,
        (by_times, known_at): (bool, Moment),
        planned: Option<Moment>,
    ) -> bool {
        let selection = Selection::parse(status.begun().and_then(|begun| begun.pod_selector.as_deref()));
        let room = if by_times { SKEW } else { A_SECOND };
        let listed = |version: &Option<String>| version.as_ref().and_then(|version| self.list(version));
        let was_in = |version: &Option<String>| {
            listed(version).is_some_and(|at| pod.born < at && selection.matches(pod.labels_at(at)))
        };
        let may_be_in =
            |version: &Option<String>, at: ServerTime| was_in(version) || by_times && pod.created <= at.plus(SKEW);
        let may_have_read = |change: &Change, next: &Change| {
            let list = listed(&change.pods_resource_version);
            // The selector may have been edited since.
            let is_made_up = by_times && pod.created > change.observed_at.plus(SKEW);
            let was_selected = || list.is_some_and(|at| pod.was_selected(spec, at));
            let was_listed = was_in(&change.pods_resource_version) && was_selected() && !is_made_up;
            let seen = listed(&next.pods_resource_version).max(planned);
            let had_not_started = pod.started > seen || pod.started.is_none();
            !was_listed || had_not_started || pod.may_have_read(change.since.minus(room), known_at)
        };
        let concerns = |known: &SourceStatus| !known.discovered || pod.refers_to(&known.name);
        let is_old = |(came, next): (Option<&Change>, &Change)| {
            may_be_in(&next.pods_resource_version, next.observed_at)
                && came.is_none_or(|change| may_have_read(change, next))
        };
        let is_meant = |request: &Request| may_be_in(&request.pods_resource_version, request.observed_at);
        status.request().is_some_and(is_meant)
            || status.sources.iter().filter(|known| concerns(known)).any(|known| known.former().any(is_old))
    }

    /// Returns the list of pods that was made last for a status.
    fn last_list<'a>(&self, status: &'a Status) -> Option<&'a String> {
        status.lists().max_by_key(|version| self.list(version))
    }

    /// Returns when the last list of pods for a status was made.
    pub fn last_listed(&self, status: &Status) -> Option<Moment> {
        self.list(self.last_list(status)?)
    }

    /// Returns when the last of the lists was made with which the restart under way has begun.
    pub fn began_with(&self, status: &Status) -> Option<Moment> {
        let marked = status.changes().filter(|change| change.begun).map(|change| &change.pods_resource_version);
        let lists = marked.chain(status.request().map(|request| &request.pods_resource_version));
        lists.filter_map(|version| self.list(version.as_ref()?)).max()
    }

    /// Returns when the list of this version was made.
    pub fn list(&self, version: &str) -> Option<Moment> {
        self.lists.get(version).map(|(at, _)| *at)
    }

    /// Returns whether a ConfigMap did not exist at some time until this moment.
    pub fn has_been_missing(&self, config_map: &str, until: Moment) -> bool {
        let is_missing =
            |content: &Option<Content>| content.is_none_or(|content| content.contains(&Some(Data::Absent)));
        let of_it = self.contents.iter().filter(|(source, _)| source.config_maps().eq([config_map]));
        of_it.flat_map(|(_, contents)| contents).any(|(at, content)| *at <= until && is_missing(content))
    }

    /// Returns whether a keeper of this process had panicked by then, and nobody knows which.
    pub fn is_forgetful(&self, life: Life, at: Moment) -> bool {
        self.forgetful.get(&life).is_some_and(|since| *since < at)
    }

    /// Returns when a pod read a source, and the content: at its creation, or once the ConfigMap existed, if the pod has
    /// waited for that.
    pub fn first_content(&self, source: Source, pod: usize) -> Option<(Moment, Content)> {
        let PodRecord { born, started, .. } = self.pods[pod];
        let has_waited = |at: Moment| started.is_none_or(|started| started >= at);
        let contents = &self.contents[&source];
        let at_birth = contents.iter().rev().find(|(at, _)| *at < born).and_then(|(_, content)| *content);
        let later =
            || contents.iter().find_map(|(at, content)| content.filter(|_| *at > born).map(|content| (*at, content)));
        at_birth.map(|content| (born, content)).or_else(|| later().filter(|(at, _)| has_waited(*at)))
    }

    /// Returns until when a source had this content. A ConfigMap that is missing for a while and comes back unchanged
    /// is no change.
    pub fn lasts_until(&self, source: Source, from: Moment, content: Content) -> Option<Moment> {
        let changes = self.contents[&source].iter();
        changes
            .filter(|(at, _)| *at > from)
            .find(|(_, other)| other.is_some_and(|other| other != content))
            .map(|(at, _)| *at)
    }
}

/// Returns the most of these ordered times, in milliseconds, that lie within one minute.
pub fn busiest_minute(times: &[u64]) -> usize {
    let within =
        |(number, ms): (usize, &u64)| times[..=number].iter().rev().take_while(|its| **its + 60_000 > *ms).count();
    times.iter().enumerate().map(within).max().unwrap_or(0)
}

pub(crate) struct Written {
    pub spec: Spec,
    pub before: Status,
    pub after: Status,
    pub alive: Vec<usize>,
}

impl Actor {
    /// Returns whether the API server has not forgotten this list, as far as the task knows.
    fn knows(&self, version: &str) -> bool {
        !self.forgotten.contains_key(version)
    }

    /// Returns whether the task does not know which pods were in a list of a status.
    fn lacks_a_list_of(&self, status: &Status) -> bool {
        status.lists().any(|version| !self.knows(version))
    }
}

impl View {
    /// Forgets the keeper's readings: the next one counts as the first.
    fn forget(&mut self) {
        (self.source, self.last) = (None, None);
        self.known.clear();
        self.fresh.clear();
        self.readers.clear();
    }
}

impl Book {
    /// Records that a ConfigMap was read: by the keeper of this ConfigMonitor (`own`), or by a keeper that may share
    /// the reading.
    fn record_reading(
        &mut self,
        at: Moment,
        caller: &Caller,
        own: bool,
        (config_map, stored): (&'static str, Option<Stored>),
        versions: &Versions,
        optional: bool,
    ) {
        let life = caller.life;
        let view = self.views.entry(life).or_default();
        // Nothing is read while the spec is invalid.
        let is_valid = |seen: &&Arc<Seen>| !seen.spec.pod_selector.is_empty();
        let Some(seen) = view.seen.as_ref().filter(|_| !view.gone).filter(is_valid) else { return };
        let Some(source) = Source::by_reading(&seen.spec, &seen.status, config_map) else { return };
        let before_source = view.source.replace(source);
        let is_kept = |config_map: &str| {
            source.parts().any(|part| part.name() == config_map && before_source.is_some_and(|before| before.has(part)))
        };
        view.known.retain(|config_map, _| is_kept(config_map));
        view.fresh.retain(|config_map| is_kept(config_map));
        if !view.known.contains_key(config_map) {
            view.fresh.push(config_map);
        }
        view.known.entry(config_map).or_default().push(Finding { at, actor: caller.actor, stored });
        if !source.config_maps().all(|its| view.known.contains_key(its)) {
            return;
        }
        let first_of = std::mem::take(&mut view.fresh);
        let first = !first_of.is_empty();
        // Under other keys the task compares nothing with what it has read before. Nor if the source may be missing only now:
        // if it was discovered, and no pod refers to it any more, none says so.
        let its = Source::of(&seen.spec).and_then(|named| named.only(|name| name == config_map));
        let its = (its, optional && names(&seen.spec, config_map));
        let is_new_to_task = view.readers.insert((caller.actor, config_map), its) != Some(its);
        let found = |config_map| view.known[config_map].last().and_then(|finding| finding.stored);
        // For a missing ConfigMap the status says which content counts, unless it is optional.
        let version_of = |config_map| {
            let known = || Some(config_map).filter(|_| !optional).and_then(|its| seen.status.version_of(its));
            found(config_map).map(|its| its.version).or_else(known)
        };
        let is_any_there = optional || source.config_maps().any(|its| found(its).is_some());
        let content = source.known(|config_map| match version_of(config_map) {
            Some(version) => Some(versions.get(&version)?.1),
            None => optional.then_some(Data::Absent),
        });
        let Some(content) = content.filter(|_| is_any_there) else {
            (view.read, view.last) = (Some(at), None);
            return;
        };
        let absent = || optional.then(|| ABSENT.to_owned());
        let version = source.config_maps();
        let version = version.filter_map(|its| version_of(its).map(|version| version.to_string()).or_else(absent));
        let version = version.collect::<Vec<_>>().join(",");
        let again = view.last.as_ref() == Some(&version) && !first;
        view.last = Some(version.clone());
        // Content that the status already names needs no write.
        let is_named = |content| own && !view.is_undone && seen.status.last_hash() == Some(hash(content));
        let before = self.readings.iter_mut().rfind(|reading| reading.life == life && reading.version == version);
        if let Some(before) = before.filter(|_| again) {
            // The same version once more is news only to another keeper.
            view.read = Some(before.first_at());
            let is_new_to_it = before.by.iter().all(|(actor, _)| *actor != caller.actor);
            // The reading may be shared with a keeper that needs it only now.
            before.by.push((caller.actor, at));
            // It is the first look of a task that has not read this source before, such as the successor of a keeper
            // that panicked.
            before.may_be_first |= own && is_new_to_task && before.recorded.is_none();
            if is_new_to_it && is_named(before.content) && before.recorded.is_none() {
                (before.at, before.recorded) = (at, Some(at));
                self.readings.sort_by_key(|reading| reading.at);
            }
            return;
        }
        view.read = Some(at);
        // The first content of a source that was added changes nothing.
        let is_added = |changed: &Changed| first_of.len() < source.count() && overlap(changed.content, content);
        let is_same = |changed: &Changed| (!first || is_added(changed)) && !differ(changed.content, content);
        if let Some(changed) = view.changed.as_mut().filter(|changed| is_same(changed)) {
            // More of the content may be known by now.
            changed.content = content;
        } else {
            view.changed = Some(Changed { at, content });
        }
        let recorded = is_named(content).then_some(at);
        let may_be_first = first || is_new_to_task;
        // The same version once more is no news after an edit of the source or a restore, either.
        let is_same = |finding: &&Finding| finding.stored.map(|its| its.version) == stored.map(|its| its.version);
        let same = view.known[config_map].iter().rev().take_while(is_same);
        let by = same.map(|finding| (finding.actor, finding.at)).collect();
        let reading = Reading::new(at, life, (source, content), version, by);
        self.insert(Reading { first: first_of, may_be_first, recorded, ..reading });
    }

    /// Inserts a reading by its time: an answer may have taken longer than a later one.
    fn insert(&mut self, reading: Reading) {
        let place = self.readings.partition_point(|other| other.at < reading.at);
        self.readings.insert(place, reading);
    }

    /// Records the versions that a status names. The keeper need not have received all that others of its process have
    /// read: then it combines its own reading of one ConfigMap with theirs of the other. When a source is removed,
    /// nothing is read again.
    fn pair(&mut self, caller: &Caller, status: &Status, version: &str, versions: &Versions) {
        let Some(view) = self.views.get(&caller.life) else { return };
        // After an edit of the keys, content may have changed under the earlier ones.
        let by = |seen: &Arc<Seen>| Some(Source::by(&seen.spec, status)?.and(Source::by(&seen.spec, &seen.status)?));
        let Some(source) = view.seen.as_ref().and_then(by) else { return };
        let named = status.versions().map(|(name, version)| (name, version.parse().ok()));
        let named: Vec<(&str, Option<u64>)> = named.collect();
        let data = |config_map| {
            let (_, version) = named.iter().find(|(its, _)| *its == config_map)?;
            version.map_or(Some(Data::Absent), |version| Some(versions.get(&version)?.1))
        };
        let Some(content) = source.known(data) else { return };
        let finding = |(config_map, version): &(&str, Option<u64>)| {
            let its = view.known.get(config_map).map_or(&[][..], Vec::as_slice);
            // A status keeps the version with which this content was first read.
            let data = |version: u64| versions.get(&version).map(|(_, data)| data);
            let is_it = |finding: &Finding| finding.stored.map(|its| data(its.version)) == version.map(data);
            // Of content that has come back, the earlier answers say nothing.
            let end = its.iter().rposition(is_it).map_or(0, |last| last + 1);
            let start = its[..end].iter().rposition(|finding| !is_it(finding)).map_or(0, |other| other + 1);
            its[start..end].iter().map(|finding| (finding.actor, finding.at)).collect()
        };
        let finding: Vec<Vec<(usize, Moment)>> = named.iter().map(finding).collect();
        // After an edit of the keys, the same versions are another reading.
        let is_its = |reading: &Reading| reading.life == caller.life && reading.source == source;
        let found = finding.iter().filter_map(|its| its.iter().map(|(_, at)| *at).min()).max();
        // The successor of a keeper that panicked has not read what is shared with it.
        let shared = self.readings.iter().rfind(|its| is_its(its) && its.content == content).map(|its| its.at);
        let Some(at) = found.or(shared) else { return };
        let by = finding.into_iter().flatten().filter(|(_, its)| *its >= at).collect::<Vec<_>>();
        let is_it = |reading: &&mut Reading| is_its(reading) && reading.version == version;
        if let Some(known) = self.readings.iter_mut().rfind(is_it) {
            let more = by.into_iter().filter(|its| source.count() > 1 && !known.by.contains(its));
            known.by.extend(more.collect::<Vec<_>>());
            return;
        }
        // It may not have read all that the spec discovers.
        let first: Vec<_> = view.fresh.iter().copied().filter(|config_map| source.includes(config_map)).collect();
        let reading = Reading::new(at, caller.life, (source, content), version.to_owned(), by);
        self.insert(Reading { may_be_first: !first.is_empty(), first, ..reading });
    }

    /// Records a restore of the backup made at `from`. What is read again is news.
    fn record_restore(&mut self, at: Moment, from: Moment) {
        let unwritten = self.writes.iter_mut().filter(|write| write.at > from && write.undone.is_none());
        unwritten.for_each(|write| write.written.undone = Some(at));
        let unwiped = self.wiped.iter_mut().filter(|(wiped, undone)| *wiped > from && undone.is_none());
        unwiped.for_each(|(_, undone)| *undone = Some(at));
        let undone = self.readings.iter_mut().filter(|reading| reading.recorded.is_none_or(|recorded| recorded > from));
        undone.for_each(|reading| reading.is_undone = true);
        self.views.values_mut().for_each(|view| (view.last, view.is_undone) = (None, true));
    }

    /// Returns the readings of a ConfigMap that the status shows, ordered by time.
    pub fn kept(&self, part: Source) -> impl DoubleEndedIterator<Item = &Reading> {
        self.of(part).filter(|reading| reading.recorded.is_some() && reading.is_kept())
    }

    /// Returns the readings of a ConfigMap, ordered by time.
    fn of(&self, part: Source) -> impl DoubleEndedIterator<Item = &Reading> {
        self.readings.iter().filter(move |reading| reading.of_part(part).is_some())
    }

    /// Returns what was written, for the rules that go by nothing else.
    pub fn account(&self, skew: Duration) -> Account<'_> {
        let writes = self.writes.iter().map(|write| &write.written).collect();
        Account { writes, requests: &self.requests, wiped: &self.wiped, skew }
    }

    /// Returns the write with which the restart began that is under way in a status.
    pub fn start_of(&self, status: &Status) -> Option<&Write> {
        self.writes.iter().rfind(|write| write.starts(status))
    }

    fn start_of_mut(&mut self, status: &Status) -> Option<&mut Write> {
        self.writes.iter_mut().rfind(|write| write.starts(status))
    }

    /// Returns the specs that were in force at some time between these moments.
    pub fn specs_between(&self, from: Moment, to: Moment) -> impl Iterator<Item = &Spec> {
        let until = self.specs.iter().map(|(at, _)| *at).skip(1).map(Some).chain([None]);
        let in_force = self.specs.iter().zip(until);
        in_force
            .filter(move |((at, _), until)| *at <= to && until.is_none_or(|until| until >= from))
            .map(|((_, spec), _)| spec)
    }
}

/// Returns whether the contents differ in a part that is known of both.
fn differ(one: Content, other: Content) -> bool {
    one.iter().zip(&other).any(|(one, other)| one.is_some() && other.is_some() && one != other)
}

/// Returns whether a part is known of both contents.
fn overlap(one: Content, other: Content) -> bool {
    one.iter().zip(&other).any(|(one, other)| one.is_some() && other.is_some())
}

fn selects(spec: &Spec, labels: &Labels) -> bool {
    !spec.pod_selector.is_empty()
        && spec.pod_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        // No story uses another operator than NotIn.
        && !spec.pod_selector_expressions.iter().any(|not_in| {
            labels.get(&not_in.key).is_some_and(|value| not_in.values.contains(value))
        })
}

fn query_of(spec: &Spec) -> Option<String> {
    let selector = Selector::new(spec.pod_selector.clone(), spec.pod_selector_expressions.clone());
    Some(selector.ok()?.to_query())
}

impl PodRecord {
    pub fn new(
        born: Moment,
        created: ServerTime,
        place: (usize, usize),
        (labels, refers): (&Labels, [bool; 2]),
        nature: Nature,
        node: i64,
    ) -> Self {
        Self {
            born,
            created,
            started: None,
            ready: Readiness::default(),
            restarted: Vec::new(),
            node,
            ended: None,
            gone_by: None,
            gone: None,
            evicted: None,
            failures: Vec::new(),
            place,
            labels: vec![(born, Arc::clone(labels))],
            refers,
            nature,
            handed_over: Vec::new(),
            is_undone: false,
        }
    }

    pub fn is_restartable(&self, spec: &Spec) -> bool {
        match self.nature {
            Nature::Managed => true,
            Nature::Bare | Nature::Completes => spec.unmanaged_pods == Some(UnmanagedPods::Delete),
            Nature::Mirror | Nature::TheOperatorsOwn => false,
        }
    }

    pub fn refers_to(&self, config_map: &str) -> bool {
        CONFIG_MAPS.iter().zip(self.refers).any(|(name, refers)| *name == config_map && refers)
    }

    /// Returns what of a source matters to the pod by this spec; none if nothing does.
    pub fn its_part(&self, spec: &Spec, source: Source) -> Option<Source> {
        source.only(|name| !discovers(spec, name) || self.refers_to(name))
    }

    /// Returns whether a change of one of the sources may restart the pod, by the scope of this spec.
    pub fn is_in_scope(&self, spec: &Spec) -> bool {
        let concerns = |config_map: &str| !discovers(spec, config_map) || self.refers_to(config_map);
        Source::of(spec).is_none_or(|source| source.config_maps().any(concerns))
    }

    /// Returns whether the pod can have read the content of this time or later, by what was known at a moment: only the
    /// clock of its node says when a container started.
    pub fn may_have_read(&self, time: ServerTime, known_at: Moment) -> bool {
        let mut restarted = self.restarted.iter().filter(|at| **at <= known_at);
        self.created >= time
            || self.started.is_none_or(|at| self.by_node(at) >= time)
            || restarted.any(|at| self.by_node(*at) >= time)
    }

    /// Returns whether the clock of its node says that the pod started before it read its content at this moment.
    pub fn is_slow(&self, read_at: Moment) -> bool {
        self.started.is_some_and(|at| at.second() > self.created && self.by_node(at) < read_at.second())
    }

    /// Returns from when on the pod is ready by the clock of its node, but no time before its creation, which was long ago
    /// if a restore has brought it back.
    pub(crate) fn ready_by_node(&self, ready: Moment) -> u64 {
        let created = u64::try_from(self.created.as_second()).unwrap_or(0) * 1000;
        if self.node < 0 { self.born.ms.min(created) } else { ready.ms }
    }

    pub(crate) fn by_node(&self, at: Moment) -> ServerTime {
        ServerTime::from_second(at.second().as_second() + self.node)
    }

    /// Returns whether the pod had been ready for `least` milliseconds, and had not been terminating for more than
    /// `late`.
    fn is_available(&self, at: u64, least: u64, late: u64) -> bool {
        self.ready.was_for(at, least, late) && self.ended.is_none_or(|ended| at <= ended.ms.saturating_add(late))
    }

    /// Returns whether the pod was neither finished nor terminating.
    pub fn is_left(&self, at: u64) -> bool {
        self.ended.is_none_or(|ended| at < ended.ms)
    }

    /// Returns whether this spec selects the pod at the end of the story.
    pub fn is_selected(&self, spec: &Spec) -> bool {
        self.labels.last().is_some_and(|(_, labels)| selects(spec, labels))
    }

    pub fn was_selected(&self, spec: &Spec, at: Moment) -> bool {
        selects(spec, self.labels_at(at))
    }

    /// Returns whether the pod was handed over at a moment.
    pub fn was_handed_over(&self, at: Moment) -> bool {
        self.handed_over.iter().rfind(|(since, _)| *since < at).is_some_and(|(_, is_over)| *is_over)
    }

    pub fn labels_at(&self, at: Moment) -> &Labels {
        let (_, labels) = self.labels.iter().rfind(|(since, _)| *since <= at).unwrap_or(&self.labels[0]);
        labels
    }

    /// Returns every set of labels that the pod had between these moments.
    fn labels_between(&self, from: Moment, to: Moment) -> impl Iterator<Item = &Labels> {
        let later = self.labels.iter().filter(move |(since, _)| *since > from && *since <= to);
        std::iter::once(self.labels_at(from)).chain(later.map(|(_, labels)| labels))
    }
}

impl Answer {
    /// Returns whether this is the hash of what was read, or of fewer keys of it.
    pub fn has_hash(&self, its: &str) -> bool {
        let parts = Source::all().filter(|part| part.count() == 1 && part.includes(self.config_map));
        parts.filter_map(|part| part.known(|_| self.data)).any(|content| hash(content) == its)
    }
}

/// Returns whether this task has received each version that a reading combines.
fn has_read_all(known: &BTreeMap<&'static str, Vec<Finding>>, actor: usize, reading: &Reading) -> bool {
    let versions = reading.source.config_maps().zip(reading.version.split(','));
    versions.into_iter().all(|(config_map, version)| {
        let is_it =
            |finding: &Finding| finding.actor == actor && finding.stored.map(|it| it.version) == version.parse().ok();
        known.get(config_map).is_some_and(|findings| findings.iter().any(is_it))
    })
}

impl Reading {
    fn new(
        at: Moment,
        life: Life,
        (source, content): (Source, Content),
        version: String,
        by: Vec<(usize, Moment)>,
    ) -> Self {
        Self {
            at,
            life,
            source,
            content,
            version,
            by,
            first: Vec::new(),
            may_be_first: false,
            recorded: None,
            is_undone: false,
        }
    }

    pub fn is_first_of(&self, part: Source) -> bool {
        self.first.contains(&part.name())
    }

    /// Returns whether both have read the same, as far as the same keys counted.
    fn is_like(&self, other: &Self) -> bool {
        let is_like = |part: Source| {
            let part = if other.source.has(part) { part } else { part.first_key() };
            self.of_part(part) == other.of_part(part)
        };
        self.source.config_maps().eq(other.source.config_maps()) && self.source.parts().all(is_like)
    }

    pub fn of_part(&self, part: Source) -> Option<Data> {
        self.source.of_part(part, self.content)
    }

    /// Returns whether no restore since then went back to a time before the reading was written down.
    pub fn is_kept(&self) -> bool {
        !self.is_undone
    }

    /// Returns when this task first received the answer, or else when another task of the process did.
    fn time_of(&self, task: usize) -> Moment {
        self.by.iter().find(|(actor, _)| *actor == task).map_or(self.at, |(_, at)| *at)
    }

    /// Returns whether this is the hash of what was read of a ConfigMap, or of fewer keys of it.
    pub fn has_hash(&self, config_map: &str, its: &str) -> bool {
        let Some(part) = self.source.only(|name| name == config_map) else { return false };
        let content = |part: Source| part.known(|_| self.of_part(part));
        [part, part.first_key()].into_iter().filter_map(content).any(|content| hash(content) == its)
    }

    pub fn first_at(&self) -> Moment {
        self.by.iter().map(|(_, at)| *at).min().unwrap_or(self.at)
    }

    /// Returns when each keeper received this answer, by the API server's clock.
    pub fn seconds(&self) -> impl Iterator<Item = ServerTime> {
        self.by.iter().map(|(_, at)| at.second())
    }
}

impl Deref for Write {
    type Target = rules::Write;

    fn deref(&self) -> &rules::Write {
        &self.written
    }
}

impl Write {
    fn starts(&self, status: &Status) -> bool {
        self.start().is_some() && self.after.which() == status.which()
    }

    /// Returns whether the process could know of a deletion: by the answer, or by a list that the task has made since.
    pub fn knows_of(&self, deletion: &Deletion) -> bool {
        let is_received = deletion.received.is_some_and(|received| received < self.at);
        deletion.life == self.life && (is_received || self.listed.is_some_and(|listed| listed > deletion.at))
    }

    /// Returns when the task that sent this first received the answer, or else when another task of the process did.
    pub fn time_of(&self, reading: &Reading) -> Moment {
        reading.time_of(self.sent.0)
    }

    /// Returns the last reading that the task itself had made of a ConfigMap when it sent this.
    pub fn goes_by<'a>(&self, book: &'a Book, part: Source) -> Option<&'a Reading> {
        let (actor, sent) = self.sent;
        let at = |reading: &Reading| {
            let own = reading.by.iter().filter(|(by, at)| *by == actor && at.ms <= sent && *at < self.at);
            // The later ones may be answers about another ConfigMap.
            own.map(|(_, at)| *at).min().filter(|_| reading.life == self.life)
        };
        book.of(part).filter_map(|reading| Some((at(reading)?, reading))).max_by_key(|(at, _)| *at).map(|(_, its)| its)
    }

    /// Returns when the task that sent this first listed the pods after the last change of the journal, for its plan.
    fn planned_with(&self, ledger: &Ledger, book: &Book) -> Option<Moment> {
        let has_changed = |its: &&Write| its.at < self.at && its.after.lists().ne(its.before.lists());
        let changed = book.writes.iter().rfind(has_changed).map(|its| its.at);
        let is_its = |list: &&Listed| list.actor == self.sent.0 && !list.metadata_only && Some(list.at) > changed;
        ledger.received.iter().find(is_its).map(|list| list.at)
    }

    /// Returns which pods may have had other content than the last one, as the journal was cut to that with this write.
    /// Content that no pod has read may be recorded without a journal.
    pub fn completes(&self, ledger: &Ledger) -> Option<Completed> {
        let is_over = self.settles() || self.after.restart.is_none() && self.after.advances(&self.before);
        if !self.before.is_baselined() || !is_over {
            return None;
        }
        let newest = |observed_at: ServerTime| self.by_times.then(|| observed_at.plus(SKEW));
        let of_request = |request: &Request| Part {
            list: self.list(ledger, request.pods_resource_version.as_ref()),
            since: None,
            newest: newest(request.observed_at),
            referring_to: None,
        };
        let pairs = self.after.sources.iter().filter_map(|after| Some((self.journal_of(after)?, after)));
        let of_source = |(journal, after): (SourceStatus, &SourceStatus)| {
            let is_scoped = after.discovered || journal.discovered || discovers(&self.spec, &after.name);
            let part = |(came, next): (Option<&Change>, &Change)| Part {
                list: self.list(ledger, next.pods_resource_version.as_ref()),
                since: came.map(|came| (self.list(ledger, came.pods_resource_version.as_ref()), came.since)),
                newest: newest(next.observed_at),
                referring_to: is_scoped.then(|| after.name.clone()),
            };
            journal.former().map(part).collect::<Vec<_>>()
        };
        let parts = pairs.flat_map(of_source).chain(self.before.request().map(of_request)).collect();
        let begun = self.before.begun().and_then(|begun| begun.pod_selector.as_deref());
        Some(Completed { selection: Selection::parse(begun), parts })
    }

    /// Returns the journal of a source before this write, up to the content that is recorded with it.
    fn journal_of(&self, after: &SourceStatus) -> Option<SourceStatus> {
        // Under other keys the same content has another hash.
        let is_comparable = |known: &&SourceStatus| known.hash.is_some() && after.has_keys_of(Some(known));
        let mut journal = self.before.of(after).filter(is_comparable)?.clone();
        if after.hash.as_deref() != journal.last() {
            let (hash, at) = (after.hash.clone()?, self.first_read.unwrap_or(self.at).second());
            let (since, observed_at, pods_resource_version) = (at, at, None);
            journal.changes.push(Change { hash, since, observed_at, pods_resource_version, begun: false });
        }
        Some(journal)
    }

    /// Returns when a list was made. The first list since the last reading, or else the one that the process went by, may
    /// not be written down.
    fn list(&self, ledger: &Ledger, version: Option<&String>) -> Moment {
        let unwritten = || ledger.first_list_after(self.first_read).filter(|at| *at < self.at).unwrap_or(self.at);
        version.and_then(|version| ledger.list(version)).unwrap_or_else(unwritten)
    }
}

/// The end of a journal, by the pods that may have had other content than the last one.
pub struct Completed {
    /// By the label selector with which the restart began, if one has.
    selection: Selection,
    parts: Vec<Part>,
}

/// A content that is not the last one, or a request.
struct Part {
    /// When the pods were listed after it: they may have read it.
    list: Moment,
    /// When the pods were listed that may have been there before it, and until when the content before was known.
    since: Option<(Moment, ServerTime)>,
    /// If creation times decide, the time by which the pods were created.
    newest: Option<ServerTime>,
    /// The source to which a pod must refer to be restarted. `None`: all pods are.
    referring_to: Option<String>,
}

/// What a restart owes to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owed {
    Nothing,
    /// The pod may have read other content, but is not to be restarted.
    LeftAlone,
    Replacement,
}

impl Part {
    /// Returns whether the pod may have read this.
    fn is_of(&self, pod: &PodRecord) -> bool {
        let may_have_read = |(list, since): (Moment, ServerTime)| {
            // A list has the UID of a pod that a restore brings back.
            let is_new = pod.born > list && !pod.is_undone;
            is_new || pod.may_have_read(since.minus(A_SECOND), self.list)
        };
        pod.born <= self.list
            && self.since.is_none_or(may_have_read)
            && self.newest.is_none_or(|newest| pod.created <= newest)
            && self.referring_to.as_ref().is_none_or(|source| pod.refers_to(source))
    }
}

impl Completed {
    /// Returns whether all old pods were gone, and their owners had the desired replicas available that the process had
    /// read.
    ///
    /// Nobody knows by which list, so any time since the last one will do.
    pub fn was_over(&self, ledger: &Ledger, book: &Book, write: &Write) -> bool {
        if write.by_times {
            return true;
        }
        // A pod that was gone before the restart began was not replaced by it.
        let start = book.writes.iter().rfind(|before| before.at < write.at && before.start().is_some());
        let began = start.map(|start| start.at);
        // Nor one that came later and was gone before the plan was made again: nobody has seen whose pod it was.
        let (first, planned) = (ledger.began_with(&write.before), write.planned_with(ledger, book));
        let of_this = ledger.deletions.iter().filter(|it| it.is_of(ledger, book));
        let deleted: BTreeSet<usize> = of_this.map(|it| it.pod).collect();
        let is_owed = |pod: &usize| {
            let PodRecord { born, gone, .. } = ledger.pods[*pod];
            let was_there = gone.is_none_or(|gone| Some(gone) > began);
            let is_new = first.is_some_and(|first| born > first);
            let was_planned = !is_new || deleted.contains(pod) || gone.is_none_or(|gone| Some(gone) > planned);
            was_there && was_planned && self.owes(ledger, book, write, *pod) == Owed::Replacement
        };
        let old: Vec<&PodRecord> = (0..ledger.pods.len()).filter(is_owed).map(|pod| &ledger.pods[pod]).collect();
        let owners: BTreeSet<usize> = old.iter().map(|pod| pod.place.0).collect();
        let knower = Knower { life: write.life, actor: None, book, start, listed: write.listed.max(write.shared) };
        let least = |pod| ledger.least_ready(knower, (pod, write.at), &write.spec, true);
        let has_enough = |owner: usize, desired: usize, at: u64| {
            let pods = ledger.pods.iter().enumerate();
            let its = pods.filter(|(_, pod)| pod.nature == Nature::Managed && pod.place.0 == owner);
            its.filter(|(number, pod)| pod.is_available(at, least(*number), 0)).count() >= desired
        };
        let is_replaced = |at: u64| !old.iter().any(|pod| pod.is_left(at));
        let from = write.listed.or(write.shared).unwrap_or(write.at).ms;
        // The restart becomes complete when a pod ends or is available, or was complete before.
        let comes = ledger.pods.iter().enumerate().flat_map(|(number, pod)| {
            let ready = pod.ready.periods().map(|(from, _)| from.ms + least(number));
            pod.ended.map(|ended| ended.ms).into_iter().chain(ready).collect::<Vec<u64>>()
        });
        let comes = comes.chain([from, write.at.ms]).filter(|at| (from..=write.at.ms).contains(at));
        let comes: Vec<u64> = comes.filter(|at| is_replaced(*at)).collect();
        // The pods of an owner may have been listed on their own, a little later.
        let mut desired = write.desired.iter().filter(|(owner, _)| owners.contains(owner));
        !comes.is_empty() && desired.all(|(owner, desired)| comes.iter().any(|at| has_enough(*owner, *desired, *at)))
    }

    /// Returns whether the restart that ended with this write had to replace the pod, if it still existed.
    pub fn owes(&self, ledger: &Ledger, book: &Book, write: &Write, pod: usize) -> Owed {
        let pod = &ledger.pods[pod];
        // A pod that was not selected for a while counts as selected only later.
        let is_meant = |part: &&Part| {
            let mut labels = pod.labels_between(part.list, write.at);
            labels.all(|labels| selects(&write.spec, labels) && self.selection.matches(labels))
                && book.specs_between(part.list, write.at).all(|spec| pod.is_restartable(spec) && pod.is_in_scope(spec))
        };
        let parts: Vec<&Part> = self.parts.iter().filter(|part| part.is_of(pod)).collect();
        match parts.iter().any(is_meant) {
            _ if parts.is_empty() => Owed::Nothing,
            true => Owed::Replacement,
            false => Owed::LeftAlone,
        }
    }
}
