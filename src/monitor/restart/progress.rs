//! The progress of a restart: whether a pass has made any, and what the pass reports.

use std::sync::Arc;
use std::time::Duration;

use super::budget::waits_for_termination;
use crate::kube::ServerTime;
use crate::kube::error::Error;
use crate::monitor::pod::Pod;
use crate::monitor::spec::Policy;
use crate::monitor::status::Begun;

/// The progress of a restart, as far as this process has seen it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Advance {
    /// When this process resumed the restart. Time on hold does not count towards the progress deadline.
    resumed_at: Option<ServerTime>,
    progressed_at: ServerTime,
    /// The fewest old pods seen so far.
    least_remaining: usize,
    /// The smallest sum of old pods and lacking new pods that a pass has found.
    least_left: Option<usize>,
}

/// The error that kept a wave from deleting its pods.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    /// A PodDisruptionBudget lets pods go one after the other, as intended: one has gone, or some are terminating.
    pub(crate) is_expected: bool,
}

impl Advance {
    pub(crate) fn of(begun: &Begun) -> Self {
        Self {
            resumed_at: None,
            progressed_at: begun.last_progress_at,
            least_remaining: begun.remaining,
            least_left: None,
        }
    }

    /// Starts the progress deadline, unless it runs already.
    pub(crate) fn take_up(&mut self, now: ServerTime) {
        self.resumed_at.get_or_insert(now);
    }

    /// Stops the progress deadline while the restart is on hold.
    pub(crate) fn hold(&mut self) {
        self.resumed_at = None;
    }

    /// Records a pass: how many pods it deleted, how many old pods remain, and how many available pods the owners lack.
    /// Returns whether the pass made progress. A new pod that comes and goes is no progress.
    pub(crate) fn note(&mut self, deleted: usize, remaining: usize, lacking: usize, now: ServerTime) -> bool {
        let left = remaining + lacking;
        let is_less = self.least_left.is_some_and(|least| left < least);
        let is_progress = deleted > 0 || remaining < self.least_remaining || is_less;
        if is_progress {
            self.progressed(now);
        }
        self.least_remaining = self.least_remaining.min(remaining);
        self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        is_progress
    }

    pub(crate) fn progressed(&mut self, now: ServerTime) {
        // Another API server's clock may be behind.
        self.progressed_at = self.progressed_at.max(now);
    }

    /// Counts from the last progress, or from the end of the grace period of terminating pods whose owners wait for
    /// that. Adds `minReadySeconds`, during which a ready pod makes no progress.
    pub(crate) fn deadline<'a>(
        &self,
        policy: &Policy,
        min_ready: Duration,
        concerned: impl Iterator<Item = &'a Arc<Pod>>,
    ) -> ServerTime {
        let last = self.resumed_at.map_or(self.progressed_at, |resumed_at| self.progressed_at.max(resumed_at));
        let waits = |pod: &&Arc<Pod>| pod.controller.as_deref().is_some_and(waits_for_termination);
        let last = concerned.filter(waits).filter_map(|pod| pod.gone_by).fold(last, ServerTime::max);
        last.plus(policy.progress_deadline + min_ready)
    }

    /// Returns the record of the restart when `remaining` of its pods are not terminating.
    pub(crate) fn record(&self, begun: Begun, remaining: usize) -> Begun {
        let last_progress_at = begun.last_progress_at.max(self.progressed_at);
        Begun { last_progress_at, ..begun }.with_remaining(remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::objects::Owner;
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
        Begun::new(1, server(100), "app=web".to_owned(), 4)
    }

    fn pod(kind: &str, gone_by: Option<i64>) -> Arc<Pod> {
        let (api_version, name) = ("apps/v1".to_owned(), "web".to_owned());
        let owner = Owner { api_version, kind: kind.to_owned(), name, uid: "u".into() };
        Arc::new(Pod { gone_by: gone_by.map(server), controller: Some(Arc::new(owner)), ..Pod::named("a") })
    }

    #[test]
    fn the_deadline_counts_from_the_end_of_the_grace_period_of_terminating_pods_whose_owners_wait_for_it() {
        let at = |kind, gone_by| {
            Advance::of(&begun()).deadline(&policy(""), Duration::from_secs(2), [pod(kind, gone_by)].iter())
        };
        let of_set = |gone_by| at("StatefulSet", gone_by);
        assert_eq!((of_set(None), of_set(Some(160)), of_set(Some(0))), (server(107), server(167), server(107)));
        assert_eq!(at("ReplicaSet", Some(3700)), server(107));
    }

    #[test]
    fn time_on_hold_does_not_count_towards_the_deadline() {
        let mut advance = Advance::of(&begun());
        advance.take_up(server(200));
        advance.take_up(server(300));
        assert_eq!(advance.deadline(&policy(""), Duration::from_secs(2), [].iter()), server(207));
        advance.hold();
        advance.take_up(server(300));
        assert_eq!(advance.deadline(&policy(""), Duration::from_secs(2), [].iter()), server(307));
    }

    #[test]
    fn deletions_gone_old_pods_and_available_new_pods_are_progress_but_not_a_new_pod_that_comes_and_goes() {
        let mut advance = Advance::of(&begun().with_remaining(3));
        let passes = [(0, 3, 1), (1, 3, 1), (0, 2, 2), (0, 2, 2), (0, 3, 0), (0, 3, 1), (0, 3, 0), (0, 2, 0)];
        let mut note = |at, (deleted, remaining, lacking)| advance.note(deleted, remaining, lacking, server(at));
        let progress: Vec<bool> = (101..).zip(passes).map(|(at, pass)| note(at, pass)).collect();
        assert_eq!(progress, [false, true, true, false, true, false, false, true]);
        assert_eq!(advance.progressed_at, server(108));
        assert!(advance.note(1, 2, 0, server(105)));
        assert_eq!(advance.progressed_at, server(108), "by the clock of another API server");
    }

    #[test]
    fn the_record_keeps_the_time_of_the_last_progress() {
        let advance = Advance { progressed_at: server(101), ..Advance::of(&begun()) };
        let Begun { remaining, last_progress_at, .. } = advance.record(begun(), 1);
        assert_eq!((remaining, last_progress_at), (1, server(101)));
    }
}
