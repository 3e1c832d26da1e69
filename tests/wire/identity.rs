//! Old pods are those in the list right after the new content was read, whatever the clocks say. Creation times decide
//! only if the API server does not have that list any more.

use std::thread;

use serde_json::json;

use crate::api::{refusal, status, too_large};
use crate::operator::Operator;
use crate::scenario::{PUT, Scenario, config_map, old, pod, restart_sources};
use crate::script::{Answer, MakeAnswer};

/// Returns a pod created by an API server whose clock is 5 s ahead of the one that answers the GET.
fn created_ahead(name: &str) -> serde_json::Value {
    pod(name, "2026-11-21T10:00:05Z")
}

#[test]
fn a_pod_created_in_the_quiet_period_is_kept_whatever_its_creation_time() {
    let scenario = Scenario::with(&[old("p1"), created_ahead("p2")]);
    scenario.set("quietPeriodSeconds", json!(1));
    let operator = scenario.operator(&[]);
    scenario.change();
    scenario.server.wait_for(PUT, 2);
    // The clock of the API server that creates this pod is behind.
    scenario.objects.lock().unwrap().scale_up(old("p3"));
    scenario.wait_until_over(&operator);
    assert_eq!(scenario.deletions(), ["delete pods/p1", "delete pods/p2"]);
    let pending = &scenario.writes()[1]["status"]["restart"];
    assert_eq!(pending["podsResourceVersion"], "20", "{pending}");
}

/// The previous process read the new content, listed the pods at version 20, and was killed.
#[test]
fn after_a_crash_in_the_quiet_period_the_old_pods_are_those_of_the_list_before_the_crash() {
    let scenario = Scenario::with(&[old("p1"), created_ahead("p2")]);
    {
        let mut objects = scenario.objects.lock().unwrap();
        let at = "2026-11-21T09:59:59Z";
        objects.monitor["spec"]["quietPeriodSeconds"] = json!(1);
        objects.monitor["status"]["restart"] =
            json!({ "sources": restart_sources(1), "observedAt": at, "since": at, "podsResourceVersion": "20" });
        objects.scale_up(old("p3"));
    }
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    let operator = Operator::start(&scenario.server);
    scenario.wait_until_over(&operator);
    assert_eq!(scenario.deletions(), ["delete pods/p1", "delete pods/p2"]);
    assert_eq!(scenario.server.request("list pods at=20").query("resourceVersionMatch").as_deref(), Some("Exact"));
}

/// After a restore from backup, or with a status from another cluster.
#[test]
fn without_the_version_of_that_list_the_creation_times_decide() {
    let answers: [(&str, MakeAnswer); 4] = [
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
                let scenario = Scenario::with(&[old("p1"), pod("p2", "2026-11-21T09:59:30Z")]);
                {
                    let mut objects = scenario.objects.lock().unwrap();
                    let at = "2026-11-21T09:59:00Z";
                    objects.monitor["status"]["restart"] = json!({ "sources": restart_sources(1), "observedAt": at, "since": at,
                        "startedAt": at, "podsResourceVersion": "1000", "podSelector": "app=web", "pods": 1, "remaining": 1,
                        "lastProgressAt": at });
                }
                scenario.server.always("list pods at=1000", move |_| answer());
                scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
                let operator = Operator::start(&scenario.server);
                scenario.wait_until_over(&operator);
                assert_eq!(scenario.deletions(), ["delete pods/p1"], "{name}");
            });
        }
    });
}
