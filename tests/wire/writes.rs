//! What becomes of a write is not always known, and not always to the operator's liking. Whatever it is, it does no harm.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{line, list, not_served, proxy_error, refusal};
use crate::operator::Operator;
use crate::request::Request;
use crate::script::Answer;
use crate::stage::{PUT, Stage, World, config_map, hash, old, recorded, sources};
use crate::time::DEADLINE;

/// Plays the writes of the status: `answer` gets the world, the request and its number, counted from the first look on.
fn play_writes(stage: &Stage, mut answer: impl FnMut(&mut World, &Request, usize) -> Answer + Send + 'static) {
    let world = Arc::clone(&stage.world);
    let mut number = 0;
    stage.server.forget(PUT).always(PUT, move |request| {
        number += 1;
        answer(&mut world.lock().unwrap(), request, number)
    });
}

/// How many restarts the status remembers.
fn history(stage: &Stage) -> usize {
    stage.world.lock().unwrap().monitor["status"]["history"].as_array().map_or(0, Vec::len)
}

/// Waits until the status says that the restart is over. The operator may not know of it yet.
fn is_written(stage: &Stage) {
    let start = Instant::now();
    while *recorded(&stage.world.lock().unwrap().monitor["status"]) != hash(1) {
        assert!(start.elapsed() < DEADLINE, "{:?}", stage.server.words());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_write_that_took_place_and_was_not_answered_is_not_made_twice() {
    thread::scope(|scope| {
        for lost in [1, 2, 3] {
            scope.spawn(move || {
                let stage = Stage::with(&[old("p1")]);
                play_writes(&stage, move |world, request, number| {
                    let answer = world.put(request);
                    if number == lost { Answer::HangUp } else { answer }
                });
                let _operator = stage.operator(&[]);
                stage.change();
                is_written(&stage);
                // Until it is read again, nobody knows that it is there.
                stage.server.wait_for("get configmonitors", 1);
                assert_eq!((stage.writes().len(), history(&stage)), (3, 1), "{lost}");
                assert_eq!(stage.deletions(), ["delete pods/p1"], "{lost}");
            });
        }
    });
}

/// The server gets to a write only after the operator has given up on it: before the next one, or after it.
#[test]
fn a_write_that_comes_late_does_no_harm() {
    let cases = [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)];
    thread::scope(|scope| {
        for (late, after_the_next) in cases {
            scope.spawn(move || {
                let stage = Stage::with(&[old("p1")]);
                let held = Mutex::new(None);
                play_writes(&stage, move |world, request, number| {
                    if number == late {
                        *held.lock().unwrap() = Some(request.clone());
                        return Answer::HangUp;
                    }
                    let next = after_the_next.then(|| world.put(request));
                    if let Some(late) = held.lock().unwrap().take() {
                        world.put(&late);
                    }
                    next.unwrap_or_else(|| world.put(request))
                });
                let _operator = stage.operator(&[]);
                stage.change();
                is_written(&stage);
                assert_eq!(history(&stage), 1, "{late} {after_the_next}");
                assert_eq!(stage.deletions(), ["delete pods/p1"], "{late} {after_the_next}");
            });
        }
    });
}

#[test]
fn a_field_that_the_server_does_not_store_is_logged_once_and_holds_up_nothing() {
    for dropped in [None, Some("history"), Some("source")] {
        let stage = Stage::with(&[old("p1")]);
        play_writes(&stage, move |world, request, _| {
            world.put(request);
            if let Some(dropped) = dropped {
                world.monitor["status"].as_object_mut().unwrap().remove(dropped);
            }
            Answer::json(200, &world.monitor)
        });
        let operator = stage.operator(&[]);
        stage.change();
        stage.is_over(&operator);
        assert!(stage.writes().iter().filter(|write| write["status"].get("source").is_some()).count() >= 3);
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

/// Else it would be forgotten and begun again and again.
#[test]
fn no_pod_is_deleted_while_the_server_does_not_store_that_a_restart_begins() {
    for (part, dropped) in [
        ("/status", "restart"),
        ("/status/restart", "startedAt"),
        ("/status/restart", "request"),
        ("/status/restart", "canary"),
    ] {
        let stage = Stage::with(&[old("p1")]);
        stage.set("canary", json!({ "pods": 1, "bakeSeconds": 300 }));
        play_writes(&stage, move |world, request, _| {
            world.put(request);
            if let Some(Value::Object(fields)) = world.monitor.pointer_mut(part) {
                fields.remove(dropped);
            }
            Answer::json(200, &world.monitor)
        });
        let operator = stage.operator(&[]);
        if dropped == "request" {
            stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
            let mut world = stage.world.lock().unwrap();
            world.monitor["metadata"]["annotations"] = json!({ "magalix.com/restart-requested-at": "now" });
            world.touch();
            stage.tell(line("MODIFIED", &world.monitor));
        } else {
            stage.change();
        }
        let refused = operator.wait_for("refused", 1);
        assert!(refused["note"].to_string().contains("the API server has not stored the restart"), "{refused}");
        stage.server.wait_for(PUT, stage.writes().len() + 1);
        assert_eq!(stage.deletions(), [""; 0]);
    }
}

#[test]
fn only_not_found_means_that_a_pod_is_gone() {
    for answer in [not_served(), refusal(404, "Unknown")] {
        let stage = Stage::with(&[old("p1")]);
        let operator = stage.operator(&[]);
        stage.server.on("delete pods/p1", [answer]);
        stage.change();
        stage.is_over(&operator);
        assert_eq!(stage.deletions(), ["delete pods/p1"; 2]);
        let told = ["pods not deleted", "restart no longer blocked"].map(|line| operator.lines(line).len());
        assert_eq!(told, [1, 1], "{}", operator.log());
    }
}

#[test]
fn only_not_found_means_that_the_config_map_or_the_config_monitor_is_gone() {
    for words in ["get configmaps/c", "get configmonitors/m"] {
        for answer in [not_served(), refusal(404, "Unknown")] {
            let stage = Stage::with(&[old("p1")]);
            stage.server.on(words, [answer]);
            // The ConfigMonitor is read before the second try.
            stage.server.on("delete pods/p1", [proxy_error()]);
            stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
            let operator = Operator::start(&stage.server);
            stage.is_over(&operator);
            stage.server.wait_for(words, 2);
            let missing = |write: &Value| write["status"]["conditions"][0]["reason"] == "SourceNotFound";
            assert!(!stage.writes().iter().any(missing), "{words}");
        }
    }
}

#[test]
fn a_right_that_is_missing_is_named_wherever_it_is() {
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
                let stage = Stage::with(&[old("p1")]);
                stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
                // No new pod comes, so that the owner of the old one is asked.
                stage.server.forget("list pods").on("list pods", [list("20", &[old("p1")])]);
                stage.server.always("list pods", |_| list("20", &[]));
                if words == "get configmonitors/m" {
                    // It is read before the second try.
                    stage.server.on("list pods", [list("20", &[old("p1")])]);
                    stage.server.on("delete pods/p1", [proxy_error()]);
                }
                stage.server.only(words, || refusal(403, "Forbidden"));
                let operator = Operator::start(&stage.server);
                operator.wait_for_text(text);
                let log = operator.log();
                let line = log.lines().find(|line| line.contains(text)).unwrap();
                assert!(line.contains("WARN") && line.contains("scripted Forbidden"), "{line}");
                if is_a_condition {
                    operator.wait_for("attention needed", 1);
                    let conditions = stage.writes().into_iter().map(|write| write["status"]["conditions"][0].clone());
                    let condition = conditions.into_iter().find(|condition| condition["reason"] == "Forbidden");
                    assert!(condition.unwrap()["message"].to_string().contains(text), "{words}");
                }
            });
        }
    });
}

/// Its watch has not told of the new content, which somebody else has read, and taken for the baseline.
#[test]
fn what_another_operator_has_read_is_read_before_anything_is_made_of_a_conflict() {
    let stage = Stage::with(&[old("p1")]);
    stage.world.lock().unwrap().monitor["status"] = Value::Null;
    play_writes(&stage, |world, request, number| {
        if number == 1 {
            world.monitor["status"] = json!({ "source": "ConfigMap/c", "sources": sources("c", "8", 1) });
            world.touch();
        }
        world.put(request)
    });
    stage
        .server
        .on("get configmaps/c", [config_map(0, "7"), config_map(1, "8")].map(|object| Answer::json(200, &object)));
    let _operator = Operator::start(&stage.server);
    stage.server.wait_for(PUT, 2);
    assert_eq!(stage.writes()[1]["status"]["restart"], Value::Null, "{:?}", stage.server.words());
    assert_eq!(*recorded(&stage.world.lock().unwrap().monitor["status"]), hash(1));
}
