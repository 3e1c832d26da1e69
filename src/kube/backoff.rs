//! Exponential backoff. Pure: the caller passes the time and sleeps.

use std::time::{Duration, Instant};

/// The upper bound of the first delay.
const FIRST: Duration = Duration::from_millis(800);
/// The upper bound of every delay.
const CAP: Duration = Duration::from_secs(30);
/// After this time without a failure, the delays begin anew.
const HEALTHY: Duration = Duration::from_secs(120);

/// Delays that double from 0.8 s to 30 s. The second half of each is random, so that clients that failed together do
/// not retry together.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
    last: Option<Instant>,
}

impl Backoff {
    /// Returns the delay after a failure at `now`.
    pub fn after_failure(&mut self, now: Instant) -> Duration {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > HEALTHY) {
            self.failures = 0;
        }
        self.last = Some(now);
        let whole = FIRST.saturating_mul(1 << self.failures.min(6)).min(CAP);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Forgets the failures, after a success.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the last attempt failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_are_at_least_half_of_it() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        for most in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let delay = backoff.after_failure(now).as_millis();
            assert!((most / 2..=most).contains(&delay), "{delay} ms of {most} ms");
        }
    }

    #[test]
    fn two_minutes_without_a_failure_or_a_success_reset_the_delay() {
        let mut backoff = Backoff::default();
        let start = Instant::now();
        for _ in 0..10 {
            backoff.after_failure(start);
        }
        let delay = backoff.after_failure(start + HEALTHY + Duration::from_secs(1));
        assert!(delay <= FIRST, "{delay:?}");
        backoff.after_failure(start + HEALTHY + Duration::from_secs(2));
        backoff.reset();
        assert!(!backoff.is_failing());
        assert!(backoff.after_failure(start + HEALTHY + Duration::from_secs(3)) <= FIRST);
    }
}
