//! What has become of the deletions of a restart.

use std::collections::{BTreeMap, BTreeSet};

use crate::kube::error::Cause;
use crate::kube::objects::Pod;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::rollout::Undeleted;

/// What has become of the deletions of a restart, as far as the pods are still there.
#[derive(Default)]
pub(super) struct Attempts {
    /// The pods that the last wave was to delete.
    last_wave: BTreeSet<Uid>,
    /// What has become of these, and of those that were refused before.
    undeleted: BTreeMap<Uid, Undeleted>,
    /// Pods that the API server has said to be gone, or to be others by now, as they were then. That it was so the next list shows.
    said_gone: BTreeMap<Uid, ResourceVersion>,
    /// The last wave was refused something: the next one begins with one pod.
    is_hindered: bool,
}

impl Attempts {
    /// Takes in which pods are there.
    pub(super) fn see(&mut self, is_there: impl Fn(&Uid) -> bool) {
        self.said_gone.retain(|uid, _| is_there(uid));
        self.undeleted.retain(|uid, _| is_there(uid));
    }

    /// Forgets the deletions that have had no answer and have taken place all the same, as these pods are left, and returns how many they were.
    pub(super) fn done_without_answer(&mut self, is_left: impl Fn(&Uid) -> bool) -> usize {
        let before = self.undeleted.len();
        self.undeleted.retain(|uid, undeleted| *undeleted != Undeleted::Unanswered || is_left(uid));
        before - self.undeleted.len()
    }

    /// A wave begins that is to delete these pods. Until each is deleted it has not been tried, or was refused before.
    pub(super) fn begin_wave<'a>(&mut self, pods: impl Iterator<Item = &'a Uid>) {
        self.undeleted.retain(|_, undeleted| *undeleted == Undeleted::Refused);
        self.last_wave = pods.cloned().collect();
        for pod in &self.last_wave {
            self.undeleted.entry(pod.clone()).or_insert(Undeleted::Untried);
        }
    }

    /// Whether the last wave was refused something.
    pub(super) fn is_hindered(&self) -> bool {
        self.is_hindered
    }

    /// A pod is deleted.
    pub(super) fn deleted(&mut self, pod: &Uid) {
        self.undeleted.remove(pod);
        self.said_gone.remove(pod);
    }

    /// Records an answer of 404 or 409 for this pod, and returns whether it is believed, which it is the first time. If a later list still shows the
    /// pod, the next such answer is a refusal, unless it is about another version: an admission webhook may deny with 404 or 409.
    pub(super) fn believe_gone(&mut self, pod: &Pod, is_about_version: bool) -> bool {
        let before = self.said_gone.insert(pod.uid.clone(), pod.version.clone());
        let is_believed = before.is_none_or(|version| is_about_version && version != pod.version);
        if is_believed {
            self.last_wave.remove(&pod.uid);
        }
        is_believed
    }

    /// A pod was not deleted. What has no answer may still be done: no other pod goes before it.
    pub(super) fn not_deleted(&mut self, pod: &Uid, why: &Cause) {
        let undeleted = if why.is_refusal() { Undeleted::Refused } else { Undeleted::Unanswered };
        self.undeleted.insert(pod.clone(), undeleted);
    }

    /// A wave has ended, after this refusal if there was one.
    pub(super) fn end_wave(&mut self, refusal: Option<&Cause>) {
        self.is_hindered = refusal.is_some_and(|cause| !matches!(cause, Cause::Blocked(_)));
    }

    /// Whether the last wave was to delete this pod, and has not. That alone is not worth a pass before its time.
    pub(super) fn has_failed(&self, pod: &Uid) -> bool {
        self.last_wave.contains(pod) && self.undeleted.contains_key(pod)
    }

    /// Whether this pod was not deleted when it was last tried.
    pub(super) fn is_left(&self, pod: &Uid) -> bool {
        self.has_failed(pod) || self.undeleted.get(pod) == Some(&Undeleted::Refused)
    }

    /// What has become of them.
    pub(super) fn undeleted(&self) -> &BTreeMap<Uid, Undeleted> {
        &self.undeleted
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

    /// It would wait for its turn once more, ten seconds or so.
    #[test]
    fn a_pod_that_was_refused_in_a_wave_before_the_last_is_worth_a_pass_and_goes_last() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a"]);
        attempts.not_deleted(&"a".into(), &Cause::Refused("x".to_owned()));
        assert!(attempts.has_failed(&"a".into()));
        wave(&mut attempts, &["b"]);
        attempts.deleted(&"b".into());
        assert!(!attempts.has_failed(&"a".into()));
        assert_eq!(attempts.undeleted().get(&"a".into()), Some(&Undeleted::Refused));
    }

    #[test]
    fn what_was_not_tried_or_not_answered_is_forgotten_with_the_next_wave() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a", "b"]);
        attempts.not_deleted(&"b".into(), &Cause::Unreachable("x".to_owned()));
        assert!(attempts.has_failed(&"a".into()) && attempts.has_failed(&"b".into()));
        wave(&mut attempts, &["c"]);
        assert_eq!(attempts.undeleted().len(), 1);
    }

    #[test]
    fn that_a_pod_is_gone_is_believed_once_and_of_another_version_as_often_as_it_changes() {
        let mut attempts = Attempts::default();
        wave(&mut attempts, &["a"]);
        assert!(attempts.believe_gone(&pod("a", "1"), false));
        assert!(!attempts.has_failed(&"a".into()));
        assert!(!attempts.believe_gone(&pod("a", "2"), false));
        assert!(!attempts.believe_gone(&pod("a", "2"), true), "that version is known");
        assert!(attempts.believe_gone(&pod("a", "3"), true));
        attempts.see(|_| false);
        assert!(attempts.believe_gone(&pod("a", "3"), false), "it had gone");
    }
}
