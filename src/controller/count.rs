//! How many pods are selected while nothing is left to do. They are counted once for each spec, and again for a while as long as there are none,
//! because an application is often created right after its ConfigMonitor.

use std::time::{Duration, Instant};

/// After a count of none, the pods are counted again after this time at the earliest,
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// and for this time at most, at intervals that double.
const AGAIN_FOR: Duration = Duration::from_secs(600);

/// When the selected pods are to be counted.
#[derive(Default)]
pub(crate) struct Count {
    /// Boxed, as most ConfigMonitors select pods.
    again: Option<Box<Again>>,
    /// This process has heard of a count.
    has_heard: bool,
}

struct Again {
    first: Instant,
    next: Instant,
}

impl Count {
    /// Whether the pods are to be counted now, given how many the last count has found for this spec.
    pub(crate) fn is_due(&self, known: Option<usize>, now: Instant) -> bool {
        known.is_none() || self.next(known).is_some_and(|next| now >= next)
    }

    /// When the pods are to be counted next.
    pub(crate) fn next(&self, known: Option<usize>) -> Option<Instant> {
        self.again.as_ref().filter(|_| known == Some(0)).map(|again| again.next)
    }

    /// Somebody else has counted: a restart, or a process before this one. If there are none where there were some, or at the start of this process,
    /// they may come soon, as at first sight.
    pub(crate) fn hear(&mut self, before: Option<usize>, pods: Option<usize>, now: Instant) {
        let is_first = !std::mem::replace(&mut self.has_heard, true);
        if self.again.is_none() && (is_first || before != Some(0)) && pods == Some(0) {
            self.note(None, 0, now);
        }
    }

    /// Takes note of a count, given the count before it.
    pub(crate) fn note(&mut self, known: Option<usize>, pods: usize, now: Instant) {
        let first = self.again.take().filter(|_| known.is_some()).map_or(now, |again| again.first);
        let age = now.saturating_duration_since(first);
        let next = now + age.max(AGAIN_AFTER);
        self.again = (pods == 0 && age < AGAIN_FOR).then(|| Box::new(Again { first, next }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_are_counted_again_for_a_while_and_some_are_not() {
        let (mut count, began) = (Count::default(), Instant::now());
        let mut counted = Vec::new();
        let (mut known, mut now) = (None, began);
        while count.is_due(known, now) {
            counted.push((now - began).as_secs());
            count.note(known, 0, now);
            known = Some(0);
            now = count.next(known).unwrap_or(now);
        }
        assert_eq!(counted, [0, 10, 20, 40, 80, 160, 320, 640]);
        assert!(!count.is_due(Some(0), now + AGAIN_FOR) && count.next(Some(0)).is_none());
        count.note(None, 0, now);
        assert_eq!(count.next(Some(0)), Some(now + AGAIN_AFTER), "another spec begins anew");
        assert!(!count.is_due(Some(3), now + AGAIN_FOR), "a restart has listed pods meanwhile");
        count.note(Some(0), 3, now + AGAIN_AFTER);
        assert_eq!(count.next(Some(0)), None);
        count.hear(Some(0), Some(0), now);
        assert_eq!(count.next(Some(0)), Some(now + AGAIN_AFTER), "a process before this one has found none");
        count.note(Some(0), 3, now);
        count.hear(Some(0), Some(0), now);
        assert_eq!(count.next(Some(0)), None, "that was known");
        count.hear(Some(3), Some(0), now);
        assert_eq!(count.next(Some(0)), Some(now + AGAIN_AFTER), "a restart has found none");
    }
}
