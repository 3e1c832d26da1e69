//! What one watch covers.

use std::sync::Arc;

use crate::kube::{NAMESPACES, PODS, Resource};
use crate::monitor::CONFIG_MONITORS;
use crate::monitor::content::Kind;
use crate::monitor::source::SourceName;

/// What one watch, or one poll, covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// `None` for all namespaces.
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) target: Target,
}

/// The objects that a watch covers within its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    ConfigMonitors,
    /// The namespaces with these labels.
    Namespaces(Arc<str>),
    All(Kind),
    /// The pods that are handed over.
    HandedOver,
    /// The pods with these labels that have not finished, in which sources are discovered. They are polled if too many
    /// are watched.
    Selected(Arc<str>),
    /// A Secret that a spec names, where not all Secrets may be watched. It is polled.
    One(SourceName),
}

impl Target {
    pub(crate) fn resource(&self) -> Resource {
        match self {
            Self::ConfigMonitors => CONFIG_MONITORS,
            Self::Namespaces(_) => NAMESPACES,
            Self::All(kind) => kind.resource(),
            Self::HandedOver | Self::Selected(_) => PODS,
            Self::One(source) => source.kind.resource(),
        }
    }
}
