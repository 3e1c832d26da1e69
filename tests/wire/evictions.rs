//! Evictions, request by request: whatever the API server says of one, the pod is never deleted in another way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::api::{refusal, status};
use crate::script::Answer;
use crate::stage::{Stage, old, pod};

#[test]
fn a_pod_that_its_budget_holds_is_asked_to_go_again_and_never_deleted() {
    let stage = Stage::with(&[old("p1")]);
    stage.set("deletionPolicy", json!("Evict"));
    stage.set("gracePeriodSeconds", json!(7));
    let operator = stage.operator(&[]);
    let (world, eviction) = (Arc::clone(&stage.world), "post pods/p1/eviction");
    stage.server.always(eviction, move |_| {
        world.lock().unwrap().exchange(0, pod("p2", "2026-11-21T10:01:00Z"));
        Answer::json(201, &json!({}))
    });
    let mut held = status(429, "TooManyRequests");
    held["details"] = json!({ "causes": [{ "reason": "DisruptionBudget" }] });
    stage.server.on(eviction, [Answer::json(429, &held)]);
    stage.change();
    stage.is_over(&operator);
    let sent: Vec<_> = stage.server.requests().into_iter().filter(|request| request.words() == eviction).collect();
    for request in &sent {
        let options = &request.json()["deleteOptions"];
        assert_eq!(
            (&options["preconditions"]["uid"], &options["gracePeriodSeconds"]),
            (&json!("uid-of-p1"), &json!(7))
        );
    }
    assert_eq!((sent.len(), stage.deletions().len()), (2, 0));
}

/// Of three old pods of one owner an admission webhook does not let the first two go.
#[test]
fn pods_behind_two_that_resist_are_evicted() {
    let pods = ["p1", "p2", "p3"].map(|name| pod(name, &format!("2026-11-21T09:00:0{}Z", &name[1..])));
    let stage = Stage::with(&pods);
    stage.world.lock().unwrap().monitor["spec"]["deletionPolicy"] = json!("Evict");
    stage.server.always("post pods/p1/eviction", |_| refusal(500, "InternalError"));
    stage.server.always("post pods/p2/eviction", |_| refusal(500, "InternalError"));
    stage.server.always("post pods/p3/eviction", |_| Answer::json(201, &json!({})));
    let operator = stage.operator(&[]);
    stage.change();
    stage.server.wait_for("post pods", 5);
    let words: Vec<_> = stage.server.words().into_iter().filter(|words| words.starts_with("post pods")).collect();
    assert!(words.iter().any(|words| words.contains("p3")), "{words:?}\n{}", operator.log());
}

/// That a PodDisruptionBudget lets one go after the other is how it should be, and nothing to be warned of in each wave.
#[test]
fn waiting_for_the_pods_that_it_has_evicted_itself_is_no_warning() {
    let pods = ["p1", "p2", "p3"].map(|name| pod(name, &format!("2026-11-21T09:00:0{}Z", &name[1..])));
    let stage = Stage::with(&pods);
    stage.world.lock().unwrap().monitor["spec"]["deletionPolicy"] = json!("Evict");
    let allowed = Arc::new(Mutex::new(1));
    let (left, world) = (Arc::clone(&allowed), Arc::clone(&stage.world));
    stage.server.always("post pods", move |request| {
        let mut left = left.lock().unwrap();
        if *left == 0 {
            let mut status = status(429, "TooManyRequests");
            status["details"] = json!({ "causes": [{ "reason": "DisruptionBudget", "message": "needs 2" }] });
            return Answer::json(429, &status);
        }
        *left -= 1;
        let name = request.target.rsplit('/').nth(1).unwrap().to_owned();
        let mut world = world.lock().unwrap();
        let at = world.pods.iter().position(|pod| pod["metadata"]["name"] == *name).unwrap();
        let mut new = pod(&format!("{name}-new"), "2026-11-21T10:01:00Z");
        new["status"]["conditions"][0]["status"] = json!("False");
        world.exchange(at, new);
        Answer::json(201, &json!({}))
    });
    let _operator = stage.operator(&[]);
    stage.change();
    stage.server.wait_for("post pods", 2);
    for _ in 0..2 {
        // The new pod takes its time.
        std::thread::sleep(Duration::from_secs(7));
        *allowed.lock().unwrap() = 1;
        let mut world = stage.world.lock().unwrap();
        let at = world.pods.iter().position(|pod| pod["status"]["conditions"][0]["status"] == "False").unwrap();
        let mut ready = world.pods[at].clone();
        ready["status"]["conditions"][0]["status"] = json!("True");
        world.exchange(at, ready);
    }
    std::thread::sleep(Duration::from_secs(1));
    let events = stage.server.requests().into_iter().filter(|request| request.words() == "post events");
    let reasons: Vec<_> = events.map(|request| request.json()["reason"].as_str().unwrap().to_owned()).collect();
    assert!(!reasons.iter().any(|reason| reason == "EvictionBlocked"), "{reasons:?}");
}

/// One pass must not wait for one pod after the other.
#[test]
fn a_row_of_evictions_ends_when_the_server_is_busy() {
    let pods = ["p1", "p2", "p3"].map(|name| {
        let mut pod = pod(name, "2026-11-21T09:00:00Z");
        pod["status"]["conditions"][0]["status"] = json!("False");
        pod
    });
    let stage = Stage::with(&pods);
    stage.world.lock().unwrap().monitor["spec"]["deletionPolicy"] = json!("Evict");
    stage.server.always("post pods", |_| Answer::text(429, "Too many requests").header("retry-after", "30"));
    let operator = stage.operator(&[]);
    stage.change();
    operator.wait_for("pods not deleted", 1);
    std::thread::sleep(Duration::from_secs(1));
    let words: Vec<_> = stage.server.words().into_iter().filter(|words| words.starts_with("post pods")).collect();
    assert_eq!(words.len(), 1, "{words:?}");
}
