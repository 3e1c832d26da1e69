//! The metrics of the operator. `docs/operations.md` lists them.
//!
//! Labels are bounded: no label names a pod. They name the ConfigMonitors that need a person, up to `MOST_NAMED`, and the one
//! with the oldest pending change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::kube::meter::{Meter, Pulse};
use crate::kube::{ServerTime, lock};

/// The media type of [`Metrics::text`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The values of the label `outcome`.
const OUTCOMES: [&str; 2] = ["Completed", "Superseded"];
/// The values of the label `method`.
const METHODS: [&str; 2] = ["Delete", "Evict"];
/// Buckets for requests to the API server, in seconds.
const REQUEST_BUCKETS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Buckets for restarts, in seconds, up to an hour.
const RESTART_BUCKETS: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// The most series of `configmonitor_needs_attention`.
const MOST_NAMED: usize = 200;

/// A label with its value.
type Label = (&'static str, Cow<'static, str>);
/// The labels that name a ConfigMonitor.
type Who = Vec<(&'static str, Arc<str>)>;
/// The namespace and the name of a ConfigMonitor.
type Key = (Arc<str>, Arc<str>);
type States = BTreeMap<Key, MonitorState>;

/// The metrics of one process.
pub struct Metrics {
    registry: Registry,
    is_leader: Gauge,
    is_synced: Gauge,
    config_monitors: Family<[Label; 1], Gauge>,
    needs_attention: Family<([Label; 1], Who), Gauge>,
    pending_changes: Gauge,
    oldest_pending_change: Family<Who, Gauge>,
    ten_restarts: Family<Who, Gauge>,
    restarts: Family<[Label; 1], Counter>,
    pods_removed: Family<[Label; 1], Counter>,
    evictions_refused: Counter,
    first_deletion: Histogram,
    restart_duration: Histogram,
    oldest_handed_over: Family<Who, Gauge>,
    requests: Family<[Label; 3], Counter>,
    request_duration: Family<[Label; 2], Histogram>,
    watch_restarts: Family<[Label; 2], Counter>,
    watch_activity: Family<[Label; 1], Gauge<f64, AtomicU64>>,
    states: Mutex<States>,
    /// By namespace, since when the first of the pods is handed over that are.
    first_handed_over: Mutex<BTreeMap<Arc<str>, ServerTime>>,
    /// The resource and the last activity of each open watch.
    watches: Mutex<Vec<(&'static str, Weak<Pulse>)>>,
}

/// The state of a ConfigMonitor as the gauges show it.
pub(crate) struct MonitorState {
    /// That of the Ready condition.
    pub(crate) reason: Cow<'static, str>,
    /// When the pending change was first read, if one is pending.
    pub(crate) pending: Option<ServerTime>,
    /// When the last but nine restarts began.
    pub(crate) ten_since: Option<ServerTime>,
    pub(crate) is_delayed_by_author: bool,
    pub(crate) needs_attention: bool,
    pub(crate) is_stalled: bool,
}

/// Counts for one ConfigMonitor. Dropping this value removes the ConfigMonitor from the gauges.
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    key: Key,
}

impl MonitorState {
    /// Since when a change has been pending, unless the author of the ConfigMonitor delays its restart.
    fn waiting_since(&self) -> Option<ServerTime> {
        self.pending.filter(|_| !self.is_delayed_by_author)
    }
}

impl Default for Metrics {
    /// Counts nothing yet.
    fn default() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        // The registry appends a full stop to each help, and `_total` to the name of each counter.
        let build: Family<[Label; 1], Gauge> = new(r, "configmonitor_build_info", "Version of the operator");
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION").into())]).set(1);
        let metrics = Self {
            is_leader: new(
                r,
                "configmonitor_leader",
                "1 if this process is the leader or runs without leader election, 0 if it stands by",
            ),
            is_synced: new(r, "configmonitor_synced", "1 if the process is ready, as at /readyz"),
            config_monitors: new(
                r,
                "configmonitor_configmonitors",
                "ConfigMonitors by the reason of their Ready condition",
            ),
            needs_attention: new(
                r,
                "configmonitor_needs_attention",
                "1 for each ConfigMonitor that needs a person, by the reason of its Ready condition; at most 200, stalled ones first",
            ),
            pending_changes: new(r, "configmonitor_pending_changes", "Changes whose restart is not finished"),
            oldest_pending_change: new(
                r,
                "configmonitor_oldest_pending_change_timestamp_seconds",
                "Time at which the oldest pending change was first read. Changes that wait for suspend, windows or minIntervalSeconds do not count",
            ),
            ten_restarts: new(
                r,
                "configmonitor_ten_restarts_timestamp_seconds",
                "Start of the tenth last restart of the ConfigMonitor that restarts most often",
            ),
            restarts: new(r, "configmonitor_restarts", "Finished restarts by outcome"),
            pods_removed: new(r, "configmonitor_pods_removed", "Pods that restarts have deleted or evicted, by method"),
            evictions_refused: new(
                r,
                "configmonitor_evictions_refused",
                "Evictions that a PodDisruptionBudget refused",
            ),
            first_deletion: add(
                r,
                "configmonitor_first_deletion_delay_seconds",
                "Time from reading changed content to the first deletion of its restart, or the first pod that it hands over, in whole seconds. Includes the quiet period",
                Histogram::new(RESTART_BUCKETS),
            ),
            restart_duration: add(
                r,
                "configmonitor_restart_duration_seconds",
                "Time from the start of a restart to its end, in whole seconds",
                Histogram::new(RESTART_BUCKETS),
            ),
            oldest_handed_over: new(
                r,
                "configmonitor_oldest_handed_over_timestamp_seconds",
                "Time since which the first of the pods that are handed over and not deleted yet has been",
            ),
            requests: new(
                r,
                "configmonitor_api_requests",
                "Requests to the API server by verb, resource, and status code: none without an answer",
            ),
            request_duration: add(
                r,
                "configmonitor_api_request_duration_seconds",
                "Time until the answer of the API server began",
                Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            ),
            watch_restarts: new(
                r,
                "configmonitor_watch_restarts",
                "Watches that were opened again or listed again, by resource and reason",
            ),
            watch_activity: new(
                r,
                "configmonitor_watch_last_activity_timestamp_seconds",
                "Time of the last line or list of the watch that has been silent for longest, by resource",
            ),
            states: Mutex::default(),
            first_handed_over: Mutex::default(),
            watches: Mutex::default(),
            registry,
        };
        metrics.set_leader(true);
        // For Prometheus, a series that appears with the value 1 has not increased.
        OUTCOMES.iter().for_each(|outcome| drop(metrics.restarts.get_or_create(&[("outcome", (*outcome).into())])));
        METHODS.iter().for_each(|method| drop(metrics.pods_removed.get_or_create(&[("method", (*method).into())])));
        metrics
    }
}

impl Metrics {
    /// Sets since when the first of the pods of a namespace is handed over that are.
    pub(crate) fn set_handed_over(&self, namespace: &str, oldest: Option<ServerTime>) {
        let mut all = lock(&self.first_handed_over);
        match oldest {
            Some(oldest) => drop(all.insert(namespace.into(), oldest)),
            None => drop(all.remove(namespace)),
        }
        self.oldest_handed_over.clear();
        if let Some(oldest) = all.values().min() {
            self.oldest_handed_over.get_or_create(&Who::new()).set(oldest.as_second());
        }
    }

    /// All metrics as OpenMetrics text. `is_synced` is the value of `configmonitor_synced`.
    #[must_use]
    pub fn text(&self, is_synced: bool) -> String {
        // Locked until the text is written, so that no other scrape clears the gauges meanwhile.
        let states = lock(&self.states);
        self.is_synced.set(is_synced.into());
        self.show_states(&states);
        self.show_watches();
        let mut text = String::new();
        // Writing into a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn show_states(&self, states: &States) {
        self.config_monitors.clear();
        self.needs_attention.clear();
        self.oldest_pending_change.clear();
        let pending = states.values().filter(|state| state.pending.is_some());
        self.pending_changes.set(i64::try_from(pending.count()).unwrap_or(i64::MAX));
        let waiting = states.iter().filter_map(|(key, state)| Some((state.waiting_since()?.as_second(), key)));
        if let Some((since, key)) = waiting.min() {
            self.oldest_pending_change.get_or_create(&named(key)).set(since);
        }
        self.ten_restarts.clear();
        let busy = states.iter().filter_map(|(key, state)| Some((state.ten_since?.as_second(), key)));
        if let Some((since, key)) = busy.max() {
            self.ten_restarts.get_or_create(&named(key)).set(since);
        }
        let needy =
            |stalled| states.iter().filter(move |(_, state)| state.needs_attention && state.is_stalled == stalled);
        for (key, state) in needy(true).chain(needy(false)).take(MOST_NAMED) {
            self.needs_attention.get_or_create(&([("reason", state.reason.clone())], named(key))).set(1);
        }
        for state in states.values() {
            self.config_monitors.get_or_create(&[("reason", state.reason.clone())]).inc();
        }
    }

    fn show_watches(&self) {
        self.watch_activity.clear();
        for (resource, last) in &*lock(&self.watches) {
            let Some(last) = last.upgrade() else { continue };
            let labels = [("resource", (*resource).into())];
            let oldest = self.watch_activity.get(&labels).map_or(f64::INFINITY, |oldest| oldest.get());
            let last = Duration::from_millis(last.0.load(Ordering::Relaxed)).as_secs_f64();
            self.watch_activity.get_or_create(&labels).set(last.min(oldest));
        }
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.is_leader.set(is_leader.into());
    }
}

impl Meter for Metrics {
    fn requested(&self, verb: &'static str, resource: String, code: Cow<'static, str>, after: Duration) {
        let (verb, resource) = (("verb", verb.into()), ("resource", resource.into()));
        let duration = self.request_duration.get_or_create(&[verb.clone(), resource.clone()]);
        duration.observe(after.as_secs_f64());
        self.requests.get_or_create(&[verb, resource, ("code", code)]).inc();
    }

    fn watch_opened(&self, resource: &'static str, pulse: &Arc<Pulse>) {
        let mut watches = lock(&self.watches);
        watches.retain(|(_, last)| last.strong_count() > 0);
        watches.push((resource, Arc::downgrade(pulse)));
    }

    fn watch_restarted(&self, resource: &'static str, reason: &'static str) {
        self.watch_restarts.get_or_create(&[("resource", resource.into()), ("reason", reason.into())]).inc();
    }
}

impl Tally {
    pub(crate) fn of(metrics: &Arc<Metrics>, namespace: &str, name: &Arc<str>) -> Self {
        Self { metrics: Arc::clone(metrics), key: (namespace.into(), Arc::clone(name)) }
    }

    pub(crate) fn set_state(&mut self, state: MonitorState) {
        let mut states = lock(&self.metrics.states);
        // Several changes in a row are pending since the first one.
        let earlier = states.get(&self.key).and_then(MonitorState::waiting_since);
        let pending = state.pending.map(|since| earlier.map_or(since, |earlier| earlier.min(since)));
        states.insert(self.key.clone(), MonitorState { pending, ..state });
    }

    /// Counts a restart that has ended, `after` its start.
    pub(crate) fn restart_over(&self, outcome: &'static str, after: Duration) {
        self.metrics.restarts.get_or_create(&[("outcome", outcome.into())]).inc();
        self.metrics.restart_duration.observe(after.as_secs_f64());
    }

    pub(crate) fn pods_removed(&self, method: &'static str, pods: usize) {
        self.metrics.pods_removed.get_or_create(&[("method", method.into())]).inc_by(pods as u64);
    }

    /// Counts the first deletion of a restart, or the first pod that it hands over, `after` reading the changed content.
    pub(crate) fn first_deletion(&self, after: Duration) {
        self.metrics.first_deletion.observe(after.as_secs_f64());
    }

    pub(crate) fn eviction_refused(&self) {
        self.metrics.evictions_refused.inc();
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        lock(&self.metrics.states).remove(&self.key);
    }
}

fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    add(registry, name, help, M::default())
}

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn named((namespace, name): &Key) -> Who {
    vec![("namespace", Arc::clone(namespace)), ("name", Arc::clone(name))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::reason::{Holds, Reason};

    fn tally(metrics: &Arc<Metrics>, name: &str) -> Tally {
        Tally::of(metrics, "shop", &name.into())
    }

    fn set(tally: &mut Tally, reason: Reason, pending: Option<ServerTime>) {
        tally.set_state(MonitorState {
            reason: reason.word().into(),
            pending,
            ten_since: pending,
            is_delayed_by_author: reason.is_delay_by_author(),
            needs_attention: reason.needs_attention(),
            is_stalled: reason.holds() == Holds::Stalled,
        });
    }

    fn lines_of(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.text(true);
        let is_of = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        let mut lines: Vec<String> = text.lines().filter(is_of).map(|line| line.replace("{}", "")).collect();
        lines.sort();
        lines
    }

    #[test]
    fn config_monitors_are_counted_by_reason_until_they_are_deleted() {
        let metrics = Arc::new(Metrics::default());
        let (mut one, mut other) = (tally(&metrics, "one"), tally(&metrics, "other"));
        let second = ServerTime::from_second;
        set(&mut one, Reason::UpToDate, None);
        set(&mut other, Reason::UpToDate, None);
        assert_eq!(
            lines_of(&metrics, "configmonitor_configmonitors"),
            ["configmonitor_configmonitors{reason=\"UpToDate\"} 2"]
        );
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 0"]);
        let oldest = "configmonitor_oldest_pending_change_timestamp_seconds";
        let line = |name: &str, since: i64| format!("{oldest}{{namespace=\"shop\",name=\"{name}\"}} {since}");
        assert!(lines_of(&metrics, oldest).is_empty());
        set(&mut one, Reason::QuietPeriod, Some(second(9)));
        set(&mut other, Reason::RestartInProgress, Some(second(7)));
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 2"]);
        assert_eq!(lines_of(&metrics, oldest), [line("other", 7)]);
        let busiest = "configmonitor_ten_restarts_timestamp_seconds";
        assert_eq!(lines_of(&metrics, busiest), [line("one", 9).replace(oldest, busiest)], "the latest such time");
        set(&mut other, Reason::Suspended, Some(second(7)));
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 2"]);
        assert_eq!(lines_of(&metrics, oldest), [line("one", 9)]);
        set(&mut other, Reason::Suspended, None);
        assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 1"]);
        drop(other);
        assert_eq!(lines_of(&metrics, oldest), [line("one", 9)]);
        set(&mut one, Reason::QuietPeriod, Some(second(12)));
        assert_eq!(lines_of(&metrics, oldest), [line("one", 9)], "another change, while the first is pending");
        for reason in [Reason::OutsideWindow, Reason::MinInterval] {
            set(&mut one, reason, Some(second(12)));
            assert!(lines_of(&metrics, oldest).is_empty(), "{reason:?} is a delay by the author");
            assert_eq!(lines_of(&metrics, "configmonitor_pending_changes"), ["configmonitor_pending_changes 1"]);
        }
        set(&mut one, Reason::RestartInProgress, Some(second(15)));
        assert_eq!(lines_of(&metrics, oldest), [line("one", 15)], "the time of the delay does not count");
        set(&mut one, Reason::RestartBackOff, Some(second(17)));
        assert_eq!(lines_of(&metrics, oldest), [line("one", 15)], "it is not delayed by its author");
        set(&mut one, Reason::UpToDate, None);
        set(&mut one, Reason::QuietPeriod, Some(second(20)));
        assert_eq!(lines_of(&metrics, oldest), [line("one", 20)]);
        assert_eq!(
            lines_of(&metrics, "configmonitor_configmonitors"),
            ["configmonitor_configmonitors{reason=\"QuietPeriod\"} 1"]
        );
    }

    #[test]
    fn who_needs_a_person_is_named_up_to_a_limit() {
        let metrics = Arc::new(Metrics::default());
        let mut needy: Vec<Tally> = (0..=MOST_NAMED).map(|n| tally(&metrics, &format!("m{n:03}"))).collect();
        needy.iter_mut().for_each(|one| set(one, Reason::KeyNotFound, None));
        set(&mut needy[MOST_NAMED], Reason::CanaryFailed, None);
        let mut fine = tally(&metrics, "a");
        set(&mut fine, Reason::RestartInProgress, None);
        let lines = lines_of(&metrics, "configmonitor_needs_attention");
        let first = "configmonitor_needs_attention{reason=\"CanaryFailed\",namespace=\"shop\",name=\"m200\"} 1";
        assert_eq!((&*lines[0], lines.len()), (first, MOST_NAMED));
    }

    #[test]
    fn restarts_count_their_end_their_pods_and_how_long_they_took() {
        let metrics = Arc::new(Metrics::default());
        let one = tally(&metrics, "one");
        one.first_deletion(Duration::from_secs(3));
        one.pods_removed("Evict", 1);
        one.eviction_refused();
        one.restart_over("Completed", Duration::from_secs(70));
        let text = metrics.text(true).replace("{}", "");
        for line in [
            "configmonitor_restarts_total{outcome=\"Completed\"} 1",
            "configmonitor_restarts_total{outcome=\"Superseded\"} 0",
            "configmonitor_pods_removed_total{method=\"Delete\"} 0",
            "configmonitor_pods_removed_total{method=\"Evict\"} 1",
            "configmonitor_evictions_refused_total 1",
            "configmonitor_first_deletion_delay_seconds_sum 3.0",
            "configmonitor_first_deletion_delay_seconds_count 1",
            "configmonitor_restart_duration_seconds_sum 70.0",
            "configmonitor_restart_duration_seconds_count 1",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in {text}");
        }
    }

    #[test]
    fn a_request_without_an_answer_is_counted_too() {
        let metrics = Metrics::default();
        metrics.requested("list", "pods".into(), "200".into(), Duration::ZERO);
        metrics.requested("list", "pods".into(), "none".into(), Duration::ZERO);
        assert_eq!(
            lines_of(&metrics, "configmonitor_api_requests_total"),
            [
                "configmonitor_api_requests_total{verb=\"list\",resource=\"pods\",code=\"200\"} 1",
                "configmonitor_api_requests_total{verb=\"list\",resource=\"pods\",code=\"none\"} 1",
            ]
        );
    }

    #[test]
    fn of_several_watches_the_one_that_has_been_silent_for_longest_counts() {
        let metrics = Arc::new(Metrics::default());
        let watches = [Pulse::of(&*metrics, "secrets"), Pulse::of(&*metrics, "secrets")];
        watches.iter().for_each(|watch| watch.0.store(5000, Ordering::Relaxed));
        let name = "configmonitor_watch_last_activity_timestamp_seconds";
        let oldest = format!("{name}{{resource=\"secrets\"}} 5.0");
        watches[1].beat();
        assert_eq!(lines_of(&metrics, name), [&*oldest]);
        watches[0].beat();
        assert_ne!(lines_of(&metrics, name), [oldest]);
        drop(watches);
        assert!(lines_of(&metrics, name).is_empty());
    }

    #[test]
    fn of_the_pods_that_are_handed_over_the_oldest_counts_in_whatever_namespace() {
        let metrics = Metrics::default();
        let oldest = || lines_of(&metrics, "configmonitor_oldest_handed_over_timestamp_seconds");
        assert!(oldest().is_empty());
        metrics.set_handed_over("shop", Some(ServerTime::from_second(9)));
        metrics.set_handed_over("billing", Some(ServerTime::from_second(7)));
        assert_eq!(oldest(), ["configmonitor_oldest_handed_over_timestamp_seconds 7"]);
        metrics.set_handed_over("billing", None);
        assert_eq!(oldest(), ["configmonitor_oldest_handed_over_timestamp_seconds 9"]);
    }

    /// Compares the table in the docs: name, type, labels and help of each metric.
    #[test]
    fn every_metric_is_in_the_table_of_the_docs_and_nothing_else_is() {
        let metrics = Arc::new(Metrics::default());
        let mut one = tally(&metrics, "one");
        set(&mut one, Reason::QuietPeriod, Some(ServerTime::from_second(9)));
        let mut other = tally(&metrics, "other");
        set(&mut other, Reason::Forbidden, None);
        metrics.requested("list", "pods".into(), "200".into(), Duration::ZERO);
        metrics.watch_restarted("pods", "Ended");
        metrics.set_handed_over("shop", Some(ServerTime::from_second(9)));
        let _watch = Pulse::of(&*metrics, "secrets");
        let (text, mut rows) = (metrics.text(true), Vec::new());
        for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, help) = line.split_once(' ').expect("a help");
            let kind = text.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type");
            let sample = text.lines().find(|line| line.starts_with(name)).expect("a sample");
            let labels = sample.split_once('{').map_or("", |(_, rest)| rest.split_once('}').expect("an end").0);
            let labels = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name);
            let labels: Vec<String> = labels.filter(|name| *name != "le").map(|name| format!("`{name}`")).collect();
            let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
            rows.push(format!("| `{name}` | {kind} | {} | {help} |", labels.join(", ")));
        }
        let docs = include_str!("../docs/operations.md");
        let table: Vec<&str> = docs.lines().filter(|line| line.starts_with("| `configmonitor_")).collect();
        assert_eq!(table, rows, "{}", rows.join("\n"));
    }
}
