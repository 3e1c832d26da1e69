//! The executable specification: whatever happens in the world, these rules hold.
//!
//! A story (`story.rs`) tells what happens: edits, scaling, failures, crashes at any request. It is played (`stage.rs`) in a
//! simulated cluster (`world.rs`, `api.rs`) by a process that drives the pure core of the operator (`operator.rs`, `line.rs`). What
//! really happened is in a ledger (`ledger.rs`), and each rule below is about the ledger alone. Why a pod may keep other content
//! than there is stands in `exceptions.rs`.
//!
//! `PROPTEST_CASES=20000 cargo test --test world` plays more stories.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod budget;
mod examples;
mod exceptions;
mod ledger;
mod line;
mod operator;
mod restart;
mod stage;
mod story;
mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use self::exceptions::{Exception, excuse, hash, may_have_left};
use self::ledger::{A_SECOND, Deletion, End, Ledger, Owed, Write};
use self::stage::play;
use self::story::stories;

/// A rule: what breaks it, if anything does.
type Rule = fn(&Ledger) -> Result<(), String>;

/// All rules, in the order of the design.
const RULES: [(&str, Rule); 12] = [
    ("no change is lost", no_change_is_lost),
    ("the end is reached", the_end_is_reached),
    ("configHash never passes a pod that must be replaced", config_hash_never_passes_a_pod_that_must_be_replaced),
    ("nothing restarts without a change of content", nothing_restarts_without_a_change_of_content),
    ("going back spares the pods of before", going_back_spares_the_pods_of_before),
    ("only selected pods are deleted", only_selected_pods_are_deleted),
    ("nothing is deleted while it is held", nothing_is_deleted_while_it_is_held),
    ("no pod is deleted that is too new", no_pod_is_deleted_that_is_too_new),
    ("observedAt is when the content was read", observed_at_is_when_the_content_was_read),
    ("the intent comes first", the_intent_comes_first),
    ("once per change", once_per_change),
    ("never over the budget", never_over_the_budget),
];

/// Rule 1. In the end every selected pod runs with the content that is there, unless a numbered exception holds.
fn no_change_is_lost(ledger: &Ledger) -> Result<(), String> {
    let lost = stale_pods(ledger).into_iter().find(|(_, exception)| exception.is_none());
    lost.map_or(Ok(()), |(pod, _)| Err(format!("{:?} is still there in the end", ledger.pods[pod])))
}

/// Rule 1. When nothing fails any more, the restart comes to its end, and the status says so.
fn the_end_is_reached(ledger: &Ledger) -> Result<(), String> {
    let End { monitor, content, at_rest, .. } = end(ledger);
    let status = &monitor.status;
    let ready = status.conditions.iter().any(|condition| condition.r#type == "Ready" && condition.status == "True");
    let reached = *at_rest && ready && status.restart.is_none() && status.config_hash == Some(hash(*content));
    if reached { Ok(()) } else { Err(format!("with the content {content:?} the end is {status:?}")) }
}

/// Rule 1. `configHash` changes with a baseline, or when a restart is over; and then none of the pods that it was about is alive.
fn config_hash_never_passes_a_pod_that_must_be_replaced(ledger: &Ledger) -> Result<(), String> {
    for write in &ledger.writes {
        let Some(completed) = write.completes(ledger) else {
            let advances = write.after.config_hash.is_some() && write.before.config_hash != write.after.config_hash;
            if advances && !write.is_baseline() {
                return Err(format!("at {:?} it did without a restart that is over: {:?}", write.at, write.after));
            }
            continue;
        };
        let owed = |pod: &&usize| completed.owes(ledger, write, **pod) == Owed::Replacement;
        if let Some(pod) = write.alive.iter().find(owed) {
            return Err(format!("at {:?}, {:?} was alive", write.at, ledger.pods[*pod]));
        }
    }
    Ok(())
}

/// Rules 2 and 5. A pod is deleted only if the operator has read of a change not earlier than a second before the pod was created.
fn nothing_restarts_without_a_change_of_content(ledger: &Ledger) -> Result<(), String> {
    every_deletion(ledger, |deletion| {
        let created = ledger.pods[deletion.pod].created;
        let mut changes = ledger.changes().filter(|change| change.at < deletion.at);
        changes.any(|change| created <= change.at.second().plus(A_SECOND))
    })
}

/// Rule 2. Going back to the content that pods have been restarted for replaces only pods that were born since it had left. When
/// it left is not known if a process found that at its first look: then since nothing was to be done.
fn going_back_spares_the_pods_of_before(ledger: &Ledger) -> Result<(), String> {
    every_deletion(ledger, |deletion| {
        let status = &deletion.monitor.status;
        if !status.restart.as_ref().is_some_and(|restart| restart.revert) {
            return true;
        }
        let pending =
            |write: &&Write| write.at < deletion.at && write.before.restart.is_none() && write.after.restart.is_some();
        let began = ledger.writes.iter().rfind(pending).and_then(|write| write.read);
        let Some(left) = ledger.readings.iter().find(|reading| Some(reading.at) == began) else { return false };
        ledger.pods[deletion.pod].may_have_read(may_have_left(ledger, left).minus(A_SECOND))
    })
}

/// Rule 3. A pod that is deleted is one that was listed in this pass, the very pod, and not another one of this name, and that the
/// spec selects and does not exempt, as read since that list.
fn only_selected_pods_are_deleted(ledger: &Ledger) -> Result<(), String> {
    every_deletion(ledger, |deletion| {
        let (pod, spec) = (&ledger.pods[deletion.pod], &deletion.monitor.spec);
        deletion.looked && deletion.listed && pod.is_selected(spec) && pod.is_restartable(spec)
    })
}

/// Nothing is deleted under `suspend`, nor while the ConfigMap does not exist, as last read.
fn nothing_is_deleted_while_it_is_held(ledger: &Ledger) -> Result<(), String> {
    every_deletion(ledger, |deletion| deletion.monitor.spec.suspend != Some(true) && !deletion.missing)
}

/// Rule 3. No pod is deleted that was created more than a second after the content was first read.
fn no_pod_is_deleted_that_is_too_new(ledger: &Ledger) -> Result<(), String> {
    every_deletion(ledger, |deletion| {
        let restart = deletion.monitor.status.restart.as_ref();
        restart.is_some_and(|restart| ledger.pods[deletion.pod].created <= restart.observed_at.plus(A_SECOND))
    })
}

/// What the rules before this one rest on: `observedAt` is the time of an answer that carried that content.
fn observed_at_is_when_the_content_was_read(ledger: &Ledger) -> Result<(), String> {
    for write in &ledger.writes {
        let Some(restart) = &write.after.restart else { continue };
        let before = write.before.restart.as_ref();
        let superseded = before.and_then(|before| before.superseded.as_ref()).filter(|_| restart.begun.is_some());
        let goes_on = superseded.is_some_and(|before| before.observed_at == restart.observed_at);
        if goes_on || before.is_some_and(|before| before.observed_at == restart.observed_at) {
            continue;
        }
        let mut readings = ledger.readings.iter().filter(|reading| reading.life == write.life && reading.at < write.at);
        if !readings
            .any(|reading| reading.at.second() == restart.observed_at && hash(reading.content) == restart.config_hash)
        {
            return Err(format!("at {:?} was written {restart:?}", write.at));
        }
    }
    Ok(())
}

/// Rule 4. What is about to happen is in the status before the first pod is deleted.
fn the_intent_comes_first(ledger: &Ledger) -> Result<(), String> {
    every_deletion(ledger, |deletion| {
        deletion.monitor.status.restart.as_ref().is_some_and(|restart| restart.begun.is_some())
    })
}

/// Rule 4. A restart deletes no pod that it has brought itself, and all restarts together no more in the same place than there were
/// changes; be there one process or two. When the API server has forgotten the list, times of creation decide (exception 7).
fn once_per_change(ledger: &Ledger) -> Result<(), String> {
    let known = || ledger.deletions.iter().filter(|deletion| !deletion.by_times);
    let mut in_place: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for deletion in known() {
        *in_place.entry(ledger.pods[deletion.pod].place).or_default() += 1;
    }
    let changes = ledger.changes().count();
    if in_place.values().any(|deletions| *deletions > changes) {
        return Err(format!("with {changes} changes, so many pods were deleted in each place: {in_place:?}"));
    }
    every_deletion(ledger, |deletion| {
        let begun = deletion.monitor.status.restart.as_ref().and_then(|restart| restart.begun.as_ref());
        let listed = begun.and_then(|begun| ledger.list(&begun.pods_resource_version));
        deletion.by_times || listed.is_none_or(|listed| ledger.pods[deletion.pod].born < listed)
    })
}

/// With `maxUnavailable` a pod that is available is deleted only if after that no more than so many are missing of what the owners want.
fn never_over_the_budget(ledger: &Ledger) -> Result<(), String> {
    every_deletion(ledger, |deletion| deletion.over_budget == 0)
}

fn every_deletion(ledger: &Ledger, holds: impl Fn(&Deletion) -> bool) -> Result<(), String> {
    match ledger.deletions.iter().find(|deletion| !holds(deletion)) {
        Some(Deletion { at, pod, monitor, .. }) => {
            Err(format!("at {at:?}, {:?} was deleted for {:?}", ledger.pods[*pod], monitor.status.restart))
        }
        None => Ok(()),
    }
}

fn end(ledger: &Ledger) -> &End {
    ledger.end.as_ref().expect("every story has an end")
}

/// The pods that run with other content than there is in the end, although they are selected, and why.
fn stale_pods(ledger: &Ledger) -> Vec<(usize, Option<Exception>)> {
    let End { monitor, source, content, alive, .. } = end(ledger);
    let ours = |pod: &&usize| {
        ledger.pods[**pod].is_selected(&monitor.spec) && ledger.pods[**pod].is_restartable(&monitor.spec)
    };
    let is_stale = |pod: &&usize| ledger.first_content(*source, **pod).is_some_and(|(_, its)| its != *content);
    alive.iter().filter(ours).filter(is_stale).map(|pod| (*pod, excuse(ledger, *source, *content, *pod))).collect()
}

fn cases(usually: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(usually),
        failure_persistence: None,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn whatever_happens_the_rules_hold(story in stories()) {
        let ledger = play(&story);
        for (name, rule) in RULES {
            if let Err(broken) = rule(&ledger) {
                return Err(TestCaseError::fail(format!("{name}: {broken}")));
            }
        }
    }
}

/// The rules would be worth little if stories restarted nothing, or if every other pod were an exception.
#[test]
fn many_stories_restart_pods_and_few_need_an_exception() {
    let mut runner = TestRunner::deterministic();
    let mut exceptions: BTreeMap<Exception, usize> = BTreeMap::new();
    let (played, mut restarting, mut excused) = (cases(500).cases, 0, 0);
    for _ in 0..played {
        let ledger = play(&stories().new_tree(&mut runner).unwrap().current());
        let mut stale: Vec<Exception> =
            stale_pods(&ledger).into_iter().filter_map(|(_, exception)| exception).collect();
        restarting += u32::from(!ledger.deletions.is_empty());
        excused += u32::from(!stale.is_empty());
        stale.sort();
        stale.dedup();
        stale.into_iter().for_each(|exception| *exceptions.entry(exception).or_default() += 1);
    }
    println!("of {played} stories {restarting} restart pods, and {excused} need an exception: {exceptions:?}");
    assert!(restarting * 3 > played, "{restarting} of {played} stories restart pods");
    assert!(excused * 4 < played, "{excused} of {played} stories need an exception: {exceptions:?}");
}
