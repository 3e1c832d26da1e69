//! Only a leader acts: a process that is not elected changes no object except the Lease.
//!
//! The check uses the fault proxy of each replica, through which all requests of the replica go: the audit log does not
//! distinguish replicas of one ServiceAccount.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use testenv::fault_proxy::Request;

/// The last request of a process is observed at most this long after its end.
const HEARD_LATE: Duration = Duration::from_secs(1);

/// A process that takes part in leader election.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) route: usize,
    pub(super) started: SystemTime,
    /// When the process logged that it became the leader.
    pub(super) elected: Option<SystemTime>,
    /// When the process ended.
    pub(super) until: SystemTime,
}

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: SystemTime,
    pub(super) route: usize,
    pub(super) request: Request,
}

impl Sent {
    fn acts(&self) -> bool {
        self.request.method != "GET" && !self.request.target.contains("/leases")
    }

    /// Returns whether the process may have sent this as the leader.
    fn is_of(&self, term: &Term) -> bool {
        let until = term.until + HEARD_LATE;
        self.route == term.route && term.elected.is_some_and(|elected| elected <= self.at) && self.at <= until
    }
}

/// Returns a violation for each request that changes an object and was not sent by the leader.
pub(super) fn check_leaders(terms: &[Term], sent: &[Sent]) -> Vec<String> {
    let acts = sent.iter().filter(|sent| sent.acts());
    let wrong = acts.filter(|sent| !terms.iter().any(|term| sent.is_of(term)));
    let describe = |sent: &Sent| {
        let sender = terms.iter().rfind(|term| term.route == sent.route && term.started <= sent.at);
        let Request { method, target } = &sent.request;
        let at = Timestamp::try_from(sent.at).unwrap();
        format!("not the leader: {method} {target} was sent at {at} by replica {}: {sender:?}", sent.route)
    };
    wrong.map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn term(route: usize, elected: Option<u64>, until: u64) -> Term {
        Term { route, started: at(0), elected: elected.map(at), until: at(until) }
    }

    fn violations(terms: &[Term], method: &str, target: &str, (second, route): (u64, usize)) -> usize {
        let request = Request { method: method.to_owned(), target: target.to_owned() };
        check_leaders(terms, &[Sent { at: at(second), route, request }]).len()
    }

    #[test]
    fn only_a_leader_may_act() {
        let terms = [term(0, Some(10), 20), term(1, None, 30)];
        let delete = |when| violations(&terms, "DELETE", "/api/v1/namespaces/n/pods/a", when);
        assert_eq!([delete((15, 0)), delete((15, 1))], [0, 1]);
        // Not before the election, and not after the end.
        assert_eq!([delete((9, 0)), delete((10, 0)), delete((20, 0)), delete((22, 0))], [1, 0, 0, 1]);
        assert_eq!(violations(&terms, "PUT", "/apis/magalix.com/v1/namespaces/n/configmonitors/a/status", (15, 1)), 1);
        assert_eq!(violations(&terms, "POST", "/apis/events.k8s.io/v1/namespaces/n/events", (15, 1)), 1);
        assert_eq!(violations(&terms, "GET", "/api/v1/namespaces/n/configmaps", (15, 1)), 0);
        assert_eq!(violations(&terms, "PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/a", (15, 1)), 0);
    }
}
