//! The keeper of one ConfigMonitor: it owns the record, looks at the ConfigMap when the doorbell rings, asks for a decision
//! and carries it out. One task; nothing of it is shared.
//!
//! A restart is carried out in `restart.rs`, and its deletions in `wave.rs`. Every write of a status is a compare-and-swap on the record.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::debug;

use super::index::Goal;
use super::pods::Rollout;
use super::reading::Reading;
use super::record::Record;
use super::shared::Shared;
use super::snapshots::Snapshots;
use super::sources::{self, InSource};
use super::timer_now;
use super::turns::{Owners, Turn};
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::ConfigMonitor;
use crate::monitor::decide::{Decision, Finding, Look, Quiet, decide, observe};
use crate::monitor::report::{Situation, report};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Restart, Status};

/// What a keeper does after a step.
#[derive(Debug, PartialEq)]
pub(super) enum Wake {
    /// Step again when something changes, or at this time.
    At(Option<Instant>),
    /// Step again at once: what was decided may not hold any more.
    Again,
    /// Step again when it is its turn to make a pass with these owners. That may take a while, so that everything must be looked at anew then: the
    /// spec may be another one.
    InTurn(Owners),
    /// End: the operator does, or the ConfigMonitor is gone.
    Never,
}

/// A ConfigMonitor that is not found is gone as soon as a watch or a list tells. If none does, it may have come back by then.
const MISSING_AGAIN: Duration = Duration::from_secs(10);

/// A wait for another restart that is longer than this is told.
const WAIT_UNTOLD: Duration = Duration::from_secs(1);

/// That the ConfigMap has another version, and nothing else is new, is written at most so often.
const VERSION_EVERY: Duration = Duration::from_secs(10);

/// What a pass is about.
pub(super) struct Pass<'a> {
    pub(super) policy: &'a Policy,
    pub(super) status: Status,
    pub(super) restart: Restart,
    pub(super) begun: Begun,
}

/// The keeper of one ConfigMonitor.
pub(super) struct Keeper {
    pub(super) client: Client,
    pub(super) shared: Arc<Shared>,
    pub(super) name: Arc<str>,
    pub(super) uid: Uid,
    pub(super) goal: watch::Receiver<Goal>,
    /// The ConfigMonitor as last read; absent when it must be read again.
    pub(super) record: Option<Record>,
    pub(super) generation: i64,
    /// The ConfigMap as last read.
    pub(super) reading: Option<Reading>,
    /// It must be read again, at this time or later, whatever the doorbell says.
    doubtful: Option<Instant>,
    /// Between waking up and reading it.
    interest: Option<InSource>,
    /// Which version of it the status last named.
    noted: Option<ResourceVersion>,
    /// The version of the ConfigMonitor in the last list that was heard of.
    listed: Option<ResourceVersion>,
    /// When nothing but another version of the ConfigMap was last written.
    version_written: Option<Instant>,
    quiet: Option<Quiet>,
    /// The restart under way, as far as this process knows it. Boxed, as most keepers have none.
    pub(super) rollout: Option<Box<Rollout>>,
    /// The pods that the pending restart is about.
    pub(super) snapshots: Snapshots,
    /// The versions of lists of pods that the API server has refused to make again, for the restart that is pending or under way.
    pub(super) refused_lists: Vec<ResourceVersion>,
    /// The right to make a pass.
    pub(super) turn: Option<Turn>,
    pub(super) faults: Faults,
    /// The right to be awake.
    pub(super) awake: Option<OwnedSemaphorePermit>,
}

impl Keeper {
    /// A keeper of the ConfigMonitor `name` with this identity, that reads it before it does anything.
    pub(super) fn new(
        client: Client,
        shared: Arc<Shared>,
        name: Arc<str>,
        uid: Uid,
        goal: watch::Receiver<Goal>,
    ) -> Self {
        Self {
            client,
            shared,
            name,
            uid,
            goal,
            record: None,
            generation: 0,
            reading: None,
            doubtful: None,
            interest: None,
            noted: None,
            listed: None,
            version_written: None,
            quiet: None,
            rollout: None,
            snapshots: Snapshots::default(),
            refused_lists: Vec::new(),
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
        // A ConfigMap that was read since then will do, by whomever.
        self.doubt(timer_now());
        self
    }

    /// Keeps until the client is stopped or the ConfigMonitor is gone.
    ///
    /// There may be thousands of keepers, and most of them rest. So whatever takes room is boxed, and only so many are awake at a time.
    pub(super) async fn run(mut self: Box<Self>) {
        self.take_interest();
        loop {
            // Whoever has a turn holds up those that share an owner with it.
            if self.turn.is_none() && !Box::pin(self.queue()).await {
                return;
            }
            let wake = Box::pin(self.wake()).await;
            self.awake = None;
            if wake != Wake::Again {
                self.interest = None;
            }
            match wake {
                Wake::Again => {}
                Wake::InTurn(owners) => {
                    if !Box::pin(self.wait_for_turn(owners)).await {
                        return;
                    }
                }
                Wake::Never => return,
                Wake::At(until) => {
                    self.turn = None;
                    if !self.sleep(until).await {
                        return;
                    }
                    self.take_interest();
                }
            }
        }
    }

    /// While it waits for its place among those who are awake, another one may read what it is about to read.
    fn take_interest(&mut self) {
        let source = self.goal.borrow().source.clone();
        self.interest = source.map(|source| self.shared.sources.interest(&source));
    }

    /// Waits until it is its turn with these owners, and tells of that if it takes long, or until the spec is another one; false when there is no more
    /// to do.
    async fn wait_for_turn(&mut self, owners: Owners) -> bool {
        let (stop, turns) = (self.client.stop().clone(), Arc::clone(&self.shared.turns));
        let (mut goal, generation) = (self.goal.clone(), self.generation);
        self.turn = None;
        let turn_or_edit = async move {
            tokio::select! {
                biased;
                turn = turns.take(owners) => Some(turn),
                _ = goal.wait_for(|goal| goal.generation > generation) => None,
            }
        };
        let mut waiting = pin!(stop.run_until_cancelled(turn_or_edit));
        let waited = match tokio::time::timeout(WAIT_UNTOLD, &mut waiting).await {
            Ok(waited) => waited,
            Err(_) => {
                let told = pin!(self.tell_of_waiting());
                // Those behind it must not wait for what it tells.
                match select(told, waiting).await {
                    Either::Left(((), waiting)) => waiting.await,
                    Either::Right((waited, _)) => waited,
                }
            }
        };
        let goes_on = waited.is_some();
        self.turn = waited.flatten();
        goes_on
    }

    async fn tell_of_waiting(&mut self) {
        let Some(status) = self.record.as_ref().map(|record| record.status.clone()) else { return };
        // What is wrong, if something is, is still so.
        let is_well = |reason: &str| matches!(reason, "QuietPeriod" | "RestartInProgress");
        if !status.conditions.first().is_some_and(|condition| is_well(&condition.reason)) {
            return;
        }
        if let Err(error) = self.settle(status, &Situation::WaitingForOtherRestart).await {
            debug!(monitor = self.name(), %error, "the condition cannot be written");
        }
    }

    /// Goes to the end of the queue of those who want to be awake, and waits until it has come to the front; false when there is no more
    /// to do.
    pub(super) async fn queue(&mut self) -> bool {
        self.awake = None;
        self.awake = self.client.stop().run_until_cancelled(self.shared.waken()).await.flatten();
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
                Some(rollout) => Box::pin(rollout.worth_a_pass(&self.client, &self.shared)).await,
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
            return Ok(self.is_missing());
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
        let mut quiet = self.quiet.clone();
        let (mut notice, mut is_news) = (None, false);
        match &look {
            Look::Found(content) => match observe(&policy, &status, quiet.as_ref(), content, now) {
                Ok(observed) => {
                    is_news = observed.finding != Finding::Unchanged;
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
        let read_at = self.reading.as_ref().map_or(now, |reading| reading.read_at);
        let decision = decide(&policy, &status, &look, quiet.as_ref(), read_at, now);
        let wake = self.act(&policy, status, decision).await;
        self.publish(notice.as_slice()).await;
        if wake.is_err() && is_news {
            // Should the content be back by the next look, it has not been unchanged all the while.
            self.quiet = None;
        }
        let wake = wake?;
        // Only now: what was not written is decided again, from where it was.
        if matches!(wake, Wake::Again | Wake::InTurn(_)) {
            self.keep(quiet);
        } else {
            self.quiet = quiet;
        }
        Ok(wake)
    }

    /// A quiet period goes on if it is about the restart that is written down.
    fn keep(&mut self, quiet: Option<Quiet>) {
        let restart = self.record.as_ref().and_then(|record| record.status.restart.as_deref());
        if quiet.as_ref().zip(restart).is_some_and(|(quiet, restart)| quiet.is_about(restart)) {
            self.quiet = quiet;
        }
    }

    /// Carries out a decision about a status, and writes it.
    async fn act(&mut self, policy: &Policy, mut status: Status, decision: Decision) -> Result<Wake, Error> {
        if decision != Decision::Read {
            self.interest = None;
        }
        // What has come is written down even if the pods cannot be listed now.
        let listed = match &decision {
            Decision::Quiet(_) | Decision::Suspended => self.take_snapshot(policy, &mut status).await,
            _ => Ok(()),
        };
        if listed.is_err() && status.restart.as_ref().is_some_and(|restart| self.remembers(restart)) {
            return listed.map(|()| Wake::Again);
        }
        if matches!(decision, Decision::Settled | Decision::Resume(..)) {
            self.snapshots = Snapshots::default();
        }
        let superseded = status.restart.as_ref().is_some_and(|restart| restart.superseded.is_some());
        match &decision {
            Decision::Resume(..) | Decision::Read => {}
            Decision::Missing | Decision::Suspended => self.hold(),
            Decision::Quiet(_) if superseded => self.hold(),
            Decision::Settled | Decision::Quiet(_) | Decision::Begin(_) => self.rollout = None,
        }
        let wake = match decision {
            Decision::Read => {
                self.doubt(timer_now());
                Ok(Wake::Again)
            }
            Decision::Settled => {
                self.refused_lists = Vec::new();
                self.rest(status, &Situation::UpToDate, None).await
            }
            Decision::Missing => self.rest(status, &Situation::ConfigMapNotFound(&policy.config_map), None).await,
            Decision::Suspended => self.rest(status, &Situation::Suspended, None).await,
            Decision::Quiet(until) => {
                let situation = Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() };
                self.rest(status, &situation, Some(until)).await
            }
            Decision::Begin(restart) => self.begin(policy, status, restart).await,
            Decision::Resume(restart, begun) => self.resume(policy, status, restart, begun).await,
        };
        listed.and(wake)
    }

    /// A restart under way may go on later: its plan is kept.
    fn hold(&mut self) {
        if let Some(rollout) = &mut self.rollout {
            rollout.hold();
        }
    }

    /// Writes the status if it says anything new, and waits. That there is another version of the ConfigMap may be written later.
    async fn rest(&mut self, status: Status, situation: &Situation<'_>, until: Option<Instant>) -> Result<Wake, Error> {
        let version = status.source_resource_version.clone();
        let stands = self.settle(status, situation).await?;
        let unwritten = self.version_written.filter(|_| stands.source_resource_version != version);
        let write_at = unwritten.map(|written| written + VERSION_EVERY);
        Ok(Wake::At(until.into_iter().chain(write_at).min()))
    }

    /// The ConfigMonitor was not found, or another one of its name was. Whether it is gone for ever a watch or a list tells.
    pub(super) fn is_missing(&mut self) -> Wake {
        self.hold();
        self.record = None;
        Wake::At(Some(timer_now() + MISSING_AGAIN))
    }

    /// The ConfigMap must be read by a GET that begins at this time or later.
    fn doubt(&mut self, from: Instant) {
        self.doubtful = self.doubtful.max(Some(from));
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
            Err(error) if error.cause.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let generation = std::mem::replace(&mut self.generation, record.monitor.metadata.generation);
        let named = record.status.source_resource_version.clone();
        let noted = std::mem::replace(&mut self.noted, named.clone());
        let disputed =
            named != noted && self.reading.as_ref().is_some_and(|reading| reading.is_disputed(named.as_ref()));
        // The source may have been another one and back; and what is to be a baseline must be what is there now.
        if generation != self.generation || disputed || !record.status.is_baselined() {
            self.doubt(timer_now());
        }
        Ok(Some(record))
    }

    /// The ConfigMap: read if the doorbell says that it is not as last read, or if that is in doubt.
    async fn look(&mut self, policy: &Policy, goal: &Goal) -> Result<Look, Error> {
        // The index may not have heard yet that the spec names this one. Its doorbell is that of another one then.
        let doorbell = (goal.source.as_deref() == Some(&*policy.config_map)).then(|| goal.doorbell.clone());
        if let Some(reading) = self.reading.as_mut().filter(|reading| reading.source == policy.source())
            && self.doubtful.is_none()
            && doorbell.as_ref().is_none_or(|doorbell| reading.covers(doorbell))
        {
            reading.heard = doorbell.or(reading.heard.take());
            return Ok(reading.look.clone());
        }
        // Until it is read, however often that fails.
        let rung = goal.rung.filter(|_| doorbell.is_some());
        let not_before = *self.doubtful.insert(rung.max(self.doubtful).unwrap_or_else(timer_now));
        let fetched = match self.interest.as_ref().filter(|interest| **interest.about() == *policy.config_map) {
            Some(interest) => {
                let fetch = sources::fetch(&self.client, &policy.config_map);
                interest.ask(self.client.stop(), not_before, fetch).await
            }
            None => sources::fetch(&self.client, &policy.config_map).await,
        }?;
        self.doubtful = None;
        let reading = Reading::of(policy, &fetched, not_before, self.reading.as_ref(), doorbell);
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
        let is_new = status != record.status;
        let version = || record.status.source_resource_version.clone();
        if is_new && (Status { source_resource_version: version(), ..status.clone() }) == record.status {
            // An annotation that changes again and again is worth no write each time.
            let now = timer_now();
            if self.version_written.is_some_and(|written| now < written + VERSION_EVERY) {
                let status = record.status.clone();
                self.record = Some(record);
                return Ok(status);
            }
            self.version_written = Some(now);
        }
        let record = if is_new { record.replace_status(&self.client, &status).await? } else { record };
        let status = record.status.clone();
        self.record = Some(record);
        self.note();
        self.publish(notice.as_slice()).await;
        Ok(status)
    }
}
