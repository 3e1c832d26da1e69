//! The keeper of one ConfigMonitor: one task that reconciles when a doorbell rings or a timer fires, and sleeps
//! otherwise.
//!
//! There may be thousands of keepers. Most sleep, and take little more memory than what they know. The number of
//! working keepers is limited.

mod context;
mod memory;
mod reconcile;
mod requeue;
mod restarts;
mod scheduling;
mod step;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tracing::{Instrument, debug, error, info, warn};

use self::context::Context;
use self::memory::Memory;
use self::reconcile::Reconciler;
use self::requeue::Requeue;
use self::scheduling::{Held, Scheduling, Then};
use crate::controller::clock::timer_now;
use crate::controller::latest::Latest;
use crate::controller::limits::Turn;
use crate::controller::shared::Shared;
use crate::kube::Uid;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::monitor::ConfigMonitor;

/// The pause after a panic, which may come again at once.
const PAUSE: Duration = Duration::from_secs(30);

pub(crate) struct Keeper {
    reconciler: Reconciler,
    scheduling: Scheduling,
    /// The failures since the last successful step.
    faults: Faults,
}

impl Keeper {
    /// Creates the keeper of a ConfigMonitor, as it comes from a list or a watch.
    pub(crate) fn of(
        shared: Arc<Shared>,
        (name, uid): (Arc<str>, Uid),
        monitor: Option<Box<ConfigMonitor>>,
        latest: watch::Receiver<Latest>,
    ) -> Self {
        // A standby's record may be stale once it is elected: the previous leader may have written the status.
        let monitor = monitor.filter(|_| shared.limits.is_elected());
        Self::new(Context::new(shared, name, uid), monitor.map_or_else(Memory::default, |it| Memory::of(*it)), latest)
    }

    /// The keeper reads what the memory lacks before it acts.
    fn new(context: Context, memory: Memory, latest: watch::Receiver<Latest>) -> Self {
        let reconciler = Reconciler::new(context, memory);
        Self { reconciler, scheduling: Scheduling::new(latest), faults: Faults::default() }
    }

    /// Runs until the operator stops or the ConfigMonitor is deleted, and begins anew after a pause if the keeper panics.
    /// What is not awaited while it sleeps is boxed or dropped, and takes no memory then.
    pub(crate) async fn run(mut self: Box<Self>) {
        if !Box::pin(self.elected()).await {
            return;
        }
        while let Some(held) = Box::pin(self.queue(None)).await {
            let goes_on = AssertUnwindSafe(Box::pin(self.work(held))).catch_unwind().await.ok();
            match goes_on {
                Some(true) => _ = self.scheduling.rung().await,
                Some(false) => return,
                None => Box::pin(self.begin_anew()).await,
            }
        }
    }

    /// Forgets everything after a panic, and pauses.
    async fn begin_anew(&mut self) {
        self.reconciler.context.span().in_scope(|| error!("keeper panicked; restarting it"));
        *self = Self::new(self.reconciler.context.renewed(), Memory::default(), self.scheduling.receiver());
        tokio::select! {
            () = self.scheduling.stopped() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }

    /// Waits until this process is the leader. Returns false if the keeper is to end before: a standby may wait for weeks.
    async fn elected(&self) -> bool {
        tokio::select! {
            biased;
            () = self.scheduling.stopped() => false,
            () = self.reconciler.context.shared.limits.elected() => true,
        }
    }

    async fn queue(&self, turn: Option<Turn>) -> Option<Held> {
        self.scheduling.queue(&self.reconciler.context.shared, turn).await
    }

    /// Makes steps until the keeper may sleep. Returns false once it is to end.
    async fn work(&mut self, held: Held) -> bool {
        let (stopped, shared) = (self.scheduling.stopped(), Arc::clone(&self.reconciler.context.shared));
        let stop = shared.client.stop().child_token();
        self.reconciler.context.client = shared.client.with_stop(stop.clone());
        let goes_on = {
            let mut steps = Box::pin(self.steps(held));
            tokio::select! {
                biased;
                // Requests in flight are finished.
                () = stopped => {
                    stop.cancel();
                    steps.await
                }
                goes_on = &mut steps => goes_on,
            }
        };
        self.reconciler.context.client = shared.client.clone();
        goes_on
    }

    async fn steps(&mut self, mut held: Held) -> bool {
        loop {
            let span = self.reconciler.context.span();
            let requeue = Box::pin(self.step(held)).instrument(span).await;
            let turn = match self.wait(requeue).await {
                Then::Work(turn) => turn,
                Then::Sleep => return true,
                Then::End => return false,
            };
            match Box::pin(self.queue(turn)).await {
                Some(next) => held = next,
                None => return false,
            }
        }
    }

    async fn step(&mut self, held: Held) -> Requeue {
        let reconciled = self.reconciler.reconcile(&mut self.scheduling, held).await;
        let requeue = match reconciled {
            Ok(requeue) => {
                if matches!(requeue, Requeue::At(_)) && self.faults.recovered() {
                    info!("working again");
                }
                requeue
            }
            Err(error) if error.cause == Cause::Stopped => Requeue::Never,
            Err(error) => {
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
    async fn wait(&mut self, requeue: Requeue) -> Then {
        let (until, owners) = match requeue {
            _ if self.scheduling.is_stopped() => return Then::End,
            Requeue::Now => return Then::Work(None),
            Requeue::At(None) if !self.reconciler.listens_to_pods() => return Then::Sleep,
            Requeue::At(until) => (until, None),
            Requeue::Later(until) => (Some(until), None),
            Requeue::OnTurn(owners) => (None, Some(owners)),
            Requeue::Never => return Then::End,
        };
        let reads_pods = owners.is_none() && !self.faults.is_failing();
        let timer = OptionFuture::from(until.map(|until| Box::pin(tokio::time::sleep_until(until.into()))));
        let (generation, shared) = (self.reconciler.generation(), Arc::clone(&self.reconciler.context.shared));
        tokio::select! {
            biased;
            then = self.scheduling.changed(&shared, owners, generation) => then,
            Some(()) = timer => Then::Work(None),
            () = self.reconciler.worth_a_step(), if reads_pods => Then::Work(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::unconstrained;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::controller::limits::Limits;
    use crate::controller::shared::Settings;
    use crate::controller::shared::Shared;
    use crate::kube::client::Client;

    #[tokio::test]
    async fn a_keeper_of_a_standby_ends_with_its_config_monitor() {
        let limits = Arc::new(Limits::new(CancellationToken::new()));
        let shared = Arc::new(Shared::new(Client::unconnected(), Settings::default(), limits));
        let (latest, receiver) = watch::channel(Latest::default());
        let context = Context::new(shared, "web".into(), "uid".into());
        let mut keeper = Box::pin(unconstrained(Box::new(Keeper::new(context, Memory::default(), receiver)).run()));
        assert!((&mut keeper).now_or_never().is_none());
        latest.send_modify(|latest| latest.is_stopped = true);
        assert!(keeper.now_or_never().is_some());
    }
}
