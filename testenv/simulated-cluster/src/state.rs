//! The state of the simulated cluster at one moment: ConfigMaps, ConfigMonitors, pods, and the controllers and kubelets
//! behind them.
//!
//! Every change goes into the stores that the API server serves from (`api.rs`), and every fact into the ledger.
//! Nothing here sleeps: `cluster.rs` moves the time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::monitor::spec::Spec;
use rules::Moment;
use rules::status::Status;

use crate::backup::Backup;
use crate::content::{CONFIG_MAPS, Content, Data, Source, Stored, Values, metadata};
use crate::ledger::{Book, Ledger, Life, Nature, PodRecord};
use crate::network::Network;
use crate::objects;
use crate::store::{Labels, Store};

/// The label of a namespace that is served, if not all are.
pub(crate) const LABEL: &str = "served";
/// The Deployment of the ReplicaSets.
pub(crate) const DEPLOYMENT: &str = "frontend";
/// Its ReplicaSets, by the hashes of their templates.
pub(crate) const REPLICA_SETS: [(&str, &str); 2] = [("frontend-a", "a"), ("frontend-b", "b")];
/// The label and its value of the pod that leads the others.
pub const ROLE: &str = "role";
pub const LEADER: &str = "leader";
/// How long the others take to agree on another leader, in milliseconds.
const ELECTION: u64 = 700;
/// The label in an owner's selector.
pub(crate) const OWNER: &str = "owner";
pub const OWN_POD: &str = "uid-0";
/// The default grace period of a pod, in seconds.
const GRACE: u64 = 30;
/// From the end of the containers of a terminating pod until it is gone, in milliseconds.
const CLEANUP: u64 = 20;
/// How long a pod takes to end when its cluster is to settle, in milliseconds.
const SOON: u64 = 200;
/// The time at which a story begins, in milliseconds.
const BEGINNING: u64 = 1_000_000;
/// For how long the first pods have existed at the beginning, in milliseconds.
const LONG: u64 = 1_000_000;
/// The interval of compactions by the API server, in milliseconds.
const COMPACTION: u64 = 300_000;

#[derive(Clone)]
pub struct Monitor {
    pub name: Arc<str>,
    pub uid: String,
    pub gone: bool,
    pub version: u64,
    pub generation: i64,
    pub spec: Spec,
    pub status: Status,
    pub request: Option<char>,
    pub raw_status: String,
}

/// An existing pod, terminating or not.
#[derive(Clone)]
pub struct Pod {
    pub id: usize,
    pub uid: Arc<str>,
    pub name: Arc<str>,
    pub created: ServerTime,
    pub labels: Labels,
    /// The owner that controls the pod: one of the workloads, or another owner.
    pub controller: Option<Owner>,
    /// Whether the pod refers to each of the ConfigMaps.
    pub(crate) refers: [bool; 2],
    /// The annotations of a pod that the Deployment controls: from which ReplicaSet, and by whom.
    pub handed_over: Option<[String; 2]>,
    pub(crate) deletion_cost: i32,
    /// Whether the pod has the condition of an eviction.
    pub(crate) is_disrupted: bool,
    pub(crate) mirror: bool,
    /// Whether its containers are not restarted for ever.
    pub(crate) completes: bool,
    pub finished: bool,
    /// Why the pod has failed, empty if its containers ended because it was deleted. It has finished then.
    pub(crate) failed: Option<&'static str>,
    /// Whether its node is cut off: it is not ready then, and its containers are.
    pub(crate) is_cut_off: bool,
    pub gone_by: Option<ServerTime>,
    pub started: Option<ServerTime>,
    pub restarts: u32,
    pub ready: Option<Moment>,
    pub(crate) ready_at: u64,
    pub(crate) gone_at: Option<u64>,
    pub version: u64,
}

/// An owner, as a pod's reference names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub kind: OwnerKind,
    pub name: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// Of a pod that is handed over.
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    ReplicationController,
    /// A kind that the operator does not know.
    CloneSet,
    Job,
    /// One whose pods run to completion, and that is no Job.
    Workflow,
}

/// An owner with its desired replicas and their places.
#[derive(Clone)]
pub struct Workload {
    pub owner: Owner,
    /// The Deployment that controls the owner.
    pub(crate) deployment: Option<&'static str>,
    pub labels: Labels,
    pub replicas: usize,
    pub(crate) places: Vec<Place>,
}

/// The Deployment with two ReplicaSets, of which one is current.
#[derive(Clone, Copy)]
pub(crate) struct Deployment {
    pub(crate) is_gone: bool,
    pub(crate) generation: u64,
    pub(crate) replicas: usize,
    pub(crate) current: usize,
    pub(crate) other: usize,
    /// Whether its strategy lets two pods exist where one is desired.
    pub(crate) may_surge: bool,
    /// How many pods were given back by who did not know its last generation.
    pub(crate) given_back_late: usize,
}

/// What the status of the Deployment says: the observed generation, and how many pods exist of all ReplicaSets and of the
/// current one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeploymentStatus {
    pub(crate) generation: u64,
    pub(crate) all: usize,
    pub(crate) updated: usize,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub pod: Option<usize>,
    /// What its pods have in common, each the successor of another.
    line: usize,
    /// When the controller notices that the pod is gone.
    due: Option<u64>,
}

/// The delays of controllers and kubelets, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub creation: u64,
    pub readiness: u64,
    pub termination: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// The Deployment of the demo, and nothing else.
    Demo,
    /// A ReplicaSet with two pods, and the operator's own pod.
    One,
    /// A ReplicaSet, a StatefulSet, a DaemonSet, a Job, and a pod without an owner.
    Usual,
    /// The owners of `Usual`, and owners of unusual kinds.
    Odd,
    /// The owners of `Usual`, and further StatefulSets of one application.
    Zones,
}

/// To which ConfigMaps pods refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    Both,
    /// The pods of an owner to the same ones.
    ByOwner,
    /// Each pod by itself, as if something had been injected into some.
    ByPod,
}

impl References {
    fn of(self, owner: usize, pod: usize) -> [bool; 2] {
        let number = match self {
            Self::Both => 2,
            Self::ByOwner => owner,
            Self::ByPod => pod,
        };
        [[true, false], [false, true], [true, true], [false, false]][number % 4]
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The time at which it begins, in milliseconds.
    pub beginning: u64,
    pub owners: Owners,
    pub pace: Pace,
    /// Seconds by which the clocks of the two API servers differ.
    pub skew: u64,
    /// Milliseconds by which watch events of one API server are late.
    pub lag: u64,
    /// Seconds by which the clocks of the nodes are ahead; behind if negative.
    pub nodes: i64,
    /// The `minReadySeconds` of each owner.
    pub min_ready: u32,
    /// Milliseconds by which the status of the Deployment is late.
    pub status_lag: u64,
    /// Whether StatefulSets create a member only once those before it are ready.
    pub ordered: bool,
    pub references: References,
    /// Whether the second ConfigMap is a Secret.
    pub secret: bool,
    /// Whether the ConfigMaps may be missing: for the ConfigMonitors and for the pods.
    pub optional: bool,
    /// Whether one of the pods leads the others.
    pub leads: bool,
}

impl Setting {
    /// Returns the setting of a cluster with these owners in which nothing is odd.
    pub fn of(owners: Owners, pace: Pace) -> Self {
        Self {
            beginning: BEGINNING,
            owners,
            pace,
            skew: 0,
            lag: 0,
            nodes: 0,
            min_ready: 0,
            status_lag: 0,
            ordered: false,
            references: References::Both,
            secret: false,
            optional: false,
            leads: false,
        }
    }
}

/// The state of the whole cluster, with the ledger and the network.
pub struct ClusterState {
    pub ms: u64,
    pub(crate) beginning: u64,
    step: u64,
    pub(crate) revision: u64,
    /// The highest revision before the last restore.
    pub highest: u64,
    /// The revision before which versions are compacted.
    pub(crate) compacted: u64,
    /// The revision to which the next compaction goes, and its time.
    pub(crate) compaction: (u64, u64),
    pub(crate) backup: Option<Backup>,
    /// The number of restores, and until when the API server is unavailable after the last one, in milliseconds.
    pub restores: usize,
    pub(crate) away_until: u64,
    pub config_maps: BTreeMap<&'static str, Stored>,
    pub monitors: Vec<Monitor>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) deployment: Deployment,
    /// What its status was to say from when on, in milliseconds.
    statuses: Vec<(u64, DeploymentStatus)>,
    status_lag: u64,
    ordered: bool,
    pub pods: Vec<Pod>,
    pub(crate) config_map_store: Store,
    pub(crate) secret_store: Store,
    pub(crate) monitor_store: Store,
    pub(crate) namespace_store: Store,
    pub(crate) pod_store: Store,
    pub pace: Pace,
    pub new_pods_stay_unready: bool,
    pods_keep_terminating: bool,
    /// Whether pods end soon if their owners wait for that.
    hurries: bool,
    /// Whether the pods agree on another leader when there is none, and when they next do, in milliseconds.
    elects: bool,
    election: Option<u64>,
    /// How many of the next pods their kubelets reject.
    pub rejected: usize,
    /// PodDisruptionBudgets: how many of all pods must stay healthy.
    pub disruption_budgets: Vec<usize>,
    /// Seconds by which the second API server's clock is ahead of the first one's.
    pub skew: u64,
    /// Milliseconds by which watch events of the second API server are late.
    pub lag: u64,
    pub(crate) nodes: i64,
    references: References,
    secret: bool,
    dirty: bool,
    pub ledger: Ledger,
    pub network: Network,
}

impl OwnerKind {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet => "apps/v1",
            Self::ReplicationController => "v1",
            Self::CloneSet => "apps.example.com/v1",
            Self::Job => "batch/v1",
            Self::Workflow => "argoproj.io/v1alpha1",
        }
    }

    /// Returns whether the operator can read the desired replicas.
    pub(crate) fn can_be_asked(self) -> bool {
        matches!(self, Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet | Self::ReplicationController)
    }

    /// Returns whether the controller creates a successor before the old pod is gone, as no name or node is taken.
    pub(crate) fn replaces_at_once(self) -> bool {
        matches!(self, Self::ReplicaSet | Self::ReplicationController | Self::CloneSet)
    }
}

impl Pod {
    /// Returns whether the containers are ready.
    pub(crate) fn serves(&self) -> bool {
        self.ready.is_some() || self.is_cut_off
    }

    fn leads(&self) -> bool {
        self.labels.get(ROLE).is_some_and(|role| role == LEADER)
    }

    pub fn is_handed_over(&self) -> bool {
        self.controller.as_ref().is_some_and(|owner| owner.kind == OwnerKind::Deployment)
    }

    pub(crate) fn was_handed_over_by(&self, workload: &Workload) -> bool {
        let from = self.handed_over.as_ref().and_then(|[from, _]| from.split_once('/'));
        from.is_some_and(|(name, _)| name == workload.owner.name)
    }
}

impl Workload {
    fn add_place(&mut self, pod: Option<usize>) {
        self.places.push(Place { pod, due: None, line: self.places.len() });
    }

    /// Returns the name of what has one budget: the Deployment, or the owner itself.
    pub(crate) fn group(&self) -> &'static str {
        self.deployment.unwrap_or(self.owner.name)
    }
}

pub fn name_of(nth: usize) -> Arc<str> {
    if nth == 0 { "flakapp-config-monitor".into() } else { format!("monitor-{nth}").into() }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Arc::new(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

impl ClusterState {
    /// Creates the state at the beginning of a story, with these ConfigMonitors.
    pub fn new(specs: Vec<Spec>, setting: Setting, network: Network) -> Self {
        let Setting { beginning, owners, pace, skew, lag, nodes, min_ready, status_lag, references, .. } = setting;
        let Setting { secret, optional, leads, .. } = setting;
        let front = labels(&[("app", "frontend"), ("tier", "front")]);
        let back = labels(&[("app", "frontend"), ("tier", "back")]);
        let workload = |kind, name: &'static str, replicas, labels: &Labels| {
            let (owner, mut labels) = (Owner { kind, name }, BTreeMap::clone(labels));
            labels.insert(OWNER.to_owned(), name.to_owned());
            let deployment = (kind == OwnerKind::ReplicaSet).then_some(DEPLOYMENT);
            Workload { owner, deployment, labels: Arc::new(labels), replicas, places: Vec::new() }
        };
        let mut workloads = vec![
            workload(OwnerKind::ReplicaSet, REPLICA_SETS[0].0, 2, &front),
            workload(OwnerKind::StatefulSet, "db", 2, &back),
            workload(OwnerKind::DaemonSet, "log", 1, &front),
        ];
        if owners == Owners::Demo {
            workloads[0].replicas = 3;
        }
        if matches!(owners, Owners::Demo | Owners::One) {
            workloads.truncate(1);
        }
        if owners == Owners::Odd {
            workloads.push(workload(OwnerKind::ReplicationController, "old", 1, &back));
            workloads.push(workload(OwnerKind::CloneSet, "clone", 1, &front));
        }
        if owners == Owners::Zones {
            workloads.extend(["kv-a", "kv-b"].map(|name| workload(OwnerKind::StatefulSet, name, 1, &back)));
        }
        workloads.push(workload(OwnerKind::ReplicaSet, REPLICA_SETS[1].0, 0, &front));
        let (replicas, other) = (workloads[0].replicas, workloads.len() - 1);
        let deployment = Deployment {
            is_gone: false,
            generation: 1,
            replicas,
            current: 0,
            other,
            may_surge: true,
            given_back_late: 0,
        };
        let mut state = Self {
            ms: beginning - LONG,
            beginning,
            step: 0,
            revision: 1,
            highest: 0,
            compacted: 0,
            compaction: (0, beginning + COMPACTION),
            backup: None,
            restores: 0,
            away_until: 0,
            config_maps: BTreeMap::new(),
            monitors: Vec::new(),
            workloads,
            deployment,
            statuses: Vec::new(),
            status_lag: 0,
            ordered: setting.ordered,
            pods: Vec::new(),
            config_map_store: Store::new("v1", "ConfigMap"),
            secret_store: Store::new("v1", "Secret"),
            monitor_store: Store::new("magalix.com/v1", "ConfigMonitor"),
            namespace_store: Store::new("v1", "Namespace"),
            pod_store: Store::new("v1", "Pod"),
            pace: Pace { creation: 0, readiness: 0, termination: 0 },
            new_pods_stay_unready: false,
            pods_keep_terminating: false,
            hurries: false,
            elects: leads,
            election: None,
            rejected: 0,
            disruption_budgets: Vec::new(),
            skew: 0,
            lag: 0,
            nodes,
            references,
            secret,
            dirty: false,
            ledger: Ledger::default(),
            network,
        };
        (state.ledger.optional, state.ledger.min_ready) = (optional, min_ready);
        state.ledger.grace = Duration::from_secs(GRACE.max(pace.termination / 1000));
        state.label_namespace(true);
        for config_map in CONFIG_MAPS {
            state.set_content(config_map, Some([Some('a'); 2]));
        }
        // The ReplicaSet of another Deployment, a Job and a Workflow: the operator never reads these.
        let operators = Owner { kind: OwnerKind::ReplicaSet, name: "operator" };
        let job = Owner { kind: OwnerKind::Job, name: "job" };
        let workflow = Owner { kind: OwnerKind::Workflow, name: "flow" };
        let others = [
            (0, "operator", Some(operators), Nature::TheOperatorsOwn),
            (1, "lone", None, Nature::Bare),
            (2, "job", Some(job), Nature::Completes),
            (3, "static", None, Nature::Mirror),
            (4, "step", Some(workflow), Nature::Completes),
        ];
        let count = match owners {
            Owners::Demo => 0,
            Owners::One => 1,
            Owners::Usual => 4,
            Owners::Odd | Owners::Zones => others.len(),
        };
        for (place, name, controller, nature) in others.into_iter().take(count) {
            state.create((state.workloads.len(), place), name.to_owned(), controller, &front, nature);
        }
        state.reconcile();
        (state.pace, state.skew, state.ms) = (pace, skew, beginning);
        (state.lag, state.ledger.lag, state.status_lag) = (lag, lag, status_lag);
        state.ledger.skew = Duration::from_secs(skew);
        for (nth, spec) in specs.into_iter().enumerate() {
            state.create_monitor(name_of(nth), spec);
        }
        state
    }

    /// Gives the namespace the label by which it is selected, or takes it away.
    pub fn label_namespace(&mut self, is_labelled: bool) {
        let (revision, ms) = (self.next_revision(), self.ms);
        let pairs: &[(&str, &str)] = if is_labelled { &[(LABEL, "yes")] } else { &[] };
        self.namespace_store.put(revision, ms, objects::namespace(revision, labels(pairs)));
    }

    pub(crate) fn create_monitor(&mut self, name: Arc<str>, spec: Spec) {
        let (number, status, raw_status, request) = (self.monitors.len(), Status::default(), "{}".to_owned(), None);
        let uid = format!("uid-{name}-{number}");
        self.ledger.books.push(Book::default());
        let (gone, version, generation) = (false, 0, 0);
        self.monitors.push(Monitor { name, uid, gone, version, generation, spec, status, request, raw_status });
        self.set_spec(number, |_| {});
    }

    /// Creates a deleted ConfigMonitor again, with the same spec, another UID and no status.
    pub fn create_monitor_again(&mut self, nth: usize) {
        let name = name_of(nth);
        if self.monitor_by_name(&name).is_none() {
            let before = self.monitors.iter().rfind(|monitor| monitor.name == name).expect("one was deleted");
            let spec = before.spec.clone();
            self.create_monitor(name, spec);
        }
    }

    pub fn delete_monitor(&mut self, nth: usize) {
        let name = name_of(nth);
        if let Some(number) = self.monitor_by_name(&name) {
            let version = self.next_revision();
            let monitor = &mut self.monitors[number];
            (monitor.gone, monitor.version) = (true, version);
            let metadata = objects::monitor_metadata(monitor);
            self.monitor_store.remove(version, self.ms, &name, metadata);
        }
    }

    pub fn monitor_by_name(&self, name: &str) -> Option<usize> {
        self.monitors.iter().position(|monitor| &*monitor.name == name && !monitor.gone)
    }

    /// Returns the current moment. Each call returns a later one.
    pub fn moment(&mut self) -> Moment {
        self.step += 1;
        Moment { step: self.step, ms: self.ms }
    }

    pub fn second(&self) -> ServerTime {
        Moment { step: 0, ms: self.ms }.second()
    }

    pub(crate) fn next_revision(&mut self) -> u64 {
        self.revision = self.revision.max(self.highest) + 1;
        self.revision
    }

    /// Edits, creates or deletes a ConfigMap. The same content again edits only labels. Other content replaces an
    /// immutable ConfigMap.
    pub fn set_content(&mut self, config_map: &'static str, content: Option<Values>) {
        let immutable = self.config_maps.get(config_map).copied().filter(|before| before.immutable);
        if immutable.is_some_and(|before| content.is_some_and(|content| content != before.content)) {
            self.store_config_map(config_map, None);
        }
        self.store_config_map(config_map, content.map(|content| (content, immutable.is_some())));
    }

    pub fn freeze(&mut self, config_map: &'static str) {
        if let Some(before) = self.config_maps.get(config_map) {
            let frozen = (before.content, true);
            self.store_config_map(config_map, Some(frozen));
        }
    }

    fn store_config_map(&mut self, config_map: &'static str, stored: Option<(Values, bool)>) {
        let (version, before) = (self.next_revision(), self.config_maps.remove(config_map));
        let uid = before.map_or(version, |before| before.uid);
        if let Some((content, immutable)) = stored {
            let stored = Stored { version, uid, content, immutable };
            let data = self.data_of(config_map, stored);
            self.ledger.versions.insert(version, (config_map, data));
            self.config_maps.insert(config_map, stored);
            let ms = self.ms;
            self.store_of(config_map).put(version, ms, objects::config_map(config_map, stored));
        } else {
            let (metadata, ms) = (metadata(config_map, version, uid), self.ms);
            self.store_of(config_map).remove(version, ms, config_map, metadata);
        }
        self.has_changed(config_map);
        self.start_pods();
    }

    /// Returns whether the object of this name is a Secret.
    pub(crate) fn is_secret(&self, config_map: &str) -> bool {
        self.secret && config_map == CONFIG_MAPS[1]
    }

    fn store_of(&mut self, config_map: &str) -> &mut Store {
        if self.is_secret(config_map) { &mut self.secret_store } else { &mut self.config_map_store }
    }

    fn data_of(&self, config_map: &str, stored: Stored) -> Data {
        Data::There(stored.content, self.is_secret(config_map).then_some(stored.uid))
    }

    /// Records the current content of all sources that include this ConfigMap.
    pub(crate) fn has_changed(&mut self, config_map: &'static str) {
        let at = self.moment();
        for source in Source::all().filter(|source| source.includes(config_map)) {
            let content = self.content_of(source);
            self.ledger.contents.entry(source).or_default().push((at, content));
        }
    }

    pub fn content_of(&self, source: Source) -> Option<Content> {
        source.content(|config_map| {
            let there = self.config_maps.get(config_map).map(|stored| self.data_of(config_map, *stored));
            there.or_else(|| self.ledger.optional.then_some(Data::Absent))
        })
    }

    /// Edits the spec of a ConfigMonitor. The same spec again edits only labels.
    pub fn set_spec(&mut self, monitor: usize, edit: impl FnOnce(&mut Spec)) {
        let edited = &mut self.monitors[monitor];
        let before = edited.spec.clone();
        edit(&mut edited.spec);
        edited.generation += i64::from(edited.spec != before || edited.generation == 0);
        let spec = edited.spec.clone();
        self.store_monitor(monitor);
        let at = self.moment();
        self.ledger.books[monitor].specs.push((at, spec));
    }

    pub fn ask(&mut self, monitor: usize, value: char) {
        if self.monitors[monitor].request.replace(value) != Some(value) {
            let at = self.moment();
            self.ledger.books[monitor].requests.push((at, value.to_string()));
        }
        self.store_monitor(monitor);
    }

    /// Wipes the status, as a user does. The operator then no longer knows what the status held, such as the handled
    /// request.
    pub fn wipe_status(&mut self, monitor: usize) {
        self.set_status(monitor, Status::default(), "{}".to_owned());
        let (at, request) = (self.moment(), self.monitors[monitor].request);
        let book = &mut self.ledger.books[monitor];
        book.wiped.push((at, None));
        book.requests.extend(request.map(|value| (at, value.to_string())));
    }

    pub(crate) fn set_status(&mut self, monitor: usize, status: Status, raw_status: String) {
        let written = &mut self.monitors[monitor];
        (written.status, written.raw_status) = (status, raw_status);
        self.store_monitor(monitor);
    }

    fn store_monitor(&mut self, monitor: usize) {
        let revision = self.next_revision();
        self.monitors[monitor].version = revision;
        self.monitor_store.put(revision, self.ms, objects::monitor(monitor, &self.monitors[monitor]));
    }

    pub(crate) fn store_pod(&mut self, index: usize) {
        let revision = self.next_revision();
        let pod = &mut self.pods[index];
        pod.version = revision;
        let record = &self.ledger.pods[pod.id];
        self.pod_store.put(
            revision,
            self.ms,
            objects::pod(pod, self.secret, self.ledger.optional, |at| record.by_node(at)),
        );
    }

    pub fn kill(&mut self, nth: usize) {
        let managed: Vec<usize> = self.pods.iter().map(|pod| pod.id).filter(|id| self.is_managed(*id)).collect();
        if !managed.is_empty() {
            self.terminate(managed[nth % managed.len()], None);
            self.record_disturbance();
        }
    }

    /// Records a change that a process can only know after its next list.
    pub(crate) fn record_disturbance(&mut self) {
        let at = self.moment();
        self.ledger.record_disturbance(at);
    }

    fn is_managed(&self, id: usize) -> bool {
        self.ledger.pods[id].nature == Nature::Managed
    }

    pub fn finish(&mut self, nth: usize) {
        self.end(nth % self.pods.len());
    }

    /// Evicts a pod, as its kubelet does when the pod exceeds its limit of disk space.
    pub fn evict_from_node(&mut self, nth: usize) {
        let Some(index) = self.young(nth).filter(|index| self.pods[*index].started.is_some()) else { return };
        self.pods[index].failed = Some("Evicted");
        let (at, id) = (self.moment(), self.pods[index].id);
        self.ledger.pods[id].evicted = Some(at);
        self.ledger.pods[id].failures.push(at);
        self.end(index);
    }

    /// Shuts down the node of a pod: its kubelet fails the pod.
    pub fn shut_down(&mut self, nth: usize) {
        let Some(index) = self.young(nth).filter(|index| self.pods[*index].started.is_some()) else { return };
        self.pods[index].failed = Some("Terminated");
        self.end(index);
    }

    /// Cuts off the node of a pod. The pods of the beginning share a node, and each other has one of its own.
    pub fn cut_off(&mut self, nth: usize) {
        let Some(index) = self.young(nth) else { return };
        let is_first = |state: &Self, index: usize| state.ledger.pods[state.pods[index].id].born.ms < state.beginning;
        let share = is_first(self, index);
        for other in 0..self.pods.len() {
            if other == index || share && is_first(self, other) {
                self.set_cut_off(other, true);
            }
        }
    }

    pub fn reconnect(&mut self) {
        (0..self.pods.len()).for_each(|index| self.set_cut_off(index, false));
    }

    fn set_cut_off(&mut self, index: usize, is_cut_off: bool) {
        let at = self.moment();
        let pod = &mut self.pods[index];
        if pod.gone_at.is_some() || pod.is_cut_off == is_cut_off || is_cut_off && pod.ready.is_none() {
            return;
        }
        (pod.is_cut_off, pod.ready) = (is_cut_off, (!is_cut_off).then_some(at));
        self.ledger.pods[pod.id].ready.set(!is_cut_off, at);
        self.store_pod(index);
        self.record_disturbance();
        self.dirty = true;
    }

    fn end(&mut self, index: usize) {
        let at = self.moment();
        let pod = &mut self.pods[index];
        (pod.finished, pod.ready, pod.is_cut_off) = (true, None, false);
        let record = &mut self.ledger.pods[self.pods[index].id];
        record.ended.get_or_insert(at);
        record.gone.get_or_insert(at);
        self.store_pod(index);
        self.record_disturbance();
        self.dirty = true;
    }

    /// Returns the `nth` youngest running pod that an owner manages.
    fn young(&self, nth: usize) -> Option<usize> {
        let is_running = |pod: &Pod| self.is_managed(pod.id) && pod.gone_at.is_none() && !pod.finished;
        let mut running: Vec<usize> = (0..self.pods.len()).filter(|index| is_running(&self.pods[*index])).collect();
        running.sort_by_key(|index| Reverse(self.pods[*index].id));
        (!running.is_empty()).then(|| running[nth % running.len()])
    }

    /// Ends a container of a pod. The kubelet starts another one.
    pub fn restart_container(&mut self, nth: usize) {
        let Some(index) = self.young(nth).filter(|index| self.pods[*index].started.is_some()) else { return };
        let at = self.moment();
        let pod = &mut self.pods[index];
        let started = self.ledger.pods[pod.id].by_node(at);
        (pod.restarts, pod.started) = (pod.restarts + 1, Some(started));
        self.ledger.pods[pod.id].restarted.push(at);
        self.ledger.pods[pod.id].failures.push(at);
        self.make_unready(index, at, Some(self.pace.readiness));
    }

    /// Makes a pod unready, for `ms` milliseconds or for good.
    pub fn lose_readiness(&mut self, nth: usize, ms: Option<u64>) {
        let Some(index) = self.young(nth).filter(|index| self.pods[*index].ready.is_some()) else { return };
        let at = self.moment();
        self.ledger.pods[self.pods[index].id].failures.push(at);
        self.make_unready(index, at, ms);
    }

    fn make_unready(&mut self, index: usize, at: Moment, ms: Option<u64>) {
        let pod = &mut self.pods[index];
        let record = &mut self.ledger.pods[pod.id];
        record.ready.set(false, at);
        (pod.ready, pod.is_cut_off) = (None, false);
        // A new container does not make a pod ready that is unready for good.
        pod.ready_at = ms.map_or(u64::MAX, |ms| (self.ms + ms).max(pod.ready_at));
        self.store_pod(index);
        self.record_disturbance();
        self.dirty = true;
    }

    pub fn recover(&mut self) {
        let ms = self.ms;
        self.pods.iter_mut().filter(|pod| pod.ready_at == u64::MAX).for_each(|pod| pod.ready_at = ms);
        self.dirty = true;
    }

    /// Edits or removes the label `tier` of a pod. No owner's selector has this label.
    pub fn relabel(&mut self, nth: usize, tier: Option<&str>) {
        self.set_label(nth % self.pods.len(), "tier", tier);
        self.record_disturbance();
    }

    fn set_label(&mut self, index: usize, key: &str, value: Option<&str>) {
        let labels = Arc::make_mut(&mut self.pods[index].labels);
        match value {
            Some(value) => labels.insert(key.to_owned(), value.to_owned()),
            None => labels.remove(key),
        };
        let (id, labels) = (self.pods[index].id, Arc::clone(&self.pods[index].labels));
        self.store_pod(index);
        let at = self.moment();
        self.ledger.pods[id].labels.push((at, labels));
    }

    /// Lets the `nth` youngest running pod lead the others.
    pub fn lead(&mut self, nth: usize) {
        let leader = self.young(nth);
        for index in 0..self.pods.len() {
            let is_leader = Some(index) == leader;
            if self.pods[index].gone_at.is_none() && is_leader != self.pods[index].leads() {
                self.set_role(index, is_leader);
            }
        }
    }

    /// Lets the pods agree on a leader when there is none, or takes the label away until they may.
    pub fn let_elect(&mut self, holds: bool) {
        self.elects = holds;
        for index in 0..self.pods.len() {
            if !holds && self.pods[index].gone_at.is_none() && self.pods[index].leads() {
                self.set_role(index, false);
            }
        }
        self.dirty = true;
    }

    fn set_role(&mut self, index: usize, leads: bool) {
        self.set_label(index, ROLE, leads.then_some(LEADER));
        self.dirty = true;
    }

    /// Gives the label to the oldest pod, a ready one if there is any, once no pod has had it for a while.
    fn elect(&mut self) {
        let delay = if self.ms < self.beginning { 0 } else { ELECTION };
        let due = self.election.unwrap_or(self.ms + delay);
        let is_there = |pod: &Pod| self.is_managed(pod.id) && pod.gone_at.is_none() && !pod.finished;
        let there = || (0..self.pods.len()).filter(|index| is_there(&self.pods[*index]));
        if !self.elects || there().any(|index| self.pods[index].leads()) {
            self.election = None;
        } else if due > self.ms {
            self.election = Some(due);
        } else {
            let next = there().min_by_key(|index| (self.pods[*index].ready.is_none(), self.pods[*index].id));
            next.into_iter().for_each(|index| self.set_role(index, true));
            self.election = None;
        }
    }

    pub fn scale(&mut self, owner: usize, replicas: usize) {
        let owner = owner % self.workloads.len();
        match self.workloads[owner].deployment {
            Some(_) => {
                self.deployment.replicas = replicas;
                self.deployment.generation += 1;
            }
            None => self.workloads[owner].replicas = replicas,
        }
        self.record_disturbance();
        self.dirty = true;
    }

    /// Changes the template of the Deployment to that of the other ReplicaSet.
    pub fn roll_out(&mut self) {
        let Deployment { generation, current, other, .. } = &mut self.deployment;
        std::mem::swap(current, other);
        *generation += 1;
        self.dirty = true;
    }

    /// Edits the strategy of the Deployment.
    pub fn let_surge(&mut self, may_surge: bool) {
        self.deployment.may_surge = may_surge;
        self.deployment.generation += 1;
        self.record_disturbance();
    }

    /// Deletes the Deployment. The garbage collector deletes all that it controls, or lets it go on without a controller:
    /// then the ReplicaSets adopt the pods that were handed over.
    pub fn delete_deployment(&mut self, orphans: bool) {
        if std::mem::replace(&mut self.deployment.is_gone, true) {
            return;
        }
        for workload in self.workloads.iter_mut().filter(|workload| workload.deployment.is_some()) {
            if orphans {
                workload.deployment = None;
            } else {
                workload.replicas = 0;
            }
        }
        for index in 0..self.pods.len() {
            if self.pods[index].is_handed_over() {
                self.lose_deployment(index, orphans);
            }
        }
        self.record_disturbance();
        self.dirty = true;
    }

    /// The annotations and the label stay.
    fn lose_deployment(&mut self, index: usize, is_adopted: bool) {
        let (at, id) = (self.moment(), self.pods[index].id);
        let owner = self.workloads.iter().position(|workload| self.pods[index].was_handed_over_by(workload));
        match owner.filter(|_| is_adopted) {
            Some(owner) => {
                self.pods[index].controller = Some(self.workloads[owner].owner.clone());
                self.workloads[owner].add_place(Some(id));
                self.ledger.pods[id].handed_over.push((at, false));
                self.store_pod(index);
            }
            None => _ = self.terminate(id, None),
        }
    }

    /// Returns the pods of an owner that are not terminating.
    pub(crate) fn present_pods_of<'a>(&'a self, workload: &'a Workload) -> impl Iterator<Item = &'a Pod> {
        let is_its = |pod: &&Pod| pod.controller.as_ref() == Some(&workload.owner) && pod.gone_by.is_none();
        self.pods.iter().filter(is_its)
    }

    /// Scales the ReplicaSets of the Deployment, with one pod of surge and none unavailable: the current one up, and the
    /// other one down by what is more than enough. As the status of a ReplicaSet does, it also counts pods that the ReplicaSet
    /// has beyond what it desires, and is about to delete. (deployment/rolling.go, replica_set.go)
    fn roll(&mut self) {
        let Deployment { is_gone, replicas, current, other, .. } = self.deployment;
        if is_gone {
            return;
        }
        let [new, old] = [current, other].map(|owner| self.workloads[owner].replicas);
        let grown = new.max((replicas + 1).saturating_sub(old)).min(replicas);
        let [new_ready, old_ready] = [current, other]
            .map(|owner| self.present_pods_of(&self.workloads[owner]).filter(|pod| pod.ready.is_some()).count());
        let unready = old.saturating_sub(old_ready).min((new_ready + old).saturating_sub(replicas));
        let left = (old - unready).saturating_sub((new_ready + old_ready).saturating_sub(replicas));
        if (grown, left) != (new, old) {
            (self.workloads[current].replicas, self.workloads[other].replicas) = (grown, left);
            self.record_disturbance();
            self.dirty = true;
        }
    }

    /// Returns what the status of the Deployment says.
    pub(crate) fn deployment_status(&mut self) -> DeploymentStatus {
        let Deployment { generation, current, other, .. } = self.deployment;
        let [updated, former] = [current, other]
            .map(|owner| self.present_pods_of(&self.workloads[owner]).filter(|pod| !pod.finished).count());
        let now = DeploymentStatus { generation, all: updated + former, updated };
        if self.statuses.last().is_none_or(|(_, last)| *last != now) {
            self.statuses.push((self.ms, now));
        }
        let late = self.statuses.iter().rfind(|(since, _)| since + self.status_lag <= self.ms);
        late.map_or(now, |(_, status)| *status)
    }

    /// Keeps new pods unready from now on, or lets them become ready.
    pub fn keep_new_pods_unready(&mut self, holds: bool) {
        self.new_pods_stay_unready = holds;
        self.dirty = true;
    }

    /// Keeps terminating pods from now on, or lets them end.
    pub fn keep_pods_terminating(&mut self, holds: bool) {
        self.pods_keep_terminating = holds;
        self.record_disturbance();
        self.dirty = true;
    }

    /// Lets those pods end soon whose owners wait for that. The others may take until after the end of the story.
    pub fn hurry(&mut self) {
        self.hurries = true;
        for index in 0..self.pods.len() {
            let by = self.ms + self.termination_of(&self.pods[index]);
            self.pods[index].gone_at = self.pods[index].gone_at.map(|gone_at| gone_at.min(by));
        }
    }

    fn termination_of(&self, pod: &Pod) -> u64 {
        let is_waited_for = pod.controller.as_ref().is_some_and(|owner| !owner.kind.replaces_at_once());
        if self.hurries && is_waited_for { SOON.min(self.pace.termination) } else { self.pace.termination }
    }

    /// Deletes a pod with its grace period or `grace` seconds. Returns false if it is already terminating.
    pub(crate) fn terminate(&mut self, id: usize, grace: Option<u64>) -> bool {
        let ms = self.ms;
        let grace = grace.map_or(self.ledger.grace, Duration::from_secs).as_millis() as u64;
        let by = Moment { step: 0, ms: ms + grace }.second();
        let Some(index) = self.pods.iter().position(|pod| pod.id == id && pod.gone_at.is_none()) else {
            return false;
        };
        let termination = self.termination_of(&self.pods[index]);
        let at = self.moment();
        self.ledger.pods[id].ended.get_or_insert(at);
        self.ledger.pods[id].gone_by = Some(by);
        let pod = &mut self.pods[index];
        pod.gone_by = Some(by);
        pod.gone_at = Some(if pod.finished { ms } else { ms + termination.min(grace) });
        self.store_pod(index);
        self.dirty = true;
        true
    }

    fn create(
        &mut self,
        place: (usize, usize),
        name: String,
        controller: Option<Owner>,
        labels: &Labels,
        nature: Nature,
    ) -> usize {
        let (id, born) = (self.ledger.pods.len(), self.moment());
        // Either API server may have served the creation.
        let ahead = if self.skew > 0 && self.network.coin() { self.skew * 1000 } else { 0 };
        let created = Moment { step: 0, ms: self.ms + ahead }.second();
        let refers = self.references.of(place.0, id);
        self.ledger.pods.push(PodRecord::new(born, created, place, (labels, refers), nature, self.nodes));
        self.pods.push(Pod {
            id,
            uid: format!("uid-{id}").into(),
            name: name.into(),
            created,
            labels: Arc::clone(labels),
            controller,
            refers,
            handed_over: None,
            deletion_cost: 0,
            is_disrupted: false,
            mirror: nature == Nature::Mirror,
            completes: nature == Nature::Completes,
            finished: false,
            failed: None,
            is_cut_off: false,
            gone_by: None,
            started: None,
            restarts: 0,
            ready: None,
            ready_at: self.ms + self.pace.readiness,
            gone_at: None,
            version: 0,
        });
        let index = self.pods.len() - 1;
        self.store_pod(index);
        if nature == Nature::Managed && self.rejected > 0 {
            self.rejected -= 1;
            self.pods[index].failed = Some("OutOfcpu");
            self.end(index);
        }
        self.start_pods();
        id
    }

    /// Starts the pods that wait for ConfigMaps, once all of these exist or are optional.
    pub(crate) fn start_pods(&mut self) {
        let at = self.moment();
        let are_there = CONFIG_MAPS.map(|config_map| self.ledger.optional || self.config_maps.contains_key(config_map));
        let works = self.config_maps.values().all(|stored| stored.works());
        for index in 0..self.pods.len() {
            let is_startable =
                self.pods[index].refers.iter().zip(are_there).all(|(refers, is_there)| is_there || !refers);
            if is_startable && self.pods[index].started.is_none() && !self.pods[index].finished {
                let record = &mut self.ledger.pods[self.pods[index].id];
                (self.pods[index].started, record.started) = (Some(record.by_node(at)), Some(at));
                if !works {
                    record.failures.push(at);
                    (self.pods[index].ready_at, self.pods[index].restarts) = (u64::MAX, 1);
                }
                self.store_pod(index);
            }
        }
    }

    /// Moves the time to `until`, and carries out what is due by then.
    pub(crate) fn advance(&mut self, until: u64) {
        self.settle();
        while let Some(due) = self.next_due().filter(|due| *due <= until) {
            self.ms = due.max(self.ms);
            self.reconcile();
        }
        self.ms = until;
        if self.compaction.1 <= until {
            self.compacted = self.compacted.max(self.compaction.0);
            self.compaction = (self.revision, until + COMPACTION);
        }
    }

    pub fn settle(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.reconcile();
        }
    }

    /// Forgets all versions but the last, as the API server does.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// Returns when the cluster next changes by itself.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let creations = self.workloads.iter().flat_map(|workload| workload.places.iter().filter_map(|place| place.due));
        let ends = self.pods.iter().filter_map(|pod| pod.gone_at).filter(|_| !self.pods_keep_terminating);
        let waiting = self.pods.iter().filter(|pod| pod.gone_at.is_none() && !pod.serves() && !pod.finished);
        let readiness = waiting.map(|pod| pod.ready_at).filter(|at| !self.new_pods_stay_unready && *at < u64::MAX);
        creations.chain(ends).chain(readiness).chain(self.election).min()
    }

    fn reconcile(&mut self) {
        let ms = self.ms;
        let ends = |pod: &Pod, keep: bool| !keep && pod.gone_at.is_some_and(|gone_at| gone_at <= ms);
        // The kubelet says how the containers have ended before it lets the pod go.
        for index in 0..self.pods.len() {
            if ends(&self.pods[index], self.pods_keep_terminating) && !self.pods[index].finished {
                let pod = &mut self.pods[index];
                (pod.finished, pod.failed, pod.gone_at) = (true, Some(""), Some(ms + CLEANUP));
                (pod.ready, pod.is_cut_off) = (None, false);
                self.store_pod(index);
            }
        }
        let (gone, stay): (Vec<Pod>, Vec<Pod>) =
            std::mem::take(&mut self.pods).into_iter().partition(|pod| ends(pod, self.pods_keep_terminating));
        self.pods = stay;
        for mut pod in gone {
            // A watch shows deletions one after the other: a process that has seen one may not have seen the next.
            let at = self.moment();
            self.ledger.pods[pod.id].gone.get_or_insert(at);
            pod.version = self.next_revision();
            self.pod_store.remove(pod.version, ms, &pod.name, objects::pod_metadata(&pod));
        }
        let at = self.moment();
        for index in 0..self.pods.len() {
            let pod = &mut self.pods[index];
            if pod.ready_at <= ms
                && !self.new_pods_stay_unready
                && pod.gone_at.is_none()
                && !pod.finished
                && !pod.serves()
            {
                pod.ready = Some(at);
                self.ledger.pods[pod.id].ready.set(true, at);
                self.store_pod(index);
            }
        }
        self.roll();
        for owner in 0..self.workloads.len() {
            self.rank(owner);
            let count = self.workloads[owner].places.len().max(self.workloads[owner].replicas);
            while self.workloads[owner].places.len() < count {
                self.workloads[owner].add_place(None);
            }
            for ordinal in 0..count {
                self.reconcile_place(owner, ordinal);
            }
        }
        self.elect();
        self.deployment_status();
    }

    /// Lets those pods of a ReplicaSet be beyond its desired places that it deletes first: the ones that are not ready, then
    /// those with the lowest cost, then those with more siblings on their node, then the youngest. (controller_utils.go,
    /// `ActivePodsWithRanks`.) The pods of the beginning share a node, and each other has one of its own.
    fn rank(&mut self, owner: usize) {
        let Workload { owner: Owner { kind, .. }, replicas, ref places, .. } = self.workloads[owner];
        if kind != OwnerKind::ReplicaSet || places.len() <= replicas {
            return;
        }
        let pod_at = |place: &Place| {
            let pod = self.pods.iter().find(|pod| Some(pod.id) == place.pod)?;
            (pod.gone_at.is_none() && !pod.finished).then_some(pod)
        };
        let mut present: Vec<(usize, &Pod)> =
            places.iter().enumerate().filter_map(|(ordinal, place)| Some((ordinal, pod_at(place)?))).collect();
        let is_first = |pod: &Pod| self.ledger.pods[pod.id].born.ms < self.beginning;
        let first = present.iter().filter(|(_, pod)| is_first(pod)).count();
        let siblings = |pod: &Pod| if is_first(pod) { first } else { 1 };
        present.sort_by_key(|(_, pod)| {
            (pod.ready.is_none(), Reverse(pod.deletion_cost), siblings(pod), pod.ready, pod.id)
        });
        let stay: BTreeSet<usize> = present.iter().take(replicas).map(|(ordinal, _)| *ordinal).collect();
        let free: Vec<usize> = (0..replicas).filter(|ordinal| !stay.contains(ordinal)).collect();
        for (from, to) in stay.into_iter().filter(|ordinal| *ordinal >= replicas).zip(free) {
            self.workloads[owner].places.swap(from, to);
        }
    }

    /// Hands a pod over to the Deployment. Its ReplicaSet creates another one.
    pub(crate) fn hand_over(&mut self, index: usize, [from, by]: [String; 2]) {
        let id = self.pods[index].id;
        for place in self.workloads.iter_mut().flat_map(|workload| &mut workload.places) {
            if place.pod == Some(id) {
                place.pod = None;
            }
        }
        self.pods[index].controller = Some(Owner { kind: OwnerKind::Deployment, name: DEPLOYMENT });
        self.pods[index].handed_over = Some([from, by]);
        if self.deployment.is_gone {
            self.lose_deployment(index, false);
        }
    }

    /// Gives a pod back to a ReplicaSet, which may have too many pods then.
    pub(crate) fn give_back(&mut self, index: usize, owner: usize) {
        self.pods[index].controller = Some(self.workloads[owner].owner.clone());
        self.pods[index].handed_over = None;
        let pod = self.pods[index].id;
        self.workloads[owner].add_place(Some(pod));
        if self.is_collected(owner) {
            self.terminate(pod, None);
        }
    }

    /// Returns whether an owner went with the Deployment.
    pub(crate) fn is_collected(&self, owner: usize) -> bool {
        self.deployment.is_gone && self.workloads[owner].deployment.is_some()
    }

    /// Stores a pod whose metadata somebody has edited.
    pub(crate) fn store_edited(&mut self, index: usize, labels: Labels) {
        let at = self.moment();
        let id = self.pods[index].id;
        if self.pods[index].labels != labels {
            self.pods[index].labels = Arc::clone(&labels);
            self.ledger.pods[id].labels.push((at, labels));
        }
        self.store_pod(index);
        self.dirty = true;
    }

    /// Reconciles one pod of a controller.
    fn reconcile_place(&mut self, owner: usize, ordinal: usize) {
        let workload = &self.workloads[owner];
        let kind = workload.owner.kind;
        let place = workload.places[ordinal];
        let occupant = self.pods.iter().find(|pod| Some(pod.id) == place.pod);
        let state = occupant.map(|pod| (pod.id, pod.gone_at.is_some(), pod.finished));
        if ordinal >= workload.replicas {
            if let Some((id, false, _)) = state {
                self.must_not_be_missed(id);
                self.terminate(id, None);
            }
            self.workloads[owner].places[ordinal].due = None;
            return;
        }
        match state {
            Some((_, ending, finished)) if kind.replaces_at_once() && (ending || finished) => {}
            Some((id, ending, finished)) => {
                if finished && !ending {
                    self.terminate(id, None);
                }
                return;
            }
            None => {}
        }
        if self.ordered && kind == OwnerKind::StatefulSet && !self.is_ready_up_to(owner, ordinal) {
            self.workloads[owner].places[ordinal].due = None;
            return;
        }
        let due = place.due.unwrap_or(self.ms + self.pace.creation);
        self.workloads[owner].places[ordinal].due = Some(due);
        if due <= self.ms {
            let suffix = if kind == OwnerKind::StatefulSet { ordinal } else { 100 + self.ledger.pods.len() };
            let Workload { owner: controller, labels, .. } = &self.workloads[owner];
            let (name, controller, labels) =
                (format!("{}-{suffix}", controller.name), controller.clone(), Arc::clone(labels));
            let id = self.create((owner, place.line), name, Some(controller), &labels, Nature::Managed);
            self.workloads[owner].places[ordinal] = Place { pod: Some(id), due: None, ..place };
            // The pod may be ready at once.
            self.dirty = true;
        }
    }

    /// Returns whether all members before this one are ready.
    fn is_ready_up_to(&self, owner: usize, ordinal: usize) -> bool {
        let is_ready = |place: &Place| {
            self.pods.iter().any(|pod| Some(pod.id) == place.pod && pod.ready.is_some() && pod.gone_at.is_none())
        };
        self.workloads[owner].places[..ordinal].iter().all(is_ready)
    }

    pub(crate) fn owner_by_name(&self, name: &str) -> Option<usize> {
        self.workloads.iter().position(|workload| workload.owner.name == name)
    }

    /// Returns the pods that are neither finished nor terminating.
    pub(crate) fn running(&self) -> Vec<usize> {
        let running = self.pods.iter().filter(|pod| !pod.finished && pod.gone_by.is_none());
        running.map(|pod| pod.id).collect()
    }

    pub(crate) fn is_dead(&self, life: Life) -> bool {
        self.network.is_dead(life)
    }
}
