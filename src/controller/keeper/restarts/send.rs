//! Sends a wave of a restart: deletes or evicts pods, as many at a time as the client allows.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info};

use crate::controller::clock::timer_now;
use crate::controller::keeper::context::Context;
use crate::controller::keeper::memory::Confirmed;
use crate::controller::keeper::step::Step;
use crate::controller::latest::Latest;
use crate::controller::limits::share_of_wave;
use crate::kube::client::{Permit, Preconditions};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Owner;
use crate::monitor::pod::Pod;
use crate::monitor::restart::wave::{Attempt, Reply, Wave};
use crate::monitor::spec::{DeletionPolicy, Policy};
use crate::monitor::surge;

/// The default of `terminationGracePeriodSeconds`, assumed for a pod until a list or a watch shows its deletion.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// A wave that takes longer releases the slot of its keeper.
const RELEASES_SLOT_AFTER: Duration = Duration::from_secs(1);

/// No eviction is sent later than this after the wave began: each may take more than 10 s, and other keepers may wait
/// for a turn.
const MAX_EVICTION_TIME: Duration = Duration::from_secs(10);

/// What the deletions of a wave check before they are sent.
struct Wavefront<'a> {
    context: &'a Context,
    policy: &'a Policy,
    /// The number of the restart.
    restart: u64,
    /// The decision is stale once the keeper has something newer to handle.
    latest: watch::Receiver<Latest>,
    confirmed: Confirmed,
    /// When the list of the pods began.
    listed: Instant,
    began: Instant,
    sent: AtomicUsize,
    is_over: AtomicBool,
}

/// Sends the deletions of a wave, whose pods were listed at this time. Passes each answer to `hear`, which returns
/// whether the wave goes on. Returns false if the wave was cut short: the keeper has something newer to handle, or the
/// wave took too long for the keepers that wait.
pub(super) async fn send(
    step: &mut Step<'_>,
    wave: Wave,
    (restart, listed): (u64, Instant),
    confirmed: Confirmed,
    mut hear: impl FnMut(&Pod, Reply) -> bool,
) -> bool {
    let Step { context, policy, scheduling, held, .. } = step;
    let front = Wavefront {
        context,
        policy,
        restart,
        latest: scheduling.receiver(),
        confirmed,
        listed,
        began: timer_now(),
        sent: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    };
    let width = share_of_wave(context.client.max_deletions()).min(wave.width);
    let (mut long, mut is_unclear) = (pin!(sleep(RELEASES_SLOT_AFTER)), false);
    for rows in wave.rows {
        if is_unclear {
            break;
        }
        let mut rows = pin!(stream::iter(rows).map(|row| front.row(row)).buffer_unordered(width));
        loop {
            let row = tokio::select! {
                biased;
                row = rows.next() => row,
                () = &mut long, if held.slot.is_some() => {
                    held.slot = None;
                    continue;
                }
            };
            let Some(row) = row else { break };
            for (attempt, answer) in row {
                front.report(&attempt.pod, &answer);
                // Nobody knows whether the pod is to go.
                is_unclear |= matches!(&answer, Reply::Failed(error) if !error.cause.is_refusal());
                if !hear(&attempt.pod, answer) {
                    front.is_over.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    !front.latest.has_changed().unwrap_or(false) && !front.has_lasted_long()
}

impl Wavefront<'_> {
    /// Deletes pods, or hands them over, one after the other, unless the wave is over once the permits are free.
    async fn row(&self, row: Vec<Attempt>) -> Vec<(Attempt, Reply)> {
        let mut results = Vec::with_capacity(row.len());
        for attempt in row {
            let answer = match self.context.client.deletion_permit().await {
                Err(error) => Reply::Failed(error),
                Ok(_) if !self.may_send() => break,
                Ok(permit) => match &attempt.to {
                    None => self.delete(permit, &attempt.pod).await,
                    Some(to) => self.hand_over(&permit, &attempt.pod, to).await,
                },
            };
            let ends_row = attempt.ends_row(&answer);
            results.push((attempt, answer));
            if ends_row {
                break;
            }
        }
        results
    }

    /// Deletes a pod, unless another keeper has.
    async fn delete(&self, permit: Permit, pod: &Pod) -> Reply {
        let (Context { client, shared, .. }, policy) = (self.context, self.policy);
        let grace = policy.grace_period_seconds.map(NonZeroU32::get);
        // Then it fails if the pod has become ready meanwhile, and would use the budget, or has got a label by which it
        // goes last.
        let uses_no_budget = policy.max_unavailable.is_some() && !pod.may_serve();
        let names_version = uses_no_budget || policy.restart_last.is_some();
        let only = Preconditions { uid: &pod.uid, resource_version: names_version.then_some(&pod.version) };
        if let Some(by) = shared.deletions.since(&pod.uid, self.listed) {
            return Reply::Deleted { by, here: false };
        }
        let usual = grace.map_or(DEFAULT_GRACE, |seconds| Duration::from_secs(seconds.into()));
        let by = client.server_now().plus(usual);
        // From here on other keepers do not delete this pod. If the deletion fails, their next list shows the pod.
        let deletion = shared.deletions.add(&pod.uid, by);
        let evicts = policy.deletion_policy == DeletionPolicy::Evict;
        let result = client.remove(permit, &pod.name, only, grace, evicts).await;
        let Err(error) = result else { return Reply::Deleted { by, here: true } };
        shared.deletions.remove(deletion);
        failure(error, names_version)
    }

    /// Hands a pod over to a Deployment.
    async fn hand_over(&self, permit: &Permit, pod: &Pod, to: &Owner) -> Reply {
        let Context { client, name, uid, .. } = self.context;
        let by = format!("{name}/{}/{}/{}", uid.as_str(), self.restart, client.server_now());
        let patch = surge::hand_over(pod, to, &by);
        match client.patch_pod(permit, &pod.name, &patch).await {
            Ok(pod) => Reply::HandedOver(pod),
            Err(error) => failure(error, true),
        }
    }

    fn report(&self, pod: &Pod, answer: &Reply) {
        let Context { tally, .. } = self.context;
        match answer {
            Reply::Deleted { here: true, .. } => {
                info!(pod = &*pod.name, uid = pod.uid.as_str(), "pod deleted");
                tally.pods_removed(self.policy.deletion_policy.into(), 1);
            }
            Reply::HandedOver(_) => info!(pod = &*pod.name, uid = pod.uid.as_str(), "pod handed over"),
            // Another keeper has deleted it, and has said so.
            Reply::Deleted { here: false, .. } => {}
            Reply::ReportedGone { error, .. } => debug!(pod = &*pod.name, %error, "pod reported gone or changed"),
            Reply::Failed(error) => {
                if matches!(error.cause, Cause::Blocked(_)) {
                    tally.eviction_refused();
                }
                debug!(pod = &*pod.name, %error, "pod not deleted");
            }
        }
    }

    /// Returns whether the wave may send another request, and counts it. A doorbell does not stop the first one: otherwise a
    /// ConfigMap that changes all the time would block every restart.
    fn may_send(&self) -> bool {
        let Latest { is_stopped, generation, .. } = *self.latest.borrow();
        let is_first = self.sent.load(Ordering::Relaxed) == 0;
        let is_allowed = !is_stopped
            && match self.latest.has_changed() {
                Ok(is_stale) => !is_stale || is_first && generation == self.confirmed.generation(),
                Err(_) => false,
            };
        let goes_on = is_allowed && !self.is_over.load(Ordering::Relaxed) && !self.has_lasted_long();
        self.sent.fetch_add(usize::from(goes_on), Ordering::Relaxed);
        goes_on
    }

    fn has_lasted_long(&self) -> bool {
        self.policy.deletion_policy == DeletionPolicy::Evict
            && timer_now().saturating_duration_since(self.began) >= MAX_EVICTION_TIME
    }
}

fn failure(error: Error, names_version: bool) -> Reply {
    match error.cause {
        Cause::NotFound(_) => Reply::ReportedGone { about_version: false, error },
        Cause::Conflict(_) => Reply::ReportedGone { about_version: names_version, error },
        _ => Reply::Failed(error),
    }
}
