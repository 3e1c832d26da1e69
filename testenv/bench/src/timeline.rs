//! One rolling restart, request by request, with waits that can be seen: for the picture.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, start_proxy};
use testenv::{ControlPlane, DEADLINE, Proxy, eventually};
use tokio::time::{Instant, sleep};

use crate::audit::Request;
use crate::data::{Data, Run};
use crate::ground::{
    self, all_ready, all_up_to_date, config_map, control_plane, create_all, rolling_monitor, start_operator,
};
use crate::picture::rolling::{Rolling, Row, Settings};
use crate::rolling::ready;

const PODS: usize = 6;
const MAX_UNAVAILABLE: usize = 2;
const QUIET_PERIOD_SECONDS: u32 = 3;
const MIN_READY_SECONDS: u32 = 3;
/// The second edit comes within the quiet period of the first one.
const BETWEEN_EDITS: Duration = Duration::from_millis(1_500);
/// How long pods take to start, in turns.
const START: [Duration; 2] = [Duration::from_millis(800), Duration::from_millis(2_200)];

pub(crate) async fn run() -> Result<()> {
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    fixture.create("configmaps", config_map(NAME, "0")).await;
    let deployment = slow_deployment();
    create_all(&fixture, "deployments", [deployment].into_iter()).await?;
    let data = tokio::select! {
        data = restart(&control_plane, &fixture, &proxy) => data?,
        result = start_pods(&fixture) => return result,
    };
    data.publish()
}

/// Edits the ConfigMap twice, and waits until the restart is over.
async fn restart(control_plane: &ControlPlane, fixture: &Fixture, proxy: &Proxy) -> Result<Data<Rolling>> {
    let mut monitor = rolling_monitor(NAME, NAME, NAME);
    monitor["spec"]["maxUnavailable"] = MAX_UNAVAILABLE.into();
    monitor["spec"]["quietPeriodSeconds"] = QUIET_PERIOD_SECONDS.into();
    monitor["spec"]["minReadySeconds"] = MIN_READY_SECONDS.into();
    create_all(fixture, "configmonitors", [monitor].into_iter()).await?;
    all_ready(fixture, PODS).await?;
    let _operator = start_operator(&proxy.url(), fixture)?;
    all_up_to_date(fixture).await?;
    // Available when the restart begins.
    sleep(Duration::from_secs(2 + u64::from(MIN_READY_SECONDS))).await;

    let mut audit = ground::audit(control_plane)?;
    fixture.edit(NAME, "1").await;
    sleep(BETWEEN_EDITS).await;
    fixture.edit(NAME, "2").await;
    let mut requests = Vec::new();
    eventually("all pods are replaced", DEADLINE, async || {
        requests.extend(audit.news(&fixture.namespace)?);
        ensure!(ready(&requests).len() == PODS, "{} are", ready(&requests).len());
        Ok(())
    })
    .await?;
    all_up_to_date(fixture).await?;
    sleep(Duration::from_millis(500)).await;
    requests.extend(audit.news(&fixture.namespace)?);
    data(&requests, Run::now().await?)
}

/// A Deployment whose pods are not scheduled before [`start_pods`] allows it: kwok alone makes them ready within 0.1 s.
fn slow_deployment() -> Value {
    let labels = json!({"app": NAME});
    let pod =
        json!({"schedulingGates": [{"name": "example.com/start"}], "containers": [{"name": "app", "image": "app"}]});
    json!({"metadata": {"name": NAME}, "spec": {
        "replicas": PODS,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }})
}

/// Lets each pod be scheduled when its time to start is over. Returns only on an error.
async fn start_pods(fixture: &Fixture) -> Result<()> {
    let mut due: HashMap<String, Instant> = HashMap::new();
    loop {
        sleep(Duration::from_millis(50)).await;
        for pod in fixture.client.list(&fixture.collection("pods")).await? {
            let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
            let start = START[due.len() % START.len()];
            let due = *due.entry(name.to_owned()).or_insert_with(|| Instant::now() + start);
            if pod["spec"]["schedulingGates"].is_array() && due <= Instant::now() {
                let patch = json!({"spec": {"schedulingGates": []}});
                fixture.client.merge_patch(&fixture.path("pods", name), &patch).await?.ok()?;
            }
        }
    }
}

fn data(requests: &[Request], run: Run) -> Result<Data<Rolling>> {
    let edits = times(requests, |request| request.is_edit().then_some(request.received));
    let deletions = times(requests, |request| request.is_deletion().then_some(request.answered));
    let statuses = times(requests, |request| {
        (request.is_of_contestant() && request.resource == "configmonitors/status").then_some(request.answered)
    });
    let edit = *edits.first().context("no edit")?;
    let ready = ready(requests);
    ensure!((deletions.len(), ready.len()) == (PODS, PODS), "{} of {} are ready", ready.len(), deletions.len());
    // To the millisecond.
    let seconds = |at: Timestamp| (at.duration_since(edit).as_secs_f64() * 1e3).round() / 1e3;
    Ok(Data {
        run,
        settings: Settings {
            max_unavailable: MAX_UNAVAILABLE,
            quiet_period_seconds: QUIET_PERIOD_SECONDS,
            min_ready_seconds: MIN_READY_SECONDS,
            edits: edits.iter().map(|at| seconds(*at)).collect(),
            completed: seconds(*statuses.last().context("no status")?),
        },
        rows: deletions
            .iter()
            .zip(&ready)
            .map(|(deletion, ready)| Row { deleted: seconds(*deletion), ready: seconds(*ready) })
            .collect(),
    })
}

/// Returns the times that this function finds, in their order.
fn times(requests: &[Request], of: impl Fn(&Request) -> Option<Timestamp>) -> Vec<Timestamp> {
    let mut times: Vec<Timestamp> = requests.iter().filter_map(of).collect();
    times.sort();
    times
}
