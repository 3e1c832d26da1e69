//! One restart: which pods it replaces, how things stand, and what comes next.
//!
//! No I/O and no clock: pods, owners, answers and times come as arguments. `controller::keeper` carries restarts out.

pub(super) mod budget;
mod canary;
pub(crate) mod machine;
mod pace;
pub(crate) mod progress;
pub(crate) mod seen;
pub(crate) mod sight;
pub(crate) mod stale;
pub(crate) mod standing;
pub(crate) mod surge_room;
pub(crate) mod targets;
pub(crate) mod wave;

use std::time::{Duration, Instant};

use crate::kube::ServerTime;

/// Times are whole seconds: two events this far apart may have been simultaneous.
pub(super) const SLACK: Duration = Duration::from_secs(1);
/// The tolerated clock skew between two API servers.
pub(super) const SKEW: Duration = Duration::from_secs(10);

/// The minimum wait for a time of the API server, whose times are whole seconds.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// Both clocks at one moment. Waits use `timer`; whatever is compared with an object uses `server`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) timer: Instant,
    pub(crate) server: ServerTime,
}

impl Now {
    /// Returns when the API server will have this time.
    fn timer_at(self, time: ServerTime) -> Instant {
        self.timer + time.since(self.server).max(MIN_DELAY)
    }
}

#[cfg(test)]
mod tests;
