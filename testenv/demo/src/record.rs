//! The end of the demo, as a picture of a terminal.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The terminal shows everything from the bad edit on.
const ROWS: usize = 37;
const COLUMNS: usize = 112;
const LINE_HEIGHT: usize = 18;

/// Runs the demo, and writes what it prints to `path` as an SVG.
pub(crate) fn record(cluster: &str, path: &Path) -> Result<()> {
    let demo = Command::new(env::current_exe()?).arg(cluster).stderr(Stdio::inherit()).output()?;
    ensure!(demo.status.success(), "the demo failed: {} is unchanged", path.display());
    fs::write(path, picture(&String::from_utf8(demo.stdout)?))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Draws the last rows of a text. The terminal is dark on every page.
fn picture(text: &str) -> String {
    let rows: Vec<(&str, String)> = text.lines().flat_map(wrapped).collect();
    let shown = rows.iter().skip(rows.len().saturating_sub(ROWS)).enumerate();
    let shown = shown.filter(|(_, (_, row))| !row.is_empty()).map(|(number, (class, row))| {
        let (y, row) = (64 + number * LINE_HEIGHT, row.replace('&', "&amp;").replace('<', "&lt;"));
        format!("    <text{class} x=\"16\" y=\"{y}\">{row}</text>\n")
    });
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" role="img" aria-labelledby="title desc">
  <title id="title">make demo</title>
  <desc id="desc">A recorded terminal. A ConfigMap gets content that no pod gets ready with. The operator deletes one of three pods, whose successor is not
    ready, and the restart waits. The edit is reverted: the operator deletes the bad pod only, and all three pods are ready.</desc>
  <style>
    text {{ font: 12.5px Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #c9d1d9 }}
    .title {{ fill: #9198a1 }}
    .headline {{ fill: #ffffff; font-weight: bold }}
    .command {{ fill: #58a6ff }}
    .log {{ fill: #f0883e }}
  </style>
  <rect x="0.75" y="0.75" width="878.5" height="{border}" rx="8" fill="#0d1117" stroke="#818b98" stroke-width="1.5"/>
  <path d="M1 34H879" stroke="#818b98" stroke-opacity="0.5"/>
  <text class="title" x="440" y="22" text-anchor="middle">make demo</text>
  <g xml:space="preserve">
{rows}  </g>
</svg>
"##,
        height = ROWS * LINE_HEIGHT + 60,
        border = (ROWS * LINE_HEIGHT) as f64 + 58.5,
        rows = shown.collect::<String>(),
    )
}

/// Returns the rows of a line, each with the attribute for its colour: the demo begins each kind of line in its own way.
fn wrapped(line: &str) -> Vec<(&'static str, String)> {
    let class = match line.as_bytes() {
        [b' ', b'$', ..] => " class=\"command\"",
        [b' ', b'|', ..] => " class=\"log\"",
        [b' ', ..] => "",
        _ => " class=\"headline\"",
    };
    let chars: Vec<char> = line.chars().collect();
    let rows = (0..chars.len().max(1)).step_by(COLUMNS);
    rows.map(|from| (class, chars.iter().skip(from).take(COLUMNS).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rows_are_shown_and_a_long_line_keeps_its_colour() {
        let picture = picture(&format!("{} & <\n\n | {}end\n", "first\n".repeat(ROWS), "x".repeat(COLUMNS - 3)));
        assert_eq!(picture.matches(">first<").count(), ROWS - 4);
        assert!(picture.contains("> &amp; &lt;</text>"));
        assert!(
            picture
                .contains(&format!("<text class=\"log\" x=\"16\" y=\"{}\">end</text>", 64 + (ROWS - 1) * LINE_HEIGHT))
        );
    }
}
