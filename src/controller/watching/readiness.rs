//! Whether the operator is ready: each watch that is always open says when its first list is complete, and whether it is
//! refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::namespaces::Namespaces;
use super::scope::Scope;
use crate::kube::watch::Event;

/// The state of the watches that are always open.
#[derive(Clone, Default)]
pub struct Readiness(Arc<BTreeMap<Scope, WatchState>>);

#[derive(Default)]
struct WatchState {
    /// The first list is complete.
    is_synced: AtomicBool,
    /// A right is missing, so that the watch no longer sees changes.
    is_refused: AtomicBool,
}

impl Readiness {
    /// Returns the state of an operator of these namespaces, before it opens any watch.
    #[must_use]
    pub fn of(namespaces: &Namespaces) -> Self {
        Self(Arc::new(namespaces.scopes().into_iter().map(|scope| (scope, WatchState::default())).collect()))
    }

    /// Takes what a watch says.
    pub(super) fn observe<T>(&self, scope: &Scope, event: &Event<T>) {
        let Some(WatchState { is_synced, is_refused }) = self.0.get(scope) else { return };
        match event {
            Event::Synced => is_synced.store(true, Ordering::Relaxed),
            Event::Refused(_) => is_refused.store(true, Ordering::Relaxed),
            Event::Recovered => is_refused.store(false, Ordering::Relaxed),
            Event::Reset | Event::Listed(_) | Event::Applied(_) | Event::Deleted(_) => {}
        }
    }

    /// Returns why the operator is not ready, or `None` if it is ready: every first list is complete, except in namespaces
    /// where a right is missing, which does not affect the others.
    #[must_use]
    pub(crate) fn why_not_ready(&self) -> Option<String> {
        let is_one_of_several = |scope: &Scope| self.0.keys().any(|other| other.namespace != scope.namespace);
        let of = |scope: &Scope| {
            let namespace = scope.namespace.as_ref().filter(|_| is_one_of_several(scope));
            let namespace = namespace.map_or(String::new(), |namespace| format!(" of namespace {namespace}"));
            format!("{}s{namespace}", scope.target.resource().kind)
        };
        let is_refused = |state: &WatchState| state.is_refused.load(Ordering::Relaxed);
        let first_refused = || self.0.iter().find(|(_, state)| is_refused(state)).map(|(scope, _)| scope);
        let refused: BTreeSet<&Option<Arc<str>>> =
            self.0.iter().filter(|(_, state)| is_refused(state)).map(|(scope, _)| &scope.namespace).collect();
        let mut others = self.0.iter().filter(|(scope, _)| !refused.contains(&scope.namespace)).peekable();
        if others.peek().is_none() {
            let missing = |scope| format!("the right to list and watch {} is missing", of(scope));
            return Some(first_refused().map_or_else(|| "no watch is open yet".to_owned(), missing));
        }
        let not_listed = others.find(|(_, state)| !state.is_synced.load(Ordering::Relaxed));
        not_listed.map(|(scope, _)| format!("the {} are not listed yet", of(scope)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::Cause;
    use crate::kube::{Action, CONFIG_MAPS};

    fn readiness(namespaces: &Namespaces) -> (Readiness, Vec<Scope>) {
        (Readiness::of(namespaces), namespaces.scopes().into_iter().collect())
    }

    fn refused() -> Event<()> {
        Event::Refused(Action::new("list", CONFIG_MAPS).failed(Cause::Forbidden("no".to_owned())))
    }

    #[test]
    fn the_operator_is_ready_once_all_first_lists_are_complete_and_not_while_a_watch_is_refused() {
        let selector = Some("served".parse().unwrap());
        let (readiness, scopes) = readiness(&Namespaces::All { excluded: Vec::new(), selector });
        for (scope, objects) in scopes.iter().zip(["ConfigMonitors", "Namespaces", "ConfigMaps"]) {
            assert_eq!(readiness.why_not_ready(), Some(format!("the {objects} are not listed yet")));
            readiness.observe::<()>(scope, &Event::Synced);
        }
        assert_eq!(readiness.why_not_ready(), None);
        readiness.observe(&scopes[2], &refused());
        assert_eq!(readiness.why_not_ready().as_deref(), Some("the right to list and watch ConfigMaps is missing"));
        readiness.observe::<()>(&scopes[2], &Event::Recovered);
        assert_eq!(readiness.why_not_ready(), None);
    }

    #[test]
    fn a_namespace_without_rights_does_not_block_the_others() {
        let (readiness, scopes) = readiness(&Namespaces::Named(vec!["a".into(), "b".into()]));
        readiness.observe(&scopes[0], &refused());
        assert_eq!(readiness.why_not_ready().as_deref(), Some("the ConfigMonitors of namespace b are not listed yet"));
        scopes[2..].iter().for_each(|scope| readiness.observe::<()>(scope, &Event::Synced));
        assert_eq!(readiness.why_not_ready(), None);
        readiness.observe(&scopes[3], &refused());
        let missing = "the right to list and watch ConfigMonitors of namespace a is missing";
        assert_eq!(readiness.why_not_ready().as_deref(), Some(missing));
    }
}
