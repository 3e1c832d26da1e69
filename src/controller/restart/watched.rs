//! A restart under way, with the list and the watch from which it knows its pods.
//!
//! Deletes nothing: see `drive.rs`. `monitor::restart` decides which pods may be deleted.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{sleep, sleep_until, timeout_at};

use super::pod_watch::PodWatch;
use crate::controller::clock::timer_now;
use crate::controller::limits::Limits;
use crate::controller::memory::Confirmed;
use crate::controller::shared::{ListInterest, Listing, MAX_LAG, PodEvent};
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::faults::Faults;
use crate::monitor::notice::Notice;
use crate::monitor::restart::machine::{Machine, News};
use crate::monitor::restart::standing::Move;
use crate::monitor::spec::Policy;
use crate::monitor::status::Begun;

/// The time that the disruption controller takes to update a PodDisruptionBudget after a pod has become available.
const BUDGET_LAG: Duration = Duration::from_millis(500);

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
    /// Whether the watch has shown something that the last pass did not go by.
    has_news: bool,
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
            has_news: false,
            faults: Faults::default(),
            watch_faults: Faults::default(),
        })
    }

    /// Waits until another pass is worth making, or until the watch fails. However often pods change, the pause after
    /// each list bounds the lists.
    pub(super) async fn worth_a_pass(&mut self, client: &Client) -> Result<(), Error> {
        let mut next = self.machine.standing_at(client.server_now()).next;
        let mut pause_until = timer_now();
        loop {
            let now = client.server_now();
            let PodWatch::Open(changes) = &mut self.watch else {
                return std::future::pending().await;
            };
            let time_passes = async {
                match next {
                    Move::Wait(Some(until)) => sleep(until.since(now)).await,
                    _ => std::future::pending().await,
                }
            };
            let mut next_event = tokio::select! {
                biased;
                () = std::future::ready(()), if std::mem::take(&mut self.has_news) => None,
                () = time_passes => None,
                event = changes.next() => Some(event),
            };
            // An evaluation looks at all pods, so it follows all events that have arrived.
            while let Some(event) = next_event {
                if let ControlFlow::Break(missed) = self.apply(event, client) {
                    return missed;
                }
                let PodWatch::Open(changes) = &mut self.watch else { break };
                next_event = timeout_at(pause_until.into(), changes.next()).await.ok();
            }
            let evaluated_at = timer_now();
            next = self.machine.standing_at(client.server_now()).next;
            let took = timer_now().saturating_duration_since(evaluated_at);
            pause_until = timer_now() + (took * EVALUATION_PAUSE).min(BATCH_WINDOW);
            if next.is_shown_by_watch() {
                return Ok(());
            }
            if self.machine.is_worth_a_pass(&next) {
                if self.machine.is_blocked() {
                    sleep(BUDGET_LAG).await;
                }
                if let Some(pause) = self.machine.pace.pause {
                    sleep_until(pause.into()).await;
                }
                return Ok(());
            }
        }
    }

    /// Reads what the watch has delivered, so that nothing is judged by pods as they were before the last request.
    pub(super) async fn catch_up(&mut self, client: &Client) {
        let read_all = async {
            let (mut read, mut before) = (0, None);
            while before != Some(read) && read < MAX_LAG {
                before = Some(read);
                // What has arrived meanwhile is passed on by other tasks: the connection, or another keeper that holds
                // the shared watch.
                yield_now().await;
                while let PodWatch::Open(changes) = &mut self.watch
                    && let Some(event) = changes.next().now_or_never()
                    && self.apply(event, client).is_continue()
                {
                    read += 1;
                    self.has_news = true;
                }
            }
        };
        // The limit of what a task does at once would pass for the end of the events.
        unconstrained(read_all).await;
    }

    /// Applies an event of the watch. Breaks if events are missing: the next pass lists the pods.
    fn apply(&mut self, event: PodEvent, client: &Client) -> ControlFlow<Result<(), Error>> {
        match event {
            PodEvent::Applied(pod) => self.machine.applied(pod, client.server_now()),
            PodEvent::Deleted(uid) => self.machine.gone(&uid),
            PodEvent::Missed(why) => {
                self.watch = PodWatch::Broken;
                self.machine.watch_closed();
                return ControlFlow::Break(why.map_or(Ok(()), Err));
            }
        }
        ControlFlow::Continue(())
    }

    /// Begins another step of the restart, as the status has it.
    pub(super) fn resume(&mut self, policy: &Policy, begun: &Begun) {
        if self.machine.resume(policy, begun) {
            self.close();
        }
    }

    fn close(&mut self) {
        self.watch.close();
        self.machine.watch_closed();
    }

    /// Takes a list, from which a watch may continue, and returns its pods.
    pub(super) fn take_list(
        &mut self,
        listing: Arc<Listing>,
        interest: ListInterest,
        own_name: &str,
    ) -> News<Confirmed> {
        self.listed_at = listing.began;
        let others = listing.selected_by.iter().filter(|name| ***name != *own_name);
        self.machine.also_selected_by(others.cloned().collect());
        let news = News::Listed { pods: listing.pods.clone(), at: listing.at, took: listing.took };
        self.listing = Some((listing, interest));
        news
    }

    /// Opens a watch that continues from the last list, or closes it.
    pub(super) fn follow(&mut self, is_wanted: bool, limits: &Limits) -> News<Confirmed> {
        self.has_news = false;
        let is_new = match &self.listing {
            Some((listing, _)) if is_wanted => self.watch.open(listing, limits),
            _ => {
                self.watch.close();
                false
            }
        };
        News::Following { is_open: self.watch.is_open(), is_new }
    }

    pub(super) fn hold(&mut self) {
        self.close();
        self.listing = None;
        self.machine.hold();
    }
}
