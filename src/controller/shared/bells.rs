//! The watches on the pods of restarts under way, which restarts with the same selector share. A watch only rings: the
//! next list counts. Only failed pods are remembered, as they may be gone by then.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use futures_util::{Stream, StreamExt};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::lists::Listing;
use crate::controller::clock::timer_now;
use crate::controller::limits::WatchPermit;
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::list::Selection;
use crate::kube::watch::{Event, watch_from};
use crate::kube::{PODS, Uid, lock};
use crate::monitor::pod::Pod;

/// How many of the pods that have failed are remembered: the last ones.
const MOST_FAILED: usize = 16;

/// The bells by label selector.
#[derive(Default)]
pub(crate) struct Bells(Mutex<BTreeMap<String, Weak<Bell>>>);

struct Bell {
    rung: Arc<Rung>,
    _watch: AbortOnDropHandle<()>,
}

/// Wakes those who listen in the order in which they began to wait.
#[derive(Default)]
struct Rung {
    rings: Mutex<Rings>,
    notify: Notify,
}

/// What a watch has shown so far.
#[derive(Default)]
struct Rings {
    count: usize,
    /// How many times a pod has become ready, or one that is handed over has begun to terminate.
    ready: usize,
    /// When one last has.
    at: Option<Instant>,
    failed: Vec<Arc<Pod>>,
    /// Why the watch has ended, once it has. It may end without an error.
    ended: Option<Option<Error>>,
}

/// A restart that listens to a bell. The watch ends with the last of them.
pub(crate) struct Listener {
    bell: Arc<Bell>,
    /// How many rings it has heard.
    heard: usize,
    /// How many times a pod had become ready before the list.
    before: usize,
}

/// What has happened since a list.
#[derive(Debug, PartialEq)]
pub(crate) struct Ring {
    /// How many times a pod has become ready, or one that is handed over has begun to terminate, at most.
    pub(crate) ready: usize,
    pub(crate) failed: Vec<Arc<Pod>>,
}

impl Bells {
    /// Listens from a list of this selector on. Returns `None` without a permit for a watch that is not open.
    pub(super) fn listen(
        &self,
        client: &Client,
        permit: impl FnOnce() -> Option<WatchPermit>,
        (query, listing): (String, &Listing),
        surges: bool,
    ) -> Option<Listener> {
        let mut known = lock(&self.0);
        known.retain(|_, bell| bell.strong_count() > 0);
        let open = known.get(&query).and_then(Weak::upgrade).filter(|bell| lock(&bell.rung.rings).ended.is_none());
        let bell = match open {
            Some(bell) => bell,
            None => {
                let permit = permit()?;
                let rung = Arc::new(Rung::default());
                let selection =
                    Selection { resource: PODS, labels: Some(query.clone()), fields: None, metadata_only: false };
                let is_ready = |pod: &&Arc<Pod>| pod.is_ready();
                let ready = listing.pods.iter().filter(is_ready).map(|pod| pod.uid.clone()).collect();
                // The client of the namespace: the watch goes on when one keeper stops.
                let events = watch_from(client.clone(), selection, listing.version.clone());
                let ringing = Arc::clone(&rung);
                let watch = async move {
                    let _permit = permit;
                    ringing.ring(events, ready, surges).await;
                };
                let bell = Arc::new(Bell { rung, _watch: AbortOnDropHandle::new(tokio::spawn(watch)) });
                known.insert(query, Arc::downgrade(&bell));
                bell
            }
        };
        let before =
            Some(lock(&bell.rung.rings)).filter(|rings| rings.at < Some(listing.began)).map_or(0, |rings| rings.ready);
        Some(Listener { bell, heard: 0, before })
    }
}

impl Rung {
    fn add(&self, what: impl FnOnce(&mut Rings)) {
        let mut rings = lock(&self.rings);
        what(&mut rings);
        rings.count += 1;
        drop(rings);
        self.notify.notify_waiters();
    }

    /// Rings because a pod is ready, or has left its place.
    fn add_ready(&self) {
        self.add(|rings| (rings.ready, rings.at) = (rings.ready + 1, Some(timer_now())));
    }

    /// Rings until the watch ends. `ready` are the pods that were ready in the list from which it continues.
    async fn ring(
        &self,
        events: impl Stream<Item = Result<Event<Pod>, Error>>,
        mut ready: BTreeSet<Uid>,
        surges: bool,
    ) {
        let (mut events, mut ending) = (pin!(events), BTreeSet::new());
        let ended = loop {
            let pod = match events.next().await {
                Some(Ok(Event::Applied(Ok(pod)))) => pod,
                Some(Ok(Event::Deleted(Ok(pod)))) => {
                    ready.remove(&pod.uid);
                    // One that is deleted by force does not terminate.
                    if !ending.remove(&pod.uid) && pod.handed_over.is_some() {
                        self.add_ready();
                    }
                    continue;
                }
                // Events may be missing.
                missed => break missed.and_then(Result::err),
            };
            // One that is handed over leaves its place to the next one.
            let leaves = pod.handed_over.is_some() && pod.gone_by.is_some() && ending.insert(pod.uid.clone());
            let is_news = if pod.is_ready() {
                ready.insert(pod.uid.clone())
            } else {
                ready.remove(&pod.uid);
                leaves
            };
            if is_news {
                self.add_ready();
            }
            if pod.crash.is_some() && !lock(&self.rings).failed.iter().any(|known| known.uid == pod.uid) {
                self.add(|rings| {
                    rings.failed.truncate(MOST_FAILED - 1);
                    rings.failed.insert(0, Arc::new(pod.handed_over_if(surges)));
                });
            }
        };
        self.add(|rings| rings.ended = Some(ended));
    }
}

impl Listener {
    /// Waits for the next ring.
    ///
    /// # Errors
    /// The watch has ended, for this reason, if there is one. The next pass opens another one.
    pub(crate) async fn next(&mut self) -> Result<Ring, Option<Error>> {
        loop {
            let bell = Arc::clone(&self.bell);
            let notified = bell.rung.notify.notified();
            if let Some(ring) = self.rung() {
                return ring;
            }
            notified.await;
        }
    }

    /// Returns what it has not heard.
    fn rung(&mut self) -> Option<Result<Ring, Option<Error>>> {
        let rings = lock(&self.bell.rung.rings);
        if let Some(why) = &rings.ended {
            return Some(Err(why.clone()));
        }
        let is_new = std::mem::replace(&mut self.heard, rings.count) < rings.count;
        is_new.then(|| Ok(Ring { ready: rings.ready - self.before, failed: rings.failed.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use tokio::task::unconstrained;

    use super::*;
    use crate::kube::ServerTime;
    use crate::kube::objects::Owner;
    use crate::monitor::pod::HandedOver;

    fn pod(name: &str, is_ready: bool, crash: Option<&str>) -> Pod {
        let ready_since = is_ready.then(|| ServerTime::from_second(1));
        Pod { ready_since, crash: crash.map(Arc::from), ..Pod::named(name) }
    }

    async fn rung(events: Vec<Event<Pod>>) -> Rung {
        let rung = Rung::default();
        rung.ring(stream::iter(events.into_iter().map(Ok)), BTreeSet::from(["a".into()]), true).await;
        rung
    }

    fn applied(name: &str, is_ready: bool, crash: Option<&str>) -> Event<Pod> {
        Event::Applied(Ok(pod(name, is_ready, crash)))
    }

    #[tokio::test]
    async fn a_bell_rings_once_for_each_pod_that_becomes_ready_or_has_failed_or_leaves_its_place_to_the_next_one() {
        let of_b = |is_ready| applied("b", is_ready, None);
        let to =
            Owner { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into(), uid: "d".into() };
        let handed_over = Arc::new(HandedOver { to: Arc::new(to), by: "m".into() });
        let leaving = |is_handed_over: Option<()>| {
            let gone_by = Some(ServerTime::from_second(9));
            let handed_over = is_handed_over.map(|()| Arc::clone(&handed_over));
            Event::Applied(Ok(Pod { gone_by, handed_over, ..pod("b", true, None) }))
        };
        let gone = || {
            let handed_over = Some(Arc::clone(&handed_over));
            Event::Deleted(Ok(Pod { handed_over, ..pod("b", true, None) }))
        };
        for (events, ready) in [
            (vec![applied("a", true, None), of_b(false)], 0),
            (vec![of_b(true), of_b(true)], 1),
            (vec![of_b(true), of_b(false), of_b(true)], 2),
            (vec![of_b(true), Event::Deleted(Ok(pod("b", true, None))), of_b(true)], 2),
            (vec![leaving(None)], 0),
            (vec![leaving(Some(()))], 1),
            (vec![leaving(Some(())), leaving(Some(()))], 1),
            (vec![leaving(Some(())), gone()], 1),
            (vec![gone()], 1),
        ] {
            let rung = rung(events).await;
            let rings = lock(&rung.rings);
            assert_eq!((rings.ready, rings.count, &rings.ended), (ready, ready + 1, &Some(None)));
        }
        let rung = rung(["b", "b", "c"].map(|name| applied(name, false, Some("exited"))).into()).await;
        let rings = lock(&rung.rings);
        assert_eq!((rings.failed.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), rings.count), (vec!["c", "b"], 3));
    }

    #[tokio::test]
    async fn of_many_pods_that_fail_the_last_ones_are_remembered() {
        let fails = |number: usize| applied(&number.to_string(), false, Some("exited"));
        let rung = rung((0..2 * MOST_FAILED).map(fails).collect()).await;
        let failed: Vec<String> = lock(&rung.rings).failed.iter().map(|pod| pod.name.to_string()).collect();
        assert_eq!(failed, (MOST_FAILED..2 * MOST_FAILED).rev().map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_listener_hears_each_ring_once_and_that_the_watch_has_ended() {
        let bell = Bell { rung: Arc::default(), _watch: AbortOnDropHandle::new(tokio::spawn(std::future::pending())) };
        let mut listener = Listener { bell: Arc::new(bell), heard: 0, before: 0 };
        let rung = Arc::clone(&listener.bell.rung);
        assert_eq!(unconstrained(listener.next()).now_or_never(), None);
        rung.add(|rings| rings.ready += 1);
        rung.add(|rings| rings.ready += 1);
        let ring = Ring { ready: 2, failed: Vec::new() };
        assert_eq!(unconstrained(listener.next()).now_or_never(), Some(Ok(ring)));
        assert_eq!(unconstrained(listener.next()).now_or_never(), None);
        rung.add(|rings| rings.ended = Some(None));
        assert_eq!(unconstrained(listener.next()).now_or_never(), Some(Err(None)));
    }
}
