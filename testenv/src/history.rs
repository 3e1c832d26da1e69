//! Every version of every object, in order, as etcd has them: what really happened, whoever saw it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::{DEADLINE, POLL_INTERVAL, eventually};

/// The prefixes under which the API server keeps all objects.
const ALL: [&[u8]; 2] = [b"/registry/", b"/registry0"];

/// One version of an object.
#[derive(Clone, Debug)]
pub struct Version {
    /// The revision in etcd, which is the object's resourceVersion.
    pub revision: u64,
    /// The key of the object, such as `/registry/pods/default/web-0`.
    pub key: String,
    /// When this process received the version, a little after it was written.
    pub observed: SystemTime,
    /// The object; none when it has been removed.
    pub object: Option<Value>,
}

#[derive(Clone, Debug, Default)]
pub struct Past {
    versions: Vec<Version>,
    revision: u64,
}

/// A history that grows as long as this value lives, also while etcd is away for a while.
#[derive(Debug)]
pub struct History {
    past: Arc<Mutex<Past>>,
    follower: JoinHandle<()>,
}

pub(crate) async fn revision(socket: &Path) -> Result<u64> {
    let range = json!({"key": BASE64.encode(ALL[0]), "limit": "1", "keys_only": true}).to_string();
    eventually("etcd answers", DEADLINE, async || {
        let answer = etcd(socket)?.post("http://etcd/v3/kv/range").body(range.clone()).send().await?;
        number(&serde_json::from_slice::<Value>(&answer.bytes().await?)?["header"]["revision"])
    })
    .await
}

impl Past {
    pub fn after(revision: u64) -> Self {
        Self { versions: Vec::new(), revision }
    }

    /// Returns all versions, the oldest first.
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }

    pub fn rewind(&mut self, revision: u64) {
        self.versions.retain(|version| version.revision <= revision);
        self.revision = self.revision.min(revision);
    }
}

impl History {
    pub(crate) fn follow(socket: &Path, prefixes: &[&str], past: Past) -> Self {
        let past = Arc::new(Mutex::new(past));
        let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        let follower = Follower { socket: socket.to_owned(), prefixes, past: Arc::clone(&past) };
        Self { past, follower: tokio::spawn(follower.run()) }
    }

    pub fn end(self) -> Past {
        self.follower.abort();
        lock(&self.past).clone()
    }

    pub async fn reach(&self, revision: u64) -> Result<()> {
        eventually("the history is complete", DEADLINE, async || {
            assert!(!self.follower.is_finished(), "the history has ended");
            let reached = lock(&self.past).revision;
            ensure!(reached >= revision, "the history has reached {reached}, not {revision}");
            Ok(())
        })
        .await
    }
}

struct Follower {
    socket: PathBuf,
    prefixes: Vec<String>,
    past: Arc<Mutex<Past>>,
}

impl Follower {
    async fn run(self) {
        loop {
            // etcd may be away.
            let _ = self.watch().await;
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn watch(&self) -> Result<()> {
        let next = lock(&self.past).revision + 1;
        let [key, end] = ALL.map(|key| BASE64.encode(key));
        let create = json!({"create_request": {"key": key, "range_end": end, "start_revision": next.to_string()}});
        let mut answer = etcd(&self.socket)?.post("http://etcd/v3/watch").body(create.to_string()).send().await?;
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            text.extend_from_slice(&chunk);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let line: Value = serde_json::from_slice(&line)?;
                let compacted = &line["result"]["compact_revision"];
                assert!(compacted.is_null(), "etcd has compacted revision {next}: up to {compacted} all is forgotten");
                self.note(&line)?;
            }
        }
        Ok(())
    }

    fn note(&self, line: &Value) -> Result<()> {
        let mut past = lock(&self.past);
        for event in line["result"]["events"].as_array().into_iter().flatten() {
            let stored = |field: &str| BASE64.decode(event["kv"][field].as_str().unwrap_or_default());
            let (key, revision) = (String::from_utf8(stored("key")?)?, number(&event["kv"]["mod_revision"])?);
            past.revision = revision;
            if self.prefixes.iter().any(|prefix| key.starts_with(prefix)) {
                let removed = event["type"] == "DELETE";
                let object = if removed { None } else { Some(serde_json::from_slice(&stored("value")?)?) };
                past.versions.push(Version { revision, key, observed: SystemTime::now(), object });
            }
        }
        Ok(())
    }
}

fn etcd(socket: &Path) -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().unix_socket(socket).build()?)
}

fn lock(past: &Mutex<Past>) -> MutexGuard<'_, Past> {
    past.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a large number, which etcd writes as a string.
fn number(value: &Value) -> Result<u64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("{value} is no number"))
}
