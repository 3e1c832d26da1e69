//! One wave of a restart: pods are deleted or evicted, as many at a time as the client lets through.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{debug, info};

use super::rollout::Rollout;
use crate::controller::clock::timer_now;
use crate::controller::context::Context;
use crate::controller::duty::{Duty, Orders};
use crate::controller::limits::share_of_wave;
use crate::controller::memory::Confirmed;
use crate::controller::shared::Shared;
use crate::kube::ServerTime;
use crate::kube::client::{Client, Preconditions};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::{Owner, Pod};
use crate::monitor::spec::{DeletionPolicy, Policy};

/// What a pod's grace period is unless it says otherwise, until a list or a watch tells.
const USUAL_GRACE: Duration = Duration::from_secs(30);

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
    pub(super) deleted: usize,
    /// Why others were not, of one of them.
    pub(super) refusal: Option<Error>,
    pub(super) end: End,
    refusals: Vec<Discriminant<Cause>>,
}

/// How a wave ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// Every pod was tried, or the others would have fared no better than those that were refused.
    #[default]
    Complete,
    /// It took so long that other keepers are to have their turn. The next pass comes at once.
    OutOfTime,
    /// The keeper is to do something else, or a list must show whether a pod is gone. What is next is decided again.
    Overtaken,
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
    orders: Orders,
    /// When the list of the pods was begun,
    listed: Instant,
    /// and when the wave was.
    began: Instant,
    /// One until the first success if the wave before was hindered.
    width: Semaphore,
    sent: AtomicUsize,
    is_over: AtomicBool,
}

impl Wave {
    /// Deletes these pods.
    pub(super) async fn run(
        context: &Context,
        policy: &Policy,
        pods: Vec<Arc<Pod>>,
        confirmed: Confirmed,
        rollout: &mut Rollout,
        duty: &mut Duty,
    ) -> Self {
        let most = share_of_wave(context.client.max_deletions());
        let front = Wavefront {
            client: &context.client,
            shared: &context.shared,
            policy,
            orders: duty.orders(confirmed),
            listed: rollout.listed_at(),
            began: timer_now(),
            width: Semaphore::new(if rollout.attempts().is_hindered() { 1 } else { most }),
            sent: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let rows: Vec<Vec<Arc<Pod>>> = match policy.deletion_policy {
            DeletionPolicy::Delete => pods.into_iter().map(|pod| vec![pod]).collect(),
            DeletionPolicy::Evict => by_owner(pods),
        };
        // Of more none would be on its way, and each takes room.
        let mut rows = pin!(stream::iter(rows).map(|row| front.row(row)).buffer_unordered(most));
        let mut wave = Self::default();
        let mut long = pin!(sleep(AWAKE_FOR));
        loop {
            let row = tokio::select! {
                biased;
                row = rows.next() => row,
                () = &mut long, if duty.is_awake() => {
                    duty.doze();
                    continue;
                }
            };
            let Some(row) = row else { break };
            for (pod, deletion) in row {
                wave.note(context, &front, rollout, &pod, deletion);
            }
        }
        if front.orders.have_changed() {
            wave.end = End::Overtaken;
        } else if wave.end == End::Complete && front.has_lasted_long() {
            wave.end = End::OutOfTime;
        }
        wave
    }

    /// Returns whether nothing but a PodDisruptionBudget was in the way that lets one pod go after the other, as it should: one has gone, or
    /// some are on their way.
    pub(super) fn is_expected(&self, is_moving: bool) -> bool {
        let is_blocked = self.refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Blocked(_)));
        is_blocked && (self.deleted > 0 || is_moving)
    }

    /// Takes note of what became of a pod.
    fn note(&mut self, context: &Context, front: &Wavefront<'_>, rollout: &mut Rollout, pod: &Pod, deletion: Deletion) {
        let error = match deletion {
            Deletion::Done { by, here } => {
                if here {
                    info!(
                        namespace = context.client.namespace(),
                        monitor = &*context.name,
                        pod = &*pod.name,
                        uid = pod.uid.as_str(),
                        "pod deleted"
                    );
                    context.tally.pod_removed(front.policy.deletion_policy.as_str());
                    if let Some(read_at) = rollout.first_deletion() {
                        context.tally.first_deletion(context.client.server_now().since(read_at));
                    }
                }
                if here && self.deleted == 0 && rollout.attempts().is_hindered() {
                    front.width.add_permits(share_of_wave(front.client.max_deletions()));
                }
                rollout.deleted(&pod.uid, by, here);
                // What others are doing may fail yet.
                self.deleted += usize::from(here);
                return;
            }
            Deletion::SaidGone(error) if rollout.attempts().believe_gone(pod, front.is_about_version(pod, &error)) => {
                debug!(namespace = context.client.namespace(), monitor = &*context.name, pod = &*pod.name, %error, "pod said to be gone");
                self.end = End::Overtaken;
                return;
            }
            // A list has shown that it is not.
            Deletion::SaidGone(Error { request, cause }) => {
                let cause = Cause::Refused(format!("{cause} (and the pod is there)"));
                Error { request, cause }
            }
            Deletion::Failed(error) => error,
        };
        if matches!(error.cause, Cause::Blocked(_)) {
            context.tally.eviction_refused();
        }
        debug!(namespace = context.client.namespace(), monitor = &*context.name, pod = &*pod.name, %error, "pod not deleted");
        rollout.attempts().not_deleted(&pod.uid, &error.cause);
        self.refusals.push(discriminant(&error.cause));
        let alike = self.refusals.iter().filter(|kind| **kind == discriminant(&error.cause)).count();
        let ends = match error.cause {
            Cause::Busy(_) | Cause::Forbidden(_) => true,
            // One owner's budget does not stop the others.
            Cause::Blocked(_) => false,
            _ => alike >= MOST_REFUSALS,
        };
        if ends {
            front.is_over.store(true, Ordering::Relaxed);
        }
        // Of several, the one that asks for the longest patience; else it is not left to chance which one is reported.
        let rank = |error: &Error| (error.cause.delay(Duration::ZERO), Reverse(error.cause.to_string()));
        if self.refusal.as_ref().is_none_or(|before| rank(before) <= rank(&error)) {
            self.refusal = Some(error);
        }
    }
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
        if let Some(by) = self.shared.deletions.since(&pod.uid, self.listed) {
            return Some(Deletion::Done { by, here: false });
        }
        if !self.may_send() {
            return None;
        }
        let usual = grace.map_or(USUAL_GRACE, |seconds| Duration::from_secs(seconds.into()));
        let by = self.client.server_now().plus(usual);
        // From here on others need not ask for it. If it is not deleted, their next list shows it.
        let deletion = self.shared.deletions.add(&pod.uid, by);
        let result = match self.policy.deletion_policy {
            DeletionPolicy::Delete => self.client.delete(permit, &pod.name, only, grace).await,
            DeletionPolicy::Evict => self.client.evict(permit, &pod.name, only, grace).await,
        };
        let Err(error) = result else { return Some(Deletion::Done { by, here: true }) };
        self.shared.deletions.remove(&pod.uid, deletion);
        Some(match error.cause {
            Cause::NotFound(_) | Cause::Conflict(_) => Deletion::SaidGone(error),
            _ => Deletion::Failed(error),
        })
    }

    /// Returns whether deleting this pod uses no budget because the pod is not ready. The DELETE then names the pod's resourceVersion, so that
    /// it fails if the pod has become ready.
    fn is_for_nothing(&self, pod: &Pod) -> bool {
        self.policy.max_unavailable.is_some() && pod.ready_since.is_none()
    }

    /// Whether this answer may be about nothing but the version of the pod.
    fn is_about_version(&self, pod: &Pod, error: &Error) -> bool {
        self.is_for_nothing(pod) && matches!(error.cause, Cause::Conflict(_))
    }

    /// Whether the wave goes on.
    fn may_send(&self) -> bool {
        let stands = self.orders.stand(self.sent.load(Ordering::Relaxed) == 0);
        let goes_on = stands && !self.is_over.load(Ordering::Relaxed) && !self.has_lasted_long();
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
