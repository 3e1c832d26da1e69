//! What a restart asks for and says, step by step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{READ, canary_policy, listed, planned, pod, policy, restart, server};
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
