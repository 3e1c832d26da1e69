use super::*;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a Lease of this version from the API server.
fn lease(holder: &str, renewed: &str, version: &str) -> Lease {
    let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "a", "renewTime": renewed,
        "leaseTransitions": 4 });
    lease_of(&spec, version)
}

fn lease_of(spec: &Value, version: &str) -> Lease {
    let metadata = json!({ "name": NAME, "uid": "u", "resourceVersion": version, "labels": { "of": "another" } });
    let kind = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec });
    serde_json::from_value(kind).unwrap()
}

fn time() -> ServerTime {
    ServerTime::from_second(100)
}

/// A candidate and its clock. The API server's clock stands still.
struct TimedCandidate {
    candidate: Candidate,
    now: Instant,
}

impl TimedCandidate {
    fn new() -> Self {
        Self { candidate: Candidate::new("me".to_owned()), now: Instant::now() }
    }

    /// Returns a candidate that is the leader.
    fn leading() -> Self {
        let mut timed = Self::new();
        let Next::Send(LeaseRequest::Replace(lease)) = timed.handle(LeaseAnswer::Read(lease("", "0", "1"))) else {
            panic!("free")
        };
        assert_eq!(timed.handle(LeaseAnswer::Written(lease)), Next::Wait);
        assert!(timed.candidate.is_leader());
        timed
    }

    /// Handles the outcome of a request that was sent just now.
    fn handle(&mut self, outcome: LeaseAnswer) -> Next {
        self.candidate.handle(outcome, self.now, self.now, time())
    }

    fn passes(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    fn reads(&mut self, holder: &str, renewed: &str) -> Next {
        self.handle(LeaseAnswer::Read(lease(holder, renewed, "1")))
    }
}

/// Returns the Lease in a request.
fn written(next: &Next) -> Value {
    let Next::Send(LeaseRequest::Replace(lease)) = next else { panic!("{next:?}") };
    serde_json::to_value(lease).unwrap()
}

#[test]
fn a_lease_of_another_process_is_taken_once_it_has_not_changed_for_its_duration() {
    let mut timed = TimedCandidate::new();
    assert_eq!(timed.reads("other", "1"), Next::Wait);
    assert_eq!(timed.candidate.awaited(), Some("other"));
    // The `renewTime` does not matter: clocks are not compared.
    assert_eq!(timed.passes(14 * SECOND).reads("other", "1970-01-01"), Next::Wait, "it was renewed");
    assert_eq!(timed.passes(14 * SECOND).reads("other", "1970-01-01"), Next::Wait);
    let taken = written(&timed.passes(SECOND).reads("other", "1970-01-01"));
    let spec = &taken["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("me"), &json!(5)));
    assert_eq!((&spec["leaseDurationSeconds"], &spec["acquireTime"]), (&json!(15), &spec["renewTime"]));
    assert_eq!(spec["renewTime"], "1970-01-01T00:01:40.000000Z");
    assert_eq!(
        taken["metadata"],
        json!({ "name": NAME, "uid": "u", "resourceVersion": "1", "labels": { "of": "another" } })
    );
    assert!(!timed.candidate.is_leader(), "it is not written yet");
}

#[test]
fn an_attempt_that_fails_does_not_extend_the_lease_of_another_process() {
    let mut timed = TimedCandidate::new();
    timed.reads("other", "1");
    for _ in 0..7 {
        assert_eq!(timed.passes(2 * SECOND).handle(LeaseAnswer::Failed), Next::Wait);
    }
    assert!(matches!(timed.passes(SECOND).reads("other", "1"), Next::Send(_)));
}

#[test]
fn a_write_that_leaves_the_spec_unchanged_renews_nothing_but_its_version_counts() {
    let mut timed = TimedCandidate::new();
    timed.reads("other", "1");
    let labelled = |version| LeaseAnswer::Read(lease("other", "1", version));
    assert_eq!(timed.passes(10 * SECOND).handle(labelled("2")), Next::Wait);
    let taken = written(&timed.passes(5 * SECOND).handle(labelled("3")));
    assert_eq!(taken["metadata"]["resourceVersion"], "3");
}

#[test]
fn a_lease_lasts_for_the_duration_that_it_names() {
    for (duration, seconds) in [(json!(40), 40), (json!(null), 15), (json!(0), 0)] {
        let mut timed = TimedCandidate::new();
        let spec = json!({ "holderIdentity": "other", "leaseDurationSeconds": duration });
        let mut read = |after| timed.passes(after).handle(LeaseAnswer::Read(lease_of(&spec, "1")));
        let first = read(Duration::ZERO);
        if seconds > 0 {
            assert_eq!(first, Next::Wait);
            assert_eq!(read((seconds - 1) * SECOND), Next::Wait, "{duration}");
        }
        assert!(matches!(read(SECOND), Next::Send(_)), "{duration}");
    }
}

#[test]
fn a_free_lease_is_taken_at_once() {
    for spec in [json!({}), json!({ "holderIdentity": "" }), json!({ "holderIdentity": null })] {
        let mut timed = TimedCandidate::new();
        let taken = written(&timed.handle(LeaseAnswer::Read(lease_of(&spec, "1"))));
        assert_eq!(taken["spec"]["leaseTransitions"], 1, "{spec}");
        assert_eq!(timed.candidate.awaited(), None);
    }
}

#[test]
fn a_restarted_container_renews_its_own_lease() {
    let taken = written(&TimedCandidate::new().reads("me", "1"));
    assert_eq!((&taken["spec"]["leaseTransitions"], &taken["spec"]["acquireTime"]), (&json!(4), &json!("a")));
}

#[test]
fn a_lease_that_does_not_exist_is_created() {
    let mut timed = TimedCandidate::new();
    assert_eq!(timed.candidate.request(time()), LeaseRequest::Read);
    let Next::Send(LeaseRequest::Create(lease)) = timed.handle(LeaseAnswer::Missing) else { panic!("it is missing") };
    let (new, now) = (serde_json::to_value(&lease).unwrap(), json!(time().to_micro_time()));
    assert_eq!((&new["apiVersion"], &new["kind"]), (&json!("coordination.k8s.io/v1"), &json!("Lease")));
    assert_eq!((&new["metadata"], &new["spec"]["holderIdentity"]), (&json!({ "name": NAME }), &json!("me")));
    assert_eq!((&new["spec"]["acquireTime"], &new["spec"]["renewTime"]), (&now, &now));
    assert!(!timed.candidate.is_leader());
    assert_eq!(timed.handle(LeaseAnswer::Written(lease)), Next::Wait);
    assert!(timed.candidate.is_leader());
}

#[test]
fn of_two_candidates_that_take_the_lease_one_gets_it() {
    let mut timed = TimedCandidate::new();
    assert!(matches!(timed.reads("", "1"), Next::Send(LeaseRequest::Replace(_))));
    assert_eq!(timed.handle(LeaseAnswer::Conflict), Next::Wait);
    assert_eq!(timed.candidate.request(time()), LeaseRequest::Read);
    assert_eq!(timed.reads("other", "2"), Next::Wait);
    assert!(!timed.candidate.is_leader());
}

#[test]
fn every_renewal_has_a_new_time_although_the_clock_of_the_server_stands_still() {
    let mut timed = TimedCandidate::leading();
    let mut times = Vec::new();
    for _ in 0..3 {
        let LeaseRequest::Replace(lease) = timed.passes(2 * SECOND).candidate.request(time()) else {
            panic!("it leads")
        };
        times.push(lease.spec["renewTime"].clone());
        assert_eq!(lease.spec["leaseTransitions"], 5);
        assert_eq!(timed.handle(LeaseAnswer::Written(lease)), Next::Wait);
    }
    times.dedup();
    assert_eq!(times.len(), 3, "{times:?}");
}

#[test]
fn a_leader_that_does_not_renew_the_lease_for_ten_seconds_is_the_leader_no_more() {
    for outcomes in
        [[|| LeaseAnswer::Failed, || LeaseAnswer::Failed], [|| LeaseAnswer::Conflict, || LeaseAnswer::Conflict]]
    {
        let mut timed = TimedCandidate::leading();
        assert_eq!(timed.candidate.deadline(), Some(timed.now + 10 * SECOND));
        timed.passes(9 * SECOND).handle(outcomes[0]());
        assert_eq!(timed.handle(outcomes[1]()), Next::Wait);
        assert_eq!(timed.passes(SECOND).handle(outcomes[1]()), Next::Lost(Loss::NotRenewed));
    }
}

/// Also after the process was suspended: the renewal counts from when its request was sent.
#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    for mut timed in [TimedCandidate::leading(), TimedCandidate::new()] {
        let sent = timed.now;
        let now = timed.passes(10 * SECOND).now;
        let next = timed.candidate.handle(LeaseAnswer::Written(lease("me", "1", "2")), sent, now, time());
        assert_eq!(next, Next::Lost(Loss::NotRenewed));
    }
}

#[test]
fn a_leader_whose_lease_is_taken_is_the_leader_no_more() {
    let mut timed = TimedCandidate::leading();
    assert_eq!(timed.handle(LeaseAnswer::Conflict), Next::Send(LeaseRequest::Read));
    assert_eq!(timed.reads("other", "1"), Next::Lost(Loss::Taken("other".to_owned())));
}

#[test]
fn a_leader_whose_lease_another_client_has_written_or_deleted_goes_on() {
    let mut timed = TimedCandidate::leading();
    assert_eq!(timed.handle(LeaseAnswer::Missing), Next::Send(LeaseRequest::Read));
    assert_eq!(written(&timed.reads("me", "1"))["spec"]["acquireTime"], "a");
    assert_eq!(written(&timed.reads("", "1"))["spec"]["leaseTransitions"], 5);
    assert_eq!(timed.handle(LeaseAnswer::Conflict), Next::Wait, "also after it was read");
    assert_eq!(timed.candidate.request(time()), LeaseRequest::Read);
    assert!(matches!(timed.handle(LeaseAnswer::Missing), Next::Send(LeaseRequest::Create(_))));
}

#[test]
fn only_the_holder_releases_the_lease() {
    let mut timed = TimedCandidate::leading();
    assert_eq!(timed.candidate.release(lease("other", "1", "2"), time()), None);
    let released = timed.candidate.release(lease("me", "1", "2"), time()).expect("its own");
    let released = serde_json::to_value(released).unwrap();
    let spec = &released["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!((&spec["leaseTransitions"], &released["metadata"]["resourceVersion"]), (&json!(4), &json!("2")));
}
