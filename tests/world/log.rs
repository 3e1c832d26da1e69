//! What somebody reads who follows the log of the operator.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::examples::{OTHER, SETTINGS, play_well, spec, story};
use crate::lines::Process::First;
use crate::lines::{Fate, What};
use crate::story::Move::{
    self, DeleteConfigMap, DisruptionBudgets, Edit, Lasting, NewPodsDoNotBecomeReady, Pass, Request, Scale,
};
use crate::story::{Edit as EditSpec, Pods};

thread_local! {
    /// What was written in this thread, if somebody wants to know. A story is played in one.
    static LOG: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// There is one subscriber for all threads: with one for each, lines are lost when some come and go.
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

/// The log of a story, without the times.
fn log(moves: &[Move]) -> String {
    SUBSCRIBED.call_once(|| {
        let is_wanted = dynamic_filter_fn(|_, _| LOG.with_borrow(Option::is_some));
        let lines = fmt::layer().without_time().with_ansi(false).with_target(false).with_writer(|| Writer);
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(is_wanted)).with(LevelFilter::INFO);
        tracing::subscriber::set_global_default(subscriber).expect("there is no other one");
    });
    LOG.set(Some(Vec::new()));
    play_well(&story(moves));
    String::from_utf8(LOG.take().unwrap_or_default()).unwrap()
}

/// What a story logs once its ConfigMonitor is known: how loud each line is and what it says, without what it is about. Pods that follow each other
/// are one line, and so are Events.
fn lines(moves: &[Move]) -> Vec<String> {
    let log = log(&[&[Pass(1000)], moves].concat());
    let gist = log.lines().map(|line| line.split(" namespace=").next().unwrap_or(line).trim().to_owned());
    let mut lines: Vec<String> = gist.collect();
    lines.dedup_by(|line, before| line == before && (line.contains(" pod ") || line.contains("Event")));
    let start: Vec<String> = lines.drain(..2).collect();
    assert_eq!(start, ["INFO synced config_monitors=1", "INFO baseline recorded"]);
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
fn a_restart_is_told_from_the_edit_to_its_end() {
    assert_eq!(lines(&[EDIT, Pass(5000)]), [DETECTED, STARTED, SKIPPED, DELETED, OVER]);
    let nothing = [Scale(1, 0), spec(EditSpec::Select(Pods::Back)), Pass(1000), EDIT, Pass(5000)];
    assert_eq!(lines(&nothing), [ATTENTION, DETECTED, "INFO no pod to restart"]);
}

#[test]
fn what_else_content_turns_out_to_be_is_told() {
    let quiet = spec(EditSpec::QuietPeriod(3));
    assert_eq!(lines(&[quiet, EDIT, Pass(500), BACK, Pass(5000)]), [DETECTED, "INFO modification undone"]);
    let halted = [quiet, NewPodsDoNotBecomeReady(true), EDIT, Pass(8000), BACK, Pass(8000)];
    let reverted = ["INFO modification reverted", STARTED, DELETED, OVER];
    assert_eq!(lines(&halted), [&[DETECTED, STARTED, SKIPPED, DELETED], &reverted[..]].concat());
    let another = [quiet, EDIT, Pass(500), spec(EditSpec::Source(OTHER)), Pass(8000)];
    let goes_on = "INFO sources in the spec changed; restart continues";
    assert_eq!(lines(&another), [DETECTED, goes_on, STARTED, SKIPPED, DELETED, OVER]);
}

/// What a restart logs if for its first 15 seconds requests of this kind fail.
fn failing(what: What, fate: Fate) -> Vec<String> {
    lines(&[Lasting(what, Some(fate)), EDIT, Pass(15_000), Lasting(what, None), Pass(60_000)])
}

#[test]
fn what_fails_again_and_again_is_told_once_and_so_is_that_it_works_again() {
    let restart = [DETECTED, STARTED, SKIPPED, DELETED, WORKING, OVER];
    let failed = "WARN reconcile failed; retrying";
    assert_eq!(failing(What::GetConfigMap, Fate::NotSent), [&[failed], &restart[..]].concat());
    let forbidden = [failed, ATTENTION];
    assert_eq!(failing(What::GetConfigMap, Fate::Forbidden), [&forbidden, &restart[..]].concat());
    let refused = [DETECTED, "WARN refused"];
    assert_eq!(failing(What::PutStatus, Fate::Denied(422)), [&refused, &restart[1..]].concat());
}

#[test]
fn that_somebody_else_has_written_is_not_told() {
    let conflict = Request(First, What::PutStatus, 1, Fate::Conflict);
    assert_eq!(lines(&[conflict, EDIT, Pass(5000)]), [DETECTED, STARTED, SKIPPED, DELETED, OVER]);
}

#[test]
fn what_hinders_a_restart_is_told_once_and_so_is_its_end() {
    let unhindered = ["INFO restart no longer blocked", OVER];
    let begun = [DETECTED, STARTED, SKIPPED];
    let hindered = ["WARN pods not deleted", ATTENTION, DELETED];
    assert_eq!(failing(What::Delete, Fate::Denied(403)), [&begun, &hindered, &unhindered[..]].concat());
    let hindered = [DELETED, "WARN desired replicas unknown; assuming the pods at the start of the restart"];
    assert_eq!(failing(What::GetOwner, Fate::Forbidden), [&begun, &hindered[..], &unhindered].concat());
    let hindered = [DELETED, "WARN pod watch failed; listing the pods periodically", OVER];
    assert_eq!(failing(What::Watch, Fate::Refused), [&begun, &hindered[..]].concat());
    let hindered = [DELETED, "WARN Event not emitted", OVER, "WARN Event not emitted"];
    assert_eq!(failing(What::Event, Fate::Refused), [&begun, &hindered[..]].concat());
}

/// A budget that lets one pod go after the other is as it should be, and one that lets none go is not.
#[test]
fn a_budget_in_the_way_of_evictions_is_told_if_nothing_moves() {
    let evict = |budget| [spec(EditSpec::Evict(true)), DisruptionBudgets([Some(budget), None]), EDIT, Pass(60_000)];
    assert_eq!(lines(&evict(5)), [DETECTED, STARTED, SKIPPED, DELETED, OVER]);
    let held = ["WARN pods not deleted", ATTENTION];
    assert_eq!(lines(&evict(99))[..5], [&[DETECTED, STARTED, SKIPPED], &held[..]].concat());
}

#[test]
fn a_config_map_that_is_not_there_is_told_at_once() {
    assert_eq!(lines(&[DeleteConfigMap(SETTINGS), Pass(5000)])[..1], [ATTENTION]);
}

#[test]
fn pods_that_are_not_deleted_are_named() {
    let log = log(&[Pass(1000), Lasting(What::Delete, Some(Fate::Denied(403))), EDIT, Pass(5000)]);
    assert!(log.contains("not deleted: web-104, web-105, db-0, db-1, log-108; "), "{log}");
}

#[test]
fn a_keeper_that_panics_is_told_and_started_anew() {
    let panic = Request(First, What::GetConfigMap, 1, Fate::Panic);
    let restart = [DETECTED, STARTED, SKIPPED, DELETED, OVER];
    assert_eq!(lines(&[panic, EDIT, Pass(15_000)]), [&["ERROR keeper panicked; restarting it"], &restart[..]].concat());
}
