//! A pass that has not just written the intent reads the ConfigMonitor before it deletes pods, after the list. So an
//! edit in the middle of a restart counts even if no watch event has announced it.

use crate::api::proxy_error;
use crate::operator::Operator;
use crate::scenario::{Objects, Scenario, old};

const GET: &str = "get configmonitors/m";
const DELETE: &str = "delete pods/p1";

/// The second pass of a restart of `p1`.
struct SecondPass {
    scenario: Scenario,
    operator: Operator,
    /// The number of requests up to the list of this pass.
    requests_before: usize,
}

/// Restarts `p1`, whose first deletion fails. Calls `edit` when the pods are listed for the second attempt, without a
/// watch event.
fn edited_after_the_list(edit: impl Fn(&mut Objects) + Send + 'static) -> SecondPass {
    let scenario = Scenario::with(&[old("p1")]);
    let mut lists = 0;
    scenario.answer_instead("list pods", move |objects, request| {
        let answer = objects.list(request);
        lists += usize::from(request.query("resourceVersion").is_none());
        if lists == 2 {
            lists += 1;
            edit(objects);
        }
        answer
    });
    let operator = scenario.operator(&[]);
    scenario.server.on(DELETE, [proxy_error()]);
    scenario.change();
    scenario.server.wait_for("list pods", 2);
    let words = scenario.server.words();
    let (second, _) = words.iter().enumerate().filter(|(_, words)| *words == "list pods").nth(1).unwrap();
    SecondPass { scenario, operator, requests_before: second + 1 }
}

impl SecondPass {
    /// Returns the requests after the list, without Events and watches.
    fn words(&self) -> Vec<String> {
        let mut words = self.scenario.words_after(self.requests_before);
        words.retain(|words| words != "post events" && !words.starts_with("watch"));
        words
    }
}

/// A client that keeps writing annotations must not block the restart.
#[test]
fn a_write_that_changes_neither_spec_nor_status_does_not_stop_the_deletion() {
    for edit in [|_: &mut Objects| {}, Objects::touch] {
        let pass = edited_after_the_list(edit);
        pass.scenario.wait_until_over(&pass.operator);
        assert_eq!(pass.words()[..2], [GET, DELETE]);
        assert_eq!(pass.scenario.deletions().len(), 2);
    }
}
