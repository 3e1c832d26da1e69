//! What is around the ConfigMonitors of a namespace, and keeps them from their work: pods, workloads and budgets for disruptions.

use std::collections::BTreeMap;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::Error;
use configmonitor_operator::kube::labels::LabelSelector;
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::{PODS, Resource};
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::spec::DeletionPolicy;
use serde_json::Value;

use crate::conditions::reason;
use crate::monitors::{Monitor, all, name_of};
use crate::options::WORKLOADS;

const BUDGETS: Resource =
    Resource { api_version: "policy/v1", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets" };

type Labels = BTreeMap<String, String>;

/// The objects of a namespace.
#[derive(Default)]
pub(crate) struct Surroundings {
    /// The labels of each pod.
    pub(crate) pods: Vec<Labels>,
    /// The labels in the pod template of each workload.
    pub(crate) templates: Vec<Labels>,
    /// The PodDisruptionBudgets that allow no disruption, however many pods are ready: name and selector.
    pub(crate) closed: Vec<(String, LabelSelector)>,
}

impl Surroundings {
    pub(crate) async fn read(client: &Client) -> Result<Self, Error> {
        let metadata = Selection { metadata_only: true, ..all(PODS) };
        let pods = client.list(&metadata, None, |pod: Value| labels(&pod["metadata"])).await?.items;
        let mut templates = Vec::new();
        for resource in WORKLOADS {
            let of = |workload: Value| labels(&workload["spec"]["template"]["metadata"]);
            templates.extend(client.list(&all(resource), None, of).await?.items);
        }
        let closed = client.list(&all(BUDGETS), None, |budget: Value| closed(&budget)).await?.items;
        Ok(Self { pods, templates, closed: closed.into_iter().flatten().collect() })
    }

    /// Returns what is wrong with a ConfigMonitor among all of its namespace, each with what to do.
    pub(crate) fn wrong(&self, monitor: &Monitor, all: &[Monitor]) -> Vec<(String, &'static str)> {
        let Ok(policy) = &monitor.policy else { return Vec::new() };
        let its: Vec<&Labels> = self.pods.iter().filter(|pod| policy.selector.matches(pod)).collect();
        let mut wrong = Vec::new();
        let says_none =
            monitor.status.as_ref().is_some_and(|status| reason(status) == <&str>::from(Reason::NoPodsSelected));
        if says_none && its.is_empty() && !self.templates.iter().any(|template| policy.selector.matches(template)) {
            wrong.push((
                "selects the pods of no workload".to_owned(),
                "compare spec.podSelector with the labels of the pods",
            ));
        }
        let shares = |other: &&Monitor| {
            let is_other = other.metadata.name != monitor.metadata.name;
            is_other && other.policy.as_ref().is_ok_and(|policy| its.iter().any(|pod| policy.selector.matches(pod)))
        };
        let others: Vec<&str> = all.iter().filter(shares).map(|other| &*other.metadata.name).collect();
        if !others.is_empty() {
            let what =
                format!("selects pods that {} selects, too: an edit of both restarts them twice", others.join(" and "));
            wrong.push((what, "name all sources in one of them, and delete the others"));
        }
        if policy.restart_last.as_ref().is_some_and(|last| !its.is_empty() && !its.iter().any(|pod| last.matches(pod)))
        {
            let next = "compare spec.restartLast with the labels of the pods";
            wrong.push(("restartLast matches none of its pods".to_owned(), next));
        }
        let closes = |(_, selector): &&(String, LabelSelector)| its.iter().any(|pod| selector.matches(pod));
        if let Some((budget, _)) =
            self.closed.iter().find(closes).filter(|_| policy.deletion_policy == DeletionPolicy::Evict)
        {
            let what = format!("PodDisruptionBudget/{budget} never lets one of its pods be evicted");
            wrong.push((what, "let it allow a disruption, or set deletionPolicy: Delete"));
        }
        wrong
    }
}

fn labels(metadata: &Value) -> Labels {
    serde_json::from_value(metadata["labels"].clone()).unwrap_or_default()
}

/// Returns the name and the selector of a budget that never allows a disruption.
fn closed(budget: &Value) -> Option<(String, LabelSelector)> {
    let of = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    let is_closed = of("expectedPods") > 0 && of("desiredHealthy") >= of("expectedPods");
    let selector = serde_json::from_value(budget["spec"]["selector"].clone()).ok()?;
    is_closed.then(|| (name_of(budget), selector))
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
        let around = Surroundings {
            pods: vec![of(json!({"app": "web", "role": "replica"}))],
            templates: Vec::new(),
            closed: vec![(
                "strict".to_owned(),
                serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap(),
            )],
        };
        let web = json!({"app": "web"});
        let wrong = |spec: Value, others: &[Monitor]| around.wrong(&monitor("one", &spec), others).len();
        assert_eq!(wrong(json!({"podSelector": web}), &[]), 0);
        assert_eq!(wrong(json!({"podSelector": web}), &[monitor("one", &json!({"podSelector": web}))]), 0);
        assert_eq!(
            wrong(json!({"podSelector": web}), &[monitor("two", &json!({"podSelector": {"role": "replica"}}))]),
            1
        );
        assert_eq!(
            wrong(json!({"podSelector": web}), &[monitor("two", &json!({"podSelector": {"role": "primary"}}))]),
            0
        );
        let last = |role: &str| json!({"podSelector": web, "restartLast": {"matchLabels": {"role": role}}});
        assert_eq!([wrong(last("replica"), &[]), wrong(last("primary"), &[])], [0, 1]);
        assert_eq!(wrong(json!({"podSelector": web, "deletionPolicy": "Evict"}), &[]), 1);
    }

    #[test]
    fn a_budget_is_closed_if_it_desires_all_pods() {
        let is_closed = |desired: u32| {
            closed(&json!({"metadata": {"name": "b"}, "spec": {"selector": {}}, "status": {"expectedPods": 2, "desiredHealthy": desired}})).is_some()
        };
        assert_eq!([is_closed(1), is_closed(2)], [false, true]);
    }
}
