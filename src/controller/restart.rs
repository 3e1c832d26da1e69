//! Carries out a restart: the list, the intent, the deletions, the wait, the record.
//!
//! What may be deleted is decided in `monitor::rollout`; here it is only done, and only to pods that were listed in the same
//! pass, after the intent is in the status.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tracing::{debug, info, warn};

use super::keeper::{Keeper, Wake};
use super::pods::{Rollout, selected};
use super::timer_now;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{Owner, Pod, Workload};
use crate::kube::{PODS, Resource, ResourceVersion, Uid};
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::rollout::{Move, Plan, Standing};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Outcome, Restart, Status};

/// While a watch tells of pods, so often a pass is made for what it cannot tell: what the owners want.
const OWNERS_EVERY: Duration = Duration::from_secs(10);
/// What a pod's grace period is unless it says otherwise, until a list or a watch tells.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// The owners whose wish can be asked for.
const WORKLOADS: [Resource; 3] = [
    Resource { api_version: "apps/v1", kind: "ReplicaSet", plural: "replicasets" },
    Resource { api_version: "apps/v1", kind: "StatefulSet", plural: "statefulsets" },
    Resource { api_version: "apps/v1", kind: "DaemonSet", plural: "daemonsets" },
];

impl Keeper {
    /// Begins a pending restart: lists the pods, writes down what is about to happen, and deletes.
    pub(super) async fn begin(&mut self, policy: &Policy, mut status: Status, restart: Restart) -> Result<Wake, Error> {
        // After the GET of the ConfigMap: a list from before could miss a pod that read the old content meanwhile.
        let pods = match self.client.list::<Pod>(&selected(policy), None).await {
            Ok(pods) => pods,
            Err(error) => {
                // What was read must not be forgotten, even if it takes long until something can be done about it.
                if !self.remembers(&restart) {
                    let situation = Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() };
                    self.settle(status, &situation).await?;
                }
                return Err(error);
            }
        };
        let plan = Plan::new(policy, &restart, &pods.items, self.restarts.own_pod.as_ref());
        let told = report::started(&policy.source(), plan.len(), plan.skipped());
        if plan.is_empty() {
            status.config_hash = Some(restart.config_hash);
            status.restart = None;
            self.settle(status, &Situation::UpToDate).await?;
            self.publish(&told).await;
            info!(monitor = self.name(), source = policy.source(), "no pod to restart");
            return Ok(Wake::At(None));
        }
        let begun = Begun {
            started_at: pods.at,
            pods_resource_version: pods.resource_version.clone(),
            pod_selector: policy.selector.to_query(),
            pods: plan.len(),
            remaining: plan.len(),
            last_progress_at: pods.at,
        };
        let restart = Restart { begun: Some(begun.clone()), ..restart };
        status.restart = Some(restart.clone());
        let progress = Progress { pods: plan.len(), remaining: plan.len(), lacking: 0, stuck: Vec::new() };
        let status = self.settle(status, &Situation::RestartInProgress(progress)).await?;
        let mut rollout = self.restarts.rollout(policy, plan, pods.resource_version.clone());
        rollout.see(pods.items);
        self.log(&told);
        let wake = self.pass(policy, status, restart, begun, rollout, pods.resource_version).await;
        // The pods come first.
        self.make_events(&told).await;
        wake
    }

    /// Goes on with a restart that has begun, maybe by a process before this one.
    pub(super) async fn resume(
        &mut self,
        policy: &Policy,
        status: Status,
        restart: Restart,
        begun: Begun,
    ) -> Result<Wake, Error> {
        let pods = self.client.list::<Pod>(&selected(policy), None).await?;
        let mut rollout = match self.rollout.take().filter(|rollout| rollout.version == begun.pods_resource_version) {
            Some(rollout) => rollout,
            None => {
                let plan = self.recall(policy, &restart, &begun).await?;
                self.restarts.rollout(policy, plan, begun.pods_resource_version.clone())
            }
        };
        if rollout.policy != *policy {
            // The watch is on the selector of before.
            rollout.changes = None;
            rollout.policy = policy.clone();
        }
        rollout.see(pods.items);
        self.pass(policy, status, restart, begun, rollout, pods.resource_version).await
    }

    /// Makes the plan of a restart again from the list that it was made of. Once the API server has forgotten that list,
    /// after minutes, the times of creation decide.
    async fn recall(&mut self, policy: &Policy, restart: &Restart, begun: &Begun) -> Result<Plan, Error> {
        let selection = Selection { labels: Some(begun.pod_selector.clone()), ..selected(policy) };
        let pods = match self.client.list::<Pod>(&selection, Some(&begun.pods_resource_version)).await {
            Err(error) if error.cause == Cause::Expired => self.client.list::<Pod>(&selection, None).await?,
            list => list?,
        };
        info!(monitor = self.name(), pods = begun.pods, "restart resumed");
        Ok(Plan::new(policy, restart, &pods.items, self.restarts.own_pod.as_ref()))
    }

    /// One pass over pods that were just listed, at `listed`. However it goes, the plan is kept until the restart is over: made
    /// again later, it might hold pods that this restart has brought.
    async fn pass(
        &mut self,
        policy: &Policy,
        status: Status,
        restart: Restart,
        begun: Begun,
        mut rollout: Rollout,
        listed: ResourceVersion,
    ) -> Result<Wake, Error> {
        let wake = self.advance(policy, status, restart, begun, &mut rollout, listed).await;
        if self.is_restarting() {
            self.rollout = Some(rollout);
        }
        wake
    }

    /// Deletes what may be deleted, or sees that it is over, or waits.
    async fn advance(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        mut begun: Begun,
        rollout: &mut Rollout,
        listed: ResourceVersion,
    ) -> Result<Wake, Error> {
        rollout.refused = 0;
        rollout.wanted.clear();
        let mut standing = rollout.standing(self.client.server_now());
        if standing.remaining == 0 && standing.lacking > 0 {
            self.ask_owners(policy, rollout).await?;
            standing = rollout.standing(self.client.server_now());
        }
        if standing.next == Move::Done {
            self.unhindered(rollout);
            return self.complete(policy, status, restart, &begun, &standing).await;
        }
        let refusal = match &standing.next {
            Move::Remove(uids) => self.remove(policy, rollout, uids).await?,
            Move::Wait(_) | Move::Done => None,
        };

        let now = self.client.server_now();
        // A pod that comes and goes is no progress.
        let left = standing.remaining + standing.lacking;
        if standing.remaining < begun.remaining || rollout.least_left.is_some_and(|least| left < least) {
            begun.last_progress_at = now;
            rollout.backoff.reset();
        }
        begun.remaining = standing.remaining;
        rollout.least_left = Some(rollout.least_left.map_or(left, |least| least.min(left)));
        let taken_up = *rollout.taken_up.get_or_insert(now);
        let deadline = begun.last_progress_at.max(taken_up).plus(policy.progress_deadline);
        let stalled = now >= deadline;
        let progress = Progress::of(&begun, &standing);
        let text = refusal.as_ref().map(ToString::to_string).unwrap_or_default();
        let situation = match &refusal {
            _ if stalled => Situation::ProgressDeadlineExceeded(progress),
            Some(Error { cause: Cause::Forbidden(_), .. }) => Situation::Forbidden(&text),
            Some(Error { cause: Cause::Refused(_) | Cause::Invalid(_), .. }) => Situation::DeletionRefused(&text),
            _ => Situation::RestartInProgress(progress),
        };
        status.restart = Some(Restart { begun: Some(begun), ..restart });

        if stalled {
            rollout.changes = None;
        } else {
            rollout.listen(&self.client, &self.restarts, policy, listed);
        }
        let mut delay = match &refusal {
            None if rollout.changes.is_some() => OWNERS_EVERY,
            None => rollout.backoff.after_failure(timer_now()),
            Some(error) => error.cause.delay(rollout.backoff.after_failure(timer_now())),
        };
        let stuck = match standing.next {
            Move::Wait(Some(until)) => Some(until),
            _ => None,
        };
        for until in stuck.into_iter().chain((!stalled).then_some(deadline)) {
            delay = delay.min(until.since(now).max(Duration::from_secs(1)));
        }
        self.settle(status, &situation).await?;
        Ok(Wake::At(Some(timer_now() + delay)))
    }

    /// Deletes these pods, as many at a time as the client lets through. Gives back a failure if there was one.
    async fn remove(&mut self, policy: &Policy, rollout: &mut Rollout, uids: &[Uid]) -> Result<Option<Error>, Error> {
        let pods: Vec<Pod> = uids.iter().filter_map(|uid| rollout.pods.get(uid)).cloned().collect();
        let grace = policy.grace_period_seconds;
        let client = &self.client.clone();
        let deletions = pods.into_iter().map(|pod| async move {
            let result = client.delete(PODS, &pod.name, &pod.uid, grace).await;
            (pod, result)
        });
        let mut deletions: FuturesUnordered<_> = deletions.collect();
        let mut failure = None;
        while let Some((pod, result)) = deletions.next().await {
            match result {
                Ok(()) => {
                    info!(monitor = self.name(), pod = pod.name, uid = pod.uid.as_str(), "pod deleted");
                    let grace = grace.map_or(USUAL_GRACE, |seconds| Duration::from_secs(seconds.into()));
                    rollout.ending(&pod.uid, self.client.server_now().plus(grace));
                }
                // The name is free, or another pod's: this one is gone.
                Err(Error { cause: Cause::NotFound | Cause::Conflict(_), .. }) => {
                    debug!(monitor = self.name(), pod = pod.name, "pod gone already");
                    rollout.pods.remove(&pod.uid);
                }
                Err(error) => {
                    debug!(monitor = self.name(), pod = pod.name, %error, "pod not deleted");
                    rollout.refused += 1;
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if error.cause == Cause::Stopped => Err(error),
            Some(error) => {
                if rollout.faults.note(&error.cause, timer_now()).1 {
                    warn!(monitor = self.name(), %error, pods = rollout.refused, "pods not deleted");
                }
                Ok(Some(error))
            }
            None => {
                self.unhindered(rollout);
                Ok(None)
            }
        }
    }

    /// Tells, once, why the pods of the restart cannot be watched. They are listed now and then instead. If nobody answers at all,
    /// that list says so.
    pub(super) fn not_watched(&mut self, error: &Error) {
        let Some(rollout) = self.rollout.as_mut().filter(|_| !matches!(error.cause, Cause::Unreachable(_))) else {
            return;
        };
        if rollout.watch_faults.note(&error.cause, timer_now()).1 {
            warn!(monitor = self.name(), %error, "pods not watched; listing them now and then");
        }
    }

    fn unhindered(&self, rollout: &mut Rollout) {
        if rollout.faults.over() {
            info!(monitor = self.name(), "restart not hindered any more");
        }
    }

    /// Asks the owners of the pods how many they want. Who cannot be asked wants as many as there were.
    async fn ask_owners(&mut self, policy: &Policy, rollout: &mut Rollout) -> Result<(), Error> {
        let mut failed = false;
        for owner in rollout.plan.owners() {
            let Some(resource) = resource_of(owner) else {
                continue;
            };
            let wanted = match self.client.get::<Workload>(resource, &owner.name).await {
                Ok(answer) if answer.value.uid != owner.uid => 0,
                Ok(answer) if policy.selector.matches(&answer.value.pod_labels) => answer.value.replicas as usize,
                // Its new pods are not selected, so they are not waited for.
                Ok(_) => 0,
                Err(error) if error.cause == Cause::NotFound => 0,
                Err(error) if error.cause == Cause::Stopped => return Err(error),
                Err(error) => {
                    failed = true;
                    if rollout.faults.note(&error.cause, timer_now()).1 {
                        warn!(monitor = self.name(), %error, "owner not asked; going by the number of pods at the start");
                    }
                    continue;
                }
            };
            rollout.wanted.insert(owner.clone(), wanted);
        }
        if !failed {
            self.unhindered(rollout);
        }
        Ok(())
    }

    /// Records that a restart is over.
    async fn complete(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        begun: &Begun,
        standing: &Standing,
    ) -> Result<Wake, Error> {
        let now = self.client.server_now();
        status.remember(restart.config_hash.clone(), begun, now, Outcome::Completed);
        status.config_hash = Some(restart.config_hash);
        status.restart = None;
        self.settle(status, &Situation::UpToDate).await?;
        self.publish(&[report::completed(&policy.source(), begun, &standing.stuck, now)]).await;
        Ok(Wake::At(None))
    }
}

fn resource_of(owner: &Owner) -> Option<Resource> {
    WORKLOADS.into_iter().find(|resource| resource.api_version == owner.api_version && resource.kind == owner.kind)
}
