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

#[derive(Default)]
struct Known {
    ends: BTreeMap<Uid, End>,
    oldest_first: VecDeque<(Instant, Uid)>,
}

/// When a deletion was asked for, when that was answered, and until when the pod may take to end.
struct End {
    asked: Instant,
    answered: Option<Instant>,
    by: ServerTime,
}

/// A deletion that was asked for. It is dropped when there is an answer, or when nobody waits for one any more.
pub(crate) struct Asked<'a> {
    deletions: &'a Deletions,
    pod: &'a Uid,
    at: Instant,
}

impl Deletions {
    /// By when a pod ends whose deletion a list that was begun at this time need not show: somebody here has asked for it since, or had no answer yet.
    pub(crate) fn since(&self, pod: &Uid, since: Instant) -> Option<ServerTime> {
        self.known().ends.get(pod).filter(|end| end.answered.is_none_or(|at| at >= since)).map(|end| end.by)
    }

    /// A deletion is asked for now. The pod ends by this time.
    pub(crate) fn add<'a>(&'a self, pod: &'a Uid, by: ServerTime) -> Asked<'a> {
        let mut known = self.known();
        let now = timer_now();
        let is_old = |at: Instant| now.saturating_duration_since(at) > KNOWN_FOR;
        while let Some((_, uid)) = known.oldest_first.pop_front_if(|(at, _)| is_old(*at)) {
            // It may have been asked for once more since.
            if known.ends.get(&uid).is_some_and(|end| is_old(end.asked)) {
                known.ends.remove(&uid);
            }
        }
        known.ends.insert(pod.clone(), End { asked: now, answered: None, by });
        known.oldest_first.push_back((now, pod.clone()));
        Asked { deletions: self, pod, at: now }
    }

    /// The pod was not deleted after all when that was asked for. Somebody else may have asked since.
    pub(crate) fn remove(&self, pod: &Uid, asked: Asked<'_>) {
        let mut known = self.known();
        if known.ends.get(pod).is_some_and(|end| end.asked == asked.at) {
            known.ends.remove(pod);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.deletions.known().ends.get_mut(self.pod).filter(|end| end.asked == self.at) {
            end.answered = Some(timer_now());
        }
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
        let asked = deletions.add(&pod, by);
        let later = timer_now() + Duration::from_secs(1);
        assert_eq!(deletions.since(&pod, later), Some(by), "it may be served after that list");
        drop(asked);
        assert_eq!(deletions.since(&pod, before), Some(by));
        assert_eq!(deletions.since(&pod, later), None, "that list shows it");
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
