//! One namespace of the API server, through the ambassador: plain HTTP/1.1, no credentials, no TLS, no proxy of the
//! environment. Everything the operator sends goes through here.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::error::{Cause, Error};
use super::objects::position;
use super::{PODS, Resource, ResourceVersion, ServerTime, Uid};

/// A request that has no answer after this time is given up. Evictions may take more than 10 s on the server.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// A proxy in the same pod that does not accept a connection within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// No longer answer to a request is read, in bytes. The largest object that etcd takes is far below.
const LARGEST_ANSWER: usize = 16 << 20;

/// A handle on the connection to one namespace of the API server. All handles share its limits.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

struct Shared {
    http: reqwest::Client,
    base: Url,
    namespace: Box<str>,
    requests: Semaphore,
    deletions: Semaphore,
    most_deletions: usize,
    clock: Mutex<Option<(ServerTime, Instant)>>,
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
    /// A client for `namespace` that has at most so many requests, and so many deletions, under way at a time. It begins no
    /// request once `stop` is cancelled.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new(
        base: Url,
        namespace: &str,
        requests: usize,
        deletions: usize,
        stop: CancellationToken,
    ) -> Result<Self, reqwest::Error> {
        // Without it kubectl proxy asks the API server to compress, and unpacks again what is longer than 128 KiB: a list of pods.
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("configmonitor-operator/", env!("CARGO_PKG_VERSION")))
            .build()?;
        let shared = Shared {
            http,
            base,
            namespace: namespace.into(),
            requests: Semaphore::new(requests),
            deletions: Semaphore::new(deletions),
            most_deletions: deletions,
            clock: Mutex::new(None),
        };
        Ok(Self { shared: Arc::new(shared), stop })
    }

    /// The same connection for a part of the work, which begins no request once `stop` is cancelled.
    #[must_use]
    pub fn until(&self, stop: CancellationToken) -> Self {
        Self { shared: Arc::clone(&self.shared), stop }
    }

    /// The namespace of everything that is asked for.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Once this is cancelled, this handle begins no request.
    #[must_use]
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
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
        let request = self.request(Method::GET, self.url(resource, &[name]));
        self.answer(request, || format!("get {} {name:?}", resource.plural)).await
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
        let request = self.request(Method::PUT, self.url(resource, &[name, "status"]));
        self.answer(with_json(request, object, &what)?, what).await
    }

    /// Creates one object.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`].
    pub async fn create(&self, resource: Resource, object: &impl Serialize) -> Result<(), Error> {
        let what = || format!("create {}", resource.plural);
        let request = self.request(Method::POST, self.url(resource, &[]));
        let _permit = self.permit(&self.shared.requests, &what).await?;
        self.exchange(with_json(request, object, &what)?, &what).await.map(drop)
    }

    /// Deletes one object, if it still is the one that is meant, with so many seconds to end instead of its own.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Conflict`] means that it is not the one that is meant.
    pub async fn delete(
        &self,
        resource: Resource,
        name: &str,
        only: Preconditions<'_>,
        grace: Option<u32>,
    ) -> Result<(), Error> {
        let what = || format!("delete {} {name:?}", resource.plural);
        let request = self.request(Method::DELETE, self.url(resource, &[name]));
        self.remove(with_json(request, &DeleteOptions::new(only, grace), &what)?, &what).await
    }

    /// Asks for the eviction of a pod, if it still is the one that is meant. It is deleted like that if its PodDisruptionBudget
    /// allows it.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Blocked`] means that its PodDisruptionBudget does not allow it now.
    pub async fn evict(&self, name: &str, only: Preconditions<'_>, grace: Option<u32>) -> Result<(), Error> {
        let what = || format!("evict pod {name:?}");
        let eviction = Eviction {
            api_version: "policy/v1",
            kind: "Eviction",
            metadata: EvictionMetadata { name, namespace: self.namespace() },
            delete_options: DeleteOptions::new(only, grace),
        };
        let request = self.request(Method::POST, self.url(PODS, &[name, "eviction"]));
        self.remove(with_json(request, &eviction, &what)?, &what).await
    }

    async fn remove(&self, request: RequestBuilder, what: &impl Fn() -> String) -> Result<(), Error> {
        let _deletion = self.permit(&self.shared.deletions, what).await?;
        let _permit = self.permit(&self.shared.requests, what).await?;
        self.exchange(request, what).await.map(drop)
    }

    pub(super) fn url(&self, resource: Resource, rest: &[&str]) -> Url {
        let root = if resource.api_version.contains('/') { "apis" } else { "api" };
        let mut url = self.shared.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .push(root)
                .extend(resource.api_version.split('/'))
                .extend(["namespaces", self.namespace(), resource.plural])
                .extend(rest);
        }
        url
    }

    pub(super) fn get_as(&self, url: Url, accept: &str) -> RequestBuilder {
        self.shared.http.get(url).header(ACCEPT, accept)
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.shared.http.request(method, url).header(ACCEPT, "application/json").timeout(TIMEOUT)
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
        request: RequestBuilder,
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
        request: RequestBuilder,
        what: &impl Fn() -> String,
    ) -> Result<(Bytes, ServerTime), Error> {
        let fail = |cause| Error { request: what(), cause };
        let answer = request.send().await.map_err(|error| fail(Cause::Unreachable(innermost(&error))))?;
        let mut answer = self.successful(answer, what).await?;
        // kubectl proxy passes the API server's on.
        let date = answer.headers().get(DATE).and_then(|date| ServerTime::from_http_date(date.to_str().ok()?));
        let at = date.ok_or_else(|| fail(Cause::Undecodable("no Date header".to_owned())))?;
        let body = body(&mut answer, LARGEST_ANSWER).await.map_err(fail)?;
        Ok((body, at))
    }

    pub(super) async fn successful(&self, mut answer: Response, what: &impl Fn() -> String) -> Result<Response, Error> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let text = body(&mut answer, 1 << 20).await.unwrap_or_default();
        Err(Error { request: what(), cause: Cause::of_answer(code, retry_after.as_deref(), &text) })
    }

    /// The API server's clock stood there just now. What does not speak its language has not told the time either.
    pub(super) fn set_clock(&self, at: ServerTime) {
        *self.shared.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((at, Instant::now()));
    }
}

/// The message of the error at the bottom, which is the one that says what happened.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

fn with_json(
    request: RequestBuilder,
    object: &impl Serialize,
    what: &impl Fn() -> String,
) -> Result<RequestBuilder, Error> {
    let body = serde_json::to_vec(object)
        .map_err(|error| Error { request: what(), cause: Cause::Invalid(error.to_string()) })?;
    Ok(request.header(CONTENT_TYPE, "application/json").body(body))
}

pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], what: &impl Fn() -> String) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error { request: what(), cause: Cause::Undecodable(position(&error)) })
}

async fn body(answer: &mut Response, most: usize) -> Result<Bytes, Cause> {
    let mut body = BytesMut::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > most => {
                return Err(Cause::TooLong);
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body.freeze()),
            Err(error) => return Err(Cause::Unreachable(innermost(&error))),
        }
    }
}
