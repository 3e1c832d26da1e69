//! What the keepers of a namespace share: the client, the limits, and the answers that spare other keepers a request.

mod bells;
mod deletions;
mod lists;
mod requests;
mod sources;

use std::sync::Arc;

use self::bells::Bells;
pub(crate) use self::bells::{Listener, Ring};
use self::deletions::Deletions;
use self::lists::Lists;
pub(crate) use self::lists::{ListInterest, Listing};
use self::requests::Requests;
use self::sources::Sources;
pub(crate) use self::sources::{Fetched, Part, SourceInterest, fetch};
use super::Settings;
use super::handovers::Handovers;
use super::limits::{Limits, NamespaceLimits};
use crate::kube::ResourceVersion;
use crate::kube::client::Client;
use crate::monitor::restart::plan::Snapshot;

/// Lists of the identities of pods, by label selector, each with its version.
type Identities = Requests<String, (), (ResourceVersion, Arc<Snapshot>)>;

pub(crate) struct Shared {
    /// A client for the namespace, whose requests do not end with a keeper.
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) limits: Arc<Limits>,
    pub(crate) namespace_limits: NamespaceLimits,
    pub(crate) sources: Sources,
    pub(crate) lists: Lists,
    pub(crate) identities: Identities,
    pub(crate) bells: Bells,
    pub(crate) deletions: Deletions,
    pub(crate) handovers: Handovers,
}

impl Shared {
    pub(crate) fn new(client: Client, settings: Settings, limits: Arc<Limits>) -> Self {
        Self {
            client,
            settings,
            limits,
            namespace_limits: NamespaceLimits::default(),
            sources: Sources::default(),
            lists: Lists::default(),
            identities: Identities::default(),
            bells: Bells::default(),
            deletions: Deletions::default(),
            handovers: Handovers::default(),
        }
    }
}
