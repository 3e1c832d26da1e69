//! The keeper of one ConfigMonitor: one task that reconciles when a doorbell rings or a timer fires, and is idle
//! otherwise.
//!
//! There may be thousands of keepers, most of them idle. Hence large parts are boxed, and the number of awake keepers
//! is limited.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{Instrument, debug, info, warn};

use super::clock::timer_now;
use super::context::Context;
use super::latest::Latest;
use super::memory::Memory;
use super::reconcile::Reconciler;
use super::requeue::Requeue;
use super::scheduling::Scheduling;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;

pub(crate) struct Keeper {
    reconciler: Reconciler,
    scheduling: Scheduling,
    /// The failures since the last successful step.
    faults: Faults,
}

impl Keeper {
    /// The keeper reads what the memory lacks before it acts.
    pub(crate) fn new(context: Context, memory: Memory, latest: watch::Receiver<Latest>) -> Self {
        let reconciler = Reconciler::new(context, memory);
        Self { reconciler, scheduling: Scheduling::new(latest), faults: Faults::default() }
    }

    /// Runs until the client is stopped or the ConfigMonitor is deleted.
    pub(crate) async fn run(mut self: Box<Self>) {
        loop {
            self.scheduling.register_interest(&self.reconciler.context.shared);
            // A keeper with a turn needs no slot: keepers that share an owner wait for it.
            if self.scheduling.turn.is_none() && !Box::pin(self.scheduling.acquire_slot(&self.reconciler.context)).await
            {
                return;
            }
            let span = self.reconciler.context.span();
            let requeue = Box::pin(self.step()).instrument(span).await;
            self.scheduling.slot = None;
            self.scheduling.drop_interest();
            if !self.wait(requeue).await {
                return;
            }
        }
    }

    async fn step(&mut self) -> Requeue {
        let reconciled = self.reconciler.reconcile(&mut self.scheduling).await;
        let requeue = match reconciled {
            Ok(requeue) => {
                if matches!(requeue, Requeue::At(_)) && self.faults.recovered() {
                    info!("working again");
                }
                requeue
            }
            Err(error) if error.cause == Cause::Stopped => Requeue::Never,
            Err(error) => {
                self.scheduling.end_turn();
                let backoff = self.handle_failure(&error).await;
                Requeue::At(Some(timer_now() + backoff))
            }
        };
        self.reconciler.update_metrics();
        requeue
    }

    /// Returns the delay before the next step.
    async fn handle_failure(&mut self, error: &Error) -> Duration {
        let again = self.faults.is_failing();
        let (delay, is_new) = self.faults.record(&error.cause);
        match &error.cause {
            // Somebody else has written the status: read and decide again, the first time at once.
            Cause::Conflict(_) if !again => return Duration::ZERO,
            Cause::Invalid(_) if is_new => self.reconciler.report_refusal(&error.to_string()).await,
            _ if is_new => warn!(%error, "reconcile failed; retrying"),
            _ => debug!(%error, "reconcile still failing; retrying"),
        }
        if let Cause::Forbidden(_) = &error.cause {
            self.reconciler.report_missing_right(error).await;
        }
        delay
    }

    /// Waits for what the step has asked for: a time, another value, pods that are worth a step, or a turn with owners.
    /// Returns false once the keeper is to end.
    async fn wait(&mut self, requeue: Requeue) -> bool {
        let (until, owners) = match requeue {
            Requeue::Now => return true,
            Requeue::At(until) => (until, None),
            Requeue::Later(until) => (Some(until), None),
            Requeue::OnTurn(owners) => (None, Some(owners)),
            Requeue::Never => return false,
        };
        let reads_pods = owners.is_none() && !self.faults.is_failing();
        let timer = async {
            match until {
                Some(until) => Box::pin(tokio::time::sleep_until(until.into())).await,
                None => std::future::pending().await,
            }
        };
        let (generation, shared) = (self.reconciler.generation(), Arc::clone(&self.reconciler.context.shared));
        let watched = tokio::select! {
            biased;
            goes_on = self.scheduling.changed(&shared, owners, generation) => return goes_on,
            () = timer => return true,
            watched = self.reconciler.worth_a_step(), if reads_pods => watched,
        };
        if let Err(error) = watched {
            self.reconciler.context.span().in_scope(|| self.reconciler.log_watch_failure(&error));
        }
        true
    }
}
