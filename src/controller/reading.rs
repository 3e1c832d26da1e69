//! The ConfigMap as one keeper last read it, and when that is worth another look.

use super::index::Doorbell;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::{ConfigMap, Identity};
use crate::kube::{CONFIG_MAPS, ResourceVersion, Uid};
use crate::monitor::content::ContentHash;
use crate::monitor::decide::{Content, Look};
use crate::monitor::spec::Policy;

/// What was read of a ConfigMap.
pub(super) struct Reading {
    /// The ConfigMap, and which keys of it.
    pub(super) source: String,
    pub(super) look: Look,
    /// Which object it was, if there was one.
    pub(super) identity: Option<Identity>,
    /// What the doorbell had said by then.
    pub(super) heard: Doorbell,
    /// A line of the log was about it.
    pub(super) is_announced: bool,
    /// It has taken the place of one that was immutable, and that kubelets did not watch any more.
    pub(super) replaces_immutable: bool,
    /// The identity of the ConfigMap, if it is, or was when it was there, immutable.
    immutable: Option<Uid>,
}

impl Reading {
    /// Reads the ConfigMap of a policy, given what was read of it before.
    pub(super) async fn of(
        client: &Client,
        policy: &Policy,
        before: Option<&Self>,
        doorbell: Doorbell,
    ) -> Result<Self, Error> {
        let source = policy.source();
        let before = before.filter(|before| before.source == source);
        let mut immutable = before.and_then(|before| before.immutable.clone());
        let (mut replaces_immutable, mut is_announced) = (false, false);
        let (look, identity) = match client.get::<ConfigMap>(CONFIG_MAPS, &policy.config_map).await {
            Ok(answer) => {
                let hash = ContentHash::of(&answer.value, policy.keys.as_ref());
                let identity = answer.value.metadata;
                replaces_immutable = immutable.is_some_and(|uid| uid != identity.uid);
                immutable = answer.value.immutable.then(|| identity.uid.clone());
                let version = identity.resource_version.clone();
                let content = match before.map(|before| &before.look) {
                    // The time is that of the answer which first carried it.
                    Some(Look::Found(content)) if content.version == version && content.hash == hash => {
                        is_announced = before.is_some_and(|before| before.is_announced);
                        content.clone()
                    }
                    _ => Content { hash, version, at: answer.at, first: before.is_none() },
                };
                (Look::Found(content), Some(identity))
            }
            Err(error) if error.cause == Cause::NotFound => (Look::Missing, None),
            Err(error) => return Err(error),
        };
        Ok(Self { source, look, identity, heard: doorbell, is_announced, replaces_immutable, immutable })
    }

    /// Whether the doorbell says nothing that was not read.
    pub(super) fn covers(&self, doorbell: &Doorbell) -> bool {
        match (&self.look, doorbell) {
            (_, doorbell) if *doorbell == self.heard => true,
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
