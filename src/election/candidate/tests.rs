use super::*;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

/// A Lease as the API server gives it, in this version.
fn lease(holder: &str, renewed: &str, version: &str) -> Lease {
    let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "a", "renewTime": renewed,
        "leaseTransitions": 4 });
    lease_of(&spec, version)
}

fn lease_of(spec: &Value, version: &str) -> Lease {
    let metadata = json!({ "name": NAME, "uid": "u", "resourceVersion": version, "labels": { "of": "somebody" } });
    let kind = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec });
    serde_json::from_value(kind).unwrap()
}

fn time() -> ServerTime {
    ServerTime::from_second(100)
}

/// A candidate and its clock. The API server's clock stands.
struct Scene {
    candidate: Candidate,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { candidate: Candidate::new("me".to_owned()), now: Instant::now() }
    }

    /// One that is the leader.
    fn leading() -> Self {
        let mut scene = Self::new();
        let Next::Send(Request::Replace(lease)) = scene.hear(Answer::Read(lease("", "0", "1"))) else { panic!("free") };
        assert_eq!(scene.hear(Answer::Replaced(lease)), Next::Wait);
        assert!(scene.candidate.is_leader());
        scene
    }

    /// An answer comes as soon as its request is sent.
    fn hear(&mut self, answer: Answer) -> Next {
        self.candidate.hear(answer, self.now, self.now, time())
    }

    fn passes(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    fn reads(&mut self, holder: &str, renewed: &str) -> Next {
        self.hear(Answer::Read(lease(holder, renewed, "1")))
    }
}

/// The Lease that a request writes.
fn written(next: &Next) -> Value {
    let Next::Send(Request::Replace(lease)) = next else { panic!("{next:?}") };
    serde_json::to_value(lease).unwrap()
}

#[test]
fn a_lease_of_another_is_taken_once_it_has_not_changed_for_its_duration() {
    let mut scene = Scene::new();
    assert_eq!(scene.reads("other", "1"), Next::Wait);
    assert_eq!(scene.candidate.awaited(), Some("other"));
    // Whatever time it names: clocks are not compared.
    assert_eq!(scene.passes(14 * SECOND).reads("other", "1970-01-01"), Next::Wait, "it was renewed");
    assert_eq!(scene.passes(14 * SECOND).reads("other", "1970-01-01"), Next::Wait);
    let taken = written(&scene.passes(SECOND).reads("other", "1970-01-01"));
    let spec = &taken["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&json!("me"), &json!(5)));
    assert_eq!((&spec["leaseDurationSeconds"], &spec["acquireTime"]), (&json!(15), &spec["renewTime"]));
    assert_eq!(spec["renewTime"], "1970-01-01T00:01:40.000000Z");
    assert_eq!(
        taken["metadata"],
        json!({ "name": NAME, "uid": "u", "resourceVersion": "1", "labels": { "of": "somebody" } })
    );
    assert!(!scene.candidate.is_leader(), "it is not written yet");
}

#[test]
fn an_attempt_that_fails_does_not_renew_the_lease_of_another() {
    let mut scene = Scene::new();
    scene.reads("other", "1");
    for _ in 0..7 {
        assert_eq!(scene.passes(2 * SECOND).hear(Answer::Failed), Next::Wait);
    }
    assert!(matches!(scene.passes(SECOND).reads("other", "1"), Next::Send(_)));
}

#[test]
fn a_write_that_does_not_renew_it_does_not_count_but_its_version_does() {
    let mut scene = Scene::new();
    scene.reads("other", "1");
    let labelled = |version| Answer::Read(lease("other", "1", version));
    assert_eq!(scene.passes(10 * SECOND).hear(labelled("2")), Next::Wait);
    let taken = written(&scene.passes(5 * SECOND).hear(labelled("3")));
    assert_eq!(taken["metadata"]["resourceVersion"], "3");
}

#[test]
fn the_lease_says_how_long_it_lasts() {
    for (duration, seconds) in [(json!(40), 40), (json!(null), 15), (json!(0), 0)] {
        let mut scene = Scene::new();
        let spec = json!({ "holderIdentity": "other", "leaseDurationSeconds": duration });
        let mut read = |after| scene.passes(after).hear(Answer::Read(lease_of(&spec, "1")));
        let first = read(Duration::ZERO);
        if seconds > 0 {
            assert_eq!(first, Next::Wait);
            assert_eq!(read((seconds - 1) * SECOND), Next::Wait, "{duration}");
        }
        assert!(matches!(read(SECOND), Next::Send(_)), "{duration}");
    }
}

#[test]
fn a_lease_of_nobody_is_taken_at_once() {
    for spec in [json!({}), json!({ "holderIdentity": "" }), json!({ "holderIdentity": null })] {
        let mut scene = Scene::new();
        let taken = written(&scene.hear(Answer::Read(lease_of(&spec, "1"))));
        assert_eq!(taken["spec"]["leaseTransitions"], 1, "{spec}");
        assert_eq!(scene.candidate.awaited(), None);
    }
}

#[test]
fn a_container_that_is_started_again_goes_on_with_its_lease() {
    let taken = written(&Scene::new().reads("me", "1"));
    assert_eq!((&taken["spec"]["leaseTransitions"], &taken["spec"]["acquireTime"]), (&json!(4), &json!("a")));
}

#[test]
fn a_lease_that_does_not_exist_is_created_and_read_before_it_counts() {
    let mut scene = Scene::new();
    assert_eq!(scene.candidate.request(time()), Request::Read);
    let Next::Send(Request::Create(new)) = scene.hear(Answer::Missing) else { panic!("it is missing") };
    let new = serde_json::to_value(new).unwrap();
    assert_eq!((&new["apiVersion"], &new["kind"]), (&json!("coordination.k8s.io/v1"), &json!("Lease")));
    assert_eq!((&new["metadata"], &new["spec"]["holderIdentity"]), (&json!({ "name": NAME }), &json!("me")));
    assert_eq!(scene.hear(Answer::Created), Next::Send(Request::Read));
    assert!(!scene.candidate.is_leader());
}

#[test]
fn of_two_that_take_it_one_has_it() {
    let mut scene = Scene::new();
    assert!(matches!(scene.reads("", "1"), Next::Send(Request::Replace(_))));
    assert_eq!(scene.hear(Answer::Conflict), Next::Wait);
    assert_eq!(scene.candidate.request(time()), Request::Read);
    assert_eq!(scene.reads("other", "2"), Next::Wait);
    assert!(!scene.candidate.is_leader());
}

#[test]
fn every_renewal_shows_although_the_clock_of_the_server_stands() {
    let mut scene = Scene::leading();
    let mut times = Vec::new();
    for _ in 0..3 {
        let Request::Replace(lease) = scene.passes(2 * SECOND).candidate.request(time()) else { panic!("it leads") };
        times.push(lease.spec.renew_time.clone());
        assert_eq!((lease.spec.lease_transitions, scene.hear(Answer::Replaced(lease))), (Some(5), Next::Wait));
    }
    times.dedup();
    assert_eq!(times.len(), 3, "{times:?}");
}

#[test]
fn a_leader_that_does_not_renew_it_for_ten_seconds_is_none() {
    for answers in [[|| Answer::Failed, || Answer::Failed], [|| Answer::Conflict, || Answer::Conflict]] {
        let mut scene = Scene::leading();
        assert_eq!(scene.candidate.deadline(), Some(scene.now + 10 * SECOND));
        scene.passes(9 * SECOND).hear(answers[0]());
        assert_eq!(scene.hear(answers[1]()), Next::Wait);
        assert_eq!(scene.passes(SECOND).hear(answers[1]()), Next::Lost(Loss::NotRenewed));
    }
}

/// Also one that was stopped meanwhile: the Lease counts from when the request was sent.
#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    for mut scene in [Scene::leading(), Scene::new()] {
        let sent = scene.now;
        let now = scene.passes(10 * SECOND).now;
        let next = scene.candidate.hear(Answer::Replaced(lease("me", "1", "2")), sent, now, time());
        assert_eq!(next, Next::Lost(Loss::NotRenewed));
    }
}

#[test]
fn a_leader_whose_lease_is_taken_is_none() {
    let mut scene = Scene::leading();
    assert_eq!(scene.hear(Answer::Conflict), Next::Send(Request::Read));
    assert_eq!(scene.reads("other", "1"), Next::Lost(Loss::Taken("other".to_owned())));
}

#[test]
fn a_leader_whose_lease_somebody_else_has_written_or_deleted_goes_on() {
    let mut scene = Scene::leading();
    assert_eq!(scene.hear(Answer::Missing), Next::Send(Request::Read));
    assert_eq!(written(&scene.reads("me", "1"))["spec"]["acquireTime"], "a");
    assert_eq!(written(&scene.reads("", "1"))["spec"]["leaseTransitions"], 5);
    assert_eq!(scene.hear(Answer::Conflict), Next::Wait, "also after it was read");
    assert_eq!(scene.candidate.request(time()), Request::Read);
    assert!(matches!(scene.hear(Answer::Missing), Next::Send(Request::Create(_))));
}

#[test]
fn it_is_released_by_its_holder_alone() {
    let mut scene = Scene::leading();
    assert_eq!(scene.candidate.release(lease("other", "1", "2"), time()), None);
    let released = scene.candidate.release(lease("me", "1", "2"), time()).expect("its own");
    let spec = serde_json::to_value(&released).unwrap()["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!((&spec["leaseTransitions"], released.metadata.resource_version.as_str()), (&json!(4), "2"));
}
