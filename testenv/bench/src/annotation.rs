//! An annotation of a ConfigMap that changes all the time, as with leader election by annotation, and the requests that follow.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use testenv::fixture::{Fixture, NAME, start_proxy};
use tokio::time::{interval, sleep};

use crate::audit::Request;
use crate::ground::{
    self, all_up_to_date, config_map, control_plane, create_all, monitor, one_pod, start_operator, synced,
};
use crate::table;

const MONITORS: usize = 10;
const EVERY: Duration = Duration::from_secs(2);
const EDITS: usize = 30;
/// The goal is at most one PUT per ConfigMonitor in 10 s. The window is shorter, because the time that a request takes to come in varies.
const WINDOW: SignedDuration = SignedDuration::from_millis(9_500);
/// A delayed PUT has come in after this time.
const PUT_OFF: Duration = Duration::from_secs(12);

pub(crate) async fn run() -> Result<()> {
    table::title("An annotation of a ConfigMap that changes every 2 s for 60 s");
    table::head(&[
        "ConfigMonitors",
        "edits",
        "GET",
        "PUT",
        "PUTs of one ConfigMonitor in 10 s, at most",
        "other requests",
    ]);
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    fixture.create("configmaps", config_map(NAME, "0")).await;
    one_pod(&fixture).await?;
    let names = (0..MONITORS).map(|number| format!("{NAME}-{number}"));
    create_all(&fixture, "configmonitors", names.map(|name| monitor(&name, NAME, NAME))).await?;
    let operator = start_operator(&proxy.url(), &fixture)?;
    synced(&operator, std::time::SystemTime::now()).await?;
    all_up_to_date(&fixture).await?;
    sleep(Duration::from_secs(2)).await;

    let mut audit = ground::audit(&control_plane)?;
    let mut ticks = interval(EVERY);
    for edit in 0..EDITS {
        ticks.tick().await;
        let annotations = json!({"leader": edit.to_string()});
        fixture.patch("configmaps", NAME, json!({"metadata": {"annotations": annotations}})).await;
    }
    sleep(PUT_OFF).await;
    let mut requests = audit.news(&fixture.namespace)?;
    requests.retain(Request::is_of_contestant);
    ensure!(requests.iter().all(|request| !request.asks_for_deletion()), "a pod was deleted");
    let of = |verb: &str| requests.iter().filter(|request| request.verb == verb).count();
    table::row(&[
        MONITORS.to_string(),
        EDITS.to_string(),
        of("get").to_string(),
        of("update").to_string(),
        most_puts(&requests).to_string(),
        (requests.len() - of("get") - of("update")).to_string(),
    ]);
    Ok(())
}

/// Returns the most status writes of one ConfigMonitor within the window.
fn most_puts(requests: &[Request]) -> usize {
    let mut by_name: HashMap<&str, Vec<Timestamp>> = HashMap::new();
    for put in requests.iter().filter(|request| request.verb == "update") {
        by_name.entry(&put.name).or_default().push(put.received);
    }
    let within = |puts: &[Timestamp], begin: Timestamp| {
        puts.iter().filter(|put| (SignedDuration::ZERO..WINDOW).contains(&put.duration_since(begin))).count()
    };
    by_name.values().flat_map(|puts| puts.iter().map(|begin| within(puts, *begin))).max().unwrap_or_default()
}
