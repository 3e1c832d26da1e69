//! The operator on the wire: what it sends and how it handles the answers, byte for byte.
//!
//! There is no control plane. Each test scripts an API server (see `script.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod confirming;
mod evictions;
mod failures;
mod held;
mod identity;
mod leading;
mod listing;
mod operator;
mod process;
mod progress;
mod quiet;
mod request;
mod requests;
mod restarts;
mod scenario;
mod script;
mod secrets;
mod sharing;
mod shutdown;
mod source;
mod stopping;
mod time;
mod timeouts;
mod waiting;
mod watching;
mod when;
mod writes;
