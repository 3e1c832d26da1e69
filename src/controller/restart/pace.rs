//! How soon after each other the passes of a restart are made.

use std::time::{Duration, Instant};

use crate::controller::clock::timer_now;
use crate::kube::backoff::Backoff;
use crate::kube::error::Cause;

/// Passes are at most so far apart while the pod watch is open, because it does not show what the owners want.
const OWNERS_EVERY: Duration = Duration::from_secs(10);

/// The pause after a list lasts `PAUSE` times as long as the list took, less `SPARED`, because the next pod waits for it and a short list costs little;
/// but at least as long as the list, and at most `LONGEST_PAUSE`.
const PAUSE: u32 = 9;
const SPARED: Duration = Duration::from_millis(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// When the next pass of a restart may be made, and when it is due.
#[derive(Default)]
pub(super) struct Pace {
    /// No list is made before this time.
    pause: Option<Instant>,
    /// Nothing is asked for before this time, which the API server has named.
    busy: Option<Instant>,
    backoff: Backoff,
}

impl Pace {
    /// Puts off the next list by a pause in proportion to one that took so long.
    pub(super) fn put_off(&mut self, took: Duration) {
        self.pause = Some(timer_now() + pause_after(took));
    }

    /// Somebody waits for what the next list brings.
    pub(super) fn hurry(&mut self) {
        self.pause = None;
    }

    /// When the pause is over.
    pub(super) fn pause(&self) -> Option<Instant> {
        self.pause
    }

    /// Before this time there is no pass, if it is still to come: a doorbell that rings all the time is no reason to list all the time.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.pause.max(self.busy).filter(|until| *until > timer_now())
    }

    /// The restart has come nearer to its end.
    pub(super) fn note_progress(&mut self) {
        self.backoff.reset();
    }

    /// How long after a pass, which met with this refusal or none, the next one is due.
    pub(super) fn after_pass(&mut self, refusal: Option<&Cause>, is_watched: bool) -> Duration {
        let delay = match refusal {
            None if is_watched => OWNERS_EVERY,
            None => self.backoff.after_failure(timer_now()),
            Some(cause) => cause.delay(self.backoff.after_failure(timer_now())),
        };
        self.busy = matches!(refusal, Some(Cause::Busy(_))).then(|| timer_now() + delay);
        delay
    }
}

/// The pause after a list that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * PAUSE).saturating_sub(SPARED).max(took).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_short_list_the_pause_is_short_and_after_a_long_one_many_times_as_long() {
        let pause = |took| pause_after(Duration::from_millis(took)).as_millis();
        assert_eq!([0, 10, 50, 100, 1_000, 60_000].map(pause), [0, 10, 150, 600, 8_700, 60_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_to_wait_waits_and_so_does_who_has_just_listed() {
        let mut pace = Pace::default();
        assert_eq!(pace.not_before(), None);
        pace.put_off(Duration::from_secs(1));
        let pause = Some(timer_now() + Duration::from_millis(8_700));
        assert_eq!((pace.not_before(), pace.pause()), (pause, pause));
        pace.hurry();
        assert_eq!((pace.not_before(), pace.pause()), (None, None));
        pace.put_off(Duration::from_secs(1));
        let busy = Cause::Busy(Some(Duration::from_secs(30)));
        let delay = pace.after_pass(Some(&busy), true);
        assert!(delay >= Duration::from_secs(30));
        pace.hurry();
        assert_eq!(pace.not_before(), Some(timer_now() + delay), "of this it cannot be spared");
        tokio::time::advance(delay).await;
        assert_eq!((pace.not_before(), pace.after_pass(None, true)), (None, OWNERS_EVERY));
        assert!(pace.after_pass(None, false) < OWNERS_EVERY);
    }
}
