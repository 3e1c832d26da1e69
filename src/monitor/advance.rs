//! The progress of a restart: whether a pass has made any, and what the pass reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{Progress, Situation};
use super::rollout::Move;
use super::spec::{DeletionPolicy, Policy};
use super::status::Begun;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Pod;
use crate::kube::{ServerTime, Uid};

/// The progress of a restart, as far as this process has seen it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advance {
    /// When this process resumed the restart. Time on hold does not count towards the progress deadline.
    resumed_at: Option<ServerTime>,
    /// When the restart last made progress.
    progressed_at: ServerTime,
    /// The fewest old pods seen so far.
    least_remaining: usize,
    /// The smallest sum of old pods and lacking new pods that a pass has found.
    least_left: Option<usize>,
}

/// What a pass found and did.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// How many old pods existed when the pass began.
    pub remaining: usize,
    /// How many of the old pods remain that are not terminating.
    pub waiting: usize,
    /// The move of this pass.
    pub next: &'a Move,
    /// How far the restart has come.
    pub progress: Progress,
    /// Why the wave did not delete all of its pods.
    pub hindrance: Option<Hindrance<'a>>,
    /// The API server's time.
    pub now: ServerTime,
}

/// The error that kept a wave from deleting its pods.
#[derive(Clone, Copy, Debug)]
pub struct Hindrance<'a> {
    /// The error of one of the requests.
    pub error: &'a Error,
    /// Whether the refusal is expected: a PodDisruptionBudget allows one eviction after the other.
    pub is_expected: bool,
}

/// What a pass reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended<'a> {
    /// The record of the restart for the status.
    pub begun: Begun,
    /// The situation to report.
    pub situation: Situation<'a>,
    /// Whether the progress deadline has passed.
    pub is_stalled: bool,
    /// When the next pass is due at the latest, whatever happens to the pods.
    pub until: Option<ServerTime>,
}

impl Advance {
    /// Returns the progress of a restart that the status records.
    #[must_use]
    pub fn of(begun: &Begun) -> Self {
        Self {
            resumed_at: None,
            progressed_at: begun.last_progress_at,
            least_remaining: begun.remaining,
            least_left: None,
        }
    }

    /// Starts the progress deadline, unless it runs already.
    pub fn take_up(&mut self, now: ServerTime) {
        self.resumed_at.get_or_insert(now);
    }

    /// Stops the progress deadline while the restart is on hold.
    pub fn hold(&mut self) {
        self.resumed_at = None;
    }

    /// Records a pass: how many pods it deleted, how many old pods remain, and how many available pods the owners lack.
    /// Returns whether the pass made progress. A new pod that comes and goes is no progress.
    pub fn note(&mut self, deleted: usize, remaining: usize, lacking: usize, now: ServerTime) -> bool {
        let left = remaining + lacking;
        let is_less = self.least_left.is_some_and(|least| left < least);
        let is_progress = deleted > 0 || remaining < self.least_remaining || is_less;
        if is_progress {
            // Another API server's clock may be behind.
            self.progressed_at = self.progressed_at.max(now);
        }
        self.least_remaining = self.least_remaining.min(remaining);
        self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        is_progress
    }

    /// Returns the progress deadline. It counts from the last progress, or from the end of the grace period of
    /// terminating pods if that is later. A ready pod makes no progress during `minReadySeconds`, so these are added.
    #[must_use]
    pub fn deadline(&self, policy: &Policy, pods: &BTreeMap<Uid, Arc<Pod>>) -> ServerTime {
        let last = self.resumed_at.map_or(self.progressed_at, |resumed_at| self.progressed_at.max(resumed_at));
        let last = pods.values().filter_map(|pod| pod.gone_by).fold(last, ServerTime::max);
        last.plus(policy.progress_deadline + policy.min_ready)
    }

    /// Returns the record of the restart when `remaining` of its pods exist and `waiting` of these are not terminating.
    #[must_use]
    pub fn record(&self, begun: Begun, remaining: usize, waiting: usize) -> Begun {
        let last_progress_at = begun.last_progress_at.max(self.progressed_at);
        Begun { last_progress_at, ..begun }.with_remaining(remaining, waiting)
    }

    /// Returns what a pass reports.
    #[must_use]
    pub fn end<'a>(&self, policy: &Policy, begun: Begun, deadline: ServerTime, found: Found<'a>) -> Ended<'a> {
        let Found { remaining, waiting, next, progress, hindrance, now } = found;
        let is_stalled = now >= deadline;
        let pods = match next {
            Move::Wait(until) => *until,
            Move::Remove(_) | Move::Canary(_) | Move::Done => None,
        };
        Ended {
            begun: self.record(begun, remaining, waiting),
            situation: situation(policy, progress, hindrance, is_stalled),
            is_stalled,
            until: pods.into_iter().chain((!is_stalled).then_some(deadline)).min(),
        }
    }
}

fn situation<'a>(
    policy: &Policy,
    progress: Progress,
    hindrance: Option<Hindrance<'a>>,
    is_stalled: bool,
) -> Situation<'a> {
    let Some(Hindrance { error, is_expected }) = hindrance else {
        return match is_stalled {
            true => Situation::ProgressDeadlineExceeded(progress, None),
            false => Situation::RestartInProgress(progress),
        };
    };
    match &error.cause {
        _ if is_stalled => Situation::ProgressDeadlineExceeded(progress, Some(error)),
        Cause::Forbidden(_) => Situation::Forbidden(error),
        _ if is_expected => Situation::RestartInProgress(progress),
        Cause::Blocked(_) => Situation::EvictionBlocked(progress, error),
        // The API server answers 500 to an eviction if two PodDisruptionBudgets select the pod.
        Cause::Refused(_) if policy.deletion_policy == DeletionPolicy::Evict => {
            Situation::EvictionBlocked(progress, error)
        }
        Cause::Refused(_) | Cause::Invalid(_) => Situation::DeletionRefused(progress, error),
        _ => Situation::RestartInProgress(progress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Action, PODS};
    use serde_json::value::RawValue;

    fn policy(more: &str) -> Policy {
        let spec = format!(
            r#"{{"configMap":"c","podSelector":{{"app":"web"}},"progressDeadlineSeconds":5,"minReadySeconds":2{more}}}"#
        );
        Policy::of(Some(&RawValue::from_string(spec).expect("JSON"))).expect("a policy")
    }

    fn server(second: i64) -> ServerTime {
        ServerTime::from_second(second)
    }

    /// A restart of 4 pods that began in second 100.
    fn begun() -> Begun {
        Begun::new(server(100), "app=web".to_owned(), 4)
    }

    fn pods(gone_by: Option<i64>) -> BTreeMap<Uid, Arc<Pod>> {
        let pod = Pod { gone_by: gone_by.map(server), ..Pod::named("a") };
        BTreeMap::from([("a".into(), Arc::new(pod))])
    }

    #[test]
    fn the_deadline_counts_from_the_end_of_the_grace_period_of_terminating_pods() {
        let at = |gone_by| Advance::of(&begun()).deadline(&policy(""), &pods(gone_by));
        assert_eq!((at(None), at(Some(160)), at(Some(0))), (server(107), server(167), server(107)));
    }

    #[test]
    fn time_on_hold_does_not_count_towards_the_deadline() {
        let mut advance = Advance::of(&begun());
        advance.take_up(server(200));
        advance.take_up(server(300));
        assert_eq!(advance.deadline(&policy(""), &pods(None)), server(207));
        advance.hold();
        advance.take_up(server(300));
        assert_eq!(advance.deadline(&policy(""), &pods(None)), server(307));
    }

    #[test]
    fn deletions_gone_old_pods_and_available_new_pods_are_progress_but_not_a_new_pod_that_comes_and_goes() {
        let mut advance = Advance::of(&begun().with_remaining(3, 3));
        let passes = [(0, 3, 1), (1, 3, 1), (0, 2, 2), (0, 2, 2), (0, 3, 0), (0, 3, 1), (0, 3, 0), (0, 2, 0)];
        let mut note = |at, (deleted, remaining, lacking)| advance.note(deleted, remaining, lacking, server(at));
        let progress: Vec<bool> = (101..).zip(passes).map(|(at, pass)| note(at, pass)).collect();
        assert_eq!(progress, [false, true, true, false, true, false, false, true]);
        assert_eq!(advance.progressed_at, server(108));
        assert!(advance.note(1, 2, 0, server(105)));
        assert_eq!(advance.progressed_at, server(108), "by the clock of another API server");
    }

    /// Returns the situation that a pass reports in this second after this error, and when the next pass is due.
    fn ended(policy: &Policy, second: i64, next: &Move, cause: Option<(&Cause, bool)>) -> (String, Option<ServerTime>) {
        let progress = Progress::new(&begun());
        let error = cause.map(|(cause, _)| Action::new("list", PODS).failed(cause.clone()));
        let is_expected = cause.is_some_and(|(_, is_expected)| is_expected);
        let hindrance = error.as_ref().map(|error| Hindrance { error, is_expected });
        let found = Found { remaining: 1, waiting: 0, next, progress, hindrance, now: server(second) };
        let advance = Advance { progressed_at: server(101), ..Advance::of(&begun()) };
        let ended = advance.end(policy, begun(), server(107), found);
        let Begun { remaining, last_progress_at, .. } = ended.begun;
        assert_eq!((remaining, last_progress_at, ended.is_stalled), (1, server(101), second >= 107));
        let situation = format!("{:?}", ended.situation);
        (situation.split('(').next().unwrap_or_default().to_owned(), ended.until)
    }

    #[test]
    fn the_next_pass_is_due_when_the_move_says_or_at_the_deadline_which_passes_once() {
        let until = |second, next| ended(&policy(""), second, &next, None).1;
        assert_eq!(until(101, Move::Wait(Some(server(103)))), Some(server(103)));
        assert_eq!(until(101, Move::Wait(Some(server(110)))), Some(server(107)));
        assert_eq!(until(101, Move::Wait(None)), Some(server(107)));
        assert_eq!(until(107, Move::Wait(Some(server(110)))), Some(server(110)));
        assert_eq!(until(107, Move::Remove(Vec::new())), None);
    }

    #[test]
    fn a_pass_reports_what_a_user_can_do_about_its_error() {
        let situation_of = |evict, second, cause: Option<(&Cause, bool)>| {
            let policy = policy(if evict { r#","deletionPolicy":"Evict""# } else { "" });
            ended(&policy, second, &Move::Wait(None), cause).0
        };
        let text = || "x".to_owned();
        let (blocked, refused, invalid) = (Cause::Blocked(text()), Cause::Refused(text()), Cause::Invalid(text()));
        let (forbidden, unreachable) = (Cause::Forbidden(text()), Cause::Unreachable(text()));
        assert_eq!(situation_of(false, 101, None), "RestartInProgress");
        assert_eq!(situation_of(true, 101, Some((&blocked, false))), "EvictionBlocked");
        assert_eq!(situation_of(true, 101, Some((&blocked, true))), "RestartInProgress");
        assert_eq!(situation_of(true, 101, Some((&refused, false))), "EvictionBlocked");
        assert_eq!(situation_of(false, 101, Some((&refused, false))), "DeletionRefused");
        assert_eq!(situation_of(true, 101, Some((&invalid, false))), "DeletionRefused");
        assert_eq!(situation_of(false, 101, Some((&forbidden, false))), "Forbidden");
        assert_eq!(situation_of(false, 101, Some((&unreachable, false))), "RestartInProgress");
        assert_eq!(situation_of(false, 107, Some((&forbidden, false))), "ProgressDeadlineExceeded");
    }
}
