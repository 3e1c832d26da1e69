//! A restart under way, with the list and the watch from which it knows its pods.
//!
//! Deletes nothing: see `drive.rs`. `monitor::restart` decides which pods may be deleted.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::{unconstrained, yield_now};
use tokio::time::sleep_until;

use super::pod_watch::PodWatch;
use crate::controller::clock::{self, timer_now};
use crate::controller::context::Context;
use crate::controller::memory::Confirmed;
use crate::controller::shared::{ListInterest, Listing, MAX_LAG, PodEvent, Shared};
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::faults::Faults;
use crate::monitor::notice::Notice;
use crate::monitor::restart::machine::{Do, Machine, News};
use crate::monitor::restart::plan::{Plan, Scope};
use crate::monitor::source::SourceName;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Status};

/// After an evaluation, the watch is only read for this many times as long as that took, but no longer than
/// `BATCH_WINDOW`. Otherwise 50 restarts of the same 1,000 pods evaluate all pods at each event, for twice the CPU.
const EVALUATION_PAUSE: u32 = 20;
const BATCH_WINDOW: Duration = Duration::from_millis(50);

pub(super) struct Watched {
    pub(super) machine: Machine<Confirmed>,
    /// The last list, from which a watch continues, and the interest that shares the list with other keepers.
    listing: Option<(Arc<Listing>, ListInterest)>,
    /// When the last list began.
    pub(super) listed_at: Instant,
    /// The Event about the start, until the controllers of the pods have it. `None` also if another process began the
    /// restart.
    pub(super) started: Option<Notice>,
    watch: PodWatch,
    /// The discovered sources that do not exist. The pods that refer to them are not deleted.
    missing: BTreeSet<SourceName>,
    /// Failures of the deletions and of reads of the owners.
    pub(super) faults: Faults,
    pub(super) watch_faults: Faults,
}

impl Watched {
    pub(super) fn new(machine: Machine<Confirmed>) -> Box<Self> {
        Box::new(Self {
            machine,
            listing: None,
            listed_at: timer_now(),
            started: None,
            watch: PodWatch::Closed,
            missing: BTreeSet::new(),
            faults: Faults::default(),
            watch_faults: Faults::default(),
        })
    }

    pub(super) fn is_followed(&self) -> bool {
        self.watch.is_open()
    }

    /// Waits until the restart asks for more than to wait, or until the watch fails.
    pub(super) async fn worth_a_pass(&mut self, client: &Client) -> Result<(), Error> {
        if !self.watch.is_open() {
            return std::future::pending().await;
        }
        let mut pause_until = timer_now();
        loop {
            let until = match self.machine.next(clock::now(client)) {
                Do::ReadWatch => {
                    if let ControlFlow::Break(missed) = self.catch_up(client).await {
                        return missed;
                    }
                    let began = timer_now();
                    self.machine.heard(News::WatchRead, clock::now(client));
                    let took = timer_now().saturating_duration_since(began);
                    pause_until = timer_now() + (took * EVALUATION_PAUSE).min(BATCH_WINDOW);
                    continue;
                }
                Do::Wait(until) | Do::Pause(until) => until,
                _ => return Ok(()),
            };
            let PodWatch::Open(changes) = &mut self.watch else { return Ok(()) };
            let event = tokio::select! {
                biased;
                () = sleep_until(until.into()) => return Ok(()),
                event = changes.next() => event,
            };
            if let ControlFlow::Break(missed) = self.apply(event, client) {
                return missed;
            }
            sleep_until(pause_until.into()).await;
        }
    }

    /// Reads what the watch has delivered, so that nothing is judged by pods as they were before the last request.
    /// Breaks if events are missing.
    pub(super) async fn catch_up(&mut self, client: &Client) -> ControlFlow<Result<(), Error>> {
        let read_all = async {
            let (mut read, mut before) = (0, None);
            while before != Some(read) && read < MAX_LAG {
                before = Some(read);
                // What has arrived meanwhile is passed on by other tasks: the connection, or another keeper that holds
                // the shared watch.
                yield_now().await;
                while let PodWatch::Open(changes) = &mut self.watch
                    && let Some(event) = changes.next().now_or_never()
                {
                    self.apply(event, client)?;
                    read += 1;
                }
            }
            ControlFlow::Continue(())
        };
        // The limit of what a task does at once would pass for the end of the events.
        unconstrained(read_all).await
    }

    /// Applies an event of the watch. Breaks if events are missing: the next pass lists the pods.
    fn apply(&mut self, event: PodEvent, client: &Client) -> ControlFlow<Result<(), Error>> {
        match event {
            PodEvent::Applied(pod) => self.machine.heard(News::Applied(pod), clock::now_at_best(client)),
            PodEvent::Deleted(uid) => self.machine.heard(News::Gone(uid), clock::now(client)),
            PodEvent::Missed(why) => {
                self.watch = PodWatch::Broken;
                self.machine.heard(News::WatchLost, clock::now(client));
                return ControlFlow::Break(why.map_or(Ok(()), Err));
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes the plan that follows from a journal which has changed.
    pub(super) fn replan(&mut self, plan: Plan, status: &Status) {
        self.machine.replan(plan, status);
        self.watch.close();
    }

    /// Begins another step of the restart, as the status has it.
    pub(super) fn resume(&mut self, policy: &Policy, begun: &Begun) {
        if self.machine.resume(policy, begun) {
            self.watch.close();
        }
    }

    /// Takes which discovered sources do not exist. If others do than before, only another list shows what refers to them.
    pub(super) fn leave_out(&mut self, missing: BTreeSet<SourceName>) {
        if self.missing != missing {
            self.missing = missing;
            self.machine.unfollow();
            self.watch.close();
        }
    }

    /// Returns the sources of which a pass must know which pods refer to them.
    pub(super) fn scope(&self) -> Scope {
        Scope { missing: self.missing.clone(), ..Scope::default() }
    }

    /// Takes a list, from which a watch may continue.
    pub(super) fn take_list(&mut self, listing: Arc<Listing>, interest: ListInterest, context: &Context) {
        self.listed_at = listing.began;
        self.machine.leave_out(&self.missing, listing.referrers.unstartable.clone());
        let listed = News::Listed { pods: listing.pods.clone(), at: listing.at, took: listing.took };
        self.machine.heard(listed, clock::now(&context.client));
        self.listing = Some((listing, interest));
    }

    /// Returns how many turns had ended when the last list began.
    pub(super) fn turns_ended(&self) -> Option<u64> {
        self.listing.as_ref().map(|(listing, _)| listing.turns_ended)
    }

    /// Opens a watch that continues from the last list, or closes it.
    pub(super) fn follow(&mut self, is_wanted: bool, shared: &Shared) -> News<Confirmed> {
        let is_new = match &self.listing {
            Some((listing, _)) if is_wanted => self.watch.open(listing, shared),
            _ => {
                self.watch.close();
                false
            }
        };
        News::Following { is_open: self.watch.is_open(), is_new }
    }

    pub(super) fn hold(&mut self) {
        self.watch.close();
        self.listing = None;
        self.machine.hold();
    }
}
