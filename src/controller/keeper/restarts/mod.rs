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

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;

use self::drive::{Drive, skipped};
pub(crate) use self::target_lists::count;
use self::target_lists::{TargetRequests, list_identities, list_pods};
use self::watched::Watched;
use crate::controller::clock::timer_now;
use crate::controller::keeper::context::Context;
use crate::controller::keeper::requeue::Requeue;
use crate::controller::keeper::step::{Step, quiet_period};
use crate::controller::shared::{ListInterest, Listing};

use crate::kube::error::Error;
use crate::monitor::hold::may_begin;
use crate::monitor::notice::{self, Notice};
use crate::monitor::referrers::Concerns;
use crate::monitor::restart::machine::Machine;
use crate::monitor::restart::stale::Lists;
use crate::monitor::restart::targets::Targets;
use crate::monitor::situation::{Progress, Situation};
use crate::monitor::source::SourceName;
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

impl Restarts {
    /// Lists the pods right after content came that has to wait, unless the status names its lists: only these pods may run
    /// with earlier content. A restart that begins at once needs no such list.
    pub(crate) async fn take_list(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        if !step.status.lacks_a_list() {
            return Ok(());
        }
        let (version, listed) = list_identities(step.context, step.policy, step.memory.content_came()).await?;
        step.status.pods = Some(listed.len());
        step.status.fill(&version);
        let selector = step.policy.selector.to_query();
        self.lists.record(version, selector.clone(), listed);
        // Those that the status names no more must not pile up.
        self.lists.keep(&step.status, &selector);
        Ok(())
    }

    fn requests<'a>(&'a mut self, step: &Step<'a>) -> TargetRequests<'a> {
        TargetRequests { context: step.context, policy: step.policy, lists: &mut self.lists }
    }

    /// Drops the restart under way once it is over, and the lists once nothing is pending. Both are kept until then: targets made
    /// anew after the API server has forgotten a list go by creation times, and might have pods that this restart created.
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

    /// Counts the pods that may have other content, while a change is held. Without any, nothing is pending any more.
    pub(crate) async fn count(&mut self, step: &mut Step<'_>) -> Result<(), Error> {
        let missing = step.memory.missing_discovered();
        let (targets, listing, _) = self.targets(step, &missing).await?;
        (step.status.pods, step.status.outdated) = (Some(listing.pods.len()), Some(targets.len()));
        if targets.is_empty() {
            complete_without_pods(step, &targets).await;
        }
        Ok(())
    }

    /// Lists the pods, and returns the targets of the restart that is to begin. If that fails, the change is recorded.
    async fn targets(
        &mut self,
        step: &mut Step<'_>,
        missing: &BTreeSet<SourceName>,
    ) -> Result<(Targets, Arc<Listing>, ListInterest), Error> {
        let scope = Concerns { missing: missing.clone(), ..Concerns::of(&step.status) };
        let came = step.memory.content_came();
        match self.requests(step).begin(&mut step.status, &scope, came).await {
            Ok(planned) => Ok(planned),
            Err(error) => {
                step.record_restart(&quiet_period(step.policy)).await?;
                Err(error)
            }
        }
    }

    /// Begins the pending restart, or the one that is requested: lists the pods, writes the intent, and deletes.
    pub(crate) async fn begin(&mut self, mut step: Step<'_>, request: Option<Arc<str>>) -> Result<Requeue, Error> {
        let (context, policy) = (step.context, step.policy);
        if let Some(value) = request {
            step.status.take_up(value, context.client.server_now());
        }
        let missing = step.memory.missing_discovered();
        let (targets, listing, interest) = self.targets(&mut step, &missing).await?;
        // A window may have closed during the lists. A shared list may be older than the window.
        let now = context.client.server_now();
        if may_begin(policy, &step.status, step.status.is_requested(), now).is_err() {
            return Ok(Requeue::Now);
        }
        step.status.pods = Some(listing.pods.len());
        if targets.is_empty() {
            complete_without_pods(&mut step, &targets).await;
            step.report_settled().await?;
            return Ok(step.rest());
        }
        let (changed, why) = (words::changed(&step.status), step.status.why());
        let (pods, skipped_pods) = (targets.len(), notice::skipped(&changed, &targets.skipped));
        let machine = Machine::begin(policy, targets, &step.status, context.shared.settings.own_pod.clone(), now);
        let started = (pods > 0).then(|| notice::started(machine.number(), &changed, why, pods));
        let notices: Vec<Notice> = started.iter().cloned().chain(skipped_pods).collect();
        let mut watched = Watched::new(machine);
        watched.started = started;
        watched.leave_out(missing);
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
        self.take_list(&mut step).await?;
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
                Some(watched) => watched.retarget(targets, status),
                None => self.watched = Some(Watched::new(Machine::of(policy, targets, status, begun.clone(), own_pod))),
            }
        }
        let Some(watched) = &mut self.watched else { return Ok(None) };
        watched.resume(policy, begun);
        watched.leave_out(step.memory.missing_discovered());
        Ok(Some(watched))
    }

    /// Reports that the canary has failed. Now and then looks whether somebody else has replaced the other pods, which
    /// ends the restart.
    pub(crate) async fn stay_failed(&mut self, mut step: Step<'_>, message: &str) -> Result<Requeue, Error> {
        let now = timer_now();
        if now >= *self.recheck_at.get_or_insert(now + RECHECK) {
            let (context, policy) = (step.context, step.policy);
            self.take_list(&mut step).await?;
            let Some(watched) = self.known(&step).await? else { return Ok(Requeue::Now) };
            let (listing, interest) = list_pods(context, policy, &watched.scope(), now).await?;
            watched.take_list(listing, interest, context);
            let mut drive = Drive { step: &mut step, watched, notices: &[] };
            if let Some(requeue) = drive.complete_if_over().await? {
                return Ok(requeue);
            }
            self.recheck_at = Some(now + RECHECK);
        }
        step.update_status(&Situation::CanaryFailed(message)).await?;
        Ok(Requeue::At(self.recheck_at))
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

/// Records the last contents without a restart: no pod that may be restarted has others.
async fn complete_without_pods(step: &mut Step<'_>, targets: &Targets) {
    let skipped_pods = notice::skipped(&words::changed(&step.status), &targets.skipped);
    step.status.complete(None, skipped(&step.status, &targets.skipped), step.context.client.server_now());
    step.context.publish(skipped_pods.as_slice(), &step.memory.uids()).await;
    info!(source = step.policy.source(), "no pod to restart");
}
