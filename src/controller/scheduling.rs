//! When a keeper may work: the channel that wakes it, and what it holds while it works, which is a slot, its interest
//! in shared GETs, and its turn with the owners of its pods.

use tokio::sync::watch::{self, error::RecvError};

use super::context::Context;
use super::latest::Latest;
use super::limits::{Owners, Slot, Turn};
use super::shared::{Shared, SourceInterest};

pub(crate) struct Scheduling {
    latest: watch::Receiver<Latest>,
    /// The generation in the value that the step has seen. After a restore from backup it is not that of the record.
    seen_generation: i64,
    /// The keeper's interest in its sources, from the moment it wakes until it has read them.
    interest: Box<[SourceInterest]>,
    pub(crate) turn: Option<Turn>,
    pub(crate) slot: Option<Slot>,
}

impl Scheduling {
    pub(crate) fn new(latest: watch::Receiver<Latest>) -> Self {
        Self { latest, seen_generation: 0, interest: Box::default(), turn: None, slot: None }
    }

    /// Marks the value as seen.
    pub(crate) fn latest(&mut self) -> Latest {
        let latest = self.latest.borrow_and_update().clone();
        self.seen_generation = latest.generation;
        latest
    }

    /// Ends the turn, and waits for another value, or for a turn with these owners: until then, only an edit of the spec
    /// counts, of another generation than the one read. Returns false once the keeper is to end.
    pub(crate) async fn changed(&mut self, shared: &Shared, owners: Option<Owners>, read: i64) -> bool {
        let Some(owners) = owners else { return self.rung().await.is_ok() && !self.is_stopped() };
        // Its own turn would block the new one.
        self.turn = None;
        let seen = self.seen_generation;
        let is_edited = |latest: &Latest| latest.is_stopped || ![seen, read].contains(&latest.generation);
        self.turn = tokio::select! {
            biased;
            turn = Box::pin(shared.namespace_limits.turns.take(owners)) => Some(turn),
            edited = self.latest.wait_for(is_edited) => return edited.is_ok_and(|latest| !latest.is_stopped),
        };
        true
    }

    /// Ends the turn, and waits for another value.
    pub(crate) fn rung(&mut self) -> impl Future<Output = Result<(), RecvError>> {
        self.turn = None;
        self.latest.changed()
    }

    /// Returns whether the keeper is to end. It may have seen the value that says so.
    pub(crate) fn is_stopped(&self) -> bool {
        self.latest.borrow().is_stopped
    }

    /// Waits until the keeper is to end.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut latest = self.latest.clone();
        async move { drop(latest.wait_for(|latest| latest.is_stopped).await) }
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
        let Shared { limits, namespace_limits, .. } = &*context.shared;
        self.slot = limits.acquire_slot(namespace_limits).await;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use tokio::task::unconstrained;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::controller::Settings;
    use crate::controller::limits::Limits;
    use crate::kube::client::Client;

    fn shared() -> Shared {
        let limits = Limits::new(CancellationToken::new());
        Shared::new(Client::unconnected(), Settings::default(), Arc::new(limits))
    }

    /// After a restore from backup the record is of an earlier generation until the watch shows it, too.
    #[tokio::test]
    async fn a_keeper_that_waits_for_a_turn_is_woken_by_an_edit_and_by_no_generation_that_it_has_seen() {
        let shared = shared();
        let owners = Owners::from(["web".into()]);
        let _turn = shared.namespace_limits.turns.try_take(owners.clone()).expect("a turn");
        let of = |generation| Latest { generation, ..Latest::default() };
        for (seen, read, now, is_woken) in
            [(2, 1, 2, false), (2, 1, 1, false), (2, 2, 3, true), (2, 3, 3, false), (2, 1, 3, true)]
        {
            let (sender, receiver) = watch::channel(of(seen));
            let mut scheduling = Scheduling::new(receiver);
            scheduling.latest();
            sender.send_replace(of(now));
            let changed = scheduling.changed(&shared, Some(owners.clone()), read);
            assert_eq!(unconstrained(changed).now_or_never().is_some(), is_woken, "{seen} {read} {now}");
        }
    }
}
