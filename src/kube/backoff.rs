//! Exponential backoff. Pure: the caller sleeps.

use std::time::Duration;

/// The upper bound of the first delay.
const FIRST: Duration = Duration::from_millis(800);
/// The upper bound of every delay.
const CAP: Duration = Duration::from_secs(30);

/// Delays that double from 0.8 s to 30 s. The second half of each is random, so that clients that failed together do
/// not retry together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure and returns the delay before the retry.
    pub(crate) fn after_failure(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(6)).min(CAP);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_are_at_least_half_of_it() {
        let mut backoff = Backoff::default();
        for most in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let delay = backoff.after_failure().as_millis();
            assert!((most / 2..=most).contains(&delay), "{delay} ms of {most} ms");
        }
    }

    #[test]
    fn a_success_resets_the_delay() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.after_failure();
        }
        backoff.reset();
        assert!(!backoff.is_failing());
        assert!(backoff.after_failure() <= FIRST);
    }
}
