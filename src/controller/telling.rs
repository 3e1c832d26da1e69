//! What a keeper says: lines of the log, Events, and what is wrong.

use std::time::Duration;

use tracing::{debug, info, warn};

use super::keeper::Keeper;
use super::timer_now;
use crate::kube::EVENTS;
use crate::kube::error::{Cause, Error};
use crate::monitor::decide::{Content, Finding};
use crate::monitor::report::{self, Notice, Situation};
use crate::monitor::spec::Policy;

impl Keeper {
    /// Tells of a finding, once; in an Event, too, if somebody must know.
    pub(super) fn announce(&mut self, policy: &Policy, content: &Content, finding: Finding) -> Option<Notice> {
        let reading = self.reading.as_mut().filter(|reading| finding != Finding::Unchanged && !reading.is_announced)?;
        reading.is_announced = true;
        let is_new = finding == Finding::Modified && reading.replaces_immutable;
        let (monitor, source, version) = (self.name(), policy.source(), content.version.as_str());
        match finding {
            Finding::Unchanged => {}
            Finding::Baseline => info!(monitor, source, version, "baseline recorded"),
            Finding::Modified => info!(monitor, source, version, "modification detected"),
            Finding::Undone => info!(monitor, source, version, "modification undone"),
            Finding::Reverted => info!(monitor, source, version, "modification reverted"),
            Finding::Retargeted => info!(monitor, source, version, "source changed; the restart goes on"),
        }
        is_new.then(|| report::immutable_replaced(&policy.config_map))
    }

    /// Logs what happened and makes its Events.
    pub(super) async fn publish(&mut self, notices: &[Notice]) {
        self.log(notices);
        self.make_events(notices).await;
    }

    /// Logs what happened.
    pub(super) fn log(&self, notices: &[Notice]) {
        for Notice { warning, line, reason, note, .. } in notices {
            if *warning {
                warn!(monitor = self.name(), reason, note, "{line}");
            } else {
                info!(monitor = self.name(), reason, note, "{line}");
            }
        }
    }

    /// Makes the Events of what happened. One that cannot be made is only logged.
    pub(super) async fn make_events(&mut self, notices: &[Notice]) {
        for notice in notices {
            let (namespace, now) = (self.client.namespace().to_owned(), self.client.server_now());
            let config_map = self.reading.as_ref().and_then(|reading| reading.identity.as_ref());
            for event in notice.events(&self.name, &self.uid, config_map, &namespace, now) {
                if let Err(error) = self.client.create(EVENTS, &event).await
                    && error.cause != Cause::Stopped
                {
                    warn!(monitor = self.name(), reason = notice.reason, %error, "Event not recorded");
                }
            }
        }
    }

    /// Tells what is wrong where it can be seen, and says how long to wait.
    pub(super) async fn failed(&mut self, error: &Error) -> Duration {
        let again = self.faults.is_failing();
        let (delay, tell) = self.faults.note(&error.cause, timer_now());
        match &error.cause {
            // Somebody else has written: read again and decide again, at once the first time.
            Cause::Conflict(_) if !again => return Duration::ZERO,
            Cause::Invalid(_) if tell => self.publish(&[report::refused(&error.to_string())]).await,
            _ if tell => warn!(monitor = self.name(), %error, "trying again"),
            _ => debug!(monitor = self.name(), %error, "still failing"),
        }
        if let (Cause::Forbidden(_), Some(record)) = (&error.cause, &self.record) {
            let (status, text) = (record.status.clone(), error.to_string());
            if let Err(error) = self.settle(status, &Situation::Forbidden(&text)).await {
                debug!(monitor = self.name(), %error, "the condition cannot be written");
            }
        }
        delay
    }

    pub(super) fn recovered(&mut self) {
        if self.faults.over() {
            info!(monitor = self.name(), "working again");
        }
    }
}
