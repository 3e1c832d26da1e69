//! Turns a reading of the sources into entries of the journal, and the journal into a decision. Only the policy, the
//! status, the readings and the times count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::content::ContentHash;
use super::hold::{Hold, may_begin};
use super::restart::SKEW;
use super::source::{Keys, Origin, Source, SourceName};
use super::spec::Policy;
use super::status::{A_SECOND, CanaryState, Change, SourceStatus, Status};
use crate::kube::{ResourceVersion, ServerTime};

/// Further changes extend a quiet period, but to no more than this many times its length.
const MAX_QUIET_PERIODS: u32 = 10;
/// How long a discovered source is remembered after its last pod, so that an edit until the next pod is not lost.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);

/// The sources as last read, in the order of the policy. `None` for a source that does not exist and is not optional.
#[derive(Clone, Debug, PartialEq)]
pub struct Look(pub Vec<Option<Content>>);

/// The content of a source when it was read. The absence of an optional source is a content, too.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The hash of the content under the keys of the spec.
    pub hash: ContentHash,
    /// The keys under which the status has recorded the source, if they are others, and the hash under these.
    pub recorded: Option<Box<(Keys, ContentHash)>>,
    /// The version of the object, if it exists.
    pub version: Option<ResourceVersion>,
    /// The API server's time in the answer that first had this content.
    pub at: ServerTime,
    /// When that answer came, by the clock of timers.
    pub came: Instant,
    /// When the previous content was last known to be current. `None` if this process knew none: the content may be
    /// old.
    pub since: Option<ServerTime>,
}

/// The times that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The oldest of the last reads of the sources.
    pub read_at: Instant,
    /// The current time.
    pub now: Instant,
    /// The current time of the API server.
    pub server_now: ServerTime,
}

/// What a reading has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The recorded content.
    Unchanged,
    /// The first content of a source, or of other keys of it. Pods are assumed to run with it.
    Baseline,
    /// Other content than before.
    Changed,
}

/// What to do about a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing: pods run with the content.
    Settled,
    /// Nothing: these sources do not exist.
    Missing(Vec<SourceName>),
    /// Nothing, until `suspend` is lifted.
    Suspended {
        /// Whether a restart is requested.
        requested: bool,
    },
    /// Wait until this time, the end of the quiet period. A restart under way deletes nothing.
    Quiet(Instant),
    /// Wait until this time, if it is known: a restart may not begin yet.
    Hold(Hold, Option<Instant>),
    /// List the pods: if none is stale, no restart is needed.
    Count,
    /// Read the sources again. The quiet period is over by the watches, but a watch may have stalled.
    Read,
    /// Begin the pending restart, or the one that is requested.
    Begin(Option<Arc<str>>),
    /// Resume the restart that has begun.
    Resume,
    /// Nothing, until the content changes or a restart is requested: the canary has failed for this reason.
    CanaryFailed(String),
}

impl Look {
    pub(crate) fn newest(&self) -> Option<&Content> {
        self.0.iter().flatten().max_by_key(|content| content.came)
    }

    fn of<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = (&'a Source, Option<&'a Content>)> {
        policy.sources.iter().zip(self.0.iter().map(Option::as_ref))
    }

    fn at<'a>(&'a self, policy: &'a Policy, name: &SourceName) -> Option<(&'a Source, Option<&'a Content>)> {
        self.of(policy).find(|(source, _)| source.name == *name)
    }

    /// Returns the missing sources that the spec names. A missing discovered source holds up only the pods that refer
    /// to it.
    pub(crate) fn missing(&self, policy: &Policy) -> Vec<SourceName> {
        let named = self.of(policy).filter(|(source, content)| source.origin == Origin::Named && content.is_none());
        named.map(|(source, _)| source.name.clone()).collect()
    }
}

/// Records what was read in a status with comparable hashes. Other content that is quiet ends the restart under way.
pub fn observe(
    policy: &Policy,
    mut next: Status,
    look: &Look,
    request: Option<&Arc<str>>,
    moment: Moment,
) -> (Status, Finding) {
    let was_baselined = next.is_baselined();
    // One that has forgotten its sources has been seen before.
    let is_new = next.baselined_at.is_none() && next.history.is_empty() && !was_baselined;
    next.source = Some(policy.source());
    forget_sources(policy, &mut next, moment.server_now);
    let is_basis_named = take_keys(policy, look, &mut next).max(record_sources(policy, look, &mut next));
    forget_unreferenced(policy, look, &mut next, moment.server_now);
    let is_changed = append(policy, look, &mut next, moment.server_now);
    // The last contents must have been read after the quiet period.
    let is_quiet = quiet_until(policy, &next, look, moment).is_none_or(|until| until <= moment.read_at);
    match next.begun() {
        Some(_) if is_quiet && !next.is_on_target() => next.supersede(moment.server_now),
        Some(_) if is_quiet => next.restart.iter_mut().for_each(|restart| restart.changing_since = None),
        _ => {}
    }
    record_origins(policy, look, &mut next);
    if !next.has_work() {
        (next.restart, next.outdated) = (None, None);
        // What is discovered later says nothing about the other sources.
        let is_basis = is_basis_named == Some(true) || is_basis_named.is_some() && !was_baselined;
        look.newest().filter(|_| is_basis).iter().for_each(|newest| next.baseline(newest.at));
    }
    if is_new && next.is_baselined() {
        // The request was made before the first content was recorded.
        next.last_handled_restart_request = request.cloned();
    }
    let finding = match is_basis_named {
        _ if is_changed => Finding::Changed,
        Some(_) => Finding::Baseline,
        None => Finding::Unchanged,
    };
    (next, finding)
}

/// Appends new contents to the journals, which ends the bake time of a canary. Returns whether there were any.
fn append(policy: &Policy, look: &Look, status: &mut Status, now: ServerTime) -> bool {
    let settled_at = status.settled_at;
    let newest = status.changes().map(|change| change.observed_at).max();
    let mut at = None;
    for (source, content) in look.of(policy) {
        let known = status.sources.iter_mut().find(|known| is_about(known, source));
        let Some((known, content)) = known.zip(content) else { continue };
        if known.last().is_none_or(|last| *last == content.hash) {
            continue;
        }
        let before = known.changes.last().map(|change| change.observed_at);
        // An absence has no version that shows whether the source has existed since, nor has what a restore brings back.
        let observed_at = before.filter(|before| content.at < *before).map_or(content.at, |before| now.max(before));
        let since = content.since.or(settled_at).max(before).unwrap_or(ServerTime::from_second(0)).min(observed_at);
        let hash = content.hash.clone();
        known.resource_version.clone_from(&content.version);
        known.append(Change { hash, since, observed_at, pods_resource_version: None, begun: false });
        at = at.max(Some(observed_at));
    }
    let Some(at) = at else { return false };
    status.limit();
    // Two controllers that fight over the content must not restart pods: after content that is back, or that was quiet, the ten
    // periods begin anew.
    let is_anew = status.is_on_target() || newest.is_none_or(|newest| at.since(newest) >= policy.quiet_period);
    let restart = status.restart.get_or_insert_default();
    restart.changing_since = restart.changing_since.filter(|_| !is_anew).or(Some(at));
    // The time until the restart goes on does not count as bake time.
    let canary = restart.begun.iter_mut().filter_map(|begun| begun.canary.as_mut());
    canary
        .filter(|canary| matches!(canary.state, CanaryState::Baking { .. }))
        .for_each(|canary| canary.state = CanaryState::Replacing);
    status.outdated = None;
    true
}

/// Forgets sources that the spec no longer names or discovers. The restart goes on for the others, unless there are
/// none or its canary has failed.
fn forget_sources(policy: &Policy, status: &mut Status, now: ServerTime) {
    let is_source = |known: &SourceStatus| {
        policy.sources.iter().any(|source| source.name == known.name) || policy.unwatched.contains(&known.name)
    };
    let begun_for = status.sources.iter().filter(|known| known.marked().is_some());
    let (left, forgotten): (Vec<_>, Vec<_>) = begun_for.partition(|known| is_source(known));
    let has_none = left.is_empty() && status.request().is_none();
    if !forgotten.is_empty() && (has_none || status.canary_failure().is_some()) {
        status.supersede(now);
    }
    status.sources.retain(is_source);
}

/// Records which sources are discovered, but not in the middle of a restart for them, which keeps its pods.
fn record_origins(policy: &Policy, look: &Look, status: &mut Status) {
    for known in status.sources.iter_mut().filter(|known| known.marked().is_none()) {
        // What is no source may not be watched.
        let source = look.at(policy, &known.name);
        known.discovered = source.is_none_or(|(source, _)| source.origin != Origin::Named);
    }
}

/// Records since when no pod refers to a discovered source. Forgets the source a day later, or at once if the object is
/// gone, but never before its changes are handled.
fn forget_unreferenced(policy: &Policy, look: &Look, status: &mut Status, now: ServerTime) {
    status.sources.retain_mut(|known| {
        let Some((source, content)) = look.at(policy, &known.name) else { return true };
        if source.origin != Origin::Unreferred {
            known.unreferenced_since = None;
            return true;
        }
        let since = *known.unreferenced_since.get_or_insert(now);
        !known.changes.is_empty() || (content.is_some() && now.since(since) < REMEMBERED_FOR)
    });
}

/// Returns when time alone changes the decision: at the end of the quiet period, whatever else holds a restart, or when
/// a discovered source is forgotten.
pub(crate) fn wakes_at(policy: &Policy, status: &Status, look: &Look, moment: Moment) -> Option<Instant> {
    let quiet_until = quiet_until(policy, status, look, moment).filter(|until| *until > moment.now);
    let since = status.sources.iter().filter_map(|known| known.unreferenced_since);
    // What is over already has been judged.
    let left = since.filter_map(|since| REMEMBERED_FOR.checked_sub(moment.server_now.since(since)));
    let forgets_at = left.filter(|left| !left.is_zero()).map(|left| moment.now + left + A_SECOND);
    quiet_until.into_iter().chain(forgets_at).min()
}

/// Switches to the keys of the spec. Content that is unchanged under the recorded keys is unchanged, so the first
/// content of additional keys is a baseline. Other content is a change. Returns whether there was a baseline of a named
/// source, if there was any baseline.
fn take_keys(policy: &Policy, look: &Look, status: &mut Status) -> Option<bool> {
    let mut basis = None;
    for known in &mut status.sources {
        let Some((source, content)) = look.at(policy, &known.name) else { continue };
        let recorded = content.and_then(|content| Some((content, content.recorded.as_deref()?)));
        match recorded.filter(|(_, (keys, _))| *keys == known.keys) {
            _ if is_about(known, source) => continue,
            None if known.hash.is_some() => continue,
            None => {}
            Some((content, (_, before))) => {
                if known.changes.is_empty() && has_others(&source.keys, &known.keys) {
                    basis = basis.max(Some(source.origin == Origin::Named));
                }
                for hash in known.hashes_mut() {
                    *hash = hash.rekeyed(before, &content.hash);
                }
                known.resource_version.clone_from(&content.version);
            }
        }
        known.keys.clone_from(&source.keys);
    }
    basis
}

/// Returns whether some keys are not among these.
fn has_others(keys: &Keys, of: &Keys) -> bool {
    match (keys, of) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(keys), Some(of)) => !keys.is_subset(of),
    }
}

/// Records the sources, and the first content of each. Returns whether a first content is of a named source, if there
/// is any.
fn record_sources(policy: &Policy, look: &Look, status: &mut Status) -> Option<bool> {
    let mut known = std::mem::take(&mut status.sources);
    let mut basis = None;
    for (source, content) in look.of(policy) {
        let Source { name, keys, .. } = source;
        let place = known.iter().position(|known| known.name == *name);
        if place.is_none() && source.origin == Origin::Unreferred {
            // It has been forgotten.
            continue;
        }
        let new = || SourceStatus { name: name.clone(), keys: keys.clone(), ..SourceStatus::default() };
        let mut entry = place.map_or_else(new, |place| known.remove(place));
        if is_about(&entry, source)
            && let Some(content) = content
            && entry.hash.is_none()
        {
            basis = basis.max(Some(source.origin == Origin::Named));
            (entry.hash, entry.resource_version) = (Some(content.hash.clone()), content.version.clone());
        }
        status.sources.push(entry);
    }
    // Those that may not be watched.
    status.sources.append(&mut known);
    basis
}

fn is_about(known: &SourceStatus, source: &Source) -> bool {
    known.name == source.name && known.keys == source.keys
}

/// Returns when the quiet period of the contents that wait for a restart ends. `None` without such content, or without
/// a quiet period. A reading of this process has an exact time, the status only whole seconds.
pub(crate) fn quiet_until(policy: &Policy, status: &Status, look: &Look, moment: Moment) -> Option<Instant> {
    let period = policy.quiet_period;
    // By a reading, so that the end does not depend on the time of the question.
    let (came, at) = look.newest().map_or((moment.read_at, moment.server_now), |newest| (newest.came, newest.at));
    let passed = |since: ServerTime, wait: Duration| {
        // A time that is further ahead than two clocks differ is that of a clock which was set back since: only the
        // reading counts.
        let due = if since > moment.server_now.plus(SKEW) { at } else { since }.plus(wait + A_SECOND);
        (came + due.since(at)).checked_sub(at.since(due)).unwrap_or(came)
    };
    let of_source = |known: &SourceStatus| {
        let change = known.awaiting()?;
        let found = look.at(policy, &known.name).and_then(|(_, content)| content);
        let own = found.filter(|content| content.at == change.observed_at && content.hash == change.hash);
        Some(own.map_or_else(|| passed(change.observed_at, period), |content| content.came + period))
    };
    let last = status.sources.iter().filter_map(of_source).max().filter(|_| !period.is_zero())?;
    let first = status.restart.as_ref().and_then(|restart| restart.changing_since);
    Some(first.map_or(last, |first| last.min(passed(first, period * MAX_QUIET_PERIODS))))
}

/// Returns what to do about a record that the last look has updated.
pub fn decide(policy: &Policy, status: &Status, look: &Look, request: Option<&Arc<str>>, moment: Moment) -> Decision {
    let missing = look.missing(policy);
    if !missing.is_empty() {
        return Decision::Missing(missing);
    }
    let quiet_until = quiet_until(policy, status, look, moment);
    // Without a source, the first content is to come.
    let request = request.filter(|request| status.is_baselined() && !status.has_handled(request));
    let is_fresh = quiet_until.is_none_or(|until| until <= moment.read_at);
    let is_due = quiet_until.is_none_or(|until| until <= moment.now) && status.awaiting().next().is_some();
    let decision = match policy.suspend {
        true => Decision::Suspended { requested: request.is_some() },
        false if status.restart.is_none() && request.is_none() => Decision::Settled,
        false => go_on(policy, status, quiet_until, request, moment),
    };
    // A change waits for nothing if no pod has other content.
    let counts = is_due && status.begun().is_none() && status.outdated.is_none();
    match decision {
        _ if is_due && !is_fresh => Decision::Read,
        Decision::Suspended { .. } | Decision::Hold(..) if counts => Decision::Count,
        decision => decision,
    }
}

/// Returns what to do about a restart that is pending, requested or under way, and not suspended.
fn go_on(
    policy: &Policy,
    status: &Status,
    quiet_until: Option<Instant>,
    request: Option<&Arc<str>>,
    Moment { read_at, now, server_now }: Moment,
) -> Decision {
    let still_quiet = quiet_until.filter(|until| *until > now);
    if status.begun().is_some() {
        match (still_quiet, status.canary_failure()) {
            (Some(until), _) => return Decision::Quiet(until),
            (None, None) => return Decision::Resume,
            (None, Some(message)) if request.is_none() => return Decision::CanaryFailed(message.to_owned()),
            (None, Some(_)) => {}
        }
    }
    let is_requested = request.is_some() || status.is_requested();
    let gate = may_begin(policy, status, is_requested, server_now).map_err(|hold| {
        let until = hold.until().map(|until| now + until.since(server_now));
        (hold, until)
    });
    match (still_quiet, gate) {
        // Whichever wait is longer is reported.
        (Some(quiet), Err((_, Some(until)))) if until < quiet => Decision::Quiet(quiet),
        (Some(quiet), Ok(_)) => Decision::Quiet(quiet),
        (_, Err((hold, until))) => Decision::Hold(hold, until),
        (None, Ok(since)) => {
            // The server's times are whole seconds.
            let since = since.and_then(|since| now.checked_sub(server_now.since(since) + A_SECOND));
            let due = since.filter(|_| status.awaiting().next().is_some());
            if due.is_some_and(|due| read_at < due) { Decision::Read } else { Decision::Begin(request.cloned()) }
        }
    }
}

#[cfg(test)]
mod tests;
