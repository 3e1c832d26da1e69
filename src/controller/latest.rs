//! What a keeper is to take into account: what the index has heard of its ConfigMonitor and its sources.

use std::sync::Arc;
use std::time::Instant;

use crate::kube::ResourceVersion;
use crate::kube::error::Error;
use crate::monitor::source::SourceName;

/// What is known of a source without having read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doorbell {
    /// Nothing.
    #[default]
    Silent,
    /// It is there, at this version.
    At(ResourceVersion),
    /// It is gone.
    Gone,
    /// It cannot be watched, as a right is missing, so that an edit would go unseen.
    Refused(Box<Error>),
}

/// The latest that a keeper should take into account: the value of its channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latest {
    /// The generation of the ConfigMonitor.
    pub(crate) generation: i64,
    /// Whether its status remembers anything. If a keeper remembers more, somebody has cleared the status.
    pub(crate) baselined: bool,
    /// The request for a restart that it has.
    pub(crate) request: Option<Arc<str>>,
    /// Its version in the last list. If a keeper has another one, it has missed something: a watch tells what it has not.
    pub(crate) listed: Option<ResourceVersion>,
    /// What is known of the sources. By now the spec may name others.
    pub(crate) sources: Box<[Bell]>,
}

/// What has been heard of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bell {
    /// The keeper may have read a new spec before the index has: the doorbell of an earlier source says nothing about the new one.
    pub(crate) source: SourceName,
    pub(crate) doorbell: Doorbell,
    /// When that was heard of.
    pub(crate) rung: Option<Instant>,
}

impl Latest {
    /// What has been heard of this source, if the index knows that it matters.
    pub(crate) fn bell(&self, source: &SourceName) -> Option<&Bell> {
        self.sources.iter().find(|bell| bell.source == *source)
    }
}
