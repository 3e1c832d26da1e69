//! Two replicas: the one without the Lease does nothing, and the one that loses the Lease exits.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::refusal;
use crate::held::Gate;
use crate::operator::Operator;
use crate::request::Request;
use crate::scenario::{PUT, Scenario, config_map, hash, old, sources};
use crate::script::{Answer, Server};
use crate::shutdown::SHUTDOWN;

const GET: &str = "get leases/configmonitor-operator";
const RENEW: &str = "put leases/configmonitor-operator";
const LOST: &str = "leadership lost: shutting down";
const REPLICA: [(&str, &str); 3] =
    [("CONFIGMONITOR_LEADER_ELECT", "true"), ("POD_NAMESPACE", "system"), ("POD_UID", "uid-of-me")];

/// The Lease on the server, if one exists.
#[derive(Clone, Default)]
struct Lease(Arc<Mutex<Option<Value>>>);

impl Lease {
    /// Returns a Lease that lasts `seconds` after each renewal.
    fn of(holder: &str, seconds: u64) -> Self {
        let metadata =
            json!({ "name": "configmonitor-operator", "namespace": "system", "uid": "u", "resourceVersion": "1" });
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 4 });
        Self(Arc::new(Mutex::new(Some(json!({ "metadata": metadata, "spec": spec })))))
    }

    fn serve(&self, server: &Server) {
        let lease = self.clone();
        server.always(GET, move |_| lease.read());
        let lease = self.clone();
        server.always(RENEW, move |request| lease.replace(request));
        let lease = self.clone();
        server.always("post leases", move |request| lease.create(request));
    }

    fn read(&self) -> Answer {
        self.0.lock().unwrap().as_ref().map_or_else(|| refusal(404, "NotFound"), |lease| Answer::json(200, lease))
    }

    fn replace(&self, request: &Request) -> Answer {
        let (mut lease, mut new) = (self.0.lock().unwrap(), request.json());
        let Some(old) = &*lease else { return refusal(404, "NotFound") };
        let version = &old["metadata"]["resourceVersion"];
        if new["metadata"]["resourceVersion"] != *version {
            return refusal(409, "Conflict");
        }
        new["metadata"]["resourceVersion"] = json!(format!("{}1", version.as_str().unwrap()));
        *lease = Some(new.clone());
        Answer::json(200, &new)
    }

    fn create(&self, request: &Request) -> Answer {
        let mut lease = self.0.lock().unwrap();
        if lease.is_some() {
            return refusal(409, "AlreadyExists");
        }
        let mut new = request.json();
        new["metadata"]["resourceVersion"] = json!("1");
        *lease = Some(new.clone());
        Answer::json(201, &new)
    }

    /// Writes the Lease for another process.
    fn take(&self, other: &str) {
        let mut lease = self.0.lock().unwrap();
        let lease = lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!("900");
        lease["spec"]["holderIdentity"] = json!(other);
    }

    fn spec(&self) -> Value {
        self.0.lock().unwrap().as_ref().unwrap()["spec"].clone()
    }
}

fn leader_metric(operator: &Operator) -> String {
    let (_, metrics) = operator.probe("/metrics");
    metrics.lines().find(|line| line.starts_with("configmonitor_leader ")).unwrap().to_owned()
}

/// Returns two pods whose content changed while there was no operator, and this Lease.
fn scenario(lease: &Lease) -> Scenario {
    let scenario = Scenario::with(&[old("p1"), old("p2")]);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    lease.serve(&scenario.server);
    scenario
}

#[test]
fn a_standby_only_watches_until_the_lease_of_the_other_expires() {
    let lease = Lease::of("other", 4);
    let scenario = scenario(&lease);
    let operator = Operator::start_with(&scenario.server, &REPLICA);
    assert_eq!(operator.wait_for("standing by", 1)["leader"], "other");
    operator.wait_for("synced", 1);
    assert_eq!(operator.probe("/readyz").0, 200);
    scenario.wait_until_over(&operator);
    let words = scenario.server.words();
    let taken = words.iter().position(|words| words == RENEW).expect("nothing is restarted before the Lease is taken");
    let is_watch =
        |words: &String| ["list config", "watch config", GET].iter().any(|allowed| words.starts_with(allowed));
    assert!(words[..taken].iter().all(is_watch), "{words:?}");
    assert!(words[..taken].iter().filter(|words| *words == GET).count() >= 3, "{words:?}");
    assert_eq!((operator.lines("standing by").len(), operator.lines("became leader").len()), (1, 1));
    assert_eq!(leader_metric(&operator), "configmonitor_leader 1");
    let spec = lease.spec();
    let holder = spec["holderIdentity"].as_str().unwrap();
    assert!(
        holder.ends_with("_uid-of-me") && spec["leaseTransitions"] == 5 && spec["leaseDurationSeconds"] == 15,
        "{spec}"
    );
    let requests = scenario.server.requests();
    let of_lease = requests.iter().filter(|request| request.target.contains("leases"));
    for request in of_lease {
        assert_eq!(
            request.target, "/apis/coordination.k8s.io/v1/namespaces/system/leases/configmonitor-operator",
            "{request:?}"
        );
    }
}

#[test]
fn a_standby_that_becomes_the_leader_goes_by_the_status_of_the_other() {
    let lease = Lease::of("other", 600);
    let scenario = scenario(&lease);
    let operator = Operator::start_with(&scenario.server, &REPLICA);
    operator.wait_for("synced", 1);
    {
        let mut objects = scenario.objects.lock().unwrap();
        objects.monitor["status"]["sources"] = sources("8", 1);
        objects.monitor["metadata"]["resourceVersion"] = json!("6");
    }
    lease.take("");
    scenario.wait_until("it has said what it found", |objects| objects.monitor["status"]["conditions"].is_array());
    assert!(operator.lines("modification detected").is_empty(), "{}", operator.log());
    assert_eq!(scenario.objects.lock().unwrap().monitor["status"]["sources"][0]["hash"], hash(1));
    assert_eq!(scenario.server.requests_for("delete").len(), 0);
}

#[test]
fn a_leader_whose_lease_is_taken_exits_and_sends_nothing_more() {
    let lease = Lease::default();
    let scenario = scenario(&lease);
    let mut operator = Operator::start_with(&scenario.server, &REPLICA);
    scenario.wait_until_over(&operator);
    assert_eq!(lease.spec()["leaseTransitions"], 1);
    let request = scenario.server.request("post leases");
    assert_eq!(request.json()["metadata"], json!({ "name": "configmonitor-operator" }));
    lease.take("other");
    assert_eq!(operator.end().code(), Some(1), "{}", operator.log());
    let lost = operator.wait_for(LOST, 1);
    assert_eq!((&lost["level"], &lost["error"]), (&json!("ERROR"), &json!("the Lease is held by \"other\"")));
    assert_eq!(scenario.server.words().last().unwrap(), GET);
    assert_eq!(lease.spec()["holderIdentity"], "other");
    assert_eq!(operator.lines("stopped").len(), 1);
}

#[test]
fn a_leader_that_cannot_renew_its_lease_exits_although_everything_else_works() {
    for answer in [|| Answer::Stall, || refusal(403, "Forbidden")] {
        let scenario = scenario(&Lease::default());
        let mut operator = Operator::start_with(&scenario.server, &REPLICA);
        scenario.wait_until_over(&operator);
        scenario.server.only(RENEW, answer);
        assert_eq!(operator.end().code(), Some(1), "{}", operator.log());
        assert_eq!(operator.wait_for(LOST, 1)["error"], "the Lease was not renewed for 10 s");
    }
}

#[test]
fn the_lease_is_released_when_everything_else_is_done() {
    let (lease, gate) = (Lease::of("", 1), Gate::default());
    let scenario = scenario(&lease);
    for pod in ["p1", "p2"] {
        scenario.server.on(&format!("delete pods/{pod}"), [Answer::json(200, &json!({})).after(&gate)]);
    }
    let mut operator = Operator::start_with(&scenario.server, &REPLICA);
    // The second pod is not deleted if the list of ConfigMaps announces something first.
    scenario.server.wait_for("delete", 1);
    operator.signal("TERM");
    operator.wait_for(SHUTDOWN, 1);
    // An early release would happen within this time.
    thread::sleep(Duration::from_millis(500));
    assert_ne!(lease.spec()["holderIdentity"], "");
    gate.open();
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
    assert_eq!(scenario.server.words().last().unwrap(), RENEW);
    let spec = lease.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!(operator.lines("leadership released").len(), 1);
}

/// Otherwise slow admission webhooks would cost the leadership.
#[test]
fn requests_that_hang_do_not_delay_the_renewal() {
    let scenario = scenario(&Lease::default());
    scenario.server.only("get configmaps/c", || Answer::Stall);
    let _operator =
        Operator::start_with(&scenario.server, &[&REPLICA[..], &[("CONFIGMONITOR_REQUEST_CONCURRENCY", "1")]].concat());
    scenario.server.wait_for("get configmaps/c", 1);
    let renewed = scenario.server.requests_for(RENEW).len();
    scenario.server.wait_for(RENEW, renewed + 2);
    assert_eq!(scenario.server.requests_for("get configmaps/c").len(), 1);
}

#[test]
fn a_request_about_the_lease_that_fails_is_logged_once_and_retried() {
    let forbidden = || refusal(403, "Forbidden");
    let (right, proxy) = ("waiting for the right to do so", "waiting for the proxy and the API server");
    let cases: [(_, _, fn() -> Answer, _); 5] = [
        (GET, Lease::default(), forbidden, right),
        ("post leases", Lease::default(), forbidden, right),
        (RENEW, Lease::of("", 1), forbidden, right),
        (GET, Lease::default(), || refusal(503, "ServiceUnavailable"), proxy),
        (GET, Lease::default(), || refusal(500, "InternalError"), "request failed; retrying"),
    ];
    for (words, lease, answer, message) in cases {
        let scenario = scenario(&lease);
        scenario.server.on(words, [answer(), answer(), answer()]);
        let operator = Operator::start_with(&scenario.server, &REPLICA);
        scenario.server.wait_for(words, 3);
        assert_eq!(scenario.server.requests_for(PUT).len(), 0);
        operator.wait_for("became leader", 1);
        let logged = operator.lines(message);
        assert_eq!((logged.len(), &logged[0]["namespace"]), (1, &json!("system")), "{words}: {logged:?}");
        assert_eq!(operator.lines("working again").len(), 1, "{words}");
    }
}

/// The creation is answered with 404, too.
#[test]
fn the_creation_of_a_lease_in_a_missing_namespace_is_retried_after_a_delay() {
    let scenario = scenario(&Lease::default());
    scenario.server.on("post leases", [refusal(404, "NotFound"), refusal(404, "NotFound")]);
    let operator = Operator::start_with(&scenario.server, &REPLICA);
    operator.wait_for("became leader", 1);
    let created: Vec<Instant> = scenario.server.requests_for("post leases").iter().map(|request| request.at).collect();
    assert_eq!(created.len(), 3);
    assert!(created.windows(2).all(|pair| pair[1] - pair[0] > Duration::from_secs(1)), "{created:?}");
}
