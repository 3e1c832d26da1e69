//! Decides when a count of zero selected pods is repeated: a chart may create the ConfigMonitor before the pods.

use std::time::{Duration, Instant};

/// The delay of the first repetition, which then doubles.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(crate) struct Recount {
    /// When zero pods are counted again, and the delay before that.
    next: Option<(Instant, Duration)>,
}

impl Recount {
    /// Returns whether the pods must be counted now. `last` is the last count for this spec.
    pub(crate) fn is_due(&self, last: Option<usize>, now: Instant) -> bool {
        match last {
            None => true,
            Some(0) => self.next.is_some_and(|(at, _)| now >= at),
            Some(_) => false,
        }
    }

    /// Returns when the pods must be counted again. `last` is the count before this step, `pods` the one after it.
    pub(crate) fn schedule(&mut self, last: Option<usize>, pods: Option<usize>, now: Instant) -> Option<Instant> {
        let delay = match self.next.filter(|_| last == Some(0)) {
            Some((at, _)) if now < at => return Some(at),
            Some((_, delay)) => (2 * delay).min(LONGEST),
            None => FIRST,
        };
        self.next = (pods == Some(0)).then(|| (now + delay, delay));
        self.next.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_zero_is_repeated_without_end_and_others_are_not() {
        let (mut recount, began) = (Recount::default(), Instant::now());
        let (mut last, mut now, mut delays) = (None, began, Vec::new());
        for _ in 0..9 {
            assert!(recount.is_due(last, now));
            let next = recount.schedule(last, Some(0), now).expect("a recount");
            assert!(!recount.is_due(Some(0), now));
            assert_eq!(recount.schedule(Some(0), Some(0), now), Some(next), "a step before it changes nothing");
            delays.push((next - now).as_secs());
            (last, now) = (Some(0), next);
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(recount.schedule(None, Some(0), now), Some(now + FIRST), "another spec restarts the schedule");
        assert!(!recount.is_due(Some(3), now + FIRST), "a restart has listed pods meanwhile");
        assert_eq!(recount.schedule(Some(0), Some(3), now + FIRST), None);
        assert!(!recount.is_due(Some(0), now), "an earlier process has counted zero");
        assert_eq!(recount.schedule(Some(0), Some(0), now), Some(now + FIRST));
    }
}
