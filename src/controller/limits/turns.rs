//! Turns with owners of pods. Passes with a budget exclude each other where they share an owner, because a pass must
//! see the deletions of the previous one: the pods may be its own. Passes of other owners run concurrently.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::kube::{Uid, lock};

/// The owners whose pods a pass counts or deletes.
pub(crate) type Owners = BTreeSet<Uid>;

/// The turns that are held and the keepers that wait for one.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<Queue>,
    freed: Notify,
}

#[derive(Default)]
struct Queue {
    next: u64,
    /// The number of turns that have ended.
    ended: u64,
    /// In the order of asking. A claim is held unless an earlier one shares an owner.
    claims: Vec<Place>,
}

struct Place {
    id: u64,
    owners: Owners,
}

/// The right to make a pass with a budget, or a place in the queue for it. Ends when dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    id: u64,
}

impl Turns {
    /// A list that began at the same number shows every deletion of these turns.
    pub(crate) fn ended(&self) -> u64 {
        lock(&self.state).ended
    }

    /// Returns a turn with these owners, unless a keeper has a turn with one of them or waits for one.
    pub(crate) fn try_take(self: &Arc<Self>, owners: Owners) -> Option<Turn> {
        let mut state = lock(&self.state);
        let is_free = state.claims.iter().all(|other| other.owners.is_disjoint(&owners));
        is_free.then(|| self.queue(&mut state, owners))
    }

    /// Waits for the keepers that asked earlier for one of these owners, and returns a turn.
    pub(crate) async fn take(self: &Arc<Self>, owners: Owners) -> Turn {
        let turn = self.queue(&mut lock(&self.state), owners);
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if lock(&self.state).is_held(turn.id) {
                return turn;
            }
            freed.await;
        }
    }

    fn queue(self: &Arc<Self>, state: &mut Queue, owners: Owners) -> Turn {
        state.next += 1;
        let id = state.next;
        state.claims.push(Place { id, owners });
        Turn { turns: Arc::clone(self), id }
    }
}

impl Queue {
    fn is_held(&self, id: u64) -> bool {
        let mut earlier = self.claims.iter().take_while(|claim| claim.id != id);
        let own = self.claims.iter().find(|claim| claim.id == id);
        own.is_some_and(|own| earlier.all(|other| other.owners.is_disjoint(&own.owners)))
    }
}

impl Turn {
    pub(crate) fn covers(&self, owners: &Owners) -> bool {
        lock(&self.turns.state).claims.iter().any(|claim| claim.id == self.id && claim.owners.is_superset(owners))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.turns.state);
        state.claims.retain(|claim| claim.id != self.id);
        state.ended += 1;
        drop(state);
        self.turns.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn owners(names: &str) -> Owners {
        names.chars().map(|name| name.to_string().as_str().into()).collect()
    }

    #[tokio::test]
    async fn turns_that_share_an_owner_exclude_each_other_and_others_do_not_wait() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(owners("ab")).await;
        let mut second = Box::pin(turns.take(owners("bc")));
        let mut third = Box::pin(turns.take(owners("c")));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert!(turns.try_take(owners("c")).is_none(), "the turn would overtake the waiting ones");
        assert!(turns.try_take(owners("d")).is_some());
        drop(first);
        let second = second.await;
        assert!(second.covers(&owners("bc")) && !second.covers(&owners("a")));
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        assert!(third.await.covers(&owners("c")));
    }

    #[tokio::test]
    async fn a_dropped_wait_for_a_turn_blocks_nobody() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(owners("a")).await;
        let mut second = Box::pin(turns.take(owners("ab")));
        assert!((&mut second).now_or_never().is_none());
        drop(second);
        assert!(turns.try_take(owners("b")).is_some());
        drop(first);
        assert!(turns.try_take(owners("a")).is_some());
    }
}
