//! The manifests on a real node, as a user applies them, in real containers. `make test-node` runs this.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod kubelet;
mod lab;
mod pod;
mod surge;
