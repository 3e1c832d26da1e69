//! The simulated cluster: ConfigMaps, one ConfigMonitor, owners of pods, and a clock. Time passes only when the story says so.

use std::collections::BTreeMap;

use configmonitor_operator::kube::objects::{Owner, Pod};
use configmonitor_operator::monitor::spec::Spec;
use configmonitor_operator::monitor::status::Status;

use crate::ledger::{Birth, Ledger, Life, Moment, Nature};

/// What is under the two keys of a ConfigMap. More than a letter is not needed to tell contents apart.
pub(crate) type Content = [Option<char>; 2];
/// The ConfigMaps. The ConfigMonitor is about the first one, unless its source is edited.
pub(crate) const CONFIG_MAPS: [&str; 2] = ["settings", "other"];
/// The keys. Both count, unless `spec.keys` is edited: then the first one.
pub(crate) const KEYS: [&str; 2] = ["key", "second"];
/// Milliseconds that a pod may take to end.
const GRACE: u64 = 30_000;
/// What a story begins with: pods that have been there for long.
const BEGINNING: u64 = 1_000_000;

/// What a ConfigMonitor is about: a ConfigMap, or what is under the first of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    pub(crate) config_map: &'static str,
    one_key: bool,
}

/// The ConfigMonitor.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    pub(crate) version: u64,
    pub(crate) generation: i64,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

/// A ConfigMap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) content: Content,
}

/// A pod that is there, ended or not.
pub(crate) struct Living {
    pub(crate) id: usize,
    pub(crate) pod: Pod,
    /// When it will be ready, and when it became so.
    ready_at: u64,
    pub(crate) ready: Option<Moment>,
    gone_at: Option<u64>,
}

/// A controller of pods.
pub(crate) struct Workload {
    pub(crate) owner: Owner,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) replicas: usize,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    pod: Option<usize>,
    /// When its controller will have noticed that the pod is gone.
    due: Option<u64>,
}

/// How long things take, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) creation: u64,
    pub(crate) readiness: u64,
    pub(crate) termination: u64,
}

/// The cluster.
pub(crate) struct World {
    pub(crate) ms: u64,
    step: u64,
    pub(crate) revision: u64,
    pub(crate) pods_revision: u64,
    pub(crate) config_maps: BTreeMap<&'static str, Stored>,
    pub(crate) monitor: Monitor,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) pods: Vec<Living>,
    /// The lists that the API server still remembers.
    pub(crate) lists: BTreeMap<u64, Vec<Pod>>,
    pub(crate) pace: Pace,
    /// New pods do not become ready.
    pub(crate) sick: bool,
    /// Pods that have been told to end do not.
    pub(crate) hung: bool,
    /// The process whose request is being served, and whether it will have the answer.
    pub(crate) caller: (Life, bool),
    pub(crate) ledger: Ledger,
}

impl Source {
    pub(crate) fn of(config_map: &'static str, spec: &Spec) -> Self {
        Self { config_map, one_key: spec.keys.is_some() }
    }

    /// What counts of this content.
    pub(crate) fn content(self, [first, second]: Content) -> Content {
        [first, second.filter(|_| !self.one_key)]
    }
}

/// The data of a ConfigMap with this content.
pub(crate) fn data(content: Content) -> BTreeMap<String, String> {
    KEYS.iter().zip(content).filter_map(|(key, value)| Some(((*key).to_owned(), value?.to_string()))).collect()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

impl World {
    pub(crate) fn new(spec: Spec, pace: Pace) -> Self {
        let front = labels(&[("app", "web"), ("tier", "front")]);
        let back = labels(&[("app", "web"), ("tier", "back")]);
        let workload = |kind: &str, name: &str, replicas, labels: &BTreeMap<String, String>| {
            let (kind, name) = (kind.to_owned(), name.to_owned());
            let owner = Owner { api_version: "apps/v1".to_owned(), kind, uid: name.as_str().into(), name };
            Workload { owner, labels: labels.clone(), replicas, places: Vec::new() }
        };
        let monitor = Monitor { version: 1, generation: 1, spec, status: Status::default() };
        let mut world = Self {
            ms: 0,
            step: 0,
            revision: 1,
            pods_revision: 1,
            config_maps: BTreeMap::new(),
            monitor,
            workloads: vec![
                workload("ReplicaSet", "web", 2, &front),
                workload("StatefulSet", "db", 2, &back),
                workload("DaemonSet", "log", 1, &front),
            ],
            pods: Vec::new(),
            lists: BTreeMap::new(),
            pace: Pace { creation: 0, readiness: 0, termination: 0 },
            sick: false,
            hung: false,
            caller: (Life(0), true),
            ledger: Ledger::default(),
        };
        for config_map in CONFIG_MAPS {
            world.set_content(config_map, Some([Some('a'); 2]));
        }
        // Another Deployment's: these two are never asked for.
        let operators =
            Owner { name: "operator".to_owned(), uid: "operator".into(), ..world.workloads[0].owner.clone() };
        let job =
            Owner { api_version: "batch/v1".to_owned(), kind: "Job".to_owned(), ..world.workloads[0].owner.clone() };
        for (place, name, controller, nature) in [
            (0, "lone", None, Nature::Bare),
            (1, "job", Some(job), Nature::OfAJob),
            (2, "static", None, Nature::Mirror),
            (3, "operator", Some(operators), Nature::TheOperatorsOwn),
        ] {
            world.create((world.workloads.len(), place), name.to_owned(), controller, &front, nature);
        }
        world.reconcile();
        world.pace = pace;
        world.ms = BEGINNING;
        world.set_spec(|_| {});
        world
    }

    /// Now; each call is another moment.
    pub(crate) fn moment(&mut self) -> Moment {
        self.step += 1;
        Moment { step: self.step, ms: self.ms }
    }

    pub(crate) fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Edits the ConfigMap, creates it, or deletes it. The same content again is an edit of labels only.
    pub(crate) fn set_content(&mut self, config_map: &'static str, content: Option<Content>) {
        let version = self.next_revision();
        match content {
            Some(content) => drop(self.config_maps.insert(config_map, Stored { version, content })),
            None => drop(self.config_maps.remove(config_map)),
        }
        let at = self.moment();
        for source in [false, true].map(|one_key| Source { config_map, one_key }) {
            let content = content.map(|content| source.content(content));
            self.ledger.contents.entry(source).or_default().push((at, content));
        }
        self.start_pods();
    }

    /// Edits the spec of the ConfigMonitor.
    pub(crate) fn set_spec(&mut self, edit: impl FnOnce(&mut Spec)) {
        let before = self.monitor.spec.clone();
        edit(&mut self.monitor.spec);
        self.monitor.version = self.next_revision();
        self.monitor.generation += i64::from(self.monitor.spec != before);
        let at = self.moment();
        self.ledger.specs.push((at, self.monitor.spec.clone()));
    }

    /// Somebody else writes the status.
    pub(crate) fn wipe_status(&mut self) {
        self.monitor.status = Status::default();
        self.monitor.version = self.next_revision();
    }

    /// What the spec names; none while it is invalid.
    pub(crate) fn source(&self) -> Option<Source> {
        let spec = Some(&self.monitor.spec).filter(|spec| !spec.pod_selector.is_empty())?;
        let config_map = CONFIG_MAPS.into_iter().find(|config_map| spec.config_map.as_deref() == Some(config_map))?;
        Some(Source::of(config_map, spec))
    }

    /// Somebody else deletes a pod.
    pub(crate) fn kill(&mut self, nth: usize) {
        let ids: Vec<usize> =
            self.pods.iter().filter(|living| living.pod.controller.is_some()).map(|living| living.id).collect();
        let managed: Vec<usize> =
            ids.into_iter().filter(|id| self.ledger.pods[*id].nature == Nature::Managed).collect();
        if !managed.is_empty() {
            self.terminate(managed[nth % managed.len()]);
            self.ledger.disturbed();
        }
    }

    /// A pod runs to its end.
    pub(crate) fn finish(&mut self, nth: usize) {
        let count = self.pods.len();
        let Living { pod, .. } = &mut self.pods[nth % count];
        (pod.finished, pod.ready_since) = (true, None);
        self.ledger.disturbed();
        self.pods_revision = self.next_revision();
    }

    /// Scales an owner of pods.
    pub(crate) fn scale(&mut self, owner: usize, replicas: usize) {
        self.workloads[owner].replicas = replicas;
        self.ledger.disturbed();
    }

    /// Pods that are told to end do not, or at last they do.
    pub(crate) fn hang(&mut self, holds: bool) {
        self.hung = holds;
        self.ledger.disturbed();
    }

    /// Tells a pod to end. Whether that was news to it.
    pub(crate) fn terminate(&mut self, id: usize) -> bool {
        let (ms, termination) = (self.ms, self.pace.termination);
        let by = Moment { step: 0, ms: ms + GRACE }.second();
        let Some(living) = self.pods.iter_mut().find(|living| living.id == id && living.gone_at.is_none()) else {
            return false;
        };
        living.pod.gone_by = Some(by);
        living.gone_at = Some(if living.pod.finished { ms } else { ms + termination });
        self.pods_revision = self.next_revision();
        true
    }

    fn create(
        &mut self,
        place: (usize, usize),
        name: String,
        controller: Option<Owner>,
        labels: &BTreeMap<String, String>,
        nature: Nature,
    ) -> usize {
        let (id, born) = (self.ledger.pods.len(), self.moment());
        let uid = format!("uid-{id}").as_str().into();
        let (created, labels) = (born.second(), labels.clone());
        self.ledger.pods.push(Birth { born, created, started: None, place, labels: labels.clone(), nature });
        let pod = Pod {
            name,
            uid,
            version: "".into(),
            created,
            gone_by: None,
            labels,
            controller,
            mirror: nature == Nature::Mirror,
            finished: false,
            ready_since: None,
            started: None,
        };
        self.pods.push(Living { id, pod, ready_at: self.ms + self.pace.readiness, ready: None, gone_at: None });
        self.start_pods();
        self.pods_revision = self.next_revision();
        id
    }

    /// Pods that wait for ConfigMaps start when all of them are there.
    fn start_pods(&mut self) {
        let at = self.moment();
        if CONFIG_MAPS.iter().all(|config_map| self.config_maps.contains_key(config_map)) {
            for Living { id, pod, .. } in self.pods.iter_mut().filter(|living| living.pod.started.is_none()) {
                pod.started = Some(at.second());
                self.ledger.pods[*id].started = Some(at);
            }
        }
    }

    /// Lets time pass, and with it what the cluster does by itself.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.ms + ms;
        self.reconcile();
        while let Some(due) = self.next_due().filter(|due| *due <= until) {
            self.ms = due.max(self.ms);
            self.reconcile();
        }
        self.ms = until;
    }

    /// When the cluster will next do something by itself.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let creations = self.workloads.iter().flat_map(|workload| workload.places.iter().filter_map(|place| place.due));
        let ends = self.pods.iter().filter_map(|living| living.gone_at).filter(|_| !self.hung);
        let waiting = self
            .pods
            .iter()
            .filter(|living| living.gone_at.is_none() && living.pod.ready_since.is_none() && !living.pod.finished);
        let readiness = waiting.map(|living| living.ready_at).filter(|_| !self.sick);
        creations.chain(ends).chain(readiness).min()
    }

    /// Everything that is due by now.
    pub(crate) fn reconcile(&mut self) {
        let (ms, hung, sick, before, at) = (self.ms, self.hung, self.sick, self.pods.len(), self.moment());
        self.pods.retain(|living| hung || living.gone_at.is_none_or(|gone_at| gone_at > ms));
        let mut changed = self.pods.len() != before;
        for Living { pod, ready_at, ready, gone_at, .. } in &mut self.pods {
            if *ready_at <= ms && !sick && gone_at.is_none() && !pod.finished && pod.ready_since.is_none() {
                (pod.ready_since, *ready, changed) = (Some(at.second()), Some(at), true);
            }
        }
        if changed {
            self.pods_revision = self.next_revision();
        }
        for owner in 0..self.workloads.len() {
            let count = self.workloads[owner].places.len().max(self.workloads[owner].replicas);
            self.workloads[owner].places.resize(count, Place::default());
            for ordinal in 0..count {
                self.reconcile_place(owner, ordinal);
            }
        }
    }

    /// What a controller does about one of its pods. A ReplicaSet does not wait for the old one to be gone, the others do: there
    /// a name, or a node, is taken.
    fn reconcile_place(&mut self, owner: usize, ordinal: usize) {
        let workload = &self.workloads[owner];
        let (kind, name) = (workload.owner.kind.clone(), workload.owner.name.clone());
        let place = workload.places[ordinal];
        let occupant = self.pods.iter().find(|living| Some(living.id) == place.pod);
        let state = occupant.map(|living| (living.id, living.gone_at.is_some(), living.pod.finished));
        let is_replica_set = kind == "ReplicaSet";
        if ordinal >= workload.replicas {
            if let Some((id, false, _)) = state {
                self.terminate(id);
            }
            self.workloads[owner].places[ordinal].due = None;
            return;
        }
        match state {
            Some((_, ending, finished)) if is_replica_set && (ending || finished) => {}
            Some((id, ending, finished)) => {
                if finished && !ending {
                    self.terminate(id);
                }
                return;
            }
            None => {}
        }
        let due = place.due.unwrap_or(self.ms + self.pace.creation);
        self.workloads[owner].places[ordinal].due = Some(due);
        if due <= self.ms {
            let suffix = if kind == "StatefulSet" { ordinal } else { 100 + self.ledger.pods.len() };
            let Workload { owner: controller, labels, .. } = &self.workloads[owner];
            let (controller, labels) = (controller.clone(), labels.clone());
            let id =
                self.create((owner, ordinal), format!("{name}-{suffix}"), Some(controller), &labels, Nature::Managed);
            self.workloads[owner].places[ordinal] = Place { pod: Some(id), due: None };
        }
    }
}
