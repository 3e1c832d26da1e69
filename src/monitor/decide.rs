//! What a reading of the sources means for the record, and what to do about the record now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::content::{ContentHash, UnknownHash};
use super::hold::{Hold, may_begin};
use super::source::{Contents, Source, SourceName};
use super::spec::Policy;
use super::status::{Begun, Canary, CanaryState, Restart, SourceStatus, Stage, Status, Why};
use crate::kube::{ResourceVersion, ServerTime};

/// A quiet period is extended by further changes, but never to more than so many times its length.
const PATIENCE: u32 = 10;
const A_SECOND: Duration = Duration::from_secs(1);
/// As many sources as the schema takes in a status: those of a spec, and as many that it does not name any more.
const MOST_SOURCES_KNOWN: usize = 32;

/// The sources as last read: in the order of the policy, and none for one that does not exist and is not optional.
#[derive(Clone, Debug, PartialEq)]
pub struct Look(pub Vec<Option<Content>>);

/// The content of a source, at a moment. That it is not there is a content, too, if it is optional.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Its hash.
    pub hash: ContentHash,
    /// The version of the object, if it is there.
    pub version: Option<ResourceVersion>,
    /// The time of the answer that carried it,
    pub at: ServerTime,
    /// and when that came, by the clock that timers go by.
    pub came: Instant,
    /// Whether it is the first reading of this process, so that it may have been there for long.
    pub first: bool,
}

impl Look {
    /// What came last.
    #[must_use]
    pub fn newest(&self) -> Option<&Content> {
        self.0.iter().flatten().max_by_key(|content| content.came)
    }

    /// Whether no source is missing.
    fn is_whole(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    /// The sources that are missing.
    pub(crate) fn missing(&self, policy: &Policy) -> Vec<SourceName> {
        let sources = policy.sources.iter().zip(&self.0).filter(|(_, content)| content.is_none());
        sources.map(|(source, _)| source.name.clone()).collect()
    }
}

/// How long the content of a pending restart has been unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Quiet {
    /// The content, and when it was first read: what is known of one restart says nothing about another.
    content: (Contents, ServerTime),
    first: Instant,
    last: Instant,
    /// When other content was read that could not be written down. If this one is back, the period begins anew when that is read.
    interrupted: Option<Instant>,
    /// A quiet period has passed since the content left what pods had been restarted for, so that pods may have been born with what came
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
    /// The first content of a source, or of other keys of it: pods run with it already.
    Baseline,
    /// Content that pods must be restarted for.
    Modified,
    /// Back to what pods run with, before anything came of it.
    Undone,
    /// Back to what pods had been restarted for, but some may run with what came in between.
    Reverted,
    /// A restart is pending or under way because of a source, or of keys of it, that the spec does not name any more. It goes on.
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
    /// Nothing: these sources do not exist.
    Missing(Vec<SourceName>),
    /// Nothing, until the suspension is lifted.
    Suspended {
        /// Somebody asks for a restart.
        requested: bool,
    },
    /// Wait until then for the content to come to rest.
    Quiet(Instant),
    /// Wait until then, as it is not the time to begin.
    Hold(Hold, Option<Instant>),
    /// Read the sources again: they have been unchanged for long enough as far as the watches have told, and a watch may be silent.
    Read,
    /// Begin the pending restart.
    Begin(Restart),
    /// Go on with the restart that has begun.
    Resume(Restart, Begun),
    /// Nothing, until the content changes or somebody asks for a restart: a pod that went first has failed, for this reason.
    CanaryFailed(String),
}

/// When a decision is made.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// No source was read before this time.
    pub read_at: Instant,
    /// It is this time,
    pub now: Instant,
    /// which is this one to the API server.
    pub server_now: ServerTime,
}

impl Quiet {
    fn begin(contents: &Contents, at: ServerTime, now: Instant, passed: bool) -> Self {
        let content = (contents.clone(), at);
        Self { content, first: now, last: now, interrupted: None, passed, rested: false }
    }

    /// Resumes the quiet period of a pending restart after a crash, counted from when the content was first read: an operator that crashes more often than
    /// the period would never begin otherwise. Both times are whole seconds, so one more may have to pass. A superseded restart had its quiet period.
    fn resume(restart: &Restart, content: &Content, policy: &Policy) -> Self {
        let elapsed = |from| content.at.since(from);
        let known = elapsed(restart.observed_at).saturating_sub(A_SECOND);
        let last = content.came.checked_sub(known).unwrap_or(content.came);
        Self {
            content: (restart.contents.clone(), restart.observed_at),
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
        self.content.0 == restart.contents && self.content.1 == restart.observed_at
    }

    /// When the content has been quiet for long enough.
    fn until(&self, period: Duration) -> Instant {
        (self.last + period).min(self.first + period * PATIENCE)
    }

    /// The content has changed once more, to this.
    fn disturbed(&self, contents: &Contents, at: ServerTime, period: Duration, now: Instant) -> Self {
        let content = (contents.clone(), at);
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
    look: &Look,
    now: Instant,
) -> Result<Observed, UnknownHash> {
    let mut next = status.clone();
    next.source = Some(policy.source());
    let is_retargeted = forget_sources(policy, look, &mut next);
    let baselined = take_in_sources(policy, look, is_retargeted, &mut next);
    // Without one that is there, nothing is known to have changed.
    let Some(newest) = look.newest() else {
        return Ok(Observed { status: next, quiet: quiet.cloned(), finding: Finding::Unchanged });
    };
    let contents = contents(policy, look, &next);
    let Some(restart) = next.restart.as_deref().cloned() else {
        let finding = if !is_recorded(&next, &contents)? {
            next.restart = Some(Box::new(Restart {
                contents: contents.clone(),
                observed_at: newest.at,
                pods_resource_version: None,
                since: left_at(policy, status, look, newest.at),
                since_pods_resource_version: None,
                revert: false,
                request: None,
                stage: Stage::Pending,
            }));
            return Ok(Observed {
                quiet: Some(Quiet::begin(&contents, newest.at, now, false)),
                status: next,
                finding: Finding::Modified,
            });
        } else if baselined {
            next.baseline(newest.at);
            Finding::Baseline
        } else {
            Finding::Unchanged
        };
        return Ok(Observed { status: next, quiet: None, finding });
    };
    let pending = status.restart.as_ref().filter(|restart| restart.begun().is_none());
    let quiet = pending.and_then(|before| {
        let known = quiet.filter(|quiet| quiet.is_about(before)).cloned();
        // While one is missing, what there is of the others says nothing about its period.
        let quiet = known.or_else(|| look.is_whole().then(|| Quiet::resume(before, newest, policy)))?;
        // Its sources may be others by now.
        Some(Quiet { content: (restart.contents.clone(), restart.observed_at), ..quiet })
    });
    if is_retargeted {
        next.give_up_superseded(newest.at);
    }
    let (finding, quiet) = if restart.contents.are(&contents)? {
        let finding = if is_retargeted {
            Finding::Retargeted
        } else if baselined {
            Finding::Baseline
        } else {
            Finding::Unchanged
        };
        (finding, quiet.map(|quiet| quiet.seen(policy.quiet_period, now)))
    } else {
        supersede(policy, quiet, (&contents, newest.at), now, &mut next)?
    };
    Ok(Observed { status: next, quiet, finding })
}

/// Forgets the sources that the spec does not name any more, or of which other keys count: no sooner than all that it names are there, so that nothing
/// is lost by a misspelt name. Returns whether a restart is about one of them. It goes on, and no content can make it needless.
fn forget_sources(policy: &Policy, look: &Look, status: &mut Status) -> bool {
    if !look.is_whole() {
        return false;
    }
    let is_named = |known: &SourceStatus| policy.sources.iter().any(|source| is_about(known, source));
    let (kept, forgotten): (Vec<SourceStatus>, Vec<SourceStatus>) =
        std::mem::take(&mut status.sources).into_iter().partition(is_named);
    status.sources = kept;
    let Some(restart) = &mut status.restart else { return false };
    let mut is_retargeted = false;
    for SourceStatus { name, hash, .. } in forgotten {
        let superseded = match &mut restart.stage {
            Stage::Superseding(superseded) => Some(&mut superseded.contents),
            Stage::Pending | Stage::UnderWay(_) => None,
        };
        for contents in superseded.into_iter().chain([&mut restart.contents]) {
            is_retargeted |= contents.get(&name).is_some_and(|content| Some(content) != hash.as_ref());
            contents.retain(|source| *source != name);
        }
    }
    if is_retargeted {
        // Which content a pod has is unknown from here on. `Status::complete` sets the hashes again.
        status.sources.iter_mut().for_each(|source| source.hash = None);
    }
    is_retargeted
}

/// Takes in which sources there are, and the first content of one that nothing was known of. Returns whether there was one.
fn take_in_sources(policy: &Policy, look: &Look, is_retargeted: bool, status: &mut Status) -> bool {
    let mut known = std::mem::take(&mut status.sources);
    let mut baselined = false;
    for (source, content) in policy.sources.iter().zip(&look.0) {
        let Source { name, keys, .. } = source;
        let mut entry = match known.iter().position(|known| known.name == *name) {
            Some(place) => known.remove(place),
            None => SourceStatus { name: name.clone(), keys: keys.clone(), resource_version: None, hash: None },
        };
        if is_about(&entry, source)
            && let Some(content) = content
        {
            entry.resource_version.clone_from(&content.version);
            let restart = status.restart.as_mut();
            let is_pending = restart.as_ref().is_some_and(|restart| restart.contents.get(name).is_some());
            if entry.hash.is_none() && !is_pending {
                baselined = true;
                entry.hash = (!is_retargeted).then(|| content.hash.clone());
                if let Some(restart) = restart {
                    if let Stage::Superseding(superseded) = &mut restart.stage {
                        superseded.contents.set(name, content.hash.clone());
                    }
                    restart.contents.set(name, content.hash.clone());
                }
            }
        }
        status.sources.push(entry);
    }
    forget_later(known, status);
    baselined
}

/// Keeps what is known of sources that are to be forgotten once all that the spec names are there: as many as a status takes, and those first that a
/// restart is about.
fn forget_later(mut known: Vec<SourceStatus>, status: &mut Status) {
    let wanted = |name: &SourceName| status.restart.as_ref().and_then(|restart| restart.contents.get(name));
    known.retain(|known| known.hash.is_some() || wanted(&known.name).is_some());
    known.sort_by_key(|known| wanted(&known.name).is_none_or(|wanted| Some(wanted) == known.hash.as_ref()));
    known.truncate(MOST_SOURCES_KNOWN.saturating_sub(status.sources.len()));
    status.sources.append(&mut known);
    let Status { sources, restart, .. } = status;
    let Some(restart) = restart else { return };
    let is_known = |name: &SourceName| sources.iter().any(|known| known.name == *name);
    restart.contents.retain(is_known);
    if let Stage::Superseding(superseded) = &mut restart.stage {
        superseded.contents.retain(is_known);
    }
}

fn is_about(known: &SourceStatus, source: &Source) -> bool {
    known.name == source.name && known.keys == source.keys
}

/// The contents that there are. Of a source that is missing nothing new is known.
fn contents(policy: &Policy, look: &Look, status: &Status) -> Contents {
    let mut contents = Contents::default();
    for known in &status.sources {
        let mut sources = policy.sources.iter().zip(&look.0);
        let found = sources.find(|(source, _)| is_about(known, source)).and_then(|(_, content)| content.as_ref());
        let pending = || status.restart.as_ref().and_then(|restart| restart.contents.get(&known.name));
        let hash = found.map(|content| &content.hash).or_else(pending).or(known.hash.as_ref());
        if let Some(hash) = hash {
            contents.set(&known.name, hash.clone());
        }
    }
    contents
}

/// Whether these contents are what pods have been restarted for.
fn is_recorded(status: &Status, contents: &Contents) -> Result<bool, UnknownHash> {
    for known in &status.sources {
        match (&known.hash, contents.get(&known.name)) {
            (Some(hash), Some(content)) if hash.is(content)? => {}
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Other content has come than that of a restart, which it supersedes, unless it is what pods run with or are brought by the restart under way.
fn supersede(
    policy: &Policy,
    quiet: Option<Quiet>,
    (contents, at): (&Contents, ServerTime),
    now: Instant,
    next: &mut Status,
) -> Result<(Finding, Option<Quiet>), UnknownHash> {
    let back = is_recorded(next, contents)?;
    let quiet = match quiet {
        Some(quiet) => quiet.disturbed(contents, at, policy.quiet_period, now),
        None => Quiet::begin(contents, at, now, true),
    };
    if quiet.rested {
        next.give_up_superseded(at);
    }
    let Some(restart) = next.restart.take() else { return Ok((Finding::Unchanged, None)) };
    if let Some(before) = restart.before()
        && before.contents.are(contents)?
    {
        next.restart = Some(Box::new(before));
        return Ok((Finding::Undone, None));
    }
    if back && !quiet.passed {
        return Ok((Finding::Undone, None));
    }
    // All pods are to be restarted for it, also if the content has gone back.
    let request = restart.request.clone().filter(|_| !next.asks_for(&restart));
    let revert = back && request.is_none();
    // Its own list is the first one only if its content was the first to come after what the pods have.
    let own = restart.pods_resource_version.as_ref().filter(|_| restart.since == restart.observed_at);
    let first_list = restart.since_pods_resource_version.as_ref().or(own);
    // Somebody had asked for it, and the content has only left now.
    let is_leaving = !restart.revert && is_recorded(next, &restart.contents)?;
    let (since, first_list) = if is_leaving { (at, None) } else { (restart.since, first_list) };
    next.restart = Some(Box::new(Restart {
        contents: contents.clone(),
        observed_at: at,
        pods_resource_version: None,
        since,
        since_pods_resource_version: first_list.cloned(),
        revert,
        request,
        stage: restart.superseded(),
    }));
    Ok((if back { Finding::Reverted } else { Finding::Modified }, Some(quiet)))
}

/// What to do about a record that is up to the last look, if somebody may ask for a restart.
#[must_use]
pub fn decide(
    policy: &Policy,
    status: &Status,
    look: &Look,
    quiet: Option<&Quiet>,
    request: Option<&Arc<str>>,
    moment: Moment,
) -> Decision {
    let missing = look.missing(policy);
    if !missing.is_empty() {
        return Decision::Missing(missing);
    }
    let known = status.restart.as_deref();
    let request = request.filter(|request| !status.has_handled(request));
    if policy.suspend {
        return Decision::Suspended { requested: request.is_some() };
    }
    let restart = match (known, request) {
        (None, None) => return Decision::Settled,
        (None, Some(request)) => requested(status, request, moment.server_now),
        (Some(restart), request) => match restart.begun() {
            Some(Begun { canary: Some(Canary { state: CanaryState::Failed { message }, .. }), .. }) => match request {
                None => return Decision::CanaryFailed(message.clone()),
                Some(request) => {
                    Restart { stage: restart.superseded(), ..requested_anew(restart, request, moment.server_now) }
                }
            },
            Some(begun) => return Decision::Resume(restart.clone(), begun.clone()),
            // Whoever asks wants all pods restarted, also those that have come since the change.
            None => match request {
                Some(request) => requested_anew(restart, request, moment.server_now),
                None => restart.clone(),
            },
        },
    };
    let Moment { read_at, now, server_now } = moment;
    // Without a change, there is nothing to come to rest.
    let is_change = status.why() != Why::Requested && known.is_some();
    let quiet = quiet.filter(|_| is_change && !policy.quiet_period.is_zero());
    let rests = quiet.map(|quiet| quiet.until(policy.quiet_period));
    let rests = rests.filter(|until| now < *until).map_or(Ok(rests), Err);
    let may_begin = may_begin(policy, status, &restart, server_now);
    let until = |hold: &Hold| hold.until().map(|until| now + until.since(server_now));
    match (rests, may_begin) {
        // What is waited for longest is what is said.
        (Err(rests), Err(hold)) if until(&hold).is_some_and(|until| until < rests) => Decision::Quiet(rests),
        (Err(rests), Ok(_)) => Decision::Quiet(rests),
        (_, Err(hold)) => {
            let until = until(&hold);
            Decision::Hold(hold, until)
        }
        (Ok(rests), Ok(since)) => {
            // The server's times are whole seconds.
            let since = since.and_then(|since| now.checked_sub(server_now.since(since) + A_SECOND));
            match rests.max(since.filter(|_| is_change)) {
                Some(due) if read_at < due => Decision::Read,
                _ => Decision::Begin(restart),
            }
        }
    }
}

/// A restart of pods that run with the content that there is, as somebody asks for it.
fn requested(status: &Status, request: &Arc<str>, now: ServerTime) -> Restart {
    let mut contents = Contents::default();
    for source in &status.sources {
        if let Some(hash) = &source.hash {
            contents.set(&source.name, hash.clone());
        }
    }
    Restart {
        contents,
        observed_at: now,
        pods_resource_version: None,
        since: now,
        since_pods_resource_version: None,
        revert: false,
        request: Some(Arc::clone(request)),
        stage: Stage::Pending,
    }
}

/// The same restart, as somebody asks for it: of all pods that there are now.
fn requested_anew(restart: &Restart, request: &Arc<str>, now: ServerTime) -> Restart {
    Restart {
        observed_at: now,
        pods_resource_version: None,
        revert: false,
        request: Some(Arc::clone(request)),
        ..restart.clone()
    }
}

/// Returns when the content left what pods had been restarted for, at the earliest. If this process did not see it, that is when the condition Reconciling
/// last changed: nothing that is written before a first look changes it. A revert may then restart too many pods, but never too few.
fn left_at(policy: &Policy, status: &Status, look: &Look, at: ServerTime) -> ServerTime {
    let is_changed = |name: &SourceName, content: &Content| {
        status.sources.iter().any(|known| known.name == *name && known.hash.as_ref() != Some(&content.hash))
    };
    let mut found =
        policy.sources.iter().zip(&look.0).filter_map(|(source, content)| Some((source, content.as_ref()?)));
    let is_first = found.any(|(source, content)| content.first && is_changed(&source.name, content));
    let settled = status.conditions.iter().find(|condition| condition.r#type == "Reconciling");
    settled.filter(|_| is_first).map_or(at, |settled| settled.last_transition_time.min(at))
}

#[cfg(test)]
mod tests;
