//! Many objects, and many ConfigMonitors of the same pods: memory, lists, and deletions that nobody needs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, ensure_settled, start_proxy};
use testenv::{ControlPlane, Operator, Proxy, eventually};
use tokio::time::sleep;

use crate::audit::{Audit, Request};
use crate::ground::{
    self, all_up_to_date, as_applied, config_map, control_plane, create_all, monitor, one_pod, rolling_monitor, start,
    start_operator,
};
use crate::table;
use crate::usage::{Usage, mib};

const CONFIG_MAPS: usize = 10_000;
/// In bytes.
const SIZE: usize = 10_000;
/// How many of the ConfigMaps have a ConfigMonitor.
const OF_EACH: [usize; 2] = [1, CONFIG_MAPS];

const ROLLING_PODS: usize = 5_000;
const ROLLING_MONITORS: [usize; 2] = [1, 30];
/// A rolling restart of this number of pods takes far longer, but is uniform.
const WATCHED: Duration = Duration::from_secs(120);

const PODS: usize = 1_000;
const MONITORS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) async fn run() -> Result<()> {
    many_objects().await?;
    rolling().await?;
    all_at_once().await
}

async fn many_objects() -> Result<()> {
    table::title("10,000 ConfigMaps of 10 KB: the first start, with a baseline for each ConfigMonitor");
    table::head(&[&["ConfigMaps", "ConfigMonitors"], &table::START[..]].concat());
    for is_applied in [false, true] {
        let control_plane = control_plane().await?;
        let fixture = Fixture::new(&control_plane).await;
        let proxy = start_proxy(&control_plane, &fixture.namespace).await;
        let config_maps = (0..CONFIG_MAPS).map(|number| {
            let mut object = config_map(&format!("{NAME}-{number}"), &"x".repeat(SIZE));
            if is_applied {
                as_applied(&mut object);
            }
            object
        });
        create_all(&fixture, "configmaps", config_maps).await?;
        one_pod(&fixture).await?;
        let (mut made, list) = (0, fixture.collection("configmonitors"));
        for monitors in OF_EACH {
            let names = (made..monitors).map(|number| format!("{NAME}-{number}"));
            create_all(&fixture, "configmonitors", names.map(|name| monitor(&name, &name, NAME))).await?;
            made = monitors;
            let mut row = vec![if is_applied { "applied" } else { "created" }.to_owned(), monitors.to_string()];
            row.extend(start(|| start_operator(&proxy.url(), &fixture, &[]), &fixture.client, &list).await?);
            table::row(&row);
        }
    }
    Ok(())
}

/// A Deployment, its ConfigMap, and ConfigMonitors that all select its pods.
struct Place {
    audit: Audit,
    fixture: Fixture,
    proxy: Proxy,
    pods: usize,
    _control_plane: ControlPlane,
}

async fn rolling() -> Result<()> {
    table::title("Rolling restarts of the same 5000 pods, two minutes of them");
    table::head(&["ConfigMonitors", "peak, MiB", "of the time in lists, %", "CPU, s"]);
    let mut place = Place::new(ROLLING_PODS).await?;
    for monitors in ROLLING_MONITORS {
        place.watch_rolling(monitors).await?;
    }
    Ok(())
}

async fn all_at_once() -> Result<()> {
    table::title("50 ConfigMonitors of the same 1000 pods, all at once");
    table::head(&["all up to date after, s", "DELETE", "other requests", "peak, MiB", "CPU, s"]);
    Place::new(PODS).await?.restart_at_once().await
}

impl Place {
    async fn new(pods: usize) -> Result<Self> {
        let control_plane = control_plane().await?;
        let fixture = Fixture::new(&control_plane).await;
        let proxy = start_proxy(&control_plane, &fixture.namespace).await;
        fixture.create("configmaps", config_map(NAME, "0")).await;
        fixture.create_deployment(NAME, pods, &json!({"app": NAME})).await;
        let audit = ground::audit(&control_plane)?;
        Ok(Self { audit, fixture, proxy, pods, _control_plane: control_plane })
    }

    /// Waits until all pods are ready by the Deployment's status: lists of thousands of pods would take a part of the machine.
    async fn all_ready(&self) -> Result<()> {
        eventually("all pods are ready", PATIENCE, async || {
            sleep(Duration::from_secs(1)).await;
            let ready = &self.fixture.get("deployments", NAME).await["status"]["readyReplicas"];
            ensure!(*ready == self.pods, "{ready} are");
            Ok(())
        })
        .await
    }

    /// Starts the operator with these ConfigMonitors and waits until they are up to date. Returns what the operator has used by then.
    async fn start(&self, monitors: impl Iterator<Item = Value>) -> Result<(Operator, Usage)> {
        self.all_ready().await?;
        create_all(&self.fixture, "configmonitors", monitors).await?;
        let operator = start_operator(&self.proxy.url(), &self.fixture, &[])?;
        operator.wait_for_message("synced").await?;
        all_up_to_date(&self.fixture).await?;
        let usage = Usage::of(operator.process().id())?;
        Ok((operator, usage))
    }

    /// Edits the ConfigMap and observes the restarts for the time `WATCHED`. They stop when the operator and the ConfigMonitors are removed.
    async fn watch_rolling(&mut self, monitors: usize) -> Result<()> {
        let names = (0..monitors).map(|number| format!("{NAME}-{number}"));
        let (operator, before) = self.start(names.map(|name| rolling_monitor(&name, NAME, NAME))).await?;
        self.audit.news(&self.fixture.namespace)?;
        let begin = Timestamp::now();
        self.fixture.edit(NAME, &format!("content for {monitors}")).await;
        sleep(WATCHED).await;
        let used = Usage::of(operator.process().id())?;
        let watched = Timestamp::now().duration_since(begin).as_secs_f64();
        drop(operator);
        let mut lists = self.of_operator()?;
        lists.retain(|request| (&*request.verb, &*request.resource) == ("list", "pods"));
        self.fixture.client.delete(&self.fixture.collection("configmonitors")).await?.ok()?;
        table::row(&[
            monitors.to_string(),
            format!("{:.1}", mib(used.peak)),
            format!("{:.1}", 100.0 * covered(&lists) / watched),
            format!("{:.1}", used.since(before).cpu.as_secs_f64()),
        ]);
        Ok(())
    }

    /// Edits the ConfigMap and waits until all ConfigMonitors are up to date again.
    async fn restart_at_once(mut self) -> Result<()> {
        let names = (0..MONITORS).map(|number| format!("{NAME}-{number}"));
        let (operator, before) = self.start(names.map(|name| monitor(&name, NAME, NAME))).await?;
        self.audit.news(&self.fixture.namespace)?;
        let begin = Timestamp::now();
        self.fixture.edit(NAME, "content 1").await;
        let settled = self.all_settled().await;
        let used = Usage::of(operator.process().id())?;
        drop(operator);
        let (deletions, others): (Vec<_>, Vec<_>) =
            self.of_operator()?.into_iter().partition(Request::asks_for_deletion);
        let writes = others.iter().filter(|request| request.verb == "update");
        let last = writes.map(|request| request.answered).max().context("no status was written")?;
        let after = last.duration_since(begin).as_secs_f64();
        table::row(&[
            settled.map_or_else(|_| format!("not within {}", PATIENCE.as_secs()), |()| format!("{after:.1}")),
            deletions.len().to_string(),
            others.len().to_string(),
            format!("{:.1}", mib(used.peak)),
            format!("{:.1}", used.since(before).cpu.as_secs_f64()),
        ]);
        Ok(())
    }

    fn of_operator(&mut self) -> Result<Vec<Request>> {
        let mut requests = self.audit.news(&self.fixture.namespace)?;
        requests.retain(Request::is_of_contestant);
        Ok(requests)
    }

    async fn all_settled(&self) -> Result<()> {
        let config_map = self.fixture.get("configmaps", NAME).await;
        let version = config_map["metadata"]["resourceVersion"].as_str();
        eventually("all ConfigMonitors are up to date", PATIENCE, async || {
            sleep(Duration::from_secs(1)).await;
            let monitors = self.fixture.client.list(&self.fixture.collection("configmonitors")).await?;
            monitors.iter().try_for_each(|monitor| ensure_settled(monitor, "UpToDate", &[version]))
        })
        .await
    }
}

/// Returns for how many seconds at least one of these requests was under way.
fn covered(requests: &[Request]) -> f64 {
    let mut spans: Vec<(Timestamp, Timestamp)> =
        requests.iter().map(|request| (request.received, request.answered)).collect();
    spans.sort();
    let (mut covered, mut end) = (0.0, Timestamp::MIN);
    for (from, to) in spans {
        let from = from.max(end);
        covered += to.duration_since(from).as_secs_f64().max(0.0);
        end = end.max(to);
    }
    covered
}
