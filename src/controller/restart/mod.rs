//! Carries out a restart, pass after pass: a list, a wave of deletions, and the wait for the new pods.
//!
//! What may be deleted is decided in `monitor::rollout`; here it is only done, and only to pods that were listed in the same
//! pass, after the intent is in the status, and for a spec that was confirmed after that list.

mod owners;
mod pass;
mod pod_watch;
mod rollout;
mod snapshots;
mod wave;

use std::sync::Arc;
use std::time::Instant;

pub(crate) use self::pass::{Basis, Pass};
pub(crate) use self::rollout::Rollout;
pub(crate) use self::snapshots::Snapshots;
use super::context::Context;
use super::shared::{InPods, Listing};
use crate::kube::PODS;
use crate::kube::error::Error;
use crate::kube::list::Selection;
use crate::monitor::spec::Policy;

/// The pods that a policy selects, as listed at this time or later.
pub(crate) async fn list_pods(
    context: &Context,
    policy: &Policy,
    not_before: Instant,
) -> Result<(Arc<Listing>, InPods), Error> {
    let interest = context.shared.lists.interest(&policy.selector.to_query());
    let list = Listing::make(&context.client, &context.shared, selected(policy));
    let listing = interest.ask(context.client.stop(), not_before, list).await?;
    Ok((listing, interest))
}

fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), metadata_only: false }
}
