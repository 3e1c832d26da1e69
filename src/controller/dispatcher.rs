//! Dispatches the events of the watches to namespaces. Each namespace has its own index, and a `Shared` for its
//! keepers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tracing::warn;

use super::index::{Change, Index};
use super::limits::Limits;
use super::namespaces::Namespaces;
use super::shared::Shared;
use super::watches::{Scope, Target, Update};
use crate::kube::Uid;
use crate::kube::client::Client;
use crate::kube::objects::{MetadataOnly, Undecodable};
use crate::kube::watch::Event;
use crate::monitor::ConfigMonitor;
use crate::monitor::content::Kind;

pub(crate) struct Dispatcher {
    client: Client,
    namespaces: Namespaces,
    own_pod: Option<Uid>,
    pub(crate) limits: Arc<Limits>,
    /// If all namespaces are watched, those with ConfigMonitors, and those whose last keepers stop: a new keeper there
    /// must know what they deleted.
    by_name: BTreeMap<Arc<str>, NamespaceState>,
    /// Whether the right to watch all Secrets is missing, by the namespace of the watch. Then each named Secret has its
    /// own watch, and the watch on all Secrets is retried.
    one_by_one: BTreeMap<Option<Arc<str>>, bool>,
}

struct NamespaceState {
    index: Index,
    shared: Arc<Shared>,
}

pub(crate) struct Changes {
    pub(crate) shared: Arc<Shared>,
    pub(crate) changes: Vec<Change>,
}

impl Dispatcher {
    pub(crate) fn new(client: Client, namespaces: Namespaces, own_pod: Option<Uid>, limits: Limits) -> Self {
        let one_by_one = namespaces.each().into_iter().map(|namespace| (namespace, false)).collect();
        Self { client, namespaces, own_pod, limits: Arc::new(limits), by_name: BTreeMap::new(), one_by_one }
    }

    pub(crate) fn config_monitors(&self) -> usize {
        self.by_name.values().map(|state| state.index.len()).sum()
    }

    /// Returns the watches on Secrets that should be open: none while no ConfigMonitor names a Secret.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = Scope> {
        let scopes_of = |(namespace, one_by_one): (&Option<Arc<str>>, &bool)| {
            let states = match namespace {
                Some(only) => self.by_name.range(Arc::clone(only)..=Arc::clone(only)),
                None => self.by_name.range::<Arc<str>, _>(..),
            };
            let named = states.flat_map(|(name, state)| state.index.secrets().map(move |secret| (name, secret)));
            let mut each = named
                .map(|(name, secret)| Scope { namespace: Some(Arc::clone(name)), target: Target::One(secret.clone()) })
                .peekable();
            let all = each.peek().map(|_| Scope { namespace: namespace.clone(), target: Target::All(Kind::Secret) });
            all.into_iter().chain(one_by_one.then_some(each).into_iter().flatten())
        };
        self.one_by_one.iter().flat_map(scopes_of)
    }

    /// Returns whether the watches on Secrets must change, and the changes for the keepers.
    pub(crate) fn handle(&mut self, scope: &Scope, update: Update, now: Instant) -> (bool, Vec<Changes>) {
        let mut secrets_changed = false;
        if scope.target == Target::All(Kind::Secret)
            && let Some(one_by_one) = self.one_by_one.get_mut(&scope.namespace)
        {
            let is_refused = match &update {
                Update::Refused(Some(_)) => true,
                Update::Source(Event::Synced) => false,
                _ => *one_by_one,
            };
            secrets_changed = std::mem::replace(one_by_one, is_refused) != is_refused;
        }
        let touched = match update {
            Update::Monitor(event) => {
                let namespace = |monitor: &mut ConfigMonitor| std::mem::take(&mut monitor.metadata.namespace);
                self.dispatch(scope, event, namespace, Index::handle_monitor)
            }
            Update::Source(event) => {
                // The right to watch all Secrets includes each Secret whose own watch was refused.
                let are_allowed = scope.target == Target::All(Kind::Secret) && matches!(event, Event::Synced);
                let concerned = if are_allowed { self.within(scope) } else { Vec::new() };
                let allowed = self.in_each(concerned, |index| index.handle_refusal(&scope.target, None));
                let namespace = |object: &mut MetadataOnly| std::mem::take(&mut object.metadata.namespace);
                let update = self
                    .dispatch(scope, event, namespace, |index, event| index.handle_source(&scope.target, event, now));
                allowed.into_iter().chain(update).collect()
            }
            Update::Refused(error) if self.keepers_report_refusal(scope) => {
                self.in_each(self.within(scope), |index| index.handle_refusal(&scope.target, error.as_ref()))
            }
            Update::Refused(_) => Vec::new(),
        };
        let (mut follow_ups, mut is_one_empty) = (Vec::new(), false);
        for (name, changes) in touched {
            let Some(state) = self.by_name.get_mut(&name) else { continue };
            secrets_changed |= state.index.take_secrets_changed();
            is_one_empty |= state.index.len() == 0;
            if !changes.is_empty() {
                follow_ups.push(Changes { shared: Arc::clone(&state.shared), changes });
            }
        }
        if is_one_empty && scope.namespace.is_none() {
            self.by_name.retain(|_, state| state.index.len() > 0 || Arc::strong_count(&state.shared) > 1);
        }
        (secrets_changed, follow_ups)
    }

    /// Returns whether the ConfigMonitors report the refusal of a watch. Without the right to watch all Secrets, each
    /// Secret has its own watch. If no watch on ConfigMaps is allowed, the operator is not ready instead.
    fn keepers_report_refusal(&self, scope: &Scope) -> bool {
        match scope.target {
            // Otherwise this watch is about to be closed.
            Target::One(_) => self.one_by_one.get(&scope.namespace).or(self.one_by_one.get(&None)) == Some(&true),
            Target::All(kind) => !kind.is_confidential() && self.one_by_one.len() > 1,
            Target::ConfigMonitors => false,
        }
    }

    /// Passes an event about an object to the index of its namespace, and any other event to each index that the watch
    /// covers. Returns these namespaces with their changes.
    fn dispatch<T: Clone>(
        &mut self,
        scope: &Scope,
        mut event: Event<T>,
        namespace_of: impl Fn(&mut T) -> String,
        mut handle: impl FnMut(&mut Index, Event<T>) -> Vec<Change>,
    ) -> Vec<(Arc<str>, Vec<Change>)> {
        let is_new_monitor =
            scope.target == Target::ConfigMonitors && matches!(event, Event::Listed(_) | Event::Applied(_));
        match &mut event {
            Event::Listed(Ok(object)) | Event::Applied(Ok(object)) | Event::Deleted(Ok(object)) => {
                let name = scope.namespace.clone().unwrap_or_else(|| namespace_of(object).into());
                let is_known = is_new_monitor || self.by_name.contains_key(&name);
                if !is_known || !self.namespaces.include(&name) {
                    return Vec::new();
                }
                let changes = handle(&mut self.state(&name).index, event);
                return vec![(name, changes)];
            }
            Event::Listed(Err(error)) | Event::Applied(Err(error)) | Event::Deleted(Err(error)) => {
                let Undecodable { name, namespace, error } = error;
                let (resource, namespace) =
                    (scope.target.resource().plural, scope.namespace.as_deref().or(namespace.as_deref()));
                warn!(namespace, resource, name, error, "object cannot be decoded; keeping its last known state");
            }
            Event::Reset | Event::Synced => {}
        }
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
        mut handle: impl FnMut(&mut Index) -> Vec<Change>,
    ) -> Vec<(Arc<str>, Vec<Change>)> {
        let handle_in = |name: Arc<str>| {
            let changes = handle(&mut self.state(&name).index);
            (name, changes)
        };
        names.into_iter().map(handle_in).collect()
    }

    /// Creates the state if the namespace has none.
    fn state(&mut self, name: &Arc<str>) -> &mut NamespaceState {
        let make = || {
            let shared = Shared::new(self.client.within(name), self.own_pod.clone(), Arc::clone(&self.limits));
            NamespaceState { index: Index::default(), shared: Arc::new(shared) }
        };
        self.by_name.entry(Arc::clone(name)).or_insert_with(make)
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
        Dispatcher::new(Client::unconnected(), namespaces, None, Limits::new(CancellationToken::new()))
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
            let word = |change: &Change| match change {
                Change::Start(..) => "start",
                Change::Notify(..) => "notify",
                Change::Stop(_) => "stop",
            };
            let (_, follow_ups) = self.handle(&Scope { namespace: None, target }, update, Instant::now());
            let words = |Changes { shared, changes }: &Changes| {
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
        let mut dispatcher = dispatcher(Namespaces::AllBut(Vec::new()));
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
        let mut dispatcher = dispatcher(Namespaces::AllBut(vec!["kube-*".parse().unwrap()]));
        for namespace in ["kube-system", "x"] {
            dispatcher.monitor(Event::Applied(Ok(monitor(namespace, namespace, "configMap"))));
        }
        assert_eq!(dispatcher.by_name.keys().map(|name| &**name).collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn a_namespace_keeps_its_shared_state_until_its_last_keeper_has_stopped() {
        let mut dispatcher = dispatcher(Namespaces::AllBut(Vec::new()));
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
    fn secrets_are_watched_where_they_are_named_and_one_by_one_without_the_right_to_all() {
        let mut dispatcher = dispatcher(Namespaces::AllBut(Vec::new()));
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
        let error = || Action::new("list", SECRETS).failed(cause.clone());
        assert!(dispatcher.handle(&all, Update::Refused(Some(error())), Instant::now()).0);
        let scopes: Vec<Scope> = dispatcher.secrets().collect();
        let [first, alone] = &scopes[..] else { panic!("{scopes:?}") };
        assert!(*first == all && alone.namespace.as_deref() == Some("y") && matches!(alone.target, Target::One(_)));
        assert!(
            !dispatcher.handle(&all, Update::Refused(Some(error())), Instant::now()).0,
            "an equal refusal changes nothing"
        );
        assert!(!dispatcher.handle(&all, Update::Source(Event::Reset), Instant::now()).0, "the list may still fail");
        let (_, update) = dispatcher.handle(alone, Update::Refused(Some(error())), Instant::now());
        assert_eq!((update.len(), update[0].shared.client.namespace()), (1, "y"));
        let (_, update) = dispatcher.handle(&all, Update::Source(Event::Synced), Instant::now());
        assert_eq!(dispatcher.secrets().collect::<Vec<_>>(), [all]);
        assert_eq!(update.len(), 2, "the refusal is over, and the list has no such Secret");
    }
}
