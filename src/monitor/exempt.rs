//! Which pods a restart leaves alone.

use strum::IntoStaticStr;

use super::pod::Pod;
use super::spec::UnmanagedPods;
use crate::kube::Uid;

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub(crate) enum Exempt {
    #[strum(serialize = "the operator's own")]
    Own,
    /// The pod mirrors a static pod.
    #[strum(serialize = "static")]
    Mirror,
    /// No controller would create the pod again.
    #[strum(serialize = "no controller")]
    Bare,
    /// The pod ends by itself, as those of Jobs do: without it, its owner would fail or start anew.
    #[strum(serialize = "runs to completion")]
    Completes,
}

pub(crate) fn exempt(unmanaged: UnmanagedPods, pod: &Pod, own_pod: Option<&Uid>) -> Option<Exempt> {
    if own_pod == Some(&pod.uid) {
        return Some(Exempt::Own);
    }
    if pod.mirror {
        return Some(Exempt::Mirror);
    }
    match (&pod.controller, unmanaged) {
        (None, UnmanagedPods::Skip) => Some(Exempt::Bare),
        (Some(_), UnmanagedPods::Skip) if pod.completes => Some(Exempt::Completes),
        _ => None,
    }
}
