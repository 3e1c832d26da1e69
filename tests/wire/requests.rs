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
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{list, metadata, odd, page, status};
use crate::scenario::old;
use crate::script::{Answer, Server};

/// Returns a client for the namespace `default` of this server.
pub(crate) fn client(server: &Server) -> Client {
    client_of(&server.url())
}

fn client_of(url: &str) -> Client {
    let (proxy, base) = KubectlProxy::at(url.parse().unwrap()).unwrap();
    let client = Client::new(Box::new(proxy), base, 32, 32, Arc::new(()), CancellationToken::new());
    client.within(&"default".into())
}

async fn delete_only(client: &Client, name: &str, only: Preconditions<'_>, grace: Option<u32>) -> Result<(), Error> {
    client.remove(client.deletion_permit().await?, name, only, grace, false).await
}

/// Returns the cause of the failure of a GET with this answer.
async fn cause_of(answer: Answer) -> Cause {
    let server = Server::start();
    server.on("get configmaps/a", [answer]);
    client(&server).get::<MetadataOnly>(CONFIG_MAPS, "a").await.err().expect("no answer to work with").cause
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
        client.replace::<Value>((CONFIG_MONITORS, Some("status")), "m", &object).await.err(),
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
    send_each_kind(&client_of(&format!("{}/ambassador/", server.url()))).await;
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
    client.remove(permit, "web-0", only(&"u1".into()), Some(7), true).await.expect("evicted");
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
    let redirected = delete_only(&client(&server), "a", only(&"u1".into()), None).await;
    assert!(matches!(redirected.expect_err("no answer").cause, Cause::Unreachable(_)));
    assert_eq!(elsewhere.words(), [""; 0]);
}
