//! When a keeper makes another step.

use std::time::{Duration, Instant};

use super::limits::Owners;
use super::timer_now;

/// A ConfigMonitor that is not found is gone as soon as a watch or a list tells. If none does, it may have come back by then.
const MISSING_AGAIN: Duration = Duration::from_secs(10);

/// When a keeper makes another step.
#[derive(Debug, PartialEq)]
pub(crate) enum Requeue {
    /// When something changes, or at this time.
    At(Option<Instant>),
    /// At once: what was decided may not hold any more.
    Now,
    /// When it is its turn to make a pass with these owners. That may take a while, so that everything must be looked at anew then: the
    /// spec may be another one.
    InTurn(Owners),
    /// Never: the operator ends, or the ConfigMonitor is gone.
    Never,
}

impl Requeue {
    /// The ConfigMonitor was not found, or another one of its name was. Whether it is gone for ever a watch or a list tells.
    pub(crate) fn missing() -> Self {
        Self::At(Some(timer_now() + MISSING_AGAIN))
    }
}
