//! The pods that were deleted lately, so that what one keeper has deleted no other one asks for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::controller::clock::timer_now;
use crate::kube::{ServerTime, Uid};

/// For so long it is known which pods were deleted. Lists made after that show it.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The pods that were deleted lately.
#[derive(Default)]
pub(crate) struct Deletions {
    known: Mutex<Known>,
}

/// When each was deleted, and until when it may take to end.
#[derive(Default)]
struct Known {
    ends: BTreeMap<Uid, (Instant, ServerTime)>,
    oldest_first: VecDeque<(Instant, Uid)>,
}

impl Deletions {
    /// By when a pod ends whose deletion somebody here has asked for since this time.
    pub(crate) fn since(&self, pod: &Uid, since: Instant) -> Option<ServerTime> {
        self.known().ends.get(pod).filter(|(at, _)| *at >= since).map(|(_, by)| *by)
    }

    /// A deletion is asked for now. The pod ends by this time.
    pub(crate) fn add(&self, pod: &Uid, by: ServerTime) -> Instant {
        let mut known = self.known();
        let now = timer_now();
        let is_old = |at: Instant| now.saturating_duration_since(at) > KNOWN_FOR;
        while let Some((_, uid)) = known.oldest_first.pop_front_if(|(at, _)| is_old(*at)) {
            // It may have been asked for once more since.
            if known.ends.get(&uid).is_some_and(|(at, _)| is_old(*at)) {
                known.ends.remove(&uid);
            }
        }
        known.ends.insert(pod.clone(), (now, by));
        known.oldest_first.push_back((now, pod.clone()));
        now
    }

    /// The pod was not deleted after all when that was asked for at this time. Somebody else may have asked since.
    pub(crate) fn remove(&self, pod: &Uid, asked: Instant) {
        let mut known = self.known();
        if known.ends.get(pod).is_some_and(|(at, _)| *at == asked) {
            known.ends.remove(pod);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_deleted_after_a_list_is_known_until_lists_show_it() {
        let deletions = Deletions::default();
        let (pod, by) = (Uid::from("a"), ServerTime::from_second(30));
        let before = timer_now();
        tokio::time::advance(Duration::from_secs(1)).await;
        deletions.add(&pod, by);
        assert_eq!(deletions.since(&pod, before), Some(by));
        assert_eq!(deletions.since(&pod, timer_now() + Duration::from_secs(1)), None, "that list shows it");
        tokio::time::advance(KNOWN_FOR + Duration::from_secs(1)).await;
        let other = Uid::from("b");
        let asked = deletions.add(&other, by);
        assert_eq!((deletions.since(&pod, before), deletions.known().oldest_first.len()), (None, 1));
        tokio::time::advance(Duration::from_secs(1)).await;
        let again = deletions.add(&other, by);
        deletions.remove(&other, asked);
        assert_eq!(deletions.since(&other, before), Some(by), "it was asked for once more");
        deletions.remove(&other, again);
        assert_eq!(deletions.since(&other, before), None);
    }
}
