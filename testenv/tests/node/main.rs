//! The manifests on a real node: what a user applies, in real containers. `make test-node` runs this.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod lab;
mod pod;
mod story;
