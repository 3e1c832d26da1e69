//! The latest value of a keeper's channel: what the index knows about its ConfigMonitor and its sources.

use std::sync::Arc;
use std::time::Instant;

use crate::kube::ResourceVersion;
use crate::kube::error::Error;
use crate::monitor::discover::Found;
use crate::monitor::source::SourceName;

/// What the watches say about a source that may not have been read yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doorbell {
    #[default]
    Silent,
    /// The source exists, at this version.
    At(ResourceVersion),
    /// The source does not exist.
    Gone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latest {
    /// The keeper is to end, and begins no other request.
    pub(crate) is_stopped: bool,
    pub(crate) generation: i64,
    /// Whether the status has a baseline. If the keeper's record has one and this status does not, somebody has cleared
    /// the status.
    pub(crate) baselined: bool,
    /// The annotation that requests a restart.
    pub(crate) request: Option<Arc<str>>,
    /// The version of the ConfigMonitor in the last list. A keeper whose record has another version has missed an edit
    /// that the watch did not show.
    pub(crate) listed: Option<ResourceVersion>,
    /// The keeper may already have read a spec that names other sources.
    pub(crate) sources: Box<[Arc<SourceBell>]>,
    /// The objects to which the selected pods refer, or why these cannot be watched. `None` until they have been listed, and
    /// if the spec does not ask for it.
    pub(crate) found: Option<Result<Arc<Found>, Arc<Error>>>,
    /// A source is gone. The pods are about to be listed anew, and may no longer refer to it.
    pub(crate) awaits_pods: bool,
    /// Why edits of discovered Secrets would go unseen.
    pub(crate) no_secrets: Option<Arc<Error>>,
    /// Why edits of ConfigMaps would go unseen.
    pub(crate) no_config_maps: Option<Arc<Error>>,
}

/// The doorbell of a source, which the keepers of all ConfigMonitors that refer to it share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceBell {
    /// A keeper that has read a new spec before the index has must not apply the doorbell of an earlier source.
    pub(crate) source: SourceName,
    pub(crate) doorbell: Doorbell,
    pub(crate) rung: Option<Instant>,
}

impl Latest {
    /// Returns the bell of this source, unless the index does not know yet that the ConfigMonitor refers to the source.
    pub(crate) fn bell(&self, source: &SourceName) -> Option<&Arc<SourceBell>> {
        self.sources.iter().find(|bell| bell.source == *source)
    }
}
