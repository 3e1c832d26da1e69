//! The record of one ConfigMonitor: the object as last read, and the only way to write its status.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::controller::keeper::context::Context;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::position;
use crate::kube::{Action, ResourceVersion};
use crate::monitor::status::Status;
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor, MonitorMetadata};

/// There may be thousands of records, so they hold no more than keepers need.
#[derive(Debug)]
pub(crate) struct Record {
    pub(super) version: ResourceVersion,
    pub(super) generation: i64,
    /// The annotation that requests a restart.
    pub(super) request: Option<Arc<str>>,
    pub(crate) spec: Option<Box<RawValue>>,
    pub(crate) status: Status,
}

/// A ConfigMonitor as it is sent to write its status. The API server ignores the rest of the object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    /// Not a `Value`, which takes several times the memory: there may be 128 sources.
    status: &'a Status,
}

impl Record {
    /// Creates a record from an object of a list, a watch or a GET.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if the status cannot be decoded.
    pub(super) fn of(monitor: ConfigMonitor) -> Result<Self, Error> {
        let ConfigMonitor { metadata, spec, status } = monitor;
        let MonitorMetadata { name, resource_version: version, generation, annotations, .. } = metadata;
        let (request, status) = (annotations.restart_requested_at, status.as_deref());
        let status = decode(&name, generation, status)?;
        Ok(Self { version, generation, request, spec, status })
    }

    /// Other metadata may differ. After a restore from backup, another spec may have the same generation.
    pub(super) fn has_same_spec_and_status(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|record| record.spec.as_deref().map(RawValue::get));
        self.generation == other.generation && own == others && self.status == other.status
    }

    /// Returns the ConfigMonitor. `None` if another one has its name.
    pub(super) async fn read(context: &Context) -> Result<Option<Self>, Error> {
        let monitor: ConfigMonitor = context.client.get(CONFIG_MONITORS, &context.name).await?.value;
        let is_it = monitor.metadata.uid == context.uid;
        is_it.then(|| Self::of(monitor)).transpose()
    }

    /// Replaces the status by compare-and-swap. Returns the status before, and whether the API server has stored the journals
    /// and the restart as they were sent. Consumes the record: after a failure it may be stale.
    pub(super) async fn replace_status(self, context: &Context, status: Status) -> Result<(Self, Status, bool), Error> {
        let Context { client, name, uid, .. } = context;
        let update = StatusUpdate {
            api_version: CONFIG_MONITORS.api_version,
            kind: CONFIG_MONITORS.kind,
            metadata: json!({
                "name": name,
                "namespace": client.namespace(),
                "uid": uid,
                "resourceVersion": self.version,
            }),
            status: &status,
        };
        let answer: ConfigMonitor = client.replace((CONFIG_MONITORS, Some("status")), name, &update).await?.value;
        let stored = decode(name, self.generation, answer.status.as_deref())?;
        // What was written shares its words and hashes with what has been read.
        let (status, is_stored) = match stored == status {
            true => (compact(status), true),
            false => {
                let is_stored = stored.has_recorded(&status);
                (stored, is_stored)
            }
        };
        let Self { generation, request, spec, status: before, .. } = self;
        // The other fields are unchanged: otherwise the resourceVersion would have differed.
        Ok((Self { version: answer.metadata.resource_version, generation, request, spec, status }, before, is_stored))
    }
}

/// Decodes the status of the ConfigMonitor of this name and generation.
fn decode(name: &str, generation: i64, status: Option<&RawValue>) -> Result<Status, Error> {
    let decoded = serde_json::from_str(status.map_or("{}", RawValue::get));
    let mut decoded: Status = decoded.map_err(|error| {
        let cause = Cause::Invalid(format!("it cannot be decoded: {}", position(&error)));
        Action::on("get", CONFIG_MONITORS, name).of("status").failed(cause)
    })?;
    if decoded.observed_generation != Some(generation) {
        // The selector may have been edited since these pods were counted.
        decoded.pods = None;
    }
    Ok(compact(decoded))
}

/// Frees unused capacity.
fn compact(mut status: Status) -> Status {
    status.conditions.shrink_to_fit();
    status.sources.shrink_to_fit();
    status.history.shrink_to_fit();
    status
}
