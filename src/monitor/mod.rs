//! What a ConfigMonitor means: its spec, its status, and every decision about it.
//!
//! Pure: nothing here does I/O, reads a clock or sleeps. The world comes in as values and goes out as values.

pub mod advance;
mod budget;
pub mod content;
pub mod decide;
pub mod report;
pub mod rollout;
pub mod schema;
pub mod selector;
pub mod source;
pub mod spec;
pub mod status;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::kube::objects::HasVersion;
use crate::kube::{Resource, ResourceVersion, Uid};

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
}
