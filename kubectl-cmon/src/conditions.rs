//! What the conditions of a ConfigMonitor say.

use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::status::{Condition, Status};

pub(crate) fn condition<'a>(status: &'a Status, r#type: &str) -> Option<&'a Condition> {
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
    let says: &[&str] = match ["Stalled", "Reconciling"].into_iter().find(|r#type| is_true(status, r#type)) {
        Some(holds) => &[holds],
        None if reason(status) == <&str>::from(Reason::Suspended) => &["Ready", "Reconciling"],
        None => &["Ready"],
    };
    let said = says.iter().filter_map(|r#type| condition(status, r#type)).map(|condition| &*condition.message);
    said.collect::<Vec<_>>().join("; ")
}
