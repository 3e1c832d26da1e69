//! The state of a ConfigMonitor, as it is to be reported, and how far a restart has come.

use super::content::ContentHash;
use super::hold::Hold;
use super::pod::Pod;
use super::restart::machine::{Machine, Report};
use super::restart::progress::Refusal;
use super::restart::standing::{Move, Standing, Unsettled};
use super::selector::Selector;
use super::source::SourceName;
use super::spec::{DeletionPolicy, Policy};
use super::status::{Begun, Canary, CanaryState, Status, Why};
use super::words::{changed, count, quoted, some};
use crate::kube::error::{Cause, Error};

/// The state of a ConfigMonitor, as it is reported.
#[derive(Clone, Debug, PartialEq)]
pub enum Situation<'a> {
    /// Nothing is left to do.
    Settled {
        /// The selector of the pods.
        selector: &'a Selector,
        /// Which keys of the spec the sources lack, as text for users, if any.
        missing_keys: Option<&'a str>,
        /// Whether there is a source.
        has_sources: bool,
    },
    /// This many discovered Secrets may not be watched.
    SecretsNotWatched(usize),
    /// The spec has `maxSurge`, and the operator may not hand pods over.
    NoSurge,
    /// Pods refer to more objects than a ConfigMonitor may have sources. This is the first of the others.
    TooManySources(&'a SourceName),
    /// These sources do not exist.
    SourceNotFound(&'a [SourceName]),
    /// The content has changed, and must be quiet first.
    QuietPeriod {
        /// The length of the quiet period.
        seconds: u64,
    },
    /// A restart is due, but may not begin yet.
    Held {
        /// What holds the restart.
        hold: &'a Hold,
        /// Who last wrote the changed sources, if that is known.
        writers: Vec<String>,
    },
    /// Another ConfigMonitor is replacing pods of the same owners.
    WaitingForOtherRestart,
    /// Pods are being replaced.
    RestartInProgress(Progress),
    /// The restart has made no progress for too long. The error, if there is one, may be why.
    ProgressDeadlineExceeded(Progress, Option<&'a Error>),
    /// Some pods cannot be deleted.
    DeletionRefused(Progress, &'a Error),
    /// No pod can be evicted now.
    EvictionBlocked(Progress, &'a Error),
    /// The canary has failed, for this reason.
    CanaryFailed(&'a str),
    /// The spec suspends restarts.
    Suspended {
        /// Whether a restart is requested.
        requested: bool,
    },
    /// The spec is invalid.
    InvalidSpec(&'a str),
    /// A hash in the status cannot be compared.
    InvalidStatus(&'a ContentHash),
    /// The operator lacks a right.
    Forbidden(&'a Error),
}

impl<'a> Situation<'a> {
    /// Returns the situation of a restart that is under way, for what is about to be written.
    pub(crate) fn of_restart<P>(machine: &Machine<P>, policy: &Policy, report: &'a Report) -> Self {
        let Report { begun, refusal, is_stalled } = report;
        if let Some(Canary { state: CanaryState::Failed { message }, .. }) = &begun.canary {
            return Self::CanaryFailed(message);
        }
        let standing = machine.standing();
        let mut progress = Progress::of(begun, &standing).not_deleted(machine.undeleted().into_iter());
        let missing = some(machine.missing.iter().map(quoted));
        progress.add(&format!("waiting for {missing}: "), standing.unstartable.iter().copied());
        Self::of_pass(policy, progress, refusal.as_ref(), *is_stalled)
    }

    fn of_pass(policy: &Policy, progress: Progress, refusal: Option<&'a Refusal>, is_stalled: bool) -> Self {
        let Some(Refusal { error, is_expected }) = refusal else {
            return match is_stalled {
                true => Self::ProgressDeadlineExceeded(progress, None),
                false => Self::RestartInProgress(progress),
            };
        };
        match &error.cause {
            _ if is_stalled => Self::ProgressDeadlineExceeded(progress, Some(error)),
            Cause::Forbidden(_) => Self::Forbidden(error),
            _ if *is_expected => Self::RestartInProgress(progress),
            Cause::Blocked(_) => Self::EvictionBlocked(progress, error),
            // The API server answers 500 to an eviction if two PodDisruptionBudgets select the pod.
            cause @ Cause::Refused(_) if policy.deletion_policy == DeletionPolicy::Evict && !cause.is_denial() => {
                Self::EvictionBlocked(progress, error)
            }
            Cause::Refused(_) | Cause::Invalid(_) => Self::DeletionRefused(progress, error),
            _ => Self::RestartInProgress(progress),
        }
    }
}

/// How far a restart has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub(super) pods: usize,
    /// How many pods are gone or terminating.
    pub(super) gone: usize,
    /// What the restart waits for.
    pub(super) details: Vec<String>,
}

impl Progress {
    /// Returns the progress of a restart that has just begun.
    pub(crate) fn new(begun: &Begun) -> Self {
        let gone = begun.gone(begun.remaining).max(begun.deleted);
        Self { pods: begun.pods, gone, details: Vec::new() }
    }

    pub(crate) fn of(begun: &Begun, standing: &Standing<'_>) -> Self {
        let mut progress = Self { gone: begun.gone(standing.remaining), ..Self::new(begun) };
        if let Some((pods, until)) = standing.canary {
            let until = until.map_or(String::new(), |until| format!(" until {until}"));
            progress.details.push(format!("canary: {} must stay available{until}", count(pods)));
        }
        // Without a canary, only a budget keeps a pass from deleting the others of the pods that wait.
        if standing.remaining > standing.unstartable.len() + standing.last.len()
            && standing.canary.is_none()
            && matches!(standing.next, Move::Wait(_))
        {
            progress.details.push("the budget allows no further deletion".to_owned());
        }
        let until = match standing.is_any_last {
            true => "goes last (spec.restartLast): ",
            false => "kept until a selected pod matches spec.restartLast: ",
        };
        progress.add(until, standing.last.iter().copied());
        progress.add("handed over: ", standing.handed_over.iter().copied());
        let obstacles = standing.obstacles.iter().map(|(pod, why)| format!("{pod} ({})", <&str>::from(*why)));
        progress.add("not handed over: ", obstacles);
        let unsettled = standing.unsettled.iter().map(|Unsettled { owner, available, expected, failure }| {
            let failure = failure.map_or(String::new(), |failure| format!(" ({failure})"));
            format!("{} {} has {available} of {expected} available{failure}", owner.kind, owner.name)
        });
        progress.add("", unsettled);
        let named = |pod: &&Pod| match &pod.trouble {
            Some(trouble) => format!("{} ({trouble})", pod.name),
            None => pod.name.to_string(),
        };
        let (cut_off, unavailable): (Vec<&Pod>, Vec<&Pod>) =
            standing.unavailable.iter().partition(|pod| pod.is_cut_off());
        progress.add("not ready although their containers are: ", cut_off.iter().map(named));
        progress.add("unavailable: ", unavailable.iter().map(named));
        progress.add("terminating: ", standing.terminating.iter().copied());
        progress
    }

    #[must_use]
    pub(super) fn not_deleted<'a>(mut self, pods: impl ExactSizeIterator<Item = &'a Pod>) -> Self {
        let name = |pod: &Pod| format!("{}{}", pod.name, if pod.ready_since.is_some() { "" } else { " (not ready)" });
        self.add("not deleted: ", pods.map(name));
        self
    }

    fn add(&mut self, what: &str, names: impl ExactSizeIterator<Item = impl Into<String>>) {
        if names.len() > 0 {
            self.details.push(format!("{what}{}", some(names)));
        }
    }

    pub(super) fn deleted(&self, status: &Status) -> String {
        let purpose = match status.why() {
            Why::Changed | Why::Reverted => format!("for the content of {}", changed(status)),
            Why::Requested => "as requested".to_owned(),
        };
        format!("{} of {} deleted {purpose}", self.gone, count(self.pods))
    }

    pub(super) fn with_details(&self, text: String) -> String {
        [&[text], &self.details[..]].concat().join("; ")
    }

    pub(super) fn activity(&self) -> String {
        if self.details.is_empty() {
            "deleting pods".to_owned()
        } else {
            format!("waiting: {}", self.details.join("; "))
        }
    }

    pub(super) fn advice(&self, why: Option<&Error>) -> String {
        let why = why.map_or(String::new(), |why| format!("; fix the cause: {why}"));
        self.with_details(format!("no progress within spec.progressDeadlineSeconds{why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Action, PODS, ServerTime};
    use serde_json::value::RawValue;

    fn policy(more: &str) -> Policy {
        let spec = format!(r#"{{"configMap":"c","podSelector":{{"app":"web"}}{more}}}"#);
        Policy::of(Some(&RawValue::from_string(spec).expect("JSON"))).expect("a policy")
    }

    /// Returns the situation that a pass reports after this error.
    fn reported(policy: &Policy, is_stalled: bool, cause: Option<(&Cause, bool)>) -> String {
        let progress = Progress::new(&Begun::new(1, ServerTime::from_second(100), "app=web".to_owned(), 4));
        let error = cause.map(|(cause, _)| Action::new("list", PODS).failed(cause.clone()));
        let is_expected = cause.is_some_and(|(_, is_expected)| is_expected);
        let refusal = error.map(|error| Refusal { error, is_expected });
        let situation = format!("{:?}", Situation::of_pass(policy, progress, refusal.as_ref(), is_stalled));
        situation.split('(').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_pass_reports_what_a_user_can_do_about_its_error() {
        let situation_of = |evict, is_stalled, cause: Option<(&Cause, bool)>| {
            let policy = policy(if evict { r#","deletionPolicy":"Evict""# } else { "" });
            reported(&policy, is_stalled, cause)
        };
        let text = || "x".to_owned();
        let (blocked, refused, invalid) = (Cause::Blocked(text()), Cause::Refused(text()), Cause::Invalid(text()));
        let (forbidden, unreachable) = (Cause::Forbidden(text()), Cause::Unreachable(text()));
        assert_eq!(situation_of(false, false, None), "RestartInProgress");
        assert_eq!(situation_of(true, false, Some((&blocked, false))), "EvictionBlocked");
        assert_eq!(situation_of(true, false, Some((&blocked, true))), "RestartInProgress");
        assert_eq!(situation_of(true, false, Some((&refused, false))), "EvictionBlocked");
        assert_eq!(situation_of(false, false, Some((&refused, false))), "DeletionRefused");
        let denied = Cause::Refused("HTTP 500: admission webhook \"w\" denied the request: x".to_owned());
        assert_eq!(situation_of(true, false, Some((&denied, false))), "DeletionRefused");
        assert_eq!(situation_of(true, false, Some((&invalid, false))), "DeletionRefused");
        assert_eq!(situation_of(false, false, Some((&forbidden, false))), "Forbidden");
        assert_eq!(situation_of(false, false, Some((&unreachable, false))), "RestartInProgress");
        assert_eq!(situation_of(false, true, Some((&forbidden, false))), "ProgressDeadlineExceeded");
    }
}
