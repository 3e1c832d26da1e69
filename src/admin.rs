//! The probes of the pod: `/livez` says that the process runs, `/readyz` that it knows its namespaces and may watch them.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::controller::Synced;

/// Answers probes until `shutdown` is cancelled.
pub async fn serve(listener: TcpListener, synced: watch::Receiver<Synced>, shutdown: CancellationToken) {
    let router =
        Router::new().route("/livez", get(|| async { "ok\n" })).route("/readyz", get(ready)).with_state(synced);
    // A probe that keeps its connection open must not hold up the end.
    let served = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        served = axum::serve(listener, router).into_future() => served,
    };
    if let Err(error) = served {
        warn!(%error, "probes are not answered any more");
    }
}

async fn ready(State(synced): State<watch::Receiver<Synced>>) -> (StatusCode, String) {
    match synced.borrow().why_not_ready() {
        Some(why_not) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why_not}\n")),
        None => (StatusCode::OK, "ok\n".to_owned()),
    }
}
