//! When a keeper makes its next step.

use std::time::{Duration, Instant};

use crate::controller::clock::timer_now;
use crate::controller::limits::Owners;

/// The delay before a ConfigMonitor that was not found is read again, in case no watch shows that it is deleted. A
/// restore from backup may bring back the same UID.
const MISSING_DELAY: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq)]
pub(crate) enum Requeue {
    /// When something changes, or at this time.
    At(Option<Instant>),
    /// At once: the decision may be stale.
    Now,
    /// When the keeper gets a turn with these owners. The step then reads everything again, because the spec may have
    /// changed.
    OnTurn(Owners),
    /// At this time. Until then nothing is tried, so the last failure still counts.
    Later(Instant),
    /// Never: the operator stops, or the ConfigMonitor is deleted.
    Never,
}

impl Requeue {
    /// Requeues a ConfigMonitor that was not found, or whose name another one has taken. A watch or a list shows
    /// whether it is deleted for good.
    pub(crate) fn missing() -> Self {
        Self::At(Some(timer_now() + MISSING_DELAY))
    }
}
