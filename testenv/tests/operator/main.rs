//! The operator's promises, on the real API server behind the real kubectl proxy, with RBAC.
//!
//! What is not in `packaging` or `nightly` needs the control plane and no other program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod availability;
mod bad_input;
mod changes;
mod discover;
mod eviction;
mod handover;
mod install;
mod leader;
mod metrics;
mod namespaces;
mod nightly;
mod owners;
mod packaging;
mod plugin;
mod policies;
mod reader;
mod recipes;
mod refusal;
mod rights;
mod rolling;
mod schema;
mod secrets;
mod selection;
mod surge;
mod test_namespace;
mod versions;
