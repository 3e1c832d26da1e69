//! Timeouts, outages, and the periodic list. The tests move the operator's clock forward instead of waiting.

use std::time::Duration;

use configmonitor_operator::controller::{Namespaces, Readiness, Settings, run};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::{list, metadata, modified, page};
use crate::held::Gate;
use crate::requests::client;
use crate::scenario::{PUT, Scenario, config_map, old, pod};
use crate::script::{Answer, Server};
use crate::time::{in_time, jump};
use crate::watching::Events;

/// The timeout of a request, in seconds.
pub(crate) const TIMEOUT: u64 = 30;
fn seconds(server: &Server, words: &str) -> u64 {
    server.request(words).query("timeoutSeconds").expect("a limit").parse().unwrap()
}

#[tokio::test]
async fn a_request_that_is_accepted_and_never_answered_times_out() {
    let half = |code: &str| Answer::Held(format!("HTTP/1.1 {code}\r\ncontent-length: 99\r\n\r\n{{\"kind\":"));
    let whole = ["list configmaps", "list configmaps continue=t1", "watch configmaps from 10"];
    let lists = whole[..2].iter().map(|words| (*words, half("200 OK")));
    let requests = whole.iter().flat_map(|words| [(*words, Answer::Stall), (*words, half("500 Odd"))]).chain(lists);
    for (words, answer) in requests {
        let server = Server::start();
        server.on(words, [answer]);
        server.always("list configmaps", |_| page("10", &[metadata("a", "1")], "t1"));
        server.always("list configmaps continue=t1", |_| list("10", &[]));
        server.always("watch configmaps", |_| Answer::watch(&[modified("a", "11")]));
        let mut events = Events::of(&server);
        let stalled = async {
            server.arrived(words, 1).await;
            jump(TIMEOUT).await;
        };
        let (events, ()) = tokio::join!(events.until("applied a@11"), stalled);
        assert_eq!(events, ["reset", "listed a@1", "synced", "applied a@11"], "{words}");
    }
}

#[tokio::test]
async fn a_watch_that_stalls_times_out_after_its_duration() {
    let server = Server::start();
    server.always("list configmaps", |_| list("11", &[metadata("a", "11")]));
    server.on("watch configmaps from 11", [Answer::watch(&[modified("a", "12")])]);
    server.on("watch configmaps", [Answer::watch(&[modified("a", "13")])]);
    let mut events = Events::of(&server);
    events.until("applied a@12").await;
    let limit = seconds(&server, "watch configmaps from 11") + TIMEOUT;
    tokio::join!(events.until("applied a@13"), jump(limit));
}

/// Starts an operator in this process and waits until it has read content 0.
async fn operator_at_rest(scenario: &Scenario) -> JoinHandle<()> {
    let client = client(&scenario.server);
    let running = tokio::spawn(async move {
        let (namespaces, elected) = (Namespaces::Named(vec!["default".into()]), CancellationToken::new());
        let readiness = Readiness::of(&namespaces);
        elected.cancel();
        run(client, namespaces, Settings::default(), readiness, elected).await;
    });
    for words in [PUT, "watch configmaps", "watch configmonitors"] {
        scenario.server.arrived(words, 1).await;
    }
    // The answers are on their way: after a jump of the clock, the client would count them as missing.
    tokio::time::sleep(Duration::from_secs(1)).await;
    running
}

/// Waits until the restart is over.
async fn wait_until_completed(scenario: &Scenario) {
    let over = async {
        while scenario.objects.lock().unwrap().monitor["status"]["history"][0]["result"] != "Completed" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("the end of the restart", over).await;
}

/// Each admission webhook of a request may take 10 s, and all together as long as the API server allows.
#[tokio::test]
async fn a_deletion_or_an_eviction_that_is_answered_after_half_a_minute_has_succeeded() {
    for (policy, words) in [("Delete", "delete pods"), ("Evict", "post pods")] {
        let (scenario, answered) = (Scenario::with(&[old("p1")]), Gate::default());
        scenario.set("deletionPolicy", json!(policy));
        scenario.server.on("get configmaps/c", [Answer::json(200, &config_map(0, "7"))]);
        let held = answered.clone();
        scenario.server.instead(words, move |_| Answer::json(200, &json!({})).after(&held));
        let running = operator_at_rest(&scenario).await;
        scenario.change();
        scenario.server.arrived(words, 1).await;
        for seconds in [TIMEOUT + 1, 20] {
            jump(seconds).await;
            // A request that was given up is sent again.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        scenario.objects.lock().unwrap().replace_pod(0, pod("p1-new", "2026-11-21T10:01:00Z"));
        answered.open();
        wait_until_completed(&scenario).await;
        assert_eq!(scenario.server.requests_for(words).len(), 1, "{:?}", scenario.server.words());
        running.abort();
    }
}
