//! Before pods are deleted in a pass that has not just written the intent, the ConfigMonitor is read: after the list, as the last
//! thing. What is done to it in the middle of a restart holds, also while no watch has told of it.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{proxy_error, refusal};
use crate::operator::Operator;
use crate::script::Answer;
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
fn edited_after_the_list(spec: &[(&str, Value)], edit: impl Fn(&mut World) + Send + 'static) -> Pass {
    let stage = Stage::with(&[old("p1")]);
    for (field, value) in spec {
        stage.set(field, value.clone());
    }
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
    stage.play_instead(GET, |world, _| match &world.monitor {
        Value::Null => refusal(404, "NotFound"),
        monitor => Answer::json(200, monitor),
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

    fn assert_no_deletion(&self) {
        let words = self.words();
        assert!(!words.iter().any(|words| words.starts_with("delete")), "{words:?}\n{}", self.operator.log());
    }
}

#[test]
fn what_is_suspended_deletes_nothing() {
    let pass = edited_after_the_list(&[], |world| drop(world.edit("suspend", json!(true))));
    pass.stage.wait_for_reason("Suspended");
    pass.assert_no_deletion();
}

#[test]
fn a_pod_that_is_not_selected_any_more_is_left_alone() {
    let pass = edited_after_the_list(&[], |world| drop(world.edit("podSelector", json!({ "app": "another" }))));
    pass.stage.is_over(&pass.operator);
    pass.assert_no_deletion();
}

#[test]
fn what_is_deleted_or_another_of_this_name_deletes_nothing() {
    let edits: [fn(&mut World); 2] =
        [|world| world.monitor = Value::Null, |world| world.monitor["metadata"]["uid"] = json!("another")];
    for edit in edits {
        let pass = edited_after_the_list(&[], edit);
        pass.stage.server.wait_for(GET, 1);
        thread::sleep(Duration::from_secs(2));
        pass.assert_no_deletion();
        let words = pass.words();
        assert!(words.iter().all(|words| words == GET), "{words:?}");
    }
}

/// With a budget the turn is lost, and it takes another one.
#[test]
fn whatever_has_changed_in_the_spec_everything_is_decided_again() {
    for (spec, owner) in [(vec![], None), (vec![("maxUnavailable", json!(1))], Some("get replicasets/r"))] {
        let pass = edited_after_the_list(&spec, |world| drop(world.edit("progressDeadlineSeconds", json!(300))));
        pass.stage.is_over(&pass.operator);
        let words = pass.words();
        let read = words.iter().position(|words| words == GET).unwrap();
        let deletion = words.iter().position(|words| words == DELETE).unwrap();
        let again = &words[read + 1..deletion];
        assert!(again.iter().any(|words| words == "list pods"), "{words:?}");
        assert!(owner.is_none_or(|owner| again.iter().any(|words| words == owner)), "{words:?}");
        assert_eq!(again.last().map(String::as_str), Some(GET), "the last thing: {words:?}");
        assert_eq!(pass.stage.deletions().len(), 2);
    }
}

/// One who writes annotations again and again holds nothing up.
#[test]
fn what_has_not_changed_is_deleted_whoever_has_touched_it() {
    for edit in [|_: &mut World| {}, World::touch] {
        let pass = edited_after_the_list(&[], edit);
        pass.stage.is_over(&pass.operator);
        assert_eq!(pass.words()[..2], [GET, DELETE]);
        assert_eq!(pass.stage.deletions().len(), 2);
    }
}
