//! The operator's memory, time and received bytes with many objects.

use std::time::SystemTime;

use anyhow::Result;
use serde_json::Value;
use testenv::fixture::{Fixture, NAME, start_proxy};
use testenv::{Operator, Proxy};

use crate::data::{Data, Run};
use crate::ground::{
    all_up_to_date, as_applied, at_rest, config_map, control_plane, create_all, monitor, one_pod, start_operator,
    synced,
};
use crate::picture::memory::{Memory, Row, Settings, shipped_limit};
use crate::relay::Relay;
use crate::table::{self, rounded};
use crate::usage::{Usage, mib};

/// The number of ConfigMaps, and their size in bytes.
const CONFIG_MAPS: [(usize, usize); 2] = [(10_000, 10_000), (50_000, 1_000)];
const MONITORS: [usize; 3] = [1, 1_000, 10_000];

pub(crate) async fn run() -> Result<()> {
    table::title("Many objects: the first start, with a baseline for each ConfigMonitor, and the second one");
    table::head(&[
        "ConfigMaps",
        "ConfigMonitors",
        "first: ready after, s",
        "peak, MiB",
        "settled, MiB",
        "CPU, s",
        "second: ready after, s",
        "peak, MiB",
        "settled, MiB",
        "CPU, s",
        "received, MB",
    ]);
    let mut rows = Vec::new();
    for (count, size) in CONFIG_MAPS {
        for applied in [false, true] {
            measure(count, size, applied, &mut rows).await?;
        }
    }
    Data::<Memory> { run: Run::now().await?, settings: Settings { limit_mib: shipped_limit()? }, rows }.publish()
}

async fn measure(count: usize, size: usize, applied: bool, rows: &mut Vec<Row>) -> Result<()> {
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    create_all(&fixture, "configmaps", (0..count).map(|number| one(number, size, applied))).await?;
    one_pod(&fixture).await?;
    let mut made = 0;
    for monitors in MONITORS {
        let names = (made..monitors).map(|number| format!("{NAME}-{number}"));
        create_all(&fixture, "configmonitors", names.map(|name| monitor(&name, &name, NAME))).await?;
        made = monitors;
        let first = start(&proxy, &fixture).await?;
        let second = start(&proxy, &fixture).await?;
        let annotated = if applied { ", applied" } else { "" };
        let mut row = vec![format!("{count} of {size} bytes{annotated}"), monitors.to_string()];
        for (ready, usage) in [first, second] {
            row.push(format!("{ready:.2}"));
            row.extend([usage.peak, usage.resident].map(|memory| format!("{:.1}", mib(memory))));
            row.push(format!("{:.2}", usage.cpu.as_secs_f64()));
        }
        row.push(format!("{:.1}", received(&proxy, &fixture).await? as f64 / 1e6));
        table::row(&row);
        rows.push(Row {
            config_maps: count,
            bytes: size,
            applied,
            config_monitors: monitors,
            peak_mib: rounded(mib(first.1.peak.max(second.1.peak))),
        });
    }
    Ok(())
}

fn one(number: usize, size: usize, applied: bool) -> Value {
    let mut object = config_map(&format!("{NAME}-{number}"), &"x".repeat(size));
    if applied {
        as_applied(&mut object);
    }
    object
}

/// Starts the operator and waits until it is at rest. Returns how long it took to sync, and what it has used.
async fn start(proxy: &Proxy, fixture: &Fixture) -> Result<(f64, Usage)> {
    let begin = SystemTime::now();
    let operator = start_operator(&proxy.url(), fixture)?;
    let ready = synced(&operator, begin).await?;
    Ok((ready, settled(&operator, fixture).await?))
}

/// Returns how many bytes the operator receives until it is at rest.
async fn received(proxy: &Proxy, fixture: &Fixture) -> Result<u64> {
    let relay = Relay::start(&proxy.url()).await?;
    let operator = start_operator(&relay.url, fixture)?;
    operator.wait_for_message("synced").await?;
    settled(&operator, fixture).await?;
    Ok(relay.received())
}

/// Waits until the operator is at rest and every ConfigMonitor is up to date. Returns what the operator has used by then.
async fn settled(operator: &Operator, fixture: &Fixture) -> Result<Usage> {
    at_rest(operator).await?;
    all_up_to_date(fixture).await?;
    at_rest(operator).await
}
