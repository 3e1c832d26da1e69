//! An endless list-and-watch of one resource. Resumes a watch that ends. Lists again if a watch cannot be opened, if
//! the server has forgotten the version, and every 600 s.
//!
//! Never gives up, and never decides what an object means.

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::client::Client;
use super::error::{Cause, Error};
use super::faults::Faults;
use super::lines::Lines;
use super::list::{NextPage, Selection};
use super::meter::Pulse;
use super::objects::{Undecodable, decode};
use super::{Action, ResourceVersion};

/// Time between two lists. After a restore from backup, a watch from a version of the future stays silent for ever;
/// only a list shows what has changed.
const RELIST_AFTER: Duration = Duration::from_secs(600);
/// Duration of a watch, as in client-go. It is random, so that the watches do not all end together.
const WATCH_SECONDS: std::ops::Range<u64> = 300..600;
/// A watch that ends within this time has failed, and one that stays open for longer works.
const LIVELY: Duration = Duration::from_secs(1);

/// An event for the consumer of a watch.
#[derive(Clone, Debug)]
pub enum Event<T> {
    /// A list begins. Objects that are not listed before [`Event::Synced`] do not exist.
    Reset,
    /// An object of the list.
    Listed(Result<T, Undecodable>),
    /// The list is complete. From here on, every change is an event.
    Synced,
    /// The object was created or changed.
    Applied(Result<T, Undecodable>),
    /// The object was deleted, or is not selected any more.
    Deleted(Result<T, Undecodable>),
    /// The right to list or to watch is missing. It is asked for again and again.
    Refused(Error),
    /// The watch works: for the first time, or again after a failure, which may have been another one than a refusal.
    Recovered,
}

enum State<T> {
    /// The next request is the first page of a list.
    Start,
    /// The next request is this page of the list.
    Page(Option<NextPage>),
    /// The objects of a page are being returned.
    Items { items: std::vec::IntoIter<Result<T, Undecodable>>, next: Option<NextPage>, version: ResourceVersion },
    /// The next request opens a watch after this version.
    Resume(ResourceVersion),
    /// The watch is open.
    Watching { lines: Box<Lines>, version: ResourceVersion, opened: Instant },
}

struct Watch<T> {
    client: Client,
    of: Selection,
    state: State<T>,
    listed: Instant,
    faults: Faults,
    /// The minimum delay after a refusal for a missing right.
    after_refusal: Duration,
    /// The pause before the next request.
    pause: Option<Duration>,
    /// It has stayed open since the last failure. False at first: another watch of these objects may have been refused before.
    is_lively: bool,
    /// The watch's last activity. None for [`watch_from`].
    pulse: Option<Arc<Pulse>>,
}

#[derive(Deserialize)]
struct WatchLine<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
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

/// All objects of a selection and then every change. Ends when the client is stopped. Waits at least
/// `after_refusal` after a refusal for a missing right.
pub fn watch<T: DeserializeOwned>(
    client: Client,
    of: Selection,
    after_refusal: Duration,
) -> impl Stream<Item = Event<T>> {
    let pulse = Some(Pulse::of(client.meter(), of.resource.plural));
    let watch = Watch { after_refusal, pulse, is_lively: false, ..Watch::new(client, of, State::Start) };
    futures_util::stream::unfold(watch, |mut watch| async move {
        let event = watch.next_event().await?;
        Some((event, watch))
    })
}

/// Every change of a selection after a version, for callers that listed the objects themselves. After a failure
/// or [`Event::Reset`] changes may be missing: list again.
pub(crate) fn watch_from<T: DeserializeOwned>(
    client: Client,
    of: Selection,
    version: ResourceVersion,
) -> impl Stream<Item = Result<Event<T>, Error>> {
    futures_util::stream::unfold(Watch::new(client, of, State::Resume(version)), |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    })
}

impl<T: DeserializeOwned> Watch<T> {
    fn new(client: Client, of: Selection, state: State<T>) -> Self {
        let (listed, faults, after_refusal) = (Instant::now(), Faults::default(), Duration::ZERO);
        Self { client, of, state, listed, faults, after_refusal, pause: None, is_lively: true, pulse: None }
    }

    /// The next event, after as many retries as that takes. None when the client is stopped.
    async fn next_event(&mut self) -> Option<Event<T>> {
        let stop = self.client.stop().clone();
        loop {
            if let Some(pause) = self.pause.take() {
                stop.run_until_cancelled(tokio::time::sleep(pause)).await?;
            }
            match self.next().await? {
                Ok(event) => return Some(event),
                Err(error) => {
                    self.is_lively = false;
                    self.count_restart((&error.cause).into());
                    let pause = self.faults.log(&error, self.client.namespace());
                    if matches!(error.cause, Cause::Forbidden(_)) {
                        self.pause = Some(pause.max(self.after_refusal));
                        return Some(Event::Refused(error));
                    }
                    self.pause = Some(pause);
                }
            }
        }
    }

    /// The next event or failure. None when the client is stopped.
    async fn next(&mut self) -> Option<Result<Event<T>, Error>> {
        let stop = self.client.stop().clone();
        loop {
            let step = stop.run_until_cancelled(self.step()).await?;
            if let Some(event) = step.transpose() {
                return Some(event);
            }
        }
    }

    /// Makes one transition of the state. Returns an event, nothing, or a failure after which the state says what to
    /// request next.
    async fn step(&mut self) -> Result<Option<Event<T>>, Error> {
        let (state, result) = match &mut self.state {
            State::Start => (State::Page(None), Ok(Some(Event::Reset))),
            State::Page(next) => match self.client.page(&self.of, next.as_ref()).await {
                Ok(page) => {
                    self.pulse.iter().for_each(|pulse| pulse.beat());
                    if next.is_none() {
                        self.listed = Instant::now();
                    }
                    let (items, version) = (page.items.into_iter(), page.resource_version);
                    (State::Items { items, next: page.next, version }, Ok(None))
                }
                // A token that the server refuses for ever must not be retried for ever. A server restored from backup
                // has its own error for a token from the future.
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
            State::Resume(_) if self.listed.elapsed() >= RELIST_AFTER => {
                self.count_restart("TimeToList");
                (State::Start, Ok(None))
            }
            State::Resume(version) => {
                let remaining = RELIST_AFTER.saturating_sub(self.listed.elapsed());
                let duration = Duration::from_secs(fastrand::u64(WATCH_SECONDS)).min(remaining).max(2 * LIVELY);
                match self.client.watch(&self.of, version, duration).await {
                    Ok(lines) => {
                        let (lines, version, opened) = (Box::new(lines), version.clone(), Instant::now());
                        (State::Watching { lines, version, opened }, Ok(None))
                    }
                    // A server that was away may come back from a backup, and then this version is in its future.
                    // While it starts, it also answers 403 and 429.
                    Err(error) => (State::Start, Err(error)),
                }
            }
            State::Watching { lines, version, opened } => {
                // One that stays open for so long works.
                let lively = (!self.is_lively).then_some(*opened + LIVELY);
                let Some(line) = within(lively, lines.next()).await else {
                    self.is_lively = true;
                    self.faults.log_recovery(self.of.resource.plural, self.client.namespace());
                    return Ok(Some(Event::Recovered));
                };
                let failed = |cause| Err(Action::new("watch", self.of.resource).failed(cause));
                match line {
                    Ok(Some(line)) => match read(&line) {
                        Ok((at, event)) => {
                            self.pulse.iter().for_each(|pulse| pulse.beat());
                            *version = at;
                            return Ok(event);
                        }
                        Err(cause) => (State::Start, failed(cause)),
                    },
                    Ok(None) if opened.elapsed() >= LIVELY => {
                        let resume = State::Resume(version.clone());
                        self.count_restart("Ended");
                        (resume, Ok(None))
                    }
                    Ok(None) => {
                        let cause = Cause::Unreachable("the watch ended at once".to_owned());
                        (State::Resume(version.clone()), failed(cause))
                    }
                    Err(cause @ Cause::Unreachable(_)) => (State::Resume(version.clone()), failed(cause)),
                    Err(cause) => (State::Start, failed(cause)),
                }
            }
        };
        self.state = state;
        result
    }

    fn count_restart(&self, reason: &'static str) {
        self.client.meter().watch_restarted(self.of.resource.plural, reason);
    }
}

/// Returns `None` once the time has come, if there is one.
async fn within<T>(until: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match until {
        Some(until) => tokio::time::timeout_at(until, future).await.ok(),
        None => Some(future.await),
    }
}

/// Reads one line: its version, and its event unless it is a bookmark. A line that cannot be read may have been any
/// change: only a list helps then.
fn read<T: DeserializeOwned>(line: &str) -> Result<(ResourceVersion, Option<Event<T>>), Cause> {
    let unclear = |what: &str| Cause::Undecodable(format!("a watch line {what}"));
    let line: WatchLine<'_> = serde_json::from_str(line).map_err(|_| unclear("that is not an event"))?;
    let event = match line.r#type {
        "ADDED" | "MODIFIED" => Some(Event::Applied(decode(line.object))),
        "DELETED" => Some(Event::Deleted(decode(line.object))),
        "BOOKMARK" => None,
        "ERROR" => return Err(Cause::of_watch_error(line.object.get())),
        _ => return Err(unclear("of an unknown type")),
    };
    let object: Versioned =
        serde_json::from_str(line.object.get()).map_err(|_| unclear("without a resourceVersion"))?;
    Ok((object.metadata.resource_version, event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::objects::MetadataOnly;
    use crate::kube::transport::{Request, Response, Transport};
    use crate::kube::{SECRETS, cut};
    use futures_util::future::BoxFuture;
    use futures_util::{FutureExt, StreamExt};
    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    fn read_text(line: &str) -> Result<(ResourceVersion, Option<Event<MetadataOnly>>), Cause> {
        read(line)
    }

    #[test]
    fn events_are_named_for_what_they_mean() {
        let object = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#;
        for (kind, applied) in [("ADDED", true), ("MODIFIED", true), ("DELETED", false)] {
            let (version, event) = read_text(&format!(r#"{{"type":"{kind}","object":{object}}}"#)).expect("an event");
            assert_eq!(version.as_str(), "7");
            assert_eq!(matches!(event, Some(Event::Applied(Ok(_)))), applied, "{kind}");
        }
    }

    #[test]
    fn a_bookmark_only_moves_the_version() {
        let line = r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"12"}}}"#;
        assert!(matches!(read_text(line), Ok((version, None)) if version.as_str() == "12"));
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_still_an_event() {
        let line = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":7,"resourceVersion":"7"}}}"#;
        let (_, Some(Event::Applied(Err(undecodable)))) = read_text(line).expect("an event") else {
            panic!("an object")
        };
        assert_eq!(undecodable.name.as_deref(), Some("a"));
    }

    /// Answers every request with 403.
    struct Refusing;

    impl Transport for Refusing {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, String>> {
            let body = r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}"#;
            let body = futures_util::stream::iter([Ok(body.into())]).boxed();
            std::future::ready(Ok(Response { code: 403, headers: Default::default(), body })).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_the_right_waits_as_long_as_it_was_given() {
        let client = Client::new(
            Box::new(Refusing),
            "http://proxy".parse().expect("a URL"),
            1,
            1,
            Arc::new(()),
            CancellationToken::new(),
        );
        let of = Selection { resource: SECRETS, labels: None, fields: None, metadata_only: true };
        let (mut minutes, start) = (Vec::new(), Instant::now());
        let refused = watch::<MetadataOnly>(client, of, Duration::from_secs(600)).for_each(|event| {
            if matches!(event, Event::Refused(_)) {
                minutes.push(start.elapsed().as_secs() / 60);
            }
            std::future::ready(())
        });
        let ended = tokio::time::timeout(Duration::from_secs(1900), refused).await;
        assert!(ended.is_err(), "it goes on");
        assert_eq!(minutes, [0, 10, 20, 30]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_a_failure_of_the_watch() {
        for line in ["", "<html>", "{}", r#"{"type":"RENAMED","object":{"metadata":{"resourceVersion":"1"}}}"#] {
            assert!(matches!(read_text(line), Err(Cause::Undecodable(_))), "{line}");
        }
        let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(matches!(read_text(expired), Err(Cause::Expired)));
    }

    /// Generates lines of a watch, whole and cut off.
    fn line() -> impl Strategy<Value = String> {
        let kind = prop::sample::select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "?"]);
        let object = prop_oneof![
            Just(r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#.to_owned()),
            "[0-9]{1,6}".prop_map(|code| format!(r#"{{"kind":"Status","code":{code},"metadata":{{}}}}"#)),
            r#"[\[\]{}":,0-9a-zä]{0,30}"#,
        ];
        let line = (kind, object).prop_map(|(kind, object)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}"));
        let cut_off = (line.clone(), 0usize..100).prop_map(|(line, length)| cut(&line, length).to_owned());
        prop_oneof![line, cut_off, ".{0,60}"]
    }

    proptest! {
        #[test]
        fn no_line_causes_a_panic(line in line()) {
            let _ = std::hint::black_box(read_text(&line));
        }
    }
}
