//! What a status says of a restart: that it is over only when the owners have what they want, and that it stalls only when nothing
//! moves any more.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::refusal;
use crate::script::{Answer, Play};
use crate::stage::{Stage, hash, old, pod, ready, reason};

/// Pods that are created again with bad content never become ready.
fn bad_content(stage: &Stage) {
    stage.play_instead("delete pods", |world, request| {
        world.delete_for(request, |name| ready(pod(name, "2026-11-21T10:00:00Z"), false))
    });
}

#[test]
fn bad_content_after_bad_content_is_not_up_to_date_until_the_pods_are_available() {
    let stage = Stage::with(&[old("p1"), old("p2")]);
    bad_content(&stage);
    let operator = stage.operator(&[]);
    stage.change();
    stage.server.wait_for("watch pods", 1);
    stage.edit("c", 2, "9");
    stage.server.wait_for("delete pods", 4);
    thread::sleep(Duration::from_secs(2));
    let writes = stage.writes();
    let too_early: Vec<&Value> = writes[1..].iter().filter(|write| reason(write) == "UpToDate").collect();
    assert!(too_early.is_empty(), "none of 2 is available: {}", too_early[0]["status"]["conditions"][0]);

    stage.world.lock().unwrap().all_get_ready();
    stage.wait_until("the end", |world| reason(&world.monitor) == "UpToDate");
    assert_eq!(stage.world.lock().unwrap().monitor["status"]["configHash"], hash(2));
    assert!(operator.lines("pod deleted").len() >= 4);
}

#[test]
fn a_restart_does_not_stall_while_pods_use_the_time_that_they_were_given_to_end() {
    let pods = [old("p1"), old("p2")].map(|mut pod| {
        pod["spec"] = json!({ "terminationGracePeriodSeconds": 60 });
        pod
    });
    let stage = Stage::with(&pods);
    stage.set("progressDeadlineSeconds", json!(1));
    stage.play_instead("delete pods", |world, request| {
        let at = world.position(request.target.rsplit('/').next().unwrap()).unwrap();
        let mut pod = world.pods[at].clone();
        pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:01:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(60);
        world.exchange(at, pod.clone());
        Answer::json(200, &pod)
    });
    let operator = stage.operator(&[]);
    stage.server.tick();
    stage.change();
    stage.server.wait_for("delete pods", 2);
    thread::sleep(Duration::from_secs(4));
    assert!(!stage.reasons().iter().any(|reason| reason == "ProgressDeadlineExceeded"), "{:?}", stage.reasons());
    assert!(operator.lines("attention needed").is_empty(), "{}", operator.log());
}

/// An admission webhook may deny a deletion with any code.
#[test]
fn a_deletion_that_is_denied_as_a_conflict_or_as_not_found_is_reported_and_stalls() {
    let [conflict, not_found]: [Play; 2] = [|| refusal(409, "Conflict"), || refusal(404, "NotFound")];
    thread::scope(|scope| {
        // A pod that is not ready goes beyond the budget, and with a precondition more.
        for (answer, is_ready) in [(conflict, true), (not_found, true), (conflict, false), (not_found, false)] {
            scope.spawn(move || {
                let stage = Stage::with(&[ready(old("p1"), is_ready)]);
                stage.set("maxUnavailable", json!(1));
                stage.server.instead("delete pods", move |_| answer());
                let _operator = stage.operator(&[]);
                stage.server.tick();
                stage.change();
                stage.wait_for_reason("DeletionRefused");
                stage.server.put_forward(900);
                stage.wait_for_reason("ProgressDeadlineExceeded");
                let status = stage.world.lock().unwrap().monitor["status"].clone();
                assert_eq!((&status["configHash"], &status["restart"]["pods"]), (&json!(hash(0)), &json!(1)));
            });
        }
    });
}
