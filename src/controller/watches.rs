//! Opens and closes the watches, and merges their updates. Secrets are watched only while a ConfigMonitor names one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, SelectAll};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::MetadataOnly;
use crate::kube::watch::{Event, watch};
use crate::kube::{Action, Resource};
use crate::monitor::content::Kind;
use crate::monitor::source::SourceName;
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor};

/// The interval at which the watch on all Secrets is retried while its right is missing. The right may be missing on
/// purpose.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// The maximum number of watches on single objects: each takes a connection.
const MAX_SINGLE_WATCHES: usize = 256;

/// What one watch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// `None` for all namespaces.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) target: Target,
}

/// The objects that a watch covers within its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    ConfigMonitors,
    All(Kind),
    /// One object, for a Role that names objects (`resourceNames`).
    One(SourceName),
}

impl Target {
    /// `None` for ConfigMonitors.
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

    pub(crate) fn resource(&self) -> Resource {
        self.kind().map_or(CONFIG_MONITORS, Kind::resource)
    }
}

pub(crate) enum Update {
    Monitor(Event<ConfigMonitor>),
    Source(Event<MetadataOnly>),
    /// The right to list or to watch is missing. `None`: the right has been granted.
    Refused(Option<Error>),
}

pub(crate) struct Watches {
    client: Client,
    /// `None`: there are too many watches on single objects for this one.
    open: BTreeMap<Scope, Option<DropGuard>>,
    updates: SelectAll<BoxStream<'static, (Scope, Update)>>,
}

impl Watches {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, open: BTreeMap::new(), updates: SelectAll::new() }
    }

    /// Opens the watches of these scopes, and closes all others.
    pub(crate) fn set(&mut self, scopes: &BTreeSet<Scope>) {
        // Those that had no room are tried again.
        self.open.retain(|scope, watch| watch.is_some() && scopes.contains(scope));
        let is_single = |scope: &Scope| matches!(scope.target, Target::One(_));
        let mut singles = self.open.keys().filter(|scope| is_single(scope)).count();
        for scope in scopes {
            if self.open.contains_key(scope) {
                continue;
            }
            singles += usize::from(is_single(scope));
            let watch = if is_single(scope) && singles > MAX_SINGLE_WATCHES {
                self.updates.push(stream::iter([(scope.clone(), no_room(scope.target.resource()))]).boxed());
                None
            } else {
                let stop = self.client.stop().child_token();
                self.updates.push(updates(self.client.with_stop(stop.clone()), scope.clone(), stop.clone()));
                Some(stop.drop_guard())
            };
            self.open.insert(scope.clone(), watch);
        }
    }

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

fn updates(client: Client, scope: Scope, stop: CancellationToken) -> BoxStream<'static, (Scope, Update)> {
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
        // There may have been no room for this watch before.
        Target::One(_) => {
            stream::iter([Update::Refused(None)]).chain(with_refusals(client, selection, soon, Update::Source)).boxed()
        }
    };
    updates.map(move |update| (scope.clone(), update)).take_until(stop.cancelled_owned()).boxed()
}

fn no_room(resource: Resource) -> Update {
    let what = format!(
        "at most {MAX_SINGLE_WATCHES} {0} can be watched one by one; grant list and watch on all {0}",
        resource.plural
    );
    Update::Refused(Some(Action::new("watch", resource).failed(Cause::Forbidden(what))))
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
    stream::select(refusals, events.map(wrap)).boxed()
}
