//! The pods of a restart under way, as this process knows them: the plan, what was last seen, and a watch for what changes.
//!
//! It deletes nothing and decides nothing: see `restart.rs` and `monitor::rollout`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::kube::backoff::Backoff;
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::faults::Faults;
use crate::kube::list::{List, Selection};
use crate::kube::objects::Pod;
use crate::kube::watch::{Event, watch_from};
use crate::kube::{PODS, ResourceVersion, ServerTime, Uid};
use crate::monitor::rollout::{Move, Plan, Sight, Standing, Wanted};
use crate::monitor::spec::Policy;

/// At most so many watches on pods are open in the process. A restart beyond that lists now and then.
const POD_WATCHES: usize = 64;

/// At most so many keepers are awake at a time: as many as requests are let through, unless that is set otherwise. More would only wait for
/// each other, each with what it has read, and all of them would come to their deletions last.
const AWAKE: usize = 32;

/// At most so many until everything is known: a thousand first looks would hold up the lists that tell.
const AWAKE_AT_FIRST: usize = 4;

/// So long after a pod has become available its PodDisruptionBudget knows of it: another controller sees to that.
const BUDGET_LAG: Duration = Duration::from_millis(500);

/// What comes within so short a time is judged together: every judgement looks at all pods, and each of many pods makes several events.
const TOGETHER: Duration = Duration::from_millis(50);

/// What all keepers of the process share.
pub(super) struct Restarts {
    /// The operator's own pod, which is never deleted.
    pub(super) own_pod: Option<Uid>,
    watches: Arc<Semaphore>,
    /// So many keepers may be awake at a time.
    awake: Arc<Semaphore>,
    /// So many more, once everything is known.
    asleep_at_first: AtomicUsize,
    /// Restarts that keep a budget make their passes one after the other: what one has just deleted the next must see, as the
    /// pods may be its own.
    turns: Arc<Mutex<()>>,
}

/// The right to make a pass.
pub(super) enum Turn {
    /// Whoever keeps no budget needs none.
    NotNeeded,
    /// Nobody else has it until it is dropped.
    Mine { _guard: OwnedMutexGuard<()> },
}

/// A restart that has begun, as far as this process knows it.
pub(super) struct Rollout {
    /// The list that the plan is made of: the same one in the status means the same restart.
    pub(super) version: ResourceVersion,
    pub(super) plan: Plan,
    pub(super) policy: Policy,
    own_pod: Option<Uid>,
    /// The selected pods as last heard of.
    pub(super) pods: BTreeMap<Uid, Pod>,
    /// When they were last listed. A pass judges by this time: to a list of before, nothing has come of the time since.
    pub(super) seen_at: ServerTime,
    seen_version: ResourceVersion,
    /// The ConfigMonitor was read, or the intent written, since that list.
    pub(super) is_confirmed: bool,
    pub(super) wanted: Wanted,
    /// Pods that were not deleted when it was last tried. They alone are not worth a pass before its time.
    pub(super) failed: BTreeSet<Uid>,
    /// Of these, the ones that were refused: others go first.
    pub(super) refused: BTreeSet<Uid>,
    /// How many pods were ready when an eviction was refused. It is worth a pass when more are.
    pub(super) blocked_at: Option<usize>,
    pub(super) changes: Option<Changes>,
    /// What bounds the watches on pods, if this one has none only because there are too many.
    full: Option<Arc<Semaphore>>,
    /// The right to a watch that is not open yet.
    permit: Option<OwnedSemaphorePermit>,
    /// The watch has missed something. It is opened again only after a pause, as it may be that it always fails.
    broken: bool,
    /// When this process took it up. What was held before does not count as standing still.
    pub(super) taken_up: Option<ServerTime>,
    /// The fewest old pods and missing new ones together that a pass has found.
    pub(super) least_left: Option<usize>,
    pub(super) backoff: Backoff,
    /// What has gone wrong with the pods and with their owners.
    pub(super) faults: Faults,
    /// What has gone wrong with the watch.
    pub(super) watch_faults: Faults,
}

/// An open watch on the selected pods.
pub(super) struct Changes {
    events: Pin<Box<dyn Stream<Item = Result<Event<Pod>, Error>> + Send>>,
    _permit: OwnedSemaphorePermit,
}

impl Restarts {
    pub(super) fn new(own_pod: Option<Uid>) -> Self {
        Self {
            own_pod,
            watches: Arc::new(Semaphore::new(POD_WATCHES)),
            awake: Arc::new(Semaphore::new(AWAKE_AT_FIRST)),
            asleep_at_first: AtomicUsize::new(AWAKE - AWAKE_AT_FIRST),
            turns: Arc::default(),
        }
    }

    /// The right to be awake, once there is room. Who asked first has it first.
    pub(super) async fn waken(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.awake).acquire_owned().await.ok()
    }

    /// From now on as many may be awake as there is room for.
    pub(super) fn all_may_be_awake(&self) {
        self.awake.add_permits(self.asleep_at_first.swap(0, Ordering::Relaxed));
    }

    /// The right to make a pass, if nobody else has it now.
    pub(super) fn turn(&self, policy: &Policy) -> Option<Turn> {
        if policy.max_unavailable.is_none() {
            return Some(Turn::NotNeeded);
        }
        Arc::clone(&self.turns).try_lock_owned().ok().map(|guard| Turn::Mine { _guard: guard })
    }

    /// The right to make a pass, once those who asked before have had it.
    pub(super) async fn next_turn(&self) -> Turn {
        Turn::Mine { _guard: Arc::clone(&self.turns).lock_owned().await }
    }

    pub(super) fn rollout(&self, policy: &Policy, plan: Plan, version: ResourceVersion) -> Box<Rollout> {
        Box::new(Rollout {
            seen_version: version.clone(),
            version,
            plan,
            policy: policy.clone(),
            own_pod: self.own_pod.clone(),
            pods: BTreeMap::new(),
            seen_at: ServerTime::from_second(0),
            is_confirmed: false,
            wanted: Wanted::new(),
            failed: BTreeSet::new(),
            refused: BTreeSet::new(),
            blocked_at: None,
            changes: None,
            full: None,
            permit: None,
            broken: false,
            taken_up: None,
            least_left: None,
            backoff: Backoff::default(),
            faults: Faults::default(),
            watch_faults: Faults::default(),
        })
    }
}

impl Rollout {
    /// Waits until the pods are such that another pass is worth it, or until they cannot be watched any more.
    pub(super) async fn worth_a_pass(&mut self, client: &Client) -> Result<(), Error> {
        let mut next = self.standing(client.server_now()).next;
        loop {
            let now = client.server_now();
            let Some(changes) = &mut self.changes else {
                let Some(full) = self.full.clone() else { return std::future::pending().await };
                // Once there is room for a watch, a list tells what there is to watch for.
                self.permit = full.acquire_owned().await.ok();
                return Ok(());
            };
            let time_passes = async {
                match next {
                    Move::Wait(Some(until)) => sleep(until.since(now)).await,
                    _ => std::future::pending().await,
                }
            };
            let mut heard = tokio::select! {
                biased;
                () = time_passes => None,
                event = changes.events.next() => Some(event),
            };
            if heard.is_some() {
                sleep(TOGETHER).await;
            }
            while let Some(event) = heard {
                if let ControlFlow::Break(missed) = self.hear(event) {
                    return missed;
                }
                heard = self.changes.as_mut().and_then(|changes| changes.events.next().now_or_never());
            }
            next = self.standing(client.server_now()).next;
            match (&next, self.blocked_at) {
                (Move::Done, _) => return Ok(()),
                (Move::Remove(_), Some(before)) if self.ready() > before => {
                    sleep(BUDGET_LAG).await;
                    return Ok(());
                }
                (Move::Remove(uids), None) if uids.iter().any(|uid| !self.failed.contains(uid)) => return Ok(()),
                (Move::Remove(_) | Move::Wait(_), _) => {}
            }
        }
    }

    /// Takes in what the watch tells. Once it has missed something, the list of the next pass tells.
    fn hear(&mut self, event: Option<Result<Event<Pod>, Error>>) -> ControlFlow<Result<(), Error>> {
        match event {
            Some(Ok(Event::Applied(Ok(pod)))) => drop(self.pods.insert(pod.uid.clone(), pod)),
            Some(Ok(Event::Deleted(Ok(pod)))) => drop(self.pods.remove(&pod.uid)),
            missed => {
                (self.changes, self.broken) = (None, true);
                return ControlFlow::Break(missed.transpose().map(drop));
            }
        }
        ControlFlow::Continue(())
    }

    /// The pods that were not deleted when it was last tried, and are still there.
    pub(super) fn failed_pods(&self) -> Vec<&Pod> {
        self.failed.iter().filter_map(|uid| self.pods.get(uid)).filter(|pod| pod.gone_by.is_none()).collect()
    }

    /// How many of the selected pods are ready.
    pub(super) fn ready(&self) -> usize {
        self.pods.values().filter(|pod| pod.ready_since.is_some() && pod.gone_by.is_none()).count()
    }

    pub(super) fn standing(&self, now: ServerTime) -> Standing<'_> {
        let (pods, wanted, refused) = (&self.pods, &self.wanted, &self.refused);
        self.plan.standing(&self.policy, &Sight { pods, wanted, refused, own_pod: self.own_pod.as_ref(), now })
    }

    /// Takes in a list.
    pub(super) fn see(&mut self, list: List<Pod>) {
        self.pods = list.items.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        (self.seen_at, self.seen_version, self.is_confirmed) = (list.at, list.resource_version, false);
    }

    /// It is, or will be, gone.
    pub(super) fn forgive(&mut self, uid: &Uid) {
        self.failed.remove(uid);
        self.refused.remove(uid);
    }

    pub(super) fn ending(&mut self, uid: &Uid, by: ServerTime) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.gone_by.get_or_insert(by);
        }
    }

    /// Nothing is done about it for now. That does not count as standing still.
    pub(super) fn hold(&mut self) {
        self.do_not_listen();
        self.taken_up = None;
    }

    /// Closes the watch on the pods, and does not wait for one.
    pub(super) fn do_not_listen(&mut self) {
        (self.changes, self.full, self.permit) = (None, None, None);
    }

    /// Opens a watch on the pods, unless there is one or there are too many, or the last one has just failed.
    pub(super) fn listen(&mut self, client: &Client, restarts: &Restarts, policy: &Policy) {
        if self.changes.is_some() || std::mem::take(&mut self.broken) {
            return;
        }
        let permit = self.permit.take().or_else(|| Arc::clone(&restarts.watches).try_acquire_owned().ok());
        self.full = permit.is_none().then(|| Arc::clone(&restarts.watches));
        if let Some(permit) = permit {
            let events = Box::pin(watch_from(client.clone(), selected(policy), self.seen_version.clone()));
            self.changes = Some(Changes { events, _permit: permit });
        }
    }
}

/// The pods that a policy selects.
pub(super) fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), metadata_only: false }
}
