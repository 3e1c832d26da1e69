//! The clock that timers go by, which a test can put forward.

use std::time::Instant;

/// The time by that clock.
pub(crate) fn timer_now() -> Instant {
    tokio::time::Instant::now().into_std()
}
