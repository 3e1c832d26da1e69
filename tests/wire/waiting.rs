//! Many ConfigMonitors: who waits for whom.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::{line, proxy_error, refusal};
use crate::held::Gate;
use crate::operator::Operator;
use crate::scenario::{PUT, Scenario, config_map, monitor, settled_on};
use crate::script::Answer;
use crate::shutdown::{GIVEN_UP, SHUTDOWN};

/// Deletes the ConfigMonitor `m` and creates it anew while its keeper writes. Then creates `n`.
fn replaced(gate: &Gate) -> (Scenario, Operator) {
    let scenario = Scenario::with(&[]);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
    scenario.server.on(PUT, [proxy_error().after(gate)]);
    let operator = Operator::start(&scenario.server);
    scenario.server.wait_for(PUT, 1);
    scenario.server.wait_for("watch configmonitors", 1);
    let before = scenario.objects.lock().unwrap().monitor.clone();
    let mut namesake = before.clone();
    namesake["metadata"]["uid"] = "another".into();
    let other = monitor("n", &json!({ "configMap": "d", "podSelector": { "app": "web" } }));
    scenario.send(line("DELETED", &before) + &line("ADDED", &namesake) + &line("ADDED", &other));
    scenario.server.wait_for("get configmaps/d", 1);
    (scenario, operator)
}

#[test]
fn a_recreated_config_monitor_waits_for_the_keeper_of_the_deleted_one() {
    let gate = Gate::default();
    let (scenario, _operator) = replaced(&gate);
    scenario.server.request("get configmaps/c");
    gate.open();
    scenario.server.wait_for("get configmaps/c", 2);
}

#[test]
fn a_signal_stops_the_operator_while_a_recreated_config_monitor_waits() {
    let gate = Gate::default();
    let (_scenario, mut operator) = replaced(&gate);
    operator.signal("TERM");
    operator.wait_for(SHUTDOWN, 1);
    gate.open();
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
    assert!(operator.lines(GIVEN_UP).is_empty(), "{}", operator.log());
}

/// More keepers would delay the first lists.
#[test]
fn before_the_first_lists_are_complete_four_keepers_are_awake_at_a_time() {
    let (scenario, gate) = (Scenario::with(&[]), Gate::default());
    scenario.objects.lock().unwrap().others =
        (2..=12).map(|number| settled_on(&format!("c{number}"), &format!("m{number}"), "web")).collect();
    scenario.server.only("list configmaps", || Answer::Stall);
    let held = gate.clone();
    scenario.server.always("get configmaps", move |_| refusal(404, "NotFound").after(&held));
    let _operator = Operator::start(&scenario.server);
    scenario.server.wait_for("get configmaps", 4);
    // An error would show at once, as a rule.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(scenario.server.requests_for("get configmaps").len(), 4);
    gate.open();
    scenario.server.wait_for("get configmaps", 12);
}
