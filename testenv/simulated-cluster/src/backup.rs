//! etcd, backed up and restored: everything is as it was at the backup, except for the time and the memory of the
//! processes.
//!
//! The API server is unavailable meanwhile, and its watches break off. Kubelets end pods that no longer exist, and
//! start those that exist again. No revision is reused, as if there had been few changes since the backup. A watch from
//! an undone revision stays silent.

use rules::Moment;
use std::collections::BTreeMap;

use crate::content::{CONFIG_MAPS, Stored};
use crate::ledger::PodRecord;
use crate::objects;
use crate::state::{ClusterState, Deployment, Monitor, Pod, Workload};

/// How long the API server is unavailable after a restore, in milliseconds.
const AWAY: u64 = 3000;

pub(crate) struct Backup {
    at: Moment,
    revision: u64,
    compacted: u64,
    config_maps: BTreeMap<&'static str, Stored>,
    monitors: Vec<Monitor>,
    workloads: Vec<Workload>,
    deployment: Deployment,
    pods: Vec<Pod>,
}

impl ClusterState {
    /// Makes a backup, which replaces the previous one.
    pub fn back_up(&mut self) {
        self.backup = Some(Backup {
            at: self.moment(),
            revision: self.revision,
            compacted: self.compacted,
            config_maps: self.config_maps.clone(),
            monitors: self.monitors.clone(),
            workloads: self.workloads.clone(),
            deployment: self.deployment,
            pods: self.pods.clone(),
        });
    }

    /// Restores the last backup, unless ConfigMonitors were created or deleted since.
    pub fn restore(&mut self) {
        let gone = |monitors: &[Monitor]| monitors.iter().map(|monitor| monitor.gone).collect::<Vec<_>>();
        let is_of_these = |backup: &mut Backup| gone(&backup.monitors) == gone(&self.monitors);
        let Some(backup) = self.backup.take_if(is_of_these) else { return };
        let Backup { at, revision, compacted, config_maps, monitors, workloads, deployment, pods } = backup;
        (self.highest, self.revision, self.compacted) = (self.highest.max(self.revision), revision, compacted);
        self.compaction.0 = self.compaction.0.min(revision);
        for store in [
            &mut self.config_map_store,
            &mut self.secret_store,
            &mut self.monitor_store,
            &mut self.namespace_store,
            &mut self.pod_store,
        ] {
            store.restore(revision);
        }
        (self.restores, self.away_until) = (self.restores + 1, self.ms + AWAY);
        (self.config_maps, self.monitors) = (config_maps, monitors);
        (self.workloads, self.deployment) = (workloads, deployment);
        for config_map in CONFIG_MAPS {
            self.has_changed(config_map);
        }
        for number in 0..self.monitors.len() {
            let (at, spec) = (self.moment(), self.monitors[number].spec.clone());
            let book = &mut self.ledger.books[number];
            book.specs.push((at, spec));
            // The operator has handled the request, and no longer knows.
            book.requests.extend(self.monitors[number].request.map(|value| (at, value.to_string())));
        }
        self.restore_pods(pods);
        let now = self.moment();
        self.ledger.record_restore(now, at);
        self.record_disturbance();
    }

    fn restore_pods(&mut self, before: Vec<Pod>) {
        let at = self.moment();
        for pod in std::mem::take(&mut self.pods) {
            let was = before.iter().find(|was| was.id == pod.id);
            match was {
                Some(was) if was.gone_at.is_some() || pod.gone_at.is_none() => {
                    self.ledger.pods[pod.id].labels.push((at, was.labels.clone()));
                    let Pod { labels, controller, handed_over, deletion_cost, .. } = was.clone();
                    if was.is_handed_over() != pod.is_handed_over() {
                        self.ledger.pods[pod.id].handed_over.push((at, was.is_handed_over()));
                    }
                    self.pods.push(Pod { labels, controller, handed_over, deletion_cost, ..pod });
                }
                _ => {
                    let record = &mut self.ledger.pods[pod.id];
                    record.ended.get_or_insert(at);
                    record.gone.get_or_insert(at);
                }
            }
        }
        for mut was in before {
            if self.pods.iter().any(|pod| pod.id == was.id) {
                continue;
            }
            if was.gone_at.is_none() {
                self.start_again(was);
            } else {
                was.version = self.next_revision();
                self.pod_store.remove(was.version, self.ms, &was.name, objects::pod_metadata(&was));
            }
        }
        for index in 0..self.pods.len() {
            self.store_pod(index);
        }
        self.start_pods();
    }

    /// Restores a pod that was gone. Its kubelet starts it.
    fn start_again(&mut self, was: Pod) {
        let (id, at) = (self.ledger.pods.len(), self.moment());
        let PodRecord { created, place, nature, .. } = self.ledger.pods[was.id];
        self.ledger.pods[was.id].is_undone = true;
        let record = PodRecord::new(at, created, place, (&was.labels, was.refers), nature, self.nodes);
        // A pod that had run to its end does not run again.
        let ended = was.finished.then_some(at);
        self.ledger.pods.push(PodRecord { is_undone: true, ended, gone: ended, ..record });
        // A pod that had run to its end may have had a successor in its place.
        let mut places = self.workloads.iter_mut().flat_map(|workload| &mut workload.places);
        if let Some(place) = places.find(|place| place.pod == Some(was.id)) {
            place.pod = Some(id);
        }
        let ready_at = self.ms + self.pace.readiness;
        self.pods.push(Pod { id, started: None, restarts: 0, ready: None, ready_at, ..was });
    }
}
