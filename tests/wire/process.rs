//! The operator as a process: what it is started with, how it says how it is, and how it ends.

use serde_json::json;

use crate::api::{line, list, metadata, odd, refusal};
use crate::held::{Feed, Gate};
use crate::operator::{Operator, run};
use crate::script::{Answer, Server};
use crate::stage::{PUT, SECRETS, Stage, config_map, old};

const WAITING: &str = "waiting for the proxy and the API server";

/// A server of a namespace without ConfigMonitors.
fn empty_namespace() -> Server {
    let server = Server::start();
    server.on("list configmonitors", [list("10", &[])]).on("list configmaps", [list("10", &[metadata("a", "1")])]);
    server
}

#[test]
fn a_wrong_flag_or_variable_is_one_line_and_exit_code_2() {
    for (arguments, variables, about) in [
        (&["argument"][..], &[][..], "argument"),
        (&[], &[("res_namespace", "not_a_name")], "--namespace"),
        (&[], &[("CONFIGMONITOR_LEADER_ELECT", "true"), ("POD_UID", "u")], "--pod-namespace"),
    ] {
        let output = run(arguments, variables);
        let told = String::from_utf8(output.stderr).expect("a text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {variables:?}: {told}");
        assert_eq!(told.matches('\n').count(), 1, "{told}");
        assert!(told.ends_with('\n') && told.starts_with("error: ") && told.contains(about), "{told}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_and_version_are_told_on_stdout() {
    for (flag, about) in [("--help", "KUBECTL_PROXY_URL"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = run(&[flag], &[]);
        assert_eq!(output.status.code(), Some(0), "{flag}");
        assert!(String::from_utf8(output.stdout).expect("a text").contains(about), "{flag}");
        assert!(output.stderr.is_empty(), "{flag}");
    }
}

#[test]
fn the_crd_that_it_needs_is_told_on_stdout_whatever_the_environment_says_of_running() {
    let variables = [("CONFIGMONITOR_LEADER_ELECT", "true"), ("POD_UID", "u"), ("POD_NAMESPACE", "n")];
    for variables in [&variables[..], &[]] {
        let output = run(&["crd"], variables);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
        assert!(output.stdout == include_bytes!("../../crd.yml"));
    }
    // The image is built from what this file lets through.
    assert!(include_str!("../../deploy/Dockerfile.dockerignore").lines().any(|line| line == "!crd.yml"));
}

#[test]
fn an_address_that_is_taken_is_one_line_and_a_failure() {
    let taken = Server::start();
    let address = taken.url().replace("http://", "");
    let output = run(&["--listen", &address, "--log", "off"], &[]);
    let told = String::from_utf8(output.stderr).expect("a text");
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(&address) && told.matches('\n').count() == 1, "{told}");
}

#[tokio::test]
async fn it_lives_before_the_proxy_is_there_and_is_ready_once_both_lists_are() {
    let (mut server, gate) = (Server::not_there_yet(), Gate::default());
    server.on("list configmonitors", [list("10", &[])]);
    server.on("list configmaps", [list("10", &[]).after(&gate)]);
    let operator = Operator::start(&server);
    operator.wait_for(WAITING, 2);
    assert_eq!(operator.probe("/livez"), (200, "ok".to_owned()));
    assert_eq!(operator.probe("/readyz"), (503, "the ConfigMonitors are not listed yet".to_owned()));
    server.open();
    server.wait_for("list configmaps", 1);
    server.wait_for("watch configmonitors", 1);
    assert_eq!(operator.probe("/readyz"), (503, "the ConfigMaps are not listed yet".to_owned()));
    gate.open();
    operator.wait_for("synced", 1);
    assert_eq!(operator.probe("/readyz"), (200, "ok".to_owned()));
    assert_eq!(operator.probe("/livez").0, 200);
    assert_eq!(operator.probe("/configmaps").0, 404);
}

#[tokio::test]
async fn it_is_not_ready_while_a_watch_that_it_needs_is_refused() {
    for (resource, name) in [("configmonitors", "ConfigMonitors"), ("configmaps", "ConfigMaps")] {
        let server = Server::start();
        let watch = format!("watch {resource}");
        for listed in ["configmonitors", "configmaps"] {
            server.always(&format!("list {listed}"), |_| list("10", &[]));
        }
        server.on(&watch, [Answer::short_watch(&[]), refusal(403, "Forbidden"), refusal(403, "Forbidden")]);
        let operator = Operator::start(&server);
        operator.wait_for("waiting for the right to do so", 1);
        let missing = format!("the right to list and watch {name} is missing");
        assert_eq!(operator.probe("/readyz"), (503, missing));
        operator.wait_for("working again", 1);
        assert_eq!(operator.probe("/readyz"), (200, "ok".to_owned()), "{resource}");
    }
}

#[test]
fn variables_name_the_proxy_and_the_namespace() {
    let server = Server::start();
    let url = server.url();
    let variables = [("KUBECTL_PROXY_URL", url.as_str()), ("res_namespace", "lab"), ("POD_UID", "any text: ä")];
    let _operator = Operator::start_on(&[], &variables);
    server.wait_for("list", 2);
    assert!(server.requests().iter().all(|request| request.target.contains("/namespaces/lab/")));
}

#[test]
fn a_proxy_of_the_environment_is_not_obeyed() {
    let (server, other) = (empty_namespace(), Server::start());
    let url = other.url();
    let variables =
        ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"].map(|name| (name, url.as_str()));
    let operator = Operator::start_with(&server, &variables);
    operator.wait_for("synced", 1);
    assert_eq!(other.words(), [""; 0]);
}

#[tokio::test]
async fn a_signal_ends_it_in_good_order() {
    let server = empty_namespace();
    let nowhere = Server::not_there_yet();
    for (server, message, signal) in [(&server, "synced", "TERM"), (&nowhere, WAITING, "INT")] {
        let mut operator = Operator::start(server);
        operator.wait_for(message, 1);
        operator.signal(signal);
        assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
        operator.wait_for("ended", 1);
    }
}

#[test]
fn the_log_never_tells_what_is_in_a_config_map() {
    let stage = Stage::with(&[old("p1")]);
    let copy = |content: usize| {
        let mut object = metadata("c", if content == 0 { "7" } else { "8" });
        let annotations = json!({ "kubectl.kubernetes.io/last-applied-configuration": SECRETS[content] });
        object["metadata"]["annotations"] = annotations;
        object
    };
    let mut broken = odd("o", "8");
    broken["metadata"]["uid"] = json!([SECRETS[0]]);
    let items = [copy(0), broken.clone()];
    stage.server.forget("list configmaps").always("list configmaps", move |_| list("10", &items));
    let fine = [line("MODIFIED", &broken), line("MODIFIED", &copy(0))].concat();
    let breaking = |line: &str| Answer::watch(&[fine.clone(), format!("{line}\n")]);
    let no_json = format!("{{\"type\":\"{}", SECRETS[0]);
    let unknown = json!({ "type": SECRETS[0], "object": copy(0) }).to_string();
    let error = json!({ "type": "ERROR", "object": copy(0) }).to_string();
    let change = Feed::default();
    stage.server.forget("watch configmaps from 10").on(
        "watch configmaps from 10",
        [breaking(&no_json), breaking(&unknown), breaking(&error), Answer::feed(&change)],
    );
    let mut not_text = config_map(0, "7");
    not_text["data"] = json!(SECRETS[0]);
    let half = Answer::json(200, &config_map(0, "7")).cut_off();
    stage.server.on("get configmaps/c", [Answer::json(200, &not_text), half]);

    let operator = stage.operator(&[("CONFIGMONITOR_LOG", "trace")]);
    stage.server.wait_for("watch configmaps", 4);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    change.tell(line("MODIFIED", &copy(1)));
    stage.is_over(&operator);
    let log = operator.log();
    assert!(log.contains("DEBUG") && log.contains("object cannot be decoded"), "{log}");
    assert!(SECRETS.iter().all(|secret| !log.contains(secret)), "{log}");
}

#[test]
fn an_object_that_cannot_be_decoded_is_logged_with_its_namespace() {
    let server = Server::start();
    let odd = json!({ "metadata": { "name": "o", "namespace": "shop", "resourceVersion": 7 } });
    server.always("GET /api/v1/configmaps?limit=100", move |_| list("10", std::slice::from_ref(&odd)));
    let operator = Operator::start_on(&["--proxy-url", &server.url(), "--all-namespaces"], &[]);
    let told = operator.wait_for("object cannot be decoded; keeping its last known state", 1);
    assert_eq!((&told["namespace"], &told["name"]), (&json!("shop"), &json!("o")), "{told}");

    let mut odd = old("p2");
    odd["metadata"]["uid"] = json!(7);
    let stage = Stage::with(&[old("p1"), odd]);
    let operator = stage.operator(&[]);
    stage.change();
    let told = operator.wait_for("object cannot be decoded; left out", 1);
    assert_eq!((&told["namespace"], &told["name"]), (&json!("default"), &json!("p2")), "{told}");
}

#[test]
fn an_outage_is_told_when_it_begins_and_when_it_is_over_by_each_that_it_stops() {
    let (stage, gate) = (Stage::with(&[old("p1")]), Gate::default());
    let mut operator = stage.operator(&[]);
    stage.server.on("list pods", [Answer::HangUp.after(&gate)]);
    stage.change();
    stage.server.wait_for("list pods", 1);
    stage.server.go_away();
    gate.open();
    for words in ["list configmonitors", "list configmaps", "get configmonitors"] {
        stage.server.wait_for(words, 4);
    }
    stage.server.come_back();
    stage.is_over(&operator);
    operator.wait_for("working again", 3);
    operator.signal("TERM");
    operator.end();
    let by = |message: &str, name: &str| {
        let mut names: Vec<String> = operator.lines(message).iter().map(|line| line[name].to_string()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(by(WAITING, "resource"), r#""configmaps" "configmonitors""#, "{}", operator.log());
    assert_eq!(by("reconcile failed; retrying", "monitor"), r#""m""#, "{}", operator.log());
    let over = [by("working again", "resource"), by("working again", "monitor")];
    assert_eq!(over, [r#""configmaps" "configmonitors" null"#, r#""m" null null"#], "{}", operator.log());
}

#[test]
fn what_is_a_part_of_how_the_api_works_is_not_told() {
    let stage = Stage::with(&[old("p1")]);
    stage.server.on("watch configmonitors", [refusal(410, "Expired")]);
    stage.server.on("list configmaps", [refusal(410, "Expired")]);
    let mut operator = stage.operator(&[]);
    stage.server.on(PUT, [refusal(409, "Conflict"), refusal(409, "Conflict"), refusal(409, "Conflict")]);
    stage.change();
    stage.is_over(&operator);
    operator.signal("TERM");
    operator.end();
    let log = operator.log();
    assert!(!log.contains("WARN") && !log.contains("again"), "{log}");
}
