//! What a restart asks for and says, step by step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{READ, canary_policy, created, listed, planned, pod, policy, restart, server, state, web};
use serde_json::value::RawValue;

use crate::kube::error::Cause;
use crate::kube::objects::Pod;
use crate::kube::{Action, PODS};
use crate::monitor::restart::Now;
use crate::monitor::restart::machine::{Do, Machine, News};
use crate::monitor::restart::wave::Reply;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Entry, Outcome, Restart, Why};

fn pods() -> Vec<Pod> {
    vec![pod("a"), pod("b")]
}

/// Returns a restart of two pods that begins in second 1000.
fn begin(policy: &Policy, why: Why) -> Machine<()> {
    let pods = pods();
    let plan = planned(policy, &restart(), &listed(&pods), &pods, None);
    Machine::begin(policy, plan, &restart(), why, None, server(READ))
}

fn recall(begun: &Begun, is_own: bool) -> Machine<()> {
    let (pods, policy) = (pods(), policy("Skip"));
    let plan = planned(&policy, &restart(), &listed(&pods), &pods, None);
    Machine::recall(&policy, plan, &restart(), begun, None, is_own)
}

fn begun() -> Begun {
    Begun::new(server(READ), "app=web".to_owned(), 2)
}

fn at(second: i64) -> Now {
    let timer = Instant::now() + Duration::from_secs(u64::try_from(second - READ).unwrap());
    Now { timer, server: server(second) }
}

fn lists(machine: &mut Machine<()>, now: Now) {
    let pods = pods().into_iter().map(Arc::new).collect();
    machine.heard(News::Listed { pods, at: now.server, took: Duration::ZERO }, now);
}

#[test]
fn a_restart_has_a_canary_unless_it_is_a_revert() {
    for (why, canary) in [(Why::Changed, Some(2)), (Why::Requested, Some(2)), (Why::Reverted, None)] {
        let mut machine = begin(&canary_policy("Skip"), why);
        lists(&mut machine, at(READ));
        let Do::Intend(begun) = machine.next(at(READ)) else { panic!("nothing is intended") };
        assert_eq!((begun.canary.map(|canary| canary.pods), begun.pods), (canary, 2));
        assert!(!machine.is_intended());
        machine.heard(News::Confirmed(()), at(READ));
        assert!(machine.is_intended());
    }
}

#[test]
fn the_first_deletion_is_told_once_by_the_process_that_began_the_restart() {
    let one = Begun { deleted: 1, ..begun() };
    let mut told = [recall(&begun(), true), recall(&one, true), recall(&begun(), false)];
    assert_eq!(told.each_mut().map(|machine| machine.first_deletion().is_some()), [true, false, false]);
    assert_eq!(told[0].first_deletion(), None);
}

#[test]
fn a_restart_is_known_by_its_start_its_content_and_whether_it_is_a_revert() {
    let machine = recall(&begun(), true);
    assert!(machine.is_of(&restart(), &begun()));
    assert!(!machine.is_of(&restart(), &Begun { started_at: server(READ + 1), ..begun() }));
    assert!(!machine.is_of(&Restart { revert: true, ..restart() }, &begun()));
    let entry = |result, second| Entry {
        sources: Vec::new(),
        requested: false,
        started_at: server(second),
        completed_at: server(READ + 9),
        pods: 2,
        replaced: 0,
        result,
    };
    assert!(machine.is_superseded_in(&entry(Outcome::Superseded, READ)));
    assert!(!machine.is_superseded_in(&entry(Outcome::Superseded, READ + 1)));
    assert!(!machine.is_superseded_in(&entry(Outcome::Completed, READ)));
}

#[test]
fn another_step_says_whether_the_spec_was_edited() {
    let mut machine = recall(&begun(), true);
    assert!(!machine.resume(&policy("Skip"), &begun()));
    assert!(machine.resume(&policy("Delete"), &begun()));
    assert!(!machine.resume(&policy("Delete"), &begun()));
}

#[test]
fn without_a_budget_owners_that_may_not_be_read_are_guessed() {
    let failed = |cause: fn(String) -> Cause| Action::new("get", PODS).failed(cause("x".to_owned()));
    let tolerates = |policy: &Policy, cause| begin(policy, Why::Changed).tolerates(&failed(cause));
    let (whole, rolling) = (policy("Skip"), super::one_at_a_time());
    assert_eq!((tolerates(&whole, Cause::Forbidden), tolerates(&whole, Cause::Unreachable)), (true, false));
    assert_eq!((tolerates(&rolling, Cause::Forbidden), tolerates(&rolling, Cause::Unreachable)), (false, false));
}

/// A restart that makes no progress holds no watch.
#[test]
fn a_restart_is_stalled_once_its_deadline_has_passed_and_closes_its_watch() {
    let policy = policy("Skip");
    let deadline = i64::try_from(policy.progress_deadline.as_secs()).unwrap();
    for (late, is_followed) in [(deadline - 1, true), (deadline, false)] {
        let mut machine = begin(&policy, Why::Changed);
        lists(&mut machine, at(READ));
        machine.heard(News::Confirmed(()), at(READ));
        let Do::Remove(wave, ()) = machine.next(at(READ)) else { panic!("nothing is removed") };
        for pod in wave.rows.iter().flatten().map(|attempt| &attempt.pod) {
            machine.replied(pod, Reply::Failed(Action::new("delete", PODS).failed(Cause::Refused("x".to_owned()))));
        }
        machine.heard(News::WaveOver { is_whole: true }, at(READ + late));
        assert!(machine.refusal().is_some_and(|refusal| !refusal.is_expected));
        assert!(matches!(machine.next(at(READ + late)), Do::Follow(is_wanted) if is_wanted == is_followed));
    }
}

/// One pod at a time.
const ROLLING: &str = r#","maxUnavailable":1"#;

/// A restart, asked at one moment after the other.
struct Asked {
    machine: Machine<()>,
    base: Instant,
    ms: u64,
}

impl Asked {
    /// Begins a restart of two pods, whose list took this long.
    fn begin(more: &str, took: Duration) -> Self {
        let spec = format!(r#"{{"configMap":"a","podSelector":{{"app":"web"}}{more}}}"#);
        let policy = Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap();
        let mut asked = Self { machine: begin(&policy, Why::Changed), base: Instant::now(), ms: 0 };
        asked.hear(News::Listed { pods: pods().into_iter().map(Arc::new).collect(), at: server(READ), took });
        asked
    }

    fn now(&self) -> Now {
        let second = READ + i64::try_from(self.ms / 1000).unwrap();
        Now { timer: self.base + Duration::from_millis(self.ms), server: server(second) }
    }

    fn hear(&mut self, news: News<()>) {
        let now = self.now();
        self.machine.heard(news, now);
    }

    /// Answers until the restart waits, and returns for how many milliseconds. Deletions get this reply.
    fn waits(&mut self, reply: impl Fn() -> Reply) -> u64 {
        loop {
            let now = self.now();
            let news = match self.machine.next(now) {
                Do::ReadWatch => News::WatchRead,
                Do::TakeTurn { owners, .. } => News::Turn(owners),
                Do::Intend(_) | Do::Confirm => News::Confirmed(()),
                Do::ReadOwners(_) => News::OwnersRead { states: [(web(), state(2))].into(), took: Duration::ZERO },
                Do::Remove(wave, ()) => {
                    for pod in wave.rows.iter().flatten().map(|attempt| &attempt.pod) {
                        self.machine.replied(pod, reply());
                    }
                    News::WaveOver { is_whole: true }
                }
                Do::Follow(is_open) => News::Following { is_open, is_new: true },
                Do::Write(_) => News::Written,
                Do::Wait(until) => return millis(until.saturating_duration_since(now.timer)),
                _ => panic!("it does not wait"),
            };
            self.hear(news);
        }
    }

    /// Lets the watch show these pods, this long after the start.
    fn shows(&mut self, ms: u64, gone: &[&str], pods: Vec<Pod>) -> u64 {
        self.ms = ms;
        gone.iter().for_each(|name| self.hear(News::Gone((*name).into())));
        pods.into_iter().for_each(|pod| self.hear(News::Applied(Arc::new(pod))));
        self.waits(|| panic!("nothing is deleted"))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn accepted() -> Reply {
    Reply::Deleted { by: server(READ + 30), here: true }
}

fn blocked() -> Reply {
    Reply::Failed(Action::new("evict", PODS).failed(Cause::Blocked("x".to_owned())))
}

/// A new pod that is ready since this second after the reading.
fn new(name: &str, ready: Option<i64>) -> Pod {
    Pod { ready_since: ready.map(|second| server(READ + second)), ..created(name, READ + 1) }
}

#[test]
fn the_watch_shows_when_another_pass_is_worth_making() {
    let mut asked = Asked::begin(ROLLING, Duration::ZERO);
    assert_eq!(asked.waits(accepted), 10_000);
    assert_eq!(asked.shows(1000, &["a"], Vec::new()), 9000);
    assert_eq!(asked.shows(2000, &[], vec![new("c", None)]), 8000);
    assert_eq!(asked.shows(3000, &[], vec![new("c", Some(3))]), 0);
    asked.ms = 3100;
    assert_eq!(asked.waits(|| panic!("nothing is deleted")), 0, "a step follows");
}

#[test]
fn a_pass_comes_no_earlier_than_the_pause_after_a_list() {
    let mut asked = Asked::begin(ROLLING, Duration::from_secs(1));
    assert_eq!(asked.waits(accepted), 10_000);
    assert_eq!(asked.shows(3000, &["a"], vec![new("c", Some(3))]), 5700);
    let mut asked = Asked::begin(ROLLING, Duration::from_secs(4));
    assert_eq!(asked.waits(accepted), 35_700);
}

/// The disruption controller takes a moment to count a pod that has become available.
#[test]
fn after_a_refused_eviction_another_pass_is_worth_making_once_more_pods_are_ready() {
    let mut asked = Asked::begin(r#","deletionPolicy":"Evict""#, Duration::ZERO);
    let until = asked.waits(blocked);
    assert!((1000..10_000).contains(&until), "{until}");
    assert_eq!(asked.shows(100, &[], vec![new("c", None)]), until - 100);
    assert_eq!(asked.shows(200, &[], vec![new("c", Some(0))]), 500);
}

#[test]
fn a_restart_wakes_when_a_new_pod_will_have_been_ready_for_long_enough() {
    let mut asked = Asked::begin(r#","maxUnavailable":1,"minReadySeconds":3"#, Duration::ZERO);
    assert_eq!(asked.waits(accepted), 10_000);
    assert_eq!(asked.shows(1000, &["a"], vec![new("c", None)]), 9000);
    // The event may be a second late, and times are whole seconds.
    assert_eq!(asked.shows(2000, &[], vec![new("c", Some(2))]), 4000);
}

#[test]
fn a_watch_that_is_lost_while_the_restart_waits_ends_the_step() {
    let mut asked = Asked::begin(ROLLING, Duration::ZERO);
    assert_eq!(asked.waits(accepted), 10_000);
    asked.hear(News::WatchLost);
    assert!(matches!(asked.machine.next(asked.now()), Do::Decide));
}

fn failed(cause: fn(String) -> Cause) -> impl Fn() -> Reply {
    move || Reply::Failed(Action::new("delete", PODS).failed(cause("x".to_owned())))
}

/// The pods that were not sent yet are no news: each would be refused in its turn, one list after the other.
#[test]
fn a_restart_whose_deletions_are_refused_waits_for_news_or_its_time() {
    for more in [ROLLING, r#","canary":{"pods":1,"bakeSeconds":0}"#] {
        for cause in [Cause::Forbidden as fn(String) -> Cause, Cause::Invalid, Cause::Refused] {
            let wait = Asked::begin(more, Duration::ZERO).waits(failed(cause));
            assert!(wait >= 400, "{more}: {wait} ms");
        }
    }
}

/// The next pass waits for the pause after a long list.
#[test]
fn a_late_write_waits_for_no_pause() {
    let mut asked = Asked::begin(r#","canary":{"pods":"100%","bakeSeconds":0}"#, Duration::from_secs(4));
    assert_eq!(asked.waits(accepted), 1000);
    assert_eq!(asked.shows(500, &["a", "b"], vec![new("c", Some(0)), new("d", Some(0))]), 500);
}
