//! The limits on concurrent work. [`Client`](crate::kube::client::Client) limits requests and deletions in flight.

mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use self::turns::Turns;
pub(crate) use self::turns::{Owners, Turn};

/// The maximum number of watches on pods in the process. A restart without a watch lists its pods periodically.
const POD_WATCHES: usize = 64;

/// The maximum number of awake keepers in a namespace: the default of `--request-concurrency`. More keepers would only
/// hold what they have read while they wait for requests, and delay all deletions.
const SLOTS_PER_NAMESPACE: usize = 32;

/// The maximum number of awake keepers in the process. A busy namespace leaves slots to the others.
const SLOTS: usize = 2 * SLOTS_PER_NAMESPACE;

/// The maximum number of awake keepers until the first lists are complete: the first looks of 1,000 keepers would delay
/// these lists.
const SLOTS_BEFORE_SYNC: usize = 4;

/// The limits of the process.
pub(crate) struct Limits {
    /// The permits for watches on pods.
    pub(crate) watches: Arc<Semaphore>,
    /// Cancelled once this process is the leader. Until then no keeper is awake.
    elected: CancellationToken,
    slots: Arc<Semaphore>,
    /// The slots that are added once the first lists are complete.
    withheld_slots: AtomicUsize,
}

/// The limits of one namespace.
pub(crate) struct NamespaceLimits {
    /// The turns of its keepers with owners of pods.
    pub(crate) turns: Arc<Turns>,
    slots: Arc<Semaphore>,
}

/// The right of a keeper to be awake.
pub(crate) struct Slot {
    _of_process: OwnedSemaphorePermit,
    _of_namespace: OwnedSemaphorePermit,
}

impl Default for NamespaceLimits {
    fn default() -> Self {
        Self { turns: Arc::default(), slots: Arc::new(Semaphore::new(SLOTS_PER_NAMESPACE)) }
    }
}

impl Limits {
    /// Creates the limits of a process that is the leader once `elected` is cancelled.
    pub(crate) fn new(elected: CancellationToken) -> Self {
        Self {
            watches: Arc::new(Semaphore::new(POD_WATCHES)),
            elected,
            slots: Arc::new(Semaphore::new(SLOTS_BEFORE_SYNC)),
            withheld_slots: AtomicUsize::new(SLOTS - SLOTS_BEFORE_SYNC),
        }
    }

    /// Returns whether this process is the leader.
    pub(crate) fn is_elected(&self) -> bool {
        self.elected.is_cancelled()
    }

    /// Waits until this process is the leader, and for a slot of the namespace, and then of the process. Slots are
    /// given in the order of asking.
    pub(crate) async fn acquire_slot(&self, namespace: &NamespaceLimits) -> Option<Slot> {
        self.elected.cancelled().await;
        let of_namespace = Arc::clone(&namespace.slots).acquire_owned().await.ok()?;
        let of_process = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        Some(Slot { _of_process: of_process, _of_namespace: of_namespace })
    }

    /// Adds the slots that were withheld until the first lists are complete.
    pub(crate) fn release_withheld_slots(&self) {
        self.slots.add_permits(self.withheld_slots.swap(0, Ordering::Relaxed));
    }
}

/// Returns how many of the deletions that may be in flight one wave takes: all if there are fewer than 4, otherwise at
/// most 15/16, because each may hang for a minute and others wait.
pub(crate) fn share_of_wave(deletions: usize) -> usize {
    if deletions < 4 { deletions } else { deletions - deletions.div_ceil(16) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    #[tokio::test]
    async fn few_keepers_are_awake_until_the_first_lists_are_complete_and_then_all_slots_are_used() {
        let elected = CancellationToken::new();
        let (limits, own, other) =
            (Limits::new(elected.clone()), NamespaceLimits::default(), NamespaceLimits::default());
        let acquire = |own| unconstrained(limits.acquire_slot(own)).now_or_never().flatten();
        let all = |own| std::iter::from_fn(|| acquire(own)).collect::<Vec<_>>();
        assert!(acquire(&own).is_none(), "a standby has no slots");
        elected.cancel();
        let first = all(&own);
        assert_eq!(first.len(), SLOTS_BEFORE_SYNC);
        limits.release_withheld_slots();
        limits.release_withheld_slots();
        let then = all(&own);
        assert_eq!(first.len() + then.len(), SLOTS_PER_NAMESPACE);
        drop(first);
        assert!(acquire(&own).is_some());
        assert_eq!(all(&other).len(), SLOTS_PER_NAMESPACE, "another namespace has its own slots");
    }

    #[test]
    fn one_wave_leaves_a_few_deletion_permits_to_others() {
        assert_eq!([1, 3, 4, 16, 32].map(share_of_wave), [1, 3, 3, 15, 30]);
    }
}
