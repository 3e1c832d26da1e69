//! A simulated Kubernetes cluster in memory: an API server, the controllers and kubelets behind it, and the processes
//! of the operator that use it, in paused time and from one seed.
//!
//! A request of a process passes the network (`transport.rs`, `network.rs`) and is served (`api.rs`, `watching.rs`)
//! from stores of objects (`store.rs`, `objects.rs`, `content.rs`) of a cluster (`state.rs`, `cluster.rs`). The ledger
//! (`ledger.rs`) records what was served, received and done.
//!
//! `serve.rs` serves the cluster over HTTP in real time; `demo.rs` is the cluster of the demo, and what its users may send.
//!
//! The rules that must hold are in `tests/simulation`; `testenv/tests/alike.rs` shows that the real API server gives
//! the same answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Only tests of this project use the crate.
#![allow(missing_docs)]

mod api;
mod backup;
mod budget;
pub mod cluster;
pub mod content;
mod demo;
pub mod ledger;
pub mod network;
mod objects;
pub mod processes;
pub mod serve;
pub mod state;
pub mod store;
mod surge;
mod transport;
mod watching;

pub use transport::Connection;

pub const NAMESPACE: &str = "default";
/// Another namespace, without objects.
pub(crate) const EMPTY: &str = "empty";
