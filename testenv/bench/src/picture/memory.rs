//! The memory of the operator, by how many objects there are.

use std::fs;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use testenv::project;

use super::{Anchor, Svg, WIDTH, grouped};
use crate::data::{Data, Picture};

pub(crate) struct Memory;

#[derive(Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The memory limit of the operator's container, as it is shipped.
    pub(crate) limit_mib: u32,
}

/// What the operator needed with these objects.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) config_maps: usize,
    /// The size of a ConfigMap.
    pub(crate) bytes: usize,
    /// Whether each also has the copy that client-side `kubectl apply` leaves.
    pub(crate) applied: bool,
    pub(crate) config_monitors: usize,
    /// The peak of the resident memory, the greater one of two starts.
    pub(crate) peak_mib: f64,
}

impl Picture for Memory {
    const NAME: &str = "memory";
    type Settings = Settings;
    type Row = Row;

    fn draw(data: &Data<Self>) -> String {
        let mut svg = Svg::default();
        let limit = f64::from(data.settings.limit_mib);
        let x = |mib: f64| ZERO + (LIMIT - ZERO) * mib / limit;
        svg.text("title", Anchor::Start, (0.0, 20.0), TITLE);
        let groups = groups(&data.rows);
        let bottom = TOP + groups.iter().map(|rows| group_height(rows)).sum::<f64>();
        for part in 0..=4 {
            let mib = limit * f64::from(part) / 4.0;
            svg.line("grid", &[(x(mib), TOP - 8.0), (x(mib), bottom)]);
            svg.text("faint", Anchor::Middle, (x(mib), bottom + 18.0), format!("{mib} MiB"));
        }
        let mut y = TOP;
        for rows in &groups {
            group(&mut svg, y, rows, x);
            y += group_height(rows);
        }
        svg.line("axis", &[(ZERO, TOP - 8.0), (ZERO, bottom)]);
        svg.line("limit", &[(LIMIT, TOP - 8.0), (LIMIT, bottom)]);
        svg.text("limit-text", Anchor::End, (WIDTH, TOP - 16.0), "memory limit of the shipped manifest");
        svg.text("faint", Anchor::Start, (0.0, bottom + 44.0), "N × KB: ConfigMaps of this size. applied: each also has the annotation of client-side kubectl apply, a copy of itself.");
        svg.text(
            "faint",
            Anchor::Start,
            (0.0, bottom + 64.0),
            format!("The higher one of two starts. {}", data.run.line()),
        );
        svg.file(bottom + 72.0, TITLE, &description(data))
    }
}

const TITLE: &str = "Peak memory of the operator by the number of its ConfigMonitors";
const TOP: f64 = 64.0;
const ZERO: f64 = 212.0;
/// Where the limit is.
const LIMIT: f64 = WIDTH - 30.0;
const HEAD: f64 = 26.0;
const ROW: f64 = 24.0;

/// Returns the rows by the number of ConfigMonitors.
fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| row.config_monitors);
    rows.chunk_by(|row, next| row.config_monitors == next.config_monitors).map(<[&Row]>::to_vec).collect()
}

fn group_height(rows: &[&Row]) -> f64 {
    HEAD + rows.len() as f64 * ROW + 8.0
}

fn group(svg: &mut Svg, top: f64, rows: &[&Row], x: impl Fn(f64) -> f64) {
    svg.text(
        "strong",
        Anchor::End,
        (ZERO - 10.0, top + 16.0),
        rows.first().map_or_else(String::new, |row| monitors(row)),
    );
    for (place, row) in rows.iter().enumerate() {
        let y = top + HEAD + place as f64 * ROW;
        svg.text("", Anchor::End, (ZERO - 10.0, y + 14.0), config_maps(row));
        svg.bar("blue", (ZERO, y), (x(row.peak_mib) - ZERO, 18.0));
        svg.text("", Anchor::Start, (x(row.peak_mib) + 8.0, y + 14.0), format!("{:.1}", row.peak_mib));
    }
}

fn monitors(row: &Row) -> String {
    let many = if row.config_monitors == 1 { "" } else { "s" };
    format!("{} ConfigMonitor{many}", grouped(row.config_monitors))
}

fn config_maps(row: &Row) -> String {
    let applied = if row.applied { ", applied" } else { "" };
    format!("{} × {} KB{applied}", grouped(row.config_maps), row.bytes / 1_000)
}

fn description(data: &Data<Memory>) -> String {
    let of = |row: &Row| format!("{} with ConfigMaps {}: {:.1} MiB.", monitors(row), config_maps(row), row.peak_mib);
    let rows: Vec<String> = data.rows.iter().map(of).collect();
    format!("The memory limit is {} MiB. {}", data.settings.limit_mib, rows.join(" "))
}

/// Returns the memory limit of the operator's container in `deploy/operator/deployment.yml`, in MiB.
pub(crate) fn shipped_limit() -> Result<u32> {
    let manifest = fs::read_to_string(project("deploy/operator/deployment.yml"))?;
    let container = manifest.split_once("image: configmonitor-operator:").map(|(_, container)| container);
    let limit =
        container.and_then(|container| container.split_once("limits:")?.1.split_once("memory: ")?.1.split_once("Mi"));
    limit.context("deploy/operator/deployment.yml has no memory limit in Mi")?.0.parse().context("no number of Mi")
}
