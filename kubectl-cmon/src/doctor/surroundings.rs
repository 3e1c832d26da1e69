//! The ConfigMonitors of a namespace, and what is around them: workloads, pods and budgets for disruptions.

use std::collections::BTreeMap;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::Error;
use configmonitor_operator::kube::labels::LabelSelector;
use configmonitor_operator::kube::{PODS, Resource};
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::spec::DeletionPolicy;
use serde_json::{Value, json};

use super::{Finding, State};
use crate::conditions::reason;
use crate::create::references;
use crate::monitors::{Labels, Monitor, all, labels_of, name_of, namespace_of};
use crate::options::WORKLOADS;
use crate::restarters::{is_made_by_its_owner, others};

const BUDGETS: Resource =
    Resource { api_version: "policy/v1", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets" };
const REPLICATION_CONTROLLERS: Resource =
    Resource { api_version: "v1", kind: "ReplicationController", plural: "replicationcontrollers" };
/// The API groups whose objects are listed, or whose pods run to completion.
const LISTED: [&str; 3] = ["apps/v1", "batch/v1", "v1"];

/// The objects of a namespace.
#[derive(Default)]
pub(super) struct Surroundings {
    workloads: Vec<Workload>,
    /// The labels of each pod.
    pods: Vec<Labels>,
    /// The PodDisruptionBudgets: name, selector, and whether they allow no disruption, however many pods are ready.
    budgets: Vec<(String, LabelSelector, bool)>,
}

/// A workload with what its pods refer to.
struct Workload {
    name: String,
    labels: Labels,
    sources: Vec<SourceName>,
    /// What else restarts it.
    others: Vec<String>,
}

impl Surroundings {
    /// Reads those of each namespace, without the ConfigMonitors.
    pub(super) async fn read(client: &Client) -> Result<BTreeMap<String, Self>, Error> {
        let mut namespaces: BTreeMap<String, Self> = BTreeMap::new();
        for resource in WORKLOADS.into_iter().chain([REPLICATION_CONTROLLERS]) {
            let see = |object: Value| {
                if !is_made_by_its_owner(&object) {
                    let name = format!("{}/{}", resource.kind, name_of(&object));
                    namespaces.entry(namespace_of(&object)).or_default().workloads.push(Workload::of(name, &object));
                }
            };
            client.list(&all(resource), None, see).await?;
        }
        let see = |pod: Value| {
            let its = namespaces.entry(namespace_of(&pod)).or_default();
            its.pods.push(labels_of(&pod["metadata"]));
            // The controller of a custom resource may create pods by itself. One of them stands for all.
            let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let owner = owners
                .find(|owner| owner["controller"] == true && !LISTED.iter().any(|its| owner["apiVersion"] == *its));
            let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
            let name = owner.map(|owner| format!("{}/{}", text(&owner["kind"]), text(&owner["name"])));
            let is_new = |name: &String| its.workloads.iter().all(|workload| workload.name != *name);
            if let Some(name) = name.filter(is_new) {
                its.workloads.push(Workload::of(name, &json!({"spec": {"template": pod}})));
            }
        };
        client.list(&all(PODS), None, see).await?;
        let see =
            |budget: Value| namespaces.entry(namespace_of(&budget)).or_default().budgets.extend(budget_of(&budget));
        client.list(&all(BUDGETS), None, see).await?;
        Ok(namespaces)
    }

    /// Returns what is wrong with a ConfigMonitor among all of its namespace, each with what to do.
    pub(super) fn wrong(&self, monitor: &Monitor, all: &[Monitor]) -> Vec<(String, &'static str)> {
        let Ok(policy) = &monitor.policy else { return Vec::new() };
        let its: Vec<&Labels> = self.pods.iter().filter(|pod| policy.selector.matches(pod)).collect();
        let mut wrong = Vec::new();
        let says_none =
            monitor.status.as_ref().is_some_and(|status| reason(status) == <&str>::from(Reason::NoPodsSelected));
        if says_none && its.is_empty() && !self.workloads.iter().any(|workload| workload.is_selected_by(monitor)) {
            let next = "compare spec.podSelector with the labels of the pods";
            wrong.push(("selects the pods of no workload".to_owned(), next));
        }
        let shares = |other: &&Monitor| {
            let is_other = other.metadata.name != monitor.metadata.name;
            is_other && other.policy.as_ref().is_ok_and(|policy| its.iter().any(|pod| policy.selector.matches(pod)))
        };
        let others: Vec<&str> = all.iter().filter(shares).map(|other| &*other.metadata.name).collect();
        if !others.is_empty() {
            let others = others.join(" and ");
            let what = format!("shares pods with {others}: a change of both may restart these pods twice");
            wrong.push((
                what,
                "name all sources in one ConfigMonitor, or give all the same budget (docs/troubleshooting.md)",
            ));
        }
        let matches_none = |last: &LabelSelector| !its.is_empty() && !its.iter().any(|pod| last.matches(pod));
        if policy.restart_last.as_ref().is_some_and(matches_none) {
            let next = "compare spec.restartLast with the labels of the pods";
            wrong.push(("restartLast matches none of its pods".to_owned(), next));
        }
        let evicts = policy.deletion_policy == DeletionPolicy::Evict;
        for pod in its.into_iter().filter(|_| evicts) {
            let budgets: Vec<_> = self.budgets.iter().filter(|(_, selector, _)| selector.matches(pod)).collect();
            if let Some((budget, ..)) = budgets.iter().find(|(.., is_closed)| *is_closed) {
                let what = format!("PodDisruptionBudget/{budget} never lets one of its pods be evicted");
                wrong.push((what, "let it allow a disruption, or set deletionPolicy: Delete"));
                break;
            }
            if budgets.len() > 1 {
                let budgets = budgets.iter().map(|(name, ..)| &**name).collect::<Vec<_>>().join(" and ");
                let what = format!("PodDisruptionBudgets {budgets} select the same pod, which then cannot be evicted");
                wrong.push((what, "let one of them select it, or set deletionPolicy: Delete"));
                break;
            }
        }
        wrong
    }

    /// Returns what nobody watches, what something else restarts, too, and what no workload refers to.
    pub(super) fn notes(&self, monitors: &[Monitor]) -> Vec<Finding> {
        let mut notes = Vec::new();
        for workload in &self.workloads {
            let its: Vec<&Monitor> = monitors.iter().filter(|monitor| workload.is_selected_by(monitor)).collect();
            let unwatched = workload.sources.iter().filter(|source| !its.iter().any(|its| watches(its, source)));
            notes.extend(unwatched.map(|source| (workload.name.clone(), format!("{source} is not watched"))));
            let others = workload.others.iter().filter(|_| !its.is_empty());
            notes.extend(others.map(|other| (workload.name.clone(), format!("also restarted by {other}"))));
        }
        for monitor in monitors {
            let is_referred = |source: &SourceName| {
                let refers =
                    |workload: &Workload| workload.is_selected_by(monitor) && workload.sources.contains(source);
                self.workloads.iter().any(refers)
            };
            let named = monitor.policy.iter().flat_map(|policy| &policy.sources).map(|source| &source.name);
            let unreferred = named.filter(|source| !is_referred(source));
            let name = format!("ConfigMonitor/{}", monitor.metadata.name);
            notes.extend(unreferred.map(|source| (name.clone(), format!("no selected workload refers to {source}"))));
        }
        notes.into_iter().map(|(object, what)| Finding::new(object, State::Note, what)).collect()
    }
}

impl Workload {
    fn of(name: String, object: &Value) -> Self {
        let template = &object["spec"]["template"];
        let sources = references(&template["spec"]).unwrap_or_default().into_iter().map(|(name, _)| name).collect();
        Self { name, labels: labels_of(&template["metadata"]), sources, others: others(object) }
    }

    fn is_selected_by(&self, monitor: &Monitor) -> bool {
        monitor.policy.as_ref().is_ok_and(|policy| policy.selector.matches(&self.labels))
    }
}

/// There may be no pod yet that shows what is discovered.
fn watches(monitor: &Monitor, source: &SourceName) -> bool {
    monitor.has(source) || monitor.policy.as_ref().is_ok_and(|policy| policy.may_discover(source))
}

fn budget_of(budget: &Value) -> Option<(String, LabelSelector, bool)> {
    let of = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    let is_closed = of("expectedPods") > 0 && of("desiredHealthy") >= of("expectedPods");
    let selector = serde_json::from_value(budget["spec"]["selector"].clone()).ok()?;
    Some((name_of(budget), selector, is_closed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn monitor(name: &str, spec: &Value) -> Monitor {
        let mut spec = spec.clone();
        spec["configMap"] = "a".into();
        Monitor::of(&json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec})).unwrap()
    }

    #[test]
    fn what_is_around_a_config_monitor_is_compared_with_its_spec() {
        let of = |pairs: Value| serde_json::from_value::<Labels>(pairs).unwrap();
        let budget = |name: &str, is_closed| {
            let selector = serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap();
            (name.to_owned(), selector, is_closed)
        };
        let mut around = Surroundings {
            pods: vec![of(json!({"app": "web", "role": "replica"}))],
            workloads: Vec::new(),
            budgets: vec![budget("strict", true)],
        };
        let web = json!({"app": "web"});
        let wrong = |spec: Value, around: &Surroundings| around.wrong(&monitor("one", &spec), &[]).len();
        let last = |role: &str| json!({"podSelector": web, "restartLast": {"matchLabels": {"role": role}}});
        assert_eq!([wrong(last("replica"), &around), wrong(last("primary"), &around)], [0, 1]);
        let others = [("one", web.clone()), ("two", json!({"role": "primary"})), ("two", json!({"role": "replica"}))];
        let shared = others.map(|(name, selector)| {
            let other = monitor(name, &json!({"podSelector": selector}));
            around.wrong(&monitor("one", &json!({"podSelector": web})), &[other]).len()
        });
        assert_eq!(shared, [0, 0, 1]);
        let evicted = json!({"podSelector": web, "deletionPolicy": "Evict"});
        assert_eq!(wrong(evicted.clone(), &around), 1);
        for (budgets, number) in [(vec![budget("a", false)], 0), (vec![budget("a", false), budget("b", false)], 1)] {
            around.budgets = budgets;
            assert_eq!(wrong(evicted.clone(), &around), number);
        }
    }

    #[test]
    fn a_budget_is_closed_if_it_desires_all_pods() {
        let is_closed = |desired: u32| {
            budget_of(&json!({"metadata": {"name": "b"}, "spec": {"selector": {}}, "status": {"expectedPods": 2, "desiredHealthy": desired}})).unwrap().2
        };
        assert_eq!([is_closed(1), is_closed(2)], [false, true]);
    }
}
