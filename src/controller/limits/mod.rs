//! How much the operator does at a time, and who has to wait. The requests and the deletions under way are bounded where they are sent, by
//! [`Client`](crate::kube::client::Client); here is the rest.

mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use self::turns::Turns;
pub(crate) use self::turns::{Owners, Turn};

/// At most so many watches on pods are open in the process. A restart beyond that lists now and then.
const POD_WATCHES: usize = 64;

/// At most so many keepers are awake at a time: as many as requests are let through, unless that is set otherwise. More would only wait for
/// each other, each with what it has read, and all of them would come to their deletions last.
const AWAKE: usize = 32;

/// And so many in all namespaces together, so that those of one that has much to do leave room for another's.
const AWAKE_EVERYWHERE: usize = 2 * AWAKE;

/// At most so many until everything is known: a thousand first looks would hold up the lists that tell.
const AWAKE_AT_FIRST: usize = 4;

/// The limits of the process.
pub(crate) struct Limits {
    /// The watches on pods.
    pub(crate) watches: Arc<Semaphore>,
    /// Cancelled once this process is the leader. Until then no keeper is awake.
    elected: CancellationToken,
    awake: Arc<Semaphore>,
    /// So many more may be awake once everything is known.
    asleep_at_first: AtomicUsize,
}

/// The limits of the keepers of one namespace.
pub(crate) struct Own {
    /// Whose turn it is to take pods from which owners.
    pub(crate) turns: Arc<Turns>,
    awake: Arc<Semaphore>,
}

/// The right to be awake.
pub(crate) struct Awake {
    _everywhere: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Default for Own {
    fn default() -> Self {
        Self { turns: Arc::default(), awake: Arc::new(Semaphore::new(AWAKE)) }
    }
}

impl Limits {
    /// The limits of a process that is the leader once `elected` is cancelled.
    pub(crate) fn new(elected: CancellationToken) -> Self {
        Self {
            watches: Arc::new(Semaphore::new(POD_WATCHES)),
            elected,
            awake: Arc::new(Semaphore::new(AWAKE_AT_FIRST)),
            asleep_at_first: AtomicUsize::new(AWAKE_EVERYWHERE - AWAKE_AT_FIRST),
        }
    }

    /// Whether this process is the leader.
    pub(crate) fn is_elected(&self) -> bool {
        self.elected.is_cancelled()
    }

    /// The right to be awake, once this process is the leader and there is room among those of the namespace, and then among all. Who asked first has
    /// it first.
    pub(crate) async fn waken(&self, own: &Own) -> Option<Awake> {
        self.elected.cancelled().await;
        let own = Arc::clone(&own.awake).acquire_owned().await.ok()?;
        let everywhere = Arc::clone(&self.awake).acquire_owned().await.ok()?;
        Some(Awake { _everywhere: everywhere, _own: own })
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
    use tokio::task::unconstrained;

    #[tokio::test]
    async fn few_are_awake_until_everything_is_known_and_then_as_many_as_there_is_room_for() {
        let elected = CancellationToken::new();
        let (limits, own, other) = (Limits::new(elected.clone()), Own::default(), Own::default());
        let waken = |own| unconstrained(limits.waken(own)).now_or_never().flatten();
        let all = |own| std::iter::from_fn(|| waken(own)).collect::<Vec<_>>();
        assert!(waken(&own).is_none(), "none in a standby");
        elected.cancel();
        let first = all(&own);
        assert_eq!(first.len(), AWAKE_AT_FIRST);
        limits.all_may_be_awake();
        limits.all_may_be_awake();
        let then = all(&own);
        assert_eq!(first.len() + then.len(), AWAKE);
        drop(first);
        assert!(waken(&own).is_some());
        assert_eq!(all(&other).len(), AWAKE, "another namespace has room of its own");
    }

    #[test]
    fn one_wave_leaves_a_few_deletions_to_others() {
        assert_eq!([1, 3, 4, 16, 32].map(share_of_wave), [1, 3, 3, 15, 30]);
    }
}
