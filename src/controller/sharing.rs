//! What several keepers ask for at the same time: one request serves all of them for whom it began late enough.
//!
//! An answer is held only as long as somebody is interested in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::timer_now;
use crate::kube::error::{Cause, Error};

/// The requests that somebody is interested in, by what they are about.
pub(super) struct Requests<K, T> {
    wanted: Mutex<BTreeMap<K, Weak<Last<T>>>>,
}

/// One request that somebody is interested in.
pub(super) struct Interest<K: Ord, T> {
    requests: Arc<Requests<K, T>>,
    about: K,
    last: Arc<Last<T>>,
}

/// When the last request began, and what came of it.
type Last<T> = tokio::sync::Mutex<Option<(Instant, Result<T, Error>)>>;

impl<K, T> Default for Requests<K, T> {
    fn default() -> Self {
        Self { wanted: Mutex::default() }
    }
}

impl<K: Ord + Clone, T: Clone> Requests<K, T> {
    /// Takes an interest. To be taken before waiting for anything, so that what one asks for is still there for the next.
    pub(super) fn interest(self: &Arc<Self>, about: &K) -> Interest<K, T> {
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
    /// Those of the request. Whoever has waited for it gets the same: one after the other would hang if one does.
    pub(super) async fn ask(
        &self,
        not_before: Instant,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut last = self.last.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(began, _)| *began >= not_before) {
            return answer.clone();
        }
        let began = timer_now();
        let answer = request.await;
        if !answer.as_ref().is_err_and(|error| error.cause == Cause::Stopped) {
            *last = Some((began, answer.clone()));
        }
        answer
    }

    /// What it is about.
    pub(super) fn about(&self) -> &K {
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
