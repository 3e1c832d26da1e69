//! What the owners of pods want.

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use crate::controller::shared::Pool;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{Owner, Workload};
use crate::kube::{PODS, Resource};
use crate::monitor::rollout::{OwnerState, OwnerStates};
use crate::monitor::spec::Policy;

/// So many owners are asked at a time.
const AT_A_TIME: usize = 16;

/// An owner to be asked.
pub(super) struct Asked {
    pub(super) owner: Arc<Owner>,
    pub(super) resource: Resource,
    /// So many of its pods are selected.
    pub(super) selected: usize,
}

/// Asks owners what they want: what those said who could be asked, and why others could not, of one of them.
pub(super) async fn ask(
    client: &Client,
    pool: &Pool,
    policy: &Policy,
    owners: Vec<Asked>,
) -> (OwnerStates, Option<Error>) {
    let asked = stream::iter(owners).map(|asked| async move {
        let state = state_of(client, pool, policy, &asked).await;
        (asked.owner, state)
    });
    let answers: Vec<_> = asked.buffered(AT_A_TIME).collect().await;
    let (mut states, mut failure) = (OwnerStates::new(), None);
    for (owner, answer) in answers {
        match answer {
            Ok(state) => drop(states.insert(owner, state)),
            // That a right is missing may last. The other failures are tried again.
            Err(error) => match &failure {
                Some(Error { cause, .. }) if !matches!(cause, Cause::Forbidden(_)) => {}
                _ => failure = Some(error),
            },
        }
    }
    (states, failure)
}

/// Returns the state of an owner. Its other pods are listed only if fewer pods are selected than desired: some may have lost a label, or were created
/// without it.
async fn state_of(client: &Client, pool: &Pool, policy: &Policy, asked: &Asked) -> Result<OwnerState, Error> {
    let Asked { owner, resource, selected } = asked;
    let workload = match client.get::<Workload>(*resource, &owner.name).await {
        Ok(answer) if answer.value.uid == owner.uid => answer.value,
        Err(error) if !error.cause.is_not_found() => return Err(error),
        _ => return Ok(OwnerState::default()),
    };
    let desired = workload.replicas as usize;
    let labels = workload.selector.and_then(|selector| selector.to_query());
    let labels = labels.filter(|labels| *selected < desired && *labels != policy.selector.to_query());
    let others = match labels {
        Some(labels) => {
            let selection = Selection { resource: PODS, labels: Some(labels), name: None, metadata_only: false };
            let mut pods = client.list(&selection, None, |pod| pool.share(pod)).await?.items;
            pods.retain(|pod| pod.controller.as_deref() == Some(&**owner));
            pods
        }
        None => Vec::new(),
    };
    Ok(OwnerState { desired, others, failure: workload.failure })
}
