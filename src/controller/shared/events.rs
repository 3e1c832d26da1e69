//! The times of Events. The API server's clock is known to the second, and Events of one second are read in the order of their times.

use std::sync::{Mutex, PoisonError};

use crate::kube::{MicroTime, ServerTime};

/// At most so many Events are made of one time, each a microsecond after the one before.
const AT_A_TIME: u32 = 100;

/// Hands out times that never go back.
#[derive(Default)]
pub(crate) struct EventTimes(Mutex<Option<MicroTime>>);

impl EventTimes {
    /// The time for what happens now: later than all before.
    pub(crate) fn next(&self, now: ServerTime) -> MicroTime {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = MicroTime::from(now);
        let next = last.map_or(now, |last| now.max(last.plus_micros(AT_A_TIME)));
        *last = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_later_has_a_later_time_whatever_the_clock_says() {
        let times = EventTimes::default();
        let seconds = [10, 10, 12, 11, 12];
        let handed_out = seconds.map(|second| times.next(ServerTime::from_second(second)));
        assert!(handed_out.windows(2).all(|pair| pair[0].plus_micros(AT_A_TIME) <= pair[1]), "{handed_out:?}");
        assert_eq!(handed_out[2], MicroTime::from(ServerTime::from_second(12)));
    }
}
