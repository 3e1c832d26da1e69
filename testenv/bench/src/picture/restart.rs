//! From the edit to the first and to the last DELETE, for one Deployment of some sizes.

use serde::{Deserialize, Serialize};

use super::{Anchor, Svg, WIDTH, grouped};
use crate::data::{Data, Picture};
use crate::table::Quartiles;

pub(crate) struct Restart;

#[derive(Serialize, Deserialize)]
pub(crate) struct Settings {
    /// How many DELETEs may be under way.
    pub(crate) concurrency: usize,
}

/// How long a contestant took, in milliseconds.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) deployments: usize,
    pub(crate) pods: usize,
    pub(crate) who: String,
    pub(crate) repetitions: usize,
    pub(crate) first: Quartiles,
    pub(crate) last: Quartiles,
}

impl Picture for Restart {
    const NAME: &str = "restart";
    type Settings = Settings;
    type Row = Row;

    fn draw(data: &Data<Self>) -> String {
        let mut svg = Svg::default();
        svg.text("title", Anchor::Start, (0.0, 20.0), TITLE);
        legend(&mut svg);
        let panels = panels(&data.rows);
        for (number, rows) in panels.iter().enumerate() {
            let column = (number % 2) as f64 * (WIDTH + BETWEEN_PANELS) / 2.0;
            panel(&mut svg, (column, 92.0 + (number / 2) as f64 * PANEL_HEIGHT), rows);
        }
        let foot = 92.0 + panels.len().div_ceil(2) as f64 * PANEL_HEIGHT;
        let lines = [
            format!(
                "limit: knows the pods beforehand and only sends DELETEs, {} at a time.",
                data.settings.concurrency
            ),
            "floor: sends the requests that the operator's rules need, and decides nothing.".to_owned(),
            "original: the algorithm that the operator replaces, one DELETE after the other.".to_owned(),
            format!("Medians; each panel has its own scale. {}", data.run.line()),
        ];
        for (line, text) in lines.into_iter().enumerate() {
            svg.text("faint", Anchor::Start, (0.0, foot + line as f64 * 20.0), text);
        }
        svg.file(foot + 68.0, TITLE, &description(&panels))
    }
}

const TITLE: &str = "From the edit of a ConfigMap to the DELETEs of its pods";

/// In the order of a panel, with the colour of each.
const CONTESTANTS: [(&str, &str); 4] =
    [("limit", "grey"), ("floor", "grey"), ("operator", "blue"), ("original", "orange")];

const BETWEEN_PANELS: f64 = 30.0;
const PANEL_HEIGHT: f64 = 158.0;
const LABELS: f64 = 76.0;
/// The longest bar. Its values are at its right.
const BARS: f64 = 196.0;

/// Returns the rows about one Deployment, by the number of its pods.
fn panels(rows: &[Row]) -> Vec<Vec<&Row>> {
    let of_one: Vec<&Row> = rows.iter().filter(|row| row.deployments == 1).collect();
    of_one.chunk_by(|row, next| row.pods == next.pods).map(<[&Row]>::to_vec).collect()
}

fn legend(svg: &mut Svg) {
    let (y, height) = (40.0, 12.0);
    svg.bar("grey-dark", (0.0, y), (26.0, height));
    svg.text("", Anchor::Start, (34.0, y + 11.0), "edit to first DELETE");
    svg.bar("grey", (190.0, y), (26.0, height));
    svg.text("", Anchor::Start, (224.0, y + 11.0), "first to last DELETE");
    svg.line("ink", &[(380.0, y + 6.0), (406.0, y + 6.0)]);
    svg.text("", Anchor::Start, (414.0, y + 11.0), "the middle half of the restarts");
}

fn panel(svg: &mut Svg, (left, top): (f64, f64), rows: &[&Row]) {
    let Some(first) = rows.first() else { return };
    let zero = left + LABELS;
    let longest = rows.iter().map(|row| row.last.high).fold(0.0, f64::max);
    let x = |milliseconds: f64| zero + BARS * milliseconds / longest;
    svg.text("strong", Anchor::Start, (zero, top), pods(first));
    for (place, (who, colour)) in CONTESTANTS.iter().enumerate() {
        let Some(row) = rows.iter().find(|row| row.who == *who) else { continue };
        let y = top + 12.0 + place as f64 * 28.0;
        let (first, last) = (x(row.first.median), x(row.last.median));
        svg.text(if *who == "operator" { "strong" } else { "" }, Anchor::End, (zero - 8.0, y + 15.0), who);
        svg.bar(colour, (zero, y), (last - zero, 20.0));
        svg.bar(&format!("{colour}-dark"), (zero, y), (first - zero, 20.0));
        let half = [(x(row.last.low), y + 10.0), (x(row.last.high), y + 10.0)];
        svg.line("halo", &half);
        svg.line("ink", &half);
        let first = if row.pods == 1 { String::new() } else { format!("first {}", time(row.first.median)) };
        svg.pair((half[1].0 + 8.0, y + 15.0), &time(row.last.median), &first);
    }
    svg.line("axis", &[(zero, top + 8.0), (zero, top + 120.0)]);
}

fn pods(row: &Row) -> String {
    format!("{} {}", grouped(row.pods), if row.pods == 1 { "pod" } else { "pods" })
}

/// Returns milliseconds as people say them.
fn time(milliseconds: f64) -> String {
    if milliseconds < 1_000.0 { format!("{milliseconds:.0} ms") } else { format!("{:.1} s", milliseconds / 1e3) }
}

fn description(panels: &[Vec<&Row>]) -> String {
    let of = |row: &&Row| format!("{} {} and {}", row.who, time(row.first.median), time(row.last.median));
    let panels = panels.iter().map(|rows| {
        let times: Vec<String> = rows.iter().map(of).collect();
        format!("{}: {}.", rows.first().map_or_else(String::new, |row| pods(row)), times.join(", "))
    });
    let panels: Vec<String> = panels.collect();
    format!("Median time to the first and to the last DELETE. {}", panels.join(" "))
}
