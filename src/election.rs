//! Leader election: of several replicas, the one that holds the Lease acts. The others stand by.
//!
//! The Lease saves work and noise. Correctness does not depend on the Lease: two leaders do no more harm than two
//! operators, because every status write is a compare-and-swap.

mod candidate;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::candidate::{Candidate, Lease, LeaseAnswer, LeaseRequest, Loss, NAME, Next, RETRY_PERIOD};
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::{Action, LEASES};
use crate::metrics::Metrics;

/// Why the operator stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `shutdown` was cancelled from outside.
    Requested,
    /// Another process is the leader, or may be.
    LeadershipLost,
}

/// Timeout of a request about the Lease. It leaves time for another request before the deadline.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the requests that release the Lease, because the shutdown waits for them.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Election {
    client: Client,
    metrics: Arc<Metrics>,
    candidate: Candidate,
    faults: Faults,
    /// The leader in the last log line.
    logged: Option<String>,
}

impl Election {
    /// Takes part in the election in the namespace of `client`. No other requests may use `client`, as they could delay
    /// those about the Lease.
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>, identity: String) -> Self {
        metrics.set_leader(false);
        Self { client, metrics, candidate: Candidate::new(identity), faults: Faults::default(), logged: None }
    }

    /// Takes part until `shutdown` is cancelled. Cancels `elected` when this process becomes the leader. On shutdown, a
    /// leader waits until its work is `finished` and releases the Lease. A leader that loses the Lease cancels
    /// `shutdown` itself.
    pub(crate) async fn run(
        mut self,
        elected: &CancellationToken,
        shutdown: &CancellationToken,
        finished: &CancellationToken,
    ) -> End {
        match shutdown.run_until_cancelled(self.campaign(elected)).await {
            Some(loss) => {
                error!(error = %loss, "leadership lost: shutting down");
                shutdown.cancel();
                self.metrics.set_leader(false);
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
        let mut request = LeaseRequest::Read;
        loop {
            let sent = Instant::now();
            let outcome = self.send(request).await;
            let delay = outcome.as_ref().err().map(|error| {
                self.faults.log(error, self.client.namespace());
                error.cause.delay(RETRY_PERIOD)
            });
            let outcome = outcome.unwrap_or(LeaseAnswer::Failed);
            match self.candidate.handle(outcome, sent.into_std(), Instant::now().into_std(), self.client.server_now()) {
                Next::Send(next) => {
                    request = next;
                    continue;
                }
                Next::Wait => {}
                Next::Lost(loss) => return loss,
            }
            if delay.is_none() {
                self.log_role(elected.is_cancelled());
            }
            if self.candidate.is_leader() {
                elected.cancel();
                self.metrics.set_leader(true);
            }
            // After the deadline the next request fails at once, and the Lease is lost.
            tokio::time::sleep_until(self.by_deadline(delay.unwrap_or(RETRY_PERIOD))).await;
            request = self.candidate.request(self.client.server_now());
        }
    }

    async fn send(&self, request: LeaseRequest) -> Result<LeaseAnswer, Error> {
        let verb = match &request {
            LeaseRequest::Read => "get",
            LeaseRequest::Create(_) => "create",
            LeaseRequest::Replace(_) => "update",
        };
        let exchange = async {
            let written = match request {
                LeaseRequest::Read => {
                    return self.client.get(LEASES, NAME).await.map(|answer| LeaseAnswer::Read(answer.value));
                }
                LeaseRequest::Create(lease) => self.client.create(LEASES, &lease).await,
                LeaseRequest::Replace(lease) => self.client.replace((LEASES, None), NAME, &lease).await,
            };
            written.map(|answer| LeaseAnswer::Written(answer.value))
        };
        let answer = tokio::time::timeout_at(self.by_deadline(TIMEOUT), exchange).await.unwrap_or_else(|_| {
            let cause = Cause::Unreachable("timed out".to_owned());
            Err(Action::on(verb, LEASES, NAME).failed(cause))
        });
        match answer {
            // 404 for a creation means that the namespace does not exist.
            Err(Error { cause: Cause::NotFound(_), .. }) if verb != "create" => Ok(LeaseAnswer::Missing),
            Err(Error { cause: Cause::Conflict(_), .. }) => Ok(LeaseAnswer::Conflict),
            answer => answer,
        }
    }

    /// The time after `delay`, or that at which the leader stops unless it has renewed the Lease.
    fn by_deadline(&self, delay: Duration) -> Instant {
        let later = Instant::now() + delay;
        self.candidate.deadline().map_or(later, |deadline| later.min(deadline.into()))
    }

    /// Releases the Lease, so that another process need not wait until it expires.
    async fn release(&mut self) {
        let released = tokio::time::timeout(RELEASE_TIMEOUT, async {
            let lease = self.client.get(LEASES, NAME).await?.value;
            match self.candidate.release(lease, self.client.server_now()) {
                Some(lease) => self.client.replace::<Lease>((LEASES, None), NAME, &lease).await.map(drop),
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
        self.faults.log_recovery(LEASES.plural, self.client.namespace());
        if self.candidate.is_leader() && !is_elected {
            info!("became leader");
        }
        let holder = self.candidate.awaited();
        if holder.is_some() && holder != self.logged.as_deref() {
            self.logged = holder.map(str::to_owned);
            info!(leader = holder, "standing by");
        }
    }
}

/// The identity of this process: the host name (in a pod, the pod's name) for readers, and the UID of the pod,
/// which is unique. A restarted container has the same identity and may renew its own Lease: the previous process has
/// exited by then.
pub(crate) fn identity(pod_uid: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{pod_uid}", host.trim())
}
