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
use self::kube::Uid;
use self::kube::client::Client;
use self::kube::transport::KubectlProxy;
use self::metrics::Metrics;
use self::options::Options;

/// Why the operator stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `shutdown` was cancelled from outside.
    Requested,
    /// Another process is the leader, or may be.
    LeadershipLost,
}

/// Runs the operator until `shutdown` is cancelled. If the operator loses its leadership, it cancels `shutdown` itself.
/// Finishes the requests in flight.
///
/// # Errors
/// The operator cannot start. Later failures are logged and retried.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<End, Box<dyn std::error::Error>> {
    let (namespaces, candidacy) = (options.namespaces(), options.candidacy());
    let metrics = Arc::new(Metrics::new(options.metrics_per_configmonitor));
    let Options { proxy_url, pod_uid, delete_concurrency, request_concurrency, surge, listen, .. } = options;
    let listener = admin::listen(listen, TcpListener::bind)
        .await
        .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    let listen = listener.local_addr().unwrap_or(listen);
    let version = env!("CARGO_PKG_VERSION");
    info!(version, %namespaces, proxy = proxy_url.as_str(), %listen, "starting");

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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{fs, io};

    /// Calls `see` with the name and the text of each file below a folder, but for those of tests.
    fn each_file(folder: &Path, see: &mut impl FnMut(&Path, &str)) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                each_file(&path, see)?;
            } else if !path.components().any(|part| part.as_os_str() == "tests") && !path.ends_with("tests.rs") {
                see(&path, &fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }

    /// The layers with what each may name after `crate::`, and words that it may not contain. Its tests may.
    #[test]
    fn each_layer_names_only_those_below_it_kube_no_config_monitor_and_monitor_neither_io_nor_a_clock() {
        let layers: [(&str, &[&str], &[&str]); 4] = [
            ("kube", &["kube"], &["magalix", "ConfigMonitor", "restartLast"]),
            (
                "monitor",
                &["kube", "monitor"],
                &["tokio", "async ", "std::fs", "std::net", "thread", "SystemTime", "::now("],
            ),
            ("metrics", &["kube", "metrics"], &[]),
            ("controller", &["kube", "monitor", "metrics", "controller"], &[]),
        ];
        let (mut wrong, mut read) = (Vec::new(), 0);
        for (layer, below, unknown) in layers {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(layer);
            let mut see = |path: &Path, text: &str| {
                read += 1;
                let is_below = |rest: &str| {
                    rest.split(|c| !char::is_alphabetic(c)).next().is_some_and(|word| below.contains(&word))
                };
                for line in text.split("#[cfg(test)]\nmod tests").next().into_iter().flat_map(str::lines) {
                    if !line.split("crate::").skip(1).all(is_below) || unknown.iter().any(|word| line.contains(word)) {
                        wrong.push(format!("{}: {}", path.display(), line.trim()));
                    }
                }
            };
            each_file(&folder, &mut see).expect("the sources");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(read > 20, "{read} files");
    }
}
