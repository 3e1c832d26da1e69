//! The operator on the wire: what it sends and how it handles the answers, byte for byte.
//!
//! There is no control plane. Each test scripts an API server (see `script.rs`), but for those in `cluster.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod cluster;
mod failures;
mod held;
mod keeper;
mod leading;
mod listing;
mod operator;
mod process;
mod request;
mod requests;
mod scenario;
mod script;
mod shutdown;
mod time;
mod timeouts;
mod watching;
