//! A wave of deletions stops: when the author has changed something in the meantime, when the server is busy, and when it says no.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::{line, refusal};
use crate::held::Gate;
use crate::script::{Answer, Play};
use crate::stage::{Stage, World, hash, old_pods, reason, recorded, settled_on};

/// So many pods are to be deleted,
const PODS: usize = 320;
/// with so many at a time in the whole process,
const LIMIT: usize = 4;
/// of which one wave leaves some to others.
const AT_A_TIME: usize = 3;

/// Restarts many pods. When the first deletions are on their way, `change` happens and the operator hears of it; only then they are
/// answered. No other pod of before may be deleted by the time that `is_done` holds.
fn assert_stops_the_wave(change: impl Fn(&Stage), is_done: impl Fn(&World) -> bool) {
    let (stage, gate) = (Stage::with(&old_pods(PODS)), Gate::default());
    let answered = gate.clone();
    stage.play_instead("delete pods", move |world, request| world.delete(request).after(&answered));
    stage.world.lock().unwrap().others.push(settled_on("d", "n", "none"));
    stage.edit_unheard("d", 0, "7");
    let operator = stage.operator(&[("CONFIGMONITOR_DELETE_CONCURRENCY", &LIMIT.to_string())]);
    stage.server.wait_for("get configmaps/d", 1);
    stage.change();
    stage.server.wait_for("delete pods", AT_A_TIME);
    change(&stage);
    gate.open();
    operator.wait_for("pod deleted", AT_A_TIME);
    stage.wait_until("the end of the wave", is_done);
    let mut deletions = stage.deletions();
    deletions.retain(|words| !words.ends_with("-new"));
    assert_eq!(deletions.len(), AT_A_TIME, "those on their way");
}

#[test]
fn a_suspension_stops_the_wave() {
    let suspend = |stage: &Stage| {
        let edited = stage.world.lock().unwrap().edit("suspend", json!(true));
        stage.tell_and_wait(&line("MODIFIED", &edited));
    };
    assert_stops_the_wave(suspend, |world| reason(&world.monitor) == "Suspended");
}

#[test]
fn a_revert_stops_the_wave() {
    let revert = |stage: &Stage| {
        stage.edit("c", 0, "9");
        // What comes after it on the same watch, and is about another ConfigMonitor.
        stage.edit("d", 0, "9");
        stage.server.wait_for("get configmaps/d", 2);
    };
    let is_over = |world: &World| {
        let status = &world.monitor["status"];
        status["sources"][0]["resourceVersion"] == "9" && status["restart"].is_null() && *recorded(status) == hash(0)
    };
    assert_stops_the_wave(revert, is_over);
}

/// Of many DELETEs, those that are on their way when the first answer comes are as many as may be at a time. After that, one is enough
/// to find out.
#[test]
fn a_server_that_is_busy_or_says_no_gets_a_bounded_number_of_deletions() {
    let busy = || Answer::text(429, "Too many requests").header("retry-after", "30");
    let answers: [(&str, usize, Play); 2] = [("busy", 32, busy), ("forbidden", 50, || refusal(403, "Forbidden"))];
    thread::scope(|scope| {
        for (name, most, answer) in answers {
            scope.spawn(move || {
                let stage = Stage::with(&old_pods(PODS));
                stage.server.instead("delete pods", move |_| answer());
                let _operator = stage.operator(&[]);
                stage.change();
                stage.server.wait_for("delete pods", 1);
                thread::sleep(Duration::from_secs(6));
                let deletions = stage.deletions().len();
                assert!(deletions <= most, "{name}: {deletions} deletions in 6 s");
                assert_eq!(stage.writes()[1]["status"]["restart"]["pods"], PODS, "{name}");
            });
        }
    });
}
