//! Samples, and tables in Markdown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A sample of one measure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// Returns the median.
    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => self.0[middle],
            _ => f64::midpoint(self.0[middle - 1], self.0[middle]),
        }
    }
}

/// The median of a sample, and the two values between which half of it lies.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Quartiles {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl From<&Sample> for Quartiles {
    fn from(sample: &Sample) -> Self {
        let Sample(values) = sample;
        let quarter = values.len() / 4;
        let [low, median, high] = [values[quarter], sample.median(), values[values.len() - 1 - quarter]].map(rounded);
        Self { low, median, high }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quartiles { low, median, high } = self.into();
        write!(f, "{median:.1} ({low:.1}–{high:.1})")
    }
}

/// Rounds to one decimal, as tables, data and pictures have it.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Prints a headline.
pub(crate) fn title(text: &str) {
    println!("\n### {text}\n");
}

/// Prints the head of a table.
pub(crate) fn head(columns: &[&str]) {
    row(columns);
    row(&vec!["---"; columns.len()]);
}

/// Prints a row of a table. Each row is printed as soon as it is measured.
pub(crate) fn row<T: fmt::Display>(cells: &[T]) {
    let cells: Vec<String> = cells.iter().map(T::to_string).collect();
    println!("| {} |", cells.join(" | "));
}
