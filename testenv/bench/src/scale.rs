//! The operator's memory and time with many objects.

use anyhow::Result;
use serde_json::Value;
use testenv::fixture::{Fixture, NAME, start_proxy};

use crate::ground::{as_applied, config_map, control_plane, create_all, monitor, one_pod, start, start_operator};
use crate::table;

/// The number of ConfigMaps, and their size in bytes.
const CONFIG_MAPS: [(usize, usize); 2] = [(10_000, 10_000), (50_000, 1_000)];
const MONITORS: [usize; 3] = [1, 1_000, 10_000];

pub(crate) async fn run() -> Result<()> {
    table::title("Many objects: the first start, with a baseline for each ConfigMonitor");
    table::head(&[&["ConfigMaps", "ConfigMonitors"], &table::START[..]].concat());
    for (count, size) in CONFIG_MAPS {
        for applied in [false, true] {
            measure(count, size, applied).await?;
        }
    }
    Ok(())
}

async fn measure(count: usize, size: usize, applied: bool) -> Result<()> {
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    create_all(&fixture, "configmaps", (0..count).map(|number| one(number, size, applied))).await?;
    one_pod(&fixture).await?;
    let (mut made, list) = (0, fixture.collection("configmonitors"));
    for monitors in MONITORS {
        let names = (made..monitors).map(|number| format!("{NAME}-{number}"));
        create_all(&fixture, "configmonitors", names.map(|name| monitor(&name, &name, NAME))).await?;
        made = monitors;
        let annotated = if applied { ", applied" } else { "" };
        let mut row = vec![format!("{count} of {size} bytes{annotated}"), monitors.to_string()];
        row.extend(start(|| start_operator(&proxy.url(), &fixture, &[]), &fixture.client, &list).await?);
        table::row(&row);
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
