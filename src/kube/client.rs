//! The client of the API server. Every request of the operator starts here and is sent by a [`Transport`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, Url};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{Cause, Error};
use super::meter::Meter;
use super::objects::position;
use super::transport::{Body, Request, Response, Transport};
use super::{Action, PODS, Resource, ResourceVersion, ServerTime, Uid, lock};

/// Timeout of a request that reads.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a request that writes. The API server allows admission webhooks up to 60 s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(65);
/// Media type of whole objects.
pub(super) const JSON: &str = "application/json";
/// Media types of patches.
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Maximum length of an answer, in bytes. The largest object that etcd stores is far smaller.
pub(super) const MAX_ANSWER: usize = 16 << 20;
/// An answer, or a line of a watch, of more bytes than this waits for others to be read and decoded: a tenant can make
/// hundreds of 9 MB.
pub(super) const LARGE: usize = 256 << 10;
/// Large answers and lines that are in memory at a time. Two, so that the next one arrives while one is decoded.
const LARGE_AT_ONCE: usize = 2;

/// A handle on the connection to the API server, or to one namespace of the API server. All handles share the limits.
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientState>,
    /// The namespace of each request. None: lists and watches cover all namespaces.
    namespace: Option<Arc<str>>,
    is_divided: bool,
    /// What the handles on this namespace may take of the limits. None: all.
    share: Option<Arc<Permits>>,
    stop: CancellationToken,
}

struct ClientState {
    transport: Box<dyn Transport>,
    base: Url,
    limits: Permits,
    /// The shares in use, by namespace.
    shares: Mutex<BTreeMap<Arc<str>, Weak<Permits>>>,
    /// The time of the last answer, and when that came.
    clock: Mutex<Option<(ServerTime, Instant)>>,
    meter: Arc<dyn Meter>,
}

/// The limits on what is in flight or in memory, by [`Limit`].
struct Permits {
    max: [usize; 3],
    free: [Arc<Semaphore>; 3],
}

#[derive(Clone, Copy)]
enum Limit {
    Requests,
    Deletions,
    Large,
}

/// The permission for one request, or for one large answer in memory, of the handle's share and of the process.
pub struct Permit {
    _held: Vec<OwnedSemaphorePermit>,
}

/// The body of an answer.
pub(super) struct Whole {
    pub(super) text: Bytes,
    /// Kept until the text is dropped.
    _large: Option<Permit>,
}

/// An object and the time at which the API server sent it.
pub struct Answer<T> {
    /// The object.
    pub value: T,
    /// The `Date` of the answer.
    pub(crate) at: ServerTime,
}

/// Preconditions of a deletion. If the pod does not match them, the API server answers with 409 and deletes nothing.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions<'a> {
    /// The UID of the pod, so that a new pod of the same name is not deleted.
    pub uid: &'a Uid,
    /// The version of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<&'a ResourceVersion>,
}

impl Client {
    /// Creates a client for all namespaces of the API server that `transport` reaches at `base`. At most `requests`
    /// requests and `deletions` deletions are in flight at a time. The client starts no request once `stop` is
    /// cancelled.
    #[must_use]
    pub fn new(
        transport: Box<dyn Transport>,
        base: Url,
        requests: usize,
        deletions: usize,
        meter: Arc<dyn Meter>,
        stop: CancellationToken,
    ) -> Self {
        let limits = Permits::new([requests, deletions, LARGE_AT_ONCE]);
        let (shares, clock) = (Mutex::default(), Mutex::default());
        let shared = ClientState { transport, base, limits, shares, clock, meter };
        Self { shared: Arc::new(shared), namespace: None, is_divided: false, share: None, stop }
    }

    /// A handle that starts no request once `stop` is cancelled.
    #[must_use]
    pub fn with_stop(&self, stop: CancellationToken) -> Self {
        Self { stop, ..self.clone() }
    }

    /// A handle whose handles on one namespace take half of each limit together, so that they leave the other half to
    /// other namespaces.
    #[must_use]
    pub(crate) fn divided(&self) -> Self {
        Self { is_divided: true, ..self.clone() }
    }

    /// A handle on one namespace.
    #[must_use]
    pub fn within(&self, namespace: &Arc<str>) -> Self {
        let share = self.is_divided.then(|| self.shared.share_of(namespace));
        Self { namespace: Some(Arc::clone(namespace)), share, ..self.clone() }
    }

    /// The namespace of this handle; empty for all namespaces.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// The token that keeps this handle from starting requests.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    pub(super) fn meter(&self) -> &dyn Meter {
        &*self.shared.meter
    }

    /// The maximum number of deletions in flight by this handle and its clones.
    pub(crate) fn max_deletions(&self) -> usize {
        self.share.as_deref().unwrap_or(&self.shared.limits).max[Limit::Deletions as usize]
    }

    /// The time on the API server: the `Date` of the last answer and the time since then. Before the first answer, the
    /// Unix epoch.
    pub(crate) fn server_now(&self) -> ServerTime {
        lock(&self.shared.clock).map_or(ServerTime::from_second(0), |(at, came)| at.plus(came.elapsed()))
    }

    /// Reads one object.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do.
    pub async fn get<T: DeserializeOwned>(&self, resource: Resource, name: &str) -> Result<Answer<T>, Error> {
        self.answer(self.request(Method::GET, Action::on("get", resource, name))).await
    }

    /// Replaces one object, or this part of it, if its resourceVersion is still the one in `object`.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do.
    pub async fn replace<T: DeserializeOwned>(
        &self,
        (resource, subresource): (Resource, Option<&'static str>),
        name: &str,
        object: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        let action = Action { subresource, ..Action::on("update", resource, name) };
        self.answer(with_json(self.request(Method::PUT, action), object)?).await
    }

    /// Changes one object by a JSON merge patch.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do.
    pub async fn merge<T: DeserializeOwned>(
        &self,
        resource: Resource,
        name: &str,
        patch: &Value,
    ) -> Result<Answer<T>, Error> {
        let request = with_json(self.request(Method::PATCH, Action::on("patch", resource, name)), patch)?;
        self.answer(Request { content_type: MERGE_PATCH, ..request }).await
    }

    /// Creates one object.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do.
    pub async fn create<T: DeserializeOwned>(
        &self,
        resource: Resource,
        object: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        self.answer(with_json(self.request(Method::POST, Action::new("create", resource)), object)?).await
    }

    /// Waits for permission to delete or evict one pod. Deletions do not count towards the limit of other requests: a
    /// DELETE that hangs must not block reads.
    ///
    /// # Errors
    /// [`Cause::Stopped`].
    pub async fn deletion_permit(&self) -> Result<Permit, Error> {
        self.permit(Limit::Deletions, &Action::new("delete", PODS)).await
    }

    /// Waits for permission for one other request.
    ///
    /// # Errors
    /// [`Cause::Stopped`].
    pub(super) async fn request_permit(&self, action: &Action) -> Result<Permit, Error> {
        self.permit(Limit::Requests, action).await
    }

    /// Deletes a pod that matches `only`, or evicts it: the API server then deletes the pod if its PodDisruptionBudget
    /// allows that. `grace` replaces the grace period of the pod, in seconds.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do. [`Cause::Conflict`]: the pod does not match `only`. [`Cause::Blocked`]: the
    /// PodDisruptionBudget does not allow the eviction now.
    pub async fn remove(
        &self,
        _permit: Permit,
        name: &str,
        only: Preconditions<'_>,
        grace: Option<u32>,
        evicts: bool,
    ) -> Result<(), Error> {
        let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only });
        if let Some(seconds) = grace {
            options["gracePeriodSeconds"] = seconds.into();
        }
        let (request, body) = if evicts {
            let eviction = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": { "name": name, "namespace": self.namespace() },
                "deleteOptions": options,
            });
            (self.request(Method::POST, Action::on("create", PODS, name).of("eviction")), eviction)
        } else {
            (self.request(Method::DELETE, Action::on("delete", PODS, name)), options)
        };
        self.exchange(with_json(request, &body)?).await.map(drop)
    }

    /// Changes a pod by a strategic merge patch. The permit is that of a deletion.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do. [`Cause::Conflict`]: the pod has changed since the version in the patch.
    pub async fn patch_pod<T: DeserializeOwned>(&self, _: &Permit, name: &str, patch: &Value) -> Result<T, Error> {
        let request = with_json(self.request(Method::PATCH, Action::on("patch", PODS, name)), patch)?;
        let request = Request { content_type: STRATEGIC_MERGE_PATCH, ..request };
        let action = request.action.clone();
        let (body, _) = self.exchange(request).await?;
        parse(&body.text, &action)
    }

    /// Asks for the right to change a pod, by a change of nothing that is not stored.
    ///
    /// # Errors
    /// [`Cause`] says what the caller can do. That this pod is gone, or may not be changed, is no failure.
    pub(crate) async fn may_patch_pod(&self, name: &str, uid: &Uid) -> Result<(), Error> {
        let mut request = self.request(Method::PATCH, Action::on("patch", PODS, name));
        request.url.query_pairs_mut().append_pair("dryRun", "All");
        let request = with_json(request, &json!({ "metadata": { "uid": uid } }))?;
        match self.answer::<IgnoredAny>(Request { content_type: MERGE_PATCH, ..request }).await {
            Err(Error {
                cause: Cause::NotFound(_) | Cause::Conflict(_) | Cause::Invalid(_) | Cause::Refused(_),
                ..
            }) => Ok(()),
            answer => answer.map(drop),
        }
    }

    pub(super) fn request(&self, method: Method, action: Action) -> Request {
        let Action { resource, subresource, name, .. } = &action;
        let root = if resource.api_version.contains('/') { "apis" } else { "api" };
        let mut url = self.shared.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .push(root)
                .extend(resource.api_version.split('/'))
                .extend(self.namespace.iter().flat_map(|namespace| ["namespaces", namespace]))
                .push(resource.plural)
                .extend(name.as_deref())
                .extend(subresource);
        }
        Request { action, method, url, accept: JSON, content_type: JSON, body: None }
    }

    /// Fails if this handle is stopped, for requests that need no permit.
    pub(super) fn check_stop(&self, action: &Action) -> Result<(), Error> {
        if self.stop.is_cancelled() {
            return Err(action.failed(Cause::Stopped));
        }
        Ok(())
    }

    async fn permit(&self, of: Limit, action: &Action) -> Result<Permit, Error> {
        let permit = self.stop.run_until_cancelled(self.acquire(of)).await;
        // The permit may have come free as the handle was stopped.
        self.check_stop(action)?;
        permit.ok_or_else(|| action.failed(Cause::Stopped))
    }

    /// Waits until few other large answers are in memory, also when the client is stopped: the request is under way.
    pub(super) async fn large(&self) -> Permit {
        let permit = self.acquire(Limit::Large).await;
        // One that has come already would be decoded in the poll in which the one before it was.
        yield_now().await;
        permit
    }

    /// The permit of the share comes first: who waits for it keeps nothing from others.
    async fn acquire(&self, of: Limit) -> Permit {
        let mut held = Vec::new();
        for limits in self.share.iter().map(|share| &**share).chain([&self.shared.limits]) {
            // It fails only when the semaphore is closed, and none is.
            held.extend(Arc::clone(&limits.free[of as usize]).acquire_owned().await);
        }
        Permit { _held: held }
    }

    async fn answer<T: DeserializeOwned>(&self, request: Request) -> Result<Answer<T>, Error> {
        let action = request.action.clone();
        let _permit = self.request_permit(&action).await?;
        let (body, at) = self.exchange(request).await?;
        Ok(Answer { value: parse(&body.text, &action)?, at })
    }

    pub(super) async fn exchange(&self, request: Request) -> Result<(Whole, ServerTime), Error> {
        let action = request.action.clone();
        let sent = Instant::now();
        let deadline = sent + if request.method == Method::GET { TIMEOUT } else { WRITE_TIMEOUT };
        let exchange = async {
            let answer = self.send(request, deadline).await?;
            let at = date(&answer.headers).ok_or_else(|| Cause::Undecodable("no Date header".to_owned()))?;
            let body = self.read(answer.body).await?;
            *lock(&self.shared.clock) = Some((at, Instant::now()));
            Ok((body, at))
        };
        let answer = tokio::time::timeout_at(deadline, exchange).await;
        answer.unwrap_or_else(|_| Err(Cause::Unreachable("timed out".to_owned()))).map_err(|cause| action.failed(cause))
    }

    async fn read(&self, mut chunks: Body) -> Result<Whole, Cause> {
        let mut text = BytesMut::new();
        let large = match append(&mut text, &mut chunks, LARGE).await {
            Ok(()) => None,
            Err(Cause::TooLong) => {
                let large = self.large().await;
                append(&mut text, &mut chunks, MAX_ANSWER).await?;
                Some(large)
            }
            Err(broken) => return Err(broken),
        };
        Ok(Whole { text: text.freeze(), _large: large })
    }

    /// Sends a request. Returns the head of a successful answer. Reads any other answer whole and returns the failure.
    /// Gives up at `deadline`.
    pub(super) async fn send(&self, request: Request, deadline: Instant) -> Result<Response, Cause> {
        let (verb, resource, started) = (request.action.verb, request.action.rule(), Instant::now());
        let answer = tokio::time::timeout_at(deadline, self.shared.transport.send(request)).await;
        let answer = answer.unwrap_or_else(|_| Err("timed out".to_owned()));
        let code = answer.as_ref().map_or("none".into(), |answer| answer.code.to_string().into());
        self.meter().requested(verb, resource, code, started.elapsed());
        let answer = answer.map_err(Cause::Unreachable)?;
        if (200..300).contains(&answer.code) {
            return Ok(answer);
        }
        let retry_after = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let (mut text, mut body) = (BytesMut::new(), answer.body);
        let read = append(&mut text, &mut body, LARGE).await;
        let text = read.map(|()| text).unwrap_or_default();
        let cause = Cause::of_answer(answer.code, retry_after, &text);
        // Not that of any other error, which may come from the proxy: it has its own clock.
        if let Some(at) = date(&answer.headers).filter(|_| cause.is_not_found()) {
            *lock(&self.shared.clock) = Some((at, Instant::now()));
        }
        Err(cause)
    }
}

/// Returns the time on the API server's clock: kubectl proxy passes its header on.
fn date(headers: &HeaderMap) -> Option<ServerTime> {
    headers.get(DATE).and_then(|date| ServerTime::from_http_date(date.to_str().ok()?))
}

fn with_json(request: Request, object: &impl Serialize) -> Result<Request, Error> {
    match serde_json::to_vec(object) {
        Ok(body) => Ok(Request { body: Some(body.into()), ..request }),
        Err(error) => Err(request.action.failed(Cause::Invalid(error.to_string()))),
    }
}

pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], action: &Action) -> Result<T, Error> {
    let fail = |error| action.failed(Cause::Undecodable(position(&error)));
    serde_json::from_slice(body).map_err(fail)
}

/// Appends the rest of a body. Stops with [`Cause::TooLong`] once there are more than `max` bytes.
async fn append(text: &mut BytesMut, rest: &mut Body, max: usize) -> Result<(), Cause> {
    while let Some(chunk) = rest.next().await {
        text.extend_from_slice(&chunk.map_err(Cause::Unreachable)?);
        if text.len() > max {
            return Err(Cause::TooLong);
        }
    }
    Ok(())
}

impl ClientState {
    fn share_of(&self, namespace: &Arc<str>) -> Arc<Permits> {
        let mut shares = lock(&self.shares);
        shares.get(namespace).and_then(Weak::upgrade).unwrap_or_else(|| {
            shares.retain(|_, share| share.strong_count() > 0);
            let share = Arc::new(Permits::new(self.limits.max.map(|max| max.div_ceil(2))));
            shares.insert(Arc::clone(namespace), Arc::downgrade(&share));
            share
        })
    }
}

impl Permits {
    fn new(max: [usize; 3]) -> Self {
        Self { max, free: max.map(|max| Arc::new(Semaphore::new(max))) }
    }
}

#[cfg(test)]
mod tests;
