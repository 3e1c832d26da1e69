//! What has really happened in a story: the facts by which the rules judge. Nothing here is the operator's own opinion; of its
//! status there is only what it wrote, and when.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use configmonitor_operator::kube::{ResourceVersion, ServerTime};
use configmonitor_operator::monitor::spec::{Spec, UnmanagedPods};
use configmonitor_operator::monitor::status::{Restart, Status};

use crate::api::text;
use crate::world::{Content, Monitor, Source, Stored};

/// The API server's clock shows whole seconds: what is shown in one second and the next may have happened the other way round.
pub(crate) const A_SECOND: Duration = Duration::from_secs(1);

/// A moment in the story. No two things happen in the same step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) step: u64,
    pub(crate) ms: u64,
}

/// One process of the operator, from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life(pub(crate) usize);

/// A pod from its birth on. Its place in the ledger is its identity.
#[derive(Clone, Debug)]
pub(crate) struct Birth {
    pub(crate) born: Moment,
    pub(crate) created: ServerTime,
    /// When it had all ConfigMaps that it waited for.
    pub(crate) started: Option<Moment>,
    /// Which pod of which owner it is: its successor gets the same place.
    pub(crate) place: (usize, usize),
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) nature: Nature,
}

/// Who would create a pod again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Managed,
    Bare,
    OfAJob,
    Mirror,
    TheOperatorsOwn,
}

/// An answer that carried the ConfigMap.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) at: Moment,
    pub(crate) life: Life,
    pub(crate) source: Source,
    pub(crate) content: Content,
    /// This process had not read this source before: nobody knows for how long the content has been there.
    pub(crate) first: bool,
    /// When the process had written a status, or found that none had to be written. Any other reading is as if it had not been.
    pub(crate) noted: Option<Moment>,
    /// The content was taken for what pods run with already.
    pub(crate) baseline: bool,
}

/// A status that was written.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) at: Moment,
    pub(crate) life: Life,
    pub(crate) spec: Spec,
    pub(crate) before: Status,
    pub(crate) after: Status,
    /// When the process last read the ConfigMap, and listed the pods.
    pub(crate) read: Option<Moment>,
    pub(crate) listed: Option<Moment>,
    /// The pods that were there: not finished, and not stuck while terminating.
    pub(crate) alive: Vec<usize>,
}

/// A pod whose deletion the operator brought about.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    pub(crate) at: Moment,
    pub(crate) pod: usize,
    /// The ConfigMonitor as the process last had it from the API server.
    pub(crate) monitor: Monitor,
    /// The process has looked at it since it listed the pods, and this pod was in that list.
    pub(crate) looked: bool,
    pub(crate) listed: bool,
    /// The process had the answer that the ConfigMap does not exist.
    pub(crate) missing: bool,
    /// The API server had forgotten the list that the restart is about, so that times of creation had to decide.
    pub(crate) by_times: bool,
    /// How many more pods were then missing than may be, if the process could know of all that had happened.
    pub(crate) over_budget: usize,
}

/// How the story ended, when nothing failed any more and nothing moved.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) monitor: Monitor,
    pub(crate) source: Source,
    /// Content is there, and nothing has moved for long.
    pub(crate) content: Content,
    pub(crate) at_rest: bool,
    /// The pods that are there: not finished, not terminating.
    pub(crate) alive: Vec<usize>,
}

/// What the API server has told a process, and what the process has done since.
#[derive(Default)]
struct Told {
    monitor: Option<Monitor>,
    source: Option<Source>,
    missing: bool,
    /// The version of the source that it read last, and that reading.
    last: Option<(u64, usize)>,
    unnoted: Option<usize>,
    read: Option<Moment>,
    listed: Option<Moment>,
    pods: HashSet<usize>,
    /// Something has happened since to pods or to what their owners want, that no list has told.
    disturbed: bool,
    has_looked: bool,
    forgotten: Option<ResourceVersion>,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) pods: Vec<Birth>,
    pub(crate) contents: BTreeMap<Source, Vec<(Moment, Option<Content>)>>,
    pub(crate) specs: Vec<(Moment, Spec)>,
    pub(crate) readings: Vec<Reading>,
    pub(crate) writes: Vec<Write>,
    pub(crate) deletions: Vec<Deletion>,
    pub(crate) end: Option<End>,
    lists: HashMap<ResourceVersion, (Moment, HashSet<usize>)>,
    told: BTreeMap<Life, Told>,
}

impl Ledger {
    pub(crate) fn saw_monitor(&mut self, life: Life, monitor: Monitor) {
        let told = self.told.entry(life).or_default();
        if monitor.spec.pod_selector.is_empty() {
            // Nothing is looked at while the spec is invalid, and what was read is forgotten.
            (told.source, told.last, told.unnoted) = (None, None, None);
        }
        told.monitor = Some(monitor);
        told.has_looked = true;
    }

    pub(crate) fn read(&mut self, at: Moment, life: Life, config_map: &'static str, stored: Option<Stored>) {
        let told = self.told.entry(life).or_default();
        let Some(monitor) = &told.monitor else { panic!("a ConfigMap is read for nobody") };
        let source = Source::of(config_map, &monitor.spec);
        let first = told.source.replace(source) != Some(source);
        told.missing = stored.is_none();
        let Some(Stored { version, content }) = stored else {
            (told.read, told.last, told.unnoted) = (Some(at), None, None);
            return;
        };
        if let Some((_, reading)) = told.last.filter(|(last, _)| *last == version && !first) {
            // The same version once more is no news.
            told.read = Some(self.readings[reading].at);
            told.unnoted = Some(reading).filter(|reading| self.readings[*reading].noted.is_none());
            return;
        }
        let (reading, content) = (self.readings.len(), source.content(content));
        self.readings.push(Reading { at, life, source, content, first, noted: None, baseline: false });
        (told.read, told.last, told.unnoted) = (Some(at), Some((version, reading)), Some(reading));
    }

    pub(crate) fn listed(&mut self, at: Moment, life: Life, version: ResourceVersion, pods: HashSet<usize>) {
        self.lists.entry(version).or_insert((at, pods.clone()));
        let told = self.told.entry(life).or_default();
        (told.listed, told.pods, told.disturbed, told.has_looked) = (Some(at), pods, false, false);
    }

    pub(crate) fn forgotten(&mut self, life: Life, version: ResourceVersion) {
        self.told.entry(life).or_default().forgotten = Some(version);
    }

    pub(crate) fn wrote(
        &mut self,
        at: Moment,
        life: Life,
        spec: Spec,
        before: Status,
        after: Status,
        alive: Vec<usize>,
    ) {
        let told = self.told.entry(life).or_default();
        let (read, listed) = (told.read, told.listed);
        let write = Write { at, life, spec, before, after, read, listed, alive };
        // Not by a write from before the look, such as that a right is missing.
        let named = write.after.source_resource_version.clone();
        if let Some((_, reading)) = told.last.filter(|(version, _)| named == Some(text(*version)))
            && told.unnoted.take().is_some()
        {
            self.readings[reading].noted = Some(at);
            self.readings[reading].baseline = write.is_baseline();
        }
        self.writes.push(write);
    }

    /// A process has done all that there was to do.
    pub(crate) fn rested(&mut self, at: Moment, life: Life) {
        if let Some(reading) = self.told.entry(life).or_default().unnoted.take() {
            self.readings[reading].noted = Some(at);
        }
    }

    /// Somebody else has done something to pods, or to what their owners want.
    pub(crate) fn disturbed(&mut self) {
        self.told.values_mut().for_each(|told| told.disturbed = true);
    }

    /// What a process has to go by when it deletes a pod: the spec, and the pods that tell it of owners. Nothing if something has
    /// happened since it listed them that it cannot know of.
    pub(crate) fn goes_by(&self, life: Life) -> Option<(&Spec, HashSet<usize>)> {
        let told = self.told.get(&life).filter(|told| !told.disturbed)?;
        let Monitor { spec, status, .. } = told.monitor.as_ref()?;
        let begun = status.restart.as_ref()?.begun.as_ref()?;
        let version = Some(&begun.pods_resource_version).filter(|version| told.forgotten.as_ref() != Some(*version));
        let replaced = version.and_then(|version| self.lists.get(version)).map(|(_, pods)| pods);
        let known = told.pods.iter().chain(replaced.into_iter().flatten()).copied().collect();
        Some((spec, known))
    }

    pub(crate) fn deleted(&mut self, at: Moment, life: Life, pod: usize, over_budget: usize) {
        for (other, told) in &mut self.told {
            told.disturbed |= *other != life;
        }
        let told = self.told.entry(life).or_default();
        let Some(monitor) = told.monitor.clone() else { panic!("a pod is deleted by a process that has read nothing") };
        let begun = monitor.status.restart.as_ref().and_then(|restart| restart.begun.as_ref());
        let version = begun.map(|begun| &begun.pods_resource_version);
        self.deletions.push(Deletion {
            at,
            pod,
            looked: told.has_looked,
            listed: told.pods.contains(&pod),
            missing: told.missing,
            by_times: version.is_some() && version == told.forgotten.as_ref(),
            over_budget,
            monitor,
        });
    }

    /// When the list of this version was made.
    pub(crate) fn list(&self, version: &ResourceVersion) -> Option<Moment> {
        self.lists.get(version).map(|(at, _)| *at)
    }

    /// The readings of a source that count, in the order of time.
    pub(crate) fn noted(&self, source: Source) -> impl DoubleEndedIterator<Item = &Reading> {
        self.readings.iter().filter(move |reading| reading.noted.is_some() && reading.source == source)
    }

    /// The readings that told the operator of a change: other content than what had been noted before, and no baseline.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &Reading> {
        self.contents.keys().flat_map(|source| {
            let mut noted: Vec<&Reading> = self.noted(*source).collect();
            noted.sort_by_key(|reading| reading.noted);
            let before: Vec<Content> = noted.iter().map(|reading| reading.content).collect();
            let pairs = noted.into_iter().skip(1).zip(before);
            pairs
                .filter(|(reading, before)| reading.content != *before && !reading.baseline)
                .map(|(reading, _)| reading)
        })
    }

    /// When a pod read a source, and what: at its birth, or once the ConfigMap was there.
    pub(crate) fn first_content(&self, source: Source, pod: usize) -> Option<(Moment, Content)> {
        let born = self.pods[pod].born;
        let contents = &self.contents[&source];
        let at_birth = contents.iter().rev().find(|(at, _)| *at < born).and_then(|(_, content)| *content);
        let later =
            || contents.iter().find_map(|(at, content)| content.filter(|_| *at > born).map(|content| (*at, content)));
        at_birth.map(|content| (born, content)).or_else(later)
    }

    /// Until when a source had the content of this moment. To be away for a while and come back the same is no change.
    pub(crate) fn lasts_until(&self, source: Source, from: Moment, content: Content) -> Option<Moment> {
        let changes = self.contents[&source].iter();
        changes
            .filter(|(at, _)| *at > from)
            .find(|(_, other)| other.is_some_and(|other| other != content))
            .map(|(at, _)| *at)
    }

    /// The specs that were in force at some time between these moments.
    pub(crate) fn specs_between(&self, from: Moment, to: Moment) -> impl Iterator<Item = &Spec> {
        let until = self.specs.iter().map(|(at, _)| *at).skip(1).map(Some).chain([None]);
        let in_force = self.specs.iter().zip(until);
        in_force
            .filter(move |((at, _), until)| *at <= to && until.is_none_or(|until| until >= from))
            .map(|((_, spec), _)| spec)
    }
}

impl Moment {
    /// What the API server's clock says.
    pub(crate) fn second(self) -> ServerTime {
        ServerTime::from_second((self.ms / 1000).try_into().unwrap())
    }
}

impl Birth {
    /// Whether this spec has it restarted at all.
    pub(crate) fn is_restartable(&self, spec: &Spec) -> bool {
        match self.nature {
            Nature::Managed => true,
            Nature::Bare | Nature::OfAJob => spec.unmanaged_pods == Some(UnmanagedPods::Delete),
            Nature::Mirror | Nature::TheOperatorsOwn => false,
        }
    }

    /// Whether it can have read what was there at this time or later.
    pub(crate) fn may_have_read(&self, time: ServerTime) -> bool {
        self.created >= time || self.started.is_none_or(|at| at.second() >= time)
    }

    /// Whether this spec selects it.
    pub(crate) fn is_selected(&self, spec: &Spec) -> bool {
        !spec.pod_selector.is_empty()
            && spec.pod_selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
            // No story has another operator than NotIn.
            && !spec.pod_selector_expressions.iter().any(|not_in| {
                self.labels.get(&not_in.key).is_some_and(|value| not_in.values.contains(value))
            })
    }
}

/// Whether a label selector as in a query selects what has these labels. No story has more than one value in an expression.
pub(crate) fn selects(query: &str, labels: &BTreeMap<String, String>) -> bool {
    let is = |key, value| labels.get(key).is_some_and(|its| its == value);
    query.split(',').all(|requirement| match requirement.split_once(" notin ") {
        Some((key, value)) => !is(key, value.trim_matches(['(', ')'])),
        None => requirement.split_once('=').is_some_and(|(key, value)| is(key, value)),
    })
}

impl Write {
    /// Content was taken for what pods run with already: at first sight, or because the source is another one.
    pub(crate) fn is_baseline(&self) -> bool {
        let another_source = self.before.source != self.after.source;
        (!self.before.is_baselined() || another_source) && self.after.is_baselined()
    }

    /// The restart that is over with this write. One without a pod is over before it has begun, and so has only a list.
    pub(crate) fn completes(&self, ledger: &Ledger) -> Option<Completed> {
        if !self.before.is_baselined() || self.after.restart.is_some() {
            return None;
        }
        let another_source = self.before.source != self.after.source;
        let advances = self.before.config_hash != self.after.config_hash;
        let before = self.before.restart.as_deref();
        let is_for = |restart: &Restart| Some(&restart.config_hash) == self.after.config_hash.as_ref();
        let went_on = before.and_then(Restart::before).filter(|restart| !another_source && is_for(restart));
        let restart = went_on.as_ref().or(before.filter(|restart| another_source || is_for(restart)));
        let begun = restart.and_then(|restart| restart.begun.as_ref());
        let list = match begun {
            Some(begun) => ledger.list(&begun.pods_resource_version)?,
            None if self.listed > self.read && (advances || before.is_some()) => self.listed?,
            None => return None,
        };
        let reverts = restart.map_or(!advances, |restart| restart.revert);
        Some(Completed {
            list,
            selector: begun.map(|begun| begun.pod_selector.clone()),
            newest: restart.map_or(self.read?.second(), |restart| restart.observed_at).plus(A_SECOND),
            oldest: before.filter(|_| reverts).map(|restart| restart.since.minus(A_SECOND)),
        })
    }
}

/// A restart that is over: which pods it was about.
pub(crate) struct Completed {
    /// When the pods were listed,
    list: Moment,
    /// by which labels, if they were written down,
    selector: Option<String>,
    /// and between which times they were created, or were started if that came later.
    newest: ServerTime,
    oldest: Option<ServerTime>,
}

/// What a restart owes to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    Nothing,
    /// The pod was in its list and of its time, but was to be left alone.
    LeftAlone,
    Replacement,
}

impl Completed {
    /// Whether the restart that ended with this write had to replace the pod, if it was still there then.
    pub(crate) fn owes(&self, ledger: &Ledger, write: &Write, pod: usize) -> Owed {
        let pod = &ledger.pods[pod];
        let in_time = pod.created <= self.newest && self.oldest.is_none_or(|oldest| pod.may_have_read(oldest));
        if pod.born > self.list || !in_time {
            return Owed::Nothing;
        }
        let was_listed = self.selector.as_ref().is_none_or(|selector| selects(selector, &pod.labels));
        let always_restartable = ledger.specs_between(self.list, write.at).all(|spec| pod.is_restartable(spec));
        if was_listed && pod.is_selected(&write.spec) && always_restartable {
            Owed::Replacement
        } else {
            Owed::LeftAlone
        }
    }
}
