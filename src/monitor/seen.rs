//! The selected pods as the API server last showed them, in a list or by a watch.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::kube::objects::Pod;
use crate::kube::{ResourceVersion, ServerTime, Uid};

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pods: BTreeMap<Uid, Arc<Pod>>,
    /// The pods that the last list showed newer than the watch, which continues from an earlier list, each with the
    /// version at which the watch has caught up. `None` if the list did not have the pod any more.
    behind: BTreeMap<Uid, Option<ResourceVersion>>,
}

impl Deref for Seen {
    type Target = BTreeMap<Uid, Arc<Pod>>;

    fn deref(&self) -> &Self::Target {
        &self.pods
    }
}

impl Seen {
    /// Replaces the pods by those of a list. `is_watched`: a watch from an earlier list is open.
    pub(crate) fn list<'a>(&mut self, pods: impl IntoIterator<Item = &'a Arc<Pod>>, is_watched: bool) {
        let pods: BTreeMap<Uid, Arc<Pod>> = pods.into_iter().map(|pod| (pod.uid.clone(), Arc::clone(pod))).collect();
        if is_watched {
            let is_news = |pod: &&Arc<Pod>| self.pods.get(&pod.uid).is_none_or(|known| known.version != pod.version);
            let newer = pods.values().filter(is_news).map(|pod| (pod.uid.clone(), Some(pod.version.clone())));
            let gone = self.pods.keys().filter(|uid| !pods.contains_key(uid)).map(|uid| (uid.clone(), None));
            self.behind.extend(newer.chain(gone));
        } else {
            self.behind.clear();
        }
        self.pods = pods;
    }

    /// Takes a pod from the watch, unless the last list has shown something later.
    pub(crate) fn apply(&mut self, mut pod: Arc<Pod>) {
        if let Some(awaited) = self.behind.get(&pod.uid) {
            if awaited.as_ref() != Some(&pod.version) {
                return;
            }
            self.behind.remove(&pod.uid);
        }
        // An event from before the deletion may come after its answer: an eviction first sets a condition. If another
        // keeper's deletion has failed, only the next list shows that.
        if pod.gone_by.is_none()
            && let Some(by) = self.pods.get(&pod.uid).and_then(|known| known.gone_by)
        {
            Arc::make_mut(&mut pod).gone_by = Some(by);
        }
        self.pods.insert(pod.uid.clone(), pod);
    }

    pub(crate) fn remove(&mut self, uid: &Uid) {
        self.behind.remove(uid);
        self.pods.remove(uid);
    }

    /// Records that the API server has accepted the deletion of a pod.
    pub(crate) fn record_deletion(&mut self, uid: &Uid, by: ServerTime) {
        if let Some(pod) = self.pods.get_mut(uid) {
            Arc::make_mut(pod).gone_by.get_or_insert(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(version: &str) -> Arc<Pod> {
        Arc::new(Pod { version: ResourceVersion::from(version), ..Pod::named("web-0") })
    }

    fn version(seen: &Seen) -> Option<&str> {
        seen.get(&Uid::from("web-0")).map(|pod| pod.version.as_str())
    }

    #[test]
    fn an_event_from_before_a_deletion_does_not_undo_it() {
        let (mut seen, at) = (Seen::default(), ServerTime::from_second(100));
        seen.apply(pod("1"));
        seen.record_deletion(&Uid::from("web-0"), at);
        seen.apply(pod("2"));
        assert_eq!(seen.get(&Uid::from("web-0")).and_then(|pod| pod.gone_by), Some(at));
    }

    #[test]
    fn a_watch_that_is_behind_the_last_list_takes_nothing_back() {
        let mut seen = Seen::default();
        seen.list([&pod("1")], false);
        seen.list([&pod("3")], true);
        let mut apply = |text| {
            seen.apply(pod(text));
            version(&seen).map(str::to_owned)
        };
        assert_eq!(["2", "3", "4"].map(&mut apply), ["3", "3", "4"].map(|text| Some(text.to_owned())));
        seen.list([], true);
        seen.apply(pod("5"));
        assert_eq!(version(&seen), None, "the list did not have it any more");
        seen.remove(&Uid::from("web-0"));
        seen.apply(pod("7"));
        assert_eq!(version(&seen), Some("7"), "it is selected again");
        seen.list([&pod("8")], false);
        seen.apply(pod("9"));
        assert_eq!(version(&seen), Some("9"), "the watch continues from this list");
    }
}
