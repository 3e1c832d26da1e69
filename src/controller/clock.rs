//! The clock of timers, which tests can pause and advance.

use std::time::Instant;

/// Returns the current time of this clock.
pub(crate) fn timer_now() -> Instant {
    tokio::time::Instant::now().into_std()
}
