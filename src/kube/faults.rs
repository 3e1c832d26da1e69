//! Failures since the last success: how long to wait, and whether the failure was logged before.

use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::error::Cause;

/// The failures of an operation that is retried until it succeeds.
#[derive(Debug, Default)]
pub struct Faults {
    backoff: Backoff,
    reported: Vec<Discriminant<Cause>>,
}

impl Faults {
    /// Records a failure at `now`. Returns the delay before the retry, and whether to report the failure: once for each
    /// kind.
    pub fn record(&mut self, cause: &Cause, now: Instant) -> (Duration, bool) {
        let delay = self.backoff.after_failure(now);
        let kind = discriminant(cause);
        let report = is_fault(cause) && !self.reported.contains(&kind);
        if report {
            self.reported.push(kind);
        }
        (cause.delay(delay), report)
    }

    /// Returns whether the last attempt failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.backoff.is_failing()
    }

    /// Records a success. Returns whether to report the recovery: only if a failure was reported.
    pub fn recovered(&mut self) -> bool {
        let report = !self.reported.is_empty();
        *self = Self::default();
        report
    }
}

/// Returns whether a failure is worth reporting. The other kinds are a part of how the API works: list again, read
/// again, stop.
fn is_fault(cause: &Cause) -> bool {
    !matches!(cause, Cause::Expired | Cause::Conflict(_) | Cause::Stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_is_reported_once_until_a_success() {
        let mut faults = Faults::default();
        let now = Instant::now();
        let unreachable = || Cause::Unreachable("x".to_owned());
        let reported: Vec<bool> = [unreachable(), unreachable(), Cause::NoSuchResource, unreachable()]
            .iter()
            .map(|cause| faults.record(cause, now).1)
            .collect();
        assert_eq!(reported, [true, false, true, false]);
        assert!(faults.recovered() && !faults.recovered());
        assert!(faults.record(&unreachable(), now).1);
    }

    #[test]
    fn a_recovery_is_reported_only_if_a_failure_was() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        for cause in [Cause::Expired, Cause::Conflict("x".to_owned()), Cause::Expired, Cause::Stopped] {
            assert!(!faults.record(&cause, now).1, "{cause:?}");
        }
        assert!(faults.is_failing() && !faults.recovered() && !faults.is_failing());
    }

    #[test]
    fn the_delay_that_a_server_asks_for_is_kept() {
        let asked = Duration::from_secs(300);
        assert_eq!(Faults::default().record(&Cause::Busy(Some(asked)), Instant::now()).0, asked);
    }
}
