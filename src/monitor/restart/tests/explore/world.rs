//! A cluster of two owners, and what a process has seen of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{READ, owner, pod};
use crate::kube::objects::Owner;
use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::pod::{HandedOver, Pod};
use crate::monitor::restart::Now;

/// The number of the old pods, which come first.
pub(super) const OLD: usize = 3;
pub(super) const DESIRED: [usize; 2] = [2, 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Starting,
    Ready,
    Crashed,
    Terminating,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PodModel {
    owner: usize,
    stage: Stage,
    is_handed_over: bool,
    since: i64,
    created: i64,
    version: u64,
}

#[derive(Clone)]
pub(super) struct World {
    owners: [Arc<Owner>; 2],
    /// Of the first owner.
    pub(super) deployment: Arc<Owner>,
    pods: BTreeMap<usize, PodModel>,
    version: u64,
    pub(super) ms: u64,
    base: Instant,
}

impl World {
    pub(super) fn new() -> Self {
        let old = |owner| {
            let (since, created) = (READ - 100, READ - 200);
            PodModel { owner, stage: Stage::Ready, is_handed_over: false, since, created, version: 1 }
        };
        let deployment = owner("Deployment", "web");
        let owners = [owner("ReplicaSet", "web"), owner("StatefulSet", "db")];
        let pods = [old(0), old(0), old(1)].into_iter().enumerate().collect();
        Self { owners, deployment, pods, version: 10, ms: 0, base: Instant::now() }
    }

    pub(super) fn second(&self) -> i64 {
        READ + i64::try_from(self.ms / 1000).unwrap()
    }

    pub(super) fn now(&self) -> Now {
        Now { timer: self.base + Duration::from_millis(self.ms), server: ServerTime::from_second(self.second()) }
    }

    pub(super) fn wait_until(&mut self, until: Instant) {
        let wait = until.saturating_duration_since(self.now().timer).as_millis();
        self.ms += u64::try_from(wait).unwrap() + 1;
    }

    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.iter().map(|(number, model)| Arc::new(self.pod(*number, *model))).collect()
    }

    fn pod(&self, number: usize, model: PodModel) -> Pod {
        let at = ServerTime::from_second;
        let handed_over = HandedOver { to: Arc::clone(&self.deployment), by: "m".into() };
        Pod {
            version: model.version.to_string().as_str().into(),
            created: at(model.created),
            gone_by: (model.stage == Stage::Terminating).then(|| at(model.since + 30)),
            controller: Some(Arc::clone(&self.owners[model.owner])),
            ready_since: (model.stage == Stage::Ready).then(|| at(model.since)),
            started: Some(at(model.created)),
            handed_over: model.is_handed_over.then(|| Arc::new(handed_over)),
            ..pod(&number.to_string())
        }
    }

    pub(super) fn owner_of(&self, pod: usize) -> usize {
        self.pods[&pod].owner
    }

    /// Returns whether the pod exists and is not terminating.
    pub(super) fn is_there(&self, pod: usize) -> bool {
        self.pods.get(&pod).is_some_and(|model| model.stage != Stage::Terminating)
    }

    /// Returns whether the pod exists and has this version.
    pub(super) fn is_at(&self, pod: usize, version: &ResourceVersion) -> bool {
        self.pods.get(&pod).is_some_and(|model| *version == model.version.to_string().as_str().into())
    }

    fn put(&mut self, pod: usize, model: PodModel) {
        self.version += 1;
        self.pods.insert(pod, PodModel { version: self.version, ..model });
    }

    pub(super) fn change(&mut self, pod: usize, stage: Stage) {
        self.put(pod, PodModel { stage, since: self.second(), ..self.pods[&pod] });
    }

    /// Hands a pod over. Returns it as the answer shows it.
    pub(super) fn hand_over(&mut self, pod: usize) -> Pod {
        self.put(pod, PodModel { is_handed_over: true, ..self.pods[&pod] });
        self.pod(pod, self.pods[&pod])
    }

    /// Lets a kubelet, a controller or the task act that looks after what is handed over. Returns whether that rings. `None` if there is nothing to do. Pods of
    /// the ReplicaSet take longest to end.
    pub(super) fn go_on(&mut self) -> Option<bool> {
        let find = |is: fn(&PodModel) -> bool| self.pods.iter().find(|(_, model)| is(model)).map(|(pod, _)| *pod);
        if let Some(pod) = find(|model| model.stage == Stage::Terminating && model.owner == 1) {
            return self.pods.remove(&pod).map(|_| false);
        }
        for (owner, desired) in DESIRED.into_iter().enumerate() {
            let is_its = |model: &&PodModel| {
                let is_there = model.stage != Stage::Terminating;
                model.owner == owner && !model.is_handed_over && is_there
            };
            if self.pods.values().filter(is_its).count() < desired {
                let (created, next) = (self.second(), self.version as usize);
                let (stage, is_handed_over, since, version) = (Stage::Starting, false, created, 0);
                self.put(next, PodModel { owner, stage, is_handed_over, since, created, version });
                return Some(false);
            }
        }
        if let Some(pod) = find(|model| matches!(model.stage, Stage::Starting | Stage::Crashed)) {
            self.change(pod, Stage::Ready);
            return Some(true);
        }
        let is_own = |model: &&PodModel| model.owner == 0 && !model.is_handed_over && model.stage == Stage::Ready;
        if self.pods.values().filter(is_own).count() >= DESIRED[0]
            && let Some(pod) = find(|model| model.is_handed_over && model.stage != Stage::Terminating)
        {
            self.change(pod, Stage::Terminating);
            return Some(true);
        }
        let pod = find(|model| model.stage == Stage::Terminating)?;
        self.pods.remove(&pod).map(|_| false)
    }

    /// Lets the newest new pod crash. Returns whether there is one.
    pub(super) fn crash(&mut self) -> bool {
        let new = self.pods.range(OLD..).filter(|(_, model)| model.stage == Stage::Ready);
        let crashing = new.max_by_key(|(_, model)| model.version).map(|(pod, _)| *pod);
        crashing.into_iter().for_each(|pod| self.change(pod, Stage::Crashed));
        crashing.is_some()
    }
}

pub(super) fn number(pod: &Pod) -> usize {
    pod.uid.as_str().parse().unwrap()
}

/// What a process has seen.
#[derive(Clone, Default)]
pub(super) struct Eyes {
    /// The pods of the last list.
    listed: BTreeMap<usize, PodModel>,
    /// How many pods have become ready since.
    pub(super) ready: usize,
    pub(super) is_listening: bool,
    pub(super) lists: usize,
    /// How many turns had ended at the last list.
    pub(super) turns_ended: usize,
}

impl Eyes {
    pub(super) fn list(&mut self, world: &World, turns_ended: usize) -> Vec<Arc<Pod>> {
        (self.listed, self.ready) = (world.pods.clone(), 0);
        (self.lists, self.turns_ended) = (self.lists + 1, turns_ended);
        world.pods()
    }

    fn shown(&self) -> impl Iterator<Item = (usize, PodModel)> {
        self.listed.iter().map(|(pod, model)| (*pod, *model))
    }

    /// Returns the pods that are handed over and not terminating.
    pub(super) fn handed_over(&self) -> BTreeSet<usize> {
        let is_one = |model: &PodModel| model.is_handed_over && model.stage != Stage::Terminating;
        self.shown().filter(|(_, model)| is_one(model)).map(|(pod, _)| pod).collect()
    }

    /// Returns the ready pods.
    pub(super) fn ready_pods(&self) -> BTreeSet<usize> {
        self.shown().filter(|(_, model)| model.stage == Stage::Ready).map(|(pod, _)| pod).collect()
    }

    /// Returns how many old pods are gone or terminating.
    pub(super) fn going(&self) -> usize {
        OLD - self.shown().filter(|(pod, model)| *pod < OLD && model.stage != Stage::Terminating).count()
    }

    /// Returns whether there are new pods, all of which have been ready for this many seconds.
    pub(super) fn have_baked(&self, seconds: i64, now: i64) -> bool {
        let mut new = self.shown().filter(|(pod, _)| *pod >= OLD).peekable();
        new.peek().is_some() && new.all(|(_, model)| model.stage == Stage::Ready && now - model.since >= seconds)
    }

    /// Returns whether the restart is over.
    pub(super) fn is_over(&self) -> bool {
        let is_left = self.shown().any(|(pod, model)| pod < OLD && model.stage != Stage::Terminating);
        let is_ready = |model: &PodModel| model.stage == Stage::Ready;
        let ready = |owner| self.shown().filter(|(_, model)| model.owner == owner && is_ready(model)).count();
        !is_left && DESIRED.into_iter().enumerate().all(|(owner, desired)| ready(owner) >= desired)
    }
}
