//! The namespaces: each has an index of its own, and what its keepers share. A watch of one namespace tells that one, and a watch of all namespaces
//! each of what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tracing::warn;

use super::index::{Change, Index};
use super::limits::Limits;
use super::shared::Shared;
use super::watches::{Of, Reach, Scope, Update};
use crate::kube::Uid;
use crate::kube::client::Client;
use crate::kube::objects::{MetadataOnly, Undecodable};
use crate::kube::watch::Event;
use crate::monitor::ConfigMonitor;
use crate::monitor::source::Kind;

/// Which namespaces an operator works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// These.
    Named(Vec<Arc<str>>),
    /// All of them.
    All,
}

/// The namespaces that matter.
pub(crate) struct Spaces {
    client: Client,
    own_pod: Option<Uid>,
    pub(crate) limits: Arc<Limits>,
    /// Of all namespaces, those that have ConfigMonitors.
    by_name: BTreeMap<Arc<str>, Space>,
    /// What was shared in namespaces that have none any more, as long as a keeper there is ending: one that comes must know what that has deleted.
    ending: BTreeMap<Arc<str>, Weak<Shared>>,
    /// What is being listed in all namespaces: one that comes to matter meanwhile is update so.
    listing: BTreeSet<Of>,
    /// How Secrets are watched, in one namespace or in all.
    reaches: BTreeMap<Option<Arc<str>>, Reach>,
}

struct Space {
    index: Index,
    shared: Arc<Shared>,
}

/// What follows for the keepers of a namespace.
pub(crate) struct Changes {
    pub(crate) shared: Arc<Shared>,
    pub(crate) changes: Vec<Change>,
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(names) => f.write_str(&names.join(",")),
            Self::All => f.write_str("all"),
        }
    }
}

impl Namespaces {
    /// The namespace of each watch; none: all of them.
    fn each(&self) -> Vec<Option<Arc<str>>> {
        match self {
            Self::Named(names) => names.iter().cloned().map(Some).collect(),
            Self::All => vec![None],
        }
    }

    /// The watches that are always open.
    pub(crate) fn scopes(&self) -> BTreeSet<Scope> {
        let of_each = |namespace: Option<Arc<str>>| {
            [Of::ConfigMonitors, Of::All(Kind::ConfigMap)].map(|of| Scope { namespace: namespace.clone(), of })
        };
        self.each().into_iter().flat_map(of_each).collect()
    }
}

impl Spaces {
    pub(crate) fn new(client: Client, namespaces: &Namespaces, own_pod: Option<Uid>, limits: Limits) -> Self {
        let reaches = namespaces.each().into_iter().map(|namespace| (namespace, Reach::default())).collect();
        let (by_name, ending, listing) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { client, own_pod, limits: Arc::new(limits), by_name, ending, listing, reaches }
    }

    /// How many ConfigMonitors there are.
    pub(crate) fn config_monitors(&self) -> usize {
        self.by_name.values().map(|space| space.index.len()).sum()
    }

    /// The watches on Secrets that there should be.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = Scope> {
        let of = |(namespace, reach): (&Option<Arc<str>>, &Reach)| {
            let spaces = match namespace {
                Some(only) => self.by_name.range(Arc::clone(only)..=Arc::clone(only)),
                None => self.by_name.range::<Arc<str>, _>(..),
            };
            reach.scopes(
                namespace.as_ref(),
                spaces.flat_map(|(name, space)| space.index.secrets().map(move |of| (name, of))),
            )
        };
        self.reaches.iter().flat_map(of)
    }

    /// Takes what a watch tells. Whether there should be other watches on Secrets by now, and what follows for the keepers.
    pub(crate) fn hear(&mut self, scope: &Scope, update: Update, now: Instant) -> (bool, Vec<Changes>) {
        let mut has_news = false;
        if scope.of == Of::All(Kind::Secret)
            && let Some(reach) = self.reaches.get_mut(&scope.namespace)
        {
            let before = reach.clone();
            reach.hear(&update);
            has_news = before != *reach;
        }
        let touched = match update {
            Update::Monitor(event) => {
                let namespace = |monitor: &mut ConfigMonitor| std::mem::take(&mut monitor.metadata.namespace);
                self.tell(scope, event, namespace, Index::monitor)
            }
            Update::Source(event) => {
                // All of them may be watched, also those that might not each alone.
                let are_allowed = scope.of == Of::All(Kind::Secret) && matches!(event, Event::Synced);
                let concerned = if are_allowed { self.within(scope) } else { Vec::new() };
                let allowed = self.each(concerned, |index| index.refused(&scope.of, None));
                let namespace = |object: &mut MetadataOnly| std::mem::take(&mut object.metadata.namespace);
                let update = self.tell(scope, event, namespace, |index, event| index.source(&scope.of, event, now));
                allowed.into_iter().chain(update).collect()
            }
            Update::Refused(error) if self.is_told_where_it_is_refused(scope) => {
                self.each(self.within(scope), |index| index.refused(&scope.of, error.as_ref()))
            }
            Update::Refused(_) => Vec::new(),
        };
        let mut follows = Vec::new();
        for (name, changes) in touched {
            let Some(space) = self.by_name.get_mut(&name) else { continue };
            has_news |= space.index.take_news_of_secrets();
            let shared = Arc::clone(&space.shared);
            if space.index.len() == 0 && scope.namespace.is_none() {
                self.by_name.remove(&name);
                self.ending.retain(|_, shared| shared.strong_count() > 0);
                self.ending.insert(name, Arc::downgrade(&shared));
            }
            if !changes.is_empty() {
                follows.push(Changes { shared, changes });
            }
        }
        (has_news, follows)
    }

    /// Whether the ConfigMonitors say that a watch is refused. Without the right to watch all Secrets, each is asked for; and when the ConfigMaps of the
    /// only namespace, or of all, may not be watched, the operator is not ready.
    fn is_told_where_it_is_refused(&self, scope: &Scope) -> bool {
        match scope.of {
            Of::One(_) => true,
            Of::All(Kind::ConfigMap) => self.reaches.len() > 1,
            Of::All(Kind::Secret) | Of::ConfigMonitors => false,
        }
    }

    /// Tells the namespace of an object what a watch tells of it, and every namespace that the watch is of what it tells of all objects. Returns which
    /// were update, and what follows.
    fn tell<T>(
        &mut self,
        scope: &Scope,
        event: Event<T>,
        namespace_of: impl Fn(&mut T) -> String,
        mut hear: impl FnMut(&mut Index, Event<T>) -> Vec<Change>,
    ) -> Vec<(Arc<str>, Vec<Change>)> {
        let is_new_monitor = scope.of == Of::ConfigMonitors && matches!(event, Event::Listed(_) | Event::Applied(_));
        let mut one = |spaces: &mut Self, mut object: T, event: fn(Result<T, Undecodable>) -> Event<T>| {
            let name = scope.namespace.clone().unwrap_or_else(|| namespace_of(&mut object).into());
            if !is_new_monitor && !spaces.by_name.contains_key(&name) {
                return Vec::new();
            }
            let changes = hear(&mut spaces.space(&name).index, event(Ok(object)));
            vec![(name, changes)]
        };
        match event {
            Event::Listed(Ok(object)) => one(self, object, Event::Listed),
            Event::Applied(Ok(object)) => one(self, object, Event::Applied),
            Event::Deleted(Ok(object)) => one(self, object, Event::Deleted),
            Event::Listed(Err(error)) | Event::Applied(Err(error)) | Event::Deleted(Err(error)) => {
                let Undecodable { name, namespace, error: what } = &error;
                let (resource, namespace) =
                    (scope.of.resource().plural, scope.namespace.as_deref().or(namespace.as_deref()));
                warn!(namespace, resource, name, error = what, "object cannot be decoded; left as it was");
                self.each(self.within(scope), |index| hear(index, Event::Applied(Err(error.clone()))))
            }
            Event::Reset => {
                if scope.namespace.is_none() {
                    self.listing.insert(scope.of.clone());
                }
                self.each(self.within(scope), |index| hear(index, Event::Reset))
            }
            Event::Synced => {
                if scope.namespace.is_none() {
                    self.listing.remove(&scope.of);
                }
                self.each(self.within(scope), |index| hear(index, Event::Synced))
            }
        }
    }

    /// The namespaces that a watch is of.
    fn within(&self, scope: &Scope) -> Vec<Arc<str>> {
        match &scope.namespace {
            Some(namespace) => vec![Arc::clone(namespace)],
            None => self.by_name.keys().cloned().collect(),
        }
    }

    fn each(
        &mut self,
        names: Vec<Arc<str>>,
        mut hear: impl FnMut(&mut Index) -> Vec<Change>,
    ) -> Vec<(Arc<str>, Vec<Change>)> {
        let tell = |name: Arc<str>| {
            let changes = hear(&mut self.space(&name).index);
            (name, changes)
        };
        names.into_iter().map(tell).collect()
    }

    /// The space of a namespace, which is made if it has none yet.
    fn space(&mut self, name: &Arc<str>) -> &mut Space {
        let make = || {
            let mut index = Index::default();
            for of in &self.listing {
                index.list_begins(of);
            }
            let shared = self.ending.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
                let client = self.client.within(name);
                Arc::new(Shared::new(client, self.own_pod.clone(), Arc::clone(&self.limits)))
            });
            Space { index, shared }
        };
        self.by_name.entry(Arc::clone(name)).or_insert_with(make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::{Cause, Error};
    use crate::kube::objects::Metadata;
    use crate::kube::transport::KubectlProxy;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    fn spaces(namespaces: &Namespaces) -> Spaces {
        let (transport, base) = (Box::new(KubectlProxy::new().unwrap()), "http://127.0.0.1:1".parse().unwrap());
        let limits = Limits::new(CancellationToken::new());
        Spaces::new(
            Client::new(transport, base, 1, 1, Arc::default(), CancellationToken::new()),
            namespaces,
            None,
            limits,
        )
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

    impl Spaces {
        /// A watch tells this. What follows: which keepers, by the namespace, start, look and stop.
        fn update(&mut self, of: Of, update: Update) -> Vec<String> {
            let word = |change: &Change| match change {
                Change::Start(..) => "start",
                Change::Look(..) => "look",
                Change::Stop(_) => "stop",
            };
            let (_, follows) = self.hear(&Scope { namespace: None, of }, update, Instant::now());
            let words = |Changes { shared, changes }: &Changes| {
                let words: Vec<&str> = changes.iter().map(word).collect();
                format!("{} {}", shared.client.namespace(), words.join(" "))
            };
            follows.iter().map(words).collect()
        }

        fn monitor(&mut self, event: Event<ConfigMonitor>) -> Vec<String> {
            self.update(Of::ConfigMonitors, Update::Monitor(event))
        }

        fn config_map(&mut self, event: Event<MetadataOnly>) -> Vec<String> {
            self.update(Of::All(Kind::ConfigMap), Update::Source(event))
        }
    }

    #[test]
    fn an_event_concerns_the_namespace_of_its_object_and_a_list_all_of_them() {
        let mut spaces = spaces(&Namespaces::All);
        assert!(spaces.config_map(Event::Applied(Ok(object("x")))).is_empty() && spaces.by_name.is_empty());
        for namespace in ["x", "y"] {
            let start = spaces.monitor(Event::Applied(Ok(monitor(namespace, namespace, "configMap"))));
            assert_eq!(start, [format!("{namespace} start")]);
        }
        assert_eq!(spaces.config_map(Event::Applied(Ok(object("x")))), ["x look"]);
        assert_eq!(spaces.config_monitors(), 2);
        spaces.config_map(Event::Reset);
        spaces.config_map(Event::Listed(Ok(object("y"))));
        assert_eq!(spaces.config_map(Event::Synced), ["x look"], "it is not in the list, and so it is gone");
        spaces.monitor(Event::Reset);
        assert!(
            spaces.monitor(Event::Listed(Ok(monitor("z", "z", "configMap")))).is_empty(),
            "it starts when the list is complete"
        );
        let mut update = spaces.monitor(Event::Synced);
        update.sort();
        assert_eq!((update, spaces.by_name.len()), (["x stop", "y stop", "z start"].map(str::to_owned).to_vec(), 1));
    }

    #[test]
    fn what_a_namespace_has_shared_is_known_as_long_as_a_keeper_there_is_ending() {
        let mut spaces = spaces(&Namespaces::All);
        let applied = || Event::Applied(Ok(monitor("x", "1", "configMap")));
        spaces.monitor(applied());
        let keeper = Arc::clone(&spaces.by_name["x"].shared);
        assert_eq!(spaces.monitor(Event::Deleted(Ok(monitor("x", "1", "configMap")))), ["x stop"]);
        assert!(spaces.by_name.is_empty());
        spaces.monitor(applied());
        assert!(Arc::ptr_eq(&spaces.by_name["x"].shared, &keeper));
        drop(keeper);
        spaces.monitor(Event::Deleted(Ok(monitor("x", "1", "configMap"))));
        spaces.monitor(Event::Applied(Ok(monitor("y", "2", "configMap"))));
        spaces.monitor(Event::Deleted(Ok(monitor("y", "2", "configMap"))));
        assert!(!spaces.ending.contains_key("x"));
    }

    #[test]
    fn secrets_are_watched_where_they_are_named_and_each_alone_if_not_all_may_be() {
        let mut spaces = spaces(&Namespaces::All);
        spaces.monitor(Event::Applied(Ok(monitor("x", "1", "configMap"))));
        assert_eq!(spaces.secrets().count(), 0);
        let all = Scope { namespace: None, of: Of::All(Kind::Secret) };
        let (has_news, _) = spaces.hear(
            &Scope { namespace: None, of: Of::ConfigMonitors },
            Update::Monitor(Event::Applied(Ok(monitor("y", "2", "secret")))),
            Instant::now(),
        );
        assert_eq!((has_news, spaces.secrets().collect::<Vec<_>>()), (true, vec![all.clone()]));
        let cause = Cause::Forbidden("no".to_owned());
        let error = || Error { request: "list secrets".to_owned(), cause: cause.clone() };
        assert!(spaces.hear(&all, Update::Refused(Some(error())), Instant::now()).0);
        let scopes: Vec<Scope> = spaces.secrets().collect();
        let [first, alone] = &scopes[..] else { panic!("{scopes:?}") };
        assert!(*first == all && alone.namespace.as_deref() == Some("y") && matches!(alone.of, Of::One(_)));
        assert!(!spaces.hear(&all, Update::Refused(Some(error())), Instant::now()).0, "the same again is no news");
        let (_, update) = spaces.hear(alone, Update::Refused(Some(error())), Instant::now());
        assert_eq!((update.len(), update[0].shared.client.namespace()), (1, "y"));
        let (_, update) = spaces.hear(&all, Update::Source(Event::Synced), Instant::now());
        assert_eq!((update.len(), spaces.secrets().collect::<Vec<_>>()), (1, vec![all]));
    }
}
