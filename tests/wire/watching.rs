//! A watch goes on through every kind of end, and loses nothing on the way.

use std::pin::Pin;
use std::time::Duration;

use configmonitor_operator::kube::CONFIG_MAPS;
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::objects::{MetadataOnly, Undecodable};
use configmonitor_operator::kube::watch::{Event, watch};
use futures_util::{Stream, StreamExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::api::{bookmark, line, list, metadata, modified, not_served, odd, status};
use crate::requests::client;
use crate::script::{Answer, Chunk, Server};
use crate::time::in_time;

/// What a watch on the metadata of ConfigMaps tells, in words.
pub(crate) struct Told {
    events: Pin<Box<dyn Stream<Item = Event<MetadataOnly>>>>,
    pub(crate) stop: CancellationToken,
}

impl Told {
    pub(crate) fn by(server: &Server) -> Self {
        let stop = CancellationToken::new();
        let of = Selection { resource: CONFIG_MAPS, labels: None, metadata_only: true };
        Self { events: Box::pin(watch(client(server).until(stop.clone()), of)), stop }
    }

    /// The next event, if there will be one.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let event = in_time("an event", self.events.next()).await;
        event.map(|event| match event {
            Event::Reset => "reset".to_owned(),
            Event::Listed(object) => format!("listed {}", in_words(object)),
            Event::Synced => "synced".to_owned(),
            Event::Applied(object) => format!("applied {}", in_words(object)),
            Event::Deleted(object) => format!("deleted {}", in_words(object)),
        })
    }

    /// Waits for exactly these events.
    pub(crate) async fn expect(&mut self, events: &[&str]) {
        let mut told = Vec::new();
        while told.len() < events.len() {
            told.push(self.next().await.expect("no end"));
        }
        assert_eq!(told, events);
    }

    /// Waits for this event. Gives back what was told from the last list on.
    pub(crate) async fn until(&mut self, event: &str) -> Vec<String> {
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != event) {
            let next = self.next().await.expect("no end");
            if next == "reset" {
                told.clear();
            }
            told.push(next);
        }
        told
    }

    /// Goes on for so long without wanting to know what is told.
    pub(crate) async fn go_on_for(&mut self, duration: Duration) {
        let _ = tokio::time::timeout(duration, async { while self.events.next().await.is_some() {} }).await;
    }
}

fn in_words(object: Result<MetadataOnly, Undecodable>) -> String {
    match object {
        Ok(MetadataOnly { metadata }) => format!("{}@{}", metadata.name, metadata.resource_version),
        Err(Undecodable { name, .. }) => format!("{} undecodable", name.unwrap_or_default()),
    }
}

/// A watch that has listed the ConfigMap `a` in version 10, and gets these answers next.
async fn watching(server: &Server, answers: impl IntoIterator<Item = Answer, IntoIter: Send + 'static>) -> Told {
    server.on("list configmaps", [list("10", &[metadata("a", "1")])]);
    server.on("watch configmaps from 10", answers);
    let mut told = Told::by(server);
    told.expect(&["reset", "listed a@1", "synced"]).await;
    told
}

#[tokio::test]
async fn changes_arrive_in_their_order_also_if_several_come_at_once() {
    let server = Server::start();
    let lines = [line("ADDED", &metadata("b", "11")), modified("a", "12"), line("DELETED", &metadata("b", "13"))];
    let mut told = watching(&server, [Answer::watch(&lines)]).await;
    told.expect(&["applied b@11", "applied a@12", "deleted b@13"]).await;
}

#[tokio::test]
async fn a_line_in_many_chunks_is_one_event() {
    let server = Server::start();
    let chunks = modified("a", "11").into_bytes().chunks(7).map(Chunk::text).collect();
    told_once(&server, chunks, "applied a@11").await;
}

#[tokio::test]
async fn a_line_cut_in_the_middle_of_a_character_is_one_event() {
    let server = Server::start();
    let text = modified("grün", "11");
    let (before, after) = text.as_bytes().split_at(text.find('ü').unwrap() + 1);
    told_once(&server, vec![Chunk::text(before), Chunk::text(after)], "applied grün@11").await;
}

async fn told_once(server: &Server, mut chunks: Vec<Chunk>, event: &str) {
    chunks.push(Chunk::text(modified("end", "12")));
    chunks.push(Chunk::Hold);
    watching(server, [Answer::Watch(chunks)]).await.expect(&[event, "applied end@12"]).await;
}

#[tokio::test]
async fn a_bookmark_moves_the_version_that_the_next_watch_begins_from() {
    let server = Server::start();
    server.on("watch configmaps from 14", [Answer::watch(&[modified("a", "15")])]);
    let mut told = watching(&server, [Answer::short_watch(&[modified("a", "11"), bookmark("14")])]).await;
    told.expect(&["applied a@11", "applied a@15"]).await;
    assert_eq!(server.words(), ["list configmaps", "watch configmaps from 10", "watch configmaps from 14"]);
}

#[tokio::test]
async fn a_line_as_long_as_the_api_can_make_it_is_an_event() {
    let server = Server::start();
    let mut long = metadata("a", "11");
    long["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(3 << 20) });
    watching(&server, [Answer::watch(&[line("MODIFIED", &long)])]).await.expect(&["applied a@11"]).await;
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_told_and_the_watch_goes_on() {
    let server = Server::start();
    server.on("watch configmaps from 12", [Answer::watch(&[modified("a", "13")])]);
    let lines = [line("MODIFIED", &odd("o", "11")), line("DELETED", &odd("o", "12"))];
    let mut told = watching(&server, [Answer::short_watch(&lines)]).await;
    told.expect(&["applied o undecodable", "deleted o undecodable", "applied a@13"]).await;
}

#[tokio::test]
async fn a_definition_that_goes_away_and_comes_back_is_listed_again() {
    let server = Server::start();
    let lines = [line("DELETED", &metadata("a", "11"))];
    server.on("list configmaps", [list("10", &[metadata("a", "1")]), not_served(), list("30", &[])]);
    server.on("watch configmaps from 11", [not_served()]);
    let mut told = watching(&server, [Answer::short_watch(&lines)]).await;
    told.expect(&["deleted a@11", "reset", "synced"]).await;
}

#[tokio::test]
async fn a_watch_that_asks_for_patience_gets_it() {
    let server = Server::start();
    let busy = Answer::text(429, "Too many requests").header("retry-after", "2");
    server.always("list configmaps", |_| list("10", &[]));
    let mut told = watching(&server, [busy, Answer::watch(&[modified("a", "11")])]).await;
    told.expect(&["reset", "synced", "applied a@11"]).await;
    let requests = server.requests();
    assert!(requests[2].at - requests[1].at >= Duration::from_secs(2));
}

#[tokio::test]
async fn a_watch_that_ends_at_once_again_and_again_is_no_hot_loop() {
    let server = Server::start();
    server.always("watch configmaps", |_| Answer::short_watch(&[]));
    is_no_hot_loop(&server, watching(&server, [Answer::short_watch(&[])]).await, 5).await;
}

#[tokio::test]
async fn a_version_that_expires_again_and_again_is_no_hot_loop() {
    let server = Server::start();
    let expired = || Answer::short_watch(&[line("ERROR", &status(410, "Expired"))]);
    server.always("watch configmaps", move |_| expired());
    server.always("list configmaps", |_| list("10", &[metadata("a", "1")]));
    let told = watching(&server, [expired()]).await;
    is_no_hot_loop(&server, told, 9).await;
}

#[tokio::test]
async fn a_watch_that_tells_the_same_version_and_ends_at_once_is_no_hot_loop() {
    let server = Server::start();
    server.always("watch configmaps", |_| Answer::short_watch(&[bookmark("10")]));
    is_no_hot_loop(&server, watching(&server, [Answer::short_watch(&[bookmark("10")])]).await, 5).await;
}

/// In 3 s there are no more requests than this, though they do not end.
async fn is_no_hot_loop(server: &Server, mut told: Told, most: usize) {
    told.go_on_for(Duration::from_secs(3)).await;
    let count = server.requests().len();
    assert!(count <= most, "{count} requests");
    let waiting = async {
        while server.requests().len() <= count.max(2) {
            told.go_on_for(Duration::from_millis(50)).await;
        }
    };
    in_time("another request", waiting).await;
}

#[tokio::test]
async fn a_watch_ends_when_it_is_told_to() {
    let server = Server::start();
    let mut told = watching(&server, [Answer::watch(&[modified("a", "11")])]).await;
    told.expect(&["applied a@11"]).await;
    told.stop.cancel();
    assert_eq!(told.next().await, None);
}
