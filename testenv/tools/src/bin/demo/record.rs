//! A recording of the demo, as a picture of a terminal that plays by itself.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The terminal. At the end it shows everything from the edit on.
const ROWS: usize = 30;
const COLUMNS: usize = 112;
const LINE_HEIGHT: usize = 18;

/// How long the picture waits before a row: as long as the demo did, within these bounds.
const SHORTEST: Duration = Duration::from_millis(120);
const LONGEST: Duration = Duration::from_secs(2);

/// How long the last screen stays before the picture starts again.
const STAY: Duration = Duration::from_secs(10);

/// Runs the demo, and writes what it prints to `path` as an SVG.
pub(crate) fn record(path: &Path) -> Result<()> {
    let start = Instant::now();
    let mut demo = Command::new(env::current_exe()?).stdout(Stdio::piped()).spawn()?;
    let mut lines = Vec::new();
    for line in BufReader::new(demo.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        lines.push((start.elapsed(), line));
    }
    ensure!(demo.wait()?.success(), "the demo failed: {} is unchanged", path.display());
    fs::write(path, picture(&lines)).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the rows of a line, as a terminal shows it.
fn wrapped(line: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = line.chars().collect();
    let rows = chars.len().div_ceil(COLUMNS).max(1);
    (0..rows).map(move |row| chars.iter().skip(row * COLUMNS).take(COLUMNS).collect())
}

/// Draws the lines, with the time since the start at which each was printed. Without animation, the last screen is shown.
fn picture(lines: &[(Duration, String)]) -> String {
    let (mut text, mut shown_at) = (String::new(), Vec::new());
    let (mut now, mut previous) = (Duration::ZERO, Duration::ZERO);
    for (printed_at, line) in lines {
        for row in wrapped(line) {
            now += (*printed_at - previous).clamp(SHORTEST, LONGEST);
            previous = *printed_at;
            if !row.is_empty() {
                let (class, y) = (class(line), shown_at.len() * LINE_HEIGHT + 13);
                let row = row.replace('&', "&amp;").replace('<', "&lt;");
                _ = writeln!(text, "      <text{class} x=\"8\" y=\"{y}\">{row}</text>");
            }
            shown_at.push(now);
        }
    }
    let total = (now + STAY).as_secs_f64();
    // The first rows come out from under a cover; each later one moves the screen up.
    let [mut uncover, mut scroll] = ["0% { transform: none }".to_owned(), "0% { transform: none }".to_owned()];
    for (index, at) in shown_at.iter().enumerate() {
        let percent = 100.0 * at.as_secs_f64() / total;
        let _ = if index < ROWS {
            write!(uncover, " {percent:.2}% {{ transform: translateY({}px) }}", (index + 1) * LINE_HEIGHT)
        } else {
            write!(scroll, " {percent:.2}% {{ transform: translateY(-{}px) }}", (index + 1 - ROWS) * LINE_HEIGHT)
        };
    }
    let up = shown_at.len().saturating_sub(ROWS) * LINE_HEIGHT;
    let height = ROWS * LINE_HEIGHT;
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {frame}" role="img" aria-labelledby="title desc">
  <title id="title">make demo</title>
  <desc id="desc">A recorded terminal. A ConfigMap is edited. The operator logs the modification, the start of the restart, three deleted pods and the
    end of the restart. kubectl shows three new pods and the time of the last restart.</desc>
  <style>
    text {{ font: 12.5px Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #c9d1d9; white-space: pre }}
    .title {{ fill: #9198a1 }}
    .headline {{ fill: #ffffff; font-weight: bold }}
    .command {{ fill: #58a6ff }}
    .log {{ fill: #f0883e }}
    @media (prefers-reduced-motion: no-preference) {{
      .cover {{ visibility: visible; animation: uncover {total:.2}s step-end infinite }}
      .screen {{ animation: scroll {total:.2}s step-end infinite }}
    }}
    @keyframes uncover {{ {uncover} }}
    @keyframes scroll {{ {scroll} }}
  </style>
  <rect x="0.75" y="0.75" width="878.5" height="{border}" rx="8" fill="#0d1117" stroke="#818b98" stroke-width="1.5"/>
  <path d="M1 34H879" stroke="#818b98" stroke-opacity="0.5"/>
  <text class="title" x="440" y="22" text-anchor="middle">make demo</text>
  <svg x="8" y="46" width="866" height="{height}">
    <g class="screen" transform="translate(0 -{up})" xml:space="preserve">
{text}    </g>
    <rect class="cover" width="866" height="{height}" fill="#0d1117" visibility="hidden"/>
  </svg>
</svg>
"##,
        frame = height + 60,
        border = height as f64 + 58.5,
    )
}

/// Returns the attribute for the colour of a line: the demo begins each kind of line in its own way.
fn class(line: &str) -> &'static str {
    match line.as_bytes() {
        [b' ', b'$', ..] => " class=\"command\"",
        [b' ', b'|', ..] => " class=\"log\"",
        [b' ', ..] => "",
        _ => " class=\"headline\"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renderer_without_animation_shows_the_last_screen() {
        let picture = picture(&vec![(Duration::ZERO, String::new()); ROWS + 2]);
        assert!(picture.contains(&format!("class=\"screen\" transform=\"translate(0 -{})\"", 2 * LINE_HEIGHT)));
        assert!(picture.contains("visibility=\"hidden\""));
    }

    #[test]
    fn a_line_appears_when_it_was_printed_but_long_pauses_are_short() {
        let picture = picture(&[0, 1, 60].map(|second| (Duration::from_secs(second), " & <".to_owned())));
        // After 0.12, 1.12 and 3.12 of 13.12 s.
        assert!(
            picture.contains(" 0.91% { transform: translateY(18px) } 8.54% { transform: translateY(36px) } 23.78% {")
        );
        assert!(picture.contains("> &amp; &lt;</text>"));
    }

    #[test]
    fn a_long_line_is_wrapped_and_keeps_its_colour() {
        let picture = picture(&[(Duration::ZERO, format!(" | {}end", "x".repeat(COLUMNS - 3)))]);
        assert!(picture.contains("<text class=\"log\" x=\"8\" y=\"31\">end</text>"));
    }
}
