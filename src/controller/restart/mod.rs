//! Carries out restarts. A restart begins with lists of pods and a write of the intent. Each pass then lists the pods,
//! deletes some, and waits for the new ones.
//!
//! `monitor::restart` decides which pods may be deleted. A pod is deleted only if it was listed in the same pass, or by
//! another keeper as the restart began; only after the intent is in the status; and only for a spec that was confirmed
//! after that list.

mod drive;
mod owners;
mod pod_watch;
mod snapshots;
mod watched;
mod wave;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;

use self::drive::Drive;
use self::snapshots::Snapshots;
use self::watched::Watched;
use super::clock::{self, timer_now};
use super::context::Context;
use super::requeue::Requeue;
use super::shared::{ListInterest, Listing};
use super::step::{Step, quiet_period};
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::{PODS, ServerTime};
use crate::monitor::decide::{Decision, Quiet};
use crate::monitor::hold::{back_off, may_begin};
use crate::monitor::notice;
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::restart::machine::Machine;
use crate::monitor::restart::plan::{Plan, Skipped};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, CanaryState, Restart, Status, Why};

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
        let (context, policy, came) = (step.context, step.policy, step.memory.content_came());
        let Some(restart) = &mut step.status.restart else { return Ok(()) };
        let pods = match (&restart.begun, quiet) {
            (None, _) => self.snapshots.take(context, policy, restart, came).await?,
            (Some(_), Some(quiet)) => {
                let mut following = quiet.follow(restart);
                let pods = self.snapshots.take(context, policy, &mut following, came).await?;
                quiet.listed = following.pods_resource_version;
                pods
            }
            (Some(_), None) => None,
        };
        step.status.pods = pods.or(step.status.pods);
        Ok(())
    }

    /// Drops, or puts on hold, what the decision does not need.
    pub(crate) fn discard_unneeded(&mut self, decision: &Decision) {
        if !matches!(decision, Decision::CanaryFailed(_)) {
            self.recheck_at = None;
        }
        match decision {
            Decision::Settled => self.snapshots = Snapshots::default(),
            Decision::Resume(..) => self.snapshots.forget(),
            _ => {}
        }
        match decision {
            Decision::Resume(..) | Decision::Read => {}
            Decision::Settled => self.watched = None,
            _ => self.hold(),
        }
    }

    /// Drops the restart under way once it is over. The plan is kept until then, even while the restart is suspended or
    /// interrupted. A plan made again after the API server has forgotten the list would use creation times, and might
    /// contain pods that this restart created.
    pub(crate) fn end(&mut self) {
        self.watched = None;
    }

    /// Records in the status what the restart under way has deleted, because it may not go on, or goes to the history.
    pub(crate) fn record_deletions(&mut self, status: &mut Status) {
        let Some(machine) = self.watched.as_ref().map(|watched| &watched.machine) else { return };
        if let Some(restart) = &mut status.restart
            && let Some(begun) = restart.begun.clone()
        {
            if machine.deleted() != begun.deleted && machine.is_of(restart, &begun) {
                restart.begun = Some(machine.to_write(begun));
            }
        } else if let Some(last) = status.history.first_mut().filter(|last| machine.is_superseded_in(last)) {
            last.replaced = machine.deleted();
        }
    }

    /// The plan is kept, because the restart may go on later.
    pub(crate) fn hold(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.hold();
        }
    }

    /// Begins a pending restart: lists the pods, writes the intent, and deletes.
    pub(crate) async fn begin(&mut self, mut step: Step<'_>, mut restart: Restart) -> Result<Requeue, Error> {
        let (context, policy) = (step.context, step.policy);
        // A failed canary has a restart, of which a request makes another one.
        step.status.supersede(restart.clone(), context.client.server_now());
        let came = step.memory.content_came();
        let lists = self.snapshots.begin(context, policy, &mut restart, came).await;
        let (suspects, listing, interest) = match lists {
            Ok(lists) => lists,
            Err(error) => {
                step.scheduling.end_turn();
                step.record_restart(restart, &quiet_period(policy)).await?;
                return Err(error);
            }
        };
        // A window may have closed during the lists. A shared list may be older than the window.
        let now = context.client.server_now();
        if may_begin(policy, &step.status, &restart, now).is_err() {
            return Ok(Requeue::Now);
        }
        step.status.restart = Some(Box::new(restart.clone()));
        let (selector, own_pod) = (policy.selector.to_query(), context.shared.own_pod.as_ref());
        let plan = Plan::new(policy, &restart, selector, &suspects, &listing.pods, own_pod);
        step.status.pods = Some(listing.pods.len());
        let (changed, why) = (report::changed(&step.status), step.status.why());
        let notices = notice::started(&changed, why, plan.len(), &plan.skipped);
        if plan.is_empty() {
            step.scheduling.end_turn();
            let left = skipped(&step.status, restart.revert, &plan.skipped);
            if restart.revert && step.status.changed(&restart.contents).is_empty() {
                // A revert that no pod needs: no pod has read the other content.
                step.status.restart = None;
            } else {
                step.status.complete(&restart.contents, None, left, now);
            }
            step.report_settled().await?;
            (self.watched, self.snapshots) = (None, Snapshots::default());
            context.publish(&notices, &step.memory.identities()).await;
            info!(source = policy.source(), "no pod to restart");
            return Ok(Requeue::At(None));
        }
        let canary = policy
            .canary
            .filter(|_| why != Why::Reverted)
            .map(|canary| Canary { pods: canary.pods.of(plan.len()).min(plan.len()), state: CanaryState::Replacing });
        let begun = Begun { canary, ..Begun::new(now, policy.selector.to_query(), plan.len()) };
        self.begun_at = Some(begun.started_at);
        let mut watched = Watched::new(Machine::new(policy, plan, &restart, &begun, context.shared.own_pod.clone()));
        let turns_ended = listing.turns_ended;
        let listed = watched.take_list(listing, interest, &context.name);
        watched.machine.heard(listed, clock::now(&context.client));
        if let Some(owners) = watched.machine.lacks_turn()
            && !step.scheduling.try_turn(&context.shared, &owners, Some(turns_ended))
        {
            step.update_status(&Situation::WaitingForOtherRestart).await?;
            return Ok(Requeue::OnTurn(owners));
        }
        step.status.restart_back_off_seconds = back_off(policy, &step.status, &restart, begun.started_at);
        let restart = Restart { begun: Some(begun.clone()), ..restart };
        step.status.restart = Some(Box::new(restart.clone()));
        let confirmed = step.intend(&Situation::RestartInProgress(Progress::new(&begun))).await?;
        self.snapshots.forget();
        context.log(&notices);
        let watched = self.watched.insert(watched);
        watched.started = notices.iter().find(|notice| notice.reason == "RestartStarted").cloned();
        watched.machine.begin(confirmed);
        let requeue = Drive { step: &mut step, restart, watched }.run().await;
        step.scheduling.end_turn();
        // After the deletions, which are urgent.
        context.emit_events(&notices, &step.memory.identities(), begun.started_at).await;
        requeue
    }

    /// Continues a restart that has begun, maybe in an earlier process.
    pub(crate) async fn resume(
        &mut self,
        mut step: Step<'_>,
        restart: Restart,
        begun: Begun,
    ) -> Result<Requeue, Error> {
        // The status may still say that the restart is interrupted, or name other sources.
        step.record_restart(restart.clone(), &Situation::RestartInProgress(Progress::new(&begun))).await?;
        let watched = self.known(&step, &restart, &begun).await?;
        let requeue = Drive { step: &mut step, restart, watched }.run().await;
        step.scheduling.end_turn();
        requeue
    }

    /// Returns the restart under way, which an earlier process may have begun.
    async fn known(&mut self, step: &Step<'_>, restart: &Restart, begun: &Begun) -> Result<&mut Watched, Error> {
        let Step { context, policy, .. } = *step;
        let mut watched = match self.watched.take().filter(|watched| watched.machine.is_of(restart, begun)) {
            Some(watched) => watched,
            None => {
                let plan = self.snapshots.recall(context, policy, restart, begun).await?;
                let mut machine = Machine::new(policy, plan, restart, begun, context.shared.own_pod.clone());
                if self.begun_at != Some(begun.started_at) {
                    machine.take_over();
                }
                Watched::new(machine)
            }
        };
        watched.resume(policy, begun);
        Ok(self.watched.insert(watched))
    }

    /// Reports that the canary has failed. Now and then looks whether somebody else has replaced the other pods, which
    /// ends the restart.
    pub(crate) async fn stay_failed(&mut self, mut step: Step<'_>, message: &str) -> Result<Requeue, Error> {
        let now = timer_now();
        let recheck_at = *self.recheck_at.get_or_insert(now + RECHECK);
        if now >= recheck_at
            && let Some(restart) = step.status.restart.as_deref().cloned()
            && let Some(begun) = restart.begun.clone()
        {
            let (context, policy) = (step.context, step.policy);
            let watched = self.known(&step, &restart, &begun).await?;
            let (listing, interest) = list_pods(context, policy, now).await?;
            let listed = watched.take_list(listing, interest, &context.name);
            watched.machine.heard(listed, clock::now(&context.client));
            let drive = Drive { step: &mut step, restart, watched };
            if let Some(requeue) = drive.complete_if_over().await? {
                return Ok(requeue);
            }
            self.recheck_at = Some(now + RECHECK);
        }
        step.update_status(&Situation::CanaryFailed(message)).await?;
        Ok(Requeue::At(self.recheck_at))
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

/// Returns how many pods a policy selects, by a list that began at `not_before` or later.
pub(crate) async fn count(context: &Context, policy: &Policy, not_before: Instant) -> Result<usize, Error> {
    let (_, listed) = snapshots::list_identities(context, policy, not_before).await?;
    Ok(listed.pods.len())
}

/// Lists the selected pods, or shares a list that began at `not_before` or later.
async fn list_pods(
    context: &Context,
    policy: &Policy,
    not_before: Instant,
) -> Result<(Arc<Listing>, ListInterest), Error> {
    let interest = context.shared.lists.interest(&policy.selector.to_query());
    let list = |before| Listing::make(&context.client, &context.shared, selected(policy), before);
    let listing = interest.ask(context.client.stop(), not_before, list).await?;
    Ok((listing, interest))
}

/// Returns the number and names of skipped pods for the status. A revert that skips none keeps those of the earlier
/// restart.
fn skipped(status: &Status, is_revert: bool, skipped: &[Skipped]) -> (usize, String) {
    if is_revert && skipped.is_empty() {
        return (status.skipped, status.skipped_pods.clone());
    }
    (skipped.len(), report::skipped_pods(skipped))
}

fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), name: None, metadata_only: false }
}
