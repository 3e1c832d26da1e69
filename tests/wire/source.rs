//! A ConfigMonitor that comes back, and one whose ConfigMap becomes another: no edit is missed.

use serde_json::{Value, json};

use crate::api::{line, list, proxy_error, refusal, status};
use crate::held::Feed;
use crate::operator::Operator;
use crate::script::Answer;
use crate::stage::{Stage, config_map, hash, old, recorded};

#[test]
fn a_config_monitor_that_was_not_found_once_and_is_listed_again_acts_on_the_next_edit() {
    let (stage, first_watch) = (Stage::with(&[old("p1")]), Feed::default());
    stage.server.on("watch configmonitors from 10", [Answer::feed(&first_watch)]);
    let operator = stage.operator(&[]);
    stage.server.on("get configmonitors/m", [refusal(404, "NotFound")]);
    let edited = stage.world.lock().unwrap().edit("progressDeadlineSeconds", json!(300));
    first_watch.tell(line("MODIFIED", &edited));
    stage.server.wait_for("get configmonitors/m", 1);
    first_watch.tell(line("ERROR", &status(410, "Expired")));
    stage.server.wait_for("watch configmonitors", 2);
    stage.change();
    stage.is_over(&operator);
}

/// Before the operator reads the new source, no ConfigMonitor refers to it, and what its watch sends of it is passed over.
#[test]
fn an_edit_of_a_new_source_before_the_watch_sends_the_edited_spec_is_acted_on() {
    let stage = Stage::with(&[old("p1")]);
    stage.server.on("list configmonitors", [list("10", &[])]);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    stage.edit_unheard("d", 0, "7");
    let mut first = true;
    stage.play_instead("delete pods", move |world, request| {
        if std::mem::take(&mut first) {
            world.edit("configMap", json!("d"));
            return proxy_error();
        }
        world.delete(request)
    });
    let _operator = Operator::start(&stage.server);
    stage.server.wait_for("watch configmaps", 1);
    stage.server.wait_for("watch configmonitors", 1);
    let created = stage.world.lock().unwrap().monitor.clone();
    stage.tell(line("ADDED", &created));
    stage.wait_until("the end of the restart", |world| {
        *recorded(&world.monitor["status"]) == hash(0) && world.monitor["status"]["source"] == "ConfigMap/d"
    });
    stage.edit_unheard("d", 2, "8");
    let edited = stage.world.lock().unwrap().monitor.clone();
    stage.tell(line("MODIFIED", &edited));
    stage.wait_until("a restart for the last content", |world| {
        let status = &world.monitor["status"];
        *recorded(status) == hash(2) && status["restart"] == Value::Null
    });
}
