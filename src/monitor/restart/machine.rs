//! One restart under way, as this process knows it: its plan, its pods and owners as last seen, and what became of its
//! deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Now;
use super::attempts::Attempts;
use super::canary::CanarySight;
use super::pace::Pace;
use super::plan::{Plan, Skipped};
use super::progress::{Advance, Hindrance, situation};
use super::seen::Seen;
use super::standing::{Move, OwnerQuery, OwnerStates, Sight, Standing};
use super::wave::{Reply, Wave};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::{Owner, Pod};
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::report::{Progress, Situation};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, CanaryState, Entry, Outcome, Restart};

/// The write about the last wave waits for this long, or it would compete with the deletions of other restarts: 50
/// restarts at once, which share an edit, delete their last pod in 1.3 times the time of the floor in BENCHMARKS.md
/// instead of 1.6.
const WRITE_DELAY: Duration = Duration::from_secs(1);

/// The minimum wait for a time of the API server, whose times are whole seconds.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// What identifies a restart in the status. Two processes may begin restarts in the same second and by the same list, of
/// which one is a revert.
#[derive(PartialEq)]
struct Id {
    started_at: ServerTime,
    observed_at: ServerTime,
    since: ServerTime,
    version: Option<ResourceVersion>,
    is_revert: bool,
}

impl Id {
    fn of(restart: &Restart, begun: &Begun) -> Self {
        let Restart { observed_at, since, pods_resource_version, revert, .. } = restart;
        let (version, is_revert) = (pods_resource_version.clone(), *revert);
        Self { started_at: begun.started_at, observed_at: *observed_at, since: *since, version, is_revert }
    }
}

pub(crate) struct Machine {
    id: Id,
    plan: Plan,
    policy: Policy,
    /// The operator's own pod, which is never deleted.
    own_pod: Option<Uid>,
    pods: Seen,
    /// The API server's time of the last list, or until when the watch was read. A pass evaluates the pods at this time,
    /// because nothing later was shown.
    seen_at: ServerTime,
    pub(crate) pace: Pace,
    owners: OwnerStates,
    /// The other ConfigMonitors that select pods of the last list.
    others: Vec<Arc<str>>,
    attempts: Attempts,
    canary: Option<Canary>,
    /// The new pods that were seen ready while the canary bakes.
    seen_ready: BTreeSet<Uid>,
    /// A new pod that was seen to fail while the canary was unproven. Its owner may have deleted it since.
    seen_failed: Option<Arc<Pod>>,
    deleted: usize,
    /// An earlier process may have deleted pods that are not in `deleted`.
    is_resumed: bool,
    /// When the content was first read. `None` after the first deletion.
    waits_since: Option<ServerTime>,
    /// When the status must say what the last wave deleted, and when the next pass is due. `None` once it does.
    unwritten: Option<(Instant, Instant)>,
    /// How many pods were ready when an eviction was refused. Another pass is worth making when more are ready.
    blocked_at: Option<usize>,
    advance: Advance,
    /// The restart was reported as stalled.
    is_stalled: bool,
}

impl Machine {
    pub(crate) fn new(policy: &Policy, plan: Plan, restart: &Restart, begun: &Begun, own_pod: Option<Uid>) -> Self {
        Self {
            id: Id::of(restart, begun),
            plan,
            policy: policy.clone(),
            own_pod,
            pods: Seen::default(),
            seen_at: ServerTime::from_second(0),
            pace: Pace::default(),
            owners: OwnerStates::new(),
            others: Vec::new(),
            attempts: Attempts::default(),
            canary: begun.canary.clone(),
            seen_ready: BTreeSet::new(),
            seen_failed: None,
            deleted: begun.deleted,
            is_resumed: false,
            waits_since: (begun.deleted == 0).then_some(restart.observed_at),
            unwritten: None,
            blocked_at: None,
            advance: Advance::of(begun),
            is_stalled: false,
        }
    }

    /// Takes over a restart of an earlier keeper, which may have deleted pods without writing that to the status.
    pub(crate) fn resume(&mut self) {
        self.is_resumed = true;
        self.waits_since = None;
    }

    pub(crate) fn is_of(&self, restart: &Restart, begun: &Begun) -> bool {
        self.id == Id::of(restart, begun)
    }

    pub(crate) fn started_at(&self) -> ServerTime {
        self.id.started_at
    }

    /// Returns whether this is the restart of this entry of the history, which other content has ended.
    pub(crate) fn is_superseded_in(&self, entry: &Entry) -> bool {
        entry.result == Outcome::Superseded && entry.started_at == self.id.started_at
    }

    /// How many pods this restart has deleted.
    pub(crate) fn deleted(&self) -> usize {
        self.deleted
    }

    /// How many pods are selected.
    pub(crate) fn selected(&self) -> usize {
        self.pods.len()
    }

    /// Takes over the state of the canary from the status. Returns whether the spec has been edited: a watch has the
    /// earlier selector, and the edit waits for the next list.
    pub(crate) fn update(&mut self, policy: &Policy, begun: &Begun) -> bool {
        self.canary.clone_from(&begun.canary);
        if self.policy == *policy {
            return false;
        }
        self.policy = policy.clone();
        self.pace.pause = None;
        true
    }

    /// Takes the pods of a list that was made at this time and took so long.
    pub(crate) fn listed(&mut self, pods: &[Arc<Pod>], at: ServerTime, took: Duration, now: Instant) {
        self.seen_at = at;
        self.pods.list(pods, self.dated(at));
        pods.iter().for_each(|pod| self.record_sight(pod));
        self.count_unanswered();
        self.attempts.retain(|uid| self.pods.contains_key(uid));
        self.plan.select(&self.policy, &self.pods);
        self.pace.put_off(took, now);
    }

    /// Takes the names of the ConfigMonitors that select pods of the last list.
    pub(crate) fn also_selected_by(&mut self, others: Vec<Arc<str>>) {
        self.others = others;
    }

    /// Takes a pod from the watch.
    pub(crate) fn applied(&mut self, pod: Arc<Pod>, now: ServerTime) {
        self.record_sight(&pod);
        let uid = pod.uid.clone();
        self.pods.apply(pod, self.dated(now));
        // The owner was read when the watch had not shown this pod yet.
        self.owners.values_mut().for_each(|state| state.others.retain(|other| other.uid != uid));
    }

    /// Takes from the watch that a pod is gone.
    pub(crate) fn gone(&mut self, uid: &Uid) {
        self.pods.remove(uid);
    }

    /// Takes the pods as the watch has shown them for their state at this time. The watch must have been read to its end,
    /// and continue from the last list.
    pub(crate) fn trust_watch(&mut self, now: ServerTime) {
        self.seen_at = now;
        self.count_unanswered();
    }

    /// Returns this time if it matters since when pods are ready: keepers share pods without a date of their own. Not
    /// once the canary has failed, because a list comes only once a minute then.
    fn dated(&self, now: ServerTime) -> Option<ServerTime> {
        let has_failed = |canary: &Canary| matches!(canary.state, CanaryState::Failed { .. });
        let matters = !self.policy.min_ready.is_zero() || self.policy.canary.is_some();
        Some(now).filter(|_| matters && !self.canary.as_ref().is_some_and(has_failed))
    }

    /// While the canary is unproven: records that a new pod is ready, or has failed.
    fn record_sight(&mut self, pod: &Arc<Pod>) {
        if !self.is_proving() || !self.plan.is_successor(pod) {
            return;
        }
        if pod.ready_since.is_some() {
            self.seen_ready.insert(pod.uid.clone());
        }
        // One from before the restart must not hide another.
        if pod.crash.is_some() && self.seen_failed.as_ref().is_none_or(|known| known.created <= pod.created) {
            self.seen_failed = Some(Arc::clone(pod));
        }
    }

    fn is_proving(&self) -> bool {
        self.canary.as_ref().is_some_and(|canary| canary.state.is_proving())
    }

    /// Counts unanswered deletions whose pods are gone or terminating.
    fn count_unanswered(&mut self) {
        let is_left = |uid: &Uid| self.pods.get(uid).is_some_and(|pod| pod.gone_by.is_none());
        self.deleted += self.attempts.done_without_answer(is_left);
    }

    /// Returns how the restart stands by the pods as they were last seen.
    pub(crate) fn standing(&self) -> Standing<'_> {
        self.standing_at(self.seen_at)
    }

    /// Returns how the restart stands if the pods are at this time as they were last seen.
    pub(crate) fn standing_at(&self, now: ServerTime) -> Standing<'_> {
        let (plan, policy, pods, owners) = (&self.plan, &self.policy, &*self.pods, &self.owners);
        let (undeleted, own_pod) = (&self.attempts.undeleted, self.own_pod.as_ref());
        let is_overdue = now >= self.deadline();
        let canary = self.canary.as_ref().filter(|_| self.is_proving());
        let (since, seen_ready, failed) = (self.id.started_at, &self.seen_ready, self.seen_failed.as_deref());
        let canary = canary.map(|canary| CanarySight { canary, since, seen_ready, failed });
        Sight { plan, policy, pods, owners, undeleted, own_pod, canary, is_overdue, now }.standing()
    }

    /// A canary that bakes does not lack progress; one that never becomes available has not failed, but exceeds the
    /// deadline.
    fn deadline(&self) -> ServerTime {
        let bake = self.policy.canary.filter(|_| self.is_proving()).map_or(Duration::ZERO, |canary| canary.bake);
        self.advance.deadline(&self.policy, &self.pods).plus(bake)
    }

    /// Returns whether a pass with this move may bring the restart nearer to its end.
    pub(crate) fn is_worth_a_pass(&self, next: &Move) -> bool {
        match (next, self.blocked_at) {
            (Move::Done | Move::Canary(_), _) => true,
            (Move::Remove(_), Some(before)) => self.ready() > before,
            (Move::Remove(uids), None) => uids.iter().any(|uid| !self.attempts.has_failed(uid)),
            (Move::Wait(_), _) => false,
        }
    }

    /// Returns whether the last wave met a PodDisruptionBudget, or another refusal that others may lift.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_at.is_some()
    }

    /// Begins a pass. Deletions that an earlier process may have made count as deletions of this restart.
    pub(crate) fn begin_pass(&mut self, begun: &Begun, now: ServerTime) {
        self.advance.take_up(now);
        if std::mem::take(&mut self.is_resumed) && self.selects_as(begun) {
            self.deleted = self.deleted.max(begun.gone(self.standing_at(now).waiting));
        }
        if self.is_stalled {
            self.plan.lower_expectations(&self.pods);
        }
        self.blocked_at = None;
    }

    /// Returns whether the next move depends on the owners' desired replicas.
    pub(crate) fn needs_owners(&self) -> bool {
        self.policy.max_unavailable.is_some() || self.is_proving() || self.standing().remaining == 0
    }

    /// Returns the owners to read. Without a budget, only those whose pods are replaced.
    pub(crate) fn owners_to_read(&self) -> Vec<OwnerQuery> {
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
            Some(OwnerQuery { owner: Arc::clone(owner), resource: owner.workload()?, selected })
        });
        asked.collect()
    }

    /// Takes the states of owners, which took so long to read.
    pub(crate) fn owners_read(&mut self, mut owners: OwnerStates, took: Duration, now: Instant) {
        for state in owners.values_mut() {
            state.others.retain(|pod| !self.pods.contains_key(&pod.uid));
        }
        if owners.values().any(|state| !state.others.is_empty()) {
            // Finding these pods took a list.
            self.pace.put_off(took, now);
        }
        self.owners = owners;
    }

    /// Returns the owners whose pods the restart counts.
    pub(crate) fn owners(&self) -> BTreeSet<Uid> {
        self.plan.owners(&self.pods).into_iter().map(|owner| owner.uid.clone()).collect()
    }

    /// Returns the controllers of the pods that are replaced, once their owners have been read: the Deployment, for a
    /// ReplicaSet that has one.
    pub(crate) fn controllers(&self) -> BTreeSet<Arc<Owner>> {
        let concerned = self.owners.iter().filter(|(owner, _)| self.plan.concerns(owner));
        concerned.map(|(owner, state)| Arc::clone(state.controller.as_ref().unwrap_or(owner))).collect()
    }

    pub(crate) fn begin_wave(&mut self, uids: &[Uid]) -> Wave {
        let pods = uids.iter().filter_map(|uid| self.pods.get(uid)).cloned().collect();
        self.attempts.begin_wave(&self.policy, pods)
    }

    /// Returns, at the first deletion only, when the content was first read.
    pub(crate) fn first_deletion(&mut self) -> Option<ServerTime> {
        self.waits_since.take()
    }

    /// Takes the answer for a pod of the wave. Returns whether a list must show what is true.
    pub(crate) fn answered(&mut self, pod: &Pod, answer: Reply) -> bool {
        if let Reply::Deleted { by, here } = answer {
            // A deletion that another keeper has in flight may still fail.
            self.deleted += usize::from(here);
            self.pods.record_deletion(&pod.uid, by);
        }
        self.attempts.answered(pod, answer)
    }

    /// Returns whether the wave under way may send another deletion.
    pub(crate) fn wave_goes_on(&self) -> bool {
        self.attempts.wave_goes_on()
    }

    /// Ends a wave, and returns its refusal.
    pub(crate) fn end_wave(&mut self) -> Option<Error> {
        let refusal = self.attempts.end_wave();
        let is_blocked =
            refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Blocked(_) | Cause::Refused(_)));
        self.blocked_at = is_blocked.then(|| self.ready());
        refusal
    }

    /// Returns the existing pods whose last deletion failed.
    pub(crate) fn undeleted(&self) -> Vec<&Pod> {
        let failed = self.pods.values().filter(|pod| self.attempts.is_left(&pod.uid) && pod.gone_by.is_none());
        failed.map(|pod| &**pod).collect()
    }

    fn ready(&self) -> usize {
        self.pods.values().filter(|pod| pod.ready_since.is_some() && pod.gone_by.is_none()).count()
    }

    pub(crate) fn record_pass(&mut self, deleted: usize, remaining: usize, lacking: usize, now: ServerTime) {
        if self.advance.note(deleted, remaining, lacking, now) {
            self.pace.backoff.reset();
        }
    }

    /// Returns whether the progress deadline has passed. From here on the restart counts as stalled or not.
    pub(crate) fn check_deadline(&mut self, now: ServerTime) -> bool {
        self.is_stalled = now >= self.deadline();
        self.is_stalled
    }

    /// Returns what is written and reported after a pass, and when the next one is due.
    pub(crate) fn end_pass<'a>(
        &mut self,
        begun: Begun,
        next: &Move,
        hindrance: Option<Hindrance<'a>>,
        is_watched: bool,
        now: Now,
    ) -> (Begun, Situation<'a>, Instant) {
        let (begun, progress) = self.to_write(begun);
        let progress = progress.not_deleted(self.undeleted().into_iter());
        let refusal = hindrance.map(|hindrance| &hindrance.error.cause);
        let mut delay = self.pace.after_pass(refusal, is_watched, now.timer);
        let wake_at = match next {
            Move::Wait(until) => *until,
            Move::Remove(_) | Move::Canary(_) | Move::Done => None,
        };
        let deadline = (!self.is_stalled).then(|| self.deadline());
        if let Some(at) = wake_at.into_iter().chain(deadline).min() {
            delay = delay.min(at.since(now.server).max(MIN_DELAY));
        }
        let due = (now.timer + delay).max(self.pace.pause.unwrap_or(now.timer));
        (begun, situation(&self.policy, progress, hindrance, self.is_stalled), due)
    }

    /// Postpones the write about the last wave. Returns when the write or the next pass is due.
    pub(crate) fn write_later(&mut self, next_pass: Instant, now: Instant) -> Instant {
        let write_at = now + WRITE_DELAY;
        self.unwritten = Some((write_at, next_pass));
        next_pass.min(write_at)
    }

    /// Returns when the status must say what the last wave deleted, unless it does.
    pub(crate) fn write_at(&self) -> Option<Instant> {
        self.unwritten.map(|(write_at, _)| write_at)
    }

    /// Records that the status says what the last wave deleted. Returns when the next pass is due.
    pub(crate) fn written(&mut self) -> Option<Instant> {
        self.unwritten.take().map(|(_, due)| due)
    }

    /// Returns what to write about the restart by the pods as last seen.
    pub(crate) fn to_write(&self, begun: Begun) -> (Begun, Progress) {
        let standing = self.standing();
        let progress = Progress::of(&begun, &standing).also_selected_by(&self.others);
        let begun = Begun { deleted: self.deleted, ..begun };
        (self.advance.record(begun, standing.remaining, standing.waiting, &standing.unavailable), progress)
    }

    /// Returns whether the pods are selected as when the restart began.
    pub(crate) fn selects_as(&self, begun: &Begun) -> bool {
        begun.pod_selector == self.policy.selector.to_query()
    }

    /// Returns the restart as it ends, and the pods that it skipped: those that were exempt when it began, or have
    /// become so since. After an edit of the selector nobody knows about the pods that are not selected any more, so
    /// only the deleted ones count.
    pub(crate) fn result(&self, begun: Begun) -> (Begun, Vec<Skipped>) {
        let left = self.plan.left_alone(&self.policy, &self.pods, self.own_pod.as_ref());
        let planned = if self.selects_as(&begun) { begun.pods } else { self.deleted };
        let pods = planned.saturating_sub(left.len()).max(self.deleted);
        let skipped = self.plan.skipped.iter().cloned().chain(left).collect();
        (Begun { pods, deleted: self.deleted, ..begun }, skipped)
    }

    /// Returns whether all new pods have been ready for the time of a canary, and some have replaced others than the failed
    /// canaries: if all pods were canaries, none that has failed may be left.
    pub(crate) fn is_proven_by_others(&self, begun: &Begun) -> bool {
        let bake = self.policy.canary.map_or(Duration::ZERO, |canary| canary.bake);
        let has_baked = |since| bake.is_zero() || self.seen_at.since(since) > bake;
        let mut new = self.pods.values().filter(|pod| pod.is_present() && self.plan.is_successor(pod));
        let had_others = begun.canary.as_ref().is_some_and(|canary| canary.pods < begun.pods);
        new.all(|pod| pod.ready_from().is_some_and(has_baked) && (had_others || pod.crash.is_none()))
    }

    /// The time until the restart goes on does not count as a lack of progress.
    pub(crate) fn hold(&mut self) {
        self.unwritten = None;
        self.advance.hold();
    }
}
