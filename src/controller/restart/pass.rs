//! One pass of a restart: the owners are asked, what may be deleted is, and what has come of it is written down.

use tracing::{info, warn};

use super::owners;
use super::rollout::Rollout;
use super::wave::Wave;
use crate::controller::context::Context;
use crate::controller::duty::Duty;
use crate::controller::memory::{Confirmed, Memory, Record, Verdict};
use crate::controller::reconcile::Requeue;
use crate::controller::timer_now;
use crate::kube::Uid;
use crate::kube::error::{Cause, Error};
use crate::monitor::advance::{self, Found, Hindrance};
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::rollout::{Move, Standing};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Outcome, Restart, Stage, Status};

/// A pass: what it is about, and whom it works for.
pub(crate) struct Pass<'a> {
    pub(crate) context: &'a Context,
    pub(crate) memory: &'a mut Memory,
    pub(crate) duty: &'a mut Duty,
    pub(crate) policy: &'a Policy,
    pub(crate) record: &'a mut Record,
    pub(crate) status: Status,
    pub(crate) restart: Restart,
    pub(crate) begun: Begun,
    pub(crate) rollout: &'a mut Rollout,
}

/// From what a pass knows the pods, and so what it may do.
pub(crate) enum Basis {
    /// A watch has told of them. That will do to see that the restart is over, and nothing is deleted.
    Watched,
    /// They were listed.
    Listed,
    /// They were listed, and after that the intent was written.
    Confirmed(Confirmed),
}

impl Pass<'_> {
    /// Deletes what may be deleted, or sees that the restart is over, or waits.
    pub(crate) async fn run(mut self, basis: Basis) -> Result<Requeue, Error> {
        self.rollout.begin_pass(self.context.client.server_now());
        let remaining = self.rollout.standing(self.rollout.seen_at()).remaining;
        if self.policy.max_unavailable.is_some() || remaining == 0 {
            self.ask_owners().await?;
        }
        let standing = self.rollout.standing(self.rollout.seen_at());
        let is_moving = standing.on_their_way > 0;
        let progress = Progress::of(&self.begun, &standing);
        let Standing { next, remaining, lacking, .. } = standing;
        let wave = match (&next, basis) {
            (Move::Done, _) => {
                let stuck: Vec<String> = standing.stuck.iter().map(|name| (*name).to_owned()).collect();
                self.duty.end_turn();
                self.works();
                return self.complete(&stuck).await;
            }
            // Nothing is deleted that was not listed.
            (Move::Remove(_), Basis::Watched) => return Ok(Requeue::Now),
            (Move::Remove(uids), Basis::Confirmed(confirmed)) => self.delete(uids, confirmed).await,
            (Move::Remove(uids), Basis::Listed) => match self.memory.confirm(self.context, self.record).await? {
                Verdict::Confirmed(confirmed) => self.delete(uids, confirmed).await,
                Verdict::Changed => return Ok(Requeue::Now),
                Verdict::Gone => return Ok(Requeue::missing()),
            },
            (Move::Wait(_), _) => Wave::default(),
        };
        self.duty.end_turn();
        let is_in_turn = self.judge(&next, &wave, is_moving)?;
        let now = self.context.client.server_now();
        self.rollout.note(advance::Step { deleted: wave.deleted, remaining, lacking }, &self.begun, now);
        if wave.is_cut_short && wave.refusal.is_none() {
            return Ok(Requeue::Now);
        }
        // What is left to do waits for those who have not deleted anything yet.
        if wave.deleted > 0 {
            self.duty.queue(self.context).await;
        }
        let refusal = wave.refusal.as_ref().map(|error| (&error.cause, error.to_string()));
        let hindrance = refusal.as_ref().map(|(cause, text)| Hindrance { cause, text, is_in_turn });
        let progress = progress.not_deleted(self.rollout.undeleted().into_iter());
        let found = Found { remaining, next: &next, progress, hindrance, now };
        let refusal = refusal.as_ref().map(|(cause, _)| *cause);
        let (ended, again) = self.rollout.end_pass(self.begun, found, refusal, &self.context.shared);
        let restart = Restart { stage: Stage::UnderWay(ended.begun), ..self.restart };
        let status = Status { restart: Some(Box::new(restart)), ..self.status };
        self.memory.settle(self.context, self.record, status, &ended.situation).await?;
        Ok(Requeue::At(Some(again)))
    }

    /// Asks the owners of the pods how many they want. Without a budget, who cannot be asked wants as many as there were; with one, nothing is
    /// done until all have been asked.
    async fn ask_owners(&mut self) -> Result<(), Error> {
        let began = timer_now();
        let (client, pool) = (&self.context.client, &self.context.shared.pods);
        let (wanted, failure) = owners::ask(client, pool, self.policy, self.rollout.owners_to_ask()).await;
        self.rollout.hear_owners(wanted, timer_now().saturating_duration_since(began));
        match failure {
            // With a budget a failure is none of the restart's, and what is wrong with the pods is not over.
            None if self.policy.max_unavailable.is_some() => {}
            None => self.works(),
            Some(error) if error.cause == Cause::Stopped || self.policy.max_unavailable.is_some() => return Err(error),
            Some(error) => {
                if self.rollout.fails(&error.cause) {
                    let monitor = self.context.name();
                    warn!(monitor, %error, "owner not asked; going by the number of pods at the start");
                }
            }
        }
        Ok(())
    }

    async fn delete(&mut self, uids: &[Uid], confirmed: Confirmed) -> Wave {
        let pods = self.rollout.begin_wave(uids);
        let duty = (&mut *self.duty, self.memory.generation());
        Wave::run(self.context, self.policy, pods, confirmed, self.rollout, duty).await
    }

    /// Tells what was in the way of a wave, if that is new. Whether it was, as it should be, a PodDisruptionBudget that lets one go after the other.
    fn judge(&mut self, next: &Move, wave: &Wave, is_moving: bool) -> Result<bool, Error> {
        if !matches!(next, Move::Remove(_)) {
            return Ok(false);
        }
        let cause = wave.refusal.as_ref().map(|error| &error.cause);
        let is_in_turn = matches!(cause, Some(Cause::Blocked(_))) && (wave.deleted > 0 || is_moving);
        let tell = self.rollout.end_wave(cause, is_in_turn);
        match &wave.refusal {
            Some(error) if error.cause == Cause::Stopped => return Err(error.clone()),
            Some(error) if tell => {
                let pods = self.rollout.undeleted().len();
                warn!(monitor = self.context.name(), %error, pods, "pods not deleted");
            }
            Some(_) => {}
            None => self.works(),
        }
        Ok(is_in_turn)
    }

    fn works(&mut self) {
        if self.rollout.works() {
            info!(monitor = self.context.name(), "restart not hindered any more");
        }
    }

    /// Records that the restart is over.
    async fn complete(self, stuck: &[String]) -> Result<Requeue, Error> {
        let Self { mut status, restart, begun, .. } = self;
        let now = self.context.client.server_now();
        status.remember(restart.config_hash.clone(), &begun, now, Outcome::Completed);
        status.config_hash = Some(restart.config_hash);
        status.restart = None;
        self.memory.settle(self.context, self.record, status, &Situation::UpToDate).await?;
        let told = report::completed(&self.policy.source(), &begun, stuck, now);
        self.context.recorder.publish(&[told], self.memory.identity()).await;
        Ok(Requeue::At(None))
    }
}
