//! The lists of pods made right after a content was read, which a restart names by their versions. Those that this process
//! made are kept while the restart is pending: that saves a request, and the API server forgets a list after minutes.

use std::sync::Arc;
use std::time::Instant;

use super::plan::Snapshot;
use crate::kube::error::{Cause, Error};
use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::source::Contents;
use crate::monitor::status::Restart;

#[derive(Default)]
pub(crate) struct Snapshots {
    /// The list for the current content.
    current: Option<Box<Kept>>,
    /// The list for the first content that differed from what pods had been restarted for.
    since: Option<Box<Kept>>,
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
    /// Drops the lists once the restart is not pending any more.
    pub(crate) fn forget(&mut self) {
        (self.current, self.since) = (None, None);
    }

    /// Fills in the versions of the lists that were made for this restart, even if they could not be written at that
    /// time.
    pub(crate) fn complete(&mut self, restart: &mut Restart, came: Instant) {
        let is_named = |current: &Kept| restart.pods_resource_version.as_ref() == Some(&current.version);
        if let Some(current) = self.current.as_mut().filter(|current| is_named(current)) {
            // The sources of the restart may have been edited, and the list still holds.
            current.content = content_of(restart);
        }
        let is_of_another = |current: &mut Box<Kept>| {
            current.content != content_of(restart) || !is_named(current) && current.came != came
        };
        if let Some(before) = self.current.take_if(is_of_another)
            && restart.since_pods_resource_version.as_ref() == Some(&before.version)
        {
            self.since = Some(before);
        }
        if let Some(current) = &self.current {
            restart.pods_resource_version.get_or_insert_with(|| current.version.clone());
        }
    }

    /// Takes the list of this selector for the content of a restart, which came at this time.
    pub(crate) fn record(
        &mut self,
        restart: &mut Restart,
        selector: String,
        came: Instant,
        (version, pods): (ResourceVersion, Arc<Snapshot>),
    ) {
        restart.pods_resource_version = Some(version.clone());
        self.current = Some(Box::new(Kept { content: content_of(restart), came, version, selector, pods }));
    }

    /// Returns the pods of the list at a version, if this process has it.
    pub(crate) fn at(&self, version: &ResourceVersion, selector: &str) -> Option<Arc<Snapshot>> {
        let mut snapshots = self.current.iter().chain(&self.since);
        let found = snapshots.find(|snapshot| snapshot.version == *version && snapshot.selector == selector);
        found.map(|snapshot| Arc::clone(&snapshot.pods))
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

fn content_of(restart: &Restart) -> (Contents, ServerTime) {
    (restart.contents.clone(), restart.observed_at)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kube::{Action, PODS};
    use crate::monitor::content::{ContentHash, Kind};
    use crate::monitor::restart::tests;
    use crate::monitor::source::SourceName;

    fn restart(text: &str, second: i64) -> Restart {
        let at = ServerTime::from_second(second);
        let mut contents = Contents::default();
        let name = SourceName { kind: Kind::ConfigMap, name: "a".into() };
        contents.set(&name, ContentHash::from(text));
        let unlisted = Restart { pods_resource_version: None, ..tests::restart() };
        Restart { contents, observed_at: at, since: at, ..unlisted }
    }

    fn recorded(restart: &mut Restart, came: Instant, version: &str) -> Snapshots {
        let mut snapshots = Snapshots::default();
        snapshots.record(restart, "app=web".to_owned(), came, (version.into(), Arc::default()));
        snapshots
    }

    #[test]
    fn a_list_that_could_not_be_written_is_named_as_long_as_the_content_is_the_same() {
        let came = Instant::now();
        let later = came + Duration::from_secs(1);
        let mut snapshots = recorded(&mut restart("b", 10), came, "7");
        let mut unwritten = restart("b", 10);
        snapshots.complete(&mut unwritten, came);
        assert_eq!(unwritten.pods_resource_version, Some("7".into()));
        assert!(snapshots.at(&"7".into(), "app=web").is_some());
        assert!(snapshots.at(&"7".into(), "app=other").is_none() && snapshots.at(&"8".into(), "app=web").is_none());
        for (mut other, now) in [(restart("c", 10), came), (restart("b", 11), came), (restart("b", 10), later)] {
            let mut snapshots = recorded(&mut restart("b", 10), came, "7");
            snapshots.complete(&mut other, now);
            assert_eq!(other.pods_resource_version, None, "other content, or the same, read anew");
        }
    }

    #[test]
    fn a_list_that_the_status_names_stays_when_its_sources_are_edited_and_as_the_first_one() {
        let came = Instant::now();
        let mut first = restart("b", 10);
        let mut snapshots = recorded(&mut first, came, "7");
        let mut edited = Restart { pods_resource_version: first.pods_resource_version, ..restart("b2", 12) };
        snapshots.complete(&mut edited, came);
        assert!(snapshots.at(&"7".into(), "app=web").is_some());
        let mut next = Restart { since_pods_resource_version: Some("7".into()), ..restart("c", 20) };
        snapshots.complete(&mut next, came + Duration::from_secs(8));
        assert_eq!((next.pods_resource_version, snapshots.at(&"7".into(), "app=web").is_some()), (None, true));
        snapshots.forget();
        assert!(snapshots.at(&"7".into(), "app=web").is_none());
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
