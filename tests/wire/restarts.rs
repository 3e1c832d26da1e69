//! A restart, request by request: what is about to happen is in the status first, and nothing else is ever deleted.

use std::time::Duration;

use serde_json::json;

use crate::api::{bookmark, list, proxy_error, refusal};
use crate::operator::Operator;
use crate::script::{Answer, Chunk};
use crate::stage::{PUT, Stage, config_map, old, pod, sources, wanted};

/// A restart of `p1` and `p2` that has begun, in a status.
fn begun() -> serde_json::Value {
    let at = "2026-11-21T09:59:00Z";
    json!({ "source": "ConfigMap/c", "sources": sources("c", "8", 0),
        "restart": { "sources": wanted(1), "observedAt": at, "since": at, "startedAt": at, "podsResourceVersion": "20",
            "podSelector": "app=web", "pods": 2, "remaining": 2, "lastProgressAt": at } })
}

#[test]
fn a_spec_that_changed_meanwhile_is_read_again_before_anything_is_deleted() {
    let stage = Stage::with(&[old("p1")]);
    let operator = stage.operator(&[]);
    // The watch does not tell that somebody has suspended it.
    stage.world.lock().unwrap().edit("suspend", json!(true));
    let before = stage.change();
    stage.wait_for_reason("Suspended");
    operator.wait_for("modification detected", 1);
    assert_eq!(stage.words_after(before)[..4], ["get configmaps/c", "list pods", PUT, "get configmonitors/m"]);
    assert!(stage.deletions().is_empty());
    assert!(operator.lines("pod deleted").is_empty());
    assert_eq!(operator.lines("modification detected").len(), 1, "once, although it was read twice");
}

#[test]
fn a_restart_that_a_crash_has_cut_off_goes_on_with_the_same_pods() {
    // p1 is replaced already, and p3 got its labels only after the list that the restart is about.
    let stage = Stage::with(&[old("p2"), old("p3"), pod("p1-new", "2026-11-21T09:59:30Z")]);
    stage.world.lock().unwrap().monitor["status"] = begun();
    stage.server.always("list pods at=20", |_| list("20", &[old("p1"), old("p2")]));
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    let operator = Operator::start(&stage.server);
    stage.is_over(&operator);
    assert_eq!(stage.deletions(), ["delete pods/p2"]);
    let lists = stage.server.requests_for("list pods at=20");
    assert!(lists.iter().all(|request| request.query("resourceVersionMatch").as_deref() == Some("Exact")));
}

#[test]
fn an_owner_that_a_namesake_has_taken_the_place_of_wants_no_pods_any_more() {
    let stage = Stage::with(&[old("p1")]);
    let namesake = json!({ "metadata": { "name": "r", "uid": "another" }, "spec": { "replicas": 5 } });
    stage.server.instead("get replicasets", move |_| Answer::json(200, &namesake));
    let operator = stage.operator(&[]);
    stage.change();
    stage.is_over(&operator);
}

#[test]
fn a_deletion_whose_outcome_is_not_known_keeps_its_part_of_the_budget() {
    let stage = Stage::with(&[old("p1"), old("p2")]);
    stage.world.lock().unwrap().monitor["spec"]["maxUnavailable"] = json!(1);
    let operator = stage.operator(&[]);
    stage.server.on("delete pods/p1", [proxy_error()]);
    stage.change();
    stage.is_over(&operator);
    let mut words = stage.server.words();
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
        let stage = Stage::with(&[old("p1"), old("p2")]);
        let operator = stage.operator(&[]);
        stage.server.only("delete pods", || Answer::json(200, &json!({})));
        stage.server.on("watch pods from 20", [answer]);
        let before = stage.change();
        stage.server.wait_for("watch pods", 2);
        let words = stage.words_after(before);
        let watches: Vec<usize> = (0..words.len()).filter(|at| words[*at] == "watch pods from 20").collect();
        let between = &words[watches[0]..watches[1]];
        assert!(between.iter().any(|words| words == "list pods"), "{words:?}");
        let opened: Vec<_> = stage.server.requests_for("watch pods").iter().map(|request| request.at).collect();
        assert!(opened[1] - opened[0] >= Duration::from_millis(100), "it may fail always");
        for name in ["p1", "p2"] {
            let mut world = stage.world.lock().unwrap();
            let at = world.pods.iter().position(|pod| pod["metadata"]["name"] == name).unwrap();
            world.exchange(at, pod(&format!("{name}-new"), "2026-11-21T10:01:00Z"));
        }
        stage.is_over(&operator);
        assert!(!operator.log().contains("WARN"), "{}", operator.log());
    }
}

#[test]
fn why_pods_cannot_be_watched_is_told_once_in_a_restart() {
    let busy = || Answer::text(429, "Too many requests");
    let answers: [fn() -> Answer; 3] = [|| refusal(403, "Forbidden"), busy, || refusal(500, "InternalError")];
    for answer in answers {
        let stage = Stage::with(&[old("p1")]);
        let operator = stage.operator(&[]);
        stage.server.only("delete pods", || Answer::json(200, &json!({})));
        stage.server.on("watch pods from 20", [answer(), answer()]);
        stage.change();
        stage.server.wait_for("watch pods", 3);
        let log = operator.log();
        assert_eq!((log.matches("pod watch failed").count(), log.matches("WARN").count()), (1, 1), "{log}");
    }
}

#[test]
fn a_pod_that_is_gone_or_whose_name_belongs_to_another_one_is_left_alone() {
    for name in ["p1-new", "p1"] {
        let stage = Stage::with(&[old("p1")]);
        let operator = stage.operator(&[]);
        let mut first = true;
        stage.play_instead("list pods", move |world, request| {
            let answer = world.list(request);
            if std::mem::take(&mut first) {
                let mut new = pod(name, "2026-11-21T10:01:00Z");
                new["metadata"]["uid"] = json!("another");
                world.exchange(0, new);
            }
            answer
        });
        stage.change();
        stage.is_over(&operator);
        assert_eq!(stage.deletions(), ["delete pods/p1"]);
        assert!(operator.lines("pod deleted").is_empty() && operator.lines("pods not deleted").is_empty());
    }
}

#[test]
fn a_status_that_the_server_refuses_is_told_once_and_tried_again_with_patience() {
    let stage = Stage::with(&[old("p1")]);
    stage.server.forget(PUT).always(PUT, |_| refusal(422, "Invalid"));
    let operator = stage.operator(&[]);
    stage.change();
    stage.server.wait_for(PUT, 3);
    std::thread::sleep(Duration::from_secs(2));
    assert!((3..=8).contains(&stage.writes().len()), "{}", operator.log());
    assert!(stage.deletions().is_empty());
    let events: Vec<_> =
        stage.server.requests().into_iter().filter(|request| request.words() == "post events").collect();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].json()["reason"], "Refused");
}

#[test]
fn the_operators_own_pod_is_never_deleted() {
    let stage = Stage::with(&[old("p1"), old("p2")]);
    let operator = stage.operator(&[("POD_UID", "uid-of-p1")]);
    stage.change();
    stage.is_over(&operator);
    assert_eq!(stage.deletions(), ["delete pods/p2"]);
    operator.wait_for("pod skipped", 1);
}
