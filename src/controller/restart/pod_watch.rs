//! A restart's subscription to the watch on its pods, which restarts with the same selector share.

use crate::controller::shared::{Listener, Listing, Shared};

pub(super) enum PodWatch {
    Closed,
    /// Events were lost. Subscribes again only after one more pass, because the watch may fail every time.
    Broken,
    Open(Listener),
}

impl PodWatch {
    /// Subscribes from this list on, unless the subscription is open or broken, or there are too many watches: without
    /// one, passes follow each other with backoff. Returns whether this has subscribed.
    pub(super) fn open(&mut self, listing: &Listing, shared: &Shared) -> bool {
        match self {
            Self::Open(_) => return false,
            Self::Broken => *self = Self::Closed,
            Self::Closed => *self = listing.listen(shared).map_or(Self::Closed, Self::Open),
        }
        self.is_open()
    }

    pub(super) fn close(&mut self) {
        if !matches!(self, Self::Broken) {
            *self = Self::Closed;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}
