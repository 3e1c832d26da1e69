//! A plain JSON client for tests: paths and [`Value`]s as the API server documents them, without types or retries, so
//! that it shares no code and no mistake with the operator.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// The usual deadline of [`eventually`]. It only bounds a hang: a slow machine makes a test slow.
pub const DEADLINE: Duration = Duration::from_secs(600);

pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A client of one `kubectl proxy`. It belongs to the tokio runtime in which it was made.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The object, list or `Status`; a string if the body is not JSON.
    pub body: Value,
}

impl Client {
    /// Creates a client of the proxy at `base`, such as `http://127.0.0.1:8001`.
    pub fn new(base: &str) -> Self {
        Self { http: reqwest::Client::new(), base: base.to_owned() }
    }

    /// Sends a GET. For all methods that return an [`Answer`], an error status is no error: see [`Answer::ok`].
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(self.http.get(self.url(path))).await
    }

    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        match self.get(path).await?.ok()?["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("{path} is no list"),
        }
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<Answer> {
        self.send(with_json(self.http.post(self.url(path)), "application/json", object)).await
    }

    pub async fn replace(&self, path: &str, object: &Value) -> Result<Answer> {
        self.send(with_json(self.http.put(self.url(path)), "application/json", object)).await
    }

    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Result<Answer> {
        let request = self.http.patch(self.url(path));
        self.send(with_json(request, "application/merge-patch+json", patch)).await
    }

    /// Sends the YAML of an object that is to be like this, and is created if it does not exist.
    pub async fn apply(&self, path: &str, yaml: String) -> Result<Answer> {
        let request = self.http.patch(self.url(path)).header("Content-Type", "application/apply-patch+yaml");
        self.send(request.body(yaml)).await
    }

    /// Sends a PATCH that knows the lists of Kubernetes' own kinds.
    pub async fn strategic_patch(&self, path: &str, patch: &Value) -> Result<Answer> {
        let request = self.http.patch(self.url(path));
        self.send(with_json(request, "application/strategic-merge-patch+json", patch)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.send(self.http.delete(self.url(path))).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer> {
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { status, body })
    }
}

impl Answer {
    pub fn ok(self) -> Result<Value> {
        let Self { status, body } = self;
        let message = body["message"].as_str().or(body.as_str()).unwrap_or_default();
        ensure!((200..300).contains(&status), "status {status}: {message}");
        Ok(body)
    }
}

/// Returns whether an object, such as a pod, a node or a ConfigMonitor, is Ready and not being deleted.
pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    object["metadata"]["deletionTimestamp"].is_null() && conditions.into_iter().flatten().any(ready)
}

/// Calls `probe` until it succeeds; an error means: not yet. Fails after `deadline` with the last error, which should say
/// what was seen instead.
pub async fn eventually<T>(what: &str, deadline: Duration, mut probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > end => {
                return Err(error).with_context(|| format!("not within {deadline:?}: {what}"));
            }
            Err(_) => sleep(POLL_INTERVAL).await,
        }
    }
}

fn with_json(request: reqwest::RequestBuilder, content_type: &str, object: &Value) -> reqwest::RequestBuilder {
    request.header("Content-Type", content_type).body(object.to_string())
}
