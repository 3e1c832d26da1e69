//! The network between the processes and the API server: which processes live, the fate of each request, and the faults
//! of watches.

use std::sync::Arc;

use configmonitor_operator::metrics::Metrics;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::api::Request;
use crate::ledger::Life;

/// One of up to two processes of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    Any,
    GetConfigMap,
    GetMonitor,
    GetOwner,
    ListPods,
    ListAll,
    PutStatus,
    /// A DELETE, or an eviction.
    Delete,
    /// A PATCH of a pod.
    Patch,
    Event,
    Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// The request does not reach the API server.
    NotSent,
    /// The API server serves the request, and the connection breaks before the answer.
    AnswerLost,
    /// The API server serves the request, and no answer comes.
    NeverAnswered,
    /// The request reaches the API server this many milliseconds late.
    Late(u64),
    /// The answer reaches the process this many milliseconds late.
    LateAnswer(u64),
    Conflict,
    /// 429, with or without `Retry-After` in seconds.
    Busy(Option<u32>),
    Forbidden,
    /// kubectl proxy does not reach the API server.
    ProxyError,
    /// An admission webhook or another part of the API server fails.
    Refused,
    /// An admission webhook denies a write with this code.
    Denied(u16),
    /// The API server serves the request, and then times out.
    Timeout,
    /// The API server serves the request, and the answer breaks off.
    Truncated,
    CrashBefore,
    CrashAfter,
    /// The keeper that sends the request panics. Does not apply to the two main watches.
    Panic,
}

/// The namespaces that a process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    One,
    /// The one with the objects, and an empty one.
    Two,
    All,
    /// All that have the label `LABEL`.
    Labelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    ConfigMaps,
    Secrets,
    Monitors,
    Namespaces,
    /// By a keeper, during a restart.
    Pods,
    /// By the process, to discover sources.
    References,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// No event comes any more, unnoticed.
    Stall,
    /// The watch ends between two events.
    End,
    /// The connection breaks within a line.
    Break,
    /// The API server has forgotten the version.
    Expire,
    /// The next event does not come, unnoticed.
    Miss,
}

pub(crate) struct Running {
    pub life: Life,
    pub task: AbortHandle,
    pub stop: CancellationToken,
}

/// A request in the trace that a failure prints.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub ms: u64,
    pub life: Life,
    pub method: &'static str,
    pub path: String,
    pub fate: Fate,
    /// Whether a keeper sent the request, and not one of the two main watches.
    pub is_of_keeper: bool,
    /// The code of the answer, if there was one.
    pub code: Option<u16>,
}

/// The route of a request.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// The place of the request in the trace.
    pub number: usize,
    pub process: Process,
    pub fate: Fate,
    /// Milliseconds until the request is served, and from then to the answer.
    pub there: u64,
    pub back: u64,
    /// Whether the request is served even if the process is dead by then.
    pub(crate) survives: bool,
}

/// The network, with the state of all processes.
pub struct Network {
    rng: fastrand::Rng,
    lives: Vec<LifeState>,
    pub(crate) running: [Option<Running>; 2],
    fates: [Vec<(RequestKind, u32, Fate)>; 2],
    lasting: Vec<(RequestKind, Fate)>,
    served: [Vec<RequestKind>; 2],
    pub namespaces: Served,
    /// Whether the processes hand pods over.
    pub surges: bool,
    /// Whether the processes may get Secrets, but neither list nor watch them.
    pub only_gets_secrets: bool,
    /// The most objects in a page of a list.
    pub page: usize,
    /// The most deletions that a process sends at a time.
    pub(crate) deletions: usize,
    pub trace: Vec<Sent>,
    pub metrics: Vec<Arc<Metrics>>,
    /// The Lease; none if each process acts.
    pub lease: Option<Lease>,
    /// The requests of processes that were not the leader, except for the main watches.
    pub sent_by_standbys: Vec<String>,
}

/// The leader, as the Lease holds it.
#[derive(Default)]
pub struct Lease {
    holder: Option<Life>,
    /// When there is no holder: from when somebody may take the Lease, in milliseconds.
    free_from: u64,
}

impl Lease {
    /// Returns whether this life is the leader. It becomes the leader if the Lease is free.
    pub(crate) fn is_held_by(&mut self, life: Life, ms: u64) -> bool {
        if self.holder.is_none() && self.free_from <= ms {
            self.holder = Some(life);
        }
        self.holder == Some(life)
    }

    /// Frees the Lease from `free_from` on, if this life holds it.
    pub(crate) fn is_left_by(&mut self, life: Life, free_from: u64) {
        if self.holder == Some(life) {
            *self = Self { holder: None, free_from };
        }
    }
}

struct LifeState {
    process: Process,
    is_dead: bool,
    watch_faults: Vec<(Watched, WatchFault)>,
}

impl RequestKind {
    pub(crate) fn of(request: &Request) -> Self {
        let path = request.url.path();
        let plural = path.split('/').skip_while(|part| *part != "namespaces").nth(2).unwrap_or_default();
        let named = path.split('/').skip_while(|part| *part != "namespaces").nth(3).is_some();
        match (request.method.as_str(), plural) {
            ("GET", _) if request.url.query().is_some_and(|query| query.contains("watch=true")) => Self::Watch,
            ("GET", "configmaps" | "secrets") if named => Self::GetConfigMap,
            ("GET", "configmonitors") if named => Self::GetMonitor,
            ("GET", "pods") if !is_of_handed_over(request) && !is_of_references(request) => Self::ListPods,
            ("GET", _) if named => Self::GetOwner,
            ("GET", _) => Self::ListAll,
            ("PUT", _) => Self::PutStatus,
            ("POST", "events") => Self::Event,
            ("PATCH", _) => Self::Patch,
            _ => Self::Delete,
        }
    }

    /// Returns whether a keeper sends the request, and not one of the main watches.
    fn is_of_keeper(request: &Request) -> bool {
        match Self::of(request) {
            Self::ListAll => false,
            Self::Watch => {
                request.url.path().ends_with("/pods") && !is_of_handed_over(request) && !is_of_references(request)
            }
            _ => true,
        }
    }

    /// Returns whether the request goes through admission.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::PutStatus | Self::Delete | Self::Patch | Self::Event)
    }

    fn covers(self, other: Self) -> bool {
        self == Self::Any || self == other
    }
}

/// Returns whether a request lists or watches the pods that are handed over.
pub(crate) fn is_of_handed_over(request: &Request) -> bool {
    request.url.query().is_some_and(|query| query.contains("handed-over"))
}

/// Returns whether a request lists the pods of the Deployment: those of all its ReplicaSets.
pub(crate) fn is_of_deployment(request: &Request) -> bool {
    request.url.query().is_some_and(|query| query.contains("owner+in+"))
}

/// Returns whether a request lists or watches pods in which sources are discovered: those that have not finished.
pub(crate) fn is_of_references(request: &Request) -> bool {
    request.url.query().is_some_and(|query| query.contains("status.phase"))
}

impl Network {
    pub fn new(seed: u64, page: usize, deletions: usize) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            lives: Vec::new(),
            running: [None, None],
            fates: [Vec::new(), Vec::new()],
            lasting: Vec::new(),
            served: [Vec::new(), Vec::new()],
            namespaces: Served::One,
            surges: false,
            only_gets_secrets: false,
            page,
            deletions,
            trace: Vec::new(),
            metrics: Vec::new(),
            lease: None,
            sent_by_standbys: Vec::new(),
        }
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.rng.bool()
    }

    pub fn latency(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        self.rng.u64(range)
    }

    pub fn begin_life(&mut self, process: Process) -> Life {
        self.lives.push(LifeState { process, is_dead: false, watch_faults: Vec::new() });
        Life(self.lives.len() - 1)
    }

    /// Ends a life: from now on neither its requests nor the answers to them count.
    pub(crate) fn end_life(&mut self, life: Life) {
        self.lives[life.0].is_dead = true;
    }

    pub(crate) fn is_dead(&self, life: Life) -> bool {
        self.lives[life.0].is_dead
    }

    /// Sets the fate of the n-th request of this kind from now on.
    pub fn set_fate(&mut self, process: Process, what: RequestKind, nth: u32, fate: Fate) {
        self.fates[process as usize].push((what, nth.max(1), fate));
    }

    /// Sets or ends the fate of all requests of this kind.
    pub fn set_lasting_fate(&mut self, what: RequestKind, fate: Option<Fate>) {
        self.lasting.retain(|(before, _)| *before != what);
        self.lasting.extend(fate.map(|fate| (what, fate)));
    }

    pub fn heal(&mut self) {
        self.fates.iter_mut().for_each(Vec::clear);
        self.lasting.clear();
    }

    pub fn served(&self, process: Process, what: RequestKind) -> usize {
        self.served[process as usize].iter().filter(|served| what.covers(**served)).count()
    }

    pub(crate) fn has_served(&mut self, process: Process, what: RequestKind) {
        self.served[process as usize].push(what);
    }

    /// Records a request and returns its route; none if its process is dead.
    pub(crate) fn depart(&mut self, ms: u64, life: Life, request: &Request) -> Option<Route> {
        let LifeState { process, is_dead: false, .. } = self.lives[life.0] else { return None };
        let what = RequestKind::of(request);
        let mut fate = None;
        let is_of_keeper = RequestKind::is_of_keeper(request);
        let covers = |kind: RequestKind, its: Fate| kind.covers(what) && (its != Fate::Panic || is_of_keeper);
        for (kind, left, its) in self.fates[process as usize].iter_mut().filter(|(kind, _, its)| covers(*kind, *its)) {
            *left -= 1;
            if *left == 0 && fate.is_none() {
                fate = Some((*kind, *its));
            }
        }
        self.fates[process as usize].retain(|(_, left, _)| *left > 0);
        let lasting = || self.lasting.iter().find(|(kind, its)| covers(*kind, *its)).map(|(_, its)| *its);
        let fate = fate.map(|(_, fate)| fate).or_else(lasting).unwrap_or(Fate::Answered);
        let (there, back) = (self.latency(1..=3), self.latency(0..=2));
        let (there, back) = match fate {
            Fate::Late(ms) => (there + ms, back),
            Fate::LateAnswer(ms) => (there, back + ms),
            _ => (there, back),
        };
        let number = self.trace.len();
        let method = match request.method.as_str() {
            "GET" => "GET",
            "PUT" => "PUT",
            "POST" => "POST",
            "PATCH" => "PATCH",
            _ => "DELETE",
        };
        let query = request.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("{}{query}", request.url.path());
        if is_of_keeper && self.lease.as_ref().is_some_and(|lease| lease.holder != Some(life)) {
            self.sent_by_standbys.push(format!("{method} {path} at {ms} ms"));
        }
        self.trace.push(Sent { ms, life, method, path, fate, is_of_keeper, code: None });
        Some(Route { number, process, fate, there, back, survives: self.coin() })
    }

    pub fn fail_watch(&mut self, process: Process, watched: Watched, fault: WatchFault) {
        let its = self.lives.iter_mut().rfind(|life| life.process == process && !life.is_dead);
        its.into_iter().for_each(|life| life.watch_faults.push((watched, fault)));
    }

    pub(crate) fn watch_faults(&self, life: Life) -> &[(Watched, WatchFault)] {
        &self.lives[life.0].watch_faults
    }
}
