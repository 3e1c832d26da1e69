//! The keeper of one ConfigMonitor: it owns the record, looks at the ConfigMap when the doorbell rings, asks for a decision
//! and carries it out. One task; nothing of it is shared.
//!
//! It deletes no pod itself (see `restart.rs`) and writes no status but as a compare-and-swap on the record.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, watch};

use super::index::Goal;
use super::pods::{Restarts, Rollout, Turn};
use super::reading::Reading;
use super::record::Record;
use super::timer_now;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::ConfigMonitor;
use crate::monitor::decide::{Decision, Look, Quiet, decide, observe};
use crate::monitor::report::{Situation, report};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Restart, Status};

/// What a keeper does after a step.
#[derive(Debug, PartialEq)]
pub(super) enum Wake {
    /// Step again when something changes, or at this time.
    At(Option<Instant>),
    /// Step again at once: what was decided may not hold any more.
    Again,
    /// Step again when it is its turn to make a pass. That may take a while, so that everything must be looked at anew then: the spec
    /// may be another one.
    InTurn,
    /// End: the ConfigMonitor is gone.
    Never,
}

/// The keeper of one ConfigMonitor.
pub(super) struct Keeper {
    pub(super) client: Client,
    pub(super) restarts: Arc<Restarts>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    goal: watch::Receiver<Goal>,
    /// The ConfigMonitor as last read; absent when it must be read again.
    pub(super) record: Option<Record>,
    generation: i64,
    /// The ConfigMap as last read.
    pub(super) reading: Option<Reading>,
    /// It must be read again, whatever the doorbell says.
    doubtful: bool,
    /// Which version of it the status last named.
    noted: Option<ResourceVersion>,
    /// The version of the ConfigMonitor in the last list that was heard of.
    listed: Option<ResourceVersion>,
    quiet: Option<Quiet>,
    /// The restart under way, as far as this process knows it. Boxed, as most keepers have none.
    pub(super) rollout: Option<Box<Rollout>>,
    /// The right to make a pass, between waiting for it and making that.
    pub(super) turn: Option<Turn>,
    pub(super) faults: Faults,
    /// The right to be awake.
    pub(super) awake: Option<OwnedSemaphorePermit>,
}

impl Keeper {
    /// A keeper of the ConfigMonitor `name` with this identity, that reads it before it does anything.
    pub(super) fn new(
        client: Client,
        restarts: Arc<Restarts>,
        name: Arc<str>,
        uid: Uid,
        goal: watch::Receiver<Goal>,
    ) -> Self {
        Self {
            client,
            restarts,
            name,
            uid,
            goal,
            record: None,
            generation: 0,
            reading: None,
            doubtful: false,
            noted: None,
            listed: None,
            quiet: None,
            rollout: None,
            turn: None,
            faults: Faults::default(),
            awake: None,
        }
    }

    /// The name of the ConfigMonitor.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Spares the first reading.
    pub(super) fn with_record(mut self, monitor: ConfigMonitor) -> Self {
        self.generation = monitor.metadata.generation;
        self.record = Record::of(monitor).ok();
        self.note();
        self
    }

    /// Keeps until the client is stopped or the ConfigMonitor is gone.
    ///
    /// There may be thousands of keepers, and most of them rest. So whatever takes room is boxed, and only so many are awake at a time.
    pub(super) async fn run(mut self: Box<Self>) {
        loop {
            // Whoever has the turn, which is one, holds up others.
            if self.turn.is_none() && !Box::pin(self.queue()).await {
                return;
            }
            let wake = Box::pin(self.wake()).await;
            self.awake = None;
            match wake {
                Wake::Again => {}
                Wake::InTurn => match Box::pin(self.client.stop().run_until_cancelled(self.restarts.next_turn())).await
                {
                    Some(turn) => self.turn = Some(turn),
                    None => return,
                },
                Wake::Never => return,
                Wake::At(until) => {
                    self.turn = None;
                    if !self.sleep(until).await {
                        return;
                    }
                }
            }
        }
    }

    /// Goes to the end of the queue of those who want to be awake, and waits until it has come to the front; false when there is no more
    /// to do.
    pub(super) async fn queue(&mut self) -> bool {
        self.awake = None;
        self.awake = self.client.stop().run_until_cancelled(self.restarts.waken()).await.flatten();
        self.awake.is_some()
    }

    /// Makes a step, and sees to what fails in it.
    async fn wake(&mut self) -> Wake {
        match self.step().await {
            Ok(wake) => {
                if matches!(wake, Wake::At(_)) {
                    self.recovered();
                }
                wake
            }
            Err(error) if error.cause == Cause::Stopped => Wake::Never,
            Err(error) => Wake::At(Some(timer_now() + self.failed(&error).await)),
        }
    }

    /// Waits for something to do; false when there will be nothing any more, as nobody sets goals.
    async fn sleep(&mut self, until: Option<Instant>) -> bool {
        let timer = async {
            match until {
                Some(until) => Box::pin(tokio::time::sleep_until(until.into())).await,
                None => std::future::pending().await,
            }
        };
        let pods = async {
            match &mut self.rollout {
                Some(rollout) => Box::pin(rollout.worth_a_pass(&self.client)).await,
                None => std::future::pending().await,
            }
        };
        let failing = self.faults.is_failing();
        let watched = tokio::select! {
            biased;
            changed = self.goal.changed() => return changed.is_ok(),
            () = timer => return true,
            watched = pods, if !failing => watched,
        };
        if let Err(error) = watched {
            self.not_watched(&error);
        }
        true
    }

    /// Looks at what is new, decides and acts, once.
    async fn step(&mut self) -> Result<Wake, Error> {
        let goal = self.goal.borrow_and_update().clone();
        let Some(Record { monitor, status }) = self.take_record(&goal).await? else {
            return Ok(Wake::Never);
        };
        let policy = Policy::of(monitor.spec.as_deref());
        let before = status.clone();
        self.record = Some(Record { monitor, status });
        let policy = match policy {
            Ok(policy) => policy,
            Err(text) => {
                self.hold();
                // Nothing is looked at meanwhile, so that the next look is a first one.
                self.reading = None;
                self.settle(before, &Situation::InvalidSpec(&text)).await?;
                return Ok(Wake::At(None));
            }
        };
        let look = self.look(&policy, &goal).await?;
        let now = timer_now();
        let mut status = before;
        let mut quiet = self.quiet;
        let mut notice = None;
        match &look {
            Look::Found(content) => match observe(&policy, &status, quiet, content, now) {
                Ok(observed) => {
                    notice = self.announce(&policy, content, observed.finding);
                    (status, quiet) = (observed.status, observed.quiet);
                }
                Err(unknown) => {
                    self.hold();
                    let text = unknown.to_string();
                    self.settle(status, &Situation::InvalidStatus(&text)).await?;
                    return Ok(Wake::At(None));
                }
            },
            // The first content that comes will be the baseline, of this source.
            Look::Missing if !status.is_baselined() => status.source = Some(policy.source()),
            Look::Missing => {}
        }
        let decision = decide(&policy, &status, &look, quiet, now);
        let wake = self.act(&policy, status, decision).await;
        self.publish(notice.as_slice()).await;
        let wake = wake?;
        // Only now: what was not written is decided again, from where it was.
        if !matches!(wake, Wake::Again | Wake::InTurn) {
            self.quiet = quiet;
        }
        Ok(wake)
    }

    /// Carries out a decision about a status, and writes it.
    async fn act(&mut self, policy: &Policy, status: Status, decision: Decision) -> Result<Wake, Error> {
        let superseded = status.restart.as_ref().is_some_and(|restart| restart.superseded.is_some());
        match &decision {
            Decision::Resume(..) => {}
            Decision::Missing | Decision::Suspended => self.hold(),
            Decision::Quiet(_) if superseded => self.hold(),
            Decision::Settled | Decision::Quiet(_) | Decision::Begin(_) => self.rollout = None,
        }
        match decision {
            Decision::Settled => self.rest(status, &Situation::UpToDate, None).await,
            Decision::Missing => self.rest(status, &Situation::ConfigMapNotFound(&policy.config_map), None).await,
            Decision::Suspended => self.rest(status, &Situation::Suspended, None).await,
            Decision::Quiet(until) => {
                let situation = Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() };
                self.rest(status, &situation, Some(until)).await
            }
            Decision::Begin(restart) => self.begin(policy, status, restart).await,
            Decision::Resume(restart, begun) => self.resume(policy, status, restart, begun).await,
        }
    }

    /// A restart under way may go on later: its plan is kept.
    fn hold(&mut self) {
        if let Some(rollout) = &mut self.rollout {
            rollout.hold();
        }
    }

    /// Writes the status if it says anything new, and waits.
    async fn rest(&mut self, status: Status, situation: &Situation<'_>, until: Option<Instant>) -> Result<Wake, Error> {
        self.settle(status, situation).await?;
        Ok(Wake::At(until))
    }

    fn note(&mut self) {
        self.noted = self.record.as_ref().and_then(|record| record.status.source_resource_version.clone());
    }

    /// The record, read again if it is known to be out of date; none when the ConfigMonitor is gone.
    async fn take_record(&mut self, goal: &Goal) -> Result<Option<Record>, Error> {
        let relisted = self.listed != goal.listed;
        self.listed.clone_from(&goal.listed);
        if let Some(record) = self.record.take() {
            let metadata = &record.monitor.metadata;
            let edited = metadata.generation != goal.generation;
            let cleared = record.status.is_baselined() && !goal.baselined;
            // As after the store was restored from a backup, with a status from before.
            let another = relisted && goal.listed.as_ref().is_some_and(|listed| *listed != metadata.resource_version);
            if !edited && !cleared && !another {
                return Ok(Some(record));
            }
        }
        self.read_record().await
    }

    /// Reads the record; none when the ConfigMonitor is gone.
    pub(super) async fn read_record(&mut self) -> Result<Option<Record>, Error> {
        let record = match Record::read(&self.client, &self.name).await {
            Ok(record) if record.monitor.metadata.uid == self.uid => record,
            Ok(_) => return Ok(None),
            Err(error) if error.cause == Cause::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let generation = std::mem::replace(&mut self.generation, record.monitor.metadata.generation);
        let named = record.status.source_resource_version.clone();
        let noted = std::mem::replace(&mut self.noted, named.clone());
        let disputed =
            named != noted && self.reading.as_ref().is_some_and(|reading| reading.is_disputed(named.as_ref()));
        // The source may have been another one and back; and what is to be a baseline must be what is there now.
        self.doubtful |= generation != self.generation || disputed || !record.status.is_baselined();
        Ok(Some(record))
    }

    /// The ConfigMap: read if the doorbell says that it is not as last read, or if that is in doubt.
    async fn look(&mut self, policy: &Policy, goal: &Goal) -> Result<Look, Error> {
        let source = policy.source();
        if let Some(reading) = self.reading.as_mut().filter(|reading| reading.source == source)
            && !self.doubtful
            && reading.covers(&goal.doorbell)
        {
            reading.heard.clone_from(&goal.doorbell);
            return Ok(reading.look.clone());
        }
        // Until it is read, however often that fails.
        self.doubtful = true;
        let reading = Reading::of(&self.client, policy, self.reading.as_ref(), goal.doorbell.clone()).await?;
        self.doubtful = false;
        Ok(self.reading.insert(reading).look.clone())
    }

    /// Whether this restart is in the status.
    pub(super) fn remembers(&self, restart: &Restart) -> bool {
        self.record.as_ref().is_some_and(|record| record.status.restart.as_deref() == Some(restart))
    }

    /// Whether a restart is in the status, as far as is known.
    pub(super) fn is_restarting(&self) -> bool {
        self.record.as_ref().is_none_or(|record| record.status.restart.is_some())
    }

    /// Sets the conditions, writes the status if it differs from the record, and tells what is new. Gives back the status
    /// that stands.
    pub(super) async fn settle(&mut self, mut status: Status, situation: &Situation<'_>) -> Result<Status, Error> {
        let Some(record) = self.record.take() else {
            let cause = Cause::Conflict("the ConfigMonitor must be read again".to_owned());
            return Err(Error { request: format!("settle {:?}", self.name), cause });
        };
        let notice = report(situation, &mut status, record.monitor.metadata.generation, self.client.server_now());
        let written = status != record.status;
        let record = if written { record.replace_status(&self.client, &status).await? } else { record };
        let status = record.status.clone();
        self.record = Some(record);
        self.note();
        self.publish(notice.as_slice()).await;
        Ok(status)
    }
}
