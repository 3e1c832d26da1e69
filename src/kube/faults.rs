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
    /// Takes note of a failure at `now`: how long to wait, and whether it is the first of its kind, to be told of.
    pub fn note(&mut self, cause: &Cause, now: Instant) -> (Duration, bool) {
        let delay = self.backoff.after_failure(now);
        let kind = discriminant(cause);
        let first = !self.told.contains(&kind);
        if first {
            self.told.push(kind);
        }
        (cause.delay(delay), first)
    }

    /// Whether it has not worked since the last failure.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.backoff.is_failing()
    }

    /// It has worked. Whether that is news.
    pub fn over(&mut self) -> bool {
        let news = self.is_failing();
        *self = Self::default();
        news
    }
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
    fn a_server_that_asks_for_patience_gets_it() {
        let asked = Duration::from_secs(300);
        assert_eq!(Faults::default().note(&Cause::Busy(Some(asked)), Instant::now()).0, asked);
    }
}
