//! Carries out a restart: the list, the intent, the deletions, the wait, the record.
//!
//! What may be deleted is decided in `monitor::rollout`; here it is only done, and only to pods that were listed in the same
//! pass, after the intent is in the status.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, info, warn};

use super::keeper::{Keeper, Wake};
use crate::kube::backoff::Backoff;
use crate::kube::client::Client;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{Owner, Pod, Workload};
use crate::kube::watch::{Event, watch_from};
use crate::kube::{PODS, Resource, ResourceVersion, ServerTime, Uid};
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::rollout::{Move, Plan, Standing, Wanted};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Outcome, Restart, Status};

/// At most so many watches on pods are open in the process. A restart beyond that lists now and then.
const POD_WATCHES: usize = 64;
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

/// What all restarts of the process share.
#[derive(Clone)]
pub(super) struct Restarts {
    /// The operator's own pod, which is never deleted.
    own_pod: Option<Uid>,
    watches: Arc<Semaphore>,
}

/// A restart that has begun, as far as this process knows it.
pub(super) struct Rollout {
    /// The list that the plan is made of: the same one in the status means the same restart.
    version: ResourceVersion,
    plan: Plan,
    policy: Policy,
    own_pod: Option<Uid>,
    /// The selected pods as last heard of.
    pods: BTreeMap<Uid, Pod>,
    wanted: Wanted,
    /// Pods whose deletion failed in the last pass. They are tried again in the next one.
    refused: BTreeSet<Uid>,
    changes: Option<Changes>,
    /// When this process took it up. What was held before does not count as standing still.
    taken_up: ServerTime,
    /// As of the last pass.
    lacking: Option<usize>,
    backoff: Backoff,
}

/// An open watch on the selected pods.
struct Changes {
    events: Pin<Box<dyn Stream<Item = Event<Pod>> + Send>>,
    _permit: OwnedSemaphorePermit,
}

impl Restarts {
    pub(super) fn new(own_pod: Option<Uid>) -> Self {
        Self { own_pod, watches: Arc::new(Semaphore::new(POD_WATCHES)) }
    }

    fn rollout(&self, policy: &Policy, plan: Plan, version: ResourceVersion, taken_up: ServerTime) -> Rollout {
        Rollout {
            version,
            plan,
            policy: policy.clone(),
            own_pod: self.own_pod.clone(),
            pods: BTreeMap::new(),
            wanted: Wanted::new(),
            refused: BTreeSet::new(),
            changes: None,
            taken_up,
            lacking: None,
            backoff: Backoff::default(),
        }
    }
}

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
        self.settle(status.clone(), &Situation::RestartInProgress(progress)).await?;
        let mut rollout = self.restarts.rollout(policy, plan, pods.resource_version.clone(), pods.at);
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
                self.restarts.rollout(policy, plan, begun.pods_resource_version.clone(), pods.at)
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

    /// One pass over pods that were just listed, at `listed`: delete what may be deleted, or see that it is over, or wait.
    async fn pass(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        mut begun: Begun,
        mut rollout: Rollout,
        listed: ResourceVersion,
    ) -> Result<Wake, Error> {
        rollout.refused.clear();
        rollout.wanted.clear();
        let mut standing = rollout.standing(self.client.server_now());
        if standing.remaining == 0 && standing.lacking > 0 {
            let owners = rollout.plan.owners().cloned().collect();
            rollout.wanted = self.ask_owners(policy, owners).await?;
            standing = rollout.standing(self.client.server_now());
        }
        if standing.next == Move::Done {
            return self.complete(policy, status, restart, &begun, &standing).await;
        }
        let refusal = match &standing.next {
            Move::Remove(uids) => self.remove(policy, &mut rollout, uids).await?,
            Move::Wait(_) | Move::Done => None,
        };

        let now = self.client.server_now();
        if standing.remaining < begun.remaining || rollout.lacking.is_some_and(|lacking| standing.lacking < lacking) {
            begun.last_progress_at = now;
            rollout.backoff.reset();
        }
        begun.remaining = standing.remaining;
        rollout.lacking = Some(standing.lacking);
        let deadline = begun.last_progress_at.max(rollout.taken_up).plus(policy.progress_deadline);
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
            Some(Error { cause: Cause::Busy(Some(after)), .. }) => {
                rollout.backoff.after_failure(Instant::now()).max(*after)
            }
            _ => rollout.backoff.after_failure(Instant::now()),
        };
        let stuck = match standing.next {
            Move::Wait(Some(until)) => Some(until),
            _ => None,
        };
        for until in stuck.into_iter().chain((!stalled).then_some(deadline)) {
            delay = delay.min(until.since(now).max(Duration::from_secs(1)));
        }
        self.rollout = Some(rollout);
        self.settle(status, &situation).await?;
        Ok(Wake::At(Some(Instant::now() + delay)))
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
        let mut deletions: futures_util::stream::FuturesUnordered<_> = deletions.collect();
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
                    warn!(monitor = self.name(), pod = pod.name, %error, "pod not deleted");
                    rollout.refused.insert(pod.uid);
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if error.cause == Cause::Stopped => Err(error),
            failure => Ok(failure),
        }
    }

    /// Asks the owners of the pods how many they want. Who cannot be asked wants as many as there were.
    async fn ask_owners(&mut self, policy: &Policy, owners: Vec<Owner>) -> Result<Wanted, Error> {
        let mut wanted = Wanted::new();
        for owner in owners {
            let Some(resource) = resource_of(&owner) else {
                continue;
            };
            match self.client.get::<Workload>(resource, &owner.name).await {
                Ok(answer) if answer.value.uid != owner.uid => {
                    wanted.insert(owner, 0);
                }
                Ok(answer) if policy.selector.matches(&answer.value.pod_labels) => {
                    wanted.insert(owner, answer.value.replicas as usize);
                }
                // Its new pods are not selected, so they are not waited for.
                Ok(_) => {
                    wanted.insert(owner, 0);
                }
                Err(error) if error.cause == Cause::NotFound => {
                    wanted.insert(owner, 0);
                }
                Err(error) if matches!(error.cause, Cause::Forbidden(_)) => {
                    debug!(monitor = self.name(), %error, "going by the number at the start");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(wanted)
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

impl Rollout {
    /// Waits until the pods are such that another pass is worth it.
    pub(super) async fn worth_a_pass(&mut self) {
        loop {
            let Some(changes) = &mut self.changes else {
                return std::future::pending().await;
            };
            match changes.events.next().await {
                Some(Event::Applied(Ok(pod))) => {
                    self.pods.insert(pod.uid.clone(), pod);
                }
                Some(Event::Deleted(Ok(pod))) => {
                    self.pods.remove(&pod.uid);
                }
                // Something was missed: the list of the next pass tells.
                Some(_) | None => {
                    self.changes = None;
                    return;
                }
            }
            // A view that is as old as its last event never decides, so neither does the time.
            match self.standing(ServerTime::from_second(0)).next {
                Move::Done => return,
                Move::Remove(uids) if uids.iter().any(|uid| !self.refused.contains(uid)) => return,
                Move::Remove(_) | Move::Wait(_) => {}
            }
        }
    }

    fn standing(&self, now: ServerTime) -> Standing {
        self.plan.standing(&self.policy, self.pods.values(), self.own_pod.as_ref(), &self.wanted, now)
    }

    fn see(&mut self, pods: Vec<Pod>) {
        self.pods = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
    }

    fn ending(&mut self, uid: &Uid, by: ServerTime) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.gone_by.get_or_insert(by);
        }
    }

    /// Opens a watch on the pods, unless there is one or there are too many.
    fn listen(&mut self, client: &Client, restarts: &Restarts, policy: &Policy, from: ResourceVersion) {
        if self.changes.is_some() {
            return;
        }
        if let Ok(permit) = Arc::clone(&restarts.watches).try_acquire_owned() {
            let events = Box::pin(watch_from(client.clone(), selected(policy), from));
            self.changes = Some(Changes { events, _permit: permit });
        }
    }
}

fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), metadata_only: false }
}

fn resource_of(owner: &Owner) -> Option<Resource> {
    WORKLOADS.into_iter().find(|resource| resource.api_version == owner.api_version && resource.kind == owner.kind)
}
