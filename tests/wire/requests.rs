//! The requests of the client, and what an answer means for the caller.

use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::client::{Client, Preconditions};
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::objects::MetadataOnly;
use configmonitor_operator::kube::transport::KubectlProxy;
use configmonitor_operator::kube::{CONFIG_MAPS, EVENTS, PODS, ResourceVersion, Uid};
use configmonitor_operator::monitor::CONFIG_MONITORS;
use configmonitor_operator::monitor::pod::Pod;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{list, metadata, odd, page, refusal, status};
use crate::held::Gate;
use crate::scenario::old;
use crate::script::{Answer, Server};

/// Returns a client for the namespace `default` of this server.
pub(crate) fn client(server: &Server) -> Client {
    limited_client(&server.url(), 32, 32)
}

fn limited_client(url: &str, requests: usize, deletions: usize) -> Client {
    let proxy = Box::new(KubectlProxy::new().unwrap());
    let client = Client::new(proxy, url.parse().unwrap(), requests, deletions, Arc::new(()), CancellationToken::new());
    client.within(&"default".into())
}

async fn get(client: &Client) -> Result<String, Cause> {
    let answer = client.get::<MetadataOnly>(CONFIG_MAPS, "a").await;
    answer.map(|answer| answer.value.metadata.resource_version.as_str().to_owned()).map_err(|Error { cause, .. }| cause)
}

async fn delete(client: &Client, name: &str) -> Result<(), Cause> {
    delete_only(client, name, only(&"u1".into()), None).await.map_err(|Error { cause, .. }| cause)
}

async fn delete_only(client: &Client, name: &str, only: Preconditions<'_>, grace: Option<u32>) -> Result<(), Error> {
    client.delete(client.deletion_permit().await?, name, only, grace).await
}

/// Returns the cause of the failure of a GET with this answer.
async fn cause_of(answer: Answer) -> Cause {
    let server = Server::start();
    server.on("get configmaps/a", [answer]);
    get(&client(&server)).await.expect_err("no answer to work with")
}

fn labelled(labels: &str) -> Selection {
    Selection { resource: PODS, labels: Some(labels.to_owned()), fields: None, metadata_only: false }
}

/// Sends one request of each kind. Returns the failures.
async fn send_each_kind(client: &Client) -> Vec<Error> {
    let pods = labelled("app=web");
    let object = json!({ "metadata": { "name": "m" } });
    let errors = [
        client.get::<Value>(CONFIG_MAPS, "a").await.err(),
        client.list(&pods, None, |pod: Pod| pod).await.err(),
        client.page::<Pod>(&pods, None).await.err(),
        client.watch(&pods, &ResourceVersion::from("10"), Duration::from_secs(300)).await.err(),
        client.replace_status::<Value>(CONFIG_MONITORS, "m", &object).await.err(),
        client.create::<Value>(EVENTS, &object).await.err(),
        delete_only(client, "web-0", only(&"u1".into()), None).await.err(),
    ];
    errors.into_iter().flatten().collect()
}

#[tokio::test]
async fn a_request_carries_no_credentials_and_asks_for_no_compression() {
    let server = Server::start();
    assert_eq!(send_each_kind(&client(&server)).await.len(), 6, "only the watch is in the script");
    let requests = server.requests();
    assert_eq!(requests.len(), 7);
    for request in requests {
        for header in ["authorization", "cookie", "proxy-authorization"] {
            assert_eq!(request.header(header), None, "{}", request.words());
        }
        assert_eq!(request.header("accept-encoding"), Some("identity"), "{}", request.words());
        assert!(request.header("accept").expect("a type").starts_with("application/json"));
        assert!(request.header("user-agent").expect("a name").starts_with("configmonitor-operator/"));
        assert_eq!(request.header("host").map(|host| format!("http://{host}")), Some(server.url()));
        let typed = request.header("content-type") == Some("application/json");
        assert_eq!(typed, !request.body.is_empty(), "{}", request.words());
    }
}

#[tokio::test]
async fn paths_are_those_of_the_api_below_the_path_of_the_proxy() {
    let server = Server::start();
    send_each_kind(&limited_client(&format!("{}/ambassador/", server.url()), 32, 32)).await;
    let paths: Vec<String> = server.requests().iter().map(|request| request.target.clone()).collect();
    for (path, beginning) in paths.iter().zip([
        "/ambassador/api/v1/namespaces/default/configmaps/a",
        "/ambassador/api/v1/namespaces/default/pods?",
        "/ambassador/api/v1/namespaces/default/pods?",
        "/ambassador/api/v1/namespaces/default/pods?",
        "/ambassador/apis/magalix.com/v1/namespaces/default/configmonitors/m/status",
        "/ambassador/apis/events.k8s.io/v1/namespaces/default/events",
        "/ambassador/api/v1/namespaces/default/pods/web-0",
    ]) {
        assert!(path.starts_with(beginning), "{path}");
    }
}

#[tokio::test]
async fn an_earlier_list_is_requested_by_its_exact_version_and_its_pages_by_their_token() {
    let server = Server::start();
    server.on("list pods at=7", [page("7", &[old("p1")], "t1").header("date", "Sat, 21 Nov 2026 10:00:05 GMT")]);
    server.on("list pods continue=t1", [list("7", &[odd("p2", "3"), old("p3")])]);
    let version = ResourceVersion::from("7");
    let list = client(&server).list(&labelled("app=web"), Some(&version), |pod: Pod| pod).await.expect("a list");
    let names: Vec<&str> = list.items.iter().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["p1", "p3"]);
    assert_eq!((list.resource_version, list.at.to_string()), (version, "2026-11-21T10:00:05Z".to_owned()));
    let first = server.request("list pods at=7");
    assert_eq!(first.query("resourceVersionMatch").as_deref(), Some("Exact"));
    let second = server.request("list pods continue=t1");
    assert_eq!(second.query("resourceVersion").or(second.query("resourceVersionMatch")), None);
    assert_eq!(second.query("labelSelector").as_deref(), Some("app=web"));
}

/// Returns the precondition on the UID alone.
fn only(uid: &Uid) -> Preconditions<'_> {
    Preconditions { uid, resource_version: None }
}

#[tokio::test]
async fn a_deletion_is_of_one_identity_and_sets_the_grace_period_only_if_given() {
    let server = Server::start();
    server.always("delete pods", |_| Answer::json(200, &json!({})));
    let client = client(&server);
    delete_only(&client, "web-0", only(&"u1".into()), None).await.expect("deleted");
    let (uid, version) = ("u2".into(), "8".into());
    let in_this_version = Preconditions { uid: &uid, resource_version: Some(&version) };
    delete_only(&client, "web-1", in_this_version, Some(7)).await.expect("deleted");
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": "u1" } });
    assert_eq!(server.request("delete pods/web-0").json(), options);
    let options = server.request("delete pods/web-1").json();
    assert_eq!(options["preconditions"], json!({ "uid": "u2", "resourceVersion": "8" }));
    assert_eq!(options["gracePeriodSeconds"], 7);
}

#[tokio::test]
async fn an_eviction_carries_the_options_of_a_deletion() {
    let server = Server::start();
    server.always("post pods/web-0/eviction", |_| Answer::json(201, &json!({})));
    let client = client(&server);
    let permit = client.deletion_permit().await.expect("a permit");
    client.evict(permit, "web-0", only(&"u1".into()), Some(7)).await.expect("evicted");
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 7, "preconditions": { "uid": "u1" },
    });
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "web-0", "namespace": "default" },
        "deleteOptions": options,
    });
    assert_eq!(server.request("post pods/web-0/eviction").json(), eviction);
}

#[tokio::test]
async fn the_cause_of_a_failure_is_in_the_code_the_headers_and_the_body_of_the_answer() {
    let busy = Answer::text(429, "Too many requests").header("retry-after", "7");
    assert_eq!(cause_of(busy).await, Cause::Busy(Some(Duration::from_secs(7))));
    assert_eq!(cause_of(refusal(409, "Conflict")).await, Cause::Conflict("scripted Conflict".to_owned()));
    assert!(matches!(cause_of(Answer::HangUp).await, Cause::Unreachable(_)));
}

#[tokio::test]
async fn an_incomplete_answer_is_a_failure() {
    let object = || Answer::json(200, &metadata("a", "1"));
    assert!(matches!(cause_of(object().cut_off()).await, Cause::Unreachable(_)));
    assert!(matches!(cause_of(Answer::text(200, "<html>")).await, Cause::Undecodable(_)));
    assert!(matches!(cause_of(object().without("date")).await, Cause::Undecodable(_)));
    assert!(matches!(cause_of(object().header("date", "today")).await, Cause::Undecodable(_)));
    assert!(matches!(cause_of(Answer::json(200, &status(200, ""))).await, Cause::Undecodable(_)));
}

#[tokio::test]
async fn an_answer_over_the_limit_is_a_failure() {
    let longer_than_any = " ".repeat(64 << 20) + &metadata("a", "1").to_string();
    assert_eq!(cause_of(Answer::text(200, &longer_than_any)).await, Cause::TooLong);
    let refusal = " ".repeat(2 << 20) + &status(404, "NotFound").to_string();
    assert!(!cause_of(Answer::text(404, &refusal)).await.is_not_found());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (server, elsewhere) = (Server::start(), Server::start());
    server.on("delete pods/a", [Answer::text(307, "").header("location", &elsewhere.url())]);
    assert!(matches!(delete(&client(&server), "a").await, Err(Cause::Unreachable(_))));
    assert_eq!(elsewhere.words(), [""; 0]);
}

#[tokio::test]
async fn a_stopped_handle_starts_no_request_and_others_do() {
    let server = Server::start();
    server.always("get configmaps/a", |_| Answer::json(200, &metadata("a", "1")));
    let (client, stop) = (client(&server), CancellationToken::new());
    let part = client.with_stop(stop.clone());
    assert_eq!(get(&part).await, Ok("1".to_owned()));
    stop.cancel();
    let errors = send_each_kind(&part).await;
    assert_eq!(errors.len(), 7);
    assert!(errors.iter().all(|error| error.cause == Cause::Stopped), "{errors:?}");
    assert_eq!(get(&client).await, Ok("1".to_owned()));
    assert_eq!(server.words(), ["get configmaps/a", "get configmaps/a"]);
}

#[tokio::test]
async fn on_stop_a_request_in_flight_is_finished_and_a_waiting_one_is_not_started() {
    let (server, gate, stop) = (Server::start(), Gate::default(), CancellationToken::new());
    server.on("get configmaps/a", [Answer::json(200, &metadata("a", "1")).after(&gate)]);
    let client = limited_client(&server.url(), 1, 1).with_stop(stop.clone());
    let first = tokio::spawn({
        let client = client.clone();
        async move { get(&client).await }
    });
    server.arrived("get", 1).await;
    let second = tokio::spawn(async move { get(&client).await });
    tokio::task::yield_now().await;
    stop.cancel();
    assert_eq!(second.await.unwrap(), Err(Cause::Stopped));
    gate.open();
    assert_eq!(first.await.unwrap(), Ok("1".to_owned()));
    assert_eq!(server.words(), ["get configmaps/a"]);
}

#[tokio::test]
async fn deletions_in_flight_are_limited_and_do_not_delay_other_requests() {
    let (server, gate) = (Server::start(), Gate::default());
    let answers: Vec<Answer> = (0..5).map(|_| Answer::json(200, &json!({})).after(&gate)).collect();
    server.on("delete pods/a", answers);
    server.on("get configmaps/a", [Answer::json(200, &metadata("a", "1"))]);
    let client = limited_client(&server.url(), 1, 2);
    let deletions = tokio::spawn({
        let client = client.clone();
        async move { join_all((0..5).map(|_| delete(&client, "a"))).await }
    });
    server.arrived("delete", 2).await;
    assert_eq!(get(&client).await, Ok("1".to_owned()));
    assert_eq!(server.words(), ["delete pods/a", "delete pods/a", "get configmaps/a"]);
    gate.open();
    assert!(deletions.await.unwrap().iter().all(Result::is_ok));
    assert_eq!(server.words().len(), 6);
}
