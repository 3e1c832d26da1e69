//! The lists of pods made right after a content was read, which a restart names by their versions. Those that this process
//! made are kept until the restart is over, as other content may come: that saves a request, and the API server forgets a
//! list after minutes.

use std::sync::Arc;
use std::time::Instant;

use super::plan::Snapshot;
use crate::kube::error::{Cause, Error};
use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::source::Contents;
use crate::monitor::status::Restart;

#[derive(Default)]
pub(crate) struct Snapshots {
    /// The newest one is the last.
    kept: Vec<Kept>,
    /// The versions of lists that the API server has refused to return again.
    refused: Vec<ResourceVersion>,
}

struct Kept {
    /// The content, and when it was first read.
    content: (Contents, ServerTime),
    /// When the answer with the content came: content may change and be reverted within a second.
    came: Instant,
    version: ResourceVersion,
    selector: String,
    pods: Arc<Snapshot>,
}

impl Snapshots {
    /// Returns the version of the list that was made for this content, which came at this time, even if it could not be
    /// written at that time.
    pub(crate) fn made_for(&self, content: &(Contents, ServerTime), came: Instant) -> Option<&ResourceVersion> {
        let last = self.kept.last().filter(|last| last.content == *content && last.came == came);
        last.map(|last| &last.version)
    }

    /// Fills in the version of the list that was made for the content of a restart, and drops those that it does not name.
    pub(crate) fn complete(&mut self, restart: &mut Restart, content: &(Contents, ServerTime), came: Instant) {
        if let Some(version) = self.made_for(content, came) {
            let unlisted = restart.changes.iter_mut().map(|change| &mut change.pods_resource_version);
            unlisted.for_each(|list| _ = list.get_or_insert_with(|| version.clone()));
        }
        self.keep_named_by(restart);
    }

    pub(crate) fn keep_named_by(&mut self, restart: &Restart) {
        let firsts = || restart.changes.iter().filter_map(|change| change.since_pods_resource_version.as_ref());
        self.kept.retain(|kept| restart.lists().chain(firsts()).any(|named| *named == kept.version));
    }

    /// Takes the list of this selector for content, which came at this time.
    pub(crate) fn record(
        &mut self,
        content: (Contents, ServerTime),
        selector: String,
        came: Instant,
        (version, pods): (ResourceVersion, Arc<Snapshot>),
    ) {
        self.kept.push(Kept { content, came, version, selector, pods });
    }

    /// Returns the pods of the list at a version, if this process has it.
    pub(crate) fn at(&self, version: &ResourceVersion, selector: &str) -> Option<Arc<Snapshot>> {
        let found = self.kept.iter().find(|kept| kept.version == *version && kept.selector == selector);
        found.map(|kept| Arc::clone(&kept.pods))
    }

    /// Takes the answer to the request for the list at a version. Returns `None` if the API server has forgotten it. A
    /// server may report this by another refusal than 410: such a refusal is believed the second time.
    pub(crate) fn answered<T>(
        &mut self,
        version: &ResourceVersion,
        answer: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let error = match answer {
            Ok(list) => {
                self.refused.retain(|refused| refused != version);
                return Ok(Some(list));
            }
            Err(error) => error,
        };
        match &error.cause {
            Cause::Expired => Ok(None),
            Cause::Refused(_) | Cause::Invalid(_) if self.refused.contains(version) => Ok(None),
            Cause::Refused(_) | Cause::Invalid(_) => {
                self.refused.push(version.clone());
                Err(error)
            }
            _ => Err(error),
        }
    }

    /// A server that refuses every list has forgotten none.
    pub(crate) fn every_list_fails(&mut self) {
        self.refused.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kube::{Action, PODS};
    use crate::monitor::content::ContentHash;
    use crate::monitor::restart::tests::{change, restart_of};
    use crate::monitor::status::Change;

    type Content = (Contents, ServerTime);

    fn content(text: &str, second: i64) -> Content {
        let mut contents = Contents::default();
        contents.set(&change().source, ContentHash::from(text));
        (contents, ServerTime::from_second(second))
    }

    fn recorded(content: Content, came: Instant) -> Snapshots {
        let mut snapshots = Snapshots::default();
        snapshots.record(content, "app=web".to_owned(), came, ("7".into(), Arc::default()));
        snapshots
    }

    /// Returns whether the list is kept.
    fn is_kept(snapshots: &Snapshots) -> bool {
        snapshots.at(&"7".into(), "app=web").is_some()
    }

    #[test]
    fn a_list_that_could_not_be_written_is_named_as_long_as_the_content_is_the_same() {
        let came = Instant::now();
        let later = came + Duration::from_secs(1);
        let unlisted = || restart_of(Change { pods_resource_version: None, ..change() });
        let mut snapshots = recorded(content("b", 10), came);
        let mut unwritten = unlisted();
        snapshots.complete(&mut unwritten, &content("b", 10), came);
        assert_eq!(unwritten.changes[0].pods_resource_version, Some("7".into()));
        assert!(is_kept(&snapshots));
        assert!(snapshots.at(&"7".into(), "app=other").is_none() && snapshots.at(&"8".into(), "app=web").is_none());
        for (other, now) in [(content("c", 10), came), (content("b", 11), came), (content("b", 10), later)] {
            let (mut snapshots, mut unwritten) = (recorded(content("b", 10), came), unlisted());
            snapshots.complete(&mut unwritten, &other, now);
            let named = &unwritten.changes[0].pods_resource_version;
            assert_eq!((named, is_kept(&snapshots)), (&None, false), "other content, or the same, read anew");
        }
    }

    #[test]
    fn a_list_stays_as_long_as_a_change_names_it() {
        let came = Instant::now();
        let named = Some("7".into());
        let own = Change { pods_resource_version: named.clone(), since_pods_resource_version: None, ..change() };
        let first = Change { pods_resource_version: None, since_pods_resource_version: named, ..change() };
        for (change, kept) in [(own, true), (first, true), (Change { pods_resource_version: None, ..change() }, false)]
        {
            let mut snapshots = recorded(content("b", 10), came);
            snapshots.complete(&mut restart_of(change), &content("c", 20), came);
            assert_eq!(is_kept(&snapshots), kept);
        }
    }

    #[test]
    fn a_list_is_forgotten_by_410_or_by_the_second_refusal_in_a_row() {
        let version = "7".into();
        let failed = |cause| Err::<(), _>(Action::new("list", PODS).failed(cause));
        let refused = || failed(Cause::Refused("x".to_owned()));
        let mut snapshots = Snapshots::default();
        assert_eq!(snapshots.answered(&version, failed(Cause::Expired)).ok(), Some(None));
        assert!(snapshots.answered(&version, failed(Cause::Unreachable("x".to_owned()))).is_err());
        assert!(snapshots.answered(&version, refused()).is_err());
        assert_eq!(snapshots.answered(&version, Ok(())).ok(), Some(Some(())));
        assert!(snapshots.answered(&version, failed(Cause::Invalid("x".to_owned()))).is_err());
        assert!(snapshots.answered(&"8".into(), refused()).is_err(), "another list");
        assert_eq!(snapshots.answered(&version, refused()).ok(), Some(None));
        snapshots.every_list_fails();
        assert!(snapshots.answered(&version, refused()).is_err());
    }
}
