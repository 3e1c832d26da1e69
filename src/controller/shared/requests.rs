//! Requests shared by keepers: one request serves every keeper for which it began late enough.
//!
//! An answer is kept only while a keeper is interested in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::controller::clock::timer_now;
use crate::kube::error::{Cause, Error};

/// The last request for each key in which a keeper is interested.
pub(crate) struct Requests<K, T> {
    by_key: Mutex<BTreeMap<K, Weak<LastRequest<T>>>>,
}

pub(crate) struct Interest<T>(Arc<LastRequest<T>>);

type LastRequest<T> = tokio::sync::Mutex<Option<Completed<T>>>;

struct Completed<T> {
    began: Instant,
    ended: Instant,
    answer: Result<T, Error>,
}

impl<K, T> Default for Requests<K, T> {
    fn default() -> Self {
        Self { by_key: Mutex::default() }
    }
}

impl<K: Ord + Clone, T> Requests<K, T> {
    /// Registers interest in `key`. Register before waiting for anything: an answer is kept only while somebody is
    /// registered.
    pub(crate) fn interest(&self, key: &K) -> Interest<T> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        Interest(by_key.get(key).and_then(Weak::upgrade).unwrap_or_else(|| {
            by_key.retain(|_, last| last.strong_count() > 0);
            let last = Arc::new(LastRequest::default());
            by_key.insert(key.clone(), Arc::downgrade(&last));
            last
        }))
    }
}

impl<T: Clone> Interest<T> {
    /// Makes the request, unless one that began at `not_before` or later has an answer. `request` gets the last answer.
    ///
    /// # Errors
    /// The error of the request. Callers that waited for this request share its error: if one request hangs, the next
    /// would hang as well. Later callers make their own.
    pub(crate) async fn ask<F: Future<Output = Result<T, Error>>>(
        &self,
        stop: &CancellationToken,
        not_before: Instant,
        request: impl FnOnce(Option<T>) -> F,
    ) -> Result<T, Error> {
        let asked = timer_now();
        let Some(mut last) = stop.run_until_cancelled(self.0.lock()).await else {
            // Its client is stopped as well, so the request only fails.
            return request(None).await;
        };
        let serves = |last: &&Completed<T>| last.began >= not_before && (last.answer.is_ok() || last.ended > asked);
        if let Some(last) = last.as_ref().filter(serves) {
            return last.answer.clone();
        }
        let began = timer_now();
        let before = last.take().and_then(|last| last.answer.ok());
        let answer = request(before).await;
        if !answer.as_ref().is_err_and(|error| error.cause == Cause::Stopped) {
            *last = Some(Completed { began, ended: timer_now(), answer: answer.clone() });
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_dropped_with_the_last_interest_in_it() {
        let requests: Requests<u8, Arc<()>> = Requests::default();
        let [one, other] = [1, 1].map(|key| requests.interest(&key));
        let answer = Arc::new(());
        let (began, ended) = (timer_now(), timer_now());
        *one.0.try_lock().unwrap() = Some(Completed { began, ended, answer: Ok(Arc::clone(&answer)) });
        drop(one);
        assert_eq!(Arc::strong_count(&answer), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&answer), 1);
        let _third = requests.interest(&2);
        assert_eq!(requests.by_key.lock().unwrap().len(), 1, "nothing is kept of a key without interest");
    }
}
