//! The cluster in time: reading the state carries out everything that is due by then, and a change wakes the tasks that
//! wait for one.
//!
//! What the cluster does by itself is in `state.rs`.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::state::ClusterState;

/// The state, shared by all tasks.
pub struct Cluster {
    state: Mutex<ClusterState>,
    /// Notified of a change in a store or of a watch.
    pub changed: Notify,
    pub served: Notify,
    /// The beginning by both clocks.
    beginning: (Instant, u64),
    /// By how much the clock was set forward, in milliseconds.
    forward: AtomicU64,
}

/// A lock on the state. Dropping the guard reconciles what has changed, and wakes the tasks that wait for a change.
pub struct StateGuard<'a> {
    state: MutexGuard<'a, ClusterState>,
    changed: &'a Notify,
    revision: u64,
}

impl Cluster {
    pub fn new(state: ClusterState) -> Arc<Self> {
        let (changed, served, beginning) = (Notify::new(), Notify::new(), (Instant::now(), state.beginning));
        Arc::new(Self { state: Mutex::new(state), changed, served, beginning, forward: AtomicU64::new(0) })
    }

    pub fn state(&self) -> StateGuard<'_> {
        let mut state = self.state.lock().unwrap();
        let revision = state.revision;
        state.advance(self.now());
        StateGuard { state, changed: &self.changed, revision }
    }

    /// Returns the cluster's time in milliseconds.
    pub fn now(&self) -> u64 {
        let elapsed = u64::try_from(self.beginning.0.elapsed().as_millis()).unwrap();
        self.beginning.1 + elapsed + self.forward.load(Ordering::Relaxed)
    }

    /// Sets the clock forward.
    pub fn set_forward(&self, ms: u64) {
        self.forward.fetch_add(ms, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub(crate) fn instant(&self, ms: u64) -> Instant {
        let since = ms - self.beginning.1;
        self.beginning.0 + Duration::from_millis(since.saturating_sub(self.forward.load(Ordering::Relaxed)))
    }

    /// Carries out in time what the cluster does by itself.
    pub async fn live(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            let due = self.state().next_due();
            match due {
                Some(due) => {
                    let _ = tokio::time::timeout_at(self.instant(due), changed).await;
                }
                None => changed.await,
            }
        }
    }

    pub fn into_state(self: Arc<Self>) -> ClusterState {
        Arc::into_inner(self).expect("all tasks have ended").state.into_inner().unwrap()
    }
}

impl Deref for StateGuard<'_> {
    type Target = ClusterState;

    fn deref(&self) -> &ClusterState {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut ClusterState {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.state.settle();
        if self.state.revision != self.revision {
            self.changed.notify_waiters();
        }
    }
}
