//! Samples, and tables in Markdown.

use std::fmt;

#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => self.0[middle],
            _ => f64::midpoint(self.0[middle - 1], self.0[middle]),
        }
    }
}

/// Shows the median, and the two values between which half of the sample lies.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self(values), quarter) = (self, self.0.len() / 4);
        let (low, high) = (values[quarter], values[values.len() - 1 - quarter]);
        write!(f, "{:.1} ({low:.1}–{high:.1})", self.median())
    }
}

pub(crate) const START: [&str; 2] = ["ready after, s", "peak, MiB"];

pub(crate) fn title(text: &str) {
    println!("\n### {text}\n");
}

pub(crate) fn head(columns: &[&str]) {
    row(columns);
    row(&vec!["---"; columns.len()]);
}

/// Prints a row of a table. Each row is printed as soon as it is measured.
pub(crate) fn row<T: fmt::Display>(cells: &[T]) {
    let cells: Vec<String> = cells.iter().map(T::to_string).collect();
    println!("| {} |", cells.join(" | "));
}
