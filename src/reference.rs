//! Reads `docs/reference.md`, so that tests can compare its tables with the code.

/// Returns the cells of the first table below a heading, such as `## Flags`, without the row of headings.
pub(crate) fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let page = include_str!("../docs/reference.md");
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect("the heading");
    let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Formats a word as the tables have it.
pub(crate) fn code(word: &str) -> String {
    format!("`{word}`")
}
