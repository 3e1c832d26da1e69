//! Every course of a restart of three pods that deviates from the smooth one at most `K` times: answers that fail, are
//! lost or refuse, pods that crash meanwhile, a watch that lags or ends, and another process that takes over.
//!
//! `make explore` takes more deviations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::{READ, owner, pod, restart};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::{Owner, Pod};
use crate::kube::{Action, PODS, ServerTime, Uid};
use crate::monitor::restart::Now;
use crate::monitor::restart::machine::{Do, Machine, News};
use crate::monitor::restart::plan::{Census, Plan, Suspects};
use crate::monitor::restart::standing::{OwnerQuery, OwnerState, OwnerStates};
use crate::monitor::restart::wave::{Reply, Wave};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, CanaryState, Restart, Why};

/// The number of the old pods, which come first.
const OLD: usize = 3;
const DESIRED: [usize; 2] = [2, 1];
/// The most questions in a course. A smooth one takes fewer than 60.
const HORIZON: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    Crashed,
    Terminating,
}

#[derive(Clone, Copy, Debug)]
struct PodModel {
    owner: usize,
    phase: Phase,
    since: i64,
    created: i64,
    version: u64,
}

/// What an event says, and whether it has arrived.
#[derive(Clone, Copy)]
struct Event {
    pod: usize,
    model: Option<PodModel>,
    version: u64,
    has_arrived: bool,
}

/// The cluster and the status.
#[derive(Clone)]
struct World {
    owners: [Arc<Owner>; 2],
    pods: BTreeMap<usize, PodModel>,
    next: usize,
    version: u64,
    ms: u64,
    base: Instant,
    /// The events since the last list.
    events: Vec<Event>,
    is_open: bool,
    /// Whether the watch continues from the last list.
    is_continuous: bool,
    /// What has arrived of each pod.
    shown: BTreeMap<usize, (u64, Option<PodModel>)>,
    lists: usize,
    /// While there were no more lists than this, no event arrives.
    lags_until: usize,
    restart: Restart,
    begun: Begun,
    deleted: BTreeSet<usize>,
    /// Pods whose deletion may be sent again: its answer was none, or that they are gone.
    unclear: BTreeSet<usize>,
    since_wait: usize,
}

impl World {
    fn new(restart: Restart, begun: Begun) -> Self {
        let old = |owner| {
            let (since, created) = (READ - 100, READ - 200);
            PodModel { owner, phase: Phase::Ready, since, created, version: 1 }
        };
        Self {
            owners: [owner("ReplicaSet", "web"), owner("StatefulSet", "db")],
            pods: [old(0), old(0), old(1)].into_iter().enumerate().collect(),
            next: OLD,
            version: 10,
            ms: 0,
            base: Instant::now(),
            events: Vec::new(),
            is_open: false,
            is_continuous: false,
            shown: BTreeMap::new(),
            lists: 0,
            lags_until: 0,
            restart,
            begun,
            deleted: BTreeSet::new(),
            unclear: BTreeSet::new(),
            since_wait: 0,
        }
    }

    fn second(&self) -> i64 {
        READ + i64::try_from(self.ms / 1000).unwrap()
    }

    fn now(&self) -> Now {
        Now { timer: self.base + Duration::from_millis(self.ms), server: ServerTime::from_second(self.second()) }
    }

    fn wait_until(&mut self, until: Instant) {
        let wait = until.saturating_duration_since(self.now().timer).as_millis();
        self.ms += u64::try_from(wait).unwrap() + 1;
    }

    fn pod(&self, number: usize, model: PodModel) -> Pod {
        let at = ServerTime::from_second;
        Pod {
            version: model.version.to_string().as_str().into(),
            created: at(model.created),
            gone_by: (model.phase == Phase::Terminating).then(|| at(model.since + 30)),
            controller: Some(Arc::clone(&self.owners[model.owner])),
            ready_since: (model.phase == Phase::Ready).then(|| at(model.since)),
            started: Some(at(model.created)),
            ..pod(&number.to_string())
        }
    }

    fn put(&mut self, pod: usize, model: Option<PodModel>) {
        self.version += 1;
        let version = self.version;
        let model = model.map(|model| PodModel { version, ..model });
        match model {
            Some(model) => drop(self.pods.insert(pod, model)),
            None => drop(self.pods.remove(&pod)),
        }
        self.events.push(Event { pod, model, version, has_arrived: false });
        self.arrive();
    }

    fn change(&mut self, pod: usize, phase: Phase) {
        let model = self.pods[&pod];
        self.put(pod, Some(PodModel { phase, since: self.second(), ..model }));
    }

    fn arrive(&mut self) {
        if !self.is_open || self.lists <= self.lags_until {
            return;
        }
        for event in &mut self.events {
            event.has_arrived = true;
            if !self.is_continuous {
                continue;
            }
            let shown = self.shown.entry(event.pod).or_insert((0, None));
            if shown.0 < event.version {
                *shown = (event.version, event.model);
            }
        }
    }

    /// Lets a kubelet or a controller act. Returns false if there is nothing to do.
    fn goes_on(&mut self) -> bool {
        let find = |is: fn(Phase) -> bool| self.pods.iter().find(|(_, model)| is(model.phase)).map(|(pod, _)| *pod);
        if let Some(pod) = find(|phase| phase == Phase::Terminating) {
            self.put(pod, None);
            return true;
        }
        for (owner, desired) in DESIRED.into_iter().enumerate() {
            if self.pods.values().filter(|model| model.owner == owner).count() < desired {
                let (pod, second) = (self.next, self.second());
                self.next += 1;
                let model = PodModel { owner, phase: Phase::Starting, since: second, created: second, version: 0 };
                self.put(pod, Some(model));
                return true;
            }
        }
        let starting = find(|phase| matches!(phase, Phase::Starting | Phase::Crashed));
        starting.into_iter().for_each(|pod| self.change(pod, Phase::Ready));
        starting.is_some()
    }

    /// Lets the newest pod crash. Returns false if there is none.
    fn crashes(&mut self) -> bool {
        let new = self.pods.range(OLD..).filter(|(_, model)| model.phase == Phase::Ready);
        let crashing = new.max_by_key(|(_, model)| model.version).map(|(pod, _)| *pod);
        crashing.into_iter().for_each(|pod| self.change(pod, Phase::Crashed));
        crashing.is_some()
    }

    fn delete(&mut self, pod: usize) {
        if self.pods.get(&pod).is_some_and(|model| model.phase != Phase::Terminating) {
            self.deleted.insert(pod);
            self.change(pod, Phase::Terminating);
        }
    }

    fn listed(&mut self) -> News<usize> {
        (self.lists, self.is_continuous) = (self.lists + 1, false);
        let version = self.version;
        for (pod, shown) in &mut self.shown {
            *shown = (version, self.pods.get(pod).copied());
        }
        self.shown.extend(self.pods.iter().map(|(pod, model)| (*pod, (version, Some(*model)))));
        if !self.is_open {
            self.events.clear();
        }
        let pods = self.pods.iter().map(|(pod, model)| Arc::new(self.pod(*pod, *model))).collect();
        News::Listed { pods, at: self.now().server, took: Duration::from_millis(4) }
    }

    fn ready(&self, owner: usize) -> usize {
        let is_ready = |model: &&PodModel| model.owner == owner && model.phase == Phase::Ready;
        self.shown.values().filter_map(|(_, model)| model.as_ref()).filter(is_ready).count()
    }

    /// Returns whether the restart is over by what has arrived.
    fn is_over(&self) -> bool {
        let is_left = self.shown.range(..OLD).any(|(_, (_, model))| model.is_some());
        !is_left && DESIRED.into_iter().enumerate().all(|(owner, desired)| self.ready(owner) >= desired)
    }
}

fn uid(pod: usize) -> Uid {
    pod.to_string().as_str().into()
}

fn number(pod: &Pod) -> usize {
    pod.uid.as_str().parse().unwrap()
}

fn failed(cause: Cause) -> Error {
    Action::new("delete", PODS).failed(cause)
}

/// One course: the restart, its world, and the deviations so far.
#[derive(Clone)]
struct Course<'a> {
    policy: &'a Policy,
    machine: Machine<usize>,
    world: World,
    deviations: Vec<String>,
    questions: usize,
}

impl<'a> Course<'a> {
    fn begin(policy: &'a Policy) -> Self {
        let at = ServerTime::from_second(READ);
        let restart = restart();
        let begun = Begun::new(at, policy.selector.to_query(), OLD);
        let mut world = World::new(restart, begun);
        let mut machine = Machine::begin(policy, Self::plan(policy, &world), &world.restart, Why::Changed, None, at);
        let (listed, now) = (world.listed(), world.now());
        machine.heard(listed, now);
        Self { policy, machine, world, deviations: Vec::new(), questions: 0 }
    }

    fn plan(policy: &Policy, world: &World) -> Plan {
        let old = World::new(world.restart.clone(), world.begun.clone());
        let pods: Vec<Pod> = old.pods.iter().map(|(pod, model)| old.pod(*pod, *model)).collect();
        let listed = Some(Arc::new(Census::of(pods.iter().map(Pod::identity))));
        let suspects = Suspects::new(&world.restart, listed, None);
        Plan::new(policy, &[suspects], policy.selector.to_query(), &pods, None)
    }

    fn hear(&mut self, news: News<usize>) {
        self.machine.heard(news, self.world.now());
    }

    /// Begins the next step of the keeper.
    fn step(&mut self) {
        self.machine.resume(self.policy, &self.world.begun);
    }

    /// A step has failed, and the next one comes after a backoff.
    fn backs_off(&mut self) {
        self.world.ms += 1000;
        self.step();
    }

    /// Another process takes the restart over.
    fn is_taken_over(&mut self) {
        self.world.is_open = false;
        self.world.events.clear();
        let World { restart, begun, .. } = &self.world;
        self.machine = Machine::recall(self.policy, Self::plan(self.policy, &self.world), restart, begun, None, false);
        self.step();
    }

    fn reads_watch(&mut self) {
        let arrived = self.world.events.iter().take_while(|event| event.has_arrived).count();
        for Event { pod, model, .. } in self.world.events.drain(..arrived).collect::<Vec<_>>() {
            match model {
                Some(model) => self.hear(News::Applied(Arc::new(self.world.pod(pod, model)))),
                None => self.hear(News::Gone(uid(pod))),
            }
        }
    }

    fn owners_read(&mut self, queries: &[OwnerQuery]) {
        let state = |query: &OwnerQuery| {
            let desired = DESIRED[usize::from(query.owner.kind == "StatefulSet")];
            (Arc::clone(&query.owner), OwnerState { desired, ..OwnerState::default() })
        };
        let states: OwnerStates = queries.iter().map(state).collect();
        self.hear(News::OwnersRead { states, took: Duration::from_millis(2) });
    }

    /// Answers the deletions of a wave, each by what `answer` does with the world.
    fn sends(&mut self, wave: &Wave, is_whole: bool, mut answer: impl FnMut(&mut World, usize) -> Option<Reply>) {
        for pod in wave.rows.iter().flatten().map(|attempt| Arc::clone(&attempt.pod)) {
            let Some(reply) = answer(&mut self.world, number(&pod)) else { continue };
            self.machine.replied(&pod, reply);
        }
        self.hear(News::WaveOver { is_whole });
    }

    fn check(&self, is_right: bool, what: &str) {
        assert!(is_right, "{what}, after {:?} ({} questions)", self.deviations, self.questions);
    }

    fn check_wave(&mut self, wave: &Wave, proof: usize) {
        let pods: Vec<usize> = wave.rows.iter().flatten().map(|attempt| number(&attempt.pod)).collect();
        self.check(proof == self.world.lists, "the proof is as old as the list");
        self.check(pods.iter().all(|pod| *pod < OLD), "only old pods are deleted");
        let is_again = |pod: &usize| self.world.deleted.contains(pod) && !self.world.unclear.contains(pod);
        self.check(!pods.iter().any(is_again), "no pod is deleted twice");
        let is_ready = |pod: &&usize| {
            self.world.shown.get(pod).is_some_and(|(_, model)| model.is_some_and(|model| model.phase == Phase::Ready))
        };
        let after = self.world.ready(0) + self.world.ready(1) - pods.iter().filter(is_ready).count();
        self.check(self.policy.max_unavailable.is_none() || after >= 2, "the budget is kept");
        if let Some(canary) = &self.world.begun.canary {
            let gone =
                (0..OLD).filter(|pod| self.world.shown.get(pod).is_some_and(|(_, model)| model.is_none())).count();
            let terminating =
                |(_, model): &(u64, Option<PodModel>)| model.is_some_and(|model| model.phase == Phase::Terminating);
            let going = self.world.shown.range(..OLD).filter(|(_, shown)| terminating(shown)).count();
            let most = if canary.state == CanaryState::Passed { OLD } else { canary.pods };
            self.check(gone + going + pods.len() <= most, "the canary goes first");
            self.check(!matches!(canary.state, CanaryState::Failed { .. }), "nothing goes after a failed canary");
        }
    }
}

fn explore(mut course: Course<'_>, left: usize, ended: &mut usize) {
    loop {
        course.questions += 1;
        course.world.since_wait += 1;
        course.world.ms += 2;
        course.check(course.questions < HORIZON && course.world.since_wait < 100, "the restart ends");
        let before = course.clone();
        let deviate = |what: &str, ended: &mut usize, happens: &dyn Fn(&mut Course<'_>) -> bool| {
            let mut other = before.clone();
            let _ = other.machine.next(other.world.now());
            if left > 0 && happens(&mut other) {
                other.deviations.push(format!("{}: {what}", other.questions));
                explore(other, left - 1, ended);
            }
        };
        let fails = |course: &mut Course<'_>| {
            course.backs_off();
            true
        };
        let fails_and_crashes = |course: &mut Course<'_>| {
            let crashes = course.world.crashes();
            course.backs_off();
            crashes
        };
        match course.machine.next(course.world.now()) {
            Do::ReadWatch => {
                deviate("the watch lags", ended, &|course| {
                    course.world.lags_until = course.world.lists;
                    let crashes = course.world.crashes();
                    course.reads_watch();
                    course.hear(News::WatchRead);
                    crashes
                });
                course.reads_watch();
                course.hear(News::WatchRead);
            }
            Do::TakeTurn { owners, .. } => course.hear(News::Turn(owners)),
            Do::List => {
                deviate("the list fails", ended, &fails);
                deviate("a pod crashes before the list", ended, &|course| {
                    let crashes = course.world.crashes();
                    let listed = course.world.listed();
                    course.hear(listed);
                    crashes
                });
                let listed = course.world.listed();
                course.hear(listed);
            }
            Do::ReadOwners(queries) => {
                deviate("the owners cannot be read", ended, &fails);
                deviate("a pod crashes while the owners are read", ended, &|course| {
                    let crashes = course.world.crashes();
                    course.owners_read(&queries);
                    crashes
                });
                course.owners_read(&queries);
            }
            Do::Intend(begun) => {
                course.world.begun = begun;
                let lists = course.world.lists;
                course.hear(News::Cleared(lists));
            }
            Do::Confirm => {
                deviate("the ConfigMonitor has changed", ended, &fails);
                let lists = course.world.lists;
                course.hear(News::Cleared(lists));
            }
            Do::Remove(wave, proof) => {
                course.check_wave(&wave, proof);
                let refused = |cause: fn(String) -> Cause| {
                    let wave = &wave;
                    move |course: &mut Course<'_>| {
                        course.sends(wave, true, |_, _| Some(Reply::Failed(failed(cause("x".to_owned())))));
                        true
                    }
                };
                deviate("every eviction is blocked", ended, &refused(Cause::Blocked));
                deviate("every deletion is refused", ended, &refused(Cause::Refused));
                for is_done in [false, true] {
                    deviate("no deletion is answered", ended, &|course| {
                        course.sends(&wave, true, |world, pod| {
                            world.unclear.insert(pod);
                            if is_done {
                                world.delete(pod);
                            }
                            Some(Reply::Failed(failed(Cause::Unreachable("x".to_owned()))))
                        });
                        true
                    });
                }
                deviate("the pods are reported gone", ended, &|course| {
                    course.sends(&wave, true, |world, pod| {
                        world.unclear.insert(pod);
                        let error = failed(Cause::NotFound("x".to_owned()));
                        Some(Reply::ReportedGone { about_version: false, error })
                    });
                    true
                });
                let accept = |world: &mut World, pod: usize| {
                    world.delete(pod);
                    Some(Reply::Deleted { by: ServerTime::from_second(world.second() + 30), here: true })
                };
                deviate("the wave is cut short", ended, &|course| {
                    let mut sent = 0;
                    course.sends(&wave, false, |world, pod| {
                        sent += 1;
                        if sent == 1 { accept(world, pod) } else { None }
                    });
                    true
                });
                deviate("another process takes over", ended, &|course| {
                    course.sends(&wave, true, accept);
                    course.is_taken_over();
                    true
                });
                course.sends(&wave, true, accept);
            }
            Do::Follow(is_wanted) => {
                deviate("there are too many watches", ended, &|course| {
                    course.world.is_open = false;
                    course.world.events.clear();
                    course.hear(News::Following { is_open: false, is_new: false });
                    true
                });
                let is_new = is_wanted && !course.world.is_open;
                course.world.is_open = is_wanted;
                course.world.is_continuous |= is_new;
                course.world.arrive();
                course.hear(News::Following { is_open: is_wanted, is_new });
            }
            Do::Write(report) => {
                deviate("the write fails", ended, &fails);
                deviate("the write fails, and a pod crashes", ended, &fails_and_crashes);
                course.world.begun = report.begun;
                course.hear(News::Written);
                if matches!(course.world.begun.canary, Some(Canary { state: CanaryState::Failed { .. }, .. })) {
                    // Nothing more is asked of the restart: a failed canary is a decision of its own.
                    *ended += 1;
                    return;
                }
            }
            Do::Complete(over) => {
                course.check(course.world.is_over(), "what has arrived says that it is over");
                course.check(over.begun.deleted == course.world.deleted.len(), "the deleted pods are counted");
                deviate("the end cannot be written", ended, &fails);
                deviate("the end cannot be written, and a pod crashes", ended, &fails_and_crashes);
                *ended += 1;
                return;
            }
            Do::Wait(until) | Do::Pause(until) => {
                course.world.since_wait = 0;
                let again = course.machine.next(course.world.now());
                course.check(matches!(again, Do::Wait(_) | Do::Pause(_) | Do::TakeTurn { .. } | Do::List), "it rests");
                deviate("time passes", ended, &|course| {
                    course.world.wait_until(until);
                    course.step();
                    true
                });
                deviate("a pod crashes", ended, &|course| {
                    let crashes = course.world.crashes();
                    course.step();
                    crashes
                });
                deviate("the watch lags", ended, &|course| {
                    course.world.lags_until = course.world.lists;
                    let goes_on = course.world.goes_on();
                    course.world.wait_until(until);
                    course.step();
                    goes_on
                });
                deviate("the watch ends", ended, &|course| {
                    course.world.is_open = false;
                    course.world.events.clear();
                    course.hear(News::WatchLost);
                    course.step();
                    true
                });
                deviate("another process takes over", ended, &|course| {
                    course.is_taken_over();
                    true
                });
                if course.world.goes_on() {
                    course.world.ms += 20;
                    course.reads_watch();
                } else {
                    course.world.wait_until(until);
                }
                course.step();
            }
            Do::Decide => course.step(),
            Do::Fail(_) => course.backs_off(),
        }
    }
}

#[test]
fn every_course_with_few_deviations_keeps_the_rules_and_ends() {
    let most: usize = std::env::var("K").ok().map_or(2, |most| most.parse().unwrap());
    for more in ["", r#","maxUnavailable":1"#, r#","canary":{"pods":1,"bakeSeconds":5}"#] {
        let spec = format!(r#"{{"configMap":"a","podSelector":{{"app":"web"}}{more}}}"#);
        let policy = Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap();
        let mut ended = 0;
        explore(Course::begin(&policy), most, &mut ended);
        println!("{ended} courses with {more}");
    }
}
