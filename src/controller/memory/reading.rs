//! A source as one keeper last read it, and when that is worth another look.

use std::time::Instant;

use crate::controller::latest::Doorbell;
use crate::controller::shared::Fetched;
use crate::kube::objects::Identity;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::content::ContentHash;
use crate::monitor::decide::Content;
use crate::monitor::report;
use crate::monitor::source::Source;

/// What was read of a source.
pub(super) struct Reading {
    /// The source, and which keys of it.
    pub(super) source: Source,
    /// None if it does not exist and is not optional.
    pub(super) content: Option<Content>,
    /// Which keys of the spec it lacks, for a person, if it lacks any.
    pub(super) missing_keys: Option<Box<str>>,
    /// Who last wrote it, for a person. Kept only while that matters.
    pub(super) writer: Option<Box<str>>,
    /// Which object it was, if there was one.
    pub(super) identity: Option<Identity>,
    /// What its doorbell had said by then. None while the index does not know that it matters here.
    pub(super) heard: Option<Doorbell>,
    /// It is not older than this.
    pub(super) read_at: Instant,
    /// A line of the log was about it.
    pub(super) is_announced: bool,
    /// It has taken the place of one that was immutable, and that kubelets did not watch any more.
    pub(super) replaces_immutable: bool,
    /// The identity of the object, if it is, or was when it was there, immutable.
    immutable: Option<Uid>,
}

impl Reading {
    /// What was read of a source at this time or later, given what was read of it before.
    pub(super) fn of(
        source: &Source,
        fetched: &Fetched,
        read_at: Instant,
        before: Option<Self>,
        heard: Option<Doorbell>,
    ) -> Self {
        let Fetched { object, at, came } = fetched;
        let missing = object.as_ref().zip(source.keys.as_ref());
        let missing = missing.and_then(|(found, keys)| report::missing_keys(&source.name, &found.object, keys));
        let identity = object.as_ref().map(|found| found.object.metadata.identity());
        let before = before.filter(|before| before.source == *source);
        let was_immutable = before.as_ref().and_then(|before| before.immutable.clone());
        let immutable = match object {
            Some(found) => found.object.immutable.then(|| found.object.metadata.uid.clone()),
            None => was_immutable.clone(),
        };
        let replaced = was_immutable.zip(identity.as_ref()).is_some_and(|(uid, identity)| uid != identity.uid);
        let hash = match object {
            Some(found) => Some(found.hash(source.keys.as_ref())),
            None => source.optional.then(ContentHash::absent),
        };
        let version = identity.as_ref().map(|identity| identity.resource_version.clone());
        let first = before.is_none();
        let known =
            before.as_ref().and_then(|before| Some((before.content.as_ref()?.hash.clone(), before.writer.clone()?)));
        let (content, is_announced) = match (hash, before) {
            // The time is that of the answer which first carried it.
            (Some(hash), Some(Self { content: Some(content), is_announced, .. }))
                if content.version == version && content.hash == hash =>
            {
                (Some(content), is_announced)
            }
            (hash, _) => (hash.map(|hash| Content { hash, version, at: *at, came: *came, first }), false),
        };
        let is_same = |hash: &ContentHash| content.as_ref().is_some_and(|content: &Content| content.hash == *hash);
        let writer = known.filter(|(hash, _)| is_same(hash)).map(|(_, writer)| writer);
        // What is restored from a backup may come back at the version at which a stale doorbell still shows it.
        let heard = heard.filter(|_| identity.is_some());
        let (source, missing_keys, replaces_immutable) =
            (source.clone(), missing.map(String::into_boxed_str), replaced);
        Self {
            source,
            content,
            missing_keys,
            writer,
            identity,
            heard,
            read_at,
            is_announced,
            replaces_immutable,
            immutable,
        }
    }

    /// Keeps who last wrote it, unless that is known of this content: who writes an annotation restarts nothing.
    pub(super) fn note_writer(&mut self, fetched: &Fetched) {
        if self.writer.is_some() {
            return;
        }
        let writer = fetched.object.as_ref().and_then(|found| found.object.metadata.last_writer());
        self.writer = writer.map(|(manager, at)| format!("{} by {manager:?} at {at}", self.source.name).into());
    }

    /// Whether the doorbell says nothing that was not read.
    pub(super) fn covers(&self, doorbell: &Doorbell) -> bool {
        match (&self.identity, doorbell) {
            (_, doorbell) if self.heard.as_ref() == Some(doorbell) => true,
            (Some(identity), Doorbell::At(version)) => identity.resource_version == *version,
            (None, Doorbell::Gone) => true,
            _ => false,
        }
    }

    /// Whether the status is about another version than was read here, or about none: then somebody else has read that one, or that it is gone, and
    /// nobody can say which is the newer.
    pub(super) fn is_disputed(&self, status: Option<&ResourceVersion>) -> bool {
        self.content.as_ref().is_some_and(|content| content.version.as_ref() != status)
    }
}
