//! Pods that are handed over: the PATCH, the Deployment, and what `maxSurge` allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::monitor::spec::Spec;
use rules::budget::{allowed_of_owner, surge};

use serde::Deserialize;

use crate::api::{Answer, Fact};
use crate::ledger::{Caller, Seen};
use crate::objects::{self, HANDED_OVER_BY, HANDED_OVER_FROM};
use crate::state::{ClusterState, DEPLOYMENT, Deployment, OwnerKind, Pod};

#[derive(Deserialize)]
struct PodPatch {
    metadata: PatchedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PatchedMetadata {
    uid: String,
    resource_version: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, Option<String>>,
    #[serde(default)]
    annotations: BTreeMap<String, Option<String>>,
    #[serde(default)]
    owner_references: Vec<PatchedOwner>,
}

#[derive(Deserialize)]
struct PatchedOwner {
    kind: Option<String>,
    name: Option<String>,
    controller: Option<bool>,
}

impl ClusterState {
    /// Carries out a strategic merge patch of a pod: its controller, our label and annotations, and its deletion cost.
    pub(crate) fn patch(&mut self, caller: &Caller, name: &str, body: &[u8]) -> Answer {
        let PodPatch { metadata } = serde_json::from_slice(body).expect("a patch of a pod");
        let Some(index) = self.pods.iter().position(|pod| *pod.name == *name) else { return Answer::not_found() };
        let pod = &self.pods[index];
        if metadata.resource_version.is_some_and(|version| version != pod.version.to_string()) {
            return Answer::conflict("the object has been modified");
        }
        if *metadata.uid != *pod.uid {
            return Answer::status(422, "Invalid", "metadata.uid: Invalid value: field is immutable", "");
        }
        let patched = |pod: &Pod| (pod.controller.clone(), pod.handed_over.clone(), pod.deletion_cost);
        let (before, kind) = (patched(pod), pod.controller.as_ref().map(|owner| owner.kind));
        let mut labels = (*pod.labels).clone();
        for (key, value) in metadata.labels {
            match value {
                Some(value) => drop(labels.insert(key, value)),
                None => drop(labels.remove(&key)),
            }
        }
        let annotation = |key: &str| metadata.annotations.get(key).cloned().flatten();
        if let Some(cost) = annotation("controller.kubernetes.io/pod-deletion-cost") {
            self.pods[index].deletion_cost = cost.parse().expect("a cost");
        }
        let controller = metadata.owner_references.iter().find(|owner| owner.controller == Some(true));
        match controller.map(|owner| (owner.kind.as_deref(), owner.name.as_deref())) {
            Some((Some("Deployment"), Some(DEPLOYMENT))) => {
                let annotations =
                    [HANDED_OVER_FROM, HANDED_OVER_BY].map(|key| annotation(key).expect("our annotation"));
                if !self.ledger.knows_of_no_rollout(caller) {
                    self.ledger.improper.push(format!("{name} is handed over, perhaps during a rollout"));
                }
                let over_budget = self.over_surge(caller, index);
                self.hand_over(index, annotations);
                let (at, id) = (self.moment(), self.pods[index].id);
                self.ledger.record_handing_over(at, caller, id, over_budget);
            }
            Some((Some("ReplicaSet"), Some(_))) if kind == Some(OwnerKind::ReplicaSet) => {}
            Some((Some("ReplicaSet"), Some(name))) => match self.owner_by_name(name) {
                Some(owner) => {
                    let known = self.ledger.known_generation(caller);
                    let is_late = known.is_some_and(|known| known < self.deployment.generation);
                    self.deployment.given_back_late += usize::from(is_late);
                    self.give_back(index, owner);
                    let (at, id) = (self.moment(), self.pods[index].id);
                    self.ledger.record_giving_back(at, caller, id);
                }
                None => self.ledger.improper.push(format!("{name} is no ReplicaSet")),
            },
            None => {}
            other => self.ledger.improper.push(format!("a pod gets the controller {other:?}")),
        }
        // A patch without a change makes no new version.
        if labels != *self.pods[index].labels || patched(&self.pods[index]) != before {
            self.store_edited(index, Arc::new(labels));
        }
        let version = self.pod_store.get(name).expect("it was stored");
        Answer::ok(self.pod_store.json(version, false), Some(Fact::Patched))
    }

    pub(crate) fn get_deployment(&mut self, name: &str) -> Answer {
        if name != DEPLOYMENT || self.deployment.is_gone {
            return Answer::not_found();
        }
        let (status, deployment) = (self.deployment_status(), &self.deployment);
        let is_rolling = status.generation < deployment.generation || status.updated < status.all;
        let fact = Some(Fact::Deployment { generation: deployment.generation, is_rolling });
        Answer::ok(objects::deployment(deployment, status, self.ledger.min_ready), fact)
    }

    /// Returns whether a pod belongs to a ReplicaSet of the Deployment.
    fn is_of_a_set(&self, pod: &Pod) -> bool {
        let owner = pod.controller.as_ref().filter(|owner| owner.kind == OwnerKind::ReplicaSet);
        owner.is_some_and(|owner| self.owner_by_name(owner.name).is_some())
    }

    /// Notes that a ReplicaSet deletes a pod which serves, and that fewer than the Deployment desires serve without it: it
    /// never does that of itself. But for each pod that was given back after the Deployment had been changed once more, it may.
    pub(crate) fn must_not_be_missed(&mut self, id: usize) {
        let serves = |pod: &&Pod| {
            (self.is_of_a_set(pod) || pod.is_handed_over()) && pod.ready.is_some() && pod.gone_by.is_none()
        };
        let serving = || self.pods.iter().filter(serves);
        let (left, desired) = (serving().filter(|pod| pod.id != id).count(), self.deployment.replicas);
        if !self.deployment.is_gone && serving().any(|pod| pod.id == id) && left < desired {
            match self.deployment.given_back_late.checked_sub(1) {
                Some(fewer) => self.deployment.given_back_late = fewer,
                None => {
                    self.ledger.improper.push(format!("a ReplicaSet deletes pod {id}, and {left} of {desired} serve"));
                }
            }
        }
    }

    /// Returns the pods of the Deployment's ReplicaSets that are available by any clock, or by what this task has sent at
    /// the same time, without this one. Pods must have been ready for `min_ready` seconds, or for what the Deployment says
    /// if that is longer.
    fn available_beside(&self, caller: &Caller, id: usize, min_ready: u32) -> usize {
        let least = Duration::from_secs(self.ledger.min_ready.max(min_ready).into()).saturating_sub(self.ledger.skew);
        let overtaking = self.ledger.overtaking(caller, self.ms);
        let counts = |pod: &&Pod| {
            let since = pod.ready.map(|ready| self.ledger.pods[pod.id].ready_by_node(ready));
            let is_ready = since.is_some_and(|since| u128::from(self.ms - since) >= least.as_millis());
            let is_available = is_ready && !pod.finished && pod.gone_by.is_none();
            pod.id != id && (is_available || overtaking.contains(&pod.id))
        };
        self.pods.iter().filter(|pod| self.is_of_a_set(pod)).filter(counts).count()
    }

    /// Returns by how many pods handing this pod over exceeds `maxSurge`, as far as its sender can know.
    fn over_surge(&self, caller: &Caller, index: usize) -> usize {
        let Some((seen, _)) = self.ledger.goes_by(caller) else { return 0 };
        let is_one = |pod: &&Pod| pod.is_handed_over() && pod.gone_by.is_none() && !pod.finished;
        let others = self.pods.iter().filter(is_one).filter(|pod| pod.id != self.pods[index].id).count();
        (others + 1).saturating_sub(surge(seen.spec.max_surge.as_ref(), self.deployment.replicas))
    }

    /// Returns by how many pods the deletion of an available pod exceeds what `maxSurge` allows. No restart deletes one that is
    /// handed over.
    pub(crate) fn over_surge_by_deletion(&self, caller: &Caller, id: usize) -> usize {
        let Some((seen, _)) = self.ledger.goes_by(caller) else { return 0 };
        if self.pods.iter().any(|pod| pod.id == id && pod.is_handed_over()) {
            return 1;
        }
        let Seen { spec, .. } = &*seen;
        if caller.grounds.iter().any(|grounds| grounds.seen.spec.max_surge.is_none()) {
            return 0;
        }
        let Some(pod) = self.pods.iter().find(|pod| pod.id == id && pod.serves()) else { return 0 };
        let Deployment { is_gone, may_surge, .. } = self.deployment;
        let is_free = is_gone || !may_surge || spec.max_surge.is_none() || !self.is_of_a_set(pod);
        usize::from(!is_free && spec.max_unavailable.is_none())
    }

    /// Returns how many of the desired pods may be missing when a pod goes that is handed over, and for how many seconds others must
    /// have been ready, by all that the task may have read of the ConfigMonitor since it began to look.
    fn restart_allows(&self, caller: &Caller, pod: &Pod) -> (usize, u32) {
        let uid = pod.handed_over.as_ref().and_then(|[_, by]| by.split('/').nth(1));
        let monitor = self.monitors.iter().position(|monitor| Some(&*monitor.uid) == uid && !monitor.gone);
        let Some(book) = monitor.map(|monitor| &self.ledger.books[monitor]) else { return (0, 0) };
        let from = self.ledger.looks_since(caller);
        let specs = book.specs.iter().rposition(|(at, _)| Some(*at) < from).unwrap_or(0);
        let specs = || book.specs[specs..].iter().map(|(_, spec)| spec);
        let writes = book.writes.iter().rposition(|write| Some(write.at) < from).unwrap_or(0);
        let is_under_way = book.writes.iter().skip(writes).any(|write| write.after.begun().is_some());
        let of_spec = |spec: &Spec| match &spec.max_unavailable {
            None if spec.max_surge.is_some() => 0,
            most => allowed_of_owner(most.as_ref(), self.deployment.replicas),
        };
        let allowed = specs().map(of_spec).max().filter(|_| is_under_way).unwrap_or_default();
        (allowed, specs().map(|spec| spec.min_ready_seconds.unwrap_or(0)).min().unwrap_or_default())
    }

    /// Deletes a pod that is handed over, as the task does that looks after it.
    pub(crate) fn end_by_itself(&mut self, caller: &Caller, id: usize, evict: bool) -> Answer {
        let Deployment { replicas, may_surge, .. } = self.deployment;
        // Another that a restart hands over meanwhile serves, too.
        let serves = |pod: &&Pod| pod.is_handed_over() && pod.id != id && pod.ready.is_some() && pod.gone_by.is_none();
        let others = self.pods.iter().filter(serves).count();
        let pod = self.pods.iter().find(|pod| pod.id == id);
        let (allowed, min_ready) = pod.map_or((0, 0), |pod| self.restart_allows(caller, pod));
        let lacking = replicas.saturating_sub(self.available_beside(caller, id, min_ready) + others + allowed);
        let is_free = pod.is_some_and(|pod| !pod.serves()) || !may_surge || lacking == 0;
        if !is_free && self.ledger.knows_everything(caller) {
            self.ledger.improper.push(format!("pod {id} is deleted, and {lacking} successors are not available"));
        }
        if pod.is_some_and(|pod| !pod.is_handed_over()) {
            self.ledger.improper.push(format!("pod {id} is deleted, and is not handed over"));
        }
        let at = self.moment();
        self.ledger.ends.push((at, id, evict));
        self.terminate(id, None);
        let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;
        Answer::ok(body.to_owned(), None)
    }
}
