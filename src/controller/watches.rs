//! Opens and closes the watches, and merges their updates. Secrets are watched only while a ConfigMonitor names one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, SelectAll};
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{MetadataOnly, SELECTS_HANDED_OVER};
use crate::kube::watch::{Event, watch};
use crate::kube::{Action, NAMESPACES, PODS, Resource};
use crate::monitor::content::Kind;
use crate::monitor::source::SourceName;
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor};

/// The interval at which the watch on all Secrets is retried while its right is missing. The right may be missing on
/// purpose.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// The maximum number of open watches on single objects: each takes a connection.
const MAX_SINGLE_WATCHES: usize = 256;

/// The maximum number of watches on single objects, open or refused: a refused one asks again every half a minute.
const MAX_ASKED: usize = 1024;

/// The maximum number of watches on single objects of a namespace, open or refused. It leaves some to the others.
const MAX_ASKED_PER_NAMESPACE: usize = 32;

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
    /// The namespaces with these labels.
    Namespaces(Arc<str>),
    All(Kind),
    /// The pods that are handed over.
    HandedOver,
    /// One object, for a Role that names objects (`resourceNames`).
    One(SourceName),
}

impl Target {
    /// `None` for what is no source.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::ConfigMonitors | Self::Namespaces(_) | Self::HandedOver => None,
            Self::All(kind) => Some(*kind),
            Self::One(source) => Some(source.kind),
        }
    }

    pub(crate) fn covers(&self, source: &SourceName) -> bool {
        match self {
            Self::ConfigMonitors | Self::Namespaces(_) | Self::HandedOver => false,
            Self::All(kind) => source.kind == *kind,
            Self::One(only) => only == source,
        }
    }

    pub(crate) fn resource(&self) -> Resource {
        match self {
            Self::ConfigMonitors => CONFIG_MONITORS,
            Self::Namespaces(_) => NAMESPACES,
            Self::All(kind) => kind.resource(),
            Self::HandedOver => PODS,
            Self::One(source) => source.kind.resource(),
        }
    }
}

pub(crate) enum Update {
    Monitor(Event<ConfigMonitor>),
    Source(Event<MetadataOnly>),
    Namespace(Event<MetadataOnly>),
    HandedOver(Event<MetadataOnly>),
    /// The right to list or to watch is missing. `None`: the right has been granted.
    Refused(Option<Error>),
}

pub(crate) struct Watches {
    client: Client,
    watches: BTreeMap<Scope, State>,
    updates: SelectAll<BoxStream<'static, (Scope, Update)>>,
    /// The watches without a place, and the bounds that they have met, which nobody was told yet.
    untold: VecDeque<(Scope, Bound)>,
}

enum State {
    /// Dropping the guard closes the watch.
    Open(DropGuard),
    /// The right is missing. It is asked for again and again.
    Refused(DropGuard),
    /// There are too many watches on single objects for this one, which has met this bound.
    Waiting(Option<Bound>),
}

/// The places that watches on single objects take.
#[derive(Default)]
struct Places {
    open: usize,
    asked: usize,
    asked_of_namespace: BTreeMap<Option<Arc<str>>, usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    OfNamespace,
    OfProcess,
    Asked,
}

impl Scope {
    fn is_single(&self) -> bool {
        matches!(self.target, Target::One(_))
    }
}

impl Places {
    fn of(watches: &BTreeMap<Scope, State>) -> Self {
        let mut places = Self::default();
        watches.iter().for_each(|(scope, state)| places.count(scope, state));
        places
    }

    fn count(&mut self, scope: &Scope, state: &State) {
        if scope.is_single() && !matches!(state, State::Waiting(_)) {
            *self.asked_of_namespace.entry(scope.namespace.clone()).or_default() += 1;
            self.asked += 1;
            self.open += usize::from(matches!(state, State::Open(_)));
        }
    }

    /// Returns the bound that leaves no place for one more watch.
    fn bound(&self, scope: &Scope) -> Option<Bound> {
        let of_namespace = self.asked_of_namespace.get(&scope.namespace).copied().unwrap_or_default();
        if !scope.is_single() {
            None
        } else if of_namespace >= MAX_ASKED_PER_NAMESPACE {
            Some(Bound::OfNamespace)
        } else if self.open >= MAX_SINGLE_WATCHES {
            Some(Bound::OfProcess)
        } else {
            (self.asked >= MAX_ASKED).then_some(Bound::Asked)
        }
    }
}

impl Watches {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, watches: BTreeMap::new(), updates: SelectAll::new(), untold: VecDeque::new() }
    }

    /// Opens the watches of these scopes, and closes all others.
    pub(crate) fn set(&mut self, scopes: &BTreeSet<Scope>) {
        self.watches.retain(|scope, _| scopes.contains(scope));
        for scope in scopes {
            self.watches.entry(scope.clone()).or_insert(State::Waiting(None));
        }
        self.open_waiting();
    }

    /// Closes a watch. The next `set` opens it anew.
    pub(crate) fn close(&mut self, scope: &Scope) {
        self.watches.remove(scope);
    }

    /// Opens the watches for which there is a place. The others are told once which bound they have met.
    fn open_waiting(&mut self) {
        let mut places = Places::of(&self.watches);
        for (scope, state) in &mut self.watches {
            let State::Waiting(told) = state else { continue };
            if let Some(bound) = places.bound(scope) {
                if told.replace(bound) != Some(bound) {
                    self.untold.push_back((scope.clone(), bound));
                }
                continue;
            }
            let stop = self.client.stop().child_token();
            self.updates.push(updates(self.client.with_stop(stop.clone()), scope.clone(), stop.clone()));
            *state = State::Open(stop.drop_guard());
            places.count(scope, state);
        }
    }

    pub(crate) async fn next(&mut self) -> (Scope, Update) {
        while let Some((scope, bound)) = self.untold.pop_front() {
            // There may be a place since.
            if matches!(self.watches.get(&scope), Some(State::Waiting(_))) {
                let update = no_room(&scope, bound);
                return (scope, update);
            }
        }
        loop {
            match self.updates.next().await {
                Some((scope, update)) if self.watches.contains_key(&scope) => {
                    let update = self.take(&scope, update);
                    return (scope, update);
                }
                // From a watch that was closed meanwhile.
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Takes an update of a watch. One that is refused leaves its place to others, and one whose right has been granted
    /// takes a place, if there is one.
    fn take(&mut self, scope: &Scope, update: Update) -> Update {
        let Update::Refused(refusal) = &update else { return update };
        let Some(state) = self.watches.get_mut(scope).filter(|_| scope.is_single()) else { return update };
        match (refusal.is_some(), std::mem::replace(state, State::Waiting(None))) {
            (true, State::Open(guard)) => {
                *state = State::Refused(guard);
                self.open_waiting();
                update
            }
            (false, State::Refused(guard)) => {
                if let Some(bound) = Places::of(&self.watches).bound(scope) {
                    self.watches.insert(scope.clone(), State::Waiting(Some(bound)));
                    return no_room(scope, bound);
                }
                self.watches.insert(scope.clone(), State::Open(guard));
                update
            }
            (_, before) => {
                *state = before;
                update
            }
        }
    }
}

fn updates(client: Client, scope: Scope, stop: CancellationToken) -> BoxStream<'static, (Scope, Update)> {
    let client = scope.namespace.as_ref().map_or_else(|| client.clone(), |namespace| client.within(namespace));
    let (labels, name) = match &scope.target {
        Target::ConfigMonitors | Target::All(_) => (None, None),
        Target::Namespaces(labels) => (Some(labels.to_string()), None),
        Target::HandedOver => (Some(SELECTS_HANDED_OVER.to_owned()), None),
        Target::One(source) => (None, Some(source.name.clone())),
    };
    let selection = Selection {
        resource: scope.target.resource(),
        labels,
        name,
        metadata_only: scope.target != Target::ConfigMonitors,
    };
    let soon = Duration::ZERO;
    let updates = match &scope.target {
        Target::ConfigMonitors => with_refusals(client, selection, soon, Update::Monitor),
        Target::Namespaces(_) => with_refusals(client, selection, soon, Update::Namespace),
        Target::All(kind) => {
            let after_refusal = if kind.is_confidential() { ASK_AGAIN_AFTER } else { soon };
            with_refusals(client, selection, after_refusal, Update::Source)
        }
        Target::HandedOver => with_refusals(client, selection, soon, Update::HandedOver),
        // There may have been no room for this watch before.
        Target::One(_) => {
            stream::iter([Update::Refused(None)]).chain(with_refusals(client, selection, soon, Update::Source)).boxed()
        }
    };
    updates.map(move |update| (scope.clone(), update)).take_until(stop.cancelled_owned()).boxed()
}

fn no_room(scope: &Scope, bound: Bound) -> Update {
    let (resource, plural) = (scope.target.resource(), scope.target.resource().plural);
    let bound = match bound {
        Bound::OfNamespace => format!("at most {MAX_ASKED_PER_NAMESPACE} {plural} of a namespace"),
        Bound::OfProcess => format!("at most {MAX_SINGLE_WATCHES} {plural}"),
        Bound::Asked => format!("at most {MAX_ASKED} {plural}, with those that are refused,"),
    };
    let what = format!("{bound} can be watched one by one; grant list and watch on all {plural}");
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::kube::SECRETS;

    fn watches() -> Watches {
        Watches::new(Client::unconnected())
    }

    /// The watches on this many Secrets of a namespace.
    fn secrets(namespace: &str, count: usize) -> BTreeSet<Scope> {
        let name = |number| SourceName { kind: Kind::Secret, name: format!("s{number:03}").into() };
        let scope = |number| Scope { namespace: Some(namespace.into()), target: Target::One(name(number)) };
        (0..count).map(scope).collect()
    }

    fn refused() -> Update {
        Update::Refused(Some(Action::new("list", SECRETS).failed(Cause::Forbidden("no".to_owned()))))
    }

    impl Watches {
        /// How many watches are open, refused, and without a place.
        fn states(&self) -> [usize; 3] {
            let count = |is: fn(&State) -> bool| self.watches.values().filter(|state| is(state)).count();
            [
                count(|state| matches!(state, State::Open(_))),
                count(|state| matches!(state, State::Refused(_))),
                count(|state| matches!(state, State::Waiting(_))),
            ]
        }
    }

    #[tokio::test]
    async fn a_namespace_leaves_watches_on_single_secrets_to_the_others_and_is_told_its_bound() {
        let (mut watches, mut scopes) = (watches(), BTreeSet::new());
        for number in 0..7 {
            scopes.extend(secrets(&format!("n{number}"), 40));
        }
        watches.set(&scopes);
        assert_eq!(watches.states(), [7 * 32, 0, 7 * 8]);
        scopes.extend(secrets("n8", 33));
        scopes.extend(secrets("n9", 1));
        watches.set(&scopes);
        assert_eq!(watches.states(), [256, 0, 7 * 8 + 2]);
        let mut told = BTreeMap::new();
        while let Some((scope, update)) = watches.next().now_or_never() {
            if let Update::Refused(Some(error)) = update {
                told.insert(scope, error.to_string());
            }
        }
        assert_eq!(told.len(), 58);
        let told = |scopes: BTreeSet<Scope>| told[scopes.last().unwrap()].clone();
        assert!(told(secrets("n0", 40)).contains("at most 32 secrets of a namespace"));
        assert!(told(secrets("n9", 1)).contains("at most 256 secrets can"), "{}", told(secrets("n9", 1)));
    }

    #[tokio::test]
    async fn a_refused_watch_leaves_its_place_to_others_until_the_right_is_granted() {
        let mut watches = watches();
        let scopes: BTreeSet<Scope> = (0..9).flat_map(|number| secrets(&format!("n{number}"), 32)).collect();
        watches.set(&scopes);
        assert_eq!(watches.states(), [256, 0, 32]);
        for scope in secrets("n0", 32) {
            assert!(matches!(watches.take(&scope, refused()), Update::Refused(Some(_))));
        }
        assert_eq!(watches.states(), [256, 32, 0]);
        let [granted, other] = [secrets("n0", 1), secrets("n1", 1)].map(|scopes| scopes.first().unwrap().clone());
        let update = watches.take(&granted, Update::Refused(None));
        assert!(matches!(update, Update::Refused(Some(_))), "others have taken the places");
        assert_eq!(watches.states(), [256, 31, 1]);
        watches.take(&other, refused());
        assert_eq!(watches.states(), [256, 32, 0], "it is opened once there is a place");
    }

    #[tokio::test]
    async fn refused_watches_have_a_bound_too() {
        let mut watches = watches();
        let scopes: BTreeSet<Scope> = (100..140).flat_map(|number| secrets(&format!("n{number}"), 32)).collect();
        watches.set(&scopes);
        for scope in scopes {
            watches.take(&scope, refused());
        }
        assert_eq!(watches.states(), [0, 1024, 256]);
    }
}
