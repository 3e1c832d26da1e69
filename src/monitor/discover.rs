//! Sources that are read from the pods: the objects to which pods refer, and which of them are sources of a ConfigMonitor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::content::Kind;
use super::exempt::exempt;
use super::referrers::references;
use super::source::{Origin, Source, SourceName};
use super::spec::{Policy, UnmanagedPods};
use crate::kube::names::is_dns_subdomain;
use crate::kube::{ServerTime, Uid};
use crate::monitor::pod::Pod;

/// The maximum number of sources of a ConfigMonitor.
pub(crate) const MAX_SOURCES: usize = 128;
/// The maximum number of objects of a kind that are known for a selector. `exclude` may leave most of them out.
const MAX_FOUND: usize = 256;

/// The objects to which the pods of a selector refer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The selector.
    pub(crate) selector: Arc<str>,
    /// The names of objects that are never found: the platform adds them to pods.
    excluded: Arc<BTreeSet<Arc<str>>>,
    objects: BTreeMap<SourceName, By>,
    /// An object of each kind for which there was no room.
    surplus: BTreeMap<Kind, SourceName>,
}

/// Which pods refer to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct By {
    /// When the oldest of these pods was created. A younger pod takes no place from it.
    since: ServerTime,
    /// Whether all of them start without it.
    managed: Option<bool>,
    /// The same for pods that are restarted only with `unmanagedPods: Delete`.
    unmanaged: Option<bool>,
}

impl By {
    /// Returns whether the pods that a restart may replace start without the object; `None` without such a pod.
    fn is_optional(&self, unmanaged: UnmanagedPods) -> Option<bool> {
        let of_unmanaged = self.unmanaged.filter(|_| unmanaged == UnmanagedPods::Delete);
        self.managed.into_iter().chain(of_unmanaged).reduce(|one, other| one && other)
    }

    fn of(&mut self, is_managed: bool) -> &mut Option<bool> {
        if is_managed { &mut self.managed } else { &mut self.unmanaged }
    }
}

impl Found {
    pub(crate) fn new(selector: Arc<str>, excluded: Arc<BTreeSet<Arc<str>>>) -> Self {
        Self { selector, excluded, ..Self::default() }
    }

    pub(crate) fn emptied(&self) -> Self {
        Self::new(Arc::clone(&self.selector), Arc::clone(&self.excluded))
    }

    /// Adds the references of a pod. The pod is not kept, so an object stays found until the next list. Returns whether
    /// something is new.
    pub(crate) fn see(found: &mut Arc<Self>, pod: &Pod, spec: Option<&RawValue>, own_pod: Option<&Uid>) -> bool {
        let is_skipped = |unmanaged| !pod.is_present() || exempt(unmanaged, pod, own_pod).is_some();
        if is_skipped(UnmanagedPods::Delete) {
            return false;
        }
        let is_managed = !is_skipped(UnmanagedPods::Skip);
        let mut is_news = false;
        for referred in references(spec).iter().flat_map(|references| references.iter()) {
            // The API server takes any name in a pod, and it becomes a part of a path.
            if found.excluded.contains(referred.name) || !is_dns_subdomain(referred.name) {
                continue;
            }
            let Some(object) = SourceName::referred(&referred) else { continue };
            let before = found.objects.get(&object);
            let unknown = By { since: pod.created, managed: None, unmanaged: None };
            let mut by = before.copied().unwrap_or(unknown);
            by.since = by.since.min(pod.created);
            let is_optional = by.of(is_managed);
            *is_optional = Some(referred.is_optional && is_optional.unwrap_or(true));
            if before == Some(&by) {
                continue;
            }
            // What older pods refer to keeps its place.
            let of_its_kind = || found.objects.iter().filter(|(known, _)| known.kind == object.kind);
            let is_full = before.is_none() && of_its_kind().count() >= MAX_FOUND;
            let last = || of_its_kind().max_by_key(|(_, by)| by.since).filter(|(_, last)| last.since > by.since);
            let left_out = is_full.then(|| last().map_or(&object, |(last, _)| last).clone());
            if left_out.as_ref() == Some(&object) && found.surplus.contains_key(&object.kind) {
                continue;
            }
            let known = Arc::make_mut(found);
            known.objects.insert(object, by);
            if let Some(left_out) = left_out {
                known.objects.remove(&left_out);
                known.surplus.entry(left_out.kind).or_insert(left_out);
            }
            is_news = true;
        }
        is_news
    }
}

impl Policy {
    /// Returns whether this object is a source if a pod refers to it.
    #[must_use]
    pub fn may_discover(&self, object: &SourceName) -> bool {
        self.discover.as_ref().is_some_and(|discover| discover.accepts(object))
    }

    /// Returns the discovered sources, ordered by name, and the first object for which there is no room. Objects in the
    /// status to which pods refer have priority, then those of the oldest pods, then those to which no pod refers any
    /// more.
    pub(crate) fn discovered<'a>(
        &self,
        found: &'a Found,
        known: impl IntoIterator<Item = &'a SourceName>,
    ) -> (Vec<&'a SourceName>, Option<&'a SourceName>) {
        let Some(discover) = &self.discover else { return (Vec::new(), None) };
        let named: BTreeSet<&SourceName> = self.sources.iter().map(|source| &source.name).collect();
        let accepts = |object: &SourceName| {
            discover.accepts(object) && !named.contains(object) && !found.excluded.contains(&object.name)
        };
        let by = |object: &SourceName| {
            let by = found.objects.get(object)?;
            by.is_optional(self.unmanaged_pods).map(|_| by.since)
        };
        let known: BTreeSet<&SourceName> = known.into_iter().filter(|object| accepts(object)).collect();
        // Pods may refer to what had no room.
        let is_referred = |object: &SourceName| by(object).is_some() || found.surplus.contains_key(&object.kind);
        let (known, unreferred): (BTreeSet<_>, BTreeSet<_>) = known.into_iter().partition(|object| is_referred(object));
        let new = found.objects.keys().filter(|object| !known.contains(object) && accepts(object));
        let mut new: Vec<_> = new.filter_map(|object| Some((by(object)?, object))).collect();
        new.sort();
        let mut each = known.into_iter().chain(new.into_iter().map(|(_, object)| object)).chain(unreferred);
        let room = MAX_SOURCES.saturating_sub(named.len());
        let mut sources: Vec<&SourceName> = each.by_ref().take(room).collect();
        let more = || found.surplus.iter().find(|(kind, _)| discover.kinds.contains(kind));
        let surplus = each.find(|object| is_referred(object)).or_else(|| more().map(|(_, object)| object));
        // The order must not depend on which of them are known.
        sources.sort();
        (sources, surplus)
    }

    /// Returns whether pods refer to an object that has no place. Many pods may be deleted, and most refer to few.
    pub(crate) fn lacks_room<'a>(&self, found: &'a Found, known: impl IntoIterator<Item = &'a SourceName>) -> bool {
        self.sources.len() + found.objects.len() > MAX_SOURCES && self.discovered(found, known).1.is_some()
    }

    /// Adds the sources found in pods, and the `known` ones from the status. Secrets that may not be watched stay as
    /// they are.
    pub(crate) fn discover<'a>(
        &mut self,
        found: &'a Found,
        known: impl IntoIterator<Item = &'a SourceName>,
        watches_secrets: bool,
    ) {
        let (sources, surplus) = self.discovered(found, known);
        let is_watched = |object: &&SourceName| watches_secrets || !object.kind.is_confidential();
        let (watched, unwatched): (Vec<_>, Vec<_>) = sources.into_iter().partition(is_watched);
        let source = |object: &SourceName| {
            let is_optional = found.objects.get(object).and_then(|by| by.is_optional(self.unmanaged_pods));
            // Pods may refer to what had no room.
            let is_referred = is_optional.is_some() || found.surplus.contains_key(&object.kind);
            let origin = if is_referred { Origin::Referred } else { Origin::Unreferred };
            Source { name: object.clone(), keys: None, optional: is_optional.unwrap_or(false), origin }
        };
        let watched: Vec<Source> = watched.into_iter().map(source).collect();
        self.sources.extend(watched);
        self.surplus = surplus.cloned();
        self.unwatched = unwatched.into_iter().cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(owner: Option<&str>) -> Pod {
        let owners: Vec<Value> = owner
            .map(|kind| json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "p", "resourceVersion": "1",
            "creationTimestamp": "2026-11-21T10:00:00Z", "ownerReferences": owners},
            "spec": {"restartPolicy": if owner == Some("Job") { "Never" } else { "Always" }}}))
        .expect("a pod")
    }

    fn refers(names: &[&str], optional: bool) -> Box<RawValue> {
        let from: Vec<Value> =
            names.iter().map(|name| json!({"configMapRef": {"name": name, "optional": optional}})).collect();
        RawValue::from_string(json!({"containers": [{"envFrom": from}]}).to_string()).expect("a spec")
    }

    fn found(excluded: &[&str]) -> Arc<Found> {
        let excluded = excluded.iter().map(|name| Arc::from(*name)).collect();
        Arc::new(Found::new("app=web".into(), Arc::new(excluded)))
    }

    fn policy(more: &str) -> Policy {
        let spec = format!(r#"{{"podSelector":{{"app":"web"}},{more}}}"#);
        Policy::of(Some(&RawValue::from_string(spec).expect("JSON"))).expect("a policy")
    }

    fn map(name: &str) -> SourceName {
        SourceName { kind: Kind::ConfigMap, name: name.into() }
    }

    /// The sources of a policy, each with whether it may be missing and why it is a source.
    fn sources(mut policy: Policy, found: &Found, known: &[&str]) -> Vec<String> {
        let known: Vec<SourceName> = known.iter().map(|name| map(name)).collect();
        policy.discover(found, &known, true);
        let one = |source: &Source| {
            format!("{}{} {:?}", source.name.name, if source.optional { "?" } else { "" }, source.origin)
        };
        policy.sources.iter().map(one).collect()
    }

    #[test]
    fn an_object_may_be_missing_only_if_it_may_for_each_pod_that_refers_to_it() {
        let mut found = found(&[]);
        let set = pod(Some("ReplicaSet"));
        assert!(Found::see(&mut found, &set, Some(&refers(&["a", "b"], true)), None));
        assert!(!Found::see(&mut found, &set, Some(&refers(&["b", "a"], true)), None), "nothing is new");
        assert!(Found::see(&mut found, &set, Some(&refers(&["b"], false)), None));
        assert_eq!(sources(policy(r#""discover":{}"#), &found, &[]), ["a? Referred", "b Referred"]);
    }

    #[test]
    fn pods_that_restarts_leave_alone_show_no_source() {
        let mut found = found(&[]);
        Found::see(&mut found, &pod(None), Some(&refers(&["bare"], false)), None);
        Found::see(&mut found, &pod(Some("Job")), Some(&refers(&["job"], false)), None);
        Found::see(&mut found, &pod(Some("ReplicaSet")), Some(&refers(&["own"], false)), Some(&"p".into()));
        let mirror = Pod { mirror: true, ..pod(Some("Node")) };
        Found::see(&mut found, &mirror, Some(&refers(&["static"], false)), None);
        assert_eq!(sources(policy(r#""discover":{}"#), &found, &[]), [""; 0]);
        let all = policy(r#""discover":{},"unmanagedPods":"Delete""#);
        assert_eq!(sources(all, &found, &[]), ["bare Referred", "job Referred"]);
    }

    #[test]
    fn what_is_named_excluded_of_another_kind_or_no_name_is_not_discovered() {
        let mut found = found(&["kube-root-ca.crt"]);
        let spec = refers(&["a", "b", "c", "kube-root-ca.crt", "../secrets/a", ""], false);
        Found::see(&mut found, &pod(Some("ReplicaSet")), Some(&spec), None);
        let exclude = r#""configMap":"a","discover":{"exclude":[{"name":"b"},{"kind":"Secret","name":"c"}]}"#;
        assert_eq!(sources(policy(exclude), &found, &["b", "kube-root-ca.crt"]), ["a Named", "c Referred"]);
        assert_eq!(sources(policy(r#""discover":{"kinds":["Secret"]}"#), &found, &["a"]), [""; 0]);
    }

    #[test]
    fn a_known_source_stays_without_a_pod_that_refers_to_it_and_no_new_one_takes_its_place() {
        let mut found = found(&[]);
        let names: Vec<String> = (0..MAX_FOUND + 9).map(|number| format!("n{number:03}")).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        Found::see(&mut found, &pod(Some("ReplicaSet")), Some(&refers(&names, false)), None);
        assert_eq!((found.objects.len(), found.surplus.get(&Kind::ConfigMap)), (MAX_FOUND, Some(&map("n256"))));
        let exclude: Vec<String> = names[..MAX_FOUND].iter().map(|name| format!(r#"{{"name":"{name}"}}"#)).collect();
        for (exclude, known, surplus) in [("", MAX_SOURCES, "n127"), (&*exclude.join(","), 1, "n256")] {
            let mut policy = policy(&format!(r#""discover":{{"exclude":[{exclude}]}}"#));
            policy.discover(&found, &[map("z")], true);
            assert_eq!((policy.sources.len(), policy.surplus), (known, Some(map(surplus))));
            let last = policy.sources.last().expect("a source");
            assert_eq!(
                (&last.name, last.origin),
                (&map("z"), Origin::Referred),
                "a pod for which there was no room may"
            );
        }
        let mut secrets = policy(r#""discover":{"kinds":["Secret"]}"#);
        secrets.discover(&found, &[], true);
        assert_eq!((secrets.sources.len(), secrets.surplus), (0, None));
    }

    /// One pod may refer to more objects than there are places.
    #[test]
    fn what_older_pods_refer_to_has_a_place_and_what_no_pod_refers_to_gives_its_place() {
        let junk: Vec<String> = (0..MAX_FOUND + 9).map(|number| format!("a{number:03}")).collect();
        let mut junk: Vec<&str> = junk.iter().map(|name| &**name).collect();
        junk.insert(9, "real");
        let old = pod(Some("ReplicaSet"));
        let young = Pod { created: old.created.plus(std::time::Duration::from_secs(60)), ..old.clone() };
        let mut all = found(&[]);
        Found::see(&mut all, &young, Some(&refers(&junk, false)), None);
        assert!(Found::see(&mut all, &old, Some(&refers(&["real"], false)), None));
        for pod in [&young, &old] {
            let names: &[&str] = if pod.created == old.created { &["real"] } else { &junk };
            assert!(!Found::see(&mut all, pod, Some(&refers(names, false)), None), "nothing is new");
        }
        assert_eq!(all.objects.len(), MAX_FOUND);
        let has_real = |found: &Found, known: &[&str]| {
            let sources = sources(policy(r#""discover":{}"#), found, known);
            (sources.len(), sources.contains(&"real Referred".to_owned()))
        };
        assert_eq!(has_real(&all, &[]), (MAX_SOURCES, true));
        junk.retain(|name| *name != "real");
        assert_eq!(has_real(&all, &junk[..MAX_SOURCES]), (MAX_SOURCES, false), "what is known stays");
        let mut left = found(&[]);
        Found::see(&mut left, &old, Some(&refers(&["real"], false)), None);
        assert_eq!(has_real(&left, &junk[..MAX_SOURCES]), (MAX_SOURCES, true));
    }
}
