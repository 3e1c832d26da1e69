//! The pods of a restart under way, as this process knows them: the plan, what was last seen, and a watch for what changes.
//!
//! It deletes nothing and decides nothing: see `restart.rs` and `monitor::rollout`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, sleep_until, timeout_at};

use super::lists::{InPods, Listener, Listening, Listing, Told};
use super::shared::Shared;
use super::timer_now;
use super::turns::Owners;
use crate::kube::backoff::Backoff;
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::faults::Faults;
use crate::kube::list::Selection;
use crate::kube::objects::Pod;
use crate::kube::{PODS, ResourceVersion, ServerTime, Uid};
use crate::monitor::rollout::{self, Move, Plan, Sight, Standing, Wanted};
use crate::monitor::spec::Policy;
use crate::monitor::status::Begun;

/// So long after a pod has become available its PodDisruptionBudget knows of it: another controller sees to that.
const BUDGET_LAG: Duration = Duration::from_millis(500);

/// What comes within this time is judged together, if a judgement takes long: each looks at all pods, and each of many pods makes several events.
const TOGETHER: Duration = Duration::from_millis(50);

/// After a judgement comes a pause of so many times as long as it took.
const JUDGEMENT_PAUSE: u32 = 20;

/// After a list comes a pause of so many times as long as it took: at most a tenth of the time goes into lists, however many pods there are.
const PAUSE: u32 = 9;
/// A list that takes less than this costs little, while a pod that is ready waits for the next one to go,
const SHORT_LIST: Duration = Duration::from_millis(20);
/// and the pause is only so many times as long.
const SHORT_PAUSE: u32 = 3;
/// No pause is longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A restart that has begun, as far as this process knows it.
pub(super) struct Rollout {
    /// When it began, and the list that says which pods are old: the same in the status means the same restart.
    id: (ServerTime, Option<ResourceVersion>),
    pub(super) plan: Plan,
    pub(super) policy: Policy,
    /// The selected pods as last heard of.
    pub(super) pods: BTreeMap<Uid, Arc<Pod>>,
    /// When they were last listed. A pass judges by this time: to a list of before, nothing has come of the time since.
    pub(super) seen_at: ServerTime,
    /// That list, for a watch that goes on from there, and for others who may want it, too.
    seen: Option<(Arc<Listing>, InPods)>,
    /// They were listed since the last pass.
    pub(super) is_listed: bool,
    /// When the last list was begun.
    pub(super) listed_at: Instant,
    /// No other list is made before this time, nor before this one, which the API server has asked for.
    pub(super) pause: Option<Instant>,
    pub(super) busy_until: Option<Instant>,
    /// It was reported as stalled.
    pub(super) is_stalled: bool,
    /// The ConfigMonitor was read, or the intent written, since that list.
    pub(super) is_confirmed: bool,
    pub(super) wanted: Wanted,
    /// Pods that were not deleted when it was last tried. They alone are not worth a pass before its time.
    pub(super) failed: BTreeSet<Uid>,
    /// Of these, the ones that were refused: others go first.
    pub(super) refused: BTreeSet<Uid>,
    /// Pods that the API server has said to be gone, or to be others by now, as they were then. That it was so the next list shows.
    pub(super) said_gone: BTreeMap<Uid, ResourceVersion>,
    /// The last wave was refused something: the next one begins with one pod.
    pub(super) is_hindered: bool,
    /// How many pods were ready when an eviction was refused. It is worth a pass when more are.
    pub(super) blocked_at: Option<usize>,
    pub(super) changes: Option<Listener>,
    /// What bounds the watches on pods, if this one has none only because there are too many.
    full: Option<Arc<Semaphore>>,
    /// The right to a watch that is not open yet.
    permit: Option<OwnedSemaphorePermit>,
    /// The watch has missed something. It is opened again only after a pause, as it may be that it always fails.
    broken: bool,
    /// When this process took it up. What was held before does not count as standing still.
    pub(super) taken_up: Option<ServerTime>,
    /// When it last came nearer to its end.
    pub(super) last_progress_at: ServerTime,
    /// The fewest old pods and missing new ones together that a pass has found.
    pub(super) least_left: Option<usize>,
    pub(super) backoff: Backoff,
    /// What has gone wrong with the pods and with their owners.
    pub(super) faults: Faults,
    /// What has gone wrong with the watch.
    pub(super) watch_faults: Faults,
}

impl Rollout {
    pub(super) fn new(policy: &Policy, plan: Plan, begun: &Begun, version: Option<ResourceVersion>) -> Box<Self> {
        Box::new(Self {
            id: (begun.started_at, version),
            plan,
            policy: policy.clone(),
            pods: BTreeMap::new(),
            seen_at: ServerTime::from_second(0),
            seen: None,
            is_listed: false,
            listed_at: timer_now(),
            pause: None,
            busy_until: None,
            is_stalled: false,
            is_confirmed: false,
            last_progress_at: begun.last_progress_at,
            wanted: Wanted::new(),
            failed: BTreeSet::new(),
            refused: BTreeSet::new(),
            said_gone: BTreeMap::new(),
            is_hindered: false,
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

    /// Whether it is about the restart that a status has like this.
    pub(super) fn is_of(&self, begun: &Begun, version: Option<&ResourceVersion>) -> bool {
        self.id.0 == begun.started_at && self.id.1.as_ref() == version
    }

    /// Waits until the pods are such that another pass is worth it, or until they cannot be watched any more.
    pub(super) async fn worth_a_pass(&mut self, client: &Client, shared: &Shared) -> Result<(), Error> {
        let own_pod = shared.own_pod.as_ref();
        let mut next = self.standing(own_pod, client.server_now()).next;
        let mut pause_until = timer_now();
        loop {
            let now = client.server_now();
            let Some(changes) = &mut self.changes else {
                let Some(full) = self.full.clone().filter(|_| self.permit.is_none()) else {
                    return std::future::pending().await;
                };
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
                told = changes.next(&shared.pods) => Some(told),
            };
            while let Some(told) = heard {
                if let ControlFlow::Break(missed) = self.hear(told) {
                    return missed;
                }
                let Some(changes) = &mut self.changes else { break };
                heard = timeout_at(pause_until.into(), changes.next(&shared.pods)).await.ok();
            }
            let judged_at = timer_now();
            next = self.standing(own_pod, client.server_now()).next;
            let now = timer_now();
            pause_until = now + (now.saturating_duration_since(judged_at) * JUDGEMENT_PAUSE).min(TOGETHER);
            let is_worth_it = match (&next, self.blocked_at) {
                // To see that it is over takes no list.
                (Move::Done, _) => return Ok(()),
                (Move::Remove(_), Some(before)) if self.ready() > before => {
                    sleep(BUDGET_LAG).await;
                    true
                }
                (Move::Remove(uids), None) => uids.iter().any(|uid| !self.failed.contains(uid)),
                (Move::Remove(_) | Move::Wait(_), _) => false,
            };
            if is_worth_it {
                if let Some(pause) = self.pause {
                    sleep_until(pause.into()).await;
                }
                return Ok(());
            }
        }
    }

    /// Takes in what the watch tells. Once it has missed something, the list of the next pass tells.
    fn hear(&mut self, told: Told) -> ControlFlow<Result<(), Error>> {
        match told {
            Told::Applied(pod) => drop(self.pods.insert(pod.uid.clone(), pod)),
            Told::Deleted(uid) => drop(self.pods.remove(&uid)),
            Told::Missed(why) => {
                (self.changes, self.broken) = (None, true);
                return ControlFlow::Break(why.map_or(Ok(()), Err));
            }
        }
        ControlFlow::Continue(())
    }

    /// The API server has said that this pod is gone, or that it has another version. Whether that may be so: it has not said the same before, and the
    /// list after that has not shown otherwise.
    pub(super) fn may_be_so(&mut self, pod: &Pod, is_about_version: bool) -> bool {
        let before = self.said_gone.insert(pod.uid.clone(), pod.version.clone());
        before.is_none_or(|version| is_about_version && version != pod.version)
    }

    /// The pods that were not deleted when it was last tried, and are still there.
    pub(super) fn failed_pods(&self) -> Vec<&Pod> {
        self.failed
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            .map(|pod| &**pod)
            .filter(|pod| pod.gone_by.is_none())
            .collect()
    }

    /// How many of the selected pods are ready.
    pub(super) fn ready(&self) -> usize {
        self.pods.values().filter(|pod| pod.ready_since.is_some() && pod.gone_by.is_none()).count()
    }

    pub(super) fn standing<'a>(&'a self, own_pod: Option<&'a Uid>, now: ServerTime) -> Standing<'a> {
        let (pods, wanted, refused) = (&self.pods, &self.wanted, &self.refused);
        let is_overdue = now >= self.deadline();
        self.plan.standing(&self.policy, &Sight { pods, wanted, refused, own_pod, is_overdue, now })
    }

    /// When it is overdue. What was held before this process took it up does not count as standing still.
    pub(super) fn deadline(&self) -> ServerTime {
        let last = self.taken_up.map_or(self.last_progress_at, |taken_up| self.last_progress_at.max(taken_up));
        rollout::deadline(&self.policy, last, &self.pods)
    }

    /// Whether the watch on the pods, if there is one, shows that no old pod is left and that the owners have what they are known to want.
    pub(super) fn seems_over(&self, own_pod: Option<&Uid>, now: ServerTime) -> bool {
        self.changes.is_some() && self.standing(own_pod, now).next == Move::Done
    }

    /// The owners whose pods it counts.
    pub(super) fn owners(&self) -> Owners {
        self.plan.owners(&self.pods).into_iter().map(|owner| owner.uid.clone()).collect()
    }

    /// Takes in a list.
    pub(super) fn see(&mut self, listing: Arc<Listing>, interest: InPods) {
        (self.seen_at, self.listed_at) = (listing.at, listing.began);
        (self.is_listed, self.is_confirmed) = (true, false);
        self.pods = listing.pods.iter().map(|pod| (pod.uid.clone(), Arc::clone(pod))).collect();
        self.said_gone.retain(|uid, _| self.pods.contains_key(uid));
        self.refused.retain(|uid| self.pods.contains_key(uid));
        self.put_off(listing.took);
        self.seen = Some((listing, interest));
    }

    /// Puts off the next list by a pause in proportion to one that took so long.
    pub(super) fn put_off(&mut self, took: Duration) {
        let times = if took < SHORT_LIST { SHORT_PAUSE } else { PAUSE };
        self.pause = Some(timer_now() + (took * times).min(LONGEST_PAUSE));
    }

    /// It is, or will be, gone.
    pub(super) fn forgive(&mut self, uid: &Uid) {
        self.failed.remove(uid);
        self.refused.remove(uid);
        self.said_gone.remove(uid);
    }

    pub(super) fn ending(&mut self, uid: &Uid, by: ServerTime) {
        if let Some(pod) = self.pods.get_mut(uid) {
            Arc::make_mut(pod).gone_by.get_or_insert(by);
        }
    }

    /// Nothing is done about it for now. That does not count as standing still.
    pub(super) fn hold(&mut self) {
        self.do_not_listen();
        (self.seen, self.taken_up) = (None, None);
    }

    /// Closes the watch on the pods, and does not wait for one.
    pub(super) fn do_not_listen(&mut self) {
        (self.changes, self.full, self.permit) = (None, None, None);
    }

    /// Opens a watch on the pods, unless there is one or there are too many, or the last one has just failed.
    pub(super) fn listen(&mut self, shared: &Shared) {
        if self.changes.is_some() || std::mem::take(&mut self.broken) {
            return;
        }
        let Some((listing, _)) = &self.seen else { return };
        let permit = self.permit.take();
        self.full = None;
        match listing.listen(|| permit.or_else(|| Arc::clone(&shared.watches).try_acquire_owned().ok())) {
            Listening::To(changes) => self.changes = Some(changes),
            Listening::Full => self.full = Some(Arc::clone(&shared.watches)),
            Listening::TooLate => {}
        }
    }
}

/// The pods that a policy selects.
pub(super) fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), metadata_only: false }
}
