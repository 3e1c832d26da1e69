//! The operator on the wire: what it sends, and what it makes of the answers, byte for byte.
//!
//! There is no control plane here. Each test plays the API server itself, with a script (see `script.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod confirming;
mod ending;
mod evictions;
mod held;
mod identity;
mod leading;
mod listing;
mod operator;
mod patience;
mod process;
mod progress;
mod quiet;
mod request;
mod requests;
mod restarts;
mod script;
mod secrets;
mod sharing;
mod source;
mod stage;
mod stopping;
mod time;
mod trouble;
mod waiting;
mod watching;
mod when;
mod writes;
