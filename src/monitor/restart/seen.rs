//! The selected pods as the API server last showed them, in a list or by a watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::kube::{ServerTime, Uid};
use crate::monitor::pod::Pod;

/// A pod that is ready since a time that is later than its list by more than this has a node whose clock is fast: all
/// times are whole seconds.
const FAST: Duration = Duration::from_secs(2);
/// The time of an event is an estimate from whole seconds, which lags by up to this.
const EVENT_LAG: Duration = Duration::from_secs(1);

/// The pods at the moment of a list, or until which a watch was read and nothing was left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(super) pods: &'a BTreeMap<Uid, Arc<Pod>>,
    pub(super) at: ServerTime,
}

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pods: BTreeMap<Uid, Arc<Pod>>,
    /// Until when they are known.
    known: ServerTime,
    /// Until when the watch was read.
    read: ServerTime,
    watch: Option<Open>,
    /// The watch has shown something since the pods were last judged.
    has_news: bool,
    /// The pods that have become ready since the first list, or are ready since a time to come: since when by the clock of
    /// the node, which may be wrong, and when that was seen, which is their `ready_since` here.
    became_ready: BTreeMap<Uid, (ServerTime, ServerTime)>,
    has_looked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Nothing has come and no time has passed since it was read until nothing was left.
    is_read: bool,
    /// It continues from the last list. Otherwise its events may be older than that list, and only say that another list
    /// is worth making.
    is_current: bool,
}

impl Seen {
    pub(super) fn new() -> Self {
        let (pods, became_ready, at) = (BTreeMap::new(), BTreeMap::new(), ServerTime::from_second(0));
        Self { pods, known: at, read: at, watch: None, has_news: false, became_ready, has_looked: false }
    }

    pub(super) fn pods(&self) -> &BTreeMap<Uid, Arc<Pod>> {
        &self.pods
    }

    /// Returns the pods as they were when they were last known.
    pub(super) fn view(&self) -> View<'_> {
        View { pods: &self.pods, at: self.known }
    }

    /// Returns the pods as any watch has shown them, by which nothing but another list is decided.
    pub(super) fn glimpse(&self) -> View<'_> {
        View { pods: &self.pods, at: self.known.max(self.read) }
    }

    /// Replaces the pods by those of a list, which was made at this time. If it is not `dated`, only the nodes say since
    /// when pods are ready.
    pub(super) fn list<'a>(&mut self, pods: impl IntoIterator<Item = &'a Arc<Pod>>, at: ServerTime, dated: bool) {
        let date = dated.then_some(at);
        let pods = pods.into_iter().map(|pod| (pod.uid.clone(), self.until(Arc::clone(pod), date)));
        let pods: BTreeMap<Uid, Arc<Pod>> = pods.collect();
        self.became_ready.retain(|uid, _| pods.contains_key(uid));
        self.has_looked = true;
        self.pods = pods;
        (self.known, self.has_news) = (at, false);
        self.watch.iter_mut().for_each(|watch| watch.is_current = false);
    }

    /// Takes that no watch follows the pods.
    pub(super) fn unfollow(&mut self) {
        self.watch = None;
    }

    /// Takes that a watch follows the pods, which may begin with the last list, or that none does.
    pub(super) fn follow(&mut self, is_open: bool, is_new: bool) {
        let is_current = is_new || self.watch.is_some_and(|watch| watch.is_current);
        self.watch = is_open.then_some(Open { is_read: false, is_current });
    }

    /// Takes that the watch was read until nothing was left, at this time.
    pub(super) fn read(&mut self, at: ServerTime) {
        let Some(watch) = &mut self.watch else { return };
        (watch.is_read, self.read) = (true, at);
        if watch.is_current {
            self.known = at;
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Takes that the pods were judged as they are now.
    pub(super) fn judged(&mut self) {
        self.has_news = false;
    }

    /// Time has passed, so the watch may have more to show.
    pub(super) fn spend(&mut self) {
        self.watch.iter_mut().for_each(|watch| watch.is_read = false);
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    pub(super) fn is_unread(&self) -> bool {
        self.watch.is_some_and(|watch| !watch.is_read)
    }

    /// Returns whether a watch follows the pods that continues from the last list.
    pub(super) fn is_watched_since_the_list(&self) -> bool {
        self.watch.is_some_and(|watch| watch.is_current)
    }

    /// Takes a pod from the watch at this time.
    pub(super) fn apply(&mut self, pod: Arc<Pod>, at: Option<ServerTime>) {
        self.has_news = true;
        let mut pod = self.dated(pod, at, EVENT_LAG);
        // An event from before the deletion may come after its answer: an eviction first sets a condition. If another
        // keeper's deletion has failed, only the next list shows that.
        if pod.gone_by.is_none()
            && let Some(by) = self.pods.get(&pod.uid).and_then(|known| known.gone_by)
        {
            Arc::make_mut(&mut pod).gone_by = Some(by);
        }
        self.pods.insert(pod.uid.clone(), pod);
    }

    /// Sets since when a pod is ready, if that was seen. If the node says an earlier time, its clock may be slow.
    fn dated(&mut self, mut pod: Arc<Pod>, at: Option<ServerTime>, lag: Duration) -> Arc<Pod> {
        let Some(since) = pod.ready_since else {
            self.became_ready.remove(&pod.uid);
            return pod;
        };
        let entry = self.became_ready.get(&pod.uid);
        let known = entry.filter(|(known, _)| *known == since).map(|(_, seen)| *seen);
        let was_ready =
            || entry.is_none() && self.pods.get(&pod.uid).is_some_and(|before| before.ready_since == Some(since));
        let seen = |at: ServerTime| if since < at { at.plus(lag) } else { since };
        let new = || at.filter(|_| self.has_looked && !was_ready()).map(seen);
        if let Some(seen) = known.or_else(new) {
            self.became_ready.insert(pod.uid.clone(), (since, seen));
            Arc::make_mut(&mut pod).ready_since = Some(seen);
        }
        pod
    }

    /// A pod of a list is not ready since a time to come: the clock of its node is fast. The time of a list is that of
    /// its answer, while the time of an event is an estimate, which lags if the last answer was late.
    fn until(&mut self, mut pod: Arc<Pod>, at: Option<ServerTime>) -> Arc<Pod> {
        let raw = pod.ready_since;
        pod = self.dated(pod, at, Duration::ZERO);
        if let (Some(raw), Some(at)) = (raw, at)
            && pod.ready_since.is_some_and(|since| since > at.plus(FAST))
        {
            self.became_ready.insert(pod.uid.clone(), (raw, at));
            Arc::make_mut(&mut pod).ready_since = Some(at);
        }
        pod
    }

    pub(super) fn remove(&mut self, uid: &Uid) {
        self.has_news = true;
        self.became_ready.remove(uid);
        self.pods.remove(uid);
    }

    /// Records that a pod is handed over, as the answer shows it.
    pub(super) fn record_handing_over(&mut self, answer: &Pod) {
        if let Some(pod) = self.pods.get_mut(&answer.uid) {
            let pod = Arc::make_mut(pod);
            (pod.version, pod.controller, pod.handed_over) =
                (answer.version.clone(), answer.controller.clone(), answer.handed_over.clone());
        }
    }

    /// Records that the API server has accepted the deletion of a pod.
    pub(super) fn record_deletion(&mut self, uid: &Uid, by: ServerTime) {
        if let Some(pod) = self.pods.get_mut(uid) {
            Arc::make_mut(pod).gone_by.get_or_insert(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(version: &str) -> Arc<Pod> {
        Arc::new(Pod { version: version.into(), ..Pod::named("web-0") })
    }

    #[test]
    fn an_event_from_before_a_deletion_does_not_undo_it() {
        let (mut seen, at) = (Seen::new(), ServerTime::from_second(100));
        seen.apply(pod("1"), None);
        seen.record_deletion(&Uid::from("web-0"), at);
        seen.apply(pod("2"), None);
        assert_eq!(seen.pods.get(&Uid::from("web-0")).and_then(|pod| pod.gone_by), Some(at));
    }

    #[test]
    fn a_pod_is_ready_since_it_was_seen_to_become_ready_and_not_since_the_node_says() {
        let (mut seen, at) = (Seen::new(), |second| Some(ServerTime::from_second(second)));
        let ready = |since| Arc::new(Pod { ready_since: at(since), ..Pod::named("web-0") });
        let since = |seen: &Seen| seen.pods.get(&Uid::from("web-0")).and_then(|pod| pod.ready_since);
        seen.list([&ready(3)], ServerTime::from_second(100), true);
        assert_eq!(since(&seen), at(3), "only the node knows since when");
        seen.apply(pod("2"), at(101));
        seen.apply(ready(4), at(102));
        assert_eq!(since(&seen), at(103), "it may be a second later than the estimate");
        seen.list([&ready(4)], ServerTime::from_second(110), true);
        seen.apply(ready(4), at(111));
        assert_eq!(since(&seen), at(103), "nothing has changed");
        seen.list([&ready(20)], ServerTime::from_second(120), true);
        assert_eq!(since(&seen), at(120), "it was not ready in between");
        seen.apply(ready(21), None);
        assert_eq!(since(&seen), at(21));
        let mut seen = Seen::new();
        seen.list([&ready(700)], ServerTime::from_second(100), true);
        seen.list([&ready(700)], ServerTime::from_second(110), true);
        assert_eq!(since(&seen), at(100), "the clock of the node is fast");
        seen.list([&ready(112)], ServerTime::from_second(110), true);
        assert_eq!(since(&seen), at(112), "both times are whole seconds");
        seen.apply(pod("2"), at(80));
        seen.apply(ready(101), at(80));
        assert_eq!(since(&seen), at(101), "the last answer was late");
    }
}
