//! One wave of a restart: what its owners want is asked for, and pods are deleted or evicted.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tracing::{debug, info, warn};

use super::keeper::Keeper;
use super::pods::Rollout;
use super::timer_now;
use crate::kube::client::{Client, Preconditions};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::{Owner, Pod, Workload};
use crate::kube::{PODS, Resource, Uid};
use crate::monitor::rollout::{Wanted, Wish};
use crate::monitor::spec::{DeletionPolicy, Policy};

/// What a pod's grace period is unless it says otherwise, until a list or a watch tells.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// So many owners are asked at a time.
const AT_A_TIME: usize = 16;

/// The owners whose wish can be asked for.
const WORKLOADS: [Resource; 3] = [
    Resource { api_version: "apps/v1", kind: "ReplicaSet", plural: "replicasets" },
    Resource { api_version: "apps/v1", kind: "StatefulSet", plural: "statefulsets" },
    Resource { api_version: "apps/v1", kind: "DaemonSet", plural: "daemonsets" },
];

/// What became of a wave.
#[derive(Default)]
pub(super) struct Wave {
    /// How many pods were deleted, or were gone already.
    pub(super) removed: usize,
    /// Why others were not, of one of them.
    pub(super) refusal: Option<Error>,
    /// It was, as it should be, a PodDisruptionBudget that lets one go after the other.
    pub(super) is_in_turn: bool,
}

impl Keeper {
    /// Deletes these pods, as many at a time as the client lets through. `is_moving` says that pods are on their way already.
    pub(super) async fn remove(
        &mut self,
        policy: &Policy,
        rollout: &mut Rollout,
        uids: &[Uid],
        is_moving: bool,
    ) -> Result<Wave, Error> {
        // One eviction after the other may take minutes, and others may be awake meanwhile.
        if policy.deletion_policy == DeletionPolicy::Evict {
            self.awake = None;
        }
        // Until it is deleted, also if it is not even tried.
        rollout.failed = uids.iter().cloned().collect();
        let pods = uids.iter().filter_map(|uid| rollout.pods.get(uid)).cloned();
        let (client, grace) = (&self.client.clone(), policy.grace_period_seconds);
        let rows: Vec<Vec<Pod>> = match policy.deletion_policy {
            DeletionPolicy::Delete => pods.map(|pod| vec![pod]).collect(),
            DeletionPolicy::Evict => by_owner(pods),
        };
        let rows = stream::iter(rows).map(|row| delete(client, row, policy));
        // Of more none would be on its way, and each takes room.
        let mut rows = pin!(rows.buffer_unordered(client.most_deletions()));
        let mut wave = Wave::default();
        while let Some(row) = rows.next().await {
            for (pod, result) in row {
                match result {
                    Ok(()) => {
                        info!(monitor = self.name(), pod = pod.name, uid = pod.uid.as_str(), "pod deleted");
                        let grace = grace.map_or(USUAL_GRACE, |seconds| Duration::from_secs(seconds.into()));
                        rollout.ending(&pod.uid, self.client.server_now().plus(grace));
                        rollout.forgive(&pod.uid);
                        wave.removed += 1;
                    }
                    Err(error) if is_gone(&error, policy, &pod) => {
                        debug!(monitor = self.name(), pod = pod.name, "pod gone already");
                        rollout.pods.remove(&pod.uid);
                        rollout.forgive(&pod.uid);
                        wave.removed += 1;
                    }
                    Err(error) => {
                        debug!(monitor = self.name(), pod = pod.name, %error, "pod not deleted");
                        // What has no answer may still be done: no other pod goes before it.
                        if error.cause.is_refusal() {
                            rollout.refused.insert(pod.uid);
                        } else {
                            rollout.refused.remove(&pod.uid);
                        }
                        // Of several, the one that asks for the longest patience.
                        let patience = |error: &Error| error.cause.delay(Duration::ZERO);
                        if wave.refusal.as_ref().is_none_or(|before| patience(before) <= patience(&error)) {
                            wave.refusal = Some(error);
                        }
                    }
                }
            }
        }
        rollout.blocked_at = match &wave.refusal {
            Some(error) if error.cause == Cause::Stopped => return Err(error.clone()),
            Some(error) => {
                wave.is_in_turn = matches!(error.cause, Cause::Blocked(_)) && (wave.removed > 0 || is_moving);
                if !wave.is_in_turn && rollout.faults.note(&error.cause, timer_now()).1 {
                    warn!(monitor = self.name(), %error, pods = rollout.failed.len(), "pods not deleted");
                }
                matches!(error.cause, Cause::Blocked(_) | Cause::Refused(_)).then(|| rollout.ready())
            }
            None => {
                self.unhindered(rollout);
                None
            }
        };
        Ok(wave)
    }

    pub(super) fn unhindered(&self, rollout: &mut Rollout) {
        if rollout.faults.over() {
            info!(monitor = self.name(), "restart not hindered any more");
        }
    }

    /// Asks the owners of the pods how many they want. Without a budget, who cannot be asked wants as many as there were; with
    /// one, nothing is done until all have been asked.
    pub(super) async fn ask_owners(&mut self, policy: &Policy, rollout: &mut Rollout) -> Result<(), Error> {
        let client = &self.client.clone();
        let asked = rollout.plan.owners(&rollout.pods).into_iter();
        let asked: Vec<_> = asked.filter_map(|owner| Some((owner.clone(), resource_of(owner)?))).collect();
        let asked = stream::iter(asked).map(|(owner, resource)| async move {
            let answer = client.get::<Workload>(resource, &owner.name).await;
            (owner, answer)
        });
        let answers: Vec<_> = asked.buffer_unordered(AT_A_TIME).collect().await;
        let (mut wanted, mut failure) = (Wanted::new(), None);
        for (owner, answer) in answers {
            let wish = match answer {
                Ok(answer) if answer.value.uid != owner.uid => Wish::Pods(0),
                Ok(answer) if policy.selector.matches(&answer.value.pod_labels) => {
                    Wish::Pods(answer.value.replicas as usize)
                }
                Ok(answer) => {
                    Wish::OtherPods { missing: answer.value.replicas.saturating_sub(answer.value.available) as usize }
                }
                Err(error) if error.cause == Cause::NotFound => Wish::Pods(0),
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            wanted.insert(owner, wish);
        }
        rollout.wanted = wanted;
        match failure {
            // With a budget a failure is none of the restart's, and what is wrong with the pods is not over.
            None if policy.max_unavailable.is_some() => {}
            None => self.unhindered(rollout),
            Some(error) if error.cause == Cause::Stopped || policy.max_unavailable.is_some() => return Err(error),
            Some(error) => {
                if rollout.faults.note(&error.cause, timer_now()).1 {
                    warn!(monitor = self.name(), %error, "owner not asked; going by the number of pods at the start");
                }
            }
        }
        Ok(())
    }
}

/// Deletes pods one after the other. Once one that serves is not let go, or the server has other troubles, those behind it are not
/// tried: the next pass begins with them.
async fn delete(client: &Client, row: Vec<Pod>, policy: &Policy) -> Vec<(Pod, Result<(), Error>)> {
    let grace = policy.grace_period_seconds;
    let mut results = Vec::with_capacity(row.len());
    for pod in row {
        let resource_version = Some(&pod.version).filter(|_| goes_for_nothing(policy, &pod));
        let only = Preconditions { uid: &pod.uid, resource_version };
        let result = match policy.deletion_policy {
            DeletionPolicy::Delete => client.delete(PODS, &pod.name, only, grace).await,
            DeletionPolicy::Evict => client.evict(&pod.name, only, grace).await,
        };
        let stop = result.as_ref().is_err_and(|error| match error.cause {
            Cause::NotFound | Cause::Conflict(_) => false,
            _ => pod.ready_since.is_some() || !error.cause.is_refusal(),
        });
        results.push((pod, result));
        if stop {
            break;
        }
    }
    results
}

/// Whether a pod may go beyond the budget, since it is not ready. It must still be so when it goes.
fn goes_for_nothing(policy: &Policy, pod: &Pod) -> bool {
    policy.max_unavailable.is_some() && pod.ready_since.is_none()
}

/// Whether an error says that this pod is gone: its name is free, or another pod's.
fn is_gone(error: &Error, policy: &Policy, pod: &Pod) -> bool {
    match error.cause {
        Cause::NotFound => true,
        // If not, it may be that the pod has only changed.
        Cause::Conflict(_) => !goes_for_nothing(policy, pod),
        _ => false,
    }
}

/// Pods in rows, in their order: a PodDisruptionBudget is about the pods of one owner, and those who ask it at once are in each other's way.
fn by_owner(pods: impl Iterator<Item = Pod>) -> Vec<Vec<Pod>> {
    let mut rows: BTreeMap<Option<Owner>, Vec<Pod>> = BTreeMap::new();
    for pod in pods {
        rows.entry(pod.controller.clone()).or_default().push(pod);
    }
    rows.into_values().collect()
}

fn resource_of(owner: &Owner) -> Option<Resource> {
    WORKLOADS.into_iter().find(|resource| resource.api_version == owner.api_version && resource.kind == owner.kind)
}
