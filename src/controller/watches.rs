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
use crate::kube::objects::{MetadataOnly, SELECTS_HANDED_OVER, WholePod};
use crate::kube::watch::{Event, watch};
use crate::kube::{Action, NAMESPACES, PODS, Resource};
use crate::monitor::content::Kind;
use crate::monitor::source::SourceName;
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor};

/// The interval at which the watch on all Secrets is retried while its right is missing. The right may be missing on
/// purpose.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The pods that have not finished.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// What a tenant can multiply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Watches on single objects.
    Single,
    /// Watches on the pods of a selector.
    Selected,
}

/// How many watches of a class there may be.
struct Most {
    /// How many may be open: each takes a connection.
    open: usize,
    /// How many may be open or refused: a refused one asks again every half a minute.
    asked: usize,
    /// Of these, how many of a namespace. It leaves some to the others.
    asked_of_namespace: usize,
}

impl Class {
    fn most(self) -> Most {
        match self {
            Self::Single => Most { open: 256, asked: 1024, asked_of_namespace: 32 },
            Self::Selected => Most { open: 512, asked: 1024, asked_of_namespace: 64 },
        }
    }
}

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
    /// The pods with these labels that have not finished, in which sources are discovered.
    Selected(Arc<str>),
    /// One object, for a Role that names objects (`resourceNames`).
    One(SourceName),
}

impl Target {
    /// `None` for what is no source.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::ConfigMonitors | Self::Namespaces(_) | Self::HandedOver | Self::Selected(_) => None,
            Self::All(kind) => Some(*kind),
            Self::One(source) => Some(source.kind),
        }
    }

    pub(crate) fn covers(&self, source: &SourceName) -> bool {
        match self {
            Self::ConfigMonitors | Self::Namespaces(_) | Self::HandedOver | Self::Selected(_) => false,
            Self::All(kind) => source.kind == *kind,
            Self::One(only) => only == source,
        }
    }

    pub(crate) fn resource(&self) -> Resource {
        match self {
            Self::ConfigMonitors => CONFIG_MONITORS,
            Self::Namespaces(_) => NAMESPACES,
            Self::All(kind) => kind.resource(),
            Self::HandedOver | Self::Selected(_) => PODS,
            Self::One(source) => source.kind.resource(),
        }
    }
}

pub(crate) enum Update {
    Monitor(Event<ConfigMonitor>),
    Source(Event<MetadataOnly>),
    Namespace(Event<MetadataOnly>),
    HandedOver(Event<MetadataOnly>),
    Pods(Event<WholePod>),
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
    /// There are too many watches of its class for this one, which has met this bound.
    Waiting(Option<Bound>),
}

/// The places that watches of each class take.
#[derive(Default)]
struct Places(BTreeMap<Class, Taken>);

#[derive(Default)]
struct Taken {
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
    /// `None` if there are few such watches.
    fn class(&self) -> Option<Class> {
        match self.target {
            Target::One(_) => Some(Class::Single),
            Target::Selected(_) => Some(Class::Selected),
            Target::ConfigMonitors | Target::Namespaces(_) | Target::All(_) | Target::HandedOver => None,
        }
    }
}

impl Places {
    fn of(watches: &BTreeMap<Scope, State>) -> Self {
        let mut places = Self::default();
        watches.iter().for_each(|(scope, state)| places.count(scope, state));
        places
    }

    fn count(&mut self, scope: &Scope, state: &State) {
        if let Some(class) = scope.class()
            && !matches!(state, State::Waiting(_))
        {
            let taken = self.0.entry(class).or_default();
            *taken.asked_of_namespace.entry(scope.namespace.clone()).or_default() += 1;
            taken.asked += 1;
            taken.open += usize::from(matches!(state, State::Open(_)));
        }
    }

    /// Returns the bound that leaves no place for one more watch.
    fn bound(&self, scope: &Scope) -> Option<Bound> {
        let class = scope.class()?;
        let (most, taken) = (class.most(), self.0.get(&class)?);
        if taken.asked_of_namespace.get(&scope.namespace).is_some_and(|asked| *asked >= most.asked_of_namespace) {
            Some(Bound::OfNamespace)
        } else if taken.open >= most.open {
            Some(Bound::OfProcess)
        } else {
            (taken.asked >= most.asked).then_some(Bound::Asked)
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
        let Some(state) = self.watches.get_mut(scope).filter(|_| scope.class().is_some()) else { return update };
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
    let (labels, fields) = match &scope.target {
        Target::ConfigMonitors | Target::All(_) => (None, None),
        Target::Namespaces(labels) => (Some(labels.to_string()), None),
        Target::HandedOver => (Some(SELECTS_HANDED_OVER.to_owned()), None),
        Target::Selected(labels) => (Some(labels.to_string()), Some(UNFINISHED.into())),
        Target::One(source) => (None, Some(format!("metadata.name={}", source.name).into())),
    };
    let selection = Selection {
        resource: scope.target.resource(),
        labels,
        fields,
        metadata_only: !matches!(scope.target, Target::ConfigMonitors | Target::Selected(_)),
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
        // There may have been no room for these watches before.
        Target::One(_) => {
            stream::iter([Update::Refused(None)]).chain(with_refusals(client, selection, soon, Update::Source)).boxed()
        }
        Target::Selected(_) => {
            stream::iter([Update::Refused(None)]).chain(with_refusals(client, selection, soon, Update::Pods)).boxed()
        }
    };
    updates.map(move |update| (scope.clone(), update)).take_until(stop.cancelled_owned()).boxed()
}

fn no_room(scope: &Scope, bound: Bound) -> Update {
    let (resource, plural) = (scope.target.resource(), scope.target.resource().plural);
    let Some(class) = scope.class() else { return Update::Refused(None) };
    let Most { open, asked, asked_of_namespace } = class.most();
    let (what, advice) = match class {
        Class::Single => (plural, format!("be watched one by one; grant list and watch on all {plural}")),
        Class::Selected => ("selectors", "discover sources; let ConfigMonitors share a podSelector".to_owned()),
    };
    let bound = match bound {
        Bound::OfNamespace => format!("at most {asked_of_namespace} {what} of a namespace"),
        Bound::OfProcess => format!("at most {open} {what}"),
        Bound::Asked => format!("at most {asked} {what}, with those that are refused,"),
    };
    let text = format!("{bound} can {advice}");
    Update::Refused(Some(Action::new("watch", resource).failed(Cause::Forbidden(text))))
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

    #[tokio::test]
    async fn a_namespace_discovers_sources_for_few_selectors_and_leaves_watches_to_another() {
        let mut watches = watches();
        let selected = |namespace: usize, number: usize| Scope {
            namespace: Some(format!("n{namespace}").into()),
            target: Target::Selected(format!("app={number:03}").into()),
        };
        let scopes: BTreeSet<Scope> =
            (0..9).flat_map(|namespace| (0..65).map(move |number| selected(namespace, number))).collect();
        watches.set(&scopes);
        assert_eq!(watches.states(), [512, 0, 9 * 65 - 512]);
        let mut told = BTreeMap::new();
        while let Some((scope, update)) = watches.next().now_or_never() {
            if let Update::Refused(Some(error)) = update {
                told.insert(scope, error.to_string());
            }
        }
        assert!(told[&selected(0, 64)].contains("at most 64 selectors of a namespace"), "{told:?}");
        assert!(told[&selected(8, 0)].contains("at most 512 selectors can"), "{told:?}");
    }
}
