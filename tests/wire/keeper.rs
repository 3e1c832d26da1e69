//! A keeper's requests, in order, and the answers that only a scripted server gives.

use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use crate::api::{line, list, proxy_error, refusal};
use crate::held::Gate;
use crate::operator::Operator;
use crate::scenario::{PUT, Scenario, config_map, monitor, old};
use crate::script::Answer;
use crate::shutdown::{GIVEN_UP, SHUTDOWN};

/// The old pods are listed with the content, as metadata. After the quiet period, both are read again.
#[test]
fn the_requests_of_a_restart_with_a_quiet_period_are_made_in_this_order() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.set("quietPeriodSeconds", json!(1));
    let operator = scenario.operator(&[]);
    let before = scenario.change();
    scenario.wait_until_over(&operator);
    let mut words = scenario.server.words().split_off(before);
    words.retain(|words| words != "post events");
    let expected = [
        "get configmaps/c",
        "list pods",
        PUT,
        "get configmaps/c",
        "list pods",
        PUT,
        "delete pods/p1",
        "watch pods from 20",
        "list pods",
        "get replicasets/r",
        PUT,
    ];
    assert_eq!(words, expected);
    let lists = scenario.server.requests_for("list pods");
    assert!(lists[0].header("accept").is_some_and(|accept| accept.contains("PartialObjectMetadataList")));
    assert_eq!(lists[1].header("accept"), Some("application/json"));
}

#[test]
fn an_owner_that_was_recreated_with_another_uid_has_no_desired_pods() {
    let scenario = Scenario::with(&[old("p1")]);
    let namesake =
        json!({ "metadata": { "name": "r", "uid": "another", "resourceVersion": "1" }, "spec": { "replicas": 5 } });
    scenario.server.instead("get replicasets", move |_| Answer::json(200, &namesake));
    let operator = scenario.operator(&[]);
    scenario.change();
    scenario.wait_until_over(&operator);
}

/// Makes the server store every status write without this field.
fn drop_field(scenario: &Scenario, part: &'static str, field: &'static str) {
    let objects = Arc::clone(&scenario.objects);
    scenario.server.always(PUT, move |request| {
        let mut objects = objects.lock().unwrap();
        objects.put(request);
        if let Some(Value::Object(fields)) = objects.monitor.pointer_mut(part) {
            fields.remove(field);
        }
        Answer::json(200, &objects.monitor)
    });
}

/// Otherwise the restart would be forgotten and begin again and again.
#[test]
fn no_pod_is_deleted_while_the_server_does_not_store_that_a_restart_begins() {
    for (part, dropped) in [
        ("/status", "restart"),
        ("/status/sources/0", "changes"),
        ("/status/restart", "number"),
        ("/status/restart", "startedAt"),
        ("/status/restart", "request"),
        ("/status/restart", "canary"),
    ] {
        let scenario = Scenario::with(&[old("p1")]);
        scenario.set("canary", json!({ "pods": 1, "bakeSeconds": 300 }));
        drop_field(&scenario, part, dropped);
        let operator = scenario.operator(&[]);
        if dropped == "request" {
            scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
            let mut objects = scenario.objects.lock().unwrap();
            objects.monitor["metadata"]["annotations"] = json!({ "magalix.com/restart-requested-at": "now" });
            objects.touch();
            scenario.send(line("MODIFIED", &objects.monitor));
        } else {
            scenario.change();
        }
        let refused = operator.wait_for("refused", 1);
        assert!(refused["note"].to_string().contains("the API server has not stored the restart"), "{refused}");
        scenario.server.wait_for(PUT, scenario.writes().len() + 1);
        assert_eq!(scenario.server.requests_for("delete").len(), 0);
    }
}

#[test]
fn a_missing_right_is_named_for_each_request() {
    let requests = [
        ("list configmonitors", "cannot list configmonitors", false),
        ("watch configmonitors", "cannot watch configmonitors", false),
        ("list configmaps", "cannot list configmaps", false),
        ("watch configmaps", "cannot watch configmaps", false),
        ("get configmonitors/m", "cannot get configmonitors", true),
        ("get configmaps/c", "cannot get configmaps", true),
        ("list pods", "cannot list pods", true),
        ("watch pods", "cannot watch pods", false),
        ("delete pods/p1", "cannot delete pods", true),
        ("get replicasets/r", "cannot get replicasets", false),
        (PUT, "cannot update configmonitors/status", false),
        ("post events", "cannot create events", false),
    ];
    thread::scope(|scope| {
        for (words, text, is_a_condition) in requests {
            scope.spawn(move || {
                let scenario = Scenario::with(&[old("p1")]);
                scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
                // No new pod is created, so that the operator reads the owner of the old one.
                scenario.server.forget("list pods").on("list pods", [list("20", &[old("p1")])]);
                scenario.server.always("list pods", |_| list("20", &[]));
                if words == "get configmonitors/m" {
                    // The ConfigMonitor is read before the second attempt.
                    scenario.server.on("list pods", [list("20", &[old("p1")])]);
                    scenario.server.on("delete pods/p1", [proxy_error()]);
                }
                scenario.server.only(words, || refusal(403, "Forbidden"));
                let operator = Operator::start(&scenario.server);
                operator.wait_for_text(text);
                let log = operator.log();
                let line = log.lines().find(|line| line.contains(text)).unwrap();
                assert!(line.contains("WARN") && line.contains("scripted Forbidden"), "{line}");
                if is_a_condition {
                    operator.wait_for("attention needed", 1);
                    let conditions =
                        scenario.writes().into_iter().map(|write| write["status"]["conditions"][2].clone());
                    let condition = conditions.into_iter().find(|condition| condition["reason"] == "Forbidden");
                    assert!(condition.unwrap()["message"].to_string().contains(text), "{words}");
                }
            });
        }
    });
}

/// The ConfigMonitor `m` is gone and is back while its keeper writes, as when its namespace loses a label for a moment. Then
/// creates `n`.
fn returned(gate: &Gate) -> (Scenario, Operator) {
    let scenario = Scenario::with(&[]);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
    scenario.server.on(PUT, [proxy_error().after(gate)]);
    let operator = Operator::start(&scenario.server);
    scenario.server.wait_for(PUT, 1);
    scenario.server.wait_for("watch configmonitors", 1);
    let before = scenario.objects.lock().unwrap().monitor.clone();
    let other = monitor("n", &json!({ "configMap": "d", "podSelector": { "app": "web" } }));
    scenario.send(line("DELETED", &before) + &line("ADDED", &before) + &line("ADDED", &other));
    scenario.server.wait_for("get configmaps/d", 1);
    (scenario, operator)
}

#[test]
fn a_config_monitor_that_is_back_waits_for_its_earlier_keeper() {
    let gate = Gate::default();
    let (scenario, _operator) = returned(&gate);
    scenario.server.request("get configmaps/c");
    gate.open();
    scenario.server.wait_for("get configmaps/c", 2);
}

#[test]
fn a_signal_stops_the_operator_while_a_config_monitor_waits_for_its_earlier_keeper() {
    let gate = Gate::default();
    let (_scenario, mut operator) = returned(&gate);
    operator.signal("TERM");
    operator.wait_for(SHUTDOWN, 1);
    gate.open();
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
    assert!(operator.lines(GIVEN_UP).is_empty(), "{}", operator.log());
}
