//! What all keepers of a namespace share: the client, the limits, and what one of them knows that spares another a request.

mod deletions;
mod events;
mod lists;
mod pool;
mod requests;
mod sources;

use std::sync::Arc;

use self::deletions::Deletions;
use self::events::EventTimes;
use self::lists::Lists;
pub(crate) use self::lists::{InPods, Listener, Listening, Listing, PodEvent};
pub(crate) use self::pool::Pool;
use self::requests::Requests;
use self::sources::Sources;
pub(crate) use self::sources::{Fetched, InSource, fetch};
use super::limits::{Limits, Own};
use crate::kube::client::Client;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::rollout::Listed;

/// Lists of the identities of pods, each with its version.
type Identities = Requests<String, (ResourceVersion, Arc<Listed>)>;

/// What all keepers of a namespace share.
pub(crate) struct Shared {
    /// A client for the namespace. What is asked for with it does not end with a keeper.
    pub(crate) client: Client,
    /// The operator's own pod, which is never deleted.
    pub(crate) own_pod: Option<Uid>,
    /// Those of the process,
    pub(crate) limits: Arc<Limits>,
    /// and those of the namespace.
    pub(crate) own: Own,
    pub(crate) sources: Arc<Sources>,
    pub(crate) lists: Arc<Lists>,
    /// Lists of which only the identities are kept, by label selector.
    pub(crate) identities: Arc<Identities>,
    /// The pods of all restarts.
    pub(crate) pods: Pool,
    pub(crate) deletions: Deletions,
    pub(crate) event_times: EventTimes,
}

impl Shared {
    pub(crate) fn new(client: Client, own_pod: Option<Uid>, limits: Arc<Limits>) -> Self {
        Self {
            client,
            own_pod,
            limits,
            own: Own::default(),
            sources: Arc::default(),
            lists: Arc::default(),
            identities: Arc::default(),
            pods: Pool::default(),
            deletions: Deletions::default(),
            event_times: EventTimes::default(),
        }
    }
}
