//! Restarts of one pod at a time, and with surge: the time from a replacement that is ready to the next deletion.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use testenv::fixture::{Fixture, NAME, file, start_proxy};
use tokio::time::sleep;

use crate::audit::Request;
use crate::ground::{
    self, all_ready, all_up_to_date, config_map, control_plane, create_all, edit_all, rolling_monitor, start_operator,
};
use crate::requests;
use crate::table::{self, Sample};

/// The user that makes pods ready.
const KWOK: &str = "kwok";

/// A Deployment whose pods are restarted one at a time, or handed over.
struct Case {
    title: &'static str,
    pods: usize,
    deletion_policy: &'static str,
    /// `maxSurge` in percent. None: `maxUnavailable` is 1.
    surge: Option<usize>,
    repetitions: usize,
}

const CASES: [Case; 6] = [
    Case { title: "20 pods, Delete", pods: 20, deletion_policy: "Delete", surge: None, repetitions: 5 },
    Case { title: "20 pods, Evict", pods: 20, deletion_policy: "Evict", surge: None, repetitions: 5 },
    Case { title: "50 pods, Delete", pods: 50, deletion_policy: "Delete", surge: None, repetitions: 3 },
    Case { title: "20 pods, Delete, surge of 1", pods: 20, deletion_policy: "Delete", surge: Some(5), repetitions: 3 },
    Case { title: "20 pods, Evict, surge of 1", pods: 20, deletion_policy: "Evict", surge: Some(5), repetitions: 3 },
    Case { title: "20 pods, Delete, surge of 5", pods: 20, deletion_policy: "Delete", surge: Some(25), repetitions: 3 },
];

#[derive(Default)]
struct Times {
    /// From a replacement that is ready to the next deletion, in ms. With surge: to that of a pod handed over.
    gaps: Sample,
    /// From the edit to the last replacement that is ready, in s.
    whole: Sample,
    /// The sum of the times from each deletion, or handing over, to its replacement that is ready, in s.
    kwok: Sample,
}

pub(crate) async fn run() -> Result<()> {
    table::title("One pod at a time: the median, and where half of them lie");
    table::head(&["", "ready → next, ms", "whole restart, s", "kwok alone, s"]);
    let mut restarts = Vec::new();
    for case in &CASES {
        restarts.push((case.title, measure(case).await?));
    }
    requests::table("Requests of a restart, one pod at a time, by the audit log", &restarts);
    Ok(())
}

/// Returns the requests of each restart.
async fn measure(case: &Case) -> Result<Vec<Vec<Request>>> {
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    if case.surge.is_some() {
        for (name, namespace) in [("policy.yml", "default"), ("role/role.yml", &fixture.namespace)] {
            let name = file(&format!("deploy/surge/{name}"));
            control_plane.kubectl().ok(&["apply", "-n", namespace, "-f", &name]).await?;
        }
    }
    case.set_up(&fixture).await?;
    let args = case.surge.map_or(&[][..], |_| &["--surge"]);
    let _operator = start_operator(&proxy.url(), &fixture, args)?;
    all_up_to_date(&fixture).await?;
    let mut audit = ground::audit(&control_plane)?;
    let (mut times, mut restarts) = (Times::default(), Vec::new());
    // The first repetition warms up.
    for repetition in 0..=case.repetitions {
        let content = format!("content {}", repetition + 1);
        let mut requests = edit_all(&mut audit, &fixture, &[NAME.to_owned()], &content, case.pods).await?;
        all_ready(&fixture, case.pods).await?;
        all_up_to_date(&fixture).await?;
        sleep(Duration::from_millis(500)).await;
        requests.extend(audit.news(&fixture.namespace)?);
        if repetition > 0 {
            times.add(&requests, case)?;
            restarts.push(requests);
        }
    }
    let [gaps, whole, kwok] = [times.gaps, times.whole, times.kwok].map(|sample| sample.to_string());
    table::row(&[case.title.to_owned(), gaps, whole, kwok]);
    Ok(restarts)
}

impl Case {
    async fn set_up(&self, fixture: &Fixture) -> Result<()> {
        fixture.create("configmaps", config_map(NAME, "0")).await;
        let labels = json!({"app": NAME});
        if self.deletion_policy == "Evict" {
            let most = usize::from(self.surge.is_none());
            let spec = json!({"maxUnavailable": most, "selector": {"matchLabels": labels}});
            fixture.create("poddisruptionbudgets", json!({"metadata": {"name": NAME}, "spec": spec})).await;
        }
        fixture.create_deployment(NAME, self.pods, &labels).await;
        let mut monitor = rolling_monitor(NAME, NAME, NAME);
        monitor["spec"]["deletionPolicy"] = self.deletion_policy.into();
        if let Some(percent) = self.surge {
            monitor["spec"]["maxUnavailable"].take();
            monitor["spec"]["maxSurge"] = format!("{percent}%").into();
        }
        create_all(fixture, "configmonitors", [monitor].into_iter()).await?;
        all_ready(fixture, self.pods).await.map(drop)
    }
}

impl Times {
    /// Adds a restart of this case.
    fn add(&mut self, requests: &[Request], Case { pods, surge, .. }: &Case) -> Result<()> {
        let edit = requests.iter().find(|request| request.is_edit()).context("no edit")?.received;
        let mut deletions: Vec<&Request> = requests.iter().filter(|request| request.is_deletion()).collect();
        deletions.sort_by_key(|deletion| deletion.received);
        let is_patch = |request: &&Request| (&*request.verb, &*request.resource) == ("patch", "pods");
        let mut patches: Vec<&Request> =
            requests.iter().filter(|request| request.is_of_contestant()).filter(is_patch).collect();
        patches.sort_by_key(|patch| patch.received);
        let ready = ready(requests);
        let last = *ready.last().context("no pod is ready")?;
        ensure!((ready.len(), deletions.len()) == (*pods, *pods), "{} of {} are ready", ready.len(), deletions.len());
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
        let (starts, next) = if surge.is_some() { (&patches, &deletions[..]) } else { (&deletions, &deletions[1..]) };
        for (ready, next) in ready.iter().zip(next) {
            self.gaps.add(seconds(*ready, next.received) * 1e3);
        }
        self.whole.add(seconds(edit, last));
        self.kwok.add(starts.iter().zip(&ready).map(|(start, ready)| seconds(start.answered, *ready)).sum());
        Ok(())
    }
}

/// Returns when the new pods became ready, sorted. kwok makes a pod ready by the only status that it writes for the pod.
fn ready(requests: &[Request]) -> Vec<Timestamp> {
    let is_ready = |request: &&Request| {
        request.user == KWOK && (&*request.verb, &*request.resource) == ("patch", "pods/status") && request.status < 300
    };
    let mut ready: HashMap<&str, Timestamp> = HashMap::new();
    for request in requests.iter().filter(is_ready) {
        ready.entry(&request.name).and_modify(|at| *at = request.answered.min(*at)).or_insert(request.answered);
    }
    let mut ready: Vec<Timestamp> = ready.into_values().collect();
    ready.sort();
    ready
}
