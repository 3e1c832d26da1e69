//! A restart under way as this process knows it: the plan, what was last seen of its pods, and when another pass is worth it.
//!
//! It deletes nothing: see `pass.rs`. Which pods may go is decided in `monitor::rollout`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout_at};

use super::attempts::Attempts;
use super::owners::Asked;
use super::pace::Pace;
use super::pod_watch::PodWatch;
use crate::controller::clock::timer_now;
use crate::controller::limits::Owners;
use crate::controller::shared::{InPods, Listing, PodEvent, Shared};
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::objects::{Owner, Pod};
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::advance::{Advance, Ended, Found};
use crate::monitor::canary::CanarySight;
use crate::monitor::report::Progress;
use crate::monitor::rollout::{Move, OwnerStates, Plan, Sight, Skipped, Standing};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, Restart};

/// So long after a pod has become available its PodDisruptionBudget knows of it: another controller sees to that.
const BUDGET_LAG: Duration = Duration::from_millis(500);

/// What comes within this time is judged together, if a judgement takes long: each looks at all pods, and each of many pods makes several events.
const TOGETHER: Duration = Duration::from_millis(50);

/// After a judgement comes a pause of so many times as long as it took.
const JUDGEMENT_PAUSE: u32 = 20;

/// What a wave has deleted is in the status after this time, unless the restart is over by then, which spares a write.
const WRITTEN_AFTER: Duration = Duration::from_secs(1);

/// While canaries prove themselves, passes are so far apart.
const WHILE_BAKING: Duration = Duration::from_secs(60);

/// The API server's times are whole seconds: a pass that waits for one of them waits for this long at least.
const AT_LEAST: Duration = Duration::from_secs(1);

/// A restart that has begun, as far as this process knows it.
pub(super) struct Rollout {
    /// When it began, and the list that says which pods are old: the same in the status means the same restart.
    id: (ServerTime, Option<ResourceVersion>),
    plan: Plan,
    policy: Policy,
    /// The selected pods as last heard of.
    pods: BTreeMap<Uid, Arc<Pod>>,
    /// The API server's time of the last list. A pass judges by this time, because the list shows nothing later.
    seen_at: ServerTime,
    /// That list, for a watch that goes on from there, and for others who may want it, too.
    seen: Option<(Arc<Listing>, InPods)>,
    /// When it was begun.
    listed_at: Instant,
    pace: Pace,
    owners: OwnerStates,
    attempts: Attempts,
    /// The pods that go first, if some do,
    canary: Option<Canary>,
    /// and until the others may: the new pods that were seen to be ready.
    seen_ready: BTreeSet<Uid>,
    /// Why a deletion of the last wave was refused, if one was. What says the same of another pod is not new.
    refusal: Option<Error>,
    /// How many pods this restart has deleted,
    deleted: usize,
    /// not counting what a process before this one has deleted without writing that down.
    is_resumed: bool,
    /// When its content was first read, until it deletes the first pod.
    waits_since: Option<ServerTime>,
    /// How many pods were ready when an eviction was refused. It is worth a pass when more are.
    blocked_at: Option<usize>,
    watch: PodWatch,
    advance: Advance,
    /// When the last waves must be in the status, and when the next pass is due, if they are not in the status yet.
    unwritten: Option<(Instant, Instant)>,
    /// It was reported as stalled.
    is_stalled: bool,
    /// What has gone wrong with the pods and with their owners.
    faults: Faults,
    /// What has gone wrong with the watch.
    watch_faults: Faults,
}

impl Rollout {
    pub(super) fn new(policy: &Policy, plan: Plan, restart: &Restart, begun: &Begun) -> Box<Self> {
        Box::new(Self {
            id: (begun.started_at, restart.pods_resource_version.clone()),
            plan,
            policy: policy.clone(),
            pods: BTreeMap::new(),
            seen_at: ServerTime::from_second(0),
            seen: None,
            listed_at: timer_now(),
            pace: Pace::default(),
            owners: OwnerStates::new(),
            attempts: Attempts::default(),
            canary: begun.canary.clone(),
            seen_ready: BTreeSet::new(),
            refusal: None,
            deleted: begun.deleted,
            is_resumed: false,
            waits_since: (begun.deleted == 0).then_some(restart.observed_at),
            blocked_at: None,
            watch: PodWatch::Closed,
            advance: Advance::of(begun),
            unwritten: None,
            is_stalled: false,
            faults: Faults::default(),
            watch_faults: Faults::default(),
        })
    }

    /// A keeper before this one has begun it, and may have deleted pods without writing that down.
    pub(super) fn resume(&mut self) {
        self.is_resumed = true;
        self.waits_since = None;
    }

    /// Whether it is about this restart.
    pub(super) fn is_of(&self, version: Option<ResourceVersion>, begun: &Begun) -> bool {
        self.id == (begun.started_at, version)
    }

    /// Waits until the pods are such that another pass is worth it, or until they cannot be watched any more.
    pub(super) async fn worth_a_pass(&mut self, shared: &Shared) -> Result<(), Error> {
        let mut next = self.standing(shared, shared.client.server_now()).next;
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
            next = self.standing(shared, shared.client.server_now()).next;
            let now = timer_now();
            pause_until = now + (now.saturating_duration_since(judged_at) * JUDGEMENT_PAUSE).min(TOGETHER);
            if is_seen(&next) {
                return Ok(());
            }
            if self.is_worth_a_pass(&next) {
                if self.blocked_at.is_some() {
                    sleep(BUDGET_LAG).await;
                }
                if let Some(pause) = self.pace.pause() {
                    sleep_until(pause.into()).await;
                }
                return Ok(());
            }
        }
    }

    /// Whether a pass that is to do this may bring the restart nearer to its end.
    fn is_worth_a_pass(&self, next: &Move) -> bool {
        match (next, self.blocked_at) {
            (Move::Done | Move::Canary(_), _) => true,
            (Move::Remove(_), Some(before)) => self.ready() > before,
            (Move::Remove(uids), None) => uids.iter().any(|uid| !self.attempts.has_failed(uid)),
            (Move::Wait(_), _) => false,
        }
    }

    /// Takes in what the watch tells. Once it has missed something, the list of the next pass tells.
    fn hear(&mut self, told: PodEvent) -> ControlFlow<Result<(), Error>> {
        match told {
            PodEvent::Applied(pod) => {
                self.note_ready(&pod);
                self.pods.insert(pod.uid.clone(), pod);
            }
            PodEvent::Deleted(uid) => drop(self.pods.remove(&uid)),
            PodEvent::Missed(why) => {
                self.watch = PodWatch::Broken;
                return ControlFlow::Break(why.map_or(Ok(()), Err));
            }
        }
        ControlFlow::Continue(())
    }

    /// If the others have to wait for it: that this pod, if it is a new one, is ready.
    fn note_ready(&mut self, pod: &Pod) {
        if self.is_proving() && pod.ready_since.is_some() && !self.plan.replaces(&pod.uid) {
            self.seen_ready.insert(pod.uid.clone());
        }
    }

    /// Whether the pods that go first have yet to prove themselves.
    pub(super) fn is_proving(&self) -> bool {
        self.canary.as_ref().is_some_and(|canary| canary.state.is_proving())
    }

    /// From now on it goes by this policy, and by what the status says about the pods that go first.
    pub(super) fn follow(&mut self, policy: &Policy, begun: &Begun) {
        self.canary.clone_from(&begun.canary);
        if self.policy != *policy {
            // The watch is on the selector of before, and somebody waits for what the edit brings.
            self.watch.close();
            self.policy = policy.clone();
            self.pace.hurry();
        }
    }

    /// Before this time there is no pass, if it is still to come.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.pace.not_before()
    }

    /// Where it stands.
    pub(super) fn standing<'a>(&'a self, shared: &'a Shared, now: ServerTime) -> Standing<'a> {
        let (pods, owners, undeleted) = (&self.pods, &self.owners, self.attempts.undeleted());
        let (own_pod, is_overdue) = (shared.own_pod.as_ref(), now >= self.deadline());
        let canary = self.canary.as_ref().filter(|_| self.is_proving());
        let canary = canary.map(|canary| CanarySight { canary, since: self.id.0, seen_ready: &self.seen_ready });
        self.plan.standing(&self.policy, &Sight { pods, owners, undeleted, own_pod, canary, is_overdue, now })
    }

    /// Returns the progress deadline. A canary that bakes does not lack progress; one that never becomes available has not failed, but exceeds the deadline.
    fn deadline(&self) -> ServerTime {
        let bake = self.policy.canary.filter(|_| self.is_proving()).map_or(Duration::ZERO, |canary| canary.bake);
        self.advance.deadline(&self.policy, &self.pods).plus(bake)
    }

    /// When the pods were listed, or the watch was believed.
    pub(super) fn seen_at(&self) -> ServerTime {
        self.seen_at
    }

    /// When the list of the pods was begun.
    pub(super) fn listed_at(&self) -> Instant {
        self.listed_at
    }

    /// Whether the watch on the pods, if there is one, shows all that the next move takes, such as that no old pod is left and that the owners have
    /// what they are known to want.
    pub(super) fn seems_seen(&self, shared: &Shared, now: ServerTime) -> bool {
        self.watch.is_open() && is_seen(&self.standing(shared, now).next)
    }

    /// What the watch has told of the pods is how they are at this time.
    pub(super) fn believe_watch(&mut self, now: ServerTime) {
        self.seen_at = now;
        self.count_unanswered();
    }

    /// Deletions without an answer have taken place if their pods are gone or terminating.
    fn count_unanswered(&mut self) {
        let is_left = |uid: &Uid| self.pods.get(uid).is_some_and(|pod| pod.gone_by.is_none());
        self.deleted += self.attempts.done_without_answer(is_left);
    }

    /// How many pods this restart has deleted.
    pub(super) fn deletions(&self) -> usize {
        self.deleted
    }

    /// How many pods are selected.
    pub(super) fn selected(&self) -> usize {
        self.pods.len()
    }

    /// Whether the selector is the one with which the restart began.
    fn selects_as(&self, begun: &Begun) -> bool {
        begun.pod_selector == self.policy.selector.to_query()
    }

    /// The restart as it ends, and the pods that it has left alone: those that were exempt when it began, or have become so since. If the selector
    /// was edited, nobody knows what has become of the pods that are not selected any more: only those that were deleted count.
    pub(super) fn result(&self, begun: Begun, own_pod: Option<&Uid>) -> (Begun, Vec<Skipped>) {
        let left = self.plan.left_alone(&self.policy, &self.pods, own_pod);
        let planned = if self.selects_as(&begun) { begun.pods } else { self.deleted };
        let pods = planned.saturating_sub(left.len()).max(self.deleted);
        let skipped = self.plan.skipped().iter().cloned().chain(left).collect();
        (Begun { pods, deleted: self.deleted, ..begun }, skipped)
    }

    /// The owners whose pods it counts.
    pub(super) fn owners(&self) -> Owners {
        self.plan.owners(&self.pods).into_iter().map(|owner| owner.uid.clone()).collect()
    }

    /// The owners who may be asked what they want, and how many of the pods that each has are selected. None is asked whose pods are not
    /// replaced, unless there is a budget.
    pub(super) fn owners_to_ask(&self) -> Vec<Asked> {
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
    pub(super) fn see_owners(&mut self, mut owners: OwnerStates, took: Duration) {
        for state in owners.values_mut() {
            state.others.retain(|pod| !self.pods.contains_key(&pod.uid));
        }
        if owners.values().any(|state| !state.others.is_empty()) {
            // To find them has taken a list.
            self.pace.put_off(took);
        }
        self.owners = owners;
    }

    /// Takes in a list.
    pub(super) fn see(&mut self, listing: Arc<Listing>, interest: InPods) {
        (self.seen_at, self.listed_at) = (listing.at, listing.began);
        self.pods = listing.pods.iter().map(|pod| (pod.uid.clone(), Arc::clone(pod))).collect();
        listing.pods.iter().for_each(|pod| self.note_ready(pod));
        self.count_unanswered();
        self.attempts.see(|uid| self.pods.contains_key(uid));
        self.plan.select(&self.policy, &self.pods);
        self.pace.put_off(listing.took);
        self.seen = Some((listing, interest));
    }

    /// A pass begins. What a process before this one may have deleted counts as deleted by this restart.
    pub(super) fn begin_pass(&mut self, begun: &Begun, shared: &Shared) {
        let now = shared.client.server_now();
        self.advance.take_up(now);
        if std::mem::take(&mut self.is_resumed) && self.selects_as(begun) {
            self.deleted = self.deleted.max(begun.gone(self.standing(shared, now).waiting));
        }
        if self.is_stalled {
            self.plan.lower_expectations(&self.pods);
        }
        self.blocked_at = None;
    }

    /// A wave begins, that is to delete these pods.
    pub(super) fn begin_wave(&mut self, uids: &[Uid]) -> Vec<Arc<Pod>> {
        let pods: Vec<Arc<Pod>> = uids.iter().filter_map(|uid| self.pods.get(uid)).cloned().collect();
        self.attempts.begin_wave(pods.iter().map(|pod| &pod.uid));
        pods
    }

    /// What has become of the deletions.
    pub(super) fn attempts(&mut self) -> &mut Attempts {
        &mut self.attempts
    }

    /// At the first deletion: when the content was first read.
    pub(super) fn first_deletion(&mut self) -> Option<ServerTime> {
        self.waits_since.take()
    }

    /// A pod is on its way out, and gone by this time.
    pub(super) fn deleted(&mut self, pod: &Uid, by: ServerTime, here: bool) {
        self.deleted += usize::from(here);
        if let Some(pod) = self.pods.get_mut(pod) {
            Arc::make_mut(pod).gone_by.get_or_insert(by);
        }
        self.attempts.deleted(pod);
    }

    /// A wave has ended, after this refusal if there was one.
    pub(super) fn end_wave(&mut self, refusal: Option<&Error>) {
        let cause = refusal.map(|refusal| &refusal.cause);
        self.attempts.end_wave(cause);
        let is_blocked = cause.is_some_and(|cause| matches!(cause, Cause::Blocked(_) | Cause::Refused(_)));
        self.blocked_at = is_blocked.then(|| self.ready());
        let is_known = refusal.zip(self.refusal.as_ref()).is_some_and(|(refusal, known)| refusal.is_like(known));
        if !is_known {
            self.refusal = refusal.cloned();
        }
    }

    /// Why a deletion of the last wave was refused, in the same words as when it was refused first.
    pub(super) fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    /// Takes note that something is wrong with the pods or their owners. Whether to tell of it.
    pub(super) fn note_fault(&mut self, cause: &Cause) -> bool {
        self.faults.record(cause, timer_now()).1
    }

    /// Takes note that nothing is wrong with them any more. Whether to tell of it.
    pub(super) fn note_success(&mut self) -> bool {
        self.faults.recovered()
    }

    /// Takes note that the watch has failed. Whether to tell of it.
    pub(super) fn note_watch_fault(&mut self, cause: &Cause) -> bool {
        self.watch_faults.record(cause, timer_now()).1
    }

    /// The pods that were not deleted when it was last tried, and are still there.
    pub(super) fn undeleted(&self) -> Vec<&Pod> {
        let failed = self.pods.values().filter(|pod| self.attempts.is_left(&pod.uid) && pod.gone_by.is_none());
        failed.map(|pod| &**pod).collect()
    }

    /// How many of the selected pods are ready.
    fn ready(&self) -> usize {
        self.pods.values().filter(|pod| pod.ready_since.is_some() && pod.gone_by.is_none()).count()
    }

    /// Takes note of what a pass has found and done: so many deleted of so many old pods, when the owners lacked so many.
    pub(super) fn note_pass(&mut self, deleted: usize, remaining: usize, lacking: usize, now: ServerTime) {
        if self.advance.note(deleted, remaining, lacking, now) {
            self.pace.note_progress();
        }
    }

    /// A pass ends: what is said of it, and how soon the next one is due.
    pub(super) fn end_pass<'a>(&mut self, begun: Begun, found: Found<'a>, shared: &Shared) -> (Ended<'a>, Duration) {
        let refusal = found.hindrance.map(|hindrance| &hindrance.error.cause);
        let begun = Begun { deleted: self.deleted, ..begun };
        let ended = self.advance.end(&self.policy, begun, self.deadline(), found);
        self.is_stalled = ended.is_stalled;
        match &self.seen {
            Some((listing, _)) if !ended.is_stalled => self.watch.open(listing, &shared.limits),
            _ => self.watch.close(),
        }
        let mut delay = self.pace.after_pass(refusal, self.watch.is_open());
        let is_baking = self.canary.as_ref().is_some_and(|canary| canary.state.is_baking());
        if is_baking && refusal.is_none() && self.watch.is_open() {
            // The watch tells if one fails.
            delay = delay.max(WHILE_BAKING);
        }
        if let Some(until) = ended.until {
            delay = delay.min(until.since(shared.client.server_now()).max(AT_LEAST));
        }
        (ended, delay)
    }

    /// Puts off the write about a wave. Returns when it is due at the latest.
    pub(super) fn write_later(&mut self, next_pass: Instant) -> Instant {
        let write_at = self.write_at().unwrap_or_else(|| timer_now() + WRITTEN_AFTER);
        self.unwritten = Some((write_at, next_pass));
        write_at.min(next_pass)
    }

    /// What the last waves have deleted is in the status.
    pub(super) fn written(&mut self) {
        self.unwritten = None;
    }

    /// When the last waves must be in the status, if they are not.
    pub(super) fn write_at(&self) -> Option<Instant> {
        self.unwritten.map(|(write_at, _)| write_at)
    }

    /// What there is to write about the last waves, as far as is known now, and when the next pass is due, unless another one is worth it now.
    pub(super) fn to_write(&self, begun: Begun, shared: &Shared) -> (Begun, Progress, Option<Instant>) {
        let next_pass = self.unwritten.map(|(_, next_pass)| next_pass);
        let standing = self.standing(shared, shared.client.server_now());
        let progress = Progress::of(&begun, &standing);
        let begun = Begun { deleted: self.deleted, ..begun };
        let begun = self.advance.record(begun, standing.remaining, standing.waiting);
        (begun, progress, next_pass.filter(|_| !self.is_worth_a_pass(&standing.next)))
    }

    /// When the next pass is made, which is due so long from now.
    pub(super) fn due(&self, delay: Duration) -> Instant {
        let due = timer_now() + delay;
        self.pace.pause().map_or(due, |pause| due.max(pause))
    }

    /// Nothing is done about it for now. That does not count as standing still.
    pub(super) fn hold(&mut self) {
        self.watch.close();
        self.seen = None;
        self.advance.hold();
    }
}

/// Whether a watch shows all that a move takes: nothing is deleted by it. Whether canaries have passed or failed takes a list: a watch may be silent, or so
/// late that it tells of a time before the last list.
fn is_seen(next: &Move) -> bool {
    match next {
        Move::Done => true,
        Move::Canary(state) => state.is_baking(),
        Move::Remove(_) | Move::Wait(_) => false,
    }
}
