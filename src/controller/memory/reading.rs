//! A source as one keeper last read it, and when it must be read again.

use std::time::Instant;

use crate::controller::latest::Doorbell;
use crate::controller::shared::Fetched;
use crate::kube::objects::Identity;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::content::ContentHash;
use crate::monitor::decide::Content;
use crate::monitor::report;
use crate::monitor::source::Source;

/// The outcome of reading a source.
pub(super) struct Reading {
    /// The source, and its selected keys.
    pub(super) source: Source,
    /// `None` if the source does not exist and is not optional.
    pub(super) content: Option<Content>,
    /// A message that names the missing keys, if any are missing.
    pub(super) missing_keys: Option<Box<str>>,
    /// A message that names the last writer. Kept only while the guard against loops has a wait.
    pub(super) writer: Option<Box<str>>,
    /// The identity of the object, if it exists.
    pub(super) identity: Option<Identity>,
    /// The doorbell when the source was read. `None` while the index does not know that the ConfigMonitor refers to it.
    pub(super) doorbell: Option<Doorbell>,
    /// The reading is not older than this.
    pub(super) read_at: Instant,
    /// A log line has reported this reading.
    pub(super) is_announced: bool,
    /// The object replaces an immutable one, which kubelets do not watch.
    pub(super) replaces_immutable: bool,
    /// The UID of the object if it is immutable. Kept when the object is deleted, to recognize its replacement.
    immutable: Option<Uid>,
}

impl Reading {
    /// Creates a reading from a GET that began at `read_at` or later, given the previous reading.
    pub(super) fn of(
        source: &Source,
        fetched: &Fetched,
        read_at: Instant,
        before: Option<Self>,
        doorbell: Option<Doorbell>,
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
        let earlier_writer =
            before.as_ref().and_then(|before| Some((before.content.as_ref()?.hash.clone(), before.writer.clone()?)));
        let (content, is_announced) = match (hash, before) {
            // The time stays that of the answer that first had this content.
            (Some(hash), Some(Self { content: Some(content), is_announced, .. }))
                if content.version == version && content.hash == hash =>
            {
                (Some(content), is_announced)
            }
            (hash, _) => (hash.map(|hash| Content { hash, version, at: *at, came: *came, first }), false),
        };
        let is_same = |hash: &ContentHash| content.as_ref().is_some_and(|content: &Content| content.hash == *hash);
        let writer = earlier_writer.filter(|(hash, _)| is_same(hash)).map(|(_, writer)| writer);
        // After a restore from backup the object may exist again at the version of a stale doorbell.
        let doorbell = doorbell.filter(|_| identity.is_some());
        let (source, missing_keys, replaces_immutable) =
            (source.clone(), missing.map(String::into_boxed_str), replaced);
        Self {
            source,
            content,
            missing_keys,
            writer,
            identity,
            doorbell,
            read_at,
            is_announced,
            replaces_immutable,
            immutable,
        }
    }

    /// Records who last wrote the source, unless the content has a writer already: writing an annotation restarts
    /// nothing.
    pub(super) fn record_writer(&mut self, fetched: &Fetched) {
        if self.writer.is_some() {
            return;
        }
        let writer = fetched.object.as_ref().and_then(|found| found.object.metadata.last_writer());
        self.writer = writer.map(|(manager, at)| format!("{} by {manager:?} at {at}", self.source.name).into());
    }

    /// Returns whether the doorbell reports nothing newer than this reading.
    pub(super) fn covers(&self, doorbell: &Doorbell) -> bool {
        match (&self.identity, doorbell) {
            (_, doorbell) if self.doorbell.as_ref() == Some(doorbell) => true,
            (Some(identity), Doorbell::At(version)) => identity.resource_version == *version,
            (None, Doorbell::Gone) => true,
            _ => false,
        }
    }

    /// Returns whether the status has another version than this reading, or none. Then somebody else has read the
    /// source, and nobody can say which version is newer.
    pub(super) fn is_disputed(&self, status: Option<&ResourceVersion>) -> bool {
        self.content.as_ref().is_some_and(|content| content.version.as_ref() != status)
    }
}
