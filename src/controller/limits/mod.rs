//! How much the operator does at a time, and who has to wait. The requests and the deletions under way are bounded where they are sent, by
//! [`Client`](crate::kube::client::Client); here is the rest.

mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::turns::Turns;
pub(crate) use self::turns::{Owners, Turn};

/// At most so many watches on pods are open in the process. A restart beyond that lists now and then.
const POD_WATCHES: usize = 64;

/// At most so many keepers are awake at a time: as many as requests are let through, unless that is set otherwise. More would only wait for
/// each other, each with what it has read, and all of them would come to their deletions last.
const AWAKE: usize = 32;

/// At most so many until everything is known: a thousand first looks would hold up the lists that tell.
const AWAKE_AT_FIRST: usize = 4;

/// The limits of the process.
pub(crate) struct Limits {
    /// Whose turn it is to take pods from which owners.
    pub(crate) turns: Arc<Turns>,
    /// The watches on pods.
    pub(crate) watches: Arc<Semaphore>,
    awake: Arc<Semaphore>,
    /// So many more may be awake once everything is known.
    asleep_at_first: AtomicUsize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: Arc::default(),
            watches: Arc::new(Semaphore::new(POD_WATCHES)),
            awake: Arc::new(Semaphore::new(AWAKE_AT_FIRST)),
            asleep_at_first: AtomicUsize::new(AWAKE - AWAKE_AT_FIRST),
        }
    }
}

impl Limits {
    /// The right to be awake, once there is room. Who asked first has it first.
    pub(crate) async fn waken(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.awake).acquire_owned().await.ok()
    }

    /// From now on as many may be awake as there is room for.
    pub(crate) fn all_may_be_awake(&self) {
        self.awake.add_permits(self.asleep_at_first.swap(0, Ordering::Relaxed));
    }
}

/// Returns how many of the deletions that may be in flight one wave takes: all if there are fewer than 4, otherwise at most 15/16, because each may
/// hang for a minute and others wait.
pub(crate) fn share_of_wave(deletions: usize) -> usize {
    if deletions < 4 { deletions } else { deletions - deletions.div_ceil(16) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn few_are_awake_until_everything_is_known_and_then_as_many_as_there_is_room_for() {
        let limits = Limits::default();
        let waken = || limits.waken().now_or_never().flatten();
        let first: Vec<_> = std::iter::from_fn(waken).collect();
        assert_eq!(first.len(), AWAKE_AT_FIRST);
        limits.all_may_be_awake();
        limits.all_may_be_awake();
        let then: Vec<_> = std::iter::from_fn(waken).collect();
        assert_eq!(first.len() + then.len(), AWAKE);
        drop(first);
        assert!(waken().is_some());
    }

    #[test]
    fn one_wave_leaves_a_few_deletions_to_others() {
        assert_eq!([1, 3, 4, 16, 32].map(share_of_wave), [1, 3, 3, 15, 30]);
    }
}
