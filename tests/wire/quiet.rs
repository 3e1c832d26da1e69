//! The quiet period: only content that is still there after it causes a restart.

use serde_json::json;

use crate::scenario::{PUT, Scenario, config_map, hash, old, recorded};
use crate::script::Answer;

#[test]
fn after_the_quiet_period_the_config_map_is_read_again_and_reverted_content_restarts_nothing() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.set("quietPeriodSeconds", json!(1));
    let _operator = scenario.operator(&[]);
    // No watch event announces the revert.
    scenario.server.on("get configmaps/c", [Answer::json(200, &config_map(1, "8"))]);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "9")));
    scenario.change();
    scenario.server.wait_for(PUT, 2);
    scenario.wait_until("the end", |objects| objects.monitor["status"]["restart"].is_null());
    assert!(scenario.deletions().is_empty(), "{:?}", scenario.server.words());
    let status = &scenario.objects.lock().unwrap().monitor["status"];
    assert_eq!((recorded(status), &status["sources"][0]["resourceVersion"]), (&json!(hash(0)), &json!("9")));
}

/// The old pods are listed with the content, as metadata. After the quiet period, both are read again.
#[test]
fn a_restart_with_a_quiet_period_takes_three_requests_more_than_one_without() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.set("quietPeriodSeconds", json!(1));
    let operator = scenario.operator(&[]);
    let before = scenario.change();
    scenario.wait_until_over(&operator);
    let mut words = scenario.words_after(before);
    words.retain(|words| words != "post events");
    let expected = [
        "get configmaps/c",
        "list pods",
        PUT,
        "get configmaps/c",
        "list pods",
        PUT,
        "delete pods/p1",
        PUT,
        "watch pods from 20",
        "get replicasets/r",
        PUT,
    ];
    assert_eq!(words, expected);
    let lists = scenario.server.requests_for("list pods");
    assert!(lists[0].header("accept").is_some_and(|accept| accept.contains("PartialObjectMetadataList")));
    assert_eq!(lists[1].header("accept"), Some("application/json"));
}
