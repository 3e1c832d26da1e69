//! One namespace of the API server, through the ambassador: plain HTTP/1.1, no credentials, no TLS, no proxy of the
//! environment. Everything the operator sends goes through here.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::error::{Cause, Error};
use super::lines::Lines;
use super::objects::{Undecodable, decode, position};
use super::{Resource, ResourceVersion, ServerTime, Uid};

/// A request that has no answer after this time is given up. Evictions may take more than 10 s on the server.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A proxy in the same pod that does not accept a connection within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// No answer to a request is longer, in bytes: far above a page of the largest objects that etcd takes.
const LARGEST_ANSWER: usize = 64 << 20;
/// Objects in one page of a list.
const PAGE_SIZE: &str = "200";

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
    clock: Mutex<Option<(ServerTime, Instant)>>,
}

/// An object as the API server gave it, and when.
pub struct Answer<T> {
    /// The object.
    pub value: T,
    /// The `Date` of the answer.
    pub at: ServerTime,
}

/// One page of a list.
pub struct Page<T> {
    /// The objects, each decoded on its own.
    pub items: Vec<Result<T, Undecodable>>,
    /// The version of the whole list, the same on all of its pages.
    pub resource_version: ResourceVersion,
    /// What to ask the next page with; absent on the last one.
    pub next: Option<String>,
}

/// A whole list.
pub struct List<T> {
    /// The objects that could be decoded.
    pub items: Vec<T>,
    /// The version of the list.
    pub resource_version: ResourceVersion,
    /// The `Date` of the first answer.
    pub at: ServerTime,
}

/// What a list or watch is of.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The kind of object.
    pub resource: Resource,
    /// A label selector; absent selects all objects.
    pub labels: Option<String>,
    /// Ask for metadata instead of whole objects.
    pub metadata_only: bool,
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

#[derive(Debug, Serialize)]
struct Preconditions<'a> {
    uid: &'a Uid,
}

#[derive(Deserialize)]
struct ListAnswer<'a> {
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: ResourceVersion,
    #[serde(default)]
    r#continue: String,
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
        let http = reqwest::Client::builder()
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

    /// Deletes one object, if it still is the one with this identity, with so many seconds to end instead of its own.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Conflict`] means that the name now belongs to another.
    pub async fn delete(&self, resource: Resource, name: &str, uid: &Uid, grace: Option<u32>) -> Result<(), Error> {
        let what = || format!("delete {} {name:?}", resource.plural);
        let options = DeleteOptions {
            api_version: "v1",
            kind: "DeleteOptions",
            grace_period_seconds: grace,
            preconditions: Preconditions { uid },
        };
        let request = with_json(self.request(Method::DELETE, self.url(resource, &[name])), &options, &what)?;
        let _deletion = self.permit(&self.shared.deletions, &what).await?;
        let _permit = self.permit(&self.shared.requests, &what).await?;
        self.exchange(request, &what).await.map(drop)
    }

    /// Reads one page of a list: the first, or the one that `next` of another page names.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Expired`] means to begin with the first page again.
    pub async fn page<T: DeserializeOwned>(&self, of: &Selection, next: Option<&str>) -> Result<Page<T>, Error> {
        self.page_at(of, next, None).await.map(|answer| answer.value)
    }

    /// Reads a whole list, as it is now or as it was at a version.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Expired`] means that the version is not known any more.
    pub async fn list<T: DeserializeOwned>(
        &self,
        of: &Selection,
        exactly: Option<&ResourceVersion>,
    ) -> Result<List<T>, Error> {
        let first = self.page_at(of, None, exactly).await?;
        let mut list = List { items: Vec::new(), resource_version: first.value.resource_version, at: first.at };
        let mut page = first.value.items;
        let mut next = first.value.next;
        loop {
            for item in page {
                match item {
                    Ok(item) => list.items.push(item),
                    Err(Undecodable { name, error }) => {
                        tracing::warn!(
                            resource = of.resource.plural,
                            name,
                            error,
                            "object cannot be decoded; left out"
                        );
                    }
                }
            }
            let Some(token) = next else { return Ok(list) };
            let answer = self.page_at(of, Some(&token), None).await?;
            page = answer.value.items;
            next = answer.value.next;
        }
    }

    /// Opens a watch that goes on after `from` and that the server ends after `duration`.
    ///
    /// # Errors
    /// What the caller can do about it, see [`Cause`]. [`Cause::Expired`] means to list again.
    pub async fn watch(&self, of: &Selection, from: &ResourceVersion, duration: Duration) -> Result<Lines, Error> {
        let what = || format!("watch {}", of.resource.plural);
        let mut url = self.url(of.resource, &[]);
        url.query_pairs_mut()
            .append_pair("watch", "true")
            .append_pair("allowWatchBookmarks", "true")
            .append_pair("resourceVersion", from.as_str())
            .append_pair("timeoutSeconds", &duration.as_secs().to_string());
        let request = self.selected(url, of, "PartialObjectMetadata").timeout(duration + TIMEOUT);
        if self.stop.is_cancelled() {
            return Err(Error { request: what(), cause: Cause::Stopped });
        }
        // The answer to a watch begins at once, though its body lasts.
        let sent = tokio::time::timeout(TIMEOUT, request.send()).await;
        let sent = sent.map_err(|_| Cause::Unreachable("no answer to a watch".to_owned()));
        let answer = sent.and_then(|sent| sent.map_err(|error| Cause::Unreachable(innermost(&error))));
        let answer = answer.map_err(|cause| Error { request: what(), cause })?;
        Ok(Lines::new(self.successful(answer, &what).await?))
    }

    async fn page_at<T: DeserializeOwned>(
        &self,
        of: &Selection,
        next: Option<&str>,
        exactly: Option<&ResourceVersion>,
    ) -> Result<Answer<Page<T>>, Error> {
        let what = || format!("list {}", of.resource.plural);
        let mut url = self.url(of.resource, &[]);
        url.query_pairs_mut().append_pair("limit", PAGE_SIZE);
        // The version is in the token: both together are refused.
        if let Some(token) = next {
            url.query_pairs_mut().append_pair("continue", token);
        } else if let Some(version) = exactly {
            url.query_pairs_mut()
                .append_pair("resourceVersion", version.as_str())
                .append_pair("resourceVersionMatch", "Exact");
        }
        let _permit = self.permit(&self.shared.requests, &what).await?;
        let request = self.selected(url, of, "PartialObjectMetadataList").timeout(TIMEOUT);
        let (body, at) = self.exchange(request, &what).await?;
        let list: ListAnswer<'_> = parse(&body, &what)?;
        Ok(Answer {
            value: Page {
                items: list.items.unwrap_or_default().into_iter().map(|item| decode(item)).collect(),
                resource_version: list.metadata.resource_version,
                next: Some(list.metadata.r#continue).filter(|token| !token.is_empty()),
            },
            at,
        })
    }

    fn url(&self, resource: Resource, rest: &[&str]) -> Url {
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

    fn selected(&self, mut url: Url, of: &Selection, kind_of_metadata: &str) -> RequestBuilder {
        if let Some(labels) = &of.labels {
            url.query_pairs_mut().append_pair("labelSelector", labels);
        }
        let accept = if of.metadata_only {
            format!("application/json;as={kind_of_metadata};g=meta.k8s.io;v=v1")
        } else {
            "application/json".to_owned()
        };
        self.shared.http.get(url).header(ACCEPT, accept)
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.shared.http.request(method, url).header(ACCEPT, "application/json").timeout(TIMEOUT)
    }

    async fn permit<'a>(
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
        Ok(Answer { value: parse(&body, &what)?, at })
    }

    async fn exchange(
        &self,
        request: RequestBuilder,
        what: &impl Fn() -> String,
    ) -> Result<(Bytes, ServerTime), Error> {
        let fail = |cause| Error { request: what(), cause };
        let answer = request.send().await.map_err(|error| fail(Cause::Unreachable(innermost(&error))))?;
        let mut answer = self.successful(answer, what).await?;
        let at = self.date(&answer).ok_or_else(|| fail(Cause::Undecodable("no Date header".to_owned())))?;
        let body = body(&mut answer, LARGEST_ANSWER).await.map_err(fail)?;
        Ok((body, at))
    }

    async fn successful(&self, mut answer: Response, what: &impl Fn() -> String) -> Result<Response, Error> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let text = body(&mut answer, 1 << 20).await.unwrap_or_default();
        Err(Error { request: what(), cause: Cause::of_answer(code, retry_after.as_deref(), &text) })
    }

    /// The time of an answer that succeeded, which only the API server can have given: kubectl proxy passes its `Date` on.
    fn date(&self, answer: &Response) -> Option<ServerTime> {
        let at = ServerTime::from_http_date(answer.headers().get(DATE)?.to_str().ok()?)?;
        *self.shared.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((at, Instant::now()));
        Some(at)
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

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], what: &impl Fn() -> String) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error { request: what(), cause: Cause::Undecodable(position(&error)) })
}

async fn body(answer: &mut Response, most: usize) -> Result<Bytes, Cause> {
    let mut body = BytesMut::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > most => {
                return Err(Cause::Undecodable(format!("longer than {most} bytes")));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body.freeze()),
            Err(error) => return Err(Cause::Unreachable(innermost(&error))),
        }
    }
}
