//! One pass: a look at the pods, and what comes of it.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use super::{Asked, Do, Machine, Pass, PassEnd, Phase, Rest};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Owner;
use crate::kube::{ServerTime, Uid};
use crate::monitor::pod::Pod;
use crate::monitor::restart::Now;
use crate::monitor::restart::progress::Refusal;
use crate::monitor::restart::standing::{Move, Standing};
use crate::monitor::restart::wave::{Attempt, Reply};
use crate::monitor::status::{Canary, CanaryState};

/// The delay of the write about the last wave, which would compete with the deletions of other restarts: 50 restarts
/// for one edit take 1.3 times as long as the floor in BENCHMARKS.md instead of 1.6.
const WRITE_DELAY: Duration = Duration::from_secs(1);

/// The time that the disruption controller takes to update a PodDisruptionBudget after a pod has become available.
const BUDGET_LAG: Duration = Duration::from_millis(500);

impl<P> Machine<P> {
    pub(super) fn rest(&mut self, now: Now) -> Do<P> {
        self.phase = Phase::Resting;
        if let Some((_, rest)) = self.unwritten.filter(|(write_at, _)| *write_at <= now.timer) {
            self.phase = Phase::Reporting { refusal: None, canary: None, then: Some(rest) };
            return self.next(now);
        }
        if let Some(until) = self.pace.not_before(now.timer) {
            return Do::Pause(self.unwritten.map_or(until, |(write_at, _)| write_at.min(until)));
        }
        match self.lacks_turn() {
            Some(owners) => Do::TakeTurn { owners, is_listed: false },
            None => Do::List,
        }
    }

    pub(super) fn pass(&mut self, proof: Option<P>, asked: Asked, now: Now) -> Do<P> {
        if proof.is_none()
            && let Some(owners) = self.lacks_turn()
        {
            // The pods have other owners now, and this list may not show the deletions of other turns with them.
            self.phase = Phase::Passing { proof, asked };
            return Do::TakeTurn { owners, is_listed: true };
        }
        if asked == Asked::Nothing {
            self.begin_pass(now.server);
            if self.needs_owners() {
                self.phase = Phase::Passing { proof, asked: Asked::Owners };
                return Do::ReadOwners(self.owners_to_read());
            }
        }
        if asked < Asked::Deployments {
            let deployments = self.deployments_to_read();
            if !deployments.is_empty() {
                self.phase = Phase::Passing { proof, asked: Asked::Deployments };
                return Do::ReadDeployments(deployments);
            }
        }
        // What cannot be read, or may not be done, is known before the restart begins.
        if !self.is_intended {
            self.phase = Phase::Passing { proof, asked: Asked::Deployments };
            return Do::Intend(self.begun.clone());
        }
        self.make_move(proof, now)
    }

    /// Makes the next move.
    fn make_move(&mut self, proof: Option<P>, now: Now) -> Do<P> {
        let Standing { next, remaining, lacking, on_their_way, terminating, .. } = self.standing();
        let is_moving = on_their_way > 0;
        let pass = Pass { wakes_at: None, remaining, lacking, is_moving, deleted: 0, needs_list: false };
        match (next, proof) {
            (Move::Done, _) => {
                debug_assert!(remaining == 0 && lacking == 0, "no old pod is left, and no owner lacks a pod");
                Do::Complete(self.over(terminating.len()))
            }
            (Move::Canary(state), _) => {
                self.is_stalled = false;
                if state == CanaryState::Passed {
                    // The deadline of the others does not count the time for which it baked.
                    self.advance.progressed(now.server);
                }
                self.phase = Phase::Reporting { refusal: None, canary: Some(state), then: None };
                self.next(now)
            }
            (Move::Replace { remove, hand_over }, Some(proof)) => self.begin_wave(pass, proof, &remove, &hand_over),
            (Move::Replace { .. }, None) => {
                self.phase = Phase::Passing { proof: None, asked: Asked::Deployments };
                Do::Confirm
            }
            (Move::Wait(wakes_at), _) => {
                self.conclude(Pass { wakes_at, ..pass }, None, true, now.server);
                self.next(now)
            }
        }
    }

    fn begin_wave(&mut self, pass: Pass, proof: P, remove: &[Uid], hand_over: &[(Uid, Arc<Owner>)]) -> Do<P> {
        let goes = || remove.iter().chain(hand_over.iter().map(|(uid, _)| uid));
        debug_assert!(self.is_intended, "the status has the restart");
        debug_assert!(goes().all(|uid| self.targets.old.contains(uid)), "only old pods go");
        debug_assert!(goes().all(|uid| self.pods.pods().contains_key(uid)), "a list has shown them");
        debug_assert!(goes().all(|uid| !self.unstartable.contains(uid)), "their successors could start");
        debug_assert!(self.lacks_turn().is_none(), "other restarts of their owners are excluded");
        debug_assert!(hand_over.is_empty() || self.policy.max_surge.is_some(), "pods may be handed over");
        let has_failed = |canary: &Canary| matches!(canary.state, CanaryState::Failed { .. });
        debug_assert!(!self.begun.canary.as_ref().is_some_and(has_failed), "no canary has failed");
        let attempt = |uid, to| self.pods.pods().get(uid).cloned().map(|pod| Attempt { pod, to });
        let removals = remove.iter().filter_map(|uid| attempt(uid, None));
        let others = hand_over.iter().filter_map(|(uid, to)| attempt(uid, Some(Arc::clone(to))));
        let attempts = removals.chain(others).collect();
        let wave = self.attempts.begin_wave(&self.policy, attempts);
        self.phase = Phase::Deleting(pass);
        Do::Remove(wave, proof)
    }

    /// Begins a pass. Deletions that an earlier process may have made count as deletions of this restart.
    fn begin_pass(&mut self, now: ServerTime) {
        self.advance.take_up(now);
        let (is_resumed, is_retargeted) = (take(&mut self.is_resumed), take(&mut self.is_retargeted));
        if is_retargeted && self.selects_as_at_the_start() {
            let remaining = self.standing().remaining;
            self.begun.pods = self.begun.pods.max(self.begun.deleted + remaining);
            let gone = self.begun.gone(remaining);
            self.begun.deleted = if is_resumed { self.begun.deleted.max(gone) } else { self.begun.deleted };
        }
        if self.is_stalled {
            self.targets.lower_expectations(self.pods.pods());
        }
    }

    /// Returns whether the next move depends on the owners' desired replicas.
    fn needs_owners(&self) -> bool {
        self.policy.counts_owners() || self.is_proving() || self.standing().remaining == 0
    }

    /// Records the reply for a pod. Returns whether the wave may send another deletion.
    pub(crate) fn replied(&mut self, pod: &Pod, reply: Reply) -> bool {
        debug_assert!(matches!(self.phase, Phase::Deleting(_)), "a wave is under way");
        let mut here = false;
        match &reply {
            Reply::Deleted { by, here: true } => {
                here = true;
                self.pods.record_deletion(&pod.uid, *by);
            }
            Reply::HandedOver(pod) => self.pods.record_handing_over(pod),
            Reply::Deleted { here: false, .. } | Reply::ReportedGone { .. } | Reply::Failed(_) => {}
        }
        self.begun.deleted += usize::from(here);
        let needs_list = self.attempts.answered(pod, reply);
        if let Phase::Deleting(pass) = &mut self.phase {
            pass.deleted += usize::from(here);
            pass.needs_list |= needs_list;
        }
        self.attempts.wave_goes_on()
    }

    pub(super) fn end_wave(&mut self, pass: Pass, is_whole: bool, now: ServerTime) {
        match self.attempts.end_wave() {
            // The keeper ends.
            Some(error) if error.cause == Cause::Stopped => self.phase = Phase::Leaving,
            refusal => self.conclude(pass, refusal, is_whole, now),
        }
    }

    fn conclude(&mut self, pass: Pass, refusal: Option<Error>, is_whole: bool, now: ServerTime) {
        let Pass { wakes_at, remaining, lacking, is_moving, deleted, needs_list } = pass;
        if self.advance.note(deleted, remaining, lacking, now) {
            self.pace.backoff.reset();
        }
        let (has_deleted, refusal) = (deleted > 0, refusal.or_else(|| self.surge_refusal.clone()));
        let is_cut_short = (!is_whole || needs_list) && refusal.is_none();
        if is_cut_short && !has_deleted {
            // A write would say that nothing is in the way, until the next list shows whether something is.
            self.phase = Phase::Leaving;
            return;
        }
        let refusal = refusal.map(|error| {
            let is_expected = matches!(error.cause, Cause::Blocked(_)) && (has_deleted || is_moving);
            Refusal { error, is_expected }
        });
        self.is_stalled = now >= self.deadline();
        self.phase = Phase::Listening(PassEnd { wakes_at, has_deleted, refusal, is_cut_short });
    }

    /// Ends a pass: what came of it is written, now or later, and the next pass is due some time after.
    pub(super) fn end_pass(&mut self, end: PassEnd, is_listening: bool, now: Now) {
        let PassEnd { wakes_at, has_deleted, refusal, is_cut_short } = end;
        let cause = refusal.as_ref().map(|refusal| &refusal.error.cause);
        let delay = self.pace.after_pass(cause, is_listening, now.timer);
        let deadline = (!self.is_stalled).then(|| self.deadline());
        let wakes_at = wakes_at.into_iter().chain(deadline).min().map(|at| now.timer_at(at));
        let Standing { remaining, lacking, .. } = self.standing();
        let until = self.pace.after_pause(wakes_at.into_iter().fold(now.timer + delay, Ord::min));
        let (needs, lag) = match cause {
            // Once no old pod is left, the last of their successors is what the restart waits for.
            None => (Some(if remaining > 0 { 1 } else { lacking.max(1) }), Duration::ZERO),
            Some(Cause::Blocked(_) | Cause::Refused(_)) => (Some(1), BUDGET_LAG),
            Some(_) => (None, Duration::ZERO),
        };
        let rest = Rest { until, needs, lag };
        // Every old pod is terminating, so the next write may be that the restart is over.
        let is_calm = !is_cut_short && refusal.is_none() && !self.is_stalled;
        if is_calm && self.policy.max_unavailable.is_none() && has_deleted && remaining == 0 {
            let write_at = now.timer + WRITE_DELAY;
            self.unwritten = Some((write_at, rest));
            self.phase = Phase::Waiting(Rest { until: until.min(write_at), ..rest });
        } else {
            self.unwritten = None;
            let then = (!is_cut_short).then_some(rest);
            self.phase = Phase::Reporting { refusal, canary: None, then };
        }
    }
}
