//! The record of one ConfigMonitor: the object as it was last read, and the only way to write its status.

use std::sync::Once;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tracing::warn;

use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::position;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::schema::dropped_field;
use crate::monitor::status::Status;
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor, Metadata};

/// The schema is that of the cluster: one line for all ConfigMonitors is enough.
static OLD_SCHEMA_LOGGED: Once = Once::new();

/// A ConfigMonitor as it was read or written.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) monitor: ConfigMonitor,
    pub(crate) status: Status,
}

/// The status of a ConfigMonitor, on its way to the API server. The rest of the object is not looked at there.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: UpdateMetadata<'a>,
    status: &'a Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a Uid,
    resource_version: &'a ResourceVersion,
}

impl Record {
    /// A record of what a list or a watch has brought.
    ///
    /// # Errors
    /// [`Cause::Invalid`] when its status cannot be decoded.
    pub(super) fn of(mut monitor: ConfigMonitor) -> Result<Self, Error> {
        // Taken, as it would else be held twice.
        let status = monitor.status.take();
        Self::decode(monitor, status.as_deref())
    }

    fn decode(mut monitor: ConfigMonitor, status: Option<&RawValue>) -> Result<Self, Error> {
        monitor.metadata.namespace = String::new();
        let decoded = status.map(|status| serde_json::from_str(status.get())).transpose();
        match decoded {
            Ok(status) => {
                let mut status: Status = status.unwrap_or_default();
                // There may be thousands of statuses.
                status.conditions.shrink_to_fit();
                if status.observed_generation != Some(monitor.metadata.generation) {
                    // Another selector may have selected those pods.
                    status.pods = None;
                }
                Ok(Self { monitor, status })
            }
            Err(error) => Err(Error {
                request: format!("read the status of {} {:?}", CONFIG_MONITORS.plural, monitor.metadata.name),
                cause: Cause::Invalid(format!("it is {}", position(&error))),
            }),
        }
    }

    /// Whether the other has the same spec and the same status. Annotations and the like may differ.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.monitor.metadata.generation == other.monitor.metadata.generation && self.status == other.status
    }

    /// Reads the ConfigMonitor of this name.
    pub(super) async fn read(client: &Client, name: &str) -> Result<Self, Error> {
        Self::of(client.get(CONFIG_MONITORS, name).await?.value)
    }

    /// Replaces the status, if the ConfigMonitor still is what this record says. If not, or if the outcome is not known, nothing is left of a record
    /// that is out of date.
    pub(super) async fn replace_status(self, client: &Client, status: &Status) -> Result<Self, Error> {
        let ConfigMonitor { metadata, spec, .. } = self.monitor;
        let update = StatusUpdate {
            api_version: CONFIG_MONITORS.api_version,
            kind: CONFIG_MONITORS.kind,
            metadata: UpdateMetadata {
                name: &metadata.name,
                namespace: client.namespace(),
                uid: &metadata.uid,
                resource_version: &metadata.resource_version,
            },
            status,
        };
        let answer: ConfigMonitor = client.replace_status(CONFIG_MONITORS, &metadata.name, &update).await?.value;
        // The rest is as it was, or the version would have been another one.
        let metadata = Metadata { resource_version: answer.metadata.resource_version, ..metadata };
        let (name, stored) = (metadata.name.clone(), answer.status.as_deref());
        let record = Self::decode(ConfigMonitor { metadata, spec, status: None }, stored);
        if !OLD_SCHEMA_LOGGED.is_completed() && !record.as_ref().is_ok_and(|record| record.status == *status) {
            warn_of_old_schema(client.namespace(), &name, status, stored);
        }
        record
    }
}

/// Logs, once, that the API server has not stored a field that was written.
fn warn_of_old_schema(namespace: &str, monitor: &str, written: &Status, stored: Option<&RawValue>) {
    let stored = stored.and_then(|stored| serde_json::from_str::<Value>(stored.get()).ok());
    if let Some(field) = dropped_field(&json!({ "status": written }), &json!({ "status": stored })) {
        OLD_SCHEMA_LOGGED.call_once(|| {
            warn!(
                namespace,
                monitor,
                field,
                "the CustomResourceDefinition is older than the operator: the API server drops this field; apply the output of `configmonitor-operator crd`"
            );
        });
    }
}
