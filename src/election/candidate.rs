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
    spec: LeaseSpec,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
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
    /// The identity of the holder, unless the Lease is free.
    fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// The time after the last change at which the Lease expires.
    fn duration(&self) -> Duration {
        self.spec.lease_duration_seconds.map_or(LEASE_DURATION, Duration::from_secs)
    }

    fn released(mut self, now: String) -> Self {
        self.spec.holder_identity = Some(String::new());
        self.spec.lease_duration_seconds = Some(1);
        self.spec.acquire_time = Some(now.clone());
        self.spec.renew_time = Some(now);
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
                self.hold(lease, time)
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
                if is_free { Next::Send(self.hold(lease, time)) } else { Next::Wait }
            }
            (Role::Leader { .. }, LeaseAnswer::Read(lease)) => match lease.holder() {
                Some(other) if other != self.identity => Next::Lost(Loss::Taken(other.to_owned())),
                _ => Next::Send(self.hold(lease, time)),
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
            (_, LeaseAnswer::Missing) => Next::Send(self.create()),
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
        (lease.holder() == Some(&self.identity)).then(|| lease.released(now))
    }

    /// The request that takes or renews this Lease.
    fn hold(&mut self, mut lease: Lease, time: ServerTime) -> LeaseRequest {
        let now = self.later(time);
        if lease.holder() != Some(&self.identity) {
            lease.spec.lease_transitions = Some(lease.spec.lease_transitions.unwrap_or(0) + 1);
            lease.spec.acquire_time = None;
        }
        lease.spec.acquire_time.get_or_insert_with(|| now.clone());
        lease.spec.holder_identity = Some(self.identity.clone());
        lease.spec.lease_duration_seconds = Some(LEASE_DURATION.as_secs());
        lease.spec.renew_time = Some(now);
        LeaseRequest::Replace(lease)
    }

    /// The request that creates the Lease. Its times follow with the first renewal, because no answer has told the time
    /// yet.
    fn create(&self) -> LeaseRequest {
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE_DURATION.as_secs()),
            acquire_time: None,
            renew_time: None,
            lease_transitions: Some(0),
            others: Map::new(),
        };
        let others = [
            ("apiVersion", json!(LEASES.api_version)),
            ("kind", json!(LEASES.kind)),
            ("metadata", json!({ "name": NAME })),
        ];
        let others = others.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        LeaseRequest::Create(Lease { spec, others })
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
