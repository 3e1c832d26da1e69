//! What a keeper works with: the identity of its ConfigMonitor, the client, and what it shares with the others; and what it says about that
//! ConfigMonitor: lines of the log, and Events.

use std::sync::Arc;

use tracing::{info, warn};

use super::shared::Shared;
use crate::kube::client::Client;
use crate::kube::error::Cause;
use crate::kube::objects::Identity;
use crate::kube::{EVENTS, MicroTime, Uid};
use crate::monitor::decide::{Content, Finding};
use crate::monitor::report::Notice;
use crate::monitor::spec::Policy;

/// What a keeper works with.
pub(crate) struct Context {
    /// It begins no request once the keeper is to end.
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    /// The name of the ConfigMonitor,
    pub(crate) name: Arc<str>,
    /// and its identity: another one may take the name.
    pub(crate) uid: Uid,
}

impl Context {
    /// Logs what this content has turned out to be.
    pub(crate) fn log_finding(&self, policy: &Policy, content: &Content, finding: Finding) {
        let (monitor, source, version) = (&*self.name, policy.source(), content.version.as_str());
        match finding {
            Finding::Unchanged => {}
            Finding::Baseline => info!(monitor, source, version, "baseline recorded"),
            Finding::Modified => info!(monitor, source, version, "modification detected"),
            Finding::Undone => info!(monitor, source, version, "modification undone"),
            Finding::Reverted => info!(monitor, source, version, "modification reverted"),
            Finding::Retargeted => info!(monitor, source, version, "source changed; the restart goes on"),
        }
    }

    /// Logs what happened and makes its Events, also about this ConfigMap.
    pub(crate) async fn publish(&self, notices: &[Notice], config_map: Option<&Identity>) {
        self.log(notices);
        self.make_events(notices, config_map, self.event_time()).await;
    }

    /// When what happens now has happened, for Events about it.
    pub(crate) fn event_time(&self) -> MicroTime {
        self.shared.event_times.next(self.client.server_now())
    }

    /// Logs what happened.
    pub(crate) fn log(&self, notices: &[Notice]) {
        for Notice { warning, line, reason, note, .. } in notices {
            if *warning {
                warn!(monitor = &*self.name, reason, note, "{line}");
            } else {
                info!(monitor = &*self.name, reason, note, "{line}");
            }
        }
    }

    /// Makes the Events of what happened at this time, in this order. One that cannot be made is only logged.
    pub(crate) async fn make_events(&self, notices: &[Notice], config_map: Option<&Identity>, mut at: MicroTime) {
        for notice in notices {
            let events = notice.events(&self.name, &self.uid, config_map, self.client.namespace(), at);
            at = at.plus_micros(1);
            for event in events {
                if let Err(error) = self.client.create(EVENTS, &event).await
                    && error.cause != Cause::Stopped
                {
                    warn!(monitor = &*self.name, reason = notice.reason, %error, "Event not recorded");
                }
            }
        }
    }
}
