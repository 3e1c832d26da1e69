//! What a step of a keeper whose spec is valid goes by, and how it writes the status.

use super::context::Context;
use super::duty::Duty;
use super::memory::{Confirmed, Memory, Verdict};
use crate::kube::error::Error;
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
    /// Sets the conditions, and writes the status if it says anything new. From then on it is the one that stands.
    pub(crate) async fn settle(&mut self, situation: &Situation<'_>) -> Result<(), Error> {
        let status = std::mem::take(&mut self.status);
        self.status = self.memory.settle(self.context, status, situation).await?;
        Ok(())
    }

    /// Sets the conditions to that nothing is left to do.
    pub(crate) async fn settle_down(&mut self) -> Result<(), Error> {
        let missing_keys = self.memory.missing_keys();
        let selector = &self.policy.selector;
        self.settle(&Situation::Settled { selector, missing_keys: missing_keys.as_deref() }).await
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
        if self.memory.has_restart(&restart) {
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
