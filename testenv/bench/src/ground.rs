//! What all parts need: a control plane, the operator, many objects, and waiting for them.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, install_crd};
use testenv::{Client, ControlPlane, DEADLINE, Operator, eventually, is_ready, operator};
use tokio::time::sleep;

use crate::audit::{Audit, Request};
use crate::usage::{Usage, mib};

/// Objects that are created concurrently.
const AT_A_TIME: usize = 16;

/// Concurrent deletions and requests: the operator's default.
pub(crate) const CONCURRENCY: usize = 32;

/// An operator that uses less than `A_LITTLE` CPU in this time is at rest.
const AT_REST: Duration = Duration::from_secs(5);
const A_LITTLE: Duration = Duration::from_millis(10);

pub(crate) async fn control_plane() -> Result<ControlPlane> {
    let control_plane = ControlPlane::start().await?;
    install_crd(&control_plane).await;
    Ok(control_plane)
}

pub(crate) fn audit(control_plane: &ControlPlane) -> Result<Audit> {
    Audit::from_now(control_plane.audit_log_file())
}

pub(crate) fn start_operator(proxy_url: &str, fixture: &Fixture, args: &[&str]) -> Result<Operator> {
    Operator::start(&operator::binary()?, proxy_url, &fixture.namespace, args, &[])
}

/// Returns how long after `start` the operator has synced, by its log.
pub(crate) async fn synced(operator: &Operator, start: SystemTime) -> Result<f64> {
    let line = operator.wait_for_message("synced").await?;
    let synced: Timestamp = line["timestamp"].as_str().context("a line without a time")?.parse()?;
    Ok(synced.duration_since(start.try_into()?).as_secs_f64())
}

pub(crate) async fn create_all(fixture: &Fixture, resource: &str, objects: impl Iterator<Item = Value>) -> Result<()> {
    let collection = fixture.collection(resource);
    let created = objects.map(|object| {
        let collection = &collection;
        async move { fixture.client.create(collection, &object).await?.ok().map(drop) }
    });
    stream::iter(created).buffer_unordered(AT_A_TIME).try_collect().await
}

pub(crate) fn config_map(name: &str, content: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.cfg": content}})
}

/// Returns a ConfigMonitor without a quiet period that restarts all pods at once.
pub(crate) fn monitor(name: &str, config_map: &str, app: &str) -> Value {
    json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": {
        "configMap": config_map, "podSelector": {"app": app}, "quietPeriodSeconds": 0, "minIntervalSeconds": 1,
        "maxUnavailable": "100%",
    }})
}

pub(crate) async fn all_up_to_date(fixture: &Fixture) -> Result<()> {
    up_to_date(&fixture.client, &fixture.collection("configmonitors")).await
}

pub(crate) async fn up_to_date(client: &Client, list: &str) -> Result<()> {
    eventually("all ConfigMonitors are up to date", 20 * DEADLINE, async || {
        sleep(Duration::from_millis(500)).await;
        let monitors = client.list(list).await?;
        let ready = monitors.iter().filter(|monitor| is_ready(monitor)).count();
        ensure!(ready == monitors.len(), "{ready} of {} are", monitors.len());
        Ok(())
    })
    .await
}

/// Adds the annotation of client-side `kubectl apply`: a copy of the whole object.
pub(crate) fn as_applied(object: &mut Value) {
    let copy = object.to_string();
    object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": copy});
}

/// Edits these ConfigMaps at once, and waits until this number of pods is deleted. Returns the requests in the namespace until then.
pub(crate) async fn edit_all(
    audit: &mut Audit,
    fixture: &Fixture,
    config_maps: &[String],
    content: &str,
    pods: usize,
) -> Result<Vec<Request>> {
    sleep(Duration::from_millis(500)).await;
    audit.news(&fixture.namespace)?;
    let edits = config_maps.iter().map(|name| async move {
        let patch = json!({"data": {"config.cfg": content}});
        fixture.client.merge_patch(&fixture.path("configmaps", name), &patch).await?.ok().map(drop)
    });
    stream::iter(edits).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    let mut requests = Vec::new();
    eventually("all pods are deleted", 10 * DEADLINE, async || {
        requests.extend(audit.news(&fixture.namespace)?);
        let deleted = requests.iter().filter(|request| request.is_deletion()).count();
        ensure!(deleted >= pods, "{deleted} are");
        Ok(())
    })
    .await?;
    Ok(requests)
}

/// Creates the pod that ConfigMonitors without restarts select: while a ConfigMonitor selects no pod, the operator counts again
/// for ten minutes.
pub(crate) async fn one_pod(fixture: &Fixture) -> Result<()> {
    fixture.create_deployment(NAME, 1, &json!({"app": NAME})).await;
    all_ready(fixture, 1).await.map(drop)
}

/// Waits until there is this number of pods and all are ready. Terminating pods are not ready.
pub(crate) async fn all_ready(fixture: &Fixture, count: usize) -> Result<Vec<Value>> {
    eventually("all pods are ready", 10 * DEADLINE, async || {
        // Lists of many pods delay the controllers that create the pods.
        sleep(Duration::from_millis(if count > 100 { 2000 } else { 200 })).await;
        let pods = fixture.client.list(&fixture.collection("pods")).await?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        ensure!(ready == count && pods.len() == count, "{ready} of {} are", pods.len());
        Ok(pods)
    })
    .await
}

/// Waits until the operator is at rest: after its start it checks every ConfigMonitor. Returns what it has used by then.
pub(crate) async fn at_rest(operator: &Operator) -> Result<Usage> {
    let id = operator.process().id();
    loop {
        let before = Usage::of(id)?;
        sleep(AT_REST).await;
        let after = Usage::of(id)?;
        if after.since(before).cpu < A_LITTLE {
            return Ok(after);
        }
    }
}

/// Waits until the operator is at rest and the ConfigMonitors of this list are up to date. Returns what the operator has
/// used by then.
pub(crate) async fn settled(operator: &Operator, client: &Client, list: &str) -> Result<Usage> {
    at_rest(operator).await?;
    up_to_date(client, list).await?;
    at_rest(operator).await
}

/// Starts the operator and waits until it is at rest. Returns the cells for `table::START`.
pub(crate) async fn start(
    operator: impl FnOnce() -> Result<Operator>,
    client: &Client,
    list: &str,
) -> Result<[String; 2]> {
    let begin = SystemTime::now();
    let operator = operator()?;
    let ready_after = synced(&operator, begin).await?;
    let used = settled(&operator, client, list).await?;
    Ok([format!("{ready_after:.2}"), format!("{:.1}", mib(used.peak))])
}

/// Returns when the first and the last pod were deleted, in ms after the edit came in.
pub(crate) fn first_and_last(requests: &[Request]) -> Option<(f64, f64)> {
    let edit = requests.iter().filter(|request| request.is_edit()).map(|request| request.received).min()?;
    let after = |at: Timestamp| at.duration_since(edit).as_secs_f64() * 1e3;
    let deletions = || requests.iter().filter(|request| request.is_deletion()).map(|request| request.answered);
    Some((after(deletions().min()?), after(deletions().max()?)))
}
