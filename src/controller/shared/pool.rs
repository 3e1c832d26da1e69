//! A pool that stores each pod once: 30 ConfigMonitors may select the same thousands of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::kube::Uid;
use crate::kube::objects::{Owner, Pod};

/// The pods in use, and their owners.
#[derive(Default)]
pub(crate) struct Pool {
    stored: Mutex<Stored>,
}

#[derive(Default)]
struct Stored {
    pods: BTreeMap<Uid, Weak<Pod>>,
    owners: BTreeSet<Arc<Owner>>,
}

impl Pool {
    /// Returns the stored pod if it is equal. Otherwise stores this one, which shares its unchanged parts with the
    /// earlier one.
    pub(crate) fn share(&self, mut pod: Pod) -> Arc<Pod> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = &mut *stored;
        if let Some(owner) = &mut pod.controller {
            match stored.owners.get(owner) {
                Some(shared) => *owner = Arc::clone(shared),
                None => drop(stored.owners.insert(Arc::clone(owner))),
            }
        }
        if let Some(before) = stored.pods.get(&pod.uid).and_then(Weak::upgrade) {
            if *before == pod {
                return before;
            }
            (pod.uid, pod.name) = (before.uid.clone(), Arc::clone(&before.name));
        }
        let pod = Arc::new(pod);
        stored.pods.insert(pod.uid.clone(), Arc::downgrade(&pod));
        pod
    }

    /// Drops pods and owners that are not in use any more.
    pub(crate) fn forget(&self) {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.pods.retain(|_, pod| pod.strong_count() > 0);
        stored.owners.retain(|owner| Arc::strong_count(owner) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(version: &str, owner: &str) -> Pod {
        let owner =
            Owner { api_version: "apps/v1".into(), kind: "ReplicaSet".into(), name: owner.into(), uid: owner.into() };
        Pod { uid: "u".into(), version: version.into(), controller: Some(Arc::new(owner)), ..Pod::named("web-0") }
    }

    #[test]
    fn a_pod_in_use_is_stored_once_and_dropped_after_its_last_user() {
        let pool = Pool::default();
        let one = pool.share(pod("1", "web"));
        assert!(Arc::ptr_eq(&one, &pool.share(pod("1", "web"))));
        let two = pool.share(pod("2", "web"));
        assert_eq!((two.version.as_str(), one.version.as_str()), ("2", "1"));
        assert!(Arc::ptr_eq(&one.name, &two.name));
        let owner = |pod: &Pod| pod.controller.clone().expect("an owner");
        assert!(Arc::ptr_eq(&owner(&one), &owner(&two)));
        let held = |pool: &Pool| {
            pool.forget();
            let stored = pool.stored.lock().expect("nobody panics");
            (stored.pods.len(), stored.owners.len())
        };
        assert_eq!(held(&pool), (1, 1));
        drop((one, two));
        assert_eq!(held(&pool), (0, 0));
    }
}
