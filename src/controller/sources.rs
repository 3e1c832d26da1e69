//! ConfigMaps that several keepers read at the same time. One GET serves all of them for whom it began late enough.
//!
//! A content is held only as long as somebody is interested in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::timer_now;
use crate::kube::client::{Answer, Client};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::ConfigMap;
use crate::kube::{CONFIG_MAPS, ServerTime};
use crate::monitor::content::ContentHash;

/// The ConfigMaps that somebody is interested in.
#[derive(Default)]
pub(super) struct Sources {
    wanted: Mutex<BTreeMap<Arc<str>, Weak<Shared>>>,
}

/// One ConfigMap that somebody is interested in.
pub(super) struct Interest {
    sources: Arc<Sources>,
    name: Arc<str>,
    shared: Arc<Shared>,
}

/// When the last GET began, and what came of it.
type Shared = tokio::sync::Mutex<Option<(Instant, Result<Fetched, Error>)>>;

/// A ConfigMap as a GET has brought it; none if there is none.
pub(super) type Fetched = Option<Arc<Content>>;

/// The content of a ConfigMap.
pub(super) struct Content {
    pub(super) config_map: ConfigMap,
    pub(super) at: ServerTime,
    pub(super) came: Instant,
    /// Those that were asked for, by the keys that count.
    hashes: Mutex<Hashes>,
}

type Hashes = BTreeMap<Option<BTreeSet<String>>, ContentHash>;

impl Sources {
    /// Takes an interest in a ConfigMap. To be taken before waiting for anything, so that what one reads is still there for the next.
    pub(super) fn interest(self: &Arc<Self>, name: &Arc<str>) -> Interest {
        let mut wanted = self.wanted();
        let shared = wanted.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::new(Shared::default());
            wanted.insert(Arc::clone(name), Arc::downgrade(&shared));
            shared
        });
        Interest { sources: Arc::clone(self), name: Arc::clone(name), shared }
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Weak<Shared>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interest {
    /// Reads the ConfigMap, unless another one has begun to read it at this time or later.
    ///
    /// # Errors
    /// Those of the GET. Whoever has waited for it gets the same: one GET after the other would hang if one does.
    pub(super) async fn read(&self, client: &Client, not_before: Instant) -> Result<Fetched, Error> {
        let mut last = self.shared.lock().await;
        if let Some((_, fetched)) = last.as_ref().filter(|(began, _)| *began >= not_before) {
            return fetched.clone();
        }
        let began = timer_now();
        let fetched = fetch(client, &self.name).await;
        if !fetched.as_ref().is_err_and(|error| error.cause == Cause::Stopped) {
            *last = Some((began, fetched.clone()));
        }
        fetched
    }

    /// Whether it is about this ConfigMap.
    pub(super) fn is_about(&self, name: &str) -> bool {
        *self.name == *name
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut wanted = self.sources.wanted();
        // Nobody else can become interested meanwhile.
        if Arc::strong_count(&self.shared) == 1 {
            wanted.remove(&self.name);
        }
    }
}

/// Reads a ConfigMap.
pub(super) async fn fetch(client: &Client, name: &str) -> Result<Fetched, Error> {
    match client.get::<ConfigMap>(CONFIG_MAPS, name).await {
        Ok(Answer { value, at }) => {
            let (came, hashes) = (timer_now(), Mutex::default());
            Ok(Some(Arc::new(Content { config_map: value, at, came, hashes })))
        }
        Err(error) if error.cause.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl Content {
    /// The hash of what counts, made once however many want it.
    pub(super) fn hash(&self, keys: Option<&BTreeSet<String>>) -> ContentHash {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || ContentHash::of(&self.config_map, keys);
        hashes.entry(keys.cloned()).or_insert_with(make).clone()
    }
}
