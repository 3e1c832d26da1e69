//! The clock of timers, which tests can pause and advance, and that of the API server.

use std::time::Instant;

use crate::kube::client::Client;
use crate::monitor::restart::Now;

pub(crate) fn timer_now() -> Instant {
    tokio::time::Instant::now().into_std()
}

pub(crate) fn now(client: &Client) -> Now {
    Now { timer: timer_now(), server: client.server_now() }
}
