//! A cluster of two owners, and what a process has seen of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{READ, owner, pod};
use crate::kube::objects::Owner;
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::pod::{HandedOver, Pod};
use crate::monitor::restart::Now;
use crate::monitor::restart::machine::News;

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

/// A version of a pod, or `None` once it is gone.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pod: usize,
    model: Option<PodModel>,
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

    pub(super) fn news(&self, Event { pod, model, .. }: Event) -> News<usize> {
        match model {
            Some(model) => News::Applied(Arc::new(self.pod(pod, model))),
            None => News::Gone(Uid::from(pod.to_string().as_str())),
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

    fn put(&mut self, pod: usize, model: Option<PodModel>) -> Event {
        self.version += 1;
        let version = self.version;
        let model = model.map(|model| PodModel { version, ..model });
        match model {
            Some(model) => drop(self.pods.insert(pod, model)),
            None => drop(self.pods.remove(&pod)),
        }
        Event { pod, model, version }
    }

    pub(super) fn change(&mut self, pod: usize, stage: Stage) -> Event {
        let model = self.pods[&pod];
        self.put(pod, Some(PodModel { stage, since: self.second(), ..model }))
    }

    /// Hands a pod over. Returns it as the answer shows it.
    pub(super) fn hand_over(&mut self, pod: usize) -> (Event, Pod) {
        let event = self.put(pod, Some(PodModel { is_handed_over: true, ..self.pods[&pod] }));
        (event, self.pod(pod, self.pods[&pod]))
    }

    /// Lets a kubelet or a controller act, if there is something to do. Pods of the ReplicaSet take longest to end.
    pub(super) fn go_on(&mut self) -> Option<Event> {
        let find = |is: fn(&PodModel) -> bool| self.pods.iter().find(|(_, model)| is(model)).map(|(pod, _)| *pod);
        if let Some(pod) = find(|model| model.stage == Stage::Terminating && model.owner == 1) {
            return Some(self.put(pod, None));
        }
        for (owner, desired) in DESIRED.into_iter().enumerate() {
            let is_its = |model: &&PodModel| {
                let is_there = model.stage != Stage::Terminating;
                model.owner == owner && !model.is_handed_over && is_there
            };
            if self.pods.values().filter(is_its).count() < desired {
                let (created, next) = (self.second(), self.version as usize);
                let (stage, is_handed_over, since, version) = (Stage::Starting, false, created, 0);
                let model = PodModel { owner, stage, is_handed_over, since, created, version };
                return Some(self.put(next, Some(model)));
            }
        }
        if let Some(pod) = find(|model| matches!(model.stage, Stage::Starting | Stage::Crashed)) {
            return Some(self.change(pod, Stage::Ready));
        }
        find(|model| model.stage == Stage::Terminating).map(|pod| self.put(pod, None))
    }

    /// Lets the newest new pod crash, if there is one.
    pub(super) fn crash(&mut self) -> Option<Event> {
        let new = self.pods.range(OLD..).filter(|(_, model)| model.stage == Stage::Ready);
        let crashing = new.max_by_key(|(_, model)| model.version).map(|(pod, _)| *pod);
        crashing.map(|pod| self.change(pod, Stage::Crashed))
    }
}

pub(super) fn number(pod: &Pod) -> usize {
    pod.uid.as_str().parse().unwrap()
}

/// What a process has seen.
#[derive(Clone, Default)]
pub(super) struct Eyes {
    /// The events since the last list, and whether they have arrived.
    events: Vec<(Event, bool)>,
    pub(super) is_open: bool,
    /// Whether the watch continues from the last list.
    is_continuous: bool,
    /// What has arrived of each pod.
    shown: BTreeMap<usize, (u64, Option<PodModel>)>,
    pub(super) lists: usize,
    /// How many turns had ended at the last list.
    pub(super) turns_ended: usize,
    /// While there were no more lists than this, no event arrives.
    lags_until: usize,
}

impl Eyes {
    pub(super) fn show(&mut self, event: Event) {
        self.events.push((event, false));
        self.arrive();
    }

    fn arrive(&mut self) {
        if !self.is_open || self.lists <= self.lags_until {
            return;
        }
        for (Event { pod, model, version }, has_arrived) in &mut self.events {
            *has_arrived = true;
            let shown = self.shown.entry(*pod).or_insert((0, None));
            if self.is_continuous && shown.0 < *version {
                *shown = (*version, *model);
            }
        }
    }

    /// Takes what has arrived and was not read.
    pub(super) fn read(&mut self) -> Vec<Event> {
        let arrived = self.events.iter().take_while(|(_, has_arrived)| *has_arrived).count();
        self.events.drain(..arrived).map(|(event, _)| event).collect()
    }

    pub(super) fn list(&mut self, world: &World, turns_ended: usize) -> Vec<Arc<Pod>> {
        (self.lists, self.turns_ended, self.is_continuous) = (self.lists + 1, turns_ended, false);
        for (pod, shown) in &mut self.shown {
            *shown = (world.version, world.pods.get(pod).copied());
        }
        self.shown.extend(world.pods.iter().map(|(pod, model)| (*pod, (world.version, Some(*model)))));
        if !self.is_open {
            self.events.clear();
        }
        world.pods()
    }

    pub(super) fn follow(&mut self, is_wanted: bool) -> bool {
        let is_new = is_wanted && !self.is_open;
        self.is_open = is_wanted;
        self.is_continuous |= is_new;
        self.arrive();
        is_new
    }

    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.events.clear();
    }

    pub(super) fn lag(&mut self) {
        self.lags_until = self.lists;
    }

    fn shown(&self) -> impl Iterator<Item = (usize, PodModel)> {
        self.shown.iter().filter_map(|(pod, (_, model))| Some((*pod, (*model)?)))
    }

    /// Returns the pods that are handed over and not terminating.
    pub(super) fn handed_over(&self) -> BTreeSet<usize> {
        let is_one = |model: &PodModel| model.is_handed_over && model.stage != Stage::Terminating;
        self.shown().filter(|(_, model)| is_one(model)).map(|(pod, _)| pod).collect()
    }

    /// Returns the ready pods.
    pub(super) fn ready(&self) -> BTreeSet<usize> {
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
