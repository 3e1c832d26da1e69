//! What is told about a ConfigMonitor: its conditions, its Events and the log lines that go with them, all from one place,
//! so that they never disagree.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::CONFIG_MONITORS;
use super::rollout::{Exempt, Skipped, Standing, Unsettled};
use super::status::{Begun, Condition, Status};
use crate::kube::objects::{Identity, Pod};
use crate::kube::{CONFIG_MAPS, EVENTS, ServerTime, Uid, cut};

/// Who tells.
const REPORTER: &str = "magalix.com/configmonitor-operator";
/// So many pods are named.
const MOST_NAMES: usize = 5;
/// The API takes no longer note, in bytes.
const LONGEST_NOTE: usize = 1024;

/// How things stand with a ConfigMonitor.
#[derive(Clone, Debug, PartialEq)]
pub enum Situation<'a> {
    /// Pods run with the content, or nothing says that they do not.
    UpToDate,
    /// The ConfigMap does not exist.
    ConfigMapNotFound(&'a str),
    /// The content has changed and must come to rest first.
    QuietPeriod {
        /// The length of the period.
        seconds: u64,
    },
    /// Another ConfigMonitor is replacing pods of the same owners.
    WaitingForOtherRestart,
    /// Pods are being replaced.
    RestartInProgress(Progress),
    /// Nothing has moved for too long, maybe for this reason.
    ProgressDeadlineExceeded(Progress, Option<&'a str>),
    /// Some pods cannot be deleted.
    DeletionRefused(Progress, &'a str),
    /// No pod can be evicted now.
    EvictionBlocked(Progress, &'a str),
    /// Nothing is done because the author wants so.
    Suspended,
    /// The spec cannot be acted on.
    InvalidSpec(&'a str),
    /// The status cannot be understood.
    InvalidStatus(&'a str),
    /// A right is missing.
    Forbidden(&'a str),
}

/// How far a restart has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pods: usize,
    remaining: usize,
    details: Vec<String>,
}

/// An Event to be made, and a line to be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should look.
    pub warning: bool,
    /// The line to log.
    pub line: &'static str,
    /// The reason of the Event.
    pub reason: &'static str,
    /// What happened, for a person.
    pub note: String,
    /// Whether it is told at the ConfigMap too.
    pub at_config_map: bool,
}

/// An Event as the API takes it.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct EventObject(Value);

impl Progress {
    /// A restart that has just begun.
    #[must_use]
    pub fn new(begun: &Begun) -> Self {
        Self { pods: begun.pods, remaining: begun.remaining, details: Vec::new() }
    }

    /// A restart that stands like this.
    #[must_use]
    pub fn of(begun: &Begun, standing: &Standing<'_>) -> Self {
        let mut progress = Self { pods: begun.pods, remaining: standing.remaining, details: Vec::new() };
        let unsettled = standing.unsettled.iter().map(|Unsettled { owner, available, expected }| {
            format!("{} {} has {available} of {expected} available", owner.kind, owner.name)
        });
        progress.add("", unsettled);
        progress.add("not available: ", standing.unavailable.iter().copied());
        progress.add("terminating: ", standing.terminating.iter().copied());
        progress.add("stuck while terminating: ", standing.stuck.iter().copied());
        progress
    }

    /// Adds pods that were not deleted when it was tried.
    #[must_use]
    pub fn not_deleted<'a>(mut self, pods: impl ExactSizeIterator<Item = &'a Pod>) -> Self {
        let name = |pod: &Pod| format!("{}{}", pod.name, if pod.ready_since.is_some() { "" } else { " (not ready)" });
        self.add("not deleted: ", pods.map(name));
        self
    }

    fn add(&mut self, what: &str, names: impl ExactSizeIterator<Item = impl Into<String>>) {
        if names.len() > 0 {
            self.details.push(format!("{what}{}", some(names)));
        }
    }

    fn text(&self) -> String {
        let Self { pods, remaining, details } = self;
        let deleted = format!("{} of {} deleted", pods - remaining.min(pods), count(*pods));
        [&[deleted], &details[..]].concat().join("; ")
    }
}

/// Sets the conditions to a situation, and says what is worth an Event because it was not so before.
pub fn report(situation: &Situation<'_>, status: &mut Status, generation: i64, now: ServerTime) -> Option<Notice> {
    let reason = situation.reason();
    let message: Arc<str> = situation.message(status).into();
    let before = |r#type: &str| status.conditions.iter().find(|condition| condition.r#type == r#type);
    let was = before("Ready").map(|condition| condition.reason.clone());
    let condition = |r#type: &'static str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        let since = before(r#type).filter(|condition| condition.status == status);
        Condition {
            r#type: r#type.into(),
            status: status.into(),
            observed_generation: Some(generation),
            last_transition_time: since.map_or(now, |condition| condition.last_transition_time),
            reason: reason.into(),
            message: Arc::clone(&message),
        }
    };
    let conditions = vec![
        condition("Ready", situation.is_ready(status)),
        condition("Reconciling", situation.is_reconciling()),
        condition("Stalled", situation.is_stalled()),
    ];
    status.conditions = conditions;
    status.observed_generation = Some(generation);
    let event = situation.event().filter(|_| was.as_deref() != Some(reason))?;
    Some(Notice {
        warning: true,
        line: "attention needed",
        reason: event,
        note: message.to_string(),
        at_config_map: false,
    })
}

/// What is told when a restart begins: that it does, and which pods it leaves alone.
#[must_use]
pub fn started(source: &str, revert: bool, pods: usize, skipped: &[Skipped]) -> Vec<Notice> {
    let note = if revert {
        format!("the content of {source} has gone back: restarting {} that may have read what was there", count(pods))
    } else {
        format!("the content of {source} has changed: restarting {}", count(pods))
    };
    let started = (pods > 0).then_some(Notice {
        warning: false,
        line: "restart started",
        reason: "RestartStarted",
        note,
        at_config_map: false,
    });
    let reasons = [Exempt::Own, Exempt::Mirror, Exempt::Bare, Exempt::Job];
    let skipped = reasons.into_iter().filter_map(|why| {
        let pods: Vec<&str> =
            skipped.iter().filter(|skipped| skipped.why == why).map(|skipped| &*skipped.pod).collect();
        let note = format!("not restarted for {source}: {}, because {}", some(pods.iter().copied()), why.text());
        (!pods.is_empty()).then_some(Notice {
            warning: true,
            line: "pod skipped",
            reason: "PodSkipped",
            note,
            at_config_map: false,
        })
    });
    started.into_iter().chain(skipped).collect()
}

/// What is told when a restart is over.
#[must_use]
pub fn completed(source: &str, begun: &Begun, stuck: &[String], now: ServerTime) -> Notice {
    let seconds = now.since(begun.started_at).as_secs();
    let mut note = format!("restarted {} for the content of {source} in {seconds} s", count(begun.pods));
    if !stuck.is_empty() {
        note += &format!("; still terminating, and not waited for: {}", some(stuck.iter()));
    }
    Notice { warning: !stuck.is_empty(), line: "restart over", reason: "RestartCompleted", note, at_config_map: true }
}

/// What is told when a ConfigMap takes the place of an immutable one, and has other content.
#[must_use]
pub fn immutable_replaced(config_map: &str) -> Notice {
    let note = format!(
        "ConfigMap {config_map:?} was immutable, and was deleted and created anew with other content: a kubelet may go on with the \
         old content for as long as a pod of its node refers to it; give new content a new name, or do not make it immutable"
    );
    let reason = "ImmutableConfigMapReplaced";
    Notice { warning: true, line: "immutable ConfigMap replaced", reason, note, at_config_map: true }
}

/// What is told when the API server does not take a request, or the operator not a status, as it is.
#[must_use]
pub fn refused(error: &str) -> Notice {
    Notice { warning: true, line: "refused", reason: "Refused", note: error.to_owned(), at_config_map: false }
}

impl Notice {
    /// The Events of this notice.
    #[must_use]
    pub fn events(
        &self,
        name: &str,
        uid: &Uid,
        config_map: Option<&Identity>,
        namespace: &str,
        now: ServerTime,
    ) -> Vec<EventObject> {
        let about_monitor = json!({
            "apiVersion": CONFIG_MONITORS.api_version, "kind": CONFIG_MONITORS.kind,
            "namespace": namespace, "name": name, "uid": uid,
        });
        let mut about = vec![(name, about_monitor)];
        if let Some(Identity { name, uid, .. }) = config_map.filter(|_| self.at_config_map) {
            let about_config_map = json!({
                "apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind,
                "namespace": namespace, "name": name, "uid": uid,
            });
            about.push((name, about_config_map));
        }
        let event = |(name, regarding): (&str, Value)| {
            EventObject(json!({
                "apiVersion": EVENTS.api_version,
                "kind": EVENTS.kind,
                "metadata": { "generateName": format!("{name}-"), "namespace": namespace },
                "eventTime": now.to_micro_time(),
                "reportingController": REPORTER,
                "reportingInstance": REPORTER,
                "action": "Restart",
                "type": if self.warning { "Warning" } else { "Normal" },
                "reason": self.reason,
                "regarding": regarding,
                "note": cut(&self.note, LONGEST_NOTE),
            }))
        };
        about.into_iter().map(event).collect()
    }
}

impl Situation<'_> {
    /// The reason of the conditions.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UpToDate => "UpToDate",
            Self::ConfigMapNotFound(_) => "ConfigMapNotFound",
            Self::QuietPeriod { .. } => "QuietPeriod",
            Self::WaitingForOtherRestart => "WaitingForOtherRestart",
            Self::RestartInProgress(_) => "RestartInProgress",
            Self::ProgressDeadlineExceeded(..) => "ProgressDeadlineExceeded",
            Self::DeletionRefused(..) => "DeletionRefused",
            Self::EvictionBlocked(..) => "EvictionBlocked",
            Self::Suspended => "Suspended",
            Self::InvalidSpec(_) => "InvalidSpec",
            Self::InvalidStatus(_) => "InvalidStatus",
            Self::Forbidden(_) => "Forbidden",
        }
    }

    fn is_ready(&self, status: &Status) -> bool {
        match self {
            Self::UpToDate => true,
            Self::Suspended => status.restart.is_none(),
            _ => false,
        }
    }

    fn is_reconciling(&self) -> bool {
        matches!(
            self,
            Self::QuietPeriod { .. }
                | Self::WaitingForOtherRestart
                | Self::RestartInProgress(_)
                | Self::DeletionRefused(..)
                | Self::EvictionBlocked(..)
        )
    }

    fn is_stalled(&self) -> bool {
        matches!(
            self,
            Self::ProgressDeadlineExceeded(..) | Self::InvalidSpec(_) | Self::InvalidStatus(_) | Self::Forbidden(_)
        )
    }

    /// The reason of the Event that says that it has come to this.
    fn event(&self) -> Option<&'static str> {
        match self {
            Self::ProgressDeadlineExceeded(..) => Some("RestartStalled"),
            Self::ConfigMapNotFound(_)
            | Self::DeletionRefused(..)
            | Self::EvictionBlocked(..)
            | Self::InvalidSpec(_)
            | Self::InvalidStatus(_)
            | Self::Forbidden(_) => Some(self.reason()),
            Self::UpToDate
            | Self::QuietPeriod { .. }
            | Self::WaitingForOtherRestart
            | Self::RestartInProgress(_)
            | Self::Suspended => None,
        }
    }

    fn message(&self, status: &Status) -> String {
        let source = status.source.as_deref().unwrap_or("the ConfigMap");
        match self {
            Self::UpToDate => {
                format!("the selected pods run with the content of {source}")
            }
            Self::ConfigMapNotFound(name) if status.restart.is_some() => {
                format!("ConfigMap {name:?} does not exist; the restart is held until it does")
            }
            Self::ConfigMapNotFound(name) => format!("ConfigMap {name:?} does not exist"),
            Self::QuietPeriod { seconds } => {
                format!(
                    "the content of {source} has changed; pods are restarted once it has been unchanged for {seconds} s"
                )
            }
            Self::WaitingForOtherRestart => format!(
                "the content of {source} has changed; another ConfigMonitor is replacing pods of the same owners, and this restart goes on after it"
            ),
            Self::RestartInProgress(progress) => progress.text(),
            Self::ProgressDeadlineExceeded(progress, None) => format!("no progress for too long: {}", progress.text()),
            Self::ProgressDeadlineExceeded(progress, Some(why)) => {
                format!("no progress for too long: {}; {why}", progress.text())
            }
            Self::Suspended if status.restart.is_some() => {
                format!(
                    "suspended: the content of {source} has changed, and lifting spec.suspend restarts the selected pods"
                )
            }
            Self::Suspended => "suspended: changes are observed, and no pod is restarted".to_owned(),
            Self::DeletionRefused(progress, why) | Self::EvictionBlocked(progress, why) => {
                format!("{}; {why}", progress.text())
            }
            Self::InvalidSpec(text) | Self::InvalidStatus(text) | Self::Forbidden(text) => (*text).to_owned(),
        }
    }
}

impl Exempt {
    fn text(self) -> &'static str {
        match self {
            Self::Own => "that is the operator's own",
            Self::Mirror => "only their kubelet can restart static pods",
            Self::Bare => "no controller would create them again (spec.unmanagedPods)",
            Self::Job => "they belong to a Job (spec.unmanagedPods)",
        }
    }
}

/// Some of these names, and how many more there are: a status and an Event have limits.
fn some(mut names: impl ExactSizeIterator<Item = impl Into<String>>) -> String {
    let first: Vec<String> = names.by_ref().take(MOST_NAMES).map(Into::into).collect();
    match names.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn count(pods: usize) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

#[cfg(test)]
mod tests;
