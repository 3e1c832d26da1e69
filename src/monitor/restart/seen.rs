//! The selected pods as the last list showed them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::kube::{ServerTime, Uid};
use crate::monitor::pod::Pod;

/// If a pod became ready later than its list by more than this, the clock of its node is fast. Times are whole seconds.
const FAST: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pods: BTreeMap<Uid, Arc<Pod>>,
    /// When they were listed. The epoch: never.
    pub(super) at: ServerTime,
    /// Pods that became ready since the first list, or in the future by the clock of their node: that time, and the
    /// time of the first list that showed them ready, which is their `ready_since` here.
    became_ready: BTreeMap<Uid, (ServerTime, ServerTime)>,
}

impl Seen {
    pub(crate) fn pods(&self) -> &BTreeMap<Uid, Arc<Pod>> {
        &self.pods
    }

    /// Replaces the pods by those of a list, which was made at this time. If it is not `dated`, only the nodes say since
    /// when pods are ready.
    pub(crate) fn list<'a>(&mut self, pods: impl IntoIterator<Item = &'a Arc<Pod>>, at: ServerTime, dated: bool) {
        let date = dated.then_some(at);
        let pods = pods.into_iter().map(|pod| (pod.uid.clone(), self.dated(Arc::clone(pod), date)));
        let pods: BTreeMap<Uid, Arc<Pod>> = pods.collect();
        self.became_ready.retain(|uid, _| pods.contains_key(uid));
        (self.pods, self.at) = (pods, at);
    }

    /// Sets since when a pod is ready: since the list that showed it first, if an earlier one showed that it was not. The
    /// clock of its node may be slow. If it says a time to come, it is fast.
    fn dated(&mut self, mut pod: Arc<Pod>, at: Option<ServerTime>) -> Arc<Pod> {
        let Some(since) = pod.ready_since else {
            self.became_ready.remove(&pod.uid);
            return pod;
        };
        let entry = self.became_ready.get(&pod.uid);
        let known = entry.filter(|(known, _)| *known == since).map(|(_, seen)| *seen);
        let was_ready =
            || entry.is_none() && self.pods.get(&pod.uid).is_some_and(|before| before.ready_since == Some(since));
        let has_looked = self.at != ServerTime::default();
        let seen = |at: ServerTime| match since > at.plus(FAST) {
            true => Some(at),
            false => (has_looked && !was_ready()).then(|| since.max(at)),
        };
        if let Some(seen) = known.or_else(|| seen(at?)) {
            self.became_ready.insert(pod.uid.clone(), (since, seen));
            Arc::make_mut(&mut pod).ready_since = Some(seen);
        }
        pod
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

    #[test]
    fn a_pod_is_ready_since_it_was_seen_to_become_ready_and_not_since_the_node_says() {
        let (mut seen, at) = (Seen::default(), |second| Some(ServerTime::from_second(second)));
        let ready = |since| Arc::new(Pod { ready_since: at(since), ..Pod::named("web-0") });
        let mut since = |pod: Arc<Pod>, second, dated| {
            seen.list([&pod], ServerTime::from_second(second), dated);
            seen.pods.get(&Uid::from("web-0")).and_then(|pod| pod.ready_since)
        };
        assert_eq!(since(ready(3), 100, true), at(3), "only the node knows since when");
        assert_eq!(since(Arc::new(Pod::named("web-0")), 101, true), None);
        assert_eq!(since(ready(4), 102, true), at(102));
        assert_eq!(since(ready(4), 110, true), at(102), "nothing has changed");
        assert_eq!(since(ready(20), 120, true), at(120), "it was not ready in between");
        assert_eq!(since(ready(21), 121, false), at(21));
        let mut seen = Seen::default();
        let mut since = |pod: Arc<Pod>, second| {
            seen.list([&pod], ServerTime::from_second(second), true);
            seen.pods.get(&Uid::from("web-0")).and_then(|pod| pod.ready_since)
        };
        assert_eq!(since(ready(700), 100), at(100), "the clock of the node is fast");
        assert_eq!(since(ready(700), 110), at(100));
        assert_eq!(since(ready(112), 110), at(112), "both times are whole seconds");
    }
}
