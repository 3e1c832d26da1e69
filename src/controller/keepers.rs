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
    handles: BTreeMap<Uid, Handle>,
    /// The keepers that are to end. A new keeper for a ConfigMonitor of the same name waits for them.
    ending: Vec<Arc<Handle>>,
    pub(super) tasks: JoinSet<()>,
}

/// The keeper of the ConfigMonitor of this name. Once the keeper has ended, the channel has no receiver.
struct Handle {
    shared: Arc<Shared>,
    name: Arc<str>,
    latest: watch::Sender<Latest>,
}

impl Keepers {
    pub(super) fn new(client: Client) -> Self {
        Self { client, handles: BTreeMap::new(), ending: Vec::new(), tasks: JoinSet::new() }
    }

    pub(super) fn apply(&mut self, Instructions { shared, changes }: Instructions) {
        self.ending.retain(|before| !before.latest.is_closed());
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
                        handle.latest.send_if_modified(|current| {
                            let changed = *current != latest;
                            *current = latest;
                            changed
                        });
                    }
                }
                Instruction::Stop(uid) => {
                    if let Some(handle) = self.handles.remove(&uid) {
                        handle.latest.send_modify(|latest| latest.is_stopped = true);
                        self.ending.push(Arc::new(handle));
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
        let is_namesake = |before: &&Arc<Handle>| {
            before.name == name && before.shared.client.namespace() == shared.client.namespace()
        };
        let before: Vec<Arc<Handle>> = self.ending.iter().filter(is_namesake).cloned().collect();
        let (latest, receiver) = watch::channel(latest);
        let keeper = Box::new(Keeper::of(Arc::clone(shared), (name.clone(), uid.clone()), monitor, receiver));
        if before.is_empty() {
            self.tasks.spawn(keeper.run());
        } else {
            self.tasks.spawn(run_after(before, keeper));
        }
        self.handles.insert(uid, Handle { shared: Arc::clone(shared), name, latest });
    }

    /// Waits until the keepers have finished their requests.
    pub(super) async fn shut_down(mut self) {
        // Dropping the senders ends the keepers that are idle.
        self.handles.clear();
        self.ending.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            warn!(keepers = self.tasks.len(), "requests still in flight; stopping anyway");
        }
    }
}

/// Runs a keeper once those `before` have ended.
async fn run_after(before: Vec<Arc<Handle>>, keeper: Box<Keeper>) {
    let stopped = keeper.stopped();
    let ended = async {
        for other in before {
            other.latest.closed().await;
        }
    };
    tokio::select! {
        biased;
        () = stopped => return,
        () = ended => {}
    }
    keeper.run().await;
}
