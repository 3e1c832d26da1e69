//! What has gone wrong since it last worked: how long to wait, and whether it was told of already.

use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::error::Cause;

/// The failures of something that is tried again and again.
#[derive(Debug, Default)]
pub struct Faults {
    backoff: Backoff,
    told: Vec<Discriminant<Cause>>,
}

impl Faults {
    /// Takes note of a failure at `now`: how long to wait, and whether to tell of it, which is once for each kind.
    pub fn note(&mut self, cause: &Cause, now: Instant) -> (Duration, bool) {
        let delay = self.backoff.after_failure(now);
        let kind = discriminant(cause);
        let tell = is_fault(cause) && !self.told.contains(&kind);
        if tell {
            self.told.push(kind);
        }
        (cause.delay(delay), tell)
    }

    /// Whether it has not worked since the last failure.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.backoff.is_failing()
    }

    /// It has worked. Whether to tell of that, because a fault was told of.
    pub fn over(&mut self) -> bool {
        let tell = !self.told.is_empty();
        *self = Self::default();
        tell
    }
}

/// Whether somebody should know. The others are a part of how the API works: list again, read again, end.
fn is_fault(cause: &Cause) -> bool {
    !matches!(cause, Cause::Expired | Cause::Conflict(_) | Cause::Stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_of_once_until_it_works_again() {
        let mut faults = Faults::default();
        let now = Instant::now();
        let unreachable = || Cause::Unreachable("x".to_owned());
        let told: Vec<bool> = [unreachable(), unreachable(), Cause::NoSuchResource, unreachable()]
            .iter()
            .map(|cause| faults.note(cause, now).1)
            .collect();
        assert_eq!(told, [true, false, true, false]);
        assert!(faults.over() && !faults.over());
        assert!(faults.note(&unreachable(), now).1);
    }

    #[test]
    fn what_was_never_told_of_is_not_told_to_be_over() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        for cause in [Cause::Expired, Cause::Conflict("x".to_owned()), Cause::Expired, Cause::Stopped] {
            assert!(!faults.note(&cause, now).1, "{cause:?}");
        }
        assert!(faults.is_failing() && !faults.over() && !faults.is_failing());
    }

    #[test]
    fn a_server_that_asks_for_patience_gets_it() {
        let asked = Duration::from_secs(300);
        assert_eq!(Faults::default().note(&Cause::Busy(Some(asked)), Instant::now()).0, asked);
    }
}
