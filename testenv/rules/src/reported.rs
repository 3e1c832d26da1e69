//! The rules about what is reported: conditions and Events.

use std::time::Duration;

use crate::status::Status;
use crate::{Account, Event, Write};

/// An Event comes this long after its reason at the latest: the operator may be stopped meanwhile, or the request late.
const LATE: Duration = Duration::from_secs(180);

/// `Ready` is never true while a restart is pending or under way.
pub fn ready_means_that_nothing_is_pending(account: &Account<'_>) -> Result<(), String> {
    let is_wrong = |write: &&&Write| write.after.is_ready() && write.after.restart.is_some();
    account.writes.iter().find(is_wrong).map_or(Ok(()), |write| Err(format!("at {:?}: {:?}", write.at, write.after)))
}

/// A ConfigMonitor inherits nothing from an earlier one of the same name: the first content read is its baseline.
pub fn a_config_monitor_begins_with_a_baseline(account: &Account<'_>) -> Result<(), String> {
    // A restart may be requested from the beginning.
    let is_requested = |status: &Status| status.request().is_some() && status.changes().next().is_none();
    let is_wrong =
        |write: &&&Write| !write.before.is_baselined() && write.after.restart.is_some() && !is_requested(&write.after);
    account.writes.iter().find(is_wrong).map_or(Ok(()), |write| Err(format!("at {:?}: {:?}", write.at, write.after)))
}

/// Each Event has a reason of its own: a write before it, or one of the reasons that `others` counts up to it. An Event
/// may be missing, because a failed request is not repeated.
pub fn each_event_is_emitted_once(account: &Account<'_>, events: &[&Event]) -> Result<(), String> {
    for (number, event) in events.iter().enumerate() {
        let reason = &*event.reason;
        let is_reason: Box<dyn Fn(&Write) -> bool> = match reason {
            "RestartStarted" => Box::new(|write| write.start().is_some()),
            "RestartCompleted" => Box::new(Write::ends),
            "PodSkipped" | "Refused" => continue,
            _ => Box::new(|write| write.comes_to(reason)),
        };
        let reasons = |from: u64| {
            let written = account.writes.iter().filter(|write| write.at < event.at && is_reason(write));
            written.filter(|write| write.at.ms >= from).count()
        };
        let emitted = |from: u64| {
            let its = events[..=number].iter().filter(|other| other.reason == event.reason);
            its.filter(|other| other.at.ms >= from).count()
        };
        let recent = event.at.ms.saturating_sub(LATE.as_millis().try_into().unwrap_or(u64::MAX));
        for (count, reasons) in [(emitted(0), reasons(0)), (emitted(event.at.ms), reasons(recent))] {
            if count > reasons {
                return Err(format!("number {count} of {event:?}, with {reasons} reasons"));
            }
        }
    }
    Ok(())
}
