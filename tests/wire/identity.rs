//! Which pods are old: those in the list that is read right after the new content, whatever the clocks say. Times of creation decide
//! only when the API server does not know that list any more.

use std::thread;

use serde_json::json;

use crate::api::{refusal, status, too_large};
use crate::operator::Operator;
use crate::script::{Answer, Play};
use crate::stage::{PUT, Stage, config_map, old, pod, wanted};

/// Created by an API server whose clock is 5 s ahead of the one that answers the GET.
fn created_ahead(name: &str) -> serde_json::Value {
    pod(name, "2026-11-21T10:00:05Z")
}

#[test]
fn a_pod_that_was_born_within_the_quiet_period_is_kept_whatever_its_time_of_creation() {
    let stage = Stage::with(&[old("p1"), created_ahead("p2")]);
    stage.set("quietPeriodSeconds", json!(1));
    let operator = stage.operator(&[]);
    stage.change();
    stage.server.wait_for(PUT, 2);
    // The clock of the API server that creates it is behind.
    stage.world.lock().unwrap().add(old("p3"));
    stage.is_over(&operator);
    assert_eq!(stage.deletions(), ["delete pods/p1", "delete pods/p2"]);
    let pending = &stage.writes()[1]["status"]["restart"];
    assert_eq!(pending["podsResourceVersion"], "20", "{pending}");
}

/// The process before this one has read the new content, has listed the pods at version 20, and was killed.
#[test]
fn after_a_crash_in_the_quiet_period_the_pods_are_those_of_the_list_of_before() {
    let stage = Stage::with(&[old("p1"), created_ahead("p2")]);
    {
        let mut world = stage.world.lock().unwrap();
        let at = "2026-11-21T09:59:59Z";
        world.monitor["spec"]["quietPeriodSeconds"] = json!(1);
        world.monitor["status"]["restart"] =
            json!({ "sources": wanted(1), "observedAt": at, "since": at, "podsResourceVersion": "20" });
        world.add(old("p3"));
    }
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    let operator = Operator::start(&stage.server);
    stage.is_over(&operator);
    assert_eq!(stage.deletions(), ["delete pods/p1", "delete pods/p2"]);
    assert_eq!(stage.server.request("list pods at=20").query("resourceVersionMatch").as_deref(), Some("Exact"));
}

/// As after a restore from a backup, or with a status from another cluster.
#[test]
fn when_the_api_server_does_not_know_the_version_of_that_list_the_times_of_creation_decide() {
    let answers: [(&str, Play); 4] = [
        ("compacted", || refusal(410, "Expired")),
        ("of the future", || Answer::json(504, &too_large())),
        ("of the future, in the words of etcd", || {
            let mut status = status(500, "");
            status["message"] = json!("etcdserver: mvcc: required revision is a future revision");
            Answer::json(500, &status)
        }),
        ("an error without a name", || refusal(500, "InternalError")),
    ];
    thread::scope(|scope| {
        for (name, answer) in answers {
            scope.spawn(move || {
                let stage = Stage::with(&[old("p1"), pod("p2", "2026-11-21T09:59:30Z")]);
                {
                    let mut world = stage.world.lock().unwrap();
                    let at = "2026-11-21T09:59:00Z";
                    world.monitor["status"]["restart"] = json!({ "sources": wanted(1), "observedAt": at, "since": at,
                        "startedAt": at, "podsResourceVersion": "1000", "podSelector": "app=web", "pods": 1, "remaining": 1,
                        "lastProgressAt": at });
                }
                stage.server.always("list pods at=1000", move |_| answer());
                stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
                let operator = Operator::start(&stage.server);
                stage.is_over(&operator);
                assert_eq!(stage.deletions(), ["delete pods/p1"], "{name}");
            });
        }
    });
}
