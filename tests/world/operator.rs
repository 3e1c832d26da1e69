//! One process of the operator. It mirrors `controller::keeper` request by request (and `restart.rs` here `controller::restart`),
//! and leaves to the pure core whatever is decided. What it holds in memory is gone when it crashes: then this future is dropped.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use configmonitor_operator::kube::ResourceVersion;
use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::decide::{Content, Decision, Look, Quiet, decide, observe};
use configmonitor_operator::monitor::report::{Situation, report};
use configmonitor_operator::monitor::spec::Policy;
use configmonitor_operator::monitor::status::Status;
use serde_json::value::to_raw_value;

use crate::api::Failure;
use crate::line::{Doorbell, Fate, Goal, Line};
use crate::restart::Rollout;
use crate::world::Monitor;

/// After a failure, a keeper waits so long. The real one waits longer every time.
pub(crate) const BACKOFF: Duration = Duration::from_secs(1);

/// A process that runs.
pub(crate) struct Operator {
    pub(crate) line: Rc<Line>,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Operator {
    pub(crate) fn start(line: Line) -> Self {
        let line = Rc::new(line);
        let future = Box::pin(Keeper::new(Rc::clone(&line)).run());
        Self { line, future }
    }

    /// Makes the next request, if there is one to be made, with this fate. Whether there was.
    pub(crate) fn step(&mut self, fate: Fate) -> bool {
        self.line.listen();
        self.line.destine(Some(fate));
        let _ = self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.line.listen();
        self.line.destine(None)
    }
}

/// The memory of a keeper.
pub(crate) struct Keeper {
    pub(crate) line: Rc<Line>,
    pub(crate) record: Option<Monitor>,
    generation: i64,
    look: Option<Look>,
    doubtful: bool,
    noted: Option<ResourceVersion>,
    listed: u64,
    source: String,
    heard: Doorbell,
    quiet: Option<Quiet>,
    pub(crate) rollout: Option<Rollout>,
    failing: bool,
}

pub(crate) enum Wake {
    At(Option<Instant>),
    Again,
}

impl Keeper {
    fn new(line: Rc<Line>) -> Self {
        Self {
            line,
            record: None,
            generation: 0,
            look: None,
            doubtful: false,
            noted: None,
            listed: 0,
            source: String::new(),
            heard: Doorbell::Silent,
            quiet: None,
            rollout: None,
            failing: false,
        }
    }

    async fn run(mut self) {
        loop {
            let goal = self.line.goal();
            let wake = match self.step(&goal).await {
                Ok(Wake::Again) => continue,
                Ok(Wake::At(wake)) => {
                    self.failing = false;
                    self.line.rested();
                    wake
                }
                Err(failure) => Some(self.failed(failure).await),
            };
            let pods = self.rollout.as_ref().and_then(|rollout| rollout.watched).filter(|_| !self.failing);
            let until = wake.map(|wake| self.line.ms(wake));
            Rc::clone(&self.line).sleep(&goal, until, pods).await;
        }
    }

    async fn failed(&mut self, failure: Failure) -> Instant {
        let first = !std::mem::replace(&mut self.failing, true);
        if let (Failure::Forbidden, Some(record)) = (failure, &self.record) {
            let status = record.status.clone();
            let _ = self.settle(status, &Situation::Forbidden("a right is missing")).await;
        }
        let now = self.line.now();
        if failure == Failure::Conflict && first { now } else { now + BACKOFF }
    }

    async fn step(&mut self, goal: &Goal) -> Result<Wake, Failure> {
        let record = self.take_record(goal).await?;
        let (policy, mut status) = (Policy::of(Some(&to_raw_value(&record.spec).unwrap())), record.status.clone());
        self.record = Some(record);
        let policy = match policy {
            Ok(policy) => policy,
            Err(text) => {
                self.hold();
                self.look = None;
                self.source.clear();
                self.settle(status, &Situation::InvalidSpec(&text)).await?;
                return Ok(Wake::At(None));
            }
        };
        let look = self.look(&policy, goal).await?;
        let (now, mut quiet) = (self.line.now(), self.quiet);
        match &look {
            Look::Found(content) => {
                let observed = observe(&policy, &status, quiet, content, now).unwrap();
                (status, quiet) = (observed.status, observed.quiet);
            }
            Look::Missing if !status.is_baselined() => status.source = Some(policy.source()),
            Look::Missing => {}
        }
        let decision = decide(&policy, &status, &look, quiet, now);
        let wake = self.act(&policy, status, decision).await?;
        if matches!(wake, Wake::At(_)) {
            self.quiet = quiet;
        }
        Ok(wake)
    }

    async fn act(&mut self, policy: &Policy, status: Status, decision: Decision) -> Result<Wake, Failure> {
        let superseded = status.restart.as_ref().is_some_and(|restart| restart.superseded.is_some());
        match &decision {
            Decision::Resume(..) => {}
            Decision::Missing | Decision::Suspended => self.hold(),
            Decision::Quiet(_) if superseded => self.hold(),
            Decision::Settled | Decision::Quiet(_) | Decision::Begin(_) => self.rollout = None,
        }
        let (situation, wake) = match decision {
            Decision::Settled => (Situation::UpToDate, None),
            Decision::Missing => (Situation::ConfigMapNotFound(&policy.config_map), None),
            Decision::Suspended => (Situation::Suspended, None),
            Decision::Quiet(until) => (Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() }, Some(until)),
            Decision::Begin(restart) => return self.begin(policy, status, restart).await,
            Decision::Resume(restart, begun) => return self.resume(policy, status, restart, begun).await,
        };
        self.settle(status, &situation).await?;
        Ok(Wake::At(wake))
    }

    fn hold(&mut self) {
        if let Some(rollout) = &mut self.rollout {
            rollout.watched = None;
        }
    }

    async fn take_record(&mut self, goal: &Goal) -> Result<Monitor, Failure> {
        let relisted = std::mem::replace(&mut self.listed, goal.listed) != goal.listed;
        if let Some(record) = self.record.take() {
            let edited = record.generation != goal.generation;
            let cleared = record.status.is_baselined() && !goal.baselined;
            let another = relisted && goal.listed != record.version;
            if !edited && !cleared && !another {
                return Ok(record);
            }
        }
        self.read_record().await
    }

    pub(crate) async fn read_record(&mut self) -> Result<Monitor, Failure> {
        let record = self.line.ask(|world| Ok(world.get_monitor())).await?;
        let generation = std::mem::replace(&mut self.generation, record.generation);
        let named = record.status.source_resource_version.clone();
        let noted = std::mem::replace(&mut self.noted, named.clone());
        let differs = matches!((&self.look, &named), (Some(Look::Found(own)), Some(other)) if own.version != *other);
        let disputed = named != noted && differs;
        self.doubtful |= generation != self.generation || disputed || !record.status.is_baselined();
        Ok(record)
    }

    async fn look(&mut self, policy: &Policy, goal: &Goal) -> Result<Look, Failure> {
        let before = self.look.clone().filter(|_| self.source == policy.source());
        if let Some(look) = before.clone().filter(|_| !self.doubtful) {
            let known = match (&look, &goal.doorbell) {
                (_, doorbell) if *doorbell == self.heard => true,
                (Look::Found(content), Doorbell::At(version)) => content.version == *version,
                (Look::Missing, Doorbell::Gone) => true,
                _ => false,
            };
            if known {
                self.heard = goal.doorbell.clone();
                return Ok(look);
            }
        }
        self.doubtful = true;
        let look = match self.line.ask(|world| world.get_config_map(&policy.config_map)).await {
            Ok((config_map, at)) => {
                let version = config_map.metadata.resource_version.clone();
                let (hash, first) = (ContentHash::of(&config_map, policy.keys.as_ref()), before.is_none());
                match before {
                    Some(Look::Found(content)) if content.version == version => Look::Found(content),
                    _ => Look::Found(Content { hash, version, at, first }),
                }
            }
            Err(Failure::NotFound) => Look::Missing,
            Err(failure) => return Err(failure),
        };
        self.doubtful = false;
        self.heard = goal.doorbell.clone();
        self.source = policy.source();
        self.look = Some(look.clone());
        Ok(look)
    }

    pub(crate) async fn settle(&mut self, mut status: Status, situation: &Situation<'_>) -> Result<Status, Failure> {
        let record = self.record.take().ok_or(Failure::Conflict)?;
        let now = self.line.world.borrow().second();
        report(situation, &mut status, record.generation, now);
        let record = if status == record.status {
            record
        } else {
            self.line.ask(|world| world.put_status(record.version, &status)).await?
        };
        let status = record.status.clone();
        self.noted.clone_from(&status.source_resource_version);
        self.record = Some(record);
        Ok(status)
    }
}
