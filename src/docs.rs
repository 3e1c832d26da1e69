//! The tables of the documentation, which tests compare with the code. `testenv/tests/reference.rs` includes this file.

pub(crate) const REFERENCE: &str = include_str!("../docs/reference.md");

/// Returns the cells of the first table below a heading, such as `## Flags`, without the header row.
pub(crate) fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect("the heading");
    let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Formats a word as code in Markdown.
pub(crate) fn code(word: &str) -> String {
    format!("`{word}`")
}
