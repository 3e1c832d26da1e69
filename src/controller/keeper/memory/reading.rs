//! A source as one keeper last read it, and when it must be read again.

use std::sync::Arc;
use std::time::Instant;

use crate::controller::latest::{Doorbell, SourceBell};
use crate::controller::shared::Fetched;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::content::ContentHash;
use crate::monitor::decide::Content;
use crate::monitor::source::{Keys, Origin, Source};
use crate::monitor::words;

pub(super) struct Reading {
    pub(super) source: Source,
    /// `None` if the source does not exist and is not optional.
    pub(super) content: Option<Content>,
    /// A message that names the missing keys, if any are missing.
    pub(super) missing_keys: Option<Box<str>>,
    /// A message that names who last wrote the source when its content was first read: writing an annotation restarts
    /// nothing.
    pub(super) writer: Option<Box<str>>,
    /// The UID of the source, if it exists.
    pub(super) uid: Option<Uid>,
    /// The bell when the source was read. `None` while the index does not know that the ConfigMonitor refers to it.
    pub(super) bell: Option<Arc<SourceBell>>,
    /// The reading is not older than this.
    pub(super) read_at: Instant,
    /// A log line has reported this reading.
    pub(super) is_announced: bool,
}

impl Reading {
    /// Creates a reading from a GET that began at `read_at` or later, given the keys of the status, if they are others, the
    /// content as last recorded, and the previous reading.
    pub(super) fn of(
        source: &Source,
        (recorded, last): (Option<&Keys>, Option<&ContentHash>),
        fetched: &Fetched,
        read_at: Instant,
        before: Option<Self>,
        bell: Option<Arc<SourceBell>>,
    ) -> Self {
        let Fetched { object, at, came } = fetched;
        let object = object.as_deref();
        let uid = object.map(|found| found.uid.clone());
        let (hash, of_recorded) = match object {
            // Nobody means the changes of a token who does not name it.
            Some(found) if !found.is_token || source.origin == Origin::Named => {
                (Some(found.hash.clone()), found.recorded.clone())
            }
            None if !source.optional => (None, None),
            Some(_) | None => (Some(ContentHash::absent()), Some(ContentHash::absent())),
        };
        let recorded = recorded.cloned().zip(of_recorded).map(Box::new);
        let version = object.map(|found| found.version.clone());
        // The content before was there until now, unless that is not recorded: nobody will know of it.
        let since = before.as_ref().and_then(|before| match &before.content {
            Some(content) if Some(&content.hash) != last => content.since,
            _ => Some(*at),
        });
        let is_same = |before: &&Self| before.content.as_ref().map(|content| &content.hash) == hash.as_ref();
        let written = || {
            let (manager, at) = object?.writer.as_ref()?;
            Some(words::written(&source.name, manager, *at).into())
        };
        let writer = before.as_ref().filter(is_same).map_or_else(written, |before| before.writer.clone());
        let (content, is_announced) = match (hash, before) {
            // The time stays that of the answer that first had this content.
            (Some(hash), Some(Self { content: Some(content), is_announced, .. }))
                if content.version == version && content.hash == hash =>
            {
                (Some(Content { recorded, ..content }), is_announced)
            }
            (hash, _) => (hash.map(|hash| Content { hash, recorded, version, at: *at, came: *came, since }), false),
        };
        // After a restore from backup the object may exist again at the version of a stale doorbell.
        let bell = bell.filter(|_| uid.is_some());
        let named = object.filter(|_| source.origin == Origin::Named);
        let (source, missing_keys) = (source.clone(), named.and_then(|found| found.missing_keys.clone()));
        Self { source, content, missing_keys, writer, uid, bell, read_at, is_announced }
    }

    /// Returns whether the content can be compared with what the status has recorded under these keys, if they are others.
    pub(super) fn is_comparable(&self, recorded: Option<&Keys>) -> bool {
        let (Some(recorded), Some(content)) = (recorded, &self.content) else { return true };
        content.recorded.as_deref().is_some_and(|(keys, _)| keys == recorded)
    }

    /// Returns whether the bell reports nothing newer than this reading.
    pub(super) fn covers(&self, bell: &Arc<SourceBell>) -> bool {
        match (self.version(), &bell.doorbell) {
            _ if self.bell.as_ref() == Some(bell) => true,
            (Some(version), Doorbell::At(rung)) => version == rung,
            (None, Doorbell::Gone) => true,
            _ => false,
        }
    }

    /// Returns the version of the source, if it exists.
    fn version(&self) -> Option<&ResourceVersion> {
        self.content.as_ref()?.version.as_ref()
    }
}
