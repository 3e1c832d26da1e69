//! Requests shared by keepers: one request serves every keeper for which it began late enough, and that needs the same
//! part of the answer.
//!
//! An answer is kept only while a keeper is interested in its key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::controller::clock::timer_now;
use crate::kube::error::{Cause, Error};
use crate::kube::lock;

/// The most parts of a key that are kept, of which the oldest goes first: a spec can ask for another part at each edit.
const MOST_PARTS: usize = 16;

/// The last requests for each key in which a keeper is interested.
pub(crate) struct Requests<K, P, T> {
    by_key: Arc<ByKey<K, P, T>>,
}

type ByKey<K, P, T> = Mutex<BTreeMap<K, Weak<LastRequests<P, T>>>>;

/// The interest of a keeper in a key, until it is dropped.
pub(crate) struct Interest<K: Ord, P, T> {
    key: K,
    last: Arc<LastRequests<P, T>>,
    by_key: Arc<ByKey<K, P, T>>,
}

/// The last request for each part, the oldest first. Most keys have one part, and there may be thousands of keys.
type LastRequests<P, T> = tokio::sync::Mutex<Vec<Completed<P, T>>>;

struct Completed<P, T> {
    part: P,
    began: Instant,
    ended: Instant,
    answer: Result<T, Error>,
}

impl<K, P, T> Default for Requests<K, P, T> {
    fn default() -> Self {
        Self { by_key: Arc::default() }
    }
}

impl<K: Ord + Clone, P, T> Requests<K, P, T> {
    /// Registers interest in `key`. Register before waiting for anything: an answer is kept only while somebody is
    /// registered.
    pub(crate) fn interest(&self, key: &K) -> Interest<K, P, T> {
        let mut by_key = lock(&self.by_key);
        let last = by_key.get(key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let last = Arc::new(LastRequests::default());
            by_key.insert(key.clone(), Arc::downgrade(&last));
            last
        });
        Interest { key: key.clone(), last, by_key: Arc::clone(&self.by_key) }
    }
}

impl<K: Ord, P, T> Drop for Interest<K, P, T> {
    fn drop(&mut self) {
        let mut by_key = lock(&self.by_key);
        if Arc::strong_count(&self.last) == 1 {
            by_key.remove(&self.key);
        }
    }
}

impl<K: Ord, P: PartialEq + Clone, T: Clone> Interest<K, P, T> {
    /// Makes the request for a part, unless one that began at `not_before` or later has an answer. `request` gets the
    /// last answer about any part.
    ///
    /// # Errors
    /// The error of the request. Callers that waited for this request share its error: if one request hangs, the next
    /// would hang as well. Later callers make their own.
    pub(crate) async fn ask<F: Future<Output = Result<T, Error>>>(
        &self,
        stop: &CancellationToken,
        not_before: Instant,
        part: &P,
        request: impl FnOnce(Option<T>) -> F,
    ) -> Result<T, Error> {
        let asked = timer_now();
        let Some(mut last) = stop.run_until_cancelled(self.last.lock()).await else {
            // Its client is stopped as well, so the request only fails.
            return request(None).await;
        };
        let serves = |last: &&Completed<P, T>| {
            last.part == *part && last.began >= not_before && (last.answer.is_ok() || last.ended > asked)
        };
        if let Some(last) = last.iter().find(serves) {
            return last.answer.clone();
        }
        let began = timer_now();
        let before = last.iter().rev().find_map(|last| last.answer.as_ref().ok()).cloned();
        last.retain(|last| last.part != *part);
        let answer = request(before).await;
        if !answer.as_ref().is_err_and(|error| error.cause == Cause::Stopped) {
            if last.len() >= MOST_PARTS {
                last.remove(0);
            }
            last.reserve_exact(1);
            last.push(Completed { part: part.clone(), began, ended: timer_now(), answer: answer.clone() });
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_many_parts_the_latest_answers_are_kept() {
        let (requests, stop): (Requests<u8, usize, usize>, _) = (Requests::default(), CancellationToken::new());
        let interest = requests.interest(&1);
        let (since, asked) = (timer_now(), Mutex::new(Vec::new()));
        for part in (0..2 * MOST_PARTS).chain([2 * MOST_PARTS - 1, 0]) {
            let request = |_| {
                asked.lock().unwrap().push(part);
                std::future::ready(Ok(part))
            };
            assert_eq!(interest.ask(&stop, since, &part, request).await, Ok(part));
        }
        assert_eq!(asked.into_inner().unwrap(), (0..2 * MOST_PARTS).chain([0]).collect::<Vec<_>>());
        assert_eq!(interest.last.lock().await.len(), MOST_PARTS);
        drop((requests.interest(&1), requests.interest(&2)));
        assert_eq!(requests.by_key.lock().unwrap().keys().collect::<Vec<_>>(), [&1], "nobody is interested in others");
    }

    #[test]
    fn an_answer_is_dropped_with_the_last_interest_in_it() {
        let requests: Requests<u8, (), Arc<()>> = Requests::default();
        let [one, other] = [1, 1].map(|key| requests.interest(&key));
        let answer = Arc::new(());
        let (began, ended) = (timer_now(), timer_now());
        one.last.try_lock().unwrap().push(Completed { part: (), began, ended, answer: Ok(Arc::clone(&answer)) });
        drop(one);
        assert_eq!(Arc::strong_count(&answer), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&answer), 1);
    }
}
