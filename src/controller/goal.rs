//! What a keeper is to take into account: what the index has heard of its ConfigMonitor and its ConfigMap.

use std::sync::Arc;
use std::time::Instant;

use crate::kube::ResourceVersion;

/// What is known of a ConfigMap without having read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doorbell {
    /// Nothing.
    #[default]
    Silent,
    /// It is there, at this version.
    At(ResourceVersion),
    /// It is gone.
    Gone,
}

/// The latest that a keeper should take into account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Goal {
    /// The generation of the ConfigMonitor.
    pub(crate) generation: i64,
    /// Whether its status remembers anything. If a keeper remembers more, somebody has cleared the status.
    pub(crate) baselined: bool,
    /// Its version in the last list. If a keeper has another one, it has missed something: a watch tells what it has not.
    pub(crate) listed: Option<ResourceVersion>,
    /// The ConfigMap that the next two are about. By now the spec may name another one.
    pub(crate) source: Option<Arc<str>>,
    pub(crate) doorbell: Doorbell,
    /// When that was heard of.
    pub(crate) rung: Option<Instant>,
}
