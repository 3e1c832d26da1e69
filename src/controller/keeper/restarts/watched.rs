//! A restart under way, with its last list of pods, and the bell that rings for another pass.
//!
//! Deletes nothing: see `drive.rs`. `monitor::restart` decides which pods may be deleted.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::OptionFuture;
use tokio::time::sleep_until;
use tracing::warn;

use crate::controller::clock::{self, timer_now};
use crate::controller::keeper::context::Context;
use crate::controller::keeper::memory::Confirmed;
use crate::controller::shared::{ListInterest, Listener, Listing, Ring};
use crate::kube::error::Cause;
use crate::kube::faults::Faults;
use crate::monitor::notice::Notice;
use crate::monitor::referrers::Concerns;
use crate::monitor::restart::machine::{Do, Machine, News};

pub(super) struct Watched {
    pub(super) machine: Machine<Confirmed>,
    /// The last list, and the interest that shares it with other keepers.
    listing: Option<(Arc<Listing>, ListInterest)>,
    /// When the last list began.
    pub(super) listed_at: Instant,
    /// The Event about the start, until the controllers of the pods have it. `None` also if another process began the
    /// restart.
    pub(super) started: Option<Notice>,
    listener: Option<Listener>,
    /// Failures of the watch and of reads of the owners, each kind of which is logged once for a restart.
    pub(super) faults: Faults,
}

impl Watched {
    pub(super) fn new(machine: Machine<Confirmed>) -> Box<Self> {
        Box::new(Self {
            machine,
            listing: None,
            listed_at: timer_now(),
            started: None,
            listener: None,
            faults: Faults::default(),
        })
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listener.is_some()
    }

    /// Waits until the restart asks for more than to wait. Logs once why its pods cannot be watched. If the API server is
    /// unreachable, the next list reports that.
    pub(super) async fn worth_a_pass(&mut self, context: &Context) {
        if self.listener.is_none() {
            return std::future::pending().await;
        }
        while let Do::Wait(until) | Do::Pause(until) = self.machine.next(clock::now(&context.client)) {
            let ring = OptionFuture::from(self.listener.as_mut().map(Listener::next));
            let news = tokio::select! {
                biased;
                () = sleep_until(until.into()) => return,
                Some(ring) = ring => match ring {
                    Ok(Ring { ready, failed }) => News::Rang { ready, failed },
                    Err(why) => {
                        self.listener = None;
                        if let Some(error) = why.filter(|error| !matches!(error.cause, Cause::Unreachable(_)))
                            && self.faults.record(&error.cause).1
                        {
                            context.span().in_scope(|| warn!(%error, "pod watch failed; listing the pods periodically"));
                        }
                        News::Listening(false)
                    }
                },
            };
            self.machine.heard(news, clock::now(&context.client));
        }
    }

    /// Returns the sources whose referring pods a pass must know.
    pub(super) fn scope(&self) -> Concerns {
        Concerns { missing: self.machine.missing.clone(), ..Concerns::default() }
    }

    /// Takes a list.
    pub(super) fn take_list(&mut self, listing: Arc<Listing>, interest: ListInterest, context: &Context) {
        self.listed_at = listing.began;
        self.machine.unstartable = listing.referrers.unstartable.clone();
        let listed = News::Listed { pods: listing.pods.clone(), at: listing.at, took: listing.took };
        self.machine.heard(listed, clock::now(&context.client));
        self.listing = Some((listing, interest));
    }

    /// Returns how many turns had ended when the last list began.
    pub(super) fn turns_ended(&self) -> Option<u64> {
        self.listing.as_ref().map(|(listing, _)| listing.turns_ended)
    }

    /// Listens to the bell of the pods from the last list on, or to none.
    pub(super) fn listen(&mut self, is_wanted: bool, context: &Context, query: String) -> News<Confirmed> {
        let listing = self.listing.as_ref().filter(|_| is_wanted);
        self.listener = listing.and_then(|(listing, _)| context.shared.listen(query, listing));
        News::Listening(self.listener.is_some())
    }

    pub(super) fn hold(&mut self) {
        (self.listing, self.listener) = (None, None);
        self.machine.hold();
    }
}
