//! Counters and histograms with labels, in Prometheus' text format, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name, help and type of a metric.
pub(super) struct Head {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
}

/// The type of a metric.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The values of labels, in the order of their names.
type Labels = Vec<String>;

/// A counter for each combination of label values.
pub(super) struct Counter {
    head: Head,
    labels: Vec<&'static str>,
    values: Mutex<BTreeMap<Labels, u64>>,
}

/// A histogram of durations for each combination of label values.
pub(super) struct Histogram {
    head: Head,
    labels: Vec<&'static str>,
    /// In seconds, in ascending order.
    bounds: &'static [f64],
    values: Mutex<BTreeMap<Labels, Observed>>,
}

#[derive(Default)]
struct Observed {
    /// One for each bound. `count` is the bucket without a bound.
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Head {
    /// Creates the head of a counter.
    pub(super) fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Counter }
    }

    /// Creates the head of a gauge.
    pub(super) fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Gauge }
    }

    /// Writes the metric with these samples. Writes nothing without a sample.
    pub(super) fn write<'a, V: Display>(
        &self,
        out: &mut String,
        samples: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        self.begin(out);
        for (labels, value) in samples {
            sample(out, self.name, "", labels, value);
        }
    }

    fn begin(&self, out: &mut String) {
        let Self { name, help, kind } = self;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing into a String does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
}

impl Counter {
    pub(super) fn new(name: &'static str, help: &'static str, labels: Vec<&'static str>) -> Self {
        Self { head: Head::counter(name, help), labels, values: Mutex::default() }
    }

    /// Adds series that start at 0: for Prometheus, a series that appears with the value 1 has not increased.
    pub(super) fn with_zeros(self, values: &[&[&str]]) -> Self {
        values.iter().for_each(|values| self.add(values, 0));
        self
    }

    pub(super) fn add(&self, labels: &[&str], more: u64) {
        *lock(&self.values).entry(owned(labels)).or_default() += more;
    }

    /// Removes the series whose last label values are these.
    pub(super) fn forget(&self, last: &[&str]) {
        lock(&self.values).retain(|labels, _| !ends_with(labels, last));
    }

    pub(super) fn write(&self, out: &mut String) {
        let values = lock(&self.values);
        self.head.write(out, values.iter().map(|(labels, value)| (named(&self.labels, labels), value)));
    }
}

impl Histogram {
    pub(super) fn new(
        name: &'static str,
        help: &'static str,
        labels: Vec<&'static str>,
        bounds: &'static [f64],
    ) -> Self {
        Self { head: Head { name, help, kind: Kind::Histogram }, labels, bounds, values: Mutex::default() }
    }

    /// Adds the series without labels, with no observation.
    pub(super) fn with_zeros(self) -> Self {
        lock(&self.values).insert(Labels::new(), Observed::of(self.bounds));
        self
    }

    /// Adds an observation, in seconds.
    pub(super) fn observe(&self, labels: &[&str], seconds: f64) {
        let mut values = lock(&self.values);
        let observed = values.entry(owned(labels)).or_insert_with(|| Observed::of(self.bounds));
        observed.count += 1;
        observed.sum += seconds;
        for (bucket, _) in observed.buckets.iter_mut().zip(self.bounds).filter(|(_, bound)| seconds <= **bound) {
            *bucket += 1;
        }
    }

    pub(super) fn write(&self, out: &mut String) {
        let values = lock(&self.values);
        if values.is_empty() {
            return;
        }
        self.head.begin(out);
        for (labels, Observed { buckets, count, sum }) in &*values {
            let labels = named(&self.labels, labels);
            let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            for (bound, bucket) in bounds.zip(buckets.iter().chain([count])) {
                let labels = labels.iter().copied().chain([("le", &*bound)]);
                sample(out, self.head.name, "_bucket", labels, bucket);
            }
            sample(out, self.head.name, "_sum", labels.clone(), sum);
            sample(out, self.head.name, "_count", labels, count);
        }
    }
}

impl Observed {
    fn of(bounds: &[f64]) -> Self {
        Self { buckets: vec![0; bounds.len()], ..Self::default() }
    }
}

fn sample<'a>(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    value: impl Display,
) {
    let labels = labels.into_iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let labels: Vec<String> = labels.collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(out, "{name}{suffix}{labels} {value}");
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn named<'a>(names: &[&'a str], values: &'a [String]) -> Vec<(&'a str, &'a str)> {
    names.iter().copied().zip(values.iter().map(String::as_str)).collect()
}

fn owned(labels: &[&str]) -> Labels {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

fn ends_with(labels: &[String], last: &[&str]) -> bool {
    labels.iter().rev().map(String::as_str).take(last.len()).eq(last.iter().rev().copied())
}

/// Locks a mutex. A panic of another holder leaves no number half written.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_written_as_prometheus_reads_it() {
        let counter = Counter::new("things_total", "Things.", vec!["kind", "name"]).with_zeros(&[&["a", "x"]]);
        counter.add(&["b", "say \"\\\"\n"], 2);
        let mut out = String::new();
        counter.write(&mut out);
        let expected = "# HELP things_total Things.\n# TYPE things_total counter\n\
            things_total{kind=\"a\",name=\"x\"} 0\nthings_total{kind=\"b\",name=\"say \\\"\\\\\\\"\\n\"} 2\n";
        assert_eq!(out, expected);
        counter.forget(&["x"]);
        counter.forget(&["b"]);
        out.clear();
        counter.write(&mut out);
        assert!(!out.contains("\"x\"") && out.contains("kind=\"b\""), "{out}");
    }

    #[test]
    fn what_has_no_sample_is_not_written() {
        let mut out = String::new();
        Counter::new("things_total", "Things.", vec!["kind"]).write(&mut out);
        Histogram::new("seconds", "Time.", vec!["kind"], &[1.0]).write(&mut out);
        assert_eq!(out, "");
    }

    #[test]
    fn each_bucket_of_a_histogram_counts_what_is_at_most_as_long() {
        let histogram = Histogram::new("seconds", "Time.", vec![], &[0.5, 2.0]).with_zeros();
        for seconds in [0.5, 1.25, 60.0] {
            histogram.observe(&[], seconds);
        }
        let mut out = String::new();
        histogram.write(&mut out);
        let expected = "# HELP seconds Time.\n# TYPE seconds histogram\nseconds_bucket{le=\"0.5\"} 1\n\
            seconds_bucket{le=\"2\"} 2\nseconds_bucket{le=\"+Inf\"} 3\nseconds_sum 61.75\nseconds_count 3\n";
        assert_eq!(out, expected);
    }
}
