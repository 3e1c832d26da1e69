//! The selectors of the ConfigMonitors of a namespace: a restart names the others that select its pods. They know
//! nothing of each other's budget.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shared;
use crate::kube::Uid;
use crate::kube::objects::Labels;
use crate::monitor::selector::Selector;

/// The most other selectors that are compared with pods, the most pods of a list that they are compared with, and the
/// most names.
const MOST_SELECTORS: usize = 100;
const MOST_PODS: usize = 1000;
const MOST_NAMES: usize = 100;

/// The selectors by their queries.
#[derive(Default)]
pub(crate) struct Selectors(Mutex<BTreeMap<Box<str>, Selecting>>);

struct Selecting {
    selector: Arc<Selector>,
    names: BTreeMap<Uid, Arc<str>>,
}

/// A ConfigMonitor among those that may select the pods of others, until it is dropped.
pub(crate) struct Selected {
    shared: Arc<Shared>,
    uid: Uid,
    query: Box<str>,
}

/// The ConfigMonitors that select pods of a list, as far as it has been read.
pub(crate) struct Overlap {
    /// Those known to select pods of the list.
    names: BTreeSet<Arc<str>>,
    /// The other selectors, and who has them.
    others: Vec<(Arc<Selector>, Vec<Arc<str>>)>,
    pods: usize,
}

impl Selectors {
    fn add(&self, query: &str, uid: &Uid, name: &Arc<str>, selector: &Selector) {
        let mut known = self.lock();
        let make = || Selecting { selector: Arc::new(selector.clone()), names: BTreeMap::new() };
        known.entry(query.into()).or_insert_with(make).names.insert(uid.clone(), Arc::clone(name));
    }

    fn remove(&self, query: &str, uid: &Uid) {
        let mut known = self.lock();
        if let Some(same) = known.get_mut(query) {
            same.names.remove(uid);
            if same.names.is_empty() {
                known.remove(query);
            }
        }
    }

    /// Begins to compare the pods of a list with the other selectors. Those who have the same one select them all.
    pub(crate) fn overlap(&self, query: &str) -> Overlap {
        let known = self.lock();
        let same = known.get(query).into_iter().flat_map(|same| same.names.values());
        let names = same.take(MOST_NAMES).cloned().collect();
        let others = known.iter().filter(|(other, _)| ***other != *query).take(MOST_SELECTORS);
        // Many lists may wait for their turn.
        let shared = |Selecting { selector, names }: &Selecting| {
            (Arc::clone(selector), names.values().take(MOST_NAMES).cloned().collect())
        };
        Overlap { names, others: others.map(|(_, other)| shared(other)).collect(), pods: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Selecting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Selected {
    pub(crate) fn new(shared: &Arc<Shared>, uid: &Uid, name: &Arc<str>, selector: &Selector) -> Self {
        let query = selector.to_query().into_boxed_str();
        shared.selectors.add(&query, uid, name, selector);
        Self { shared: Arc::clone(shared), uid: uid.clone(), query }
    }

    pub(crate) fn is_by(&self, selector: &Selector) -> bool {
        *self.query == *selector.to_query()
    }
}

impl Drop for Selected {
    fn drop(&mut self) {
        self.shared.selectors.remove(&self.query, &self.uid);
    }
}

impl Overlap {
    pub(crate) fn see(&mut self, labels: &Labels) {
        self.pods += 1;
        if self.others.is_empty() || self.pods > MOST_PODS {
            return;
        }
        let labels = labels.to_map();
        for (_, names) in self.others.extract_if(.., |(selector, _)| selector.matches(&labels)) {
            let room = MOST_NAMES.saturating_sub(self.names.len());
            self.names.extend(names.into_iter().take(room));
        }
    }

    pub(crate) fn into_names(self) -> Box<[Arc<str>]> {
        self.names.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(selectors: &Selectors, name: &str, value: &str) {
        let selector = Selector::new([("app".to_owned(), value.to_owned())].into(), Vec::new()).expect("a selector");
        selectors.add(&selector.to_query(), &name.into(), &name.into(), &selector);
    }

    fn names(selectors: &Selectors, query: &str, pods: &[&str]) -> Vec<String> {
        let mut overlap = selectors.overlap(query);
        pods.iter().for_each(|pod| overlap.see(&serde_json::from_str(pod).expect("labels")));
        overlap.into_names().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn those_who_select_a_pod_of_the_list_are_named() {
        let selectors = Selectors::default();
        for (name, value) in [("a", "web"), ("b", "web"), ("c", "api"), ("d", "db")] {
            add(&selectors, name, value);
        }
        assert_eq!(names(&selectors, "app=web", &[]), ["a", "b"]);
        let pods = [r#"{"app":"web"}"#, "null", r#"{"app":"api","tier":"x"}"#];
        assert_eq!(names(&selectors, "tier=x", &pods), ["a", "b", "c"]);
        selectors.remove("app=web", &"b".into());
        selectors.remove("app=api", &"c".into());
        assert_eq!(names(&selectors, "tier=x", &pods), ["a"]);
        assert_eq!(selectors.lock().len(), 2);
    }

    #[test]
    fn few_selectors_are_compared_with_few_pods_and_few_are_named() {
        let selectors = Selectors::default();
        (0..=MOST_NAMES).for_each(|name| add(&selectors, &name.to_string(), "api"));
        let pod = r#"{"app":"api"}"#;
        assert_eq!(names(&selectors, "tier=x", &[pod]).len(), MOST_NAMES);
        assert_eq!(names(&selectors, "app=api", &[]).len(), MOST_NAMES);
        let others = [r#"{"app":"web"}"#; MOST_PODS];
        assert!(names(&selectors, "tier=x", &[&others[..], &[pod]].concat()).is_empty());
        (0..MOST_SELECTORS).for_each(|other| add(&selectors, "other", &format!("a-{other}")));
        assert!(names(&selectors, "tier=x", &[pod]).is_empty());
    }
}
