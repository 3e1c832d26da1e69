//! A throw-away real Kubernetes control plane, for the demo and for tests.
//!
//! [`ControlPlane::start`] runs etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok (which plays the
//! node) as processes on loopback. [`Proxy`] is a real `kubectl proxy` with one token, [`Operator`] the operator's
//! binary, [`FaultProxy`] injects faults between the two, and [`Client`] is a plain JSON client for tests. Several control planes run side by side.
//!
//! No child outlives the process that started it, however that process ends: see [`process`]. This needs Linux.
//!
//! The crate never touches a cluster that it did not start, nor the user's kubeconfig.

// Only tests, demo and benchmark of this project use the crate.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

pub mod binaries;
pub mod client;
pub mod control_plane;
pub mod fault_proxy;
pub mod fixture;
pub mod history;
pub mod kubectl;
pub mod node;
pub mod operator;
pub mod pages;
pub mod process;
pub mod prometheus;
pub mod proxy;
mod run_dir;
mod site;
mod yaml;

pub use client::{Answer, Client, DEADLINE, eventually, is_ready};
pub use control_plane::{Backup, ControlPlane};
pub use fault_proxy::{Fault, FaultProxy};
pub use history::{History, Past};
pub use kubectl::Kubectl;
pub use node::Node;
pub use operator::Operator;
pub use process::Process;
pub use proxy::Proxy;
pub use run_dir::RunDir;
pub use yaml::manifests;

/// Returns bytes as text, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the path of a file or folder of this project, by its path from the top.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
