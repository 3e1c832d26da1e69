//! What needs a program beside the control plane: Helm, kustomize, Prometheus, a registry and others. `make test-packaging` runs these tests.

mod argocd;
pub(crate) mod chart;
mod metrics;
pub(crate) mod monitoring;
mod peers;
mod release;
mod workflows;
