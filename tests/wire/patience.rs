//! What takes long: silence, outages, and the list that is made now and then to be sure. The operator's clock is put forward,
//! so that no test takes as long.

use std::time::Duration;

use configmonitor_operator::controller::{Namespaces, Synced, run};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::{list, metadata, modified, page};
use crate::held::Gate;
use crate::requests::client;
use crate::script::{Answer, Server};
use crate::stage::{PUT, Stage, config_map, old, pod, settled};
use crate::time::{in_time, jump};
use crate::watching::Told;

/// So long a request may take.
pub(crate) const TIMEOUT: u64 = 30;
/// A watch without an end is over by then, and another list is due.
const RELIST: u64 = 600 + TIMEOUT;

fn seconds(server: &Server, words: &str) -> u64 {
    server.request(words).query("timeoutSeconds").expect("a limit").parse().unwrap()
}

#[tokio::test]
async fn a_request_that_is_accepted_and_never_answered_is_given_up() {
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
        let mut told = Told::by(&server);
        let stalled = async {
            server.arrived(words, 1).await;
            jump(TIMEOUT).await;
        };
        let (told, ()) = tokio::join!(told.until("applied a@11"), stalled);
        assert_eq!(told, ["reset", "listed a@1", "synced", "applied a@11"], "{words}");
    }
}

#[tokio::test]
async fn a_watch_that_stalls_is_given_up_when_it_should_have_ended() {
    let server = Server::start();
    server.always("list configmaps", |_| list("11", &[metadata("a", "11")]));
    server.on("watch configmaps from 11", [Answer::watch(&[modified("a", "12")])]);
    server.on("watch configmaps", [Answer::watch(&[modified("a", "13")])]);
    let mut told = Told::by(&server);
    told.until("applied a@12").await;
    let limit = seconds(&server, "watch configmaps from 11") + TIMEOUT;
    tokio::join!(told.until("applied a@13"), jump(limit));
}

/// The operator in this process, at rest: it has read the first content.
async fn at_rest(stage: &Stage) -> JoinHandle<()> {
    let client = client(&stage.server);
    let running = tokio::spawn(async move {
        let (namespaces, elected) = (Namespaces::Named(vec!["default".into()]), CancellationToken::new());
        elected.cancel();
        run(client, namespaces, None, &watch::Sender::new(Synced::default()), elected).await;
    });
    for words in [PUT, "watch configmaps", "watch configmonitors"] {
        stage.server.arrived(words, 1).await;
    }
    // The answers are on their way: one that the clock has jumped over would count as none.
    tokio::time::sleep(Duration::from_secs(1)).await;
    running
}

/// Waits until the restart is over.
async fn is_completed(stage: &Stage) {
    let over = async {
        while stage.world.lock().unwrap().monitor["status"]["history"][0]["result"] != "Completed" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("the end of the restart", over).await;
}

/// The admission webhooks of a request may take 10 s each, and all of them together as long as the API server waits for any request.
#[tokio::test]
async fn a_deletion_or_an_eviction_that_is_answered_after_half_a_minute_has_succeeded() {
    for (policy, words) in [("Delete", "delete pods"), ("Evict", "post pods")] {
        let (stage, answered) = (Stage::with(&[old("p1")]), Gate::default());
        stage.set("deletionPolicy", json!(policy));
        stage.server.on("get configmaps/c", [Answer::json(200, &config_map(0, "7"))]);
        let held = answered.clone();
        stage.server.instead(words, move |_| Answer::json(200, &json!({})).after(&held));
        let running = at_rest(&stage).await;
        stage.change();
        stage.server.arrived(words, 1).await;
        for seconds in [TIMEOUT + 1, 20] {
            jump(seconds).await;
            // If it has been given up by now, it is sent again.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        stage.world.lock().unwrap().exchange(0, pod("p1-new", "2026-11-21T10:01:00Z"));
        answered.open();
        is_completed(&stage).await;
        assert_eq!(stage.server.requests_for(words).len(), 1, "{:?}", stage.server.words());
        running.abort();
    }
}

#[tokio::test]
async fn the_list_that_is_made_to_be_sure_costs_an_unchanged_world_no_other_request() {
    let stage = Stage::with(&[old("p1")]);
    stage.server.always("get configmaps/c", |_| Answer::json(200, &config_map(0, "7")));
    let _running = at_rest(&stage).await;
    let before = stage.server.requests().len();
    jump(RELIST).await;
    stage.server.arrived("watch configmaps", 2).await;
    stage.server.arrived("watch configmonitors", 2).await;
    stage.change();
    stage.server.arrived("get configmaps/c", 2).await;
    let mut words = stage.words_after(before);
    words.truncate(5);
    assert_eq!(words.pop().as_deref(), Some("get configmaps/c"), "of the change after it");
    words.sort();
    let lists = ["list configmaps", "list configmonitors", "watch configmaps from 10", "watch configmonitors from 10"];
    assert_eq!(words, lists);
}

/// A standby may wait for days before it has anything to be patient for.
#[tokio::test]
async fn patience_with_lists_that_never_come_begins_with_the_leadership() {
    const AT_FIRST: usize = 4;
    let stage = Stage::with(&[]);
    let others = (0..2 * AT_FIRST).map(|number| settled(&format!("m{number}"), "web"));
    stage.world.lock().unwrap().others.extend(others);
    for words in ["list configmaps", "get configmonitors", "get configmonitors/m"] {
        stage.server.only(words, || Answer::Stall);
    }
    let (client, elected) = (client(&stage.server), CancellationToken::new());
    let candidate = elected.clone();
    let running = tokio::spawn(async move {
        let namespaces = Namespaces::Named(vec!["default".into()]);
        run(client, namespaces, None, &watch::Sender::new(Synced::default()), candidate).await;
    });
    stage.server.arrived("watch configmonitors", 1).await;
    jump(TIMEOUT + 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stage.server.requests_for("get").len(), 0);
    elected.cancel();
    stage.server.arrived("get configmonitors", AT_FIRST).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stage.server.requests_for("get configmonitors").len(), AT_FIRST);
    running.abort();
}
