//! The pauses between the passes of a restart.

use std::time::{Duration, Instant};

use crate::kube::backoff::Backoff;
use crate::kube::error::Cause;

/// The maximum time between passes while the pod watch is open, because it does not show the desired replicas.
const OWNER_INTERVAL: Duration = Duration::from_secs(10);

/// The pause after a list lasts `PAUSE_FACTOR` times as long as the list took, less `PAUSE_DISCOUNT`, because the next
/// pod waits for it and a short list costs little; but at least as long as the list, and at most `MAX_PAUSE`.
const PAUSE_FACTOR: u32 = 9;
const PAUSE_DISCOUNT: Duration = Duration::from_millis(300);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// When the next pass of a restart may begin, and when it is due.
#[derive(Clone, Default)]
pub(crate) struct Pace {
    /// No list begins before this time.
    pub(super) pause: Option<Instant>,
    /// No request is sent before this time, which the API server has named.
    busy: Option<Instant>,
    pub(crate) backoff: Backoff,
}

impl Pace {
    /// Delays the next list by a pause in proportion to the time that the last one took.
    pub(crate) fn put_off(&mut self, took: Duration, now: Instant) {
        self.pause = Some(now + pause_after(took));
    }

    /// Returns the time before which no pass may begin, if it is in the future: a doorbell that rings all the time must
    /// not cause lists all the time.
    pub(crate) fn not_before(&self, now: Instant) -> Option<Instant> {
        self.pause.max(self.busy).filter(|until| *until > now)
    }

    /// Returns the later of this time and the end of the pause.
    pub(crate) fn after_pause(&self, at: Instant) -> Instant {
        at.max(self.pause.unwrap_or(at))
    }

    pub(crate) fn after_pass(&mut self, refusal: Option<&Cause>, is_watched: bool, now: Instant) -> Duration {
        let delay = match refusal {
            None if is_watched => OWNER_INTERVAL,
            None => self.backoff.after_failure(),
            Some(cause) => cause.delay(self.backoff.after_failure()),
        };
        self.busy = matches!(refusal, Some(Cause::Busy(_))).then(|| now + delay);
        delay
    }
}

fn pause_after(took: Duration) -> Duration {
    (took * PAUSE_FACTOR).saturating_sub(PAUSE_DISCOUNT).max(took).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_short_after_a_short_list_and_many_times_as_long_after_a_long_list() {
        let pause = |took| pause_after(Duration::from_millis(took)).as_millis();
        assert_eq!([0, 10, 50, 100, 1_000, 60_000].map(pause), [0, 10, 150, 600, 8_700, 60_000]);
    }

    #[test]
    fn a_pass_waits_after_a_list_and_as_long_as_the_server_demands() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.not_before(now), None);
        pace.put_off(Duration::from_secs(1), now);
        let pause = Some(now + Duration::from_millis(8_700));
        assert_eq!((pace.not_before(now), pace.pause), (pause, pause));
        pace.pause = None;
        assert_eq!(pace.not_before(now), None);
        pace.put_off(Duration::from_secs(1), now);
        let busy = Cause::Busy(Some(Duration::from_secs(30)));
        let delay = pace.after_pass(Some(&busy), true, now);
        assert!(delay >= Duration::from_secs(30));
        pace.pause = None;
        let demanded = Some(now + delay);
        assert_eq!(pace.not_before(now), demanded, "an edit does not shorten the delay that the server demands");
        let later = now + delay;
        assert_eq!((pace.not_before(later), pace.after_pass(None, true, later)), (None, OWNER_INTERVAL));
        assert!(pace.after_pass(None, false, later) < OWNER_INTERVAL);
    }
}
