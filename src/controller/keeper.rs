//! The keeper of one ConfigMonitor: one task that reconciles when a doorbell rings or a timer fires, and is idle
//! otherwise.
//!
//!
//! There may be thousands of keepers, most of them idle. Hence large parts are boxed, and the number of awake keepers
//! is limited.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use tokio::sync::watch;
use tracing::{Instrument, debug, info, warn};

use super::clock::timer_now;
use super::context::Context;
use super::latest::Latest;
use super::limits::Owners;
use super::memory::Memory;
use super::reconcile::Reconciler;
use super::requeue::Requeue;
use super::scheduling::Scheduling;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;

/// A wait for another restart is reported after this time.
const REPORT_WAIT_AFTER: Duration = Duration::from_secs(1);

/// The keeper of one ConfigMonitor.
pub(crate) struct Keeper {
    reconciler: Reconciler,
    scheduling: Scheduling,
    /// The failures since the last successful step.
    faults: Faults,
}

impl Keeper {
    /// Creates a keeper with this memory. The keeper reads what the memory lacks before it acts.
    pub(crate) fn new(context: Context, memory: Memory, latest: watch::Receiver<Latest>) -> Self {
        let reconciler = Reconciler::new(context, memory);
        Self { reconciler, scheduling: Scheduling::new(latest), faults: Faults::default() }
    }

    /// Runs until the client is stopped or the ConfigMonitor is deleted.
    pub(crate) async fn run(mut self: Box<Self>) {
        self.scheduling.register_interest(&self.reconciler.context.shared);
        loop {
            // A keeper with a turn needs no slot: keepers that share an owner wait for it.
            if !self.scheduling.has_turn() && !Box::pin(self.scheduling.acquire_slot(&self.reconciler.context)).await {
                return;
            }
            let span = self.reconciler.context.span();
            let requeue = Box::pin(self.step()).instrument(span).await;
            self.scheduling.release_slot();
            if requeue != Requeue::Now {
                self.scheduling.drop_interest();
            }
            match requeue {
                Requeue::Now => {}
                Requeue::OnTurn(owners) => {
                    if !Box::pin(self.wait_for_turn(owners)).await {
                        return;
                    }
                    self.scheduling.register_interest(&self.reconciler.context.shared);
                }
                Requeue::Never => return,
                Requeue::At(until) => {
                    if !self.idle(until).await {
                        return;
                    }
                }
                Requeue::Later(until) => {
                    if !self.idle(Some(until)).await {
                        return;
                    }
                }
            }
        }
    }

    /// Makes a step, and handles its failure.
    async fn step(&mut self) -> Requeue {
        let reconciled = self.reconciler.reconcile(&mut self.scheduling).await;
        self.reconciler.update_metrics();
        match reconciled {
            Ok(requeue) => {
                if matches!(requeue, Requeue::At(_)) && self.faults.recovered() {
                    info!("working again");
                }
                requeue
            }
            Err(error) if error.cause == Cause::Stopped => Requeue::Never,
            Err(error) => {
                self.scheduling.release();
                let backoff = self.handle_failure(&error).await;
                Requeue::At(Some(timer_now() + backoff))
            }
        }
    }

    /// Logs and reports a failure, and returns the delay before the next step.
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

    /// Waits for a turn with these owners, or for an edit of the spec. Reports a wait of over 1 s. Returns false when
    /// the operator stops.
    async fn wait_for_turn(&mut self, owners: Owners) -> bool {
        self.scheduling.end_turn();
        let context = &self.reconciler.context;
        let turn = self.scheduling.turn_or_edit(&context.shared, owners, self.reconciler.generation());
        let stop = context.client.stop().clone();
        let mut waiting = pin!(stop.run_until_cancelled(turn));
        let waited = match tokio::time::timeout(REPORT_WAIT_AFTER, &mut waiting).await {
            Ok(waited) => waited,
            Err(_) => {
                let span = self.reconciler.context.span();
                let reported = pin!(self.reconciler.report_waiting().instrument(span));
                // The turn may come first: the keepers behind this one must not wait for the report.
                match select(reported, waiting).await {
                    Either::Left(((), waiting)) => waiting.await,
                    Either::Right((waited, _)) => waited,
                }
            }
        };
        let goes_on = waited.is_some();
        if let Some(turn) = waited.flatten() {
            self.scheduling.take_turn(turn);
        }
        goes_on
    }

    /// Ends the turn and waits for work. Returns false if none can come any more.
    async fn idle(&mut self, until: Option<Instant>) -> bool {
        self.scheduling.end_turn();
        let goes_on = self.sleep(until).await;
        self.scheduling.register_interest(&self.reconciler.context.shared);
        goes_on
    }

    /// Waits for a new value, the timer, or pods that are worth a step. Returns false once the sender is gone.
    async fn sleep(&mut self, until: Option<Instant>) -> bool {
        let timer = async {
            match until {
                Some(until) => Box::pin(tokio::time::sleep_until(until.into())).await,
                None => std::future::pending().await,
            }
        };
        let failing = self.faults.is_failing();
        let watched = tokio::select! {
            biased;
            goes_on = self.scheduling.changed() => return goes_on,
            () = timer => return true,
            watched = self.reconciler.worth_a_step(), if !failing => watched,
        };
        if let Err(error) = watched {
            self.reconciler.context.span().in_scope(|| self.reconciler.log_watch_failure(&error));
        }
        true
    }
}
