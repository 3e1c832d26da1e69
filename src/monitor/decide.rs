//! What a reading of the ConfigMap means for the record, and what to do about the record now.

use std::time::{Duration, Instant};

use super::content::{ContentHash, UnknownHash};
use super::spec::Policy;
use super::status::{Begun, Restart, Stage, Status, Superseded};
use crate::kube::{ResourceVersion, ServerTime};

/// A quiet period is extended by further changes, but never to more than so many times its length.
const PATIENCE: u32 = 10;
const A_SECOND: Duration = Duration::from_secs(1);

/// The ConfigMap as last read.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// It does not exist.
    Missing,
    /// It exists, with this content.
    Found(Content),
}

/// The content of a ConfigMap, at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Its hash.
    pub hash: ContentHash,
    /// The version of the ConfigMap.
    pub version: ResourceVersion,
    /// The time of the answer that carried it,
    pub at: ServerTime,
    /// and when that came, by the clock that timers go by.
    pub came: Instant,
    /// Whether it is the first reading of this process, so that it may have been there for long.
    pub first: bool,
}

/// How long the content of a pending restart has been unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Quiet {
    /// The content, and when it was first read: what is known of one restart says nothing about another.
    content: (ContentHash, ServerTime),
    first: Instant,
    last: Instant,
    /// When other content was read that could not be written down. If this one is back, the period begins anew when that is read.
    interrupted: Option<Instant>,
    /// A quiet period has passed since the content left `status.configHash`, so that pods may have been born with what came
    /// in between, and going back is not as if nothing had been.
    passed: bool,
    /// The same since a restart under way was superseded: going back is not as if it had gone on.
    rested: bool,
}

/// What a reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing new.
    Unchanged,
    /// The first content, or the first of another source or of other keys of it: pods run with it already.
    Baseline,
    /// Content that pods must be restarted for.
    Modified,
    /// Back to what pods run with, before anything came of it.
    Undone,
    /// Back to what pods had been restarted for, but some may run with what came in between.
    Reverted,
    /// Another source, or other keys of it, while a restart is pending or under way, which goes on.
    Retargeted,
}

/// The record after a reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The status as it must become.
    pub status: Status,
    /// The quiet period, while a restart is pending.
    pub quiet: Option<Quiet>,
    /// What was new.
    pub finding: Finding,
}

/// What to do about a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing: pods run with the content.
    Settled,
    /// Nothing: there is no content.
    Missing,
    /// Nothing, until the suspension is lifted.
    Suspended,
    /// Wait until then for the content to come to rest.
    Quiet(Instant),
    /// Read the ConfigMap again: it has been unchanged for long enough as far as the watch has told, and a watch may be silent.
    Read,
    /// Begin the pending restart.
    Begin(Restart),
    /// Go on with the restart that has begun.
    Resume(Restart, Begun),
}

impl Quiet {
    fn begin(content: &Content, now: Instant, passed: bool) -> Self {
        let content = (content.hash.clone(), content.at);
        Self { content, first: now, last: now, interrupted: None, passed, rested: false }
    }

    /// A pending restart that this process did not see begin. The period goes on from when the content was first read: both times are whole
    /// seconds, so that one more may have to pass. A restart that it has superseded had its quiet period, whatever clocks say.
    fn resume(restart: &Restart, content: &Content, policy: &Policy) -> Self {
        let elapsed = |from| content.at.since(from);
        let known = elapsed(restart.observed_at).saturating_sub(A_SECOND);
        let last = content.came.checked_sub(known).unwrap_or(content.came);
        Self {
            content: (restart.config_hash.clone(), restart.observed_at),
            first: last,
            last,
            interrupted: None,
            passed: restart.before().is_some() || elapsed(restart.since) >= policy.quiet_period,
            rested: elapsed(restart.observed_at) >= policy.quiet_period,
        }
    }

    /// Whether it is that of this restart.
    #[must_use]
    pub fn is_about(&self, restart: &Restart) -> bool {
        self.content == (restart.config_hash.clone(), restart.observed_at)
    }

    /// When the content has been quiet for long enough.
    fn until(&self, period: Duration) -> Instant {
        (self.last + period).min(self.first + period * PATIENCE)
    }

    /// The content has changed once more, to this.
    fn disturbed(&self, content: &Content, period: Duration, now: Instant) -> Self {
        let content = (content.hash.clone(), content.at);
        Self { content, last: now, interrupted: None, ..self.interrupted(period, now) }
    }

    /// Other content has been read, which could not be written down. Patience goes by the first change, unless content has been unchanged for the
    /// period since; and only what was written down can have come to rest.
    #[must_use]
    pub fn interrupted(&self, period: Duration, now: Instant) -> Self {
        let changed = self.interrupted.unwrap_or(self.last);
        let first = if now < changed + period { self.first } else { now };
        let rested = self.interrupted.is_none() && now >= self.until(period);
        let interrupted = Some(self.interrupted.unwrap_or(now));
        let (passed, rested) = (self.passed || rested, self.rested || rested);
        Self { first, interrupted, passed, rested, ..self.clone() }
    }

    /// Its content is what there is.
    fn seen(self, period: Duration, now: Instant) -> Self {
        match self.interrupted {
            Some(_) => Self { last: now, interrupted: None, ..self.interrupted(period, now) },
            None => self,
        }
    }
}

/// Brings a record up to what was read.
///
/// # Errors
/// When a hash in the record cannot be compared; the record must be left as it is.
pub fn observe(
    policy: &Policy,
    status: &Status,
    quiet: Option<&Quiet>,
    content: &Content,
    now: Instant,
) -> Result<Observed, UnknownHash> {
    let is_current = |hash: &ContentHash| hash.is(&content.hash);
    let source = policy.source();
    let another_source = status.source.as_ref().is_some_and(|before| *before != source);
    let mut next = status.clone();
    next.source = Some(source);
    next.source_resource_version = Some(content.version.clone());
    let pending = status.restart.as_ref().filter(|restart| restart.begun().is_none());
    let quiet = pending.map(|restart| match quiet.filter(|quiet| quiet.is_about(restart)) {
        Some(quiet) => quiet.clone(),
        None => Quiet::resume(restart, content, policy),
    });
    let seen = |quiet: Option<Quiet>| quiet.map(|quiet| quiet.seen(policy.quiet_period, now));

    let (finding, quiet) = match (&status.config_hash, &status.restart) {
        (None, None) => {
            next.baseline(content.hash.clone(), content.at);
            (Finding::Baseline, None)
        }
        (Some(_), None) if another_source => {
            next.baseline(content.hash.clone(), content.at);
            (Finding::Baseline, None)
        }
        (Some(hash), None) if is_current(hash)? => (Finding::Unchanged, None),
        (Some(_), None) => {
            next.restart = Some(Box::new(Restart {
                config_hash: content.hash.clone(),
                observed_at: content.at,
                pods_resource_version: None,
                since: left_at(status, content),
                since_pods_resource_version: None,
                revert: false,
                stage: Stage::Pending,
            }));
            (Finding::Modified, Some(Quiet::begin(content, now, false)))
        }
        (_, Some(restart)) if another_source => {
            next.config_hash = None;
            next.give_up_superseded(content.at);
            if let Some(restart) = &mut next.restart {
                restart.config_hash = content.hash.clone();
            }
            let content = (content.hash.clone(), restart.observed_at);
            (Finding::Retargeted, seen(quiet).map(|quiet| Quiet { content, ..quiet }))
        }
        (_, Some(restart)) if is_current(&restart.config_hash)? => (Finding::Unchanged, seen(quiet)),
        (_, Some(restart)) => supersede(policy, restart, quiet, content, now, &mut next)?,
    };
    Ok(Observed { status: next, quiet, finding })
}

/// Other content has come than that of a restart, which it supersedes, unless it is what pods run with or are brought by the restart under way.
fn supersede(
    policy: &Policy,
    restart: &Restart,
    quiet: Option<Quiet>,
    content: &Content,
    now: Instant,
    next: &mut Status,
) -> Result<(Finding, Option<Quiet>), UnknownHash> {
    let is_current = |hash: &ContentHash| hash.is(&content.hash);
    let back = next.config_hash.as_ref().map(is_current).transpose()?.unwrap_or(false);
    let quiet = match quiet {
        Some(quiet) => quiet.disturbed(content, policy.quiet_period, now),
        None => Quiet::begin(content, now, true),
    };
    if quiet.rested {
        next.give_up_superseded(content.at);
    }
    if let Some(before) = restart.before().filter(|_| !quiet.rested)
        && is_current(&before.config_hash)?
    {
        next.restart = Some(Box::new(before));
        return Ok((Finding::Undone, None));
    }
    if back && !quiet.passed {
        next.restart = None;
        return Ok((Finding::Undone, None));
    }
    let stage = match &restart.stage {
        Stage::UnderWay(begun) => Stage::Superseding(Box::new(Superseded {
            config_hash: restart.config_hash.clone(),
            observed_at: restart.observed_at,
            pods_resource_version: restart.pods_resource_version.clone(),
            revert: restart.revert,
            begun: begun.clone(),
        })),
        pending if !quiet.rested => pending.clone(),
        _ => Stage::Pending,
    };
    // Its own list is the first one only if its content was the first to come after what the pods have.
    let own = restart.pods_resource_version.as_ref().filter(|_| restart.since == restart.observed_at);
    let first_list = restart.since_pods_resource_version.as_ref().or(own);
    next.restart = Some(Box::new(Restart {
        config_hash: content.hash.clone(),
        observed_at: content.at,
        pods_resource_version: None,
        since: restart.since,
        since_pods_resource_version: first_list.cloned(),
        revert: back,
        stage,
    }));
    Ok((if back { Finding::Reverted } else { Finding::Modified }, Some(quiet)))
}

/// What to do about a record that is up to the last look, which began at `read_at`.
#[must_use]
pub fn decide(
    policy: &Policy,
    status: &Status,
    look: &Look,
    quiet: Option<&Quiet>,
    read_at: Instant,
    now: Instant,
) -> Decision {
    if *look == Look::Missing {
        return Decision::Missing;
    }
    if policy.suspend {
        return Decision::Suspended;
    }
    let Some(restart) = status.restart.as_deref() else { return Decision::Settled };
    if let Some(begun) = restart.begun() {
        return Decision::Resume(restart.clone(), begun.clone());
    }
    match quiet.map(|quiet| quiet.until(policy.quiet_period)) {
        Some(until) if now < until => Decision::Quiet(until),
        Some(until) if read_at < until && !policy.quiet_period.is_zero() => Decision::Read,
        _ => Decision::Begin(restart.clone()),
    }
}

/// When the content left what pods had been restarted for, at the earliest. While this process was not there to see it, all
/// that is known is since when nothing was to be done: that condition is left alone by what may be written before a first look,
/// such as that a right is missing.
fn left_at(status: &Status, content: &Content) -> ServerTime {
    let settled = status.conditions.iter().find(|condition| condition.r#type == "Reconciling");
    let known = settled.filter(|_| content.first).map(|settled| settled.last_transition_time.min(content.at));
    known.unwrap_or(content.at)
}

#[cfg(test)]
mod tests;
