//! Many ConfigMonitors: who waits for whom, and for whom nobody waits.

use serde_json::json;

use crate::api::line;
use crate::ending::{ENDING, GIVEN_UP};
use crate::held::Gate;
use crate::operator::Operator;
use crate::script::Answer;
use crate::stage::{Stage, config_map, monitor};

/// The ConfigMonitor `m` is deleted, and created anew, while a request of its keeper is under way; `n` comes after it.
fn replaced(gate: &Gate) -> (Stage, Operator) {
    let stage = Stage::with(&[]);
    let answer = Answer::json(200, &config_map(1, "8")).after(gate);
    stage.server.on("get configmaps/c", [answer]);
    let operator = Operator::start(&stage.server);
    stage.server.wait_for("get configmaps/c", 1);
    stage.server.wait_for("watch configmonitors", 1);
    let before = stage.world.lock().unwrap().monitor.clone();
    let mut namesake = before.clone();
    namesake["metadata"]["uid"] = "another".into();
    let other = monitor("n", &json!({ "configMap": "d", "podSelector": { "app": "web" } }));
    stage.tell(line("DELETED", &before) + &line("ADDED", &namesake) + &line("ADDED", &other));
    stage.server.wait_for("get configmaps/d", 1);
    (stage, operator)
}

#[test]
fn a_namesake_waits_until_the_one_before_it_has_ended() {
    let gate = Gate::default();
    let (stage, _operator) = replaced(&gate);
    stage.server.request("get configmaps/c");
    gate.open();
    stage.server.wait_for("get configmaps/c", 2);
}

#[test]
fn a_signal_ends_it_while_a_namesake_waits() {
    let gate = Gate::default();
    let (_stage, mut operator) = replaced(&gate);
    operator.signal("TERM");
    operator.wait_for(ENDING, 1);
    gate.open();
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
    assert!(operator.lines(GIVEN_UP).is_empty(), "{}", operator.log());
}
