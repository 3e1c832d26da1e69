//! One restart under way, as this process knows it: its targets, its pods and owners as last seen, what became of its
//! deletions, and what comes next.
//!
//! [`Machine::next`] says what to do, and [`Machine::heard`] takes what has happened.

mod facts;
mod outcome;
mod pass;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Now;
use super::canary::CanarySight;
use super::pace::Pace;
use super::progress::{Advance, Refusal};
use super::seen::Seen;
use super::sight::Deployments;
use super::sight::{OwnerQuery, OwnerStates, Sight};
use super::standing::Standing;
use super::targets::{Skipped, Targets};
use super::wave::{Attempts, Wave};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Owner;
use crate::kube::{ServerTime, Uid};
use crate::monitor::journal::Journal;
use crate::monitor::pod::Pod;
use crate::monitor::referrers::Snapshot;
use crate::monitor::source::SourceName;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, CanaryState, Status, Why};

/// `P` is the proof that pods may be deleted, which nothing here can make.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Machine<P> {
    /// By which the targets were made.
    journal: Journal,
    targets: Targets,
    policy: Policy,
    /// The operator's own pod, which is never deleted.
    own_pod: Option<Uid>,
    /// The pods of the last list that refer to a source which does not exist: their successors would not start.
    pub(crate) unstartable: Snapshot,
    /// The sources that do not exist. The next list shows what refers to them.
    pub(crate) missing: BTreeSet<SourceName>,
    pods: Seen,
    pace: Pace,
    owners: OwnerStates,
    deployments: Deployments,
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
    /// The targets may have more pods than the restart began with.
    is_retargeted: bool,
    /// When the content was first read. `None` after the first deletion.
    waits_since: Option<ServerTime>,
    /// When the status must say what the last wave deleted, and the rest after that. `None` once it does.
    unwritten: Option<(Instant, Rest)>,
    advance: Advance,
    /// The restart was reported as stalled.
    is_stalled: bool,
    /// Why a pod that is handed over was not deleted.
    surge_refusal: Option<Error>,
    /// The owners of the turn, if there is one.
    turn: Option<BTreeSet<Uid>>,
    phase: Phase<P>,
}

/// What the controller does next.
pub(crate) enum Do<P> {
    /// Exclude other restarts of these owners. `is_listed`: since the list.
    TakeTurn { owners: BTreeSet<Uid>, is_listed: bool },
    /// List the selected pods.
    List,
    /// Read the desired replicas of these owners, and their pods that are not selected.
    ReadOwners(Vec<OwnerQuery>),
    /// Read these Deployments, and their pods that are not selected.
    ReadDeployments(Vec<Arc<Owner>>),
    /// Write that this restart has begun.
    Intend(Begun),
    /// Read the ConfigMonitor, which must not have changed.
    Confirm,
    /// Send these deletions.
    Remove(Wave, P),
    /// Listen to the watch of the pods, or to none.
    Listen(bool),
    /// Write the status.
    Write(Report),
    /// Record that the restart is over.
    Complete(Over),
    /// Wait until this time, or until something changes or rings.
    Wait(Instant),
    /// Wait until this time. Until then nothing is tried, so the last failure still counts.
    Pause(Instant),
    /// Leave: everything is looked at and decided again.
    Decide,
}

/// What is written about a restart.
pub(crate) struct Report {
    pub(crate) begun: Begun,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) is_stalled: bool,
}

/// How a restart has ended.
pub(crate) struct Over {
    pub(crate) begun: Begun,
    /// The pods that it skipped.
    pub(crate) skipped: Vec<Skipped>,
    /// How many of its pods are still terminating.
    pub(crate) terminating: usize,
    /// How many pods are selected.
    pub(crate) selected: usize,
}

/// What has happened.
pub(crate) enum News<P> {
    /// The watch has rung.
    Rang {
        /// How many pods have become ready since the list, or more.
        ready: usize,
        /// The last pods that have failed. Their owner may have deleted them since.
        failed: Vec<Arc<Pod>>,
    },
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
    DeploymentsRead {
        states: Deployments,
        took: Duration,
    },
    /// Pods may be deleted.
    Confirmed(P),
    /// The wave is over. `is_whole`: it was not cut short.
    WaveOver {
        is_whole: bool,
    },
    /// Whether a watch of the pods may ring. It may end at any time.
    Listening(bool),
    Written,
}

#[cfg_attr(test, derive(Clone))]
enum Phase<P> {
    /// A step begins.
    Resting,
    /// A pass knows its pods.
    Passing {
        /// The proof that the pods may be deleted: after the list, the intent was written, or the ConfigMonitor was read.
        proof: Option<P>,
        asked: Asked,
    },
    /// A wave is under way.
    Deleting(Pass),
    /// The pass is over, and a watch of the pods is to ring.
    Listening(PassEnd),
    /// A write comes first. Without a rest, the next pass follows at once.
    Reporting {
        refusal: Option<Refusal>,
        canary: Option<CanaryState>,
        then: Option<Rest>,
    },
    Waiting(Rest),
    Leaving,
}

/// Until when the next pass waits.
#[derive(Clone, Copy)]
struct Rest {
    until: Instant,
    /// How many pods must become ready before another pass can help, if that can help.
    needs: Option<usize>,
    /// How long a PodDisruptionBudget takes to count them.
    lag: Duration,
}

/// What a pass has asked for, or need not ask for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Nothing,
    Owners,
    Deployments,
}

/// How things stood when a pass began to delete or to wait, and what it has deleted.
#[cfg_attr(test, derive(Clone))]
struct Pass {
    wakes_at: Option<ServerTime>,
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
    wakes_at: Option<ServerTime>,
    has_deleted: bool,
    refusal: Option<Refusal>,
    /// The next step follows at once.
    is_cut_short: bool,
}

impl<P> Machine<P> {
    /// Begins a restart whose pods were just listed.
    pub(crate) fn begin(
        policy: &Policy,
        targets: Targets,
        status: &Status,
        own_pod: Option<Uid>,
        now: ServerTime,
    ) -> Self {
        let canary = policy.canary.filter(|_| status.why() != Why::Reverted);
        let canary = canary.map(|canary| canary.pods.of(targets.len()).min(targets.len()));
        let canary = canary.map(|pods| Canary { pods, state: CanaryState::Replacing });
        let begun = Begun::new(status.next_number(), now, policy.selector.to_query(), targets.len());
        let machine = Self::of(policy, targets, status, Begun { canary, ..begun }, own_pod);
        let (is_intended, is_resumed, is_retargeted) = (false, false, false);
        Self { is_intended, is_resumed, is_retargeted, waits_since: status.waits_since(), ..machine }
    }

    /// Takes up the restart that the status has. An earlier process may have deleted pods without writing that to the status.
    pub(crate) fn of(policy: &Policy, targets: Targets, status: &Status, begun: Begun, own_pod: Option<Uid>) -> Self {
        Self {
            journal: status.journal(),
            targets,
            policy: policy.as_written(),
            own_pod,
            unstartable: Snapshot::new(),
            missing: BTreeSet::new(),
            pods: Seen::default(),
            pace: Pace::default(),
            owners: OwnerStates::new(),
            deployments: Deployments::new(),
            attempts: Attempts::default(),
            advance: Advance::of(&begun),
            begun,
            is_intended: true,
            seen_ready: BTreeSet::new(),
            seen_failed: None,
            is_resumed: true,
            is_retargeted: true,
            waits_since: None,
            unwritten: None,
            is_stalled: false,
            surge_refusal: None,
            turn: None,
            phase: Phase::Resting,
        }
    }

    /// Returns whether the status has the restart.
    pub(crate) fn is_intended(&self) -> bool {
        self.is_intended
    }

    /// Returns the number of the restart.
    pub(crate) fn number(&self) -> u64 {
        self.begun.number
    }

    /// Returns whether the targets are what follows from the journal.
    pub(crate) fn is_of(&self, status: &Status) -> bool {
        self.journal == status.journal()
    }

    /// Takes the targets that follow from a journal which has changed.
    pub(crate) fn retarget(&mut self, targets: Targets, status: &Status) {
        self.seen_failed.take_if(|pod| targets.is_old(pod));
        (self.targets, self.journal, self.is_retargeted) = (targets, status.journal(), true);
    }

    /// Returns, until the restart has begun, a pod to test whether the operator may hand pods over.
    pub(crate) fn pod_to_hand_over(&self, deployments: &Deployments) -> Option<&Pod> {
        if self.is_intended || self.policy.max_surge.is_none() {
            return None;
        }
        let deployment = |pod: &Pod| deployments.get(self.owners.get(pod.controller.as_ref()?)?.controller.as_ref()?);
        let may_surge = |pod: &Pod| deployment(pod).is_some_and(|state| state.may_surge);
        let mut pods = self.pods.pods().values().map(|pod| &**pod);
        pods.find(|pod| self.targets.is_old(pod) && pod.is_present() && may_surge(pod))
    }

    pub(crate) fn started_at(&self) -> ServerTime {
        self.begun.started_at
    }

    /// Records why pods that are handed over were not deleted. One refusal stands for the restart.
    pub(crate) fn surge_refused(&mut self, refusals: &BTreeMap<Uid, Error>) {
        let is_left =
            |uid: &Uid| self.pods.pods().get(uid).is_some_and(|pod| pod.handed_over.is_some() && pod.is_present());
        self.surge_refusal = refusals.iter().find(|(uid, _)| is_left(uid)).map(|(_, error)| error.clone());
    }

    /// Whether a pod of the restart is handed over, and not gone yet.
    fn is_leaving(&self, pod: &Pod) -> bool {
        pod.handed_over.is_some() && pod.is_present() && self.targets.is_old(pod)
    }

    /// How many pods this restart has deleted.
    pub(crate) fn deleted(&self) -> usize {
        self.begun.deleted
    }

    /// Begins another step of the restart in the status. Abandons an unfinished pass. After an edit of the spec, skips
    /// the pause.
    pub(crate) fn resume(&mut self, policy: &Policy, begun: &Begun) {
        let pods = self.begun.pods.max(begun.pods);
        self.begun = Begun { pods, deleted: self.begun.deleted, ..begun.clone() };
        // Progress of another process counts, too.
        self.advance.progressed(begun.last_progress_at);
        (self.phase, self.turn) = (Phase::Resting, None);
        // A restart has its sources, whatever pods refer to by now.
        let policy = policy.as_written();
        if self.policy != policy {
            (self.policy, self.pace.pause) = (policy, None);
        }
    }

    pub(crate) fn next(&mut self, now: Now) -> Do<P> {
        match std::mem::replace(&mut self.phase, Phase::Leaving) {
            Phase::Resting => self.rest(now),
            Phase::Passing { proof, asked } => self.pass(proof, asked, now),
            Phase::Listening(end) => {
                self.phase = Phase::Listening(end);
                Do::Listen(!self.is_stalled)
            }
            Phase::Reporting { refusal, canary, then } => {
                let report = self.report(refusal.as_ref(), canary.as_ref());
                self.phase = Phase::Reporting { refusal, canary, then };
                Do::Write(report)
            }
            Phase::Waiting(rest) => {
                self.phase = Phase::Waiting(rest);
                Do::Wait(rest.until)
            }
            // The next step resumes.
            Phase::Deleting(_) | Phase::Leaving => Do::Decide,
        }
    }

    pub(crate) fn heard(&mut self, news: News<P>, now: Now) {
        match news {
            News::Rang { ready, failed } => self.rang(ready, &failed, now.timer),
            News::Turn(owners) => self.turn = Some(owners),
            News::Listed { pods, at, took } => {
                self.listed(&pods, at, took, now.timer);
                self.phase = Phase::Passing { proof: None, asked: Asked::Nothing };
            }
            News::OwnersRead { states, took } => self.owners_read(states, took, now.timer),
            News::DeploymentsRead { states, took } => self.deployments_read(states, took, now.timer),
            News::Confirmed(confirmed) => {
                self.is_intended = true;
                debug_assert!(matches!(self.phase, Phase::Passing { .. }), "the proof is of a list");
                if let Phase::Passing { proof, .. } = &mut self.phase {
                    *proof = Some(confirmed);
                }
            }
            News::WaveOver { is_whole } => {
                debug_assert!(matches!(self.phase, Phase::Deleting(_)), "a wave was under way");
                if let Phase::Deleting(pass) = std::mem::replace(&mut self.phase, Phase::Leaving) {
                    self.end_wave(pass, is_whole, now.server);
                }
            }
            News::Listening(is_listening) => match std::mem::replace(&mut self.phase, Phase::Leaving) {
                Phase::Listening(end) => self.end_pass(end, is_listening, now),
                // The watch has ended.
                Phase::Waiting(rest) => {
                    let delay = self.pace.backoff.after_failure();
                    let until = self.pace.after_pause(now.timer + delay).min(rest.until);
                    self.phase = Phase::Waiting(Rest { until, ..rest });
                }
                other => self.phase = other,
            },
            News::Written => {
                self.unwritten = None;
                debug_assert!(matches!(self.phase, Phase::Reporting { .. }), "a write was asked for");
                self.phase = match std::mem::replace(&mut self.phase, Phase::Leaving) {
                    Phase::Reporting { then: Some(rest), .. } => Phase::Waiting(rest),
                    _ => Phase::Leaving,
                }
            }
        }
    }

    /// Returns how the restart stands by the last known state of its pods.
    pub(crate) fn standing(&self) -> Standing<'_> {
        let (pods, at) = (self.pods.pods(), self.pods.at);
        let (targets, policy, owners, deployments) = (&self.targets, &self.policy, &self.owners, &self.deployments);
        let (undeleted, own_pod) = (&self.attempts.undeleted, self.own_pod.as_ref());
        let is_overdue = at >= self.deadline();
        let canary = self.begun.canary.as_ref().filter(|_| self.is_proving());
        let (since, seen_ready, failed) = (self.begun.started_at, &self.seen_ready, self.seen_failed.as_deref());
        let canary = canary.map(|canary| CanarySight { canary, since, seen_ready, failed });
        let unstartable = &self.unstartable;
        Sight { targets, policy, pods, at, owners, deployments, undeleted, unstartable, own_pod, canary, is_overdue }
            .standing()
    }

    /// Records what the watch has shown since the list. While the restart waits, another pass may follow earlier.
    fn rang(&mut self, ready: usize, failed: &[Arc<Pod>], now: Instant) {
        let newest = |machine: &Self| machine.seen_failed.as_ref().map(|pod| pod.uid.clone());
        let before = newest(self);
        failed.iter().for_each(|pod| self.record_sight(pod));
        let Phase::Waiting(Rest { until, needs, lag }) = self.phase else { return };
        if newest(self) != before || needs.is_some_and(|needs| ready >= needs) {
            let until = self.pace.after_pause(now + lag).min(until);
            self.phase = Phase::Waiting(Rest { until, needs: None, lag });
        }
    }

    /// The longest time that a pod must be ready before it counts as available.
    fn min_ready(&self) -> Duration {
        self.owners.values().map(|state| state.min_ready).fold(self.policy.min_ready, Duration::max)
    }

    /// A canary that bakes does not lack progress; one that never becomes available has not failed, but exceeds the
    /// deadline.
    fn deadline(&self) -> ServerTime {
        let bake = self.policy.canary.filter(|_| self.is_proving()).map_or(Duration::ZERO, |canary| canary.bake);
        let is_concerned =
            |pod: &&Arc<Pod>| pod.counts() && pod.controller.as_ref().is_some_and(|owner| self.targets.concerns(owner));
        let concerned = self.pods.pods().values().filter(is_concerned);
        self.advance.deadline(&self.policy, self.min_ready(), concerned).plus(bake)
    }

    /// Returns whether a failure to read an owner is no failure of the step. If owners count, every read must succeed.
    /// If not, an owner that may not be read is assumed to desire as many pods as it had at the start: the guess
    /// decides only when the restart is over, not what is deleted.
    pub(crate) fn tolerates(&self, failure: &Error) -> bool {
        !self.policy.counts_owners() && matches!(failure.cause, Cause::Forbidden(_))
    }

    /// Returns the owners with which the restart needs a turn that it does not have.
    fn lacks_turn(&self) -> Option<BTreeSet<Uid>> {
        if !self.policy.counts_owners() {
            return None;
        }
        let owners = self.targets.owners(self.pods.pods()).into_iter();
        // Pods without an owner are one group.
        let bare = self.targets.bare().map(|_| Uid::from(""));
        let owners: BTreeSet<Uid> = owners.map(|owner| owner.uid.clone()).chain(bare).collect();
        self.turn.as_ref().is_none_or(|turn| !turn.is_superset(&owners)).then_some(owners)
    }

    /// Returns the controllers of the pods that are replaced, once their owners have been read: the Deployment, for a
    /// ReplicaSet that has one.
    pub(crate) fn controllers(&self) -> BTreeSet<Arc<Owner>> {
        let concerned = self.owners.iter().filter(|(owner, _)| self.targets.concerns(owner));
        concerned.map(|(owner, state)| Arc::clone(state.controller.as_ref().unwrap_or(owner))).collect()
    }

    /// Returns, at the first deletion only, when the content was first read.
    pub(crate) fn first_deletion(&mut self) -> Option<ServerTime> {
        self.waits_since.take()
    }

    /// Returns the existing pods whose last deletion failed.
    pub(crate) fn undeleted(&self) -> Vec<&Pod> {
        let failed = self.pods.pods().values().filter(|pod| self.attempts.is_left(&pod.uid) && pod.gone_by.is_none());
        failed.map(|pod| &**pod).collect()
    }

    /// Stops the progress deadline until the restart goes on.
    pub(crate) fn hold(&mut self) {
        self.unwritten = None;
        self.advance.hold();
    }
}
