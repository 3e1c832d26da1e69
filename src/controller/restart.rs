//! Carries out a restart: the list, the intent, wave after wave of deletions (see `wave.rs`), the wait, the record.
//!
//! What may be deleted is decided in `monitor::rollout`; here it is only done, and only to pods that were listed in the same
//! pass, after the intent is in the status, and for a spec that was confirmed after that list.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::keeper::{Keeper, Pass, Wake};
use super::lists::{InPods, Listing};
use super::pods::{Rollout, selected};
use super::snapshots::Snapshots;
use super::timer_now;
use super::turns::Owners;
use super::wave::Wave;
use crate::kube::ResourceVersion;
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::PodIdentity;
use crate::monitor::decide::Look;
use crate::monitor::report::{self, Progress, Situation};
use crate::monitor::rollout::{Listed, Move, Plan, Standing, Suspects};
use crate::monitor::spec::{DeletionPolicy, Policy};
use crate::monitor::status::{Begun, Outcome, Restart, Status};

/// While a watch tells of pods, so often a pass is made for what it cannot tell: what the owners want.
const OWNERS_EVERY: Duration = Duration::from_secs(10);

impl Keeper {
    /// Lists the pods right after new content was read: those are the ones that may run with earlier content. If the restart begins at once,
    /// its own list says so.
    pub(super) async fn take_snapshot(&mut self, policy: &Policy, status: &mut Status) -> Result<(), Error> {
        let pending = status.restart.as_mut().filter(|restart| restart.begun.is_none());
        let Some(restart) = pending else { return Ok(()) };
        self.snapshots.complete(restart);
        if restart.pods_resource_version.is_none() {
            let (read_at, selector) = (self.read_at(), policy.selector.to_query());
            let list = async {
                let list = self.client.list(&metadata_of(policy), None, |pod: PodIdentity| pod).await?;
                Ok((list.resource_version, Arc::new(Listed::of(list.items))))
            };
            let (version, listed) =
                self.shared.identities.interest(&selector).ask(self.client.stop(), read_at, list).await?;
            self.snapshots.take_in(restart, policy, version, listed);
        }
        Ok(())
    }

    /// If the content has gone back: which pods were there right after it had left.
    async fn listed_since(
        &mut self,
        policy: &Policy,
        of: &Selection,
        restart: &Restart,
    ) -> Result<Option<Arc<Listed>>, Error> {
        match restart.since_pods_resource_version.as_ref().filter(|_| restart.revert) {
            Some(version) => self.listed_at(policy, of, version).await,
            None => Ok(None),
        }
    }

    /// Which pods were there at a version; none once nobody can tell any more.
    async fn listed_at(
        &mut self,
        policy: &Policy,
        of: &Selection,
        version: &ResourceVersion,
    ) -> Result<Option<Arc<Listed>>, Error> {
        if let Some(pods) = self.snapshots.find(policy, version) {
            return Ok(Some(pods));
        }
        let pods = self.list_again(of, version, |pod: PodIdentity| pod).await?;
        Ok(pods.map(|pods| Arc::new(Listed::of(pods))))
    }

    /// Begins a pending restart: lists the pods, writes down what is about to happen, and deletes.
    pub(super) async fn begin(
        &mut self,
        policy: &Policy,
        mut status: Status,
        mut restart: Restart,
    ) -> Result<Wake, Error> {
        restart.superseded = None;
        self.snapshots.complete(&mut restart);
        let (suspects, listing, interest) = match self.lists(policy, &mut restart).await {
            Ok(lists) => lists,
            Err(error) => {
                self.remember(status, &restart, &quiet(policy)).await?;
                return Err(error);
            }
        };
        status.give_up_superseded(listing.at);
        let (selector, own_pod) = (policy.selector.to_query(), self.shared.own_pod.as_ref());
        let plan = Plan::new(policy, &restart, selector, &suspects, &listing.pods, own_pod);
        let told = report::started(&policy.source(), restart.revert, plan.len(), plan.skipped());
        if plan.is_empty() {
            status.config_hash = Some(restart.config_hash);
            status.restart = None;
            self.settle(status, &Situation::UpToDate).await?;
            self.publish(&told).await;
            info!(monitor = self.name(), source = policy.source(), "no pod to restart");
            self.shared.pods.forget();
            return Ok(Wake::At(None));
        }
        let begun = Begun::new(listing.at, policy.selector.to_query(), plan.len());
        let mut rollout = Rollout::new(policy, plan, &begun, restart.pods_resource_version.clone());
        let ended = listing.ended;
        rollout.see(listing, interest);
        if policy.max_unavailable.is_some() && !self.has_turn(&rollout.owners(), Some(ended)) {
            let owners = rollout.owners();
            status.restart = Some(Box::new(restart.clone()));
            self.remember(status, &restart, &Situation::WaitingForOtherRestart).await?;
            return Ok(Wake::InTurn(owners));
        }
        let restart = Restart { begun: Some(begun.clone()), ..restart };
        status.restart = Some(Box::new(restart.clone()));
        let status = self.settle(status, &Situation::RestartInProgress(Progress::new(&begun))).await?;
        self.snapshots = Snapshots::default();
        // With another spec the intent would have been a conflict.
        rollout.is_confirmed = true;
        self.log(&told);
        let wake = self.pass(Pass { policy, status, restart, begun }, rollout).await;
        // The pods come first.
        self.make_events(&told).await;
        wake
    }

    /// Which pods may run with other content, and after that, those that are there now: after the GET of the ConfigMap, too, as a list from before could
    /// miss a pod that read the old content meanwhile.
    async fn lists(
        &mut self,
        policy: &Policy,
        restart: &mut Restart,
    ) -> Result<(Suspects, Arc<Listing>, InPods), Error> {
        let metadata = metadata_of(policy);
        let since = self.listed_since(policy, &metadata, restart).await?;
        let known = match &restart.pods_resource_version {
            Some(version) => Some(self.listed_at(policy, &metadata, version).await?),
            None => None,
        };
        let now = timer_now();
        // One that others have made since the GET is nearer to it, and says better which pods are old.
        let not_before = if known.is_some() { now } else { self.read_at() };
        let (mut listing, mut interest) = self.list_pods(policy, not_before).await?;
        let listed = known.unwrap_or_else(|| {
            let listed = Arc::new(Listed::of(listing.pods.iter().map(|pod| pod.identity())));
            self.snapshots.take_in(restart, policy, listing.version.clone(), Arc::clone(&listed));
            Some(listed)
        });
        // A budget goes by what there is now.
        if policy.max_unavailable.is_some() && listing.began < now {
            (listing, interest) = self.list_pods(policy, now).await?;
        }
        Ok((Suspects { listed, since }, listing, interest))
    }

    /// Goes on with a restart that has begun, maybe by a process before this one.
    pub(super) async fn resume(
        &mut self,
        policy: &Policy,
        mut status: Status,
        restart: Restart,
        begun: Begun,
    ) -> Result<Wake, Error> {
        // It was superseded, or is about another source now: that comes first.
        if !self.remembers(&restart) {
            status = self.settle(status, &Situation::RestartInProgress(Progress::new(&begun))).await?;
        }
        let mut rollout = match self.rollout.take() {
            Some(rollout) if rollout.is_of(&begun, restart.pods_resource_version.as_ref()) => rollout,
            _ => {
                let plan = self.recall(policy, &restart, &begun).await?;
                Rollout::new(policy, plan, &begun, restart.pods_resource_version.clone())
            }
        };
        if rollout.policy != *policy {
            // The watch is on the selector of before, and somebody waits for what the edit brings.
            rollout.do_not_listen();
            rollout.policy = policy.clone();
            rollout.pause = None;
        }
        let now = self.client.server_now();
        if rollout.seems_over(self.shared.own_pod.as_ref(), now) {
            // What is left is to ask the owners, and to say so. The watch has told of all pods.
            (rollout.seen_at, rollout.is_listed) = (now, false);
            return self.pass(Pass { policy, status, restart, begun }, rollout).await;
        }
        if let Some(until) = rollout.pause.max(rollout.busy_until).filter(|until| *until > timer_now()) {
            // Whatever has woken it up: a doorbell that rings all the time is no reason to list all the time.
            self.rollout = Some(rollout);
            return Ok(Wake::At(Some(until)));
        }
        let owners = rollout.owners();
        if policy.max_unavailable.is_some() && !self.has_turn(&owners, None) {
            self.rollout = Some(rollout);
            return Ok(Wake::InTurn(owners));
        }
        // The last list of the pass: what it says is what is gone by.
        match self.list_pods(policy, timer_now()).await {
            Ok((listing, interest)) => {
                rollout.see(listing, interest);
                rollout.plan.select(policy, &rollout.pods);
            }
            Err(error) => {
                self.rollout = Some(rollout);
                return Err(error);
            }
        }
        let owners = rollout.owners();
        if policy.max_unavailable.is_some() && !self.has_turn(&owners, None) {
            // Others have come to own such pods.
            self.rollout = Some(rollout);
            return Ok(Wake::InTurn(owners));
        }
        self.pass(Pass { policy, status, restart, begun }, rollout).await
    }

    /// Whether it is this keeper's turn with these owners: it has waited for it, or nobody else has or waits for it now. A list that is made already
    /// does only if no turn has ended since there were so many.
    fn has_turn(&mut self, owners: &Owners, ended: Option<u64>) -> bool {
        if self.turn.as_ref().is_none_or(|turn| !turn.covers(owners)) {
            self.turn = self.shared.turns.try_take(owners.clone());
            if ended.is_some_and(|ended| ended != self.shared.turns.ended()) {
                self.turn = None;
            }
        }
        self.turn.is_some()
    }

    /// Writes down what is pending, so that it is not forgotten even if it takes long until something can be done about it.
    pub(super) async fn remember(
        &mut self,
        status: Status,
        restart: &Restart,
        situation: &Situation<'_>,
    ) -> Result<(), Error> {
        if !self.remembers(restart) {
            self.settle(status, situation).await?;
        }
        Ok(())
    }

    /// Makes the plan of a restart again, from the list that names the pods that it replaces. Once the API server has forgotten that list,
    /// after minutes, the times of creation decide.
    async fn recall(&mut self, policy: &Policy, restart: &Restart, begun: &Begun) -> Result<Plan, Error> {
        let selection = Selection { labels: Some(begun.pod_selector.clone()), ..selected(policy) };
        let shared = Arc::clone(&self.shared);
        let share = |pod| shared.pods.share(pod);
        let known = match &restart.pods_resource_version {
            Some(version) => self.list_again(&selection, version, share).await?,
            None => None,
        };
        let metadata = Selection { metadata_only: true, ..selection.clone() };
        let since = self.listed_since(policy, &metadata, restart).await?;
        let (pods, listed) = match known {
            Some(pods) => {
                let listed = Listed::of(pods.iter().map(|pod| pod.identity()));
                (pods, Some(Arc::new(listed)))
            }
            None => (self.client.list(&selection, None, share).await?.items, None),
        };
        let suspects = Suspects { listed, since };
        info!(monitor = self.name(), pods = begun.pods, "restart resumed");
        let (selector, own_pod) = (begun.pod_selector.clone(), self.shared.own_pod.as_ref());
        Ok(Plan::new(policy, restart, selector, &suspects, &pods, own_pod))
    }

    /// The pods, as listed at this time or later.
    async fn list_pods(&mut self, policy: &Policy, not_before: Instant) -> Result<(Arc<Listing>, InPods), Error> {
        let selector = policy.selector.to_query();
        let interest = self.shared.lists.interest(&selector);
        let list = Listing::make(&self.client, &self.shared, selected(policy));
        let listing = interest.ask(self.client.stop(), not_before, list).await?;
        Ok((listing, interest))
    }

    /// When the content that there is was first read.
    fn read_at(&self) -> Instant {
        let look = self.reading.as_ref().map(|reading| &reading.look);
        match look {
            Some(Look::Found(content)) => content.came,
            _ => timer_now(),
        }
    }

    /// A list as it was at a version; none once the API server cannot tell any more. It may have its own words for that, which are believed when
    /// it says them a second time.
    async fn list_again<T: DeserializeOwned, K>(
        &mut self,
        of: &Selection,
        version: &ResourceVersion,
        keep: impl FnMut(T) -> K,
    ) -> Result<Option<Vec<K>>, Error> {
        match self.client.list(of, Some(version), keep).await {
            Ok(list) => {
                self.refused_lists.retain(|refused| refused != version);
                Ok(Some(list.items))
            }
            Err(error) if error.cause == Cause::Expired => Ok(None),
            Err(error) if matches!(error.cause, Cause::Refused(_) | Cause::Invalid(_)) => {
                if self.refused_lists.contains(version) {
                    return Ok(None);
                }
                self.refused_lists.push(version.clone());
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// One pass over pods that were just listed. However it goes, the plan is kept until the restart is over: made
    /// again later, it might hold pods that this restart has brought.
    async fn pass(&mut self, pass: Pass<'_>, mut rollout: Box<Rollout>) -> Result<Wake, Error> {
        let wake = self.advance(pass, &mut rollout).await;
        self.turn = None;
        self.rollout = self.is_restarting().then_some(rollout);
        self.shared.pods.forget();
        wake
    }

    /// Deletes what may be deleted, or sees that it is over, or waits.
    async fn advance(&mut self, pass: Pass<'_>, rollout: &mut Rollout) -> Result<Wake, Error> {
        let Pass { policy, mut status, restart, mut begun } = pass;
        rollout.taken_up.get_or_insert(self.client.server_now());
        if rollout.is_stalled {
            rollout.plan.is_overdue(&rollout.pods);
        }
        let own_pod = self.shared.own_pod.clone();
        let remaining = rollout.standing(own_pod.as_ref(), rollout.seen_at).remaining;
        if policy.max_unavailable.is_some() || remaining == 0 {
            self.ask_owners(policy, rollout).await?;
        }
        let standing = rollout.standing(own_pod.as_ref(), rollout.seen_at);
        let is_moving = standing.on_their_way > 0;
        let progress = Progress::of(&begun, &standing);
        let stuck: Vec<String> = standing.stuck.iter().map(|name| (*name).to_owned()).collect();
        let Standing { next, remaining, lacking, .. } = standing;
        rollout.blocked_at = None;
        let wave = match &next {
            Move::Done => {
                self.turn = None;
                self.unhindered(rollout);
                return self.complete(policy, status, restart, &begun, &stuck).await;
            }
            // Nothing is deleted that was not listed.
            Move::Remove(_) if !rollout.is_listed => return Ok(Wake::Again),
            Move::Remove(uids) => {
                if let Some(wake) = self.confirm(rollout).await? {
                    return Ok(wake);
                }
                let pods = uids.iter().filter_map(|uid| rollout.pods.get(uid)).cloned().collect();
                self.remove(policy, rollout, pods, is_moving).await?
            }
            Move::Wait(_) => Wave::default(),
        };
        self.turn = None;
        rollout.is_listed = false;
        let now = self.client.server_now();
        if wave.removed > 0 {
            begun.last_progress_at = now;
            rollout.last_progress_at = now;
            rollout.backoff.reset();
        }
        if wave.is_cut_short && wave.refusal.is_none() {
            return Ok(Wake::Again);
        }
        // What is left to do waits for those who have not deleted anything yet.
        if wave.removed > 0 {
            self.queue().await;
        }

        // A new pod that comes and goes is no progress.
        let left = remaining + lacking;
        let nearer = remaining < begun.remaining || rollout.least_left.is_some_and(|least| left < least);
        if nearer {
            begun.last_progress_at = now;
            rollout.last_progress_at = now;
            rollout.backoff.reset();
        }
        let begun = begun.with_remaining(remaining);
        rollout.least_left = Some(rollout.least_left.map_or(left, |least| least.min(left)));
        let deadline = rollout.deadline();
        let stalled = now >= deadline;
        rollout.is_stalled = stalled;
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
            rollout.listen(&self.shared);
        }
        let mut delay = match &wave.refusal {
            None if rollout.changes.is_some() => OWNERS_EVERY,
            None => rollout.backoff.after_failure(timer_now()),
            Some(error) => error.cause.delay(rollout.backoff.after_failure(timer_now())),
        };
        let is_busy = wave.refusal.as_ref().is_some_and(|error| matches!(error.cause, Cause::Busy(_)));
        rollout.busy_until = is_busy.then(|| timer_now() + delay);
        let pods = match next {
            Move::Wait(Some(until)) => Some(until),
            _ => None,
        };
        for until in pods.into_iter().chain((!stalled).then_some(deadline)) {
            delay = delay.min(until.since(self.client.server_now()).max(Duration::from_secs(1)));
        }
        self.settle(status, &situation).await?;
        let again = timer_now() + delay;
        Ok(Wake::At(Some(rollout.pause.map_or(again, |pause| again.max(pause)))))
    }

    /// Reads the ConfigMonitor before pods are deleted for it, unless that is done. None if it is as it was when that was
    /// decided, or else what to do instead.
    async fn confirm(&mut self, rollout: &mut Rollout) -> Result<Option<Wake>, Error> {
        if rollout.is_confirmed {
            return Ok(None);
        }
        let Some(record) = self.read_record().await? else {
            return Ok(Some(self.is_missing()));
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

fn quiet(policy: &Policy) -> Situation<'static> {
    Situation::QuietPeriod { seconds: policy.quiet_period.as_secs() }
}

fn metadata_of(policy: &Policy) -> Selection {
    Selection { metadata_only: true, ..selected(policy) }
}
