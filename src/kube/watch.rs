//! One list-and-watch of a resource, for ever: it lists, watches on from there, and resumes when a watch ends. It lists again when
//! a watch cannot be opened, when the server has forgotten the version, or when it is time to be sure.
//!
//! It never gives up and never decides what an object means.

use std::time::Duration;

use futures_util::Stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::ResourceVersion;
use super::client::Client;
use super::error::{Cause, Error};
use super::faults::Faults;
use super::lines::{Line, Lines};
use super::list::{Next, Selection};
use super::objects::{HasVersion, Undecodable, decode};
use crate::metrics::Pulse;

/// So long after a list, another one shows what no watch would have: a server restored from a backup takes a version from
/// its future and stays silent for ever.
const RELIST_AFTER: Duration = Duration::from_secs(600);
/// A watch lasts between these many seconds, as with client-go, so that not all of them end together.
const WATCH_SECONDS: std::ops::Range<u64> = 300..600;
/// A watch that ends sooner and without one event has failed, whatever it says.
const LIVELY: Duration = Duration::from_secs(1);

/// What a consumer may conclude.
#[derive(Debug)]
pub enum Event<T> {
    /// A list begins. What is not listed until [`Event::Synced`] does not exist.
    Reset,
    /// The object is in the list.
    Listed(Result<T, Undecodable>),
    /// The list is complete. From here on every change is told.
    Synced,
    /// The object was created or changed.
    Applied(Result<T, Undecodable>),
    /// The object does not exist any more, or is not selected any more.
    Deleted(Result<T, Undecodable>),
}

/// Where a watch stands.
enum State<T> {
    /// A list is to be made from its first page.
    Start,
    /// The next page of the list is to be read.
    Page(Option<Next>),
    /// A page is being handed out.
    Items { items: std::vec::IntoIter<Result<T, Undecodable>>, next: Option<Next>, version: ResourceVersion },
    /// A watch is to be opened after this version.
    Resume(ResourceVersion),
    /// Events are coming.
    Watching { lines: Box<Lines>, version: ResourceVersion, opened: Instant, lively: bool },
}

struct Watch<T> {
    client: Client,
    of: Selection,
    state: State<T>,
    listed: Instant,
    faults: Faults,
    /// The least pause after a refusal for lack of a right.
    after_refusal: Duration,
    /// Hears that the right to list or to watch is missing, and of none that it is not any more.
    on_refusal: Box<dyn Fn(Option<Error>) + Send>,
    /// If it is to last.
    pulse: Option<Pulse>,
}

#[derive(Deserialize)]
struct WatchLine<'a, T> {
    r#type: &'a str,
    object: T,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: ResourceVersion,
}

/// What a line says: an event, or with a bookmark nothing but a version to go on from.
#[derive(Debug)]
struct Read<T> {
    event: Option<Event<T>>,
    version: ResourceVersion,
}

/// All objects of a selection, and then every change of them. Ends when the client is stopped. While the right to list or to watch them is missing,
/// asks again after `after_refusal` at the earliest. Calls `on_refusal` with each refusal, and with none when the watch works again.
pub fn watch<T: DeserializeOwned + HasVersion>(
    client: Client,
    of: Selection,
    after_refusal: Duration,
    on_refusal: impl Fn(Option<Error>) + Send + 'static,
) -> impl Stream<Item = Event<T>> {
    let pulse = Some(Pulse::of(client.metrics(), of.resource.plural));
    let watch =
        Watch { after_refusal, on_refusal: Box::new(on_refusal), pulse, ..Watch::new(client, of, State::Start) };
    futures_util::stream::unfold(watch, |mut watch| async move {
        let event = watch.next_in_the_end().await?;
        Some((event, watch))
    })
}

/// Every change of a selection after a version, for those who have listed themselves. A failure, and [`Event::Reset`], mean that
/// some may be missed, and that it is time for another list.
pub fn watch_from<T: DeserializeOwned + HasVersion>(
    client: Client,
    of: Selection,
    version: ResourceVersion,
) -> impl Stream<Item = Result<Event<T>, Error>> {
    futures_util::stream::unfold(Watch::new(client, of, State::Resume(version)), |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    })
}

impl<T: DeserializeOwned + HasVersion> Watch<T> {
    fn new(client: Client, of: Selection, state: State<T>) -> Self {
        let (listed, faults, after_refusal) = (Instant::now(), Faults::default(), Duration::ZERO);
        Self { client, of, state, listed, faults, after_refusal, on_refusal: Box::new(|_| ()), pulse: None }
    }

    /// The next event, whatever fails before it; none when the client is stopped.
    async fn next_in_the_end(&mut self) -> Option<Event<T>> {
        let stop = self.client.stop().clone();
        loop {
            match self.next().await? {
                Ok(event) => return Some(event),
                Err(error) => {
                    let delay = self.failed(&error);
                    stop.run_until_cancelled(tokio::time::sleep(delay)).await?;
                }
            }
        }
    }

    /// The next event or failure; none when the client is stopped.
    async fn next(&mut self) -> Option<Result<Event<T>, Error>> {
        let stop = self.client.stop().clone();
        loop {
            let step = stop.run_until_cancelled(self.step()).await?;
            if let Some(event) = step.transpose() {
                return Some(event);
            }
        }
    }

    /// One transition: an event, or only another state, or a failure after which the state says what to do next.
    async fn step(&mut self) -> Result<Option<Event<T>>, Error> {
        let (state, result) = match &mut self.state {
            State::Start => (State::Page(None), Ok(Some(Event::Reset))),
            State::Page(next) => match self.client.page(&self.of, next.as_ref()).await {
                Ok(page) => {
                    self.pulse.iter().for_each(Pulse::beat);
                    if next.is_none() {
                        self.listed = Instant::now();
                    }
                    let (items, version) = (page.items.into_iter(), page.resource_version);
                    (State::Items { items, next: page.next, version }, Ok(None))
                }
                // What is asked for again and again must not be refused for ever. A server restored from a backup has its own words for a
                // token from its future.
                Err(error) if matches!(error.cause, Cause::Expired | Cause::Invalid(_) | Cause::Refused(_)) => {
                    (State::Start, Err(error))
                }
                Err(error) => return Err(error),
            },
            State::Items { items, next, version } => match items.next() {
                Some(item) => return Ok(Some(Event::Listed(item))),
                None if next.is_some() => (State::Page(next.take()), Ok(None)),
                None => (State::Resume(version.clone()), Ok(Some(Event::Synced))),
            },
            State::Resume(version) => match RELIST_AFTER.saturating_sub(self.listed.elapsed()) {
                Duration::ZERO => {
                    self.count_restart("TimeToList");
                    (State::Start, Ok(None))
                }
                remaining => {
                    let duration = Duration::from_secs(fastrand::u64(WATCH_SECONDS)).min(remaining).max(LIVELY);
                    match self.client.watch(&self.of, version, duration).await {
                        Ok(lines) => {
                            let (lines, version, opened) = (Box::new(lines), version.clone(), Instant::now());
                            (State::Watching { lines, version, opened, lively: false }, Ok(None))
                        }
                        // A server that was away may come back from a backup, and then this version is in its future. On its
                        // way it refuses requests with 403 and 429, too.
                        Err(error) => (State::Start, Err(error)),
                    }
                }
            },
            State::Watching { lines, version, opened, lively } => {
                let line = if self.faults.is_failing() {
                    tokio::time::timeout(LIVELY, lines.next()).await.ok()
                } else {
                    Some(lines.next().await)
                };
                let Some(line) = line else {
                    // It has recovered when the watch has held for a while, even if there is nothing to tell.
                    self.recovered();
                    return Ok(None);
                };
                *lively |= opened.elapsed() >= LIVELY;
                let failed = |cause| Err(Error { request: format!("watch {}", self.of.resource.plural), cause });
                match line {
                    Line::Whole(line) => match read(&line) {
                        Ok(Read { event, version: at }) => {
                            self.pulse.iter().for_each(Pulse::beat);
                            *lively |= *version != at;
                            *version = at;
                            if *lively {
                                self.recovered();
                            }
                            return Ok(event);
                        }
                        Err(cause) => (State::Start, failed(cause)),
                    },
                    Line::TooLong => (State::Start, failed(Cause::Undecodable("a line over the limit".to_owned()))),
                    Line::End if *lively => {
                        let resume = State::Resume(version.clone());
                        self.count_restart("Ended");
                        (resume, Ok(None))
                    }
                    Line::End => {
                        let cause = Cause::Unreachable("the watch ended at once".to_owned());
                        (State::Resume(version.clone()), failed(cause))
                    }
                    Line::Broken(why) => (State::Resume(version.clone()), failed(Cause::Unreachable(why))),
                }
            }
        };
        self.state = state;
        result
    }

    /// Says so once when a kind of failure begins, and how long to wait after this one.
    fn failed(&mut self, error: &Error) -> Duration {
        self.count_restart(error.cause.word());
        let (mut delay, tell) = self.faults.note(&error.cause, Instant::now().into_std());
        let (namespace, resource) = (self.namespace(), self.of.resource.plural);
        if matches!(error.cause, Cause::Forbidden(_)) {
            (self.on_refusal)(Some(error.clone()));
            delay = delay.max(self.after_refusal);
        }
        match &error.cause {
            _ if !tell => debug!(namespace, resource, %error, "still failing"),
            Cause::NoSuchResource => warn!(namespace, resource, %error, "waiting for the CustomResourceDefinition"),
            Cause::Unreachable(_) => warn!(namespace, resource, %error, "waiting for the proxy and the API server"),
            Cause::Forbidden(_) => warn!(namespace, resource, %error, "waiting for the right to do so"),
            _ => warn!(namespace, resource, %error, "trying again"),
        }
        delay
    }

    fn recovered(&mut self) {
        if self.faults.is_failing() {
            (self.on_refusal)(None);
        }
        if self.faults.over() {
            info!(namespace = self.namespace(), resource = self.of.resource.plural, "working again");
        }
    }

    fn count_restart(&self, reason: &str) {
        self.client.metrics().watch_restarted(self.of.resource.plural, reason);
    }

    /// For the log.
    fn namespace(&self) -> Option<&str> {
        Some(self.client.namespace()).filter(|namespace| !namespace.is_empty())
    }
}

/// Reads one line. What cannot be understood may have been any change, so that only a list can tell.
fn read<T: DeserializeOwned + HasVersion>(line: &[u8]) -> Result<Read<T>, Cause> {
    // Nearly all lines are changes of objects that can be decoded: at one go.
    if let Ok(WatchLine { r#type, object }) = serde_json::from_slice::<WatchLine<'_, T>>(line) {
        let version = object.resource_version().clone();
        if let Some(event) = change(r#type, Ok(object)) {
            return Ok(Read { event: Some(event), version });
        }
    }
    let unclear = |what: &str| Cause::Undecodable(format!("a watch line that is {what}"));
    let line: WatchLine<'_, &RawValue> = serde_json::from_slice(line).map_err(|_| unclear("no event"))?;
    if line.r#type == "ERROR" {
        return Err(Cause::of_watch_error(line.object.get()));
    }
    let object: Versioned =
        serde_json::from_str(line.object.get()).map_err(|_| unclear("without a resourceVersion"))?;
    let event = match line.r#type {
        "BOOKMARK" => None,
        kind => Some(change(kind, decode(line.object)).ok_or_else(|| unclear("of an unknown type"))?),
    };
    Ok(Read { event, version: object.metadata.resource_version })
}

/// The change of an object that this type of event tells of, if it does.
fn change<T>(kind: &str, object: Result<T, Undecodable>) -> Option<Event<T>> {
    match kind {
        "ADDED" | "MODIFIED" => Some(Event::Applied(object)),
        "DELETED" => Some(Event::Deleted(object)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::SECRETS;
    use crate::kube::lines::Splitter;
    use crate::kube::objects::MetadataOnly;
    use crate::kube::transport::{Request, Response, Transport};
    use futures_util::future::BoxFuture;
    use futures_util::{FutureExt, StreamExt};
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};
    use tokio_util::sync::CancellationToken;

    fn told(line: &str) -> Result<Read<MetadataOnly>, Cause> {
        read(line.as_bytes())
    }

    #[test]
    fn events_are_named_for_what_they_mean() {
        let object = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#;
        for (kind, applied) in [("ADDED", true), ("MODIFIED", true), ("DELETED", false)] {
            let told = told(&format!(r#"{{"type":"{kind}","object":{object}}}"#)).expect("an event");
            assert_eq!(told.version.as_str(), "7");
            assert_eq!(matches!(told.event, Some(Event::Applied(Ok(_)))), applied, "{kind}");
        }
    }

    #[test]
    fn a_bookmark_moves_the_version_and_says_nothing_else() {
        let line = r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"12"}}}"#;
        assert!(matches!(told(line), Ok(Read { event: None, version }) if version.as_str() == "12"));
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_an_event_all_the_same() {
        let line = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":7,"resourceVersion":"7"}}}"#;
        let Some(Event::Applied(Err(undecodable))) = told(line).expect("an event").event else { panic!("an object") };
        assert_eq!(undecodable.name.as_deref(), Some("a"));
    }

    /// Refuses every request for lack of a right.
    struct Refusing;

    impl Transport for Refusing {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, String>> {
            let body = r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}"#;
            let body = futures_util::stream::iter([Ok(body.into())]).boxed();
            std::future::ready(Ok(Response { code: 403, headers: Default::default(), body })).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_missing_is_asked_for_by_the_same_watch_as_slowly_as_it_is_to_be() {
        let client = Client::new(
            Box::new(Refusing),
            "http://proxy".parse().expect("a URL"),
            1,
            1,
            Arc::default(),
            CancellationToken::new(),
        );
        let of = Selection { resource: SECRETS, labels: None, name: None, metadata_only: true };
        let (minutes, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let noted = Arc::clone(&minutes);
        let events = watch::<MetadataOnly>(client, of, Duration::from_secs(600), move |refusal| {
            assert!(refusal.is_some());
            noted.lock().expect("a list").push(start.elapsed().as_secs() / 60);
        });
        let told = tokio::time::timeout(Duration::from_secs(1900), events.map(drop).collect::<Vec<_>>()).await;
        assert!(told.is_err(), "it goes on");
        assert_eq!(*minutes.lock().expect("a list"), [0, 10, 20, 30]);
    }

    #[test]
    fn what_cannot_be_understood_calls_for_a_list() {
        for line in ["", "<html>", "{}", r#"{"type":"RENAMED","object":{"metadata":{"resourceVersion":"1"}}}"#] {
            assert!(matches!(told(line), Err(Cause::Undecodable(_))), "{line}");
        }
        let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(matches!(told(expired), Err(Cause::Expired)));
    }

    /// A part of a watch: a line as it should be, a piece of one, or anything.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop::sample::select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "?"]);
        let object = prop_oneof![
            Just(r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#.to_owned()),
            "[0-9]{1,6}".prop_map(|code| format!(r#"{{"kind":"Status","code":{code},"metadata":{{}}}}"#)),
            r#"[\[\]{}":,0-9a-zä]{0,30}"#,
        ];
        let line = (kind, object).prop_map(|(kind, object)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
        let piece = (line.clone(), any::<prop::sample::Index>(), any::<bool>()).prop_map(|(line, at, first)| {
            let (before, after) = line.as_bytes().split_at(at.index(line.len()));
            if first { before.to_vec() } else { after.to_vec() }
        });
        prop_oneof![line.prop_map(String::into_bytes), piece, prop::collection::vec(any::<u8>(), 0..60)]
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_makes_it_panic(parts in prop::collection::vec(part(), 0..8), size in 1usize..100) {
            let mut splitter = Splitter::new(100);
            for chunk in parts.concat().chunks(size) {
                splitter.add(chunk);
                while let Some(line) = splitter.line() {
                    if let Line::Whole(line) = line {
                        let _ = std::hint::black_box(read::<MetadataOnly>(&line));
                    }
                }
            }
        }
    }
}
