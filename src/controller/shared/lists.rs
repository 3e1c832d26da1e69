//! The pods of a selector, as one list has shown them to all keepers that wanted it, and the watch that goes on from there.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use tokio::sync::OwnedSemaphorePermit;

use super::Shared;
use super::pool::Pool;
use super::requests::{Interest, Requests};
use crate::controller::clock::timer_now;
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::list::Selection;
use crate::kube::objects::Pod;
use crate::kube::watch::{Event, watch_from};
use crate::kube::{ResourceVersion, ServerTime, Uid};

/// A listener that is more events behind than this must list again.
const MOST_TOLD: usize = 10_000;
/// At most so many events that all listeners have received are kept, for listeners that start later.
const HEARD: usize = 1_000;

/// The lists that somebody is interested in, by label selector.
pub(crate) type Lists = Requests<String, Arc<Listing>>;

/// A selector that somebody is interested in.
pub(crate) type InPods = Interest<String, Arc<Listing>>;

/// A list of pods.
pub(crate) struct Listing {
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) version: ResourceVersion,
    /// The `Date` of its answer.
    pub(crate) at: ServerTime,
    /// When it was begun,
    pub(crate) began: Instant,
    /// how many turns had ended by then,
    pub(crate) turns_ended: u64,
    /// and how long it took.
    pub(crate) took: Duration,
    feed: Arc<Feed>,
}

/// The watch that goes on where a list has ended.
struct Feed {
    /// Of the process: it goes on when one keeper ends.
    client: Client,
    of: Selection,
    from: ResourceVersion,
    log: Mutex<Log>,
    /// Whoever has it waits for what comes next, for all.
    watch: tokio::sync::Mutex<Option<Watch>>,
}

type Watch = Pin<Box<dyn Stream<Item = Result<Event<Pod>, Error>> + Send>>;

/// What the watch has told.
#[derive(Default)]
struct Log {
    /// While it is open.
    permit: Option<OwnedSemaphorePermit>,
    /// So much was told before that.
    forgotten: usize,
    told: VecDeque<PodEvent>,
    /// How much of it each of those who listen has heard.
    heard: BTreeMap<u64, usize>,
    next: u64,
}

/// What a watch on pods tells.
#[derive(Clone)]
pub(crate) enum PodEvent {
    Applied(Arc<Pod>),
    Deleted(Uid),
    /// Something may have been missed, and nothing comes after it. The pass that follows lists the pods, and reports the outage if there is one: the watch
    /// may be closed when it ends.
    Missed(Option<Error>),
}

/// What comes of the wish to listen.
pub(crate) enum Listening {
    To(Listener),
    /// There are too many watches.
    Full,
    /// What came right after the list is not known any more.
    TooLate,
}

/// The right to hear what a watch tells.
pub(crate) struct Listener {
    feed: Arc<Feed>,
    id: u64,
}

impl Listing {
    /// Lists these pods.
    pub(crate) async fn make(client: &Client, shared: &Shared, of: Selection) -> Result<Arc<Self>, Error> {
        let (turns_ended, began) = (shared.own.turns.ended(), timer_now());
        let list = client.list(&of, None, |pod| shared.pods.share(pod)).await?;
        let (version, took) = (list.resource_version, timer_now().saturating_duration_since(began));
        let (log, watch) = (Mutex::default(), tokio::sync::Mutex::default());
        let feed = Feed { client: shared.client.clone(), of, from: version.clone(), log, watch };
        let (pods, at, feed) = (list.items, list.at, Arc::new(feed));
        Ok(Arc::new(Self { pods, version, at, began, turns_ended, took, feed }))
    }

    /// Listens to what comes after it. A permit is needed unless somebody listens already.
    pub(crate) fn listen(&self, permit: impl FnOnce() -> Option<OwnedSemaphorePermit>) -> Listening {
        let mut log = self.feed.log();
        if log.forgotten > 0 || log.is_over() {
            return Listening::TooLate;
        }
        if log.permit.is_none() {
            log.permit = permit();
        }
        if log.permit.is_none() {
            return Listening::Full;
        }
        let id = log.next;
        log.next += 1;
        log.heard.insert(id, 0);
        drop(log);
        Listening::To(Listener { feed: Arc::clone(&self.feed), id })
    }
}

impl Feed {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// The next that the watch tells.
    pub(crate) async fn next(&mut self, pool: &Pool) -> PodEvent {
        loop {
            if let Some(told) = self.feed.log().tell(self.id) {
                return told;
            }
            let mut watch = self.feed.watch.lock().await;
            if self.feed.log().has_news_for(self.id) {
                continue;
            }
            let Feed { client, of, from, .. } = &*self.feed;
            let open = || -> Watch { Box::pin(watch_from(client.clone(), of.clone(), from.clone())) };
            let told = match watch.get_or_insert_with(open).next().await {
                Some(Ok(Event::Applied(Ok(pod)))) => PodEvent::Applied(pool.share(pod)),
                Some(Ok(Event::Deleted(Ok(pod)))) => PodEvent::Deleted(pod.uid),
                missed => {
                    *watch = None;
                    PodEvent::Missed(missed.and_then(Result::err))
                }
            };
            self.feed.log().take_in(told);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut log = self.feed.log();
        log.heard.remove(&self.id);
        log.forget();
        // If the watch is held, its holder still listens, and closes it when it goes.
        if log.heard.is_empty()
            && let Ok(mut watch) = self.feed.watch.try_lock()
        {
            *watch = None;
            log.take_in(PodEvent::Missed(None));
        }
    }
}

impl Log {
    fn has_news_for(&self, id: u64) -> bool {
        self.heard.get(&id).is_none_or(|heard| heard - self.forgotten < self.told.len())
    }

    /// What this one has not heard yet.
    fn tell(&mut self, id: u64) -> Option<PodEvent> {
        let Some(heard) = self.heard.get_mut(&id) else { return Some(PodEvent::Missed(None)) };
        let told = self.told.get(*heard - self.forgotten)?.clone();
        *heard += usize::from(!matches!(told, PodEvent::Missed(_)));
        Some(told)
    }

    fn take_in(&mut self, told: PodEvent) {
        if matches!(told, PodEvent::Missed(_)) {
            self.permit = None;
        }
        self.told.push_back(told);
        self.forget();
    }

    fn is_over(&self) -> bool {
        matches!(self.told.back(), Some(PodEvent::Missed(_)))
    }

    /// Forgets what everybody has heard, if it is much. Who is too far behind has missed something, and hears of that.
    fn forget(&mut self) {
        let end = self.forgotten + self.told.len();
        self.heard.retain(|_, heard| end - *heard <= MOST_TOLD);
        let first = self.heard.values().copied().min().unwrap_or(end);
        if first - self.forgotten > HEARD {
            self.told.drain(..first - self.forgotten);
            self.forgotten = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deleted(number: usize) -> PodEvent {
        PodEvent::Deleted(Uid::from(&*number.to_string()))
    }

    /// A log to which so many listen.
    fn log(listeners: u64) -> Log {
        Log { heard: (0..listeners).map(|id| (id, 0)).collect(), ..Log::default() }
    }

    /// The numbers that are told to this one, until there is nothing more; none at the end if it has missed something.
    fn hear(log: &mut Log, id: u64) -> Vec<Option<usize>> {
        let mut heard = Vec::new();
        while let Some(told) = log.tell(id) {
            match told {
                PodEvent::Deleted(uid) => heard.push(uid.as_str().parse().ok()),
                _ => {
                    heard.push(None);
                    break;
                }
            }
        }
        heard
    }

    #[test]
    fn each_hears_everything_once_and_in_order() {
        let mut log = log(2);
        (0..3).for_each(|number| log.take_in(deleted(number)));
        assert_eq!(hear(&mut log, 0), [Some(0), Some(1), Some(2)]);
        assert!(!log.has_news_for(0) && log.has_news_for(1));
        log.take_in(deleted(3));
        log.take_in(PodEvent::Missed(None));
        assert_eq!(hear(&mut log, 1), [Some(0), Some(1), Some(2), Some(3), None]);
        assert_eq!(hear(&mut log, 0), [Some(3), None]);
        assert_eq!(hear(&mut log, 0), [None], "and it stays so");
    }

    #[test]
    fn what_all_have_heard_is_forgotten_and_who_is_far_behind_has_missed_it() {
        let mut log = log(2);
        let last = HEARD + 1;
        (0..=last).for_each(|number| log.take_in(deleted(number)));
        assert_eq!(hear(&mut log, 0).len(), last + 1);
        assert_eq!(log.told.len(), last + 1, "the other one has not heard it");
        assert_eq!(hear(&mut log, 1).len(), last + 1);
        log.take_in(deleted(0));
        assert_eq!((log.told.len(), log.forgotten), (1, last + 1));
        (0..MOST_TOLD).for_each(|number| {
            log.take_in(deleted(number));
            hear(&mut log, 0);
        });
        assert_eq!(hear(&mut log, 1), [None]);
        assert_eq!(hear(&mut log, 0), []);
        assert!(log.told.len() <= HEARD + 1);
    }
}
