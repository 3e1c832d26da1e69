//! When a restart begins, by the server's clock, and requests for a restart that no watch event announces. The clock
//! stands at 10:00 on 21 November unless a test moves it.

use serde_json::{Value, json};

use crate::api::line;
use crate::held::Gate;
use crate::scenario::{Scenario, config_map, old, reason};
use crate::script::Answer;

/// A minute from 10:00 on, once a year.
fn window() -> Value {
    json!([{ "schedule": "0 10 21 11 *", "durationSeconds": 60 }])
}

/// Requests a restart with this value, without a watch event. Returns the object.
fn request(scenario: &Scenario, value: &str) -> Value {
    let mut objects = scenario.objects.lock().unwrap();
    objects.monitor["metadata"]["annotations"] = json!({ "magalix.com/restart-requested-at": value });
    objects.touch();
    objects.monitor.clone()
}

fn message(scenario: &Scenario) -> String {
    scenario.objects.lock().unwrap().monitor["status"]["conditions"][1]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_window_that_closes_while_the_pods_are_listed_starts_no_restart() {
    let (scenario, gate) = (Scenario::with(&[old("p1")]), Gate::default());
    scenario.set("windows", window());
    let operator = scenario.operator(&[]);
    let held = gate.clone();
    scenario.answer_instead("list pods", move |objects, request| objects.list(request).after(&held));
    scenario.change();
    scenario.server.wait_for("list pods", 1);
    scenario.server.put_forward(60);
    gate.open();
    scenario.wait_for_reason("OutsideWindow");
    assert!(message(&scenario).ends_with("opens at 2027-11-21 10:00 UTC (UTC)"), "{}", message(&scenario));
    let begun = |write: &Value| write["status"]["restart"]["startedAt"].is_string();
    assert!(!scenario.writes().iter().any(begun) && scenario.deletions().is_empty(), "{:?}", scenario.server.words());
    assert!(operator.lines("restart started").is_empty());
}

#[test]
fn the_interval_counts_from_the_last_start_also_if_the_clock_is_set_back() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.set("minIntervalSeconds", json!(60));
    scenario.server.put_forward(3600);
    let operator = scenario.operator(&[]);
    scenario.change();
    scenario.wait_until_over(&operator);
    scenario.server.put_back(3600);
    scenario.edit("c", 2, "9");
    scenario.wait_for_reason("MinInterval");
    let started = scenario.objects.lock().unwrap().monitor["status"]["history"][0]["startedAt"].clone();
    assert!(started.as_str().unwrap().starts_with("2026-11-21T11:00:"), "{started}");
    assert!(message(&scenario).contains("waiting until 2026-11-21T11:01:"), "{}", message(&scenario));
    assert_eq!(scenario.deletions(), ["delete pods/p1"]);

    scenario.server.put_forward(3600 + 120);
    // Any successful answer updates the clock.
    scenario.edit("c", 2, "10");
    operator.wait_for("restart over", 2);
    assert_eq!(scenario.deletions().len(), 2);
}

#[test]
fn a_request_that_came_while_the_server_was_away_is_handled_once() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
    let operator = scenario.operator(&[]);
    for restarts in 1..=2 {
        let watches = scenario.server.requests_for("watch configmonitors").len();
        scenario.server.go_away();
        // The second request has the same value.
        request(&scenario, "now");
        scenario.server.wait_for("watch configmonitors", watches + 1);
        scenario.server.come_back();
        // The first watch fails, and a list precedes the second one.
        scenario.server.wait_for("watch configmonitors", watches + 2);
        operator.wait_for("restart over", 1);
        scenario.wait_for_reason("UpToDate");
        assert_eq!(scenario.deletions(), ["delete pods/p1"], "{restarts}");
    }
    let status = scenario.objects.lock().unwrap().monitor["status"].clone();
    assert_eq!(status["lastHandledRestartRequest"], "now");
    request(&scenario, "later");
    let later = scenario.objects.lock().unwrap().monitor.clone();
    scenario.send(line("MODIFIED", &later));
    operator.wait_for("restart over", 2);
    assert_eq!(scenario.deletions().len(), 2);
}

#[test]
fn a_request_in_the_middle_of_a_restart_is_handled_after_it_without_another_event() {
    let (scenario, gate) = (Scenario::with(&[old("p1")]), Gate::default());
    let operator = scenario.operator(&[]);
    let held = gate.clone();
    scenario.answer_instead("delete pods", move |objects, request| objects.delete(request).after(&held));
    scenario.change();
    scenario.server.wait_for("delete pods", 1);
    scenario.send_and_wait(&line("MODIFIED", &request(&scenario, "now")));
    gate.open();
    operator.wait_for("restart over", 2);
    let objects = scenario.objects.lock().unwrap();
    assert_eq!(
        (reason(&objects.monitor), &objects.monitor["status"]["lastHandledRestartRequest"]),
        ("UpToDate", &json!("now"))
    );
    drop(objects);
    assert_eq!(scenario.deletions(), ["delete pods/p1", "delete pods/p1-new"]);
}
