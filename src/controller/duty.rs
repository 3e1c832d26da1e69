//! What a keeper is to do now, and what it holds while it does it: a place among those who are awake, an interest in its sources, and a turn with
//! the owners of its pods.

use std::sync::Arc;

use tokio::sync::watch;

use super::context::Context;
use super::latest::Latest;
use super::limits::{Awake, Owners, Turn};
use super::memory::Confirmed;
use super::shared::{InSource, Shared};

/// What a keeper is to do, and what it holds.
pub(crate) struct Duty {
    latest: watch::Receiver<Latest>,
    /// Between waking up and reading it.
    interest: Box<[InSource]>,
    /// The right to make a pass with a budget.
    turn: Option<Turn>,
    /// The right to be awake.
    awake: Option<Awake>,
}

/// What a wave goes by: pods were to be deleted when it began, and are as long as nothing else is asked of the keeper.
pub(crate) struct Orders {
    latest: watch::Receiver<Latest>,
    confirmed: Confirmed,
}

impl Duty {
    pub(crate) fn new(latest: watch::Receiver<Latest>) -> Self {
        Self { latest, interest: Box::default(), turn: None, awake: None }
    }

    /// Returns the latest value, and marks it as seen.
    pub(crate) fn latest(&mut self) -> Latest {
        self.latest.borrow_and_update().clone()
    }

    /// Waits for another value; false if there will be none.
    pub(crate) async fn changed(&mut self) -> bool {
        self.latest.changed().await.is_ok()
    }

    /// What a wave goes by.
    pub(crate) fn orders(&self, confirmed: Confirmed) -> Orders {
        Orders { latest: self.latest.clone(), confirmed }
    }

    /// Registers for the keeper's sources, so that a GET by another keeper also serves this one while it waits for its place among those who are
    /// awake.
    pub(crate) fn take_interest(&mut self, shared: &Shared) {
        let latest = self.latest.borrow();
        self.interest = latest.sources.iter().map(|bell| shared.sources.interest(&bell.source)).collect();
    }

    pub(crate) fn interest(&self) -> &[InSource] {
        &self.interest
    }

    pub(crate) fn lose_interest(&mut self) {
        self.interest = Box::default();
    }

    /// Goes to the end of the queue of those who want to be awake, and waits for its place; false when there is no more to do. So the Events and watches of
    /// one restart come after the deletions of all that wait.
    pub(crate) async fn queue(&mut self, context: &Context) -> bool {
        self.awake = None;
        self.awake =
            context.client.stop().run_until_cancelled(context.shared.limits.waken(&context.shared.own)).await.flatten();
        self.awake.is_some()
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.awake.is_some()
    }

    /// Leaves its place among those who are awake to another keeper.
    pub(crate) fn doze(&mut self) {
        self.awake = None;
    }

    /// Whether it has a turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    pub(crate) fn take_turn(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    pub(crate) fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Gives up what others may wait for, before something is written that may take long.
    pub(crate) fn let_go(&mut self) {
        self.end_turn();
        self.lose_interest();
    }

    /// Returns whether this keeper has a turn with these owners, and takes one if it is free. `turns_ended` is how many turns had ended when the
    /// caller's list was begun. If another turn has ended since, this one is refused, as the list may not show its deletions.
    pub(crate) fn try_turn(&mut self, shared: &Shared, owners: &Owners, turns_ended: Option<u64>) -> bool {
        let turns = &shared.own.turns;
        if self.turn.as_ref().is_none_or(|turn| !turn.covers(owners)) {
            // It would be in its own way.
            self.turn = None;
            self.turn = turns.try_take(owners.clone());
            if turns_ended.is_some_and(|ended| ended != turns.ended()) {
                self.turn = None;
            }
        }
        self.turn.is_some()
    }

    /// Waits until it is its turn with these owners; none if the spec is another one by then.
    pub(crate) fn turn_or_edit(
        &self,
        shared: &Shared,
        owners: Owners,
        generation: i64,
    ) -> impl Future<Output = Option<Turn>> + use<> {
        let (turns, mut latest) = (Arc::clone(&shared.own.turns), self.latest.clone());
        async move {
            tokio::select! {
                biased;
                turn = turns.take(owners) => Some(turn),
                _ = latest.wait_for(|latest| latest.generation > generation) => None,
            }
        }
    }
}

impl Orders {
    /// Whether anything else may be asked of the keeper by now.
    pub(crate) fn have_changed(&self) -> bool {
        self.latest.has_changed().unwrap_or(false)
    }

    /// Returns whether the wave may send its next request. A doorbell does not stop the first one: otherwise a ConfigMap that changes
    /// all the time would block every restart.
    pub(crate) fn stand(&self, is_first: bool) -> bool {
        match self.latest.has_changed() {
            Ok(false) => true,
            Ok(true) => is_first && self.latest.borrow().generation == self.confirmed.generation(),
            Err(_) => false,
        }
    }
}
