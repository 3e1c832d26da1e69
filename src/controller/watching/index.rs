//! The index of a namespace: which ConfigMonitors refer to which sources, and the latest value for each keeper.
//!
//! A plain data structure without I/O: it turns events of the watches into changes for keepers. It stores nothing about
//! objects that no ConfigMonitor refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::controller::latest::{Doorbell, Latest, SourceBell};
use crate::kube::error::Error;
use crate::kube::objects::MetadataOnly;
use crate::kube::unlisted::{Difference, Unlisted};
use crate::kube::watch::Event;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::ConfigMonitor;
use crate::monitor::content::Kind;
use crate::monitor::discover::Found;
use crate::monitor::pod::WholePod;
use crate::monitor::source::SourceName;
use crate::monitor::spec::Policy;
use crate::monitor::status::Status;

/// A change for a keeper.
#[derive(Debug)]
pub(crate) enum Instruction {
    /// Start the keeper of the ConfigMonitor of this name, as it was read, if its namespace was selected then.
    Start((Arc<str>, Uid), Option<Box<ConfigMonitor>>, Latest),
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
    unlisted_sources: BTreeMap<Kind, Unlisted<SourceName>>,
    /// The ConfigMonitors that are new in the list in progress. Their keepers start when the list is complete, because
    /// a new ConfigMonitor may have the name of a deleted one.
    waiting: Vec<ConfigMonitor>,
    /// The pods that ConfigMonitors with `discover` select, by selector.
    pods: BTreeMap<Arc<str>, SelectedPods>,
    /// The names of objects that are never discovered.
    excluded: Arc<BTreeSet<Arc<str>>>,
    /// Why not all Secrets can be watched, so that edits of discovered ones would go unseen.
    no_secrets: Option<Arc<Error>>,
    /// Why ConfigMaps cannot be watched.
    no_config_maps: Option<Arc<Error>>,
    watches_changed: bool,
}

#[derive(Debug)]
struct KnownMonitor {
    name: Arc<str>,
    /// Those that the spec names come first.
    sources: Box<[SourceName]>,
    named: usize,
    /// Boxed, because most ConfigMonitors have none.
    discovering: Option<Box<Discovering>>,
    generation: i64,
    baselined: bool,
    request: Option<Arc<str>>,
    listed: Option<ResourceVersion>,
}

/// A ConfigMonitor whose sources are read from pods.
#[derive(Clone, Debug)]
struct Discovering {
    policy: Policy,
    selector: Arc<str>,
    /// The sources that the status has.
    known: Vec<SourceName>,
}

/// What the pods of a selector refer to. Lives as long as the watch on them.
#[derive(Debug)]
struct SelectedPods {
    /// `None` until the pods have been listed.
    found: Option<Arc<Found>>,
    /// By the list in progress.
    listing: Arc<Found>,
    /// When the last list began.
    listed: Option<Instant>,
    /// When the pods must be listed anew, because a source or a pod is gone, perhaps with the last reference.
    relist_at: Option<Instant>,
    /// Whether that list is not complete yet.
    is_awaited: bool,
    /// Why the pods cannot be watched.
    refused: Option<Arc<Error>>,
    monitors: Vec<Uid>,
}

/// Pods are listed anew this long after a source or a pod is gone, when replaced pods terminate, and at most this
/// often.
const RELIST_AFTER: Duration = Duration::from_secs(1);
const RELIST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct KnownSource {
    bell: Arc<SourceBell>,
    /// Most sources have one.
    monitors: Vec<Uid>,
}

impl Index {
    /// Creates the index of a namespace in which objects with the `excluded` names are never discovered. `no_secrets`: why
    /// not all Secrets can be watched.
    pub(crate) fn new(excluded: Arc<BTreeSet<Arc<str>>>, no_secrets: Option<Arc<Error>>) -> Self {
        Self { excluded, no_secrets, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.monitors.len()
    }

    pub(crate) fn handle_monitor(&mut self, event: Event<ConfigMonitor>) -> Vec<Instruction> {
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
                vec![if is_known { Instruction::Notify(uid, latest) } else { start(monitor, latest) }]
            }
            Difference::Deleted(monitor) => self.remove(&monitor.metadata.uid).into_iter().collect(),
            Difference::Complete(gone) => {
                let stopped: Vec<Instruction> = gone.iter().filter_map(|uid| self.remove(uid)).collect();
                stopped.into_iter().chain(self.start_waiting()).collect()
            }
            Difference::Nothing => Vec::new(),
        }
    }

    /// Returns whether the Secrets that are sources, or the selectors of pods to discover them, have changed since the
    /// previous call.
    pub(crate) fn take_watches_changed(&mut self) -> bool {
        std::mem::take(&mut self.watches_changed)
    }

    pub(crate) fn has_secrets(&self) -> bool {
        self.sources.keys().any(|name| name.kind.is_confidential())
    }

    /// Returns the Secrets that specs name.
    pub(crate) fn named_secrets(&self) -> impl Iterator<Item = &SourceName> {
        let named = self.monitors.values().flat_map(|monitor| &monitor.sources[..monitor.named]);
        named.filter(|name| name.kind.is_confidential())
    }

    /// Returns the selectors of the pods in which sources are discovered. Forgets what pods of other selectors refer
    /// to.
    pub(crate) fn selectors(&mut self) -> impl Iterator<Item = &Arc<str>> {
        self.pods.retain(|_, pods| !pods.monitors.is_empty());
        self.pods.keys()
    }

    pub(crate) fn has_selectors(&self) -> bool {
        !self.pods.is_empty()
    }

    /// Returns when pods must be listed anew.
    pub(crate) fn relist_due(&self) -> Option<Instant> {
        self.pods.values().filter_map(|pods| pods.relist_at).min()
    }

    /// Starts the lists that are due, and returns their selectors.
    pub(crate) fn begin_relists(&mut self, now: Instant) -> Vec<Arc<str>> {
        let is_due = |pods: &mut SelectedPods| pods.relist_at.take_if(|at| *at <= now).is_some();
        self.pods.iter_mut().filter_map(|(selector, pods)| is_due(pods).then(|| Arc::clone(selector))).collect()
    }

    /// Starts the keepers of all ConfigMonitors.
    pub(crate) fn start_all(&mut self) -> impl Iterator<Item = Instruction> {
        self.watches_changed = true;
        self.waiting.clear();
        let start = |(uid, monitor): (&Uid, &KnownMonitor)| {
            Some(Instruction::Start((Arc::clone(&monitor.name), uid.clone()), None, self.latest(uid)?))
        };
        self.monitors.iter().filter_map(start)
    }

    /// Stops all keepers, and forgets what pods refer to, as nobody watches them.
    pub(crate) fn stop_all(&mut self) -> Vec<Instruction> {
        self.watches_changed = true;
        self.pods.values_mut().for_each(|pods| pods.found = None);
        self.monitors.keys().cloned().map(Instruction::Stop).collect()
    }

    /// Handles an event of the watch on the pods of a selector, or of a poll of them.
    pub(crate) fn handle_pods(
        &mut self,
        selector: &Arc<str>,
        (event, is_polled): (Event<WholePod>, bool),
        own_pod: Option<&Uid>,
        now: Instant,
    ) -> Vec<Instruction> {
        let Some(pods) = self.pods.get_mut(selector) else { return Vec::new() };
        let empty = |found: &Found| Arc::new(found.emptied());
        let is_news = match event {
            Event::Reset => {
                (pods.listing, pods.listed) = (empty(&pods.listing), Some(now));
                false
            }
            Event::Listed(Ok(WholePod { pod, spec, .. })) => {
                Found::see(&mut pods.listing, &pod, spec.as_deref(), own_pod);
                false
            }
            Event::Synced => {
                let next = empty(&pods.listing);
                let listed = Some(std::mem::replace(&mut pods.listing, next));
                // A watch that is refused lists again, too.
                let was_refused = is_polled && pods.refused.take().is_some();
                let is_news = pods.found != listed || pods.is_awaited || was_refused;
                (pods.found, pods.is_awaited) = (listed, pods.relist_at.is_some());
                is_news
            }
            Event::Applied(Ok(WholePod { pod, spec, .. })) => {
                pods.found.as_mut().is_some_and(|found| Found::see(found, &pod, spec.as_deref(), own_pod))
            }
            // What a pod has referred to stays known for a while, unless others wait for its places.
            Event::Deleted(_) => {
                let mut of_pods = pods.monitors.iter().filter_map(|uid| self.monitors.get(uid)?.discovering.as_deref());
                let lacks_room = |found: &Arc<Found>| of_pods.any(|of| of.policy.lacks_room(found, &of.known));
                if pods.found.as_ref().is_some_and(lacks_room) {
                    pods.relist_soon(now);
                }
                false
            }
            Event::Refused(error) => {
                let refused = Some(Arc::new(error));
                let is_news = pods.refused != refused;
                pods.refused = refused;
                is_news
            }
            Event::Recovered => pods.refused.take().is_some(),
            Event::Listed(Err(_)) | Event::Applied(Err(_)) => false,
        };
        let monitors = if is_news { pods.monitors.clone() } else { Vec::new() };
        for uid in &monitors {
            if let Some(monitor) = self.monitors.get(uid) {
                let named = monitor.sources[..monitor.named].to_vec();
                let sources = self.sources_of(named, monitor.discovering.as_deref());
                self.refer(uid, sources);
            }
        }
        self.notify(monitors)
    }

    /// Handles the refusal of a watch on sources, or with `None` the end of the refusal.
    fn handle_refusal(&mut self, kind: Kind, error: Option<Error>) -> Vec<Instruction> {
        let refused = error.map(Arc::new);
        let known = if kind.is_confidential() { &mut self.no_secrets } else { &mut self.no_config_maps };
        if *known == refused {
            return Vec::new();
        }
        *known = refused;
        self.notify(self.monitors.keys().cloned().collect())
    }

    pub(crate) fn handle_source(&mut self, kind: Kind, event: Event<MetadataOnly>, now: Instant) -> Vec<Instruction> {
        let mut changes = match &event {
            Event::Refused(error) => return self.handle_refusal(kind, Some(error.clone())),
            Event::Recovered => return self.handle_refusal(kind, None),
            Event::Synced if kind.is_confidential() => self.handle_refusal(kind, None),
            _ => Vec::new(),
        };
        let name_of = |object: &MetadataOnly| SourceName { kind, name: object.metadata.name.as_str().into() };
        let known = || self.sources.keys().filter(|name| name.kind == kind).cloned().collect();
        match self.unlisted_sources.entry(kind).or_default().observe(event, known, name_of) {
            Difference::Exists(object) => {
                let name = name_of(&object);
                self.ring(&name, Doorbell::At(object.metadata.resource_version), now)
            }
            Difference::Deleted(object) => self.ring(&name_of(&object), Doorbell::Gone, now),
            Difference::Complete(gone) => {
                changes.extend(gone.iter().flat_map(|name| self.ring(name, Doorbell::Gone, now)));
                changes
            }
            Difference::Nothing => Vec::new(),
        }
    }

    /// Rings for a source that nobody watches: it must be read again.
    pub(crate) fn poll(&mut self, source: &SourceName, now: Instant) -> Vec<Instruction> {
        self.ring(source, Doorbell::Silent, now)
    }

    /// Returns whether the ConfigMonitor was known before.
    fn apply(&mut self, monitor: &ConfigMonitor, is_listed: bool) -> bool {
        let uid = &monitor.metadata.uid;
        let policy = Policy::of(monitor.spec.as_deref()).ok();
        let status = monitor.status.as_deref().and_then(|status| serde_json::from_str(status.get()).ok());
        let status: Status = status.unwrap_or_default();
        let named: Vec<SourceName> =
            policy.iter().flat_map(|policy| &policy.sources).map(|source| source.name.clone()).collect();
        let discovering = policy.filter(|policy| policy.discover.is_some()).map(|policy| {
            let selector = policy.selector.to_query().into();
            let known = status.discovered().map(|name| self.shared(name.clone())).collect();
            Box::new(Discovering { policy, selector, known })
        });
        let selector = |discovering: &Discovering| Arc::clone(&discovering.selector);
        let (now, before) = (
            discovering.as_deref().map(selector),
            self.monitors.get(uid).and_then(|before| before.discovering.as_deref()).map(selector),
        );
        if now != before {
            self.unselect(uid, before.as_ref());
            if let Some(selector) = &now {
                self.select(uid, selector);
            }
        }
        let count = named.len();
        let sources = self.sources_of(named, discovering.as_deref());
        let listed = if is_listed {
            Some(monitor.metadata.resource_version.clone())
        } else {
            self.monitors.get(uid).and_then(|before| before.listed.clone())
        };
        let entry = KnownMonitor {
            name: Arc::clone(&monitor.metadata.name),
            sources: self.monitors.get(uid).map_or_else(Box::default, |before| before.sources.clone()),
            named: count,
            discovering,
            generation: monitor.metadata.generation,
            baselined: status.is_baselined(),
            request: monitor.metadata.annotations.restart_requested_at.clone(),
            listed,
        };
        let is_known = self.monitors.insert(uid.clone(), entry).is_some();
        self.refer(uid, sources);
        is_known
    }

    /// Returns the sources of a ConfigMonitor: those that its spec names, and those that are discovered.
    fn sources_of(&self, named: Vec<SourceName>, discovering: Option<&Discovering>) -> Box<[SourceName]> {
        let discovered = discovering.and_then(|Discovering { policy, selector, known }| {
            let pods = self.pods.get(selector)?;
            // Before they have been listed, the sources that are known remain.
            let found = pods.found.as_ref().unwrap_or(&pods.listing);
            Some(policy.discovered(found, known).0.into_iter().cloned())
        });
        named.into_iter().chain(discovered.into_iter().flatten()).map(|name| self.shared(name)).collect()
    }

    /// Sets the sources to which a ConfigMonitor refers.
    fn refer(&mut self, uid: &Uid, sources: Box<[SourceName]>) {
        let Some(monitor) = self.monitors.get_mut(uid) else { return };
        let former = std::mem::replace(&mut monitor.sources, sources.clone());
        for source in former.iter().filter(|source| !sources.contains(source)) {
            self.unrefer(source, uid);
        }
        for source in sources.iter().filter(|source| !former.contains(source)) {
            self.watches_changed |= source.kind.is_confidential() && !self.sources.contains_key(source);
            let monitors = &mut self.sources.entry(source.clone()).or_insert_with(|| KnownSource::new(source)).monitors;
            monitors.reserve_exact(usize::from(monitors.is_empty()));
            monitors.push(uid.clone());
        }
    }

    fn select(&mut self, uid: &Uid, selector: &Arc<str>) {
        let excluded = &self.excluded;
        let pods = self.pods.entry(Arc::clone(selector)).or_insert_with(|| {
            self.watches_changed = true;
            let listing = Arc::new(Found::new(Arc::clone(selector), Arc::clone(excluded)));
            SelectedPods {
                found: None,
                listing,
                listed: None,
                relist_at: None,
                is_awaited: false,
                refused: None,
                monitors: Vec::new(),
            }
        });
        pods.monitors.push(uid.clone());
    }

    fn unselect(&mut self, uid: &Uid, selector: Option<&Arc<str>>) {
        let Some(selector) = selector else { return };
        if let Some(pods) = self.pods.get_mut(selector) {
            pods.monitors.retain(|monitor| monitor != uid);
            self.watches_changed |= pods.monitors.is_empty();
        }
    }

    /// Returns the name as the index holds it, so that each name is stored once.
    fn shared(&self, name: SourceName) -> SourceName {
        self.sources.get_key_value(&name).map_or(name, |(known, _)| known.clone())
    }

    fn start_waiting(&mut self) -> Vec<Instruction> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        // A ConfigMonitor that a later list has shown to be deleted has no `latest`.
        waiting
            .filter_map(|monitor| Some((self.latest(&monitor.metadata.uid)?, monitor)))
            .map(|(latest, monitor)| start(monitor, latest))
            .collect()
    }

    fn remove(&mut self, uid: &Uid) -> Option<Instruction> {
        let entry = self.monitors.remove(uid)?;
        for source in &entry.sources {
            self.unrefer(source, uid);
        }
        self.unselect(uid, entry.discovering.as_ref().map(|discovering| &discovering.selector));
        Some(Instruction::Stop(uid.clone()))
    }

    fn unrefer(&mut self, source: &SourceName, uid: &Uid) {
        if let Some(entry) = self.sources.get_mut(source) {
            entry.monitors.retain(|monitor| monitor != uid);
            if entry.monitors.is_empty() {
                self.watches_changed |= source.kind.is_confidential();
                self.sources.remove(source);
            }
        }
    }

    /// An absence has no version, nor has a poll: a keeper may have read the source since the last one, so each one rings.
    fn ring(&mut self, source: &SourceName, doorbell: Doorbell, now: Instant) -> Vec<Instruction> {
        let has_version = matches!(doorbell, Doorbell::At(_));
        let is_new = |entry: &&mut KnownSource| !has_version || entry.bell.doorbell != doorbell;
        let Some(entry) = self.sources.get_mut(source).filter(is_new) else { return Vec::new() };
        let is_gone = doorbell == Doorbell::Gone;
        entry.bell = Arc::new(SourceBell { source: entry.bell.source.clone(), doorbell, rung: Some(now) });
        let monitors = entry.monitors.clone();
        let discovering = monitors
            .iter()
            .filter_map(|uid| self.monitors.get(uid))
            .filter(|monitor| is_gone && !monitor.sources[..monitor.named].contains(source));
        for discovering in discovering.filter_map(|monitor| monitor.discovering.as_ref()) {
            if let Some(pods) = self.pods.get_mut(&discovering.selector) {
                pods.relist_soon(now);
                pods.is_awaited = true;
            }
        }
        self.notify(monitors)
    }

    fn notify(&self, monitors: Vec<Uid>) -> Vec<Instruction> {
        monitors
            .into_iter()
            .filter_map(|uid| self.latest(&uid).map(|latest| Instruction::Notify(uid, latest)))
            .collect()
    }

    fn latest(&self, uid: &Uid) -> Option<Latest> {
        let KnownMonitor { sources, discovering, generation, baselined, request, listed, .. } =
            self.monitors.get(uid)?;
        let bell = |source: &SourceName| Some(Arc::clone(&self.sources.get(source)?.bell));
        let pods = discovering.as_ref().and_then(|discovering| self.pods.get(&discovering.selector));
        let found = pods.and_then(|pods| match (&pods.refused, &pods.found) {
            (Some(error), _) => Some(Err(Arc::clone(error))),
            (None, found) => found.clone().map(Ok),
        });
        Some(Latest {
            is_stopped: false,
            generation: *generation,
            baselined: *baselined,
            request: request.clone(),
            listed: listed.clone(),
            sources: sources.iter().filter_map(bell).collect(),
            found,
            awaits_pods: pods.is_some_and(|pods| pods.is_awaited),
            no_secrets: self.no_secrets.clone().filter(|_| discovering.is_some()),
            no_config_maps: self.no_config_maps.clone(),
        })
    }
}

fn start(monitor: ConfigMonitor, latest: Latest) -> Instruction {
    let who = (Arc::clone(&monitor.metadata.name), monitor.metadata.uid.clone());
    Instruction::Start(who, Some(Box::new(monitor)), latest)
}

impl SelectedPods {
    fn relist_soon(&mut self, now: Instant) {
        let earliest = self.listed.map(|listed| listed + RELIST_PAUSE);
        self.relist_at = self.relist_at.or_else(|| earliest.max(Some(now + RELIST_AFTER)));
    }
}

impl KnownSource {
    fn new(name: &SourceName) -> Self {
        let bell = SourceBell { source: name.clone(), doorbell: Doorbell::Silent, rung: None };
        Self { bell: Arc::new(bell), monitors: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
