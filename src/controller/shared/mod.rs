//! What the keepers of a namespace share: the client, the limits, and the answers that spare other keepers a request.

mod bells;
mod deletions;
mod lists;
mod requests;
mod sources;
mod surge_bell;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::bells::Bells;
pub(crate) use self::bells::{Listener, Ring};
use self::deletions::Deletions;
use self::lists::SharedLists;
pub(crate) use self::lists::{ListInterest, Listing};
use self::requests::Requests;
use self::sources::Sources;
pub(crate) use self::sources::{Fetched, KeySets, SourceInterest, fetch};
pub(crate) use self::surge_bell::SurgeBell;
use super::limits::{Limits, NamespaceLimits};
use crate::kube::client::Client;
use crate::kube::{ResourceVersion, Uid};
use crate::metrics::Metrics;
use crate::monitor::referrers::Snapshot;

/// What the ConfigMonitors of all namespaces have in common.
#[derive(Clone, Default)]
pub struct Settings {
    /// The operator's own pod, which is never deleted.
    pub own_pod: Option<Uid>,
    /// Whether pods may be handed over.
    pub surges: bool,
    /// The names of objects that are never discovered.
    pub excluded: Arc<BTreeSet<Arc<str>>>,
    /// What counts their restarts.
    pub metrics: Arc<Metrics>,
}

/// Lists of the identities of pods, by label selector, each with its version.
type Identities = Requests<String, (), (ResourceVersion, Arc<Snapshot>)>;

pub(crate) struct Shared {
    /// A client for the namespace, whose requests do not end with a keeper.
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) limits: Arc<Limits>,
    pub(crate) namespace_limits: NamespaceLimits,
    pub(crate) sources: Sources,
    pub(crate) lists: SharedLists,
    pub(crate) identities: Identities,
    bells: Bells,
    pub(crate) deletions: Deletions,
    pub(crate) surge: SurgeBell,
}

impl Shared {
    pub(crate) fn new(client: Client, settings: Settings, limits: Arc<Limits>) -> Self {
        Self {
            client,
            settings,
            limits,
            namespace_limits: NamespaceLimits::default(),
            sources: Sources::default(),
            lists: SharedLists::default(),
            identities: Identities::default(),
            bells: Bells::default(),
            deletions: Deletions::default(),
            surge: SurgeBell::default(),
        }
    }

    /// Listens to the bell of the pods of this selector, from a list on. Returns `None` if there are too many watches: without
    /// one, passes follow each other with backoff.
    pub(crate) fn listen(&self, query: String, listing: &Listing) -> Option<Listener> {
        let permit = || self.limits.try_watch(&self.namespace_limits);
        self.bells.listen(&self.client, permit, (query, listing), self.settings.surges)
    }
}
