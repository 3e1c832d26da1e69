//! The watches: which are open, and what they tell. That on Secrets is open only while a ConfigMonitor names one.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kube::Resource;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{HasVersion, MetadataOnly};
use crate::kube::watch::{Event, watch};
use crate::monitor::source::{Kind, SourceName};
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor};

/// While the right to watch all Secrets is missing, which may be how it is meant to be, it is asked for again after this time.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// At most so many objects are watched each by a watch of its own, as each is a connection.
const MOST_ALONE: usize = 256;

/// What one watch is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// The namespace; none: all of them.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) of: Of,
}

/// Which objects a watch is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    /// All ConfigMonitors.
    ConfigMonitors,
    /// All objects of a kind that sources are of.
    All(Kind),
    /// One object, as a Role may name it.
    One(SourceName),
}

impl Of {
    /// The kind of the sources that it is of, if it is of any.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::ConfigMonitors => None,
            Self::All(kind) => Some(*kind),
            Self::One(source) => Some(source.kind),
        }
    }

    /// How the API knows it.
    pub(crate) fn resource(&self) -> Resource {
        self.kind().map_or(CONFIG_MONITORS, Kind::resource)
    }
}

/// An update from a watch.
pub(crate) enum Update {
    Monitor(Event<ConfigMonitor>),
    Source(Event<MetadataOnly>),
    /// The right to list or to watch is missing, or with none, it is not any more.
    Refused(Option<Error>),
}

/// The watches that are open.
pub(crate) struct Watches {
    client: Client,
    open: BTreeMap<Scope, DropGuard>,
    updates: SelectAll<BoxStream<'static, (Scope, Update)>>,
    alone: Arc<Semaphore>,
}

/// How Secrets are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All of them, by one watch, if any is named.
    #[default]
    All,
    /// Each that is named by a watch of its own, as the right to watch all of them is missing. The watch on all asks for it again.
    Named,
}

impl Reach {
    /// Takes note of what the watch on all of them tells.
    pub(crate) fn hear(&mut self, update: &Update) {
        match update {
            Update::Refused(Some(_)) => *self = Self::Named,
            Update::Source(Event::Synced) => *self = Self::All,
            Update::Source(_) | Update::Monitor(_) | Update::Refused(None) => {}
        }
    }

    /// The watches for these Secrets, each in its namespace, when all are those of this one, or of all namespaces.
    pub(crate) fn scopes<'a>(
        &self,
        namespace: Option<&Arc<str>>,
        named: impl Iterator<Item = (&'a Arc<str>, &'a SourceName)>,
    ) -> Vec<Scope> {
        let mut named = named.peekable();
        let all = Scope { namespace: namespace.cloned(), of: Of::All(Kind::Secret) };
        let all = named.peek().map(|_| all);
        let each =
            named.map(|(namespace, name)| Scope { namespace: Some(Arc::clone(namespace)), of: Of::One(name.clone()) });
        match self {
            Self::All => all.into_iter().collect(),
            Self::Named => all.into_iter().chain(each).collect(),
        }
    }
}

impl Watches {
    /// None yet.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, open: BTreeMap::new(), updates: SelectAll::new(), alone: Arc::new(Semaphore::new(MOST_ALONE)) }
    }

    /// Opens these watches, and closes all others.
    pub(crate) fn set(&mut self, scopes: &BTreeSet<Scope>) {
        self.open.retain(|scope, _| scopes.contains(scope));
        for scope in scopes {
            if !self.open.contains_key(scope) {
                let stop = self.client.stop().child_token();
                self.updates.push(updates(
                    self.client.with_stop(stop.clone()),
                    scope.clone(),
                    stop.clone(),
                    &self.alone,
                ));
                self.open.insert(scope.clone(), stop.drop_guard());
            }
        }
    }

    /// What one of them tells next.
    pub(crate) async fn next(&mut self) -> (Scope, Update) {
        loop {
            match self.updates.next().await {
                Some((scope, update)) if self.open.contains_key(&scope) => return (scope, update),
                // One that was closed.
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
    alone: &Arc<Semaphore>,
) -> BoxStream<'static, (Scope, Update)> {
    let client = scope.namespace.as_ref().map_or_else(|| client.clone(), |namespace| client.within(namespace));
    let name = match &scope.of {
        Of::ConfigMonitors | Of::All(_) => None,
        Of::One(source) => Some(source.name.clone()),
    };
    let of =
        Selection { resource: scope.of.resource(), labels: None, name, metadata_only: scope.of != Of::ConfigMonitors };
    let soon = Duration::ZERO;
    let updates = match &scope.of {
        Of::ConfigMonitors => with_refusals(client, of, soon, Update::Monitor),
        Of::All(Kind::ConfigMap) => with_refusals(client, of, soon, Update::Source),
        Of::All(Kind::Secret) => with_refusals(client, of, ASK_AGAIN_AFTER, Update::Source),
        Of::One(_) => with_permit(with_refusals(client, of, soon, Update::Source), alone, scope.of.resource()),
    };
    updates.map(move |update| (scope.clone(), update)).take_until(stop.cancelled_owned()).boxed()
}

/// Starts the updates once a permit is free. Until then, reports that the watch is refused.
fn with_permit(
    updates: BoxStream<'static, Update>,
    alone: &Arc<Semaphore>,
    resource: Resource,
) -> BoxStream<'static, Update> {
    let (alone, permit) = (Arc::clone(alone), Arc::clone(alone).try_acquire_owned().ok());
    let full = permit.is_none().then(|| {
        let what = format!(
            "{MOST_ALONE} {0} are watched one by one already; grant list and watch on all {0}",
            resource.plural
        );
        Update::Refused(Some(Error { request: format!("watch {}", resource.plural), cause: Cause::Forbidden(what) }))
    });
    let has_room = async move {
        let was_full = permit.is_none();
        let permit = match permit {
            Some(permit) => Some(permit),
            None => alone.acquire_owned().await.ok(),
        };
        let first = was_full.then_some(Update::Refused(None));
        stream::iter(first).chain(updates.map(move |update| {
            let _held = &permit;
            update
        }))
    };
    stream::iter(full).chain(has_room.flatten_stream()).boxed()
}

fn with_refusals<T: serde::de::DeserializeOwned + HasVersion + Send + 'static>(
    client: Client,
    of: Selection,
    after_refusal: Duration,
    wrap: fn(Event<T>) -> Update,
) -> BoxStream<'static, Update> {
    let (refused, mut refusals) = unbounded_channel();
    // There is always somebody to hear it: both streams end together.
    let events = watch(client, of, after_refusal, move |refusal| drop(refused.send(Update::Refused(refusal))));
    let refusals = stream::poll_fn(move |context| refusals.poll_recv(context));
    let updates: Pin<Box<dyn Stream<Item = Update> + Send>> = Box::pin(stream::select(refusals, events.map(wrap)));
    updates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_watched_only_if_one_is_named_and_each_alone_if_not_all_may_be() {
        let named = ["a", "b"].map(|name| SourceName { kind: Kind::Secret, name: name.into() });
        let here: Arc<str> = "here".into();
        let scope = |of| Scope { namespace: Some(Arc::clone(&here)), of };
        let (all, each) = (scope(Of::All(Kind::Secret)), named.clone().map(Of::One).map(scope).to_vec());
        let scopes =
            |reach: &Reach, named: &[SourceName]| reach.scopes(Some(&here), named.iter().map(|name| (&here, name)));
        let mut reach = Reach::default();
        assert_eq!((scopes(&reach, &[]), scopes(&reach, &named)), (vec![], vec![all.clone()]));
        let cause = Cause::Forbidden("no".to_owned());
        reach.hear(&Update::Refused(Some(Error { request: "list secrets".to_owned(), cause })));
        let both = [vec![all.clone()], each].concat();
        assert_eq!((scopes(&reach, &[]), scopes(&reach, &named)), (vec![], both), "that on all asks again");
        reach.hear(&Update::Source(Event::Reset));
        assert_eq!(reach, Reach::Named);
        reach.hear(&Update::Source(Event::Synced));
        assert_eq!(scopes(&reach, &named), [all]);
    }
}
