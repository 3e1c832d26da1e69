//! One restart under way, as this process knows it: its plan, its pods and owners as last seen, what became of its
//! deletions, and what comes next.
//!
//! [`Machine::next`] says what to do, and [`Machine::heard`] takes what has happened. All news but one take time, so that
//! the watch must be read again before anything is judged by it.

mod facts;
mod report;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::report::{Over, Report};
use super::Now;
use super::attempts::Attempts;
use super::canary::CanarySight;
use super::pace::Pace;
use super::plan::Plan;
use super::progress::{Advance, Hindrance};
use super::seen::{Seen, View};
use super::standing::{Move, OwnerQuery, OwnerStates, Sight, Standing};
use super::wave::{Reply, Wave};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::{Owner, Pod};
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::spec::Policy;
use crate::monitor::status::{self, Begun, Canary, CanaryState, Entry, Restart, Why};

/// The write about the last wave waits for this long, or it would compete with the deletions of other restarts: 50
/// restarts at once, which share an edit, delete their last pod in 1.3 times the time of the floor in BENCHMARKS.md
/// instead of 1.6.
const WRITE_DELAY: Duration = Duration::from_secs(1);

/// The minimum wait for a time of the API server, whose times are whole seconds.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The time that the disruption controller takes to update a PodDisruptionBudget after a pod has become available.
const BUDGET_LAG: Duration = Duration::from_millis(500);

/// What identifies a restart in the status. Two processes may begin restarts in the same second and by the same list, of
/// which one is a revert.
#[derive(Clone, PartialEq)]
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

/// `P` is the proof that pods may be deleted, which nothing here can make.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Machine<P> {
    id: Id,
    plan: Plan,
    policy: Policy,
    /// The operator's own pod, which is never deleted.
    own_pod: Option<Uid>,
    pods: Seen,
    pace: Pace,
    owners: OwnerStates,
    /// The other ConfigMonitors that select pods of the last list.
    others: Vec<Arc<str>>,
    attempts: Attempts,
    /// The restart as the status has it, but for `deleted`.
    begun: Begun,
    /// The status has it.
    is_intended: bool,
    /// The new pods that were seen ready while the canary bakes.
    seen_ready: BTreeSet<Uid>,
    /// A new pod that was seen to fail while the canary was unproven. Its owner may have deleted it since.
    seen_failed: Option<Arc<Pod>>,
    /// An earlier process may have deleted pods that are not in `begun.deleted`.
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
    /// The owners of the turn, if there is one.
    turn: Option<BTreeSet<Uid>>,
    phase: Phase<P>,
}

/// What the controller does next.
pub(crate) enum Do<P> {
    /// Read the watch until nothing is left.
    ReadWatch,
    /// Exclude other restarts of these owners. `is_listed`: since the list.
    TakeTurn { owners: BTreeSet<Uid>, is_listed: bool },
    /// List the selected pods.
    List,
    /// Read the desired replicas of these owners, and their pods that are not selected.
    ReadOwners(Vec<OwnerQuery>),
    /// Write that this restart has begun.
    Intend(Begun),
    /// Read the ConfigMonitor, which must not have changed.
    Confirm,
    /// Send these deletions.
    Remove(Wave, P),
    /// Follow the pods by a watch, or close it.
    Follow(bool),
    /// Write the status.
    Write(Report),
    /// Record that the restart is over.
    Complete(Over),
    /// Wait until this time, or until something changes. The watch is read meanwhile.
    Wait(Instant),
    /// Wait until this time. Until then nothing is tried, so the last failure still counts.
    Pause(Instant),
    /// Leave: everything is looked at and decided again.
    Decide,
    /// Leave with this error.
    Fail(Error),
}

/// What has happened.
pub(crate) enum News<P> {
    /// The watch was read until nothing was left.
    WatchRead,
    /// The watch shows a pod.
    Applied(Arc<Pod>),
    /// The watch shows that a pod is gone.
    Gone(Uid),
    /// The watch has ended or has left out events.
    WatchLost,
    /// Other restarts of these owners are excluded.
    Turn(BTreeSet<Uid>),
    Listed {
        pods: Vec<Arc<Pod>>,
        at: ServerTime,
        took: Duration,
    },
    OwnersRead {
        states: OwnerStates,
        took: Duration,
    },
    /// Pods may be deleted.
    Cleared(P),
    /// The wave is over. `is_whole`: it was not cut short.
    WaveOver {
        is_whole: bool,
    },
    /// Whether a watch follows the pods, and whether it begins with the last list.
    Following {
        is_open: bool,
        is_new: bool,
    },
    Written,
}

#[cfg_attr(test, derive(Clone))]
enum Phase<P> {
    /// A step begins.
    Resting,
    Passing(Pass<P>),
    Sweeping(Sweep),
    /// The pass is over, and a watch is to follow the pods.
    Following(PassEnd),
    Reporting(PassEnd, Instant),
    ReportingCanary(CanaryState),
    /// The write about the last wave is due.
    ReportingLate,
    Waiting(Instant),
    /// Another pass is worth making at this time.
    Waking(Instant),
    Leaving,
    Failing(Error),
}

/// A pass that knows its pods.
#[cfg_attr(test, derive(Clone))]
struct Pass<P> {
    basis: Basis<P>,
    has_begun: bool,
    /// Whether the owners were read, or need not be.
    has_owners: bool,
}

/// How a pass knows its pods, and so what it may do.
#[cfg_attr(test, derive(Clone))]
enum Basis<P> {
    /// From a watch. The pass may find that the restart is over, and deletes nothing.
    Watch,
    List,
    /// From a list, after which the intent was written, or the ConfigMonitor was read.
    Cleared(P),
}

/// A wave under way.
#[cfg_attr(test, derive(Clone))]
struct Sweep {
    next: Move,
    remaining: usize,
    lacking: usize,
    is_moving: bool,
    deleted: usize,
    /// A list must show what is true.
    needs_list: bool,
}

/// What came of a pass.
#[cfg_attr(test, derive(Clone))]
struct PassEnd {
    next: Move,
    deleted: usize,
    refusal: Option<Error>,
    /// The only refusals came from a PodDisruptionBudget that lets pods go one after the other, as intended: one has
    /// gone, or some are terminating.
    is_expected: bool,
    /// The next step follows at once.
    is_cut_short: bool,
}

impl<P> Machine<P> {
    /// Begins a restart whose pods were just listed.
    pub(crate) fn begin(
        policy: &Policy,
        plan: Plan,
        restart: &Restart,
        why: Why,
        own_pod: Option<Uid>,
        now: ServerTime,
    ) -> Self {
        let canary = policy.canary.filter(|_| why != Why::Reverted);
        let canary = canary.map(|canary| canary.pods.of(plan.len()).min(plan.len()));
        let canary = canary.map(|pods| Canary { pods, state: CanaryState::Replacing });
        let begun = Begun { canary, ..Begun::new(now, policy.selector.to_query(), plan.len()) };
        Self { is_intended: false, ..Self::recall(policy, plan, restart, &begun, own_pod, true) }
    }

    /// Takes up the restart that the status has. If it is not this process's own, an earlier one may have deleted pods
    /// without writing that to the status.
    pub(crate) fn recall(
        policy: &Policy,
        plan: Plan,
        restart: &Restart,
        begun: &Begun,
        own_pod: Option<Uid>,
        is_own: bool,
    ) -> Self {
        Self {
            id: Id::of(restart, begun),
            plan,
            policy: policy.clone(),
            own_pod,
            pods: Seen::new(),
            pace: Pace::default(),
            owners: OwnerStates::new(),
            others: Vec::new(),
            attempts: Attempts::default(),
            begun: begun.clone(),
            is_intended: true,
            seen_ready: BTreeSet::new(),
            seen_failed: None,
            is_resumed: !is_own,
            waits_since: (is_own && begun.deleted == 0).then_some(restart.observed_at),
            unwritten: None,
            blocked_at: None,
            advance: Advance::of(begun),
            is_stalled: false,
            turn: None,
            phase: Phase::Resting,
        }
    }

    /// Returns whether the status has the restart.
    pub(crate) fn is_intended(&self) -> bool {
        self.is_intended
    }

    pub(crate) fn is_of(&self, restart: &Restart, begun: &Begun) -> bool {
        self.id == Id::of(restart, begun)
    }

    pub(crate) fn started_at(&self) -> ServerTime {
        self.id.started_at
    }

    /// Returns whether this is the restart of this entry of the history, which other content has ended.
    pub(crate) fn is_superseded_in(&self, entry: &Entry) -> bool {
        entry.result == status::Outcome::Superseded && entry.started_at == self.id.started_at
    }

    /// How many pods this restart has deleted.
    pub(crate) fn deleted(&self) -> usize {
        self.begun.deleted
    }

    /// Begins another step, by the restart as the status has it. An unfinished pass is abandoned. Returns whether the
    /// spec has been edited: a watch has the earlier selector, and the edit waits for the next list.
    pub(crate) fn resume(&mut self, policy: &Policy, begun: &Begun) -> bool {
        self.begun = Begun { deleted: self.begun.deleted, ..begun.clone() };
        (self.phase, self.turn) = (Phase::Resting, None);
        self.pods.spend();
        if self.policy == *policy {
            return false;
        }
        self.policy = policy.clone();
        self.pace.pause = None;
        self.pods.follow(false, false);
        true
    }

    pub(crate) fn next(&mut self, now: Now) -> Do<P> {
        match std::mem::replace(&mut self.phase, Phase::Leaving) {
            Phase::Resting => self.rest(now),
            Phase::Passing(pass) => self.pass(pass, now),
            Phase::Following(end) => {
                self.is_stalled = now.server >= self.deadline();
                self.phase = Phase::Following(end);
                Do::Follow(!self.is_stalled)
            }
            Phase::Reporting(end, due) => {
                let PassEnd { refusal, is_expected, .. } = &end;
                let refusal = refusal.clone().map(|error| (error, *is_expected));
                let Report { begun, progress, .. } = self.report();
                let progress = progress.not_deleted(self.undeleted().into_iter());
                self.phase = Phase::Reporting(end, due);
                Do::Write(Report { begun, progress, refusal, is_stalled: self.is_stalled })
            }
            Phase::ReportingCanary(state) => {
                let mut report = self.report();
                report.begun.canary.iter_mut().for_each(|canary| canary.state = state.clone());
                self.phase = Phase::ReportingCanary(state);
                Do::Write(report)
            }
            Phase::ReportingLate => {
                self.phase = Phase::ReportingLate;
                Do::Write(self.report())
            }
            Phase::Waiting(until) => {
                self.phase = Phase::Waiting(until);
                if self.pods.is_unread() { Do::ReadWatch } else { Do::Wait(until) }
            }
            Phase::Waking(at) => {
                self.phase = Phase::Waking(at);
                Do::Wait(at)
            }
            Phase::Failing(error) => Do::Fail(error),
            // The next step resumes.
            Phase::Sweeping(_) | Phase::Leaving => Do::Decide,
        }
    }

    pub(crate) fn heard(&mut self, news: News<P>, now: Now) {
        match news {
            News::WatchRead => return self.watch_read(now),
            News::Applied(pod) => self.applied(pod, now.server),
            News::Gone(uid) => self.pods.remove(&uid),
            News::WatchLost => self.pods.follow(false, false),
            News::Turn(owners) => self.turn = Some(owners),
            News::Listed { pods, at, took } => {
                self.listed(&pods, at, took, now.timer);
                self.phase = Phase::Passing(Pass { basis: Basis::List, has_begun: false, has_owners: false });
            }
            News::OwnersRead { states, took } => self.owners_read(states, took, now.timer),
            News::Cleared(proof) => {
                self.is_intended = true;
                if let Phase::Passing(pass) = &mut self.phase {
                    pass.basis = Basis::Cleared(proof);
                }
            }
            News::WaveOver { is_whole } => {
                if let Phase::Sweeping(sweep) = std::mem::replace(&mut self.phase, Phase::Leaving) {
                    self.end_wave(sweep, is_whole, now.server);
                }
            }
            News::Following { is_open, is_new } => {
                self.pods.follow(is_open, is_new);
                if let Phase::Following(end) = std::mem::replace(&mut self.phase, Phase::Leaving) {
                    self.end_pass(end, now);
                }
            }
            News::Written => self.written(),
        }
        self.pods.spend();
    }

    fn rest(&mut self, now: Now) -> Do<P> {
        self.phase = Phase::Resting;
        let is_watched = self.pods.is_watched_since_the_list();
        if is_watched && self.pods.is_unread() {
            return Do::ReadWatch;
        }
        let write_at = self.unwritten.map(|(write_at, _)| write_at);
        if write_at.is_some_and(|at| at <= now.timer) {
            self.phase = Phase::ReportingLate;
            return self.next(now);
        }
        if is_watched && self.standing().next.is_shown_by_watch() {
            // No old pod is left according to the watch, so the pass only reads the owners and writes the status.
            return self.pass(Pass { basis: Basis::Watch, has_begun: false, has_owners: false }, now);
        }
        if let Some(until) = self.pace.not_before(now.timer) {
            return Do::Pause(write_at.map_or(until, |write_at| write_at.min(until)));
        }
        match self.lacks_turn() {
            Some(owners) => Do::TakeTurn { owners, is_listed: false },
            None => Do::List,
        }
    }

    fn pass(&mut self, mut pass: Pass<P>, now: Now) -> Do<P> {
        let is_watch = matches!(pass.basis, Basis::Watch);
        if matches!(pass.basis, Basis::List)
            && let Some(owners) = self.lacks_turn()
        {
            // The pods have other owners now, and this list may not show the deletions of other turns with them.
            self.phase = Phase::Passing(pass);
            return Do::TakeTurn { owners, is_listed: true };
        }
        if !self.is_intended {
            self.phase = Phase::Passing(pass);
            return Do::Intend(self.begun.clone());
        }
        if !std::mem::replace(&mut pass.has_begun, true) {
            self.begin_pass(now.server);
        }
        if !std::mem::replace(&mut pass.has_owners, true) && self.needs_owners() {
            self.phase = Phase::Passing(pass);
            return Do::ReadOwners(self.owners_to_read());
        }
        if is_watch && !self.pods.is_watched_since_the_list() {
            return Do::Decide;
        }
        if is_watch && self.pods.is_unread() {
            self.phase = Phase::Passing(pass);
            return Do::ReadWatch;
        }
        let Standing { next, remaining, lacking, on_their_way, stuck, .. } = self.standing();
        let sweep = Sweep { next, remaining, lacking, is_moving: on_their_way > 0, deleted: 0, needs_list: false };
        match (&sweep.next, pass.basis) {
            (Move::Done, _) => Do::Complete(self.over(stuck.into_iter().map(str::to_owned).collect())),
            // To delete pods, and to pass or fail a canary, takes a list.
            (Move::Remove(_) | Move::Canary(CanaryState::Passed | CanaryState::Failed { .. }), Basis::Watch) => {
                Do::Decide
            }
            (Move::Canary(state), _) => {
                self.phase = Phase::ReportingCanary(state.clone());
                self.next(now)
            }
            (Move::Remove(uids), Basis::Cleared(proof)) => {
                let pods = uids.iter().filter_map(|uid| self.pods.pods().get(uid)).cloned().collect();
                let wave = self.attempts.begin_wave(&self.policy, pods);
                self.phase = Phase::Sweeping(sweep);
                Do::Remove(wave, proof)
            }
            (Move::Remove(_), basis) => {
                self.phase = Phase::Passing(Pass { basis, has_begun: true, has_owners: true });
                Do::Confirm
            }
            (Move::Wait(_), _) => {
                self.end_sweep(sweep, None, true, now.server);
                self.next(now)
            }
        }
    }

    /// Returns how the restart stands by the pods as they were when they were last known.
    fn standing(&self) -> Standing<'_> {
        self.judge(self.pods.view())
    }

    fn judge<'a>(&'a self, view: View<'a>) -> Standing<'a> {
        let (plan, policy, owners) = (&self.plan, &self.policy, &self.owners);
        let (undeleted, own_pod) = (&self.attempts.undeleted, self.own_pod.as_ref());
        let is_overdue = view.at >= self.deadline();
        let canary = self.begun.canary.as_ref().filter(|_| self.is_proving());
        let (since, seen_ready, failed) = (self.id.started_at, &self.seen_ready, self.seen_failed.as_deref());
        let canary = canary.map(|canary| CanarySight { canary, since, seen_ready, failed });
        Sight { plan, policy, view, owners, undeleted, own_pod, canary, is_overdue }.standing()
    }

    /// Takes that nothing is left of the watch. While the restart waits, this shows whether another pass is worth making
    /// now.
    fn watch_read(&mut self, now: Now) {
        self.pods.read(now.server);
        self.count_unanswered();
        let Phase::Waiting(until) = self.phase else { return };
        let next = self.judge(self.pods.glimpse()).next;
        self.phase = match next {
            _ if next.is_shown_by_watch() => Phase::Waking(now.timer),
            _ if self.is_worth_a_pass(&next) => {
                let lag = if self.blocked_at.is_some() { BUDGET_LAG } else { Duration::ZERO };
                Phase::Waking((now.timer + lag).max(self.pace.pause.unwrap_or(now.timer)))
            }
            Move::Wait(Some(at)) => Phase::Waiting(until.min(now.timer + at.since(now.server).max(MIN_DELAY))),
            _ => Phase::Waiting(until),
        };
    }

    /// A canary that bakes does not lack progress; one that never becomes available has not failed, but exceeds the
    /// deadline.
    fn deadline(&self) -> ServerTime {
        let bake = self.policy.canary.filter(|_| self.is_proving()).map_or(Duration::ZERO, |canary| canary.bake);
        self.advance.deadline(&self.policy, self.pods.pods()).plus(bake)
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

    /// Begins a pass. Deletions that an earlier process may have made count as deletions of this restart.
    fn begin_pass(&mut self, now: ServerTime) {
        self.advance.take_up(now);
        if std::mem::take(&mut self.is_resumed) && self.selects_as_at_the_start() {
            let gone = self.begun.gone(self.standing().waiting);
            self.begun.deleted = self.begun.deleted.max(gone);
        }
        if self.is_stalled {
            self.plan.lower_expectations(self.pods.pods());
        }
        self.blocked_at = None;
    }

    /// Returns whether the next move depends on the owners' desired replicas.
    fn needs_owners(&self) -> bool {
        self.policy.max_unavailable.is_some() || self.is_proving() || self.standing().remaining == 0
    }

    /// Returns whether a failure to read an owner is no failure of the step. With a budget, every read must succeed.
    /// Without one, an owner that may not be read is assumed to desire as many pods as it had at the start: the guess
    /// decides only when the restart is over, not what is deleted.
    pub(crate) fn tolerates(&self, failure: &Error) -> bool {
        self.policy.max_unavailable.is_none() && matches!(failure.cause, Cause::Forbidden(_))
    }

    /// Returns the owners whose pods the restart counts, if there is a budget and no turn with them.
    pub(crate) fn lacks_turn(&self) -> Option<BTreeSet<Uid>> {
        self.policy.max_unavailable?;
        let owners: BTreeSet<Uid> =
            self.plan.owners(self.pods.pods()).into_iter().map(|owner| owner.uid.clone()).collect();
        self.turn.as_ref().is_none_or(|turn| !turn.is_superset(&owners)).then_some(owners)
    }

    /// Returns the controllers of the pods that are replaced, once their owners have been read: the Deployment, for a
    /// ReplicaSet that has one.
    pub(crate) fn controllers(&self) -> BTreeSet<Arc<Owner>> {
        let concerned = self.owners.iter().filter(|(owner, _)| self.plan.concerns(owner));
        concerned.map(|(owner, state)| Arc::clone(state.controller.as_ref().unwrap_or(owner))).collect()
    }

    /// Returns, at the first deletion only, when the content was first read.
    pub(crate) fn first_deletion(&mut self) -> Option<ServerTime> {
        self.waits_since.take()
    }

    /// Takes the reply for a pod of the wave. Returns whether the wave may send another deletion.
    pub(crate) fn replied(&mut self, pod: &Pod, reply: Reply) -> bool {
        let mut here = false;
        if let Reply::Deleted { by, here: is_here } = reply {
            // A deletion that another keeper has in flight may still fail.
            here = is_here;
            self.pods.record_deletion(&pod.uid, by);
        }
        self.begun.deleted += usize::from(here);
        let needs_list = self.attempts.answered(pod, reply);
        if let Phase::Sweeping(sweep) = &mut self.phase {
            sweep.deleted += usize::from(here);
            sweep.needs_list |= needs_list;
        }
        self.attempts.wave_goes_on()
    }

    fn end_wave(&mut self, sweep: Sweep, is_whole: bool, now: ServerTime) {
        let refusal = self.attempts.end_wave();
        let is_blocked =
            refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Blocked(_) | Cause::Refused(_)));
        self.blocked_at = is_blocked.then(|| self.ready());
        match refusal {
            Some(error) if error.cause == Cause::Stopped => self.phase = Phase::Failing(error),
            refusal => self.end_sweep(sweep, refusal, is_whole, now),
        }
    }

    fn end_sweep(&mut self, sweep: Sweep, refusal: Option<Error>, is_whole: bool, now: ServerTime) {
        let Sweep { next, remaining, lacking, is_moving, deleted, needs_list } = sweep;
        if self.advance.note(deleted, remaining, lacking, now) {
            self.pace.backoff.reset();
        }
        let is_cut_short = (!is_whole || needs_list) && refusal.is_none();
        if is_cut_short && deleted == 0 {
            // A write would say that nothing is in the way, until the next list shows whether something is.
            return;
        }
        let is_blocked = refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Blocked(_)));
        let is_expected = is_blocked && (deleted > 0 || is_moving);
        self.phase = Phase::Following(PassEnd { next, deleted, refusal, is_expected, is_cut_short });
    }

    /// Returns why the last wave did not delete all its pods.
    pub(crate) fn hindrance(&self) -> Option<Hindrance<'_>> {
        match &self.phase {
            Phase::Following(PassEnd { refusal: Some(error), is_expected, .. }) => {
                Some(Hindrance { error, is_expected: *is_expected })
            }
            // The operator stops.
            Phase::Failing(error) => Some(Hindrance { error, is_expected: true }),
            _ => None,
        }
    }

    /// Returns the existing pods whose last deletion failed.
    pub(crate) fn undeleted(&self) -> Vec<&Pod> {
        let failed = self.pods.pods().values().filter(|pod| self.attempts.is_left(&pod.uid) && pod.gone_by.is_none());
        failed.map(|pod| &**pod).collect()
    }

    fn ready(&self) -> usize {
        self.pods.pods().values().filter(|pod| pod.ready_since.is_some() && pod.gone_by.is_none()).count()
    }

    /// Ends a pass: what came of it is written, now or later, and the next pass is due some time after.
    fn end_pass(&mut self, end: PassEnd, now: Now) {
        let PassEnd { next, deleted, refusal, is_cut_short, .. } = &end;
        let is_open = self.pods.is_watched();
        let mut delay = self.pace.after_pass(refusal.as_ref().map(|error| &error.cause), is_open, now.timer);
        let wake_at = match next {
            Move::Wait(until) => *until,
            Move::Remove(_) | Move::Canary(_) | Move::Done => None,
        };
        let deadline = (!self.is_stalled).then(|| self.deadline());
        if let Some(at) = wake_at.into_iter().chain(deadline).min() {
            delay = delay.min(at.since(now.server).max(MIN_DELAY));
        }
        let due = (now.timer + delay).max(self.pace.pause.unwrap_or(now.timer));
        // Every old pod is terminating, so the next write may be that the restart is over.
        let is_calm = !is_cut_short && refusal.is_none() && !self.is_stalled;
        let may_wait = is_calm && self.policy.max_unavailable.is_none() && *deleted > 0;
        if may_wait && self.standing().waiting == 0 {
            let write_at = now.timer + WRITE_DELAY;
            self.unwritten = Some((write_at, due));
            self.phase = Phase::Waiting(due.min(write_at));
        } else {
            self.phase = Phase::Reporting(end, due);
        }
    }

    /// Records that the status says what the last wave deleted.
    fn written(&mut self) {
        let late = self.unwritten.take();
        self.phase = match std::mem::replace(&mut self.phase, Phase::Leaving) {
            Phase::Reporting(PassEnd { is_cut_short: false, .. }, due) => Phase::Waiting(due),
            Phase::ReportingLate => match late {
                Some((_, due)) if self.pods.is_watched() => Phase::Waiting(due),
                // Nothing shows when the next pass is worth making.
                _ => Phase::Leaving,
            },
            _ => Phase::Leaving,
        };
    }

    /// The time until the restart goes on does not count as a lack of progress.
    pub(crate) fn hold(&mut self) {
        self.pods.follow(false, false);
        self.unwritten = None;
        self.advance.hold();
    }
}
