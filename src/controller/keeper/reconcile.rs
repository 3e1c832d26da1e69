//! Reconciles a ConfigMonitor with its sources and its pods: reads what is new, lets `monitor` decide, and carries out
//! the decision.
//!
//! Every status write is a compare-and-swap on the record as last read.

use std::time::Duration;

use tracing::{debug, info};

use super::context::Context;
use super::memory::Memory;
use super::requeue::Requeue;
use super::restarts::{Recheck, Restarts};
use super::scheduling::{Held, Scheduling};
use super::step::{Step, quiet_period};
use crate::controller::clock::timer_now;
use crate::controller::latest::Latest;
use crate::kube::error::Error;
use crate::kube::{ResourceVersion, ServerTime};
use crate::metrics::MonitorState;
use crate::monitor::decide::{Decision, Finding, Look, Moment, decide, observe, wakes_at};
use crate::monitor::notice;
use crate::monitor::reason::{Holds, Reason};
use crate::monitor::situation::Situation;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Status, Why};
use crate::monitor::words;

/// A held restart is checked at least this often, because the server's clock may be set meanwhile.
const HOLD_RECHECK: Duration = Duration::from_secs(3600);

pub(crate) struct Reconciler {
    pub(crate) context: Context,
    memory: Memory,
    restarts: Restarts,
}

impl Reconciler {
    pub(crate) fn new(context: Context, memory: Memory) -> Self {
        Self { context, memory, restarts: Restarts::default() }
    }

    pub(crate) fn generation(&self) -> i64 {
        self.memory.generation()
    }

    /// Makes one step: looks, decides and acts.
    pub(crate) async fn reconcile(&mut self, scheduling: &mut Scheduling, held: Held) -> Result<Requeue, Error> {
        let requeue = self.step(scheduling, held).await;
        self.restarts.end_step(requeue.as_ref().is_ok_and(|requeue| *requeue != Requeue::Now));
        requeue
    }

    async fn step(&mut self, scheduling: &mut Scheduling, held: Held) -> Result<Requeue, Error> {
        let latest = scheduling.latest();
        let Some(record) = self.memory.record(&self.context, &latest).await? else { return Ok(Requeue::missing()) };
        let (policy, status) = (Policy::of(record.spec.as_deref()), record.status.clone());
        let unknown = status.unknown_hash().cloned();
        let mut policy = match (policy, &unknown) {
            (Ok(policy), None) => policy,
            (Ok(_), Some(hash)) => return self.report_invalid(status, &Situation::InvalidStatus(hash)).await,
            (Err(text), _) => return self.report_invalid(status, &Situation::InvalidSpec(&text)).await,
        };
        if !self.discover(&mut policy, &status, &latest)? {
            return Ok(Requeue::At(None));
        }
        self.reconcile_spec(&policy, status, &latest, (scheduling, held)).await
    }

    /// Until somebody fixes it, anything may happen, as in a crash.
    async fn report_invalid(&mut self, mut status: Status, situation: &Situation<'_>) -> Result<Requeue, Error> {
        self.restarts.record_deletions(&mut status);
        self.memory.forget_readings();
        self.memory.update_status(&self.context, status, situation).await?;
        Ok(Requeue::At(None))
    }

    /// Adds the sources that are read from the pods. Returns false if the pods have not been listed yet.
    fn discover(&mut self, policy: &mut Policy, status: &Status, latest: &Latest) -> Result<bool, Error> {
        if policy.discover.is_none() {
            return Ok(true);
        }
        self.memory.awaits_pods = latest.awaits_pods;
        let known = status.discovered();
        match &latest.found {
            // The keeper may have read another selector than the index.
            Some(Ok(found)) if *found.selector == policy.selector.to_query() => {
                policy.discover(found, known, latest.no_secrets.is_none());
                Ok(true)
            }
            Some(Ok(_)) | None => Ok(false),
            Some(Err(error)) => Err((**error).clone()),
        }
    }

    async fn reconcile_spec(
        &mut self,
        policy: &Policy,
        status: Status,
        latest: &Latest,
        (scheduling, mut held): (&Scheduling, Held),
    ) -> Result<Requeue, Error> {
        let look = self.memory.look(&self.context, policy, latest).await?;
        held.interest = Box::default();
        let read_at = self.memory.read_at().unwrap_or_else(timer_now);
        let client = self.context.client.clone();
        let moment = || Moment { read_at, now: timer_now(), server_now: client.server_now() };
        let request = self.memory.request();
        let (status, finding) = observe(policy, status, &look, request.as_ref(), moment());
        let wakes_at = wakes_at(policy, &status, &look, moment());
        let decision = |status: &Status| decide(policy, status, &look, request.as_ref(), moment());
        self.announce(&status, &look, finding);
        let (context, memory) = (&self.context, &mut self.memory);
        let step = Step { context, memory, scheduling, held, policy, status };
        let mut requeue = act(step, &mut self.restarts, &decision).await;
        if let Some(status) = self.memory.status() {
            self.restarts.forget(status);
            if let Ok(Requeue::At(until)) = &mut requeue {
                let recount =
                    (status.pods == Some(0)).then(|| timer_now() + recount_after(status, client.server_now()));
                *until = until.iter().copied().chain(recount).chain(wakes_at).min();
            }
        }
        requeue
    }

    pub(crate) fn update_metrics(&mut self) {
        let Some(status) = self.memory.status() else { return };
        let Some(ready) = status.conditions.first() else { return };
        // A restart that waited for a window may be about content of last week.
        let pending = status.begun().map(|begun| begun.started_at).or_else(|| status.observed_at());
        // An operator of another version may have written the reason.
        let known: Option<Reason> = ready.reason.parse().ok();
        let state = MonitorState {
            reason: ready.reason.clone(),
            pending,
            ten_since: status.ten_restarts_since(),
            is_delayed_by_author: known.is_some_and(Reason::is_delay_by_author),
            needs_attention: known.is_some_and(Reason::needs_attention),
            is_stalled: known.is_some_and(|reason| reason.holds() == Holds::Stalled),
        };
        self.context.tally.set_state(state);
    }

    /// If the report cannot be written, the next step tries again.
    pub(crate) async fn report_missing_right(&mut self, error: &Error) {
        let Some(status) = self.memory.status().cloned() else { return };
        if let Err(error) = self.memory.update_status(&self.context, status, &Situation::Forbidden(error)).await {
            debug!(%error, "condition not written");
        }
    }

    /// Reports that a request was refused, or that the status cannot be decoded.
    pub(crate) async fn report_refusal(&self, text: &str) {
        self.context.publish(&[notice::refused(text)], &self.memory.uids()).await;
    }

    /// Logs a finding once.
    fn announce(&mut self, status: &Status, look: &Look, finding: Finding) {
        let line = match finding {
            Finding::Unchanged => return,
            Finding::Baseline => "baseline recorded",
            Finding::Changed if status.why() == Why::Reverted => "modification reverted",
            Finding::Changed => "modification detected",
        };
        if !self.memory.announce() {
            return;
        }
        let changed = status.changed();
        let version = match &changed[..] {
            [only] => status.source(only).and_then(|known| known.resource_version.as_ref()),
            _ => look.newest().and_then(|content| content.version.as_ref()),
        };
        info!(source = words::named(status, &changed), version = version.map(ResourceVersion::as_str), "{line}");
    }

    pub(crate) fn listens_to_pods(&self) -> bool {
        self.restarts.are_listening()
    }

    /// Waits until the pods of the restart under way are worth another step.
    pub(crate) async fn worth_a_step(&mut self) {
        self.restarts.worth_a_pass(&self.context).await;
    }
}

/// Returns the delay before zero pods are counted again: short once the content has settled, then ever longer.
fn recount_after(status: &Status, now: ServerTime) -> Duration {
    let settled = status.settled_at.map_or(Duration::ZERO, |at| now.since(at));
    settled.clamp(Duration::from_secs(10), Duration::from_secs(600))
}

/// Carries out what is decided about the status.
async fn act(
    mut step: Step<'_>,
    restarts: &mut Restarts,
    decision_about: &impl Fn(&Status) -> Decision,
) -> Result<Requeue, Error> {
    let now = timer_now();
    let (mut decision, mut found) = (decision_about(&step.status), None);
    if decision != Decision::Resume {
        restarts.record_deletions(&mut step.status);
    }
    if matches!(decision, Decision::Count | Decision::Begin(_)) {
        found = restarts.find(&mut step, &decision).await?;
        // A window may have closed meanwhile.
        decision = decision_about(&step.status);
    }
    let (situation, until) = match &decision {
        Decision::Begin(_) => match found {
            Some(found) => return restarts.begin(step, found).await,
            None => (None, Some(now)),
        },
        Decision::Resume => return restarts.resume(step).await,
        Decision::CanaryFailed(message) => match restarts.recheck(&mut step, now).await? {
            Recheck::Done(requeue) => return Ok(requeue),
            Recheck::At(until) => (Some(Situation::CanaryFailed(message)), Some(until)),
        },
        Decision::Read | Decision::Count => {
            step.memory.require_read_from(now);
            return Ok(Requeue::Now);
        }
        Decision::Settled => (None, None),
        Decision::Missing(sources) => (Some(Situation::SourceNotFound(sources)), None),
        Decision::Suspended { requested } => (Some(Situation::Suspended { requested: *requested }), None),
        Decision::Quiet(until) => (Some(quiet_period(step.policy)), Some(*until)),
        Decision::Hold(hold, until) => {
            let writers = step.memory.writers(&step.status);
            (Some(Situation::Held { hold, writers }), until.iter().copied().chain([now + HOLD_RECHECK]).min())
        }
    };
    // A chart may create the ConfigMonitor before the pods.
    let counts_from = (situation.is_none() && step.status.pods.is_none_or(|pods| pods == 0)).then_some(now);
    if counts_from.is_some() && !step.memory.has_recorded(&step.status) {
        // The baseline must not wait for a list, which may take long.
        step.report(None).await?;
    }
    let listed = restarts.take_list(&mut step, counts_from).await;
    // What is new is recorded even if the pods cannot be listed now.
    if listed.is_ok() || !step.memory.has_recorded(&step.status) {
        step.report(situation.as_ref()).await?;
    }
    listed.map(|()| Requeue::At(until))
}
