//! Which pods may have other content than the last one: a function of the journal, of the lists of pods that it names, and of
//! what a list says of a pod.

use std::collections::HashMap;
use std::iter::once;
use std::sync::Arc;

use super::{SKEW, SLACK};
use crate::kube::error::{Cause, Error};
use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::content::ContentHash;
use crate::monitor::pod::Pod;
use crate::monitor::referrers::Snapshot;
use crate::monitor::status::{Change, SourceStatus, Status};

/// The lists of pods that a status names. Lists of this process are kept until the journal is cut: that saves a
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
    /// Records the list of a selector at a version.
    pub(crate) fn record(&mut self, version: ResourceVersion, selector: String, pods: Arc<Snapshot>) {
        self.known.insert(version, (selector, pods));
    }

    /// Drops lists that the status does not name, or of another selector. Returns the named lists that are missing.
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

    /// Replaces a list that the API server has forgotten by the pods of the next list that were created by that time. A
    /// pod created later is in none, whatever the clocks say.
    pub(crate) fn make_up(&mut self, status: &Status, version: &ResourceVersion, selector: String, pods: &[Arc<Pod>]) {
        let made_at = status.lists().filter(|(its, _)| *its == version).map(|(_, at)| at).max();
        let before = pods.iter().filter(|pod| made_at.is_some_and(|at| pod.created <= at.plus(SKEW)));
        self.record(version.clone(), selector, Arc::new(before.map(|pod| pod.uid.clone()).collect()));
        self.are_by_times = true;
    }

    /// Returns whether creation times decide: an owner without old pods then looks untouched.
    pub(crate) fn are_by_times(&self) -> bool {
        self.are_by_times
    }

    fn contain(&self, version: Option<&ResourceVersion>, pod: &Pod) -> Option<bool> {
        Some(self.known.get(version?)?.1.contains(&pod.uid))
    }

    /// Returns the list in an answer, or `None` if the API server has forgotten it. A refusal other than 410 may mean
    /// the same, and is believed the second time.
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
    // Each content came with a change, but for the first one, and went with the next. After A, B, C, A, pods may have other
    // content that are in the list of C and may have read B, or are in that of A and may have read C.
    let came = once(None).chain(known.changes.iter().map(Some));
    came.zip(&known.changes).any(|(change, next)| {
        let hash = change.map_or(known.hash.as_ref(), |change| Some(&change.hash));
        let is_other = hash != Some(&last.hash) || hash == Some(&ContentHash::unknown());
        let was_there = lists.contain(next.pods_resource_version.as_ref(), pod) != Some(false);
        is_other && was_there && change.is_none_or(|change| may_have_read(change, lists, pod))
    })
}

/// Returns whether a pod may have been created or started since this content came: one that was created earlier may have
/// waited for its image, or a container was restarted.
fn may_have_read(change: &Change, lists: &Lists, pod: &Pod) -> bool {
    let since = change.since.minus(if lists.are_by_times { SKEW } else { SLACK });
    let is_since = |at: ServerTime| at >= since;
    lists.contain(change.pods_resource_version.as_ref(), pod) == Some(false)
        || is_since(pod.created)
        || pod.started.is_none_or(is_since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Action, PODS, Uid};
    use crate::monitor::content::Kind;
    use crate::monitor::source::SourceName;
    use crate::monitor::status::Begun;

    const SELECTOR: &str = "app=web";

    fn at(second: i64) -> ServerTime {
        ServerTime::from_second(second)
    }

    fn version(list: usize) -> ResourceVersion {
        (&*list.to_string()).into()
    }

    /// Content that was first read at this time, since when it may have been there, and the list after that.
    fn change(hash: &str, since: i64, observed_at: i64, list: usize) -> Change {
        let (since, observed_at) = (at(since), at(observed_at));
        Change { hash: hash.into(), since, observed_at, pods_resource_version: Some(version(list)), begun: false }
    }

    /// A source whose pods have been restarted for `a`, and then contents, each with its second, and lists from 1 on.
    fn status(changes: &[(&str, i64)]) -> Status {
        let name = SourceName { kind: Kind::ConfigMap, name: "settings".into() };
        let mut known = SourceStatus { hash: Some("a".into()), name, ..SourceStatus::default() };
        (1..).zip(changes).for_each(|(list, (hash, second))| known.append(change(hash, *second, *second, list)));
        Status { sources: vec![known], ..Status::default() }
    }

    fn pod((name, created, started): (&str, i64, i64)) -> Pod {
        Pod { created: at(created), started: (started > 0).then(|| at(started)), ..Pod::named(name) }
    }

    /// Lists from 1 on, of the pods whose names are these letters.
    fn lists(pods: &[&str]) -> Lists {
        let mut lists = Lists::default();
        for (list, pods) in (1..).zip(pods) {
            let uids = pods.chars().map(|name| Uid::from(&*name.to_string())).collect();
            lists.record(version(list), SELECTOR.to_owned(), Arc::new(uids));
        }
        lists
    }

    /// Returns the stale pods of these, each given by its name, when it was created, and when it was started.
    fn stale(status: &Status, listed: &[&str], pods: &[(&str, i64, i64)]) -> String {
        stale_by(status, &lists(listed), pods)
    }

    fn stale_by(status: &Status, lists: &Lists, pods: &[(&str, i64, i64)]) -> String {
        pods.iter().filter(|its| is_stale(status, lists, &pod(**its), |_| true)).map(|(name, ..)| *name).collect()
    }

    #[test]
    fn a_change_is_for_the_pods_of_its_list() {
        let (status, pods) = (status(&[("b", 10)]), [("v", 1, 2), ("w", 9, 10), ("x", 9, 10)]);
        assert_eq!(stale(&status, &["vw"], &pods), "vw");
        assert_eq!(stale(&status, &[], &pods), "vwx", "nobody knows");
        let refers = |name| is_stale(&status, &lists(&["vw"]), &pod((name, 1, 2)), |_| name == "w");
        assert_eq!(["v", "w"].map(refers), [false, true]);
    }

    #[test]
    fn a_request_is_for_the_pods_of_its_list() {
        let mut status = Status::default();
        status.take_up("now".into(), at(10));
        status.fill(&version(1));
        assert_eq!(stale(&status, &["vw"], &[("v", 1, 2), ("w", 9, 10), ("x", 9, 10)]), "vw");
    }

    /// Times are whole seconds.
    #[test]
    fn a_flap_is_for_the_pods_that_may_have_read_the_other_content() {
        let status = status(&[("b", 10), ("a", 12)]);
        // `u` has not been started since, `v` has, `w` not yet, `x` was created since, `y` after the content was back.
        let pods = [("u", 1, 8), ("v", 1, 9), ("w", 7, 0), ("x", 9, 8), ("y", 12, 13)];
        assert_eq!(stale(&status, &["uvwx", "uvwx"], &pods), "vwx");
    }

    /// By the clock of a slow node it has started before the content that it has read.
    #[test]
    fn a_pod_that_came_after_the_list_has_not_started_before_whatever_its_node_says() {
        assert_eq!(stale(&status(&[("b", 10), ("a", 14)]), &["u", "uv"], &[("u", 1, 2), ("v", 3, 3)]), "v");
    }

    /// What the restart has replaced stays, but for what may have read the content in between, which may have ended it.
    #[test]
    fn what_is_replaced_stays_when_the_content_comes_back() {
        for is_superseded in [false, true] {
            let mut status = status(&[("b", 10)]);
            status.begin(Begun::new(1, at(10), SELECTOR.to_owned(), 2));
            status.sources[0].append(change("c", 100, 100, 2));
            if is_superseded {
                status.supersede(at(103));
            }
            status.sources[0].append(change("b", 110, 110, 3));
            // `v` is left, `w` is new, `x` was started again, `y` came with `c`, `z` came after.
            let pods = [("v", 1, 2), ("w", 50, 51), ("x", 50, 105), ("y", 103, 104), ("z", 111, 112)];
            assert_eq!(stale(&status, &["uv", "vwx", "vwxy"], &pods), "vxy");
        }
    }

    #[test]
    fn of_mixed_content_every_pod_is_stale_that_may_have_read_a_part() {
        let status = status(&[("b", 10), ("a", 20), ("b", 30), ("a", 40), ("b", 50)]);
        assert_eq!(status.changes().count(), 4);
        // One pod was created before each list, with the content before: a, b, a, b, a.
        let pods = [("u", 8, 8), ("v", 18, 18), ("w", 28, 28), ("x", 38, 38), ("y", 48, 48)];
        let stale = stale(&status, &["u", "uv", "uvw", "uvwx", "uvwxy"], &pods);
        assert_eq!(stale, "uvwy", "v has the content, but nobody knows");
    }

    /// The content before was there until the restart was over, or it may have changed unseen since that began.
    #[test]
    fn a_revert_spares_the_pods_that_the_last_restart_has_created() {
        for (since, expected) in [(1000, ""), (13, "wx")] {
            let mut status = status(&[]);
            status.sources[0].changes = vec![change("c", since, 1000, 1), change("a", 1010, 1010, 2)];
            assert_eq!(stale(&status, &["wx", "wx"], &[("w", 14, 15), ("x", 14, 15)]), expected);
        }
    }

    #[test]
    fn a_list_that_is_forgotten_is_made_up_by_times_of_creation_once() {
        let (mut status, mut lists) = (status(&[("b", 100), ("a", 102)]), Lists::default());
        // The first list has failed.
        status.sources[0].changes[0].pods_resource_version = Some(version(2));
        assert_eq!(lists.keep(&status, SELECTOR), [version(2)]);
        assert!(!lists.are_by_times());
        // Two clocks are compared, and the one of the list has a tolerance, too.
        let pods = [("u", 89, 89), ("v", 89, 90), ("w", 112, 112), ("x", 113, 113)];
        let listed: Vec<_> = pods.iter().map(|its| Arc::new(pod(*its))).collect();
        lists.make_up(&status, &version(2), SELECTOR.to_owned(), &listed);
        assert_eq!(stale_by(&status, &lists, &pods), "vw");
        assert_eq!(stale_by(&status, &lists, &[("z", 101, 101)]), "", "it has come since, whatever the clocks say");
        assert!(lists.are_by_times() && lists.keep(&status, SELECTOR).is_empty());
        assert!(lists.keep(&Status::default(), SELECTOR).is_empty() && !lists.are_by_times(), "it is over");
    }

    #[test]
    fn a_list_stays_as_long_as_a_change_names_it() {
        let (named, other) = (status(&[("b", 10)]), status(&[]));
        for (status, selector, missing) in [(&named, SELECTOR, 0), (&named, "app=other", 1), (&other, SELECTOR, 1)] {
            let mut lists = lists(&["u"]);
            lists.keep(status, selector);
            assert_eq!(lists.keep(&named, SELECTOR).len(), missing);
        }
    }

    #[test]
    fn a_list_is_forgotten_by_410_or_by_the_second_refusal_in_a_row() {
        let version = version(7);
        let failed = |cause| Err::<(), _>(Action::new("list", PODS).failed(cause));
        let refused = || failed(Cause::Refused("x".to_owned()));
        let mut lists = Lists::default();
        assert_eq!(lists.answered(&version, failed(Cause::Expired)).ok(), Some(None));
        assert!(lists.answered(&version, failed(Cause::Unreachable("x".to_owned()))).is_err());
        assert!(lists.answered(&version, refused()).is_err());
        assert_eq!(lists.answered(&version, Ok(())).ok(), Some(Some(())));
        assert!(lists.answered(&version, failed(Cause::Invalid("x".to_owned()))).is_err());
        assert!(lists.answered(&"8".into(), refused()).is_err(), "another list");
        assert_eq!(lists.answered(&version, refused()).ok(), Some(None));
        lists.every_list_fails();
        assert!(lists.answered(&version, refused()).is_err());
    }
}
