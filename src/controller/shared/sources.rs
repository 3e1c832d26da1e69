//! Reads of sources: one GET serves every keeper that needs the same keys of the same source.

use std::collections::BTreeSet;
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
use crate::monitor::source::{Source, SourceName};

pub(crate) type Sources = Requests<SourceName, Keys, Fetched>;

pub(crate) type SourceInterest = Interest<Keys, Fetched>;

/// The keys that count. `None`: all.
type Keys = Option<BTreeSet<String>>;

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
    pub(crate) is_immutable: bool,
    /// Whether it is the token of a service account, which the API server writes.
    pub(crate) is_token: bool,
    pub(crate) hash: ContentHash,
    /// A message that names the missing keys, if any are missing.
    pub(crate) missing_keys: Option<Box<str>>,
    /// The field manager that last wrote the object, and when.
    pub(crate) writer: Option<(String, ServerTime)>,
}

pub(crate) async fn fetch(client: &Client, source: &Source) -> Result<Fetched, Error> {
    let SourceName { kind, name } = &source.name;
    let answer = client.get_and_keep(kind.resource(), name, |object| FetchedObject::of(&object, source)).await;
    let came = timer_now();
    match answer {
        Ok(Answer { value, at }) => Ok(Fetched { object: Some(Arc::new(value)), at, came }),
        Err(error) if error.cause.is_not_found() => Ok(Fetched { object: None, at: client.server_now(), came }),
        Err(error) => Err(error),
    }
}

impl FetchedObject {
    fn of(object: &DataObject, Source { name, keys, .. }: &Source) -> Self {
        let DataObject { metadata, immutable, r#type, .. } = object;
        let missing = keys.as_ref().and_then(|keys| report::missing_keys(name, object, keys));
        Self {
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            is_immutable: *immutable,
            is_token: r#type.as_deref() == Some("kubernetes.io/service-account-token"),
            hash: ContentHash::of(name.kind, object, keys.as_ref()),
            missing_keys: missing.map(String::into_boxed_str),
            writer: metadata.last_writer().map(|(manager, at)| (manager.to_owned(), at)),
        }
    }
}
