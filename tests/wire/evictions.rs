//! Evictions, request by request: whatever the answer, the pod is never deleted in another way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::api::{refusal, status};
use crate::scenario::{Scenario, old, pod};
use crate::script::Answer;

#[test]
fn a_pod_that_its_budget_holds_is_evicted_later_and_never_deleted() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.set("deletionPolicy", json!("Evict"));
    scenario.set("gracePeriodSeconds", json!(7));
    let operator = scenario.operator(&[]);
    let (objects, eviction) = (Arc::clone(&scenario.objects), "post pods/p1/eviction");
    scenario.server.always(eviction, move |_| {
        objects.lock().unwrap().replace_pod(0, pod("p2", "2026-11-21T10:01:00Z"));
        Answer::json(201, &json!({}))
    });
    let mut held = status(429, "TooManyRequests");
    held["details"] = json!({ "causes": [{ "reason": "DisruptionBudget" }] });
    scenario.server.on(eviction, [Answer::json(429, &held)]);
    scenario.change();
    scenario.wait_until_over(&operator);
    let sent: Vec<_> = scenario.server.requests().into_iter().filter(|request| request.words() == eviction).collect();
    for request in &sent {
        let options = &request.json()["deleteOptions"];
        assert_eq!(
            (&options["preconditions"]["uid"], &options["gracePeriodSeconds"]),
            (&json!("uid-of-p1"), &json!(7))
        );
    }
    assert_eq!((sent.len(), scenario.deletions().len()), (2, 0));
}

/// An admission webhook refuses the eviction of two of three old pods of one owner.
#[test]
fn pods_after_two_refused_evictions_are_evicted() {
    let pods = ["p1", "p2", "p3"].map(|name| pod(name, &format!("2026-11-21T09:00:0{}Z", &name[1..])));
    let scenario = Scenario::with(&pods);
    scenario.objects.lock().unwrap().monitor["spec"]["deletionPolicy"] = json!("Evict");
    scenario.server.always("post pods/p1/eviction", |_| refusal(500, "InternalError"));
    scenario.server.always("post pods/p2/eviction", |_| refusal(500, "InternalError"));
    scenario.server.always("post pods/p3/eviction", |_| Answer::json(201, &json!({})));
    let operator = scenario.operator(&[]);
    scenario.change();
    scenario.server.wait_for("post pods", 5);
    let words: Vec<_> = scenario.server.words().into_iter().filter(|words| words.starts_with("post pods")).collect();
    assert!(words.iter().any(|words| words.contains("p3")), "{words:?}\n{}", operator.log());
}

/// A PodDisruptionBudget that allows one pod after the other is normal: no warning in each wave.
#[test]
fn waiting_for_a_budget_that_earlier_evictions_use_is_not_a_warning() {
    let pods = ["p1", "p2", "p3"].map(|name| pod(name, &format!("2026-11-21T09:00:0{}Z", &name[1..])));
    let scenario = Scenario::with(&pods);
    scenario.objects.lock().unwrap().monitor["spec"]["deletionPolicy"] = json!("Evict");
    let allowed = Arc::new(Mutex::new(1));
    let (left, objects) = (Arc::clone(&allowed), Arc::clone(&scenario.objects));
    scenario.server.always("post pods", move |request| {
        let mut left = left.lock().unwrap();
        if *left == 0 {
            let mut status = status(429, "TooManyRequests");
            status["details"] = json!({ "causes": [{ "reason": "DisruptionBudget", "message": "needs 2" }] });
            return Answer::json(429, &status);
        }
        *left -= 1;
        let name = request.target.rsplit('/').nth(1).unwrap().to_owned();
        let mut objects = objects.lock().unwrap();
        let at = objects.pods.iter().position(|pod| pod["metadata"]["name"] == *name).unwrap();
        let mut new = pod(&format!("{name}-new"), "2026-11-21T10:01:00Z");
        new["status"]["conditions"][0]["status"] = json!("False");
        objects.replace_pod(at, new);
        Answer::json(201, &json!({}))
    });
    let _operator = scenario.operator(&[]);
    scenario.change();
    scenario.server.wait_for("post pods", 2);
    for _ in 0..2 {
        // The new pod becomes ready late.
        std::thread::sleep(Duration::from_secs(7));
        *allowed.lock().unwrap() = 1;
        let mut objects = scenario.objects.lock().unwrap();
        let at = objects.pods.iter().position(|pod| pod["status"]["conditions"][0]["status"] == "False").unwrap();
        let mut ready = objects.pods[at].clone();
        ready["status"]["conditions"][0]["status"] = json!("True");
        objects.replace_pod(at, ready);
    }
    std::thread::sleep(Duration::from_secs(1));
    let events = scenario.server.requests().into_iter().filter(|request| request.words() == "post events");
    let reasons: Vec<_> = events.map(|request| request.json()["reason"].as_str().unwrap().to_owned()).collect();
    assert!(!reasons.iter().any(|reason| reason == "EvictionBlocked"), "{reasons:?}");
}

/// A pass must not wait for one pod after the other.
#[test]
fn a_row_of_evictions_ends_when_the_server_is_busy() {
    let pods = ["p1", "p2", "p3"].map(|name| {
        let mut pod = pod(name, "2026-11-21T09:00:00Z");
        pod["status"]["conditions"][0]["status"] = json!("False");
        pod
    });
    let scenario = Scenario::with(&pods);
    scenario.objects.lock().unwrap().monitor["spec"]["deletionPolicy"] = json!("Evict");
    scenario.server.always("post pods", |_| Answer::text(429, "Too many requests").header("retry-after", "30"));
    let operator = scenario.operator(&[]);
    scenario.change();
    operator.wait_for("pods not deleted", 1);
    std::thread::sleep(Duration::from_secs(1));
    let words: Vec<_> = scenario.server.words().into_iter().filter(|words| words.starts_with("post pods")).collect();
    assert_eq!(words.len(), 1, "{words:?}");
}
