//! The outcome of the deletions of a restart.

use std::collections::{BTreeMap, BTreeSet};

use super::standing::Undeleted;
use crate::kube::error::Cause;
use crate::kube::objects::Pod;
use crate::kube::{ResourceVersion, Uid};

/// The outcome of the deletions, for pods that still exist.
#[derive(Default)]
pub(crate) struct Attempts {
    last_wave: BTreeSet<Uid>,
    /// The outcome for pods of the last wave, and for pods refused in earlier waves.
    pub(crate) undeleted: BTreeMap<Uid, Undeleted>,
    /// The pods for which the API server answered 404 or 409, and their version at that time. The next list shows
    /// whether they are gone.
    reported_gone: BTreeMap<Uid, ResourceVersion>,
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

    /// A pod of the wave counts as untried until it is deleted, unless an earlier wave was refused for it.
    pub(crate) fn begin_wave<'a>(&mut self, pods: impl Iterator<Item = &'a Uid>) {
        self.undeleted.retain(|_, undeleted| *undeleted == Undeleted::Refused);
        self.last_wave = pods.cloned().collect();
        for pod in &self.last_wave {
            self.undeleted.entry(pod.clone()).or_insert(Undeleted::Untried);
        }
    }

    pub(crate) fn deleted(&mut self, pod: &Uid) {
        self.undeleted.remove(pod);
        self.reported_gone.remove(pod);
    }

    /// Records an answer of 404 or 409 for this pod, and returns whether it is believed, which it is the first time. If
    /// a later list still shows the pod, the next such answer is a refusal, unless it is about another version: an
    /// admission webhook may deny with 404 or 409.
    pub(crate) fn believe_gone(&mut self, pod: &Pod, is_about_version: bool) -> bool {
        let before = self.reported_gone.insert(pod.uid.clone(), pod.version.clone());
        let is_believed = before.is_none_or(|version| is_about_version && version != pod.version);
        if is_believed {
            self.last_wave.remove(&pod.uid);
        }
        is_believed
    }

    /// Records that a pod was not deleted. An unanswered deletion may still be carried out: no other pod goes before
    /// this one.
    pub(crate) fn not_deleted(&mut self, pod: &Uid, why: &Cause) {
        let undeleted = if why.is_refusal() { Undeleted::Refused } else { Undeleted::Unanswered };
        self.undeleted.insert(pod.clone(), undeleted);
    }

    /// Returns whether the last wave was to delete this pod and has not. Such a pod alone is not worth an early pass.
    pub(crate) fn has_failed(&self, pod: &Uid) -> bool {
        self.last_wave.contains(pod) && self.undeleted.contains_key(pod)
    }

    /// Returns whether the last deletion of this pod failed.
    pub(crate) fn is_left(&self, pod: &Uid) -> bool {
        self.has_failed(pod) || self.undeleted.get(pod) == Some(&Undeleted::Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, version: &str) -> Pod {
        Pod { version: version.into(), ..Pod::named(name) }
    }

    fn wave(attempts: &mut Attempts, pods: &[&str]) {
        let pods: Vec<Uid> = pods.iter().map(|pod| Uid::from(*pod)).collect();
        attempts.begin_wave(pods.iter());
    }

    /// Otherwise the pod would wait for the next scheduled pass, about 10 s.
    #[test]
    fn a_pod_that_an_earlier_wave_was_refused_is_worth_a_pass_and_goes_last() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a"]);
        attempts.not_deleted(&"a".into(), &Cause::Refused("x".to_owned()));
        assert!(attempts.has_failed(&"a".into()));
        wave(&mut attempts, &["b"]);
        attempts.deleted(&"b".into());
        assert!(!attempts.has_failed(&"a".into()));
        assert_eq!(attempts.undeleted.get(&"a".into()), Some(&Undeleted::Refused));
    }

    #[test]
    fn untried_and_unanswered_deletions_are_dropped_by_the_next_wave() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a", "b"]);
        attempts.not_deleted(&"b".into(), &Cause::Unreachable("x".to_owned()));
        assert!(attempts.has_failed(&"a".into()) && attempts.has_failed(&"b".into()));
        wave(&mut attempts, &["c"]);
        assert_eq!(attempts.undeleted.len(), 1);
    }

    #[test]
    fn an_answer_that_a_pod_is_gone_is_believed_once_and_about_its_version_after_each_change() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a"]);
        assert!(attempts.believe_gone(&pod("a", "1"), false));
        assert!(!attempts.has_failed(&"a".into()));
        assert!(!attempts.believe_gone(&pod("a", "2"), false));
        assert!(!attempts.believe_gone(&pod("a", "2"), true), "that version was believed before");
        assert!(attempts.believe_gone(&pod("a", "3"), true));
        attempts.retain(|_| false);
        assert!(attempts.believe_gone(&pod("a", "3"), false), "the pod was gone in between");
    }
}
