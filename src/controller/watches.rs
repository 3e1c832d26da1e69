//! Opens and closes the watches, and merges their updates. Secrets are watched only while a ConfigMonitor names one. Pods
//! for whose selector there is no place are listed now and then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::DropGuard;

use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::MetadataOnly;
use crate::kube::watch::{Event, watch};
use crate::kube::{Action, NAMESPACES, PODS, Resource};
use crate::monitor::content::Kind;
use crate::monitor::pod::{SELECTS_HANDED_OVER, WholePod};
use crate::monitor::source::SourceName;
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor};

/// The interval at which the watch on all Secrets is retried while its right is missing. The right may be missing on
/// purpose.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The pods of a selector without a place are listed this long after the last list, which may take no longer than this.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(60);
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// So many lists are made at a time, one of a namespace, each with this pause after it: ten in a second.
const LISTS_AT_A_TIME: usize = 4;
const LIST_PAUSE: Duration = Duration::from_millis(400);

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
    /// Why the pods are listed now and then instead of being watched. `None`: they are watched.
    Rarely(Option<Arc<str>>),
    /// The right to list or to watch is missing. `None`: the right has been granted.
    Refused(Option<Error>),
}

pub(crate) struct Watches {
    client: Client,
    watches: BTreeMap<Scope, State>,
    updates: SelectAll<BoxStream<'static, (Scope, Update)>>,
    /// The watches without a place, and the bounds that they have met, which nobody was told yet.
    untold: VecDeque<(Scope, Bound)>,
    turns: Turns,
}

/// Who may list pods now and then: of each namespace one selector at a time, and of these a few.
struct Turns {
    of_namespaces: BTreeMap<Option<Arc<str>>, Weak<Semaphore>>,
    of_all: Arc<Semaphore>,
}

impl Turns {
    /// Returns what to acquire, in this order.
    fn of(&mut self, namespace: Option<&Arc<str>>) -> [Arc<Semaphore>; 2] {
        self.of_namespaces.retain(|_, turn| turn.strong_count() > 0);
        let known = self.of_namespaces.get(&namespace.cloned()).and_then(Weak::upgrade);
        let turn = known.unwrap_or_else(|| Arc::new(Semaphore::new(1)));
        self.of_namespaces.insert(namespace.cloned(), Arc::downgrade(&turn));
        [turn, Arc::clone(&self.of_all)]
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self { of_namespaces: BTreeMap::new(), of_all: Arc::new(Semaphore::new(LISTS_AT_A_TIME)) }
    }
}

enum State {
    /// Dropping the guard closes the watch.
    Open(DropGuard),
    /// The right is missing. It is asked for again and again.
    Refused(DropGuard),
    /// There are too many watches of its class for this one, which has met this bound.
    Waiting(Option<Bound>),
    /// There is no place, and the objects are listed now and then.
    Listed { _guard: DropGuard },
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
            && !matches!(state, State::Waiting(_) | State::Listed { .. })
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
        let (watches, updates, untold) = (BTreeMap::new(), SelectAll::new(), VecDeque::new());
        Self { client, watches, updates, untold, turns: Turns::default() }
    }

    /// Opens the watches of these scopes, and closes all others.
    pub(crate) fn set(&mut self, scopes: &BTreeSet<Scope>) {
        self.watches.retain(|scope, _| scopes.contains(scope));
        for scope in scopes {
            self.watches.entry(scope.clone()).or_insert(State::Waiting(None));
        }
        self.open_waiting();
    }

    /// Closes a watch. The next `set` opens it anew. What is listed now and then is not listed more often.
    pub(crate) fn close(&mut self, scope: &Scope) {
        if !matches!(self.watches.get(scope), Some(State::Listed { .. })) {
            self.watches.remove(scope);
        }
    }

    /// Opens the watches for which there is a place. The pods of other selectors are listed now and then, and other
    /// watches are told once which bound they have met.
    fn open_waiting(&mut self) {
        let mut places = Places::of(&self.watches);
        let mut watches: Vec<(&Scope, &mut State)> = self.watches.iter_mut().collect();
        // A watch that was closed to begin anew keeps its place.
        watches.sort_by_key(|(_, state)| matches!(state, State::Listed { .. }));
        for (scope, state) in watches {
            let bound = places.bound(scope);
            match (&mut *state, bound) {
                (State::Open(_) | State::Refused(_), _) | (State::Listed { .. }, Some(_)) => continue,
                (State::Waiting(told), Some(bound)) if scope.class() != Some(Class::Selected) => {
                    if told.replace(bound) != Some(bound) {
                        self.untold.push_back((scope.clone(), bound));
                    }
                    continue;
                }
                (State::Waiting(_), _) | (State::Listed { .. }, None) => {}
            }
            let stop = self.client.stop().child_token();
            let client = self.client.with_stop(stop.clone());
            let updates = match bound {
                None => updates(client, scope),
                Some(bound) => {
                    let told = stream::iter([Update::Rarely(Some(why_rarely(bound).into()))]);
                    let list = {
                        let scope = scope.clone();
                        move || one_list(client.clone(), &scope)
                    };
                    told.chain(rounds(self.turns.of(scope.namespace.as_ref()), list)).boxed()
                }
            };
            let (its, stopped) = (scope.clone(), stop.clone().cancelled_owned());
            self.updates.push(updates.map(move |update| (its.clone(), update)).take_until(stopped).boxed());
            *state = if bound.is_none() {
                State::Open(stop.drop_guard())
            } else {
                State::Listed { _guard: stop.drop_guard() }
            };
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
                let state = match Places::of(&self.watches).bound(scope) {
                    None => State::Open(guard),
                    Some(_) if scope.class() == Some(Class::Selected) => State::Waiting(None),
                    Some(bound) => {
                        self.watches.insert(scope.clone(), State::Waiting(Some(bound)));
                        return no_room(scope, bound);
                    }
                };
                self.watches.insert(scope.clone(), state);
                self.open_waiting();
                update
            }
            (_, before) => {
                *state = before;
                update
            }
        }
    }
}

fn updates(client: Client, scope: &Scope) -> BoxStream<'static, Update> {
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
    match &scope.target {
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
            let before = stream::iter([Update::Refused(None), Update::Rarely(None)]);
            before.chain(with_refusals(client, selection, soon, Update::Pods)).boxed()
        }
    }
}

/// Lists the objects of a scope once: a watch until its list is complete, or refused.
fn one_list(client: Client, scope: &Scope) -> BoxStream<'static, Update> {
    let text = format!("the list has not been complete within {} s", LIST_TIMEOUT.as_secs());
    let timeout = Action::new("list", scope.target.resource()).failed(Cause::Unreachable(text));
    let timeout = tokio::time::sleep(LIST_TIMEOUT).map(|()| Update::Refused(Some(timeout)));
    until_listed(stream::select(updates(client, scope), timeout.into_stream())).boxed()
}

/// Returns the updates of a watch about its first list, the end of which is the end of these.
fn until_listed(updates: impl Stream<Item = Update> + Send) -> impl Stream<Item = Update> + Send {
    let with_end = updates.flat_map(|update| {
        let is_of_list = matches!(update, Update::Pods(_) | Update::Refused(Some(_)));
        let is_end = matches!(update, Update::Pods(Event::Synced) | Update::Refused(Some(_)));
        stream::iter(is_of_list.then_some(Some(update)).into_iter().chain(is_end.then_some(None)))
    });
    with_end.take_while(|update| std::future::ready(update.is_some())).filter_map(std::future::ready)
}

/// Lists again and again, each time in its turn.
fn rounds<L: Stream<Item = Update> + Send + 'static>(
    turns: [Arc<Semaphore>; 2],
    list: impl Fn() -> L + Clone + Send + 'static,
) -> impl Stream<Item = Update> + Send {
    let round = move || {
        let ([of_namespace, of_all], list) = (turns.clone(), list.clone());
        let turn = async move { (of_namespace.acquire_owned().await, of_all.acquire_owned().await) };
        let with_turn = turn.map(move |held| {
            let rest = async move {
                tokio::time::sleep(LIST_PAUSE).await;
                drop(held);
                tokio::time::sleep(LIST_AGAIN_AFTER).await;
            };
            list().chain(stream::once(rest).filter_map(async |()| None))
        });
        with_turn.flatten_stream()
    };
    stream::repeat_with(round).flatten()
}

fn why_rarely(bound: Bound) -> String {
    let Most { open, asked, asked_of_namespace } = Class::Selected.most();
    let bound = match bound {
        Bound::OfNamespace => format!("{asked_of_namespace} selectors of a namespace"),
        Bound::OfProcess => format!("{open} selectors"),
        Bound::Asked => format!("{asked} selectors, with those that are refused,"),
    };
    format!(
        "new sources are found a minute later, because the pods of at most {bound} are watched; let ConfigMonitors share \
         a podSelector"
    )
}

/// Tells the watch on a single object that there is no place for it.
fn no_room(scope: &Scope, bound: Bound) -> Update {
    let (resource, plural) = (scope.target.resource(), scope.target.resource().plural);
    let Most { open, asked, asked_of_namespace } = Class::Single.most();
    let bound = match bound {
        Bound::OfNamespace => format!("at most {asked_of_namespace} {plural} of a namespace"),
        Bound::OfProcess => format!("at most {open} {plural}"),
        Bound::Asked => format!("at most {asked} {plural}, with those that are refused,"),
    };
    let text = format!("{bound} can be watched one by one; grant list and watch on all {plural}");
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
        /// How many scopes are listed now and then.
        fn listed(&self) -> usize {
            self.watches.values().filter(|state| matches!(state, State::Listed { .. })).count()
        }

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
    async fn a_namespace_watches_the_pods_of_few_selectors_and_leaves_watches_to_another() {
        let mut watches = watches();
        let selected = |namespace: usize, number: usize| Scope {
            namespace: Some(format!("n{namespace}").into()),
            target: Target::Selected(format!("app={number:03}").into()),
        };
        let scopes: BTreeSet<Scope> =
            (0..9).flat_map(|namespace| (0..65).map(move |number| selected(namespace, number))).collect();
        watches.set(&scopes);
        assert_eq!((watches.states(), watches.listed()), ([512, 0, 0], 9 * 65 - 512));
        let mut told = BTreeMap::new();
        while let Some((scope, update)) = watches.next().now_or_never() {
            if let Update::Rarely(Some(why)) = update {
                told.insert(scope, why);
            }
        }
        assert!(told[&selected(0, 64)].contains("at most 64 selectors of a namespace"), "{told:?}");
        assert!(told[&selected(8, 0)].contains("at most 512 selectors are"), "{told:?}");
        watches.close(&selected(8, 0));
        assert_eq!(watches.listed(), 9 * 65 - 512, "it is not listed more often");
        let refused = watches.take(&selected(0, 0), refused());
        assert!(matches!(refused, Update::Refused(Some(_))));
        assert_eq!((watches.states(), watches.listed()), ([512, 1, 0], 9 * 65 - 513), "another one takes its place");
        watches.take(&selected(0, 0), Update::Refused(None));
        assert_eq!((watches.states(), watches.listed()), ([512, 0, 0], 9 * 65 - 512));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_place_pods_are_listed_one_after_the_other_and_once_a_minute() {
        let (mut turns, begun) = (Turns::default(), Arc::new(std::sync::Mutex::new(Vec::new())));
        let start = tokio::time::Instant::now();
        let mut all = SelectAll::new();
        // The first namespace has many selectors, and its lists take long.
        for number in 0..40 {
            let (namespace, time) = if number < 20 { (0, 5) } else { (number, 0) };
            let begun = Arc::clone(&begun);
            let list = move || {
                begun.lock().unwrap().push((number, start.elapsed().as_millis()));
                let list = async move {
                    tokio::time::sleep(Duration::from_secs(time)).await;
                    Update::Pods(Event::Synced)
                };
                stream::once(list)
            };
            let turns = turns.of(Some(&format!("n{namespace}").into()));
            all.push(rounds(turns, list).boxed());
        }
        let until = tokio::time::sleep(Duration::from_secs(300));
        all.take_until(until).for_each(|_| std::future::ready(())).await;
        let begun = begun.lock().unwrap();
        let times = |number| begun.iter().filter(move |(its, _)| *its == number).map(|(_, at)| *at).collect::<Vec<_>>();
        for number in 0..40 {
            let times = times(number);
            assert!(times.windows(2).all(|two| two[1] >= two[0] + 60_000), "{times:?}");
            let expected = if number < 20 { 2 } else { 5 };
            assert!(times.len() >= expected, "{number}: {times:?}");
        }
        let in_a_second = begun.windows(11).all(|some| some[10].1 >= some[0].1 + 1000);
        assert!(in_a_second, "{begun:?}");
    }

    #[test]
    fn a_list_is_over_as_soon_as_it_is_complete_or_refused() {
        for last in [Update::Pods(Event::Synced), refused()] {
            let list = [Update::Refused(None), Update::Rarely(None), Update::Pods(Event::Reset), last];
            let updates = stream::iter(list).chain(stream::pending());
            assert_eq!(until_listed(updates).count().now_or_never(), Some(2));
        }
    }
}
