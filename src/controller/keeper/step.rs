//! A step of a keeper whose spec is valid, and its writes of the status.

use super::context::Context;
use super::memory::{Confirmation, Confirmed, Memory};
use super::requeue::Requeue;
use super::scheduling::{Held, Scheduling};
use crate::kube::error::Error;
use crate::monitor::situation::Situation;
use crate::monitor::source::SourceName;
use crate::monitor::spec::Policy;
use crate::monitor::status::Status;

pub(crate) struct Step<'a> {
    pub(crate) context: &'a Context,
    pub(crate) memory: &'a mut Memory,
    pub(crate) scheduling: &'a Scheduling,
    pub(crate) held: Held,
    pub(crate) policy: &'a Policy,
    /// The status as the step will write it.
    pub(crate) status: Status,
}

impl Step<'_> {
    /// Sets the conditions, writes the status if it has changed, and continues with the stored status.
    pub(crate) async fn update_status(&mut self, situation: &Situation<'_>) -> Result<(), Error> {
        let status = std::mem::take(&mut self.status);
        self.status = self.memory.update_status(self.context, status, situation).await?;
        Ok(())
    }

    /// Writes the status: as in this situation, or that nothing is pending.
    pub(crate) async fn report(&mut self, situation: Option<&Situation<'_>>) -> Result<(), Error> {
        if let Some(situation) = situation {
            return self.update_status(situation).await;
        }
        let missing: Vec<SourceName> = self.memory.missing_discovered().into_iter().collect();
        let missing_keys = self.memory.missing_keys();
        let Policy { selector, sources, surplus, unwatched, max_surge, .. } = self.policy;
        let situation = match surplus {
            _ if !missing.is_empty() && !self.memory.awaits_pods => Situation::SourceNotFound(&missing),
            Some(first) => Situation::TooManySources(first),
            None if max_surge.is_some() && !self.context.shared.settings.surges => Situation::NoSurge,
            None if !unwatched.is_empty() => Situation::SecretsNotWatched(unwatched.len()),
            None => {
                let (missing_keys, has_sources) = (missing_keys.as_deref(), !sources.is_empty());
                Situation::Settled { selector, missing_keys, has_sources }
            }
        };
        self.update_status(&situation).await
    }

    /// Returns when the next step is due once nothing is pending.
    pub(crate) fn rest(&self) -> Requeue {
        // Nothing else wakes the keeper for a request that came during the last restart.
        if self.memory.is_requested() { Requeue::Now } else { Requeue::At(None) }
    }

    pub(crate) async fn intend(&mut self, situation: &Situation<'_>) -> Result<Confirmed, Error> {
        let status = std::mem::take(&mut self.status);
        let (status, confirmed) = self.memory.intend(self.context, status, situation).await?;
        self.status = status;
        Ok(confirmed)
    }

    pub(crate) async fn confirm(&mut self) -> Result<Confirmation, Error> {
        self.memory.confirm(self.context).await
    }

    /// Writes the restart unless it is stored, so that a crash does not lose it while it waits.
    pub(crate) async fn record_restart(&mut self, situation: &Situation<'_>) -> Result<(), Error> {
        if self.memory.has_recorded(&self.status) {
            return Ok(());
        }
        self.update_status(situation).await
    }
}

pub(crate) fn quiet_period(policy: &Policy) -> Situation<'static> {
    Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() }
}
