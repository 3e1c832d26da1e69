//! A ConfigMonitor that reappears, and one that gets another ConfigMap: no edit is missed.

use serde_json::{Value, json};

use crate::api::{line, list, proxy_error, refusal, status};
use crate::held::Feed;
use crate::operator::Operator;
use crate::scenario::{Scenario, config_map, hash, old, recorded};
use crate::script::Answer;

#[test]
fn a_config_monitor_that_was_not_found_once_and_is_listed_again_acts_on_the_next_edit() {
    let (scenario, first_watch) = (Scenario::with(&[old("p1")]), Feed::default());
    scenario.server.on("watch configmonitors from 10", [Answer::feed(&first_watch)]);
    let operator = scenario.operator(&[]);
    scenario.server.on("get configmonitors/m", [refusal(404, "NotFound")]);
    let edited = scenario.objects.lock().unwrap().edit("progressDeadlineSeconds", json!(300));
    first_watch.push(line("MODIFIED", &edited));
    scenario.server.wait_for("get configmonitors/m", 1);
    first_watch.push(line("ERROR", &status(410, "Expired")));
    scenario.server.wait_for("watch configmonitors", 2);
    scenario.change();
    scenario.wait_until_over(&operator);
}

/// Until the operator has read the new source, no ConfigMonitor refers to it, and its watch events are dropped.
#[test]
fn an_edit_of_a_new_source_before_the_watch_sends_the_edited_spec_is_acted_on() {
    let scenario = Scenario::with(&[old("p1")]);
    scenario.server.on("list configmonitors", [list("10", &[])]);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    scenario.edit_without_event("d", 0, "7");
    let mut first = true;
    scenario.answer_instead("delete pods", move |objects, request| {
        if std::mem::take(&mut first) {
            objects.edit("configMap", json!("d"));
            return proxy_error();
        }
        objects.delete(request)
    });
    let _operator = Operator::start(&scenario.server);
    scenario.server.wait_for("watch configmaps", 1);
    scenario.server.wait_for("watch configmonitors", 1);
    let created = scenario.objects.lock().unwrap().monitor.clone();
    scenario.send(line("ADDED", &created));
    scenario.wait_until("the end of the restart", |objects| {
        *recorded(&objects.monitor["status"]) == hash(0) && objects.monitor["status"]["source"] == "ConfigMap/d"
    });
    scenario.edit_without_event("d", 2, "8");
    let edited = scenario.objects.lock().unwrap().monitor.clone();
    scenario.send(line("MODIFIED", &edited));
    scenario.wait_until("a restart for the last content", |objects| {
        let status = &objects.monitor["status"];
        *recorded(status) == hash(2) && status["restart"] == Value::Null
    });
}
