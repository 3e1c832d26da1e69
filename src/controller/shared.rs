//! What all keepers of the process share: the limits to what they do at the same time, and what one of them knows that spares another a request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lists::Lists;
use super::pool::Pool;
use super::sharing::Requests;
use super::sources::Sources;
use super::timer_now;
use super::turns::Turns;
use crate::kube::client::Client;
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::rollout::Listed;

/// At most so many watches on pods are open in the process. A restart beyond that lists now and then.
const POD_WATCHES: usize = 64;

/// At most so many keepers are awake at a time: as many as requests are let through, unless that is set otherwise. More would only wait for
/// each other, each with what it has read, and all of them would come to their deletions last.
const AWAKE: usize = 32;

/// At most so many until everything is known: a thousand first looks would hold up the lists that tell.
const AWAKE_AT_FIRST: usize = 4;

/// For so long it is known which pods were deleted. Lists made after that show it.
const DELETED_FOR: Duration = Duration::from_secs(60);

/// Lists of the identities of pods, each with its version.
type Identities = Requests<String, (ResourceVersion, Arc<Listed>)>;

/// What all keepers of the process share.
pub(super) struct Shared {
    /// The client of the process. What is asked for with it does not end with a keeper.
    pub(super) client: Client,
    /// The operator's own pod, which is never deleted.
    pub(super) own_pod: Option<Uid>,
    pub(super) watches: Arc<Semaphore>,
    pub(super) turns: Arc<Turns>,
    pub(super) sources: Arc<Sources>,
    pub(super) lists: Arc<Lists>,
    /// Lists of which only the identities are kept, by label selector.
    pub(super) identities: Arc<Identities>,
    /// The pods of all restarts.
    pub(super) pods: Pool,
    /// So many keepers may be awake at a time.
    awake: Arc<Semaphore>,
    /// So many more, once everything is known.
    asleep_at_first: AtomicUsize,
    deleted: Mutex<Deleted>,
}

/// The pods that were deleted lately: when, and until when each may take to end.
#[derive(Default)]
struct Deleted {
    ends: BTreeMap<Uid, (Instant, ServerTime)>,
    oldest_first: VecDeque<(Instant, Uid)>,
}

impl Shared {
    pub(super) fn new(client: Client, own_pod: Option<Uid>) -> Self {
        Self {
            client,
            own_pod,
            watches: Arc::new(Semaphore::new(POD_WATCHES)),
            turns: Arc::default(),
            sources: Arc::default(),
            lists: Arc::default(),
            identities: Arc::default(),
            pods: Pool::default(),
            awake: Arc::new(Semaphore::new(AWAKE_AT_FIRST)),
            asleep_at_first: AtomicUsize::new(AWAKE - AWAKE_AT_FIRST),
            deleted: Mutex::default(),
        }
    }

    /// The right to be awake, once there is room. Who asked first has it first.
    pub(super) async fn waken(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.awake).acquire_owned().await.ok()
    }

    /// From now on as many may be awake as there is room for.
    pub(super) fn all_may_be_awake(&self) {
        self.awake.add_permits(self.asleep_at_first.swap(0, Ordering::Relaxed));
    }

    /// By when a pod ends whose deletion somebody here has asked for since this time.
    pub(super) fn deleted_since(&self, pod: &Uid, since: Instant) -> Option<ServerTime> {
        let deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        deleted.ends.get(pod).filter(|(at, _)| *at >= since).map(|(_, by)| *by)
    }

    /// Takes note of a pod that is being deleted, and ends by this time.
    pub(super) fn deletes(&self, pod: &Uid, by: ServerTime) {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = timer_now();
        while let Some((at, uid)) = deleted.oldest_first.front()
            && now.saturating_duration_since(*at) > DELETED_FOR
        {
            let uid = uid.clone();
            deleted.ends.remove(&uid);
            deleted.oldest_first.pop_front();
        }
        deleted.ends.insert(pod.clone(), (now, by));
        deleted.oldest_first.push_back((now, pod.clone()));
    }

    /// A pod was not deleted after all.
    pub(super) fn has_not_deleted(&self, pod: &Uid) {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).ends.remove(pod);
    }
}
