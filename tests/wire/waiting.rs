//! Many ConfigMonitors: who waits for whom.

use serde_json::json;

use crate::api::{line, proxy_error};
use crate::held::Gate;
use crate::operator::Operator;
use crate::scenario::{PUT, Scenario, config_map, monitor};
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
