//! What must be true of a timeline, whatever happened in it. Nothing here goes by a clock: a slow machine changes no verdict.
//!
//! Which pods are old after reverts, and how many of them may be missing, is judged in the simulation.

use std::collections::BTreeSet;

use rules::{A_SECOND, Account, reported};

use super::timeline::{Monitor, MonitorVersion, Timeline};

#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) violations: Vec<String>,
    pub(super) restarts: usize,
    pub(super) deleted: usize,
    pub(super) handed_over: usize,
}

impl Verdict {
    pub(super) fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.restarts += other.restarts;
        self.deleted += other.deleted;
        self.handed_over += other.handed_over;
    }
}

/// Checks the end of a timeline, when everything is settled: each pod has the last content of its sources, unless this
/// content had been there before, and none is handed over.
pub(super) fn check_end(timeline: &Timeline) -> Verdict {
    let handed_over = timeline.pods.values().map(|pod| pod.handed_over).sum();
    let restarts = timeline.monitors.values().map(restarts).sum();
    let mut verdict = Verdict { handed_over, restarts, ..Verdict::default() };
    for pod in timeline.pods.values().filter(|pod| pod.deleted.is_none() && pod.owner.is_some()) {
        if pod.is_handed_over {
            verdict.violations.push(format!("left behind: pod {} is handed over", pod.name));
        }
        for monitor in timeline.monitors.values().filter(|monitor| !monitor.is_removed) {
            let Some(now) = monitor.versions.last().filter(|now| now.selects(&pod.labels)) else { continue };
            for source in now.sources().into_iter().filter(|source| is_lost(timeline, monitor, source, pod.born)) {
                let what = format!("lost: pod {} has no last content of {source}", pod.name);
                verdict.violations.push(format!("{what}, for ConfigMonitor {}", monitor.name));
            }
        }
    }
    verdict
}

/// Returns whether a pod that was created at a revision has other content of a source than the last, which is new.
fn is_lost(timeline: &Timeline, monitor: &Monitor, source: &String, born: u64) -> bool {
    let Some(((since, last), before)) = timeline.sources.get(source).and_then(|held| held.split_last()) else {
        return false;
    };
    let is_new = last.is_some() && before.iter().all(|(_, content)| content != last);
    // Otherwise it is the baseline.
    let was_known = monitor.until(*since).next().is_some_and(|version| version.sources_read().contains(source));
    is_new && was_known && born < *since
}

/// Checks the pods with these UIDs, which the operator has deleted: each was selected, by a ConfigMonitor whose restart had
/// begun, and existed when the pods were listed for a restart.
pub(super) fn check_deletions(timeline: &Timeline, deleted: &BTreeSet<String>) -> Verdict {
    let mut verdict = Verdict::default();
    for pod in deleted.iter().filter_map(|uid| timeline.pods.get(uid)) {
        let Some(at) = pod.deleted else { continue };
        verdict.deleted += 1;
        let selects = |monitor: &&Monitor| monitor.until(at).any(|version| version.selects(&pod.labels));
        let selecting = timeline.monitors.values().filter(selects);
        let versions: Vec<&MonitorVersion> = selecting.flat_map(|monitor| monitor.until(at)).collect();
        let begun = versions.iter().filter_map(|version| version.begun());
        let listed = begun.flat_map(|status| status.lists().filter_map(|list| list.parse().ok()).max());
        let wrong = match listed.max() {
            _ if versions.is_empty() || pod.owner.is_none() => "stranger: no ConfigMonitor selects",
            None => "no intent: no restart had begun for",
            Some(listed) if listed < pod.born => "too new: no list of a restart has",
            Some::<u64>(_) => continue,
        };
        verdict.violations.push(format!("{wrong} pod {}, which was deleted at {at}", pod.name));
    }
    verdict
}

/// Checks what was written about each ConfigMonitor by the rules that also judge the simulation.
pub(super) fn check_accounts(timeline: &Timeline) -> Verdict {
    let mut verdict = Verdict::default();
    for monitor in timeline.monitors.values() {
        let (writes, events) = (monitor.writes(), monitor.events.iter().collect::<Vec<_>>());
        // Times in a status are whole seconds.
        let account =
            Account { writes: writes.iter().collect(), requests: &monitor.requests, wiped: &[], skew: A_SECOND };
        let too_many = reported::each_event_is_emitted_once(&account, &events).err();
        let broken = account.broken().chain(too_many);
        verdict.violations.extend(broken.map(|what| format!("{what}: ConfigMonitor {}", monitor.name)));
    }
    verdict
}

fn restarts(monitor: &Monitor) -> usize {
    let mut begun: Vec<_> = monitor.versions.iter().filter_map(|version| version.begun()?.which()).collect();
    begun.dedup();
    begun.len()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};
    use testenv::history::Version;

    use super::*;

    /// A history to which versions are added. A revision is the number of versions up to it.
    #[derive(Default)]
    struct Made(Vec<Version>);

    impl Made {
        fn add(mut self, key: &str, object: Value) -> Self {
            let (revision, object) = (self.0.len() as u64 + 1, Some(object).filter(|object| !object.is_null()));
            let key = format!("/registry/{key}");
            self.0.push(Version { revision, key, observed: SystemTime::UNIX_EPOCH, object });
            self
        }

        fn content(self, content: &str) -> Self {
            self.add("configmaps/n/c", json!({"data": {"key": content}}))
        }

        fn pod(self, name: &str, more: Value) -> Self {
            let mut metadata =
                json!({"uid": name, "labels": {"app": "a"}, "ownerReferences": [{"controller": true, "uid": "o"}]});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            self.add(&format!("pods/n/{name}"), json!({"metadata": metadata}))
        }

        fn ends(self, name: &str) -> Self {
            self.pod(name, json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))
        }

        /// Adds a status, with a restart that has begun with this list of pods.
        fn status(self, list: Option<&str>) -> Self {
            let at = "2026-01-01T00:00:00Z";
            let change =
                |list| json!({"hash": "b", "observedAt": at, "since": at, "podsResourceVersion": list, "begun": true});
            let changes: Vec<Value> = list.into_iter().map(change).collect();
            let restart = list.map(|_| json!({"number": 1, "startedAt": at}));
            let sources =
                json!([{"kind": "ConfigMap", "name": "c", "resourceVersion": "1", "hash": "a", "changes": changes}]);
            let spec = json!({"configMap": "c", "podSelector": {"app": "a"}});
            let status = json!({"sources": sources, "restart": restart});
            self.add(
                "magalix.com/configmonitors/n/m",
                json!({"metadata": {"uid": "m"}, "spec": spec, "status": status}),
            )
        }

        /// Asserts that the only violation begins with this text, or that there is none if it is empty.
        fn is(self, why: &str) {
            let timeline = Timeline::of(self.0.iter(), "n");
            let mut verdict = check_end(&timeline);
            verdict.add(check_deletions(&timeline, &["p".to_owned()].into()));
            let violations = verdict.violations;
            assert_eq!(violations.len(), usize::from(!why.is_empty()), "{why}: {violations:?}");
            assert!(violations.iter().all(|violation| violation.starts_with(why)), "{violations:?}");
        }
    }

    fn pod() -> Made {
        Made::default().content("one").status(None).pod("p", json!({}))
    }

    #[test]
    fn each_pod_has_the_last_content() {
        pod().is("");
        pod().content("two").is("lost");
        pod().content("two").status(Some("4")).ends("p").pod("q", json!({})).is("");
        pod().content("two").content("one").is("");
        // A baseline.
        Made::default().content("one").pod("p", json!({})).content("two").status(None).is("");
    }

    #[test]
    fn a_pod_is_deleted_for_a_restart_whose_list_has_it() {
        pod().ends("p").is("no intent");
        pod().status(Some("2")).ends("p").is("too new");
        pod().status(Some("3")).ends("p").is("");
        Made::default().content("one").status(None).pod("p", json!({"labels": {}})).ends("p").is("stranger");
    }

    #[test]
    fn no_pod_stays_handed_over() {
        let to_deployment = json!({"ownerReferences": [{"controller": true, "kind": "Deployment", "uid": "d"}]});
        pod().pod("p", to_deployment).is("left behind");
    }
}
