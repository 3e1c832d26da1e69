//! The tasks of the process: a keeper for each ConfigMonitor, and one for each namespace with pods that are handed over. Each
//! is started, stopped and joined here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use super::keeper::Keeper;
use super::latest::Latest;
use super::shared::Shared;
use super::surge_task;
use super::watching::{Instruction, Instructions};
use crate::kube::Uid;
use crate::kube::client::Client;
use crate::monitor::ConfigMonitor;

/// The time that keepers have to finish their requests when the operator stops.
///
/// The rest of the shutdown is quick, so that the operator exits within 5 s.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// The keepers, by the UID of their ConfigMonitor.
pub(super) struct Keepers {
    client: Client,
    /// Once a keeper has ended, its channel has no receiver.
    handles: BTreeMap<Uid, watch::Sender<Latest>>,
    pub(super) tasks: JoinSet<()>,
}

impl Keepers {
    pub(super) fn new(client: Client) -> Self {
        Self { client, handles: BTreeMap::new(), tasks: JoinSet::new() }
    }

    pub(super) fn apply(&mut self, Instructions { shared, changes }: Instructions) {
        if changes.iter().any(|change| matches!(change, Instruction::Stop(_))) {
            self.handles.retain(|_, handle| !handle.is_closed());
        }
        for change in changes {
            match change {
                Instruction::LookAfter => {
                    if let Some(stop) = shared.surge.ring(self.client.stop()) {
                        self.tasks.spawn(surge_task::run(Arc::clone(&shared), stop));
                    }
                }
                Instruction::Start(who, monitor, latest) => self.start(&shared, who, monitor, latest),
                Instruction::Notify(uid, latest) => {
                    if let Some(handle) = self.handles.get(&uid) {
                        handle.send_if_modified(|current| {
                            let changed = *current != latest;
                            *current = latest;
                            changed
                        });
                    }
                }
                Instruction::Stop(uid) => {
                    if let Some(handle) = self.handles.get(&uid) {
                        handle.send_modify(|latest| latest.is_stopped = true);
                    }
                }
            }
        }
    }

    fn start(
        &mut self,
        shared: &Arc<Shared>,
        (name, uid): (Arc<str>, Uid),
        monitor: Option<Box<ConfigMonitor>>,
        latest: Latest,
    ) {
        let (handle, receiver) = watch::channel(latest);
        // If the namespace has lost its label and got it back, the earlier keeper may have a DELETE in flight.
        let before = self.handles.insert(uid.clone(), handle);
        let keeper = Box::new(Keeper::of(Arc::clone(shared), (name, uid), monitor, receiver));
        self.tasks.spawn(async move {
            if let Some(before) = before {
                before.closed().await;
            }
            keeper.run().await;
        });
    }

    /// Waits until the keepers have finished their requests.
    pub(super) async fn shut_down(mut self) {
        // Dropping the senders ends the keepers that are idle.
        self.handles.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            warn!(keepers = self.tasks.len(), "requests still in flight; stopping anyway");
        }
    }
}
