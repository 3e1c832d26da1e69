//! The rules of leader election, as in client-go. Pure: the caller sends the requests and passes the time.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::kube::{LEASES, ServerTime};

pub(crate) const NAME: &str = "configmonitor-operator";
/// A Lease that has not changed for this time has expired.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that has not renewed the Lease for this time stops. 5 s remain before the Lease expires, for requests in
/// flight and clocks of different speed.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Time between two attempts to renew or to take the Lease.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// A Lease. All other fields are kept, among them the resourceVersion, which makes a write a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lease {
    #[serde(default)]
    spec: Map<String, Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A process that is, or wants to be, the leader.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// The name of this process in the Lease.
    identity: String,
    role: Role,
    /// The last `renewTime` that this process wrote.
    last_time: Option<ServerTime>,
}

#[derive(Debug)]
enum Role {
    /// Not the leader. Contains the Lease as last read, and since when it has not changed.
    Standby(Option<(Lease, Instant)>),
    /// The leader, by a write that was sent at `renewed`.
    Leader {
        renewed: Instant,
        /// The Lease to replace next. None if it must be read first.
        lease: Option<Lease>,
    },
}

#[derive(Debug, PartialEq)]
pub(crate) enum LeaseRequest {
    Read,
    Create(Lease),
    Replace(Lease),
}

#[derive(Debug)]
pub(crate) enum LeaseAnswer {
    Read(Lease),
    /// The Lease was created or replaced.
    Written(Lease),
    Missing,
    /// The Lease has another version than the request, or exists already.
    Conflict,
    /// The request failed. A write may have taken place.
    Failed,
}

/// What to do after an outcome.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Send(LeaseRequest),
    /// Send [`Candidate::request`] after [`RETRY_PERIOD`].
    Wait,
    Lost(Loss),
}

/// Why a leader is not the leader any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Loss {
    #[error("the Lease was not renewed for {} s", RENEW_DEADLINE.as_secs())]
    NotRenewed,
    #[error("the Lease is held by {0:?}")]
    Taken(String),
}

impl Lease {
    /// One that does not exist yet.
    fn new() -> Self {
        let others = [
            ("apiVersion", json!(LEASES.api_version)),
            ("kind", json!(LEASES.kind)),
            ("metadata", json!({ "name": NAME })),
        ];
        Self { spec: Map::new(), others: others.map(|(key, value)| (key.to_owned(), value)).into_iter().collect() }
    }

    /// The identity of the holder, unless the Lease is free.
    fn holder(&self) -> Option<&str> {
        self.spec.get("holderIdentity")?.as_str().filter(|holder| !holder.is_empty())
    }

    /// The time after the last change at which the Lease expires.
    fn duration(&self) -> Duration {
        let seconds = self.spec.get("leaseDurationSeconds").and_then(Value::as_u64);
        seconds.map_or(LEASE_DURATION, Duration::from_secs)
    }

    /// The Lease with this holder for this time from `now` on.
    fn held(mut self, holder: &str, duration: Duration, now: &str) -> Self {
        let acquired = (self.holder() != Some(holder)).then(|| ("acquireTime", json!(now)));
        let fields = [
            ("holderIdentity", json!(holder)),
            ("leaseDurationSeconds", json!(duration.as_secs())),
            ("renewTime", json!(now)),
        ];
        self.spec.extend(fields.into_iter().chain(acquired).map(|(key, value)| (key.to_owned(), value)));
        self
    }
}

impl Candidate {
    pub(crate) fn new(identity: String) -> Self {
        Self { identity, role: Role::Standby(None), last_time: None }
    }

    pub(crate) fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// The leader that a standby waits for.
    pub(crate) fn awaited(&self) -> Option<&str> {
        let Role::Standby(Some((lease, _))) = &self.role else { return None };
        lease.holder().filter(|holder| *holder != self.identity)
    }

    /// The time at which a leader stops unless it has renewed the Lease.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let Role::Leader { renewed, .. } = &self.role else { return None };
        Some(*renewed + RENEW_DEADLINE)
    }

    /// The first request of an attempt. `time` is the API server's clock.
    pub(crate) fn request(&mut self, time: ServerTime) -> LeaseRequest {
        match &self.role {
            Role::Leader { lease: Some(lease), .. } => {
                let lease = lease.clone();
                LeaseRequest::Replace(self.hold(lease, time))
            }
            Role::Leader { lease: None, .. } | Role::Standby(_) => LeaseRequest::Read,
        }
    }

    pub(crate) fn handle(&mut self, outcome: LeaseAnswer, sent: Instant, now: Instant, time: ServerTime) -> Next {
        let next = match (&mut self.role, outcome) {
            (Role::Standby(known), LeaseAnswer::Read(lease)) => {
                // A write that does not change the spec is not a renewal.
                let since = known.take().filter(|(before, _)| before.spec == lease.spec);
                let since = since.map_or(now, |(_, since)| since);
                let is_expired = now.saturating_duration_since(since) >= lease.duration();
                let is_free = lease.holder().is_none_or(|holder| holder == self.identity) || is_expired;
                *known = Some((lease.clone(), since));
                if is_free { Next::Send(LeaseRequest::Replace(self.hold(lease, time))) } else { Next::Wait }
            }
            (Role::Leader { .. }, LeaseAnswer::Read(lease)) => match lease.holder() {
                Some(other) if other != self.identity => Next::Lost(Loss::Taken(other.to_owned())),
                _ => Next::Send(LeaseRequest::Replace(self.hold(lease, time))),
            },
            (_, LeaseAnswer::Written(lease)) => {
                self.role = Role::Leader { renewed: sent, lease: Some(lease) };
                Next::Wait
            }
            // Another client has written or deleted the Lease since the last renewal.
            (Role::Leader { lease: known @ Some(_), .. }, LeaseAnswer::Missing | LeaseAnswer::Conflict) => {
                *known = None;
                Next::Send(LeaseRequest::Read)
            }
            (_, LeaseAnswer::Missing) => Next::Send(LeaseRequest::Create(self.hold(Lease::new(), time))),
            (_, LeaseAnswer::Conflict | LeaseAnswer::Failed) => Next::Wait,
        };
        match self.deadline() {
            Some(deadline) if now >= deadline && !matches!(next, Next::Lost(_)) => Next::Lost(Loss::NotRenewed),
            _ => next,
        }
    }

    /// The Lease to write in order to release it, if this process holds it.
    pub(crate) fn release(&mut self, lease: Lease, time: ServerTime) -> Option<Lease> {
        let now = self.later(time);
        (lease.holder() == Some(&self.identity)).then(|| lease.held("", Duration::from_secs(1), &now))
    }

    /// The Lease to write in order to take or renew this one.
    fn hold(&mut self, mut lease: Lease, time: ServerTime) -> Lease {
        if lease.holder() != Some(&self.identity) {
            let transitions = lease.spec.get("leaseTransitions").and_then(Value::as_u64).unwrap_or(0);
            lease.spec.insert("leaseTransitions".to_owned(), json!(transitions + 1));
        }
        let now = self.later(time);
        lease.held(&self.identity, LEASE_DURATION, &now)
    }

    /// A time after all earlier ones, whatever the clock says: other processes notice a renewal by the new
    /// `renewTime`.
    fn later(&mut self, time: ServerTime) -> String {
        let later = self.last_time.map_or(time, |last| time.max(last.plus(Duration::from_secs(1))));
        self.last_time = Some(later);
        later.to_micro_time()
    }
}

#[cfg(test)]
mod tests;
