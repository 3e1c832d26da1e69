//! The requests that the operator makes of the simulated cluster, as the API server serves them. The facts go into the ledger.

use configmonitor_operator::kube::objects::{ConfigMap, Identity, Pod, Workload};
use configmonitor_operator::kube::{ResourceVersion, ServerTime, Uid};
use configmonitor_operator::monitor::status::Status;

use crate::ledger::{End, Moment, selects};
use crate::world::{CONFIG_MAPS, Living, Monitor, World, data};

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer: nobody knows whether it was served.
    Unknown,
    Forbidden,
    NotFound,
    Conflict,
    /// The list of that time is forgotten.
    Expired,
}

/// A list of pods.
pub(crate) struct List {
    pub(crate) version: ResourceVersion,
    pub(crate) at: ServerTime,
    pub(crate) pods: Vec<Pod>,
}

pub(crate) fn text(version: u64) -> ResourceVersion {
    version.to_string().as_str().into()
}

/// It is another one whenever something about the pod is.
fn version_of(pod: &Pod) -> ResourceVersion {
    let Pod { gone_by, finished, ready_since, started, .. } = pod;
    format!("{gone_by:?} {finished} {ready_since:?} {started:?}").as_str().into()
}

impl World {
    pub(crate) fn second(&self) -> ServerTime {
        Moment { step: 0, ms: self.ms }.second()
    }

    pub(crate) fn get_monitor(&mut self) -> Monitor {
        if let (life, true) = self.caller {
            self.ledger.saw_monitor(life, self.monitor.clone());
        }
        self.monitor.clone()
    }

    pub(crate) fn get_config_map(&mut self, name: &str) -> Result<(ConfigMap, ServerTime), Failure> {
        let Some(name) = CONFIG_MAPS.into_iter().find(|one| *one == name) else { return Err(Failure::NotFound) };
        let stored = self.config_maps.get(name).copied();
        let at = self.moment();
        if let (life, true) = self.caller {
            self.ledger.read(at, life, name, stored);
        }
        let stored = stored.ok_or(Failure::NotFound)?;
        let metadata = Identity { name: name.to_owned(), uid: name.into(), resource_version: text(stored.version) };
        Ok((ConfigMap { metadata, data: Some(data(stored.content)), binary_data: None, immutable: false }, at.second()))
    }

    pub(crate) fn list(&mut self, query: &str) -> List {
        let version = self.next_revision();
        let pods: Vec<Pod> =
            self.pods.iter().map(|Living { pod, .. }| Pod { version: version_of(pod), ..pod.clone() }).collect();
        let ids =
            self.pods.iter().filter(|living| selects(query, &living.pod.labels)).map(|living| living.id).collect();
        let at = self.moment();
        if let (life, true) = self.caller {
            self.ledger.listed(at, life, text(version), ids);
        }
        let selected = pods.iter().filter(|pod| selects(query, &pod.labels)).cloned().collect();
        self.lists.insert(version, pods);
        List { version: text(version), at: at.second(), pods: selected }
    }

    /// The pods as they were at this version.
    pub(crate) fn list_again(&mut self, query: &str, version: &ResourceVersion) -> Result<Vec<Pod>, Failure> {
        let Some(pods) = version.as_str().parse().ok().and_then(|version: u64| self.lists.get(&version)) else {
            self.ledger.forgotten(self.caller.0, version.clone());
            return Err(Failure::Expired);
        };
        Ok(pods.iter().filter(|pod| selects(query, &pod.labels)).cloned().collect())
    }

    /// Compare and swap: not if the ConfigMonitor has been written since.
    pub(crate) fn put_status(&mut self, read: u64, status: &Status) -> Result<Monitor, Failure> {
        if read != self.monitor.version {
            return Err(Failure::Conflict);
        }
        // Through text, as on the wire.
        let status: Status = serde_json::from_str(&serde_json::to_string(status).unwrap()).unwrap();
        let before = std::mem::replace(&mut self.monitor.status, status.clone());
        self.monitor.version = self.next_revision();
        let (at, (life, hears), spec, alive) = (self.moment(), self.caller, self.monitor.spec.clone(), self.running());
        self.ledger.wrote(at, life, spec, before, status, alive);
        if hears {
            self.ledger.saw_monitor(life, self.monitor.clone());
        }
        Ok(self.monitor.clone())
    }

    /// Deletes the pod of this name, if it is the one that is meant, and as it was if that is meant, too. It takes its time to end.
    pub(crate) fn delete(&mut self, name: &str, uid: &Uid, version: Option<&ResourceVersion>) -> Result<(), Failure> {
        let Living { id, pod, .. } =
            self.pods.iter().find(|living| living.pod.name == name).ok_or(Failure::NotFound)?;
        if *uid != pod.uid || version.is_some_and(|version| *version != version_of(pod)) {
            return Err(Failure::Conflict);
        }
        let id = *id;
        let over_budget = self.over_budget(id);
        if self.terminate(id) {
            let at = self.moment();
            self.ledger.deleted(at, self.caller.0, id, over_budget);
            self.reconcile();
        }
        Ok(())
    }

    pub(crate) fn get_workload(&self, name: &str) -> Result<Workload, Failure> {
        let workload = self.workloads.iter().find(|workload| workload.owner.name == name).ok_or(Failure::NotFound)?;
        let (uid, replicas) = (workload.owner.uid.clone(), workload.replicas.try_into().unwrap());
        let is_its = |living: &&Living| living.pod.controller.as_ref() == Some(&workload.owner);
        let serves = |living: &&Living| living.pod.ready_since.is_some() && living.pod.gone_by.is_none();
        let available = self.pods.iter().filter(is_its).filter(serves).count().try_into().unwrap();
        Ok(Workload { uid, replicas, available, pod_labels: workload.labels.clone() })
    }

    /// The pods that have not finished and are not stuck.
    fn running(&self) -> Vec<usize> {
        let running = self.pods.iter().filter(|living| !living.pod.finished && !self.is_stuck(living));
        running.map(|living| living.id).collect()
    }

    /// The story is over.
    pub(crate) fn end(&mut self, at_rest: bool) {
        let Some(source) = self.source() else { panic!("the spec is valid in the end") };
        let content = source.content(self.config_maps[source.config_map].content);
        let staying = self.pods.iter().filter(|living| !living.pod.finished && living.pod.gone_by.is_none());
        let alive = staying.map(|living| living.id).collect();
        self.ledger.end = Some(End { monitor: self.monitor.clone(), source, content, at_rest, alive });
    }
}
