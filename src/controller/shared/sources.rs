//! Reads of sources: one GET serves every keeper that needs the same source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::requests::{Interest, Requests};
use crate::controller::clock::timer_now;
use crate::kube::ServerTime;
use crate::kube::client::{Answer, Client};
use crate::kube::error::Error;
use crate::kube::objects::DataObject;
use crate::monitor::content::ContentHash;
use crate::monitor::content::Kind;
use crate::monitor::source::SourceName;

pub(crate) type Sources = Requests<SourceName, Fetched>;

pub(crate) type SourceInterest = Interest<Fetched>;

/// A source as a GET has returned it.
#[derive(Clone)]
pub(crate) struct Fetched {
    /// `None` if the source does not exist.
    pub(crate) object: Option<Arc<FetchedObject>>,
    pub(crate) at: ServerTime,
    pub(crate) came: Instant,
}

pub(crate) struct FetchedObject {
    kind: Kind,
    pub(crate) object: DataObject,
    /// The hashes computed so far, by the selected keys.
    hashes: Mutex<Hashes>,
}

type Hashes = BTreeMap<Option<BTreeSet<String>>, ContentHash>;

pub(crate) async fn fetch(client: &Client, source: &SourceName) -> Result<Fetched, Error> {
    let answer = client.get::<DataObject>(source.kind.resource(), &source.name).await;
    let came = timer_now();
    match answer {
        Ok(Answer { value, at }) => {
            let object = FetchedObject { kind: source.kind, object: value, hashes: Mutex::default() };
            Ok(Fetched { object: Some(Arc::new(object)), at, came })
        }
        Err(error) if error.cause.is_not_found() => Ok(Fetched { object: None, at: client.server_now(), came }),
        Err(error) => Err(error),
    }
}

impl FetchedObject {
    /// Each hash is computed once for all keepers.
    pub(crate) fn hash(&self, keys: Option<&BTreeSet<String>>) -> ContentHash {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || ContentHash::of(self.kind, &self.object, keys);
        hashes.entry(keys.cloned()).or_insert_with(make).clone()
    }
}
