//! What a keeper works with: its ConfigMonitor's name, the client, and what it shares with the others.

use std::sync::Arc;

use super::recorder::Recorder;
use super::shared::Shared;
use crate::kube::Uid;
use crate::kube::client::Client;

/// What a keeper works with.
pub(crate) struct Context {
    /// It begins no request once the keeper is to end.
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) recorder: Recorder,
}

impl Context {
    pub(crate) fn new(client: Client, shared: Arc<Shared>, name: Arc<str>, uid: Uid) -> Self {
        Self { recorder: Recorder::new(client.clone(), name, uid), client, shared }
    }

    /// The name of the ConfigMonitor.
    pub(crate) fn name(&self) -> &str {
        self.recorder.name()
    }

    /// Whether it is for the ConfigMonitor of this identity.
    pub(crate) fn is_for(&self, uid: &Uid) -> bool {
        self.recorder.is_for(uid)
    }
}
