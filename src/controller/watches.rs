//! Opens and closes the watches, and merges their updates. Secrets are watched only while a ConfigMonitor names one.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::MetadataOnly;
use crate::kube::watch::{Event, watch};
use crate::kube::{Action, Resource};
use crate::monitor::source::{Kind, SourceName};
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor};

/// The interval at which the watch on all Secrets is retried while its right is missing. The right may be missing on
/// purpose.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// The maximum number of watches on single objects: each takes a connection.
const MAX_SINGLE_WATCHES: usize = 256;

/// What one watch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// The namespace, or `None` for all namespaces.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) target: Target,
}

/// The objects that a watch covers within its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// All ConfigMonitors.
    ConfigMonitors,
    /// All objects of one kind of source.
    All(Kind),
    /// One object, for a Role that names objects (`resourceNames`).
    One(SourceName),
}

impl Target {
    /// Returns the kind of the watched sources, or `None` for ConfigMonitors.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::ConfigMonitors => None,
            Self::All(kind) => Some(*kind),
            Self::One(source) => Some(source.kind),
        }
    }

    pub(crate) fn covers(&self, source: &SourceName) -> bool {
        match self {
            Self::ConfigMonitors => false,
            Self::All(kind) => source.kind == *kind,
            Self::One(only) => only == source,
        }
    }

    /// Returns the API resource of the watched objects.
    pub(crate) fn resource(&self) -> Resource {
        self.kind().map_or(CONFIG_MONITORS, Kind::resource)
    }
}

/// An update from a watch.
pub(crate) enum Update {
    Monitor(Event<ConfigMonitor>),
    Source(Event<MetadataOnly>),
    /// The right to list or to watch is missing. `None`: the right has been granted.
    Refused(Option<Error>),
}

/// The open watches.
pub(crate) struct Watches {
    client: Client,
    open: BTreeMap<Scope, DropGuard>,
    updates: SelectAll<BoxStream<'static, (Scope, Update)>>,
    single_watches: Arc<Semaphore>,
}

/// Which Secrets the operator may watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SecretAccess {
    /// All Secrets. One watch covers them, while a ConfigMonitor names one.
    #[default]
    All,
    /// Only named Secrets. Each has its own watch, and the watch on all Secrets is retried.
    Named,
}

impl SecretAccess {
    /// Applies an update of the watch on all Secrets.
    pub(crate) fn observe(&mut self, update: &Update) {
        match update {
            Update::Refused(Some(_)) => *self = Self::Named,
            Update::Source(Event::Synced) => *self = Self::All,
            Update::Source(_) | Update::Monitor(_) | Update::Refused(None) => {}
        }
    }

    /// Returns the watches for the `named` Secrets, each given with its namespace. The watch on all Secrets is one of
    /// `namespace`.
    pub(crate) fn scopes<'a>(
        &self,
        namespace: Option<&Arc<str>>,
        named: impl Iterator<Item = (&'a Arc<str>, &'a SourceName)>,
    ) -> Vec<Scope> {
        let mut named = named.peekable();
        let all = Scope { namespace: namespace.cloned(), target: Target::All(Kind::Secret) };
        let all = named.peek().map(|_| all);
        let each = named.map(|(namespace, name)| Scope {
            namespace: Some(Arc::clone(namespace)),
            target: Target::One(name.clone()),
        });
        match self {
            Self::All => all.into_iter().collect(),
            Self::Named => all.into_iter().chain(each).collect(),
        }
    }
}

impl Watches {
    /// Creates an empty set of watches.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            open: BTreeMap::new(),
            updates: SelectAll::new(),
            single_watches: Arc::new(Semaphore::new(MAX_SINGLE_WATCHES)),
        }
    }

    /// Opens the watches of these scopes, and closes all others.
    pub(crate) fn set(&mut self, scopes: &BTreeSet<Scope>) {
        self.open.retain(|scope, _| scopes.contains(scope));
        for scope in scopes {
            if !self.open.contains_key(scope) {
                let stop = self.client.stop().child_token();
                self.updates.push(updates(
                    self.client.with_stop(stop.clone()),
                    scope.clone(),
                    stop.clone(),
                    &self.single_watches,
                ));
                self.open.insert(scope.clone(), stop.drop_guard());
            }
        }
    }

    /// Returns the next update of an open watch.
    pub(crate) async fn next(&mut self) -> (Scope, Update) {
        loop {
            match self.updates.next().await {
                Some((scope, update)) if self.open.contains_key(&scope) => return (scope, update),
                // From a watch that was closed meanwhile.
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Returns the updates of a watch until it is stopped.
fn updates(
    client: Client,
    scope: Scope,
    stop: CancellationToken,
    single_watches: &Arc<Semaphore>,
) -> BoxStream<'static, (Scope, Update)> {
    let client = scope.namespace.as_ref().map_or_else(|| client.clone(), |namespace| client.within(namespace));
    let name = match &scope.target {
        Target::ConfigMonitors | Target::All(_) => None,
        Target::One(source) => Some(source.name.clone()),
    };
    let selection = Selection {
        resource: scope.target.resource(),
        labels: None,
        name,
        metadata_only: scope.target != Target::ConfigMonitors,
    };
    let soon = Duration::ZERO;
    let updates = match &scope.target {
        Target::ConfigMonitors => with_refusals(client, selection, soon, Update::Monitor),
        Target::All(kind) => {
            let after_refusal = if kind.is_confidential() { ASK_AGAIN_AFTER } else { soon };
            with_refusals(client, selection, after_refusal, Update::Source)
        }
        Target::One(_) => {
            with_permit(with_refusals(client, selection, soon, Update::Source), single_watches, scope.target.resource())
        }
    };
    updates.map(move |update| (scope.clone(), update)).take_until(stop.cancelled_owned()).boxed()
}

/// Starts the updates once a permit is free. Until then, reports that the watch is refused.
fn with_permit(
    updates: BoxStream<'static, Update>,
    single_watches: &Arc<Semaphore>,
    resource: Resource,
) -> BoxStream<'static, Update> {
    let (single_watches, permit) = (Arc::clone(single_watches), Arc::clone(single_watches).try_acquire_owned().ok());
    let full = permit.is_none().then(|| {
        let what = format!(
            "at most {MAX_SINGLE_WATCHES} {0} can be watched one by one; grant list and watch on all {0}",
            resource.plural
        );
        Update::Refused(Some(Action::new("watch", resource).failed(Cause::Forbidden(what))))
    });
    let has_room = async move {
        let was_full = permit.is_none();
        let permit = match permit {
            Some(permit) => Some(permit),
            None => single_watches.acquire_owned().await.ok(),
        };
        let first = was_full.then_some(Update::Refused(None));
        stream::iter(first).chain(updates.map(move |update| {
            let _held = &permit;
            update
        }))
    };
    stream::iter(full).chain(has_room.flatten_stream()).boxed()
}

fn with_refusals<T: serde::de::DeserializeOwned + Send + 'static>(
    client: Client,
    selection: Selection,
    after_refusal: Duration,
    wrap: fn(Event<T>) -> Update,
) -> BoxStream<'static, Update> {
    let (refused, mut refusals) = unbounded_channel();
    // The send cannot fail: both streams end together.
    let events = watch(client, selection, after_refusal, move |refusal| drop(refused.send(Update::Refused(refusal))));
    let refusals = stream::poll_fn(move |context| refusals.poll_recv(context));
    let updates: Pin<Box<dyn Stream<Item = Update> + Send>> = Box::pin(stream::select(refusals, events.map(wrap)));
    updates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_watched_only_if_one_is_named_and_one_by_one_without_the_right_to_all() {
        let named = ["a", "b"].map(|name| SourceName { kind: Kind::Secret, name: name.into() });
        let here: Arc<str> = "here".into();
        let scope = |target| Scope { namespace: Some(Arc::clone(&here)), target };
        let (all, each) = (scope(Target::All(Kind::Secret)), named.clone().map(Target::One).map(scope).to_vec());
        let scopes = |access: &SecretAccess, named: &[SourceName]| {
            access.scopes(Some(&here), named.iter().map(|name| (&here, name)))
        };
        let mut access = SecretAccess::default();
        assert_eq!((scopes(&access, &[]), scopes(&access, &named)), (vec![], vec![all.clone()]));
        let cause = Cause::Forbidden("no".to_owned());
        access.observe(&Update::Refused(Some(Action::new("list", Kind::Secret.resource()).failed(cause))));
        let both = [vec![all.clone()], each].concat();
        assert_eq!((scopes(&access, &[]), scopes(&access, &named)), (vec![], both), "the watch on all Secrets retries");
        access.observe(&Update::Source(Event::Reset));
        assert_eq!(access, SecretAccess::Named);
        access.observe(&Update::Source(Event::Synced));
        assert_eq!(scopes(&access, &named), [all]);
    }
}
