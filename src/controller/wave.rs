//! One wave of a restart: what its owners want is asked for, and pods are deleted or evicted.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::index::Goal;
use super::keeper::Keeper;
use super::pods::Rollout;
use super::pool::Pool;
use super::shared::Shared;
use super::timer_now;
use crate::kube::client::{Client, Preconditions};
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{Owner, Pod, Workload};
use crate::kube::{PODS, Resource, ServerTime};
use crate::monitor::rollout::{Wanted, Wish};
use crate::monitor::spec::{DeletionPolicy, Policy};

/// What a pod's grace period is unless it says otherwise, until a list or a watch tells.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// So many owners are asked at a time.
const AT_A_TIME: usize = 16;

/// A wave ends when so many pods were refused for the same kind of reason: the others would be, too.
const MOST_REFUSALS: usize = 3;

/// A wave that takes longer than this leaves its place among those who are awake to another keeper.
const AWAKE_FOR: Duration = Duration::from_secs(1);

/// No eviction is asked for later than this after the first one of a wave: each may take more than 10 s, and others may wait for their turn.
const EVICTING_FOR: Duration = Duration::from_secs(10);

/// What became of a wave.
#[derive(Default)]
pub(super) struct Wave {
    /// How many pods it has deleted.
    pub(super) removed: usize,
    /// Why others were not, of one of them.
    pub(super) refusal: Option<Error>,
    /// It was, as it should be, a PodDisruptionBudget that lets one go after the other.
    pub(super) is_in_turn: bool,
    /// It ended before its time: what is asked of the keeper is something else by now, or others are to have their turn.
    pub(super) is_cut_short: bool,
}

/// What became of one pod.
enum Deletion {
    /// It is terminating: by this wave, or by that of another ConfigMonitor.
    Done { by: ServerTime, here: bool },
    /// The API server says that it is gone, or another one by now, or only that it has changed. That it is so the next list shows.
    SaidGone(Error),
    /// It was not deleted.
    Failed(Error),
}

/// What all deletions of a wave look at before they are sent.
struct Wavefront<'a> {
    client: &'a Client,
    shared: &'a Shared,
    policy: &'a Policy,
    goal: watch::Receiver<Goal>,
    generation: i64,
    /// When the list of the pods was begun,
    listed: Instant,
    /// and when the wave was.
    began: Instant,
    /// One until the first success if the wave before was hindered.
    width: Semaphore,
    sent: AtomicUsize,
    is_over: AtomicBool,
}

impl Keeper {
    /// Deletes these pods, as many at a time as the client lets through. `is_moving` says that pods are on their way already.
    pub(super) async fn remove(
        &mut self,
        policy: &Policy,
        rollout: &mut Rollout,
        pods: Vec<Arc<Pod>>,
        is_moving: bool,
    ) -> Result<Wave, Error> {
        let (client, shared) = (self.client.clone(), Arc::clone(&self.shared));
        // Deletions may hang for a minute: some are left to others.
        let most = client.most_deletions() - client.most_deletions() / 4;
        let front = Wavefront {
            client: &client,
            shared: &shared,
            policy,
            goal: self.goal.clone(),
            generation: self.generation,
            listed: rollout.listed_at,
            began: timer_now(),
            width: Semaphore::new(if rollout.is_hindered { 1 } else { most }),
            sent: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        // Until it is deleted, also if it is not even tried.
        rollout.failed = pods.iter().map(|pod| pod.uid.clone()).collect();
        let rows: Vec<Vec<Arc<Pod>>> = match policy.deletion_policy {
            DeletionPolicy::Delete => pods.into_iter().map(|pod| vec![pod]).collect(),
            DeletionPolicy::Evict => by_owner(pods),
        };
        // Of more none would be on its way, and each takes room.
        let mut rows = pin!(stream::iter(rows).map(|row| front.row(row)).buffer_unordered(most));
        let mut refusals: Vec<Discriminant<Cause>> = Vec::new();
        let mut wave = Wave::default();
        let mut long = pin!(sleep(AWAKE_FOR));
        loop {
            let row = tokio::select! {
                biased;
                row = rows.next() => row,
                () = &mut long, if self.awake.is_some() => {
                    self.awake = None;
                    continue;
                }
            };
            let Some(row) = row else { break };
            for (pod, deletion) in row {
                let error = match deletion {
                    Deletion::Done { by, here } => {
                        if here {
                            info!(monitor = self.name(), pod = &*pod.name, uid = pod.uid.as_str(), "pod deleted");
                        }
                        if wave.removed == 0 && rollout.is_hindered {
                            front.width.add_permits(most);
                        }
                        rollout.ending(&pod.uid, by);
                        rollout.forgive(&pod.uid);
                        // What others are doing may fail yet.
                        wave.removed += usize::from(here);
                        continue;
                    }
                    Deletion::SaidGone(error) if rollout.may_be_so(&pod, front.is_about_version(&pod, &error)) => {
                        debug!(monitor = self.name(), pod = &*pod.name, %error, "pod said to be gone");
                        rollout.failed.remove(&pod.uid);
                        wave.is_cut_short = true;
                        continue;
                    }
                    // A list has shown that it is not.
                    Deletion::SaidGone(Error { request, cause }) => {
                        let cause = Cause::Refused(format!("{cause} (and the pod is there)"));
                        Error { request, cause }
                    }
                    Deletion::Failed(error) => error,
                };
                debug!(monitor = self.name(), pod = &*pod.name, %error, "pod not deleted");
                // What has no answer may still be done: no other pod goes before it.
                if error.cause.is_refusal() {
                    rollout.refused.insert(pod.uid.clone());
                } else {
                    rollout.refused.remove(&pod.uid);
                }
                refusals.push(discriminant(&error.cause));
                let alike = refusals.iter().filter(|kind| **kind == discriminant(&error.cause)).count();
                let ends = match error.cause {
                    Cause::Busy(_) | Cause::Forbidden(_) => true,
                    // One owner's budget does not stop the others.
                    Cause::Blocked(_) => false,
                    _ => alike >= MOST_REFUSALS,
                };
                if ends {
                    front.is_over.store(true, Ordering::Relaxed);
                }
                // Of several, the one that asks for the longest patience.
                let patience = |error: &Error| error.cause.delay(Duration::ZERO);
                if wave.refusal.as_ref().is_none_or(|before| patience(before) <= patience(&error)) {
                    wave.refusal = Some(error);
                }
            }
        }
        wave.is_cut_short |= front.goal.has_changed().unwrap_or(false) || front.has_lasted_long();
        rollout.is_hindered = wave.refusal.as_ref().is_some_and(|error| !matches!(error.cause, Cause::Blocked(_)));
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

    /// Asks the owners of the pods how many they want. Without a budget, who cannot be asked wants as many as there were, and none is asked whose
    /// pods are not replaced; with one, nothing is done until all have been asked.
    pub(super) async fn ask_owners(&mut self, policy: &Policy, rollout: &mut Rollout) -> Result<(), Error> {
        let (client, pool) = (&self.client, &self.shared.pods);
        let began = timer_now();
        let mut selected: BTreeMap<&Owner, usize> = BTreeMap::new();
        for pod in rollout.pods.values().filter(|pod| pod.is_present()) {
            if let Some(owner) = &pod.controller {
                *selected.entry(owner).or_default() += 1;
            }
        }
        let asked = rollout.plan.owners(&rollout.pods).into_iter();
        let asked = asked.filter(|owner| policy.max_unavailable.is_some() || rollout.plan.concerns(owner));
        let asked: Vec<(Arc<Owner>, Resource, usize)> = asked
            .filter_map(|owner| {
                Some((Arc::clone(owner), owner.workload()?, selected.get(&**owner).copied().unwrap_or(0)))
            })
            .collect();
        let asked = stream::iter(asked).map(|(owner, resource, selected)| async move {
            let wish = wish_of(client, pool, &owner, resource, policy, selected).await;
            (owner, wish)
        });
        let answers: Vec<_> = asked.buffer_unordered(AT_A_TIME).collect().await;
        let (mut wanted, mut failure) = (Wanted::new(), None);
        for (owner, answer) in answers {
            match answer {
                Ok(mut wish) => {
                    wish.others.retain(|pod| !rollout.pods.contains_key(&pod.uid));
                    wanted.insert(owner, wish);
                }
                Err(error) => failure = Some(error),
            }
        }
        if wanted.values().any(|wish| !wish.others.is_empty()) {
            // To find them has taken a list.
            rollout.put_off(timer_now().saturating_duration_since(began));
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

/// What an owner wants, and the pods that it has if fewer of them are selected than that: others may have lost a label, or come without.
async fn wish_of(
    client: &Client,
    pool: &Pool,
    owner: &Owner,
    resource: Resource,
    policy: &Policy,
    selected: usize,
) -> Result<Wish, Error> {
    let workload = match client.get::<Workload>(resource, &owner.name).await {
        Ok(answer) if answer.value.uid == owner.uid => answer.value,
        Err(error) if !error.cause.is_not_found() => return Err(error),
        _ => return Ok(Wish::default()),
    };
    let pods = workload.replicas as usize;
    let labels = workload.selector.and_then(|selector| selector.to_query());
    let labels = labels.filter(|labels| selected < pods && *labels != policy.selector.to_query());
    let others = match labels {
        Some(labels) => {
            let selection = Selection { resource: PODS, labels: Some(labels), metadata_only: false };
            let mut pods = client.list(&selection, None, |pod| pool.share(pod)).await?.items;
            pods.retain(|pod| pod.controller.as_deref() == Some(owner));
            pods
        }
        None => Vec::new(),
    };
    Ok(Wish { pods, others })
}

impl Wavefront<'_> {
    /// Deletes pods one after the other. Once one that serves is not let go, or the server has other troubles, those behind it are not
    /// tried: the next pass begins with them.
    async fn row(&self, row: Vec<Arc<Pod>>) -> Vec<(Arc<Pod>, Deletion)> {
        let mut results = Vec::with_capacity(row.len());
        for pod in row {
            let Some(deletion) = self.delete(&pod).await else { break };
            let stop = match &deletion {
                Deletion::Done { .. } | Deletion::SaidGone(_) => false,
                Deletion::Failed(error) => pod.ready_since.is_some() || !error.cause.is_refusal(),
            };
            results.push((pod, deletion));
            if stop {
                break;
            }
        }
        results
    }

    /// Deletes a pod, if that is still wanted when its time has come.
    async fn delete(&self, pod: &Pod) -> Option<Deletion> {
        let grace = self.policy.grace_period_seconds;
        let version = Some(&pod.version).filter(|_| self.is_for_nothing(pod));
        let only = Preconditions { uid: &pod.uid, resource_version: version };
        let _width = self.width.acquire().await.ok()?;
        let permit = match self.client.deletion_permit().await {
            Ok(permit) => permit,
            Err(error) => return Some(Deletion::Failed(error)),
        };
        if let Some(by) = self.shared.deleted_since(&pod.uid, self.listed) {
            return Some(Deletion::Done { by, here: false });
        }
        if !self.may_send() {
            return None;
        }
        let usual = grace.map_or(USUAL_GRACE, |seconds| Duration::from_secs(seconds.into()));
        let by = self.client.server_now().plus(usual);
        // From here on others need not ask for it. If it is not deleted, their next list shows it.
        self.shared.deletes(&pod.uid, by);
        let result = match self.policy.deletion_policy {
            DeletionPolicy::Delete => self.client.delete(permit, &pod.name, only, grace).await,
            DeletionPolicy::Evict => self.client.evict(permit, &pod.name, only, grace).await,
        };
        let Err(error) = result else { return Some(Deletion::Done { by, here: true }) };
        self.shared.has_not_deleted(&pod.uid);
        Some(match error.cause {
            Cause::NotFound(_) | Cause::Conflict(_) => Deletion::SaidGone(error),
            _ => Deletion::Failed(error),
        })
    }

    /// Whether a pod goes beyond the budget, as it is not ready. It must still be so when it goes.
    fn is_for_nothing(&self, pod: &Pod) -> bool {
        self.policy.max_unavailable.is_some() && pod.ready_since.is_none()
    }

    /// Whether this answer may be about nothing but the version of the pod.
    fn is_about_version(&self, pod: &Pod, error: &Error) -> bool {
        self.is_for_nothing(pod) && matches!(error.cause, Cause::Conflict(_))
    }

    /// Whether the wave goes on: nothing else is asked of the keeper by now. One pod goes even if the doorbell has rung once more since the ConfigMap
    /// was read, or one who rings it all the time would stop everything.
    fn may_send(&self) -> bool {
        let is_first = self.sent.load(Ordering::Relaxed) == 0;
        let has_changed = match self.goal.has_changed() {
            Ok(false) => false,
            Ok(true) => !is_first || self.goal.borrow().generation != self.generation,
            Err(_) => true,
        };
        let goes_on = !has_changed && !self.is_over.load(Ordering::Relaxed) && !self.has_lasted_long();
        self.sent.fetch_add(usize::from(goes_on), Ordering::Relaxed);
        goes_on
    }

    fn has_lasted_long(&self) -> bool {
        self.policy.deletion_policy == DeletionPolicy::Evict
            && timer_now().saturating_duration_since(self.began) >= EVICTING_FOR
    }
}

/// Pods in rows, in their order: a PodDisruptionBudget is about the pods of one owner, and those who ask it at once are in each other's way.
fn by_owner(pods: Vec<Arc<Pod>>) -> Vec<Vec<Arc<Pod>>> {
    let mut rows: BTreeMap<Option<Arc<Owner>>, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        rows.entry(pod.controller.clone()).or_default().push(pod);
    }
    rows.into_values().collect()
}
