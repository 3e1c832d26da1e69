//! Before pods are deleted in a pass that has not just written the intent, the ConfigMonitor is read: after the list, as the last
//! thing. What is done to it in the middle of a restart holds, also while no watch has told of it.

use crate::api::proxy_error;
use crate::operator::Operator;
use crate::stage::{Stage, World, old};

const GET: &str = "get configmonitors/m";
const DELETE: &str = "delete pods/p1";

/// A restart of `p1` in its second pass.
struct Pass {
    stage: Stage,
    operator: Operator,
    /// How many requests there were up to the list of this pass.
    begun: usize,
}

/// Restarts `p1`, which is not deleted at the first try, and does this as soon as the pods are listed for the second one. No watch
/// tells of it.
fn edited_after_the_list(edit: impl Fn(&mut World) + Send + 'static) -> Pass {
    let stage = Stage::with(&[old("p1")]);
    let mut lists = 0;
    stage.play_instead("list pods", move |world, request| {
        let answer = world.list(request);
        lists += usize::from(request.query("resourceVersion").is_none());
        if lists == 2 {
            lists += 1;
            edit(world);
        }
        answer
    });
    let operator = stage.operator(&[]);
    stage.server.on(DELETE, [proxy_error()]);
    stage.change();
    stage.server.wait_for("list pods", 2);
    let words = stage.server.words();
    let (second, _) = words.iter().enumerate().filter(|(_, words)| *words == "list pods").nth(1).unwrap();
    Pass { stage, operator, begun: second + 1 }
}

impl Pass {
    /// The requests since the list. Events and watches on pods are not counted.
    fn words(&self) -> Vec<String> {
        let mut words = self.stage.words_after(self.begun);
        words.retain(|words| words != "post events" && !words.starts_with("watch"));
        words
    }
}

/// One who writes annotations again and again holds nothing up.
#[test]
fn what_has_not_changed_is_deleted_whoever_has_touched_it() {
    for edit in [|_: &mut World| {}, World::touch] {
        let pass = edited_after_the_list(edit);
        pass.stage.is_over(&pass.operator);
        assert_eq!(pass.words()[..2], [GET, DELETE]);
        assert_eq!(pass.stage.deletions().len(), 2);
    }
}
