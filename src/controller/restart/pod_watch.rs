//! A restart's subscription to the watch on its pods, which restarts with the same selector share.

use std::mem;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::controller::limits::Limits;
use crate::controller::shared::{Listener, Listening, Listing};

/// A restart's subscription to the watch on its pods.
pub(super) enum PodWatch {
    /// Not subscribed.
    Closed,
    /// Events were lost. Subscribes again only after one more pass, because the watch may fail every time.
    Broken,
    /// Waits for one of the permits for watches on pods. With a backoff alone the restart might list up to 30 s late.
    Full,
    /// Holds a permit, and subscribes after the next list.
    Permitted(OwnedSemaphorePermit),
    /// Subscribed.
    Open(Listener),
}

impl PodWatch {
    /// Subscribes from this list on, unless the subscription is open or broken, or there are too many watches.
    pub(super) fn open(&mut self, listing: &Listing, limits: &Limits) {
        let permit = match mem::replace(self, Self::Closed) {
            Self::Broken => return,
            Self::Open(listener) => {
                *self = Self::Open(listener);
                return;
            }
            Self::Permitted(permit) => Some(permit),
            Self::Closed | Self::Full => None,
        };
        match listing.listen(|| permit.or_else(|| Arc::clone(&limits.watches).try_acquire_owned().ok())) {
            Listening::To(listener) => *self = Self::Open(listener),
            Listening::Full => *self = Self::Full,
            Listening::TooLate => {}
        }
    }

    /// Unsubscribes, and stops waiting for a permit.
    pub(super) fn close(&mut self) {
        if !matches!(self, Self::Broken) {
            *self = Self::Closed;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// Waits for a permit if the subscription failed only for lack of one, and forever otherwise.
    pub(super) async fn wait_for_permit(&mut self, limits: &Limits) {
        if let Self::Full = self
            && let Ok(permit) = Arc::clone(&limits.watches).acquire_owned().await
        {
            *self = Self::Permitted(permit);
            return;
        }
        std::future::pending::<()>().await;
    }
}
