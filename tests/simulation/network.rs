//! What stands between the processes and the API server: who is alive, what is to become of which request, and what of the watches.

use std::sync::Arc;

use configmonitor_operator::kube::transport::Request;
use configmonitor_operator::metrics::Metrics;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::ledger::Life;

/// One of the two processes of the operator that there may be. There should be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    First,
    Second,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Any,
    GetConfigMap,
    GetMonitor,
    GetOwner,
    ListPods,
    ListAll,
    PutStatus,
    /// A DELETE, or an eviction.
    Delete,
    Event,
    Watch,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    /// It does not reach the API server.
    NotSent,
    /// It is served, and the connection breaks before the answer.
    AnswerLost,
    /// It is served, and nobody answers.
    NeverAnswered,
    /// It reaches the API server so many milliseconds late,
    Late(u64),
    /// or its answer the process.
    LateAnswer(u64),
    Conflict,
    /// 429, which may say for how many seconds to wait.
    Busy(Option<u32>),
    Forbidden,
    /// kubectl proxy does not reach the API server.
    ProxyError,
    /// An admission webhook fails, or another part of the API server.
    Refused,
    /// An admission webhook denies it with this code, if it is a write.
    Denied(u16),
    /// The API server gives up on it, after it was served.
    Timeout,
    /// It is served, and the answer breaks off.
    Truncated,
    CrashBefore,
    CrashAfter,
    /// The keeper that sends it panics. Requests of the two main watches are left out.
    Panic,
}

/// What a watch is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    ConfigMaps,
    Monitors,
    Pods,
}

/// What befalls a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    /// Nothing comes any more, and nobody can tell.
    Stall,
    /// It ends where it may end,
    End,
    /// or breaks off within a line.
    Break,
    /// The API server has forgotten the version.
    Expire,
    /// The next event does not come, and nobody can tell.
    Miss,
}

/// A process that runs.
pub(crate) struct Running {
    pub(crate) life: Life,
    pub(crate) task: AbortHandle,
    pub(crate) stop: CancellationToken,
}

/// A request that was sent, for a person.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) ms: u64,
    pub(crate) life: Life,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) fate: Fate,
    /// Whether a keeper sent it, and not one of the two main watches.
    pub(crate) is_of_keeper: bool,
    /// The code of the answer, if there was one.
    pub(crate) code: Option<u16>,
}

/// The way that a request takes.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// Its place in the trace.
    pub(crate) number: usize,
    pub(crate) process: Process,
    pub(crate) fate: Fate,
    /// Milliseconds until it is served, and from then to the answer.
    pub(crate) there: u64,
    pub(crate) back: u64,
    /// It is served even if the process is dead by then.
    pub(crate) survives: bool,
}

/// All lines.
pub(crate) struct Network {
    rng: fastrand::Rng,
    lives: Vec<LifeState>,
    pub(crate) running: [Option<Running>; 2],
    fates: [Vec<(RequestKind, u32, Fate)>; 2],
    lasting: Vec<(RequestKind, Fate)>,
    served: [Vec<RequestKind>; 2],
    /// No page of a list has more objects.
    pub(crate) page: usize,
    pub(crate) trace: Vec<Sent>,
    /// Those of each life.
    pub(crate) metrics: Vec<Arc<Metrics>>,
    /// None if each process acts.
    pub(crate) lease: Option<Lease>,
    /// What processes have sent that were not the leader, but for their main watches.
    pub(crate) sent_by_standbys: Vec<String>,
}

/// Who the leader is.
#[derive(Default)]
pub(crate) struct Lease {
    holder: Option<Life>,
    /// Without a holder: from when on somebody may be, in milliseconds.
    free_from: u64,
}

impl Lease {
    /// Whether this life is the leader, or is from now on.
    pub(crate) fn is_held_by(&mut self, life: Life, ms: u64) -> bool {
        if self.holder.is_none() && self.free_from <= ms {
            self.holder = Some(life);
        }
        self.holder == Some(life)
    }

    /// This life does not hold it any more, and from then on somebody else may.
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
            ("GET", "configmaps") if named => Self::GetConfigMap,
            ("GET", "configmonitors") if named => Self::GetMonitor,
            ("GET", "pods") => Self::ListPods,
            ("GET", _) if named => Self::GetOwner,
            ("GET", _) => Self::ListAll,
            ("PUT", _) => Self::PutStatus,
            ("POST", "events") => Self::Event,
            _ => Self::Delete,
        }
    }

    /// Whether a keeper sends it, and not one of the two main watches.
    fn is_of_keeper(request: &Request) -> bool {
        match Self::of(request) {
            Self::ListAll => false,
            Self::Watch => request.url.path().ends_with("/pods"),
            _ => true,
        }
    }

    /// Whether it goes through admission.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::PutStatus | Self::Delete | Self::Event)
    }

    fn covers(self, other: Self) -> bool {
        self == Self::Any || self == other
    }
}

impl Network {
    pub(crate) fn new(seed: u64, page: usize) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            lives: Vec::new(),
            running: [None, None],
            fates: [Vec::new(), Vec::new()],
            lasting: Vec::new(),
            served: [Vec::new(), Vec::new()],
            page,
            trace: Vec::new(),
            metrics: Vec::new(),
            lease: None,
            sent_by_standbys: Vec::new(),
        }
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.rng.bool()
    }

    /// Milliseconds that something takes on the way.
    pub(crate) fn latency(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        self.rng.u64(range)
    }

    /// A process begins its life.
    pub(crate) fn begin_life(&mut self, process: Process) -> Life {
        self.lives.push(LifeState { process, is_dead: false, watch_faults: Vec::new() });
        Life(self.lives.len() - 1)
    }

    /// From now on nothing that this life sends, and nothing that it is answered, counts.
    pub(crate) fn end_life(&mut self, life: Life) {
        self.lives[life.0].is_dead = true;
    }

    pub(crate) fn is_dead(&self, life: Life) -> bool {
        self.lives[life.0].is_dead
    }

    /// The n-th request of this kind from now on meets this fate.
    pub(crate) fn set_fate(&mut self, process: Process, what: RequestKind, nth: u32, fate: Fate) {
        self.fates[process as usize].push((what, nth.max(1), fate));
    }

    /// From now on all requests of this kind meet this fate, or none does.
    pub(crate) fn set_lasting_fate(&mut self, what: RequestKind, fate: Option<Fate>) {
        self.lasting.retain(|(before, _)| *before != what);
        self.lasting.extend(fate.map(|fate| (what, fate)));
    }

    /// All goes as it should from now on.
    pub(crate) fn heal(&mut self) {
        self.fates.iter_mut().for_each(Vec::clear);
        self.lasting.clear();
    }

    /// How many requests of this kind were served to a process.
    pub(crate) fn served(&self, process: Process, what: RequestKind) -> usize {
        self.served[process as usize].iter().filter(|served| what.covers(**served)).count()
    }

    pub(crate) fn has_served(&mut self, process: Process, what: RequestKind) {
        self.served[process as usize].push(what);
    }

    /// What becomes of this request; none if its process is dead.
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

    /// What befalls the watches of a process from now on.
    pub(crate) fn fail_watch(&mut self, process: Process, watched: Watched, fault: WatchFault) {
        if let Some(running) = &self.running[process as usize] {
            self.lives[running.life.0].watch_faults.push((watched, fault));
        }
    }

    /// The orders to a life so far.
    pub(crate) fn watch_faults(&self, life: Life) -> &[(Watched, WatchFault)] {
        &self.lives[life.0].watch_faults
    }
}
