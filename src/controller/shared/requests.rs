//! What several keepers ask for at the same time: one request serves all of them for whom it began late enough.
//!
//! An answer is held only as long as somebody is interested in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::controller::clock::timer_now;
use crate::kube::error::{Cause, Error};

/// The requests that somebody is interested in, by what they are about.
pub(crate) struct Requests<K, T> {
    wanted: Mutex<BTreeMap<K, Weak<Last<T>>>>,
}

/// One request that somebody is interested in.
pub(crate) struct Interest<K: Ord, T> {
    requests: Arc<Requests<K, T>>,
    about: K,
    last: Arc<Last<T>>,
}

type Last<T> = tokio::sync::Mutex<Option<Asked<T>>>;

/// A request, when it began and ended, and what came of it.
struct Asked<T> {
    began: Instant,
    ended: Instant,
    answer: Result<T, Error>,
}

impl<K, T> Default for Requests<K, T> {
    fn default() -> Self {
        Self { wanted: Mutex::default() }
    }
}

impl<K: Ord + Clone, T: Clone> Requests<K, T> {
    /// Registers interest in `about`. Register before waiting for anything: an answer is kept only while somebody is registered.
    pub(crate) fn interest(self: &Arc<Self>, about: &K) -> Interest<K, T> {
        let mut wanted = self.wanted();
        let last = wanted.get(about).and_then(Weak::upgrade).unwrap_or_else(|| {
            let last = Arc::new(Last::default());
            wanted.insert(about.clone(), Arc::downgrade(&last));
            last
        });
        Interest { requests: Arc::clone(self), about: about.clone(), last }
    }
}

impl<K, T> Requests<K, T> {
    fn wanted(&self) -> MutexGuard<'_, BTreeMap<K, Weak<Last<T>>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord, T: Clone> Interest<K, T> {
    /// Makes the request, unless another one has begun to make it at this time or later.
    ///
    /// # Errors
    /// Those of the request. Whoever has waited for it gets the same, as one after the other would hang if one does; who comes later makes
    /// its own. [`Cause::Stopped`] if the wait is to end.
    pub(crate) async fn ask(
        &self,
        stop: &CancellationToken,
        not_before: Instant,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let asked = timer_now();
        let Some(mut last) = stop.run_until_cancelled(self.last.lock()).await else {
            return Err(Error { request: "wait for what others read".to_owned(), cause: Cause::Stopped });
        };
        let serves = |last: &&Asked<T>| last.began >= not_before && (last.answer.is_ok() || last.ended > asked);
        if let Some(last) = last.as_ref().filter(serves) {
            return last.answer.clone();
        }
        let began = timer_now();
        let answer = request.await;
        if !answer.as_ref().is_err_and(|error| error.cause == Cause::Stopped) {
            *last = Some(Asked { began, ended: timer_now(), answer: answer.clone() });
        }
        answer
    }

    /// What it is about.
    pub(crate) fn about(&self) -> &K {
        &self.about
    }
}

impl<K: Ord, T> Drop for Interest<K, T> {
    fn drop(&mut self) {
        let mut wanted = self.requests.wanted();
        // Nobody else can become interested meanwhile.
        if Arc::strong_count(&self.last) == 1 {
            wanted.remove(&self.about);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_is_interested_in_any_more_is_forgotten() {
        let requests: Arc<Requests<u8, ()>> = Arc::default();
        let (one, other) = (requests.interest(&1), requests.interest(&1));
        drop(one);
        assert_eq!(requests.wanted().len(), 1);
        drop(other);
        assert_eq!(requests.wanted().len(), 0);
    }
}
