//! What a ConfigMonitor means: its spec, its status, and every decision about it.
//!
//! Pure: nothing here does I/O, reads a clock or sleeps. The world comes in as values and goes out as values.

pub mod advance;
mod budget;
pub mod canary;
pub mod content;
pub mod decide;
pub mod hold;
pub mod report;
pub mod rollout;
pub mod schema;
pub mod selector;
pub mod source;
pub mod spec;
pub mod status;
pub mod window;

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kube::objects::HasVersion;
use crate::kube::{Resource, ResourceVersion, Uid, cut};

/// So many bytes of a request tell it from others.
const LONGEST_REQUEST: usize = 128;

/// `magalix.com/v1` ConfigMonitors.
pub const CONFIG_MONITORS: Resource =
    Resource { api_version: "magalix.com/v1", kind: "ConfigMonitor", plural: "configmonitors" };

/// A ConfigMonitor as the API server gives it. Spec and status are decoded where they are needed, so that one that is
/// broken can still be told so.
#[derive(Clone, Debug, Deserialize)]
pub struct ConfigMonitor {
    /// Which object it is.
    pub metadata: Metadata,
    /// What its author wants.
    #[serde(default)]
    pub spec: Option<Box<RawValue>>,
    /// What the operator wrote last.
    #[serde(default)]
    pub status: Option<Box<RawValue>>,
}

impl HasVersion for ConfigMonitor {
    fn resource_version(&self) -> &ResourceVersion {
        &self.metadata.resource_version
    }
}

/// The metadata of a ConfigMonitor.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The namespace. It is not kept: there may be thousands, and their keepers know it.
    #[serde(default)]
    pub namespace: String,
    /// The name within the namespace.
    pub name: Arc<str>,
    /// The identity.
    pub uid: Uid,
    /// The version that a write of the status is compared with.
    pub resource_version: ResourceVersion,
    /// Counts the edits of the spec.
    #[serde(default)]
    pub generation: i64,
    /// What somebody asks for.
    #[serde(default)]
    pub annotations: Annotations,
}

/// The annotation by which somebody asks for a restart of the selected pods, once for each value.
pub const REQUEST: &str = "magalix.com/restart-requested-at";

/// The annotations of a ConfigMonitor that the operator heeds.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotations {
    /// That of [`REQUEST`].
    #[serde(rename = "magalix.com/restart-requested-at", default, deserialize_with = "request")]
    pub restart_requested_at: Option<Arc<str>>,
}

/// A value that is too long is cut, as the status remembers it.
fn request<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let value = Option::<String>::deserialize(deserializer)?;
    Ok(value.filter(|value| !value.is_empty()).map(|value| cut(&value, LONGEST_REQUEST).into()))
}
