//! What a status says of a restart that makes no progress.

use std::thread;

use serde_json::json;

use crate::api::refusal;
use crate::script::Play;
use crate::stage::{Stage, hash, old, ready, recorded};

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
                assert_eq!((recorded(&status), &status["restart"]["pods"]), (&json!(hash(0)), &json!(1)));
            });
        }
    });
}
