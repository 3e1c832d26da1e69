//! Reads of sources: one GET serves every keeper that needs the same keys of the same source.

use std::sync::Arc;
use std::time::Instant;

use super::requests::{Interest, Requests};
use crate::controller::clock::timer_now;
use crate::kube::client::{Answer, Client};
use crate::kube::error::Error;
use crate::kube::objects::DataObject;
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::content::ContentHash;
use crate::monitor::report;
use crate::monitor::source::{Keys, SourceName};

pub(crate) type Sources = Requests<SourceName, KeySets, Fetched>;

pub(crate) type SourceInterest = Interest<SourceName, KeySets, Fetched>;

/// Under which keys the hashes of a source are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySets {
    /// Those of the spec.
    pub(crate) keys: Keys,
    /// Those of the status, if they are others.
    pub(crate) recorded: Option<Keys>,
}

/// A source as a GET has returned it.
#[derive(Clone)]
pub(crate) struct Fetched {
    /// `None` if the source does not exist.
    pub(crate) object: Option<Arc<FetchedObject>>,
    pub(crate) at: ServerTime,
    pub(crate) came: Instant,
}

/// What is kept of a source. Its content may be a megabyte, and there may be hundreds.
pub(crate) struct FetchedObject {
    pub(crate) uid: Uid,
    pub(crate) version: ResourceVersion,
    /// Whether it is the token of a service account, which the API server writes.
    pub(crate) is_token: bool,
    pub(crate) hash: ContentHash,
    /// The hash under the keys of the status, if these are others.
    pub(crate) recorded: Option<ContentHash>,
    /// A message that names the missing keys, if any are missing.
    pub(crate) missing_keys: Option<Box<str>>,
    /// The field manager that last wrote the object, and when.
    pub(crate) writer: Option<(String, ServerTime)>,
}

pub(crate) async fn fetch(client: &Client, source: &SourceName, part: &KeySets) -> Result<Fetched, Error> {
    let SourceName { kind, name } = source;
    let answer = client.get(kind.resource(), name).await;
    let came = timer_now();
    match answer {
        // Before anything else is awaited: of large objects, few exist at a time.
        Ok(Answer { value, at }) => {
            Ok(Fetched { object: Some(Arc::new(FetchedObject::of(&value, source, part))), at, came })
        }
        Err(error) if error.cause.is_not_found() => Ok(Fetched { object: None, at: client.server_now(), came }),
        Err(error) => Err(error),
    }
}

impl FetchedObject {
    fn of(object: &DataObject, name: &SourceName, KeySets { keys, recorded }: &KeySets) -> Self {
        let DataObject { metadata, .. } = object;
        let hash = |keys: &Keys| ContentHash::of(name.kind, object, keys.as_ref());
        let missing = keys.as_ref().and_then(|keys| report::missing_keys(name, object, keys));
        Self {
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            is_token: object.is_token(),
            hash: hash(keys),
            recorded: recorded.as_ref().map(hash),
            missing_keys: missing.map(String::into_boxed_str),
            writer: metadata.last_writer().map(|(manager, at)| (manager.to_owned(), at)),
        }
    }
}
