//! The metrics of the operator. `docs/operations.md` lists them.
//!
//! Labels are bounded: no label names a pod, and labels name a ConfigMonitor only with `--metrics-per-configmonitor`.

mod process;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::text::{Counter, Head, Histogram, lock};
use crate::kube::ServerTime;

/// The media type of Prometheus' text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The reasons of a ConfigMonitor whose author delays the restart.
const DELAYED_BY_AUTHOR: [&str; 3] = ["Suspended", "OutsideWindow", "MinInterval"];
/// Buckets for requests to the API server, in seconds.
const REQUEST_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Buckets for restarts, in seconds, up to an hour.
const RESTART_BUCKETS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// The metrics of one process.
pub struct Metrics {
    /// Whether metrics about ConfigMonitors have the labels `namespace` and `name`.
    per_config_monitor: bool,
    is_leader: AtomicBool,
    states: Mutex<BTreeMap<MonitorState, usize>>,
    restarts: Counter,
    pods_removed: Counter,
    evictions_refused: Counter,
    pods_skipped: Counter,
    first_deletion: Histogram,
    restart_duration: Histogram,
    status_conflicts: Counter,
    requests: Counter,
    request_duration: Histogram,
    watch_restarts: Counter,
    /// The resource and the last activity of each open watch, by number.
    watches: Mutex<BTreeMap<u64, (&'static str, SystemTime)>>,
    next_watch: AtomicU64,
}

/// The state of a ConfigMonitor as the gauges show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MonitorState {
    who: Option<Who>,
    reason: Cow<'static, str>,
    /// When the pending change was first read, if one is pending.
    pending: Option<ServerTime>,
}

/// The namespace and the name of a ConfigMonitor.
type Who = (Arc<str>, Arc<str>);

/// Counts for one ConfigMonitor. Dropping this value removes the ConfigMonitor from the gauges, and its own series.
pub struct Tally {
    metrics: Arc<Metrics>,
    /// None without `--metrics-per-configmonitor`.
    who: Option<Who>,
    state: Option<MonitorState>,
}

/// Records the last activity of one watch until this value is dropped.
pub struct Pulse {
    metrics: Arc<Metrics>,
    number: u64,
}

/// A request in flight. Dropping this value counts the request.
pub struct Exchange<'a> {
    metrics: &'a Metrics,
    verb: &'static str,
    resource: String,
    started: tokio::time::Instant,
    /// The label `code`.
    code: Cow<'static, str>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Metrics {
    /// Creates metrics. Those about ConfigMonitors have series for each ConfigMonitor, or for all of them together.
    #[must_use]
    pub fn new(per_config_monitor: bool) -> Self {
        let of = |labels: &[&'static str]| {
            let who: &[&str] = if per_config_monitor { &["namespace", "name"] } else { &[] };
            [labels, who].concat()
        };
        let with_zeros = |counter: Counter, values: &[&[&str]]| {
            if per_config_monitor { counter } else { counter.with_zeros(values) }
        };
        let counter = |name, help, labels: &[&'static str], values: &[&[&str]]| {
            with_zeros(Counter::new(name, help, of(labels)), values)
        };
        Self {
            per_config_monitor,
            is_leader: AtomicBool::new(true),
            states: Mutex::default(),
            restarts: counter(
                "configmonitor_restarts_total",
                "Finished restarts by outcome.",
                &["outcome"],
                &[&["Completed"], &["Superseded"]],
            ),
            pods_removed: counter(
                "configmonitor_pods_removed_total",
                "Pods that restarts have deleted or evicted, by method.",
                &["method"],
                &[&["Delete"], &["Evict"]],
            ),
            evictions_refused: counter(
                "configmonitor_evictions_refused_total",
                "Evictions that a PodDisruptionBudget refused.",
                &[],
                &[&[]],
            ),
            pods_skipped: counter(
                "configmonitor_pods_skipped_total",
                "Selected pods that finished restarts left alone, such as pods without a controller.",
                &[],
                &[&[]],
            ),
            first_deletion: Histogram::new(
                "configmonitor_first_deletion_delay_seconds",
                "Time from reading changed content to the first deletion of its restart, in whole seconds. Includes the quiet period.",
                Vec::new(),
                RESTART_BUCKETS,
            )
            .with_zeros(),
            restart_duration: Histogram::new(
                "configmonitor_restart_duration_seconds",
                "Time from the start of a restart to its end, in whole seconds.",
                Vec::new(),
                RESTART_BUCKETS,
            )
            .with_zeros(),
            status_conflicts: Counter::new(
                "configmonitor_status_conflicts_total",
                "Updates of a status that failed with a conflict.",
                Vec::new(),
            )
            .with_zeros(&[&[]]),
            requests: Counter::new(
                "configmonitor_api_requests_total",
                "Requests to the API server by verb, resource, and status code: none without an answer, canceled if the operator stopped waiting.",
                vec!["verb", "resource", "code"],
            ),
            request_duration: Histogram::new(
                "configmonitor_api_request_duration_seconds",
                "Time until the answer of the API server began.",
                vec!["verb", "resource"],
                REQUEST_BUCKETS,
            ),
            watch_restarts: Counter::new(
                "configmonitor_watch_restarts_total",
                "Watches that were opened again or listed again, by resource and reason.",
                vec!["resource", "reason"],
            ),
            watches: Mutex::default(),
            next_watch: AtomicU64::default(),
        }
    }

    /// Returns all metrics in Prometheus' text format. `is_synced` is the value of `configmonitor_synced`.
    #[must_use]
    pub fn text(&self, is_synced: bool) -> String {
        let mut out = String::new();
        let version = env!("CARGO_PKG_VERSION");
        Head::gauge("configmonitor_build_info", "Version of the operator.")
            .write(&mut out, [(vec![("version", version)], 1)]);
        Head::gauge(
            "configmonitor_leader",
            "1 if this process is the leader or runs without leader election, 0 if it stands by.",
        )
        .write(&mut out, [(Vec::new(), u8::from(self.is_leader.load(Ordering::Relaxed)))]);
        Head::gauge("configmonitor_synced", "1 if the process is ready, as at /readyz.")
            .write(&mut out, [(Vec::new(), u8::from(is_synced))]);
        self.write_states(&mut out);
        self.restarts.write(&mut out);
        self.pods_removed.write(&mut out);
        self.evictions_refused.write(&mut out);
        self.pods_skipped.write(&mut out);
        self.first_deletion.write(&mut out);
        self.restart_duration.write(&mut out);
        self.status_conflicts.write(&mut out);
        self.requests.write(&mut out);
        self.request_duration.write(&mut out);
        self.watch_restarts.write(&mut out);
        self.write_watches(&mut out);
        process::write(&mut out);
        out
    }

    fn write_states(&self, out: &mut String) {
        let states = lock(&self.states);
        let mut by_reason: BTreeMap<(&Option<Who>, &str), usize> = BTreeMap::new();
        let mut pending: BTreeMap<&Option<Who>, (usize, Option<ServerTime>)> = BTreeMap::new();
        for (MonitorState { who, reason, pending: since }, count) in &*states {
            *by_reason.entry((who, reason)).or_default() += count;
            if let Some(since) = *since {
                let (changes, oldest) = pending.entry(who).or_default();
                *changes += count;
                let since = Some(since).filter(|_| !DELAYED_BY_AUTHOR.contains(&&**reason));
                *oldest = since.into_iter().chain(*oldest).min();
            }
        }
        if pending.is_empty() && !self.per_config_monitor {
            pending.insert(&None, (0, None));
        }
        Head::gauge("configmonitor_configmonitors", "ConfigMonitors by the reason of their Ready condition.").write(
            out,
            by_reason.iter().map(|((who, reason), count)| ([vec![("reason", *reason)], labels(who)].concat(), count)),
        );
        Head::gauge("configmonitor_pending_changes", "Changes whose restart is not finished.")
            .write(out, pending.iter().map(|(who, (changes, _))| (labels(who), changes)));
        Head::gauge(
            "configmonitor_oldest_pending_change_timestamp_seconds",
            "Time at which the oldest pending change was first read. Changes that wait for suspend, windows or minIntervalSeconds do not count.",
        )
        .write(
            out,
            pending
                .iter()
                .filter_map(|(who, (_, oldest))| Some((labels(who), (*oldest)?.as_second()))),
        );
    }

    fn write_watches(&self, out: &mut String) {
        let watches = lock(&self.watches);
        let mut oldest: BTreeMap<&str, SystemTime> = BTreeMap::new();
        for (resource, last) in watches.values() {
            let oldest = oldest.entry(resource).or_insert(*last);
            *oldest = (*last).min(*oldest);
        }
        let seconds = |last: &SystemTime| last.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Head::gauge(
            "configmonitor_watch_last_activity_timestamp_seconds",
            "Time of the last line or list of the watch that has been silent for longest, by resource.",
        )
        .write(out, oldest.iter().map(|(resource, last)| (vec![("resource", *resource)], seconds(last))));
    }

    /// Sets whether this process is the leader.
    pub fn set_leader(&self, is_leader: bool) {
        self.is_leader.store(is_leader, Ordering::Relaxed);
    }

    /// Starts to measure a request. Without a call of [`Exchange::ended`] it counts as canceled.
    pub(crate) fn exchange(&self, verb: &'static str, resource: String) -> Exchange<'_> {
        Exchange { metrics: self, verb, resource, started: tokio::time::Instant::now(), code: "canceled".into() }
    }

    /// Counts a watch that is opened again or listed again.
    pub(crate) fn watch_restarted(&self, resource: &str, reason: &str) {
        self.watch_restarts.add(&[resource, reason], 1);
    }

    /// Counts an update of a status that failed with a conflict.
    pub(crate) fn status_conflict(&self) {
        self.status_conflicts.add(&[], 1);
    }
}

impl Pulse {
    /// Creates the record of a watch on this resource, which is active now.
    pub(crate) fn of(metrics: &Arc<Metrics>, resource: &'static str) -> Self {
        let number = metrics.next_watch.fetch_add(1, Ordering::Relaxed);
        lock(&metrics.watches).insert(number, (resource, SystemTime::now()));
        Self { metrics: Arc::clone(metrics), number }
    }

    /// Records activity: a page of a list, an event or a bookmark.
    pub(crate) fn beat(&self) {
        if let Some((_, last)) = lock(&self.metrics.watches).get_mut(&self.number) {
            *last = SystemTime::now();
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        lock(&self.metrics.watches).remove(&self.number);
    }
}

impl Exchange<'_> {
    /// Sets the label `code` to the status code, or to `none` if there was no answer.
    pub(crate) fn ended(&mut self, code: Option<u16>) {
        self.code = code.map_or("none".into(), |code| code.to_string().into());
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        self.metrics.requests.add(&[self.verb, &self.resource, &self.code], 1);
        self.metrics.request_duration.observe(&[self.verb, &self.resource], self.started.elapsed().as_secs_f64());
    }
}

impl Tally {
    /// Creates the counts of a ConfigMonitor whose state is not known yet.
    pub(crate) fn of(metrics: &Arc<Metrics>, namespace: &str, name: &Arc<str>) -> Self {
        let who = metrics.per_config_monitor.then(|| (namespace.into(), Arc::clone(name)));
        Self { metrics: Arc::clone(metrics), who, state: None }
    }

    /// Sets the reason of the Ready condition, and since when a change is pending.
    pub(crate) fn set_state(&mut self, reason: Cow<'static, str>, pending: Option<ServerTime>) {
        // Several changes in a row are pending since the first one.
        let earlier = self.state.as_ref().filter(|known| !DELAYED_BY_AUTHOR.contains(&&*known.reason));
        let earlier = earlier.and_then(|known| known.pending);
        let pending = pending.map(|since| earlier.map_or(since, |earlier| earlier.min(since)));
        if self.state.as_ref().is_some_and(|known| known.reason == reason && known.pending == pending) {
            return;
        }
        let state = MonitorState { who: self.who.clone(), reason, pending };
        let mut states = lock(&self.metrics.states);
        leave(&mut states, self.state.as_ref());
        *states.entry(state.clone()).or_default() += 1;
        drop(states);
        self.state = Some(state);
    }

    /// Counts a restart that has ended, `after` its start.
    pub(crate) fn restart_over(&self, outcome: &'static str, after: Duration) {
        self.count(&self.metrics.restarts, &[outcome], 1);
        self.metrics.restart_duration.observe(&[], after.as_secs_f64());
    }

    /// Counts a pod that was deleted or evicted.
    pub(crate) fn pod_removed(&self, method: &'static str) {
        self.count(&self.metrics.pods_removed, &[method], 1);
    }

    /// Counts the first deletion of a restart, `after` reading the changed content.
    pub(crate) fn first_deletion(&self, after: Duration) {
        self.metrics.first_deletion.observe(&[], after.as_secs_f64());
    }

    /// Counts an eviction that a PodDisruptionBudget refused.
    pub(crate) fn eviction_refused(&self) {
        self.count(&self.metrics.evictions_refused, &[], 1);
    }

    /// Counts the pods that a finished restart left alone.
    pub(crate) fn pods_skipped(&self, pods: usize) {
        self.count(&self.metrics.pods_skipped, &[], pods as u64);
    }

    fn count(&self, counter: &Counter, labels: &[&str], more: u64) {
        let who = self.who.as_ref().map(|(namespace, name)| [&**namespace, &**name]);
        counter.add(&[labels, who.as_ref().map_or(&[][..], |who| &who[..])].concat(), more);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        leave(&mut lock(&self.metrics.states), self.state.as_ref());
        if let Some((namespace, name)) = &self.who {
            let Metrics { restarts, pods_removed, evictions_refused, pods_skipped, .. } = &*self.metrics;
            for counter in [restarts, pods_removed, evictions_refused, pods_skipped] {
                counter.forget(&[namespace, name]);
            }
        }
    }
}

fn leave(states: &mut BTreeMap<MonitorState, usize>, state: Option<&MonitorState>) {
    let Some(state) = state else { return };
    if let Some(count) = states.get_mut(state) {
        *count -= 1;
        if *count == 0 {
            states.remove(state);
        }
    }
}

fn labels(who: &Option<Who>) -> Vec<(&str, &str)> {
    who.iter().flat_map(|(namespace, name)| [("namespace", &**namespace), ("name", &**name)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(metrics: &Arc<Metrics>, name: &str) -> Tally {
        Tally::of(metrics, "shop", &name.into())
    }

    fn lines_of(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.text(true);
        let is_of = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        text.lines().filter(is_of).map(str::to_owned).collect()
    }

    #[test]
    fn config_monitors_are_counted_by_reason_until_they_are_deleted() {
        let metrics = Arc::new(Metrics::new(false));
        let (mut one, mut other) = (tally(&metrics, "one"), tally(&metrics, "other"));
        let second = ServerTime::from_second;
        one.set_state("UpToDate".into(), None);
        other.set_state("UpToDate".into(), None);
        assert_eq!(
            lines_of(&metrics, "configmonitor_configmonitors"),
            ["configmonitor_configmonitors{reason=\"UpToDate\"} 2"]
        );
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 0"]);
        let oldest = "configmonitor_oldest_pending_change_timestamp_seconds";
        assert!(lines_of(&metrics, oldest).is_empty());
        one.set_state("QuietPeriod".into(), Some(second(9)));
        other.set_state("RestartInProgress".into(), Some(second(7)));
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 2"]);
        assert_eq!(lines_of(&metrics, oldest), [format!("{oldest} 7")]);
        other.set_state("Suspended".into(), Some(second(7)));
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 2"]);
        assert_eq!(lines_of(&metrics, oldest), [format!("{oldest} 9")]);
        other.set_state("Suspended".into(), None);
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 1"]);
        drop(other);
        assert_eq!(lines_of(&metrics, oldest), [format!("{oldest} 9")]);
        one.set_state("QuietPeriod".into(), Some(second(12)));
        assert_eq!(lines_of(&metrics, oldest), [format!("{oldest} 9")], "another change, while the first is pending");
        for reason in ["OutsideWindow", "MinInterval"] {
            one.set_state(reason.into(), Some(second(12)));
            assert!(lines_of(&metrics, oldest).is_empty(), "{reason} is a delay by the author");
            assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 1"]);
        }
        one.set_state("RestartInProgress".into(), Some(second(15)));
        assert_eq!(lines_of(&metrics, oldest), [format!("{oldest} 15")], "the time of the delay does not count");
        one.set_state("RestartBackOff".into(), Some(second(17)));
        assert_eq!(lines_of(&metrics, oldest), [format!("{oldest} 15")], "it is not delayed by its author");
        one.set_state("UpToDate".into(), None);
        one.set_state("QuietPeriod".into(), Some(second(20)));
        assert_eq!(lines_of(&metrics, oldest), [format!("{oldest} 20")]);
        assert_eq!(
            lines_of(&metrics, "configmonitor_configmonitors"),
            ["configmonitor_configmonitors{reason=\"QuietPeriod\"} 1"]
        );
    }

    #[test]
    fn with_metrics_per_config_monitor_each_has_series_of_its_own_until_it_is_deleted() {
        let metrics = Arc::new(Metrics::new(true));
        let (mut one, other) = (tally(&metrics, "one"), tally(&metrics, "other"));
        one.set_state("QuietPeriod".into(), Some(ServerTime::from_second(9)));
        one.pod_removed("Delete");
        other.pod_removed("Evict");
        assert_eq!(
            lines_of(&metrics, "configmonitor_configmonitors"),
            ["configmonitor_configmonitors{reason=\"QuietPeriod\",namespace=\"shop\",name=\"one\"} 1"]
        );
        let removed = "configmonitor_pods_removed_total";
        assert_eq!(lines_of(&metrics, removed).len(), 2);
        drop(one);
        assert_eq!(
            lines_of(&metrics, removed),
            [format!("{removed}{{method=\"Evict\",namespace=\"shop\",name=\"other\"}} 1")]
        );
        assert!(!metrics.text(true).contains("\"one\""));
    }

    #[test]
    fn restarts_count_their_end_their_pods_and_how_long_they_took() {
        let metrics = Arc::new(Metrics::new(false));
        let one = tally(&metrics, "one");
        one.first_deletion(Duration::from_secs(3));
        one.pod_removed("Evict");
        one.eviction_refused();
        one.pods_skipped(2);
        one.restart_over("Completed", Duration::from_secs(70));
        metrics.status_conflict();
        let text = metrics.text(true);
        for line in [
            "configmonitor_restarts_total{outcome=\"Completed\"} 1",
            "configmonitor_restarts_total{outcome=\"Superseded\"} 0",
            "configmonitor_pods_removed_total{method=\"Delete\"} 0",
            "configmonitor_pods_removed_total{method=\"Evict\"} 1",
            "configmonitor_evictions_refused_total 1",
            "configmonitor_pods_skipped_total 2",
            "configmonitor_first_deletion_delay_seconds_sum 3",
            "configmonitor_first_deletion_delay_seconds_count 1",
            "configmonitor_restart_duration_seconds_sum 70",
            "configmonitor_restart_duration_seconds_count 1",
            "configmonitor_status_conflicts_total 1",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in {text}");
        }
    }

    #[test]
    fn a_request_without_an_answer_is_counted_too() {
        let metrics = Metrics::new(false);
        metrics.exchange("list", "pods".to_owned()).ended(Some(200));
        metrics.exchange("list", "pods".to_owned()).ended(None);
        drop(metrics.exchange("list", "pods".to_owned()));
        assert_eq!(
            lines_of(&metrics, "configmonitor_api_requests_total"),
            [
                "configmonitor_api_requests_total{verb=\"list\",resource=\"pods\",code=\"200\"} 1",
                "configmonitor_api_requests_total{verb=\"list\",resource=\"pods\",code=\"canceled\"} 1",
                "configmonitor_api_requests_total{verb=\"list\",resource=\"pods\",code=\"none\"} 1",
            ]
        );
    }

    #[test]
    fn of_several_watches_the_one_that_has_been_silent_for_longest_counts() {
        let metrics = Arc::new(Metrics::new(false));
        let watches = [Pulse::of(&metrics, "secrets"), Pulse::of(&metrics, "secrets")];
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        for (_, last) in lock(&metrics.watches).values_mut() {
            *last = past;
        }
        let name = "configmonitor_watch_last_activity_timestamp_seconds";
        let oldest = format!("{name}{{resource=\"secrets\"}} 5");
        watches[1].beat();
        assert_eq!(lines_of(&metrics, name), [&*oldest]);
        watches[0].beat();
        assert_ne!(lines_of(&metrics, name), [oldest]);
        drop(watches);
        assert!(lines_of(&metrics, name).is_empty());
    }

    /// Compares the table in the docs: name, type, labels and help of each metric.
    #[test]
    fn every_metric_is_in_the_table_of_the_docs_and_nothing_else_is() {
        let metrics = Arc::new(Metrics::new(false));
        let mut one = tally(&metrics, "one");
        one.set_state("QuietPeriod".into(), Some(ServerTime::from_second(9)));
        drop(metrics.exchange("list", "pods".to_owned()));
        metrics.watch_restarted("pods", "Ended");
        let _watch = Pulse::of(&metrics, "secrets");
        let (text, mut rows) = (metrics.text(true), Vec::new());
        for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, help) = line.split_once(' ').expect("a help");
            let kind = text.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type");
            let sample = text.lines().find(|line| line.starts_with(name)).expect("a sample");
            let labels = sample.split_once('{').map_or("", |(_, rest)| rest.split_once('}').expect("an end").0);
            let labels = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name);
            let labels: Vec<String> = labels.filter(|name| *name != "le").map(|name| format!("`{name}`")).collect();
            rows.push(format!("| `{name}` | {kind} | {} | {help} |", labels.join(", ")));
        }
        let docs = include_str!("../../docs/operations.md");
        let is_of_the_operator = |line: &&str| ["| `configmonitor_", "| `process_"].iter().any(|is| line.starts_with(is));
        let table: Vec<&str> = docs.lines().filter(is_of_the_operator).collect();
        assert_eq!(table, rows, "{}", rows.join("\n"));
    }
}
