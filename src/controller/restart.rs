//! Carries out a restart: the list, the intent, wave after wave of deletions (see `wave.rs`), the wait, the record.
//!
//! What may be deleted is decided in `monitor::rollout`; here it is only done, and only to pods that were listed in the same
//! pass, after the intent is in the status, and for a spec that was confirmed after that list.

use std::time::Duration;

use tracing::{info, warn};

use super::keeper::{Keeper, Wake};
use super::pods::{Rollout, Turn, selected};
use super::timer_now;
use super::wave::Wave;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::Pod;
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::rollout::{Move, Plan, Standing};
use crate::monitor::spec::{DeletionPolicy, Policy};
use crate::monitor::status::{Begun, Outcome, Restart, Status};

/// While a watch tells of pods, so often a pass is made for what it cannot tell: what the owners want.
const OWNERS_EVERY: Duration = Duration::from_secs(10);

impl Keeper {
    /// Begins a pending restart: lists the pods, writes down what is about to happen, and deletes.
    pub(super) async fn begin(&mut self, policy: &Policy, mut status: Status, restart: Restart) -> Result<Wake, Error> {
        let Some(turn) = self.turn.take().or_else(|| self.restarts.turn(policy)) else {
            self.remember(policy, status, &restart).await?;
            return Ok(Wake::InTurn);
        };
        // After the GET of the ConfigMap: a list from before could miss a pod that read the old content meanwhile.
        let pods = match self.client.list::<Pod>(&selected(policy), None).await {
            Ok(pods) => pods,
            Err(error) => {
                self.remember(policy, status, &restart).await?;
                return Err(error);
            }
        };
        status.give_up_superseded(pods.at);
        let restart = Restart { superseded: None, ..restart };
        let plan = Plan::new(policy, &restart, pods.at, &pods.items, self.restarts.own_pod.as_ref());
        let told = report::started(&policy.source(), restart.revert, plan.len(), plan.skipped());
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
        status.restart = Some(Box::new(restart.clone()));
        let status = self.settle(status, &Situation::RestartInProgress(Progress::new(&begun))).await?;
        let mut rollout = self.restarts.rollout(policy, plan, pods.resource_version.clone());
        rollout.see(pods);
        // With another spec the intent would have been a conflict.
        rollout.is_confirmed = true;
        self.log(&told);
        let wake = self.pass(policy, status, restart, begun, rollout, turn).await;
        // The pods come first.
        self.make_events(&told).await;
        wake
    }

    /// Goes on with a restart that has begun, maybe by a process before this one.
    pub(super) async fn resume(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        begun: Begun,
    ) -> Result<Wake, Error> {
        let Some(turn) = self.turn.take().or_else(|| self.restarts.turn(policy)) else {
            return Ok(Wake::InTurn);
        };
        // It was superseded, or is about another source now: that comes first, too.
        if !self.remembers(&restart) {
            status = self.settle(status, &Situation::RestartInProgress(Progress::new(&begun))).await?;
        }
        let mut rollout = match self.rollout.take().filter(|rollout| rollout.version == begun.pods_resource_version) {
            Some(rollout) => rollout,
            None => {
                let plan = self.recall(policy, &restart, &begun).await?;
                self.restarts.rollout(policy, plan, begun.pods_resource_version.clone())
            }
        };
        // The last list of the pass: what it says is what is gone by.
        let pods = match self.client.list::<Pod>(&selected(policy), None).await {
            Ok(pods) => pods,
            Err(error) => {
                self.rollout = Some(rollout);
                return Err(error);
            }
        };
        if rollout.policy != *policy {
            // The watch is on the selector of before.
            rollout.do_not_listen();
            rollout.policy = policy.clone();
        }
        rollout.see(pods);
        self.pass(policy, status, restart, begun, rollout, turn).await
    }

    /// Writes down what is pending, so that it is not forgotten even if it takes long until something can be done about it.
    async fn remember(&mut self, policy: &Policy, status: Status, restart: &Restart) -> Result<(), Error> {
        if !self.remembers(restart) {
            let situation = Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() };
            self.settle(status, &situation).await?;
        }
        Ok(())
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
        Ok(Plan::new(policy, restart, begun.started_at, &pods.items, self.restarts.own_pod.as_ref()))
    }

    /// One pass over pods that were just listed. However it goes, the plan is kept until the restart is over: made
    /// again later, it might hold pods that this restart has brought.
    async fn pass(
        &mut self,
        policy: &Policy,
        status: Status,
        restart: Restart,
        begun: Begun,
        mut rollout: Box<Rollout>,
        turn: Turn,
    ) -> Result<Wake, Error> {
        let wake = self.advance(policy, status, restart, begun, &mut rollout, turn).await;
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
        turn: Turn,
    ) -> Result<Wake, Error> {
        let mut standing = rollout.standing(rollout.seen_at);
        if standing.next != Move::Done && (policy.max_unavailable.is_some() || standing.remaining == 0) {
            self.ask_owners(policy, rollout).await?;
            standing = rollout.standing(rollout.seen_at);
        }
        let is_moving = standing.lacking > 0 || !standing.terminating.is_empty();
        let progress = Progress::of(&begun, &standing);
        let stuck: Vec<String> = standing.stuck.iter().map(|name| (*name).to_owned()).collect();
        let Standing { next, remaining, lacking, .. } = standing;
        rollout.blocked_at = None;
        let wave = match &next {
            Move::Done => {
                drop(turn);
                self.unhindered(rollout);
                return self.complete(policy, status, restart, &begun, &stuck).await;
            }
            Move::Remove(uids) => {
                if let Some(wake) = self.confirm(rollout).await? {
                    return Ok(wake);
                }
                self.remove(policy, rollout, uids, is_moving).await?
            }
            Move::Wait(_) => Wave::default(),
        };
        drop(turn);
        let now = self.client.server_now();
        // What is left to do waits for those who have not deleted anything yet.
        if wave.removed > 0 {
            self.queue().await;
        }

        // A new pod that comes and goes is no progress.
        let left = remaining + lacking;
        let nearer = remaining < begun.remaining || rollout.least_left.is_some_and(|least| left < least);
        if nearer || wave.removed > 0 {
            begun.last_progress_at = now;
            rollout.backoff.reset();
        }
        begun.remaining = remaining;
        rollout.least_left = Some(rollout.least_left.map_or(left, |least| least.min(left)));
        let taken_up = *rollout.taken_up.get_or_insert(now);
        // For so long a pod that is ready has no progress to make.
        let patience = policy.progress_deadline + policy.min_ready;
        let deadline = begun.last_progress_at.max(taken_up).plus(patience);
        let stalled = now >= deadline;
        let progress = progress.not_deleted(rollout.failed_pods().into_iter());
        let hindrance = wave.refusal.as_ref().map(|error| (&error.cause, error.to_string()));
        let situation = match &hindrance {
            _ if stalled => Situation::ProgressDeadlineExceeded(progress, hindrance.as_ref().map(|(_, text)| &**text)),
            Some((Cause::Forbidden(_), text)) => Situation::Forbidden(text),
            _ if wave.is_in_turn => Situation::RestartInProgress(progress),
            Some((Cause::Blocked(_), text)) => Situation::EvictionBlocked(progress, text),
            // More than one budget for one pod is an internal error to the API server.
            Some((Cause::Refused(_), text)) if policy.deletion_policy == DeletionPolicy::Evict => {
                Situation::EvictionBlocked(progress, text)
            }
            Some((Cause::Refused(_) | Cause::Invalid(_), text)) => Situation::DeletionRefused(progress, text),
            _ => Situation::RestartInProgress(progress),
        };
        status.restart = Some(Box::new(Restart { begun: Some(begun), ..restart }));

        if stalled {
            rollout.do_not_listen();
        } else {
            rollout.listen(&self.client, &self.restarts, policy);
        }
        let mut delay = match &wave.refusal {
            None if rollout.changes.is_some() => OWNERS_EVERY,
            None => rollout.backoff.after_failure(timer_now()),
            Some(error) => error.cause.delay(rollout.backoff.after_failure(timer_now())),
        };
        let pods = match next {
            Move::Wait(Some(until)) => Some(until),
            _ => None,
        };
        for until in pods.into_iter().chain((!stalled).then_some(deadline)) {
            delay = delay.min(until.since(self.client.server_now()).max(Duration::from_secs(1)));
        }
        self.settle(status, &situation).await?;
        Ok(Wake::At(Some(timer_now() + delay)))
    }

    /// Reads the ConfigMonitor before pods are deleted for it, unless that is done. None if it is as it was when that was
    /// decided, or else what to do instead.
    async fn confirm(&mut self, rollout: &mut Rollout) -> Result<Option<Wake>, Error> {
        if rollout.is_confirmed {
            return Ok(None);
        }
        let Some(record) = self.read_record().await? else {
            return Ok(Some(Wake::Never));
        };
        rollout.is_confirmed = self.record.as_ref().is_some_and(|before| before.says_the_same(&record));
        self.record = Some(record);
        Ok((!rollout.is_confirmed).then_some(Wake::Again))
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

    /// Records that a restart is over.
    async fn complete(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        begun: &Begun,
        stuck: &[String],
    ) -> Result<Wake, Error> {
        let now = self.client.server_now();
        status.remember(restart.config_hash.clone(), begun, now, Outcome::Completed);
        status.config_hash = Some(restart.config_hash);
        status.restart = None;
        self.settle(status, &Situation::UpToDate).await?;
        self.publish(&[report::completed(&policy.source(), begun, stuck, now)]).await;
        Ok(Wake::At(None))
    }
}
