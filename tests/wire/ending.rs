//! A signal ends the operator in good order, whatever it is in the middle of.

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use serde_json::json;

use crate::api::proxy_error;
use crate::held::Gate;
use crate::operator::Operator;
use crate::script::Answer;
use crate::stage::{PUT, Stage, config_map, old};

/// What holds up a keeper, and is given up when the grace is over.
pub(crate) const GIVEN_UP: &str = "requests still in flight; stopping anyway";
/// It says that it has heard the signal.
pub(crate) const ENDING: &str = "ending: nothing new is begun";

/// Two old pods of content that changed while there was no operator, and a request that is answered like this.
fn stage(words: &str, answer: fn() -> Answer) -> Stage {
    let stage = Stage::with(&[old("p1"), old("p2")]);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    stage.server.only(words, answer);
    stage
}

/// Runs the operator until it is in the middle of this, and signals. Gives back whether it had to give up a request.
fn gives_up(stage: &Stage, words: &str, variables: &[(&str, &str)]) -> bool {
    let mut operator = Operator::start_with(&stage.server, variables);
    stage.server.wait_for(words, 1);
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(0), "{words}: {}", operator.log());
    assert_eq!(operator.lines("ended").len(), 1, "{words}");
    !operator.lines(GIVEN_UP).is_empty()
}

#[test]
fn a_signal_ends_it_in_the_middle_of_any_request() {
    let requests = [
        ("list configmonitors", false),
        ("list configmaps", false),
        ("watch configmonitors", false),
        ("watch configmaps", false),
        ("get configmaps/c", true),
        ("list pods", true),
        (PUT, true),
        ("delete pods/p1", true),
        ("watch pods", false),
        ("post events", true),
        ("get configmonitors/m", true),
    ];
    thread::scope(|scope| {
        for (words, is_the_keepers) in requests {
            scope.spawn(move || {
                let stage = stage(words, || Answer::Stall);
                match words {
                    // Otherwise the restart may be over before.
                    "watch pods" => drop(stage.server.only("delete pods", || Answer::json(200, &json!({})))),
                    // It is read before a deletion is tried again.
                    "get configmonitors/m" => drop(stage.server.on("delete pods/p1", [proxy_error()])),
                    _ => {}
                }
                assert_eq!(gives_up(&stage, words, &[]), is_the_keepers, "{words}");
            });
        }
    });
}

#[test]
fn a_signal_ends_it_while_it_waits_to_try_again() {
    let later = || Answer::text(429, "Too many requests").header("retry-after", "600");
    thread::scope(|scope| {
        for words in ["list configmonitors", "watch configmaps", "get configmaps/c", "list pods", PUT, "delete pods/p1"]
        {
            scope.spawn(move || {
                let stage = stage(words, later);
                let mut operator = Operator::start_with(&stage.server, &[("CONFIGMONITOR_LOG", "debug")]);
                operator.wait_for_text("is busy and asks to wait 600 s");
                operator.signal("TERM");
                assert_eq!(operator.end().code(), Some(0), "{words}: {}", operator.log());
                assert!(operator.lines(GIVEN_UP).is_empty(), "{words}");
            });
        }
    });
}

#[test]
fn a_probe_that_is_never_finished_does_not_hold_up_the_end() {
    let stage = Stage::with(&[]);
    let mut operator = stage.operator(&[]);
    let mut probe = TcpStream::connect(operator.address()).unwrap();
    write!(probe, "GET /livez HTTP/1.1\r\nhost:").unwrap();
    assert_eq!(operator.probe("/livez").0, 200);
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
}

#[test]
fn a_signal_lets_the_deletions_under_way_finish_and_begins_nothing_new() {
    let (stage, gate) = (Stage::with(&[old("p1"), old("p2"), old("p3")]), Gate::default());
    for pod in ["p1", "p2"] {
        stage.server.on(&format!("delete pods/{pod}"), [Answer::json(200, &json!({})).after(&gate)]);
    }
    let mut operator = stage.operator(&[("CONFIGMONITOR_DELETE_CONCURRENCY", "2")]);
    stage.change();
    stage.server.wait_for("delete", 2);
    let before = stage.server.requests().len();
    operator.signal("TERM");
    operator.wait_for(ENDING, 1);
    gate.open();
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
    assert_eq!(stage.server.words()[before..], [""; 0]);
    assert_eq!(operator.lines("pod deleted").len(), 2, "{}", operator.log());
    assert!(operator.lines("pods not deleted").is_empty(), "{}", operator.log());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let stage = stage("delete pods/p1", || Answer::Stall);
    let mut operator = Operator::start(&stage.server);
    stage.server.wait_for("delete", 1);
    operator.signal("TERM");
    operator.wait_for(ENDING, 1);
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(1), "{}", operator.log());
    assert!(operator.lines(GIVEN_UP).is_empty());
}
