//! The machinery: the watches feed the index, and the index feeds one keeper for each ConfigMonitor.
//!
//! Every task is started, ended and joined here.

mod clock;
mod context;
mod count;
mod duty;
mod goal;
mod index;
mod keeper;
mod limits;
mod memory;
mod reconcile;
mod requeue;
mod restart;
mod shared;
mod step;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::clock::timer_now;
use self::context::Context;
use self::goal::Goal;
use self::index::{Change, Index};
use self::keeper::Keeper;
use self::memory::Memory;
use self::shared::Shared;
use self::watches::{Reach, Scope, Told, Watches};
use crate::kube::Uid;
use crate::kube::backoff::Backoff;
use crate::kube::client::Client;
use crate::kube::watch::Event;
use crate::monitor::ConfigMonitor;
use crate::monitor::source::Kind;

/// So long keepers may take to finish their requests once the operator ends.
///
/// What comes after it is quick, so that the whole end takes no more than 5 s.
const GRACE: Duration = Duration::from_secs(4);

/// After this time the keepers do not wait any more until everything is known: it may take for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which of the two watches that are always open know everything there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// The watch on ConfigMonitors.
    pub config_monitors: bool,
    /// The watch on ConfigMaps.
    pub config_maps: bool,
    /// What the operator may not list or watch, and so does not know any more.
    pub refused: Refused,
}

/// Which of the two watches the API server refuses for lack of a right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The watch on ConfigMonitors.
    pub config_monitors: bool,
    /// The watch on ConfigMaps.
    pub config_maps: bool,
}

impl Synced {
    /// Whether everything there is is known.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self.config_monitors && self.config_maps
    }

    /// Takes note of what a watch tells. Whether that is news.
    fn hear(&mut self, scope: &Scope, told: &Told) -> bool {
        let (is_synced, is_refused) = match scope {
            Scope::ConfigMonitors => (&mut self.config_monitors, &mut self.refused.config_monitors),
            Scope::All(Kind::ConfigMap) => (&mut self.config_maps, &mut self.refused.config_maps),
            Scope::All(Kind::Secret) | Scope::One(_) => return false,
        };
        match told {
            Told::Monitor(Event::Synced) | Told::Source(Event::Synced) => !std::mem::replace(is_synced, true),
            Told::Refused(error) => std::mem::replace(is_refused, error.is_some()) != error.is_some(),
            Told::Monitor(_) | Told::Source(_) => false,
        }
    }
}

/// The keepers, by the identity of their ConfigMonitor.
struct Keepers {
    client: Client,
    shared: Arc<Shared>,
    handles: BTreeMap<Uid, Handle>,
    /// Keepers that have been told to end: a namesake waits for them.
    ending: BTreeMap<Id, Ending>,
    /// Those that have panicked.
    panics: BTreeMap<Uid, Backoff>,
    tasks: JoinSet<()>,
}

struct Handle {
    name: Arc<str>,
    goal: watch::Sender<Goal>,
    stop: CancellationToken,
    task: AbortHandle,
}

struct Ending {
    /// The name of the ConfigMonitor.
    name: Arc<str>,
    ended: CancellationToken,
}

/// Runs until the client is stopped. `synced` tells the admin server how far it is.
pub async fn run(client: Client, own_pod: Option<Uid>, synced: &watch::Sender<Synced>) {
    let mut watches = Watches::new(client.clone());
    let always = BTreeSet::from([Scope::ConfigMonitors, Scope::All(Kind::ConfigMap)]);
    watches.set(&always);
    let mut secrets = Reach::default();
    let mut patience = pin!(tokio::time::sleep(PATIENCE).fuse());
    let mut index = Index::default();
    let mut keepers = Keepers::new(client.clone(), Shared::new(client.clone(), own_pod));
    loop {
        let before = *synced.borrow();
        let ask_at = secrets.ask_at();
        let changes = tokio::select! {
            biased;
            () = client.stop().cancelled() => break,
            Some(ended) = keepers.tasks.join_next_with_id() => {
                keepers.joined(ended);
                continue;
            }
            () = &mut patience => {
                keepers.shared.limits.all_may_be_awake();
                continue;
            }
            () = sleep_until(ask_at) => {
                secrets = Reach::Asking;
                Vec::new()
            }
            (scope, told) = watches.next() => {
                synced.send_if_modified(|synced| synced.hear(&scope, &told));
                if scope == Scope::All(Kind::Secret) {
                    secrets.hear(&told, timer_now());
                }
                match told {
                    Told::Monitor(event) => index.monitor(event),
                    Told::Source(event) => index.source(&scope, event, timer_now()),
                    // Without the right to watch all of them, each is asked for.
                    Told::Refused(Some(error)) if matches!(scope, Scope::One(_)) => index.refused(&scope, &error, timer_now()),
                    Told::Refused(_) => Vec::new(),
                }
            }
        };
        watches.set(&always.iter().cloned().chain(secrets.scopes(index.secrets())).collect());
        if !before.is_complete() && synced.borrow().is_complete() {
            info!(config_monitors = index.len(), "synced");
            keepers.shared.limits.all_may_be_awake();
        }
        keepers.carry_out(changes);
    }
    keepers.end().await;
}

/// Waits until then, or for ever.
async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

impl Keepers {
    fn new(client: Client, shared: Shared) -> Self {
        let (handles, ending, panics) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { client, shared: Arc::new(shared), handles, ending, panics, tasks: JoinSet::new() }
    }

    fn carry_out(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Start(monitor, goal) => self.start(*monitor, goal),
                Change::Look(uid, goal) => {
                    if let Some(handle) = self.handles.get(&uid) {
                        handle.goal.send_if_modified(|current| {
                            let changed = *current != goal;
                            *current = goal;
                            changed
                        });
                    }
                }
                Change::Stop(uid) => {
                    if let Some(Handle { name, stop, task, .. }) = self.handles.remove(&uid) {
                        stop.cancel();
                        self.panics.remove(&uid);
                        if !task.is_finished() {
                            self.ending.insert(task.id(), Ending { name, ended: CancellationToken::new() });
                        }
                    }
                }
            }
        }
    }

    fn start(&mut self, monitor: ConfigMonitor, goal: Goal) {
        let (name, uid) = (monitor.metadata.name.clone(), monitor.metadata.uid.clone());
        let stop = self.client.stop().child_token();
        let (goal, receiver) = watch::channel(goal);
        let keeper = self.keeper(&name, &uid, &stop, receiver, Memory::of(monitor));
        let before = self.ending.values().filter(|ending| ending.name == name);
        let before: Vec<CancellationToken> = before.map(|ending| ending.ended.clone()).collect();
        let first = (!before.is_empty()).then(|| {
            let stop = stop.clone();
            async move {
                for ended in before {
                    stop.run_until_cancelled(ended.cancelled()).await;
                }
            }
            .boxed()
        });
        let task = self.spawn(keeper, first);
        self.handles.insert(uid, Handle { name, goal, stop, task });
    }

    fn keeper(
        &self,
        name: &Arc<str>,
        uid: &Uid,
        stop: &CancellationToken,
        goal: watch::Receiver<Goal>,
        memory: Memory,
    ) -> Keeper {
        let (client, shared) = (self.client.until(stop.clone()), Arc::clone(&self.shared));
        let context = Context { client, shared, name: Arc::clone(name), uid: uid.clone() };
        Keeper::new(context, memory, goal)
    }

    fn spawn(&mut self, keeper: Keeper, first: Option<BoxFuture<'static, ()>>) -> AbortHandle {
        let keeper = Box::new(keeper);
        self.tasks.spawn(async move {
            if let Some(first) = first {
                first.await;
            }
            keeper.run().await;
        })
    }

    /// Takes note of a task that has ended. A keeper that panicked is started anew, after a while, unless it was to end.
    fn joined(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        if let Some(Ending { ended, .. }) = self.ending.remove(&id) {
            ended.cancel();
        }
        let Err(failure) = ended else { return };
        let found = self.handles.iter_mut().find(|(_, handle)| handle.task.id() == id);
        let Some((uid, handle)) = found else { return };
        let delay = self.panics.entry(uid.clone()).or_default().after_failure(timer_now());
        error!(monitor = &*handle.name, %failure, "keeper failed; starting it anew");
        let (name, uid, stop, goal) = (handle.name.clone(), uid.clone(), handle.stop.clone(), handle.goal.subscribe());
        let keeper = self.keeper(&name, &uid, &stop, goal, Memory::default());
        let pause = async move {
            stop.run_until_cancelled(tokio::time::sleep(delay)).await;
        };
        let task = self.spawn(keeper, Some(pause.boxed()));
        if let Some(handle) = self.handles.get_mut(&uid) {
            handle.task = task;
        }
    }

    /// Waits for the keepers to finish what they have begun.
    async fn end(mut self) {
        // Those at rest end as nobody sets them a goal.
        self.handles.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all).await.is_err() {
            warn!(keepers = self.tasks.len(), "requests are not finished; ending all the same");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_known_once_both_watches_know_it() {
        let refused = Refused::default();
        let is_complete = |config_monitors, config_maps| Synced { config_monitors, config_maps, refused }.is_complete();
        assert_eq!(
            [(false, false), (true, false), (false, true), (true, true)].map(|(a, b)| is_complete(a, b)),
            [false, false, false, true]
        );
    }
}
