//! Lists of pods, shared by the keepers with the same selector, and the watch that continues from each list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};

use super::Shared;
use super::requests::{Interest, Requests};
use crate::controller::clock::timer_now;
use crate::controller::limits::WatchPermit;
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::labels::LabelSelector;
use crate::kube::list::Selection;
use crate::kube::objects::{Labels, Owner};
use crate::kube::watch::{Event, watch_from};
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::pod::{LabelledPod, Pod, WholePod};
use crate::monitor::restart::plan::{Referrers, Scope};

/// A listener that is more events behind must list again.
pub(crate) const MAX_LAG: usize = 1_000;
/// The maximum number of events kept after every listener has received them, for listeners that start later.
const KEPT_EVENTS: usize = 100;

/// The label selector of a list, and that of the pods that go last.
pub(crate) type Key = (String, Option<LabelSelector>);

/// The lists in which keepers are interested, for a scope.
pub(crate) type Lists = Requests<Key, Scope, Arc<Listing>>;

pub(crate) type ListInterest = Interest<Key, Scope, Arc<Listing>>;

pub(crate) struct Listing {
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Which of them refer to the sources of the scope.
    pub(crate) referrers: Arc<Referrers>,
    pub(crate) version: ResourceVersion,
    /// The `Date` of the answer.
    pub(crate) at: ServerTime,
    pub(crate) began: Instant,
    /// How many turns had ended when the list began.
    pub(crate) turns_ended: u64,
    pub(crate) took: Duration,
    feed: Arc<Feed>,
}

/// The watch that continues from a list.
struct Feed {
    /// A client of the process: the watch continues when one keeper stops.
    client: Client,
    selection: Selection,
    last: Option<LabelSelector>,
    from: ResourceVersion,
    surges: bool,
    log: Mutex<Log>,
    /// Locked by the listener that waits for the next event on behalf of all.
    watch: tokio::sync::Mutex<Option<PodEvents>>,
}

type PodEvents = Pin<Box<dyn Stream<Item = Result<Event<LabelledPod>, Error>> + Send>>;

#[derive(Default)]
struct Log {
    /// Held while the watch is open.
    permit: Option<WatchPermit>,
    /// How many events were dropped from the front of `events`.
    dropped: usize,
    events: VecDeque<PodEvent>,
    /// How many events each listener has received.
    positions: BTreeMap<u64, usize>,
    next: u64,
}

#[derive(Clone)]
pub(crate) enum PodEvent {
    Applied(Arc<Pod>),
    Deleted(Uid),
    /// Events may be missing, and none follows. The next pass lists the pods and reports an outage, because the watch
    /// may be closed when the outage ends.
    Missed(Option<Error>),
}

pub(crate) struct Listener {
    feed: Arc<Feed>,
    id: u64,
}

impl Listing {
    /// Lists these pods. What the list before has, too, is stored once: otherwise 30 rolling restarts of the same 5,000
    /// pods take three times as much memory.
    pub(crate) async fn make(
        client: &Client,
        shared: &Shared,
        (selection, last): (Selection, Option<LabelSelector>),
        scope: &Scope,
        before: Option<Arc<Self>>,
    ) -> Result<Arc<Self>, Error> {
        let (turns_ended, began) = (shared.namespace_limits.turns.ended(), timer_now());
        let known: BTreeMap<&Uid, &Arc<Pod>> =
            before.iter().flat_map(|before| &before.pods).map(|pod| (&pod.uid, pod)).collect();
        let mut owners: BTreeSet<Arc<Owner>> = known.values().filter_map(|pod| pod.controller.clone()).collect();
        let surges = shared.settings.surges;
        let mut take = |pod: Pod, labels: &Labels| {
            let mut pod = pod.handed_over_if(surges);
            pod.goes_last = goes_last(last.as_ref(), labels);
            if let Some(known) = known.get(&pod.uid).filter(|known| ****known == pod) {
                return Arc::clone(known);
            }
            if let Some(owner) = &mut pod.controller {
                match owners.get(owner) {
                    Some(known) => *owner = Arc::clone(known),
                    None => drop(owners.insert(Arc::clone(owner))),
                }
            }
            Arc::new(pod)
        };
        let mut referrers = Referrers::default();
        let list = if scope.is_empty() {
            let take = |LabelledPod { pod, labels, .. }: LabelledPod| take(pod, &labels);
            client.list(&selection, None, take).await?
        } else {
            let take = |WholePod { pod, labels, spec }: WholePod| {
                referrers.see(scope, &pod.uid, spec.as_deref());
                take(pod, &labels)
            };
            client.list(&selection, None, take).await?
        };
        let referrers = Arc::new(referrers);
        let (version, took) = (list.resource_version, timer_now().saturating_duration_since(began));
        let (log, watch) = (Mutex::default(), tokio::sync::Mutex::default());
        let feed = Feed { client: shared.client.clone(), selection, last, from: version.clone(), surges, log, watch };
        let (pods, at, feed) = (list.items, list.at, Arc::new(feed));
        Ok(Arc::new(Self { pods, referrers, version, at, began, turns_ended, took, feed }))
    }

    /// Subscribes to the events after this list. Takes a permit unless the watch is open already. Returns `None` if
    /// there are too many watches, or if the first events are lost.
    pub(crate) fn listen(&self, shared: &Shared) -> Option<Listener> {
        let mut log = self.feed.log();
        if log.dropped > 0 || log.is_over() {
            return None;
        }
        if log.permit.is_none() {
            log.permit = Some(shared.limits.try_watch(&shared.namespace_limits)?);
        }
        let id = log.next;
        log.next += 1;
        log.positions.insert(id, 0);
        drop(log);
        Some(Listener { feed: Arc::clone(&self.feed), id })
    }
}

fn goes_last(last: Option<&LabelSelector>, labels: &Labels) -> bool {
    last.is_some_and(|last| last.matches(&labels.to_map()))
}

impl Feed {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    pub(crate) async fn next(&mut self) -> PodEvent {
        loop {
            if let Some(event) = self.feed.log().next_for(self.id) {
                return event;
            }
            let mut watch = self.feed.watch.lock().await;
            if let Some(event) = self.feed.log().next_for(self.id) {
                return event;
            }
            let Feed { client, selection, last, from, surges, .. } = &*self.feed;
            let open = || -> PodEvents { Box::pin(watch_from(client.clone(), selection.clone(), from.clone())) };
            let event = match watch.get_or_insert_with(open).next().await {
                Some(Ok(Event::Applied(Ok(LabelledPod { pod, labels, .. })))) => {
                    let goes_last = goes_last(last.as_ref(), &labels);
                    PodEvent::Applied(Arc::new(Pod { goes_last, ..pod.handed_over_if(*surges) }))
                }
                Some(Ok(Event::Deleted(Ok(LabelledPod { pod, .. })))) => PodEvent::Deleted(pod.uid),
                missed => {
                    *watch = None;
                    PodEvent::Missed(missed.and_then(Result::err))
                }
            };
            self.feed.log().push(event);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut log = self.feed.log();
        log.positions.remove(&self.id);
        log.trim();
        // A listener that holds the lock is still subscribed, and closes the watch when it is dropped.
        if log.positions.is_empty()
            && let Ok(mut watch) = self.feed.watch.try_lock()
        {
            *watch = None;
            log.push(PodEvent::Missed(None));
        }
    }
}

impl Log {
    fn next_for(&mut self, id: u64) -> Option<PodEvent> {
        let Some(position) = self.positions.get_mut(&id) else { return Some(PodEvent::Missed(None)) };
        let event = self.events.get(*position - self.dropped)?.clone();
        *position += usize::from(!matches!(event, PodEvent::Missed(_)));
        Some(event)
    }

    fn push(&mut self, event: PodEvent) {
        if matches!(event, PodEvent::Missed(_)) {
            self.permit = None;
        }
        self.events.push_back(event);
        self.trim();
    }

    fn is_over(&self) -> bool {
        matches!(self.events.back(), Some(PodEvent::Missed(_)))
    }

    /// Drops events that every listener has received, once there are many. A listener that lags too far behind is
    /// removed, and receives `Missed`.
    fn trim(&mut self) {
        let end = self.dropped + self.events.len();
        self.positions.retain(|_, position| end - *position <= MAX_LAG);
        let first = self.positions.values().copied().min().unwrap_or(end);
        if first - self.dropped > KEPT_EVENTS {
            self.events.drain(..first - self.dropped);
            self.dropped = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deleted(number: usize) -> PodEvent {
        PodEvent::Deleted(Uid::from(&*number.to_string()))
    }

    /// Creates a log with this many listeners.
    fn log(listeners: u64) -> Log {
        Log { positions: (0..listeners).map(|id| (id, 0)).collect(), ..Log::default() }
    }

    /// Reads the numbers of all events for this listener; `None` stands for `Missed`.
    fn read_all(log: &mut Log, id: u64) -> Vec<Option<usize>> {
        let mut received = Vec::new();
        while let Some(event) = log.next_for(id) {
            match event {
                PodEvent::Deleted(uid) => received.push(uid.as_str().parse().ok()),
                _ => {
                    received.push(None);
                    break;
                }
            }
        }
        received
    }

    #[test]
    fn each_listener_receives_every_event_once_and_in_order() {
        let mut log = log(2);
        (0..3).for_each(|number| log.push(deleted(number)));
        assert_eq!(read_all(&mut log, 0), [Some(0), Some(1), Some(2)]);
        log.push(deleted(3));
        log.push(PodEvent::Missed(None));
        assert_eq!(read_all(&mut log, 1), [Some(0), Some(1), Some(2), Some(3), None]);
        assert_eq!(read_all(&mut log, 0), [Some(3), None]);
        assert_eq!(read_all(&mut log, 0), [None], "nothing follows Missed");
    }

    #[test]
    fn events_that_all_have_received_are_dropped_and_a_listener_far_behind_misses_events() {
        let mut log = log(2);
        let last = KEPT_EVENTS + 1;
        (0..=last).for_each(|number| log.push(deleted(number)));
        assert_eq!(read_all(&mut log, 0).len(), last + 1);
        assert_eq!(log.events.len(), last + 1, "the other listener has not received them");
        assert_eq!(read_all(&mut log, 1).len(), last + 1);
        log.push(deleted(0));
        assert_eq!((log.events.len(), log.dropped), (1, last + 1));
        (0..MAX_LAG).for_each(|number| {
            log.push(deleted(number));
            read_all(&mut log, 0);
        });
        assert_eq!(read_all(&mut log, 1), [None]);
        assert_eq!(read_all(&mut log, 0), []);
        assert!(log.events.len() <= KEPT_EVENTS + 1);
    }
}
