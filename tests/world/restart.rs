//! A restart as a process of the operator carries it out. It mirrors `controller::restart` request by request, and leaves to the pure
//! core whatever is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use configmonitor_operator::kube::objects::Pod;
use configmonitor_operator::kube::{ResourceVersion, ServerTime, Uid};
use configmonitor_operator::monitor::report::{Progress, Situation};
use configmonitor_operator::monitor::rollout::{Move, Plan, Sight, Standing, Wanted, Wish};
use configmonitor_operator::monitor::spec::Policy;
use configmonitor_operator::monitor::status::{Begun, Outcome, Restart, Status};

use crate::api::Failure;
use crate::operator::{BACKOFF, Keeper, Wake};

/// While pods are watched, a pass is made so often for what the watch cannot tell.
const OWNERS_EVERY: Duration = Duration::from_secs(10);

/// The memory of a restart.
pub(crate) struct Rollout {
    version: ResourceVersion,
    plan: Plan,
    pods: BTreeMap<Uid, Pod>,
    seen_at: ServerTime,
    wanted: Wanted,
    refused: BTreeSet<Uid>,
    own_pod: Uid,
    is_confirmed: bool,
    /// The state of the pods in the world when they were listed; none when the keeper would not wake up for them.
    pub(crate) watched: Option<u64>,
}

fn own_pod() -> Uid {
    // The operator's own pod is the fourth that the world begins with.
    "uid-3".into()
}

impl Keeper {
    pub(crate) async fn begin(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
    ) -> Result<Wake, Failure> {
        let query = policy.selector.to_query();
        let (list, watched) = match self.line.ask(|world| Ok((world.list(&query), world.pods_revision))).await {
            Ok(list) => list,
            Err(failure) => {
                if !self.remembers(&restart) {
                    self.settle(status, &Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() }).await?;
                }
                return Err(failure);
            }
        };
        status.give_up_superseded(list.at);
        let restart = Restart { superseded: None, ..restart };
        let plan = Plan::new(policy, &restart, list.at, &list.pods, Some(&own_pod()));
        if plan.is_empty() {
            status.config_hash = Some(restart.config_hash);
            status.restart = None;
            self.settle(status, &Situation::UpToDate).await?;
            return Ok(Wake::At(None));
        }
        let begun = Begun {
            started_at: list.at,
            pods_resource_version: list.version.clone(),
            pod_selector: query,
            pods: plan.len(),
            remaining: plan.len(),
            last_progress_at: list.at,
        };
        let restart = Restart { begun: Some(begun.clone()), ..restart };
        status.restart = Some(Box::new(restart.clone()));
        let status = self.settle(status, &Situation::RestartInProgress(Progress::new(&begun))).await?;
        let mut rollout = Rollout::new(list.version, plan);
        rollout.see(list.pods, list.at, watched);
        rollout.is_confirmed = true;
        self.pass(policy, status, restart, begun, rollout).await
    }

    pub(crate) async fn resume(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        begun: Begun,
    ) -> Result<Wake, Failure> {
        if !self.remembers(&restart) {
            status = self.settle(status, &Situation::RestartInProgress(Progress::new(&begun))).await?;
        }
        let version = begun.pods_resource_version.clone();
        let mut rollout = match self.rollout.take().filter(|rollout| rollout.version == version) {
            Some(rollout) => rollout,
            None => Rollout::new(version, self.recall(policy, &restart, &begun).await?),
        };
        let query = policy.selector.to_query();
        let (list, watched) = match self.line.ask(|world| Ok((world.list(&query), world.pods_revision))).await {
            Ok(list) => list,
            Err(failure) => {
                self.rollout = Some(rollout);
                return Err(failure);
            }
        };
        rollout.see(list.pods, list.at, watched);
        self.pass(policy, status, restart, begun, rollout).await
    }

    fn remembers(&self, restart: &Restart) -> bool {
        self.record.as_ref().is_some_and(|record| record.status.restart.as_deref() == Some(restart))
    }

    async fn recall(&mut self, policy: &Policy, restart: &Restart, begun: &Begun) -> Result<Plan, Failure> {
        let Begun { pod_selector, pods_resource_version, .. } = begun;
        let pods = match self.line.ask(|world| world.list_again(pod_selector, pods_resource_version)).await {
            Err(Failure::Expired) => self.line.ask(|world| Ok(world.list(pod_selector))).await?.pods,
            pods => pods?,
        };
        Ok(Plan::new(policy, restart, begun.started_at, &pods, Some(&own_pod())))
    }

    async fn pass(
        &mut self,
        policy: &Policy,
        status: Status,
        restart: Restart,
        begun: Begun,
        mut rollout: Rollout,
    ) -> Result<Wake, Failure> {
        let wake = self.advance(policy, status, restart, begun, &mut rollout).await;
        if self.record.as_ref().is_none_or(|record| record.status.restart.is_some()) {
            self.rollout = Some(rollout);
        }
        wake
    }

    async fn advance(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        mut begun: Begun,
        rollout: &mut Rollout,
    ) -> Result<Wake, Failure> {
        let mut standing = rollout.standing(policy);
        if standing.next != Move::Done && (policy.max_unavailable.is_some() || standing.remaining == 0) {
            self.ask_owners(policy, rollout).await?;
            standing = rollout.standing(policy);
        }
        let progress = Progress::of(&begun, &standing);
        let Standing { next, remaining, .. } = standing;
        let mut refused = false;
        let mut until = None;
        match &next {
            Move::Done => {
                let now = self.line.world.borrow().second();
                status.remember(restart.config_hash.clone(), &begun, now, Outcome::Completed);
                status.config_hash = Some(restart.config_hash);
                status.restart = None;
                self.settle(status, &Situation::UpToDate).await?;
                return Ok(Wake::At(None));
            }
            Move::Wait(at) => until = *at,
            Move::Remove(uids) => {
                if !self.confirms(rollout).await? {
                    return Ok(Wake::Again);
                }
                rollout.refused.retain(|uid| !uids.contains(uid));
                for pod in uids.iter().filter_map(|uid| rollout.pods.get(uid)) {
                    let for_nothing = policy.max_unavailable.is_some() && pod.ready_since.is_none();
                    let version = Some(&pod.version).filter(|_| for_nothing);
                    match self.line.ask(|world| world.delete(&pod.name, &pod.uid, version)).await {
                        Ok(()) | Err(Failure::NotFound) => {}
                        Err(Failure::Conflict) if !for_nothing => {}
                        Err(failure) => {
                            refused = true;
                            if failure == Failure::Forbidden {
                                rollout.refused.insert(pod.uid.clone());
                            }
                        }
                    }
                }
            }
        }
        begun.remaining = remaining;
        status.restart = Some(Box::new(Restart { begun: Some(begun), ..restart }));
        if refused {
            rollout.watched = None;
        }
        let mut delay = if refused { BACKOFF } else { OWNERS_EVERY };
        if let Some(until) = until {
            delay = delay.min(until.since(self.line.world.borrow().second()).max(Duration::from_secs(1)));
        }
        let wake = self.line.now() + delay;
        self.settle(status, &Situation::RestartInProgress(progress)).await?;
        Ok(Wake::At(Some(wake)))
    }

    async fn confirms(&mut self, rollout: &mut Rollout) -> Result<bool, Failure> {
        if !rollout.is_confirmed {
            let record = self.read_record().await?;
            let (generation, status) = (record.generation, record.status.clone());
            let before = self.record.replace(record);
            rollout.is_confirmed =
                before.is_some_and(|before| before.generation == generation && before.status == status);
        }
        Ok(rollout.is_confirmed)
    }

    async fn ask_owners(&self, policy: &Policy, rollout: &mut Rollout) -> Result<(), Failure> {
        rollout.wanted.clear();
        for owner in rollout.plan.owners(&rollout.pods).into_iter().filter(|owner| owner.api_version == "apps/v1") {
            let wish = match self.line.ask(|world| world.get_workload(&owner.name)).await {
                Ok(workload) if workload.uid != owner.uid => Wish::Pods(0),
                Ok(workload) if policy.selector.matches(&workload.pod_labels) => {
                    Wish::Pods(workload.replicas.try_into().unwrap())
                }
                Ok(workload) => {
                    let missing = workload.replicas.saturating_sub(workload.available);
                    Wish::OtherPods { missing: missing.try_into().unwrap() }
                }
                Err(Failure::NotFound) => Wish::Pods(0),
                Err(failure) if policy.max_unavailable.is_some() => return Err(failure),
                Err(_) => continue,
            };
            rollout.wanted.insert(owner.clone(), wish);
        }
        Ok(())
    }
}

impl Rollout {
    fn new(version: ResourceVersion, plan: Plan) -> Self {
        let (pods, wanted, refused) = (BTreeMap::new(), Wanted::new(), BTreeSet::new());
        let seen_at = ServerTime::from_second(0);
        Self { version, plan, pods, seen_at, wanted, refused, own_pod: own_pod(), is_confirmed: false, watched: None }
    }

    fn standing(&self, policy: &Policy) -> Standing<'_> {
        let Self { plan, pods, seen_at, wanted, refused, own_pod, .. } = self;
        plan.standing(policy, &Sight { pods, wanted, refused, own_pod: Some(own_pod), now: *seen_at })
    }

    fn see(&mut self, pods: Vec<Pod>, at: ServerTime, watched: u64) {
        (self.seen_at, self.is_confirmed) = (at, false);
        self.pods = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        self.watched = Some(watched);
    }
}
