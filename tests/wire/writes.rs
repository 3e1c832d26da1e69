//! The outcome of a write may be unknown, or not what was expected. No outcome does harm.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{line, list, not_served, proxy_error, refusal};
use crate::operator::Operator;
use crate::request::Request;
use crate::scenario::{Objects, PUT, Scenario, config_map, hash, old, recorded, sources};
use crate::script::Answer;
use crate::time::DEADLINE;

/// Answers the status writes. `answer` gets the objects, the request and its number, starting at 1.
fn answer_writes(
    scenario: &Scenario,
    mut answer: impl FnMut(&mut Objects, &Request, usize) -> Answer + Send + 'static,
) {
    let objects = Arc::clone(&scenario.objects);
    let mut number = 0;
    scenario.server.forget(PUT).always(PUT, move |request| {
        number += 1;
        answer(&mut objects.lock().unwrap(), request, number)
    });
}

/// Returns the number of restarts in the history.
fn history(scenario: &Scenario) -> usize {
    scenario.objects.lock().unwrap().monitor["status"]["history"].as_array().map_or(0, Vec::len)
}

/// Waits until the status says that the restart is over, which the operator may not know yet.
fn wait_until_written(scenario: &Scenario) {
    let start = Instant::now();
    while *recorded(&scenario.objects.lock().unwrap().monitor["status"]) != hash(1) {
        assert!(start.elapsed() < DEADLINE, "{:?}", scenario.server.words());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_write_that_took_place_and_was_not_answered_is_not_made_twice() {
    thread::scope(|scope| {
        for lost in 1..=4 {
            scope.spawn(move || {
                let scenario = Scenario::with(&[old("p1")]);
                answer_writes(&scenario, move |objects, request, number| {
                    let answer = objects.put(request);
                    if number == lost { Answer::HangUp } else { answer }
                });
                let _operator = scenario.operator(&[]);
                scenario.change();
                wait_until_written(&scenario);
                // The operator reads the ConfigMonitor to find out that the write took place.
                scenario.server.wait_for("get configmonitors", 1);
                assert_eq!((scenario.writes().len(), history(&scenario)), (4, 1), "{lost}");
                assert_eq!(scenario.deletions(), ["delete pods/p1"], "{lost}");
            });
        }
    });
}

/// The server handles a write after the operator has given up: before the next write, or after it.
#[test]
fn a_write_that_comes_late_does_no_harm() {
    let cases = [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)];
    thread::scope(|scope| {
        for (late, after_the_next) in cases {
            scope.spawn(move || {
                let scenario = Scenario::with(&[old("p1")]);
                let held = Mutex::new(None);
                answer_writes(&scenario, move |objects, request, number| {
                    if number == late {
                        *held.lock().unwrap() = Some(request.clone());
                        return Answer::HangUp;
                    }
                    let next = after_the_next.then(|| objects.put(request));
                    if let Some(late) = held.lock().unwrap().take() {
                        objects.put(&late);
                    }
                    next.unwrap_or_else(|| objects.put(request))
                });
                let _operator = scenario.operator(&[]);
                scenario.change();
                wait_until_written(&scenario);
                assert_eq!(history(&scenario), 1, "{late} {after_the_next}");
                assert_eq!(scenario.deletions(), ["delete pods/p1"], "{late} {after_the_next}");
            });
        }
    });
}

#[test]
fn a_field_that_the_server_does_not_store_is_logged_once_and_blocks_nothing() {
    for dropped in [None, Some("history"), Some("source")] {
        let scenario = Scenario::with(&[old("p1")]);
        answer_writes(&scenario, move |objects, request, _| {
            objects.put(request);
            if let Some(dropped) = dropped {
                objects.monitor["status"].as_object_mut().unwrap().remove(dropped);
            }
            Answer::json(200, &objects.monitor)
        });
        let operator = scenario.operator(&[]);
        scenario.change();
        scenario.wait_until_over(&operator);
        assert!(scenario.writes().iter().filter(|write| write["status"].get("source").is_some()).count() >= 3);
        let log = operator.log();
        let warnings: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), usize::from(dropped.is_some()), "{warnings:#?}");
        if let Some(dropped) = dropped {
            let warning: Value = serde_json::from_str(warnings[0]).unwrap();
            let about = ["namespace", "monitor", "field"].map(|name| warning[name].as_str().unwrap());
            assert_eq!(about, ["default", "m", &format!(".status.{dropped}")]);
            let message = warning["message"].as_str().unwrap();
            assert!(message.contains("older than the operator") && message.contains("`configmonitor-operator crd`"));
        }
    }
}

/// Otherwise the restart would be forgotten and begin again and again.
#[test]
fn no_pod_is_deleted_while_the_server_does_not_store_that_a_restart_begins() {
    for (part, dropped) in [
        ("/status", "restart"),
        ("/status/restart", "startedAt"),
        ("/status/restart", "request"),
        ("/status/restart", "canary"),
    ] {
        let scenario = Scenario::with(&[old("p1")]);
        scenario.set("canary", json!({ "pods": 1, "bakeSeconds": 300 }));
        answer_writes(&scenario, move |objects, request, _| {
            objects.put(request);
            if let Some(Value::Object(fields)) = objects.monitor.pointer_mut(part) {
                fields.remove(dropped);
            }
            Answer::json(200, &objects.monitor)
        });
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
        assert_eq!(scenario.deletions(), [""; 0]);
    }
}

#[test]
fn only_not_found_means_that_a_pod_is_gone() {
    for answer in [not_served(), refusal(404, "Unknown")] {
        let scenario = Scenario::with(&[old("p1")]);
        let operator = scenario.operator(&[]);
        scenario.server.on("delete pods/p1", [answer]);
        scenario.change();
        scenario.wait_until_over(&operator);
        assert_eq!(scenario.deletions(), ["delete pods/p1"; 2]);
        let counts = ["pods not deleted", "restart no longer blocked"].map(|line| operator.lines(line).len());
        assert_eq!(counts, [1, 1], "{}", operator.log());
    }
}

#[test]
fn only_not_found_means_that_the_config_map_or_the_config_monitor_is_gone() {
    for words in ["get configmaps/c", "get configmonitors/m"] {
        for answer in [not_served(), refusal(404, "Unknown")] {
            let scenario = Scenario::with(&[old("p1")]);
            scenario.server.on(words, [answer]);
            // The ConfigMonitor is read before the second attempt.
            scenario.server.on("delete pods/p1", [proxy_error()]);
            scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
            let operator = Operator::start(&scenario.server);
            scenario.wait_until_over(&operator);
            scenario.server.wait_for(words, 2);
            let missing = |write: &Value| write["status"]["conditions"][0]["reason"] == "SourceNotFound";
            assert!(!scenario.writes().iter().any(missing), "{words}");
        }
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

/// No watch event has announced the new content, but another operator has read it as the baseline.
#[test]
fn what_another_operator_has_read_is_read_before_a_conflict_is_resolved() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.objects.lock().unwrap().monitor["status"] = Value::Null;
    answer_writes(&scenario, |objects, request, number| {
        if number == 1 {
            objects.monitor["status"] = json!({ "source": "ConfigMap/c", "sources": sources("c", "8", 1) });
            objects.touch();
        }
        objects.put(request)
    });
    scenario
        .server
        .on("get configmaps/c", [config_map(0, "7"), config_map(1, "8")].map(|object| Answer::json(200, &object)));
    let _operator = Operator::start(&scenario.server);
    scenario.server.wait_for(PUT, 2);
    assert_eq!(scenario.writes()[1]["status"]["restart"], Value::Null, "{:?}", scenario.server.words());
    assert_eq!(*recorded(&scenario.objects.lock().unwrap().monitor["status"]), hash(1));
}
