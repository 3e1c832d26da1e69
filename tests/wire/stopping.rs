//! A wave of deletions stops if the spec or the content changes, if the server is busy, and if the server refuses.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::api::{line, refusal};
use crate::held::Gate;
use crate::scenario::{Objects, Scenario, hash, old_pods, reason, recorded, settled_on};
use crate::script::{Answer, MakeAnswer};

/// The number of pods.
const PODS: usize = 320;
/// The limit on deletions of the process.
const LIMIT: usize = 4;
/// The deletions of one wave within that limit.
const AT_A_TIME: usize = 3;

/// Restarts many pods. Calls `change` while the first deletions are in flight, and answers them once the operator has
/// handled it. Asserts that no other old pod is deleted before `is_done` holds.
fn assert_stops_the_wave(change: impl Fn(&Scenario), is_done: impl Fn(&Objects) -> bool) {
    let (scenario, gate) = (Scenario::with(&old_pods(PODS)), Gate::default());
    let answered = gate.clone();
    scenario.answer_instead("delete pods", move |objects, request| objects.delete(request).after(&answered));
    scenario.objects.lock().unwrap().others.push(settled_on("d", "n", "none"));
    scenario.edit_without_event("d", 0, "7");
    let operator = scenario.operator(&[("CONFIGMONITOR_DELETE_CONCURRENCY", &LIMIT.to_string())]);
    scenario.server.wait_for("get configmaps/d", 1);
    scenario.change();
    scenario.server.wait_for("delete pods", AT_A_TIME);
    change(&scenario);
    gate.open();
    operator.wait_for("pod deleted", AT_A_TIME);
    scenario.wait_until("the end of the wave", is_done);
    let mut deletions = scenario.deletions();
    deletions.retain(|words| !words.ends_with("-new"));
    assert_eq!(deletions.len(), AT_A_TIME, "those on their way");
}

#[test]
fn a_suspension_stops_the_wave() {
    let suspend = |scenario: &Scenario| {
        let edited = scenario.objects.lock().unwrap().edit("suspend", json!(true));
        scenario.send_and_wait(&line("MODIFIED", &edited));
    };
    assert_stops_the_wave(suspend, |objects| reason(&objects.monitor) == "Suspended");
}

#[test]
fn a_revert_stops_the_wave() {
    let revert = |scenario: &Scenario| {
        scenario.edit("c", 0, "9");
        // The next event of the same watch, about another ConfigMonitor.
        scenario.edit("d", 0, "9");
        scenario.server.wait_for("get configmaps/d", 2);
    };
    let is_over = |objects: &Objects| {
        let status = &objects.monitor["status"];
        status["sources"][0]["resourceVersion"] == "9" && status["restart"].is_null() && *recorded(status) == hash(0)
    };
    assert_stops_the_wave(revert, is_over);
}

/// When the first answer comes, as many DELETEs are in flight as the limit allows. After that, one DELETE at a time is
/// enough to find out.
#[test]
fn a_server_that_is_busy_or_refuses_gets_few_deletions() {
    let busy = || Answer::text(429, "Too many requests").header("retry-after", "30");
    let answers: [(&str, usize, MakeAnswer); 2] = [("busy", 32, busy), ("forbidden", 50, || refusal(403, "Forbidden"))];
    thread::scope(|scope| {
        for (name, max, answer) in answers {
            scope.spawn(move || {
                let scenario = Scenario::with(&old_pods(PODS));
                scenario.server.instead("delete pods", move |_| answer());
                let _operator = scenario.operator(&[]);
                scenario.change();
                scenario.server.wait_for("delete pods", 1);
                thread::sleep(Duration::from_secs(6));
                let deletions = scenario.deletions().len();
                assert!(deletions <= max, "{name}: {deletions} deletions in 6 s");
                assert_eq!(scenario.writes()[1]["status"]["restart"]["pods"], PODS, "{name}");
            });
        }
    });
}
