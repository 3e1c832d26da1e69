//! What the operator's log says.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::examples::{OTHER, SETTINGS, play_well, spec, story};
use crate::story::Move::{
    self, DeleteConfigMap, DisruptionBudgets, Edit, Lasting, NewPodsStayUnready, Request, Scale, Wait, Watch,
};
use crate::story::{Edit as EditSpec, Pods};
use simulated_cluster::network::Process::First;
use simulated_cluster::network::{Fate, RequestKind, WatchFault, Watched};

thread_local! {
    /// The log of this thread, if a test reads it. A story runs in one thread.
    static LOG: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// One subscriber serves all threads: with one for each thread, lines are lost when threads come and go.
static SUBSCRIBED: Once = Once::new();

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.iter_mut().for_each(|log| log.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the log of a story, without the times.
fn log(moves: &[Move]) -> String {
    SUBSCRIBED.call_once(|| {
        let is_wanted = dynamic_filter_fn(|_, _| LOG.with_borrow(Option::is_some));
        let lines = fmt::layer().compact().without_time().with_ansi(false).with_target(false).with_writer(|| Writer);
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(is_wanted)).with(LevelFilter::INFO);
        tracing::subscriber::set_global_default(subscriber).expect("there is no other one");
    });
    LOG.set(Some(Vec::new()));
    play_well(&story(moves));
    String::from_utf8(LOG.take().unwrap_or_default()).unwrap()
}

/// Returns the lines that a story logs after the baseline: level and message, without the fields. Consecutive lines
/// about pods, or about Events, count as one.
fn lines(moves: &[Move]) -> Vec<String> {
    let log = log(&[&[Wait(1000)], moves].concat());
    let gist = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.contains('=')).collect();
        let is_about_monitor = [" namespace=\"", " monitor=\""].iter().all(|field| line.contains(field));
        assert!(is_about_monitor || words.ends_with(&["synced"]), "{line}");
        words.join(" ").replace("reconcile: ", "")
    };
    let mut lines: Vec<String> = log.lines().map(gist).collect();
    lines.dedup_by(|line, before| line == before && (line.contains(" pod ") || line.contains("Event")));
    let start: Vec<String> = lines.drain(..2).collect();
    assert_eq!(start, ["INFO synced", "INFO baseline recorded"]);
    lines
}

const EDIT: Move = Edit(SETTINGS, 'b');
const BACK: Move = Edit(SETTINGS, 'a');

const DETECTED: &str = "INFO modification detected";
const STARTED: &str = "INFO restart started";
const SKIPPED: &str = "WARN pod skipped";
const DELETED: &str = "INFO pod deleted";
const OVER: &str = "INFO restart over";
const WORKING: &str = "INFO working again";
const ATTENTION: &str = "WARN attention needed";

#[test]
fn a_restart_is_logged_from_the_edit_to_its_end() {
    assert_eq!(lines(&[EDIT, Wait(5000)]), [DETECTED, STARTED, SKIPPED, DELETED, OVER]);
    let nothing = [Scale(1, 0), Wait(1000), spec(EditSpec::Select(Pods::Back)), Wait(1000), EDIT, Wait(5000)];
    assert_eq!(lines(&nothing), [ATTENTION, DETECTED, "INFO no pod to restart"]);
}

#[test]
fn a_revert_and_an_edit_of_the_source_are_logged() {
    let quiet = spec(EditSpec::QuietPeriod(3));
    assert_eq!(
        lines(&[quiet, EDIT, Wait(500), BACK, Wait(5000)]),
        [DETECTED, "INFO modification reverted", "INFO no pod to restart"]
    );
    let halted = [quiet, NewPodsStayUnready(true), EDIT, Wait(8000), BACK, Wait(8000)];
    let reverted = ["INFO modification reverted", STARTED, DELETED, OVER];
    assert_eq!(lines(&halted), [&[DETECTED, STARTED, SKIPPED, DELETED], &reverted[..]].concat());
    let another = [quiet, EDIT, Wait(500), spec(EditSpec::Source(OTHER)), Wait(8000)];
    assert_eq!(lines(&another), [DETECTED, "INFO baseline recorded"]);
}

/// Returns the log of a restart in which requests of this kind fail for the first 15 s.
fn failing(what: RequestKind, fate: Fate) -> Vec<String> {
    lines(&[Lasting(what, Some(fate)), EDIT, Wait(15_000), Lasting(what, None), Wait(60_000)])
}

#[test]
fn a_repeated_failure_is_logged_once_and_so_is_its_end() {
    let restart = [DETECTED, STARTED, SKIPPED, DELETED, WORKING, OVER];
    let failed = "WARN reconcile failed; retrying";
    assert_eq!(failing(RequestKind::GetConfigMap, Fate::NotSent), [&[failed], &restart[..]].concat());
    let forbidden = [failed, ATTENTION];
    assert_eq!(failing(RequestKind::GetConfigMap, Fate::Forbidden), [&forbidden, &restart[..]].concat());
    let refused = [DETECTED, "WARN refused"];
    assert_eq!(failing(RequestKind::PutStatus, Fate::Denied(422)), [&refused, &restart[1..]].concat());
}

#[test]
fn conflicts_and_expired_versions_are_not_logged() {
    let conflict = Request(First, RequestKind::PutStatus, 1, Fate::Conflict);
    let expired = [Watched::ConfigMaps, Watched::Monitors].map(|watched| Watch(First, watched, WatchFault::Expire));
    let moves = [&[conflict][..], &expired, &[EDIT, Wait(5000)]].concat();
    assert_eq!(lines(&moves), [DETECTED, STARTED, SKIPPED, DELETED, OVER]);
}

#[test]
fn an_obstacle_to_a_restart_is_logged_once() {
    let begun = [DETECTED, STARTED, SKIPPED];
    let hindered = [ATTENTION, DELETED, OVER];
    assert_eq!(failing(RequestKind::Delete, Fate::Denied(403)), [&begun, &hindered[..]].concat());
    let hindered = [DELETED, "WARN desired replicas unknown; assuming the pods at the start of the restart", OVER];
    assert_eq!(failing(RequestKind::GetOwner, Fate::Forbidden), [&begun, &hindered[..]].concat());
    let hindered = [DELETED, "WARN pod watch failed; listing the pods periodically", OVER];
    assert_eq!(failing(RequestKind::Watch, Fate::Refused), [&begun, &hindered[..]].concat());
    let hindered = [DELETED, "WARN Event not emitted", OVER, "WARN Event not emitted"];
    assert_eq!(failing(RequestKind::Event, Fate::Refused), [&begun, &hindered[..]].concat());
}

/// A budget that allows one pod after the other is normal; one that allows none needs attention.
#[test]
fn a_disruption_budget_is_logged_only_if_it_allows_no_eviction() {
    let evict = |budget| [spec(EditSpec::Evict(true)), DisruptionBudgets([Some(budget), None]), EDIT, Wait(60_000)];
    assert_eq!(lines(&evict(5)), [DETECTED, STARTED, SKIPPED, DELETED, OVER]);
    assert_eq!(lines(&evict(99))[..4], [DETECTED, STARTED, SKIPPED, ATTENTION]);
}

#[test]
fn a_missing_config_map_is_logged_at_once() {
    assert_eq!(lines(&[DeleteConfigMap(SETTINGS), Wait(5000)])[..1], [ATTENTION]);
}

#[test]
fn pods_that_are_not_deleted_are_named() {
    let log = log(&[Wait(1000), Lasting(RequestKind::Delete, Some(Fate::Denied(403))), EDIT, Wait(5000)]);
    assert!(log.contains("not deleted: frontend-a-104, frontend-a-105, db-0, db-1, log-108; "), "{log}");
}

#[test]
fn a_panic_of_a_keeper_is_logged_and_the_keeper_starts_anew() {
    let panic = Request(First, RequestKind::GetConfigMap, 1, Fate::Panic);
    let restart = [DETECTED, STARTED, SKIPPED, DELETED, OVER];
    assert_eq!(lines(&[panic, EDIT, Wait(45_000)]), [&["ERROR keeper panicked; restarting it"], &restart[..]].concat());
}
