//! A watch goes on through every kind of end, and loses nothing on the way.

use std::pin::Pin;
use std::time::Duration;

use configmonitor_operator::kube::CONFIG_MAPS;
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::objects::{MetadataOnly, Undecodable};
use configmonitor_operator::kube::watch::{Event, watch};
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt};
use serde_json::json;

use crate::api::{bookmark, line, list, metadata, modified, odd, status};
use crate::requests::client;
use crate::script::{Answer, Server};
use crate::time::in_time;

/// What a watch on the metadata of ConfigMaps tells, in words.
pub(crate) struct Told {
    events: Pin<Box<dyn Stream<Item = Event<MetadataOnly>>>>,
}

impl Told {
    pub(crate) fn by(server: &Server) -> Self {
        let of = Selection { resource: CONFIG_MAPS, labels: None, name: None, metadata_only: true };
        Self { events: Box::pin(watch(client(server), of, Duration::ZERO, |_| ())) }
    }

    async fn next(&mut self) -> String {
        match in_time("an event", self.events.next()).await.expect("no end") {
            Event::Reset => "reset".to_owned(),
            Event::Listed(object) => format!("listed {}", in_words(object)),
            Event::Synced => "synced".to_owned(),
            Event::Applied(object) => format!("applied {}", in_words(object)),
            Event::Deleted(object) => format!("deleted {}", in_words(object)),
        }
    }

    /// Waits for exactly these events.
    pub(crate) async fn expect(&mut self, events: &[&str]) {
        let mut told = Vec::new();
        while told.len() < events.len() {
            told.push(self.next().await);
        }
        assert_eq!(told, events);
    }

    /// Waits for this event. Gives back what was told from the last list on.
    pub(crate) async fn until(&mut self, event: &str) -> Vec<String> {
        let mut told = Vec::new();
        while told.last().is_none_or(|last| last != event) {
            let next = self.next().await;
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
async fn a_watch_that_ends_at_once_again_and_again_is_no_hot_loop() {
    let ends = [(vec![], 5), (vec![bookmark("10")], 5), (vec![line("ERROR", &status(410, "Expired"))], 9)];
    let checks = ends.map(|(lines, most)| async move {
        let server = Server::start();
        let first = Answer::short_watch(&lines);
        server.always("watch configmaps", move |_| Answer::short_watch(&lines));
        server.always("list configmaps", |_| list("10", &[metadata("a", "1")]));
        let told = watching(&server, [first]).await;
        is_no_hot_loop(&server, told, most).await;
    });
    join_all(checks).await;
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
