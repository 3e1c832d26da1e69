//! A restart under way as this process knows it: the plan, its pods as last seen, and when another pass is worth
//! making.
//!
//! Deletes nothing: see `pass.rs`. `monitor::restart` decides which pods may be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{sleep, sleep_until, timeout_at};

use super::owners::OwnerQuery;
use super::pod_watch::PodWatch;
use crate::controller::clock::timer_now;
use crate::controller::limits::Owners;
use crate::controller::requeue::Requeue;
use crate::controller::shared::{ListInterest, Listing, MAX_LAG, PodEvent, Shared};
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::objects::{Owner, Pod};
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::notice::Notice;
use crate::monitor::report::{Progress, Situation};
use crate::monitor::restart::attempts::Attempts;
use crate::monitor::restart::canary::CanarySight;
use crate::monitor::restart::pace::Pace;
use crate::monitor::restart::plan::{Plan, Skipped};
use crate::monitor::restart::progress::{Advance, Hindrance, situation};
use crate::monitor::restart::seen::Seen;
use crate::monitor::restart::standing::{Move, OwnerStates, Sight, Standing};
use crate::monitor::restart::wave::{Answer, Wave};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, CanaryState, Entry, Outcome, Restart};

/// The time that the disruption controller takes to update a PodDisruptionBudget after a pod has become available.
const BUDGET_LAG: Duration = Duration::from_millis(500);

/// After an evaluation, the watch is only read for this many times as long as that took, but no longer than
/// `BATCH_WINDOW`. Otherwise 50 restarts of the same 1,000 pods evaluate all pods at each event, for twice the CPU.
const EVALUATION_PAUSE: u32 = 20;
const BATCH_WINDOW: Duration = Duration::from_millis(50);

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

pub(super) struct Rollout {
    id: Id,
    plan: Plan,
    policy: Policy,
    pub(super) pods: Seen,
    /// The API server's time of the last list. A pass evaluates the pods at this time, because the list shows nothing
    /// later.
    pub(super) seen_at: ServerTime,
    /// The last list, from which a watch continues, and the interest that shares the list with other keepers.
    listing: Option<(Arc<Listing>, ListInterest)>,
    /// When the last list began.
    pub(super) listed_at: Instant,
    pub(super) pace: Pace,
    owners: OwnerStates,
    /// The Event about the start, until the controllers of the pods have it. `None` also if another process began the
    /// restart.
    pub(super) started: Option<Notice>,
    /// The other ConfigMonitors that select pods of the last list.
    others: Vec<Arc<str>>,
    pub(super) attempts: Attempts,
    canary: Option<Canary>,
    /// The new pods that were seen ready while the canary bakes.
    seen_ready: BTreeSet<Uid>,
    /// A new pod that was seen to fail while the canary was unproven. Its owner may have deleted it since.
    seen_failed: Option<Arc<Pod>>,
    pub(super) deleted: usize,
    /// An earlier process may have deleted pods that are not in `deleted`.
    is_resumed: bool,
    /// When the content was first read. `None` after the first deletion.
    waits_since: Option<ServerTime>,
    /// When the status must say what the last wave deleted, and when the next pass is due. `None` once it does.
    pub(super) unwritten: Option<(Instant, Instant)>,
    /// How many pods were ready when an eviction was refused. Another pass is worth making when more are ready.
    blocked_at: Option<usize>,
    watch: PodWatch,
    /// Whether the watch continues from the last list. If it continues from an earlier one, its events may be older than
    /// the list, and only say that another list is worth making.
    is_continuous: bool,
    /// Whether the watch has shown something that the last pass did not go by.
    has_news: bool,
    advance: Advance,
    /// The restart was reported as stalled.
    is_stalled: bool,
    /// Failures of the deletions and of reads of the owners.
    pub(super) faults: Faults,
    pub(super) watch_faults: Faults,
}

impl Rollout {
    pub(super) fn new(policy: &Policy, plan: Plan, restart: &Restart, begun: &Begun) -> Box<Self> {
        Box::new(Self {
            id: Id::of(restart, begun),
            plan,
            policy: policy.clone(),
            pods: Seen::default(),
            seen_at: ServerTime::from_second(0),
            listing: None,
            listed_at: timer_now(),
            pace: Pace::default(),
            owners: OwnerStates::new(),
            started: None,
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
            watch: PodWatch::Closed,
            is_continuous: false,
            has_news: false,
            advance: Advance::of(begun),
            is_stalled: false,
            faults: Faults::default(),
            watch_faults: Faults::default(),
        })
    }

    /// Takes over a restart of an earlier keeper, which may have deleted pods without writing that to the status.
    pub(super) fn resume(&mut self) {
        self.is_resumed = true;
        self.waits_since = None;
    }

    pub(super) fn is_of(&self, restart: &Restart, begun: &Begun) -> bool {
        self.id == Id::of(restart, begun)
    }

    pub(super) fn started_at(&self) -> ServerTime {
        self.id.started_at
    }

    /// Returns whether this is the restart of this entry of the history, which other content has ended.
    pub(super) fn is_superseded_in(&self, entry: &Entry) -> bool {
        entry.result == Outcome::Superseded && entry.started_at == self.id.started_at
    }

    /// Waits until another pass is worth making, or until the watch fails. However often pods change, the pause that
    /// [`Pace`] makes after each list bounds the lists.
    pub(super) async fn worth_a_pass(&mut self, shared: &Shared) -> Result<(), Error> {
        let mut next = self.standing(shared, shared.client.server_now()).next;
        let mut pause_until = timer_now();
        loop {
            let now = shared.client.server_now();
            let PodWatch::Open(changes) = &mut self.watch else {
                return std::future::pending().await;
            };
            let time_passes = async {
                match next {
                    Move::Wait(Some(until)) => sleep(until.since(now)).await,
                    _ => std::future::pending().await,
                }
            };
            let mut next_event = tokio::select! {
                biased;
                () = std::future::ready(()), if std::mem::take(&mut self.has_news) => None,
                () = time_passes => None,
                event = changes.next() => Some(event),
            };
            // An evaluation looks at all pods, so it follows all events that have arrived.
            while let Some(event) = next_event {
                if let ControlFlow::Break(missed) = self.apply(event, shared) {
                    return missed;
                }
                let PodWatch::Open(changes) = &mut self.watch else { break };
                next_event = timeout_at(pause_until.into(), changes.next()).await.ok();
            }
            let evaluated_at = timer_now();
            next = self.standing(shared, shared.client.server_now()).next;
            let took = timer_now().saturating_duration_since(evaluated_at);
            pause_until = timer_now() + (took * EVALUATION_PAUSE).min(BATCH_WINDOW);
            if is_shown_by_watch(&next) {
                return Ok(());
            }
            if self.is_worth_a_pass(&next) {
                if self.blocked_at.is_some() {
                    sleep(BUDGET_LAG).await;
                }
                if let Some(pause) = self.pace.pause {
                    sleep_until(pause.into()).await;
                }
                return Ok(());
            }
        }
    }

    /// Returns whether a pass with this move may bring the restart nearer to its end.
    fn is_worth_a_pass(&self, next: &Move) -> bool {
        match (next, self.blocked_at) {
            (Move::Done | Move::Canary(_), _) => true,
            (Move::Remove(_), Some(before)) => self.ready() > before,
            (Move::Remove(uids), None) => uids.iter().any(|uid| !self.attempts.has_failed(uid)),
            (Move::Wait(_), _) => false,
        }
    }

    /// Reads what the watch has delivered, so that nothing is judged by pods as they were before the last request.
    pub(super) async fn catch_up(&mut self, shared: &Shared) {
        if !self.is_continuous {
            return;
        }
        let read_all = async {
            let (mut read, mut before) = (0, None);
            while before != Some(read) && read < MAX_LAG {
                before = Some(read);
                // What has arrived meanwhile is passed on by other tasks: the connection, or another keeper that holds
                // the shared watch.
                yield_now().await;
                while let PodWatch::Open(changes) = &mut self.watch
                    && let Some(event) = changes.next().now_or_never()
                    && self.apply(event, shared).is_continue()
                {
                    read += 1;
                    self.has_news = true;
                }
            }
        };
        // The limit of what a task does at once would pass for the end of the events.
        unconstrained(read_all).await;
    }

    /// Applies an event of the watch. Breaks if events are missing: the next pass lists the pods.
    fn apply(&mut self, event: PodEvent, shared: &Shared) -> ControlFlow<Result<(), Error>> {
        match event {
            PodEvent::Applied(pod) => {
                self.record_sight(&pod);
                let uid = pod.uid.clone();
                self.pods.apply(pod, self.dated(shared.client.server_now()));
                // The owner was read when the watch had not shown this pod yet.
                self.owners.values_mut().for_each(|state| state.others.retain(|other| other.uid != uid));
            }
            PodEvent::Deleted(uid) => self.pods.remove(&uid),
            PodEvent::Missed(why) => {
                self.watch = PodWatch::Broken;
                return ControlFlow::Break(why.map_or(Ok(()), Err));
            }
        }
        ControlFlow::Continue(())
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

    pub(super) fn is_proving(&self) -> bool {
        self.canary.as_ref().is_some_and(|canary| canary.state.is_proving())
    }

    pub(super) fn update(&mut self, policy: &Policy, begun: &Begun) {
        self.canary.clone_from(&begun.canary);
        if self.policy != *policy {
            // The watch has the earlier selector, and the edit waits for the next list.
            self.watch.close();
            self.policy = policy.clone();
            self.pace.pause = None;
        }
    }

    pub(super) fn standing<'a>(&'a self, shared: &'a Shared, now: ServerTime) -> Standing<'a> {
        let (plan, policy, pods, owners) = (&self.plan, &self.policy, &*self.pods, &self.owners);
        let undeleted = &self.attempts.undeleted;
        let (own_pod, is_overdue) = (shared.own_pod.as_ref(), now >= self.deadline());
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

    /// Returns whether the watch continues from the last list and shows enough for the next move, for example that no
    /// old pod is left and every owner has its desired pods available.
    pub(super) fn watch_suffices(&self, shared: &Shared, now: ServerTime) -> bool {
        self.is_watching() && is_shown_by_watch(&self.standing(shared, now).next)
    }

    /// Returns whether a watch is open that continues from the last list.
    pub(super) fn is_watching(&self) -> bool {
        self.is_continuous && self.watch.is_open()
    }

    /// Takes the pods as the watch has shown them for their state at this time, after [`Self::catch_up`].
    pub(super) fn trust_watch(&mut self, now: ServerTime) {
        self.seen_at = now;
        self.count_unanswered();
    }

    /// Counts unanswered deletions whose pods are gone or terminating.
    fn count_unanswered(&mut self) {
        let is_left = |uid: &Uid| self.pods.get(uid).is_some_and(|pod| pod.gone_by.is_none());
        self.deleted += self.attempts.done_without_answer(is_left);
    }

    pub(super) fn selects_as(&self, begun: &Begun) -> bool {
        begun.pod_selector == self.policy.selector.to_query()
    }

    /// Returns the restart as it ends, and the pods that it skipped: those that were exempt when it began, or have
    /// become so since. After an edit of the selector nobody knows about the pods that are not selected any more, so
    /// only the deleted ones count.
    pub(super) fn result(&self, begun: Begun, own_pod: Option<&Uid>) -> (Begun, Vec<Skipped>) {
        let left = self.plan.left_alone(&self.policy, &self.pods, own_pod);
        let planned = if self.selects_as(&begun) { begun.pods } else { self.deleted };
        let pods = planned.saturating_sub(left.len()).max(self.deleted);
        let skipped = self.plan.skipped.iter().cloned().chain(left).collect();
        (Begun { pods, deleted: self.deleted, ..begun }, skipped)
    }

    /// Returns the controllers of the pods that are replaced, once their owners have been read: the Deployment, for a
    /// ReplicaSet that has one.
    pub(super) fn controllers(&self) -> BTreeSet<Arc<Owner>> {
        let concerned = self.owners.iter().filter(|(owner, _)| self.plan.concerns(owner));
        concerned.map(|(owner, state)| Arc::clone(state.controller.as_ref().unwrap_or(owner))).collect()
    }

    /// Returns whether all new pods have been ready for the time of a canary, and some have replaced others than the failed
    /// canaries: if all pods were canaries, none that has failed may be left.
    pub(super) fn is_proven_by_others(&self, begun: &Begun) -> bool {
        let bake = self.policy.canary.map_or(Duration::ZERO, |canary| canary.bake);
        let has_baked = |since| bake.is_zero() || self.seen_at.since(since) > bake;
        let mut new = self.pods.values().filter(|pod| pod.is_present() && self.plan.is_successor(pod));
        let had_others = begun.canary.as_ref().is_some_and(|canary| canary.pods < begun.pods);
        new.all(|pod| pod.ready_from().is_some_and(has_baked) && (had_others || pod.crash.is_none()))
    }

    /// Returns the owners whose pods the restart counts.
    pub(super) fn owners(&self) -> Owners {
        self.plan.owners(&self.pods).into_iter().map(|owner| owner.uid.clone()).collect()
    }

    /// Without a budget, only owners whose pods are replaced.
    pub(super) fn owners_to_read(&self) -> Vec<OwnerQuery> {
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

    pub(super) fn observe_owners(&mut self, mut owners: OwnerStates, took: Duration) {
        for state in owners.values_mut() {
            state.others.retain(|pod| !self.pods.contains_key(&pod.uid));
        }
        if owners.values().any(|state| !state.others.is_empty()) {
            // Finding these pods took a list.
            self.pace.put_off(took, timer_now());
        }
        self.owners = owners;
    }

    pub(super) fn observe_list(&mut self, listing: Arc<Listing>, interest: ListInterest, own_name: &str) {
        (self.seen_at, self.listed_at) = (listing.at, listing.began);
        self.is_continuous = false;
        self.others = listing.selected_by.iter().filter(|name| ***name != *own_name).cloned().collect();
        self.pods.list(&listing.pods, self.dated(listing.at));
        listing.pods.iter().for_each(|pod| self.record_sight(pod));
        self.count_unanswered();
        self.attempts.retain(|uid| self.pods.contains_key(uid));
        self.plan.select(&self.policy, &self.pods);
        self.pace.put_off(listing.took, timer_now());
        self.listing = Some((listing, interest));
    }

    /// Deletions that an earlier process may have made count as deletions of this restart.
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

    pub(super) fn begin_wave(&mut self, uids: &[Uid]) -> Wave {
        let pods = uids.iter().filter_map(|uid| self.pods.get(uid)).cloned().collect();
        self.attempts.begin_wave(&self.policy, pods)
    }

    /// Returns, at the first deletion only, when the content was first read.
    pub(super) fn first_deletion(&mut self) -> Option<ServerTime> {
        self.waits_since.take()
    }

    /// Records the answer for a pod of the wave. Returns whether a list must show what is true.
    pub(super) fn answered(&mut self, pod: &Pod, answer: Answer) -> bool {
        if let Answer::Deleted { by, here } = answer {
            // A deletion that another keeper has in flight may still fail.
            self.deleted += usize::from(here);
            self.pods.record_deletion(&pod.uid, by);
        }
        self.attempts.answered(pod, answer)
    }

    /// Ends a wave, and returns its refusal.
    pub(super) fn end_wave(&mut self) -> Option<Error> {
        let refusal = self.attempts.end_wave();
        let is_blocked =
            refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Blocked(_) | Cause::Refused(_)));
        self.blocked_at = is_blocked.then(|| self.ready());
        refusal
    }

    /// Returns the existing pods whose last deletion failed.
    pub(super) fn undeleted(&self) -> Vec<&Pod> {
        let failed = self.pods.values().filter(|pod| self.attempts.is_left(&pod.uid) && pod.gone_by.is_none());
        failed.map(|pod| &**pod).collect()
    }

    fn ready(&self) -> usize {
        self.pods.values().filter(|pod| pod.ready_since.is_some() && pod.gone_by.is_none()).count()
    }

    pub(super) fn record_pass(&mut self, deleted: usize, remaining: usize, lacking: usize, now: ServerTime) {
        self.has_news = false;
        if self.advance.note(deleted, remaining, lacking, now) {
            self.pace.backoff.reset();
        }
    }

    /// Returns what is written and reported, and when the next pass is due.
    pub(super) fn end_pass<'a>(
        &mut self,
        begun: Begun,
        next: &Move,
        hindrance: Option<Hindrance<'a>>,
        shared: &Shared,
    ) -> (Begun, Situation<'a>, Instant) {
        let (now, deadline) = (shared.client.server_now(), self.deadline());
        self.is_stalled = now >= deadline;
        let (begun, progress) = self.to_write(begun, shared);
        let progress = progress.not_deleted(self.undeleted().into_iter());
        match &self.listing {
            Some((listing, _)) if !self.is_stalled => self.is_continuous |= self.watch.open(listing, &shared.limits),
            _ => self.watch.close(),
        }
        let refusal = hindrance.map(|hindrance| &hindrance.error.cause);
        let mut delay = self.pace.after_pass(refusal, self.watch.is_open(), timer_now());
        let wake_at = match next {
            Move::Wait(until) => *until,
            Move::Remove(_) | Move::Canary(_) | Move::Done => None,
        };
        if let Some(at) = wake_at.into_iter().chain((!self.is_stalled).then_some(deadline)).min() {
            delay = delay.min(at.since(now).max(MIN_DELAY));
        }
        let due = (timer_now() + delay).max(self.pace.pause.unwrap_or_else(timer_now));
        (begun, situation(&self.policy, progress, hindrance, self.is_stalled), due)
    }

    /// Postpones the write about the last wave. Returns when the write or the next pass is due.
    pub(super) fn write_later(&mut self, next_pass: Instant) -> Instant {
        let write_at = timer_now() + WRITE_DELAY;
        self.unwritten = Some((write_at, next_pass));
        next_pass.min(write_at)
    }

    /// Records that the status says what the last wave deleted. Returns what follows: the next pass when it is due, or
    /// at once if it is worth making, or nothing would show when it is.
    pub(super) fn written(&mut self, shared: &Shared) -> Requeue {
        let due = self.unwritten.take().map(|(_, due)| due);
        let next = self.standing(shared, shared.client.server_now()).next;
        if !self.watch.is_open() || self.is_worth_a_pass(&next) { Requeue::Now } else { Requeue::At(due) }
    }

    /// Returns what to write about the restart by the pods as last seen.
    pub(super) fn to_write(&self, begun: Begun, shared: &Shared) -> (Begun, Progress) {
        let standing = self.standing(shared, self.seen_at);
        let progress = Progress::of(&begun, &standing).also_selected_by(&self.others);
        let begun = Begun { deleted: self.deleted, ..begun };
        (self.advance.record(begun, standing.remaining, standing.waiting, &standing.unavailable), progress)
    }

    /// The time until the restart goes on does not count as a lack of progress.
    pub(super) fn hold(&mut self) {
        self.watch.close();
        (self.listing, self.unwritten) = (None, None);
        self.advance.hold();
    }
}

/// Returns whether a watch shows enough for a move, which must delete nothing. To pass or fail a canary takes a list: a
/// watch may be stalled, or lag behind the last list.
fn is_shown_by_watch(next: &Move) -> bool {
    match next {
        Move::Done => true,
        Move::Canary(state) => state.is_baking(),
        Move::Remove(_) | Move::Wait(_) => false,
    }
}
