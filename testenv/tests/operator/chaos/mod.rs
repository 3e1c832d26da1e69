//! Users edit, add, suspend, scale and remove, while everything that the operator needs is killed, stopped, slow or wrong at one
//! time or another. Then everything heals, and the history of all objects and the audit log must show that no change is lost,
//! that no pod was deleted without one, that budgets were kept, that restarts began when they might, that nothing of a Secret was written or logged, and
//! that every ConfigMonitor tells the truth. A real Prometheus scrapes the operators all the time.
//!
//! With an even seed two replicas elect a leader, and a process that is not the leader must change nothing.
//!
//! `make chaos SEED=7 SECONDS=600` runs it for longer. A seed fixes who does what in which order, not how it interleaves.

mod asked;
mod check;
mod events;
mod leaders;
mod load;
mod nemesis;
mod past;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use testenv::counts::{counted, requests_agree};
use testenv::{ControlPlane, Past, Prometheus};
use tokio::time::Instant;

use self::asked::Asked;
use self::check::{Verdict, check_budgets, check_deletions, check_end, check_times};
use self::events::check_events;
use self::leaders::check_leaders;
use self::load::Load;
use self::nemesis::Nemesis;
use self::past::Story;
use self::secrets::{Search, search};
use crate::monitoring::rules;
use crate::world::World;
use testenv::fixture::{file, install_crd};

/// The least that a run lasts, unless told otherwise.
const SECONDS: u64 = 20;
const SEED: u64 = 1;
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn no_change_is_lost_and_none_is_made_up() {
    let (seed, seconds) = (variable("SEED", SEED), variable("SECONDS", SECONDS));
    println!("make chaos SEED={seed} SECONDS={seconds}");
    let mut control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    let world = World::on(&control_plane).await;
    let kubectl = control_plane.kubectl().clone();
    kubectl.ok(&["apply", "-n", &world.namespace, "-f", &file("deploy/secrets/rbac.yml")]).await.unwrap();
    let prometheus = Prometheus::start(&rules()).await.unwrap();
    let replicas = if seed.is_multiple_of(2) { 2 } else { 1 };
    if replicas > 1 {
        let rights = file("deploy/high-availability/rbac.yml");
        kubectl.ok(&["apply", "-n", &world.namespace, "-f", &rights]).await.unwrap();
    }
    let mut nemesis = Nemesis::new(&mut control_plane, &world, &prometheus, seed, replicas).await.unwrap();
    let mut load = Load::new(&world, kubectl, seed);
    load.set_up().await;

    let healed = play(&mut nemesis, &mut load, seconds).await;
    let past = nemesis.past().await.unwrap();
    let mut verdict = judge(&world, &nemesis, &past);
    verdict.violations.extend(healed.err().map(|error| format!("not at rest: {error:#}")));
    if verdict.violations.is_empty() {
        let (since, pod) = nemesis.begin_anew().await.unwrap();
        let last = tokio::select! {
            last = load.edit_all() => last,
            error = nemesis.tend() => Err(error),
        };
        verdict.violations.extend(last.err().map(|error| format!("after the end: {error:#}")));
        let agree = metrics_agree(&world, &nemesis, &prometheus, since, &pod).await;
        verdict.violations.extend(agree.err().map(|error| format!("metrics: {error:#}")));
    }
    let (terms, sent) = (nemesis.terms(), nemesis.sent());
    if nemesis.elects() {
        verdict.violations.extend(check_leaders(&terms, &sent));
    }
    let search = search_for_secrets(&world, &nemesis, &past);
    verdict.violations.extend_from_slice(&search.violations);

    println!("edits: {}", counts(&load.done));
    println!("of them of Secrets: {}", counts(&load.of_secrets));
    println!("troubles: {}", counts(&nemesis.done));
    let leaders = terms.iter().filter(|term| term.elected.is_some()).count();
    if nemesis.elects() {
        println!("replicas: {replicas}, processes: {}, of them leaders: {leaders}", terms.len());
    }
    println!("restarts: {}, pods deleted by the operator: {}", verdict.restarts, verdict.deleted);
    let over = verdict.violations.iter().filter(|violation| violation.starts_with("over budget")).count();
    println!("deletions under a budget: judged {}, violations {over}", verdict.judged);
    println!("exceptions, by their numbers: {}", counts(&verdict.exceptions));
    println!("{search}");
    println!("violations: {}", verdict.violations.len());
    if !verdict.violations.is_empty() {
        let lines = nemesis.log(|line| line["level"] != "DEBUG").unwrap();
        panic!("{}\n\nThe logs of all operators:\n{}", verdict.violations.join("\n"), lines.join("\n"));
    }
    let excused: usize = verdict.exceptions.values().sum();
    assert!(verdict.restarts > 0 && !search.is_empty(), "nothing happened");
    assert!(!nemesis.elects() || leaders > 1, "the leader was always the same");
    assert!(excused * 2 < verdict.deleted, "of {} deletions {excused} are exceptions", verdict.deleted);
}

/// Users and the nemesis at once, and then everything heals.
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

/// What Prometheus has scraped last of the operator that edits everything at the end is what the API server has written down since its start.
///
/// It is only this one: what an operator counts between the last scrape and the moment it is killed nobody has seen, and what the fault proxy
/// answers itself the API server does not know. The log of requests does not say which process sent one, so the others have ended before it starts.
async fn metrics_agree(
    world: &World,
    nemesis: &Nemesis<'_>,
    prometheus: &Prometheus,
    since: SystemTime,
    pod: &str,
) -> Result<()> {
    let of_pod = format!("{{pod=\"{pod}\"}}");
    let requests = || {
        let mut requests = world.requests_on(nemesis.control_plane)?;
        requests
            .retain(|entry| entry["requestReceivedTimestamp"].as_str().and_then(time).is_some_and(|at| at >= since));
        Ok(requests)
    };
    let audit = requests_agree(prometheus, &of_pod, requests).await?;
    let total = async |metric: &str| {
        let samples = prometheus.query(&format!("sum by (pod) ({metric}{of_pod})")).await?;
        anyhow::Ok(counted(&samples, &[]).into_values().sum::<u64>())
    };
    let of = |verb: &str, resource: &str| {
        let done = audit.iter().filter(|(key, _)| key[0] == verb && key[1] == resource && key[2].starts_with('2'));
        done.map(|(_, count)| count).sum::<u64>()
    };
    let (removed, deleted) =
        (total("configmonitor_pods_removed_total").await?, of("delete", "pods") + of("create", "pods/eviction"));
    ensure!(removed == deleted, "{removed} pods were removed, the audit log has {deleted}");
    // Times in a status are whole seconds. Everything was at rest for longer than that.
    let monitors = world.client.list(&world.collection("configmonitors")).await?;
    let history = monitors.iter().flat_map(|monitor| monitor["status"]["history"].as_array().into_iter().flatten());
    let recent =
        history.filter(|entry| entry["startedAt"].as_str().and_then(time).is_some_and(|at| at + SECOND > since));
    let (restarts, ended) = (total("configmonitor_restarts_total").await?, recent.count() as u64);
    ensure!(restarts == ended && ended > 0, "{restarts} restarts are over, the histories have {ended}");
    let alerts = prometheus.alerts().await?;
    ensure!(!alerts.is_empty() && alerts.iter().all(|alert| alert["health"] == "ok"), "{alerts:?}");
    println!("requests of the last operator: {}", audit.values().sum::<u64>());
    Ok(())
}

fn time(text: &str) -> Option<SystemTime> {
    Some(text.parse::<Timestamp>().ok()?.into())
}

/// What is wrong with all that has happened, also with what a restore has undone.
fn judge(world: &World, nemesis: &Nemesis<'_>, past: &Past) -> Verdict {
    let story = Story::of(past.versions().iter(), &world.namespace);
    let mut verdict = check_end(&story);
    let asked = Asked::of(world, nemesis);
    let mut check = |story: &Story, asked: &Asked| {
        verdict.add(check_deletions(story, asked));
        verdict.add(check_budgets(story, asked));
        verdict.add(check_times(story, asked));
    };
    let undone = |at| nemesis.undone.iter().any(|undone| undone.from <= at && at <= undone.to);
    check(&story, &asked.when(|at| !undone(at)));
    let pasts = nemesis.undone.iter().map(|undone| &undone.past).chain([past]);
    let events: BTreeSet<String> = pasts.flat_map(|past| check_events(past.versions(), &world.namespace)).collect();
    for undone in &nemesis.undone {
        let asked = asked.when(|at| undone.from <= at && at <= undone.to);
        check(&Story::of(undone.past.versions().iter(), &world.namespace), &asked);
    }
    let panicked =
        |line: &Value| line.is_string() || line["message"].as_str().is_some_and(|text| text.contains("panicked"));
    verdict.violations.extend(nemesis.log(panicked).unwrap());
    verdict.violations.extend(events);
    verdict
}

/// Searches what the operators wrote, also what a restore has undone, requested and logged.
fn search_for_secrets(world: &World, nemesis: &Nemesis<'_>, past: &Past) -> Search {
    let pasts = nemesis.undone.iter().map(|undone| &undone.past).chain([past]);
    let mut lines = nemesis.log(|_| true).unwrap();
    lines.extend(nemesis.sent().into_iter().map(|sent| sent.request.target));
    search(pasts.flat_map(Past::versions), &world.namespace, &lines)
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
