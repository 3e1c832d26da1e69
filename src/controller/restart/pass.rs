//! One pass of a restart: reads the owners, deletes the pods that may go, and writes the outcome.

use tracing::{info, warn};

use super::watched::Watched;
use super::{owners, skipped, wave};
use crate::controller::clock::{now, timer_now};
use crate::controller::context::Context;
use crate::controller::memory::{Confirmation, Confirmed};
use crate::controller::requeue::Requeue;
use crate::controller::step::Step;
use crate::kube::Uid;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Pod;
use crate::monitor::notice;
use crate::monitor::report::{self, Situation};
use crate::monitor::restart::progress::Hindrance;
use crate::monitor::restart::standing::{Move, Standing};
use crate::monitor::restart::wave::Reply;
use crate::monitor::status::{Begun, Canary, CanaryState, Restart, Why};

pub(super) struct Pass<'a, 'b> {
    pub(super) step: &'a mut Step<'b>,
    pub(super) restart: Restart,
    pub(super) begun: Begun,
    pub(super) watched: &'a mut Watched,
}

/// How a pass knows its pods, and so what it may do.
pub(super) enum Basis {
    /// From a watch. The pass may find that the restart is over, and deletes nothing.
    Watched,
    Listed,
    /// From a list, after which the intent was written.
    Confirmed(Confirmed),
}

/// What came of the wave of a pass.
#[derive(Default)]
struct Sweep {
    deleted: usize,
    refusal: Option<Error>,
    /// Whether the next step follows at once.
    is_cut_short: bool,
}

impl Sweep {
    /// Returns whether the only refusals came from a PodDisruptionBudget that lets pods go one after the other, as
    /// intended: one has gone, or some are terminating.
    fn is_expected(&self, is_moving: bool) -> bool {
        let is_blocked = self.refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Blocked(_)));
        is_blocked && (self.deleted > 0 || is_moving)
    }
}

impl Pass<'_, '_> {
    /// Deletes the pods that may go, or completes the restart, or waits.
    pub(super) async fn run(mut self, basis: Basis) -> Result<Requeue, Error> {
        let (context, policy) = (self.step.context, self.step.policy);
        self.watched.machine.begin_pass(&self.begun, context.client.server_now());
        if self.watched.machine.needs_owners() {
            self.read_owners().await?;
            if matches!(basis, Basis::Watched) {
                self.watched.catch_up(&context.client).await;
                if !self.watched.is_watching() {
                    return Ok(Requeue::Now);
                }
                self.watched.machine.trust_watch(context.client.server_now());
            }
        }
        let standing = self.watched.machine.standing();
        let is_moving = standing.on_their_way > 0;
        let Standing { next, remaining, lacking, .. } = standing;
        let sweep = match (&next, basis) {
            (Move::Done, _) => {
                let stuck: Vec<String> = standing.stuck.iter().map(|name| (*name).to_owned()).collect();
                return self.complete(&stuck).await;
            }
            // To delete pods, and to pass or fail a canary, takes a list.
            (Move::Remove(_) | Move::Canary(CanaryState::Passed | CanaryState::Failed { .. }), Basis::Watched) => {
                return Ok(Requeue::Now);
            }
            (Move::Canary(state), _) => return self.judge_canary(state.clone()).await,
            (Move::Remove(uids), Basis::Confirmed(confirmed)) => self.delete(uids, confirmed, is_moving).await?,
            (Move::Remove(uids), Basis::Listed) => match self.step.confirm().await? {
                Confirmation::Confirmed(confirmed) => self.delete(uids, confirmed, is_moving).await?,
                Confirmation::Changed => return Ok(Requeue::Now),
                Confirmation::Gone => {
                    self.watched.hold();
                    return Ok(Requeue::missing());
                }
            },
            (Move::Wait(_), _) => Sweep::default(),
        };
        self.step.scheduling.end_turn();
        self.watched.has_news = false;
        self.watched.machine.record_pass(sweep.deleted, remaining, lacking, context.client.server_now());
        if sweep.is_cut_short && sweep.refusal.is_none() && sweep.deleted == 0 {
            // A write would say that nothing is in the way, until the next list shows whether something is.
            return Ok(Requeue::Now);
        }
        // Keepers that have not deleted anything yet go before the rest of this pass.
        if sweep.deleted > 0 {
            self.step.scheduling.acquire_slot(context).await;
        }
        let is_expected = sweep.is_expected(is_moving);
        let hindrance = sweep.refusal.as_ref().map(|error| Hindrance { error, is_expected });
        let now = now(&context.client);
        let is_stalled = self.watched.machine.check_deadline(now.server);
        let is_watched = self.watched.watch(!is_stalled, &context.shared.limits);
        let (begun, situation, due) = self.watched.machine.end_pass(self.begun, &next, hindrance, is_watched, now);
        self.step.status.restart = Some(Box::new(Restart { begun: Some(begun), ..self.restart }));
        let is_cut_short = sweep.is_cut_short && sweep.refusal.is_none();
        let is_calm = !is_cut_short && matches!(situation, Situation::RestartInProgress(_));
        let may_wait = is_calm && policy.max_unavailable.is_none() && sweep.deleted > 0;
        // Every old pod is terminating, so the next write may be that the restart is over.
        if may_wait && self.watched.machine.standing().waiting == 0 {
            return Ok(Requeue::At(Some(self.watched.machine.write_later(due, timer_now()))));
        }
        self.step.update_status(&situation).await?;
        self.watched.machine.written();
        announce(context, self.watched).await;
        Ok(if is_cut_short { Requeue::Now } else { Requeue::At(Some(due)) })
    }

    /// Completes a restart whose canary has failed if somebody else has replaced all other pods, and all have been ready
    /// for the time of a canary.
    pub(super) async fn complete_if_over(mut self) -> Result<Option<Requeue>, Error> {
        let machine = &self.watched.machine;
        let is_left = machine.standing().remaining > 0;
        if is_left || !machine.selects_as(&self.begun) || !machine.is_proven_by_others(&self.begun) {
            return Ok(None);
        }
        self.read_owners().await?;
        let standing = self.watched.machine.standing();
        let stuck: Vec<String> = standing.stuck.iter().map(|name| (*name).to_owned()).collect();
        if standing.next == Move::Done { self.complete(&stuck).await.map(Some) } else { Ok(None) }
    }

    /// Reads the desired replicas of the owners. With a budget, every read must succeed. Without a budget, an owner
    /// that may not be read is assumed to desire as many pods as it had at the start: the guess decides only when the
    /// restart is over, not what is deleted.
    async fn read_owners(&mut self) -> Result<(), Error> {
        let (context, policy, began) = (self.step.context, self.step.policy, timer_now());
        let owners = self.watched.machine.owners_to_read();
        let (states, failure) = owners::read_states(&context.client, policy, owners).await;
        let read_at = timer_now();
        self.watched.machine.owners_read(states, read_at.saturating_duration_since(began), read_at);
        match failure {
            // With a budget a failed read fails the step, so a success says nothing about the deletions.
            None if policy.max_unavailable.is_some() => {}
            None => self.record_success(),
            Some(error) if policy.max_unavailable.is_some() || !matches!(error.cause, Cause::Forbidden(_)) => {
                return Err(error);
            }
            Some(error) => {
                if self.watched.faults.record(&error.cause).1 {
                    warn!(%error, "desired replicas unknown; assuming the pods at the start of the restart");
                }
            }
        }
        Ok(())
    }

    /// Deletes pods in a wave, and logs a refusal that is new.
    async fn delete(&mut self, uids: &[Uid], confirmed: Confirmed, is_moving: bool) -> Result<Sweep, Error> {
        let Watched { machine, listed_at, .. } = &mut *self.watched;
        let (context, before, mut needs_list) = (self.step.context, machine.deleted(), false);
        let wave = machine.begin_wave(uids);
        let hear = |pod: &Pod, answer: Reply| {
            if matches!(answer, Reply::Deleted { here: true, .. })
                && let Some(read_at) = machine.first_deletion()
            {
                context.tally.first_deletion(context.client.server_now().since(read_at));
            }
            needs_list |= machine.answered(pod, answer);
            machine.wave_goes_on()
        };
        let is_whole = wave::send(self.step, wave, *listed_at, confirmed, hear).await;
        let is_cut_short = !is_whole || needs_list;
        let sweep = Sweep { deleted: machine.deleted() - before, refusal: machine.end_wave(), is_cut_short };
        match &sweep.refusal {
            Some(error) if error.cause == Cause::Stopped => return Err(error.clone()),
            Some(error) => {
                if !sweep.is_expected(is_moving) && self.watched.faults.record(&error.cause).1 {
                    let pods = self.watched.machine.undeleted().len();
                    warn!(%error, pods, "pods not deleted");
                }
            }
            None => self.record_success(),
        }
        Ok(sweep)
    }

    fn record_success(&mut self) {
        if self.watched.faults.recovered() {
            info!("restart no longer blocked");
        }
    }

    /// Records the state of the canary. The other pods are deleted only once the status says `Passed`.
    async fn judge_canary(self, state: CanaryState) -> Result<Requeue, Error> {
        self.step.scheduling.end_turn();
        let (begun, progress) = self.watched.machine.to_write(self.begun);
        let canary = begun.canary.clone().map(|canary| Canary { state: state.clone(), ..canary });
        let restart = Restart { begun: Some(Begun { canary, ..begun }), ..self.restart };
        self.step.status.restart = Some(Box::new(restart));
        let situation = match &state {
            CanaryState::Failed { message } => Situation::CanaryFailed(message),
            _ => Situation::RestartInProgress(progress),
        };
        self.step.update_status(&situation).await?;
        self.watched.machine.written();
        match state {
            CanaryState::Baking { .. } => info!("canary available"),
            CanaryState::Passed => info!("canary passed"),
            // `CanaryFailed` has a notice, which is logged.
            CanaryState::Failed { .. } | CanaryState::Replacing => {}
        }
        Ok(Requeue::Now)
    }

    async fn complete(mut self, stuck: &[String]) -> Result<Requeue, Error> {
        self.step.scheduling.end_turn();
        self.record_success();
        let Self { step, restart, begun, watched } = self;
        let now = step.context.client.server_now();
        let (begun, left) = watched.machine.result(begun);
        let left = skipped(&step.status, restart.revert, &left);
        let (changed, why) = (report::changed(&step.status), step.status.why());
        let mut sources = step.status.changed(&restart.contents);
        if why == Why::Reverted {
            sources = step.policy.sources.iter().map(|source| source.name.clone()).collect();
        }
        step.status.complete(&restart.contents, Some(&begun), left, now);
        step.status.pods = Some(watched.machine.selected());
        step.report_settled().await?;
        let notice = notice::completed(&changed, why, sources, &begun, stuck, now);
        step.context.publish(std::slice::from_ref(&notice), &step.memory.identities()).await;
        announce(step.context, watched).await;
        step.context.emit_events_at(&watched.machine.controllers(), &notice, now).await;
        // Nothing else wakes the keeper for a request that came during this restart.
        Ok(if step.memory.is_requested() { Requeue::Now } else { Requeue::At(None) })
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
