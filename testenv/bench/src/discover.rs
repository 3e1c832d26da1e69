//! Sources that are read from the pods: what the pods of a selector cost among many others, how soon a source is found, and
//! what pods cost that come and go.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, start_proxy};
use testenv::{DEADLINE, eventually};
use tokio::time::sleep;

use crate::audit::{Audit, Request};
use crate::ground::{self, config_map, control_plane, create_all, monitor, settled, start_operator, synced};
use crate::table::{self, Sample};
use crate::usage::{Usage, mib};

/// How many pods the namespace has, and how many of them are selected.
const PODS: usize = 50_000;
const SELECTED: [usize; 3] = [0, 50, 5_000];
/// How many objects they refer to.
const SOURCES: usize = 50;
const FOUND: usize = 9;
const COME_AND_GO: usize = 500;

pub(crate) async fn run() -> Result<()> {
    table::title("Sources read from pods: a namespace of 50,000 pods, of which some are selected");
    table::head(&[
        "selected",
        "list, MB",
        "ready after, s",
        "peak, MiB",
        "CPU, s",
        "pod created → source read, ms",
        "a pod that comes and goes, CPU ms",
    ]);
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    let mut audit = ground::audit(&control_plane)?;
    let sources = (0..SOURCES).map(source).chain(["named".to_owned()]).chain((0..SELECTED.len() * FOUND).map(late));
    create_all(&fixture, "configmaps", sources.map(|name| config_map(&name, "0"))).await?;
    create_all(&fixture, "pods", (0..PODS).map(|number| pod("other", "other", number, &[source(number)]))).await?;
    let mut made = 0;
    for (row, selected) in SELECTED.into_iter().enumerate() {
        create_all(&fixture, "pods", (made..selected).map(|number| pod(NAME, NAME, number, &[source(number)]))).await?;
        made = selected;
        measure(&fixture, &proxy.url(), &mut audit, row, selected).await?;
    }
    Ok(())
}

async fn measure(fixture: &Fixture, proxy: &str, audit: &mut Audit, row: usize, selected: usize) -> Result<()> {
    let path = format!("{}?labelSelector=app%3D{NAME}", fixture.collection("pods"));
    let bytes = fixture.client.get(&path).await?.ok()?.to_string().len();
    let monitor = if selected > 0 { discovering(NAME) } else { monitor(NAME, "named", NAME) };
    fixture.create("configmonitors", monitor).await;
    let start = SystemTime::now();
    let operator = start_operator(proxy, fixture, &[])?;
    let ready_after = synced(&operator, start).await?;
    let list = fixture.collection("configmonitors");
    let used = settled(&operator, &fixture.client, &list).await?;
    let (mut found, id) = (Sample::default(), operator.process().id());
    let discovers = selected > 0;
    for number in 0..if discovers { FOUND } else { 0 } {
        found.add(find(fixture, audit, &late(row * FOUND + number)).await?);
    }
    let before = Usage::of(id)?;
    create_all(fixture, "pods", (0..COME_AND_GO).map(|number| pod("gone", NAME, number, &[source(0)]))).await?;
    for number in 0..COME_AND_GO {
        fixture.client.delete(&fixture.path("pods", &format!("gone-{number}"))).await?.ok()?;
    }
    sleep(Duration::from_secs(2)).await;
    let each = Usage::of(id)?.since(before).cpu.as_secs_f64() * 1e3 / COME_AND_GO as f64;
    drop(operator);
    fixture.client.delete(&list).await?.ok()?;
    table::row(&[
        selected.to_string(),
        format!("{:.2}", bytes as f64 / 1e6),
        format!("{ready_after:.2}"),
        format!("{:.1}", mib(used.peak)),
        format!("{:.2}", used.cpu.as_secs_f64()),
        if discovers { found.to_string() } else { String::new() },
        if discovers { format!("{each:.2}") } else { String::new() },
    ]);
    Ok(())
}

/// Creates a pod that refers to this ConfigMap. Returns after how many milliseconds the operator had asked for it.
async fn find(fixture: &Fixture, audit: &mut Audit, name: &str) -> Result<f64> {
    audit.news(&fixture.namespace)?;
    fixture.create("pods", pod(name, NAME, 0, &[name.to_owned()])).await;
    let mut requests: Vec<Request> = Vec::new();
    let begin = Instant::now();
    let read = |request: &&Request| {
        request.is_of_contestant()
            && (&*request.verb, &*request.resource, &*request.name) == ("get", "configmaps", name)
    };
    eventually("the source is read", DEADLINE, async || {
        requests.extend(audit.news(&fixture.namespace)?);
        ensure!(requests.iter().any(|request| read(&request)), "it is not, after {:?}", begin.elapsed());
        Ok(())
    })
    .await?;
    let is_pod = |request: &&Request| (&*request.verb, &*request.resource) == ("create", "pods");
    let created = requests.iter().find(is_pod).context("no pod is created")?.answered;
    let read = requests.iter().find(read).context("no source is read")?.received;
    Ok(read.duration_since(created).as_secs_f64() * 1e3)
}

/// Returns a ConfigMonitor that reads its sources from the pods with this label.
fn discovering(app: &str) -> Value {
    let mut monitor = monitor(app, "", app);
    monitor["spec"]["unmanagedPods"] = "Delete".into();
    monitor["spec"]["discover"] = json!({});
    monitor["spec"].as_object_mut().map(|spec| spec.remove("configMap"));
    monitor
}

fn source(number: usize) -> String {
    format!("source-{}", number % SOURCES)
}

fn late(number: usize) -> String {
    format!("late-{number}")
}

/// A pod of at least 6 KB that nothing schedules.
fn pod(prefix: &str, app: &str, number: usize, sources: &[String]) -> Value {
    let variable = |nth: usize| json!({"name": format!("VARIABLE_{nth}"), "value": "x".repeat(100)});
    let variables: Vec<Value> = (0..30).map(variable).collect();
    let from: Vec<Value> = sources.iter().map(|source| json!({"configMapRef": {"name": source}})).collect();
    let container = json!({"name": "app", "image": "app", "env": variables, "envFrom": from});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{prefix}-{number}"), "labels": {"app": app}},
        "spec": {"schedulerName": "none", "containers": [container], "terminationGracePeriodSeconds": 0}})
}
