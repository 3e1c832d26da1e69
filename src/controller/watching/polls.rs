//! When to read again what is not watched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::scope::Scope;

/// The time between two polls of the same. It is longer in a namespace that has more to poll than one in a second.
const PERIOD: Duration = Duration::from_secs(60);
/// The least time between two polls of a namespace.
const PAUSE_OF_NAMESPACE: Duration = Duration::from_secs(1);
/// The least time between two polls of the process.
const PAUSE: Duration = Duration::from_millis(20);

/// What is polled, and when it last was.
#[derive(Default)]
pub(super) struct Polls {
    polled: BTreeMap<Scope, Option<Instant>>,
    /// The namespaces whose last poll has not ended. It is given up when another one would be due.
    polling: BTreeSet<Option<Arc<str>>>,
    /// The last poll of all.
    last: Option<Instant>,
    next: Option<(Instant, Scope)>,
}

impl Polls {
    /// Polls these scopes, and no others.
    pub(super) fn set(&mut self, scopes: BTreeSet<Scope>, now: Instant) {
        self.polled.retain(|scope, _| scopes.contains(scope));
        for scope in scopes {
            self.polled.entry(scope).or_default();
        }
        self.plan(now);
    }

    /// Returns when the next poll is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next.as_ref().map(|(due, _)| *due)
    }

    /// Starts the next poll, and returns its scope.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Scope> {
        let (_, scope) = self.next.take()?;
        self.polled.insert(scope.clone(), Some(now));
        self.polling.insert(scope.namespace.clone());
        self.last = Some(now);
        self.plan(now);
        Some(scope)
    }

    /// Records that the poll of a namespace has ended.
    pub(super) fn end(&mut self, namespace: &Option<Arc<str>>, now: Instant) {
        if self.polling.remove(namespace) {
            self.plan(now);
        }
    }

    fn plan(&mut self, now: Instant) {
        let mut newest = BTreeMap::<&Option<Arc<str>>, Option<Instant>>::new();
        for (scope, last) in &self.polled {
            let newest = newest.entry(&scope.namespace).or_default();
            *newest = (*newest).max(*last);
        }
        let due = |(scope, last): (&Scope, &Option<Instant>)| {
            let pause = if self.polling.contains(&scope.namespace) { PERIOD } else { PAUSE_OF_NAMESPACE };
            let of_namespace = newest.get(&scope.namespace).copied().flatten().map(|newest| newest + pause);
            let of_all = self.last.map(|last| last + PAUSE);
            let due = last.map(|last| last + PERIOD).max(of_namespace).max(of_all);
            (due.map_or(now, |due| due.max(now)), *last)
        };
        let next = self.polled.iter().map(|polled| (due(polled), polled.0)).min();
        self.next = next.map(|((due, _), scope)| (due, scope.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::watching::scope::Target;

    fn scopes(namespace: &str, count: usize) -> impl Iterator<Item = Scope> + Clone {
        let scope = move |number| Scope {
            namespace: Some(namespace.into()),
            target: Target::Selected(format!("app={number:03}").into()),
        };
        (0..count).map(scope)
    }

    /// Polls for this long. Returns the times of each.
    fn polled(polls: &mut Polls, start: Instant, seconds: u64) -> BTreeMap<Scope, Vec<Instant>> {
        let mut times: BTreeMap<Scope, Vec<Instant>> = BTreeMap::new();
        while let Some(due) = polls.due().filter(|due| *due < start + Duration::from_secs(seconds)) {
            let scope = polls.begin(due).unwrap();
            polls.end(&scope.namespace, due);
            times.entry(scope).or_default().push(due);
        }
        times
    }

    #[test]
    fn each_is_polled_at_once_and_every_minute_and_a_namespace_with_many_takes_turns_from_no_other() {
        let (mut polls, start) = (Polls::default(), Instant::now());
        let few: Vec<Scope> = (0..40).flat_map(|number| scopes(format!("n{number}").leak(), 1)).collect();
        let all: BTreeSet<Scope> = scopes("many", 200).chain(few.iter().cloned()).collect();
        polls.set(all, start);
        let times = polled(&mut polls, start, 600);
        for scope in few {
            let gaps: Vec<Duration> = times[&scope].windows(2).map(|two| two[1] - two[0]).collect();
            assert!(times[&scope][0] < start + PAUSE_OF_NAMESPACE && gaps.len() >= 9);
            assert!(gaps.iter().all(|gap| (PERIOD..PERIOD + PAUSE_OF_NAMESPACE).contains(gap)), "{gaps:?}");
        }
        let of_many = scopes("many", 200).map(|scope| times[&scope].len());
        assert!(of_many.clone().all(|polls| polls >= 2), "{:?}", of_many.collect::<Vec<_>>());
        let mut each: Vec<(Instant, bool)> = times
            .iter()
            .flat_map(|(scope, at)| at.iter().map(|at| (*at, scope.namespace.as_deref() == Some("many"))))
            .collect();
        each.sort();
        assert!(each.windows(2).all(|two| two[1].0 >= two[0].0 + PAUSE));
        let of_many: Vec<Instant> = each.into_iter().filter(|(_, is_of_many)| *is_of_many).map(|(at, _)| at).collect();
        assert!(of_many.windows(2).all(|two| two[1] >= two[0] + PAUSE_OF_NAMESPACE));
    }

    #[test]
    fn a_namespace_has_one_poll_at_a_time_and_one_that_hangs_is_given_up() {
        let (mut polls, start) = (Polls::default(), Instant::now());
        polls.set(scopes("a", 2).chain(scopes("b", 1)).collect(), start);
        let first = polls.begin(start).unwrap();
        assert_eq!(polls.due(), Some(start + PAUSE));
        polls.begin(start + PAUSE);
        assert_eq!(polls.due(), Some(start + PERIOD));
        polls.end(&first.namespace, start + PAUSE);
        assert_eq!(polls.due(), Some(start + PAUSE_OF_NAMESPACE));
    }

    #[test]
    fn what_is_new_is_polled_next_and_what_is_gone_never() {
        let (mut polls, start) = (Polls::default(), Instant::now());
        polls.set(scopes("a", 2).collect(), start);
        polled(&mut polls, start, 30);
        let later = start + Duration::from_secs(30);
        polls.set(scopes("a", 3).skip(1).collect(), later);
        let times = polled(&mut polls, start, 100);
        let [first, new] = [1, 2].map(|number| &times[&scopes("a", 3).nth(number).unwrap()]);
        assert_eq!((times.len(), new[0], first[0]), (2, later, start + PAUSE_OF_NAMESPACE + PERIOD));
    }
}
