//! When a keeper may work: the channel that wakes it, and what it holds while it makes a step.

use tokio::sync::watch::{self, error::RecvError};

use crate::controller::latest::Latest;
use crate::controller::limits::{Owners, Slot, Turn};
use crate::controller::shared::{Shared, SourceInterest};

pub(crate) struct Scheduling {
    latest: watch::Receiver<Latest>,
    /// The generation in the value that the step has seen. After a restore from backup it is not that of the record.
    seen_generation: i64,
}

/// What a keeper holds during a step. All ends with the step.
pub(crate) struct Held {
    /// The interest in sources since the keeper woke: another keeper's GET also serves this keeper, until it has read
    /// them.
    pub(crate) interest: Box<[SourceInterest]>,
    pub(crate) turn: Option<Turn>,
    /// None also while it has a turn: keepers that share an owner wait for that.
    pub(crate) slot: Option<Slot>,
}

/// What a keeper does after a step.
pub(crate) enum Then {
    /// Make another step, with this turn.
    Work(Option<Turn>),
    /// Wait for another value, and for nothing else.
    Sleep,
    End,
}

impl Scheduling {
    pub(crate) fn new(latest: watch::Receiver<Latest>) -> Self {
        Self { latest, seen_generation: 0 }
    }

    /// Marks the value as seen.
    pub(crate) fn latest(&mut self) -> Latest {
        let latest = self.latest.borrow_and_update().clone();
        self.seen_generation = latest.generation;
        latest
    }

    /// Waits for another value, or for a turn with these owners: until then, only an edit of the spec counts, of another
    /// generation than the one read.
    pub(crate) async fn changed(&mut self, shared: &Shared, owners: Option<Owners>, read: i64) -> Then {
        let is_rung = match owners {
            None => self.rung().await.is_ok() && !self.is_stopped(),
            Some(owners) => {
                let seen = self.seen_generation;
                let is_edited = |latest: &Latest| latest.is_stopped || ![seen, read].contains(&latest.generation);
                tokio::select! {
                    biased;
                    turn = Box::pin(shared.namespace_limits.turns.take(owners)) => return Then::Work(Some(turn)),
                    edited = self.latest.wait_for(is_edited) => edited.is_ok_and(|latest| !latest.is_stopped),
                }
            }
        };
        if is_rung { Then::Work(None) } else { Then::End }
    }

    /// Waits for another value.
    pub(crate) fn rung(&mut self) -> impl Future<Output = Result<(), RecvError>> {
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

    /// Waits for a slot, unless there is a turn. Returns `None` once the keeper is to end, which it learns only then:
    /// thousands may wait.
    pub(crate) async fn queue(&self, shared: &Shared, turn: Option<Turn>) -> Option<Held> {
        let interest =
            |latest: &Latest| latest.sources.iter().map(|bell| shared.sources.interest(&bell.source)).collect();
        let interest = interest(&self.latest.borrow());
        let slot = match turn {
            Some(_) => None,
            None => Some(shared.limits.acquire_slot(&shared.namespace_limits).await?),
        };
        (!self.is_stopped()).then(|| Held { interest, turn, slot })
    }
}

impl Held {
    /// Releases the slot, queues for another one, and waits for it. Queueing again before Events and watches lets other
    /// restarts delete their pods first.
    pub(crate) async fn queue_again(&mut self, shared: &Shared) {
        self.slot = None;
        self.slot = shared.limits.acquire_slot(&shared.namespace_limits).await;
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
    use crate::controller::limits::Limits;
    use crate::controller::shared::Settings;
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
            let woken = unconstrained(changed).now_or_never().map(|woken| matches!(woken, Then::Work(None)));
            assert_eq!(woken, is_woken.then_some(true), "{seen} {read} {now}");
        }
    }
}
