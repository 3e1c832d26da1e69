//! A wave of a restart: the deletions that are sent before anything else is decided, and what became of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::sight::Undeleted;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Owner;
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::pod::Pod;
use crate::monitor::spec::{DeletionPolicy, Policy};

/// A wave ends when this many pods were refused: the others would be refused as well.
const MAX_REFUSALS: usize = 3;

/// Requests, of which those of a row are sent one after the other.
pub(crate) struct Wave {
    /// The deletions, then the handovers, once all deletions are answered: the surge task counts the pods that are
    /// left.
    pub(crate) rows: [Vec<Vec<Attempt>>; 2],
    /// The most deletions at a time.
    pub(crate) width: usize,
}

pub(crate) struct Attempt {
    pub(crate) pod: Arc<Pod>,
    /// To which Deployment the pod is handed over. `None`: it is deleted or evicted.
    pub(crate) to: Option<Arc<Owner>>,
}

/// What became of the deletion of a pod.
pub(crate) enum Reply {
    /// The pod is terminating. `here`: this restart has deleted it, not another ConfigMonitor's.
    Deleted {
        by: ServerTime,
        here: bool,
    },
    /// The pod is handed over, as this answer shows it.
    HandedOver(Pod),
    /// The API server says that the pod is gone, replaced or changed. The next list shows whether that is so.
    /// `about_version`: perhaps only that its version has changed.
    ReportedGone {
        about_version: bool,
        error: Error,
    },
    Failed(Error),
}

impl Wave {
    /// Deletes each pod in a row of its own. Evicts those of an owner one after the other: a PodDisruptionBudget is
    /// usually about one owner's pods, and concurrent evictions under one PodDisruptionBudget fail.
    fn new(policy: &Policy, attempts: Vec<Attempt>, width: usize) -> Self {
        let (removals, others): (Vec<_>, Vec<_>) = attempts.into_iter().partition(|attempt| attempt.to.is_none());
        let removals: Vec<Vec<Attempt>> = match policy.deletion_policy {
            DeletionPolicy::Delete => removals.into_iter().map(|attempt| vec![attempt]).collect(),
            DeletionPolicy::Evict => {
                let mut rows: BTreeMap<Option<Arc<Owner>>, Vec<Attempt>> = BTreeMap::new();
                for attempt in removals {
                    rows.entry(attempt.pod.controller.clone()).or_default().push(attempt);
                }
                rows.into_values().collect()
            }
        };
        Self { rows: [removals, others.into_iter().map(|attempt| vec![attempt]).collect()], width }
    }

    #[cfg(test)]
    pub(super) fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.rows.iter().flatten().flatten()
    }
}

impl Attempt {
    /// Returns whether the rest of the row is not sent: a ready pod was refused, or the failure is no refusal. The next
    /// pass begins with the remaining pods.
    pub(crate) fn ends_row(&self, reply: &Reply) -> bool {
        matches!(reply, Reply::Failed(error) if self.pod.may_serve() || !error.cause.is_refusal())
    }
}

/// The outcome of the deletions, for pods that still exist.
#[derive(Clone, Default)]
pub(crate) struct Attempts {
    /// The failures of the last wave, and the pods refused in earlier waves.
    pub(crate) undeleted: BTreeMap<Uid, Undeleted>,
    /// The pods for which the API server answered 404 or 409, and their version at that time. The next list shows
    /// whether they are gone.
    reported_gone: BTreeMap<Uid, ResourceVersion>,
    /// How many pods the wave under way was refused.
    refused: usize,
    /// Of these refusals, the one with the longest delay.
    worst: Option<Error>,
    /// Why a deletion of the last wave was refused.
    refusal: Option<Error>,
}

impl Attempts {
    pub(crate) fn retain(&mut self, is_there: impl Fn(&Uid) -> bool) {
        self.reported_gone.retain(|uid, _| is_there(uid));
        self.undeleted.retain(|uid, _| is_there(uid));
    }

    /// Drops the unanswered deletions that were carried out, which are those of pods that are not left, and returns
    /// their number.
    pub(crate) fn done_without_answer(&mut self, is_left: impl Fn(&Uid) -> bool) -> usize {
        let before = self.undeleted.len();
        self.undeleted.retain(|uid, undeleted| *undeleted != Undeleted::Unanswered || is_left(uid));
        before - self.undeleted.len()
    }

    /// Begins a wave. After a refusal, such as by a webhook that denies all deletions, its width is `MAX_REFUSALS`.
    pub(super) fn begin_wave(&mut self, policy: &Policy, attempts: Vec<Attempt>) -> Wave {
        self.undeleted.retain(|_, undeleted| *undeleted == Undeleted::Refused);
        (self.refused, self.worst) = (0, None);
        let is_refused = self.refusal.as_ref().is_some_and(|error| !matches!(error.cause, Cause::Blocked(_)));
        Wave::new(policy, attempts, if is_refused { MAX_REFUSALS } else { usize::MAX })
    }

    /// Records the answer for a pod of the wave. Returns whether a list must show what is true.
    pub(crate) fn answered(&mut self, pod: &Pod, reply: Reply) -> bool {
        let error = match reply {
            // One that another keeper has in flight may still fail. A list, or the watch, shows it.
            Reply::Deleted { here: false, .. } => return false,
            Reply::Deleted { .. } | Reply::HandedOver(_) => {
                self.undeleted.remove(&pod.uid);
                self.reported_gone.remove(&pod.uid);
                return false;
            }
            Reply::ReportedGone { about_version, .. } if self.believe_gone(pod, about_version) => return true,
            // A list has shown that the pod exists.
            Reply::ReportedGone { error: Error { action, cause }, .. } => {
                let cause = Cause::Refused(format!("{cause} (but the pod still exists)"));
                Error { action, cause }
            }
            Reply::Failed(error) => error,
        };
        // An unanswered deletion may still be carried out: no other pod goes before this one.
        let undeleted = if error.cause.is_refusal() { Undeleted::Refused } else { Undeleted::Unanswered };
        self.undeleted.insert(pod.uid.clone(), undeleted);
        self.refused += match error.cause {
            Cause::Busy(_) | Cause::Forbidden(_) => MAX_REFUSALS,
            // One owner's PodDisruptionBudget does not stop the others.
            Cause::Blocked(_) => 0,
            _ => 1,
        };
        // The text breaks ties, so that the report does not depend on chance.
        let rank = |error: &Error| (error.cause.delay(Duration::ZERO), Reverse(error.cause.to_string()));
        self.worst = self.worst.take().into_iter().chain([error]).max_by_key(rank);
        false
    }

    /// Returns whether an answer of 404 or 409 for this pod is believed, which it is the first time. If a later list
    /// still shows the pod, the next such answer is a refusal, unless it is about another version: an admission webhook
    /// may deny with 404 or 409.
    fn believe_gone(&mut self, pod: &Pod, about_version: bool) -> bool {
        let before = self.reported_gone.insert(pod.uid.clone(), pod.version.clone());
        let is_believed = before.is_none_or(|version| about_version && version != pod.version);
        if is_believed {
            self.undeleted.remove(&pod.uid);
        }
        is_believed
    }

    /// Returns whether the wave under way may send another deletion.
    pub(crate) fn wave_goes_on(&self) -> bool {
        self.refused < MAX_REFUSALS
    }

    /// Ends a wave. Returns its refusal, in the words of the last refusal if only the pod differs.
    pub(crate) fn end_wave(&mut self) -> Option<Error> {
        let worst = self.worst.take();
        let known = self.refusal.take().filter(|known| worst.as_ref().is_some_and(|new| new.is_like(known)));
        self.refusal = known.or(worst);
        self.refusal.clone()
    }

    /// Returns whether the last deletion of this pod failed.
    pub(crate) fn is_left(&self, pod: &Uid) -> bool {
        self.undeleted.contains_key(pod)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::kube::{Action, PODS, ServerTime};

    fn pod(name: &str, version: &str) -> Pod {
        Pod { version: version.into(), ..Pod::named(name) }
    }

    fn policy() -> Policy {
        let spec = r#"{"configMap":"c","podSelector":{"app":"web"}}"#.to_owned();
        Policy::of(Some(&RawValue::from_string(spec).expect("JSON"))).expect("a policy")
    }

    /// Begins a wave, and returns how many deletions it sends at a time.
    fn wave(attempts: &mut Attempts, pods: &[&str]) -> usize {
        let pods = pods.iter().map(|name| Attempt { pod: Arc::new(pod(name, "1")), to: None }).collect();
        attempts.begin_wave(&policy(), pods).width
    }

    fn refuse(attempts: &mut Attempts, name: &str, cause: Cause) {
        assert!(!attempts.answered(&pod(name, "1"), Reply::Failed(Action::on("delete", PODS, name).failed(cause))));
    }

    fn deleted(attempts: &mut Attempts, name: &str) {
        let by = ServerTime::from_second(100);
        assert!(!attempts.answered(&pod(name, "1"), Reply::Deleted { by, here: true }));
    }

    /// Returns whether the answer that a pod is gone is believed.
    fn gone(attempts: &mut Attempts, version: &str, about_version: bool) -> bool {
        let error = Action::on("delete", PODS, "a").failed(Cause::NotFound("x".to_owned()));
        attempts.answered(&pod("a", version), Reply::ReportedGone { about_version, error })
    }

    #[test]
    fn a_pod_that_an_earlier_wave_was_refused_goes_last() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a"]);
        refuse(&mut attempts, "a", Cause::Refused("x".to_owned()));
        wave(&mut attempts, &["b"]);
        deleted(&mut attempts, "b");
        assert_eq!(["a", "b", "c"].map(|name| attempts.is_left(&name.into())), [true, false, false]);
        assert_eq!(attempts.undeleted.get(&"a".into()), Some(&Undeleted::Refused));
    }

    #[test]
    fn unanswered_deletions_are_dropped_by_the_next_wave() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a", "b"]);
        refuse(&mut attempts, "b", Cause::Unreachable("x".to_owned()));
        assert_eq!(["a", "b"].map(|name| attempts.is_left(&name.into())), [false, true]);
        wave(&mut attempts, &["c"]);
        assert!(attempts.undeleted.is_empty());
    }

    #[test]
    fn an_answer_that_a_pod_is_gone_is_believed_once_and_about_its_version_after_each_change() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a"]);
        assert!(gone(&mut attempts, "1", false));
        assert!(!attempts.is_left(&"a".into()));
        assert!(!gone(&mut attempts, "2", false));
        assert!(!gone(&mut attempts, "2", true), "that version was believed before");
        assert!(gone(&mut attempts, "3", true));
        attempts.retain(|_| false);
        assert!(gone(&mut attempts, "3", false), "the pod was gone in between");
    }

    #[test]
    fn a_wave_ends_after_some_refusals_and_the_next_one_risks_no_more() {
        let mut attempts = Attempts::default();
        assert_eq!(wave(&mut attempts, &["a", "b", "c", "d"]), usize::MAX);
        refuse(&mut attempts, "a", Cause::Refused("x".to_owned()));
        refuse(&mut attempts, "b", Cause::Invalid("x".to_owned()));
        assert!(attempts.wave_goes_on());
        refuse(&mut attempts, "c", Cause::Refused("x".to_owned()));
        assert!(!attempts.wave_goes_on());
        assert!(attempts.end_wave().is_some());
        assert_eq!(wave(&mut attempts, &["a"]), MAX_REFUSALS);
        assert!(attempts.wave_goes_on());
        refuse(&mut attempts, "a", Cause::Forbidden("x".to_owned()));
        assert!(!attempts.wave_goes_on(), "all deletions would be refused");
    }

    #[test]
    fn a_disruption_budget_ends_no_wave_and_the_refusal_with_the_longest_delay_is_told() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a", "b", "c", "d"]);
        ["a", "b", "c", "d"].iter().for_each(|name| refuse(&mut attempts, name, Cause::Blocked("x".to_owned())));
        assert!(attempts.wave_goes_on());
        assert!(attempts.end_wave().is_some_and(|error| matches!(error.cause, Cause::Blocked(_))));
        let (short, long) = (Cause::Refused("x".to_owned()), Cause::Busy(Some(Duration::from_secs(9))));
        for (first, second) in [(&short, &long), (&long, &short)] {
            wave(&mut attempts, &["a", "b"]);
            refuse(&mut attempts, "a", first.clone());
            refuse(&mut attempts, "b", second.clone());
            assert_eq!(attempts.end_wave().map(|error| error.cause), Some(long.clone()));
        }
    }

    #[test]
    fn a_row_goes_on_after_a_deletion_and_after_the_refusal_of_an_unready_pod() {
        let ends = |ready: bool, reply: &Reply| {
            let ready_since = ready.then(|| ServerTime::from_second(90));
            let pod = Arc::new(Pod { ready_since, ..pod("a", "1") });
            Attempt { pod, to: None }.ends_row(reply)
        };
        let failed = |cause| Reply::Failed(Action::on("delete", PODS, "a").failed(cause));
        let (refused, lost) = (failed(Cause::Refused("x".to_owned())), failed(Cause::Unreachable("x".to_owned())));
        let deleted = Reply::Deleted { by: ServerTime::from_second(100), here: true };
        assert_eq!([&deleted, &refused, &lost].map(|reply| ends(true, reply)), [false, true, true]);
        assert_eq!([&deleted, &refused, &lost].map(|reply| ends(false, reply)), [false, false, true]);
    }

    #[test]
    fn a_refusal_keeps_its_words_if_only_the_pod_is_another_and_ends_with_a_wave_that_meets_none() {
        let mut attempts = Attempts::default();
        let mut refused = |name: &str| {
            wave(&mut attempts, &[name]);
            refuse(&mut attempts, name, Cause::Blocked("x".to_owned()));
            attempts.end_wave().map(|error| error.to_string())
        };
        let first = refused("a");
        assert_eq!(refused("b"), first);
        wave(&mut attempts, &["c"]);
        deleted(&mut attempts, "c");
        assert!(attempts.end_wave().is_none());
    }
}
