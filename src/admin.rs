//! The HTTP server of the pod. `/livez`: the process runs. `/readyz`: it knows its namespaces and may watch them.
//! `/metrics`: what it has done.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::controller::Synced;
use crate::metrics::{self, Metrics};

/// Serves requests until `shutdown` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    synced: watch::Receiver<Synced>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) {
    let ready = synced.clone();
    let metrics = async move || {
        ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text(synced.borrow().why_not_ready().is_none()))
    };
    let ready = async move || match ready.borrow().why_not_ready() {
        Some(why_not) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why_not}\n")),
        None => (StatusCode::OK, "ok\n".to_owned()),
    };
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics));
    // A probe that keeps its connection open must not delay the shutdown.
    let served = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        served = axum::serve(listener, router).into_future() => served,
    };
    if let Err(error) = served {
        warn!(%error, "probes and metrics are no longer served");
    }
}
