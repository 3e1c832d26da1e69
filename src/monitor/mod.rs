//! What a ConfigMonitor means: its spec, its status, and every decision about it.
//!
//! Pure: nothing here does I/O, reads a clock or sleeps. All input and output are values.

pub mod content;
pub mod decide;
pub mod discover;
mod exempt;
pub(crate) mod hold;
mod journal;
pub(crate) mod notice;
pub mod pod;
pub mod reason;
pub(crate) mod referrers;
pub mod report;
pub(crate) mod restart;
mod schedule;
pub mod selector;
pub mod situation;
pub mod source;
pub mod spec;
pub mod status;
pub(crate) mod surge;
mod transitions;
mod trouble;
pub mod window;
pub(crate) mod words;

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use serde_json::value::{RawValue, to_raw_value};

use crate::kube::{Resource, ResourceVersion, Uid, cut};

/// The maximum length of a spec, in bytes. The largest selector fits, and the schema allows four times as much.
pub(crate) const MAX_SPEC_BYTES: usize = 64 << 10;
/// The maximum length of a status, in bytes. The operator's own are shorter.
const MAX_STATUS_BYTES: usize = 320 << 10;
/// The maximum length of a recorded request, in bytes. A longer one is cut.
const MAX_REQUEST_BYTES: usize = 128;

/// The resource `configmonitors` of `magalix.com/v1`.
pub const CONFIG_MONITORS: Resource =
    Resource { api_version: "magalix.com/v1", kind: "ConfigMonitor", plural: "configmonitors" };

/// A ConfigMonitor as the API server returns it. Spec and status are decoded where they are needed, so that a broken
/// one can still be reported.
#[derive(Clone, Debug, Deserialize)]
pub struct ConfigMonitor {
    /// The metadata.
    pub metadata: MonitorMetadata,
    /// The spec, undecoded. Only its length if it is too long.
    #[serde(default, deserialize_with = "up_to::<_, MAX_SPEC_BYTES>")]
    pub spec: Option<Box<RawValue>>,
    /// The status, undecoded, as last written. Only its length if it is too long.
    #[serde(default, deserialize_with = "up_to::<_, MAX_STATUS_BYTES>")]
    pub status: Option<Box<RawValue>>,
}

/// The metadata of a ConfigMonitor.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MonitorMetadata {
    /// The namespace. The operator does not store it: there may be thousands of ConfigMonitors, and their keepers know it.
    #[serde(default)]
    pub namespace: String,
    /// The name.
    pub name: Arc<str>,
    /// The identity.
    pub uid: Uid,
    /// The version that a status write is compared with.
    pub resource_version: ResourceVersion,
    /// The number of the last edit of the spec.
    #[serde(default)]
    pub generation: i64,
    /// The annotations.
    #[serde(default)]
    pub annotations: Annotations,
}

/// The annotation that requests a restart of the selected pods. Each value is handled once.
pub const REQUEST: &str = "magalix.com/restart-requested-at";

/// The annotations of a ConfigMonitor that the operator reads.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotations {
    /// The request for a restart, if there is one.
    #[serde(rename = "magalix.com/restart-requested-at", default, deserialize_with = "request")]
    pub restart_requested_at: Option<Arc<str>>,
}

/// There may be thousands of these texts. Of a longer text only the length is kept, which is reported as invalid.
fn up_to<'de, D: Deserializer<'de>, const MAX: usize>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    match Option::<Box<RawValue>>::deserialize(deserializer)? {
        Some(text) if text.get().len() > MAX => to_raw_value(&text.get().len()).map(Some).map_err(de::Error::custom),
        text => Ok(text),
    }
}

/// A long value is cut, as the status records it.
fn request<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let value = Option::<String>::deserialize(deserializer)?;
    Ok(value.filter(|value| !value.is_empty()).map(|value| cut(&value, MAX_REQUEST_BYTES).into()))
}
