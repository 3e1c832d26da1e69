//! The context of a keeper: the identity of its ConfigMonitor, the client, what keepers share, and how it logs and
//! emits Events.

use std::sync::Arc;

use tracing::{info, warn};

use super::shared::Shared;
use crate::kube::client::Client;
use crate::kube::error::Cause;
use crate::kube::objects::Identity;
use crate::kube::{EVENTS, MicroTime, ResourceVersion, Uid};
use crate::metrics::Tally;
use crate::monitor::decide::Finding;
use crate::monitor::report::Notice;
use crate::monitor::source::SourceName;

/// The context of a keeper.
pub(crate) struct Context {
    /// The client, which begins no request once the keeper is stopped.
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    /// The name of the ConfigMonitor.
    pub(crate) name: Arc<str>,
    /// The UID of the ConfigMonitor: another one may take the name.
    pub(crate) uid: Uid,
    /// The metrics of the ConfigMonitor.
    pub(crate) tally: Tally,
}

impl Context {
    /// Logs a finding about these sources.
    pub(crate) fn log_finding(&self, source: &str, version: Option<&ResourceVersion>, finding: Finding) {
        let version = version.map(ResourceVersion::as_str);
        let (namespace, monitor) = (self.client.namespace(), &*self.name);
        match finding {
            Finding::Unchanged => {}
            Finding::Baseline => info!(namespace, monitor, source, version, "baseline recorded"),
            Finding::Modified => info!(namespace, monitor, source, version, "modification detected"),
            Finding::Undone => info!(namespace, monitor, source, version, "modification undone"),
            Finding::Reverted => info!(namespace, monitor, source, version, "modification reverted"),
            Finding::Retargeted => {
                info!(namespace, monitor, source, version, "sources in the spec changed; restart continues");
            }
        }
    }

    /// Logs the notices and emits their Events, also at the `sources` that a notice concerns.
    pub(crate) async fn publish(&self, notices: &[Notice], sources: &[(&SourceName, &Identity)]) {
        self.log(notices);
        self.emit_events(notices, sources, self.event_time()).await;
    }

    /// Returns the time for Events about what happens now.
    pub(crate) fn event_time(&self) -> MicroTime {
        self.shared.event_times.next(self.client.server_now())
    }

    /// Logs the notices.
    pub(crate) fn log(&self, notices: &[Notice]) {
        for Notice { warning, line, reason, note, .. } in notices {
            if *warning {
                warn!(namespace = self.client.namespace(), monitor = &*self.name, reason, note, "{line}");
            } else {
                info!(namespace = self.client.namespace(), monitor = &*self.name, reason, note, "{line}");
            }
        }
    }

    /// Emits the Events of the notices in this order, from `at` on. A failure is only logged.
    pub(crate) async fn emit_events(
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
                    warn!(namespace = self.client.namespace(), monitor = &*self.name, reason = notice.reason, %error, "Event not emitted");
                }
            }
        }
    }
}
