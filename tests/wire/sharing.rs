//! What ConfigMonitors share: requests, turns, and pods. None holds up another without need, and none reads what another has just read.

use serde_json::{Value, json};

use crate::api::line;
use crate::held::Gate;
use crate::operator::Operator;
use crate::patience::TIMEOUT;
use crate::request::Request;
use crate::stage::{Stage, hash, old, old_pods, owned_by, pod, ready, recorded, settled, settled_on};

/// The second came well before the operator can have given up the first, which has no answer.
fn assert_does_not_wait(first: &Request, second: &Request) {
    let waited = second.at.saturating_duration_since(first.at).as_secs();
    assert!(waited + 5 < TIMEOUT, "{:?} came {waited} s after {:?}", second.words(), first.words());
}

/// An operator that has read the ConfigMap `d` for the ConfigMonitor `n` beside `m` and others.
fn operator_with_n(stage: &Stage, n: Value, variables: &[(&str, &str)]) -> Operator {
    stage.world.lock().unwrap().others.push(n);
    stage.edit_unheard("d", 0, "7");
    let operator = stage.operator(variables);
    stage.server.wait_for("put configmonitors/n/status", 1);
    operator
}

/// The ConfigMap `d` changes while so many deletions wait for the gate, and something is done about it.
fn assert_d_is_seen_to_while_deletions_hang(stage: &Stage, gate: &Gate, deletions: usize, seen: (&str, usize)) {
    stage.server.wait_for("delete pods/p", deletions);
    stage.edit("d", 1, "8");
    stage.server.wait_for(seen.0, seen.1);
    gate.open();
    let first = &stage.server.requests_for("delete pods/p")[0];
    assert_does_not_wait(first, &stage.server.requests_for(seen.0)[seen.1 - 1]);
}

#[test]
fn deletions_that_hang_do_not_hold_up_the_restart_for_another_config_map() {
    let other = owned_by(old("q1"), "s", "other");
    let (stage, gate) = (Stage::with(&[&old_pods(40)[..], &[other]].concat()), Gate::default());
    let held = gate.clone();
    stage.play_instead("delete pods", move |world, request| {
        let answer = world.delete(request);
        if request.words() == "delete pods/q1" { answer } else { answer.after(&held) }
    });
    let _operator = operator_with_n(&stage, settled_on("d", "n", "other"), &[]);
    stage.change();
    // Of 32 that may be under way, one wave takes 30.
    assert_d_is_seen_to_while_deletions_hang(&stage, &gate, 30, ("delete pods/q1", 1));
}

/// As many waves as keepers may be awake, each with a deletion that hangs.
#[test]
fn waves_that_take_long_do_not_hold_up_the_reading_of_another_config_map() {
    let pods: Vec<Value> =
        (1..=32).map(|number| owned_by(old(&format!("p{number}")), "r", &format!("a{number}"))).collect();
    let (stage, gate) = (Stage::with(&pods), Gate::default());
    {
        let mut world = stage.world.lock().unwrap();
        world.others = (2..=32).map(|number| settled(&format!("m{number}"), &format!("a{number}"))).collect();
        world.monitor["spec"]["podSelector"] = json!({ "app": "a1" });
    }
    let held = gate.clone();
    stage.play_instead("delete pods", move |world, request| world.delete(request).after(&held));
    // Of requests there is room for more.
    let variables = [("CONFIGMONITOR_REQUEST_CONCURRENCY", "100")];
    stage.edit_unheard("c", 0, "7");
    let _operator = operator_with_n(&stage, settled_on("d", "n", "none"), &variables);
    stage.server.wait_for("put configmonitors", 33);
    stage.edit("c", 1, "8");
    assert_d_is_seen_to_while_deletions_hang(&stage, &gate, 32, ("get configmaps/d", 2));
}

/// `m`, of which this is the second generation, is about to send its first deletion, and waits as another one hangs. Something comes meanwhile.
fn comes_before_the_first_deletion(comes: impl Fn(&Stage)) -> (Stage, Operator) {
    let others = ["q1", "q2"].map(|name| owned_by(old(name), "s", "other"));
    let (stage, gate) = (Stage::with(&[&old_pods(2)[..], &others].concat()), Gate::default());
    stage.world.lock().unwrap().monitor["metadata"]["generation"] = json!(2);
    let held = gate.clone();
    stage.play_instead("delete pods", move |world, request| {
        let answer = world.delete(request);
        if request.words() == "delete pods/q1" { answer.after(&held) } else { answer }
    });
    let variables = [("CONFIGMONITOR_DELETE_CONCURRENCY", "1")];
    let operator = operator_with_n(&stage, settled_on("d", "n", "other"), &variables);
    stage.edit("d", 1, "8");
    stage.server.wait_for("delete pods/q1", 1);
    stage.change();
    stage.wait_for_reason("RestartInProgress");
    comes(&stage);
    gate.open();
    stage.server.wait_for("delete pods/q2", 1);
    operator.wait_for("restart over", 1);
    (stage, operator)
}

#[test]
fn an_edit_of_the_spec_comes_before_the_first_deletion() {
    let (stage, _operator) = comes_before_the_first_deletion(|stage| {
        let suspended = stage.world.lock().unwrap().edit("suspend", json!(true));
        stage.tell_and_wait(&line("MODIFIED", &suspended));
    });
    stage.wait_for_reason("Suspended");
    assert!(stage.server.requests_for("delete pods/p").is_empty(), "{:?}", stage.server.words());
}

/// A ConfigMap that changes all the time would block every restart.
#[test]
fn a_doorbell_comes_after_the_first_deletion() {
    let (stage, _operator) = comes_before_the_first_deletion(|stage| {
        stage.edit("c", 1, "9");
        stage.tell_and_wait("");
    });
    stage.server.wait_for("get configmaps/c", 3);
    let words = stage.server.words();
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
fn a_slow_rolling_restart_does_not_hold_up_one_of_pods_of_other_owners() {
    let others = ["q1", "q2"].map(|name| owned_by(old(name), "s", "other"));
    let (stage, gate) = (Stage::with(&[&old_pods(20)[..], &others].concat()), Gate::default());
    roll(&mut stage.world.lock().unwrap().monitor);
    let mut n = settled_on("d", "n", "other");
    n["spec"]["maxUnavailable"] = json!(1);
    let held = gate.clone();
    stage.play("post pods", move |world, request| world.delete(request).after(&held));
    let _operator = operator_with_n(&stage, n, &[]);
    stage.change();
    stage.server.wait_for("post pods", 1);
    stage.edit("d", 1, "8");
    stage.server.wait_for("delete pods/q", 1);
    gate.open();
    let first = &stage.server.requests_for("post pods")[0];
    assert_does_not_wait(first, &stage.server.requests_for("delete pods/q")[0]);
}

#[test]
fn one_that_waits_for_another_restart_can_be_suspended_meanwhile() {
    let (stage, gate) = (Stage::with(&[old("p1"), old("p2")]), Gate::default());
    stage.set("maxUnavailable", json!(1));
    let mut n = settled_on("d", "n", "web");
    roll(&mut n);
    let held = gate.clone();
    stage.play("post pods", move |world, request| world.delete(request).after(&held));
    let _operator = operator_with_n(&stage, n, &[]);
    stage.edit("d", 1, "8");
    stage.server.wait_for("post pods", 1);
    stage.change();
    stage.wait_for_reason("WaitingForOtherRestart");
    let suspended = stage.world.lock().unwrap().edit("suspend", json!(true));
    stage.tell(line("MODIFIED", &suspended));
    stage.wait_for_reason("Suspended");
    assert_eq!(stage.server.requests_for("post pods").len(), 1);
    gate.open();
}

#[test]
fn config_monitors_of_one_config_map_share_the_reading_of_it() {
    let stage = Stage::with(&[]);
    stage.world.lock().unwrap().others = (2..=50).map(|number| settled(&format!("m{number}"), "web")).collect();
    stage.edit_unheard("c", 0, "7");
    let _operator = stage.operator(&[]);
    stage.server.wait_for("put configmonitors", 50);
    let first = stage.server.requests_for("get configmaps/c").len();
    assert!((1..=8).contains(&first), "{first} GETs for the first look");
    let before = stage.server.requests().len();
    stage.edit("c", 1, "8");
    stage.wait_until("the end of all", |world| {
        let mut all = world.others.iter().chain([&world.monitor]);
        all.all(|monitor| *recorded(&monitor["status"]) == hash(1))
    });
    let words = stage.words_after(before);
    let reads = words.iter().filter(|words| *words == "get configmaps/c").count();
    assert!((1..=3).contains(&reads), "{reads} GETs for one edit");
}

/// Each makes the list that it needs after the GET, or has the one that another has made since; and what comes after that list all hear
/// from one watch.
#[test]
fn config_monitors_of_the_same_pods_share_a_list_and_a_watch_and_delete_each_pod_once() {
    let stage = Stage::with(&old_pods(20));
    stage.world.lock().unwrap().others = (2..=50).map(|number| settled(&format!("m{number}"), "web")).collect();
    stage.play_instead("delete pods", |world, request| {
        world.delete_for(request, |name| ready(pod(name, "2026-11-21T10:01:00Z"), false))
    });
    stage.edit_unheard("c", 0, "7");
    let _operator = stage.operator(&[]);
    stage.server.wait_for("put configmonitors", 50);
    let before = stage.server.requests().len();
    stage.edit("c", 1, "8");
    stage.server.wait_for("watch pods", 1);
    stage.wait_until("the intents of all", |world| {
        let mut all = world.others.iter().chain([&world.monitor]);
        all.all(|monitor| monitor["status"]["restart"]["startedAt"].is_string())
    });
    let words = stage.words_after(before);
    let until_first = words.iter().take_while(|words| !words.starts_with("delete pods"));
    let lists = until_first.filter(|words| *words == "list pods").count();
    assert!((1..=3).contains(&lists), "{lists} lists before the first DELETE: {words:?}");
    stage.world.lock().unwrap().all_get_ready();
    stage.wait_until("the end of all", |world| {
        let mut all = world.others.iter().chain([&world.monitor]);
        all.all(|monitor| *recorded(&monitor["status"]) == hash(1))
    });
    assert_eq!(stage.deletions().len(), 20, "{:?}", stage.deletions());
    let watches = stage.server.requests_for("watch pods").len();
    assert!((1..=3).contains(&watches), "{watches} watches");
}
