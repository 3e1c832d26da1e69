//! The journals of the sources in a status: which contents pods may have, and which lists of pods say so.

use super::content::ContentHash;
use super::source::{Keys, SourceName};
use super::status::{Change, RestartRequest, SourceStatus, Status};
use crate::kube::{ResourceVersion, ServerTime};

/// The maximum number of changes of a source. Four suffice: the change of the restart under way, one before it, one
/// after it, and the last one.
const MAX_CHANGES: usize = 4;
/// The maximum number of changes of all sources, unless each has two.
pub(super) const MAX_ALL_CHANGES: usize = 256;
/// What decides which pods are old: the contents of each changed source, whether it is discovered, and the request. For
/// which content the restart has begun does not matter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Journal {
    sources: Vec<(SourceName, bool, Option<ContentHash>, Vec<Change>)>,
    request: Option<RestartRequest>,
}

impl SourceStatus {
    pub(crate) fn append(&mut self, change: Change) {
        self.changes.push(change);
        if self.changes.len() > MAX_CHANGES {
            self.merge();
        }
    }

    /// Merges two neighbouring changes: pods that may have read either have other content. Spares, if possible, the
    /// change of the restart under way.
    fn merge(&mut self) {
        let are_free = |at: &usize| !self.changes[*at].begun && !self.changes[at + 1].begun;
        let at = (0..self.changes.len() - 2).find(are_free).unwrap_or(0);
        let second = self.changes.remove(at + 1);
        let first = &mut self.changes[at];
        first.hash = ContentHash::unknown();
        first.begun |= second.begun;
        first.pods_resource_version = first.pods_resource_version.take().or(second.pods_resource_version);
    }

    /// Returns all contents that the journal knows.
    pub(super) fn hashes_mut(&mut self) -> impl Iterator<Item = &mut ContentHash> {
        self.hash.iter_mut().chain(self.changes.iter_mut().map(|change| &mut change.hash))
    }
}

impl Status {
    pub(super) fn changes_mut(&mut self) -> impl Iterator<Item = &mut Change> {
        self.sources.iter_mut().flat_map(|known| &mut known.changes)
    }

    /// Returns when each content was read and the restart was requested, with the list of pods that was made for it.
    fn readings(&self) -> impl Iterator<Item = (Option<&ResourceVersion>, ServerTime)> {
        let of_changes = self.changes().map(|change| (change.pods_resource_version.as_ref(), change.observed_at));
        let request = self.request().into_iter();
        of_changes.chain(request.map(|request| (request.pods_resource_version.as_ref(), request.observed_at)))
    }

    /// Returns the lists of pods that the journal names, each with when the content was read or the restart requested.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&ResourceVersion, ServerTime)> {
        self.readings().filter_map(|(version, at)| Some((version?, at)))
    }

    pub(crate) fn lacks_a_list(&self) -> bool {
        self.readings().any(|(version, _)| version.is_none())
    }

    /// Names this list of pods wherever none is named. Returns whether there was such a place.
    pub(crate) fn fill(&mut self, list: &ResourceVersion) -> bool {
        let lacked = self.lacks_a_list();
        let fill = |named: &mut Option<ResourceVersion>| _ = named.get_or_insert_with(|| list.clone());
        self.changes_mut().for_each(|change| fill(&mut change.pods_resource_version));
        let request = self.restart.iter_mut().filter_map(|restart| restart.request.as_mut());
        request.for_each(|request| fill(&mut request.pods_resource_version));
        lacked
    }

    /// Returns the last of the lists with which the restart under way began.
    pub(crate) fn began_with(&self) -> Option<&ResourceVersion> {
        let of_request = self.request().and_then(|request| request.pods_resource_version.as_ref());
        let marked = self.sources.iter().filter_map(SourceStatus::marked).max_by_key(|change| change.observed_at);
        let of_changes = marked.and_then(|change| change.pods_resource_version.as_ref());
        if self.is_requested() { of_request.or(of_changes) } else { of_changes.or(of_request) }
    }

    /// Makes room for the changes of all sources.
    pub(super) fn limit(&mut self) {
        while self.changes().count() > MAX_ALL_CHANGES {
            let longest = self.sources.iter_mut().max_by_key(|known| known.changes.len());
            let Some(longest) = longest.filter(|longest| longest.changes.len() > 2) else { return };
            longest.merge();
        }
    }

    /// Returns what decides which pods are old.
    pub(crate) fn journal(&self) -> Journal {
        let without_mark = |change: &Change| Change { begun: false, ..change.clone() };
        let of_source = |known: &SourceStatus| {
            let changes = known.changes.iter().map(without_mark).collect();
            (known.name.clone(), known.discovered, known.hash.clone(), changes)
        };
        let changed = self.sources.iter().filter(|known| !known.changes.is_empty());
        Journal { sources: changed.map(of_source).collect(), request: self.request().cloned() }
    }

    /// Returns whether the journals and the restart of the other status are the same.
    pub(crate) fn has_recorded(&self, other: &Self) -> bool {
        fn of(known: &SourceStatus) -> (&SourceName, bool, &Keys, Option<&ContentHash>, &[Change]) {
            (&known.name, known.discovered, &known.keys, known.hash.as_ref(), &known.changes)
        }
        self.restart == other.restart && self.sources.iter().map(of).eq(other.sources.iter().map(of))
    }
}
