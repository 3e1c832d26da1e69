//! The times of Events. The API server's clock is known to the second, while Events within one second are sorted by
//! their time.

use std::sync::{Mutex, PoisonError};

use crate::kube::{MicroTime, ServerTime};

/// The maximum number of Events with one time; each is one microsecond later than the previous one.
const EVENTS_PER_TIME: u32 = 100;

/// Hands out times that never decrease.
#[derive(Default)]
pub(crate) struct EventTimes(Mutex<Option<MicroTime>>);

impl EventTimes {
    /// Returns the time for what happens now, which is later than every earlier one.
    pub(crate) fn next(&self, now: ServerTime) -> MicroTime {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = MicroTime::from(now);
        let next = last.map_or(now, |last| now.max(last.plus_micros(EVENTS_PER_TIME)));
        *last = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_event_has_a_later_time_even_if_the_clock_goes_back() {
        let times = EventTimes::default();
        let seconds = [10, 10, 12, 11, 12];
        let handed_out = seconds.map(|second| times.next(ServerTime::from_second(second)));
        assert!(handed_out.windows(2).all(|pair| pair[0].plus_micros(EVENTS_PER_TIME) <= pair[1]), "{handed_out:?}");
        assert_eq!(handed_out[2], MicroTime::from(ServerTime::from_second(12)));
    }
}
