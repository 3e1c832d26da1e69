//! Many ConfigMonitors: who waits for whom, and for whom nobody waits.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::{line, proxy_error, refusal};
use crate::ending::{ENDING, GIVEN_UP};
use crate::held::Gate;
use crate::operator::Operator;
use crate::script::Answer;
use crate::stage::{PUT, Stage, config_map, monitor, settled_on};

/// The ConfigMonitor `m` is deleted, and created anew, while its keeper writes; `n` comes after it.
fn replaced(gate: &Gate) -> (Stage, Operator) {
    let stage = Stage::with(&[]);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
    stage.server.on(PUT, [proxy_error().after(gate)]);
    let operator = Operator::start(&stage.server);
    stage.server.wait_for(PUT, 1);
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

/// More of them would hold up the lists that tell what there is.
#[test]
fn before_everything_is_known_four_keepers_look_at_a_time() {
    let (stage, gate) = (Stage::with(&[]), Gate::default());
    stage.world.lock().unwrap().others =
        (2..=12).map(|number| settled_on(&format!("c{number}"), &format!("m{number}"), "web")).collect();
    stage.server.only("list configmaps", || Answer::Stall);
    let held = gate.clone();
    stage.server.always("get configmaps", move |_| refusal(404, "NotFound").after(&held));
    let _operator = Operator::start(&stage.server);
    stage.server.wait_for("get configmaps", 4);
    // What is wrong would show at once, as a rule.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(stage.server.requests_for("get configmaps").len(), 4);
    gate.open();
    stage.server.wait_for("get configmaps", 12);
}
