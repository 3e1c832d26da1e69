//! One step of a keeper whose spec is valid: a decision is carried out, and what has come of it is written down.

use std::time::Instant;

use super::clock::timer_now;
use super::context::Context;
use super::duty::Duty;
use super::memory::{Confirmed, Memory, Verdict};
use super::requeue::Requeue;
use super::restart::Restarts;
use crate::kube::error::Error;
use crate::monitor::decide::Decision;
use crate::monitor::report::Situation;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Restart, Status};

/// What a step goes by and works with.
pub(crate) struct Step<'a> {
    pub(crate) context: &'a Context,
    pub(crate) memory: &'a mut Memory,
    pub(crate) duty: &'a mut Duty,
    pub(crate) policy: &'a Policy,
    /// As it is to become.
    pub(crate) status: Status,
}

impl Step<'_> {
    /// Carries out a decision about the status, and writes it.
    pub(crate) async fn act(mut self, restarts: &mut Restarts, decision: Decision) -> Result<Requeue, Error> {
        if decision != Decision::Read {
            self.duty.lose_interest();
        }
        // What has come is written down even if the pods cannot be listed now.
        let listed = match &decision {
            Decision::Quiet(_) | Decision::Suspended => restarts.take_snapshot(&mut self).await,
            _ => Ok(()),
        };
        if listed.is_err() && self.status.restart.as_ref().is_some_and(|restart| self.memory.remembers(restart)) {
            return listed.map(|()| Requeue::Now);
        }
        restarts.clear_up(&self.status, &decision);
        if !matches!(decision, Decision::Begin(_) | Decision::Resume(..)) {
            self.duty.end_turn();
        }
        let requeue = match decision {
            Decision::Read => {
                self.memory.doubt(timer_now());
                Ok(Requeue::Now)
            }
            Decision::Settled => self.rest(&Situation::UpToDate, None).await,
            Decision::Missing => {
                let policy = self.policy;
                self.rest(&Situation::ConfigMapNotFound(&policy.config_map), None).await
            }
            Decision::Suspended => self.rest(&Situation::Suspended, None).await,
            Decision::Quiet(until) => {
                let situation = quiet_period(self.policy);
                self.rest(&situation, Some(until)).await
            }
            Decision::Begin(restart) => restarts.begin(self, restart).await,
            Decision::Resume(restart, begun) => restarts.resume(self, restart, begun).await,
        };
        listed.and(requeue)
    }

    /// Writes the status if it says anything new, and waits. That there is another version of the ConfigMap may be written later.
    async fn rest(mut self, situation: &Situation<'_>, until: Option<Instant>) -> Result<Requeue, Error> {
        let version = self.status.source_resource_version.clone();
        self.settle(situation).await?;
        let write_at = self.memory.version_due(&self.status, version.as_ref());
        Ok(Requeue::At(until.into_iter().chain(write_at).min()))
    }

    /// Sets the conditions, and writes the status if it says anything new. From then on it is the one that stands.
    pub(crate) async fn settle(&mut self, situation: &Situation<'_>) -> Result<(), Error> {
        let status = std::mem::take(&mut self.status);
        self.status = self.memory.settle(self.context, status, situation).await?;
        Ok(())
    }

    /// Writes down that pods are about to be deleted, which have been listed. With another spec by now, that is a conflict.
    pub(crate) async fn intend(&mut self, situation: &Situation<'_>) -> Result<Confirmed, Error> {
        let status = std::mem::take(&mut self.status);
        let (status, confirmed) = self.memory.intend(self.context, status, situation).await?;
        self.status = status;
        Ok(confirmed)
    }

    /// Reads the ConfigMonitor once more, before pods are deleted for it.
    pub(crate) async fn confirm(&mut self) -> Result<Verdict, Error> {
        self.memory.confirm(self.context).await
    }

    /// Records this restart in the status, unless it is there, so that it is not forgotten even if it takes long until something can be done
    /// about it.
    pub(crate) async fn write_down(&mut self, restart: Restart, situation: &Situation<'_>) -> Result<(), Error> {
        if self.memory.remembers(&restart) {
            return Ok(());
        }
        self.status.restart = Some(Box::new(restart));
        self.settle(situation).await
    }
}

/// The content must come to rest first.
pub(crate) fn quiet_period(policy: &Policy) -> Situation<'static> {
    Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() }
}
