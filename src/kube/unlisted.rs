//! What the list of a watch proves: a known object that a complete list does not contain does not exist.

use std::collections::BTreeSet;

use super::watch::Event;

/// The known objects that the list in progress has not contained so far. Empty while no list is in progress.
#[derive(Debug)]
pub(crate) struct Unlisted<K>(BTreeSet<K>);

/// What an event says about the objects of a watch.
pub(crate) enum Difference<T, K> {
    Exists(T),
    Deleted(T),
    /// The list is complete. These objects do not exist.
    Complete(BTreeSet<K>),
    /// Nothing yet, or nothing that can be decoded.
    Nothing,
}

impl<K> Default for Unlisted<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord> Unlisted<K> {
    /// What an event says. `known` returns the objects that the consumer knows: an object that becomes known
    /// during a list may have been passed already, so its absence proves nothing.
    pub(crate) fn observe<T>(
        &mut self,
        event: Event<T>,
        known: impl FnOnce() -> BTreeSet<K>,
        key: impl Fn(&T) -> K,
    ) -> Difference<T, K> {
        match event {
            Event::Reset => {
                self.0 = known();
                Difference::Nothing
            }
            Event::Listed(Ok(object)) | Event::Applied(Ok(object)) => {
                self.0.remove(&key(&object));
                Difference::Exists(object)
            }
            Event::Deleted(Ok(object)) => Difference::Deleted(object),
            Event::Synced => Difference::Complete(std::mem::take(&mut self.0)),
            // It may have been any object.
            Event::Listed(Err(_)) | Event::Applied(Err(_)) | Event::Deleted(Err(_)) => {
                self.0.clear();
                Difference::Nothing
            }
            Event::Refused(_) | Event::Recovered => Difference::Nothing,
        }
    }
}
