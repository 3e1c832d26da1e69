//! An operator that restarts the pods that read a ConfigMap or a Secret when its content changes.
//!
//! [`kube`] speaks to the API server, [`monitor`] decides, [`controller`] connects the two, `election` chooses which
//! of several replicas acts, [`metrics`] counts, `admin` answers probes, and [`options`] holds the flags.
//! `ARCHITECTURE.md` follows one edit through all of them.

mod admin;
pub mod controller;
#[cfg(test)]
mod docs;
mod election;
pub mod kube;
pub mod metrics;
pub mod monitor;
pub mod options;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::controller::{Readiness, Settings};
use self::election::Election;
pub use self::election::End;
use self::kube::Uid;
use self::kube::client::Client;
use self::kube::transport::KubectlProxy;
use self::metrics::Metrics;
use self::options::Options;

/// Runs the operator until `shutdown` is cancelled. If the operator loses its leadership, it cancels `shutdown` itself.
/// Finishes the requests in flight.
///
/// # Errors
/// The operator cannot start. Later failures are logged and retried.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<End, Box<dyn std::error::Error>> {
    let (namespaces, candidacy) = (options.namespaces(), options.candidacy());
    let metrics = Arc::new(Metrics::default());
    let Options { proxy_url, pod_uid, delete_concurrency, request_concurrency, surge, listen, .. } = options;
    let listener = admin::listen(listen, TcpListener::bind)
        .await
        .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    let listen = listener.local_addr().unwrap_or(listen);
    let version = env!("CARGO_PKG_VERSION");
    info!(version, ?namespaces, proxy = proxy_url.as_str(), %listen, "starting");

    let (elected, finished) = (CancellationToken::new(), CancellationToken::new());
    let election = match candidacy {
        Some((namespace, identity)) => {
            let (transport, base) = KubectlProxy::at(proxy_url.clone())?;
            let client = Client::new(Box::new(transport), base, 1, 1, metrics.clone(), CancellationToken::new());
            Some(Election::new(client.within(&namespace), Arc::clone(&metrics), identity))
        }
        None => {
            elected.cancel();
            None
        }
    };
    let (requests, deletions) = (request_concurrency.get().into(), delete_concurrency.get().into());
    let (transport, base) = KubectlProxy::at(proxy_url)?;
    let client = Client::new(Box::new(transport), base, requests, deletions, metrics.clone(), shutdown.clone());
    let excluded = Arc::new(options.discover_exclude.into_iter().collect());
    let settings =
        Settings { own_pod: pod_uid.as_deref().map(Uid::from), surges: surge, excluded, metrics: Arc::clone(&metrics) };
    let readiness = Readiness::of(&namespaces);
    let work = async {
        controller::run(client, namespaces, settings, readiness.clone(), elected.clone()).await;
        finished.cancel();
    };
    let lead = async {
        match election {
            Some(election) => election.run(&elected, &shutdown, &finished).await,
            None => End::Requested,
        }
    };
    let ((), (), end) = tokio::join!(work, admin::serve(listener, readiness.clone(), metrics, shutdown.clone()), lead);
    info!("stopped");
    Ok(end)
}
