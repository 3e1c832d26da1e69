//! How one status becomes the next: a request, a restart that begins, goes on, ends or is superseded, and a baseline.

use std::sync::Arc;

use super::status::{Begun, Entry, HISTORY, MAX_SOURCES_OF_ENTRY, Outcome, RestartRequest, Status, Why};
use crate::kube::ServerTime;

impl Status {
    /// Takes up a request for a restart of all selected pods. It takes the place of a restart whose canary has failed.
    pub(crate) fn take_up(&mut self, value: Arc<str>, at: ServerTime) {
        self.supersede(at);
        let request = RestartRequest { value, taken_over: false, observed_at: at, pods_resource_version: None };
        self.restart.get_or_insert_default().request = Some(request);
    }

    /// Returns the number of the next restart.
    pub(crate) fn next_number(&self) -> u64 {
        self.history.first().map_or(0, |last| last.number).saturating_add(1)
    }

    /// Records that a restart begins, for the last contents and for the request.
    pub(crate) fn begin(&mut self, begun: Begun) {
        self.sources.iter_mut().filter_map(|known| known.changes.last_mut()).for_each(|change| change.begun = true);
        self.restart.get_or_insert_default().changing_since = None;
        self.record(begun);
    }

    /// Records how far the restart under way has come.
    pub(crate) fn record(&mut self, begun: Begun) {
        self.outdated = Some(begun.remaining);
        self.restart.get_or_insert_default().begun = Some(begun);
    }

    /// Ends the restart under way, so that one for the last contents is pending.
    pub(crate) fn supersede(&mut self, at: ServerTime) {
        let Some(begun) = self.restart.as_mut().and_then(|restart| restart.begun.take()) else { return };
        self.add_to_history(&begun, at, Outcome::Superseded);
        self.outdated = None;
        self.changes_mut().for_each(|change| change.begun = false);
        let request = self.restart.as_mut().and_then(|restart| restart.request.as_mut());
        request.into_iter().for_each(|request| request.taken_over = true);
    }

    /// Cuts the journals: the selected pods have the last contents, except the skipped ones. `begun` is the restart for these, if
    /// one began.
    pub(crate) fn complete(&mut self, begun: Option<&Begun>, (skipped, skipped_pods): (usize, String), at: ServerTime) {
        match begun {
            Some(begun) => {
                self.add_to_history(begun, at, Outcome::Completed);
                self.baselined_at = None;
            }
            // No pod has read the other content.
            None if self.why() == Why::Reverted => {}
            None => self.baselined_at = Some(at),
        }
        (self.settled_at, self.outdated) = (Some(at), None);
        (self.skipped, self.skipped_pods) = (skipped, skipped_pods);
        for known in &mut self.sources {
            known.hash = known.changes.pop().map(|last| last.hash).or(known.hash.take());
            known.changes.clear();
        }
        let request = self.restart.take().and_then(|restart| Some(restart.request?.value));
        self.last_handled_restart_request = request.or(self.last_handled_restart_request.take());
    }

    /// Records the content of a source as a baseline: the selected pods are assumed to run with it.
    pub(crate) fn baseline(&mut self, at: ServerTime) {
        (self.baselined_at, self.settled_at) = (Some(at), Some(at));
        (self.skipped, self.skipped_pods) = (0, String::new());
    }

    fn add_to_history(&mut self, begun: &Begun, completed_at: ServerTime, result: Outcome) {
        let changed = self.sources.iter().filter(|known| known.target() != known.hash.as_ref());
        let sources = changed.map(|known| known.name.clone()).take(MAX_SOURCES_OF_ENTRY).collect();
        let Begun { number, started_at, pods, deleted: replaced, .. } = *begun;
        let requested = self.is_requested();
        let entry = Entry { number, sources, started_at, completed_at, pods, replaced, result, requested };
        self.history.insert(0, entry);
        self.history.truncate(HISTORY);
    }
}
