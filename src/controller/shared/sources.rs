//! ConfigMaps as keepers read them: one GET serves all who want the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::requests::{Interest, Requests};
use crate::controller::clock::timer_now;
use crate::kube::client::{Answer, Client};
use crate::kube::error::Error;
use crate::kube::objects::ConfigMap;
use crate::kube::{CONFIG_MAPS, ServerTime};
use crate::monitor::content::ContentHash;

/// The ConfigMaps that somebody is interested in, by name.
pub(crate) type Sources = Requests<Arc<str>, Fetched>;

/// A ConfigMap that somebody is interested in.
pub(crate) type InSource = Interest<Arc<str>, Fetched>;

/// A ConfigMap as a GET has brought it; none if there is none.
pub(crate) type Fetched = Option<Arc<FetchedConfigMap>>;

/// The content of a ConfigMap.
pub(crate) struct FetchedConfigMap {
    pub(crate) config_map: ConfigMap,
    pub(crate) at: ServerTime,
    pub(crate) came: Instant,
    /// Those that were asked for, by the keys that count.
    hashes: Mutex<Hashes>,
}

type Hashes = BTreeMap<Option<BTreeSet<String>>, ContentHash>;

/// Reads a ConfigMap.
pub(crate) async fn fetch(client: &Client, name: &str) -> Result<Fetched, Error> {
    match client.get::<ConfigMap>(CONFIG_MAPS, name).await {
        Ok(Answer { value, at }) => {
            let (came, hashes) = (timer_now(), Mutex::default());
            Ok(Some(Arc::new(FetchedConfigMap { config_map: value, at, came, hashes })))
        }
        Err(error) if error.cause.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl FetchedConfigMap {
    /// The hash of what counts, made once however many want it.
    pub(crate) fn hash(&self, keys: Option<&BTreeSet<String>>) -> ContentHash {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || ContentHash::of(&self.config_map, keys);
        hashes.entry(keys.cloned()).or_insert_with(make).clone()
    }
}
