//! A watch resumes after every kind of end and loses no event.

use std::pin::Pin;
use std::time::Duration;

use configmonitor_operator::kube::CONFIG_MAPS;
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::objects::{MetadataOnly, Undecodable};
use configmonitor_operator::kube::watch::{Event, watch};
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt};
use serde_json::json;

use crate::api::{bookmark, line, list, metadata, status};
use crate::requests::client;
use crate::script::{Answer, Server};
use crate::time::in_time;

/// The events of a watch on the metadata of ConfigMaps, in words.
pub(crate) struct Events {
    events: Pin<Box<dyn Stream<Item = Event<MetadataOnly>>>>,
}

impl Events {
    pub(crate) fn of(server: &Server) -> Self {
        let of = Selection { resource: CONFIG_MAPS, labels: None, fields: None, metadata_only: true };
        Self { events: Box::pin(watch(client(server), of, Duration::ZERO)) }
    }

    async fn next(&mut self) -> String {
        match in_time("an event", self.events.next()).await.expect("no end") {
            Event::Reset => "reset".to_owned(),
            Event::Listed(object) => format!("listed {}", in_words(object)),
            Event::Synced => "synced".to_owned(),
            Event::Applied(object) => format!("applied {}", in_words(object)),
            Event::Deleted(object) => format!("deleted {}", in_words(object)),
            Event::Refused(_) => "refused".to_owned(),
            Event::Recovered => "recovered".to_owned(),
        }
    }

    /// Waits for exactly these events.
    pub(crate) async fn expect(&mut self, events: &[&str]) {
        let mut seen = Vec::new();
        while seen.len() < events.len() {
            seen.push(self.next().await);
        }
        assert_eq!(seen, events);
    }

    /// Waits for this event. Returns the events since the last list began.
    pub(crate) async fn until(&mut self, event: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != event) {
            let next = self.next().await;
            if next == "reset" {
                seen.clear();
            }
            seen.push(next);
        }
        seen
    }

    /// Lets the watch run for this time.
    pub(crate) async fn run_for(&mut self, duration: Duration) {
        let _ = tokio::time::timeout(duration, async { while self.events.next().await.is_some() {} }).await;
    }
}

fn in_words(object: Result<MetadataOnly, Undecodable>) -> String {
    match object {
        Ok(MetadataOnly { metadata }) => format!("{}@{}", metadata.name, metadata.resource_version.as_str()),
        Err(Undecodable { name, .. }) => format!("{} undecodable", name.unwrap_or_default()),
    }
}

/// Starts a watch that has listed the ConfigMap `a` at version 10, and that gets these answers next.
async fn watching(server: &Server, answers: impl IntoIterator<Item = Answer, IntoIter: Send + 'static>) -> Events {
    server.on("list configmaps", [list("10", &[metadata("a", "1")])]);
    server.on("watch configmaps from 10", answers);
    let mut events = Events::of(server);
    events.expect(&["reset", "listed a@1", "synced"]).await;
    events
}

#[tokio::test]
async fn a_line_as_long_as_the_api_can_make_it_is_an_event() {
    let server = Server::start();
    let mut long = metadata("a", "11");
    long["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(9 << 20) });
    watching(&server, [Answer::watch(&[line("MODIFIED", &long)])]).await.expect(&["applied a@11"]).await;
}

#[tokio::test]
async fn a_watch_that_always_ends_at_once_makes_few_requests() {
    let ends = [(vec![], 5), (vec![bookmark("10")], 5), (vec![line("ERROR", &status(410, "Expired"))], 9)];
    let checks = ends.map(|(lines, max)| async move {
        let server = Server::start();
        let first = Answer::short_watch(&lines);
        server.always("watch configmaps", move |_| Answer::short_watch(&lines));
        server.always("list configmaps", |_| list("10", &[metadata("a", "1")]));
        let events = watching(&server, [first]).await;
        assert_no_hot_loop(&server, events, max).await;
    });
    join_all(checks).await;
}

/// Asserts that the watch goes on with at most `max` requests in 3 s.
async fn assert_no_hot_loop(server: &Server, mut events: Events, max: usize) {
    events.run_for(Duration::from_secs(3)).await;
    let count = server.requests().len();
    assert!(count <= max, "{count} requests");
    let waiting = async {
        while server.requests().len() <= count.max(2) {
            events.run_for(Duration::from_millis(50)).await;
        }
    };
    in_time("another request", waiting).await;
}
