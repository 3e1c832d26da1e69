//! Many ConfigMonitors: who waits for whom, and for whom nobody waits.

use serde_json::json;

use crate::api::{line, list};
use crate::ending::{ENDING, GIVEN_UP};
use crate::held::Gate;
use crate::operator::Operator;
use crate::script::Answer;
use crate::stage::{Stage, config_map, monitor, old, settled};

/// One more than may be awake at a time.
const MONITORS: usize = 33;

#[test]
fn what_comes_after_a_deletion_waits_for_the_deletions_of_others() {
    let (stage, gate) = (Stage::with(&[]), Gate::default());
    let monitors = (1..=MONITORS).map(|number| settled(&format!("m{number}"), &format!("a{number}")));
    let monitors = list("10", &monitors.collect::<Vec<_>>());
    stage.server.forget("list configmonitors").on("list configmonitors", [monitors]);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    stage.server.forget("list pods").always("list pods", |request| {
        let (mut pod, selector) = (old("p"), request.query("labelSelector").unwrap());
        let (key, value) = selector.split_once('=').unwrap();
        pod["metadata"]["name"] = value.into();
        pod["metadata"]["uid"] = value.into();
        pod["metadata"]["labels"] = json!({ key: value });
        list("20", &[pod])
    });
    stage.server.instead("put configmonitors", |request| {
        let mut written = request.json();
        written["metadata"]["resourceVersion"] = "6".into();
        Answer::json(200, &written)
    });
    let (held, mut deletions) = (gate.clone(), 0);
    stage.server.forget("delete pods").always("delete pods", move |_| {
        deletions += 1;
        let answer = Answer::json(200, &json!({}));
        if deletions == 1 { answer } else { answer.after(&held) }
    });

    let _operator = Operator::start(&stage.server);
    stage.server.wait_for("delete pods", MONITORS);
    let words = stage.server.words();
    let later = words.iter().find(|words| words.starts_with("post events") || words.starts_with("watch pods"));
    assert_eq!(later, None, "one pod is deleted, and others are not yet");
    gate.open();
    stage.server.wait_for("post events", MONITORS);
}

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
