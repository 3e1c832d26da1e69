//! The faults: everything between the operator and the store is unavailable, stopped, slow or wrong for a while.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};
use testenv::fault_proxy::Request;
use testenv::{Backup, ControlPlane, Fault, FaultProxy, History, Operator, Past, Proxy};
use tokio::time::sleep;

use super::leaders::{Sent, Term};
use crate::leader::LOST;
use crate::test_namespace::TestNamespace;
use testenv::fixture::start_proxy;
use testenv::operator::message;

const KEPT: [&str; 5] = [
    "/registry/configmaps/",
    "/registry/secrets/",
    "/registry/events/",
    "/registry/pods/",
    "/registry/magalix.com/configmonitors/",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    OperatorKilled,
    OperatorTerminated,
    OperatorStopped,
    TwoOperators,
    ProxyKilled,
    ProxyStopped,
    ApiServerKilled,
    StoreRestarted,
    StoreRestored,
    ConnectionsCut,
    RequestsLate,
    WritesOrphaned,
    ErrorsAnswered,
    CutOff,
    LeaseDeleted,
}

/// The faults of an operator, with or without replicas.
const OF_OPERATOR: [Trouble; 3] = [Trouble::OperatorKilled, Trouble::OperatorTerminated, Trouble::OperatorStopped];
/// The fault that happens only if each operator acts.
const OF_EQUALS: [Trouble; 1] = [Trouble::TwoOperators];
/// The faults that happen only to two replicas that elect a leader. There are always two operators then.
const OF_REPLICAS: [Trouble; 2] = [Trouble::CutOff, Trouble::LeaseDeleted];
const OF_OTHERS: [Trouble; 9] = [
    Trouble::ProxyKilled,
    Trouble::ProxyStopped,
    Trouble::ApiServerKilled,
    Trouble::StoreRestarted,
    Trouble::StoreRestored,
    Trouble::ConnectionsCut,
    Trouble::RequestsLate,
    Trouble::WritesOrphaned,
    Trouble::ErrorsAnswered,
];

/// A leader that is stopped or cut off for this time, in milliseconds, loses the Lease to the standby.
const LONG: Range<u64> = 16_000..20_000;
/// The time within which a leader observes that another process has taken a deleted Lease.
const LEASE_HEARD_WITHIN: Duration = Duration::from_secs(5);
/// Requests that a stopped proxy held back have been answered this long after the proxy resumes.
const HELD_BACK: Duration = Duration::from_secs(1);

/// An operator's route to the API server.
struct Route {
    proxy: Proxy,
    faults: FaultProxy,
}

struct Running {
    operator: Operator,
    route: usize,
    pod_uid: String,
    started: SystemTime,
}

/// The source of all faults, which owns the operators, their proxies and the control plane.
pub(super) struct Nemesis<'a> {
    pub(super) control_plane: &'a mut ControlPlane,
    ns: &'a TestNamespace,
    /// One route for each replica: a replica is cut off alone, and its requests are distinguished from the other's.
    routes: Vec<Route>,
    rng: Rng,
    operators: Vec<Running>,
    /// The operators that have ended, and when, for their logs.
    ended: Vec<(Running, SystemTime)>,
    pods: usize,
    backup: Option<(Backup, SystemTime)>,
    history: Option<History>,
    sent: Arc<Mutex<Vec<Sent>>>,
    /// The pasts that restores have undone.
    pub(super) undone: Vec<Undone>,
    pub(super) done: BTreeMap<Trouble, usize>,
}

/// The history up to a restore, whose part after the backup is undone.
pub(super) struct Undone {
    pub(super) past: Past,
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
}

impl<'a> Nemesis<'a> {
    /// Creates the nemesis. Two replicas elect a leader.
    pub(super) async fn new(
        control_plane: &'a mut ControlPlane,
        ns: &'a TestNamespace,
        seed: u64,
        replicas: usize,
    ) -> Result<Self> {
        let mut routes = Vec::new();
        for _ in 0..replicas {
            let proxy = start_proxy(control_plane, &ns.namespace).await;
            routes.push(Route { faults: FaultProxy::start(&proxy.url()).await?, proxy });
        }
        let history = control_plane.history(&KEPT, Past::default());
        let mut nemesis = Self {
            control_plane,
            ns,
            routes,
            rng: Rng::with_seed(seed),
            operators: Vec::new(),
            ended: Vec::new(),
            pods: 0,
            backup: None,
            history: Some(history),
            undone: Vec::new(),
            sent: Arc::default(),
            done: BTreeMap::new(),
        };
        nemesis.rule(|| |_| Fault::None);
        for route in 0..replicas {
            nemesis.start_operator(route, None).await?;
        }
        Ok(nemesis)
    }

    fn rule<R: FnMut(&Request) -> Fault + Send + 'static>(&self, mut rule: impl FnMut() -> R) {
        for (number, route) in self.routes.iter().enumerate() {
            let (sent, mut rule) = (Arc::clone(&self.sent), rule());
            route.faults.rule(move |request| {
                sent.lock().unwrap().push(Sent { at: SystemTime::now(), route: number, request: request.clone() });
                rule(request)
            });
        }
    }

    pub(super) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    pub(super) fn elects(&self) -> bool {
        self.routes.len() > 1
    }

    /// Causes every fault once, in random order.
    pub(super) async fn round(&mut self) -> Result<()> {
        if self.backup.is_none() {
            self.back_up().await?;
        }
        let own = if self.elects() { &OF_REPLICAS[..] } else { &OF_EQUALS };
        let mut deck = [&OF_OPERATOR[..], own, &OF_OTHERS].concat();
        self.rng.shuffle(&mut deck);
        for trouble in deck {
            self.start_what_has_ended().await?;
            self.make(trouble).await.with_context(|| format!("{trouble:?}"))?;
            *self.done.entry(trouble).or_default() += 1;
            self.pause(500..1500).await;
        }
        Ok(())
    }

    /// Keeps the control plane running, without an end.
    pub(super) async fn tend(&mut self) -> anyhow::Error {
        loop {
            let started = match self.control_plane.start_what_has_ended() {
                Ok(()) => self.start_what_has_ended().await,
                failed => failed,
            };
            if let Err(error) = started {
                return error;
            }
            self.pause(500..1500).await;
        }
    }

    async fn make(&mut self, trouble: Trouble) -> Result<()> {
        match trouble {
            Trouble::OperatorKilled => {
                let victim = self.victim();
                let (route, pod_uid) = self.kill_operator(victim);
                self.pause(0..1500).await;
                let pod_uid = self.next_pod_uid(pod_uid);
                self.start_operator(route, pod_uid).await?;
            }
            Trouble::OperatorTerminated => {
                let victim = self.victim();
                let mut running = self.operators.remove(victim);
                let status = running.operator.terminate().await?;
                ensure!(status.success() || self.has_lost(&running)?, "the operator ended with {status}");
                let (route, pod_uid) = self.has_ended(running);
                let pod_uid = self.next_pod_uid(pod_uid);
                self.start_operator(route, pod_uid).await?;
            }
            Trouble::OperatorStopped => {
                let victim = self.victim();
                self.operators[victim].operator.process().pause()?;
                self.pause(if self.elects() { LONG } else { 1000..4000 }).await;
                self.operators[victim].operator.process().resume()?;
            }
            Trouble::TwoOperators => {
                self.start_operator(0, None).await?;
                self.pause(2000..4000).await;
                let either = self.rng.usize(..2);
                self.kill_operator(either);
            }
            Trouble::ProxyKilled => self.kill_proxy(0..2000).await?,
            Trouble::ProxyStopped => self.stop_proxy(1000..4000).await?,
            Trouble::ApiServerKilled => {
                self.control_plane.kill_api_server();
                self.pause(0..1500).await;
                self.control_plane.start_api_server().await?;
            }
            Trouble::StoreRestarted => self.back_up().await?,
            Trouble::StoreRestored => self.restore().await?,
            Trouble::ConnectionsCut | Trouble::RequestsLate | Trouble::WritesOrphaned | Trouble::ErrorsAnswered => {
                let mut rng = self.rng.fork();
                self.rule(|| {
                    let mut rng = rng.fork();
                    move |request: &Request| fault(trouble, request, &mut rng)
                });
                self.pause(1500..4000).await;
                self.rule(|| |_| Fault::None);
            }
            Trouble::CutOff if self.rng.bool() => self.kill_proxy(LONG).await?,
            Trouble::CutOff => {
                self.stop_proxy(LONG).await?;
                sleep(HELD_BACK).await;
            }
            Trouble::LeaseDeleted => {
                let lease = self.ns.path("leases", "configmonitor-operator");
                let deleted = self.ns.client.delete(&lease).await?;
                ensure!(matches!(deleted.status, 200 | 404), "the Lease stays: {}", deleted.body);
                sleep(LEASE_HEARD_WITHIN).await;
            }
        }
        Ok(())
    }

    async fn kill_proxy(&mut self, millis: Range<u64>) -> Result<()> {
        let victim = self.victim();
        let route = self.operators[victim].route;
        self.routes[route].proxy.kill();
        self.pause(millis).await;
        self.routes[route].proxy.start_again().await
    }

    async fn stop_proxy(&mut self, millis: Range<u64>) -> Result<()> {
        let victim = self.victim();
        let route = self.operators[victim].route;
        self.routes[route].proxy.pause()?;
        self.pause(millis).await;
        self.routes[route].proxy.resume()
    }

    async fn back_up(&mut self) -> Result<()> {
        self.backup = Some((self.control_plane.back_up().await?, SystemTime::now()));
        Ok(())
    }

    async fn restore(&mut self) -> Result<()> {
        let (backup, from) = self.backup.take().context("no backup was made")?;
        // Nobody restores a store within the second before the operator's first retry. It would take the restored store
        // for the one that it knew, until it lists again after ten minutes.
        self.control_plane.kill_api_server();
        let to = SystemTime::now();
        self.pause(1000..2000).await;
        let past = self.history.take().map(History::end).unwrap_or_default();
        let mut kept = past.clone();
        kept.rewind(backup.revision);
        self.undone.push(Undone { past, from, to });
        self.control_plane.restore(&backup).await?;
        self.history = Some(self.control_plane.history(&KEPT, kept));
        Ok(())
    }

    /// Starts an operator on a route, in this pod or in a new one.
    async fn start_operator(&mut self, route: usize, pod_uid: Option<String>) -> Result<()> {
        let pod_uid = pod_uid.unwrap_or_else(|| {
            self.pods += 1;
            format!("pod-{}", self.pods)
        });
        let args = ["--surge", "--leader-elect", "--pod-namespace", &self.ns.namespace, "--pod-uid", &pod_uid];
        let args = if self.elects() { &args[..] } else { &args[..1] };
        let started = SystemTime::now();
        let operator = self.ns.operator_at(&self.routes[route].faults.url(), args);
        self.operators.push(Running { operator, route, pod_uid, started });
        Ok(())
    }

    /// Ends every operator, and starts another one that meets no more faults.
    pub(super) async fn begin_anew(&mut self) -> Result<()> {
        for mut running in std::mem::take(&mut self.operators) {
            running.operator.terminate().await?;
            self.ended.push((running, SystemTime::now()));
        }
        self.start_operator(0, None).await
    }

    fn kill_operator(&mut self, at: usize) -> (usize, String) {
        let mut running = self.operators.remove(at);
        running.operator.kill();
        self.has_ended(running)
    }

    fn has_ended(&mut self, running: Running) -> (usize, String) {
        let place = (running.route, running.pod_uid.clone());
        self.ended.push((running, SystemTime::now()));
        place
    }

    /// Returns the pod of a replica that starts again: a kubelet starts a container in the same pod, a controller
    /// creates a new pod.
    fn next_pod_uid(&mut self, pod_uid: String) -> Option<String> {
        (self.elects() && self.rng.bool()).then_some(pod_uid)
    }

    /// Chooses the operator for a fault. Of two replicas it is mostly the leader.
    fn victim(&mut self) -> usize {
        if !self.elects() {
            return 0;
        }
        let leader = self.operators.iter().position(|running| leads_since(&running.operator).is_some());
        let other = self.rng.usize(..self.operators.len());
        leader.filter(|_| self.rng.u8(..4) > 0).unwrap_or(other)
    }

    /// Starts each leader again that has exited because it lost the Lease, as a kubelet would.
    async fn start_what_has_ended(&mut self) -> Result<()> {
        for at in (0..self.operators.len()).rev() {
            let Some(status) = self.operators[at].operator.process().exit_status() else { continue };
            let running = self.operators.remove(at);
            ensure!(self.has_lost(&running)?, "the operator ended with {status}");
            let (route, pod_uid) = self.has_ended(running);
            self.start_operator(route, Some(pod_uid)).await?;
        }
        Ok(())
    }

    /// Returns whether an operator has exited because it is no longer the leader.
    fn has_lost(&self, running: &Running) -> Result<bool> {
        let has_logged = running.operator.log()?.iter().any(|line| message(line) == LOST);
        let code = running.operator.process().exit_status().and_then(|status| status.code());
        Ok(self.elects() && has_logged && code == Some(1))
    }

    /// Returns all operators so far, and when each was the leader.
    pub(super) fn terms(&self) -> Vec<Term> {
        let running = self.operators.iter().map(|running| (running, SystemTime::now()));
        let all = self.ended.iter().map(|(running, at)| (running, *at)).chain(running);
        all.map(|(running, until)| Term {
            route: running.route,
            started: running.started,
            elected: leads_since(&running.operator),
            until,
        })
        .collect()
    }

    async fn pause(&mut self, millis: Range<u64>) {
        sleep(Duration::from_millis(self.rng.u64(millis))).await;
    }

    pub(super) async fn past(&mut self) -> Result<Past> {
        let marker = self.ns.create("configmaps", json!({"metadata": {"generateName": "marker-"}})).await;
        let revision = marker["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
        let history = self.history.take().context("the history has ended")?;
        history.reach(revision).await?;
        Ok(history.end())
    }

    /// Returns the log lines of all operators that `matches`, each after the number of its operator.
    pub(super) fn log(&self, matches: impl Fn(&Value) -> bool) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let all = self.ended.iter().map(|(running, _)| running).chain(&self.operators);
        for (number, running) in all.enumerate() {
            lines.extend(
                running.operator.log()?.iter().filter(|line| matches(line)).map(|line| format!("{number} {line}")),
            );
        }
        Ok(lines)
    }
}

/// Returns since when an operator is, or was, the leader.
fn leads_since(operator: &Operator) -> Option<SystemTime> {
    first_said(operator, "became leader")
}

fn first_said(operator: &Operator, text: &str) -> Option<SystemTime> {
    let log = operator.log().unwrap();
    let line = log.iter().find(|line| message(line) == text)?;
    Some(line["timestamp"].as_str().unwrap().parse::<Timestamp>().unwrap().into())
}

/// Returns the fault that a request meets.
fn fault(trouble: Trouble, request: &Request, rng: &mut Rng) -> Fault {
    let millis = |rng: &mut Rng, most| Duration::from_millis(rng.u64(..most));
    let is_write = request.method != "GET";
    match trouble {
        Trouble::RequestsLate => Fault::Late(millis(rng, 1500)),
        Trouble::WritesOrphaned if is_write && rng.bool() => Fault::Orphaned(millis(rng, 2000)),
        Trouble::ErrorsAnswered if rng.bool() => Fault::Answered(ERRORS[rng.usize(..ERRORS.len())].to_string()),
        Trouble::ConnectionsCut => match rng.u8(..6) {
            0 => Fault::CutBefore,
            1 => Fault::CutAfter,
            2 => Fault::CutWithin(rng.u64(..4000)),
            _ => Fault::None,
        },
        _ => Fault::None,
    }
}

/// An answer other than the requested object.
struct Error {
    head: &'static str,
    body: &'static str,
}

/// Failures in place of an answer. None says that an object does not exist, which would be false.
const ERRORS: [Error; 12] = [
    Error { head: "429 Too Many Requests\r\nRetry-After: 1", body: "Too many requests, please try again later.\n" },
    Error {
        head: "429 Too Many Requests",
        body: r#"{"kind":"Status","code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":1}}"#,
    },
    Error { head: "429 Too Many Requests", body: "" },
    Error { head: "500 Internal Server Error", body: "dial tcp 127.0.0.1:6443: connect: connection refused" },
    Error {
        head: "500 Internal Server Error",
        body: r#"{"kind":"Status","code":500,"reason":"InternalError","message":"etcdserver: leader changed"}"#,
    },
    Error { head: "503 Service Unavailable", body: r#"{"kind":"Status","code":503,"reason":"ServiceUnavailable"}"# },
    Error { head: "504 Gateway Timeout", body: r#"{"kind":"Status","code":504,"reason":"Timeout"}"# },
    Error {
        head: "504 Gateway Timeout",
        body: r#"{"kind":"Status","code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#,
    },
    Error {
        head: "403 Forbidden",
        body: r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"cannot do that"}"#,
    },
    Error { head: "404 Not Found", body: "404 page not found\n" },
    Error { head: "410 Gone", body: r#"{"kind":"Status","code":410,"reason":"Expired"}"# },
    Error { head: "200 OK", body: "<html>welcome</html>" },
];

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, body } = self;
        write!(f, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    }
}
