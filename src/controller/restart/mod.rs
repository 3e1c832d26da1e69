//! Carries out restarts. One begins with lists of pods, and the intent is written down. Then pass follows pass: the pods are listed, some are
//! deleted, and the new ones are waited for.
//!
//! What may be deleted is decided in `monitor::rollout`; here it is only done, and only to pods that were listed in the same pass, or by another keeper
//! as the restart began; after the intent is in the status, and for a spec that was confirmed after that list.

mod attempts;
mod owners;
mod pace;
mod pass;
mod pod_watch;
mod rollout;
mod snapshots;
mod wave;

use std::sync::Arc;
use std::time::Instant;

use tracing::info;

use self::pass::{Basis, Pass};
use self::rollout::Rollout;
use self::snapshots::Snapshots;
use super::clock::timer_now;
use super::context::Context;
use super::limits::Owners;
use super::requeue::Requeue;
use super::shared::{InPods, Listing, Shared};
use super::step::{Step, quiet_period};
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::{PODS, ServerTime};
use crate::monitor::decide::Decision;
use crate::monitor::hold::{back_off, may_begin};
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::rollout::{Plan, Skipped};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, CanaryState, Restart, Stage, Status, Why};

/// What one ConfigMonitor's restarts have to know from one step to the next.
#[derive(Default)]
pub(crate) struct Restarts {
    /// The one under way, as far as this process knows it. Boxed, as most ConfigMonitors have none.
    rollout: Option<Box<Rollout>>,
    /// The lists of pods that say what the one that is pending or under way is about.
    snapshots: Snapshots,
    /// When the last one began that this keeper has begun, or has tried to: nobody else deletes pods for it.
    begun_at: Option<ServerTime>,
}

impl Restarts {
    /// Takes note of which pods there are when content has come that is to wait.
    pub(crate) async fn take_snapshot(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let came = step.memory.content_came();
        self.snapshots.take(step.context, step.policy, &mut step.status, came).await
    }

    /// Forgets, or puts aside, what a decision has no use for.
    pub(crate) fn clear_up(&mut self, status: &Status, decision: &Decision) {
        match decision {
            Decision::Settled => self.snapshots = Snapshots::default(),
            Decision::Resume(..) => self.snapshots.forget(),
            _ => {}
        }
        let stage = status.restart.as_ref().map(|restart| &restart.stage);
        let is_superseding = matches!(stage, Some(Stage::Superseding(_)));
        match decision {
            Decision::Resume(..) | Decision::Read => {}
            Decision::Missing(_) | Decision::Suspended { .. } => self.hold(),
            // The restart under way goes on if its content comes back, until the other one has begun.
            Decision::Quiet(_) | Decision::Hold(..) | Decision::Begin(_) if is_superseding => self.hold(),
            Decision::Settled
            | Decision::Quiet(_)
            | Decision::Hold(..)
            | Decision::Begin(_)
            | Decision::CanaryFailed(_) => self.rollout = None,
        }
    }

    /// Takes what the restart under way, or superseded, has deleted into the status, if that is not written yet. It may not go on.
    pub(crate) fn record(&mut self, status: &mut Status, shared: &Shared) {
        let Some((rollout, restart)) = self.rollout.as_mut().zip(status.restart.as_mut()) else { return };
        let version = restart.pods_resource_version.clone();
        let (begun, version) = match &mut restart.stage {
            Stage::Pending => return,
            Stage::UnderWay(begun) => (begun, version),
            Stage::Superseding(superseded) => (&mut superseded.begun, superseded.pods_resource_version.clone()),
        };
        if rollout.deletions() != begun.deleted && rollout.is_of(version, begun) {
            *begun = rollout.to_write(begun.clone(), shared).0;
        }
    }

    /// The restart under way, if there is one, may go on later: its plan is kept.
    pub(crate) fn hold(&mut self) {
        if let Some(rollout) = &mut self.rollout {
            rollout.hold();
        }
    }

    /// Begins a pending restart: lists the pods, writes down what is about to happen, and deletes.
    pub(crate) async fn begin(&mut self, mut step: Step<'_>, mut restart: Restart) -> Result<Requeue, Error> {
        let (context, policy) = (step.context, step.policy);
        let came = step.memory.content_came();
        let lists = self.snapshots.begin(context, policy, &mut restart, came).await;
        let (suspects, listing, interest) = match lists {
            Ok(lists) => lists,
            Err(error) => {
                step.duty.end_turn();
                step.write_down(restart, &quiet_period(policy)).await?;
                return Err(error);
            }
        };
        // By now a window may have closed.
        if may_begin(policy, &step.status, &restart, context.client.server_now()).is_err() {
            return Ok(Requeue::Now);
        }
        step.status.restart = Some(Box::new(restart));
        step.status.give_up_superseded(listing.at);
        let Some(restart) = step.status.restart.as_deref().cloned() else { return Ok(Requeue::Now) };
        let (selector, own_pod) = (policy.selector.to_query(), context.shared.own_pod.as_ref());
        let plan = Plan::new(policy, &restart, selector, &suspects, &listing.pods, own_pod);
        step.status.pods = Some(listing.pods.len());
        let (changed, why) = (report::changed(&step.status), step.status.why());
        let told = report::started(&changed, why, plan.len(), plan.skipped());
        if plan.is_empty() {
            step.duty.end_turn();
            let left = skipped(&step.status, restart.revert, plan.skipped());
            if restart.revert && step.status.changed(&restart.contents).is_empty() {
                // Nothing has come of what came in between.
                step.status.restart = None;
            } else {
                step.status.complete(&restart.contents, None, left, listing.at);
            }
            step.settle_down().await?;
            (self.rollout, self.snapshots) = (None, Snapshots::default());
            context.publish(&told, &step.memory.identities()).await;
            info!(
                namespace = context.client.namespace(),
                monitor = &*context.name,
                source = policy.source(),
                "no pod to restart"
            );
            context.shared.pods.forget();
            return Ok(Requeue::At(None));
        }
        let canary = policy
            .canary
            .filter(|_| why != Why::Reverted)
            .map(|canary| Canary { pods: canary.pods.of(plan.len()).min(plan.len()), state: CanaryState::Replacing });
        let begun = Begun { canary, ..Begun::new(listing.at, policy.selector.to_query(), plan.len()) };
        self.begun_at = Some(begun.started_at);
        let mut rollout = Rollout::new(policy, plan, &restart, &begun);
        let turns_ended = listing.turns_ended;
        rollout.see(listing, interest);
        if let Some(owners) = lacks_turn(&mut step, &rollout, Some(turns_ended)) {
            step.write_down(restart, &Situation::WaitingForOtherRestart).await?;
            return Ok(Requeue::OnTurn(owners));
        }
        step.status.restart_back_off_seconds = back_off(policy, &step.status, &restart, begun.started_at);
        let restart = Restart { stage: Stage::UnderWay(begun.clone()), ..restart };
        step.status.restart = Some(Box::new(restart.clone()));
        let confirmed = step.intend(&Situation::RestartInProgress(Progress::new(&begun))).await?;
        self.snapshots.forget();
        let began_at = context.event_time();
        context.log(&told);
        let rollout = self.rollout.insert(rollout);
        let requeue = Pass { step: &mut step, restart, begun, rollout }.run(Basis::Confirmed(confirmed)).await;
        self.end_pass(&mut step);
        // The pods come first.
        context.make_events(&told, &step.memory.identities(), began_at).await;
        requeue
    }

    /// Goes on with a restart that has begun, maybe by a process before this one.
    pub(crate) async fn resume(
        &mut self,
        mut step: Step<'_>,
        mut restart: Restart,
        mut begun: Begun,
    ) -> Result<Requeue, Error> {
        let (context, policy) = (step.context, step.policy);
        // It was superseded, or is about another source now: that comes first.
        step.write_down(restart.clone(), &Situation::RestartInProgress(Progress::new(&begun))).await?;
        self.rollout.take_if(|rollout| !rollout.is_of(restart.pods_resource_version.clone(), &begun));
        let rollout = match &mut self.rollout {
            Some(rollout) => rollout,
            None => {
                let plan = self.snapshots.recall(context, policy, &restart, &begun).await?;
                let mut rollout = Rollout::new(policy, plan, &restart, &begun);
                if self.begun_at != Some(begun.started_at) {
                    rollout.resume();
                }
                self.rollout.insert(rollout)
            }
        };
        rollout.follow(policy, &begun);
        if rollout.write_at().is_some_and(|at| at <= timer_now())
            && let Some(next_pass) = write_progress(&mut step, rollout, &mut restart, &mut begun).await?
        {
            return Ok(Requeue::At(Some(next_pass)));
        }
        let now = context.client.server_now();
        let basis = if rollout.seems_seen(&context.shared, now) {
            // What is left is to ask the owners, and to write that down. The watch has told of all pods.
            rollout.believe_watch(now);
            Basis::Watched
        } else {
            if let Some(until) = rollout.not_before() {
                return Ok(Requeue::Later(rollout.write_at().map_or(until, |at| at.min(until))));
            }
            if let Some(owners) = lacks_turn(&mut step, rollout, None) {
                if rollout.write_at().is_some() {
                    write_progress(&mut step, rollout, &mut restart, &mut begun).await?;
                }
                return Ok(Requeue::OnTurn(owners));
            }
            // The last list of the pass: what it says is what is gone by.
            let (listing, interest) = list_pods(context, policy, timer_now()).await?;
            let turns_ended = listing.turns_ended;
            rollout.see(listing, interest);
            if let Some(owners) = lacks_turn(&mut step, rollout, Some(turns_ended)) {
                // Others have come to own such pods, and what was deleted of theirs meanwhile this list may not show.
                return Ok(Requeue::OnTurn(owners));
            }
            Basis::Listed
        };
        let requeue = Pass { step: &mut step, restart, begun, rollout }.run(basis).await;
        self.end_pass(&mut step);
        requeue
    }

    /// Ends a pass. The plan is kept until the restart is over, also while it is suspended: made again after the API server has forgotten the list, it would
    /// go by creation times, and might contain pods that this restart created.
    fn end_pass(&mut self, step: &mut Step<'_>) {
        step.duty.end_turn();
        if !step.memory.is_restarting() {
            self.rollout = None;
        }
        step.context.shared.pods.forget();
    }

    /// Waits until the pods of the restart under way, if there is one, are worth another pass, or cannot be watched any more.
    pub(crate) async fn worth_a_pass(&mut self, shared: &Shared) -> Result<(), Error> {
        match &mut self.rollout {
            Some(rollout) => Box::pin(rollout.worth_a_pass(shared)).await,
            None => std::future::pending().await,
        }
    }

    /// Takes note that the pods of the restart under way cannot be watched. Whether to tell of it.
    pub(crate) fn note_watch_fault(&mut self, cause: &Cause) -> bool {
        self.rollout.as_mut().is_some_and(|rollout| rollout.note_watch_fault(cause))
    }
}

/// Writes what the last waves of a restart have deleted. Returns when the next pass is due, unless one is worth it now.
async fn write_progress(
    step: &mut Step<'_>,
    rollout: &mut Rollout,
    restart: &mut Restart,
    begun: &mut Begun,
) -> Result<Option<Instant>, Error> {
    let (after, progress, next_pass) = rollout.to_write(begun.clone(), &step.context.shared);
    *begun = after;
    restart.stage = Stage::UnderWay(begun.clone());
    step.status.restart = Some(Box::new(restart.clone()));
    step.settle(&Situation::RestartInProgress(progress)).await?;
    rollout.written();
    Ok(next_pass)
}

/// How many pods a policy selects, as listed at this time or later.
pub(crate) async fn count(context: &Context, policy: &Policy, not_before: Instant) -> Result<usize, Error> {
    let (_, listed) = snapshots::list_identities(context, policy, not_before).await?;
    Ok(listed.pods.len())
}

/// The owners of the pods, if there is a budget and it is not this keeper's turn with them, or if it became that only after the pods were listed, before
/// which so many turns had ended.
fn lacks_turn(step: &mut Step<'_>, rollout: &Rollout, turns_ended: Option<u64>) -> Option<Owners> {
    step.policy.max_unavailable?;
    let owners = rollout.owners();
    (!step.duty.try_turn(&step.context.shared, &owners, turns_ended)).then_some(owners)
}

/// The pods that a policy selects, as listed at this time or later.
async fn list_pods(context: &Context, policy: &Policy, not_before: Instant) -> Result<(Arc<Listing>, InPods), Error> {
    let interest = context.shared.lists.interest(&policy.selector.to_query());
    let list = Listing::make(&context.client, &context.shared, selected(policy));
    let listing = interest.ask(context.client.stop(), not_before, list).await?;
    Ok((listing, interest))
}

/// The pods that a restart has left alone, for the status. A revert is not about those that were left alone before, which stay so.
fn skipped(status: &Status, is_revert: bool, skipped: &[Skipped]) -> (usize, String) {
    if is_revert && skipped.is_empty() {
        return (status.skipped, status.skipped_pods.clone());
    }
    (skipped.len(), report::skipped_pods(skipped))
}

fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), name: None, metadata_only: false }
}
