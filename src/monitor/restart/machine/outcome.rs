//! What is written about a restart, and how it ends.

use std::time::Duration;

use super::{Machine, Over, Report};
use crate::monitor::restart::progress::Refusal;
use crate::monitor::restart::standing::{Move, Standing};
use crate::monitor::status::{Begun, CanaryState};

impl<P> Machine<P> {
    pub(super) fn report(&self, refusal: Option<&Refusal>, canary: Option<&CanaryState>) -> Report {
        let standing = self.standing();
        let mut begun = self.recorded(self.begun.clone(), &standing);
        if let Some((known, state)) = begun.canary.as_mut().zip(canary) {
            known.state = state.clone();
        }
        Report { begun, refusal: refusal.cloned(), is_stalled: self.is_stalled }
    }

    /// Returns the record of a restart that may not go on, by the pods as last seen, if this process has deleted more
    /// than the status says. A process that has seen no pods has deleted none.
    pub(crate) fn unwritten_deletions(&self, begun: &Begun) -> Option<Begun> {
        let are_more = self.number() == begun.number && self.deleted() > begun.deleted;
        are_more.then(|| self.recorded(begun.clone(), &self.standing()))
    }

    fn recorded(&self, begun: Begun, standing: &Standing<'_>) -> Begun {
        let begun = Begun { deleted: self.begun.deleted, handed_over: standing.handed_over.len(), ..begun };
        self.advance.record(begun, standing.remaining)
    }

    /// Returns whether the pods are selected as when the restart began.
    pub(super) fn selects_as_at_the_start(&self) -> bool {
        self.begun.pod_selector == self.policy.selector.to_query()
    }

    /// Returns how the restart ends. It skipped the pods that were exempt when it began, or have become so since. After an
    /// edit of the selector nobody knows about the pods that are not selected any more, so only the deleted ones count.
    pub(super) fn over(&self, terminating: usize) -> Over {
        let begun = self.begun.clone();
        let left = self.targets.left_alone(&self.policy, self.pods.pods(), self.own_pod.as_ref());
        let planned = if self.selects_as_at_the_start() { begun.pods } else { begun.deleted };
        let pods = planned.saturating_sub(left.len()).max(begun.deleted);
        let skipped = self.targets.skipped.iter().cloned().chain(left).collect();
        Over { begun: Begun { pods, ..begun }, skipped, terminating, selected: self.pods.pods().len() }
    }

    /// Returns whether a restart whose canary has failed may be over: somebody else has replaced all other pods, and
    /// all new pods have been ready for the bake time. If all pods were canaries, no new pod may have failed.
    pub(crate) fn may_be_over(&self) -> bool {
        let bake = self.policy.canary.map_or(Duration::ZERO, |canary| canary.bake);
        let has_baked = |since| bake.is_zero() || self.pods.at.since(since) > bake;
        let mut new = self.pods.pods().values().filter(|pod| pod.is_present() && self.targets.is_successor(pod));
        let had_others = self.begun.canary.as_ref().is_some_and(|canary| canary.pods < self.begun.pods);
        self.standing().remaining == 0
            && self.selects_as_at_the_start()
            && new.all(|pod| pod.ready_from().is_some_and(has_baked) && (had_others || pod.crash.is_none()))
    }

    /// Returns how a restart whose canary has failed ends, once its owners have been read, if it does.
    pub(crate) fn over_without_canary(&self) -> Option<Over> {
        let Standing { next, terminating, .. } = self.standing();
        (next == Move::Done).then(|| self.over(terminating.len()))
    }
}
