//! Carries out what a restart asks for: reads, deletes and writes until it waits.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::send;
use super::target_lists::list_pods;
use super::watched::Watched;
use crate::controller::clock::{now, timer_now};
use crate::controller::keeper::context::Context;
use crate::controller::keeper::memory::{Confirmation, Confirmed};
use crate::controller::keeper::requeue::Requeue;
use crate::controller::keeper::step::Step;
use crate::controller::limits::Owners;
use crate::controller::owners;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Owner;
use crate::kube::{Action, PODS};
use crate::monitor::hold::{may_begin, record_start};
use crate::monitor::notice::{self, Notice};
use crate::monitor::pod::Pod;
use crate::monitor::report::NO_SURGE;
use crate::monitor::restart::machine::{Do, News, Over, Report};
use crate::monitor::restart::sight::{OwnerQuery, OwnerStates};
use crate::monitor::restart::targets::Skipped;
use crate::monitor::restart::wave::{Reply, Wave};
use crate::monitor::situation::{Progress, Situation};
use crate::monitor::status::{Begun, Status, Why};
use crate::monitor::words;

pub(super) struct Drive<'a, 'b> {
    pub(super) step: &'a mut Step<'b>,
    pub(super) watched: &'a mut Watched,
    /// About the start of a restart that begins in this step.
    pub(super) notices: &'a [Notice],
}

impl Drive<'_, '_> {
    /// Does what the restart asks for until it waits.
    pub(super) async fn run(mut self) -> Result<Requeue, Error> {
        let requeue = self.drive().await;
        self.step.held.turn = None;
        requeue
    }

    async fn drive(&mut self) -> Result<Requeue, Error> {
        let (context, policy) = (self.step.context, self.step.policy);
        loop {
            let next = self.watched.machine.next(now(&context.client));
            if matches!(next, Do::Listen(_) | Do::Write(_) | Do::Complete(_)) {
                // The pass is over.
                self.step.held.turn = None;
            }
            let news = match next {
                Do::TakeTurn { owners, is_listed } => {
                    let since = self.watched.turns_ended().filter(|_| is_listed);
                    if !self.step.held.try_turn(&context.shared, &owners, since) {
                        return self.wait_for_turn(owners).await;
                    }
                    News::Turn(owners)
                }
                Do::List => {
                    // This is the last list of the pass, so the pass uses only what it shows.
                    let scope = self.watched.scope();
                    let (listing, interest) = list_pods(context, policy, &scope, timer_now()).await?;
                    let before = self.watched.machine.deleted();
                    self.watched.take_list(listing, interest, context);
                    self.watched.machine.surge_refused(&context.shared.surge.refusals());
                    let shown = self.watched.machine.deleted() - before;
                    context.tally.pods_removed(policy.deletion_policy.into(), shown);
                    continue;
                }
                Do::ReadOwners(queries) => {
                    let (states, took) = self.read_owners(queries).await?;
                    News::OwnersRead { states, took }
                }
                Do::ReadDeployments(_) if !context.shared.settings.surges => {
                    return Err(Action::new("patch", PODS).failed(Cause::Forbidden(NO_SURGE.to_owned())));
                }
                Do::ReadDeployments(deployments) => self.read_deployments(deployments).await?,
                Do::Intend(begun) => match self.intend(begun).await? {
                    Some(confirmed) => News::Confirmed(confirmed),
                    None => return Ok(Requeue::Now),
                },
                Do::Confirm => match self.step.confirm().await? {
                    Confirmation::Confirmed(confirmed) => News::Confirmed(confirmed),
                    Confirmation::Changed => return Ok(Requeue::Now),
                    Confirmation::Gone => return Ok(Requeue::missing()),
                },
                Do::Remove(wave, confirmed) => {
                    self.remove(wave, confirmed).await;
                    continue;
                }
                Do::Listen(is_wanted) => self.watched.listen(is_wanted, context, policy.selector.to_query()),
                Do::Write(report) => {
                    self.write(report).await?;
                    News::Written
                }
                Do::Complete(over) => return self.end(over).await,
                Do::Wait(until) => return Ok(Requeue::At(Some(until))),
                Do::Pause(until) => return Ok(Requeue::Later(until)),
                Do::Decide => return Ok(Requeue::Now),
            };
            self.watched.machine.heard(news, now(&context.client));
        }
    }

    /// Lets a restart that has not begun wait for a turn with these owners.
    async fn wait_for_turn(&mut self, owners: Owners) -> Result<Requeue, Error> {
        if !self.watched.machine.is_intended() {
            self.step.update_status(&Situation::WaitingForOtherRestart).await?;
        }
        Ok(Requeue::OnTurn(owners))
    }

    /// Writes that the restart begins. Returns `None` if it may not: a window may have closed during the requests.
    async fn intend(&mut self, begun: Begun) -> Result<Option<Confirmed>, Error> {
        let Step { context, policy, ref mut status, .. } = *self.step;
        let now = context.client.server_now();
        if may_begin(policy, status, status.is_requested(), now).is_err() {
            return Ok(None);
        }
        record_start(status, begun.started_at);
        status.begin(begun.clone());
        let confirmed = self.step.intend(&Situation::RestartInProgress(Progress::new(&begun))).await?;
        context.log(self.notices);
        Ok(Some(confirmed))
    }

    /// Sends deletions. Keepers that have not deleted anything yet go before the rest of this pass.
    async fn remove(&mut self, wave: Wave, confirmed: Confirmed) {
        let context = self.step.context;
        let Watched { machine, listed_at, .. } = &mut *self.watched;
        let before = machine.deleted();
        let restart = machine.number();
        let hear = |pod: &Pod, reply: Reply| {
            if matches!(reply, Reply::Deleted { here: true, .. } | Reply::HandedOver(_))
                && let Some(read_at) = machine.first_deletion()
            {
                context.tally.first_deletion(context.client.server_now().since(read_at));
            }
            machine.replied(pod, reply)
        };
        let is_whole = send::send(self.step, wave, (restart, *listed_at), confirmed, hear).await;
        machine.heard(News::WaveOver { is_whole }, now(&context.client));
        let has_deleted = machine.deleted() > before;
        self.step.held.turn = None;
        if has_deleted {
            self.step.held.queue_again(&context.shared).await;
        }
    }

    /// Completes a restart whose canary has failed if somebody else has replaced all other pods.
    pub(super) async fn complete_if_over(&mut self) -> Result<Option<Requeue>, Error> {
        if !self.watched.machine.may_be_over() {
            return Ok(None);
        }
        let (states, took) = self.read_owners(self.watched.machine.owners_to_read()).await?;
        self.watched.machine.heard(News::OwnersRead { states, took }, now(&self.step.context.client));
        match self.watched.machine.over_without_canary() {
            Some(over) => self.end(over).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads Deployments, and whether a pod may be handed over.
    async fn read_deployments(&self, deployments: Vec<Arc<Owner>>) -> Result<News<Confirmed>, Error> {
        let (client, began) = (&self.step.context.client, timer_now());
        let selected = self.step.policy.selector.to_query();
        let states = owners::read_deployments(client, Some(&selected), deployments).await?;
        if let Some(pod) = self.watched.machine.pod_to_hand_over(&states) {
            client.may_patch_pod(&pod.name, &pod.uid).await?;
        }
        Ok(News::DeploymentsRead { states, took: timer_now().saturating_duration_since(began) })
    }

    /// Reads the desired replicas of owners, and returns how long that took.
    async fn read_owners(&mut self, queries: Vec<OwnerQuery>) -> Result<(OwnerStates, Duration), Error> {
        let (context, policy, began) = (self.step.context, self.step.policy, timer_now());
        let (states, failure) = owners::read_states(&context.client, policy, queries).await;
        match failure {
            Some(error) if !self.watched.machine.tolerates(&error) => return Err(error),
            Some(error) if self.watched.faults.record(&error.cause).1 => {
                warn!(%error, "desired replicas unknown; assuming the pods at the start of the restart");
            }
            _ => {}
        }
        Ok((states, timer_now().saturating_duration_since(began)))
    }

    async fn write(&mut self, report: Report) -> Result<(), Error> {
        self.step.status.record(report.begun.clone());
        let situation = Situation::of_restart(&self.watched.machine, self.step.policy, &report);
        self.step.update_status(&situation).await?;
        announce(self.step.context, self.watched).await;
        Ok(())
    }

    async fn end(&mut self, over: Over) -> Result<Requeue, Error> {
        let Self { step, watched, .. } = self;
        let now = step.context.client.server_now();
        let Over { begun, skipped: left, terminating, selected } = over;
        let left = left_alone(&step.status, &left);
        let (changed, why) = (words::changed(&step.status), step.status.why());
        let concerned = step.status.sources.iter().filter(|known| !known.changes.is_empty());
        let sources = concerned.map(|known| known.name.clone()).collect();
        step.status.complete(Some(&begun), left, now);
        step.status.pods = Some(selected);
        step.report(None).await?;
        let notice = notice::completed(&changed, why, sources, &begun, terminating, now);
        step.context.publish(std::slice::from_ref(&notice), &step.memory.uids()).await;
        announce(step.context, watched).await;
        step.context.emit_events_at(&watched.machine.controllers(), &notice, now).await;
        Ok(step.rest())
    }
}

/// Emits the Event about the start at the controllers of the pods, once these are known.
async fn announce(context: &Context, watched: &mut Watched) {
    let controllers = watched.machine.controllers();
    if !controllers.is_empty()
        && let Some(started) = watched.started.take()
    {
        context.emit_events_at(&controllers, &started, watched.machine.started_at()).await;
    }
}

/// Returns the number and names of skipped pods for the status. A revert that skips none keeps those of the earlier
/// restart.
pub(super) fn left_alone(status: &Status, skipped: &[Skipped]) -> (usize, String) {
    if status.why() == Why::Reverted && skipped.is_empty() {
        return (status.skipped, status.skipped_pods.clone());
    }
    (skipped.len(), words::skipped_pods(skipped))
}
