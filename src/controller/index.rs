//! Which ConfigMonitor is about which ConfigMap, and what their keepers should look at.
//!
//! A plain data structure without I/O: it takes the events of two watches and says what follows. It keeps nothing of
//! ConfigMaps that no ConfigMonitor refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::goal::{Doorbell, Goal};
use crate::kube::objects::{MetadataOnly, Undecodable};
use crate::kube::watch::Event;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::ConfigMonitor;
use crate::monitor::spec::Policy;
use crate::monitor::status::Status;

/// What follows from an event.
#[derive(Debug)]
pub(crate) enum Change {
    /// This ConfigMonitor needs a keeper.
    Start(Box<ConfigMonitor>, Goal),
    /// The keeper of this ConfigMonitor has something new to look at.
    Look(Uid, Goal),
    /// This ConfigMonitor is gone, and its keeper must end.
    Stop(Uid),
}

/// All ConfigMonitors of the namespace and the ConfigMaps that they refer to.
#[derive(Debug, Default)]
pub(crate) struct Index {
    monitors: BTreeMap<Uid, Entry>,
    sources: BTreeMap<Arc<str>, Source>,
    /// While the ConfigMonitors are being listed: those seen so far. A list of which one object cannot be decoded cannot tell
    /// that another is gone, and is not kept.
    listed_monitors: Option<BTreeSet<Uid>>,
    /// The same for the ConfigMaps that are referred to.
    listed_sources: Option<BTreeSet<Arc<str>>>,
    /// ConfigMonitors that this list shows for the first time. Their keepers start when the list is complete, because a new one may have the
    /// name of one that is gone.
    waiting: Vec<ConfigMonitor>,
}

#[derive(Debug)]
struct Entry {
    source: Option<Arc<str>>,
    generation: i64,
    baselined: bool,
    listed: Option<ResourceVersion>,
}

#[derive(Debug, Default)]
struct Source {
    doorbell: Doorbell,
    rung: Option<Instant>,
    /// Most have one.
    monitors: Vec<Uid>,
}

impl Index {
    /// How many ConfigMonitors there are.
    pub(crate) fn len(&self) -> usize {
        self.monitors.len()
    }

    /// Takes an event of the watch on ConfigMonitors.
    pub(crate) fn monitor(&mut self, event: Event<ConfigMonitor>) -> Vec<Change> {
        match event {
            Event::Reset => {
                self.listed_monitors = Some(BTreeSet::new());
                Vec::new()
            }
            Event::Listed(Ok(monitor)) | Event::Applied(Ok(monitor)) => {
                let uid = monitor.metadata.uid.clone();
                let known = self.apply(&monitor);
                if let Some(listed) = &mut self.listed_monitors {
                    listed.insert(uid.clone());
                    if !known {
                        self.waiting.push(monitor);
                        return Vec::new();
                    }
                }
                let Some(goal) = self.goal(&uid) else { return Vec::new() };
                vec![if known { Change::Look(uid, goal) } else { Change::Start(Box::new(monitor), goal) }]
            }
            Event::Deleted(Ok(monitor)) => self.remove(&monitor.metadata.uid).into_iter().collect(),
            Event::Synced => {
                let gone: Vec<Uid> = match self.listed_monitors.take() {
                    Some(listed) => self.monitors.keys().filter(|uid| !listed.contains(*uid)).cloned().collect(),
                    None => Vec::new(),
                };
                let stopped: Vec<Change> = gone.iter().filter_map(|uid| self.remove(uid)).collect();
                stopped.into_iter().chain(self.start_waiting()).collect()
            }
            Event::Listed(Err(error)) | Event::Applied(Err(error)) | Event::Deleted(Err(error)) => {
                log_undecodable("configmonitors", &error);
                self.listed_monitors = None;
                self.start_waiting()
            }
        }
    }

    /// Takes an event of the watch on the metadata of ConfigMaps, which has come just now.
    pub(crate) fn config_map(&mut self, event: Event<MetadataOnly>, now: Instant) -> Vec<Change> {
        match event {
            Event::Reset => {
                self.listed_sources = Some(BTreeSet::new());
                Vec::new()
            }
            Event::Listed(Ok(MetadataOnly { metadata })) | Event::Applied(Ok(MetadataOnly { metadata })) => {
                let Some((name, _)) = self.sources.get_key_value(&*metadata.name) else {
                    return Vec::new();
                };
                if let Some(listed) = &mut self.listed_sources {
                    listed.insert(Arc::clone(name));
                }
                self.ring(&metadata.name, &Doorbell::At(metadata.resource_version), now)
            }
            Event::Deleted(Ok(MetadataOnly { metadata })) => self.ring(&metadata.name, &Doorbell::Gone, now),
            Event::Synced => {
                let Some(listed) = self.listed_sources.take() else {
                    return Vec::new();
                };
                let gone: Vec<Arc<str>> = self.sources.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().flat_map(|name| self.ring(name, &Doorbell::Gone, now)).collect()
            }
            Event::Listed(Err(error)) | Event::Applied(Err(error)) | Event::Deleted(Err(error)) => {
                log_undecodable("configmaps", &error);
                self.listed_sources = None;
                Vec::new()
            }
        }
    }

    /// Takes note of a ConfigMonitor. Whether it was known before.
    fn apply(&mut self, monitor: &ConfigMonitor) -> bool {
        let uid = &monitor.metadata.uid;
        let source = Policy::of(monitor.spec.as_deref()).ok().map(|policy| self.shared(policy.config_map));
        let listed = match &self.listed_monitors {
            Some(_) => Some(monitor.metadata.resource_version.clone()),
            None => self.monitors.get(uid).and_then(|before| before.listed.clone()),
        };
        let entry = Entry {
            source: source.clone(),
            generation: monitor.metadata.generation,
            baselined: is_baselined(monitor),
            listed,
        };
        let before = self.monitors.insert(uid.clone(), entry);
        if before.as_ref().is_none_or(|before| before.source != source) {
            if let Some(source) = before.as_ref().and_then(|before| before.source.as_deref()) {
                self.unrefer(source, uid);
            }
            if let Some(source) = source {
                // A list that is under way may have passed it already.
                if let Some(listed) = self.listed_sources.as_mut().filter(|_| !self.sources.contains_key(&source)) {
                    listed.insert(source.clone());
                }
                let monitors = &mut self.sources.entry(source).or_default().monitors;
                monitors.reserve_exact(usize::from(monitors.is_empty()));
                monitors.push(uid.clone());
            }
        }
        before.is_some()
    }

    /// The name of a ConfigMap, held once.
    fn shared(&self, name: String) -> Arc<str> {
        self.sources.get_key_value(&*name).map_or_else(|| name.into(), |(known, _)| Arc::clone(known))
    }

    fn start_waiting(&mut self) -> Vec<Change> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        // Those that another list has shown to be gone have no goal any more.
        waiting
            .filter_map(|monitor| Some((self.goal(&monitor.metadata.uid)?, monitor)))
            .map(|(goal, monitor)| Change::Start(Box::new(monitor), goal))
            .collect()
    }

    fn remove(&mut self, uid: &Uid) -> Option<Change> {
        let entry = self.monitors.remove(uid)?;
        if let Some(source) = entry.source {
            self.unrefer(&source, uid);
        }
        Some(Change::Stop(uid.clone()))
    }

    fn unrefer(&mut self, source: &str, uid: &Uid) {
        if let Some(entry) = self.sources.get_mut(source) {
            entry.monitors.retain(|monitor| monitor != uid);
            if entry.monitors.is_empty() {
                self.sources.remove(source);
            }
        }
    }

    fn ring(&mut self, source: &str, doorbell: &Doorbell, now: Instant) -> Vec<Change> {
        let Some(entry) = self.sources.get_mut(source).filter(|entry| entry.doorbell != *doorbell) else {
            return Vec::new();
        };
        (entry.doorbell, entry.rung) = (doorbell.clone(), Some(now));
        let monitors = entry.monitors.clone();
        monitors.into_iter().filter_map(|uid| self.goal(&uid).map(|goal| Change::Look(uid, goal))).collect()
    }

    fn goal(&self, uid: &Uid) -> Option<Goal> {
        let Entry { source, generation, baselined, listed } = self.monitors.get(uid)?;
        let known = source.as_ref().and_then(|source| self.sources.get(source));
        Some(Goal {
            generation: *generation,
            baselined: *baselined,
            listed: listed.clone(),
            source: source.clone(),
            doorbell: known.map(|known| known.doorbell.clone()).unwrap_or_default(),
            rung: known.and_then(|known| known.rung),
        })
    }
}

fn is_baselined(monitor: &ConfigMonitor) -> bool {
    let status = monitor.status.as_deref().and_then(|status| serde_json::from_str::<Status>(status.get()).ok());
    status.is_some_and(|status| status.is_baselined())
}

fn log_undecodable(resource: &str, Undecodable { name, error }: &Undecodable) {
    tracing::warn!(resource, name, error, "object cannot be decoded; left as it was");
}

#[cfg(test)]
mod tests;
