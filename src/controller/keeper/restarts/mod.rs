//! Carries out restarts. A restart begins with lists of pods and a write of the intent. Each pass then lists the pods,
//! deletes some, and waits for the new ones.
//!
//! `monitor::restart` decides which pods may be deleted. A pod is deleted only if it was listed in the same pass, or by
//! another keeper as the restart began; only after the intent is in the status; and only for a spec that was confirmed
//! after that list.

mod drive;
mod send;
mod target_lists;
mod watched;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;

use self::drive::{Drive, left_alone};
use self::target_lists::{Found, TargetRequests, list_identities, list_pods};
use self::watched::Watched;
use crate::controller::keeper::context::Context;
use crate::controller::keeper::requeue::Requeue;
use crate::controller::keeper::step::{Step, quiet_period};

use crate::kube::error::Error;
use crate::monitor::decide::Decision;
use crate::monitor::notice::{self, Notice};
use crate::monitor::referrers::Concerns;
use crate::monitor::restart::machine::Machine;
use crate::monitor::restart::stale::Lists;
use crate::monitor::situation::{Progress, Situation};
use crate::monitor::status::Status;
use crate::monitor::words;

/// How often the pods of a restart whose canary has failed are listed.
const RECHECK: Duration = Duration::from_secs(60);

/// The state of a ConfigMonitor's restarts between steps.
#[derive(Default)]
pub(crate) struct Restarts {
    /// Boxed, because most ConfigMonitors have none.
    watched: Option<Box<Watched>>,
    lists: Lists,
    /// When the pods of a restart whose canary has failed are listed again.
    recheck_at: Option<Instant>,
    /// The step has carried the restart on, or has begun it.
    is_driven: bool,
}

/// What came of a look at the pods of a restart whose canary has failed.
pub(crate) enum Recheck {
    Done(Requeue),
    /// The next look is due.
    At(Instant),
}

impl Restarts {
    /// Lists the pods right after content came that has to wait, unless the status names its lists: only these pods may run
    /// with earlier content. A restart that begins at once needs no such list. `counts_from`: they must be counted from then on.
    pub(crate) async fn take_list(&mut self, step: &mut Step<'_>, counts_from: Option<Instant>) -> Result<(), Error> {
        let from = if step.status.lacks_a_list() { Some(step.memory.content_came()) } else { counts_from };
        let Some(from) = from else { return Ok(()) };
        let (version, listed) = list_identities(step.context, step.policy, from).await?;
        step.status.pods = Some(listed.len());
        if step.status.fill(&version) {
            let selector = step.policy.selector.to_query();
            self.lists.record(version, selector.clone(), listed);
            // Those that the status names no more must not pile up.
            self.lists.keep(&step.status, &selector);
        }
        Ok(())
    }

    fn requests<'a>(&'a mut self, step: &Step<'a>) -> TargetRequests<'a> {
        TargetRequests { context: step.context, policy: step.policy, lists: &mut self.lists }
    }

    /// Drops the restart once it is over, and the lists once nothing is pending. Otherwise targets made after the API
    /// server has forgotten a list would go by creation times, and might include pods that this restart created.
    pub(crate) fn forget(&mut self, status: &Status) {
        if status.begun().is_none() {
            (self.watched, self.recheck_at) = (None, None);
        }
        if status.restart.is_none() {
            self.lists = Lists::default();
        }
    }

    /// Records in the status what the restart under way has deleted, because it may not go on, or goes to the history.
    pub(crate) fn record_deletions(&self, status: &mut Status) {
        let Some(machine) = self.watched.as_ref().map(|watched| &watched.machine) else { return };
        if let Some(begun) = status.restart.as_mut().and_then(|restart| restart.begun.as_mut()) {
            if let Some(more) = machine.unwritten_deletions(begun) {
                *begun = more;
            }
        } else if let Some(last) = status.history.first_mut().filter(|last| last.number == machine.number()) {
            last.replaced = machine.deleted();
        }
    }

    /// Puts the restart on hold, if the step has an outcome, and has not carried the restart on. The targets are kept, because the
    /// restart may go on later.
    pub(crate) fn end_step(&mut self, has_outcome: bool) {
        let is_driven = std::mem::take(&mut self.is_driven);
        self.watched.iter_mut().filter(|_| has_outcome && !is_driven).for_each(|watched| watched.hold());
    }

    /// Finds the pods that the pending or requested restart replaces. Without any, nothing is pending any more: no pod
    /// that may be restarted has other content. If the pods cannot be listed, the change is recorded.
    pub(crate) async fn find(&mut self, step: &mut Step<'_>, decision: &Decision) -> Result<Option<Found>, Error> {
        if let Decision::Begin(Some(request)) = decision {
            step.status.take_up(Arc::clone(request), step.context.client.server_now());
        }
        let scope = Concerns { missing: step.memory.missing_discovered(), ..Concerns::of(&step.status) };
        let came = step.memory.content_came();
        let found = match self.requests(step).begin(&mut step.status, &scope, came).await {
            Ok(found) => found,
            Err(error) => {
                step.record_restart(&quiet_period(step.policy)).await?;
                return Err(error);
            }
        };
        let (targets, listing, _) = &found;
        (step.status.pods, step.status.outdated) = (Some(listing.pods.len()), Some(targets.len()));
        if !targets.is_empty() {
            return Ok(Some(found));
        }
        let skipped_pods = notice::skipped(&words::changed(&step.status), &targets.skipped);
        step.status.complete(None, left_alone(&step.status, &targets.skipped), step.context.client.server_now());
        step.context.publish(skipped_pods.as_slice(), &step.memory.uids()).await;
        info!(source = step.policy.source(), "no pod to restart");
        Ok(None)
    }

    /// Begins the pending restart of these pods: writes the intent, and deletes.
    pub(crate) async fn begin(
        &mut self,
        mut step: Step<'_>,
        (targets, listing, interest): Found,
    ) -> Result<Requeue, Error> {
        let (context, policy) = (step.context, step.policy);
        let now = context.client.server_now();
        let (changed, why) = (words::changed(&step.status), step.status.why());
        let (pods, skipped_pods) = (targets.len(), notice::skipped(&changed, &targets.skipped));
        let machine = Machine::begin(policy, targets, &step.status, context.shared.settings.own_pod.clone(), now);
        let started = notice::started(machine.number(), &changed, why, pods);
        let notices: Vec<Notice> = [started.clone()].into_iter().chain(skipped_pods).collect();
        let mut watched = Watched::new(machine);
        watched.started = Some(started);
        watched.machine.missing = step.memory.missing_discovered();
        watched.take_list(listing, interest, context);
        let requeue = Drive { step: &mut step, watched: &mut watched, notices: &notices }.run().await;
        // A failed write has taken the status.
        let waits = !watched.machine.is_intended() && step.status.restart.is_some();
        if requeue.is_err() && waits {
            step.record_restart(&quiet_period(policy)).await?;
        }
        // Until the status has this restart, the one before may still be recorded.
        if watched.machine.is_intended() {
            let started_at = watched.machine.started_at();
            (self.watched, self.recheck_at, self.is_driven) = (Some(watched), None, true);
            // After the deletions, which are urgent.
            context.emit_events(&notices, &step.memory.uids(), started_at).await;
        }
        requeue
    }

    /// Continues a restart that has begun, maybe in an earlier process.
    pub(crate) async fn resume(&mut self, mut step: Step<'_>) -> Result<Requeue, Error> {
        // Without the list of each content, all pods that will ever come would count as old.
        self.take_list(&mut step, None).await?;
        if let Some(begun) = step.status.begun() {
            // The status may still have other content, or name other sources.
            let situation = Situation::RestartInProgress(Progress::new(begun));
            step.record_restart(&situation).await?;
        }
        let Some(watched) = self.known(&step).await? else { return Ok(Requeue::Now) };
        let requeue = Drive { step: &mut step, watched, notices: &[] }.run().await;
        self.is_driven = true;
        requeue
    }

    /// Returns the restart under way, which an earlier process may have begun. `None` if there is none.
    async fn known(&mut self, step: &Step<'_>) -> Result<Option<&mut Watched>, Error> {
        let Step { context, policy, ref status, .. } = *step;
        let Some(begun) = status.begun() else { return Ok(None) };
        self.watched.take_if(|watched| watched.machine.number() != begun.number);
        if !self.watched.as_ref().is_some_and(|watched| watched.machine.is_of(status)) {
            let targets = self.requests(step).recall(Concerns::of(status), status, begun).await?;
            let own_pod = context.shared.settings.own_pod.clone();
            match &mut self.watched {
                Some(watched) => watched.machine.retarget(targets, status),
                None => self.watched = Some(Watched::new(Machine::of(policy, targets, status, begun.clone(), own_pod))),
            }
        }
        let Some(watched) = &mut self.watched else { return Ok(None) };
        watched.machine.resume(policy, begun);
        watched.machine.missing = step.memory.missing_discovered();
        Ok(Some(watched))
    }

    /// After a failed canary, ends the restart if somebody else has replaced the other pods.
    pub(crate) async fn recheck(&mut self, step: &mut Step<'_>, now: Instant) -> Result<Recheck, Error> {
        let at = *self.recheck_at.get_or_insert(now + RECHECK);
        if now < at {
            return Ok(Recheck::At(at));
        }
        let (context, policy) = (step.context, step.policy);
        self.take_list(step, None).await?;
        let Some(watched) = self.known(step).await? else { return Ok(Recheck::Done(Requeue::Now)) };
        let (listing, interest) = list_pods(context, policy, &watched.scope(), now).await?;
        watched.take_list(listing, interest, context);
        if let Some(requeue) = (Drive { step, watched, notices: &[] }).complete_if_over().await? {
            return Ok(Recheck::Done(requeue));
        }
        Ok(Recheck::At(*self.recheck_at.insert(now + RECHECK)))
    }

    /// Returns whether a watch of the pods may ring.
    pub(crate) fn are_listening(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.is_listening())
    }

    /// Waits until the pods of the restart under way are worth another pass.
    pub(crate) async fn worth_a_pass(&mut self, context: &Context) {
        match &mut self.watched {
            Some(watched) => Box::pin(watched.worth_a_pass(context)).await,
            None => std::future::pending().await,
        }
    }
}
