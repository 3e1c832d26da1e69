//! The Events about a ConfigMonitor, and the log lines that go with them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::CONFIG_MONITORS;
use super::restart::targets::Skipped;
use super::source::SourceName;
use super::status::{Begun, Why};
use super::words::{count, skipped_pods};
use crate::kube::objects::Owner;
use crate::kube::{EVENTS, Resource, ServerTime, Uid, cut};

const REPORTER: &str = "magalix.com/configmonitor-operator";
/// The maximum length of an Event's note that the API accepts, in bytes.
const MAX_NOTE: usize = 1024;

/// The most controllers of pods that get the Events about the start and the end of a restart.
const MOST_CONTROLLERS: usize = 5;

/// An Event to emit and a line to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub(crate) warning: bool,
    pub(crate) line: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) note: String,
    /// The ConfigMaps that get the Event, too. No Secret does: `regarding` would reveal its UID.
    pub(crate) sources: Vec<SourceName>,
}

/// Returns the notice that the restart of this number begins.
pub(crate) fn started(number: u64, source: &str, why: Why, pods: usize) -> Notice {
    let (cause, which) = match why {
        Why::Changed => (format!("new content of {source}"), ""),
        Why::Reverted => (format!("reverted content of {source}"), " that may have read other content"),
        Why::Requested => ("requested".to_owned(), ""),
    };
    let note = format!("restart {number}: {cause}: restarting {}{which}", count(pods));
    Notice { warning: false, line: "restart started", reason: "RestartStarted", note, sources: Vec::new() }
}

/// Returns the notice that pods are not restarted, if there are any.
pub(crate) fn skipped(source: &str, skipped: &[Skipped]) -> Option<Notice> {
    let note = format!("not restarted for {source}: {}", skipped_pods(skipped));
    let notice = Notice { warning: true, line: "pod skipped", reason: "PodSkipped", note, sources: Vec::new() };
    (!skipped.is_empty()).then_some(notice)
}

pub(crate) fn completed(
    source: &str,
    why: Why,
    sources: Vec<SourceName>,
    begun: &Begun,
    terminating: usize,
    now: ServerTime,
) -> Notice {
    // Both times are whole seconds.
    let seconds = now.since(begun.started_at).as_secs() + 1;
    let mut pods = count(begun.pods);
    let others = begun.pods.saturating_sub(begun.deleted);
    if others > 0 {
        pods = format!("{} of {pods} (somebody else deleted the other {others}, or they terminated)", begun.deleted);
    }
    let purpose = if why == Why::Requested { "as requested".to_owned() } else { format!("for {source}") };
    let mut note = format!("restart {}: restarted {pods} {purpose} within {seconds} s", begun.number);
    if terminating > 0 {
        note += &format!("; still terminating, and not waited for: {}", count(terminating));
    }
    Notice { warning: false, line: "restart over", reason: "RestartCompleted", note, sources }
}

/// Returns the notice that the API server refused a request, or the operator a status.
pub(crate) fn refused(error: &str) -> Notice {
    Notice { warning: true, line: "refused", reason: "Refused", note: error.to_owned(), sources: Vec::new() }
}

impl Notice {
    pub(crate) fn events(
        &self,
        name: &str,
        uid: &Uid,
        known: &[(&SourceName, &Uid)],
        namespace: &str,
        at: ServerTime,
    ) -> Vec<Value> {
        let is_concerned = |source: &SourceName| !source.kind.is_confidential() && self.sources.contains(source);
        let sources = known.iter().filter(|(source, _)| is_concerned(source));
        let sources = sources.map(|(SourceName { kind, name }, uid)| (kind.resource(), &**name, *uid));
        let event = |(Resource { api_version, kind, .. }, name, uid): (Resource, &str, &Uid)| {
            self.event((api_version, kind, name, uid), &self.note, namespace, at)
        };
        [(CONFIG_MONITORS, name, uid)].into_iter().chain(sources).map(event).collect()
    }

    /// Returns the Events at the controllers of the pods, for those who look there for the reason of a restart.
    pub(crate) fn events_at(
        &self,
        controllers: &BTreeSet<Arc<Owner>>,
        monitor: &str,
        namespace: &str,
        at: ServerTime,
    ) -> Vec<Value> {
        let more = match controllers.len().saturating_sub(MOST_CONTROLLERS) {
            0 => String::new(),
            more => format!("; {more} more controllers of its pods get no Event"),
        };
        let note = format!("ConfigMonitor {monitor}: {}{more}", self.note);
        let event = |Owner { api_version, kind, name, uid }: &Owner| {
            self.event((api_version, kind, name, uid), &note, namespace, at)
        };
        controllers.iter().take(MOST_CONTROLLERS).map(|controller| event(controller)).collect()
    }

    fn event(
        &self,
        (api_version, kind, name, uid): (&str, &str, &str, &Uid),
        note: &str,
        namespace: &str,
        at: ServerTime,
    ) -> Value {
        json!({
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": { "generateName": format!("{name}-"), "namespace": namespace },
            "eventTime": at.to_micro_time(),
            "reportingController": REPORTER,
            "reportingInstance": REPORTER,
            "action": "Restart",
            "type": if self.warning { "Warning" } else { "Normal" },
            "reason": self.reason,
            "regarding": { "apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name, "uid": uid },
            "note": cut(note, MAX_NOTE),
        })
    }
}

#[cfg(test)]
mod tests;
