//! The recent deletions, so that no keeper deletes a pod that another keeper has just deleted.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::controller::clock::timer_now;
use crate::kube::{ServerTime, Uid, lock};

/// How long a deletion is recorded. Lists made later show it.
const RETENTION: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Deletions(Mutex<BTreeMap<Uid, RecentDeletion>>);

/// When the answer to a DELETE came, and by when the pod must be gone.
struct RecentDeletion {
    answered: Option<Instant>,
    by: ServerTime,
}

/// A DELETE in flight. Dropped when the answer comes, or when nobody waits for it any more.
pub(crate) struct PendingDeletion<'a> {
    deletions: &'a Deletions,
    pod: &'a Uid,
}

impl Deletions {
    /// Returns by when a pod is gone whose deletion may be missing from a list that began at `since`: the DELETE was
    /// answered later, or not yet.
    pub(crate) fn since(&self, pod: &Uid, since: Instant) -> Option<ServerTime> {
        let recent = lock(&self.0);
        let deletion = recent.get(pod)?;
        deletion.answered.is_none_or(|at| at >= since).then_some(deletion.by)
    }

    /// Records a DELETE that is about to be sent. The pod is gone by this time.
    pub(crate) fn add<'a>(&'a self, pod: &'a Uid, by: ServerTime) -> PendingDeletion<'a> {
        let mut recent = lock(&self.0);
        let now = timer_now();
        recent.retain(|_, deletion| deletion.answered.is_none_or(|at| now.saturating_duration_since(at) <= RETENTION));
        recent.insert(pod.clone(), RecentDeletion { answered: None, by });
        PendingDeletion { deletions: self, pod }
    }

    pub(crate) fn remove(&self, failed: PendingDeletion<'_>) {
        lock(&self.0).remove(failed.pod);
    }
}

impl Drop for PendingDeletion<'_> {
    fn drop(&mut self) {
        if let Some(deletion) = lock(&self.deletions.0).get_mut(self.pod) {
            deletion.answered = Some(timer_now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deletion_is_recorded_until_lists_show_it() {
        let deletions = Deletions::default();
        let (pod, by) = (Uid::from("a"), ServerTime::from_second(30));
        let before = timer_now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let asked = deletions.add(&pod, by);
        let later = timer_now() + Duration::from_secs(1);
        assert_eq!(deletions.since(&pod, later), Some(by), "the DELETE may be served after that list");
        drop(asked);
        assert_eq!(deletions.since(&pod, before), Some(by));
        assert_eq!(deletions.since(&pod, later), None, "that list shows the deletion");
        tokio::time::advance(RETENTION + Duration::from_secs(1)).await;
        let other = Uid::from("b");
        let failed = deletions.add(&other, by);
        assert_eq!((deletions.since(&pod, before), lock(&deletions.0).len()), (None, 1));
        deletions.remove(failed);
        assert_eq!(deletions.since(&other, before), None);
    }
}
