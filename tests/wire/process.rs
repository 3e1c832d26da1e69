//! The operator as a process: flags, probes, log, and exit.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::api::{line, list, metadata, odd};
use crate::held::{Feed, Gate};
use crate::operator::{Operator, run};
use crate::scenario::{CONTENTS, Scenario, config_map, old};
use crate::script::{Answer, Server};
use crate::time::DEADLINE;

const WAITING: &str = "waiting for the proxy and the API server";

/// Returns a server of a namespace without ConfigMonitors.
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
        let stderr = String::from_utf8(output.stderr).expect("a text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {variables:?}: {stderr}");
        assert_eq!(stderr.matches('\n').count(), 1, "{stderr}");
        assert!(stderr.ends_with('\n') && stderr.starts_with("error: ") && stderr.contains(about), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    for (flag, about) in [("--help", "KUBECTL_PROXY_URL"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = run(&[flag], &[]);
        assert_eq!(output.status.code(), Some(0), "{flag}");
        assert!(String::from_utf8(output.stdout).expect("a text").contains(about), "{flag}");
        assert!(output.stderr.is_empty(), "{flag}");
    }
}

#[test]
fn the_crd_goes_to_stdout_whatever_the_environment_says() {
    let variables = [("CONFIGMONITOR_LEADER_ELECT", "true"), ("POD_UID", "u"), ("POD_NAMESPACE", "n")];
    for variables in [&variables[..], &[]] {
        let output = run(&["crd"], variables);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
        assert!(output.stdout == include_bytes!("../../crd.yml"));
    }
    // The image is built from the files that this file lets through.
    assert!(include_str!("../../deploy/Dockerfile.dockerignore").lines().any(|line| line == "!crd.yml"));
}

#[test]
fn unfinished_requests_keep_few_connections_open_and_no_probe_out() {
    let server = empty_namespace();
    let operator = Operator::start(&server);
    let address = operator.address();
    let unfinished = |_| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nhost:").unwrap();
        stream
    };
    let flood: Vec<TcpStream> = (0..300).map(unfinished).collect();
    assert_eq!(operator.probe("/metrics").0, 200);
    assert!(operator.open_files() < 150, "{} files are open", operator.open_files());
    for mut stream in flood {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let end = stream.read(&mut [0; 64]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "the connection is closed: {end:?}");
    }
}

#[test]
fn an_address_in_use_is_one_line_and_exit_code_1() {
    let taken = Server::start();
    let address = taken.url().replace("http://", "");
    let output = run(&["--listen", &address, "--log", "off"], &[]);
    let stderr = String::from_utf8(output.stderr).expect("a text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&address) && stderr.matches('\n').count() == 1, "{stderr}");
}

#[tokio::test]
async fn the_process_is_live_without_the_proxy_and_ready_once_both_lists_are_complete() {
    let (mut server, gate) = (Server::closed(), Gate::default());
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
fn proxies_in_the_environment_are_ignored() {
    let (server, other) = (empty_namespace(), Server::start());
    let url = other.url();
    let variables =
        ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"].map(|name| (name, url.as_str()));
    let operator = Operator::start_with(&server, &variables);
    operator.wait_for("synced", 1);
    assert_eq!(other.words(), [""; 0]);
}

#[tokio::test]
async fn a_signal_stops_the_operator_in_good_order() {
    let server = empty_namespace();
    let nowhere = Server::closed();
    for (server, message, signal) in [(&server, "synced", "TERM"), (&nowhere, WAITING, "INT")] {
        let mut operator = Operator::start(server);
        operator.wait_for(message, 1);
        operator.signal(signal);
        assert_eq!(operator.end().code(), Some(0), "{}", operator.log());
        operator.wait_for("stopped", 1);
    }
}

#[test]
fn the_log_never_contains_the_content_of_a_config_map() {
    let scenario = Scenario::with(&[old("p1")]);
    let copy = |content: usize| {
        let mut object = metadata("c", if content == 0 { "7" } else { "8" });
        let annotations = json!({ "kubectl.kubernetes.io/last-applied-configuration": CONTENTS[content] });
        object["metadata"]["annotations"] = annotations;
        object
    };
    let mut broken = odd("o", "8");
    broken["metadata"]["uid"] = json!([CONTENTS[0]]);
    let items = [copy(0), broken.clone()];
    scenario.server.instead("list configmaps", move |_| list("10", &items));
    let fine = [line("MODIFIED", &broken), line("MODIFIED", &copy(0))].concat();
    let breaking = |line: &str| Answer::watch(&[fine.clone(), format!("{line}\n")]);
    let no_json = format!("{{\"type\":\"{}", CONTENTS[0]);
    let unknown = json!({ "type": CONTENTS[0], "object": copy(0) }).to_string();
    let error = json!({ "type": "ERROR", "object": copy(0) }).to_string();
    let change = Feed::default();
    scenario.server.forget("watch configmaps from 10").on(
        "watch configmaps from 10",
        [breaking(&no_json), breaking(&unknown), breaking(&error), Answer::feed(&change)],
    );
    let mut not_text = config_map(0, "7");
    not_text["data"] = json!(CONTENTS[0]);
    let half = Answer::json(200, &config_map(0, "7")).cut_off();
    scenario.server.on("get configmaps/c", [Answer::json(200, &not_text), half]);

    let operator = scenario.operator(&[("CONFIGMONITOR_LOG", "trace")]);
    scenario.server.wait_for("watch configmaps", 4);
    scenario.server.always("get configmaps/c", |_| Answer::json(200, &config_map(1, "8")));
    change.push(line("MODIFIED", &copy(1)));
    scenario.wait_until_over(&operator);
    let log = operator.log();
    assert!(log.contains("DEBUG") && log.contains("object cannot be decoded"), "{log}");
    assert!(CONTENTS.iter().all(|secret| !log.contains(secret)), "{log}");
}

#[test]
fn an_object_that_cannot_be_decoded_is_logged_with_its_namespace() {
    let server = Server::start();
    let odd = json!({ "metadata": { "name": "o", "namespace": "shop", "resourceVersion": 7 } });
    server.always("GET /api/v1/configmaps?limit=100", move |_| list("10", std::slice::from_ref(&odd)));
    let operator = Operator::start_on(&["--proxy-url", &server.url(), "--all-namespaces"], &[]);
    let logged = operator.wait_for("object cannot be decoded; keeping its last known state", 1);
    assert_eq!((&logged["namespace"], &logged["name"]), (&json!("shop"), &json!("o")), "{logged}");

    let mut odd = old("p2");
    odd["metadata"]["uid"] = json!(7);
    let scenario = Scenario::with(&[old("p1"), odd]);
    let operator = scenario.operator(&[]);
    scenario.change();
    let logged = operator.wait_for("object cannot be decoded; left out", 1);
    assert_eq!((&logged["span"]["namespace"], &logged["name"]), (&json!("default"), &json!("p2")), "{logged}");
    assert_eq!(logged["span"]["monitor"], json!(null), "the list is shared: {logged}");
    let logged = operator.wait_for("pod deleted", 1);
    assert_eq!(
        (&logged["span"]["namespace"], &logged["span"]["monitor"]),
        (&json!("default"), &json!("m")),
        "{logged}"
    );
}
