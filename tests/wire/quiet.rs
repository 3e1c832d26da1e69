//! The quiet period: content that has passed it is still there.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::script::Answer;
use crate::stage::{PUT, Stage, config_map, hash, old, recorded};

#[test]
fn when_the_period_has_passed_the_config_map_is_read_once_more_and_content_that_is_gone_restarts_nothing() {
    let stage = Stage::with(&[old("p1")]);
    stage.set("quietPeriodSeconds", json!(1));
    let _operator = stage.operator(&[]);
    // The watch has nothing to say of the revert.
    stage.server.on("get configmaps/c", [Answer::json(200, &config_map(1, "8"))]);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "9")));
    stage.change();
    stage.server.wait_for(PUT, 2);
    stage.wait_until("the end", |world| world.monitor["status"]["restart"].is_null());
    assert!(stage.deletions().is_empty(), "{:?}", stage.server.words());
    let status = &stage.world.lock().unwrap().monitor["status"];
    assert_eq!((recorded(status), &status["sources"][0]["resourceVersion"]), (&json!(hash(0)), &json!("9")));
}

/// Which pods are old is read with the content, as metadata. When the period has passed, both are read once more.
#[test]
fn a_restart_with_a_quiet_period_takes_three_requests_more_than_one_without() {
    let stage = Stage::with(&[old("p1")]);
    stage.set("quietPeriodSeconds", json!(1));
    let operator = stage.operator(&[]);
    let before = stage.change();
    stage.is_over(&operator);
    let mut words = stage.words_after(before);
    words.retain(|words| words != "post events");
    let expected = [
        "get configmaps/c",
        "list pods",
        PUT,
        "get configmaps/c",
        "list pods",
        PUT,
        "delete pods/p1",
        "watch pods from 20",
        "get replicasets/r",
        PUT,
    ];
    assert_eq!(words, expected);
    let lists = stage.server.requests_for("list pods");
    assert!(lists[0].header("accept").is_some_and(|accept| accept.contains("PartialObjectMetadataList")));
    assert_eq!(lists[1].header("accept"), Some("application/json"));
}

/// As leader election by annotations does it.
#[test]
fn a_label_that_changes_all_the_time_costs_few_writes() {
    let stage = Stage::with(&[old("p1")]);
    let _operator = stage.operator(&[]);
    for number in 0..8 {
        stage.edit("c", 0, &(8 + number).to_string());
        stage.server.wait_for("get configmaps/c", 2 + number);
        thread::sleep(Duration::from_millis(400));
    }
    let writes = stage.writes();
    assert!((2..=3).contains(&writes.len()), "the first look, and {} for 8 labels", writes.len() - 1);
    assert!(writes.iter().all(|write| write["status"]["restart"] == Value::Null));
    let words = stage.server.words();
    assert!(!words.iter().any(|words| words.starts_with("list pods")), "{words:?}");
}
