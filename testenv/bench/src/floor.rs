//! The floor: a client that sends exactly the requests that the operator's rules need, and decides nothing.

use std::collections::HashMap;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use testenv::fixture::Fixture;
use tokio::sync::mpsc;

use crate::contestants::{Contestant, Paths, Watch};
use crate::ground::CONCURRENCY;

/// A hash of the length that the operator writes.
const HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The pods in a page of a list, as with the operator.
const PAGE: usize = 200;

const HISTORY: usize = 10;

/// The parts of a list of pods that are needed: decoding more would cost time.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    metadata: Metadata,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    resource_version: String,
    /// The token for the next page of a list; empty on the last page.
    #[serde(default)]
    r#continue: String,
}

struct Deletion {
    url: String,
    body: String,
}

struct Floor {
    http: reqwest::Client,
    paths: Paths,
    /// The ConfigMonitors as last written, by the name of their ConfigMap. Only the floor writes them.
    monitors: Mutex<HashMap<String, Vec<Value>>>,
    deletions: mpsc::UnboundedSender<Deletion>,
}

/// Starts the floor. On an event of its watch the floor reads the ConfigMap. For each ConfigMonitor of this ConfigMap it lists the pods and
/// replaces the status. Then it deletes the pods, as many at a time as the operator.
pub(crate) async fn floor(proxy: &str, fixture: &Fixture) -> Result<Contestant> {
    let paths = Paths::of(proxy, fixture);
    Contestant::start(async move |ready| {
        let http = reqwest::Client::new();
        let monitors = Mutex::new(monitors(&http, &paths).await?);
        let mut watch = Watch::open(&http, &paths).await?;
        let _ = ready.send(());
        let (deletions, receiver) = mpsc::unbounded_channel();
        let floor = &Floor { http, paths, monitors, deletions };
        let doomed = stream::unfold(receiver, async |mut receiver| Some((Ok(receiver.recv().await?), receiver)));
        let deletions = doomed.try_for_each_concurrent(CONCURRENCY, |deletion| floor.delete(deletion));
        let (edited, names) = mpsc::unbounded_channel();
        let names = stream::unfold(names, async |mut names| Some((Ok(names.recv().await?), names)));
        let restarts = names.try_for_each_concurrent(CONCURRENCY, |name: String| floor.restart(name));
        let events = async {
            while let Some(event) = watch.modified().await? {
                edited.send(event["object"]["metadata"]["name"].as_str().context("a name")?.to_owned())?;
            }
            Ok(())
        };
        tokio::select! {
            result = events => result,
            result = restarts => result,
            result = deletions => result,
        }
    })
    .await
}

async fn monitors(http: &reqwest::Client, paths: &Paths) -> Result<HashMap<String, Vec<Value>>> {
    let mut list: Value = serde_json::from_slice(&answer(http.get(paths.monitors())).await?)?;
    let mut monitors: HashMap<String, Vec<Value>> = HashMap::new();
    for mut monitor in list["items"].as_array_mut().context("a list")?.drain(..) {
        // The items of a list have no `apiVersion` and no `kind`.
        monitor["apiVersion"] = "magalix.com/v1".into();
        monitor["kind"] = "ConfigMonitor".into();
        let config_map = monitor["spec"]["configMap"].as_str().context("a source")?.to_owned();
        monitors.entry(config_map).or_default().push(monitor);
    }
    Ok(monitors)
}

impl Floor {
    /// Sends the requests before the first DELETE, for all ConfigMonitors of this ConfigMap.
    async fn restart(&self, config_map: String) -> Result<()> {
        answer(self.http.get(self.paths.core(&format!("configmaps/{config_map}")))).await?;
        let taken = self.monitors.lock().ok().and_then(|mut monitors| monitors.remove(&config_map));
        let written = stream::iter(taken.unwrap_or_default()).map(|monitor| self.begin(monitor));
        let written: Vec<Value> = written.buffer_unordered(CONCURRENCY).try_collect().await?;
        if let Ok(mut monitors) = self.monitors.lock() {
            monitors.insert(config_map, written);
        }
        Ok(())
    }

    /// Lists the pods of this ConfigMonitor and writes the intent to delete them. Returns the ConfigMonitor as written.
    async fn begin(&self, mut monitor: Value) -> Result<Value> {
        let app = monitor["spec"]["podSelector"]["app"].as_str().context("a selector")?;
        let selector = format!("app={app}");
        let List { metadata: version, items } = self.list(app).await?;
        let (now, count) = (Timestamp::now().to_string(), items.len());
        // As long as the operator's status, because the API server checks every field.
        let config_map = monitor["spec"]["configMap"].as_str().unwrap_or_default();
        let content = json!([{
            "kind": "ConfigMap", "name": config_map, "hash": HASH,
            "changes": [{
                "hash": HASH, "since": now, "observedAt": now, "podsResourceVersion": version.resource_version, "begun": true,
            }],
        }]);
        let mut history = monitor["status"]["history"].as_array().cloned().unwrap_or_default();
        history.insert(
            0,
            json!({
                "number": 1, "sources": [{"kind": "ConfigMap", "name": config_map}], "startedAt": now, "completedAt": now,
                "pods": count, "result": "Completed",
            }),
        );
        history.truncate(HISTORY);
        let conditions = ["Ready", "Reconciling", "Stalled"].map(|kind| {
            json!({
                "type": kind, "status": "False", "observedGeneration": 1, "lastTransitionTime": now,
                "reason": "RestartInProgress", "message": format!("0 of {count} pods deleted"),
            })
        });
        monitor["status"] = json!({
            "history": history,
            "conditions": conditions,
            "observedGeneration": monitor["metadata"]["generation"],
            "source": format!("ConfigMap/{config_map}"),
            "sources": content,
            "restart": {
                "number": 1, "startedAt": now, "lastProgressAt": now, "podSelector": selector,
                "pods": count, "remaining": count,
            },
        });
        let name = monitor["metadata"]["name"].as_str().context("a name")?;
        let url = format!("{}/{name}/status", self.paths.monitors());
        let written = self.http.put(url).header("Content-Type", "application/json").body(monitor.to_string());
        let written = answer(written).await?;
        for Item { metadata: Metadata { name, uid, .. } } in items {
            let url = self.paths.core(&format!("pods/{name}"));
            self.deletions.send(Deletion { url, body: json!({"preconditions": {"uid": uid}}).to_string() })?;
        }
        Ok(serde_json::from_slice(&written)?)
    }

    async fn list(&self, app: &str) -> Result<List> {
        let first = format!("pods?labelSelector=app%3D{app}&limit={PAGE}");
        let mut list: List = serde_json::from_slice(&answer(self.http.get(self.paths.core(&first))).await?)?;
        while !list.metadata.r#continue.is_empty() {
            let next = format!("{first}&continue={}", list.metadata.r#continue);
            let page: List = serde_json::from_slice(&answer(self.http.get(self.paths.core(&next))).await?)?;
            list.metadata = page.metadata;
            list.items.extend(page.items);
        }
        Ok(list)
    }

    async fn delete(&self, Deletion { url, body }: Deletion) -> Result<()> {
        answer(self.http.delete(url).header("Content-Type", "application/json").body(body)).await.map(drop)
    }
}

/// Sends a request that must succeed, and returns the body of the answer.
async fn answer(request: reqwest::RequestBuilder) -> Result<Bytes> {
    let answer = request.send().await?;
    let (url, status) = (answer.url().clone(), answer.status());
    let body = answer.bytes().await?;
    ensure!(status.is_success(), "{url}: {status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
