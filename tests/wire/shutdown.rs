//! A signal stops the operator in good order, whatever it is doing.

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use serde_json::json;

use crate::api::proxy_error;
use crate::held::Gate;
use crate::operator::Operator;
use crate::scenario::{PUT, Scenario, config_map, old};
use crate::script::Answer;

/// The log line when the grace is over and a request is still in flight.
pub(crate) const GIVEN_UP: &str = "requests still in flight; stopping anyway";
/// The log line after a signal.
pub(crate) const SHUTDOWN: &str = "signal received: shutting down";

/// Returns two old pods whose content changed while there was no operator, with this answer to these requests.
fn scenario(words: &str, answer: fn() -> Answer) -> Scenario {
    let scenario = Scenario::with(&[old("p1"), old("p2")]);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    scenario.server.only(words, answer);
    scenario
}

/// Starts the operator, sends a signal once these requests have arrived, and returns whether the operator gave up a
/// request.
fn signal_during(scenario: &Scenario, words: &str, variables: &[(&str, &str)]) -> bool {
    let mut operator = Operator::start_with(&scenario.server, variables);
    scenario.server.wait_for(words, 1);
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(0), "{words}: {}", operator.log());
    assert_eq!(operator.lines("stopped").len(), 1, "{words}");
    !operator.lines(GIVEN_UP).is_empty()
}

#[test]
fn a_signal_stops_the_operator_in_the_middle_of_any_request() {
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
                let scenario = scenario(words, || Answer::Stall);
                match words {
                    // Otherwise the restart might be over before.
                    "watch pods" => drop(scenario.server.only("delete pods", || Answer::json(200, &json!({})))),
                    // The ConfigMonitor is read before a deletion is retried.
                    "get configmonitors/m" => drop(scenario.server.on("delete pods/p1", [proxy_error()])),
                    _ => {}
                }
                assert_eq!(signal_during(&scenario, words, &[]), is_the_keepers, "{words}");
            });
        }
    });
}

#[test]
fn an_unfinished_probe_does_not_delay_the_shutdown() {
    let scenario = Scenario::with(&[]);
    let mut operator = scenario.operator(&[]);
    let mut probe = TcpStream::connect(operator.address()).unwrap();
    write!(probe, "GET /livez HTTP/1.1\r\nhost:").unwrap();
    assert_eq!(operator.probe("/livez").0, 200);
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
}

#[test]
fn after_a_signal_the_deletions_in_flight_finish_and_no_request_is_sent() {
    let (scenario, gate) = (Scenario::with(&[old("p1"), old("p2"), old("p3")]), Gate::default());
    for pod in ["p1", "p2"] {
        scenario.server.on(&format!("delete pods/{pod}"), [Answer::json(200, &json!({})).after(&gate)]);
    }
    let mut operator = scenario.operator(&[("CONFIGMONITOR_DELETE_CONCURRENCY", "2")]);
    scenario.change();
    scenario.server.wait_for("delete", 2);
    let before = scenario.server.requests().len();
    operator.signal("TERM");
    operator.wait_for(SHUTDOWN, 1);
    gate.open();
    assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
    assert_eq!(scenario.server.words()[before..], [""; 0]);
    assert_eq!(operator.lines("pod deleted").len(), 2, "{}", operator.log());
    assert!(operator.lines("attention needed").is_empty(), "{}", operator.log());
}

#[test]
fn a_second_signal_exits_at_once() {
    let scenario = scenario("delete pods/p1", || Answer::Stall);
    let mut operator = Operator::start(&scenario.server);
    scenario.server.wait_for("delete", 1);
    operator.signal("TERM");
    operator.wait_for(SHUTDOWN, 1);
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(1), "{}", operator.log());
    assert!(operator.lines(GIVEN_UP).is_empty());
}
