//! Numbers as people read them.

use std::fmt;

/// A sample of one measure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// The value in the middle.
    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => self.0[middle],
            _ => f64::midpoint(self.0[middle - 1], self.0[middle]),
        }
    }
}

/// The median, and between what values half of the sample lies.
impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.0.len() / 4, self.0.len() - 1 - self.0.len() / 4);
        write!(f, "{:.1} ({:.1}–{:.1})", self.median(), self.0[low], self.0[high])
    }
}

/// A headline.
pub(crate) fn title(text: &str) {
    println!("\n### {text}\n");
}

/// The head of a table.
pub(crate) fn head(columns: &[&str]) {
    row(columns);
    row(&vec!["---"; columns.len()]);
}

/// A row of it, printed when it is known: a benchmark takes its time.
pub(crate) fn row<T: fmt::Display>(cells: &[T]) {
    let cells: Vec<String> = cells.iter().map(T::to_string).collect();
    println!("| {} |", cells.join(" | "));
}
