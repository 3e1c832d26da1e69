//! A restart under way as this process knows it: the plan, what was last seen of its pods, and what has become of their deletions.
//!
//! It deletes nothing and decides nothing: see `pass.rs` and `monitor::rollout`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout_at};

use super::owners::Asked;
use super::pod_watch::PodWatch;
use crate::controller::limits::Owners;
use crate::controller::shared::{InPods, Listing, Shared, Told};
use crate::controller::timer_now;
use crate::kube::backoff::Backoff;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::objects::{Owner, Pod};
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::advance::{Advance, Ended, Found, Step};
use crate::monitor::rollout::{Move, Plan, Sight, Standing, Undeleted, Wanted};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Restart};

/// While a watch tells of pods, so often a pass is made for what it cannot tell: what the owners want.
const OWNERS_EVERY: Duration = Duration::from_secs(10);

/// So long after a pod has become available its PodDisruptionBudget knows of it: another controller sees to that.
const BUDGET_LAG: Duration = Duration::from_millis(500);

/// What comes within this time is judged together, if a judgement takes long: each looks at all pods, and each of many pods makes several events.
const TOGETHER: Duration = Duration::from_millis(50);

/// After a judgement comes a pause of so many times as long as it took.
const JUDGEMENT_PAUSE: u32 = 20;

/// After a list comes a pause of so many times as long as it took, so that at most a tenth of the time goes into lists, however many pods there are,
const PAUSE: u32 = 9;
/// but for this: a short list costs little, while a pod that is ready waits for the next one to go.
const SPARED: Duration = Duration::from_millis(300);
/// It is so many times as long at the least.
const LEAST_PAUSE: u32 = 3;
/// No pause is longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The API server's times are whole seconds: a pass that waits for one of them waits for this long at least.
const AT_LEAST: Duration = Duration::from_secs(1);

/// A restart that has begun, as far as this process knows it.
pub(crate) struct Rollout {
    /// When it began, and the list that says which pods are old: the same in the status means the same restart.
    id: (ServerTime, Option<ResourceVersion>),
    plan: Plan,
    policy: Policy,
    /// The operator's own pod.
    own_pod: Option<Uid>,
    /// The selected pods as last heard of.
    pods: BTreeMap<Uid, Arc<Pod>>,
    /// When they were last listed. A pass judges by this time: to a list of before, nothing has come of the time since.
    seen_at: ServerTime,
    /// That list, for a watch that goes on from there, and for others who may want it, too.
    seen: Option<(Arc<Listing>, InPods)>,
    /// When it was begun.
    listed_at: Instant,
    /// No other list is made before this time, nor before this one, which the API server has asked for.
    pause: Option<Instant>,
    busy_until: Option<Instant>,
    wanted: Wanted,
    /// What has become of the pods that the last wave was to delete, and of those that were refused before.
    undeleted: BTreeMap<Uid, Undeleted>,
    /// Pods that the API server has said to be gone, or to be others by now, as they were then. That it was so the next list shows.
    said_gone: BTreeMap<Uid, ResourceVersion>,
    /// The last wave was refused something: the next one begins with one pod.
    is_hindered: bool,
    /// How many pods were ready when an eviction was refused. It is worth a pass when more are.
    blocked_at: Option<usize>,
    watch: PodWatch,
    advance: Advance,
    /// It was reported as stalled.
    is_stalled: bool,
    backoff: Backoff,
    /// What has gone wrong with the pods and with their owners.
    faults: Faults,
    /// What has gone wrong with the watch.
    watch_faults: Faults,
}

impl Rollout {
    pub(crate) fn new(
        policy: &Policy,
        plan: Plan,
        restart: &Restart,
        begun: &Begun,
        own_pod: Option<Uid>,
    ) -> Box<Self> {
        Box::new(Self {
            id: id_of(restart, begun),
            plan,
            policy: policy.clone(),
            own_pod,
            pods: BTreeMap::new(),
            seen_at: ServerTime::from_second(0),
            seen: None,
            listed_at: timer_now(),
            pause: None,
            busy_until: None,
            wanted: Wanted::new(),
            undeleted: BTreeMap::new(),
            said_gone: BTreeMap::new(),
            is_hindered: false,
            blocked_at: None,
            watch: PodWatch::Closed,
            advance: Advance::of(begun),
            is_stalled: false,
            backoff: Backoff::default(),
            faults: Faults::default(),
            watch_faults: Faults::default(),
        })
    }

    /// Whether it is about this restart.
    pub(crate) fn is_of(&self, restart: &Restart, begun: &Begun) -> bool {
        self.id == id_of(restart, begun)
    }

    /// Waits until the pods are such that another pass is worth it, or until they cannot be watched any more.
    pub(crate) async fn worth_a_pass(&mut self, shared: &Shared) -> Result<(), Error> {
        let mut next = self.standing(shared.client.server_now()).next;
        let mut pause_until = timer_now();
        loop {
            let now = shared.client.server_now();
            let PodWatch::Open(changes) = &mut self.watch else {
                self.watch.room(&shared.limits).await;
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
                let PodWatch::Open(changes) = &mut self.watch else { break };
                heard = timeout_at(pause_until.into(), changes.next(&shared.pods)).await.ok();
            }
            let judged_at = timer_now();
            next = self.standing(shared.client.server_now()).next;
            let now = timer_now();
            pause_until = now + (now.saturating_duration_since(judged_at) * JUDGEMENT_PAUSE).min(TOGETHER);
            let is_worth_it = match (&next, self.blocked_at) {
                // To see that it is over takes no list.
                (Move::Done, _) => return Ok(()),
                (Move::Remove(_), Some(before)) if self.ready() > before => {
                    sleep(BUDGET_LAG).await;
                    true
                }
                (Move::Remove(uids), None) => uids.iter().any(|uid| !self.undeleted.contains_key(uid)),
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
                self.watch = PodWatch::Broken;
                return ControlFlow::Break(why.map_or(Ok(()), Err));
            }
        }
        ControlFlow::Continue(())
    }

    /// From now on it goes by this policy.
    pub(crate) fn follow(&mut self, policy: &Policy) {
        if self.policy != *policy {
            // The watch is on the selector of before, and somebody waits for what the edit brings.
            self.watch.close();
            self.policy = policy.clone();
            self.pause = None;
        }
    }

    /// Before this time nothing is asked for, whatever happens: a doorbell that rings all the time is no reason to list all the time.
    pub(crate) fn pause(&self) -> Option<Instant> {
        self.pause.max(self.busy_until).filter(|until| *until > timer_now())
    }

    /// Where it stands.
    pub(crate) fn standing(&self, now: ServerTime) -> Standing<'_> {
        let (pods, wanted, undeleted, own_pod) = (&self.pods, &self.wanted, &self.undeleted, self.own_pod.as_ref());
        let is_overdue = now >= self.deadline();
        self.plan.standing(&self.policy, &Sight { pods, wanted, undeleted, own_pod, is_overdue, now })
    }

    fn deadline(&self) -> ServerTime {
        self.advance.deadline(&self.policy, &self.pods)
    }

    /// When the pods were listed, or the watch was believed.
    pub(crate) fn seen_at(&self) -> ServerTime {
        self.seen_at
    }

    /// When the list of the pods was begun.
    pub(crate) fn listed_at(&self) -> Instant {
        self.listed_at
    }

    /// Whether the watch on the pods, if there is one, shows that no old pod is left and that the owners have what they are known to want. What is
    /// left then is to ask the owners: the watch has told of all pods.
    pub(crate) fn seems_over(&mut self, now: ServerTime) -> bool {
        let is_over = self.watch.is_open() && self.standing(now).next == Move::Done;
        if is_over {
            self.seen_at = now;
        }
        is_over
    }

    /// The owners whose pods it counts.
    pub(crate) fn owners(&self) -> Owners {
        self.plan.owners(&self.pods).into_iter().map(|owner| owner.uid.clone()).collect()
    }

    /// The owners who may be asked what they want, and how many of the pods that each has are selected. None is asked whose pods are not
    /// replaced, unless there is a budget.
    pub(crate) fn owners_to_ask(&self) -> Vec<Asked> {
        let mut selected: BTreeMap<&Owner, usize> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| pod.is_present()) {
            if let Some(owner) = &pod.controller {
                *selected.entry(owner).or_default() += 1;
            }
        }
        let owners = self.plan.owners(&self.pods).into_iter();
        let counts = |owner: &&Arc<Owner>| self.policy.max_unavailable.is_some() || self.plan.concerns(owner);
        let asked = owners.filter(counts).filter_map(|owner| {
            let selected = selected.get(&**owner).copied().unwrap_or(0);
            Some(Asked { owner: Arc::clone(owner), resource: owner.workload()?, selected })
        });
        asked.collect()
    }

    /// Takes in what the owners want. To ask them has taken so long.
    pub(crate) fn hear_owners(&mut self, mut wanted: Wanted, took: Duration) {
        for wish in wanted.values_mut() {
            wish.others.retain(|pod| !self.pods.contains_key(&pod.uid));
        }
        if wanted.values().any(|wish| !wish.others.is_empty()) {
            // To find them has taken a list.
            self.put_off(took);
        }
        self.wanted = wanted;
    }

    /// Takes in a list.
    pub(crate) fn see(&mut self, listing: Arc<Listing>, interest: InPods) {
        (self.seen_at, self.listed_at) = (listing.at, listing.began);
        self.pods = listing.pods.iter().map(|pod| (pod.uid.clone(), Arc::clone(pod))).collect();
        self.said_gone.retain(|uid, _| self.pods.contains_key(uid));
        self.undeleted.retain(|uid, _| self.pods.contains_key(uid));
        self.plan.select(&self.policy, &self.pods);
        self.put_off(listing.took);
        self.seen = Some((listing, interest));
    }

    /// Puts off the next list by a pause in proportion to one that took so long.
    fn put_off(&mut self, took: Duration) {
        self.pause = Some(timer_now() + pause_after(took));
    }

    /// A pass begins.
    pub(crate) fn begin_pass(&mut self, now: ServerTime) {
        self.advance.take_up(now);
        if self.is_stalled {
            self.plan.is_overdue(&self.pods);
        }
        self.blocked_at = None;
    }

    /// A wave begins, that is to delete these pods. Until each is deleted it has not been tried, or was refused before.
    pub(crate) fn begin_wave(&mut self, uids: &[Uid]) -> Vec<Arc<Pod>> {
        self.undeleted.retain(|_, undeleted| *undeleted == Undeleted::Refused);
        let pods: Vec<Arc<Pod>> = uids.iter().filter_map(|uid| self.pods.get(uid)).cloned().collect();
        for pod in &pods {
            self.undeleted.entry(pod.uid.clone()).or_insert(Undeleted::Untried);
        }
        pods
    }

    /// Whether the last wave was refused something.
    pub(crate) fn is_hindered(&self) -> bool {
        self.is_hindered
    }

    /// A pod is on its way out, and gone by this time.
    pub(crate) fn deleted(&mut self, pod: &Uid, by: ServerTime) {
        if let Some(pod) = self.pods.get_mut(pod) {
            Arc::make_mut(pod).gone_by.get_or_insert(by);
        }
        self.undeleted.remove(pod);
        self.said_gone.remove(pod);
    }

    /// The API server has said that this pod is gone, or that it has another version. Whether that may be so: it has not said the same before, and the
    /// list after that has not shown otherwise.
    pub(crate) fn may_be_gone(&mut self, pod: &Pod, is_about_version: bool) -> bool {
        let before = self.said_gone.insert(pod.uid.clone(), pod.version.clone());
        let may_be = before.is_none_or(|version| is_about_version && version != pod.version);
        if may_be && self.undeleted.get(&pod.uid) != Some(&Undeleted::Refused) {
            self.undeleted.remove(&pod.uid);
        }
        may_be
    }

    /// A pod was not deleted. What has no answer may still be done: no other pod goes before it.
    pub(crate) fn not_deleted(&mut self, pod: &Uid, why: &Cause) {
        let undeleted = if why.is_refusal() { Undeleted::Refused } else { Undeleted::Unanswered };
        self.undeleted.insert(pod.clone(), undeleted);
    }

    /// A wave has ended, after this refusal if there was one. Whether to tell of that.
    pub(crate) fn end_wave(&mut self, refusal: Option<&Cause>, is_in_turn: bool) -> bool {
        self.is_hindered = refusal.is_some_and(|cause| !matches!(cause, Cause::Blocked(_)));
        let is_blocked = refusal.is_some_and(|cause| matches!(cause, Cause::Blocked(_) | Cause::Refused(_)));
        self.blocked_at = is_blocked.then(|| self.ready());
        refusal.is_some_and(|cause| !is_in_turn && self.fails(cause))
    }

    /// Something is wrong with the pods or their owners. Whether to tell of that.
    pub(crate) fn fails(&mut self, cause: &Cause) -> bool {
        self.faults.note(cause, timer_now()).1
    }

    /// Nothing is wrong with them any more. Whether to tell of that.
    pub(crate) fn works(&mut self) -> bool {
        self.faults.over()
    }

    /// The watch has failed. Whether to tell of that.
    pub(crate) fn is_not_watched(&mut self, cause: &Cause) -> bool {
        self.watch_faults.note(cause, timer_now()).1
    }

    /// The pods that were not deleted when it was last tried, and are still there.
    pub(crate) fn undeleted(&self) -> Vec<&Pod> {
        let there = self.undeleted.keys().filter_map(|uid| self.pods.get(uid)).map(|pod| &**pod);
        there.filter(|pod| pod.gone_by.is_none()).collect()
    }

    /// How many of the selected pods are ready.
    fn ready(&self) -> usize {
        self.pods.values().filter(|pod| pod.ready_since.is_some() && pod.gone_by.is_none()).count()
    }

    /// Takes note of what a pass has found and done.
    pub(crate) fn note(&mut self, step: Step, begun: &Begun, now: ServerTime) {
        if self.advance.note(step, begun, now) {
            self.backoff.reset();
        }
    }

    /// A pass ends: what is said of it, and when the next one is due.
    pub(crate) fn end_pass<'a>(
        &mut self,
        begun: Begun,
        found: Found<'a>,
        refusal: Option<&Cause>,
        shared: &Shared,
    ) -> (Ended<'a>, Instant) {
        let ended = self.advance.end(&self.policy, begun, self.deadline(), found);
        self.is_stalled = ended.is_stalled;
        match &self.seen {
            Some((listing, _)) if !ended.is_stalled => self.watch.open(listing, &shared.limits),
            _ => self.watch.close(),
        }
        let mut delay = match refusal {
            None if self.watch.is_open() => OWNERS_EVERY,
            None => self.backoff.after_failure(timer_now()),
            Some(cause) => cause.delay(self.backoff.after_failure(timer_now())),
        };
        self.busy_until = matches!(refusal, Some(Cause::Busy(_))).then(|| timer_now() + delay);
        if let Some(until) = ended.until {
            delay = delay.min(until.since(shared.client.server_now()).max(AT_LEAST));
        }
        let again = timer_now() + delay;
        (ended, self.pause.map_or(again, |pause| again.max(pause)))
    }

    /// Nothing is done about it for now. That does not count as standing still.
    pub(crate) fn hold(&mut self) {
        self.watch.close();
        self.seen = None;
        self.advance.hold();
    }
}

/// The pause after a list that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * PAUSE).saturating_sub(SPARED).max(took * LEAST_PAUSE).min(LONGEST_PAUSE)
}

fn id_of(restart: &Restart, begun: &Begun) -> (ServerTime, Option<ResourceVersion>) {
    (begun.started_at, restart.pods_resource_version.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_short_list_the_pause_is_short_and_after_a_long_one_many_times_as_long() {
        let pause = |took| pause_after(Duration::from_millis(took)).as_millis();
        assert_eq!([0, 10, 50, 100, 1_000, 60_000].map(pause), [0, 30, 150, 600, 8_700, 60_000]);
    }
}
