//! Decides when the selected pods are counted while no restart is pending: once for each spec, and repeatedly while no
//! pod is selected, because an application is often created right after its ConfigMonitor.

use std::time::{Duration, Instant};

/// The delay of the first recount after a count of 0.
const FIRST_RECOUNT: Duration = Duration::from_secs(10);
/// The time during which a count of 0 is repeated, at doubling intervals.
const RECOUNT_FOR: Duration = Duration::from_secs(600);

/// The schedule of counts.
#[derive(Default)]
pub(crate) struct Count {
    /// Boxed, because most ConfigMonitors select pods.
    again: Option<Box<Again>>,
    /// This process has observed a count.
    has_observed: bool,
}

struct Again {
    first: Instant,
    next: Instant,
}

impl Count {
    /// Returns whether the pods must be counted now. `last` is the last count for this spec.
    pub(crate) fn is_due(&self, last: Option<usize>, now: Instant) -> bool {
        last.is_none() || self.next(last).is_some_and(|next| now >= next)
    }

    /// Returns when the pods must be counted next.
    pub(crate) fn next(&self, last: Option<usize>) -> Option<Instant> {
        self.again.as_ref().filter(|_| last == Some(0)).map(|again| again.next)
    }

    /// Observes a count by a restart or by an earlier process. A count of 0 that is new, or the first that this process
    /// observes, starts the recounts.
    pub(crate) fn observe(&mut self, before: Option<usize>, pods: Option<usize>, now: Instant) {
        let is_first = !std::mem::replace(&mut self.has_observed, true);
        if self.again.is_none() && (is_first || before != Some(0)) && pods == Some(0) {
            self.record(None, 0, now);
        }
    }

    /// Records a count. `last` is the previous count for this spec.
    pub(crate) fn record(&mut self, last: Option<usize>, pods: usize, now: Instant) {
        let first = self.again.take().filter(|_| last.is_some()).map_or(now, |again| again.first);
        let age = now.saturating_duration_since(first);
        let next = now + age.max(FIRST_RECOUNT);
        self.again = (pods == 0 && age < RECOUNT_FOR).then(|| Box::new(Again { first, next }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_0_is_repeated_for_a_while_and_others_are_not() {
        let (mut count, began) = (Count::default(), Instant::now());
        let mut counted = Vec::new();
        let (mut last, mut now) = (None, began);
        while count.is_due(last, now) {
            counted.push((now - began).as_secs());
            count.record(last, 0, now);
            last = Some(0);
            now = count.next(last).unwrap_or(now);
        }
        assert_eq!(counted, [0, 10, 20, 40, 80, 160, 320, 640]);
        assert!(!count.is_due(Some(0), now + RECOUNT_FOR) && count.next(Some(0)).is_none());
        count.record(None, 0, now);
        assert_eq!(count.next(Some(0)), Some(now + FIRST_RECOUNT), "another spec restarts the schedule");
        assert!(!count.is_due(Some(3), now + RECOUNT_FOR), "a restart has listed pods meanwhile");
        count.record(Some(0), 3, now + FIRST_RECOUNT);
        assert_eq!(count.next(Some(0)), None);
        count.observe(Some(0), Some(0), now);
        assert_eq!(count.next(Some(0)), Some(now + FIRST_RECOUNT), "an earlier process has counted 0");
        count.record(Some(0), 3, now);
        count.observe(Some(0), Some(0), now);
        assert_eq!(count.next(Some(0)), None, "the count has not changed");
        count.observe(Some(3), Some(0), now);
        assert_eq!(count.next(Some(0)), Some(now + FIRST_RECOUNT), "a restart has counted 0");
    }
}
