//! Whether the pods of a ConfigMonitor run with the content as of now.

use std::str::FromStr;

use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::status::{Condition, SourceStatus, Status};

use crate::monitors::{Contents, Monitor};

/// The answer, with what a person reads about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    NotYet(String),
    Failed(String),
    /// A person must do something.
    Stalled(String),
    /// Its author holds the restart.
    Held(String),
}

impl Verdict {
    /// Judges by the status, and by the content of the sources, which the operator may not have read yet.
    pub(crate) fn of(monitor: &Monitor, contents: &Contents) -> Self {
        let Some(status) = &monitor.status else {
            return Self::NotYet("the operator has written no status yet".to_owned());
        };
        let reason = Reason::from_str(reason(status)).ok();
        if matches!(reason, Some(Reason::InvalidSpec | Reason::InvalidStatus | Reason::Forbidden))
            && status.observed_generation == Some(monitor.metadata.generation)
        {
            return Self::Stalled(message(status));
        }
        if status.observed_generation != Some(monitor.metadata.generation) {
            return Self::NotYet("the operator has not read the spec yet".to_owned());
        }
        let asked = monitor.metadata.annotations.restart_requested_at.as_ref();
        let pending = status.restart.as_ref();
        let taken_up = pending.and_then(|restart| restart.request.as_ref()).map(|request| &request.value);
        if asked.is_some() && asked != status.last_handled_restart_request.as_ref() && asked != taken_up {
            return Self::NotYet("the operator has not read the request yet".to_owned());
        }
        let unread = status.sources.iter().find(|source| !has_read(status, source, contents));
        if let Some(unread) = unread {
            return Self::NotYet(format!("the operator has not read {} yet", unread.name));
        }
        match reason {
            Some(Reason::NoPodsSelected | Reason::KeyNotFound) => Self::Failed(message(status)),
            _ if is_true(status, "Stalled") => Self::Stalled(message(status)),
            _ if is_true(status, "Ready") => Self::Done,
            Some(held) if held.is_delay_by_author() => Self::Held(message(status)),
            _ => Self::NotYet(message(status)),
        }
    }
}

/// Returns whether the content as of now is recorded, or pods are or will be restarted for it. Nothing is done about a
/// missing source that is not optional.
fn has_read(status: &Status, source: &SourceStatus, contents: &Contents) -> bool {
    let absent = ContentHash::absent();
    let change = status.restart.iter().flat_map(|restart| &restart.changes).find(|change| change.source == source.name);
    let known = change.map(|change| &change.hash).or(source.hash.as_ref());
    let now = contents.get(&source.name).and_then(Option::as_ref);
    match (now, known) {
        (Some(now), Some(known)) => now == known,
        (None, Some(known)) => *known == absent || source.resource_version.is_some(),
        (None, None) => true,
        (Some(_), None) => false,
    }
}

fn condition<'a>(status: &'a Status, r#type: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.r#type == r#type)
}

/// Returns the reason of the conditions: each of them has the same.
pub(crate) fn reason(status: &Status) -> &str {
    condition(status, "Ready").map_or("", |ready| &ready.reason)
}

pub(crate) fn is_true(status: &Status, r#type: &str) -> bool {
    condition(status, r#type).is_some_and(|condition| condition.status == "True")
}

/// Returns what the operator says: the message of the condition that is true, or else why the ConfigMonitor is not Ready.
pub(crate) fn message(status: &Status) -> String {
    let said = ["Stalled", "Reconciling"].into_iter().filter(|r#type| is_true(status, r#type));
    let said = said.chain(["Ready"]).find_map(|r#type| condition(status, r#type));
    said.map_or(String::new(), |said| said.message.to_string())
}
