//! The status of a restart without progress.

use std::thread;

use serde_json::json;

use crate::api::refusal;
use crate::scenario::{Scenario, hash, old, ready, recorded};
use crate::script::MakeAnswer;

/// An admission webhook may deny a deletion with any code.
#[test]
fn a_deletion_that_is_denied_as_a_conflict_or_as_not_found_is_reported_and_stalls() {
    let [conflict, not_found]: [MakeAnswer; 2] = [|| refusal(409, "Conflict"), || refusal(404, "NotFound")];
    thread::scope(|scope| {
        // An unready pod is deleted beyond the budget, with a further precondition.
        for (answer, is_ready) in [(conflict, true), (not_found, true), (conflict, false), (not_found, false)] {
            scope.spawn(move || {
                let scenario = Scenario::with(&[ready(old("p1"), is_ready)]);
                scenario.set("maxUnavailable", json!(1));
                scenario.server.instead("delete pods", move |_| answer());
                let _operator = scenario.operator(&[]);
                scenario.server.tick();
                scenario.change();
                scenario.wait_for_reason("DeletionRefused");
                scenario.server.put_forward(900);
                scenario.wait_for_reason("ProgressDeadlineExceeded");
                let status = scenario.objects.lock().unwrap().monitor["status"].clone();
                assert_eq!((recorded(&status), &status["restart"]["pods"]), (&json!(hash(0)), &json!(1)));
            });
        }
    });
}
