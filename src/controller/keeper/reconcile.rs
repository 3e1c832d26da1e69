//! Reconciles a ConfigMonitor with its sources and its pods: reads what is new, lets `monitor` decide, and carries out
//! the decision.
//!
//! Every status write is a compare-and-swap on the record as last read.

use std::time::Duration;

use tracing::{debug, info};

use super::context::Context;
use super::memory::Memory;
use super::recount::Recount;
use super::requeue::Requeue;
use super::restarts::{self, Restarts};
use super::scheduling::{Held, Scheduling};
use super::step::{Step, quiet_period};
use crate::controller::clock::timer_now;
use crate::controller::latest::Latest;
use crate::kube::ResourceVersion;
use crate::kube::error::Error;
use crate::metrics::MonitorState;
use crate::monitor::decide::{Decision, Finding, Look, Moment, decide, forgets_after, observe, quiet_until};
use crate::monitor::notice::{self, Notice};
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
    recount: Recount,
}

impl Reconciler {
    pub(crate) fn new(context: Context, memory: Memory) -> Self {
        Self { context, memory, restarts: Restarts::default(), recount: Recount::default() }
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

    /// Until somebody mends it, anything may happen, as in a crash.
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
        let now = timer_now();
        let read_at = self.memory.read_at().unwrap_or(now);
        let moment = Moment { read_at, now, server_now: self.context.client.server_now() };
        // One that has forgotten its sources has been seen before.
        let is_new = status.baselined_at.is_none() && status.history.is_empty() && !status.is_baselined();
        let (mut status, finding) = observe(policy, status, &look, moment);
        let request = self.memory.request();
        if is_new && status.is_baselined() {
            // It was made before the first content was recorded.
            status.last_handled_restart_request.clone_from(&request);
        }
        let notices = self.announce(&status, &look, finding);
        // Whatever holds a restart, the end of its quiet period wakes.
        let quiet_until = quiet_until(policy, &status, &look, moment).filter(|until| *until > now);
        let counted = self.memory.status().and_then(|status| status.pods);
        let (context, memory) = (&self.context, &mut self.memory);
        let step = Step { context, memory, scheduling, held, policy, status };
        let decide = |status: &Status| decide(policy, status, &look, request.as_ref(), moment);
        let mut requeue = act(step, &mut self.restarts, &self.recount, &decide).await;
        if let Some(status) = self.memory.status() {
            self.restarts.forget(status);
            if let Ok(Requeue::At(until)) = &mut requeue {
                let now = timer_now();
                let count_at = self.recount.schedule(counted, status.pods, now);
                let forget_at = forgets_after(status, self.context.client.server_now()).map(|after| now + after);
                *until = until.iter().copied().chain(count_at).chain(quiet_until).chain(forget_at).min();
            }
        }
        self.context.publish(&notices, &self.memory.uids()).await;
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

    /// Logs a finding once, and returns the notices about it.
    fn announce(&mut self, status: &Status, look: &Look, finding: Finding) -> Vec<Notice> {
        let line = match finding {
            Finding::Unchanged => return Vec::new(),
            Finding::Baseline => "baseline recorded",
            Finding::Changed if status.why() == Why::Reverted => "modification reverted",
            Finding::Changed => "modification detected",
        };
        let Some(replaced) = self.memory.announce() else { return Vec::new() };
        let changed = status.changed();
        let version = match &changed[..] {
            [only] => status.source(only).and_then(|known| known.resource_version.as_ref()),
            _ => look.newest().and_then(|content| content.version.as_ref()),
        };
        info!(source = words::named(status, &changed), version = version.map(ResourceVersion::as_str), "{line}");
        let replaced = replaced.into_iter().filter(|name| finding == Finding::Changed && changed.contains(name));
        replaced.map(notice::immutable_replaced).collect()
    }

    pub(crate) fn listens_to_pods(&self) -> bool {
        self.restarts.are_listening()
    }

    /// Waits until the pods of the restart under way are worth another step.
    pub(crate) async fn worth_a_step(&mut self) {
        self.restarts.worth_a_pass(&self.context).await;
    }
}

/// Carries out what `decide` says about the status.
async fn act(
    mut step: Step<'_>,
    restarts: &mut Restarts,
    recount: &Recount,
    decide: &impl Fn(&Status) -> Decision,
) -> Result<Requeue, Error> {
    let (policy, now) = (step.policy, timer_now());
    let mut decision = decide(&step.status);
    if decision == Decision::Count {
        restarts.count(&mut step).await?;
        decision = decide(&step.status);
    }
    if decision != Decision::Resume {
        restarts.record_deletions(&mut step.status);
    }
    let (situation, until) = match &decision {
        Decision::Begin(request) => return restarts.begin(step, request.clone()).await,
        Decision::Resume => return restarts.resume(step).await,
        Decision::CanaryFailed(message) => return restarts.stay_failed(step, message).await,
        Decision::Read | Decision::Count => {
            step.memory.require_read_from(now);
            return Ok(Requeue::Now);
        }
        Decision::Settled => (None, None),
        Decision::Missing(sources) => (Some(Situation::SourceNotFound(sources)), None),
        Decision::Suspended { requested } => (Some(Situation::Suspended { requested: *requested }), None),
        Decision::Quiet(until) => (Some(quiet_period(policy)), Some(*until)),
        Decision::Hold(hold, until) => {
            let writers = step.memory.writers(&step.status);
            (Some(Situation::Held { hold, writers }), until.iter().copied().chain([now + HOLD_RECHECK]).min())
        }
    };
    let is_recorded = step.memory.has_recorded(&step.status);
    match situation {
        // The pods that a change finds are listed. It is recorded even if they cannot be listed now.
        Some(situation) => {
            let listed = restarts.take_list(&mut step).await;
            if listed.is_ok() || !is_recorded {
                step.update_status(&situation).await?;
            }
            listed?;
        }
        None => {
            if recount.is_due(step.status.pods, now) {
                // The baseline must not wait for a list, which may take long, or fail.
                if !is_recorded {
                    step.report_settled().await?;
                }
                step.status.pods = Some(restarts::count(step.context, policy, now).await?);
            }
            step.report_settled().await?;
        }
    }
    Ok(Requeue::At(until))
}
