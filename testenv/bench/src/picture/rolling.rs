//! The timeline of one rolling restart.

use serde::{Deserialize, Serialize};

use super::{Anchor, Svg, WIDTH};
use crate::data::{Data, Picture};

pub(crate) struct Rolling;

/// What is restarted and how. Times are in seconds after the first edit.
#[derive(Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) max_unavailable: usize,
    pub(crate) quiet_period_seconds: u32,
    pub(crate) min_ready_seconds: u32,
    /// When the ConfigMap was edited.
    pub(crate) edits: Vec<f64>,
    /// When the last status was written, which says that the restart is over.
    pub(crate) completed: f64,
}

/// When the n-th pod was deleted, and when the n-th replacement became ready.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) deleted: f64,
    pub(crate) ready: f64,
}

impl Row {
    /// Returns when the replacement became available.
    fn available(&self, settings: &Settings) -> f64 {
        self.ready + f64::from(settings.min_ready_seconds)
    }
}

impl Picture for Rolling {
    const NAME: &str = "rolling";
    type Settings = Settings;
    type Row = Row;

    fn draw(data: &Data<Self>) -> String {
        let settings = &data.settings;
        let end = settings.completed.ceil();
        let x = |seconds: f64| ZERO + (WIDTH - RIGHT - ZERO) * seconds / end;
        let mut svg = Svg::default();
        let title = title(data);
        svg.text("title", Anchor::Start, (0.0, 20.0), &title);
        legend(&mut svg, settings);
        let rows_end = TOP + data.rows.len() as f64 * ROW;
        let bottom = rows_end + 36.0 + settings.max_unavailable as f64 * STEP;
        let first = data.rows.first().map_or(0.0, |row| row.deleted);
        marks(&mut svg, settings, first, bottom, x);
        for second in (0..=end as u32).step_by(2) {
            svg.text("faint", Anchor::Middle, (x(second.into()), bottom + 18.0), format!("{second} s"));
        }
        for (number, row) in data.rows.iter().enumerate() {
            pod(&mut svg, number, row, settings, x);
        }
        unavailable(&mut svg, data, bottom, x);
        let quiet = f64::midpoint(settings.edits.last().copied().unwrap_or_default(), first);
        svg.text("faint", Anchor::Middle, (x(quiet), rows_end + 18.0), "quiet period");
        svg.text(
            "faint",
            Anchor::Start,
            (0.0, bottom + 44.0),
            format!("Time since the first edit. {}", data.run.line()),
        );
        svg.file(bottom + 52.0, &title, &description(data))
    }
}

const TOP: f64 = 104.0;
const ZERO: f64 = 96.0;
const RIGHT: f64 = 16.0;
const ROW: f64 = 26.0;
/// The height of one unavailable pod.
const STEP: f64 = 22.0;

fn title(data: &Data<Rolling>) -> String {
    let Settings { max_unavailable, quiet_period_seconds, min_ready_seconds, .. } = data.settings;
    let pods = data.rows.len();
    format!(
        "A restart of {pods} pods with maxUnavailable: {max_unavailable}, quietPeriodSeconds: {quiet_period_seconds}, minReadySeconds: {min_ready_seconds}"
    )
}

fn legend(svg: &mut Svg, settings: &Settings) {
    let ready = format!("ready for less than {} s", settings.min_ready_seconds);
    let mut x = 0.0;
    for (colour, text, width) in [
        ("grey", "old pod", 104.0),
        ("orange-dark", "deleted, replacement starts", 240.0),
        ("orange", &*ready, 204.0),
        ("blue", "replacement is available", 0.0),
    ] {
        svg.bar(colour, (x, 40.0), (20.0, 12.0));
        svg.text("", Anchor::Start, (x + 28.0, 51.0), text);
        x += width;
    }
}

/// The edits, the quiet period, and the end.
fn marks(svg: &mut Svg, settings: &Settings, first: f64, bottom: f64, x: impl Fn(f64) -> f64) {
    svg.bar("pale", (x(0.0), TOP - 6.0), (x(first) - x(0.0), bottom - TOP + 6.0));
    for edit in &settings.edits {
        svg.line("ink", &[(x(*edit), TOP - 14.0), (x(*edit), bottom)]);
        svg.text("", Anchor::Start, (x(*edit) - 2.0, TOP - 20.0), "edit");
    }
    svg.line("ink", &[(x(settings.completed), TOP - 14.0), (x(settings.completed), bottom)]);
    svg.text("", Anchor::End, (x(settings.completed) + 2.0, TOP - 20.0), "UpToDate");
}

fn pod(svg: &mut Svg, number: usize, row: &Row, settings: &Settings, x: impl Fn(f64) -> f64) {
    let y = TOP + number as f64 * ROW;
    let available = row.available(settings);
    svg.text("", Anchor::End, (ZERO - 10.0, y + 14.0), format!("pod {}", number + 1));
    for (colour, from, to) in [
        ("grey", 0.0, row.deleted),
        ("orange-dark", row.deleted, row.ready),
        ("orange", row.ready, available),
        ("blue", available, settings.completed),
    ] {
        svg.bar(colour, (x(from), y), (x(to) - x(from), 18.0));
    }
}

/// How many pods are unavailable, and the budget.
fn unavailable(svg: &mut Svg, data: &Data<Rolling>, bottom: f64, x: impl Fn(f64) -> f64) {
    let budget = data.settings.max_unavailable;
    let y = |pods: usize| bottom - pods as f64 * STEP;
    let steps = steps(data);
    for (step, next) in steps.iter().zip(steps.iter().skip(1)) {
        if step.1 > 0 {
            svg.bar("orange", (x(step.0), y(step.1)), (x(next.0) - x(step.0), bottom - y(step.1)));
        }
    }
    svg.line("axis", &[(ZERO, bottom), (WIDTH - RIGHT, bottom)]);
    svg.line("limit", &[(ZERO, y(budget)), (WIDTH - RIGHT, y(budget))]);
    svg.text("", Anchor::End, (ZERO - 10.0, bottom - 2.0), "unavailable");
    svg.text("limit-text", Anchor::End, (ZERO - 10.0, y(budget) + 5.0), format!("budget {budget}"));
}

/// Returns how many pods are unavailable from which time on.
fn steps(data: &Data<Rolling>) -> Vec<(f64, usize)> {
    let changes = data.rows.iter().flat_map(|row| [(row.deleted, true), (row.available(&data.settings), false)]);
    let mut changes: Vec<(f64, bool)> = changes.collect();
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut count = 0;
    let steps = changes.into_iter().map(|(at, more)| {
        count = if more { count + 1 } else { count - 1 };
        (at, count)
    });
    steps.collect()
}

fn description(data: &Data<Rolling>) -> String {
    let edits: Vec<String> = data.settings.edits.iter().map(|at| format!("{at:.1} s")).collect();
    let pods = data.rows.iter().map(|row| {
        let available = row.available(&data.settings);
        format!(
            "deleted at {:.1} s, replacement ready at {:.1} s and available at {available:.1} s",
            row.deleted, row.ready
        )
    });
    let pods: Vec<String> = pods.collect();
    let most = steps(data).into_iter().map(|(_, count)| count).max().unwrap_or_default();
    format!(
        "Edits at {}. Pods: {}. At most {most} pods are unavailable at a time.",
        edits.join(" and "),
        pods.join("; ")
    )
}
