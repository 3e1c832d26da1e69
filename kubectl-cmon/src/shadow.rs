//! The operator as it would act, without effect: its own code, on a transport that reads from the API server and keeps
//! to itself what is written.
//!
//! So `plan` decides nothing by itself. Watches stay silent: a plan is about one moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use configmonitor_operator::controller::{self, Namespaces, Readiness, Settings};
use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::transport::{Request, Response, Transport};
use configmonitor_operator::kube::{ServerTime, Uid};
use configmonitor_operator::monitor::pod::{HANDED_OVER, SELECTS_HANDED_OVER};
use configmonitor_operator::options::DISCOVER_EXCLUDE;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::outcome::Failure;

/// How long the operator must have asked for nothing to be at rest, at least.
const REST: Duration = Duration::from_secs(1);
/// And how many times as long as the slowest answer has taken: the operator's own pauses are up to nine times a list.
const ANSWERS: u32 = 12;
/// How often that is checked.
const PAUSE: Duration = Duration::from_millis(50);
/// Yields after which each task has had its turn.
const TURNS: usize = 200;
const REQUESTS: usize = 32;
/// How often the operator may read the same without another deed. It looks again after each pause, however long an answer
/// takes.
const LOOKS: usize = 4;

/// What the operator would find.
#[derive(Clone, Debug)]
pub struct Premise {
    /// The namespace of all of it.
    pub namespace: Arc<str>,
    /// The only ConfigMonitor that there is, as JSON.
    pub monitor: Value,
    /// Objects by path that are others than on the API server. None: it does not exist.
    pub objects: BTreeMap<String, Option<Value>>,
    /// The operator's own pod, which it never deletes.
    pub own_pod: Option<Uid>,
    /// The time on the API server.
    pub now: ServerTime,
}

/// What the operator would have done by the time at which it waits.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    /// The ConfigMonitor with the status that would be written.
    pub(crate) monitor: Value,
    /// The pods that would be deleted, evicted or handed over, in this order.
    pub(crate) pods: Vec<String>,
    /// The notes of the Events about the ConfigMonitor.
    pub(crate) notes: Vec<String>,
}

/// What all requests share.
struct State {
    premise: Premise,
    deeds: Deeds,
    writes: usize,
    requests: usize,
    in_flight: usize,
    /// The longest time that an answer has taken.
    slowest: Duration,
    /// What could not be read: the operator may have the right, and be answered.
    unread: Option<String>,
    /// How often each URL was read since the last deed, by what was to be decoded of it.
    looks: BTreeMap<(String, &'static str), usize>,
    /// It would do the same again, as nothing comes of it.
    is_over: bool,
}

struct Shadow {
    inner: Arc<dyn Transport>,
    state: Arc<Mutex<State>>,
}

/// Lets the operator act on this premise until it waits.
pub(crate) async fn play(inner: Arc<dyn Transport>, base: Url, premise: Premise) -> Result<Deeds, Failure> {
    let (namespace, own_pod) = (Arc::clone(&premise.namespace), premise.own_pod.clone());
    let deeds = Deeds { monitor: premise.monitor.clone(), ..Deeds::default() };
    let state = State {
        premise,
        deeds,
        writes: 0,
        requests: 0,
        in_flight: 0,
        slowest: Duration::ZERO,
        unread: None,
        looks: BTreeMap::new(),
        is_over: false,
    };
    let state = Arc::new(Mutex::new(state));
    let shadow = Shadow { inner, state: Arc::clone(&state) };
    let stop = CancellationToken::new();
    let client = Client::new(Box::new(shadow), base, REQUESTS, REQUESTS, Arc::new(()), stop.clone());
    let elected = CancellationToken::new();
    elected.cancel();
    // The flags of the operator are not known.
    let excluded = DISCOVER_EXCLUDE.split(',').map(Arc::from).collect();
    let settings = Settings { own_pod, surges: true, excluded: Arc::new(excluded), ..Settings::default() };
    let namespaces = Namespaces::Named(vec![namespace]);
    let run = controller::run(client, namespaces, settings, Readiness::default(), elected);
    let end = async {
        at_rest(&state).await;
        stop.cancel();
    };
    tokio::join!(run, end);
    let mut state = lock(&state);
    match state.unread.take() {
        Some(unread) => Err(Failure::Failed(format!("cannot plan: {unread}"))),
        None => Ok(std::mem::take(&mut state.deeds)),
    }
}

async fn at_rest(state: &Mutex<State>) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        sleep(PAUSE).await;
        for _ in 0..TURNS {
            yield_now().await;
        }
        let State { requests, in_flight, slowest, is_over, .. } = *lock(state);
        if is_over {
            return;
        }
        if in_flight > 0 || requests != seen {
            (seen, since) = (requests, Instant::now());
        } else if since.elapsed() >= REST.max(slowest * ANSWERS) {
            return;
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What becomes of a request.
enum Fate {
    /// It goes to the API server.
    Read,
    Answer(u16, Value),
    /// A watch on which nothing happens.
    Silence,
}

impl State {
    fn fate(&mut self, request: &Request) -> Fate {
        let path = request.url.path();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let body: Value =
            request.body.as_deref().and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default();
        if request.url.query_pairs().any(|(name, _)| name == "watch") {
            return Fate::Silence;
        }
        // What becomes of pods that are handed over, also by other ConfigMonitors, is not what is planned.
        if request.url.query_pairs().any(|(name, value)| name == "labelSelector" && value == SELECTS_HANDED_OVER) {
            return Fate::Answer(200, list([]));
        }
        if request.method == Method::GET {
            let looks = self.looks.entry((request.url.to_string(), request.accept)).or_default();
            *looks += 1;
            self.is_over |= *looks > LOOKS;
        }
        match (&request.method, &parts[..]) {
            (&Method::GET, [.., "namespaces", _, "configmonitors"]) => Fate::Answer(200, list([&self.deeds.monitor])),
            (&Method::GET, [.., "namespaces", _, "configmonitors", _]) => Fate::Answer(200, self.deeds.monitor.clone()),
            (&Method::PUT, [.., "configmonitors", _, "status"]) => {
                self.writes += 1;
                self.deeds.monitor["status"] = body["status"].clone();
                self.deeds.monitor["metadata"]["resourceVersion"] = format!("plan-{}", self.writes).into();
                Fate::Answer(200, self.deeds.monitor.clone())
            }
            // Each source is read by itself, whatever a list of their metadata says.
            (&Method::GET, [.., "namespaces", _, "configmaps" | "secrets"]) => Fate::Answer(200, list([])),
            (&Method::GET, _) => match self.premise.objects.get(path) {
                None => Fate::Read,
                Some(Some(object)) => Fate::Answer(200, object.clone()),
                Some(None) => Fate::Answer(404, status(404, "NotFound")),
            },
            (&Method::DELETE, [.., "pods", name]) | (&Method::POST, [.., "pods", name, "eviction"]) => {
                self.goes(name);
                Fate::Answer(200, status(200, ""))
            }
            // Whether the operator has the right is not known.
            (&Method::PATCH, _) if request.url.query().is_some() => Fate::Answer(200, body),
            (&Method::PATCH, [.., "pods", name]) => {
                // The others give it back, or make it go before others.
                if body["metadata"]["labels"][HANDED_OVER] == "true" {
                    self.goes(name);
                }
                Fate::Read
            }
            (&Method::POST, [.., "events"]) => {
                if body["regarding"]["kind"] == "ConfigMonitor" {
                    self.deeds.notes.extend(body["note"].as_str().map(ToOwned::to_owned));
                }
                Fate::Answer(201, body)
            }
            _ => Fate::Answer(403, status(403, "Forbidden")),
        }
    }

    /// A pod is deleted, evicted or handed over, which is tried again, as nothing comes of it.
    fn goes(&mut self, pod: &str) {
        if !self.deeds.pods.iter().any(|its| its == pod) {
            self.deeds.pods.push(pod.to_owned());
            self.looks.clear();
        }
    }
}

impl Transport for Shadow {
    fn send(&self, mut request: Request) -> BoxFuture<'_, Result<Response, String>> {
        let fate = {
            let mut state = lock(&self.state);
            state.requests += 1;
            state.fate(&request)
        };
        Box::pin(async move {
            match fate {
                Fate::Answer(code, object) => {
                    let body = stream::iter([Ok(Bytes::from(object.to_string()))]).boxed();
                    Ok(Response { code, headers: self.headers(), body })
                }
                Fate::Silence => Ok(Response { code: 200, headers: self.headers(), body: stream::pending().boxed() }),
                Fate::Read => {
                    // What a patch would change, the answer lacks.
                    (request.method, request.body) = (Method::GET, None);
                    let (reading, path) = (Reading::begin(&self.state), request.url.path().to_owned());
                    let answer = self.inner.send(request).await;
                    let unread = match &answer {
                        Err(error) => Some(format!("{path}: {error}")),
                        // The operator knows what these mean.
                        Ok(Response { code: 404 | 409 | 410, .. }) => None,
                        Ok(answer) if answer.code >= 400 => {
                            Some(format!("GET {path} is answered with {}", answer.code))
                        }
                        Ok(_) => None,
                    };
                    let mut state = lock(&self.state);
                    state.unread = state.unread.take().or(unread);
                    drop(state);
                    answer.map(|answer| {
                        let body = answer.body.inspect(move |_| {
                            // In flight until the body is dropped.
                            let _ = &reading;
                        });
                        Response { headers: self.headers(), body: body.boxed(), ..answer }
                    })
                }
            }
        })
    }
}

impl Shadow {
    /// All answers have the time of the premise.
    fn headers(&self) -> HeaderMap {
        let now = lock(&self.state).premise.now;
        let date = Timestamp::from_second(now.as_second()).ok();
        let date = date.and_then(|date| rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).ok());
        let date = date.and_then(|date| HeaderValue::from_str(&date).ok());
        date.into_iter().map(|date| (DATE, date)).collect()
    }
}

/// A request in flight.
struct Reading {
    state: Arc<Mutex<State>>,
    since: Instant,
}

impl Reading {
    fn begin(state: &Arc<Mutex<State>>) -> Self {
        lock(state).in_flight += 1;
        Self { state: Arc::clone(state), since: Instant::now() }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.in_flight -= 1;
        state.slowest = state.slowest.max(self.since.elapsed());
    }
}

fn list<'a>(items: impl IntoIterator<Item = &'a Value>) -> Value {
    json!({"metadata": {"resourceVersion": "plan"}, "items": items.into_iter().collect::<Vec<_>>()})
}

fn status(code: u16, reason: &str) -> Value {
    let status = if code < 300 { "Success" } else { "Failure" };
    let details = json!({"name": "its"});
    json!({"kind": "Status", "apiVersion": "v1", "status": status, "code": code, "reason": reason, "message": reason, "details": details})
}
