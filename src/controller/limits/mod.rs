//! The limits on concurrent work. [`Client`](crate::kube::client::Client) limits requests and deletions in flight.

mod turns;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

pub(crate) use self::turns::{Owners, Turn, Turns};

/// The maximum number of watches on pods in a namespace, and in the process. A restart without a watch lists its pods
/// periodically.
const POD_WATCHES_PER_NAMESPACE: usize = 32;
const POD_WATCHES: usize = 2 * POD_WATCHES_PER_NAMESPACE;

/// The maximum number of awake keepers in a namespace: the default of `--request-concurrency`. More keepers would only
/// hold what they have read while they wait for requests, and delay all deletions.
const SLOTS_PER_NAMESPACE: usize = 32;

/// The maximum number of awake keepers in the process. A busy namespace leaves slots to the others.
const SLOTS: usize = 2 * SLOTS_PER_NAMESPACE;

pub(crate) struct Limits {
    watches: Arc<Semaphore>,
    /// Cancelled once this process is the leader. Until then no keeper works.
    elected: CancellationToken,
    slots: Arc<Semaphore>,
}

pub(crate) struct NamespaceLimits {
    pub(crate) turns: Arc<Turns>,
    slots: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

/// The right of a keeper to be awake: a slot of the namespace, and one of the process.
pub(crate) type Slot = [OwnedSemaphorePermit; 2];

/// The right to have a watch on pods open, of the namespace and of the process.
pub(crate) type WatchPermit = [OwnedSemaphorePermit; 2];

impl Default for NamespaceLimits {
    fn default() -> Self {
        let [slots, watches] =
            [SLOTS_PER_NAMESPACE, POD_WATCHES_PER_NAMESPACE].map(|max| Arc::new(Semaphore::new(max)));
        Self { turns: Arc::default(), slots, watches }
    }
}

impl Limits {
    pub(crate) fn new(elected: CancellationToken) -> Self {
        Self { watches: Arc::new(Semaphore::new(POD_WATCHES)), elected, slots: Arc::new(Semaphore::new(SLOTS)) }
    }

    pub(crate) fn is_elected(&self) -> bool {
        self.elected.is_cancelled()
    }

    /// Waits until this process is the leader.
    pub(crate) async fn elected(&self) {
        self.elected.cancelled().await;
    }

    /// Ends the waiting for slots, because the operator stops.
    pub(crate) fn close(&self) {
        self.slots.close();
    }

    /// Waits for a slot of the namespace, and then of the process. Slots are given in the order of asking. Returns `None`
    /// when the operator stops.
    pub(crate) async fn acquire_slot(&self, namespace: &NamespaceLimits) -> Option<Slot> {
        let of_namespace = Arc::clone(&namespace.slots).acquire_owned().await.ok()?;
        let of_process = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        Some([of_namespace, of_process])
    }

    /// Returns `None` if there are too many watches.
    pub(crate) fn try_watch(&self, namespace: &NamespaceLimits) -> Option<WatchPermit> {
        let of_namespace = Arc::clone(&namespace.watches).try_acquire_owned().ok()?;
        Some([of_namespace, Arc::clone(&self.watches).try_acquire_owned().ok()?])
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
    async fn a_namespace_uses_its_own_slots_and_leaves_some_to_another() {
        let (limits, own, other) =
            (Limits::new(CancellationToken::new()), NamespaceLimits::default(), NamespaceLimits::default());
        let acquire = |own| unconstrained(limits.acquire_slot(own)).now_or_never().flatten();
        let all = |own| std::iter::from_fn(|| acquire(own)).collect::<Vec<_>>();
        let mut held = all(&own);
        assert_eq!(held.len(), SLOTS_PER_NAMESPACE);
        assert_eq!(all(&other).len(), SLOTS - SLOTS_PER_NAMESPACE, "another namespace has its own slots");
        held.pop();
        assert!(acquire(&own).is_some());
    }

    #[test]
    fn a_namespace_watches_pods_and_leaves_watches_to_another() {
        let limits = Limits::new(CancellationToken::new());
        let [own, other] = [NamespaceLimits::default(), NamespaceLimits::default()];
        let all = |of| std::iter::from_fn(|| limits.try_watch(of)).collect::<Vec<_>>();
        let (own, other) = (all(&own), all(&other));
        assert_eq!((own.len(), other.len()), (POD_WATCHES_PER_NAMESPACE, POD_WATCHES - POD_WATCHES_PER_NAMESPACE));
    }

    #[test]
    fn one_wave_leaves_a_few_deletion_permits_to_others() {
        assert_eq!([1, 3, 4, 16, 32].map(share_of_wave), [1, 3, 3, 15, 30]);
    }
}
