//! What goes wrong: everything between the operator and the store that can be away, stopped, slow or wrong is so for a while.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};
use testenv::fault_proxy::Request;
use testenv::{Backup, ControlPlane, Fault, FaultProxy, History, Operator, Past, Prometheus, Proxy};
use tokio::time::sleep;

use super::asked::Period;
use crate::world::World;
use testenv::fixture::start_proxy;

/// What the history is kept of.
const KEPT: [&str; 8] = [
    "/registry/configmaps/",
    "/registry/secrets/",
    "/registry/events/",
    "/registry/pods/",
    "/registry/replicasets/",
    "/registry/statefulsets/",
    "/registry/daemonsets/",
    "/registry/magalix.com/configmonitors/",
];

/// One thing that goes wrong.
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
}

const TROUBLES: [Trouble; 13] = [
    Trouble::OperatorKilled,
    Trouble::OperatorTerminated,
    Trouble::OperatorStopped,
    Trouble::TwoOperators,
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

/// Who makes the trouble, and has the operators, their proxy and the control plane in hand for it.
pub(super) struct Nemesis<'a> {
    pub(super) control_plane: &'a mut ControlPlane,
    world: &'a World,
    proxy: Proxy,
    faults: FaultProxy,
    rng: Rng,
    operators: Vec<Operator>,
    /// What scrapes the operators, each as a pod of its own.
    prometheus: &'a Prometheus,
    /// Those that have ended, for their logs.
    ended: Vec<Operator>,
    backup: Option<(Backup, SystemTime)>,
    history: Option<History>,
    sent: Arc<Mutex<Vec<(SystemTime, Request)>>>,
    /// When one operator came after another, or there were two.
    pub(super) crowded: Vec<Period>,
    /// What a restore has undone.
    pub(super) undone: Vec<Undone>,
    pub(super) done: BTreeMap<Trouble, usize>,
}

/// All that had happened when the store was restored, of which what came after the backup is undone.
pub(super) struct Undone {
    pub(super) past: Past,
    pub(super) from: SystemTime,
    pub(super) to: SystemTime,
}

impl<'a> Nemesis<'a> {
    pub(super) async fn new(
        control_plane: &'a mut ControlPlane,
        world: &'a World,
        prometheus: &'a Prometheus,
        seed: u64,
    ) -> Result<Self> {
        let proxy = start_proxy(control_plane, &world.namespace).await;
        let faults = FaultProxy::start(&proxy.url()).await?;
        let history = control_plane.history(&KEPT, Past::default());
        let mut nemesis = Self {
            control_plane,
            world,
            operators: Vec::new(),
            prometheus,
            proxy,
            faults,
            rng: Rng::with_seed(seed),
            ended: Vec::new(),
            backup: None,
            history: Some(history),
            undone: Vec::new(),
            sent: Arc::default(),
            crowded: Vec::new(),
            done: BTreeMap::new(),
        };
        nemesis.rule(|_| Fault::None);
        nemesis.start_operator().await?;
        Ok(nemesis)
    }

    /// From now on this decides what becomes of each request.
    fn rule(&self, mut rule: impl FnMut(&Request) -> Fault + Send + 'static) {
        let sent = Arc::clone(&self.sent);
        self.faults.rule(move |request| {
            sent.lock().unwrap().push((SystemTime::now(), request.clone()));
            rule(request)
        });
    }

    /// What all operators have sent so far, and when.
    pub(super) fn sent(&self) -> Vec<(SystemTime, Request)> {
        self.sent.lock().unwrap().clone()
    }

    /// Every trouble once, in some order.
    pub(super) async fn round(&mut self) -> Result<()> {
        if self.backup.is_none() {
            self.back_up().await?;
        }
        let mut deck = TROUBLES;
        self.rng.shuffle(&mut deck);
        for trouble in deck {
            self.make(trouble).await.with_context(|| format!("{trouble:?}"))?;
            *self.done.entry(trouble).or_default() += 1;
            self.pause(500..1500).await;
        }
        Ok(())
    }

    /// Sees to it that what all of this rests on goes on, without an end.
    pub(super) async fn tend(&mut self) -> anyhow::Error {
        loop {
            if let Err(error) = self.control_plane.start_what_has_ended() {
                return error;
            }
            self.pause(500..1500).await;
        }
    }

    async fn make(&mut self, trouble: Trouble) -> Result<()> {
        match trouble {
            Trouble::OperatorKilled => {
                let from = SystemTime::now();
                self.kill_operator(0);
                self.pause(0..1500).await;
                self.start_operator().await?;
                self.crowded.push((from, SystemTime::now()));
            }
            Trouble::OperatorTerminated => {
                let from = SystemTime::now();
                let mut operator = self.operators.remove(0);
                let status = operator.terminate().await?;
                ensure!(status.success(), "the operator ended with {status}");
                self.ended.push(operator);
                self.start_operator().await?;
                self.crowded.push((from, SystemTime::now()));
            }
            Trouble::OperatorStopped => {
                self.operators[0].process().pause()?;
                self.pause(1000..4000).await;
                self.operators[0].process().resume()?;
            }
            Trouble::TwoOperators => {
                let from = SystemTime::now();
                self.start_operator().await?;
                self.pause(2000..4000).await;
                let either = self.rng.usize(..2);
                self.kill_operator(either);
                self.crowded.push((from, SystemTime::now()));
            }
            Trouble::ProxyKilled => {
                self.proxy.kill();
                self.pause(0..2000).await;
                self.proxy.start_again().await?;
            }
            Trouble::ProxyStopped => {
                self.proxy.pause()?;
                self.pause(1000..4000).await;
                self.proxy.resume()?;
            }
            Trouble::ApiServerKilled => {
                self.control_plane.kill_api_server();
                self.pause(0..1500).await;
                self.control_plane.start_api_server().await?;
            }
            Trouble::StoreRestarted => self.back_up().await?,
            Trouble::StoreRestored => self.restore().await?,
            Trouble::ConnectionsCut | Trouble::RequestsLate | Trouble::WritesOrphaned | Trouble::ErrorsAnswered => {
                let mut rng = self.rng.fork();
                self.rule(move |request| fault(trouble, request, &mut rng));
                self.pause(1500..4000).await;
                self.rule(|_| Fault::None);
            }
        }
        Ok(())
    }

    async fn back_up(&mut self) -> Result<()> {
        self.backup = Some((self.control_plane.back_up().await?, SystemTime::now()));
        Ok(())
    }

    async fn restore(&mut self) -> Result<()> {
        let (backup, from) = self.backup.take().context("no backup was made")?;
        // Nobody restores a store within the second after which the operator first tries again. It would take what answers for
        // the one that it knew, until it lists again after ten minutes.
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

    async fn start_operator(&mut self) -> Result<()> {
        self.operators.push(self.world.operator_behind(&self.faults.url()));
        let (first, mut targets) = (self.ended.len(), Vec::new());
        for (number, operator) in self.operators.iter().enumerate() {
            let pod = format!("operator-{}", first + number);
            targets.push((operator.url().await?, json!({"namespace": self.world.namespace, "pod": pod})));
        }
        self.prometheus.scrape(&targets)
    }

    /// Ends every operator, and starts another one under which nothing goes wrong any more. Since when it is the only one, and its pod.
    pub(super) async fn begin_anew(&mut self) -> Result<(SystemTime, String)> {
        for mut operator in std::mem::take(&mut self.operators) {
            operator.terminate().await?;
            self.ended.push(operator);
        }
        let since = SystemTime::now();
        self.start_operator().await?;
        Ok((since, format!("operator-{}", self.ended.len())))
    }

    fn kill_operator(&mut self, at: usize) {
        let mut operator = self.operators.remove(at);
        operator.kill();
        self.ended.push(operator);
    }

    async fn pause(&mut self, millis: Range<u64>) {
        sleep(Duration::from_millis(self.rng.u64(millis))).await;
    }

    /// What has happened so far. Nothing is written down after that.
    pub(super) async fn past(&mut self) -> Result<Past> {
        let marker = self.world.create("configmaps", json!({"metadata": {"generateName": "marker-"}})).await;
        let revision = marker["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
        let history = self.history.take().context("the history has ended")?;
        history.reach(revision).await?;
        Ok(history.end())
    }

    /// The log lines of all operators that `matches`, each after the number of its operator.
    pub(super) fn log(&self, matches: impl Fn(&Value) -> bool) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for (number, operator) in self.ended.iter().chain(&self.operators).enumerate() {
            lines.extend(operator.log()?.iter().filter(|line| matches(line)).map(|line| format!("{number} {line}")));
        }
        Ok(lines)
    }
}

/// What becomes of a request in this trouble.
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

/// An answer that is none of the object that was asked for.
struct Error {
    head: &'static str,
    body: &'static str,
}

/// Answers with which something is not as it should be. None says that an object does not exist, which would be a lie.
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
