//! Leader election: of several replicas, the one that holds the Lease acts. The others stand by.
//!
//! The Lease saves work and noise. Correctness does not depend on the Lease: two leaders do no more harm than two
//! operators, because every status write is a compare-and-swap.

mod candidate;

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::candidate::{Candidate, Lease, Loss, NAME, Next, Outcome, RETRY_PERIOD, Request};
use crate::End;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::{Action, LEASES};

/// Timeout of a request about the Lease. It leaves time for another request before the deadline.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the requests that release the Lease, because the shutdown waits for them.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The part of a process in leader election.
pub struct Election {
    client: Client,
    candidate: Candidate,
    faults: Faults,
    /// The leader in the last log line.
    logged: Option<String>,
}

impl Election {
    /// Takes part in the election in the namespace of `client`. No other requests may use `client`, as they could delay
    /// those about the Lease.
    #[must_use]
    pub fn new(client: Client, identity: String) -> Self {
        client.metrics().set_leader(false);
        Self { client, candidate: Candidate::new(identity), faults: Faults::default(), logged: None }
    }

    /// Takes part until `shutdown` is cancelled. Cancels `elected` when this process becomes the leader. On shutdown, a
    /// leader waits until its work is `finished` and releases the Lease. A leader that loses the Lease cancels
    /// `shutdown` itself.
    pub async fn run(
        mut self,
        elected: &CancellationToken,
        shutdown: &CancellationToken,
        finished: &CancellationToken,
    ) -> End {
        match shutdown.run_until_cancelled(self.campaign(elected)).await {
            Some(loss) => {
                error!(error = %loss, "leadership lost: shutting down");
                shutdown.cancel();
                self.client.metrics().set_leader(false);
                End::LeadershipLost
            }
            None => {
                if self.candidate.is_leader() {
                    finished.cancelled().await;
                    self.release().await;
                }
                End::Requested
            }
        }
    }

    /// Takes part until the Lease is lost. Returns why.
    async fn campaign(&mut self, elected: &CancellationToken) -> Loss {
        let mut request = Request::Read;
        loop {
            let sent = Instant::now();
            let outcome = self.send(request).await;
            let failure = outcome.as_ref().err().map(|error| self.failed(error));
            let outcome = outcome.unwrap_or(Outcome::Failed);
            match self.candidate.handle(outcome, sent.into_std(), Instant::now().into_std(), self.client.server_now()) {
                Next::Send(next) => {
                    request = next;
                    continue;
                }
                Next::Wait => {}
                Next::Lost(loss) => return loss,
            }
            if failure.is_none() {
                self.log_role(elected.is_cancelled());
            }
            if self.candidate.is_leader() {
                elected.cancel();
                self.client.metrics().set_leader(true);
            }
            let later = Instant::now() + failure.unwrap_or(RETRY_PERIOD);
            // After the deadline the next request fails at once, and the Lease is lost.
            let deadline = self.candidate.deadline().map(Instant::from_std);
            tokio::time::sleep_until(deadline.map_or(later, |deadline| later.min(deadline))).await;
            request = self.candidate.request(self.client.server_now());
        }
    }

    async fn send(&self, request: Request) -> Result<Outcome, Error> {
        let latest = Instant::now() + TIMEOUT;
        let deadline = self.candidate.deadline().map(Instant::from_std);
        let until = deadline.map_or(latest, |deadline| latest.min(deadline));
        // 404 for a creation means that the namespace does not exist.
        let is_creation = matches!(request, Request::Create(_));
        let verb = match request {
            Request::Read => "get",
            Request::Create(_) => "create",
            Request::Replace(_) => "update",
        };
        let exchange = async {
            match request {
                Request::Read => self.client.get(LEASES, NAME).await.map(|answer| Outcome::Read(answer.value)),
                Request::Create(lease) => self.client.create(LEASES, &lease).await.map(|()| Outcome::Created),
                Request::Replace(lease) => self.replace(&lease).await.map(Outcome::Replaced),
            }
        };
        let answer = tokio::time::timeout_at(until, exchange).await.unwrap_or_else(|_| {
            let cause = Cause::Unreachable("timed out".to_owned());
            Err(Action::on(verb, LEASES, NAME).failed(cause))
        });
        match answer {
            Err(Error { cause: Cause::NotFound(_), .. }) if !is_creation => Ok(Outcome::Missing),
            Err(Error { cause: Cause::Conflict(_), .. }) => Ok(Outcome::Conflict),
            answer => answer,
        }
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, Error> {
        self.client.replace(LEASES, NAME, lease).await.map(|answer| answer.value)
    }

    /// Releases the Lease, so that another process need not wait until it expires.
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
            Ok(Err(error)) => warn!(%error, "Lease not released: another replica takes over when it expires"),
            Err(_) => warn!(error = "timed out", "Lease not released: another replica takes over when it expires"),
        }
    }

    fn log_role(&mut self, is_elected: bool) {
        let resource = LEASES.plural;
        if self.faults.recovered() {
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

    /// Logs each kind of failure once. Returns the delay before the next attempt.
    fn failed(&mut self, error: &Error) -> Duration {
        let (_, report) = self.faults.record(&error.cause, Instant::now().into_std());
        let (namespace, resource) = (self.client.namespace(), LEASES.plural);
        match &error.cause {
            _ if !report => debug!(namespace, resource, %error, "Lease request still failing; retrying"),
            Cause::Unreachable(_) => warn!(namespace, resource, %error, "waiting for the proxy and the API server"),
            Cause::Forbidden(_) => warn!(namespace, resource, %error, "waiting for the right to do so"),
            _ => warn!(namespace, resource, %error, "Lease request failed; retrying"),
        }
        error.cause.delay(RETRY_PERIOD)
    }
}

/// Returns the identity of this process: the host name (in a pod, the pod's name) for readers, and the UID of the pod,
/// which is unique. A restarted container has the same identity and may renew its own Lease: the previous process has
/// exited by then.
#[must_use]
pub fn identity(pod_uid: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{pod_uid}", host.trim())
}
