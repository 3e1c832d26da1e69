//! The ConfigMap as one keeper last read it, and when that is worth another look.

use std::time::Instant;

use crate::controller::goal::Doorbell;
use crate::controller::shared::Fetched;
use crate::kube::objects::Identity;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::decide::{Content, Look};
use crate::monitor::report;
use crate::monitor::spec::Policy;

/// What was read of a ConfigMap.
pub(super) struct Reading {
    /// The ConfigMap, and which keys of it.
    pub(super) source: String,
    pub(super) look: Look,
    /// Which keys of the spec it lacks, for a person, if it lacks any.
    pub(super) missing_keys: Option<Box<str>>,
    /// Which object it was, if there was one.
    pub(super) identity: Option<Identity>,
    /// What the doorbell of this ConfigMap had said by then. None while the index does not know that it matters here.
    pub(super) heard: Option<Doorbell>,
    /// It is not older than this.
    pub(super) read_at: Instant,
    /// A line of the log was about it.
    pub(super) is_announced: bool,
    /// It has taken the place of one that was immutable, and that kubelets did not watch any more.
    pub(super) replaces_immutable: bool,
    /// The identity of the ConfigMap, if it is, or was when it was there, immutable.
    immutable: Option<Uid>,
}

impl Reading {
    /// What was read of the ConfigMap of a policy at this time or later, given what was read of it before.
    pub(super) fn of(
        policy: &Policy,
        fetched: &Fetched,
        read_at: Instant,
        before: Option<&Self>,
        heard: Option<Doorbell>,
    ) -> Self {
        let source = policy.source();
        let before = before.filter(|before| before.source == source);
        let mut immutable = before.and_then(|before| before.immutable.clone());
        let (mut replaces_immutable, mut is_announced) = (false, false);
        let missing = fetched.as_ref().zip(policy.keys.as_ref());
        let missing = missing.and_then(|(fetched, keys)| report::missing_keys(&fetched.config_map, keys));
        let missing_keys = missing.map(String::into_boxed_str);
        let (look, identity) = match fetched {
            Some(fetched) => {
                let hash = fetched.hash(policy.keys.as_ref());
                let identity = fetched.config_map.metadata.clone();
                replaces_immutable = immutable.is_some_and(|uid| uid != identity.uid);
                immutable = fetched.config_map.immutable.then(|| identity.uid.clone());
                let version = identity.resource_version.clone();
                let content = match before.map(|before| &before.look) {
                    // The time is that of the answer which first carried it.
                    Some(Look::Found(content)) if content.version == version && content.hash == hash => {
                        is_announced = before.is_some_and(|before| before.is_announced);
                        content.clone()
                    }
                    _ => Content { hash, version, at: fetched.at, came: fetched.came, first: before.is_none() },
                };
                (Look::Found(content), Some(identity))
            }
            None => (Look::Missing, None),
        };
        // A ConfigMap that is restored from a backup may come back at the version at which a stale doorbell still shows it.
        let heard = heard.filter(|_| look != Look::Missing);
        Self { source, look, missing_keys, identity, heard, read_at, is_announced, replaces_immutable, immutable }
    }

    /// Whether the doorbell says nothing that was not read.
    pub(super) fn covers(&self, doorbell: &Doorbell) -> bool {
        match (&self.look, doorbell) {
            (_, doorbell) if self.heard.as_ref() == Some(doorbell) => true,
            (Look::Found(content), Doorbell::At(version)) => content.version == *version,
            (Look::Missing, Doorbell::Gone) => true,
            _ => false,
        }
    }

    /// Whether the status is about another version than was read here: then somebody else has read that one, and nobody can say
    /// which is the newer.
    pub(super) fn is_disputed(&self, status: Option<&ResourceVersion>) -> bool {
        matches!((&self.look, status), (Look::Found(content), Some(version)) if content.version != *version)
    }
}
