//! The record of one ConfigMonitor: the object as last read, and the only way to write its status.

use std::sync::Once;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tracing::warn;

use crate::kube::Action;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::position;
use crate::monitor::schema::dropped_field;
use crate::monitor::status::{Status, without_restart};
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor, MonitorMetadata};

/// All ConfigMonitors have the same schema, so one log line is enough.
static OLD_SCHEMA_LOGGED: Once = Once::new();

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) monitor: ConfigMonitor,
    pub(crate) status: Status,
}

impl Record {
    /// Creates a record from an object of a list, a watch or a GET. `leaves_out` leaves out a restart that cannot be
    /// decoded, since another version of the operator has begun it.
    ///
    /// # Errors
    /// [`Cause::Invalid`] if the status cannot be decoded.
    pub(super) fn of(mut monitor: ConfigMonitor, leaves_out: bool) -> Result<Self, Error> {
        // Taken, so that the status is not stored twice.
        let status = monitor.status.take();
        Self::decode(monitor, status.as_deref(), leaves_out)
    }

    fn decode(mut monitor: ConfigMonitor, status: Option<&RawValue>, leaves_out: bool) -> Result<Self, Error> {
        monitor.metadata.namespace = String::new();
        let name = &*monitor.metadata.name;
        let mut decoded: Status = match serde_json::from_str(status.map_or("{}", RawValue::get)) {
            Ok(decoded) => decoded,
            Err(error) => {
                let Some(rest) = status.filter(|_| leaves_out).and_then(without_restart) else {
                    let cause = Cause::Invalid(format!("it cannot be decoded: {}", position(&error)));
                    return Err(Action::on("get", CONFIG_MONITORS, name).of("status").failed(cause));
                };
                warn!(name, "the restart in the status is of another version of the operator; it begins anew");
                rest
            }
        };
        // Saves memory: there may be thousands of statuses.
        decoded.conditions.shrink_to_fit();
        if decoded.observed_generation != Some(monitor.metadata.generation) {
            // The selector may have been edited since these pods were counted.
            decoded.pods = None;
        }
        Ok(Self { monitor, status: decoded })
    }

    /// Other metadata may differ. After a restore from backup, another spec may have the same generation.
    pub(super) fn has_same_spec_and_status(&self, other: &Self) -> bool {
        let is_same_spec =
            self.monitor.metadata.generation == other.monitor.metadata.generation && self.spec() == other.spec();
        is_same_spec && self.status == other.status
    }

    fn spec(&self) -> Option<&str> {
        self.monitor.spec.as_deref().map(RawValue::get)
    }

    pub(super) async fn read(client: &Client, name: &str, leaves_out: bool) -> Result<Self, Error> {
        Self::of(client.get(CONFIG_MONITORS, name).await?.value, leaves_out)
    }

    /// Replaces the status by compare-and-swap. Consumes the record: after a failure it may be stale.
    pub(super) async fn replace_status(self, client: &Client, status: &Status) -> Result<Self, Error> {
        let ConfigMonitor { metadata, spec, .. } = self.monitor;
        // The API server ignores the rest of the object here.
        let update = json!({
            "apiVersion": CONFIG_MONITORS.api_version,
            "kind": CONFIG_MONITORS.kind,
            "metadata": {
                "name": metadata.name,
                "namespace": client.namespace(),
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "status": status,
        });
        let answer: ConfigMonitor = client.replace_status(CONFIG_MONITORS, &metadata.name, &update).await?.value;
        // The other fields are unchanged: otherwise the resourceVersion would have differed.
        let metadata = MonitorMetadata { resource_version: answer.metadata.resource_version, ..metadata };
        let stored = answer.status.as_deref();
        let record = Self::decode(ConfigMonitor { metadata, spec, status: None }, stored, false);
        if !OLD_SCHEMA_LOGGED.is_completed() && !record.as_ref().is_ok_and(|record| record.status == *status) {
            warn_of_old_schema(status, stored);
        }
        record
    }
}

/// Logs once that the API server has dropped a field of the status.
fn warn_of_old_schema(written: &Status, stored: Option<&RawValue>) {
    let stored = stored.and_then(|stored| serde_json::from_str::<Value>(stored.get()).ok());
    if let Some(field) = dropped_field(&json!({ "status": written }), &json!({ "status": stored })) {
        OLD_SCHEMA_LOGGED.call_once(|| {
            warn!(
                field,
                "the CustomResourceDefinition is older than the operator: the API server drops this field; apply the output of `configmonitor-operator crd`"
            );
        });
    }
}
