//! Before pods are deleted in a pass that has not just written the intent, the ConfigMonitor is read: after the list, as the last
//! thing. What is done to it in the middle of a restart holds, also while no watch has told of it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{list, proxy_error, refusal};
use crate::script::Answer;
use crate::stage::{PUT, Stage, World, old};
use crate::time::DEADLINE;

const GET: &str = "get configmonitors/m";

/// Restarts `p1`, which is not deleted at the first try, and does this as soon as the pods are listed for the second one. No watch
/// tells of it. The requests from that list on must be these; Events and the watch on pods are not counted.
fn assert_goes_on(spec: &[(&str, Value)], edit: impl Fn(&mut World) + Send + 'static, expected: &[&str]) {
    let stage = Stage::with(&[old("p1")]);
    for (field, value) in spec {
        stage.world.lock().unwrap().monitor["spec"][*field] = value.clone();
    }
    let world = Arc::clone(&stage.world);
    let mut lists = 0;
    stage.server.forget("list pods").always("list pods", move |request| {
        let mut world = world.lock().unwrap();
        let is_selected = request.query("labelSelector").as_deref() == Some("app=web");
        let answer = list("20", if is_selected { &world.pods } else { &[] });
        lists += 1;
        if lists == 2 {
            edit(&mut world);
        }
        answer
    });
    let world = Arc::clone(&stage.world);
    stage.server.forget(GET).always(GET, move |_| match &world.lock().unwrap().monitor {
        Value::Null => refusal(404, "NotFound"),
        monitor => Answer::json(200, monitor),
    });
    let owner = json!({ "metadata": { "uid": "uid-of-r" },
        "spec": { "replicas": 1, "template": { "metadata": { "labels": { "app": "web" } } } } });
    stage.server.always("get replicasets/r", move |_| Answer::json(200, &owner));
    let operator = stage.operator(&[]);
    stage.server.on("delete pods/p1", [proxy_error()]);
    stage.change();
    stage.server.wait_for("list pods", 2);

    let start = Instant::now();
    let mut words = Vec::new();
    while words.len() < expected.len() && start.elapsed() < DEADLINE {
        // Nor does anything come after that.
        thread::sleep(Duration::from_secs(1));
        words = stage.server.words();
        let second = words.iter().enumerate().filter(|(_, words)| *words == "list pods").nth(1).unwrap().0;
        words.drain(..=second);
        words.retain(|words| words != "post events" && !words.starts_with("watch"));
    }
    assert_eq!(words, expected, "{}", operator.log());
}

/// Somebody edits the spec.
fn edit(world: &mut World, field: &str, value: Value) {
    world.monitor["spec"][field] = value;
    world.monitor["metadata"]["generation"] = json!(2);
    world.touch();
}

#[test]
fn what_is_suspended_deletes_nothing() {
    // As long as no watch has told of the edit, it is read by every step.
    let expected = [GET, GET, "get configmaps/c", PUT];
    assert_goes_on(&[], |world| edit(world, "suspend", json!(true)), &expected);
}

#[test]
fn a_pod_that_is_not_selected_any_more_is_left_alone() {
    let expected = [GET, GET, "get configmaps/c", "list pods", PUT];
    assert_goes_on(&[], |world| edit(world, "podSelector", json!({ "app": "another" })), &expected);
}

#[test]
fn what_is_deleted_or_another_of_this_name_deletes_nothing() {
    assert_goes_on(&[], |world| world.monitor = Value::Null, &[GET]);
    assert_goes_on(&[], |world| world.monitor["metadata"]["uid"] = json!("another"), &[GET]);
}

/// With a budget the turn is lost, and it takes another one.
#[test]
fn whatever_has_changed_in_the_spec_everything_is_decided_again() {
    let edit = |world: &mut World| edit(world, "progressDeadlineSeconds", json!(300));
    let again = [GET, GET, "get configmaps/c", "list pods"];
    let rest = [GET, "delete pods/p1", PUT, GET, "list pods", PUT];
    assert_goes_on(&[], edit, &[&again[..], &rest].concat());
    let owner = "get replicasets/r";
    let expected = [&[owner], &again[..], &[owner], &rest].concat();
    assert_goes_on(&[("maxUnavailable", json!(1))], edit, &expected);
}

/// One who writes annotations again and again holds nothing up.
#[test]
fn what_has_not_changed_is_deleted_whoever_has_touched_it() {
    let expected = [GET, "delete pods/p1", PUT, "list pods", PUT];
    assert_goes_on(&[], |_| {}, &expected);
    assert_goes_on(&[], World::touch, &expected);
}
