//! Whether pods of the namespace are handed over, and the task that looks after them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::kube::error::Error;
use crate::kube::{Uid, lock};

/// Wakes the task of a namespace.
#[derive(Default)]
pub(crate) struct SurgeBell {
    pub(crate) bell: Notify,
    /// Stops the task, if there is one.
    task: Mutex<Option<CancellationToken>>,
    pub(crate) are_left: AtomicBool,
    /// Why the last look could not delete pods, or give them back.
    refusals: Mutex<BTreeMap<Uid, Error>>,
}

impl SurgeBell {
    /// Wakes the task after a change of a pod that is handed over. Returns a token that stops a new task, if there is
    /// none yet.
    pub(crate) fn ring(&self, of: &CancellationToken) -> Option<CancellationToken> {
        let mut task = lock(&self.task);
        if task.is_some() {
            self.bell.notify_one();
            return None;
        }
        Some(task.insert(of.child_token()).clone())
    }

    /// Returns why the last look could not delete pods, or give them back.
    pub(crate) fn refusals(&self) -> MutexGuard<'_, BTreeMap<Uid, Error>> {
        lock(&self.refusals)
    }

    /// Ends the task of this token, unless it was woken again.
    pub(crate) fn end(&self, stop: &CancellationToken) -> bool {
        if stop.is_cancelled() {
            // The namespace may have another one.
            return true;
        }
        let mut task = lock(&self.task);
        let is_over = unconstrained(self.bell.notified()).now_or_never().is_none();
        if is_over {
            *task = None;
        }
        is_over
    }

    /// The namespace has lost its label: nothing is changed there any more.
    pub(crate) fn leave_alone(&self) {
        if let Some(task) = lock(&self.task).take() {
            task.cancel();
        }
    }

    /// A ConfigMonitor has changed.
    pub(crate) fn ring_if_any(&self) {
        if self.are_left.load(Ordering::Relaxed) {
            self.bell.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_ends_unless_a_pod_has_come_and_then_the_next_pod_begins_another() {
        let (surge, operator) = (SurgeBell::default(), CancellationToken::new());
        let first = surge.ring(&operator).expect("a task");
        assert!(surge.ring(&operator).is_none() && !surge.end(&first));
        assert!(surge.end(&first));
        let second = surge.ring(&operator).expect("a task");
        surge.leave_alone();
        assert!(surge.ring(&operator).is_some() && surge.end(&second));
        assert!(surge.ring(&operator).is_none(), "the second one did not end the third");
    }
}
