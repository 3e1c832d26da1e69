//! What a process has in place of kubectl proxy: it carries requests to the simulated API server, each with its latency and its fate.
//!
//! A request that is on its way arrives, whether its sender still waits for it or not. Once a process is dead, nothing is carried for it any
//! more, and nothing that it is answered counts.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use configmonitor_operator::kube::transport::{Request, Response, Transport};
use futures_util::future::{BoxFuture, pending};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::api::{Answer, Fact, Reply};
use crate::cluster::Cluster;
use crate::ledger::{Caller, Life};
use crate::lines::{Fate, Way, What};
use crate::stage::crash;
use crate::world::World;

/// The line of one life of a process.
pub(crate) struct Line {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) life: Life,
}

/// What comes back: an answer, with the time on the clock of the API server that gave it, or nothing but why there is none.
type Outcome = Result<(Answer, u64, bool), String>;

impl Transport for Line {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        Box::pin(async move {
            let Some((caller, way)) = self.depart(&request) else { return pending().await };
            let (outcome, arrives) = oneshot::channel();
            tokio::spawn(carry(Arc::clone(&self.cluster), request, caller.clone(), way, outcome));
            let Ok(outcome) = arrives.await else { return pending().await };
            if self.cluster.world().is_dead(self.life) {
                return pending().await;
            }
            let (answer, ms, truncated) = outcome?;
            // 410 stands in the head: that a list is forgotten is heard without a body, too.
            let is_heard = |fact: &Fact| !truncated || matches!(fact, Fact::Forgotten(_));
            self.cluster.world().hears(&caller, way, answer.code, answer.fact.filter(is_heard));
            let mut headers = HeaderMap::new();
            let date = Timestamp::from_millisecond(ms.try_into().unwrap()).unwrap();
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
            headers.insert(DATE, HeaderValue::from_str(&date).unwrap());
            if let Some(seconds) = answer.retry_after {
                headers.insert(RETRY_AFTER, seconds.into());
            }
            let text = match answer.body {
                Reply::Watch(watch) => {
                    let body = watch.body(Arc::clone(&self.cluster));
                    return Ok(Response { code: answer.code, headers, body });
                }
                Reply::Json(text) => Bytes::from(text),
                Reply::Text(text) => Bytes::from_static(text.as_bytes()),
            };
            let body = if truncated {
                let half = text.slice(..text.len() / 2);
                stream::iter([Ok(half), Err("connection reset by peer".to_owned())]).boxed()
            } else {
                stream::iter([Ok(text)]).boxed()
            };
            Ok(Response { code: answer.code, headers, body })
        })
    }
}

impl Line {
    /// A request departs, with what its sender has heard until now. None if the sender is dead, or dies of it.
    fn depart(&self, request: &Request) -> Option<(Caller, Way)> {
        let mut world = self.cluster.world();
        let (ms, life) = (world.ms, self.life);
        let way = world.lines.depart(ms, life, request)?;
        if request.url.query_pairs().all(|(name, _)| name != "continue") {
            world.ledger.sent.entry(life).or_default().push(ms);
        }
        let mut caller = world.ledger.caller(life, tokio::task::try_id(), (way.number, ms));
        match What::of(request) {
            What::Delete => caller.because = world.ledger.because(&caller),
            What::PutStatus => world.tries_to_write(&caller, request),
            What::GetOwner => {
                let name = request.url.path_segments().and_then(Iterator::last);
                if let Some(owner) = name.and_then(|name| world.owner_named(name)) {
                    world.ledger.asks_owner(&caller, owner);
                }
            }
            _ => {}
        }
        if way.fate == Fate::Panic {
            world.ledger.panicked(&caller);
        }
        drop(world);
        match way.fate {
            Fate::CrashBefore => {
                crash(&self.cluster, way.process);
                None
            }
            // Does not run the panic hook, which would print every one.
            Fate::Panic => resume_unwind(Box::new("a panic of the story")),
            _ => Some((caller, way)),
        }
    }
}

/// Takes a request to the API server, and the answer back.
async fn carry(cluster: Arc<Cluster>, request: Request, caller: Caller, way: Way, outcome: oneshot::Sender<Outcome>) {
    sleep(Duration::from_millis(way.there)).await;
    let Some((answer, ms)) = arrive(&cluster, &request, &caller, way) else { return };
    cluster.served.notify_waiters();
    if way.fate == Fate::CrashAfter {
        return crash(&cluster, way.process);
    }
    sleep(Duration::from_millis(way.back)).await;
    let answer = match way.fate {
        Fate::AnswerLost => Err("connection reset by peer".to_owned()),
        Fate::NeverAnswered => return pending().await,
        Fate::Timeout => answer.map(|_| Answer::status(504, "Timeout", "request did not complete", "")),
        _ => answer,
    };
    // Its sender may have given up.
    let _ = outcome.send(answer.map(|answer| (answer, ms, way.fate == Fate::Truncated)));
}

/// A request arrives at the API server, if it does: the answer, and the time on the clock of the server that gave it.
fn arrive(cluster: &Cluster, request: &Request, caller: &Caller, way: Way) -> Option<(Result<Answer, String>, u64)> {
    let mut world = cluster.world();
    if world.is_dead(caller.life) && !way.survives {
        return None;
    }
    if What::of(request) == What::Delete && way.fate != Fate::Answered {
        world.ledger.unsure.insert(caller.life);
    }
    let answer = match way.fate {
        _ if world.ms < world.away_until => Ok(Answer::text(500, "dial tcp 10.0.0.1:443: connect: connection refused")),
        Fate::NotSent => Err("connection refused".to_owned()),
        Fate::Conflict => Ok(Answer::status(409, "Conflict", "the object has been modified", "")),
        Fate::Busy(retry_after) => Ok(Answer::busy(retry_after)),
        Fate::Forbidden => Ok(Answer::status(403, "Forbidden", "a right is missing", "")),
        Fate::ProxyError => Ok(Answer::text(500, "dial tcp 10.0.0.1:443: connect: connection refused")),
        Fate::Denied(code) if What::of(request).is_write() => {
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
        _ => Ok(world.serve(caller, request)),
    };
    world.lines.has_served(way.process, What::of(request));
    let ahead = if world.skew > 0 && world.lines.coin() { world.skew * 1000 } else { 0 };
    Some((answer, world.ms + ahead))
}

impl World {
    /// A process has this answer.
    fn hears(&mut self, caller: &Caller, way: Way, code: u16, fact: Option<Fact>) {
        let heard = self.moment();
        self.lines.trace[way.number].code = Some(code);
        if code == 403 {
            let listed = self.lines.trace[way.number].path.split_once("labelSelector=owner%3D");
            if let Some(owner) = listed.and_then(|(_, name)| self.owner_named(name)) {
                self.ledger.may_not_ask(caller, owner);
            }
        }
        match fact {
            None => {}
            Some(Fact::Monitors { all, is_whole }) => self.ledger.saw_all(caller.life, all, is_whole),
            Some(Fact::Monitor { found, gone }) => self.ledger.saw(heard, caller, found, gone),
            Some(Fact::ConfigMap(at, name, stored)) => self.ledger.read(at, caller, name, stored),
            Some(Fact::Pods { at, version, query, selected, all }) => {
                self.ledger.listed((at, heard), caller, (version, query), selected, all);
            }
            Some(Fact::Owner(owner, wanted)) => self.ledger.told_by_owner(caller, owner, wanted),
            Some(Fact::Deleted) => self.ledger.told_of_deletion(heard, caller),
            Some(Fact::Forgotten(version)) => self.ledger.forgotten(caller, version),
            Some(Fact::Refused(version)) => self.ledger.refused(caller, version),
        }
        self.ledger.answered(caller, heard);
    }
}
