//! Carries out restarts. A restart begins with lists of pods and a write of the intent. Each pass then lists the pods,
//! deletes some, and waits for the new ones.
//!
//! `monitor::restart` decides which pods may be deleted. A pod is deleted only if it was listed in the same pass, or by
//! another keeper as the restart began; only after the intent is in the status; and only for a spec that was confirmed
//! after that list.

mod drive;
mod lists;
mod owners;
mod pod_watch;
mod watched;
mod wave;

use std::time::{Duration, Instant};

use tracing::info;

use self::drive::{Drive, skipped};
pub(crate) use self::lists::count;
use self::lists::{Planner, list_pods};
pub(crate) use self::owners::{read_deployments, read_workload};
use self::watched::Watched;
pub(crate) use self::wave::remove;
use super::clock::timer_now;
use super::requeue::Requeue;
use super::step::{Step, quiet_period};
use crate::kube::ServerTime;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::monitor::decide::Quiet;
use crate::monitor::hold::may_begin;
use crate::monitor::notice::{self, Notice};
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::restart::machine::Machine;
use crate::monitor::restart::plan::{Plan, Scope};
use crate::monitor::restart::snapshots::Snapshots;
use crate::monitor::status::{Change, Restart, Status};

/// How often the pods of a restart whose canary has failed are listed.
const RECHECK: Duration = Duration::from_secs(60);

/// The state of a ConfigMonitor's restarts between steps.
#[derive(Default)]
pub(crate) struct Restarts {
    /// Boxed, because most ConfigMonitors have none.
    watched: Option<Box<Watched>>,
    snapshots: Snapshots,
    /// The start time of the last restart that this keeper has begun or tried to begin: no other process has deleted
    /// pods for it.
    begun_at: Option<ServerTime>,
    /// When the pods of a restart whose canary has failed are listed again.
    recheck_at: Option<Instant>,
}

impl Restarts {
    /// Lists the pods when new content has come that has to wait. While it interrupts a restart, `quiet` has the list.
    pub(crate) async fn take_snapshot(&mut self, step: &mut Step<'_>, quiet: Option<&mut Quiet>) -> Result<(), Error> {
        let (came, content) = (step.memory.content_came(), step.status.desired());
        let Some(restart) = &mut step.status.restart else { return Ok(()) };
        let planner = Planner { context: step.context, policy: step.policy, snapshots: &mut self.snapshots };
        let pods = match (&restart.begun, quiet) {
            (None, _) => {
                let content = (content, restart.observed_at());
                planner.take(restart, content, came).await?
            }
            (Some(_), Some(quiet)) => planner.take_interrupting(restart, quiet, came).await?,
            (Some(_), None) => None,
        };
        step.status.pods = pods.or(step.status.pods);
        Ok(())
    }

    /// Drops the restart under way once it is over. The plan is kept until then, even while the restart is suspended or
    /// interrupted. A plan made again after the API server has forgotten the list would use creation times, and might
    /// contain pods that this restart created.
    pub(crate) fn end(&mut self) {
        self.watched = None;
    }

    /// Drops the lists once there is no restart.
    pub(crate) fn drop_lists(&mut self) {
        self.snapshots = Snapshots::default();
    }

    /// Records in the status what the restart under way has deleted, because it may not go on, or goes to the history.
    pub(crate) fn record_deletions(&self, status: &mut Status) {
        let Some(machine) = self.watched.as_ref().map(|watched| &watched.machine) else { return };
        if let Some(restart) = &mut status.restart
            && let Some(begun) = &restart.begun
        {
            restart.begun = machine.unwritten_deletions(restart, begun).or(restart.begun.take());
        } else if let Some(last) = status.history.first_mut().filter(|last| machine.is_superseded_in(last)) {
            last.replaced = machine.deleted();
        }
    }

    /// Puts the restart on hold. The plan is kept, because the restart may go on later.
    pub(crate) fn hold(&mut self) {
        self.recheck_at = None;
        if let Some(watched) = &mut self.watched {
            watched.hold();
        }
    }

    /// Begins a pending restart: lists the pods, writes the intent, and deletes.
    pub(crate) async fn begin(&mut self, mut step: Step<'_>, mut restart: Restart) -> Result<Requeue, Error> {
        self.hold();
        let (context, policy) = (step.context, step.policy);
        // A failed canary has a restart, of which a request makes another one.
        step.status.supersede(restart.clone(), context.client.server_now());
        let came = step.memory.content_came();
        let content = (step.status.desired(), restart.observed_at());
        let planner = Planner { context, policy, snapshots: &mut self.snapshots };
        let missing = step.memory.missing_discovered();
        let scope = Scope { missing: missing.clone(), ..Scope::of(&step.status) };
        let lists = planner.begin(&mut restart, &scope, content, came).await;
        step.status.restart = Some(Box::new(restart.clone()));
        let (plan, listing, interest) = match lists {
            Ok(lists) => lists,
            Err(error) => {
                step.scheduling.end_turn();
                step.record_restart(&quiet_period(policy)).await?;
                return Err(error);
            }
        };
        // A window may have closed during the lists. A shared list may be older than the window.
        let now = context.client.server_now();
        if may_begin(policy, &step.status, &restart, now).is_err() {
            return Ok(Requeue::Now);
        }
        step.status.pods = Some(listing.pods.len());
        let why = step.status.why();
        let notices = notice::started(&report::changed(&step.status), why, plan.len(), &plan.skipped);
        if plan.is_empty() {
            return self.end_without_pods(step, &plan, &notices, now).await;
        }
        let machine = Machine::begin(policy, plan, &restart, why, context.shared.settings.own_pod.clone(), now);
        self.begun_at = Some(machine.started_at());
        let mut watched = Watched::new(machine);
        watched.started = notices.first().cloned();
        watched.leave_out(missing);
        watched.take_list(listing, interest, context);
        let requeue = Drive { step: &mut step, watched: &mut watched, notices: &notices }.run().await;
        step.scheduling.end_turn();
        // A failed write has taken the status.
        let waits = !watched.machine.is_intended() && step.status.restart.is_some();
        if requeue.is_err() && waits {
            step.record_restart(&quiet_period(policy)).await?;
        }
        // Until the status has this restart, the one before may still be recorded.
        if watched.machine.is_intended() {
            let started_at = watched.machine.started_at();
            self.watched = Some(watched);
            // After the deletions, which are urgent.
            context.emit_events(&notices, &step.memory.uids(), started_at).await;
        }
        requeue
    }

    /// Ends a restart that has nothing to replace.
    async fn end_without_pods(
        &mut self,
        mut step: Step<'_>,
        plan: &Plan,
        notices: &[Notice],
        now: ServerTime,
    ) -> Result<Requeue, Error> {
        step.scheduling.end_turn();
        let is_recorded = |change: &Change| step.status.hash_of(&change.source) == Some(&change.hash);
        let is_revert = |restart: &Restart| restart.is_revert() && restart.changes.iter().all(is_recorded);
        if step.status.restart.as_deref().is_some_and(is_revert) {
            // No pod has read the other content.
            step.status.restart = None;
        } else {
            step.status.complete(None, skipped(&step.status, &plan.skipped), now);
        }
        step.report_settled().await?;
        step.context.publish(notices, &step.memory.uids()).await;
        info!(source = step.policy.source(), "no pod to restart");
        Ok(Requeue::At(None))
    }

    /// Continues a restart that has begun, maybe in an earlier process.
    pub(crate) async fn resume(&mut self, mut step: Step<'_>) -> Result<Requeue, Error> {
        self.recheck_at = None;
        if let Some(begun) = step.status.restart.as_ref().and_then(|restart| restart.begun.as_ref()) {
            // The status may still say that the restart is interrupted, or name other sources.
            let situation = Situation::RestartInProgress(Progress::new(begun));
            step.record_restart(&situation).await?;
        }
        let Some(watched) = self.known(&step).await? else { return Ok(Requeue::Now) };
        let requeue = Drive { step: &mut step, watched, notices: &[] }.run().await;
        step.scheduling.end_turn();
        requeue
    }

    /// Returns the restart under way, which an earlier process may have begun. `None` if there is none.
    async fn known(&mut self, step: &Step<'_>) -> Result<Option<&mut Watched>, Error> {
        let Step { context, policy, .. } = *step;
        let Some(restart) = step.status.restart.as_deref() else { return Ok(None) };
        let Some(begun) = &restart.begun else { return Ok(None) };
        let mut watched = match self.watched.take().filter(|watched| watched.machine.is_of(restart, begun)) {
            Some(watched) => watched,
            None => {
                let planner = Planner { context, policy, snapshots: &mut self.snapshots };
                let plan = planner.recall(Scope::of(&step.status), restart, begun).await?;
                let own_pod = context.shared.settings.own_pod.clone();
                let is_own = self.begun_at == Some(begun.started_at);
                Watched::new(Machine::recall(policy, plan, restart, begun, own_pod, is_own))
            }
        };
        watched.resume(policy, begun);
        watched.leave_out(step.memory.missing_discovered());
        Ok(Some(self.watched.insert(watched)))
    }

    /// Reports that the canary has failed. Now and then looks whether somebody else has replaced the other pods, which
    /// ends the restart.
    pub(crate) async fn stay_failed(&mut self, mut step: Step<'_>, message: &str) -> Result<Requeue, Error> {
        step.scheduling.end_turn();
        let now = timer_now();
        let recheck_at = self.recheck_at.unwrap_or(now + RECHECK);
        self.hold();
        self.recheck_at = Some(recheck_at);
        if now >= recheck_at {
            let (context, policy) = (step.context, step.policy);
            let Some(watched) = self.known(&step).await? else { return Ok(Requeue::Now) };
            let (listing, interest) = list_pods(context, policy, &watched.scope(), now).await?;
            watched.take_list(listing, interest, context);
            let drive = Drive { step: &mut step, watched, notices: &[] };
            if let Some(requeue) = drive.complete_if_over().await? {
                return Ok(requeue);
            }
            self.recheck_at = Some(now + RECHECK);
        }
        step.update_status(&Situation::CanaryFailed(message)).await?;
        Ok(Requeue::At(self.recheck_at))
    }

    /// Returns whether a watch follows the pods of a restart.
    pub(crate) fn are_followed(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.is_followed())
    }

    /// Waits until the pods of the restart under way are worth another pass, or until their watch fails.
    pub(crate) async fn worth_a_pass(&mut self, client: &Client) -> Result<(), Error> {
        match &mut self.watched {
            Some(watched) => Box::pin(watched.worth_a_pass(client)).await,
            None => std::future::pending().await,
        }
    }

    /// Records that the pods cannot be watched, and returns whether this must be logged.
    pub(crate) fn record_watch_fault(&mut self, cause: &Cause) -> bool {
        self.watched.as_mut().is_some_and(|watched| watched.watch_faults.record(cause).1)
    }
}
