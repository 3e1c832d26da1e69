//! Which pods may have other content than the last one: a function of the journal, of the lists of pods that it names, and of
//! what a list says of a pod.

use std::collections::HashMap;
use std::iter::once;
use std::sync::Arc;

use super::plan::Snapshot;
use super::{SKEW, SLACK};
use crate::kube::error::{Cause, Error};
use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::content::ContentHash;
use crate::monitor::pod::Pod;
use crate::monitor::status::{Change, SourceStatus, Status};

/// The lists of pods that a status names. Those that this process made are kept until the journal is cut: that saves a
/// request, and the API server forgets a list after minutes.
#[derive(Default)]
pub(crate) struct Lists {
    /// Each with its label selector.
    known: HashMap<ResourceVersion, (String, Arc<Snapshot>)>,
    /// Whether times of creation have taken the place of a list, so that two clocks are compared.
    are_by_times: bool,
    /// The versions of lists that the API server has refused to return again.
    refused: Vec<ResourceVersion>,
}

impl Lists {
    /// Takes the list of this selector at a version.
    pub(crate) fn record(&mut self, version: ResourceVersion, selector: String, pods: Arc<Snapshot>) {
        self.known.insert(version, (selector, pods));
    }

    /// Drops the lists that the status does not name, or that are of another selector. Returns those that it names and that
    /// are not known.
    pub(crate) fn keep(&mut self, status: &Status, selector: &str) -> Vec<ResourceVersion> {
        self.known.retain(|version, (its, _)| *its == selector && status.lists().any(|(named, _)| named == version));
        self.are_by_times &= !self.known.is_empty();
        let mut missing: Vec<ResourceVersion> = Vec::new();
        for (version, _) in status.lists().filter(|(version, _)| !self.known.contains_key(version)) {
            if !missing.contains(version) {
                missing.push(version.clone());
            }
        }
        missing
    }

    /// Makes up for a list that the API server has forgotten: of the first list since then, the pods that were created by
    /// that time. A pod that is created later is in none, whatever the clocks say.
    pub(crate) fn make_up(&mut self, status: &Status, version: &ResourceVersion, selector: String, pods: &[Arc<Pod>]) {
        let made_at = status.lists().filter(|(its, _)| *its == version).map(|(_, at)| at).max();
        let before = pods.iter().filter(|pod| made_at.is_some_and(|at| pod.created <= at.plus(SKEW)));
        self.record(version.clone(), selector, Arc::new(before.map(|pod| pod.uid.clone()).collect()));
        self.are_by_times = true;
    }

    /// Returns whether an owner whose pods were all replaced before looks like one of which none is.
    pub(crate) fn are_by_times(&self) -> bool {
        self.are_by_times
    }

    fn contain(&self, version: Option<&ResourceVersion>, pod: &Pod) -> Option<bool> {
        Some(self.known.get(version?)?.1.contains(&pod.uid))
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

/// Returns whether a pod may have other content than the last one of a source that concerns it, or is meant by a request.
pub(crate) fn is_stale(status: &Status, lists: &Lists, pod: &Pod, concerns: impl Fn(&SourceStatus) -> bool) -> bool {
    let request = status.request().and_then(|request| request.pods_resource_version.as_ref());
    lists.contain(request, pod) == Some(true)
        || status.sources.iter().any(|known| may_have_read_other(known, lists, pod) && concerns(known))
}

fn may_have_read_other(known: &SourceStatus, lists: &Lists, pod: &Pod) -> bool {
    let Some(last) = known.changes.last() else { return false };
    // Each content came with a change, but for the first one, and went with the next.
    let came = once(None).chain(known.changes.iter().map(Some));
    came.zip(&known.changes).any(|(change, next)| {
        let hash = change.map_or(known.hash.as_ref(), |change| Some(&change.hash));
        let is_other = hash != Some(&last.hash) || hash == Some(&ContentHash::unknown());
        let may_be_older = lists.contain(next.pods_resource_version.as_ref(), pod) != Some(false);
        is_other && may_be_older && change.is_none_or(|change| may_have_read(change, lists, pod))
    })
}

/// Returns whether a pod may have been there since this content came. One that was created earlier may have read it, too:
/// it waited for its image, or a container was restarted.
fn may_have_read(change: &Change, lists: &Lists, pod: &Pod) -> bool {
    let since = change.since.minus(if lists.are_by_times { SKEW } else { SLACK });
    let is_since = |at: ServerTime| at >= since;
    lists.contain(change.pods_resource_version.as_ref(), pod) == Some(false)
        || is_since(pod.created)
        || pod.started.is_none_or(is_since)
}
