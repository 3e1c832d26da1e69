//! The cost of events that concern nobody, and the cost when nothing happens.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::json;
use testenv::Proxy;
use testenv::fixture::{Fixture, NAME, start_proxy};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::audit::Audit;
use crate::contestants::reader;
use crate::ground::{self, all_up_to_date, config_map, control_plane, create_all, monitor, one_pod, start_operator};
use crate::table;
use crate::usage::{Usage, cpu_of_thread};

/// ConfigMaps that no ConfigMonitor refers to.
const UNRELATED: usize = 100;
const MONITORS: usize = 100;
const EDITS_A_SECOND: usize = 200;
const SECONDS: usize = 20;
const IDLE: Duration = Duration::from_secs(60);

/// The size of the edited ConfigMaps, and whether they have the annotation of client-side apply.
struct Kind {
    title: &'static str,
    size: usize,
    applied: bool,
}

const KINDS: [Kind; 2] = [
    Kind { title: "1 KB", size: 1_000, applied: false },
    Kind { title: "10 KB, with the annotation of client-side apply", size: 10_000, applied: true },
];

pub(crate) async fn run() -> Result<()> {
    table::title("Edits of ConfigMaps that no ConfigMonitor refers to, 200 a second");
    table::head(&[
        "",
        "events",
        "operator, µs of CPU per event",
        "read and discarded, µs",
        "ratio",
        "requests",
        "wake-ups per event",
    ]);
    for kind in &KINDS {
        churn(kind).await?;
    }
    table::title("Nothing happens");
    table::head(&["", "s", "wake-ups per s", "CPU, ms per s", "requests", "resident, MiB"]);
    idle().await
}

/// Prepares a namespace with ConfigMonitors that are up to date, and starts the operator.
async fn quiet_place(kind: &Kind) -> Result<(testenv::ControlPlane, Fixture, Proxy, testenv::Operator)> {
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    let names = (0..MONITORS).map(|number| format!("{NAME}-{number}"));
    create_all(&fixture, "configmaps", names.clone().map(|name| config_map(&name, "0"))).await?;
    one_pod(&fixture).await?;
    create_all(&fixture, "configmonitors", names.map(|name| monitor(&name, &name, NAME))).await?;
    let unrelated = (0..UNRELATED).map(|number| kind.config_map(&format!("unrelated-{number}")));
    create_all(&fixture, "configmaps", unrelated).await?;
    let operator = start_operator(&proxy.url(), &fixture, &[])?;
    operator.wait_for_message("synced").await?;
    all_up_to_date(&fixture).await?;
    sleep(Duration::from_secs(2)).await;
    Ok((control_plane, fixture, proxy, operator))
}

impl Kind {
    fn config_map(&self, name: &str) -> serde_json::Value {
        let mut object = config_map(name, &"x".repeat(self.size));
        if self.applied {
            ground::as_applied(&mut object);
        }
        object
    }
}

async fn churn(kind: &Kind) -> Result<()> {
    let (control_plane, fixture, proxy, operator) = quiet_place(kind).await?;
    let (reader, lines) = reader(&proxy.url(), &fixture).await?;
    let id = operator.process().id();
    sleep(Duration::from_secs(1)).await;

    let mut audit = ground::audit(&control_plane)?;
    let before = (Usage::of(id)?, cpu_of_thread(std::process::id(), reader)?);
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(EDITS_A_SECOND)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut edits = Vec::new();
    for number in 0..EDITS_A_SECOND * SECONDS {
        ticks.tick().await;
        let path = fixture.path("configmaps", &format!("unrelated-{}", number % UNRELATED));
        let client = fixture.client.clone();
        let patch = json!({"data": {"edit": number.to_string()}});
        edits.push(tokio::spawn(async move { client.merge_patch(&path, &patch).await?.ok().map(drop) }));
    }
    for edit in try_join_all(edits).await? {
        edit?;
    }
    sleep(Duration::from_secs(1)).await;
    let used = Usage::of(id)?.since(before.0);
    let discarded = cpu_of_thread(std::process::id(), reader)? - before.1;

    ensure!(lines.load(Ordering::Relaxed) >= EDITS_A_SECOND * SECONDS, "not all events have come");
    let events = (EDITS_A_SECOND * SECONDS) as f64;
    let per_event = |time: Duration| time.as_secs_f64() * 1e6 / events;
    table::row(&[
        kind.title.to_owned(),
        events.to_string(),
        format!("{:.1}", per_event(used.cpu)),
        format!("{:.1}", per_event(discarded)),
        format!("{:.2}", used.cpu.as_secs_f64() / discarded.as_secs_f64()),
        requests(&mut audit, &fixture)?.to_string(),
        format!("{:.2}", used.wakeups as f64 / events),
    ]);
    Ok(())
}

async fn idle() -> Result<()> {
    let (control_plane, fixture, _proxy, operator) = quiet_place(&KINDS[0]).await?;
    let mut audit = ground::audit(&control_plane)?;
    let before = Usage::of(operator.process().id())?;
    sleep(IDLE).await;
    let used = Usage::of(operator.process().id())?.since(before);
    let seconds = IDLE.as_secs_f64();
    table::row(&[
        format!("{MONITORS} ConfigMonitors"),
        IDLE.as_secs().to_string(),
        format!("{:.2}", used.wakeups as f64 / seconds),
        format!("{:.3}", used.cpu.as_secs_f64() * 1e3 / seconds),
        requests(&mut audit, &fixture)?.to_string(),
        format!("{:.1}", crate::usage::mib(used.resident)),
    ]);
    Ok(())
}

/// Returns the number of the operator's new requests. The reader has sent its own before.
fn requests(audit: &mut Audit, fixture: &Fixture) -> Result<usize> {
    Ok(audit.news(&fixture.namespace)?.iter().filter(|request| request.is_of_contestant()).count())
}
