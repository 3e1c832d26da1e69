//! What the benchmarks stand on: a control plane, a proxy, and many objects.

use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use testenv::fixture::{Fixture, install_crd};
use testenv::{ControlPlane, Operator, eventually, operator};

use crate::audit::Audit;

/// So many objects are made at a time.
const AT_A_TIME: usize = 16;

/// As many deletions and requests at a time as the operator has under way unless it is told otherwise.
pub(crate) const CONCURRENCY: usize = 32;

/// A control plane with the operator's resource.
pub(crate) async fn control_plane() -> Result<ControlPlane> {
    let control_plane = ControlPlane::start().await?;
    install_crd(&control_plane).await;
    Ok(control_plane)
}

/// The requests of this control plane from now on.
pub(crate) fn audit(control_plane: &ControlPlane) -> Result<Audit> {
    Audit::from_now(control_plane.audit_log_file())
}

/// The operator as it is released, for this namespace.
pub(crate) fn start_operator(proxy_url: &str, fixture: &Fixture) -> Result<Operator> {
    Operator::start(&operator::binary()?, proxy_url, &fixture.namespace, &[], &[])
}

/// How long after `start` it knew everything, by its log.
pub(crate) async fn synced(operator: &Operator, start: SystemTime) -> Result<f64> {
    let line = operator.wait_for_message("synced").await?;
    let synced: Timestamp = line["timestamp"].as_str().context("a line without a time")?.parse()?;
    Ok(synced.duration_since(start.try_into()?).as_secs_f64())
}

/// Makes many objects of a kind.
pub(crate) async fn create_all(fixture: &Fixture, resource: &str, objects: impl Iterator<Item = Value>) -> Result<()> {
    let collection = fixture.collection(resource);
    let created = objects.map(|object| {
        let collection = &collection;
        async move { fixture.client.create(collection, &object).await?.ok().map(drop) }
    });
    stream::iter(created).buffer_unordered(AT_A_TIME).try_collect().await
}

/// A ConfigMap with one key.
pub(crate) fn config_map(name: &str, content: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.cfg": content}})
}

/// A ConfigMonitor that acts at once.
pub(crate) fn monitor(name: &str, config_map: &str, app: &str) -> Value {
    json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": {
        "configMap": config_map, "podSelector": {"app": app}, "quietPeriodSeconds": 0,
    }})
}

/// Waits until all ConfigMonitors say that they have nothing to do.
pub(crate) async fn all_up_to_date(fixture: &Fixture) -> Result<()> {
    eventually("all ConfigMonitors are up to date", 20 * testenv::DEADLINE, async || {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let monitors = fixture.client.list(&fixture.collection("configmonitors")).await?;
        let ready = monitors.iter().filter(|monitor| testenv::is_ready(monitor)).count();
        ensure!(ready == monitors.len(), "{ready} of {} are", monitors.len());
        Ok(())
    })
    .await
}

/// Adds what client-side `kubectl apply` leaves: a copy of the whole object.
pub(crate) fn as_applied(object: &mut Value) {
    let copy = object.to_string();
    object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": copy});
}
