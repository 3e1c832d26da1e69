//! One restart: which pods it replaces, how things stand, and what comes next.
//!
//! No I/O and no clock: pods, owners, answers and times come as arguments. `controller::restart` asks and carries out.

pub(crate) mod attempts;
mod budget;
pub(crate) mod canary;
pub(crate) mod pace;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod seen;
pub(crate) mod standing;
pub(crate) mod wave;

use std::time::Duration;

/// Times are whole seconds: two events this far apart may have been simultaneous.
const SLACK: Duration = Duration::from_secs(1);
/// The tolerated clock skew between two API servers.
const SKEW: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
