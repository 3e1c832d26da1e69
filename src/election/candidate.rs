//! The rules of the election, with the semantics of client-go's leader election. Pure: the caller sends the requests and brings the time.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kube::{LEASES, MicroTime, ResourceVersion, ServerTime};

/// The name of the Lease.
pub(crate) const NAME: &str = "configmonitor-operator";
/// A Lease that has not changed for this time may be taken from its holder.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that has not renewed the Lease for this time is no leader any more. Until another process may take the Lease, 5 s are left for requests
/// in flight and for clocks of different speed.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The time between two attempts to renew or to take the Lease.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// A Lease. Fields that do not matter here are kept as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lease {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

/// Names the version that a write of the Lease is compared with. Nothing is written without one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: ResourceVersion,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_duration_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_transitions: Option<u64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A Lease that does not exist yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewLease {
    api_version: &'static str,
    kind: &'static str,
    metadata: Named,
    spec: Spec,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Named {
    name: &'static str,
}

/// A process that is, or wants to be, the leader.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Names this process in the Lease.
    identity: String,
    standing: Standing,
    /// The last `renewTime` that this process has chosen.
    last_time: Option<MicroTime>,
}

#[derive(Debug)]
enum Standing {
    /// Not the leader. Knows the Lease since this time as it was last read.
    Standby(Option<(Lease, Instant)>),
    /// The leader, by a request that was sent at this time.
    Leader {
        renewed: Instant,
        /// The Lease to be replaced next. None if it must be read first.
        lease: Option<Lease>,
    },
}

/// A request about the Lease.
#[derive(Debug, PartialEq)]
pub(crate) enum Request {
    Read,
    Create(NewLease),
    Replace(Lease),
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Read(Lease),
    Created,
    Replaced(Lease),
    /// The Lease does not exist.
    Missing,
    /// The Lease has another version than the request said, or exists although the request was to create it.
    Conflict,
    /// Whether a write took place is not known.
    Failed,
}

/// What follows from an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Send(Request),
    /// Send [`Candidate::request`] after [`RETRY_PERIOD`].
    Wait,
    Lost(Loss),
}

/// Why a leader is no leader any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Loss {
    #[error("the Lease was not renewed for {} s", RENEW_DEADLINE.as_secs())]
    NotRenewed,
    #[error("the Lease is held by {0:?}")]
    Taken(String),
}

impl Lease {
    /// The identity of the holder, unless nobody holds it.
    fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// How long it is held after its last change.
    fn duration(&self) -> Duration {
        self.spec.lease_duration_seconds.map_or(LEASE_DURATION, Duration::from_secs)
    }

    /// The Lease as its holder gives it up.
    fn released(mut self, now: MicroTime) -> Self {
        self.spec.holder_identity = Some(String::new());
        self.spec.lease_duration_seconds = Some(1);
        self.spec.acquire_time = Some(now.to_string());
        self.spec.renew_time = Some(now.to_string());
        self
    }
}

impl Candidate {
    pub(crate) fn new(identity: String) -> Self {
        Self { identity, standing: Standing::Standby(None), last_time: None }
    }

    pub(crate) fn is_leader(&self) -> bool {
        matches!(self.standing, Standing::Leader { .. })
    }

    /// The process that a standby waits for.
    pub(crate) fn awaited(&self) -> Option<&str> {
        let Standing::Standby(Some((lease, _))) = &self.standing else { return None };
        lease.holder().filter(|holder| *holder != self.identity)
    }

    /// When a leader is no leader any more unless it renews the Lease.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let Standing::Leader { renewed, .. } = &self.standing else { return None };
        Some(*renewed + RENEW_DEADLINE)
    }

    /// The first request of an attempt. `time` is what the API server's clock says.
    pub(crate) fn request(&mut self, time: ServerTime) -> Request {
        match &self.standing {
            Standing::Leader { lease: Some(lease), .. } => {
                let lease = lease.clone();
                self.hold(lease, time)
            }
            Standing::Leader { lease: None, .. } | Standing::Standby(_) => Request::Read,
        }
    }

    /// Takes the answer to a request that was sent at `sent`.
    pub(crate) fn hear(&mut self, answer: Answer, sent: Instant, now: Instant, time: ServerTime) -> Next {
        let next = match &mut self.standing {
            Standing::Standby(known) => match answer {
                Answer::Read(lease) => {
                    // A write that leaves the spec as it is renews nothing.
                    let since = known.take().filter(|(before, _)| before.spec == lease.spec);
                    let since = since.map_or(now, |(_, since)| since);
                    let is_expired = now.saturating_duration_since(since) >= lease.duration();
                    let is_free = lease.holder().is_none_or(|holder| holder == self.identity) || is_expired;
                    *known = Some((lease.clone(), since));
                    if is_free { Next::Send(self.hold(lease, time)) } else { Next::Wait }
                }
                Answer::Replaced(lease) => {
                    self.standing = Standing::Leader { renewed: sent, lease: Some(lease) };
                    Next::Wait
                }
                Answer::Missing => Next::Send(self.create(time)),
                Answer::Created => Next::Send(Request::Read),
                Answer::Conflict | Answer::Failed => Next::Wait,
            },
            Standing::Leader { renewed, lease: known } => match answer {
                Answer::Read(lease) => match lease.holder() {
                    Some(other) if other != self.identity => Next::Lost(Loss::Taken(other.to_owned())),
                    _ => Next::Send(self.hold(lease, time)),
                },
                Answer::Replaced(lease) => {
                    (*renewed, *known) = (sent, Some(lease));
                    Next::Wait
                }
                // Somebody else has written or deleted the Lease since it was last renewed.
                Answer::Missing | Answer::Conflict if known.is_some() => {
                    *known = None;
                    Next::Send(Request::Read)
                }
                Answer::Missing => Next::Send(self.create(time)),
                Answer::Created => Next::Send(Request::Read),
                Answer::Conflict | Answer::Failed => Next::Wait,
            },
        };
        match self.deadline() {
            Some(deadline) if now >= deadline && !matches!(next, Next::Lost(_)) => Next::Lost(Loss::NotRenewed),
            _ => next,
        }
    }

    /// The request by which this process gives up the Lease, if it holds it.
    pub(crate) fn release(&mut self, lease: Lease, time: ServerTime) -> Option<Lease> {
        let now = self.later(time);
        (lease.holder() == Some(&self.identity)).then(|| lease.released(now))
    }

    /// Holds this Lease from now on, or goes on to hold it.
    fn hold(&mut self, mut lease: Lease, time: ServerTime) -> Request {
        let now = self.later(time).to_string();
        if lease.holder() != Some(&self.identity) {
            lease.spec.lease_transitions = Some(lease.spec.lease_transitions.unwrap_or(0) + 1);
            lease.spec.acquire_time = Some(now.clone());
        }
        lease.spec.holder_identity = Some(self.identity.clone());
        lease.spec.lease_duration_seconds = Some(LEASE_DURATION.as_secs());
        lease.spec.renew_time = Some(now);
        Request::Replace(lease)
    }

    fn create(&mut self, time: ServerTime) -> Request {
        let now = self.later(time).to_string();
        let spec = Spec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE_DURATION.as_secs()),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(0),
            others: Map::new(),
        };
        let (api_version, kind) = (LEASES.api_version, LEASES.kind);
        Request::Create(NewLease { api_version, kind, metadata: Named { name: NAME }, spec })
    }

    /// A time after all earlier ones, whatever the clock says: other processes know a renewal by its new `renewTime`.
    fn later(&mut self, time: ServerTime) -> MicroTime {
        let time = MicroTime::from(time);
        let later = self.last_time.map_or(time, |last| time.max(last.plus_micros(1)));
        self.last_time = Some(later);
        later
    }
}

#[cfg(test)]
mod tests;
