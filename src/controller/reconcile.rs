//! Brings a ConfigMonitor, its ConfigMap and its pods together: looks at what is new, asks `monitor` for a decision, and carries it out.
//!
//! Every write of a status is a compare-and-swap on the record as last read.

use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

use super::context::Context;
use super::duty::Duty;
use super::index::Goal;
use super::limits::Owners;
use super::memory::{Memory, Record};
use super::restart::{Basis, Pass, Rollout, Snapshots, list_pods};
use super::timer_now;
use crate::kube::error::{Cause, Error};
use crate::monitor::decide::{Content, Decision, Finding, Look};
use crate::monitor::report::{self, Notice, Progress, Situation};
use crate::monitor::rollout::Plan;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Restart, Stage, Status};

/// When a keeper makes another step.
#[derive(Debug, PartialEq)]
pub(crate) enum Requeue {
    /// When something changes, or at this time.
    At(Option<Instant>),
    /// At once: what was decided may not hold any more.
    Now,
    /// When it is its turn to make a pass with these owners. That may take a while, so that everything must be looked at anew then: the
    /// spec may be another one.
    InTurn(Owners),
    /// Never: the operator ends, or the ConfigMonitor is gone.
    Never,
}

/// A ConfigMonitor that is not found is gone as soon as a watch or a list tells. If none does, it may have come back by then.
const MISSING_AGAIN: Duration = Duration::from_secs(10);

impl Requeue {
    /// The ConfigMonitor was not found, or another one of its name was. Whether it is gone for ever a watch or a list tells.
    pub(crate) fn missing() -> Self {
        Self::At(Some(timer_now() + MISSING_AGAIN))
    }
}

/// What reconciles one ConfigMonitor, and what it has to know for that from one step to the next.
pub(crate) struct Reconciler {
    pub(crate) context: Context,
    memory: Memory,
    /// The restart under way, as far as this process knows it. Boxed, as most have none.
    rollout: Option<Box<Rollout>>,
    /// The lists of pods that say what the restart that is pending or under way is about.
    snapshots: Snapshots,
}

/// A step about a valid spec: what it goes by, and the status as it is to become.
struct Step<'a> {
    policy: &'a Policy,
    record: &'a mut Record,
    status: Status,
    duty: &'a mut Duty,
}

impl Reconciler {
    pub(crate) fn new(context: Context, memory: Memory) -> Self {
        Self { context, memory, rollout: None, snapshots: Snapshots::default() }
    }

    /// The generation of the ConfigMonitor when it was last read.
    pub(crate) fn generation(&self) -> i64 {
        self.memory.generation()
    }

    /// Looks at what is new, decides and acts, once.
    pub(crate) async fn reconcile(&mut self, duty: &mut Duty) -> Result<Requeue, Error> {
        let goal = duty.goal();
        let Some(mut record) = self.memory.record(&self.context, &goal).await? else {
            self.hold();
            return Ok(Requeue::missing());
        };
        let requeue = match Policy::of(record.monitor.spec.as_deref()) {
            Ok(policy) => self.reconcile_spec(&policy, &mut record, &goal, duty).await,
            Err(text) => {
                self.hold();
                self.memory.forget_reading();
                let status = record.status.clone();
                let settled = self.settle(&mut record, status, &Situation::InvalidSpec(&text)).await;
                settled.map(|_| Requeue::At(None))
            }
        };
        self.memory.keep(record);
        requeue
    }

    async fn reconcile_spec(
        &mut self,
        policy: &Policy,
        record: &mut Record,
        goal: &Goal,
        duty: &mut Duty,
    ) -> Result<Requeue, Error> {
        let look = self.memory.look(&self.context, policy, goal, duty.interest()).await?;
        let now = timer_now();
        let (mut status, mut quiet) = (record.status.clone(), self.memory.quiet().cloned());
        let (mut notice, mut is_news) = (None, false);
        match &look {
            Look::Found(content) => match self.memory.observe(policy, &status, content, now) {
                Ok(observed) => {
                    is_news = observed.finding != Finding::Unchanged;
                    notice = self.announce(policy, content, observed.finding);
                    (status, quiet) = (observed.status, observed.quiet);
                }
                Err(unknown) => {
                    self.hold();
                    let text = unknown.to_string();
                    self.settle(record, status, &Situation::InvalidStatus(&text)).await?;
                    return Ok(Requeue::At(None));
                }
            },
            // The first content that comes will be the baseline, of this source.
            Look::Missing if !status.is_baselined() => status.source = Some(policy.source()),
            Look::Missing => {}
        }
        let decision = self.memory.decide(policy, &status, &look, quiet.as_ref(), now);
        let requeue = self.act(Step { policy, record: &mut *record, status, duty }, decision).await;
        self.publish(notice.as_slice()).await;
        // Only now: what was not written is decided again, from where it was.
        match &requeue {
            Ok(Requeue::Now | Requeue::InTurn(_)) => self.memory.has_deferred(quiet, record),
            Ok(Requeue::At(_) | Requeue::Never) => self.memory.has_settled(quiet),
            Err(_) if is_news => self.memory.has_failed(),
            Err(_) => {}
        }
        requeue
    }

    /// Carries out a decision about a status, and writes it.
    async fn act(&mut self, mut step: Step<'_>, decision: Decision) -> Result<Requeue, Error> {
        if decision != Decision::Read {
            step.duty.lose_interest();
        }
        // What has come is written down even if the pods cannot be listed now.
        let listed = match &decision {
            Decision::Quiet(_) | Decision::Suspended => {
                let came = self.memory.content_came();
                self.snapshots.take(&self.context, step.policy, &mut step.status, came).await
            }
            _ => Ok(()),
        };
        if listed.is_err() && step.status.restart.as_ref().is_some_and(|restart| step.record.remembers(restart)) {
            return listed.map(|()| Requeue::Now);
        }
        self.clear_up(&step.status, &decision);
        let requeue = match decision {
            Decision::Read => {
                self.memory.doubt(timer_now());
                Ok(Requeue::Now)
            }
            Decision::Settled => self.rest(step, &Situation::UpToDate, None).await,
            Decision::Missing => {
                let situation = Situation::ConfigMapNotFound(&step.policy.config_map);
                self.rest(step, &situation, None).await
            }
            Decision::Suspended => self.rest(step, &Situation::Suspended, None).await,
            Decision::Quiet(until) => {
                let situation = quiet(step.policy);
                self.rest(step, &situation, Some(until)).await
            }
            Decision::Begin(restart) => self.begin(step, restart).await,
            Decision::Resume(restart, begun) => self.resume(step, restart, begun).await,
        };
        listed.and(requeue)
    }

    /// Forgets, or puts aside, what a decision has no use for.
    fn clear_up(&mut self, status: &Status, decision: &Decision) {
        match decision {
            Decision::Settled => self.snapshots = Snapshots::default(),
            Decision::Resume(..) => self.snapshots.forget(),
            _ => {}
        }
        let is_superseding =
            status.restart.as_ref().is_some_and(|restart| matches!(restart.stage, Stage::Superseding { .. }));
        match decision {
            Decision::Resume(..) | Decision::Read => {}
            Decision::Missing | Decision::Suspended => self.hold(),
            Decision::Quiet(_) if is_superseding => self.hold(),
            Decision::Settled | Decision::Quiet(_) | Decision::Begin(_) => self.rollout = None,
        }
    }

    /// A restart under way may go on later: its plan is kept.
    fn hold(&mut self) {
        if let Some(rollout) = &mut self.rollout {
            rollout.hold();
        }
    }

    /// Writes the status if it says anything new, and waits. That there is another version of the ConfigMap may be written later.
    async fn rest(
        &mut self,
        step: Step<'_>,
        situation: &Situation<'_>,
        until: Option<Instant>,
    ) -> Result<Requeue, Error> {
        let version = step.status.source_resource_version.clone();
        let stands = self.settle(step.record, step.status, situation).await?;
        let write_at = self.memory.version_due(&stands, version.as_ref());
        Ok(Requeue::At(until.into_iter().chain(write_at).min()))
    }

    /// Begins a pending restart: lists the pods, writes down what is about to happen, and deletes.
    async fn begin(&mut self, step: Step<'_>, mut restart: Restart) -> Result<Requeue, Error> {
        let Step { policy, record, mut status, duty } = step;
        restart.stage = Stage::Pending {};
        let came = self.memory.content_came();
        let (suspects, listing, interest) = match self.snapshots.begin(&self.context, policy, &mut restart, came).await
        {
            Ok(lists) => lists,
            Err(error) => {
                self.remember(record, status, &restart, &quiet(policy)).await?;
                return Err(error);
            }
        };
        status.give_up_superseded(listing.at);
        let (selector, own_pod) = (policy.selector.to_query(), self.context.shared.own_pod.as_ref());
        let plan = Plan::new(policy, &restart, selector, &suspects, &listing.pods, own_pod);
        let told = report::started(&policy.source(), restart.revert, plan.len(), plan.skipped());
        if plan.is_empty() {
            status.config_hash = Some(restart.config_hash);
            status.restart = None;
            self.settle(record, status, &Situation::UpToDate).await?;
            self.publish(&told).await;
            info!(monitor = self.context.name(), source = policy.source(), "no pod to restart");
            self.context.shared.pods.forget();
            return Ok(Requeue::At(None));
        }
        let begun = Begun::new(listing.at, policy.selector.to_query(), plan.len());
        let mut rollout = Rollout::new(policy, plan, &restart, &begun, own_pod.cloned());
        let ended = listing.ended;
        rollout.see(listing, interest);
        let owners = rollout.owners();
        if policy.max_unavailable.is_some() && !duty.try_turn(&self.context.shared, &owners, Some(ended)) {
            status.restart = Some(Box::new(restart.clone()));
            self.remember(record, status, &restart, &Situation::WaitingForOtherRestart).await?;
            return Ok(Requeue::InTurn(owners));
        }
        let restart = Restart { stage: Stage::UnderWay(begun.clone()), ..restart };
        status.restart = Some(Box::new(restart.clone()));
        let situation = Situation::RestartInProgress(Progress::new(&begun));
        let (status, confirmed) = self.memory.intend(&self.context, record, status, &situation).await?;
        self.snapshots.forget();
        self.context.recorder.log(&told);
        let requeue = self
            .pass(Step { policy, record, status, duty }, restart, begun, rollout, Basis::Confirmed(confirmed))
            .await;
        // The pods come first.
        self.context.recorder.make_events(&told, self.memory.identity()).await;
        requeue
    }

    /// Goes on with a restart that has begun, maybe by a process before this one.
    async fn resume(&mut self, step: Step<'_>, restart: Restart, begun: Begun) -> Result<Requeue, Error> {
        let Step { policy, record, mut status, duty } = step;
        // It was superseded, or is about another source now: that comes first.
        if !record.remembers(&restart) {
            status = self.settle(record, status, &Situation::RestartInProgress(Progress::new(&begun))).await?;
        }
        let mut rollout = match self.rollout.take().filter(|rollout| rollout.is_of(&restart, &begun)) {
            Some(rollout) => rollout,
            None => {
                let plan = self.snapshots.recall(&self.context, policy, &restart, &begun).await?;
                Rollout::new(policy, plan, &restart, &begun, self.context.shared.own_pod.clone())
            }
        };
        rollout.follow(policy);
        if rollout.seems_over(self.context.client.server_now()) {
            let step = Step { policy, record, status, duty };
            return self.pass(step, restart, begun, rollout, Basis::Watched).await;
        }
        if let Some(until) = rollout.pause() {
            self.rollout = Some(rollout);
            return Ok(Requeue::At(Some(until)));
        }
        if let Some(owners) = self.not_in_turn(policy, &rollout, duty) {
            self.rollout = Some(rollout);
            return Ok(Requeue::InTurn(owners));
        }
        // The last list of the pass: what it says is what is gone by.
        match list_pods(&self.context, policy, timer_now()).await {
            Ok((listing, interest)) => rollout.see(listing, interest),
            Err(error) => {
                self.rollout = Some(rollout);
                return Err(error);
            }
        }
        if let Some(owners) = self.not_in_turn(policy, &rollout, duty) {
            // Others have come to own such pods.
            self.rollout = Some(rollout);
            return Ok(Requeue::InTurn(owners));
        }
        self.pass(Step { policy, record, status, duty }, restart, begun, rollout, Basis::Listed).await
    }

    /// The owners of the pods, if there is a budget and it is not this keeper's turn with them.
    fn not_in_turn(&self, policy: &Policy, rollout: &Rollout, duty: &mut Duty) -> Option<Owners> {
        policy.max_unavailable?;
        let owners = rollout.owners();
        (!duty.try_turn(&self.context.shared, &owners, None)).then_some(owners)
    }

    /// One pass over pods that are known now. However it goes, the plan is kept until the restart is over: made again later, it might hold
    /// pods that this restart has brought.
    async fn pass(
        &mut self,
        step: Step<'_>,
        restart: Restart,
        begun: Begun,
        mut rollout: Box<Rollout>,
        basis: Basis,
    ) -> Result<Requeue, Error> {
        let Step { policy, record, status, duty } = step;
        let pass = Pass {
            context: &self.context,
            memory: &mut self.memory,
            policy,
            record: &mut *record,
            status,
            restart,
            begun,
            rollout: &mut rollout,
            duty: &mut *duty,
        };
        let requeue = pass.run(basis).await;
        duty.end_turn();
        self.rollout = record.is_restarting().then_some(rollout);
        self.context.shared.pods.forget();
        requeue
    }

    /// Writes down what is pending, so that it is not forgotten even if it takes long until something can be done about it.
    async fn remember(
        &mut self,
        record: &mut Record,
        status: Status,
        restart: &Restart,
        situation: &Situation<'_>,
    ) -> Result<(), Error> {
        if !record.remembers(restart) {
            self.settle(record, status, situation).await?;
        }
        Ok(())
    }

    async fn settle(
        &mut self,
        record: &mut Record,
        status: Status,
        situation: &Situation<'_>,
    ) -> Result<Status, Error> {
        self.memory.settle(&self.context, record, status, situation).await
    }

    /// Writes the conditions alone, between two steps. That it cannot is not worth a warning.
    async fn tell(&mut self, situation: &Situation<'_>) {
        let Some(mut record) = self.memory.take() else { return };
        let status = record.status.clone();
        if let Err(error) = self.settle(&mut record, status, situation).await {
            debug!(monitor = self.context.name(), %error, "the condition cannot be written");
        }
        self.memory.keep(record);
    }

    /// Says that it waits for another restart.
    pub(crate) async fn tell_of_waiting(&mut self) {
        // What is wrong, if something is, is still so.
        if self.memory.reason().is_some_and(|reason| matches!(reason, "QuietPeriod" | "RestartInProgress")) {
            self.tell(&Situation::WaitingForOtherRestart).await;
        }
    }

    /// Says that a right is missing.
    pub(crate) async fn tell_of_missing_right(&mut self, text: &str) {
        self.tell(&Situation::Forbidden(text)).await;
    }

    /// Logs what happened and makes its Events.
    pub(crate) async fn publish(&self, notices: &[Notice]) {
        self.context.recorder.publish(notices, self.memory.identity()).await;
    }

    /// Tells of a finding, once; in an Event, too, if somebody must know.
    fn announce(&mut self, policy: &Policy, content: &Content, finding: Finding) -> Option<Notice> {
        let replaces_immutable = self.memory.announce(finding)?;
        self.context.recorder.log_finding(policy, content, finding);
        replaces_immutable.then(|| report::immutable_replaced(&policy.config_map))
    }

    /// Waits until the pods of the restart under way, if there is one, are worth another step, or cannot be watched any more.
    pub(crate) async fn worth_a_step(&mut self) -> Result<(), Error> {
        match &mut self.rollout {
            Some(rollout) => Box::pin(rollout.worth_a_pass(&self.context.shared)).await,
            None => std::future::pending().await,
        }
    }

    /// Tells, once, why the pods of the restart cannot be watched. They are listed now and then instead. If nobody answers at all,
    /// that list says so.
    pub(crate) fn not_watched(&mut self, error: &Error) {
        let Some(rollout) = self.rollout.as_mut().filter(|_| !matches!(error.cause, Cause::Unreachable(_))) else {
            return;
        };
        if rollout.is_not_watched(&error.cause) {
            warn!(monitor = self.context.name(), %error, "pods not watched; listing them now and then");
        }
    }
}

fn quiet(policy: &Policy) -> Situation<'static> {
    Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() }
}
