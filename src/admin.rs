//! The probes of the pod: `/livez` says that the process runs, `/readyz` that it knows the namespace and may watch it.

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

async fn ready(State(synced): State<watch::Receiver<Synced>>) -> (StatusCode, &'static str) {
    let Synced { config_monitors, config_maps, refused } = *synced.borrow();
    let why_not = if refused.config_monitors {
        "the right to list and watch ConfigMonitors is missing\n"
    } else if refused.config_maps {
        "the right to list and watch ConfigMaps is missing\n"
    } else if !config_monitors {
        "the ConfigMonitors are not listed yet\n"
    } else if !config_maps {
        "the ConfigMaps are not listed yet\n"
    } else {
        return (StatusCode::OK, "ok\n");
    };
    (StatusCode::SERVICE_UNAVAILABLE, why_not)
}
