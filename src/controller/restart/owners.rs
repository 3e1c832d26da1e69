//! Reads of the owners of pods.

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use crate::kube::PODS;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{Pod, Workload};
use crate::monitor::restart::standing::{OwnerQuery, OwnerState, OwnerStates};
use crate::monitor::spec::Policy;

const CONCURRENT_READS: usize = 16;

/// Returns the states of the owners that could be read, and one failure, if there was one.
pub(super) async fn read_states(
    client: &Client,
    policy: &Policy,
    owners: Vec<OwnerQuery>,
) -> (OwnerStates, Option<Error>) {
    let answers = stream::iter(owners).map(|query| async move {
        let state = state_of(client, policy, &query).await;
        (query.owner, state)
    });
    let answers: Vec<_> = answers.buffered(CONCURRENT_READS).collect().await;
    let (mut states, mut failure) = (OwnerStates::new(), None);
    for (owner, answer) in answers {
        match answer {
            Ok(state) => drop(states.insert(owner, state)),
            // A missing right may last, so any other failure is reported first: it is retried.
            Err(error) => match &failure {
                Some(Error { cause, .. }) if !matches!(cause, Cause::Forbidden(_)) => {}
                _ => failure = Some(error),
            },
        }
    }
    (states, failure)
}

/// The other pods of the owner are listed only if fewer pods are selected than desired: some may have lost a label, or
/// were created without it.
async fn state_of(client: &Client, policy: &Policy, query: &OwnerQuery) -> Result<OwnerState, Error> {
    let OwnerQuery { owner, resource, selected } = query;
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
            let mut pods = client.list(&selection, None, Arc::<Pod>::new).await?.items;
            pods.retain(|pod| pod.controller.as_deref() == Some(&**owner));
            pods
        }
        None => Vec::new(),
    };
    Ok(OwnerState { desired, others, failure: workload.failure, controller: workload.controller })
}
