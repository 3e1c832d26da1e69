//! Reads of the owners of pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::labels::OwnerSelector;
use crate::kube::list::Selection;
use crate::kube::names::is_dns_subdomain;
use crate::kube::objects::{DEPLOYMENTS, Labels, Owner, REPLICA_SETS, Workload};
use crate::kube::{PODS, Resource};
use crate::monitor::pod::{LabelledPod, Pod};
use crate::monitor::restart::sight::{DeploymentState, Deployments};
use crate::monitor::restart::sight::{OwnerQuery, OwnerState, OwnerStates};
use crate::monitor::spec::Policy;

const CONCURRENT_READS: usize = 16;

/// Returns the states of the owners that could be read, and one failure, if there was one.
pub(crate) async fn read_states(
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
    let Some(workload) = read_workload(client, *resource, owner).await? else { return Ok(OwnerState::default()) };
    let desired = workload.replicas as usize;
    let labels = workload.selector.as_ref().and_then(OwnerSelector::to_query);
    let labels = labels.filter(|labels| *selected < desired && *labels != policy.selector.to_query());
    // A selected pod that the list of the pass lacks has come since, and one that it has may have gone.
    let is_other = |set: &Owner, labels: &Labels| *set == **owner && !policy.selector.matches(&labels.to_map());
    let others = list_others(client, labels, is_other).await?;
    let Workload { min_ready, failure, controller, is_named_after_controller, .. } = workload;
    Ok(OwnerState { desired, min_ready, others, failure, controller, is_named_after_controller })
}

/// Returns the Deployments that exist, with their pods. Those that the policy selects are in the list of the pass.
pub(crate) async fn read_deployments(
    client: &Client,
    selected: Option<&str>,
    deployments: Vec<Arc<Owner>>,
) -> Result<Deployments, Error> {
    let answers = stream::iter(deployments).map(|owner| async move {
        let state = deployment_state(client, selected, &owner).await?;
        Ok(state.map(|state| (owner, state)))
    });
    let states: Vec<_> = answers.buffered(CONCURRENT_READS).try_collect().await?;
    Ok(states.into_iter().flatten().collect())
}

async fn deployment_state(
    client: &Client,
    selected: Option<&str>,
    owner: &Owner,
) -> Result<Option<DeploymentState>, Error> {
    let Some(deployment) = read_workload(client, DEPLOYMENTS, owner).await? else { return Ok(None) };
    let Workload { replicas, min_ready, selector, may_surge, is_rolling, .. } = deployment;
    let labels = selector.as_ref().and_then(OwnerSelector::to_query).filter(|labels| Some(&**labels) != selected);
    // Whoever may create a ReplicaSet chooses its name.
    let mut others = list_others(client, labels, |set, _| set.is_of(REPLICA_SETS) && set.is_named_after(owner)).await?;
    let of_sets = others.iter().filter(|pod| pod.handed_over.is_none());
    let sets: BTreeSet<Arc<Owner>> = of_sets.filter_map(|pod| pod.controller.clone()).collect();
    let its = stream::iter(sets).map(|set| async move {
        let workload = read_workload(client, REPLICA_SETS, &set).await?;
        let is_its = workload.and_then(|set| set.controller).is_some_and(|controller| controller.uid == owner.uid);
        Ok(is_its.then_some(set))
    });
    let its: Vec<_> = its.buffered(CONCURRENT_READS).try_collect().await?;
    others.retain(|pod| match &pod.handed_over {
        Some(handed_over) => handed_over.to.uid == owner.uid,
        None => its.contains(&pod.controller),
    });
    Ok(Some(DeploymentState { desired: replicas as usize, min_ready, others, may_surge, is_rolling }))
}

/// Returns an owner of pods, unless it is gone, or another object has its name.
pub(crate) async fn read_workload(
    client: &Client,
    resource: Resource,
    owner: &Owner,
) -> Result<Option<Workload>, Error> {
    if !is_dns_subdomain(&owner.name) {
        return Ok(None);
    }
    match client.get(resource, &owner.name).await {
        Ok(answer) => Ok(Some(answer.value).filter(|workload: &Workload| workload.uid == owner.uid)),
        Err(error) if error.cause.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the pods with these labels that are others, by their controller and all their labels. None without labels.
async fn list_others(
    client: &Client,
    labels: Option<String>,
    is_other: impl Fn(&Owner, &Labels) -> bool,
) -> Result<Vec<Arc<Pod>>, Error> {
    let Some(labels) = labels else { return Ok(Vec::new()) };
    let selection = Selection { resource: PODS, labels: Some(labels), fields: None, metadata_only: false };
    let keep = |LabelledPod { pod, labels, .. }: LabelledPod| {
        let is_other = pod.controller.as_deref().is_some_and(|controller| is_other(controller, &labels));
        is_other.then(|| Arc::new(pod))
    };
    Ok(client.list(&selection, None, keep).await?.items.into_iter().flatten().collect())
}
