//! The operator ends before and after every request of a restart, as the one that counts the requests sees them. Whatever was
//! begun is finished by the next operator: every old pod is replaced, and no new one is deleted.

use std::time::Duration;

use serde_json::json;
use testenv::{Fault, FaultProxy, Operator};
use tokio::time::sleep;

use crate::world::World;
use testenv::fixture::{APP, NAME};

const PODS: usize = 2;
/// A restart sends fewer requests, with what the next operator asks for when it starts.
const MOST_REQUESTS: usize = 60;
/// After the last request of a restart nothing comes any more.
const SILENCE: Duration = Duration::from_millis(500);

/// So late comes a request during which the operator is asked to end.
const LATE: Duration = Duration::from_millis(200);

/// How the operator ends, at a request.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It is killed, and the server has not got the request.
    KilledBefore,
    /// It is killed, and the server has answered.
    KilledAfter,
    /// It is asked to end, and the request is answered after that.
    Terminated,
}

/// Restarts that come to an end at some request, one after the other, in one namespace.
struct Trial {
    world: World,
    faults: FaultProxy,
    operator: Operator,
    restarts: usize,
}

impl Trial {
    async fn new(quiet: u32) -> Self {
        let world = World::with_pods(PODS).await;
        let faults = FaultProxy::start(&world.proxy.url()).await.unwrap();
        let operator = world.operator_behind(&faults.url());
        world.monitor(NAME, json!({"quietPeriodSeconds": quiet})).await;
        Self { world, faults, operator, restarts: 0 }
    }

    /// The next request but so many is the one at which the operator ends.
    fn arm(&self, skip: usize, end: End) {
        let mut count = 0;
        self.faults.rule(move |_| {
            count += 1;
            match end {
                _ if count != skip + 1 => Fault::None,
                End::KilledBefore => Fault::HeldBefore,
                End::KilledAfter => Fault::HeldAfter,
                End::Terminated => Fault::Late(LATE),
            }
        });
    }

    /// Waits for the request at which the operator ends, ends it, and starts another one, which ends as `next` says. Whether
    /// there was such a request.
    async fn end(&mut self, end: End, next: Option<(usize, End)>) -> bool {
        let over = async {
            self.world.settled(NAME, "UpToDate").await;
            sleep(SILENCE).await;
        };
        tokio::select! {
            biased;
            () = self.faults.held() => {}
            () = over => return false,
        }
        match end {
            End::KilledBefore | End::KilledAfter => self.operator.kill(),
            End::Terminated => assert_eq!(self.operator.terminate().await.unwrap().code(), Some(0)),
        }
        match next {
            Some((skip, end)) => self.arm(skip, end),
            None => self.faults.rule(|_| Fault::None),
        }
        self.operator = self.world.operator_behind(&self.faults.url());
        true
    }

    /// An edit, whose restart is cut off at these requests, one after the other. Whether all of them came.
    async fn restart(&mut self, ends: &[(usize, End)]) -> bool {
        let before = self.world.pods(APP).await;
        self.arm(ends[0].0, ends[0].1);
        self.restarts += 1;
        self.world.edit(NAME, &format!("content {}", self.restarts)).await;
        let mut all = true;
        for (at, (_, end)) in ends.iter().enumerate() {
            all = all && self.end(*end, ends.get(at + 1).copied()).await;
        }
        self.faults.rule(|_| Fault::None);
        self.world.replaced(APP, &before).await;
        self.world.settled(NAME, "UpToDate").await;
        assert_eq!(self.world.deletions().unwrap(), PODS * self.restarts, "{ends:?}");
        all
    }

    /// One restart for each request there is, cut off there. How many there were.
    async fn at_every_request(&mut self, end: End) -> usize {
        for skip in 0..MOST_REQUESTS {
            if !self.restart(&[(skip, end)]).await {
                return skip;
            }
        }
        panic!("a restart of {PODS} pods takes more than {MOST_REQUESTS} requests");
    }
}

async fn ends_at_every_request(end: End) {
    let requests = Trial::new(0).await.at_every_request(end).await;
    assert!(requests > PODS + 4, "{requests}");
}

#[tokio::test]
async fn killed_before_any_request_of_a_restart_every_pod_is_replaced_once() {
    ends_at_every_request(End::KilledBefore).await;
}

#[tokio::test]
async fn killed_after_any_request_of_a_restart_every_pod_is_replaced_once() {
    ends_at_every_request(End::KilledAfter).await;
}

#[tokio::test]
async fn killed_around_any_request_of_a_restart_that_waits_for_rest_every_pod_is_replaced_once() {
    let mut trial = Trial::new(1).await;
    trial.at_every_request(End::KilledBefore).await;
    let requests = trial.at_every_request(End::KilledAfter).await;
    assert!(requests > PODS + 5, "{requests}");
}

#[tokio::test]
async fn asked_to_end_at_any_request_of_a_restart_it_does_and_every_pod_is_replaced_once() {
    ends_at_every_request(End::Terminated).await;
}

/// Every request of the first operator with some of the second one, which asks for the lists and the watches before it goes on.
#[tokio::test]
async fn killed_twice_in_one_restart_every_pod_is_replaced_once() {
    let mut trial = Trial::new(0).await;
    let (mut pairs, mut both) = (0, 0);
    for first in 0..12 {
        for second in (first % 3..15).step_by(3) {
            let ends = if (first + second) % 2 == 0 {
                [(first, End::KilledBefore), (second, End::KilledAfter)]
            } else {
                [(first, End::KilledAfter), (second, End::KilledBefore)]
            };
            pairs += 1;
            both += usize::from(trial.restart(&ends).await);
        }
    }
    assert!(both * 2 > pairs, "of {pairs} restarts only {both} came to the second end");
}
