//! The index of a namespace: which ConfigMonitors refer to which sources, and the latest value for each keeper.
//!
//! A plain data structure without I/O: it turns events of the watches into changes for keepers. It stores nothing about
//! objects that no ConfigMonitor refers to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::latest::{Bell, Doorbell, Latest};
use super::watches::Target;
use crate::kube::error::Error;
use crate::kube::objects::MetadataOnly;
use crate::kube::unlisted::{Difference, Unlisted};
use crate::kube::watch::Event;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::ConfigMonitor;
use crate::monitor::source::SourceName;
use crate::monitor::spec::Policy;
use crate::monitor::status::has_baseline;

/// A change for a keeper.
#[derive(Debug)]
pub(crate) enum Change {
    Start(Box<ConfigMonitor>, Latest),
    Notify(Uid, Latest),
    Stop(Uid),
    /// Look after the pods of the namespace that are handed over.
    LookAfter,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    monitors: BTreeMap<Uid, KnownMonitor>,
    sources: BTreeMap<SourceName, KnownSource>,
    unlisted_monitors: Unlisted<Uid>,
    unlisted_sources: BTreeMap<Target, Unlisted<SourceName>>,
    /// The ConfigMonitors that are new in the list in progress. Their keepers start when the list is complete, because
    /// a new ConfigMonitor may have the name of a deleted one.
    waiting: Vec<ConfigMonitor>,
    secrets_changed: bool,
}

#[derive(Debug)]
struct KnownMonitor {
    sources: Box<[SourceName]>,
    generation: i64,
    baselined: bool,
    request: Option<Arc<str>>,
    listed: Option<ResourceVersion>,
}

#[derive(Debug)]
struct KnownSource {
    bell: Arc<Bell>,
    /// The bell while the source may not be watched.
    refused: Option<Arc<Bell>>,
    /// Most sources have one.
    monitors: Vec<Uid>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.monitors.len()
    }

    pub(crate) fn handle_monitor(&mut self, event: Event<ConfigMonitor>) -> Vec<Change> {
        let is_listed = matches!(event, Event::Listed(_));
        let known = || self.monitors.keys().cloned().collect();
        match self.unlisted_monitors.observe(event, known, |monitor| monitor.metadata.uid.clone()) {
            Difference::Exists(monitor) => {
                let uid = monitor.metadata.uid.clone();
                let is_known = self.apply(&monitor, is_listed);
                if is_listed && !is_known {
                    self.waiting.push(monitor);
                    return Vec::new();
                }
                let Some(latest) = self.latest(&uid) else { return Vec::new() };
                vec![if is_known { Change::Notify(uid, latest) } else { Change::Start(Box::new(monitor), latest) }]
            }
            Difference::Deleted(monitor) => self.remove(&monitor.metadata.uid).into_iter().collect(),
            Difference::Complete(gone) => {
                let stopped: Vec<Change> = gone.iter().filter_map(|uid| self.remove(uid)).collect();
                stopped.into_iter().chain(self.start_waiting()).collect()
            }
            Difference::Nothing => Vec::new(),
        }
    }

    /// Returns whether the set of Secrets that ConfigMonitors refer to has changed since the previous call.
    pub(crate) fn take_secrets_changed(&mut self) -> bool {
        std::mem::take(&mut self.secrets_changed)
    }

    pub(crate) fn secrets(&self) -> impl Iterator<Item = &SourceName> {
        self.sources.keys().filter(|name| name.kind.is_confidential())
    }

    /// Forgets everything, and stops all keepers.
    pub(crate) fn clear(&mut self) -> Vec<Change> {
        let secrets_changed = self.secrets_changed || self.secrets().next().is_some();
        let before = std::mem::replace(self, Self { secrets_changed, ..Self::default() });
        before.monitors.into_keys().map(Change::Stop).collect()
    }

    /// Handles the refusal of a watch on sources, or with `None` the end of the refusal.
    pub(crate) fn handle_refusal(&mut self, target: &Target, error: Option<&Error>) -> Vec<Change> {
        let mut concerned = Vec::new();
        let doorbell = error.map(|error| Doorbell::Refused(Box::new(error.clone())));
        let each: Vec<&mut KnownSource> = match target {
            Target::One(name) => self.sources.get_mut(name).into_iter().collect(),
            _ => self.sources.iter_mut().filter(|(name, _)| target.covers(name)).map(|(_, source)| source).collect(),
        };
        for source in each {
            if source.refused.as_ref().map(|bell| &bell.doorbell) != doorbell.as_ref() {
                let Bell { source: name, rung, .. } = &*source.bell;
                let refused = |doorbell| Arc::new(Bell { source: name.clone(), doorbell, rung: *rung });
                source.refused = doorbell.clone().map(refused);
                concerned.extend(source.monitors.iter().cloned());
            }
        }
        self.notify(concerned)
    }

    pub(crate) fn handle_source(&mut self, target: &Target, event: Event<MetadataOnly>, now: Instant) -> Vec<Change> {
        let Some(kind) = target.kind() else { return Vec::new() };
        let name_of = |object: &MetadataOnly| SourceName { kind, name: object.metadata.name.as_str().into() };
        let known = || self.sources.keys().filter(|name| target.covers(name)).cloned().collect();
        let unlisted = self.unlisted_sources.entry(target.clone()).or_default();
        match unlisted.observe(event, known, name_of) {
            Difference::Exists(object) => {
                let name = name_of(&object);
                self.ring(&name, Doorbell::At(object.metadata.resource_version), now)
            }
            Difference::Deleted(object) => self.ring(&name_of(&object), Doorbell::Gone, now),
            Difference::Complete(gone) => gone.iter().flat_map(|name| self.ring(name, Doorbell::Gone, now)).collect(),
            Difference::Nothing => Vec::new(),
        }
    }

    /// Returns whether the ConfigMonitor was known before.
    fn apply(&mut self, monitor: &ConfigMonitor, is_listed: bool) -> bool {
        let uid = &monitor.metadata.uid;
        let policy = Policy::of(monitor.spec.as_deref());
        let sources = policy.into_iter().flat_map(|policy| policy.sources).map(|source| self.shared(source.name));
        let sources: Box<[SourceName]> = sources.collect();
        let listed = if is_listed {
            Some(monitor.metadata.resource_version.clone())
        } else {
            self.monitors.get(uid).and_then(|before| before.listed.clone())
        };
        let entry = KnownMonitor {
            sources: sources.clone(),
            generation: monitor.metadata.generation,
            baselined: monitor.status.as_deref().is_some_and(has_baseline),
            request: monitor.metadata.annotations.restart_requested_at.clone(),
            listed,
        };
        let before = self.monitors.insert(uid.clone(), entry);
        let former = before.as_ref().map_or(&[][..], |before| &before.sources);
        for source in former.iter().filter(|source| !sources.contains(source)) {
            self.unrefer(source, uid);
        }
        for source in sources.iter().filter(|source| !former.contains(source)) {
            self.secrets_changed |= source.kind.is_confidential() && !self.sources.contains_key(source);
            let monitors = &mut self.sources.entry(source.clone()).or_insert_with(|| KnownSource::new(source)).monitors;
            monitors.reserve_exact(usize::from(monitors.is_empty()));
            monitors.push(uid.clone());
        }
        before.is_some()
    }

    /// Returns the name as the index holds it, so that each name is stored once.
    fn shared(&self, name: SourceName) -> SourceName {
        self.sources.get_key_value(&name).map_or(name, |(known, _)| known.clone())
    }

    fn start_waiting(&mut self) -> Vec<Change> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        // A ConfigMonitor that a later list has shown to be deleted has no `latest`.
        waiting
            .filter_map(|monitor| Some((self.latest(&monitor.metadata.uid)?, monitor)))
            .map(|(latest, monitor)| Change::Start(Box::new(monitor), latest))
            .collect()
    }

    fn remove(&mut self, uid: &Uid) -> Option<Change> {
        let entry = self.monitors.remove(uid)?;
        for source in &entry.sources {
            self.unrefer(source, uid);
        }
        Some(Change::Stop(uid.clone()))
    }

    fn unrefer(&mut self, source: &SourceName, uid: &Uid) {
        if let Some(entry) = self.sources.get_mut(source) {
            entry.monitors.retain(|monitor| monitor != uid);
            if entry.monitors.is_empty() {
                self.secrets_changed |= source.kind.is_confidential();
                self.sources.remove(source);
                self.unlisted_sources.remove(&Target::One(source.clone()));
            }
        }
    }

    /// An absence has no version: a keeper may have read the source since the last one, so each one rings.
    fn ring(&mut self, source: &SourceName, doorbell: Doorbell, now: Instant) -> Vec<Change> {
        let is_new = |entry: &&mut KnownSource| doorbell == Doorbell::Gone || entry.bell.doorbell != doorbell;
        let Some(entry) = self.sources.get_mut(source).filter(is_new) else { return Vec::new() };
        entry.bell = Arc::new(Bell { source: entry.bell.source.clone(), doorbell, rung: Some(now) });
        let monitors = entry.monitors.clone();
        self.notify(monitors)
    }

    fn notify(&self, monitors: Vec<Uid>) -> Vec<Change> {
        monitors.into_iter().filter_map(|uid| self.latest(&uid).map(|latest| Change::Notify(uid, latest))).collect()
    }

    fn latest(&self, uid: &Uid) -> Option<Latest> {
        let KnownMonitor { sources, generation, baselined, request, listed } = self.monitors.get(uid)?;
        let bell = |source: &SourceName| {
            let KnownSource { bell, refused, .. } = self.sources.get(source)?;
            Some(Arc::clone(refused.as_ref().unwrap_or(bell)))
        };
        let (generation, baselined, listed, request) = (*generation, *baselined, listed.clone(), request.clone());
        Some(Latest { generation, baselined, request, listed, sources: sources.iter().filter_map(bell).collect() })
    }
}

impl KnownSource {
    fn new(name: &SourceName) -> Self {
        let bell = Bell { source: name.clone(), doorbell: Doorbell::Silent, rung: None };
        Self { bell: Arc::new(bell), refused: None, monitors: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
