//! What a reading of the sources means for the record, and what to do about the record now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::content::{ContentHash, UnknownHash};
use super::hold::{Hold, may_begin};
use super::source::{Contents, Keys, Origin, Source, SourceName};
use super::spec::Policy;
use super::status::{A_SECOND, Begun, Canary, CanaryState, Change, Request, Restart, SourceStatus, Status, Why};
use crate::kube::{ResourceVersion, ServerTime};

/// Further changes extend a quiet period, but to no more than this many times its length.
const MAX_QUIET_PERIODS: u32 = 10;
/// How long a discovered source to which no pod refers is remembered: when pods come again, an edit meanwhile must show.
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

    /// Returns whether all sources exist that the spec names. A discovered one holds up only the pods that refer to it.
    fn is_whole(&self, policy: &Policy) -> bool {
        self.missing(policy).is_empty()
    }

    /// Returns the sources that the spec names, and that do not exist.
    pub(crate) fn missing(&self, policy: &Policy) -> Vec<SourceName> {
        let named = self.absent(policy).filter(|source| source.origin == Origin::Named);
        named.map(|source| source.name.clone()).collect()
    }

    /// Returns the sources that do not exist: those that the spec names, and those to which pods refer.
    fn absent<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = &'a Source> {
        let each = policy.sources.iter().zip(&self.0);
        let absent = each.filter(|(source, content)| content.is_none() && source.origin != Origin::Unreferred);
        absent.map(|(source, _)| source)
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
    /// The sources whose content has differed since the restart was interrupted, and when the first of these was read.
    /// `None`: nobody knows.
    differed: Option<(ServerTime, BTreeSet<SourceName>)>,
    /// The list of pods right after the content was read that interrupts a restart. The status names it once the
    /// restart has ended.
    pub(crate) listed: Option<ResourceVersion>,
    first: Instant,
    last: Instant,
    /// When other content was read that could not be recorded. If the recorded content is read again, its period begins
    /// anew.
    unrecorded: Option<Instant>,
    /// The sources for which no quiet period has passed since their content left what pods had been restarted for, each
    /// with when its content was read. For another one, pods may have been created with the content in between, so a revert
    /// is not the same as no change.
    fresh: BTreeMap<SourceName, Instant>,
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

/// Of which source there was a first content, or of further keys of it. That of a named one is a new baseline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Basis {
    Discovered,
    Named,
}

impl From<&Source> for Basis {
    fn from(source: &Source) -> Self {
        if source.origin == Origin::Named { Self::Named } else { Self::Discovered }
    }
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
    fn begin(before: &Contents, contents: &Contents, at: ServerTime, now: Instant) -> Self {
        let (content, differed) = ((contents.clone(), at), Some((at, different(before, contents).collect())));
        Self {
            content,
            counts_from: at,
            resumed: false,
            differed,
            listed: None,
            first: now,
            last: now,
            unrecorded: None,
            fresh: BTreeMap::new(),
        }
    }

    /// Resumes the quiet period of another process, given the newest content. It counts from the time in the status, or
    /// an operator that crashes more often than the period would never begin. Times are whole seconds, so one more may
    /// have to pass. A reading from before that time shows nothing.
    fn resume(
        content: (Contents, ServerTime),
        counts_from: ServerTime,
        newest: &Content,
        now: Instant,
        fresh: Vec<&Change>,
    ) -> Self {
        let read = if newest.at < counts_from { now } else { newest.came };
        let since = |at| read.checked_sub(newest.at.since(at).saturating_sub(A_SECOND)).unwrap_or(read);
        let last = since(counts_from);
        Self {
            content,
            counts_from,
            resumed: true,
            differed: None,
            listed: None,
            first: last,
            last,
            unrecorded: None,
            fresh: fresh.into_iter().map(|change| (change.source.clone(), since(change.observed_at))).collect(),
        }
    }

    /// Returns whether this is about the restart in the status.
    pub(crate) fn is_about(&self, status: &Status) -> bool {
        match status.restart.as_deref() {
            Some(Restart { begun: Some(begun), .. }) => begun.interrupted_at == Some(self.counts_from),
            Some(restart) => self.content.0 == status.desired() && self.counts_from == restart.observed_at(),
            None => false,
        }
    }

    pub(crate) fn until(&self, period: Duration) -> Instant {
        (self.last + period).min(self.first + period * MAX_QUIET_PERIODS)
    }

    /// Returns whether this was read within the quiet period of an interruption. The period of another process may end
    /// up to two seconds earlier by the status than by `until`.
    fn includes(&self, reading: &Content, period: Duration) -> bool {
        reading.came < self.until(period) && (!self.resumed || reading.at.since(self.counts_from) < period)
    }

    /// Belongs to this pending restart from now on. The newest of its changes may have been undone.
    fn follow(&mut self, restart: &Restart) {
        self.counts_from = restart.observed_at();
        self.content.1 = self.counts_from;
    }

    /// Extends the quiet period of this pending restart after a further change of the content, which alone is new to it. A
    /// source without a change before has just left.
    fn extended_for(
        &self,
        restart: &Restart,
        contents: &Contents,
        at: ServerTime,
        period: Duration,
        now: Instant,
    ) -> Self {
        let mut extended = self.extended(contents, at, period, now);
        let differed: BTreeSet<SourceName> = different(&self.content.0, contents).collect();
        for source in &differed {
            if restart.change(source).is_none() || extended.fresh.contains_key(source) {
                extended.fresh.insert(source.clone(), now);
            }
        }
        Self { differed: Some((at, differed)), ..extended }
    }

    /// Extends the quiet period after further other content in an interruption.
    fn extended(&self, contents: &Contents, at: ServerTime, period: Duration, now: Instant) -> Self {
        let content = (contents.clone(), at);
        let before = self.with_unrecorded(period, now);
        let differed = self.differed.clone().map(|(since, mut sources)| {
            sources.extend(different(&self.content.0, contents));
            (since, sources)
        });
        Self { content, counts_from: at, resumed: false, differed, listed: None, last: now, unrecorded: None, ..before }
    }

    /// Records that other content was read but could not be recorded in the status. The limit on extensions counts from
    /// the first change, unless content has been unchanged for a period since. Only recorded content can have been
    /// quiet.
    #[must_use]
    pub(crate) fn with_unrecorded(&self, period: Duration, now: Instant) -> Self {
        let changed = self.unrecorded.unwrap_or(self.last);
        let first = if now < changed + period { self.first } else { now };
        let is_fresh = |since: &Instant| self.unrecorded.is_some() || now < (*since + period).min(self.until(period));
        let fresh = self.fresh.iter().filter(|(_, since)| is_fresh(since));
        let fresh = fresh.map(|(source, since)| (source.clone(), *since)).collect();
        let unrecorded = Some(self.unrecorded.unwrap_or(now));
        Self { first, unrecorded, fresh, ..self.clone() }
    }

    /// Takes which sources differed in a step that could not record it.
    #[must_use]
    pub(crate) fn knowing(self, unrecorded: Option<&Self>) -> Self {
        let Some(unrecorded) = unrecorded else { return self };
        let both = self.differed.zip(unrecorded.differed.clone());
        let differed = both.map(|((since, sources), (_, more))| (since, sources.into_iter().chain(more).collect()));
        Self { differed, ..self }
    }

    /// Returns the quiet period after its content was read again.
    fn seen(self, period: Duration, now: Instant) -> Self {
        match self.unrecorded {
            Some(_) => {
                let mut seen = Self { last: now, unrecorded: None, ..self.with_unrecorded(period, now) };
                seen.fresh.values_mut().for_each(|since| *since = now);
                seen
            }
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
    let is_source = |name: &SourceName| is_source(policy, name);
    next.sources.retain(|known| is_source(&known.name));
    // What interrupts a restart may be about any of its sources, so it is cut once that is over.
    if !next.is_interrupted() {
        cut(&mut next, is_source, moment.server_now);
    }
    let mut known = quiet.filter(|quiet| quiet.is_about(status)).cloned();
    let of_keys = take_keys(policy, look, &mut next, known.as_mut())?;
    let baseline = of_keys.max(record_sources(policy, look, &mut next));
    forget_unreferenced(policy, look, &mut next, moment.server_now);
    let (found, mut quiet) = match next.restart.as_deref() {
        None => observe_settled(policy, look, moment, &mut next)?,
        Some(Restart { begun: None, .. }) => observe_pending(policy, known, look, moment, &mut next)?,
        Some(Restart { begun: Some(_), .. }) => observe_under_way(policy, status, known, look, moment, &mut next)?,
    };
    if status.is_interrupted() && !next.is_interrupted() {
        cut(&mut next, is_source, moment.server_now);
        if let Some((quiet, restart)) = quiet.as_mut().zip(next.restart.as_deref()) {
            quiet.follow(restart);
            quiet.content.0 = next.desired();
        }
    }
    record_versions(policy, look, status, &mut next);
    record_origins(policy, &mut next);
    let is_baseline = found == Finding::Unchanged && baseline.is_some();
    let finding = if is_baseline { Finding::Baseline } else { found };
    // What is discovered later says nothing about the other sources.
    let is_basis = baseline == Some(Basis::Named) || !status.is_baselined();
    if let (Finding::Baseline, None, Some(newest)) = (finding, &next.restart, look.newest().filter(|_| is_basis)) {
        next.baseline(newest.at);
    }
    Ok(Observed { status: next, quiet, finding })
}

/// Records the version of each content that was another one at the last look. An edit that leaves the content, such as a
/// heartbeat in an annotation, is not worth a write.
fn record_versions(policy: &Policy, look: &Look, before: &Status, next: &mut Status) {
    let (was, is) = (before.desired(), next.desired());
    let goes_on = before.is_interrupted() && !next.is_interrupted();
    for (Source { name, .. }, content) in policy.sources.iter().zip(&look.0) {
        let entry = next.sources.iter_mut().find(|entry| entry.name == *name);
        let Some((entry, Content { hash, version, .. })) = entry.zip(content.as_ref()) else { continue };
        let is_known = was.get(name) == Some(hash) && is.get(name) == Some(hash);
        if !is_known || goes_on || entry.resource_version.is_some() != version.is_some() {
            entry.resource_version.clone_from(version);
        }
    }
}

/// Records which sources are discovered. A restart that has begun keeps the scope that it began with.
fn record_origins(policy: &Policy, next: &mut Status) {
    let Status { sources, restart, .. } = next;
    let begun = restart.as_ref().filter(|restart| restart.begun.is_some());
    for known in sources.iter_mut().filter(|known| begun.is_none_or(|begun| begun.change(&known.name).is_none())) {
        let source = policy.sources.iter().find(|source| source.name == known.name);
        // What is known and no source may not be watched.
        known.discovered = source.is_none_or(|source| source.origin != Origin::Named);
    }
}

/// Begins a restart if the content is not what pods have been restarted for.
fn observe_settled(policy: &Policy, look: &Look, moment: Moment, next: &mut Status) -> Found {
    let contents = contents(policy, look, next, None);
    // Without an existing source, no change is known.
    let Some(newest) = look.newest() else { return Ok((Finding::Unchanged, None)) };
    if is_recorded(next, &contents)? {
        return Ok((Finding::Unchanged, None));
    }
    let (desired, none, now) = (next.desired(), Restart::default(), moment.now);
    let quiet = Quiet::begin(&desired, &desired, newest.at, now);
    let quiet = quiet.extended_for(&none, &contents, newest.at, policy.quiet_period, now);
    let since = left_at(policy, next, look, newest.at);
    next.restart = Some(Box::new(following(next, &none, &quiet, since)?));
    Ok((Finding::Modified, Some(quiet)))
}

/// Changes a pending restart if there is other content. A source whose content is back before a quiet period has passed
/// is not part of it any more; without any, the restart ends.
fn observe_pending(policy: &Policy, quiet: Option<Quiet>, look: &Look, moment: Moment, next: &mut Status) -> Found {
    let Some(restart) = next.restart.as_deref().cloned() else { return Ok((Finding::Unchanged, quiet)) };
    let (period, now, desired) = (policy.quiet_period, moment.now, next.desired());
    let content = (desired.clone(), restart.observed_at());
    // The spec may have changed the sources of the restart.
    let quiet = quiet.map(|quiet| Quiet { content: content.clone(), counts_from: restart.observed_at(), ..quiet });
    let Some(newest) = look.newest() else { return Ok((Finding::Unchanged, quiet)) };
    let resume = || {
        let is_fresh = |change: &&Change| !next.has_superseded() && newest.at.since(change.since) < period;
        let fresh = restart.changes.iter().filter(is_fresh).collect();
        Quiet::resume(content.clone(), restart.observed_at(), newest, now, fresh)
    };
    // While a source is missing, the readings of the others say nothing about its period.
    let quiet = quiet.or_else(|| look.is_whole(policy).then(resume));
    let contents = contents(policy, look, next, Some(&desired));
    if desired.are(&contents)? {
        // A missing source was not read again. That matters unless pods have been restarted for its content.
        let is_read = desired.are(&self::contents(policy, look, next, None))?;
        let seen = |quiet: Quiet| if is_read { quiet.seen(period, now) } else { quiet };
        return Ok((Finding::Unchanged, quiet.map(seen)));
    }
    let quiet = quiet.unwrap_or_else(|| Quiet::begin(&desired, &desired, newest.at, now));
    let mut extended = quiet.extended_for(&restart, &contents, newest.at, period, now);
    // The other sources had not left by then.
    let left = left_at(policy, next, look, newest.at).max(restart.observed_at().min(newest.at));
    let following = following(next, &restart, &extended, left)?;
    if following.changes.is_empty() && following.request.is_none() {
        next.restart = None;
        return Ok((Finding::Undone, None));
    }
    let is_new = following.changes.iter().any(|change| restart.change(&change.source) != Some(change));
    let finding = if is_new { change(next, &contents)? } else { Finding::Undone };
    extended.follow(&following);
    next.supersede(following, moment.server_now);
    Ok((finding, Some(extended)))
}

/// Interrupts a restart under way if there is other content. The restart goes on if its content comes back within the
/// quiet period. Otherwise it has ended, whatever the content is by then: pods may have been created with other content.
fn observe_under_way(
    policy: &Policy,
    status: &Status,
    quiet: Option<Quiet>,
    look: &Look,
    moment: Moment,
    next: &mut Status,
) -> Found {
    let Some(restart) = next.restart.as_deref().cloned() else { return Ok((Finding::Unchanged, quiet)) };
    let (period, now, desired) = (policy.quiet_period, moment.now, next.desired());
    // An edit of the spec may have added sources.
    let is_known = |source: &SourceStatus| status.sources.iter().any(|known| known.name == source.name);
    let new: Vec<&SourceName> = next.sources.iter().filter(|it| !is_known(it)).map(|source| &source.name).collect();
    let quiet = quiet.map(|mut quiet| {
        quiet.content.0.set_all(desired.iter().filter(|(name, _)| new.contains(name)));
        quiet
    });
    let contents = contents(policy, look, next, Some(quiet.as_ref().map_or(&desired, |quiet| &quiet.content.0)));
    // Of a discovered source that is missing, a process that has not begun the interruption knows nothing.
    let is_one_absent = look.absent(policy).next().is_some();
    let is_unknown = is_one_absent && quiet.as_ref().is_none_or(|quiet| quiet.differed.is_none());
    let is_own = desired.are(&contents)? && !(is_unknown && restart.interrupted_at().is_some());
    // Before another process reads content, it may have left at any time since.
    let began = restart.begun.as_ref().map_or(restart.since(), |begun| begun.started_at);
    let (finding, mut quiet, is_over) = match (restart.interrupted_at(), quiet, look.newest()) {
        (None, _, Some(newest)) if !is_own => {
            let mut quiet = Quiet::begin(&desired, &contents, newest.at, now);
            if is_found_late(policy, next, look) {
                quiet.differed = quiet.differed.map(|(_, sources)| (began, sources));
            }
            (change(next, &contents)?, quiet, period.is_zero())
        }
        (None, ..) => return Ok((Finding::Unchanged, None)),
        (Some(_), Some(quiet), newest) => {
            let until = quiet.until(period);
            // Nothing was read of a missing source.
            let is_again = quiet.unrecorded.is_some() && look.is_whole(policy);
            let is_new = different(&quiet.content.0, &contents).next().is_some() || is_again;
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
                            ..Quiet::resume(content.clone(), content.1, newest, now, Vec::new())
                        },
                        None => Quiet { content, ..quiet },
                    };
                    (Finding::Unchanged, quiet, is_over)
                }
            }
        }
        // A process that has just started does not know what the interruption was about.
        (Some(at), None, Some(newest)) if look.is_whole(policy) => {
            if newest.at.since(at) >= period {
                let quiet = Quiet::begin(&desired, &contents, newest.at, now);
                (change(next, &contents)?, Quiet { differed: None, ..quiet }, true)
            } else if is_own {
                return Ok(go_on(next));
            } else {
                (Finding::Unchanged, Quiet::resume((contents, newest.at), at, newest, now, Vec::new()), false)
            }
        }
        // No source exists, and no pod refers to one.
        (Some(_), None, None) if !is_one_absent => return Ok(go_on(next)),
        (Some(_), None, _) => return Ok((Finding::Unchanged, None)),
    };
    if let Some(begun) = next.restart.as_mut().and_then(|restart| restart.begun.as_mut()) {
        begun.interrupted_at = begun.interrupted_at.filter(|_| is_over).or(Some(quiet.counts_from));
    }
    if is_over {
        let left = quiet.differed.as_ref().map_or(began, |(since, _)| *since);
        let following = following(next, &restart, &quiet, left)?;
        quiet.follow(&following);
        next.supersede(following, moment.server_now);
    }
    Ok((finding, Some(quiet)))
}

fn go_on(next: &mut Status) -> (Finding, Option<Quiet>) {
    next.restart.iter_mut().filter_map(|restart| restart.begun.as_mut()).for_each(Begun::go_on);
    (Finding::Undone, None)
}

fn is_source(policy: &Policy, name: &SourceName) -> bool {
    policy.unwatched.contains(name) || policy.sources.iter().any(|source| source.name == *name)
}

/// Cuts a restart to the sources that the spec still names or discovers: if that leaves any out, it ends, and one for what
/// is left is pending.
fn cut(status: &mut Status, is_source: impl Fn(&SourceName) -> bool, now: ServerTime) {
    let Some(restart) = status.restart.as_deref() else { return };
    let mut next = Restart { begun: None, ..restart.clone() };
    next.changes.retain(|change| is_source(&change.source));
    if next.changes.len() == restart.changes.len() {
        return;
    }
    let is_over = next.changes.is_empty() && next.request.is_none();
    status.supersede(next, now);
    status.restart.take_if(|_| is_over);
}

/// Records since when no pod refers to a discovered source, and forgets the source after a day, or at once if the object
/// is gone, too, but not during a restart for it.
fn forget_unreferenced(policy: &Policy, look: &Look, status: &mut Status, now: ServerTime) {
    let Status { sources, restart, .. } = status;
    let is_changed = |name: &SourceName| restart.as_ref().is_some_and(|restart| restart.change(name).is_some());
    sources.retain_mut(|known| {
        let mut each = policy.sources.iter().zip(&look.0);
        let Some((source, content)) = each.find(|(source, _)| source.name == known.name) else { return true };
        if source.origin != Origin::Unreferred {
            known.unreferenced_since = None;
            return true;
        }
        let since = *known.unreferenced_since.get_or_insert(now);
        is_changed(&known.name) || (content.is_some() && now.since(since) < REMEMBERED_FOR)
    });
}

/// Returns after how long a discovered source is to be forgotten, at the latest.
pub(crate) fn forgets_after(status: &Status, now: ServerTime) -> Option<Duration> {
    let since = status.sources.iter().filter_map(|known| known.unreferenced_since);
    // A step has judged what is over already.
    let left = since.filter_map(|since| REMEMBERED_FOR.checked_sub(now.since(since)));
    left.filter(|left| !left.is_zero()).min().map(|left| left + A_SECOND)
}

/// Goes over to the keys of the spec. Content that is the same under the recorded keys is the same under these: the first
/// content of further keys is a baseline. Other content is a change, whatever it is under the keys of the spec.
///
/// # Errors
/// If a hash in the record cannot be compared.
fn take_keys(
    policy: &Policy,
    look: &Look,
    status: &mut Status,
    mut quiet: Option<&mut Quiet>,
) -> Result<Option<Basis>, UnknownHash> {
    let Status { sources, restart, .. } = status;
    let mut basis = None;
    for known in sources {
        let mut each = policy.sources.iter().zip(&look.0);
        let Some((source, content)) = each.find(|(source, _)| source.name == known.name) else { continue };
        let mut changes = restart.iter_mut().flat_map(|restart| &mut restart.changes);
        let change = changes.find(|change| change.source == known.name).map(|change| &mut change.hash);
        let is_recorded = known.hash.is_some() || change.is_some();
        let recorded = content.as_ref().and_then(|content| Some((content, content.recorded.as_deref()?)));
        match recorded.filter(|(_, (keys, _))| *keys == known.keys) {
            _ if is_about(known, source) => continue,
            None if is_recorded => continue,
            None => {}
            Some((content, (_, before))) => {
                if change.is_none() && known.hash.is_some() && has_others(&source.keys, &known.keys) {
                    basis = basis.max(Some(Basis::from(source)));
                }
                let last = quiet.as_mut().and_then(|quiet| quiet.content.0.get_mut(&known.name));
                // An earlier step has taken the keys, and could not write that.
                let last = last.filter(|last| **last != content.hash);
                for hash in known.hash.iter_mut().chain(change).chain(last) {
                    *hash = hash.rekeyed(before, &content.hash)?;
                }
            }
        }
        known.keys.clone_from(&source.keys);
    }
    Ok(basis)
}

/// Returns whether some keys are not among these.
fn has_others(keys: &Keys, of: &Keys) -> bool {
    match (keys, of) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(keys), Some(of)) => !keys.is_subset(of),
    }
}

/// Records the existing sources, and the first content of each source that had none. Returns of which there was one.
fn record_sources(policy: &Policy, look: &Look, status: &mut Status) -> Option<Basis> {
    let mut known = std::mem::take(&mut status.sources);
    let mut basis = None;
    for (source, content) in policy.sources.iter().zip(&look.0) {
        let Source { name, keys, .. } = source;
        let place = known.iter().position(|known| known.name == *name);
        if place.is_none() && source.origin == Origin::Unreferred {
            // It has been forgotten.
            continue;
        }
        let new = || SourceStatus::new(name.clone(), keys.clone());
        let mut entry = place.map_or_else(new, |place| known.remove(place));
        if is_about(&entry, source)
            && let Some(content) = content
            && entry.hash.is_none()
        {
            basis = basis.max(Some(Basis::from(source)));
            entry.hash = Some(content.hash.clone());
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

/// Returns the sources whose content is not what it was before.
fn different<'a>(before: &'a Contents, contents: &'a Contents) -> impl Iterator<Item = SourceName> + 'a {
    let is_other = |(name, hash): &(&SourceName, &ContentHash)| before.get(name).is_some_and(|known| known != *hash);
    contents.iter().filter(is_other).map(|(name, _)| name.clone())
}

/// Returns the pending restart that follows a restart once other content has been read. Each source that differed gets a
/// list of its own; a change of another one that is not finished keeps its list, so what was replaced is not touched
/// again. `left`: when the content of a source left what pods had been restarted for, if it had not before.
///
/// # Errors
/// If a hash in the record cannot be compared.
fn following(status: &Status, restart: &Restart, quiet: &Quiet, left: ServerTime) -> Result<Restart, UnknownHash> {
    let has_begun = restart.begun.is_some();
    let has_differed = |name: &SourceName| quiet.differed.as_ref().is_none_or(|(_, sources)| sources.contains(name));
    let (contents, observed_at) = &quiet.content;
    let stays = |change: &&Change| !has_differed(&change.source);
    let mut changes: Vec<Change> = restart.changes.iter().filter(stays).cloned().collect();
    for (name, hash) in contents.iter().filter(|(name, _)| has_differed(name)) {
        let revert = status.hash_of(name).map_or(Ok(false), |recorded| recorded.is(hash))?;
        if revert && !has_begun && quiet.fresh.contains_key(name) {
            continue;
        }
        // A restart's own list is the first one only if its content was the first after what pods have.
        let (since, since_pods_resource_version) = restart.change(name).map_or((left, None), |known| {
            let own = known.pods_resource_version.as_ref().filter(|_| known.since == known.observed_at);
            (known.since, known.since_pods_resource_version.as_ref().or(own).cloned())
        });
        changes.push(Change {
            source: name.clone(),
            hash: hash.clone(),
            observed_at: *observed_at,
            pods_resource_version: quiet.listed.clone(),
            since,
            since_pods_resource_version,
            revert,
        });
    }
    // The request of a restart that has begun is for all pods, so the next restart takes it over.
    let request = restart.request.clone().filter(|request| has_begun || request.taken_over);
    Ok(Restart { changes, request: request.map(|request| Request { taken_over: true, ..request }), begun: None })
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
    let known = status.restart.as_deref();
    let Moment { read_at, now, server_now } = moment;
    let is_interrupted = status.is_interrupted();
    // A process that has just started cannot tell what interrupted the restart until one of the sources exists.
    let missing = match is_interrupted && quiet.is_none() && look.newest().is_none() {
        true => look.absent(policy).map(|source| source.name.clone()).collect(),
        false => look.missing(policy),
    };
    let interruption = interruption(policy, status, quiet);
    if interruption.is_some_and(|until| until <= now) {
        return Decision::Read;
    }
    if !missing.is_empty() {
        return Decision::Missing(missing);
    }
    // Without a source, the first content is to come.
    let request = request.filter(|request| status.is_baselined() && !status.has_handled(request));
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
        (Some(restart), None) => restart.clone(),
        (_, Some(request)) => requested(status, request, server_now),
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
/// changes.
fn requested(status: &Status, value: &Arc<str>, now: ServerTime) -> Restart {
    let changes = status.restart.as_ref().map(|restart| restart.changes.clone()).unwrap_or_default();
    let request =
        Request { value: Arc::clone(value), taken_over: false, observed_at: now, pods_resource_version: None };
    Restart { changes, request: Some(request), begun: None }
}

/// Returns the earliest time when the content may have left what pods had been restarted for. If this process did not
/// see the change, that is when the condition Reconciling last changed: nothing written before a first look changes it.
/// A revert may then restart too many pods, but never too few.
fn left_at(policy: &Policy, status: &Status, look: &Look, at: ServerTime) -> ServerTime {
    let settled = status.conditions.iter().find(|condition| condition.r#type == "Reconciling");
    let settled = settled.filter(|_| is_found_late(policy, status, look));
    settled.map_or(at, |settled| settled.last_transition_time.min(at))
}

/// Returns whether the first reading of this process has found other content than pods have, or are restarted for.
fn is_found_late(policy: &Policy, status: &Status, look: &Look) -> bool {
    let desired = status.desired();
    let is_other = |source: &Source, hash| desired.get(&source.name).is_some_and(|known| known != hash);
    let mut found =
        policy.sources.iter().zip(&look.0).filter_map(|(source, content)| Some((source, content.as_ref()?)));
    found.any(|(source, content)| content.first && is_other(source, &content.hash))
}

#[cfg(test)]
mod tests;
