//! The contestants beside the operator, and the least that is possible.

use std::collections::HashMap;
use std::future::Future;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::BytesMut;
use futures_util::{TryStreamExt, stream};
use serde_json::Value;
use testenv::fixture::Fixture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::codec::{Decoder, LinesCodec};

use crate::ground::CONCURRENCY;

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A client that reacts to the edits of a namespace, in its own thread as the operator is in its own process. It stops with this program.
#[derive(Debug)]
pub(crate) struct Contestant(JoinHandle<Result<()>>);

impl Contestant {
    /// Starts the client and waits until its watch is open.
    pub(crate) async fn start<F: Future<Output = Result<()>>>(
        run: impl FnOnce(oneshot::Sender<()>) -> F + Send + 'static,
    ) -> Result<Self> {
        let (ready, is_ready) = oneshot::channel();
        let thread = thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(ready))
        });
        let contestant = Self(thread);
        match is_ready.await {
            Ok(()) => Ok(contestant),
            Err(_) => Err(contestant.end()),
        }
    }

    /// Fails if the client has stopped.
    pub(crate) fn check(self) -> Result<Self> {
        if self.0.is_finished() { Err(self.end()) } else { Ok(self) }
    }

    fn end(self) -> anyhow::Error {
        match self.0.join() {
            Ok(Err(error)) => error.context("a contestant has failed"),
            Ok(Ok(())) => anyhow!("a contestant has ended"),
            Err(_) => anyhow!("a contestant has panicked"),
        }
    }
}

/// The names of the pods, by the name of their ConfigMap.
pub(crate) type Pods = HashMap<String, Vec<String>>;

/// The URLs of one namespace through one proxy.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    proxy: String,
    namespace: String,
}

impl Paths {
    pub(crate) fn of(proxy: &str, fixture: &Fixture) -> Self {
        Self { proxy: proxy.to_owned(), namespace: fixture.namespace.clone() }
    }

    pub(crate) fn core(&self, rest: &str) -> String {
        format!("{}/api/v1/namespaces/{}/{rest}", self.proxy, self.namespace)
    }

    pub(crate) fn monitors(&self) -> String {
        format!("{}/apis/magalix.com/v1/namespaces/{}/configmonitors", self.proxy, self.namespace)
    }
}

/// Starts the least that is possible: a client that knows the pods before the edit and sends their DELETEs at the moment of the event, as many
/// at a time as the operator.
pub(crate) async fn limit(proxy: &str, fixture: &Fixture, pods: watch::Receiver<Pods>) -> Result<Contestant> {
    let paths = Paths::of(proxy, fixture);
    Contestant::start(async move |ready| {
        let http = reqwest::Client::new();
        let mut watch = Watch::open(&http, &paths).await?;
        let _ = ready.send(());
        let (sender, receiver) = mpsc::unbounded_channel();
        let doomed = stream::unfold(receiver, async |mut receiver| Some((Ok(receiver.recv().await?), receiver)));
        let deletions = doomed.try_for_each_concurrent(CONCURRENCY, |url: String| async { delete(&http, url).await });
        let events = async {
            while let Some(event) = watch.modified().await? {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                for pod in pods.borrow().get(name).into_iter().flatten() {
                    sender.send(paths.core(&format!("pods/{pod}")))?;
                }
            }
            Ok(())
        };
        tokio::select! {
            result = events => result,
            result = deletions => result,
        }
    })
    .await
}

/// Deletes a pod. A pod that no longer exists counts as deleted.
async fn delete(http: &reqwest::Client, url: String) -> Result<()> {
    let answer = http.delete(&url).send().await?;
    let status = answer.status();
    ensure!(status.is_success() || status == reqwest::StatusCode::NOT_FOUND, "{url}: {status}");
    answer.bytes().await?;
    Ok(())
}

pub(crate) struct Watch {
    answer: reqwest::Response,
    codec: LinesCodec,
    rest: BytesMut,
}

impl Watch {
    /// Opens a watch of the metadata of ConfigMaps from now on.
    pub(crate) async fn open(http: &reqwest::Client, paths: &Paths) -> Result<Self> {
        let list = http.get(paths.core("configmaps?limit=1")).send().await?.bytes().await?;
        let version = serde_json::from_slice::<Value>(&list)?["metadata"]["resourceVersion"].take();
        let version = version.as_str().context("a list without a version")?;
        let url = paths.core(&format!("configmaps?watch=true&timeoutSeconds=3600&resourceVersion={version}"));
        let answer = http.get(url).header("Accept", METADATA_ONLY).send().await?;
        ensure!(answer.status().is_success(), "no watch: {}", answer.status());
        Ok(Self { answer, codec: LinesCodec::new(), rest: BytesMut::new() })
    }

    async fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(line) = self.codec.decode(&mut self.rest)? {
                return Ok(Some(line));
            }
            match self.answer.chunk().await? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }

    pub(crate) async fn modified(&mut self) -> Result<Option<Value>> {
        while let Some(line) = self.line().await? {
            let event: Value = serde_json::from_str(&line)?;
            if event["type"] == "MODIFIED" {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}
