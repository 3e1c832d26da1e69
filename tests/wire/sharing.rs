//! ConfigMonitors share requests, turns, and pods. None blocks another without need, and none reads what another has
//! just read.

use serde_json::{Value, json};

use crate::api::line;
use crate::held::Gate;
use crate::operator::Operator;
use crate::request::Request;
use crate::scenario::{Scenario, hash, old, old_pods, owned_by, pod, ready, recorded, settled, settled_on};
use crate::timeouts::TIMEOUT;

/// Asserts that the second request came long before the operator can have given up the first one, which has no answer.
fn assert_does_not_wait(first: &Request, second: &Request) {
    let waited = second.at.saturating_duration_since(first.at).as_secs();
    assert!(waited + 5 < TIMEOUT, "{:?} came {waited} s after {:?}", second.words(), first.words());
}

/// Starts an operator that has read the ConfigMap `d` for the ConfigMonitor `n`, besides `m` and others.
fn operator_with_n(scenario: &Scenario, n: Value, variables: &[(&str, &str)]) -> Operator {
    scenario.objects.lock().unwrap().others.push(n);
    scenario.edit_without_event("d", 0, "7");
    let operator = scenario.operator(variables);
    scenario.server.wait_for("put configmonitors/n/status", 1);
    operator
}

/// Changes the ConfigMap `d` while this many deletions wait for the gate, and asserts that the operator sends these
/// requests at once.
fn assert_d_is_handled_while_deletions_hang(scenario: &Scenario, gate: &Gate, deletions: usize, seen: (&str, usize)) {
    scenario.server.wait_for("delete pods/p", deletions);
    scenario.edit("d", 1, "8");
    scenario.server.wait_for(seen.0, seen.1);
    gate.open();
    let first = &scenario.server.requests_for("delete pods/p")[0];
    assert_does_not_wait(first, &scenario.server.requests_for(seen.0)[seen.1 - 1]);
}

#[test]
fn deletions_that_hang_do_not_hold_up_the_restart_for_another_config_map() {
    let other = owned_by(old("q1"), "s", "other");
    let (scenario, gate) = (Scenario::with(&[&old_pods(40)[..], &[other]].concat()), Gate::default());
    let held = gate.clone();
    scenario.answer_instead("delete pods", move |objects, request| {
        let answer = objects.delete(request);
        if request.words() == "delete pods/q1" { answer } else { answer.after(&held) }
    });
    let _operator = operator_with_n(&scenario, settled_on("d", "n", "other"), &[]);
    scenario.change();
    // The limit is 32, and one wave takes 30.
    assert_d_is_handled_while_deletions_hang(&scenario, &gate, 30, ("delete pods/q1", 1));
}

/// As many waves as keepers may be awake, each with a deletion that hangs.
#[test]
fn waves_that_take_long_do_not_hold_up_the_reading_of_another_config_map() {
    let pods: Vec<Value> =
        (1..=32).map(|number| owned_by(old(&format!("p{number}")), "r", &format!("a{number}"))).collect();
    let (scenario, gate) = (Scenario::with(&pods), Gate::default());
    {
        let mut objects = scenario.objects.lock().unwrap();
        objects.others = (2..=32).map(|number| settled(&format!("m{number}"), &format!("a{number}"))).collect();
        objects.monitor["spec"]["podSelector"] = json!({ "app": "a1" });
    }
    let held = gate.clone();
    scenario.answer_instead("delete pods", move |objects, request| objects.delete(request).after(&held));
    // The limit on requests does not matter here.
    let variables = [("CONFIGMONITOR_REQUEST_CONCURRENCY", "100")];
    scenario.edit_without_event("c", 0, "7");
    let _operator = operator_with_n(&scenario, settled_on("d", "n", "none"), &variables);
    scenario.server.wait_for("put configmonitors", 33);
    scenario.edit("c", 1, "8");
    assert_d_is_handled_while_deletions_hang(&scenario, &gate, 32, ("get configmaps/d", 2));
}

/// Calls `act` while `m`, in its second generation, waits for its first deletion, because another deletion hangs.
fn before_the_first_deletion(act: impl Fn(&Scenario)) -> (Scenario, Operator) {
    let others = ["q1", "q2"].map(|name| owned_by(old(name), "s", "other"));
    let (scenario, gate) = (Scenario::with(&[&old_pods(2)[..], &others].concat()), Gate::default());
    scenario.objects.lock().unwrap().monitor["metadata"]["generation"] = json!(2);
    let held = gate.clone();
    scenario.answer_instead("delete pods", move |objects, request| {
        let answer = objects.delete(request);
        if request.words() == "delete pods/q1" { answer.after(&held) } else { answer }
    });
    let variables = [("CONFIGMONITOR_DELETE_CONCURRENCY", "1")];
    let operator = operator_with_n(&scenario, settled_on("d", "n", "other"), &variables);
    scenario.edit("d", 1, "8");
    scenario.server.wait_for("delete pods/q1", 1);
    scenario.change();
    scenario.wait_for_reason("RestartInProgress");
    act(&scenario);
    gate.open();
    scenario.server.wait_for("delete pods/q2", 1);
    operator.wait_for("restart over", 1);
    (scenario, operator)
}

#[test]
fn an_edit_of_the_spec_is_handled_before_the_first_deletion() {
    let (scenario, _operator) = before_the_first_deletion(|scenario| {
        let suspended = scenario.objects.lock().unwrap().edit("suspend", json!(true));
        scenario.send_and_wait(&line("MODIFIED", &suspended));
    });
    scenario.wait_for_reason("Suspended");
    assert!(scenario.server.requests_for("delete pods/p").is_empty(), "{:?}", scenario.server.words());
}

/// Otherwise a ConfigMap that changes all the time would block every restart.
#[test]
fn a_doorbell_is_handled_after_the_first_deletion() {
    let (scenario, _operator) = before_the_first_deletion(|scenario| {
        scenario.edit("c", 1, "9");
        scenario.send_and_wait("");
    });
    scenario.server.wait_for("get configmaps/c", 3);
    let words = scenario.server.words();
    let at = |what: &str, nth: usize| {
        let mut found = words.iter().enumerate().filter(|(_, words)| *words == what);
        found.nth(nth).map(|(at, _)| at)
    };
    assert!(at("delete pods/p1", 0).is_some_and(|deleted| Some(deleted) < at("get configmaps/c", 2)), "{words:?}");
}

/// Makes a ConfigMonitor restart by evictions, one pod at a time.
fn roll(monitor: &mut Value) {
    monitor["spec"]["deletionPolicy"] = json!("Evict");
    monitor["spec"]["maxUnavailable"] = json!(1);
}

#[test]
fn a_slow_rolling_restart_does_not_delay_a_restart_of_pods_of_other_owners() {
    let others = ["q1", "q2"].map(|name| owned_by(old(name), "s", "other"));
    let (scenario, gate) = (Scenario::with(&[&old_pods(20)[..], &others].concat()), Gate::default());
    roll(&mut scenario.objects.lock().unwrap().monitor);
    let mut n = settled_on("d", "n", "other");
    n["spec"]["maxUnavailable"] = json!(1);
    let held = gate.clone();
    scenario.answer("post pods", move |objects, request| objects.delete(request).after(&held));
    let _operator = operator_with_n(&scenario, n, &[]);
    scenario.change();
    scenario.server.wait_for("post pods", 1);
    scenario.edit("d", 1, "8");
    scenario.server.wait_for("delete pods/q", 1);
    gate.open();
    let first = &scenario.server.requests_for("post pods")[0];
    assert_does_not_wait(first, &scenario.server.requests_for("delete pods/q")[0]);
}

#[test]
fn a_config_monitor_that_waits_for_another_restart_can_be_suspended() {
    let (scenario, gate) = (Scenario::with(&[old("p1"), old("p2")]), Gate::default());
    scenario.set("maxUnavailable", json!(1));
    let mut n = settled_on("d", "n", "web");
    roll(&mut n);
    let held = gate.clone();
    scenario.answer("post pods", move |objects, request| objects.delete(request).after(&held));
    let _operator = operator_with_n(&scenario, n, &[]);
    scenario.edit("d", 1, "8");
    scenario.server.wait_for("post pods", 1);
    scenario.change();
    scenario.wait_for_reason("WaitingForOtherRestart");
    let suspended = scenario.objects.lock().unwrap().edit("suspend", json!(true));
    scenario.send(line("MODIFIED", &suspended));
    scenario.wait_for_reason("Suspended");
    assert_eq!(scenario.server.requests_for("post pods").len(), 1);
    gate.open();
}

#[test]
fn config_monitors_of_one_config_map_share_its_get() {
    let scenario = Scenario::with(&[]);
    scenario.objects.lock().unwrap().others = (2..=50).map(|number| settled(&format!("m{number}"), "web")).collect();
    scenario.edit_without_event("c", 0, "7");
    let _operator = scenario.operator(&[]);
    scenario.server.wait_for("put configmonitors", 50);
    let first = scenario.server.requests_for("get configmaps/c").len();
    assert!((1..=8).contains(&first), "{first} GETs for the first look");
    let before = scenario.server.requests().len();
    scenario.edit("c", 1, "8");
    scenario.wait_until("the end of all", |objects| {
        let mut all = objects.others.iter().chain([&objects.monitor]);
        all.all(|monitor| *recorded(&monitor["status"]) == hash(1))
    });
    let words = scenario.words_after(before);
    let reads = words.iter().filter(|words| *words == "get configmaps/c").count();
    assert!((1..=3).contains(&reads), "{reads} GETs for one edit");
}

/// Each ConfigMonitor needs a list after its GET, which may be another's later list. All share the watch after that
/// list.
#[test]
fn config_monitors_of_the_same_pods_share_a_list_and_a_watch_and_delete_each_pod_once() {
    let scenario = Scenario::with(&old_pods(20));
    scenario.objects.lock().unwrap().others = (2..=50).map(|number| settled(&format!("m{number}"), "web")).collect();
    scenario.answer_instead("delete pods", |objects, request| {
        objects.delete_with(request, |name| ready(pod(name, "2026-11-21T10:01:00Z"), false))
    });
    scenario.edit_without_event("c", 0, "7");
    let _operator = scenario.operator(&[]);
    scenario.server.wait_for("put configmonitors", 50);
    let before = scenario.server.requests().len();
    scenario.edit("c", 1, "8");
    scenario.server.wait_for("watch pods", 1);
    scenario.wait_until("the intents of all", |objects| {
        let mut all = objects.others.iter().chain([&objects.monitor]);
        all.all(|monitor| monitor["status"]["restart"]["startedAt"].is_string())
    });
    let words = scenario.words_after(before);
    let until_first = words.iter().take_while(|words| !words.starts_with("delete pods"));
    let lists = until_first.filter(|words| *words == "list pods").count();
    assert!((1..=3).contains(&lists), "{lists} lists before the first DELETE: {words:?}");
    scenario.objects.lock().unwrap().make_all_ready();
    scenario.wait_until("the end of all", |objects| {
        let mut all = objects.others.iter().chain([&objects.monitor]);
        all.all(|monitor| *recorded(&monitor["status"]) == hash(1))
    });
    assert_eq!(scenario.deletions().len(), 20, "{:?}", scenario.deletions());
    let watches = scenario.server.requests_for("watch pods").len();
    assert!((1..=3).contains(&watches), "{watches} watches");
}
