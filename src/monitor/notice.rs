//! The Events about a ConfigMonitor, and the log lines that go with them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::CONFIG_MONITORS;
use super::report::{count, purpose, quoted, skipped_pods};
use super::restart::plan::Skipped;
use super::source::SourceName;
use super::status::{Begun, Why};
use crate::kube::objects::Owner;
use crate::kube::{EVENTS, ServerTime, Uid, cut};

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

pub(crate) fn started(source: &str, why: Why, pods: usize, skipped: &[Skipped]) -> Vec<Notice> {
    let note = match why {
        Why::Changed => format!("the content of {source} has changed: restarting {}", count(pods)),
        Why::Reverted => {
            format!(
                "the content of {source} was reverted: restarting {} that may have read the other content",
                count(pods)
            )
        }
        Why::Requested => format!("a restart is requested: restarting {}", count(pods)),
    };
    let started = (pods > 0).then_some(Notice {
        warning: false,
        line: "restart started",
        reason: "RestartStarted",
        note,
        sources: Vec::new(),
    });
    let skipped = (!skipped.is_empty()).then(|| Notice {
        warning: true,
        line: "pod skipped",
        reason: "PodSkipped",
        note: format!("not restarted for {source}: {}", skipped_pods(skipped)),
        sources: Vec::new(),
    });
    started.into_iter().chain(skipped).collect()
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
    let pods = match begun.pods.saturating_sub(begun.deleted) {
        0 => count(begun.pods),
        others => {
            let pods = count(begun.pods);
            format!("{} of {pods} (somebody else deleted the other {others}, or they terminated)", begun.deleted)
        }
    };
    let mut note = format!("restarted {pods} {} within {seconds} s", purpose(why, source));
    if terminating > 0 {
        note += &format!("; still terminating, and not waited for: {}", count(terminating));
    }
    Notice { warning: false, line: "restart over", reason: "RestartCompleted", note, sources }
}

/// Returns the notice that an object with other content has taken the place of an immutable one.
pub(crate) fn immutable_replaced(source: SourceName) -> Notice {
    let note = format!(
        "{} was immutable, and was deleted and created again: a kubelet may serve the old content while a pod on its node \
         refers to it; give each version a name of its own, or do not make it immutable",
        quoted(&source)
    );
    let reason = "ImmutableSourceReplaced";
    Notice { warning: true, line: "immutable source replaced", reason, note, sources: vec![source] }
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
        let about_monitor = json!({
            "apiVersion": CONFIG_MONITORS.api_version, "kind": CONFIG_MONITORS.kind,
            "namespace": namespace, "name": name, "uid": uid,
        });
        let mut about = vec![(name, about_monitor)];
        let is_concerned = |source: &SourceName| !source.kind.is_confidential() && self.sources.contains(source);
        for (SourceName { kind, name }, uid) in known.iter().filter(|(source, _)| is_concerned(source)) {
            let resource = kind.resource();
            let about_source = json!({
                "apiVersion": resource.api_version, "kind": resource.kind,
                "namespace": namespace, "name": name, "uid": uid,
            });
            about.push((name, about_source));
        }
        about.into_iter().map(|(name, regarding)| self.event(name, regarding, &self.note, namespace, at)).collect()
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
            let about = json!({
                "apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name, "uid": uid,
            });
            self.event(name, about, &note, namespace, at)
        };
        controllers.iter().take(MOST_CONTROLLERS).map(|controller| event(controller)).collect()
    }

    fn event(&self, name: &str, regarding: Value, note: &str, namespace: &str, at: ServerTime) -> Value {
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
            "regarding": regarding,
            "note": cut(note, MAX_NOTE),
        })
    }
}

#[cfg(test)]
mod tests;
