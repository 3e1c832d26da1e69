//! The operator's promises, on the real API server behind the real kubectl proxy, with RBAC.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod availability;
mod bad_input;
mod changes;
mod chaos;
mod chart;
mod discover;
mod eviction;
mod fields;
mod handover;
mod injection;
mod install;
mod last;
mod leader;
mod managed;
mod metrics;
mod monitoring;
mod namespaces;
mod owners;
mod plugin;
mod policies;
mod reader;
mod recipes;
mod refusal;
mod release;
mod rights;
mod rolling;
mod schema;
mod secrets;
mod selection;
mod status;
mod surge;
mod tenants;
mod test_namespace;
mod timeline;
mod versions;
