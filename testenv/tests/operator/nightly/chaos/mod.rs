//! Users edit, add, suspend, scale and remove, while everything that the operator needs is killed, stopped, slow or
//! wrong at some time. Then everything heals. The history of all objects and the audit log must show that no change is
//! lost, that no pod was deleted without a restart, that nothing of a Secret was written or logged, and that every status
//! is true.
//!
//! With an even seed two replicas elect a leader, and a process that is not the leader must change nothing.
//!
//! `make chaos SEED=7 SECONDS=600` runs longer. A seed fixes who does what in which order, not how the steps
//! interleave.

mod check;
mod leaders;
mod load;
mod nemesis;
mod requests;
mod secrets;
mod timeline;

use std::collections::BTreeMap;
use std::env;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde_json::Value;
use testenv::{ControlPlane, Past};
use tokio::time::Instant;

use self::check::{Verdict, check_accounts, check_deletions, check_end};
use self::leaders::check_leaders;
use self::load::Load;
use self::nemesis::Nemesis;
use self::requests::Deletion;
use self::secrets::{Search, search};
use self::timeline::Timeline;
use crate::test_namespace::TestNamespace;
use testenv::fixture::{file, install_crd};

/// The default of `SECONDS`, the least duration of a run.
const SECONDS: u64 = 20;
const SEED: u64 = 1;

#[tokio::test]
async fn no_change_is_lost_and_none_is_made_up() {
    let (seed, seconds) = (variable("SEED", SEED), variable("SECONDS", SECONDS));
    println!("make chaos SEED={seed} SECONDS={seconds}");
    let mut control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    let ns = TestNamespace::on(&control_plane).await;
    let kubectl = control_plane.kubectl().clone();
    kubectl.ok(&["apply", "-f", &file("deploy/surge/policy/policy.yml")]).await.unwrap();
    for role in ["deploy/secrets/role/role.yml", "deploy/surge/binding/binding.yml"].map(file) {
        kubectl.ok(&["apply", "-n", &ns.namespace, "-f", &role]).await.unwrap();
    }
    let replicas = if seed.is_multiple_of(2) { 2 } else { 1 };
    if replicas > 1 {
        let rights = file("deploy/high-availability/rbac.yml");
        kubectl.ok(&["apply", "-n", &ns.namespace, "-f", &rights]).await.unwrap();
    }
    let mut nemesis = Nemesis::new(&mut control_plane, &ns, seed, replicas).await.unwrap();
    let mut load = Load::new(&ns, kubectl, seed);
    load.set_up().await;

    let healed = play(&mut nemesis, &mut load, seconds).await;
    let past = nemesis.past().await.unwrap();
    let mut verdict = judge(&ns, &nemesis, &past);
    verdict.violations.extend(healed.err().map(|error| format!("not settled: {error:#}")));
    if verdict.violations.is_empty() {
        nemesis.begin_anew().await.unwrap();
        let last = tokio::select! {
            last = load.edit_all() => last,
            error = nemesis.tend() => Err(error),
        };
        verdict.violations.extend(last.err().map(|error| format!("final edits: {error:#}")));
    }
    let (terms, sent) = (nemesis.terms(), nemesis.sent());
    if nemesis.elects() {
        verdict.violations.extend(check_leaders(&terms, &sent));
    }
    let search = search_for_secrets(&ns, &nemesis, &past);
    verdict.violations.extend_from_slice(&search.violations);

    println!("edits: {}", counts(&load.done));
    println!("edits of Secrets: {}", counts(&load.of_secrets));
    println!("faults: {}", counts(&nemesis.done));
    let leaders = terms.iter().filter(|term| term.elected.is_some()).count();
    if nemesis.elects() {
        println!("replicas: {replicas}, processes: {}, leaders among them: {leaders}", terms.len());
    }
    let Verdict { restarts, deleted, handed_over, .. } = verdict;
    println!("restarts: {restarts}, pods deleted by the operator: {deleted}, handed over: {handed_over}");
    println!("{search}");
    println!("violations: {}", verdict.violations.len());
    if !verdict.violations.is_empty() {
        let lines = nemesis.log(|line| line["level"] != "DEBUG").unwrap();
        panic!("{}\n\nThe logs of all operators:\n{}", verdict.violations.join("\n"), lines.join("\n"));
    }
    assert!(restarts > 0 && handed_over > 0 && !search.is_empty(), "no restart, no surge, or nothing to search");
    assert!(!nemesis.elects() || leaders > 1, "the leader never changed");
}

/// Runs the users and the nemesis at once, then heals everything.
async fn play(nemesis: &mut Nemesis<'_>, load: &mut Load<'_>, seconds: u64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let trouble = async {
        while Instant::now() < end {
            nemesis.round().await?;
        }
        anyhow::Ok(())
    };
    let work = async {
        loop {
            load.step().await;
        }
    };
    tokio::select! {
        done = trouble => done?,
        () = work => {}
    }
    nemesis.control_plane.start_clients_anew()?;
    tokio::select! {
        healed = load.heal() => healed,
        error = nemesis.tend() => Err(error),
    }
}

/// Returns all violations, also those that a restore has undone.
fn judge(ns: &TestNamespace, nemesis: &Nemesis<'_>, past: &Past) -> Verdict {
    let timeline = Timeline::of(past.versions().iter(), &ns.namespace);
    let mut verdict = check_end(&timeline);
    let requests = ns.requests_on(nemesis.control_plane).unwrap();
    let deletions: Vec<Deletion> = requests.iter().filter_map(Deletion::of).collect();
    let mut check = |timeline: &Timeline, is_in_it: &dyn Fn(SystemTime) -> bool| {
        let its = deletions.iter().filter(|deletion| is_in_it(deletion.received));
        verdict.add(check_deletions(timeline, &its.map(|deletion| deletion.uid.clone()).collect()));
        verdict.add(check_accounts(timeline));
    };
    check(&timeline, &|at| !nemesis.undone.iter().any(|undone| undone.from <= at && at <= undone.to));
    for undone in &nemesis.undone {
        let past = Timeline::of(undone.past.versions().iter(), &ns.namespace);
        check(&past, &|at| undone.from <= at && at <= undone.to);
    }
    let panicked =
        |line: &Value| line.is_string() || line["message"].as_str().is_some_and(|text| text.contains("panicked"));
    verdict.violations.extend(nemesis.log(panicked).unwrap());
    verdict
}

/// Searches the status, Events, requests and logs of the operators, also what a restore has undone.
fn search_for_secrets(ns: &TestNamespace, nemesis: &Nemesis<'_>, past: &Past) -> Search {
    let pasts = nemesis.undone.iter().map(|undone| &undone.past).chain([past]);
    let mut lines = nemesis.log(|_| true).unwrap();
    lines.extend(nemesis.sent().into_iter().map(|sent| sent.request.target));
    search(pasts.flat_map(Past::versions), &ns.namespace, &lines)
}

fn counts<K: Debug>(counts: &BTreeMap<K, usize>) -> String {
    let all: Vec<String> = counts.iter().map(|(what, count)| format!("{what:?} {count}")).collect();
    all.join(", ")
}

fn variable(name: &str, default: u64) -> u64 {
    match env::var(format!("CHAOS_{name}")) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => default,
    }
}
