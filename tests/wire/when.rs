//! When a restart begins, by the clock of the server, and requests that no watch tells of. The clock stands at 10:00 on 21 November unless a test
//! moves it.

use serde_json::{Value, json};

use crate::api::line;
use crate::held::Gate;
use crate::script::Answer;
use crate::stage::{Stage, config_map, old, reason};

/// A minute from 10:00 on, once a year.
fn window() -> Value {
    json!([{ "schedule": "0 10 21 11 *", "durationSeconds": 60 }])
}

/// Somebody asks for a restart by this value. No watch tells of it.
fn request(stage: &Stage, value: &str) -> Value {
    let mut world = stage.world.lock().unwrap();
    world.monitor["metadata"]["annotations"] = json!({ "magalix.com/restart-requested-at": value });
    world.touch();
    world.monitor.clone()
}

fn message(stage: &Stage) -> String {
    stage.world.lock().unwrap().monitor["status"]["conditions"][1]["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_window_that_has_closed_by_the_time_that_the_pods_are_listed_begins_nothing() {
    let (stage, gate) = (Stage::with(&[old("p1")]), Gate::default());
    stage.set("windows", window());
    let operator = stage.operator(&[]);
    let held = gate.clone();
    stage.play_instead("list pods", move |world, request| world.list(request).after(&held));
    stage.change();
    stage.server.wait_for("list pods", 1);
    stage.server.put_forward(60);
    gate.open();
    stage.wait_for_reason("OutsideWindow");
    assert!(message(&stage).ends_with("opens at 2027-11-21 10:00 UTC (UTC)"), "{}", message(&stage));
    let begun = |write: &Value| write["status"]["restart"]["startedAt"].is_string();
    assert!(!stage.writes().iter().any(begun) && stage.deletions().is_empty(), "{:?}", stage.server.words());
    assert!(operator.lines("restart started").is_empty());
}

#[test]
fn the_interval_counts_from_the_last_start_also_if_the_clock_is_set_back() {
    let stage = Stage::with(&[old("p1")]);
    stage.set("minIntervalSeconds", json!(60));
    stage.server.put_forward(3600);
    let operator = stage.operator(&[]);
    stage.change();
    stage.is_over(&operator);
    stage.server.put_back(3600);
    stage.edit("c", 2, "9");
    stage.wait_for_reason("MinInterval");
    let started = stage.world.lock().unwrap().monitor["status"]["history"][0]["startedAt"].clone();
    assert!(started.as_str().unwrap().starts_with("2026-11-21T11:00:"), "{started}");
    assert!(message(&stage).contains("waiting until 2026-11-21T11:01:"), "{}", message(&stage));
    assert_eq!(stage.deletions(), ["delete pods/p1"]);

    stage.server.put_forward(3600 + 120);
    // Whatever the server answers tells the time.
    stage.edit("c", 2, "10");
    operator.wait_for("restart over", 2);
    assert_eq!(stage.deletions().len(), 2);
}

#[test]
fn a_request_that_came_while_the_server_was_away_is_handled_once() {
    let stage = Stage::with(&[old("p1")]);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
    let operator = stage.operator(&[]);
    for restarts in 1..=2 {
        let watches = stage.server.requests_for("watch configmonitors").len();
        stage.server.go_away();
        // The second time it is the same value.
        request(&stage, "now");
        stage.server.wait_for("watch configmonitors", watches + 1);
        stage.server.come_back();
        // The first one fails, and before the second one there is a list.
        stage.server.wait_for("watch configmonitors", watches + 2);
        operator.wait_for("restart over", 1);
        stage.wait_for_reason("UpToDate");
        assert_eq!(stage.deletions(), ["delete pods/p1"], "{restarts}");
    }
    let status = stage.world.lock().unwrap().monitor["status"].clone();
    assert_eq!(status["lastHandledRestartRequest"], "now");
    request(&stage, "later");
    let later = stage.world.lock().unwrap().monitor.clone();
    stage.tell(line("MODIFIED", &later));
    operator.wait_for("restart over", 2);
    assert_eq!(stage.deletions().len(), 2);
}

#[test]
fn a_request_in_the_middle_of_a_restart_is_handled_when_that_is_over_though_nothing_else_happens() {
    let (stage, gate) = (Stage::with(&[old("p1")]), Gate::default());
    let operator = stage.operator(&[]);
    let held = gate.clone();
    stage.play_instead("delete pods", move |world, request| world.delete(request).after(&held));
    stage.change();
    stage.server.wait_for("delete pods", 1);
    stage.tell_and_wait(&line("MODIFIED", &request(&stage, "now")));
    gate.open();
    operator.wait_for("restart over", 2);
    let world = stage.world.lock().unwrap();
    assert_eq!(
        (reason(&world.monitor), &world.monitor["status"]["lastHandledRestartRequest"]),
        ("UpToDate", &json!("now"))
    );
    drop(world);
    assert_eq!(stage.deletions(), ["delete pods/p1", "delete pods/p1-new"]);
}
