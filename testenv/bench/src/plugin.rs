//! `kubectl cmon status -A` with many ConfigMonitors, beside the list that it needs.

use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use testenv::fixture::{Fixture, NAME, start_proxy};
use testenv::process::{Process, status_kib};
use testenv::{ControlPlane, RunDir, operator};
use tokio::time::sleep;

use crate::ground::{config_map, control_plane, create_all, monitor, one_pod, start, start_operator};
use crate::table::{self, Sample};
use crate::usage::mib;

const MONITORS: usize = 10_000;
const TURNS: usize = 5;
/// The objects of a page, as the plugin asks for them.
const PAGE: usize = 500;
/// How often the memory is looked at.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Deserialize)]
struct Page {
    metadata: Rest,
}

#[derive(Deserialize)]
struct Rest {
    #[serde(default)]
    r#continue: String,
}

pub(crate) async fn run() -> Result<()> {
    table::title("kubectl cmon status -A");
    table::head(&["ConfigMonitors", "its list, s", "the command, s", "plugin, MiB", "kubectl proxy, MiB"]);
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    fixture.create("configmaps", config_map(NAME, "0")).await;
    one_pod(&fixture).await?;
    let names = (0..MONITORS).map(|number| format!("{NAME}-{number}"));
    create_all(&fixture, "configmonitors", names.map(|name| monitor(&name, NAME, NAME))).await?;
    // Without a status there is little to show.
    let list = fixture.collection("configmonitors");
    start(|| start_operator(&proxy.url(), &fixture, &[]), &fixture.client, &list).await?;
    let (mut lists, mut commands, mut peaks) = (Sample::default(), Sample::default(), [0, 0]);
    for _ in 0..TURNS {
        let begin = Instant::now();
        read_all(&fixture).await?;
        lists.add(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        let turn = status(&control_plane).await?;
        commands.add(begin.elapsed().as_secs_f64());
        peaks = [0, 1].map(|of: usize| turn[of].max(peaks[of]));
    }
    let [plugin, of_proxy] = peaks.map(|kib| format!("{:.1}", mib(kib)));
    table::row(&[MONITORS.to_string(), lists.to_string(), commands.to_string(), plugin, of_proxy]);
    Ok(())
}

/// Reads a page after the other, and keeps nothing.
async fn read_all(fixture: &Fixture) -> Result<()> {
    let mut rest = String::new();
    loop {
        let path = format!("/apis/magalix.com/v1/configmonitors?limit={PAGE}&continue={rest}");
        let page: Page = serde_json::from_value(fixture.client.get(&path).await?.ok()?)?;
        rest = page.metadata.r#continue;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Runs the command, and returns the peaks of the memory of the plugin and of its proxy, in KiB.
async fn status(control_plane: &ControlPlane) -> Result<[u64; 2]> {
    let kubectl = control_plane.kubectl();
    let plugin = operator::binary()?.with_file_name("kubectl-cmon");
    ensure!(plugin.is_file(), "make bench builds the plugin, which is not there");
    let folder = kubectl.program().parent().context("kubectl has no folder")?.to_owned();
    let path = env::var_os("PATH").context("no PATH")?;
    let path = env::join_paths([folder].into_iter().chain(env::split_paths(&path)))?;
    let mut command = Command::new(&plugin);
    command.args(["status", "--all-namespaces"]).env("PATH", path).env("KUBECONFIG", kubectl.kubeconfig());
    let dir = RunDir::create()?;
    let output = dir.path().join("output");
    let plugin = Process::start(&command, &output)?;
    let (id, mut peaks) = (plugin.id(), [0, 0]);
    while plugin.exit_status().is_none() {
        let of_proxy = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let of_proxy = of_proxy.split_whitespace().filter_map(|id| id.parse().ok()).max();
        // Neither may be there any more.
        for (peak, id) in peaks.iter_mut().zip([Some(id), of_proxy]) {
            let now = id.and_then(|id| status_kib(id, "VmHWM").ok());
            *peak = now.unwrap_or_default().max(*peak);
        }
        sleep(PAUSE).await;
    }
    let count = fs::read_to_string(&output)?.lines().count();
    ensure!(count == MONITORS + 1, "kubectl cmon status has {count} lines");
    Ok(peaks)
}
