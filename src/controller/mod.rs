//! Feeds the events of the watches to the index, and the changes of the index to one keeper per ConfigMonitor.
//!
//! Every task is started, stopped and joined here.

mod clock;
mod context;
mod dispatcher;
mod handovers;
mod index;
mod keeper;
mod latest;
mod limits;
mod memory;
mod namespaces;
mod reconcile;
mod recount;
mod requeue;
mod restart;
mod scheduling;
mod shared;
mod step;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::clock::timer_now;
use self::context::Context;
use self::dispatcher::{Changes, Dispatcher};
use self::index::Change;
use self::keeper::Keeper;
use self::latest::Latest;
use self::limits::Limits;
use self::memory::Memory;
pub use self::namespaces::{Excluded, NamespaceSelector, Namespaces};
use self::shared::Shared;
use self::watches::{Scope, Update, Watches};
use crate::kube::Uid;
use crate::kube::client::Client;
use crate::kube::watch::Event;
use crate::metrics::Metrics;
use crate::monitor::ConfigMonitor;

/// The time that keepers have to finish their requests when the operator stops.
///
/// The rest of the shutdown is quick, so that the operator exits within 5 s.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// The state of the watches that are always open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced(BTreeMap<Scope, WatchState>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WatchState {
    /// The first list is complete.
    is_synced: bool,
    /// A right is missing, so that the watch no longer sees changes.
    is_refused: bool,
}

impl Synced {
    fn of(scopes: &BTreeSet<Scope>) -> Self {
        Self(scopes.iter().map(|scope| (scope.clone(), WatchState::default())).collect())
    }

    /// Returns whether the state has changed.
    fn observe(&mut self, scope: &Scope, update: &Update) -> bool {
        let Some(WatchState { is_synced, is_refused }) = self.0.get_mut(scope) else { return false };
        match update {
            Update::Monitor(Event::Synced)
            | Update::Source(Event::Synced)
            | Update::Namespace(Event::Synced)
            | Update::HandedOver(Event::Synced)
            | Update::Pods(Event::Synced) => !std::mem::replace(is_synced, true),
            Update::Refused(error) => std::mem::replace(is_refused, error.is_some()) != error.is_some(),
            Update::Monitor(_)
            | Update::Source(_)
            | Update::Namespace(_)
            | Update::HandedOver(_)
            | Update::Pods(_)
            | Update::Rarely(_) => false,
        }
    }

    /// Returns whether every first list is complete, except in namespaces where a right is missing.
    fn is_complete(&self) -> bool {
        self.why_not_ready().is_none()
    }

    /// Returns why the operator is not ready, or `None` if it is ready. A right that is missing in one namespace does
    /// not affect the others.
    #[must_use]
    pub(crate) fn why_not_ready(&self) -> Option<String> {
        let is_one_of_several = |scope: &Scope| self.0.keys().any(|other| other.namespace != scope.namespace);
        let of = |scope: &Scope| {
            let namespace = scope.namespace.as_ref().filter(|_| is_one_of_several(scope));
            let namespace = namespace.map_or(String::new(), |namespace| format!(" of namespace {namespace}"));
            format!("{}s{namespace}", scope.target.resource().kind)
        };
        let refused: BTreeSet<&Option<Arc<str>>> =
            self.0.iter().filter(|(_, state)| state.is_refused).map(|(scope, _)| &scope.namespace).collect();
        let mut others = self.0.iter().filter(|(scope, _)| !refused.contains(&scope.namespace)).peekable();
        if others.peek().is_none() {
            let first = self.0.iter().find(|(_, state)| state.is_refused);
            let missing = |(scope, _)| format!("the right to list and watch {} is missing", of(scope));
            return Some(first.map_or_else(|| "no watch is open yet".to_owned(), missing));
        }
        others.find(|(_, state)| !state.is_synced).map(|(scope, _)| format!("the {} are not listed yet", of(scope)))
    }
}

/// The keepers, by the UID of their ConfigMonitor.
struct Keepers {
    client: Client,
    handles: BTreeMap<Uid, Handle>,
    /// The keepers that are to end. A new keeper for a ConfigMonitor of the same name waits for them.
    ending: Vec<Arc<Handle>>,
    tasks: JoinSet<()>,
}

/// The keeper of the ConfigMonitor of this name. Once the keeper has ended, the channel has no receiver.
struct Handle {
    shared: Arc<Shared>,
    name: Arc<str>,
    latest: watch::Sender<Latest>,
}

/// What the ConfigMonitors of all namespaces have in common.
#[derive(Clone, Default)]
pub struct Settings {
    /// The operator's own pod, which is never deleted.
    pub own_pod: Option<Uid>,
    /// Whether pods may be handed over.
    pub surges: bool,
    /// The names of objects that are never discovered.
    pub excluded: Arc<BTreeSet<Arc<str>>>,
    /// What counts their restarts.
    pub metrics: Arc<Metrics>,
}

/// Runs until the client is stopped, and reports the state of the watches in `synced`. Until `elected` is cancelled,
/// only watches are open.
pub async fn run(
    client: Client,
    namespaces: Namespaces,
    settings: Settings,
    synced: &watch::Sender<Synced>,
    elected: CancellationToken,
) {
    let client = namespaces.divide(client);
    synced.send_replace(Synced::of(&namespaces.scopes()));
    let mut dispatcher = Dispatcher::new(client.clone(), namespaces, settings, Limits::new(elected));
    let mut watches = Watches::new(client.clone());
    watches.set(&dispatcher.scopes());
    let mut keepers = Keepers::new(client.clone());
    let (mut is_complete, mut watches_changed) = (false, false);
    loop {
        let list_due = dispatcher.list_due();
        tokio::select! {
            biased;
            () = client.stop().cancelled() => break,
            Some(_) = keepers.tasks.join_next() => {}
            (scope, update) = watches.next() => {
                let is_news = synced.send_if_modified(|synced| synced.observe(&scope, &update));
                let (others, changes) = dispatcher.handle(&scope, update, timer_now());
                if is_news && !is_complete && synced.borrow().is_complete() {
                    is_complete = true;
                    info!(config_monitors = dispatcher.config_monitors(), "synced");
                }
                changes.into_iter().for_each(|changes| keepers.apply(changes));
                watches_changed |= others;
            }
            // Last, after all pending updates: one list may name thousands of Secrets.
            () = std::future::ready(()), if watches_changed => {
                watches.set(&dispatcher.scopes());
                watches_changed = false;
            }
            () = sleep_until(list_due.unwrap_or_else(timer_now).into()), if list_due.is_some() => {
                dispatcher.list(timer_now()).iter().for_each(|scope| watches.close(scope));
                watches.set(&dispatcher.scopes());
            }
        }
    }
    dispatcher.limits.close();
    keepers.shut_down().await;
}

impl Keepers {
    fn new(client: Client) -> Self {
        Self { client, handles: BTreeMap::new(), ending: Vec::new(), tasks: JoinSet::new() }
    }

    fn apply(&mut self, Changes { shared, changes }: Changes) {
        self.ending.retain(|before| !before.latest.is_closed());
        for change in changes {
            match change {
                Change::LookAfter => {
                    if let Some(stop) = shared.handovers.ring(self.client.stop()) {
                        self.tasks.spawn(handovers::run(Arc::clone(&shared), stop));
                    }
                }
                Change::Start(monitor, latest) => self.start(&shared, *monitor, latest),
                Change::Notify(uid, latest) => {
                    if let Some(handle) = self.handles.get(&uid) {
                        handle.latest.send_if_modified(|current| {
                            let changed = *current != latest;
                            *current = latest;
                            changed
                        });
                    }
                }
                Change::Stop(uid) => {
                    if let Some(handle) = self.handles.remove(&uid) {
                        handle.latest.send_modify(|latest| latest.is_stopped = true);
                        self.ending.push(Arc::new(handle));
                    }
                }
            }
        }
    }

    fn start(&mut self, shared: &Arc<Shared>, monitor: ConfigMonitor, latest: Latest) {
        let (name, uid) = (monitor.metadata.name.clone(), monitor.metadata.uid.clone());
        let is_namesake = |before: &&Arc<Handle>| {
            before.name == name && before.shared.client.namespace() == shared.client.namespace()
        };
        let before: Vec<Arc<Handle>> = self.ending.iter().filter(is_namesake).cloned().collect();
        // A standby's record may be stale once it is elected: the previous leader may have written the status.
        let memory = if shared.limits.is_elected() { Memory::of(monitor) } else { Memory::default() };
        let context = Context::new(Arc::clone(shared), Arc::clone(&name), uid.clone());
        let (latest, receiver) = watch::channel(latest);
        let keeper = Box::new(Keeper::new(context, memory, receiver));
        if before.is_empty() {
            self.tasks.spawn(keeper.run());
        } else {
            self.tasks.spawn(run_after(before, keeper));
        }
        self.handles.insert(uid, Handle { shared: Arc::clone(shared), name, latest });
    }

    /// Waits until the keepers have finished their requests.
    async fn shut_down(mut self) {
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

#[cfg(test)]
mod tests {
    use super::watches::Target;
    use super::*;
    use crate::kube::error::Cause;
    use crate::kube::{Action, CONFIG_MAPS};

    fn synced(namespaces: &Namespaces) -> (Synced, Vec<Scope>) {
        let scopes = namespaces.scopes();
        (Synced::of(&scopes), scopes.into_iter().collect())
    }

    fn refused() -> Update {
        let cause = Cause::Forbidden("no".to_owned());
        Update::Refused(Some(Action::new("list", CONFIG_MAPS).failed(cause)))
    }

    #[test]
    fn the_operator_is_ready_once_all_first_lists_are_complete_and_not_while_a_watch_is_refused() {
        let selector = Some("served".parse().unwrap());
        let (mut synced, scopes) = synced(&Namespaces::All { excluded: Vec::new(), selector });
        for (scope, objects) in scopes.iter().zip(["ConfigMonitors", "Namespaces", "ConfigMaps"]) {
            assert_eq!(synced.why_not_ready(), Some(format!("the {objects} are not listed yet")));
            let update = match scope.target {
                Target::ConfigMonitors => Update::Monitor(Event::Synced),
                Target::Namespaces(_) => Update::Namespace(Event::Synced),
                Target::All(_) | Target::One(_) | Target::HandedOver | Target::Selected(_) => {
                    Update::Source(Event::Synced)
                }
            };
            assert!(synced.observe(scope, &update) && !synced.observe(scope, &update));
        }
        assert!(synced.is_complete());
        assert!(synced.observe(&scopes[2], &refused()));
        assert_eq!(synced.why_not_ready().as_deref(), Some("the right to list and watch ConfigMaps is missing"));
        assert!(synced.observe(&scopes[2], &Update::Refused(None)) && synced.is_complete());
    }

    #[test]
    fn a_namespace_without_rights_does_not_block_the_others() {
        let (mut synced, scopes) = synced(&Namespaces::Named(vec!["a".into(), "b".into()]));
        synced.observe(&scopes[0], &refused());
        assert_eq!(synced.why_not_ready().as_deref(), Some("the ConfigMonitors of namespace b are not listed yet"));
        scopes[2..].iter().for_each(|scope| assert!(synced.observe(scope, &Update::Source(Event::Synced))));
        assert!(synced.is_complete());
        synced.observe(&scopes[3], &refused());
        assert_eq!(
            synced.why_not_ready().as_deref(),
            Some("the right to list and watch ConfigMonitors of namespace a is missing")
        );
    }
}
