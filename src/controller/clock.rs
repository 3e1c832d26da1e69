//! The clock of timers, which tests can pause and advance.

use std::time::Instant;

pub(crate) fn timer_now() -> Instant {
    tokio::time::Instant::now().into_std()
}
