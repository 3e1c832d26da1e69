//! One operator for many namespaces: memory and time, the delay by a busy namespace, and the cost of a list of namespaces.

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, apply, deployment_with, proxy_args, share_proxy, start_proxy_of};
use testenv::{ControlPlane, DEADLINE, Operator, Proxy, eventually, operator};
use tokio::time::sleep;

use crate::audit::Audit;
use crate::ground::{
    self, all_ready, at_rest, config_map, control_plane, create_all, monitor, one_pod, settled, synced, up_to_date,
};
use crate::restarts::Case;
use crate::table::{self, Sample};
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

/// A namespace in which everything restarts, and one in which one pod restarts.
const BUSY: Case =
    Case { title: "busy", deployments: 1_000, replicas: 1, one_config_map: true, one_monitor: false, repetitions: 5 };
const QUIET: Case =
    Case { title: "quiet", deployments: 1, replicas: 1, one_config_map: true, one_monitor: true, repetitions: 5 };
/// The restarts of the busy namespace are under way after this time.
const AT_WORK: Duration = Duration::from_secs(1);

/// The ConfigMaps of a hostile namespace, and how many of them each of its ConfigMonitors names.
const LARGE: usize = 96;
const SOURCES: usize = 16;

/// The number of namespaces in the list.
const LISTS: [usize; 3] = [10, 50, 200];

pub(crate) async fn run() -> Result<()> {
    many().await?;
    fairness().await?;
    hostility().await?;
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

async fn fairness() -> Result<()> {
    table::title(
        "From the edit to the DELETE in one namespace while 1000 ConfigMonitors of another one restart, in ms",
    );
    table::head(&["alone", "beside", "beside − alone", "the others' last DELETE"]);
    let control_plane = control_plane().await?;
    let fixtures = [Fixture::new(&control_plane).await, Fixture::new(&control_plane).await];
    let proxy = share_proxy(&control_plane, &fixtures).await;
    let [busy, quiet] = &fixtures;
    BUSY.set_up(busy).await?;
    QUIET.set_up(quiet).await?;
    let operator = start(&proxy, &format!("{}|{}", busy.namespace, quiet.namespace), &[])?;
    operator.wait_for_message("synced").await?;
    let mut audit = ground::audit(&control_plane)?;
    let (mut alone, mut beside, mut others) = (Sample::default(), Sample::default(), Sample::default());
    for repetition in 0..BUSY.repetitions {
        up_to_date(&control_plane.client(), ALL).await?;
        at_rest(&operator).await?;
        alone.add(first_of(&mut audit, quiet, &format!("alone {repetition}")).await?);
        all_ready(quiet, QUIET.pods()).await?;
        audit.all_news()?;
        busy.edit(NAME, &format!("busy {repetition}")).await;
        sleep(AT_WORK).await;
        let (first, last) = first_beside(&mut audit, &fixtures, &format!("beside {repetition}")).await?;
        beside.add(first);
        others.add(last);
        all_ready(busy, BUSY.pods()).await?;
        all_ready(quiet, QUIET.pods()).await?;
    }
    table::row(&[
        alone.to_string(),
        beside.to_string(),
        format!("{:+.0}", beside.median() - alone.median()),
        others.to_string(),
    ]);
    Ok(())
}

/// Edits the ConfigMap of this namespace. Returns after how many ms its pod is deleted.
async fn first_of(audit: &mut Audit, fixture: &Fixture, content: &str) -> Result<f64> {
    let requests = ground::edit_all(audit, fixture, &QUIET.config_maps(), content, QUIET.pods()).await?;
    Ok(ground::first_and_last(&requests).context("no deletion")?.0)
}

/// Does the same while the other namespace restarts. Also returns when the last pod of the other namespace is deleted.
async fn first_beside(audit: &mut Audit, [busy, quiet]: &[Fixture; 2], content: &str) -> Result<(f64, f64)> {
    quiet.edit(NAME, content).await;
    let mut requests = Vec::new();
    eventually("all pods are deleted", 10 * DEADLINE, async || {
        requests.extend(audit.all_news()?);
        let deleted = requests.iter().filter(|request| request.is_deletion()).count();
        ensure!(deleted >= BUSY.pods() + QUIET.pods(), "{deleted} are");
        Ok(())
    })
    .await?;
    let (of_busy, of_quiet): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|request| request.namespace == busy.namespace);
    let first = ground::first_and_last(&of_quiet).context("no deletion")?.0;
    Ok((first, ground::first_and_last(&of_busy).context("no deletion")?.1))
}

/// 6 ConfigMonitors of 16 ConfigMaps each, full of characters that JSON escapes with six bytes. The control plane takes no
/// larger ones, and its etcd no more, because it stores JSON.
async fn hostility() -> Result<()> {
    table::title(
        "From the edit to the DELETE in one namespace while another one edits 96 sources of 1.8 MB of JSON, in ms",
    );
    table::head(&["alone", "beside", "beside − alone", "the operator's peak, MiB"]);
    let control_plane = control_plane().await?;
    let fixtures = [Fixture::new(&control_plane).await, Fixture::new(&control_plane).await];
    let proxy = share_proxy(&control_plane, &fixtures).await;
    let [hostile, quiet] = &fixtures;
    QUIET.set_up(quiet).await?;
    one_pod(hostile).await?;
    let name = |number: usize| format!("large-{number}");
    create_all(hostile, "configmaps", (0..LARGE).map(|number| config_map(&name(number), "x"))).await?;
    let monitors = (0..LARGE / SOURCES).map(|number| {
        let mut monitor = monitor(&name(number), "x", NAME);
        let sources = (0..SOURCES).map(|source| json!({"configMap": {"name": name(number * SOURCES + source)}}));
        monitor["spec"]["sources"] = sources.collect();
        monitor["spec"].as_object_mut().map(|spec| spec.remove("configMap"));
        monitor
    });
    create_all(hostile, "configmonitors", monitors).await?;
    let edit_all = async |character: &str| -> Result<()> {
        let content = character.repeat(300_000);
        for number in 0..LARGE {
            hostile.edit(&name(number), &content).await;
        }
        Ok(())
    };
    edit_all("\u{1}").await?;
    let operator = start(&proxy, &format!("{}|{}", hostile.namespace, quiet.namespace), &[])?;
    operator.wait_for_message("synced").await?;
    let mut audit = ground::audit(&control_plane)?;
    let (mut alone, mut beside) = (Sample::default(), Sample::default());
    for repetition in 0..QUIET.repetitions {
        at_rest(&operator).await?;
        alone.add(first_of(&mut audit, quiet, &format!("alone {repetition}")).await?);
        all_ready(quiet, QUIET.pods()).await?;
        let character = if repetition % 2 == 0 { "\u{2}" } else { "\u{1}" };
        let measured = async {
            sleep(AT_WORK).await;
            first_of(&mut audit, quiet, &format!("beside {repetition}")).await
        };
        let (edited, first) = tokio::join!(edit_all(character), measured);
        edited?;
        beside.add(first?);
        all_ready(quiet, QUIET.pods()).await?;
    }
    table::row(&[
        alone.to_string(),
        beside.to_string(),
        format!("{:+.0}", beside.median() - alone.median()),
        format!("{:.1}", mib(Usage::of(operator.process().id())?.peak)),
    ]);
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
