//! Many objects: memory, and the time of the first start.

use anyhow::Result;
use testenv::fixture::{Fixture, NAME, start_proxy};

use crate::ground::{as_applied, config_map, control_plane, create_all, monitor, one_pod, start, start_operator};
use crate::table;

const CONFIG_MAPS: usize = 10_000;
/// In bytes.
const SIZE: usize = 10_000;
/// How many of the ConfigMaps have a ConfigMonitor.
const OF_EACH: [usize; 2] = [1, CONFIG_MAPS];

pub(crate) async fn run() -> Result<()> {
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
