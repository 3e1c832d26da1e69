//! A restart, request by request: the status records each step first, and no other pod is deleted.

use std::time::Duration;

use serde_json::json;

use crate::api::{bookmark, list, proxy_error, refusal};
use crate::operator::Operator;
use crate::scenario::{PUT, Scenario, config_map, old, pod, restart_sources, sources};
use crate::script::{Answer, Chunk};

/// Returns the status of a restart of `p1` and `p2` that has begun.
fn begun() -> serde_json::Value {
    let at = "2026-11-21T09:59:00Z";
    json!({ "source": "ConfigMap/c", "sources": sources("c", "8", 0),
        "restart": { "sources": restart_sources(1), "observedAt": at, "since": at, "startedAt": at, "podsResourceVersion": "20",
            "podSelector": "app=web", "pods": 2, "remaining": 2, "lastProgressAt": at } })
}

#[test]
fn a_spec_that_changed_meanwhile_is_read_again_before_anything_is_deleted() {
    let scenario = Scenario::with(&[old("p1")]);
    let operator = scenario.operator(&[]);
    // No watch event announces the suspension.
    scenario.objects.lock().unwrap().edit("suspend", json!(true));
    let before = scenario.change();
    scenario.wait_for_reason("Suspended");
    operator.wait_for("modification detected", 1);
    assert_eq!(scenario.words_after(before)[..4], ["get configmaps/c", "list pods", PUT, "get configmonitors/m"]);
    assert!(scenario.deletions().is_empty());
    assert!(operator.lines("pod deleted").is_empty());
    assert_eq!(operator.lines("modification detected").len(), 1, "once, although it was read twice");
}

#[test]
fn a_restart_that_a_crash_has_cut_off_goes_on_with_the_same_pods() {
    // `p1` has been replaced, and `p3` got its labels only after the list of the restart.
    let scenario = Scenario::with(&[old("p2"), old("p3"), pod("p1-new", "2026-11-21T09:59:30Z")]);
    scenario.objects.lock().unwrap().monitor["status"] = begun();
    scenario.server.always("list pods at=20", |_| list("20", &[old("p1"), old("p2")]));
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    let operator = Operator::start(&scenario.server);
    scenario.wait_until_over(&operator);
    assert_eq!(scenario.deletions(), ["delete pods/p2"]);
    let lists = scenario.server.requests_for("list pods at=20");
    assert!(lists.iter().all(|request| request.query("resourceVersionMatch").as_deref() == Some("Exact")));
}

#[test]
fn an_owner_that_was_recreated_with_another_uid_has_no_desired_pods() {
    let scenario = Scenario::with(&[old("p1")]);
    let namesake = json!({ "metadata": { "name": "r", "uid": "another" }, "spec": { "replicas": 5 } });
    scenario.server.instead("get replicasets", move |_| Answer::json(200, &namesake));
    let operator = scenario.operator(&[]);
    scenario.change();
    scenario.wait_until_over(&operator);
}

#[test]
fn a_deletion_whose_outcome_is_not_known_keeps_its_part_of_the_budget() {
    let scenario = Scenario::with(&[old("p1"), old("p2")]);
    scenario.objects.lock().unwrap().monitor["spec"]["maxUnavailable"] = json!(1);
    let operator = scenario.operator(&[]);
    scenario.server.on("delete pods/p1", [proxy_error()]);
    scenario.change();
    scenario.wait_until_over(&operator);
    let mut words = scenario.server.words();
    words.retain(|words| words.starts_with("delete"));
    assert_eq!(words, ["delete pods/p1", "delete pods/p1", "delete pods/p2"], "the first may go yet");
}

#[test]
fn a_watch_on_pods_that_fails_leads_to_another_pass_and_is_opened_again_after_a_pause() {
    for answer in [
        Answer::HangUp,
        proxy_error(),
        Answer::short_watch(&[]),
        refusal(410, "Expired"),
        Answer::Watch(vec![Chunk::text(bookmark("21")), Chunk::Truncate]),
    ] {
        let scenario = Scenario::with(&[old("p1"), old("p2")]);
        let operator = scenario.operator(&[]);
        scenario.server.only("delete pods", || Answer::json(200, &json!({})));
        scenario.server.on("watch pods from 20", [answer]);
        let before = scenario.change();
        scenario.server.wait_for("watch pods", 2);
        let words = scenario.words_after(before);
        let watches: Vec<usize> = (0..words.len()).filter(|at| words[*at] == "watch pods from 20").collect();
        let between = &words[watches[0]..watches[1]];
        assert!(between.iter().any(|words| words == "list pods"), "{words:?}");
        let opened: Vec<_> = scenario.server.requests_for("watch pods").iter().map(|request| request.at).collect();
        assert!(opened[1] - opened[0] >= Duration::from_millis(100), "it may fail always");
        for name in ["p1", "p2"] {
            let mut objects = scenario.objects.lock().unwrap();
            let at = objects.pods.iter().position(|pod| pod["metadata"]["name"] == name).unwrap();
            objects.replace_pod(at, pod(&format!("{name}-new"), "2026-11-21T10:01:00Z"));
        }
        scenario.wait_until_over(&operator);
        assert!(!operator.log().contains("WARN"), "{}", operator.log());
    }
}

#[test]
fn why_pods_cannot_be_watched_is_logged_once_in_a_restart() {
    let busy = || Answer::text(429, "Too many requests");
    let answers: [fn() -> Answer; 3] = [|| refusal(403, "Forbidden"), busy, || refusal(500, "InternalError")];
    for answer in answers {
        let scenario = Scenario::with(&[old("p1")]);
        let operator = scenario.operator(&[]);
        scenario.server.only("delete pods", || Answer::json(200, &json!({})));
        scenario.server.on("watch pods from 20", [answer(), answer()]);
        scenario.change();
        scenario.server.wait_for("watch pods", 3);
        let log = operator.log();
        assert_eq!((log.matches("pod watch failed").count(), log.matches("WARN").count()), (1, 1), "{log}");
    }
}

#[test]
fn a_pod_that_is_gone_or_whose_name_belongs_to_another_one_is_left_alone() {
    for name in ["p1-new", "p1"] {
        let scenario = Scenario::with(&[old("p1")]);
        let operator = scenario.operator(&[]);
        let mut first = true;
        scenario.answer_instead("list pods", move |objects, request| {
            let answer = objects.list(request);
            if std::mem::take(&mut first) {
                let mut new = pod(name, "2026-11-21T10:01:00Z");
                new["metadata"]["uid"] = json!("another");
                objects.replace_pod(0, new);
            }
            answer
        });
        scenario.change();
        scenario.wait_until_over(&operator);
        assert_eq!(scenario.deletions(), ["delete pods/p1"]);
        assert!(operator.lines("pod deleted").is_empty() && operator.lines("pods not deleted").is_empty());
    }
}

#[test]
fn a_refused_status_is_reported_once_and_retried_with_backoff() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.server.forget(PUT).always(PUT, |_| refusal(422, "Invalid"));
    let operator = scenario.operator(&[]);
    scenario.change();
    scenario.server.wait_for(PUT, 3);
    std::thread::sleep(Duration::from_secs(2));
    assert!((3..=8).contains(&scenario.writes().len()), "{}", operator.log());
    assert!(scenario.deletions().is_empty());
    let events: Vec<_> =
        scenario.server.requests().into_iter().filter(|request| request.words() == "post events").collect();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].json()["reason"], "Refused");
}

#[test]
fn the_operators_own_pod_is_never_deleted() {
    let scenario = Scenario::with(&[old("p1"), old("p2")]);
    let operator = scenario.operator(&[("POD_UID", "uid-of-p1")]);
    scenario.change();
    scenario.wait_until_over(&operator);
    assert_eq!(scenario.deletions(), ["delete pods/p2"]);
    operator.wait_for("pod skipped", 1);
}
