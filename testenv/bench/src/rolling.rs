//! Restarts of one pod at a time: the time from a replacement that is ready to the next deletion.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use testenv::fixture::{Fixture, NAME, start_proxy};
use tokio::time::sleep;

use crate::audit::Request;
use crate::ground::{
    self, all_ready, all_up_to_date, config_map, control_plane, create_all, edit_all, monitor, start_operator,
};
use crate::table::{self, Sample};

/// The user that makes pods ready.
const KWOK: &str = "kwok";

/// A Deployment whose pods are restarted one at a time.
struct Case {
    title: &'static str,
    pods: usize,
    deletion_policy: &'static str,
    repetitions: usize,
}

const CASES: [Case; 3] = [
    Case { title: "20 pods, Delete", pods: 20, deletion_policy: "Delete", repetitions: 5 },
    Case { title: "20 pods, Evict", pods: 20, deletion_policy: "Evict", repetitions: 5 },
    Case { title: "50 pods, Delete", pods: 50, deletion_policy: "Delete", repetitions: 3 },
];

#[derive(Default)]
struct Times {
    /// From a replacement that is ready to the next deletion, in ms.
    gaps: Sample,
    /// From the edit to the last replacement that is ready, in s.
    whole: Sample,
    /// The sum of the times from each deletion to its replacement that is ready, in s.
    kwok: Sample,
}

pub(crate) async fn run() -> Result<()> {
    table::title("One pod at a time: the median, and where half of them lie");
    table::head(&["", "ready → next, ms", "whole restart, s", "kwok alone, s"]);
    for case in &CASES {
        measure(case).await?;
    }
    Ok(())
}

async fn measure(case: &Case) -> Result<()> {
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    case.set_up(&fixture).await?;
    let _operator = start_operator(&proxy.url(), &fixture, &[])?;
    all_up_to_date(&fixture).await?;
    let mut audit = ground::audit(&control_plane)?;
    let mut times = Times::default();
    // The first repetition warms up.
    for repetition in 0..=case.repetitions {
        let content = format!("content {}", repetition + 1);
        let mut requests = edit_all(&mut audit, &fixture, &[NAME.to_owned()], &content, case.pods).await?;
        all_ready(&fixture, case.pods).await?;
        all_up_to_date(&fixture).await?;
        sleep(Duration::from_millis(500)).await;
        requests.extend(audit.news(&fixture.namespace)?);
        if repetition > 0 {
            times.add(&requests, case.pods)?;
        }
    }
    let [gaps, whole, kwok] = [times.gaps, times.whole, times.kwok].map(|sample| sample.to_string());
    table::row(&[case.title.to_owned(), gaps, whole, kwok]);
    Ok(())
}

impl Case {
    async fn set_up(&self, fixture: &Fixture) -> Result<()> {
        fixture.create("configmaps", config_map(NAME, "0")).await;
        let labels = json!({"app": NAME});
        if self.deletion_policy == "Evict" {
            let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": labels}});
            fixture.create("poddisruptionbudgets", json!({"metadata": {"name": NAME}, "spec": spec})).await;
        }
        fixture.create_deployment(NAME, self.pods, &labels).await;
        let mut monitor = monitor(NAME, NAME, NAME);
        monitor["spec"]["maxUnavailable"] = 1.into();
        monitor["spec"]["deletionPolicy"] = self.deletion_policy.into();
        create_all(fixture, "configmonitors", [monitor].into_iter()).await?;
        all_ready(fixture, self.pods).await.map(drop)
    }
}

impl Times {
    /// Adds a restart of this number of pods.
    fn add(&mut self, requests: &[Request], pods: usize) -> Result<()> {
        let edit = requests.iter().find(|request| request.is_edit()).context("no edit")?.received;
        let mut deletions: Vec<&Request> = requests.iter().filter(|request| request.is_deletion()).collect();
        deletions.sort_by_key(|deletion| deletion.received);
        let ready = ready(requests);
        let last = *ready.last().context("no pod is ready")?;
        ensure!((ready.len(), deletions.len()) == (pods, pods), "{} of {} are ready", ready.len(), deletions.len());
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
        for (ready, next) in ready.iter().zip(&deletions[1..]) {
            self.gaps.add(seconds(*ready, next.received) * 1e3);
        }
        self.whole.add(seconds(edit, last));
        self.kwok.add(deletions.iter().zip(&ready).map(|(start, ready)| seconds(start.answered, *ready)).sum());
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
