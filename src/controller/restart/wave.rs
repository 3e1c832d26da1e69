//! One wave of a restart: deletes or evicts pods, as many at a time as the client allows.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::time::sleep;
use tracing::{debug, info};

use super::rollout::Rollout;
use crate::controller::clock::timer_now;
use crate::controller::context::Context;
use crate::controller::limits::share_of_wave;
use crate::controller::memory::Confirmed;
use crate::controller::scheduling::{Scheduling, StopCheck};
use crate::kube::ServerTime;
use crate::kube::client::Preconditions;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::{Owner, Pod};
use crate::monitor::spec::{DeletionPolicy, Policy};

/// The default of `terminationGracePeriodSeconds`, assumed for a pod until a list or a watch shows its deletion.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// A wave ends when this many pods were refused for the same kind of reason: the others would be refused as well.
const MAX_REFUSALS: usize = 3;

/// A wave that takes longer releases the slot of its keeper.
const RELEASES_SLOT_AFTER: Duration = Duration::from_secs(1);

/// No eviction is sent later than this after the wave began: each may take more than 10 s, and other keepers may wait
/// for a turn.
const MAX_EVICTION_TIME: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Wave {
    pub(super) deleted: usize,
    /// Why a pod was not deleted. If there are several reasons, one of them.
    pub(super) refusal: Option<Error>,
    /// Whether the next step follows at once: the keeper has something newer to handle, a list must show whether a pod
    /// is gone, or the wave took too long for the keepers that wait.
    pub(super) is_cut_short: bool,
    refusals: Vec<Discriminant<Cause>>,
}

enum Deletion {
    /// The pod is terminating. `here`: this wave has deleted it, not another ConfigMonitor's.
    Done {
        by: ServerTime,
        here: bool,
    },
    /// The API server says that the pod is gone, replaced or changed. The next list shows whether that is so.
    ReportedGone(Error),
    Failed(Error),
}

/// What the deletions of a wave check before they are sent.
struct Wavefront<'a> {
    context: &'a Context,
    policy: &'a Policy,
    stop_check: StopCheck,
    /// When the list of the pods began.
    listed: Instant,
    began: Instant,
    sent: AtomicUsize,
    is_over: AtomicBool,
}

impl Wave {
    pub(super) async fn run(
        context: &Context,
        policy: &Policy,
        pods: Vec<Arc<Pod>>,
        confirmed: Confirmed,
        rollout: &mut Rollout,
        scheduling: &mut Scheduling,
    ) -> Self {
        let front = Wavefront {
            context,
            policy,
            stop_check: scheduling.stop_check(confirmed),
            listed: rollout.listed_at,
            began: timer_now(),
            sent: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let rows: Vec<Vec<Arc<Pod>>> = match policy.deletion_policy {
            DeletionPolicy::Delete => pods.into_iter().map(|pod| vec![pod]).collect(),
            DeletionPolicy::Evict => by_owner(pods),
        };
        // After a refusal, such as by a webhook that denies all deletions, a wave risks no more requests than end it.
        let share = share_of_wave(context.client.max_deletions());
        let width = if rollout.is_refused() { share.min(MAX_REFUSALS) } else { share };
        let mut rows = pin!(stream::iter(rows).map(|row| front.row(row)).buffer_unordered(width));
        let mut wave = Self::default();
        let mut long = pin!(sleep(RELEASES_SLOT_AFTER));
        loop {
            let row = tokio::select! {
                biased;
                row = rows.next() => row,
                () = &mut long, if scheduling.slot.is_some() => {
                    scheduling.slot = None;
                    continue;
                }
            };
            let Some(row) = row else { break };
            for (pod, deletion) in row {
                wave.record(&front, rollout, &pod, deletion);
            }
        }
        wave.is_cut_short |= front.stop_check.is_stale() || front.has_lasted_long();
        wave
    }

    /// Returns whether the only refusals came from a PodDisruptionBudget that lets pods go one after the other, as
    /// intended: one has gone, or some are terminating.
    pub(super) fn is_expected(&self, is_moving: bool) -> bool {
        let is_blocked = self.refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Blocked(_)));
        is_blocked && (self.deleted > 0 || is_moving)
    }

    fn record(&mut self, front: &Wavefront<'_>, rollout: &mut Rollout, pod: &Pod, deletion: Deletion) {
        let context = front.context;
        let error = match deletion {
            Deletion::Done { by, here } => {
                if here {
                    info!(pod = &*pod.name, uid = pod.uid.as_str(), "pod deleted");
                    context.tally.pod_removed(front.policy.deletion_policy.into());
                    if let Some(read_at) = rollout.first_deletion() {
                        context.tally.first_deletion(context.client.server_now().since(read_at));
                    }
                }
                rollout.deleted(&pod.uid, by, here);
                // A deletion that another keeper has in flight may still fail.
                self.deleted += usize::from(here);
                return;
            }
            Deletion::ReportedGone(error)
                if rollout.attempts.believe_gone(pod, front.is_about_version(pod, &error)) =>
            {
                debug!(pod = &*pod.name, %error, "pod reported gone or changed; listing the pods again");
                self.is_cut_short = true;
                return;
            }
            // A list has shown that the pod exists.
            Deletion::ReportedGone(Error { action, cause }) => {
                let cause = Cause::Refused(format!("{cause} (but the pod still exists)"));
                Error { action, cause }
            }
            Deletion::Failed(error) => error,
        };
        if matches!(error.cause, Cause::Blocked(_)) {
            context.tally.eviction_refused();
        }
        debug!(pod = &*pod.name, %error, "pod not deleted");
        rollout.attempts.not_deleted(&pod.uid, &error.cause);
        self.refusals.push(discriminant(&error.cause));
        let alike = self.refusals.iter().filter(|kind| **kind == discriminant(&error.cause)).count();
        let ends = match error.cause {
            Cause::Busy(_) | Cause::Forbidden(_) => true,
            // One owner's PodDisruptionBudget does not stop the others.
            Cause::Blocked(_) => false,
            _ => alike >= MAX_REFUSALS,
        };
        if ends {
            front.is_over.store(true, Ordering::Relaxed);
        }
        // Of several refusals, the one with the longest delay. The text breaks ties, so that the report does not depend
        // on chance.
        let rank = |error: &Error| (error.cause.delay(Duration::ZERO), Reverse(error.cause.to_string()));
        if self.refusal.as_ref().is_none_or(|before| rank(before) <= rank(&error)) {
            self.refusal = Some(error);
        }
    }
}

impl Wavefront<'_> {
    /// Deletes pods one after the other. Stops after a ready pod was refused, or after a failure that is no refusal:
    /// the next pass begins with the remaining pods.
    async fn row(&self, row: Vec<Arc<Pod>>) -> Vec<(Arc<Pod>, Deletion)> {
        let mut results = Vec::with_capacity(row.len());
        for pod in row {
            let Some(deletion) = self.delete(&pod).await else { break };
            let stop = match &deletion {
                Deletion::Done { .. } | Deletion::ReportedGone(_) => false,
                Deletion::Failed(error) => pod.ready_since.is_some() || !error.cause.is_refusal(),
            };
            results.push((pod, deletion));
            if stop {
                break;
            }
        }
        results
    }

    /// Deletes a pod, unless the wave is over once the permits are free.
    async fn delete(&self, pod: &Pod) -> Option<Deletion> {
        let Context { client, shared, .. } = self.context;
        let grace = self.policy.grace_period_seconds.map(NonZeroU32::get);
        let version = Some(&pod.version).filter(|_| self.uses_no_budget(pod));
        let only = Preconditions { uid: &pod.uid, resource_version: version };
        let permit = match client.deletion_permit().await {
            Ok(permit) => permit,
            Err(error) => return Some(Deletion::Failed(error)),
        };
        if let Some(by) = shared.deletions.since(&pod.uid, self.listed) {
            return Some(Deletion::Done { by, here: false });
        }
        if !self.may_send() {
            return None;
        }
        let usual = grace.map_or(DEFAULT_GRACE, |seconds| Duration::from_secs(seconds.into()));
        let by = client.server_now().plus(usual);
        // From here on other keepers do not delete this pod. If the deletion fails, their next list shows the pod.
        let deletion = shared.deletions.add(&pod.uid, by);
        let result = match self.policy.deletion_policy {
            DeletionPolicy::Delete => client.delete(permit, &pod.name, only, grace).await,
            DeletionPolicy::Evict => client.evict(permit, &pod.name, only, grace).await,
        };
        let Err(error) = result else { return Some(Deletion::Done { by, here: true }) };
        shared.deletions.remove(deletion);
        Some(match error.cause {
            Cause::NotFound(_) | Cause::Conflict(_) => Deletion::ReportedGone(error),
            _ => Deletion::Failed(error),
        })
    }

    /// Returns whether deleting this pod uses no budget because the pod is not ready. The DELETE then names the pod's
    /// resourceVersion, so that it fails if the pod has become ready.
    fn uses_no_budget(&self, pod: &Pod) -> bool {
        self.policy.max_unavailable.is_some() && pod.ready_since.is_none()
    }

    /// Returns whether this answer may only mean that the pod's version has changed.
    fn is_about_version(&self, pod: &Pod, error: &Error) -> bool {
        self.uses_no_budget(pod) && matches!(error.cause, Cause::Conflict(_))
    }

    /// Returns whether the wave may send another request, and counts it.
    fn may_send(&self) -> bool {
        let is_allowed = self.stop_check.allows_request(self.sent.load(Ordering::Relaxed) == 0);
        let goes_on = is_allowed && !self.is_over.load(Ordering::Relaxed) && !self.has_lasted_long();
        self.sent.fetch_add(usize::from(goes_on), Ordering::Relaxed);
        goes_on
    }

    fn has_lasted_long(&self) -> bool {
        self.policy.deletion_policy == DeletionPolicy::Evict
            && timer_now().saturating_duration_since(self.began) >= MAX_EVICTION_TIME
    }
}

/// Groups pods by owner, in their order. A PodDisruptionBudget is usually about one owner's pods, and concurrent
/// evictions under one PodDisruptionBudget fail.
fn by_owner(pods: Vec<Arc<Pod>>) -> Vec<Vec<Arc<Pod>>> {
    let mut rows: BTreeMap<Option<Arc<Owner>>, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        rows.entry(pod.controller.clone()).or_default().push(pod);
    }
    rows.into_values().collect()
}
