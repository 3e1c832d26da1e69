//! The API server, through the ambassador. Everything the operator sends goes through here, and out by a
//! [`Transport`].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use reqwest::header::{DATE, RETRY_AFTER};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{Cause, Error};
use super::objects::position;
use super::transport::{Body, Request, Response, Transport};
use super::{PODS, Resource, ResourceVersion, ServerTime, Uid};
use crate::metrics::Metrics;

/// A request that reads and has no answer after this time is given up.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// The same for one that writes: on its way through admission webhooks the API server gives it 60 s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(65);
/// The form in which whole objects are asked for.
pub(super) const JSON: &str = "application/json";
/// No longer answer to a request is read, in bytes. The largest object that etcd takes is far below.
const LARGEST_ANSWER: usize = 16 << 20;

/// A handle on the connection to the API server, or to one namespace of it. All handles share its limits.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// None: what is listed or watched is that of all namespaces.
    namespace: Option<Arc<str>>,
    stop: CancellationToken,
}

struct Shared {
    transport: Box<dyn Transport>,
    base: Url,
    requests: Semaphore,
    deletions: Semaphore,
    most_deletions: usize,
    clock: Mutex<Option<(ServerTime, Instant)>>,
    metrics: Arc<Metrics>,
}

/// The right to have one deletion or eviction under way.
pub struct DeletionPermit<'a> {
    _permit: SemaphorePermit<'a>,
}

/// An object as the API server gave it, and when.
pub struct Answer<T> {
    /// The object.
    pub value: T,
    /// The `Date` of the answer.
    pub at: ServerTime,
}

/// Conditions under which a pod is deleted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<u32>,
    preconditions: Preconditions<'a>,
}

/// Which object is meant. If it is another one by then, or not as it was, nothing is done.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions<'a> {
    /// This one, and not a namesake.
    pub uid: &'a Uid,
    /// As it was in this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<&'a ResourceVersion>,
}

/// A request for the eviction of a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Eviction<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: EvictionMetadata<'a>,
    delete_options: DeleteOptions<'a>,
}

#[derive(Debug, Serialize)]
struct EvictionMetadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

impl<'a> DeleteOptions<'a> {
    fn new(preconditions: Preconditions<'a>, grace: Option<u32>) -> Self {
        Self { api_version: "v1", kind: "DeleteOptions", grace_period_seconds: grace, preconditions }
    }
}

impl Client {
    /// A client for all namespaces of the API server that `transport` reaches at `base`. It has at most so many requests, and so many
    /// deletions, under way at a time, and begins no request once `stop` is cancelled.
    #[must_use]
    pub fn new(
        transport: Box<dyn Transport>,
        base: Url,
        requests: usize,
        deletions: usize,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Self {
        let shared = Shared {
            transport,
            base,
            requests: Semaphore::new(requests),
            deletions: Semaphore::new(deletions),
            most_deletions: deletions,
            clock: Mutex::new(None),
            metrics,
        };
        Self { shared: Arc::new(shared), namespace: None, stop }
    }

    /// The same connection for a part of the work, which begins no request once `stop` is cancelled.
    #[must_use]
    pub fn with_stop(&self, stop: CancellationToken) -> Self {
        Self { stop, ..self.clone() }
    }

    /// The same connection for one namespace.
    #[must_use]
    pub fn within(&self, namespace: &Arc<str>) -> Self {
        Self { namespace: Some(Arc::clone(namespace)), ..self.clone() }
    }

    /// The namespace of everything that is asked for; empty if that is all of them.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// Once this is cancelled, this handle begins no request.
    #[must_use]
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Where all requests are counted.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// How many deletions are under way at a time at the most.
    #[must_use]
    pub fn most_deletions(&self) -> usize {
        self.shared.most_deletions
    }

    /// What bounds the requests under way.
    pub(super) fn requests(&self) -> &Semaphore {
        &self.shared.requests
    }

    /// The time on the API server, counted on from its last answer. Before the first answer, the beginning of time.
    #[must_use]
    pub fn server_now(&self) -> ServerTime {
        let clock = self.shared.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        clock.map_or(ServerTime::from_second(0), |(at, since)| at.plus(since.elapsed()))
    }

    /// Reads one object.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`].
    pub async fn get<T: DeserializeOwned>(&self, resource: Resource, name: &str) -> Result<Answer<T>, Error> {
        let request = request("get", resource.plural, Method::GET, self.url(resource, &[name]));
        self.answer(request, || format!("get {} {name:?}", resource.plural)).await
    }

    /// Replaces one object. The resourceVersion in `object` is what it is compared with.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`].
    pub async fn replace<T: DeserializeOwned>(
        &self,
        resource: Resource,
        name: &str,
        object: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        let what = || format!("update {} {name:?}", resource.plural);
        let request = request("update", resource.plural, Method::PUT, self.url(resource, &[name]));
        self.answer(with_json(request, object, &what)?, what).await
    }

    /// Replaces the status of one object. The resourceVersion in `object` is what it is compared with.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`].
    pub async fn replace_status<T: DeserializeOwned>(
        &self,
        resource: Resource,
        name: &str,
        object: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        let what = || format!("update {}/status {name:?}", resource.plural);
        let of = format!("{}/status", resource.plural);
        let request = request("update", of, Method::PUT, self.url(resource, &[name, "status"]));
        self.answer(with_json(request, object, &what)?, what).await
    }

    /// Creates one object.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`].
    pub async fn create(&self, resource: Resource, object: &impl Serialize) -> Result<(), Error> {
        let what = || format!("create {}", resource.plural);
        let request = request("create", resource.plural, Method::POST, self.url(resource, &[]));
        let _permit = self.permit(&self.shared.requests, &what).await?;
        self.exchange(with_json(request, object, &what)?, &what).await.map(drop)
    }

    /// Waits for the right to delete or evict one pod. What is deleted does not count as a request under way: a DELETE that hangs must not hold up
    /// what is read for others.
    ///
    /// # Errors
    /// [`Cause::Stopped`].
    pub async fn deletion_permit(&self) -> Result<DeletionPermit<'_>, Error> {
        let permit = self.permit(&self.shared.deletions, &|| "delete pods".to_owned()).await?;
        Ok(DeletionPermit { _permit: permit })
    }

    /// Deletes a pod, if it still is the one that is meant, with so many seconds to end instead of its own.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Conflict`] means that it is not the one that is meant.
    pub async fn delete(
        &self,
        _permit: DeletionPermit<'_>,
        name: &str,
        only: Preconditions<'_>,
        grace: Option<u32>,
    ) -> Result<(), Error> {
        let what = || format!("delete pods {name:?}");
        let request = request("delete", PODS.plural, Method::DELETE, self.url(PODS, &[name]));
        self.exchange(with_json(request, &DeleteOptions::new(only, grace), &what)?, &what).await.map(drop)
    }

    /// Asks for the eviction of a pod, if it still is the one that is meant. It is deleted like that if its PodDisruptionBudget
    /// allows it.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Blocked`] means that its PodDisruptionBudget does not allow it now.
    pub async fn evict(
        &self,
        _permit: DeletionPermit<'_>,
        name: &str,
        only: Preconditions<'_>,
        grace: Option<u32>,
    ) -> Result<(), Error> {
        let what = || format!("evict pod {name:?}");
        let eviction = Eviction {
            api_version: "policy/v1",
            kind: "Eviction",
            metadata: EvictionMetadata { name, namespace: self.namespace() },
            delete_options: DeleteOptions::new(only, grace),
        };
        let request = request("create", "pods/eviction", Method::POST, self.url(PODS, &[name, "eviction"]));
        self.exchange(with_json(request, &eviction, &what)?, &what).await.map(drop)
    }

    pub(super) fn url(&self, resource: Resource, rest: &[&str]) -> Url {
        let root = if resource.api_version.contains('/') { "apis" } else { "api" };
        let mut url = self.shared.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .push(root)
                .extend(resource.api_version.split('/'))
                .extend(self.namespace.iter().flat_map(|namespace| ["namespaces", namespace]))
                .push(resource.plural)
                .extend(rest);
        }
        url
    }

    /// Says whether this handle may begin a request that no permit is needed for.
    pub(super) fn go_on(&self, what: &impl Fn() -> String) -> Result<(), Error> {
        if self.stop.is_cancelled() {
            return Err(Error { request: what(), cause: Cause::Stopped });
        }
        Ok(())
    }

    pub(super) async fn permit<'a>(
        &self,
        semaphore: &'a Semaphore,
        what: &impl Fn() -> String,
    ) -> Result<SemaphorePermit<'a>, Error> {
        let ending = || Error { request: what(), cause: Cause::Stopped };
        let permit = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(ending()),
            permit = semaphore.acquire() => permit,
        };
        permit.map_err(|_| ending())
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        request: Request,
        what: impl Fn() -> String,
    ) -> Result<Answer<T>, Error> {
        let _permit = self.permit(&self.shared.requests, &what).await?;
        let (body, at) = self.exchange(request, &what).await?;
        let value = parse(&body, &what)?;
        self.set_clock(at);
        Ok(Answer { value, at })
    }

    pub(super) async fn exchange(
        &self,
        request: Request,
        what: &impl Fn() -> String,
    ) -> Result<(Bytes, ServerTime), Error> {
        let fail = |cause| Error { request: what(), cause };
        let deadline = Instant::now() + if request.method == Method::GET { TIMEOUT } else { WRITE_TIMEOUT };
        let exchange = async {
            let answer = self.send(request, deadline).await?;
            // kubectl proxy passes the API server's on.
            let date = answer.headers.get(DATE).and_then(|date| ServerTime::from_http_date(date.to_str().ok()?));
            let at = date.ok_or_else(|| Cause::Undecodable("no Date header".to_owned()))?;
            Ok((read(answer.body, LARGEST_ANSWER).await?, at))
        };
        let answer = tokio::time::timeout_at(deadline, exchange).await;
        answer.unwrap_or_else(|_| Err(Cause::Unreachable("no answer in time".to_owned()))).map_err(fail)
    }

    /// Sends a request, and waits until the deadline for the head of a successful answer, or for the whole of another one.
    pub(super) async fn send(&self, request: Request, deadline: Instant) -> Result<Response, Cause> {
        let mut exchange = self.shared.metrics.exchange(request.verb, request.resource.clone());
        let answer = tokio::time::timeout_at(deadline, self.shared.transport.send(request)).await;
        let answer = answer.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        exchange.ended(answer.as_ref().ok().map(|answer| answer.code));
        let answer = answer.map_err(Cause::Unreachable)?;
        if (200..300).contains(&answer.code) {
            return Ok(answer);
        }
        let retry_after = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let text = read(answer.body, 1 << 20).await.unwrap_or_default();
        Err(Cause::of_answer(answer.code, retry_after.as_deref(), &text))
    }

    /// The API server's clock stood there just now. What does not speak its language has not told the time either.
    pub(super) fn set_clock(&self, at: ServerTime) {
        *self.shared.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((at, Instant::now()));
    }
}

fn request(verb: &'static str, resource: impl Into<String>, method: Method, url: Url) -> Request {
    Request { verb, resource: resource.into(), method, url, accept: JSON, body: None }
}

fn with_json(request: Request, object: &impl Serialize, what: &impl Fn() -> String) -> Result<Request, Error> {
    let body = serde_json::to_vec(object)
        .map_err(|error| Error { request: what(), cause: Cause::Invalid(error.to_string()) })?;
    Ok(Request { body: Some(body.into()), ..request })
}

pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], what: &impl Fn() -> String) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error { request: what(), cause: Cause::Undecodable(position(&error)) })
}

async fn read(mut chunks: Body, most: usize) -> Result<Bytes, Cause> {
    let mut body = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(Cause::Unreachable)?;
        if body.len() + chunk.len() > most {
            return Err(Cause::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}
