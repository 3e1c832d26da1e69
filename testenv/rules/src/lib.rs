//! What holds of every restart, judged from what was written: the statuses, Events and requests of a ConfigMonitor, the
//! pods and their owners.
//!
//! The simulation feeds its ledger to these rules (`tests/simulation`), and so do the tests on a real control plane with
//! etcd's history (`testenv/tests/operator/nightly/chaos`).

// The fields are those of the API, or say what happened.
#![allow(missing_docs, clippy::missing_errors_doc)]

pub mod budget;
pub mod pod;
pub mod reported;
pub mod status;
pub mod when;

use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::monitor::spec::Spec;

use self::status::{Change, Restart, Status};

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

pub const RULES: [(&str, Rule); 9] = [
    ("Ready means that nothing is pending", reported::ready_means_that_nothing_is_pending),
    ("a ConfigMonitor begins with a baseline", reported::a_config_monitor_begins_with_a_baseline),
    ("a restart begins in a window", when::a_restart_begins_in_a_window),
    ("a restart begins once the interval is over", when::a_restart_begins_once_the_interval_is_over),
    ("a loop of restarts is held", when::a_loop_of_restarts_is_held),
    ("the outcome of canaries is final", when::the_outcome_of_canaries_is_final),
    ("a request is handled once", when::a_request_is_handled_once),
    ("an interruption ends after the quiet period", when::an_interruption_ends_after_the_quiet_period),
    ("a restart that follows another one keeps its time", when::a_restart_that_follows_another_one_keeps_its_time),
];

impl Account<'_> {
    pub fn broken(&self) -> impl Iterator<Item = String> {
        RULES.iter().filter_map(|(name, rule)| Some(format!("{name}: {}", rule(self).err()?)))
    }
}

impl Write {
    /// Returns whether this write records the intent of a restart that no earlier status recorded.
    #[must_use]
    pub fn begins(&self) -> bool {
        let which = |begun: &Restart| (begun.config_hash(), begun.started_at, begun.last_list().cloned());
        self.after.begun().is_some() && self.after.begun().map(which) != self.before.begun().map(which)
    }

    /// Returns the restart that begins with this write.
    #[must_use]
    pub fn start(&self) -> Option<&Restart> {
        let begun = self.after.begun()?;
        (self.before.restart.as_ref().and_then(Restart::which) != begun.which()).then_some(begun)
    }

    /// Returns whether this write leaves a change out of a restart, because the spec no longer has its source.
    #[must_use]
    pub fn leaves_out(&self, change: &Change) -> bool {
        !self.after.sources.iter().any(|known| known.name == change.name)
    }

    /// Returns whether this write leaves changes out of a restart.
    #[must_use]
    pub fn leaves_some_out(&self) -> bool {
        self.before.restart.iter().flat_map(|restart| &restart.changes).any(|change| self.leaves_out(change))
    }

    /// Returns the restart that other content has ended, with this write.
    #[must_use]
    pub fn supersedes(&self) -> Option<&Restart> {
        let begun = self.before.begun()?;
        self.after.has_superseded(begun, &self.before).then_some(begun)
    }

    /// Returns the interrupted restart that goes on with this write, and when it was interrupted.
    #[must_use]
    pub fn goes_on(&self) -> Option<(&Restart, ServerTime)> {
        let (interrupted, at) = self.before.interrupted()?;
        let goes_on = |after: &&Restart| after.which() == interrupted.which() && after.interrupted_at.is_none();
        Some((self.after.restart.as_ref().filter(goes_on)?, at))
    }

    /// Returns whether this write records the end of a restart that deleted pods.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.before.begun().is_some() && self.after.restart.is_none()
    }

    /// Returns whether the conditions have this reason, and had another one before.
    #[must_use]
    pub fn comes_to(&self, reason: &str) -> bool {
        self.after.reason() == Some(reason) && self.before.reason() != Some(reason)
    }
}
