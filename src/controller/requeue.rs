//! When a keeper makes another step.

use std::time::{Duration, Instant};

use super::clock::timer_now;
use super::limits::Owners;

/// A ConfigMonitor that is not found is gone as soon as a watch or a list tells. If none does, it may have come back
/// by then: a restored backup may bring back the same UID.
const MISSING_AGAIN: Duration = Duration::from_secs(10);

/// When a keeper makes another step.
#[derive(Debug, PartialEq)]
pub(crate) enum Requeue {
    /// When something changes, or at this time.
    At(Option<Instant>),
    /// The same, and nothing was tried: whether what failed before works again is not known.
    Later(Instant),
    /// At once: what was decided may not hold any more.
    Now,
    /// When the keeper gets a turn with these owners. Everything is read again then, because the spec may have changed meanwhile.
    OnTurn(Owners),
    /// Never: the operator ends, or the ConfigMonitor is gone.
    Never,
}

impl Requeue {
    /// The ConfigMonitor was not found, or another one of its name was. Whether it is gone for ever a watch or a list tells.
    pub(crate) fn missing() -> Self {
        Self::At(Some(timer_now() + MISSING_AGAIN))
    }
}
