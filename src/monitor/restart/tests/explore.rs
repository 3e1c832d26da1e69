//! Every course of a restart of three pods that deviates from the smooth one at most `K` times: answers that fail, are
//! lost or refuse, pods that crash meanwhile, a watch that does not ring, another process that takes over, another restart
//! of the same pods that goes on in between, and, of two discovered sources, one that goes missing and comes back.
//!
//! `make explore` takes more deviations.

mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use self::world::{DESIRED, Eyes, OLD, Stage, World, number};
use super::{AT_ONCE, READ, changed, status};
use crate::kube::error::{Cause, Error};
use crate::kube::{Action, PODS, ServerTime};
use crate::monitor::pod::Pod;
use crate::monitor::referrers::{Concerns, Referrers, Snapshot};
use crate::monitor::restart::machine::{Do, Machine, News};
use crate::monitor::restart::sight::DeploymentState;
use crate::monitor::restart::sight::{OwnerQuery, OwnerState, OwnerStates};
use crate::monitor::restart::stale::{Lists, is_stale};
use crate::monitor::restart::targets::Targets;
use crate::monitor::restart::wave::{Attempt, Reply, Wave};
use crate::monitor::source::SourceName;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, CanaryState, SourceStatus, Status};

/// The most questions in a course. A smooth one takes fewer than 100.
const HORIZON: usize = 1000;
/// The next pass comes no earlier after one without news, in milliseconds.
const A_BACKOFF: u64 = 300;
/// How long a canary must stay available, in seconds.
const BAKE: i64 = 5;

/// A restart, with what its process knows and what the status has.
#[derive(Clone)]
struct Actor {
    machine: Machine<usize>,
    eyes: Eyes,
    begun: Begun,
    deleted: BTreeSet<usize>,
    handed_over: BTreeSet<usize>,
    /// Pods whose deletion or handing over may be sent again: its answer was none, or that they are gone.
    unclear: BTreeSet<usize>,
    listed_ms: u64,
    mood: Mood,
}

/// What the keeper of a restart does.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Working,
    /// It waits until this time, or until the watch rings.
    Waiting(Instant),
    /// The watch has rung.
    Waking(Instant),
    WaitingForTurn,
    Done,
}

/// Of two discovered sources, which pods refer to the second one. All but the second pod refer to the first one.
const OF_SECOND: [usize; 2] = [0, 1];

/// What the restarts are about.
struct About {
    policy: Policy,
    status: Status,
    referrers: Referrers,
    /// The second source, if there are two.
    second: Option<SourceName>,
}

/// One course: the restarts of the same pods, their world, and the deviations so far.
#[derive(Clone)]
struct Course<'a> {
    about: &'a About,
    world: World,
    actors: Vec<Actor>,
    /// The actor that is asked.
    active: usize,
    /// Whose turn it is, and how many turns have ended.
    turn: (Option<usize>, usize),
    deviations: Vec<String>,
    questions: usize,
    since_wait: usize,
    /// The second source does not exist.
    is_missing: bool,
}

fn failed(cause: Cause) -> Error {
    Action::new("delete", PODS).failed(cause)
}

impl About {
    fn one(policy: Policy) -> Self {
        Self { policy, status: status(), referrers: Referrers::default(), second: None }
    }

    fn two(policy: Policy) -> Self {
        let sources = ["a", "b"].map(|name| SourceStatus { discovered: true, ..changed(name) });
        let [first, second] = sources.each_ref().map(|source| source.name.clone());
        let status = Status { sources: sources.into(), ..status() };
        let scope = Concerns::of(&status);
        let mut referrers = Referrers::default();
        for pod in World::new().pods() {
            let number = number(&pod);
            let refers = [(&first, number != 1), (&second, OF_SECOND.contains(&number))];
            let from = refers.into_iter().filter(|(_, refers)| *refers);
            let from: Vec<String> =
                from.map(|(source, _)| format!(r#"{{"configMapRef":{{"name":"{}"}}}}"#, source.name)).collect();
            let spec = format!(r#"{{"containers":[{{"envFrom":[{}]}}]}}"#, from.join(","));
            referrers.see(&scope, &pod.uid, Some(&RawValue::from_string(spec).unwrap()));
        }
        Self { policy, status, referrers, second: Some(second) }
    }

    fn targets(&self) -> Targets {
        let (pods, selector, mut lists) = (World::new().pods(), self.policy.selector.to_query(), Lists::default());
        lists.record("7".into(), selector.clone(), Arc::new(pods.iter().map(|pod| pod.uid.clone()).collect()));
        let concerns = |known: &SourceStatus, pod: &Pod| !known.discovered || self.referrers.contain(&known.name, pod);
        let is_stale = |pod: &Pod| is_stale(&self.status, &lists, pod, |known| concerns(known, pod));
        Targets::new(&self.policy, (is_stale, false), selector, &pods, None)
    }
}

impl<'a> Course<'a> {
    fn begin(about: &'a About, restarts: usize) -> Self {
        let (at, policy) = (ServerTime::from_second(READ), &about.policy);
        let actor = |_| Actor {
            machine: Machine::begin(policy, about.targets(), &about.status, None, at),
            eyes: Eyes::default(),
            begun: Begun::new(1, at, policy.selector.to_query(), OLD),
            deleted: BTreeSet::new(),
            handed_over: BTreeSet::new(),
            unclear: BTreeSet::new(),
            listed_ms: 0,
            mood: Mood::Working,
        };
        let (actors, world) = ((0..restarts).map(actor).collect(), World::new());
        let (turn, deviations, is_missing) = ((None, 0), Vec::new(), false);
        let (active, questions, since_wait) = (0, 0, 0);
        let mut course = Self { about, world, actors, active, turn, deviations, questions, since_wait, is_missing };
        for active in (0..restarts).rev() {
            course.active = active;
            course.lists();
        }
        course
    }

    fn actor(&mut self) -> &mut Actor {
        &mut self.actors[self.active]
    }

    fn hear(&mut self, news: News<usize>) {
        let now = self.world.now();
        self.actor().machine.heard(news, now);
    }

    /// Asks the restart. If its keeper waits and it asks for more, a step begins.
    fn ask(&mut self) -> Do<usize> {
        let now = self.world.now();
        let Actor { machine, mood, .. } = self.actor();
        let asked = machine.next(now);
        if *mood == Mood::Working || matches!(asked, Do::Wait(_) | Do::Pause(_)) {
            return asked;
        }
        self.step();
        self.actor().machine.next(now)
    }

    /// Begins the next step of the keeper.
    fn step(&mut self) {
        let policy = &self.about.policy;
        let Actor { machine, begun, mood, .. } = self.actor();
        machine.resume(policy, begun);
        *mood = Mood::Working;
    }

    /// A step has failed, and the next one comes after a backoff.
    fn backs_off(&mut self) {
        self.end_turn();
        self.world.ms += 1000;
        self.step();
    }

    /// Another process takes the restart over.
    fn is_taken_over(&mut self) {
        self.end_turn();
        let About { policy, status, .. } = self.about;
        let targets = self.about.targets();
        let Actor { machine, eyes, begun, .. } = self.actor();
        eyes.is_listening = false;
        *machine = Machine::of(policy, targets, status, begun.clone(), None);
        self.step();
    }

    /// The second source goes missing or comes back: only another list shows what refers to it.
    fn second_is_missing(&mut self, is_missing: bool) {
        self.end_turn();
        self.is_missing = is_missing;
        self.step();
    }

    /// Returns whether the keeper has the turn. A list that is older than the end of a turn may not show its deletions.
    fn takes_turn(&mut self, is_listed: bool) -> bool {
        let is_free = self.turn.0.is_none_or(|holder| holder == self.active);
        let is_stale = is_listed && self.actor().eyes.turns_ended != self.turn.1;
        if is_free && !is_stale {
            self.turn.0 = Some(self.active);
        }
        is_free && !is_stale
    }

    fn end_turn(&mut self) {
        if self.turn.0 == Some(self.active) {
            self.turn = (None, self.turn.1 + 1);
        }
    }

    /// Tells a restart that listens how many pods have become ready.
    fn rings(&mut self) {
        let Actor { eyes: Eyes { ready, is_listening, .. }, .. } = *self.actor();
        if is_listening && ready > 0 {
            self.hear(News::Rang { ready, failed: Vec::new() });
        }
    }

    fn lists(&mut self) {
        let Self { world, actors, active, turn: (_, ended), .. } = self;
        let pods = actors[*active].eyes.list(world, *ended);
        actors[*active].listed_ms = world.ms;
        let at = self.world.now().server;
        let missing: BTreeSet<SourceName> = self.about.second.iter().filter(|_| self.is_missing).cloned().collect();
        let pods_of = |pod: &&Arc<Pod>| self.is_missing && OF_SECOND.contains(&number(pod));
        let unstartable: Snapshot = pods.iter().filter(pods_of).map(|pod| pod.uid.clone()).collect();
        let machine = &mut self.actor().machine;
        (machine.missing, machine.unstartable) = (missing, unstartable);
        self.hear(News::Listed { pods, at, took: Duration::from_millis(4) });
    }

    fn owners_read(&mut self, queries: &[OwnerQuery]) {
        let state = |query: &OwnerQuery| {
            let is_set = query.owner.kind == "ReplicaSet";
            let controller = is_set.then(|| Arc::clone(&self.world.deployment));
            let (desired, is_named_after_controller) = (DESIRED[usize::from(!is_set)], is_set);
            let state = OwnerState { desired, controller, is_named_after_controller, ..OwnerState::default() };
            (Arc::clone(&query.owner), state)
        };
        let states: OwnerStates = queries.iter().map(state).collect();
        self.hear(News::OwnersRead { states, took: Duration::from_millis(2) });
    }

    fn deployments_read(&mut self, is_rolling: bool) {
        let state = DeploymentState {
            desired: DESIRED[0],
            min_ready: Duration::ZERO,
            others: Vec::new(),
            may_surge: true,
            is_rolling,
        };
        let states = [(Arc::clone(&self.world.deployment), state)].into();
        self.hear(News::DeploymentsRead { states, took: Duration::from_millis(2) });
    }

    fn is_confirmed(&mut self) {
        let lists = self.actor().eyes.lists;
        self.hear(News::Confirmed(lists));
    }

    /// Lets the cluster go on. Returns false if there is nothing to do.
    fn goes_on(&mut self) -> bool {
        let event = self.world.go_on();
        let rings = usize::from(event == Some(true));
        self.actors.iter_mut().for_each(|actor| actor.eyes.ready += rings);
        event.is_some()
    }

    /// Answers the requests of a wave, each by what `answer` does.
    fn sends(&mut self, wave: &Wave, is_whole: bool, mut answer: impl FnMut(&mut Self, &Attempt) -> Option<Reply>) {
        for attempt in wave.attempts() {
            let Some(reply) = answer(self, attempt) else { continue };
            self.actor().machine.replied(&attempt.pod, reply);
        }
        self.end_turn();
        self.hear(News::WaveOver { is_whole });
    }

    /// The API server does what is asked, unless another restart of the process has deleted the pod.
    fn does(&mut self, attempt: &Attempt) -> Option<Reply> {
        let pod = number(&attempt.pod);
        if attempt.to.is_some() {
            if !self.world.is_at(pod, &attempt.pod.version) {
                let error = failed(Cause::Conflict("x".to_owned()));
                return Some(Reply::ReportedGone { about_version: true, error });
            }
            self.actor().handed_over.insert(pod);
            return Some(Reply::HandedOver(self.world.hand_over(pod)));
        }
        let by = ServerTime::from_second(self.world.second() + 30);
        let here = self.world.is_there(pod);
        if here {
            self.actor().deleted.insert(pod);
            self.world.change(pod, Stage::Terminating);
        }
        Some(Reply::Deleted { by, here })
    }

    /// The answer says too little: the request may be sent again.
    fn is_unclear(&mut self, attempt: &Attempt) {
        self.actor().unclear.insert(number(&attempt.pod));
    }

    fn listens(&mut self, is_listening: bool) {
        self.end_turn();
        self.actor().eyes.is_listening = is_listening;
        self.hear(News::Listening(is_listening));
    }

    fn can_go_on(&self, actor: &Actor) -> bool {
        match actor.mood {
            Mood::Working | Mood::Waking(_) => true,
            Mood::WaitingForTurn => self.turn.0.is_none(),
            Mood::Waiting(_) | Mood::Done => false,
        }
    }

    /// Lets another restart go on, if one can.
    fn switches(&mut self) -> bool {
        let others = (1..self.actors.len()).map(|nth| (self.active + nth) % self.actors.len());
        let Some(other) = others.into_iter().find(|other| self.can_go_on(&self.actors[*other])) else { return false };
        self.active = other;
        if self.actor().mood == Mood::WaitingForTurn {
            self.turn.0 = Some(other);
            self.step();
        }
        true
    }

    /// The keeper waits. If all do, the cluster goes on, or else time passes until one of them is due.
    fn rests(&mut self, mood: Mood) {
        self.end_turn();
        self.actor().mood = mood;
        if self.switches() {
            return;
        }
        if mood == Mood::WaitingForTurn && self.turn.0.is_none() {
            self.turn.0 = Some(self.active);
            return self.step();
        }
        if self.goes_on() {
            self.world.ms += 20;
            for active in 0..self.actors.len() {
                self.active = active;
                self.rings();
                if let Mood::Waiting(until) = self.actor().mood {
                    self.actor().mood = Mood::Waking(until);
                }
            }
            self.active = self.actors.iter().position(|actor| self.can_go_on(actor)).unwrap_or(0);
            return;
        }
        let due = self.actors.iter().enumerate().filter_map(|(nth, actor)| match actor.mood {
            Mood::Waiting(until) => Some((until, nth)),
            _ => None,
        });
        if let Some((until, nth)) = due.min() {
            self.active = nth;
            self.world.wait_until(until);
            self.step();
        }
    }

    fn check(&self, is_right: bool, what: &str) {
        assert!(is_right, "{what}, after {:?} ({} questions)", self.deviations, self.questions);
    }

    fn check_wave(&self, wave: &Wave, proof: usize) {
        let Actor { eyes, deleted, handed_over, unclear, begun, .. } = &self.actors[self.active];
        let is_surge = |attempt: &&Attempt| attempt.to.is_some();
        let (surge, removals): (Vec<_>, Vec<_>) = wave.attempts().partition(is_surge);
        let [surge, pods] = [surge, removals].map(|them| them.iter().map(|it| number(&it.pod)).collect::<Vec<_>>());
        self.check(proof == eyes.lists, "the proof is as old as the list");
        self.check(pods.iter().all(|pod| *pod < OLD), "only old pods are deleted");
        let is_held = |pod: &usize| self.is_missing && OF_SECOND.contains(pod);
        self.check(!pods.iter().chain(&surge).any(is_held), "no pod goes that would not start again");
        let is_again = |pod: &usize| deleted.contains(pod) && !unclear.contains(pod);
        self.check(!pods.iter().any(is_again), "no pod is deleted twice");
        self.check_surge(&surge, &pods, handed_over, unclear);
        // Crashes may be unknown, but not the deletions of another restart.
        let stays = |pod: &&usize| self.world.is_there(**pod) && !pods.contains(pod);
        let (ready, mut after) = (eyes.ready_pods(), [0; 2]);
        ready.iter().filter(stays).for_each(|pod| after[self.world.owner_of(*pod)] += 1);
        let lacks = [0, 1].map(|owner| DESIRED[owner].saturating_sub(after[owner]));
        // An owner may lack two by a crash that came right after the list. Then no more of its pods go.
        let is_kept = |pod: &usize| !self.world.is_there(*pod) || lacks[self.world.owner_of(*pod)] <= 1;
        if let Some(most) = self.about.policy.max_unavailable {
            self.check(pods.iter().all(is_kept), "the budget of each owner is kept");
            self.check(most.total.is_none() || lacks.iter().sum::<usize>() <= 1, "the budget of all owners is kept");
        }
        if let Some(canary) = &begun.canary {
            let most = if canary.state == CanaryState::Passed { OLD } else { canary.pods };
            self.check(eyes.going() + pods.len() <= most, "the canary goes first");
            self.check(!matches!(canary.state, CanaryState::Failed { .. }), "nothing goes after a failed canary");
        }
    }

    fn check_surge(&self, surge: &[usize], pods: &[usize], before: &BTreeSet<usize>, unclear: &BTreeSet<usize>) {
        let (eyes, is_its) = (&self.actors[self.active].eyes, |pod: &usize| self.world.owner_of(*pod) == 0);
        let handed_over = eyes.handed_over();
        self.check(
            surge.iter().all(|pod| *pod < OLD && is_its(pod)),
            "only old pods of the Deployment are handed over",
        );
        let is_again = |pod: &usize| handed_over.contains(pod) || before.contains(pod) && !unclear.contains(pod);
        self.check(!surge.iter().any(is_again), "no pod is handed over twice");
        self.check(surge.is_empty() || handed_over.len() + surge.len() <= 1, "one is handed over at a time");
        self.check(!pods.iter().any(|pod| handed_over.contains(pod)), "what is handed over is not deleted");
        if self.about.policy.max_surge.is_some() {
            let ready = eyes.ready_pods();
            self.check(!pods.iter().any(|pod| is_its(pod) && ready.contains(pod)), "a ready pod is handed over");
        }
    }

    fn check_canary(&self, next: &Begun) {
        let Actor { eyes, begun, .. } = &self.actors[self.active];
        let has_passed = |begun: &Begun| begun.canary.as_ref().is_some_and(|its| its.state == CanaryState::Passed);
        let is_right = has_passed(begun) || !has_passed(next) || eyes.have_baked(BAKE, self.world.second());
        self.check(is_right, "a canary passes once it has baked");
    }

    /// Returns whether the whole course is over, now that the active restart is.
    fn is_done(&mut self) -> bool {
        self.actor().mood = Mood::Done;
        self.end_turn();
        if self.actors.iter().all(|actor| actor.mood == Mood::Done) {
            return true;
        }
        if !self.switches() {
            self.rests(Mood::Done);
        }
        false
    }
}

/// What a course may deviate by.
struct Explorer {
    most: usize,
    takes_over: bool,
    ended: usize,
}

impl Explorer {
    fn explore(&mut self, mut course: Course<'_>) {
        loop {
            course.questions += 1;
            course.since_wait += 1;
            course.world.ms += 2;
            course.check(course.questions < HORIZON && course.since_wait < 200, "the restart ends");
            self.deviate(&course, "the other one goes on", Course::switches);
            let mut before = course.clone();
            let asked = course.ask();
            drop(before.ask());
            if self.answer(&mut course, &before, asked) {
                self.ended += 1;
                return;
            }
        }
    }

    /// Explores the course in which this happens instead.
    fn deviate<'a>(&mut self, before: &Course<'a>, what: &str, happens: impl FnOnce(&mut Course<'a>) -> bool) {
        if before.deviations.len() < self.most {
            let mut other = before.clone();
            if happens(&mut other) {
                other.deviations.push(format!("{}: {what}", other.questions));
                self.explore(other);
            }
        }
    }

    fn fails(&mut self, before: &Course<'_>, what: &str) {
        self.deviate(before, what, |course| {
            course.backs_off();
            true
        });
    }

    fn fails_and_crashes(&mut self, before: &Course<'_>, what: &str) {
        self.deviate(before, &format!("{what}, and a pod crashes"), |course| {
            let crashes = course.world.crash();
            course.backs_off();
            crashes
        });
    }

    fn taken_over(&mut self, before: &Course<'_>, first: impl FnOnce(&mut Course<'_>)) {
        if self.takes_over {
            self.deviate(before, "another process takes over", |course| {
                first(course);
                course.is_taken_over();
                true
            });
        }
    }

    /// Gives the smooth answer, after all others. Returns whether the course has ended.
    fn answer(&mut self, course: &mut Course<'_>, before: &Course<'_>, asked: Do<usize>) -> bool {
        match asked {
            Do::TakeTurn { owners, is_listed } => match course.takes_turn(is_listed) {
                true => course.hear(News::Turn(owners)),
                false => course.rests(Mood::WaitingForTurn),
            },
            Do::List => {
                self.fails(before, "the list fails");
                self.deviate(before, "a pod crashes before the list", |course| {
                    let crashes = course.world.crash();
                    course.lists();
                    crashes
                });
                course.lists();
            }
            Do::ReadOwners(queries) => {
                self.fails(before, "the owners cannot be read");
                self.deviate(before, "a pod crashes while the owners are read", |course| {
                    let crashes = course.world.crash();
                    course.owners_read(&queries);
                    crashes
                });
                course.owners_read(&queries);
            }
            Do::ReadDeployments(_) => {
                self.fails(before, "the Deployment cannot be read");
                self.deviate(before, "a rollout is under way", |course| {
                    course.deployments_read(true);
                    true
                });
                course.deployments_read(false);
            }
            Do::Intend(begun) => {
                course.actor().begun = begun;
                course.is_confirmed();
            }
            Do::Confirm => {
                self.fails(before, "the ConfigMonitor has changed");
                course.is_confirmed();
            }
            Do::Remove(wave, proof) => {
                course.check_wave(&wave, proof);
                self.answer_wave(before, &wave);
                course.sends(&wave, true, Course::does);
            }
            Do::Listen(is_wanted) => {
                self.deviate(before, "there are too many watches", |course| {
                    course.listens(false);
                    true
                });
                course.listens(is_wanted);
            }
            Do::Write(report) => {
                self.fails(before, "the write fails");
                self.fails_and_crashes(before, "the write fails");
                course.end_turn();
                course.check_canary(&report.begun);
                course.actor().begun = report.begun;
                course.hear(News::Written);
                // Nothing more is asked of a restart whose canary has failed, which is a decision of its own.
                let canary = course.actor().begun.canary.as_ref();
                return canary.is_some_and(|canary| matches!(canary.state, CanaryState::Failed { .. }));
            }
            Do::Complete(over) => {
                course.check(course.actors[course.active].eyes.is_over(), "the list says that it is over");
                let Actor { deleted, handed_over, .. } = course.actor();
                let is_counted = over.begun.deleted == deleted.len() + handed_over.len();
                course.check(course.actors.len() > 1 || is_counted, "the deleted pods are counted");
                self.fails(before, "the end cannot be written");
                self.fails_and_crashes(before, "the end cannot be written");
                return course.is_done();
            }
            Do::Wait(_) | Do::Pause(_) => self.wait(course, before),
            Do::Decide => {
                course.end_turn();
                course.step();
            }
        }
        false
    }

    fn answer_wave(&mut self, before: &Course<'_>, wave: &Wave) {
        for cause in [Cause::Blocked as fn(String) -> Cause, Cause::Refused, Cause::Forbidden] {
            self.deviate(before, "every request is refused", |course| {
                course.sends(wave, true, |_, _| Some(Reply::Failed(failed(cause("x".to_owned())))));
                true
            });
        }
        for is_done in [false, true] {
            self.deviate(before, "no request is answered", |course| {
                course.sends(wave, true, |course, attempt| {
                    course.is_unclear(attempt);
                    if is_done {
                        drop(course.does(attempt));
                    }
                    Some(Reply::Failed(failed(Cause::Unreachable("x".to_owned()))))
                });
                true
            });
        }
        self.deviate(before, "the pods are reported gone", |course| {
            course.sends(wave, true, |course, attempt| {
                course.is_unclear(attempt);
                let error = failed(Cause::NotFound("x".to_owned()));
                Some(Reply::ReportedGone { about_version: false, error })
            });
            true
        });
        self.deviate(before, "the wave is cut short", |course| {
            let mut sent = 0;
            course.sends(wave, false, |course, attempt| {
                sent += 1;
                (sent == 1).then(|| course.does(attempt)).flatten()
            });
            true
        });
        self.taken_over(before, |course| course.sends(wave, true, Course::does));
    }

    fn wait(&mut self, course: &mut Course<'_>, before: &Course<'_>) {
        course.since_wait = 0;
        course.rings();
        let now = course.world.now();
        let (Do::Wait(until) | Do::Pause(until)) = course.actor().machine.next(now) else { return course.step() };
        let again = course.clone().ask();
        course.check(matches!(again, Do::Wait(_) | Do::Pause(_) | Do::TakeTurn { .. } | Do::List), "it rests");
        let Actor { eyes, listed_ms, .. } = &course.actors[course.active];
        let is_later = until > course.world.now().timer || course.world.ms > *listed_ms + A_BACKOFF;
        course.check(is_later || eyes.ready > 0, "another pass is worth making only by a ring or at its time");
        self.deviate(before, "time passes", |course| {
            course.end_turn();
            course.world.wait_until(until);
            course.step();
            true
        });
        self.deviate(before, "a pod crashes", |course| {
            course.end_turn();
            let crashes = course.world.crash();
            course.step();
            crashes
        });
        self.deviate(before, "the watch does not ring", |course| {
            course.end_turn();
            let goes_on = course.goes_on();
            course.world.wait_until(until);
            course.step();
            goes_on
        });
        self.deviate(before, "the second source goes missing", |course| {
            let is_new = course.about.second.is_some() && !course.is_missing;
            course.second_is_missing(is_new);
            is_new
        });
        self.taken_over(before, |_| {});
        match course.is_missing {
            true => course.second_is_missing(false),
            false => course.rests(Mood::Waiting(until)),
        }
    }
}

/// `K` is the most deviations; `ALONE` without take-overs, `ENTRIES` with two sources, and `PAIRS` with two restarts of the
/// same pods.
#[test]
fn every_course_with_few_deviations_keeps_the_rules_and_ends() {
    let most = |name: &str| std::env::var(name).map_or(2, |most| most.parse().unwrap());
    let rolling = r#","maxUnavailable":1"#;
    let canary = &format!(r#"{AT_ONCE},"canary":{{"pods":1,"bakeSeconds":{BAKE}}}"#);
    let explore_about = |about: fn(Policy) -> About, fields: &str, restarts: usize, most: usize, takes_over: bool| {
        let spec = format!(r#"{{"configMap":"a","podSelector":{{"app":"web"}}{fields}}}"#);
        let about = about(Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap());
        let mut explorer = Explorer { most, takes_over, ended: 0 };
        explorer.explore(Course::begin(&about, restarts));
        let sources = about.status.sources.len();
        println!("{} courses of {restarts} about {sources}, {fields:?}, K={most}, {takes_over}", explorer.ended);
    };
    let explore =
        |fields: &str, restarts, most, takes_over| explore_about(About::one, fields, restarts, most, takes_over);
    let one_of_all = r#","maxUnavailable":1,"maxUnavailableTotal":1"#;
    let surge = r#","maxSurge":1"#;
    for fields in [AT_ONCE, rolling, one_of_all, canary, surge] {
        explore(fields, 1, most("K"), true);
        if most("ALONE") > 2 {
            explore(fields, 1, most("ALONE"), false);
        }
    }
    for fields in [AT_ONCE, rolling, canary, surge] {
        explore_about(About::two, fields, 1, most("ENTRIES"), false);
    }
    explore(rolling, 2, most("PAIRS"), false);
    explore(surge, 2, most("PAIRS"), false);
}
