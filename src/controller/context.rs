//! What a keeper works with: the identity of its ConfigMonitor, the client, and what it shares with the others; and what it says about that
//! ConfigMonitor: lines of the log, and Events.

use std::sync::Arc;

use tracing::{info, warn};

use super::shared::Shared;
use crate::kube::client::Client;
use crate::kube::error::Cause;
use crate::kube::objects::Identity;
use crate::kube::{EVENTS, MicroTime, ResourceVersion, Uid};
use crate::metrics::Tally;
use crate::monitor::decide::Finding;
use crate::monitor::report::{self, Notice};
use crate::monitor::source::SourceName;
use crate::monitor::status::Status;

/// What a keeper works with.
pub(crate) struct Context {
    /// It begins no request once the keeper is to end.
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    /// The name of the ConfigMonitor,
    pub(crate) name: Arc<str>,
    /// and its identity: another one may take the name.
    pub(crate) uid: Uid,
    /// What is counted of it.
    pub(crate) tally: Tally,
}

impl Context {
    /// Logs what has turned out to be new, in a status that is up to it.
    pub(crate) fn log_finding(&self, status: &Status, version: Option<&ResourceVersion>, finding: Finding) {
        let version = version.map(ResourceVersion::as_str);
        let (namespace, monitor, source) = (self.client.namespace(), &*self.name, report::changed(status));
        match finding {
            Finding::Unchanged => {}
            Finding::Baseline => info!(namespace, monitor, source, version, "baseline recorded"),
            Finding::Modified => info!(namespace, monitor, source, version, "modification detected"),
            Finding::Undone => info!(namespace, monitor, source, version, "modification undone"),
            Finding::Reverted => info!(namespace, monitor, source, version, "modification reverted"),
            Finding::Retargeted => {
                info!(namespace, monitor, source, version, "sources of the spec changed; the restart goes on");
            }
        }
    }

    /// Logs what happened and makes its Events, also about those of these sources that it concerns.
    pub(crate) async fn publish(&self, notices: &[Notice], sources: &[(&SourceName, &Identity)]) {
        self.log(notices);
        self.make_events(notices, sources, self.event_time()).await;
    }

    /// When what happens now has happened, for Events about it.
    pub(crate) fn event_time(&self) -> MicroTime {
        self.shared.event_times.next(self.client.server_now())
    }

    /// Logs what happened.
    pub(crate) fn log(&self, notices: &[Notice]) {
        for Notice { warning, line, reason, note, .. } in notices {
            if *warning {
                warn!(namespace = self.client.namespace(), monitor = &*self.name, reason, note, "{line}");
            } else {
                info!(namespace = self.client.namespace(), monitor = &*self.name, reason, note, "{line}");
            }
        }
    }

    /// Makes the Events of what happened at this time, in this order. One that cannot be made is only logged.
    pub(crate) async fn make_events(
        &self,
        notices: &[Notice],
        sources: &[(&SourceName, &Identity)],
        mut at: MicroTime,
    ) {
        for notice in notices {
            let events = notice.events(&self.name, &self.uid, sources, self.client.namespace(), at);
            at = at.plus_micros(1);
            for event in events {
                if let Err(error) = self.client.create(EVENTS, &event).await
                    && error.cause != Cause::Stopped
                {
                    warn!(namespace = self.client.namespace(), monitor = &*self.name, reason = notice.reason, %error, "Event not recorded");
                }
            }
        }
    }
}
