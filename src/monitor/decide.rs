//! What a reading of the sources means for the record, and what to do about the record now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::content::{ContentHash, UnknownHash};
use super::hold::{Hold, may_begin};
use super::source::{Contents, Source, SourceName};
use super::spec::{PodScope, Policy};
use super::status::{Begun, Canary, CanaryState, Restart, SourceStatus, Status, Why};
use crate::kube::{ResourceVersion, ServerTime};

/// Further changes extend a quiet period, but to no more than this many times its length.
const MAX_QUIET_PERIODS: u32 = 10;
const A_SECOND: Duration = Duration::from_secs(1);
/// The maximum number of sources in a status, as in the schema: those of a spec, and as many that the spec no longer
/// names.
const MAX_KNOWN_SOURCES: usize = 32;

/// The sources as last read, in the order of the policy. `None` for a source that does not exist and is not optional.
#[derive(Clone, Debug, PartialEq)]
pub struct Look(pub Vec<Option<Content>>);

/// The content of a source when it was read. The absence of an optional source is a content, too.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The hash of the content.
    pub hash: ContentHash,
    /// The version of the object, if it exists.
    pub version: Option<ResourceVersion>,
    /// The API server's time in the answer.
    pub at: ServerTime,
    /// When the answer came, by the clock of timers.
    pub came: Instant,
    /// Whether this is the first reading of this process, so that the content may have existed for long.
    pub first: bool,
}

impl Look {
    pub(crate) fn newest(&self) -> Option<&Content> {
        self.0.iter().flatten().max_by_key(|content| content.came)
    }

    fn is_whole(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    pub(crate) fn missing(&self, policy: &Policy) -> Vec<SourceName> {
        let sources = policy.sources.iter().zip(&self.0).filter(|(_, content)| content.is_none());
        sources.map(|(source, _)| source.name.clone()).collect()
    }
}

/// How long content has been unchanged that a restart is pending for, or that interrupts a restart under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Quiet {
    /// The content, and when it was first read.
    pub(crate) content: (Contents, ServerTime),
    /// From when the period counts by the status: `observedAt` of a pending restart, or `interruptedAt`. Together with
    /// the content it identifies a pending restart, by itself an interruption: the period of one says nothing about
    /// another.
    counts_from: ServerTime,
    /// Another process has begun the period, so that only the status says when.
    resumed: bool,
    /// The list of pods right after the content was read that interrupts a restart. The status names it once the
    /// restart has ended.
    pub(crate) listed: Option<ResourceVersion>,
    first: Instant,
    last: Instant,
    /// When other content was read that could not be recorded. If the recorded content is read again, its period begins
    /// anew.
    unrecorded: Option<Instant>,
    /// Whether a quiet period has passed since the content left what pods had been restarted for. Pods may have been
    /// created with the content in between, so a revert is no longer the same as no change.
    passed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Unchanged,
    /// The first content of a source, or of other keys of it. Pods are assumed to run with it.
    Baseline,
    /// Content that pods must be restarted for.
    Modified,
    /// A revert before other content had any effect: to what pods run with, or to the content of the interrupted
    /// restart.
    Undone,
    /// A revert to what pods had been restarted for. Some pods may run with the content in between.
    Reverted,
    /// The spec no longer names a source, or keys of it, that a restart is about. The restart goes on.
    Retargeted,
}

/// The record after a reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The desired status.
    pub status: Status,
    /// The quiet period, while a restart is pending or interrupted.
    pub quiet: Option<Quiet>,
    pub(crate) finding: Finding,
}

type Found = Result<(Finding, Option<Quiet>), UnknownHash>;

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
    /// Wait until this time, when the content will have been quiet for long enough.
    Quiet(Instant),
    /// Wait until this time, if it is known: a restart may not begin yet.
    Hold(Hold, Option<Instant>),
    /// Read the sources again. By the watches they have been quiet for long enough, but a watch may have stalled.
    Read,
    /// Begin the pending restart.
    Begin(Restart),
    /// Resume the restart that has begun.
    Resume,
    /// Nothing, until the content changes or a restart is requested: the canary has failed for this reason.
    CanaryFailed(String),
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

impl Quiet {
    fn begin(contents: &Contents, at: ServerTime, now: Instant, passed: bool) -> Self {
        let (content, last) = ((contents.clone(), at), now);
        Self { content, counts_from: at, resumed: false, listed: None, first: now, last, unrecorded: None, passed }
    }

    /// Resumes the quiet period of another process, given the newest content. It counts from the time in the status, or
    /// an operator that crashes more often than the period would never begin. Times are whole seconds, so one more may
    /// have to pass. A reading from before that time shows nothing.
    fn resume(
        content: (Contents, ServerTime),
        counts_from: ServerTime,
        newest: &Content,
        now: Instant,
        passed: bool,
    ) -> Self {
        let known = newest.at.since(counts_from).saturating_sub(A_SECOND);
        let read = if newest.at < counts_from { now } else { newest.came };
        let last = read.checked_sub(known).unwrap_or(read);
        Self { content, counts_from, resumed: true, listed: None, first: last, last, unrecorded: None, passed }
    }

    pub(crate) fn is_about(&self, restart: &Restart) -> bool {
        match &restart.begun {
            Some(begun) => begun.interrupted_at == Some(self.counts_from),
            None => self.content.0 == restart.contents && self.counts_from == restart.observed_at,
        }
    }

    /// Returns the pending restart for this content.
    pub(crate) fn follow(&self, restart: &Restart) -> Restart {
        let ((contents, observed_at), pods_resource_version) = (self.content.clone(), self.listed.clone());
        Restart { contents, observed_at, pods_resource_version, begun: None, ..restart.clone() }
    }

    pub(crate) fn until(&self, period: Duration) -> Instant {
        (self.last + period).min(self.first + period * MAX_QUIET_PERIODS)
    }

    /// Returns whether this was read within the quiet period of an interruption. The period of another process may end
    /// up to two seconds earlier by the status than by `until`.
    fn includes(&self, reading: &Content, period: Duration) -> bool {
        reading.came < self.until(period) && (!self.resumed || reading.at.since(self.counts_from) < period)
    }

    /// Extends the quiet period after a further change of the content.
    fn extended(&self, contents: &Contents, at: ServerTime, period: Duration, now: Instant) -> Self {
        let content = (contents.clone(), at);
        let before = self.with_unrecorded(period, now);
        Self { content, counts_from: at, resumed: false, listed: None, last: now, unrecorded: None, ..before }
    }

    /// Records that other content was read but could not be recorded in the status. The limit on extensions counts from
    /// the first change, unless content has been unchanged for a period since. Only recorded content can have been
    /// quiet.
    #[must_use]
    pub(crate) fn with_unrecorded(&self, period: Duration, now: Instant) -> Self {
        let changed = self.unrecorded.unwrap_or(self.last);
        let first = if now < changed + period { self.first } else { now };
        let has_passed = self.unrecorded.is_none() && now >= self.until(period);
        let unrecorded = Some(self.unrecorded.unwrap_or(now));
        Self { first, unrecorded, passed: self.passed || has_passed, ..self.clone() }
    }

    /// Returns the quiet period after its content was read again.
    fn seen(self, period: Duration, now: Instant) -> Self {
        match self.unrecorded {
            Some(_) => Self { last: now, unrecorded: None, ..self.with_unrecorded(period, now) },
            None => self,
        }
    }
}

/// Updates a record to what was read.
///
/// # Errors
/// If a hash in the record cannot be compared. The record must then be left as it is.
pub fn observe(
    policy: &Policy,
    status: &Status,
    quiet: Option<&Quiet>,
    look: &Look,
    moment: Moment,
) -> Result<Observed, UnknownHash> {
    let mut next = status.clone();
    next.source = Some(policy.source());
    let is_retargeted = forget_sources(policy, look, &mut next);
    let baselined = record_sources(policy, look, is_retargeted, &mut next);
    let known = quiet.filter(|quiet| status.restart.as_deref().is_some_and(|restart| quiet.is_about(restart))).cloned();
    let (found, quiet) = match next.restart.as_deref() {
        None => observe_settled(policy, status, look, moment, &mut next)?,
        Some(Restart { begun: None, .. }) => observe_pending(policy, known, look, moment, &mut next)?,
        Some(Restart { begun: Some(_), .. }) => observe_under_way(policy, known, look, moment, &mut next)?,
    };
    let finding = match found {
        Finding::Unchanged | Finding::Undone if is_retargeted => Finding::Retargeted,
        Finding::Unchanged if baselined => Finding::Baseline,
        found => found,
    };
    if let (Finding::Baseline, None, Some(newest)) = (finding, &next.restart, look.newest()) {
        next.baseline(newest.at);
    }
    Ok(Observed { status: next, quiet, finding })
}

/// Begins a restart if the content is not what pods have been restarted for.
fn observe_settled(policy: &Policy, status: &Status, look: &Look, moment: Moment, next: &mut Status) -> Found {
    let contents = contents(policy, look, next, None);
    // Without an existing source, no change is known.
    let Some(newest) = look.newest() else { return Ok((Finding::Unchanged, None)) };
    if is_recorded(next, &contents)? {
        return Ok((Finding::Unchanged, None));
    }
    let quiet = Quiet::begin(&contents, newest.at, moment.now, false);
    let referring_to = (policy.pod_scope == PodScope::Referring).then(|| next.changed(&contents));
    next.restart = Some(Box::new(Restart {
        contents,
        observed_at: newest.at,
        pods_resource_version: None,
        since: left_at(policy, status, look, newest.at),
        since_pods_resource_version: None,
        revert: false,
        request: None,
        request_taken_over: false,
        referring_to,
        begun: None,
    }));
    Ok((Finding::Modified, Some(quiet)))
}

/// Replaces the content of a pending restart if there is other content. A revert before a quiet period has passed ends
/// the restart.
fn observe_pending(policy: &Policy, quiet: Option<Quiet>, look: &Look, moment: Moment, next: &mut Status) -> Found {
    let (Some(restart), Some(newest)) = (next.restart.as_deref().cloned(), look.newest()) else {
        return Ok((Finding::Unchanged, quiet));
    };
    let (period, now) = (policy.quiet_period, moment.now);
    let content = (restart.contents.clone(), restart.observed_at);
    let resume = || {
        let passed = next.has_superseded() || newest.at.since(restart.since) >= period;
        Quiet::resume(content.clone(), restart.observed_at, newest, now, passed)
    };
    // While a source is missing, the readings of the others say nothing about its period.
    let quiet = quiet.or_else(|| look.is_whole().then(resume));
    // The spec may have changed the sources of the restart.
    let quiet = quiet.map(|quiet| Quiet { content, ..quiet });
    let contents = contents(policy, look, next, Some(&restart.contents));
    if restart.contents.are(&contents)? {
        // A missing source was not read again. That matters unless pods have been restarted for its content.
        let is_read = restart.contents.are(&self::contents(policy, look, next, None))?;
        let seen = |quiet: Quiet| if is_read { quiet.seen(period, now) } else { quiet };
        return Ok((Finding::Unchanged, quiet.map(seen)));
    }
    let finding = change(next, &contents)?;
    let quiet = match quiet {
        Some(quiet) => quiet.extended(&contents, newest.at, period, now),
        None => Quiet::begin(&contents, newest.at, now, true),
    };
    if finding == Finding::Reverted && !quiet.passed {
        next.restart = None;
        return Ok((Finding::Undone, None));
    }
    supersede(policy, &quiet, moment, next)?;
    Ok((finding, Some(quiet)))
}

/// Interrupts a restart under way if there is other content. The restart goes on if its content comes back within the
/// quiet period. Otherwise it has ended, whatever the content is by then: pods may have been created with other content.
fn observe_under_way(policy: &Policy, quiet: Option<Quiet>, look: &Look, moment: Moment, next: &mut Status) -> Found {
    let Some(restart) = next.restart.as_deref().cloned() else { return Ok((Finding::Unchanged, quiet)) };
    let (period, now) = (policy.quiet_period, moment.now);
    let contents =
        contents(policy, look, next, Some(quiet.as_ref().map_or(&restart.contents, |quiet| &quiet.content.0)));
    let is_own = restart.contents.are(&contents)?;
    let (finding, mut quiet, is_over) = match (restart.interrupted_at(), quiet, look.newest()) {
        (None, _, Some(newest)) if !is_own => {
            (change(next, &contents)?, Quiet::begin(&contents, newest.at, now, true), period.is_zero())
        }
        (None, ..) => return Ok((Finding::Unchanged, None)),
        (Some(_), Some(quiet), newest) => {
            let until = quiet.until(period);
            // An edit of the spec may have added or removed sources.
            let is_other = |(name, hash)| quiet.content.0.get(name).is_some_and(|known| known != hash);
            // Nothing was read of a missing source.
            let is_again = quiet.unrecorded.is_some() && look.is_whole();
            let is_new = contents.iter().any(is_other) || is_again;
            match newest.filter(|_| is_new || is_own) {
                Some(newest) if is_own && quiet.includes(newest, period) => return Ok(go_on(next)),
                Some(newest) => {
                    let is_over = is_own || now >= until;
                    (change(next, &contents)?, quiet.extended(&contents, newest.at, period, now), is_over)
                }
                None => {
                    let content = (contents, quiet.content.1);
                    // A watch may have stalled.
                    let is_over = moment.read_at >= until;
                    let quiet = match newest.filter(|_| is_over && quiet.resumed) {
                        // Another process has begun the interruption, perhaps with yet other content.
                        Some(newest) => Quiet {
                            listed: quiet.listed,
                            ..Quiet::resume(content.clone(), content.1, newest, now, true)
                        },
                        None => Quiet { content, ..quiet },
                    };
                    (Finding::Unchanged, quiet, is_over)
                }
            }
        }
        // A process that has just started does not know what the interruption was about.
        (Some(at), None, Some(newest)) if look.is_whole() => {
            if newest.at.since(at) >= period {
                (change(next, &contents)?, Quiet::begin(&contents, newest.at, now, true), true)
            } else if is_own {
                return Ok(go_on(next));
            } else {
                (Finding::Unchanged, Quiet::resume((contents, newest.at), at, newest, now, true), false)
            }
        }
        (Some(_), None, _) => return Ok((Finding::Unchanged, None)),
    };
    if let Some(begun) = next.restart.as_mut().and_then(|restart| restart.begun.as_mut()) {
        begun.interrupted_at = begun.interrupted_at.filter(|_| is_over).or(Some(quiet.counts_from));
    }
    if is_over {
        quiet.counts_from = quiet.content.1;
        supersede(policy, &quiet, moment, next)?;
    }
    Ok((finding, Some(quiet)))
}

fn go_on(next: &mut Status) -> (Finding, Option<Quiet>) {
    next.restart.iter_mut().filter_map(|restart| restart.begun.as_mut()).for_each(Begun::go_on);
    (Finding::Undone, None)
}

/// Forgets the sources that the spec no longer names, or whose keys it has changed, but not before all sources of the
/// spec exist: a misspelt name must lose nothing. Returns whether a restart is about a forgotten source. That restart
/// goes on whatever the content.
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
        is_retargeted |= restart.contents.get(&name).is_some_and(|content| Some(content) != hash.as_ref());
        restart.contents.retain(|source| *source != name);
    }
    if is_retargeted {
        // From here on it is unknown which content a pod has. `Status::complete` sets the hashes again.
        status.sources.iter_mut().for_each(|source| source.hash = None);
    }
    is_retargeted
}

/// Records the existing sources, and the first content of each source that had none. Returns whether there was a first
/// content.
fn record_sources(policy: &Policy, look: &Look, is_retargeted: bool, status: &mut Status) -> bool {
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
                    restart.contents.set(name, content.hash.clone());
                }
            }
        }
        status.sources.push(entry);
    }
    forget_later(known, status);
    baselined
}

/// Keeps the sources to be forgotten once all sources of the spec exist: as many as fit into a status, and those first
/// that a restart is about.
fn forget_later(mut known: Vec<SourceStatus>, status: &mut Status) {
    let pending = |name: &SourceName| status.restart.as_ref().and_then(|restart| restart.contents.get(name));
    known.retain(|known| known.hash.is_some() || pending(&known.name).is_some());
    known.sort_by_key(|known| pending(&known.name).is_none_or(|pending| Some(pending) == known.hash.as_ref()));
    known.truncate(MAX_KNOWN_SOURCES.saturating_sub(status.sources.len()));
    // What the restart is about changes, and the order must not.
    known.sort_by(|one, other| one.name.cmp(&other.name));
    status.sources.append(&mut known);
    let Status { sources, restart, .. } = status;
    let Some(restart) = restart else { return };
    restart.contents.retain(|name| sources.iter().any(|known| known.name == *name));
}

fn is_about(known: &SourceStatus, source: &Source) -> bool {
    known.name == source.name && known.keys == source.keys
}

/// Returns the current contents. A missing source has its last known content: that in `last`, or what pods have been
/// restarted for.
fn contents(policy: &Policy, look: &Look, status: &Status, last: Option<&Contents>) -> Contents {
    let mut contents = Contents::default();
    for known in &status.sources {
        let mut sources = policy.sources.iter().zip(&look.0);
        let found = sources.find(|(source, _)| is_about(known, source)).and_then(|(_, content)| content.as_ref());
        let last = || last.and_then(|last| last.get(&known.name));
        if let Some(hash) = found.map(|content| &content.hash).or_else(last).or(known.hash.as_ref()) {
            contents.set(&known.name, hash.clone());
        }
    }
    contents
}

/// Returns whether these contents are what pods have been restarted for.
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

/// Returns the finding about other content than that of a restart.
fn change(status: &Status, contents: &Contents) -> Result<Finding, UnknownHash> {
    Ok(if is_recorded(status, contents)? { Finding::Reverted } else { Finding::Modified })
}

/// Puts a pending restart for other content in the place of a restart.
fn supersede(policy: &Policy, quiet: &Quiet, moment: Moment, next: &mut Status) -> Result<(), UnknownHash> {
    let Some(restart) = next.restart.as_deref() else { return Ok(()) };
    // The request of a restart that has begun is for all pods, so the next restart takes it over, and is no revert.
    let request = restart.request.clone().filter(|_| restart.begun.is_some() || restart.request_taken_over);
    let request_taken_over = request.is_some();
    let revert = request.is_none() && is_recorded(next, &quiet.content.0)?;
    // The restart's own list is the first one only if its content was the first after what pods have.
    let own = restart.pods_resource_version.as_ref().filter(|_| restart.since == restart.observed_at);
    let first_list = restart.since_pods_resource_version.as_ref().or(own).cloned();
    // The restart was requested without a change, and its content changes only now.
    let is_leaving = !restart.revert && is_recorded(next, &restart.contents)?;
    let (since, since_pods_resource_version) = match is_leaving {
        true => (restart.interrupted_at().unwrap_or(quiet.content.1), None),
        false => (restart.since, first_list),
    };
    let referring_to = referring_to(policy, restart, &quiet.content.0);
    let following = Restart {
        since,
        since_pods_resource_version,
        revert,
        request,
        request_taken_over,
        referring_to,
        ..quiet.follow(restart)
    };
    next.supersede(following, moment.server_now);
    Ok(())
}

/// Returns the sources of which a pod must refer to one, for a restart with these contents that follows another one. There
/// is one list of pods for all of them, so what had changed before counts, too. Nobody knows what has interrupted a
/// restart that has begun. One that follows a restart for all pods is for all pods.
fn referring_to(policy: &Policy, before: &Restart, contents: &Contents) -> Option<Vec<SourceName>> {
    let former = before.referring_to.as_ref().filter(|_| policy.pod_scope == PodScope::Referring)?;
    let is_new = |(name, hash): &(&SourceName, &ContentHash)| before.contents.get(name) != Some(*hash);
    let changed: Vec<SourceName> = match before.begun {
        None => contents.iter().filter(is_new).map(|(name, _)| name.clone()).collect(),
        Some(_) => policy.sources.iter().map(|source| source.name.clone()).collect(),
    };
    let all: BTreeSet<SourceName> = changed.into_iter().chain(former.iter().cloned()).collect();
    Some(all.into_iter().collect()).filter(|all: &Vec<SourceName>| all.len() <= MAX_KNOWN_SOURCES)
}

/// Returns what to do about a record that the last look has updated.
pub fn decide(
    policy: &Policy,
    status: &Status,
    look: &Look,
    quiet: Option<&Quiet>,
    request: Option<&Arc<str>>,
    moment: Moment,
) -> Decision {
    let (missing, known) = (look.missing(policy), status.restart.as_deref());
    let Moment { read_at, now, server_now } = moment;
    let interruption = interruption(policy, status, quiet);
    if interruption.is_some_and(|until| until <= now) {
        return Decision::Read;
    }
    if !missing.is_empty() {
        return Decision::Missing(missing);
    }
    let request = request.filter(|request| !status.has_handled(request));
    if policy.suspend {
        return Decision::Suspended { requested: request.is_some() };
    }
    if let Some(until) = interruption {
        return Decision::Quiet(until);
    }
    if let Some(restart) = known
        && let Some(begun) = &restart.begun
    {
        match &begun.canary {
            Some(Canary { state: CanaryState::Failed { message }, .. }) if request.is_none() => {
                return Decision::CanaryFailed(message.clone());
            }
            Some(Canary { state: CanaryState::Failed { .. }, .. }) => {}
            _ => return Decision::Resume,
        }
    }
    let restart = match (known, request) {
        (None, None) => return Decision::Settled,
        (Some(restart), None) => {
            // The scope may have been edited since.
            let is_scoped = policy.pod_scope == PodScope::Referring && restart.request.is_none();
            Restart { referring_to: restart.referring_to.clone().filter(|_| is_scoped), ..restart.clone() }
        }
        (_, Some(request)) => requested(policy, status, look, request, server_now),
    };
    // Only a change has a quiet period.
    let is_change = status.why() != Why::Requested && known.is_some();
    let quiet = quiet.filter(|_| is_change && !policy.quiet_period.is_zero());
    let quiet_until = quiet.map(|quiet| quiet.until(policy.quiet_period));
    let quiet_until = quiet_until.filter(|until| now < *until).map_or(Ok(quiet_until), Err);
    let gate = may_begin(policy, status, &restart, server_now).map_err(|hold| {
        let until = hold.until().map(|until| now + until.since(server_now));
        (hold, until)
    });
    match (quiet_until, gate) {
        // Whichever wait is longer is reported.
        (Err(quiet), Err((_, Some(until)))) if until < quiet => Decision::Quiet(quiet),
        (Err(quiet), Ok(_)) => Decision::Quiet(quiet),
        (_, Err((hold, until))) => Decision::Hold(hold, until),
        (Ok(quiet_until), Ok(since)) => {
            // The server's times are whole seconds.
            let since = since.and_then(|since| now.checked_sub(server_now.since(since) + A_SECOND));
            match quiet_until.max(since.filter(|_| is_change)) {
                Some(due) if read_at < due => Decision::Read,
                _ => Decision::Begin(restart),
            }
        }
    }
}

/// Returns when the interruption of the restart under way ends, if there is one, whatever else holds the restart.
pub(crate) fn interruption(policy: &Policy, status: &Status, quiet: Option<&Quiet>) -> Option<Instant> {
    status.restart.as_deref()?.interrupted_at()?;
    Some(quiet?.until(policy.quiet_period))
}

/// Returns the requested restart of all existing pods. It takes the place of the restart in the status, and has its
/// content.
fn requested(policy: &Policy, status: &Status, look: &Look, request: &Arc<str>, now: ServerTime) -> Restart {
    let known = status.restart.as_deref();
    Restart {
        contents: known.map_or_else(|| contents(policy, look, status, None), |known| known.contents.clone()),
        observed_at: now,
        pods_resource_version: None,
        since: known.map_or(now, |known| known.since),
        since_pods_resource_version: known.and_then(|known| known.since_pods_resource_version.clone()),
        revert: false,
        request: Some(Arc::clone(request)),
        request_taken_over: false,
        referring_to: None,
        begun: None,
    }
}

/// Returns the earliest time when the content may have left what pods had been restarted for. If this process did not
/// see the change, that is when the condition Reconciling last changed: nothing written before a first look changes it.
/// A revert may then restart too many pods, but never too few.
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
