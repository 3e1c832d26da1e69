//! Dispatches the events of the watches to namespaces. Each namespace has its own index, and a `Shared` for its
//! keepers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tracing::{info, warn};

use super::index::{Index, Instruction};
use super::namespaces::{Namespaces, Selected};
use super::scope::{Scope, Target};
use super::watches::Update;
use crate::controller::limits::Limits;
use crate::controller::shared::Settings;
use crate::controller::shared::Shared;
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::objects::{MetadataOnly, Undecodable};
use crate::kube::watch::Event;
use crate::monitor::ConfigMonitor;
use crate::monitor::content::Kind;
use crate::monitor::pod::WholePod;

pub(crate) struct Dispatcher {
    client: Client,
    namespaces: Namespaces,
    /// `None` without a selector.
    selected: Option<Selected>,
    settings: Settings,
    pub(crate) limits: Arc<Limits>,
    /// If all namespaces are watched, those with ConfigMonitors or with pods that are handed over, and those whose last
    /// keepers stop: a new keeper there must know what they deleted.
    by_name: BTreeMap<Arc<str>, NamespaceState>,
    /// Why not all Secrets can be watched, by the namespace of the watch. Then those that are named are polled, and the
    /// watch on all Secrets is retried.
    no_secrets: BTreeMap<Option<Arc<str>>, Option<Arc<Error>>>,
    /// When pods in which sources are discovered must be listed anew.
    relist_due: Option<Instant>,
}

struct NamespaceState {
    index: Index,
    shared: Arc<Shared>,
}

pub(crate) struct Instructions {
    pub(crate) shared: Arc<Shared>,
    pub(crate) changes: Vec<Instruction>,
}

impl Dispatcher {
    pub(crate) fn new(client: Client, namespaces: Namespaces, settings: Settings, limits: Limits) -> Self {
        let no_secrets = namespaces.each().into_iter().map(|namespace| (namespace, None)).collect();
        let selected = namespaces.selector().map(|_| Selected::default());
        let (limits, by_name) = (Arc::new(limits), BTreeMap::new());
        Self { client, namespaces, selected, settings, limits, by_name, no_secrets, relist_due: None }
    }

    pub(crate) fn config_monitors(&self) -> usize {
        let served = self.by_name.iter().filter(|(name, _)| is_selected(&self.selected, name));
        served.map(|(_, state)| state.index.len()).sum()
    }

    /// Returns what should be watched, or polled.
    pub(crate) fn scopes(&mut self) -> BTreeSet<Scope> {
        let handed_over = self.namespaces.each().into_iter().filter(|_| self.settings.surges);
        let handed_over = handed_over.map(|namespace| Scope { namespace, target: Target::HandedOver });
        let always = self.namespaces.scopes().into_iter().chain(handed_over);
        let mut scopes: BTreeSet<Scope> = always.chain(self.secrets()).collect();
        let selected = &self.selected;
        for (name, state) in self.by_name.iter_mut().filter(|(name, _)| is_selected(selected, name)) {
            let of_pods = state.index.selectors().map(|selector| of_pods(name, selector));
            scopes.extend(of_pods);
        }
        scopes
    }

    /// Returns when pods must be listed anew.
    pub(crate) fn relist_due(&self) -> Option<Instant> {
        self.relist_due
    }

    /// Starts the relists that are due. Returns their watches, to be reopened.
    pub(crate) fn relist(&mut self, now: Instant) -> Vec<Scope> {
        let mut scopes = Vec::new();
        for (name, state) in &mut self.by_name {
            scopes.extend(state.index.begin_relists(now).iter().map(|selector| of_pods(name, selector)));
        }
        self.relist_due = self.by_name.values().filter_map(|state| state.index.relist_due()).min();
        scopes
    }

    /// Returns the Secrets that should be watched, or polled: none while no Secret is a source.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = Scope> {
        let scopes_of = |(namespace, refused): (&Option<Arc<str>>, &Option<Arc<Error>>)| {
            let states = match namespace {
                Some(only) => self.by_name.range(Arc::clone(only)..=Arc::clone(only)),
                None => self.by_name.range::<Arc<str>, _>(..),
            };
            let states = states.filter(|(name, _)| is_selected(&self.selected, name));
            let has_some = states.clone().any(|(_, state)| state.index.has_secrets());
            let all = has_some.then(|| Scope { namespace: namespace.clone(), target: Target::All(Kind::Secret) });
            let named = states.flat_map(|(name, state)| state.index.named_secrets().map(move |secret| (name, secret)));
            let each = named
                .map(|(name, secret)| Scope { namespace: Some(Arc::clone(name)), target: Target::One(secret.clone()) });
            all.into_iter().chain(refused.as_ref().map(|_| each).into_iter().flatten())
        };
        self.no_secrets.iter().flat_map(scopes_of)
    }

    /// Returns whether other watches must be open, and the changes for the keepers.
    pub(crate) fn handle(&mut self, scope: &Scope, update: Update, now: Instant) -> (bool, Vec<Instructions>) {
        let secrets_changed = self.observe_right(scope, &update);
        let touched = self.route(scope, update, now);
        let (watches_changed, instructions) = self.follow_up(scope, touched);
        (secrets_changed || watches_changed, instructions)
    }

    /// Notes whether all Secrets may be watched. Returns whether that has changed.
    fn observe_right(&mut self, scope: &Scope, update: &Update) -> bool {
        let Update::Source(event) = update else { return false };
        let of_secrets =
            self.no_secrets.get_mut(&scope.namespace).filter(|_| scope.target == Target::All(Kind::Secret));
        let Some(refused) = of_secrets else { return false };
        let was_refused = refused.is_some();
        match event {
            Event::Refused(error) => *refused = Some(Arc::new(error.clone())),
            Event::Synced => *refused = None,
            Event::Reset | Event::Listed(_) | Event::Applied(_) | Event::Deleted(_) | Event::Recovered => {}
        }
        refused.is_some() != was_refused
    }

    /// Passes an update to the indices that it concerns. Returns their namespaces, with the instructions for keepers.
    fn route(&mut self, scope: &Scope, update: Update, now: Instant) -> Vec<(Arc<str>, Vec<Instruction>)> {
        match (update, &scope.target) {
            (Update::Monitor(event), _) => {
                let namespace = |monitor: &mut ConfigMonitor| std::mem::take(&mut monitor.metadata.namespace);
                self.dispatch(scope, event, namespace, Index::handle_monitor)
            }
            // If no watch on ConfigMaps is allowed, the operator is not ready instead.
            (Update::Source(Event::Refused(_)), Target::All(Kind::ConfigMap)) if self.no_secrets.len() == 1 => {
                Vec::new()
            }
            (Update::Source(event), Target::All(kind)) => {
                let namespace = |object: &mut MetadataOnly| std::mem::take(&mut object.metadata.namespace);
                self.dispatch(scope, event, namespace, |index, event| index.handle_source(*kind, event, now))
            }
            (Update::Poll, Target::One(source)) => self.in_each(self.within(scope), |index| index.poll(source, now)),
            (Update::Namespace(event), _) => {
                warn_of_undecodable(scope, &event);
                self.select(event)
            }
            (Update::HandedOver(event), _) => {
                let namespace = |pod: &mut MetadataOnly| std::mem::take(&mut pod.metadata.namespace);
                self.dispatch(scope, event, namespace, |_, event| match event {
                    Event::Listed(_) | Event::Applied(_) => vec![Instruction::LookAfter],
                    _ => Vec::new(),
                })
            }
            (Update::Pods { event, is_polled }, Target::Selected(selector)) => {
                let own_pod = self.settings.own_pod.clone();
                // The watch is of one namespace.
                let namespace = |_: &mut WholePod| String::new();
                self.dispatch(scope, event, namespace, |index, event| {
                    index.handle_pods(selector, (event, is_polled), own_pod.as_ref(), now)
                })
            }
            // No watch has such updates.
            (Update::Source(_) | Update::Poll | Update::Pods { .. }, _) => Vec::new(),
        }
    }

    /// Returns whether other watches must be open after these namespaces were touched, and the instructions for keepers. Forgets
    /// the namespaces that have nothing left.
    fn follow_up(&mut self, scope: &Scope, touched: Vec<(Arc<str>, Vec<Instruction>)>) -> (bool, Vec<Instructions>) {
        let (mut watches_changed, mut instructions, mut is_one_empty) = (false, Vec::new(), false);
        for (name, mut changes) in touched {
            let Some(state) = self.by_name.get_mut(&name) else { continue };
            if scope.target == Target::ConfigMonitors {
                state.shared.surge.ring_if_any();
            }
            watches_changed |= state.index.take_watches_changed();
            self.relist_due = self.relist_due.into_iter().chain(state.index.relist_due()).min();
            is_one_empty |= state.index.len() == 0;
            if !is_selected(&self.selected, &name) {
                changes.retain(|change| match change {
                    Instruction::Stop(_) => true,
                    Instruction::Start(..) | Instruction::Notify(..) => false,
                    Instruction::LookAfter => {
                        state.shared.surge.are_left.store(true, Ordering::Relaxed);
                        false
                    }
                });
            }
            if !changes.is_empty() {
                instructions.push(Instructions { shared: Arc::clone(&state.shared), changes });
            }
        }
        if is_one_empty && scope.namespace.is_none() {
            let is_used = |state: &NamespaceState| {
                let has_pods = state.index.has_selectors() || state.shared.surge.are_left.load(Ordering::Relaxed);
                state.index.len() > 0 || has_pods
            };
            self.by_name.retain(|_, state| is_used(state) || Arc::strong_count(&state.shared) > 1);
        }
        (watches_changed, instructions)
    }

    /// Starts the keepers of namespaces that have the labels now, and stops those of namespaces that have lost them.
    fn select(&mut self, event: Event<MetadataOnly>) -> Vec<(Arc<str>, Vec<Instruction>)> {
        if let Event::Listed(Ok(namespace)) | Event::Applied(Ok(namespace)) = &event
            && !self.namespaces.include(&namespace.metadata.name)
        {
            return Vec::new();
        }
        let Some(selected) = &mut self.selected else { return Vec::new() };
        let changed = selected.observe(event);
        let mut touched = Vec::new();
        for name in changed {
            let Some(NamespaceState { index, shared }) = self.by_name.get_mut(&name) else { continue };
            let changes = if selected.contain(&name) {
                let are_left = shared.surge.are_left.load(Ordering::Relaxed);
                index.start_all().chain(are_left.then_some(Instruction::LookAfter)).collect()
            } else {
                info!(namespace = &*name, "namespace no longer selected");
                shared.surge.leave_alone();
                index.stop_all()
            };
            touched.push((name, changes));
        }
        touched
    }

    /// Passes an event about an object to the index of its namespace, and any other event to each index that the watch
    /// covers. Returns these namespaces with their changes.
    fn dispatch<T: Clone>(
        &mut self,
        scope: &Scope,
        mut event: Event<T>,
        namespace_of: impl Fn(&mut T) -> String,
        mut handle: impl FnMut(&mut Index, Event<T>) -> Vec<Instruction>,
    ) -> Vec<(Arc<str>, Vec<Instruction>)> {
        let is_new = matches!(scope.target, Target::ConfigMonitors | Target::HandedOver)
            && matches!(event, Event::Listed(_) | Event::Applied(_));
        if let Event::Listed(Ok(object)) | Event::Applied(Ok(object)) | Event::Deleted(Ok(object)) = &mut event {
            let name = scope.namespace.clone().unwrap_or_else(|| namespace_of(object).into());
            let is_known = is_new || self.by_name.contains_key(&name);
            if !is_known || !self.namespaces.include(&name) {
                return Vec::new();
            }
            let changes = handle(&mut self.state(&name).index, event);
            return vec![(name, changes)];
        }
        warn_of_undecodable(scope, &event);
        self.in_each(self.within(scope), |index| handle(index, event.clone()))
    }

    fn within(&self, scope: &Scope) -> Vec<Arc<str>> {
        match &scope.namespace {
            Some(namespace) => vec![Arc::clone(namespace)],
            None => self.by_name.keys().cloned().collect(),
        }
    }

    fn in_each(
        &mut self,
        names: Vec<Arc<str>>,
        mut handle: impl FnMut(&mut Index) -> Vec<Instruction>,
    ) -> Vec<(Arc<str>, Vec<Instruction>)> {
        let handle_in = |name: Arc<str>| {
            let changes = handle(&mut self.state(&name).index);
            (name, changes)
        };
        names.into_iter().map(handle_in).collect()
    }

    /// Returns why not all Secrets of a namespace can be watched.
    fn no_secrets(&self, namespace: Option<&Arc<str>>) -> Option<Arc<Error>> {
        self.no_secrets.get(&namespace.cloned()).or(self.no_secrets.get(&None)).cloned().flatten()
    }

    /// Creates the state if the namespace has none.
    fn state(&mut self, name: &Arc<str>) -> &mut NamespaceState {
        let no_secrets = self.no_secrets(Some(name));
        let make = || {
            let index = Index::new(Arc::clone(&self.settings.excluded), no_secrets);
            let shared = Shared::new(self.client.within(name), self.settings.clone(), Arc::clone(&self.limits));
            NamespaceState { index, shared: Arc::new(shared) }
        };
        self.by_name.entry(Arc::clone(name)).or_insert_with(make)
    }
}

/// Returns whether a namespace that is included has the labels. With a selector, none has before the namespaces are listed.
fn is_selected(selected: &Option<Selected>, namespace: &str) -> bool {
    selected.as_ref().is_none_or(|selected| selected.contain(namespace))
}

/// Returns the watch on the pods of a selector in which sources are discovered.
fn of_pods(namespace: &Arc<str>, selector: &Arc<str>) -> Scope {
    Scope { namespace: Some(Arc::clone(namespace)), target: Target::Selected(Arc::clone(selector)) }
}

fn warn_of_undecodable<T>(scope: &Scope, event: &Event<T>) {
    if let Event::Listed(Err(error)) | Event::Applied(Err(error)) | Event::Deleted(Err(error)) = event {
        let Undecodable { name, namespace, error } = error;
        let (resource, namespace) =
            (scope.target.resource().plural, scope.namespace.as_deref().or(namespace.as_deref()));
        warn!(namespace, resource, name, error, "object cannot be decoded; keeping its last known state");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::Cause;
    use crate::kube::objects::Metadata;
    use crate::kube::{Action, SECRETS};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    fn dispatcher(namespaces: Namespaces) -> Dispatcher {
        let limits = Limits::new(CancellationToken::new());
        Dispatcher::new(Client::unconnected(), namespaces, Settings::default(), limits)
    }

    fn monitor(namespace: &str, uid: &str, source: &str) -> ConfigMonitor {
        let spec = json!({ "sources": [{ source: { "name": "a" } }], "podSelector": { "app": "web" } });
        let metadata = json!({ "namespace": namespace, "name": "m", "uid": uid, "resourceVersion": "1" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn object(namespace: &str) -> MetadataOnly {
        let (namespace, name) = (namespace.to_owned(), "a".to_owned());
        MetadataOnly { metadata: Metadata { namespace, name, resource_version: "7".into() } }
    }

    impl Dispatcher {
        /// Applies an update, and returns which keepers of which namespace start, are notified, and stop.
        fn update(&mut self, target: Target, update: Update) -> Vec<String> {
            let word = |change: &Instruction| match change {
                Instruction::Start(..) => "start",
                Instruction::Notify(..) => "notify",
                Instruction::Stop(_) => "stop",
                Instruction::LookAfter => "look after",
            };
            let (_, follow_ups) = self.handle(&Scope { namespace: None, target }, update, Instant::now());
            let words = |Instructions { shared, changes }: &Instructions| {
                let words: Vec<&str> = changes.iter().map(word).collect();
                format!("{} {}", shared.client.namespace(), words.join(" "))
            };
            follow_ups.iter().map(words).collect()
        }

        fn monitor(&mut self, event: Event<ConfigMonitor>) -> Vec<String> {
            self.update(Target::ConfigMonitors, Update::Monitor(event))
        }

        fn config_map(&mut self, event: Event<MetadataOnly>) -> Vec<String> {
            self.update(Target::All(Kind::ConfigMap), Update::Source(event))
        }
    }

    #[test]
    fn an_event_concerns_the_namespace_of_its_object_and_a_list_all_namespaces() {
        let mut dispatcher = dispatcher(Namespaces::All { excluded: Vec::new(), selector: None });
        assert!(dispatcher.config_map(Event::Applied(Ok(object("x")))).is_empty() && dispatcher.by_name.is_empty());
        for namespace in ["x", "y"] {
            let start = dispatcher.monitor(Event::Applied(Ok(monitor(namespace, namespace, "configMap"))));
            assert_eq!(start, [format!("{namespace} start")]);
        }
        assert_eq!(dispatcher.config_map(Event::Applied(Ok(object("x")))), ["x notify"]);
        assert_eq!(dispatcher.config_monitors(), 2);
        dispatcher.config_map(Event::Reset);
        dispatcher.config_map(Event::Listed(Ok(object("y"))));
        assert_eq!(dispatcher.config_map(Event::Synced), ["x notify"], "an object that is not in the list is deleted");
        dispatcher.monitor(Event::Reset);
        assert!(
            dispatcher.monitor(Event::Listed(Ok(monitor("z", "z", "configMap")))).is_empty(),
            "the keeper starts when the list is complete"
        );
        let mut update = dispatcher.monitor(Event::Synced);
        update.sort();
        assert_eq!(
            (update, dispatcher.config_monitors()),
            (["x stop", "y stop", "z start"].map(str::to_owned).to_vec(), 1)
        );
    }

    #[test]
    fn nothing_of_an_excluded_namespace_is_kept() {
        let mut dispatcher = dispatcher(Namespaces::All { excluded: vec!["kube-*".parse().unwrap()], selector: None });
        for namespace in ["kube-system", "x"] {
            dispatcher.monitor(Event::Applied(Ok(monitor(namespace, namespace, "configMap"))));
        }
        assert_eq!(dispatcher.by_name.keys().map(|name| &**name).collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn the_keepers_of_a_namespace_run_while_it_is_selected() {
        let selector = Some("served".parse().unwrap());
        let mut dispatcher = dispatcher(Namespaces::All { excluded: Vec::new(), selector });
        let of_namespaces = |dispatcher: &mut Dispatcher, event: fn(_) -> _, name: &str| {
            let metadata = Metadata { namespace: String::new(), name: name.to_owned(), resource_version: "7".into() };
            let event = Update::Namespace(event(Ok(MetadataOnly { metadata })));
            let changes = dispatcher.update(Target::Namespaces("served".into()), event);
            let has_secrets = dispatcher.secrets().next().is_some();
            (changes, has_secrets)
        };
        let of = |uid| Event::Applied(Ok(monitor(if uid == "2" { "y" } else { "x" }, uid, "secret")));
        for uid in ["1", "2", "3"] {
            assert!(dispatcher.monitor(of(uid)).is_empty());
        }
        assert_eq!((dispatcher.config_monitors(), dispatcher.secrets().count()), (0, 0));
        let (applied, deleted) = (Event::Applied, Event::Deleted);
        assert_eq!(of_namespaces(&mut dispatcher, Event::Listed, "x"), (vec!["x start start".to_owned()], true));
        assert_eq!(of_namespaces(&mut dispatcher, applied, "x"), (Vec::new(), true), "it was known");
        assert_eq!(dispatcher.monitor(of("1")), ["x notify"]);
        assert!(dispatcher.monitor(of("2")).is_empty());
        assert_eq!(of_namespaces(&mut dispatcher, deleted, "x"), (vec!["x stop stop".to_owned()], false));
        assert!(dispatcher.monitor(of("1")).is_empty());
        assert_eq!(of_namespaces(&mut dispatcher, applied, "x"), (vec!["x start start".to_owned()], true));
    }

    #[test]
    fn a_namespace_keeps_its_shared_state_until_its_last_keeper_has_stopped() {
        let mut dispatcher = dispatcher(Namespaces::All { excluded: Vec::new(), selector: None });
        let applied = || Event::Applied(Ok(monitor("x", "1", "configMap")));
        dispatcher.monitor(applied());
        let keeper = Arc::clone(&dispatcher.by_name["x"].shared);
        assert_eq!(dispatcher.monitor(Event::Deleted(Ok(monitor("x", "1", "configMap")))), ["x stop"]);
        dispatcher.monitor(applied());
        assert!(Arc::ptr_eq(&dispatcher.by_name["x"].shared, &keeper));
        drop(keeper);
        dispatcher.monitor(Event::Deleted(Ok(monitor("x", "1", "configMap"))));
        dispatcher.monitor(Event::Applied(Ok(monitor("y", "2", "configMap"))));
        dispatcher.monitor(Event::Deleted(Ok(monitor("y", "2", "configMap"))));
        assert!(!dispatcher.by_name.contains_key("x"));
    }

    #[test]
    fn secrets_are_watched_where_they_are_named_and_polled_without_the_right_to_watch_all() {
        let mut dispatcher = dispatcher(Namespaces::All { excluded: Vec::new(), selector: None });
        dispatcher.monitor(Event::Applied(Ok(monitor("x", "1", "configMap"))));
        assert_eq!(dispatcher.secrets().count(), 0);
        let all = Scope { namespace: None, target: Target::All(Kind::Secret) };
        let (secrets_changed, _) = dispatcher.handle(
            &Scope { namespace: None, target: Target::ConfigMonitors },
            Update::Monitor(Event::Applied(Ok(monitor("y", "2", "secret")))),
            Instant::now(),
        );
        assert_eq!((secrets_changed, dispatcher.secrets().collect::<Vec<_>>()), (true, vec![all.clone()]));
        let cause = Cause::Forbidden("no".to_owned());
        let refused = || Update::Source(Event::Refused(Action::new("list", SECRETS).failed(cause.clone())));
        assert!(dispatcher.handle(&all, refused(), Instant::now()).0);
        let scopes: Vec<Scope> = dispatcher.secrets().collect();
        let [first, alone] = &scopes[..] else { panic!("{scopes:?}") };
        assert!(*first == all && alone.namespace.as_deref() == Some("y") && matches!(alone.target, Target::One(_)));
        assert!(!dispatcher.handle(&all, refused(), Instant::now()).0, "an equal refusal changes nothing");
        assert!(!dispatcher.handle(&all, Update::Source(Event::Reset), Instant::now()).0, "the list may still fail");
        let (_, update) = dispatcher.handle(alone, Update::Poll, Instant::now());
        assert_eq!((update.len(), update[0].shared.client.namespace()), (1, "y"));
        let (_, update) = dispatcher.handle(&all, Update::Source(Event::Synced), Instant::now());
        assert_eq!(dispatcher.secrets().collect::<Vec<_>>(), [all]);
        let told: Vec<&str> = update.iter().map(|update| update.shared.client.namespace()).collect();
        assert_eq!(told, ["x", "y"], "no Secret is refused any more");
        dispatcher.monitor(Event::Applied(Ok(monitor("y", "2", "configMap"))));
        assert_eq!(dispatcher.secrets().count(), 0, "none is named any more");
    }
}
