//! A process's transport in place of kubectl proxy: carries requests to the simulated API server, each with its latency
//! and its fate.
//!
//! A request on its way arrives even if its sender no longer waits. For a dead process nothing is sent any more, and no
//! answer counts.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use configmonitor_operator::kube::transport::{self, Response, Transport};
use futures_util::future::{BoxFuture, pending};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::api::{Answer, Fact, Reply, Request};
use crate::cluster::Cluster;
use crate::ledger::{Caller, Life};
use crate::network::{Fate, RequestKind, Route, is_of_deployment, is_of_handed_over};
use crate::processes::crash;
use crate::state::ClusterState;

pub struct Connection {
    pub cluster: Arc<Cluster>,
    pub life: Life,
}

/// In milliseconds.
const AN_HOUR: u64 = 3_600_000;

/// The answer, with the time on the clock of the API server that gave it and whether the body breaks off; or the reason
/// for no answer.
type Outcome = Result<(Answer, u64, bool), String>;

impl Transport for Connection {
    fn send(&self, request: transport::Request) -> BoxFuture<'_, Result<Response, String>> {
        self.exchange(request.into())
    }
}

impl Connection {
    /// Sends a request and waits for the head of the answer, for ever if the process is dead.
    pub(crate) fn exchange(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        Box::pin(async move {
            let Some((caller, route)) = self.depart(&request) else { return pending().await };
            let (outcome, arrives) = oneshot::channel();
            tokio::spawn(carry(Arc::clone(&self.cluster), request, caller.clone(), route, outcome));
            let Ok(outcome) = arrives.await else { return pending().await };
            if self.cluster.state().is_dead(self.life) {
                return pending().await;
            }
            let (mut answer, ms, truncated) = outcome?;
            // 410 is in the head, so a truncated answer shows it too.
            let is_received = |fact: &Fact| !truncated || matches!(fact, Fact::Forgotten(_));
            let fact = answer.fact.take().filter(is_received);
            self.cluster.state().record_answer(&caller, route, answer.code, fact);
            Ok(answer.response(&self.cluster, ms, truncated))
        })
    }

    /// Sends a request, with what its sender knows. Returns none if the sender is dead, or crashes with this request.
    fn depart(&self, request: &Request) -> Option<(Caller, Route)> {
        let mut state = self.cluster.state();
        let (ms, life) = (state.ms, self.life);
        let route = state.network.depart(ms, life, request)?;
        if request.url.query_pairs().all(|(name, _)| name != "continue") {
            state.ledger.sent.entry(life).or_default().push(ms);
        }
        let sent = &state.network.trace[route.number];
        // A keeper that ends may read the rest of a list.
        if sent.method != "GET" && state.ledger.unserved.get(&life).is_some_and(|since| *since < ms) {
            let text = format!("{} {} at {ms} ms is in a namespace that is not served", sent.method, sent.path);
            state.ledger.improper.push(text);
        }
        let mut caller = state.ledger.caller(life, tokio::task::try_id(), (route.number, ms));
        // The watch on them is about their metadata.
        if is_of_handed_over(request) && !request.accept.contains("PartialObjectMetadata") {
            let at = state.moment();
            state.ledger.record_look_after(at, &caller);
        }
        let is_of_replica_set = request.url.path().contains("/replicasets/");
        state.ledger.record_request(&caller, is_of_deployment(request), is_of_replica_set);
        match RequestKind::of(request) {
            RequestKind::Delete | RequestKind::Patch => caller.grounds = state.ledger.grounds(&caller),
            RequestKind::PutStatus => state.record_attempt(&caller, request),
            RequestKind::GetOwner => {
                let name = request.url.path_segments().and_then(Iterator::last);
                if let Some(owner) = name.and_then(|name| state.owner_by_name(name)) {
                    state.ledger.record_owner_request(&caller, owner);
                }
            }
            _ => {}
        }
        if route.fate == Fate::Panic {
            let at = state.moment();
            state.ledger.record_panic(at, &caller);
        }
        drop(state);
        match route.fate {
            Fate::CrashBefore => {
                crash(&self.cluster, route.process);
                None
            }
            // This does not run the panic hook, which would print each panic.
            Fate::Panic => resume_unwind(Box::new("a panic of the story")),
            _ => Some((caller, route)),
        }
    }
}

impl Answer {
    /// Returns the answer of an API server whose clock shows this time, perhaps with a body that breaks off.
    pub(crate) fn response(self, cluster: &Arc<Cluster>, ms: u64, truncated: bool) -> Response {
        let Self { code, retry_after, body, .. } = self;
        let mut headers = HeaderMap::new();
        let date = Timestamp::from_millisecond(ms.try_into().unwrap()).unwrap();
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
        headers.insert(DATE, HeaderValue::from_str(&date).unwrap());
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        let text = match body {
            Reply::Watch(watch) => return Response { code, headers, body: watch.body(Arc::clone(cluster)) },
            Reply::Json(text) => Bytes::from(text),
            Reply::Text(text) => Bytes::from_static(text.as_bytes()),
        };
        let body = if truncated {
            let half = text.slice(..text.len() / 2);
            stream::iter([Ok(half), Err("connection reset by peer".to_owned())]).boxed()
        } else {
            stream::iter([Ok(text)]).boxed()
        };
        Response { code, headers, body }
    }
}

/// Carries a request to the API server, and the answer back.
async fn carry(
    cluster: Arc<Cluster>,
    request: Request,
    caller: Caller,
    route: Route,
    outcome: oneshot::Sender<Outcome>,
) {
    sleep(Duration::from_millis(route.there)).await;
    let Some((answer, ms)) = arrive(&cluster, &request, &caller, route) else { return };
    cluster.served.notify_waiters();
    if route.fate == Fate::CrashAfter {
        return crash(&cluster, route.process);
    }
    sleep(Duration::from_millis(route.back)).await;
    let answer = match route.fate {
        Fate::AnswerLost => Err("connection reset by peer".to_owned()),
        Fate::NeverAnswered => return pending().await,
        Fate::Timeout => answer.map(|_| Answer::status(504, "Timeout", "request did not complete", "")),
        _ => answer,
    };
    // The sender may no longer wait.
    let _ = outcome.send(answer.map(|answer| (answer, ms, route.fate == Fate::Truncated)));
}

/// Lets a request arrive at the API server, if it does. Returns the answer, with the time on the clock of the server
/// that gave it.
fn arrive(
    cluster: &Cluster,
    request: &Request,
    caller: &Caller,
    route: Route,
) -> Option<(Result<Answer, String>, u64)> {
    let mut state = cluster.state();
    if state.is_dead(caller.life) && !route.survives {
        return None;
    }
    // If a restart begins with a write without an answer, the process resumes it and counts the pods gone by then.
    let is_lost = matches!(route.fate, Fate::AnswerLost | Fate::NeverAnswered | Fate::Timeout | Fate::Truncated);
    let is_unusual = match RequestKind::of(request) {
        RequestKind::Delete | RequestKind::Patch => route.fate != Fate::Answered,
        RequestKind::PutStatus => is_lost,
        _ => false,
    };
    state.ledger.unsure.extend(is_unusual.then_some(caller.life));
    let answer = match route.fate {
        _ if state.ms < state.away_until => Ok(Answer::text(500, "dial tcp 10.0.0.1:443: connect: connection refused")),
        Fate::NotSent => Err("connection refused".to_owned()),
        Fate::Conflict => Ok(Answer::status(409, "Conflict", "the object has been modified", "")),
        Fate::Busy(retry_after) => Ok(Answer::busy(retry_after)),
        Fate::Forbidden => Ok(Answer::status(403, "Forbidden", "a right is missing", "")),
        Fate::ProxyError => Ok(Answer::text(500, "dial tcp 10.0.0.1:443: connect: connection refused")),
        Fate::Denied(code) if RequestKind::of(request).is_write() => {
            let reason = match code {
                403 => "Forbidden",
                404 => "NotFound",
                _ => "Conflict",
            };
            Ok(Answer::status(code, reason, "admission webhook 'keeper' denied the request: not for now", ""))
        }
        Fate::Refused => {
            let mut answer = Answer::status(500, "InternalError", "failed calling webhook", "");
            let asked = |key: &str| request.url.query_pairs().find(|(name, _)| name == key);
            let version = asked("resourceVersionMatch").and(asked("resourceVersion"));
            answer.fact = version.map(|(_, version)| Fact::Refused(version.into_owned()));
            Ok(answer)
        }
        _ => Ok(state.serve(caller, request)),
    };
    state.network.has_served(route.process, RequestKind::of(request));
    let ahead = if state.skew > 0 && state.network.coin() { state.skew * 1000 } else { 0 };
    // kubectl proxy has a clock of its own.
    let ahead = if route.fate == Fate::ProxyError { AN_HOUR } else { ahead };
    Some((answer, state.ms + ahead))
}

impl ClusterState {
    fn record_answer(&mut self, caller: &Caller, route: Route, code: u16, fact: Option<Fact>) {
        let received = self.moment();
        self.network.trace[route.number].code = Some(code);
        if code == 403 {
            let path = &self.network.trace[route.number].path;
            if path.contains("/secrets?") {
                self.ledger.without_secrets.insert(caller.life);
            }
            let listed = path.split_once("labelSelector=owner%3D");
            if let Some(owner) = listed.and_then(|(_, name)| self.owner_by_name(name)) {
                self.ledger.record_owner_forbidden(caller, owner);
            }
        }
        match fact {
            None => {}
            Some(Fact::Deployment { generation, is_rolling }) => {
                self.ledger.record_deployment(caller, generation, is_rolling);
            }
            // But for that, it goes by the pods, and by nothing that it has read before.
            Some(_) if self.ledger.looks_after(caller) => {}
            Some(Fact::Monitors { all, is_whole }) => self.ledger.record_monitors(caller.life, all, is_whole),
            Some(Fact::Namespace { is_selected }) => self.ledger.record_namespace(received, caller.life, is_selected),
            Some(Fact::Monitor { found, gone }) => self.ledger.record_monitor(received, caller, found, gone),
            Some(Fact::ConfigMap(at, name, stored)) => self.ledger.record_reading(at, caller, name, stored),
            Some(Fact::Pods { at, version, query, metadata_only, is_whole, selected, all }) => {
                let received = is_whole.then_some(received);
                self.ledger.record_list((at, received), caller, (version, query, metadata_only), selected, all);
            }
            Some(Fact::LastPage(revision)) => self.ledger.record_last_page(received, caller, revision),
            Some(Fact::Owner(owner, desired)) => self.ledger.record_owner(caller, owner, desired),
            Some(Fact::Patched) => {}
            Some(Fact::Deleted) => self.ledger.record_deletion_answer(received, caller),
            Some(Fact::Forgotten(version)) => self.ledger.record_forgotten_list(caller, version),
            Some(Fact::Refused(version)) => self.ledger.record_refused_list(caller, version),
        }
        self.ledger.record_answer(caller, received);
    }
}
