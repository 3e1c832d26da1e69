//! A list has several pages. Nothing is concluded from an incomplete list.

use crate::api::{list, metadata, modified, odd, page, proxy_error, refusal};
use crate::script::{Answer, Server};
use crate::watching::Events;

#[tokio::test]
async fn a_list_has_pages_of_metadata_and_the_watch_starts_at_its_version() {
    let server = Server::start();
    server.on("list configmaps", [page("10", &[metadata("a", "1"), metadata("b", "2")], "t/1=")]);
    server.on("list configmaps continue=t/1=", [page("10", &[metadata("c", "3")], "t2")]);
    server.on("list configmaps continue=t2", [list("10", &[])]);
    server.on("watch configmaps from 10", [Answer::watch(&[modified("a", "11")])]);
    let mut events = Events::of(&server);
    events.expect(&["reset", "listed a@1", "listed b@2", "listed c@3", "synced", "applied a@11"]).await;

    let words = server.words();
    let expected =
        ["list configmaps", "list configmaps continue=t/1=", "list configmaps continue=t2", "watch configmaps from 10"];
    assert_eq!(words, expected);
    for request in &server.requests()[..3] {
        assert!(request.target.starts_with("/api/v1/namespaces/default/configmaps?"), "{}", request.target);
        let limit: u32 = request.query("limit").expect("a limit").parse().unwrap();
        assert!((1..=500).contains(&limit), "small pages: {limit}");
        assert_eq!(request.query("resourceVersion"), None, "a list as it is now, and none beside a token");
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(request.header("accept"), Some(accept));
    }
    let watch = server.request("watch configmaps from 10");
    assert_eq!(watch.query("allowWatchBookmarks").as_deref(), Some("true"));
    let seconds: u64 = watch.query("timeoutSeconds").expect("a limit").parse().unwrap();
    assert!((300..600).contains(&seconds), "{seconds}");
    assert_eq!(watch.header("accept"), Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"));
}

#[tokio::test]
async fn a_page_that_is_too_long_is_requested_in_smaller_ones() {
    let mut large = metadata("a", "1");
    large["metadata"]["annotations"]["copy"] = "x".repeat(17 << 20).into();
    let server = Server::start();
    let too_long = page("10", &[large, metadata("b", "2")], "t1");
    server.on("list configmaps", [too_long, page("10", &[metadata("a", "1")], "t2")]);
    server.on("list configmaps continue=t2", [list("10", &[metadata("b", "2")])]);
    let mut events = Events::of(&server);
    events.expect(&["reset", "listed a@1", "listed b@2", "synced"]).await;

    assert_eq!(limits(&server), [100, 10, 20], "much smaller ones, and then a little larger ones");
}

#[tokio::test]
async fn pages_have_as_many_objects_as_fit_into_a_megabyte() {
    let mut large = metadata("a", "1");
    large["metadata"]["annotations"]["copy"] = "x".repeat(4 << 20).into();
    let server = Server::start();
    server.on("list configmaps", [page("10", &[large], "t1")]);
    for number in 1..7 {
        let next = format!("t{}", number + 1);
        server.on(&format!("list configmaps continue=t{number}"), [page("10", &[metadata("b", "2")], &next)]);
    }
    server.on("list configmaps continue=t7", [list("10", &[])]);
    Events::of(&server).until("synced").await;
    assert_eq!(limits(&server), [100, 24, 48, 96, 192, 384, 500, 500]);
}

fn limits(server: &Server) -> Vec<u32> {
    let lists = server.requests().into_iter().filter(|request| request.query("watch").is_none());
    lists.map(|request| request.query("limit").unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    let server = Server::start();
    let null = serde_json::json!({ "metadata": { "resourceVersion": "10" }, "items": null });
    server.on("list configmaps", [Answer::json(200, &null)]);
    Events::of(&server).expect(&["reset", "synced"]).await;
}

#[tokio::test]
async fn a_token_that_the_server_rejects_makes_the_list_start_again() {
    for answer in [refusal(410, "Expired"), refusal(400, "BadRequest"), refusal(500, "InternalError")] {
        let server = Server::start();
        server.on("list configmaps continue=t1", [answer]);
        let pages = [page("10", &[metadata("a", "1")], "t1"), page("20", &[metadata("b", "15")], "t2")];
        server.on("list configmaps", pages);
        server.on("list configmaps continue=t2", [list("20", &[])]);
        server.on("watch configmaps from 20", [Answer::watch(&[modified("b", "21")])]);
        let mut events = Events::of(&server);
        events.expect(&["reset", "listed a@1", "reset", "listed b@15", "synced", "applied b@21"]).await;
    }
}

#[tokio::test]
async fn a_page_that_fails_is_retried_and_the_pages_before_it_are_not() {
    let server = Server::start();
    server.on("list configmaps", [page("10", &[metadata("a", "1")], "t1")]);
    server.on("list configmaps continue=t1", [proxy_error(), list("10", &[metadata("b", "2")])]);
    Events::of(&server).expect(&["reset", "listed a@1", "listed b@2", "synced"]).await;
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_an_event_and_the_others_arrive() {
    let server = Server::start();
    server.on("list configmaps", [list("10", &[metadata("a", "1"), odd("o", "2"), metadata("b", "3")])]);
    server.on("watch configmaps from 10", [Answer::watch(&[modified("o", "11")])]);
    let events = Events::of(&server).until("applied o@11").await;
    assert_eq!(events, ["reset", "listed a@1", "listed o undecodable", "listed b@3", "synced", "applied o@11"]);
}
