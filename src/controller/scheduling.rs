//! When a keeper may work: the channel that wakes it, and what it holds while it works, which is a slot, its interest
//! in shared GETs, and its turn with the owners of its pods.

use tokio::sync::watch;

use super::context::Context;
use super::latest::Latest;
use super::limits::{Owners, Slot, Turn};
use super::shared::{Shared, SourceInterest};

pub(crate) struct Scheduling {
    latest: watch::Receiver<Latest>,
    /// The keeper's interest in its sources, from the moment it wakes until it has read them.
    interest: Box<[SourceInterest]>,
    pub(crate) turn: Option<Turn>,
    pub(crate) slot: Option<Slot>,
}

impl Scheduling {
    pub(crate) fn new(latest: watch::Receiver<Latest>) -> Self {
        Self { latest, interest: Box::default(), turn: None, slot: None }
    }

    /// Marks the value as seen.
    pub(crate) fn latest(&mut self) -> Latest {
        self.latest.borrow_and_update().clone()
    }

    /// Ends the turn, and waits for another value, or for a turn with these owners: until then, only an edit of the spec
    /// counts. Returns false if the sender is gone.
    pub(crate) async fn changed(&mut self, shared: &Shared, owners: Option<Owners>, generation: i64) -> bool {
        // Its own turn would block the new one.
        self.turn = None;
        let Some(owners) = owners else { return self.latest.changed().await.is_ok() };
        self.turn = tokio::select! {
            biased;
            turn = Box::pin(shared.namespace_limits.turns.take(owners)) => Some(turn),
            edited = self.latest.wait_for(|latest| latest.generation > generation) => return edited.is_ok(),
        };
        true
    }

    /// Returns a receiver that has seen what this one has.
    pub(crate) fn receiver(&self) -> watch::Receiver<Latest> {
        self.latest.clone()
    }

    /// Registers interest in the keeper's sources, so that a GET by another keeper also serves this one while it waits
    /// for a slot.
    pub(crate) fn register_interest(&mut self, shared: &Shared) {
        let latest = self.latest.borrow();
        self.interest = latest.sources.iter().map(|bell| shared.sources.interest(&bell.source)).collect();
    }

    pub(crate) fn drop_interest(&mut self) {
        self.interest = Box::default();
    }

    /// Releases the slot, queues for another one, and waits for it. Returns false when the operator stops. Queueing
    /// again before Events and watches lets other restarts delete their pods first.
    pub(crate) async fn acquire_slot(&mut self, context: &Context) -> bool {
        self.slot = None;
        self.slot = context
            .client
            .stop()
            .run_until_cancelled(context.shared.limits.acquire_slot(&context.shared.namespace_limits))
            .await
            .flatten();
        self.slot.is_some()
    }

    pub(crate) fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Returns whether this keeper has a turn with these owners, and takes one if it is free. `turns_ended` is the
    /// number of turns that had ended when the caller's list began. If another turn has ended since, the turn is
    /// refused, because the list may not show its deletions.
    pub(crate) fn try_turn(&mut self, shared: &Shared, owners: &Owners, turns_ended: Option<u64>) -> bool {
        let turns = &shared.namespace_limits.turns;
        if self.turn.as_ref().is_none_or(|turn| !turn.covers(owners)) {
            // Its own turn would block the new one.
            self.turn = None;
            self.turn = turns.try_take(owners.clone());
            if turns_ended.is_some_and(|ended| ended != turns.ended()) {
                self.turn = None;
            }
        }
        self.turn.is_some()
    }
}
