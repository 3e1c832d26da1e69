//! The keeper of one ConfigMonitor: one task, that wakes up when the doorbell rings or a time has come, reconciles, and rests. Nothing of it is
//! shared.
//!
//! There may be thousands of keepers, and most of them rest. So whatever takes room is boxed, and only so many are awake at a time.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::clock::timer_now;
use super::context::Context;
use super::duty::Duty;
use super::latest::Latest;
use super::limits::Owners;
use super::memory::Memory;
use super::reconcile::Reconciler;
use super::requeue::Requeue;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;

/// A wait for another restart that is longer than this is told.
const WAIT_UNTOLD: Duration = Duration::from_secs(1);

/// The keeper of one ConfigMonitor.
pub(crate) struct Keeper {
    reconciler: Reconciler,
    duty: Duty,
    /// What has gone wrong since a step last succeeded.
    faults: Faults,
}

impl Keeper {
    /// A keeper that knows this, and reads what it does not know before it does anything.
    pub(crate) fn new(context: Context, memory: Memory, latest: watch::Receiver<Latest>) -> Self {
        let reconciler = Reconciler::new(context, memory);
        Self { reconciler, duty: Duty::new(latest), faults: Faults::default() }
    }

    /// Keeps until the client is stopped or the ConfigMonitor is gone.
    pub(crate) async fn run(mut self: Box<Self>) {
        self.duty.take_interest(&self.reconciler.context.shared);
        loop {
            // Whoever has a turn holds up those that share an owner with it.
            if !self.duty.has_turn() && !Box::pin(self.duty.queue(&self.reconciler.context)).await {
                return;
            }
            let requeue = Box::pin(self.step()).await;
            self.duty.doze();
            if requeue != Requeue::Now {
                self.duty.lose_interest();
            }
            match requeue {
                Requeue::Now => {}
                Requeue::OnTurn(owners) => {
                    if !Box::pin(self.wait_for_turn(owners)).await {
                        return;
                    }
                    self.duty.take_interest(&self.reconciler.context.shared);
                }
                Requeue::Never => return,
                Requeue::At(until) => {
                    if !self.rest(until).await {
                        return;
                    }
                }
                Requeue::Later(until) => {
                    if !self.rest(Some(until)).await {
                        return;
                    }
                }
            }
        }
    }

    /// Makes a step, and sees to what fails in it.
    async fn step(&mut self) -> Requeue {
        let reconciled = self.reconciler.reconcile(&mut self.duty).await;
        self.reconciler.take_stock();
        match reconciled {
            Ok(requeue) => {
                if matches!(requeue, Requeue::At(_)) && self.faults.recovered() {
                    info!(
                        namespace = self.reconciler.context.client.namespace(),
                        monitor = &*self.reconciler.context.name,
                        "working again"
                    );
                }
                requeue
            }
            Err(error) if error.cause == Cause::Stopped => Requeue::Never,
            Err(error) => {
                self.duty.let_go();
                let backoff = self.failed(&error).await;
                Requeue::At(Some(timer_now() + backoff))
            }
        }
    }

    /// Tells what is wrong where it can be seen, and says how long to wait.
    async fn failed(&mut self, error: &Error) -> Duration {
        let again = self.faults.is_failing();
        let (delay, tell) = self.faults.record(&error.cause, timer_now());
        let (namespace, monitor) = (self.reconciler.context.client.namespace(), &*self.reconciler.context.name);
        match &error.cause {
            // Somebody else has written: read again and decide again, at once the first time.
            Cause::Conflict(_) if !again => return Duration::ZERO,
            Cause::Invalid(_) if tell => self.reconciler.report_refusal(&error.to_string()).await,
            _ if tell => warn!(namespace, monitor, %error, "trying again"),
            _ => debug!(namespace, monitor, %error, "still failing"),
        }
        if let Cause::Forbidden(_) = &error.cause {
            self.reconciler.report_missing_right(error).await;
        }
        delay
    }

    /// Waits until it is its turn with these owners, and tells of that if it takes long, or until the spec is another one; false when there is no more
    /// to do.
    async fn wait_for_turn(&mut self, owners: Owners) -> bool {
        self.duty.end_turn();
        let context = &self.reconciler.context;
        let turn = self.duty.turn_or_edit(&context.shared, owners, self.reconciler.generation());
        let stop = context.client.stop().clone();
        let mut waiting = pin!(stop.run_until_cancelled(turn));
        let waited = match tokio::time::timeout(WAIT_UNTOLD, &mut waiting).await {
            Ok(waited) => waited,
            Err(_) => {
                let reported = pin!(self.reconciler.report_waiting());
                // Those behind it must not wait for what it tells.
                match select(reported, waiting).await {
                    Either::Left(((), waiting)) => waiting.await,
                    Either::Right((waited, _)) => waited,
                }
            }
        };
        let goes_on = waited.is_some();
        if let Some(turn) = waited.flatten() {
            self.duty.take_turn(turn);
        }
        goes_on
    }

    /// Gives up its turn and waits for something to do; false when there will be nothing any more.
    async fn rest(&mut self, until: Option<Instant>) -> bool {
        self.duty.end_turn();
        let goes_on = self.sleep(until).await;
        self.duty.take_interest(&self.reconciler.context.shared);
        goes_on
    }

    /// Waits for something to do; false once the sender is gone, so that nothing will come any more.
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
            goes_on = self.duty.changed() => return goes_on,
            () = timer => return true,
            watched = self.reconciler.worth_a_step(), if !failing => watched,
        };
        if let Err(error) = watched {
            self.reconciler.not_watched(&error);
        }
        true
    }
}
