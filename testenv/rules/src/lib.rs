//! What holds of every restart, judged from what was written: the statuses, Events and requests of a ConfigMonitor, the
//! pods and their owners.
//!
//! The simulation feeds its ledger to these rules (`tests/simulation`), and so do the tests on a real control plane with
//! etcd's history (`testenv/tests/operator/nightly/chaos`).

// The fields are those of the API, or say what happened.
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod budget;
pub mod journal;
pub mod pod;
pub mod reported;
pub mod status;
pub mod when;

use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::monitor::spec::Spec;

use self::status::{Change, Entry, Restart, SourceStatus, Status};

/// The API server's clock shows whole seconds, so two events shown in adjacent seconds may have happened in either
/// order.
pub const A_SECOND: Duration = Duration::from_secs(1);

/// A moment of a history. No two events have the same step, which is the revision in etcd's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub step: u64,
    pub ms: u64,
}

impl Moment {
    /// Returns the time on the API server's clock.
    #[must_use]
    pub fn second(self) -> ServerTime {
        ServerTime::from_second((self.ms / 1000).cast_signed())
    }
}

/// A status that was written.
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Moment,
    pub spec: Spec,
    pub before: Status,
    pub after: Status,
    /// When a restore undid this write.
    pub undone: Option<Moment>,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub at: Moment,
    pub reason: String,
}

/// What was written about one ConfigMonitor, in order.
pub struct Account<'a> {
    pub writes: Vec<&'a Write>,
    /// When a restart was requested, and with which value; once more when the operator could not know that it had
    /// handled the request.
    pub requests: &'a [(Moment, String)],
    /// When the status was wiped, and when a restore undid that.
    pub wiped: &'a [(Moment, Option<Moment>)],
    /// By how much clocks may differ.
    pub skew: Duration,
}

/// A rule about one ConfigMonitor. Returns how the rule is broken.
pub type Rule = fn(&Account<'_>) -> Result<(), String>;

pub const RULES: [(&str, Rule); 12] = [
    ("Ready means that nothing is pending", reported::ready_means_that_nothing_is_pending),
    ("a ConfigMonitor begins with a baseline", reported::a_config_monitor_begins_with_a_baseline),
    ("the journal is appended to", journal::the_journal_is_appended_to),
    ("the journal is in order", journal::the_journal_is_in_order),
    ("a restart marks the last contents", journal::a_restart_marks_the_last_contents),
    ("a restart has a number and ends in the history", journal::a_restart_has_a_number_and_ends_in_the_history),
    ("a restart begins in a window", when::a_restart_begins_in_a_window),
    ("a restart begins once the interval is over", when::a_restart_begins_once_the_interval_is_over),
    ("a loop of restarts is held", when::a_loop_of_restarts_is_held),
    ("the outcome of canaries is final", when::the_outcome_of_canaries_is_final),
    ("a request is handled once", when::a_request_is_handled_once),
    ("other content counts after its quiet period", when::other_content_counts_after_its_quiet_period),
];

impl Account<'_> {
    pub fn broken(&self) -> impl Iterator<Item = String> {
        RULES.iter().filter_map(|(name, rule)| Some(format!("{name}: {}", rule(self).err()?)))
    }
}

impl Write {
    /// Returns the restart that begins with this write.
    #[must_use]
    pub fn start(&self) -> Option<&Restart> {
        self.after.begun().filter(|_| self.after.which() != self.before.which())
    }

    /// Returns the entries that this write adds to the history.
    pub fn recorded(&self) -> impl Iterator<Item = &Entry> {
        let was_there = |entry: &&Entry| self.before.history.iter().any(|its| its.number == entry.number);
        self.after.history.iter().filter(move |entry| !was_there(entry))
    }

    /// Returns how the restart under way ends with this write.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        let number = self.before.begun()?.number;
        self.recorded().find(|entry| Some(entry.number) == number).map(|entry| &*entry.result)
    }

    /// Returns whether other content or a request ends the restart under way.
    #[must_use]
    pub fn supersedes(&self) -> bool {
        self.result() == Some("Superseded")
    }

    /// Returns whether nothing is pending any more.
    #[must_use]
    pub fn settles(&self) -> bool {
        self.before.restart.is_some() && self.after.restart.is_none()
    }

    /// Returns when the last content was first read that this write goes by, and that no restart had begun for. At the end
    /// only the status before it says so.
    #[must_use]
    pub fn unmarked_at(&self) -> Option<ServerTime> {
        let is_marked = |known: &SourceStatus, last: &Change| {
            let before = self.before.of(known);
            before.is_some_and(|before| before.changes.iter().any(|change| change.begun && change.is_at(last)))
        };
        let of_source = |known: &SourceStatus| {
            let journal = if self.settles() { self.before.of(known)? } else { known };
            journal.changes.last().filter(|last| !is_marked(known, last)).map(|last| last.observed_at)
        };
        self.after.sources.iter().filter_map(of_source).max()
    }

    /// Returns whether this write appends content to a journal.
    #[must_use]
    pub fn appends(&self) -> bool {
        self.after.sources.iter().any(|known| known.appended(&self.before).is_some())
    }

    /// Returns whether the spec no longer has a source whose content has changed.
    #[must_use]
    pub fn leaves_some_out(&self) -> bool {
        let mut changed = self.before.sources.iter().filter(|known| !known.changes.is_empty());
        changed.any(|known| self.after.of(known).is_none())
    }

    /// Returns whether this write records the end of a restart that deleted pods.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.before.begun().is_some() && self.settles()
    }

    /// Returns whether the conditions have this reason, and had another one before.
    #[must_use]
    pub fn comes_to(&self, reason: &str) -> bool {
        self.after.reason() == Some(reason) && self.before.reason() != Some(reason)
    }
}
