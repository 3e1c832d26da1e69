//! Which of several replicas acts: the one that holds the Lease. The others stand by.
//!
//! The Lease spares work and noise, nothing rests on it: two leaders at a time do no more harm than two operators, since every write of a status is a
//! compare-and-swap.

mod candidate;

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::candidate::{Answer, Candidate, Lease, Loss, NAME, Next, RETRY_PERIOD, Request};
use crate::End;
use crate::kube::LEASES;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;

/// A request about the Lease without an answer after this time is given up, so that there is time for another one before the deadline.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The same for the requests that release the Lease: the operator ends meanwhile.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The part of a process in the election of a leader.
pub struct Election {
    client: Client,
    candidate: Candidate,
    faults: Faults,
    /// The holder that was last logged.
    logged: Option<String>,
}

impl Election {
    /// An election of the processes whose client is for this namespace. The client must be of this election alone: requests of others must not hold up
    /// those about the Lease.
    #[must_use]
    pub fn new(client: Client, identity: String) -> Self {
        client.metrics().leads(false);
        Self { client, candidate: Candidate::new(identity), faults: Faults::default(), logged: None }
    }

    /// Takes part until `shutdown` is cancelled, and cancels `elected` when this process becomes the leader. Then waits until its work is `finished` and
    /// releases the Lease. A leader that loses the Lease cancels `shutdown` itself.
    pub async fn run(
        mut self,
        elected: &CancellationToken,
        shutdown: &CancellationToken,
        finished: &CancellationToken,
    ) -> End {
        match shutdown.run_until_cancelled(self.campaign(elected)).await {
            Some(loss) => {
                error!(error = %loss, "leadership lost: nothing new is begun");
                shutdown.cancel();
                self.client.metrics().leads(false);
                End::LeadershipLost
            }
            None => {
                if self.candidate.is_leader() {
                    finished.cancelled().await;
                    self.release().await;
                }
                End::Asked
            }
        }
    }

    /// Takes part until the Lease is lost.
    async fn campaign(&mut self, elected: &CancellationToken) -> Loss {
        let mut request = Request::Read;
        loop {
            let sent = Instant::now();
            let answer = self.ask(request).await;
            let failure = answer.as_ref().err().map(|error| self.failed(error));
            let answer = answer.unwrap_or(Answer::Failed);
            match self.candidate.hear(answer, sent.into_std(), Instant::now().into_std(), self.client.server_now()) {
                Next::Send(next) => {
                    request = next;
                    continue;
                }
                Next::Wait => {}
                Next::Lost(loss) => return loss,
            }
            if failure.is_none() {
                self.log_standing(elected.is_cancelled());
            }
            if self.candidate.is_leader() {
                elected.cancel();
                self.client.metrics().leads(true);
            }
            let later = Instant::now() + failure.unwrap_or(RETRY_PERIOD);
            // At the deadline the request fails at once, and the Lease is lost.
            let deadline = self.candidate.deadline().map(Instant::from_std);
            tokio::time::sleep_until(deadline.map_or(later, |deadline| later.min(deadline))).await;
            request = self.candidate.request(self.client.server_now());
        }
    }

    async fn ask(&self, request: Request) -> Result<Answer, Error> {
        let latest = Instant::now() + TIMEOUT;
        let deadline = self.candidate.deadline().map(Instant::from_std);
        let until = deadline.map_or(latest, |deadline| latest.min(deadline));
        // The answer to a creation means that the namespace does not exist.
        let is_creation = matches!(request, Request::Create(_));
        let exchange = async {
            match request {
                Request::Read => self.client.get(LEASES, NAME).await.map(|answer| Answer::Read(answer.value)),
                Request::Create(lease) => self.client.create(LEASES, &lease).await.map(|()| Answer::Created),
                Request::Replace(lease) => self.replace(&lease).await.map(Answer::Replaced),
            }
        };
        let answer = tokio::time::timeout_at(until, exchange).await.unwrap_or_else(|_| {
            let cause = Cause::Unreachable("no answer in time".to_owned());
            Err(Error { request: format!("read or write {} {NAME:?}", LEASES.plural), cause })
        });
        match answer {
            Err(Error { cause: Cause::NotFound(_), .. }) if !is_creation => Ok(Answer::Missing),
            Err(Error { cause: Cause::Conflict(_), .. }) => Ok(Answer::Conflict),
            answer => answer,
        }
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, Error> {
        self.client.replace(LEASES, NAME, lease).await.map(|answer| answer.value)
    }

    /// Gives up the Lease, so that another process need not wait until it expires.
    async fn release(&mut self) {
        let released = tokio::time::timeout(RELEASE_TIMEOUT, async {
            let lease = self.client.get(LEASES, NAME).await?.value;
            match self.candidate.release(lease, self.client.server_now()) {
                Some(lease) => self.replace(&lease).await.map(drop),
                None => Ok(()),
            }
        });
        match released.await {
            Ok(Ok(())) => info!("leadership released"),
            Ok(Err(error)) => warn!(%error, "Lease not released; it expires"),
            Err(_) => warn!(error = "no answer in time", "Lease not released; it expires"),
        }
    }

    fn log_standing(&mut self, is_elected: bool) {
        let resource = LEASES.plural;
        if self.faults.over() {
            info!(namespace = self.client.namespace(), resource, "working again");
        }
        if self.candidate.is_leader() && !is_elected {
            info!("became leader");
        }
        let holder = self.candidate.awaited();
        if holder.is_some() && holder != self.logged.as_deref() {
            self.logged = holder.map(str::to_owned);
            info!(leader = holder, "standing by");
        }
    }

    /// Logs a failure once. Returns the time until the next attempt.
    fn failed(&mut self, error: &Error) -> Duration {
        let (_, is_news) = self.faults.note(&error.cause, Instant::now().into_std());
        let (namespace, resource) = (self.client.namespace(), LEASES.plural);
        match &error.cause {
            _ if !is_news => debug!(namespace, resource, %error, "still failing"),
            Cause::Unreachable(_) => warn!(namespace, resource, %error, "waiting for the proxy and the API server"),
            Cause::Forbidden(_) => warn!(namespace, resource, %error, "waiting for the right to do so"),
            _ => warn!(namespace, resource, %error, "trying again"),
        }
        error.cause.delay(RETRY_PERIOD)
    }
}

/// The identity of this process: its host name, which in a pod is the name of the pod, for people, and the UID of the pod, which no other pod ever has.
/// A container that is started again has the same identity and may go on with its own Lease: its predecessor has ended by then.
#[must_use]
pub fn identity(pod_uid: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{pod_uid}", host.trim())
}
