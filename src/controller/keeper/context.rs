//! The context of a keeper: the identity of its ConfigMonitor, the client, what keepers share, and how it logs and
//! emits Events.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use serde::de::IgnoredAny;
use serde_json::Value;
use tracing::{Span, error_span, info, warn};

use crate::controller::shared::Shared;
use crate::kube::client::Client;
use crate::kube::error::Cause;
use crate::kube::objects::Owner;
use crate::kube::{EVENTS, ServerTime, Uid};
use crate::metrics::Tally;
use crate::monitor::notice::Notice;
use crate::monitor::source::SourceName;

pub(crate) struct Context {
    /// While the keeper works, begins no request once it is to end.
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: Arc<str>,
    /// Another ConfigMonitor may take the name.
    pub(crate) uid: Uid,
    pub(crate) tally: Tally,
}

impl Context {
    pub(crate) fn new(shared: Arc<Shared>, name: Arc<str>, uid: Uid) -> Self {
        let client = shared.client.clone();
        let tally = Tally::of(&shared.settings.metrics, client.namespace(), &name);
        Self { client, shared, name, uid, tally }
    }

    /// Returns the context of another keeper of the ConfigMonitor.
    pub(crate) fn renewed(&self) -> Self {
        let Self { shared, name, uid, .. } = self;
        Self::new(Arc::clone(shared), Arc::clone(name), uid.clone())
    }

    /// Returns the span of the ConfigMonitor, which gives log lines the fields `namespace` and `monitor`. The level is that
    /// of errors, so that no filter of levels takes the fields from a line that is logged. A span takes memory, so idle
    /// keepers are outside theirs.
    pub(crate) fn span(&self) -> Span {
        error_span!("reconcile", namespace = self.client.namespace(), monitor = &*self.name)
    }

    /// Logs the notices and emits their Events, also at the `sources` that a notice concerns.
    pub(crate) async fn publish(&self, notices: &[Notice], sources: &[(&SourceName, &Uid)]) {
        self.log(notices);
        self.emit_events(notices, sources, self.client.server_now()).await;
    }

    pub(crate) fn log(&self, notices: &[Notice]) {
        for Notice { warning, line, reason, note, .. } in notices {
            if *warning {
                warn!(reason, note, "{line}");
            } else {
                info!(reason, note, "{line}");
            }
        }
    }

    /// Emits the Events of the notices about what happened at `at`. A failure is only logged.
    pub(crate) async fn emit_events(&self, notices: &[Notice], sources: &[(&SourceName, &Uid)], at: ServerTime) {
        for notice in notices {
            let events = notice.events(&self.name, &self.uid, sources, self.client.namespace(), at);
            self.create(notice, events).await;
        }
    }

    /// Emits the Event of a notice at controllers of pods. A failure is only logged.
    pub(crate) async fn emit_events_at(&self, controllers: &BTreeSet<Arc<Owner>>, notice: &Notice, at: ServerTime) {
        self.create(notice, notice.events_at(controllers, &self.name, self.client.namespace(), at)).await;
    }

    /// Creates the few Events of a notice together: a restart must not wait for one after the other.
    async fn create(&self, notice: &Notice, events: Vec<Value>) {
        let create = |event| async move { self.client.create::<IgnoredAny>(EVENTS, &event).await };
        for error in join_all(events.into_iter().map(create)).await.into_iter().filter_map(Result::err) {
            if error.cause != Cause::Stopped {
                warn!(reason = notice.reason, %error, "Event not emitted");
            }
        }
    }
}
