//! One operator for many namespaces: memory and time, and the cost of a list of namespaces.

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, apply, deployment_with, proxy_args, start_proxy_of};
use testenv::{ControlPlane, DEADLINE, Operator, Proxy, eventually, operator};
use tokio::time::sleep;

use crate::ground::{self, config_map, control_plane, create_all, monitor, settled, synced};
use crate::table;
use crate::usage::{Usage, mib};

/// The namespace and the ServiceAccount of an operator of the cluster.
const SYSTEM: &str = "configmonitor-system";
const ALL: &str = "/apis/magalix.com/v1/configmonitors";

const NAMESPACES: usize = 1_000;
/// The ConfigMaps in each namespace, and their size in bytes.
const CONFIG_MAPS: usize = 50;
const SIZE: usize = 1_000;
const SECRETS: usize = 5;
/// The ConfigMonitors in all namespaces together, of two sources each.
const MONITORS: [usize; 3] = [1, 1_000, 10_000];

/// The number of namespaces in the list.
const LISTS: [usize; 3] = [10, 50, 200];

pub(crate) async fn run() -> Result<()> {
    many().await?;
    lists().await
}

async fn many() -> Result<()> {
    table::title("1000 namespaces, 50000 ConfigMaps of 1000 bytes, 5000 Secrets: one operator for the cluster");
    table::head(&[&["ConfigMonitors of 2 sources"], &table::START[..]].concat());
    let control_plane = control_plane().await?;
    let proxy = of_the_cluster(&control_plane).await?;
    let fixtures = furnish(&control_plane, NAMESPACES).await?;
    let mut made = 0;
    for monitors in MONITORS {
        create_monitors(&fixtures, made..monitors).await?;
        made = monitors;
        let mut row = vec![monitors.to_string()];
        let operator = || start(&proxy, "default", &["--all-namespaces"]);
        row.extend(ground::start(operator, &control_plane.client(), ALL).await?);
        table::row(&row);
    }
    Ok(())
}

async fn lists() -> Result<()> {
    table::title("A list of namespaces, with 50 ConfigMaps, 5 Secrets and a ConfigMonitor in each");
    table::head(&["namespaces", "mode", "ready after, s", "operator, MiB", "kubectl proxy, MiB", "its connections"]);
    for namespaces in LISTS {
        let control_plane = control_plane().await?;
        let fixtures = furnish(&control_plane, namespaces).await?;
        create_monitors(&fixtures, 0..namespaces).await?;
        let list: Vec<&str> = fixtures.iter().map(|fixture| &*fixture.namespace).collect();
        let of_cluster = of_the_cluster(&control_plane).await?;
        // It has the rights of the cluster's proxy, but lets through only requests about these namespaces.
        let token = control_plane.service_account_token(SYSTEM, "configmonitor-operator").await?;
        let with_secrets = deployment_with(&control_plane, &["deploy/secrets/proxy"]).await;
        let args = proxy_args(&with_secrets, &format!("({})", list.join("|")), SYSTEM);
        let of_list = control_plane.proxy_with(&token, &args).await?;
        let modes =
            [("list", of_list, &*list.join("|"), &[][..]), ("cluster", of_cluster, "default", &["--all-namespaces"])];
        for (mode, proxy, names, args) in modes {
            let begin = SystemTime::now();
            let operator = start(&proxy, names, args)?;
            let after = synced(&operator, begin).await?;
            let used = settled(&operator, &control_plane.client(), ALL).await?;
            let of_proxy = proxy.process().id();
            table::row(&[
                namespaces.to_string(),
                mode.to_owned(),
                format!("{after:.2}"),
                format!("{:.1}", mib(used.resident)),
                format!("{:.1}", mib(Usage::of(of_proxy)?.resident)),
                sockets(of_proxy)?.to_string(),
            ]);
        }
    }
    Ok(())
}

/// Starts the proxy of an operator for all namespaces with the right to all Secrets.
async fn of_the_cluster(control_plane: &ControlPlane) -> Result<Proxy> {
    let kubectl = control_plane.kubectl();
    apply(control_plane, SYSTEM, "deploy/cluster-wide", &["deploy/cluster-wide/secrets"]).await;
    let get = ["get", "deployment", "configmonitor-operator", "--namespace", SYSTEM, "--output=json"];
    let deployment: Value = serde_json::from_str(&kubectl.ok(&get).await?)?;
    Ok(start_proxy_of(control_plane, &deployment, SYSTEM).await)
}

fn start(proxy: &Proxy, namespaces: &str, args: &[&str]) -> Result<Operator> {
    Operator::start(&operator::binary()?, &proxy.url(), namespaces, args, &[])
}

async fn furnish(control_plane: &ControlPlane, namespaces: usize) -> Result<Vec<Fixture>> {
    let furnished = (0..namespaces).map(async |number| {
        let fixture = Fixture { namespace: format!("team-{number}"), client: control_plane.client() };
        let namespace = json!({"metadata": {"name": fixture.namespace}});
        fixture.client.create("/api/v1/namespaces", &namespace).await?.ok()?;
        let content = "x".repeat(SIZE);
        let config_maps = (0..CONFIG_MAPS).map(|number| config_map(&format!("{NAME}-{number}"), &content));
        create_all(&fixture, "configmaps", config_maps).await?;
        let secrets = (0..SECRETS)
            .map(|number| json!({"metadata": {"name": format!("{NAME}-{number}")}, "stringData": {"password": "one"}}));
        create_all(&fixture, "secrets", secrets).await?;
        // As `one_pod` does, without waiting for each.
        fixture.create_deployment(NAME, 1, &json!({"app": NAME})).await;
        anyhow::Ok(fixture)
    });
    let fixtures = stream::iter(furnished).buffered(4).try_collect().await?;
    eventually("each namespace has its pod", 20 * DEADLINE, async || {
        sleep(Duration::from_secs(1)).await;
        let pods = control_plane.client().list(&format!("/api/v1/pods?labelSelector=app%3D{NAME}")).await?;
        ensure!(pods.len() >= namespaces, "{} of {namespaces} exist", pods.len());
        Ok(())
    })
    .await?;
    Ok(fixtures)
}

/// Creates ConfigMonitors with these numbers, spread over the namespaces.
async fn create_monitors(fixtures: &[Fixture], numbers: std::ops::Range<usize>) -> Result<()> {
    let created = numbers.map(async |number| {
        let (fixture, number) = (&fixtures[number % fixtures.len()], number / fixtures.len());
        let name = format!("{NAME}-{number}");
        let mut monitor = monitor(&name, &name, NAME);
        let spec = monitor["spec"].as_object_mut().context("no spec")?;
        spec.remove("configMap");
        let secret = format!("{NAME}-{}", number % (SECRETS - 1));
        spec.insert("sources".into(), json!([{"configMap": {"name": name}}, {"secret": {"name": secret}}]));
        fixture.client.create(&fixture.collection("configmonitors"), &monitor).await?.ok().map(drop)
    });
    stream::iter(created).buffer_unordered(16).try_collect().await
}

fn sockets(process: u32) -> Result<usize> {
    let open = fs::read_dir(format!("/proc/{process}/fd"))?;
    let links = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    Ok(links.filter(|link| link.to_string_lossy().starts_with("socket:")).count())
}
