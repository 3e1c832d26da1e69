//! What the operator is measured against: the least that is possible, and the algorithm that it replaces.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use testenv::fixture::Fixture;
use tokio::task::JoinHandle;

use crate::ground::CONCURRENCY;

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Contestant(JoinHandle<Result<()>>);

impl Drop for Contestant {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The addresses of one namespace through one proxy.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    proxy: String,
    namespace: String,
}

impl Paths {
    pub(crate) fn of(proxy: &str, fixture: &Fixture) -> Self {
        Self { proxy: proxy.to_owned(), namespace: fixture.namespace.clone() }
    }

    fn core(&self, rest: &str) -> String {
        format!("{}/api/v1/namespaces/{}/{rest}", self.proxy, self.namespace)
    }

    fn monitors(&self) -> String {
        format!("{}/apis/magalix.com/v1/namespaces/{}/configmonitors", self.proxy, self.namespace)
    }
}

/// The least that is possible: who knows the pods beforehand, by the name of their ConfigMap, and fires their DELETEs at the moment of
/// the event, as many at a time as the operator.
pub(crate) async fn limit(
    http: &reqwest::Client,
    proxy: &str,
    fixture: &Fixture,
    pods: HashMap<String, Vec<String>>,
) -> Result<Contestant> {
    let (http, paths) = (http.clone(), Paths::of(proxy, fixture));
    let mut watch = Watch::open(&http, &paths, true).await?;
    Ok(Contestant(tokio::spawn(async move {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let doomed = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        let deletions = doomed.for_each_concurrent(CONCURRENCY, |url: String| async {
            let answer = http.delete(url).send().await;
            if let Ok(answer) = answer {
                let _ = answer.bytes().await;
            }
        });
        let events = async {
            while let Some(event) = watch.modified().await? {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                for pod in pods.get(name).into_iter().flatten() {
                    sender.send(paths.core(&format!("pods/{pod}")))?;
                }
            }
            Ok(())
        };
        tokio::select! {
            result = events => result,
            () = deletions => Ok(()),
        }
    })))
}

/// The original lab's algorithm: a watch of whole ConfigMaps; for each MODIFIED a list of all ConfigMonitors, for each of those that
/// match a list of its pods, which are deleted one after the other, and each request on a connection of its own.
pub(crate) async fn original(proxy: &str, fixture: &Fixture) -> Result<Contestant> {
    let http = reqwest::Client::builder().pool_max_idle_per_host(0).build()?;
    let paths = Paths::of(proxy, fixture);
    let mut watch = Watch::open(&http, &paths, false).await?;
    Ok(Contestant(tokio::spawn(async move {
        while let Some(event) = watch.modified().await? {
            let name = &event["object"]["metadata"]["name"];
            for monitor in items(&http, &paths.monitors()).await? {
                if monitor["spec"]["configMap"] != *name {
                    continue;
                }
                let app = monitor["spec"]["podSelector"]["app"].as_str().context("a selector")?.to_owned();
                for pod in items(&http, &paths.core(&format!("pods?labelSelector=app%3D{app}"))).await? {
                    let pod = pod["metadata"]["name"].as_str().context("a name")?;
                    http.delete(paths.core(&format!("pods/{pod}"))).send().await?.bytes().await?;
                }
            }
        }
        Ok(())
    })))
}

async fn items(http: &reqwest::Client, url: &str) -> Result<Vec<Value>> {
    let body = http.get(url).send().await?.bytes().await?;
    match serde_json::from_slice::<Value>(&body)?["items"].take() {
        Value::Array(items) => Ok(items),
        _ => bail!("{url} is no list"),
    }
}

/// A watch of ConfigMaps.
pub(crate) struct Watch {
    answer: reqwest::Response,
    rest: Vec<u8>,
    searched: usize,
}

impl Watch {
    /// Every change from now on, of whole ConfigMaps or of their metadata.
    pub(crate) async fn open(http: &reqwest::Client, paths: &Paths, metadata_only: bool) -> Result<Self> {
        let list = http.get(paths.core("configmaps?limit=1")).send().await?.bytes().await?;
        let version = serde_json::from_slice::<Value>(&list)?["metadata"]["resourceVersion"].take();
        let version = version.as_str().context("a list without a version")?;
        let url = paths.core(&format!("configmaps?watch=true&timeoutSeconds=3600&resourceVersion={version}"));
        let accept = if metadata_only { METADATA_ONLY } else { "application/json" };
        let answer = http.get(url).header("Accept", accept).send().await?;
        ensure!(answer.status().is_success(), "no watch: {}", answer.status());
        Ok(Self { answer, rest: Vec::new(), searched: 0 })
    }

    /// The next line; none at the end.
    pub(crate) async fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') {
                let end = std::mem::take(&mut self.searched) + end;
                return Ok(Some(self.rest.drain(..=end).collect()));
            }
            self.searched = self.rest.len();
            match self.answer.chunk().await? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }

    /// The next event that something was modified; none at the end.
    async fn modified(&mut self) -> Result<Option<Value>> {
        while let Some(line) = self.line().await? {
            let event: Value = serde_json::from_slice(&line)?;
            if event["type"] == "MODIFIED" {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}
