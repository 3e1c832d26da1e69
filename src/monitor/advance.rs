//! How a restart under way advances: whether it has come nearer to its end, and what a pass of it ends with.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{Progress, Situation};
use super::rollout::Move;
use super::spec::{DeletionPolicy, Policy};
use super::status::Begun;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Pod;
use crate::kube::{ServerTime, Uid};

/// How a restart has come along, as far as this process has seen it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advance {
    /// When this process took it up. What was held before does not count as standing still.
    taken_up: Option<ServerTime>,
    /// When it last came nearer to its end.
    nearer_at: ServerTime,
    /// The fewest old pods that are known of,
    least_remaining: usize,
    /// and the fewest old pods and missing new ones together that a pass has found.
    least_left: Option<usize>,
}

/// What a pass leaves behind.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// So many of the old pods were there when it began,
    pub remaining: usize,
    /// and so many are left that are not terminating.
    pub waiting: usize,
    /// What was to be done.
    pub next: &'a Move,
    /// How far that has come.
    pub progress: Progress,
    /// What was in its way.
    pub hindrance: Option<Hindrance<'a>>,
    /// The API server's time.
    pub now: ServerTime,
}

/// Why a wave has not deleted what it was to delete.
#[derive(Clone, Copy, Debug)]
pub struct Hindrance<'a> {
    /// What became of one of its requests.
    pub error: &'a Error,
    /// It was, as it should be, a PodDisruptionBudget that lets one go after the other.
    pub is_expected: bool,
}

/// What a pass ends with.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended<'a> {
    /// What is remembered of the restart.
    pub begun: Begun,
    /// What is said about it.
    pub situation: Situation<'a>,
    /// Nothing has moved for too long.
    pub is_stalled: bool,
    /// When it is worth another pass at the latest, whatever happens to the pods.
    pub until: Option<ServerTime>,
}

impl Ended<'_> {
    /// Whether nothing but time is in the way.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        matches!(self.situation, Situation::RestartInProgress(_))
    }
}

impl Advance {
    /// That of a restart as the status remembers it.
    #[must_use]
    pub fn of(begun: &Begun) -> Self {
        Self { taken_up: None, nearer_at: begun.last_progress_at, least_remaining: begun.remaining, least_left: None }
    }

    /// Something is done about it from now on, if nothing was.
    pub fn take_up(&mut self, now: ServerTime) {
        self.taken_up.get_or_insert(now);
    }

    /// Nothing is done about it for now. That does not count as standing still.
    pub fn hold(&mut self) {
        self.taken_up = None;
    }

    /// Takes note of a pass, which has deleted so many of so many old pods, when the owners lacked so many that are available. Whether it has come
    /// nearer to its end: a new pod that comes and goes is no progress.
    pub fn note(&mut self, deleted: usize, remaining: usize, lacking: usize, now: ServerTime) -> bool {
        let left = remaining + lacking;
        let is_less = self.least_left.is_some_and(|least| left < least);
        let is_nearer = deleted > 0 || remaining < self.least_remaining || is_less;
        if is_nearer {
            // Another API server's clock may be behind.
            self.nearer_at = self.nearer_at.max(now);
        }
        self.least_remaining = self.least_remaining.min(remaining);
        self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        is_nearer
    }

    /// When a restart without progress is overdue: that long after its last progress, and after the pods on their way out were given time to end.
    /// A pod that is ready has no progress to make for `minReadySeconds`.
    #[must_use]
    pub fn deadline(&self, policy: &Policy, pods: &BTreeMap<Uid, Arc<Pod>>) -> ServerTime {
        let last = self.taken_up.map_or(self.nearer_at, |taken_up| self.nearer_at.max(taken_up));
        let last = pods.values().filter_map(|pod| pod.gone_by).fold(last, ServerTime::max);
        last.plus(policy.progress_deadline + policy.min_ready)
    }

    /// What is remembered of the restart when `remaining` of its pods exist, and `waiting` of these are not terminating.
    #[must_use]
    pub fn record(&self, begun: Begun, remaining: usize, waiting: usize) -> Begun {
        let last_progress_at = begun.last_progress_at.max(self.nearer_at);
        Begun { last_progress_at, ..begun }.with_remaining(remaining, waiting)
    }

    /// What a pass ends with.
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
        // More than one budget for one pod is an internal error to the API server.
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

    /// Of 4 pods, which begins at 100.
    fn begun() -> Begun {
        Begun::new(server(100), "app=web".to_owned(), 4)
    }

    fn pods(gone_by: Option<i64>) -> BTreeMap<Uid, Arc<Pod>> {
        let pod = Pod { gone_by: gone_by.map(server), ..Pod::named("a") };
        BTreeMap::from([("a".into(), Arc::new(pod))])
    }

    #[test]
    fn the_time_that_pods_were_given_to_end_is_no_lack_of_progress() {
        let at = |gone_by| Advance::of(&begun()).deadline(&policy(""), &pods(gone_by));
        assert_eq!((at(None), at(Some(160)), at(Some(0))), (server(107), server(167), server(107)));
    }

    #[test]
    fn what_was_held_has_not_stood_still() {
        let mut advance = Advance::of(&begun());
        advance.take_up(server(200));
        advance.take_up(server(300));
        assert_eq!(advance.deadline(&policy(""), &pods(None)), server(207));
        advance.hold();
        advance.take_up(server(300));
        assert_eq!(advance.deadline(&policy(""), &pods(None)), server(307));
    }

    #[test]
    fn it_comes_nearer_by_a_deletion_by_an_old_pod_that_is_gone_and_by_new_ones_but_not_by_one_that_comes_and_goes() {
        let mut advance = Advance::of(&begun().with_remaining(3, 3));
        let passes = [(0, 3, 1), (1, 3, 1), (0, 2, 2), (0, 2, 2), (0, 3, 0), (0, 3, 1), (0, 3, 0), (0, 2, 0)];
        let mut note = |at, (deleted, remaining, lacking)| advance.note(deleted, remaining, lacking, server(at));
        let nearer: Vec<bool> = (101..).zip(passes).map(|(at, pass)| note(at, pass)).collect();
        assert_eq!(nearer, [false, true, true, false, true, false, false, true]);
        assert_eq!(advance.nearer_at, server(108));
        assert!(advance.note(1, 2, 0, server(105)));
        assert_eq!(advance.nearer_at, server(108), "by the clock of another API server");
    }

    /// What a pass ends with at this second that has met with this.
    fn ended(policy: &Policy, second: i64, next: &Move, cause: Option<(&Cause, bool)>) -> (String, Option<ServerTime>) {
        let progress = Progress::new(&begun());
        let error = cause.map(|(cause, _)| Error { request: "x".to_owned(), cause: cause.clone() });
        let is_expected = cause.is_some_and(|(_, is_expected)| is_expected);
        let hindrance = error.as_ref().map(|error| Hindrance { error, is_expected });
        let found = Found { remaining: 1, waiting: 0, next, progress, hindrance, now: server(second) };
        let advance = Advance { nearer_at: server(101), ..Advance::of(&begun()) };
        let ended = advance.end(policy, begun(), server(107), found);
        let Begun { remaining, last_progress_at, .. } = ended.begun;
        assert_eq!((remaining, last_progress_at, ended.is_stalled), (1, server(101), second >= 107));
        let situation = format!("{:?}", ended.situation);
        (situation.split('(').next().unwrap_or_default().to_owned(), ended.until)
    }

    #[test]
    fn the_next_pass_comes_when_a_pod_has_had_its_time_or_the_deadline_has_passed_but_no_deadline_passes_twice() {
        let until = |second, next| ended(&policy(""), second, &next, None).1;
        assert_eq!(until(101, Move::Wait(Some(server(103)))), Some(server(103)));
        assert_eq!(until(101, Move::Wait(Some(server(110)))), Some(server(107)));
        assert_eq!(until(101, Move::Wait(None)), Some(server(107)));
        assert_eq!(until(107, Move::Wait(Some(server(110)))), Some(server(110)));
        assert_eq!(until(107, Move::Remove(Vec::new())), None);
    }

    #[test]
    fn what_was_in_the_way_is_said_by_what_somebody_can_do_about_it() {
        let said = |evict, second, cause: Option<(&Cause, bool)>| {
            let policy = policy(if evict { r#","deletionPolicy":"Evict""# } else { "" });
            ended(&policy, second, &Move::Wait(None), cause).0
        };
        let text = || "x".to_owned();
        let (blocked, refused, invalid) = (Cause::Blocked(text()), Cause::Refused(text()), Cause::Invalid(text()));
        let (forbidden, unreachable) = (Cause::Forbidden(text()), Cause::Unreachable(text()));
        assert_eq!(said(false, 101, None), "RestartInProgress");
        assert_eq!(said(true, 101, Some((&blocked, false))), "EvictionBlocked");
        assert_eq!(said(true, 101, Some((&blocked, true))), "RestartInProgress");
        assert_eq!(said(true, 101, Some((&refused, false))), "EvictionBlocked");
        assert_eq!(said(false, 101, Some((&refused, false))), "DeletionRefused");
        assert_eq!(said(true, 101, Some((&invalid, false))), "DeletionRefused");
        assert_eq!(said(false, 101, Some((&forbidden, false))), "Forbidden");
        assert_eq!(said(false, 101, Some((&unreachable, false))), "RestartInProgress");
        assert_eq!(said(false, 107, Some((&forbidden, false))), "ProgressDeadlineExceeded");
    }
}
