//! Opens and closes the watches, makes the polls, and merges their updates. Secrets are watched only while a ConfigMonitor
//! names one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll};
use serde::de::DeserializeOwned;
use tokio_util::sync::DropGuard;

use super::polls::Polls;
use super::readiness::Readiness;
use super::scope::{Scope, Target};
use crate::controller::clock::timer_now;
use crate::kube::client::Client;
use crate::kube::list::Selection;
use crate::kube::objects::MetadataOnly;
use crate::kube::watch::{Event, watch};
use crate::monitor::ConfigMonitor;
use crate::monitor::pod::{SELECTS_HANDED_OVER, WholePod};

/// The interval at which the watch on all Secrets is retried while its right is missing. The right may be missing on
/// purpose.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How many selectors of pods are watched: each takes a connection, and a namespace leaves some to the others. The pods of
/// others are polled.
const MOST_SELECTORS: usize = 512;
const MOST_SELECTORS_OF_NAMESPACE: usize = 64;

/// The pods that have not finished.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

pub(crate) enum Update {
    Monitor(Event<ConfigMonitor>),
    Source(Event<MetadataOnly>),
    Namespace(Event<MetadataOnly>),
    HandedOver(Event<MetadataOnly>),
    Pods {
        event: Event<WholePod>,
        is_polled: bool,
    },
    /// Nobody watches the source. It may have changed.
    Poll,
}

pub(crate) struct Watches {
    client: Client,
    readiness: Readiness,
    /// Dropping the guard closes the watch.
    open: BTreeMap<Scope, DropGuard>,
    polls: Polls,
    /// The polls that are lists of pods, one of a namespace.
    lists: BTreeMap<Option<Arc<str>>, (Scope, DropGuard)>,
    updates: SelectAll<BoxStream<'static, (Scope, Update)>>,
}

impl Watches {
    pub(crate) fn new(client: Client, readiness: Readiness) -> Self {
        let (open, lists, updates) = (BTreeMap::new(), BTreeMap::new(), SelectAll::new());
        Self { client, readiness, open, polls: Polls::default(), lists, updates }
    }

    /// Opens the watches of these scopes, closes all others, and polls what cannot be watched.
    pub(crate) fn set(&mut self, scopes: &BTreeSet<Scope>) {
        self.open.retain(|scope, _| scopes.contains(scope));
        let is_of_pods = |scope: &&Scope| matches!(scope.target, Target::Selected(_));
        let (mut in_all, mut in_namespace) = (0, BTreeMap::<&Option<Arc<str>>, usize>::new());
        for scope in scopes.iter().filter(is_of_pods).filter(|scope| self.open.contains_key(scope)) {
            in_all += 1;
            *in_namespace.entry(&scope.namespace).or_default() += 1;
        }
        let mut polled = BTreeSet::new();
        for scope in scopes {
            if self.open.contains_key(scope) {
                continue;
            }
            let is_watched = match scope.target {
                Target::One(_) => false,
                Target::Selected(_) => {
                    let of_namespace = in_namespace.entry(&scope.namespace).or_default();
                    let has_place = in_all < MOST_SELECTORS && *of_namespace < MOST_SELECTORS_OF_NAMESPACE;
                    in_all += usize::from(has_place);
                    *of_namespace += usize::from(has_place);
                    has_place
                }
                Target::ConfigMonitors | Target::Namespaces(_) | Target::All(_) | Target::HandedOver => true,
            };
            if is_watched {
                let guard = self.open(scope, false);
                self.open.insert(scope.clone(), guard);
            } else {
                polled.insert(scope.clone());
            }
        }
        self.lists.retain(|_, (scope, _)| polled.contains(scope));
        self.polls.set(polled, timer_now());
    }

    /// Closes a watch. The next `set` opens it anew. What is polled is not polled more often.
    pub(crate) fn close(&mut self, scope: &Scope) {
        self.open.remove(scope);
    }

    fn open(&mut self, scope: &Scope, is_polled: bool) -> DropGuard {
        let stop = self.client.stop().child_token();
        let updates = updates(self.client.with_stop(stop.clone()), &self.readiness, scope, is_polled);
        self.updates.push(updates.take_until(stop.clone().cancelled_owned()).boxed());
        stop.drop_guard()
    }

    pub(crate) async fn next(&mut self) -> (Scope, Update) {
        loop {
            let due = self.polls.due();
            tokio::select! {
                biased;
                Some((scope, update)) = self.updates.next() => {
                    let is_polled = self.lists.get(&scope.namespace).is_some_and(|(polled, _)| *polled == scope);
                    if let Update::Pods { event: Event::Synced | Event::Refused(_), is_polled: true } = &update {
                        self.lists.remove(&scope.namespace);
                        self.polls.end(&scope.namespace, timer_now());
                    }
                    // It may be from a watch that was closed meanwhile.
                    if is_polled || self.open.contains_key(&scope) {
                        return (scope, update);
                    }
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(timer_now).into()), if due.is_some() => {
                    let Some(scope) = self.polls.begin(timer_now()) else { continue };
                    if matches!(scope.target, Target::One(_)) {
                        self.polls.end(&scope.namespace, timer_now());
                        return (scope, Update::Poll);
                    }
                    let guard = self.open(&scope, true);
                    self.lists.insert(scope.namespace.clone(), (scope, guard));
                }
                else => std::future::pending().await,
            }
        }
    }
}

fn updates(
    client: Client,
    readiness: &Readiness,
    scope: &Scope,
    is_polled: bool,
) -> BoxStream<'static, (Scope, Update)> {
    let client = scope.namespace.as_ref().map_or_else(|| client.clone(), |namespace| client.within(namespace));
    let (labels, fields) = match &scope.target {
        Target::ConfigMonitors | Target::All(_) | Target::One(_) => (None, None),
        Target::Namespaces(labels) => (Some(labels.to_string()), None),
        Target::HandedOver => (Some(SELECTS_HANDED_OVER.to_owned()), None),
        Target::Selected(labels) => (Some(labels.to_string()), Some(UNFINISHED.into())),
    };
    let metadata_only = !matches!(scope.target, Target::ConfigMonitors | Target::Selected(_));
    let selection = Selection { resource: scope.target.resource(), labels, fields, metadata_only };
    let of = (client, selection, readiness.clone(), scope.clone());
    match &scope.target {
        Target::ConfigMonitors => updates_of(of, Update::Monitor),
        Target::Namespaces(_) => updates_of(of, Update::Namespace),
        Target::All(_) | Target::One(_) => updates_of(of, Update::Source),
        Target::HandedOver => updates_of(of, Update::HandedOver),
        Target::Selected(_) => updates_of(of, move |event| Update::Pods { event, is_polled }),
    }
}

fn updates_of<T: DeserializeOwned + Send + 'static>(
    (client, selection, readiness, scope): (Client, Selection, Readiness, Scope),
    wrap: impl Fn(Event<T>) -> Update + Send + 'static,
) -> BoxStream<'static, (Scope, Update)> {
    let is_confidential = matches!(scope.target, Target::All(kind) if kind.is_confidential());
    let after_refusal = if is_confidential { ASK_AGAIN_AFTER } else { Duration::ZERO };
    let events = watch(client, selection, after_refusal);
    let update = move |event| {
        readiness.observe(&scope, &event);
        (scope.clone(), wrap(event))
    };
    events.map(update).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_watches_the_pods_of_few_selectors_and_leaves_watches_to_another() {
        let mut watches = Watches::new(Client::unconnected(), Readiness::default());
        let selected = |namespace: usize, number: usize| Scope {
            namespace: Some(format!("n{namespace}").into()),
            target: Target::Selected(format!("app={number:03}").into()),
        };
        let of = |namespace, count| (0..count).map(move |number| selected(namespace, number));
        let scopes: BTreeSet<Scope> = (0..9).flat_map(|namespace| of(namespace, 65)).collect();
        watches.set(&scopes);
        let open = |watches: &Watches, namespace| of(namespace, 65).filter(|it| watches.open.contains_key(it)).count();
        assert_eq!(
            (0..9).map(|namespace| open(&watches, namespace)).collect::<Vec<_>>(),
            [[64; 8].as_slice(), &[0]].concat()
        );
        watches.close(&selected(3, 9));
        let fewer: BTreeSet<Scope> = scopes.into_iter().filter(|scope| *scope != selected(0, 0)).collect();
        watches.set(&fewer);
        assert_eq!((open(&watches, 0), open(&watches, 3), open(&watches, 8)), (64, 64, 0), "a place is taken at once");
    }
}
