//! What a keeper knows, and every rule about what of it is out of date: the ConfigMonitor as last read or written, its sources as last read, and
//! how long these have been unchanged.

mod reading;
mod record;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use self::reading::Reading;
use self::record::Record;
use super::clock::timer_now;
use super::context::Context;
use super::latest::{Doorbell, Latest};
use super::shared::{InSource, fetch};
use crate::kube::ResourceVersion;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Identity;
use crate::monitor::ConfigMonitor;
use crate::monitor::decide::{Content, Finding, Look, Quiet};
use crate::monitor::report::{Situation, report};
use crate::monitor::source::{Source, SourceName};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Outcome, Restart, Status};

/// A new version of a source, with nothing else new, is written at most this often: leader election by annotation makes one every 2 s.
const VERSION_EVERY: Duration = Duration::from_secs(10);

/// What a keeper knows.
#[derive(Default)]
pub(crate) struct Memory {
    /// The ConfigMonitor as last read or written. None if it must be read: it has not been yet, or was not found, or a write of its status has
    /// failed, so that nobody knows what stands.
    record: Option<Record>,
    /// The generation of the ConfigMonitor when it was last read.
    generation: i64,
    /// The sources as last read, in the order of the spec.
    readings: Box<[Reading]>,
    /// They must be read again, at this time or later, whatever the doorbells say.
    doubtful: Option<Instant>,
    /// Which versions of them the status last named.
    noted: Vec<Option<ResourceVersion>>,
    /// The version of the ConfigMonitor in the last list that was heard of.
    listed: Option<ResourceVersion>,
    /// When nothing but another version of a source was last written.
    version_written: Option<Instant>,
    /// Boxed, as most have none.
    quiet: Option<Box<Quiet>>,
}

/// What a ConfigMonitor is found to be when it is read once more before pods are deleted for it.
pub(crate) enum Verdict {
    /// As it was when that was decided.
    Confirmed(Confirmed),
    /// Something else. Everything must be decided again.
    Changed,
    /// Gone.
    Gone,
}

/// The proof that the ConfigMonitor wants pods to be deleted as a pass is about to: the intent was written after they were listed, or the
/// ConfigMonitor was read after that, and says the same. Nothing else makes one.
pub(crate) struct Confirmed {
    generation: i64,
}

impl Confirmed {
    /// The generation of the spec that wants it.
    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }
}

impl Memory {
    /// That of a keeper that knows its ConfigMonitor from a list or a watch.
    pub(crate) fn of(monitor: ConfigMonitor) -> Self {
        let generation = monitor.metadata.generation;
        let record = Record::of(monitor).ok();
        let noted = record.as_ref().map(|record| record.status.versions()).unwrap_or_default();
        let mut memory = Self { record, generation, noted, ..Self::default() };
        // Any keeper's GET that begins from now on is fresh enough.
        memory.doubt(timer_now());
        memory
    }

    /// The generation of the ConfigMonitor when it was last read.
    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }

    /// The status that stands, if it is known.
    pub(crate) fn status(&self) -> Option<&Status> {
        self.record.as_ref().map(|record| &record.status)
    }

    /// Whether this restart is in the status.
    pub(crate) fn has_restart(&self, restart: &Restart) -> bool {
        self.status().is_some_and(|status| status.restart.as_deref() == Some(restart))
    }

    /// The request for a restart that the ConfigMonitor has.
    pub(crate) fn request(&self) -> Option<Arc<str>> {
        self.record.as_ref()?.monitor.metadata.annotations.restart_requested_at.clone()
    }

    /// Whether that request is still to be handled, as far as is known.
    pub(crate) fn is_requested(&self) -> bool {
        self.status().zip(self.request()).is_some_and(|(status, request)| !status.has_handled(&request))
    }

    /// Who last wrote those sources whose content is not what pods have been restarted for, for a person, as far as that was kept.
    pub(crate) fn writers(&self, status: &Status) -> Vec<String> {
        let changed = status.restart.as_ref().map(|restart| status.changed(&restart.contents)).unwrap_or_default();
        let readings = self.readings.iter().filter(|reading| changed.contains(&reading.source.name));
        readings.filter_map(|reading| reading.writer.as_deref().map(str::to_owned)).collect()
    }

    /// Whether a restart is in the status, as far as is known.
    pub(crate) fn is_restarting(&self) -> bool {
        self.status().is_none_or(|status| status.restart.is_some())
    }

    /// The record for a step towards this latest, read again if it is known to be out of date; none when the ConfigMonitor is gone.
    pub(crate) async fn record(&mut self, context: &Context, latest: &Latest) -> Result<Option<&Record>, Error> {
        let relisted = self.listed != latest.listed;
        self.listed.clone_from(&latest.listed);
        let is_current = |record: &Record| {
            let metadata = &record.monitor.metadata;
            let edited = metadata.generation != latest.generation;
            let cleared = record.status.is_baselined() && !latest.baselined;
            // As after the store was restored from a backup, with a status from before.
            let another = relisted && latest.listed.as_ref().is_some_and(|listed| *listed != metadata.resource_version);
            let requested = metadata.annotations.restart_requested_at != latest.request;
            !edited && !cleared && !requested && !another
        };
        if !self.record.as_ref().is_some_and(is_current) {
            self.record = None;
            self.record = self.read(context).await?;
        }
        Ok(self.record.as_ref())
    }

    /// Reads the ConfigMonitor; none when it is gone.
    async fn read(&mut self, context: &Context) -> Result<Option<Record>, Error> {
        let record = match Record::read(&context.client, &context.name).await {
            Ok(record) if record.monitor.metadata.uid == context.uid => record,
            Ok(_) => return Ok(None),
            Err(error) if error.cause.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let generation = std::mem::replace(&mut self.generation, record.monitor.metadata.generation);
        let noted = std::mem::replace(&mut self.noted, record.status.versions());
        let is_disputed = |reading: &Reading| reading.is_disputed(record.status.version_of(&reading.source.name));
        let disputed = self.noted != noted && self.readings.iter().any(is_disputed);
        // The sources may have been others and back; and what is to be a baseline must be what is there now.
        if generation != self.generation || disputed || !record.status.is_baselined() {
            self.doubt(timer_now());
        }
        Ok(Some(record))
    }

    /// Reads the ConfigMonitor once more, before pods are deleted for it.
    pub(crate) async fn confirm(&mut self, context: &Context) -> Result<Verdict, Error> {
        let now = self.read(context).await?;
        let before = std::mem::replace(&mut self.record, now);
        Ok(match (before, &self.record) {
            (_, None) => Verdict::Gone,
            (Some(before), Some(now)) if before.says_the_same(now) => {
                Verdict::Confirmed(Confirmed { generation: self.generation })
            }
            _ => Verdict::Changed,
        })
    }

    /// Writes down that pods are about to be deleted, which have been listed. With another spec by now, that is a conflict.
    pub(crate) async fn intend(
        &mut self,
        context: &Context,
        status: Status,
        situation: &Situation<'_>,
    ) -> Result<(Status, Confirmed), Error> {
        // What decides whether pods are deleted twice, or too early.
        let essence = |status: &Status| {
            let restart = status.restart.as_deref()?;
            Some((restart.request.clone(), restart.begun()?.canary.clone()))
        };
        let (intent, before) = (essence(&status), self.status().and_then(|status| status.restart.clone()));
        let status = self.settle(context, status, situation).await?;
        // An older schema may have dropped it, or that somebody has asked for it.
        if essence(&status) != intent {
            if status.restart.is_some() {
                self.settle(context, Status { restart: before, ..status }, situation).await?;
            }
            let cause = Cause::Invalid("the API server has not stored the restart".to_owned());
            return Err(Error { request: "write the status".to_owned(), cause });
        }
        Ok((status, Confirmed { generation: self.generation }))
    }

    /// Sets the conditions, writes the status if it differs from the one that stands, and tells what is new. Gives back the status that stands
    /// then.
    pub(crate) async fn settle(
        &mut self,
        context: &Context,
        mut status: Status,
        situation: &Situation<'_>,
    ) -> Result<Status, Error> {
        // The record is put back once the write has succeeded: if it fails, the outcome is unknown. Without a record, the conflict makes
        // the keeper read it again.
        let Some(mut record) = self.record.take() else {
            let cause = Cause::Conflict("it must be read first".to_owned());
            return Err(Error { request: "write the status".to_owned(), cause });
        };
        let generation = record.monitor.metadata.generation;
        let notice = report(situation, &mut status, generation, context.client.server_now());
        let is_new = status != record.status;
        if is_new && status.is_same_but_for_versions(&record.status) {
            // An annotation that changes again and again is worth no write each time.
            let now = timer_now();
            if self.version_written.is_some_and(|written| now < written + VERSION_EVERY) {
                return Ok(self.record.insert(record).status.clone());
            }
            self.version_written = Some(now);
        }
        if is_new {
            let ended = status.ended_since(&record.status).cloned();
            record = record.replace_status(&context.client, &status).await.inspect_err(|error| {
                if matches!(error.cause, Cause::Conflict(_)) {
                    context.client.metrics().status_conflict();
                }
            })?;
            if let Some(ended) = ended {
                context.tally.restart_over(ended.result.as_str(), ended.completed_at.since(ended.started_at));
                if ended.result == Outcome::Completed {
                    context.tally.pods_skipped(status.skipped);
                }
            }
        }
        self.noted = record.status.versions();
        context.publish(notice.as_slice(), &self.identities()).await;
        Ok(self.record.insert(record).status.clone())
    }

    /// When the versions of the sources, if they are others than in the status that stands, may be written.
    pub(crate) fn versions_due(&self, stands: &Status, versions: &[Option<ResourceVersion>]) -> Option<Instant> {
        let unwritten = self.version_written.filter(|_| stands.versions() != versions);
        unwritten.map(|written| written + VERSION_EVERY)
    }

    /// The sources must be read by a GET that begins at this time or later.
    pub(crate) fn doubt(&mut self, from: Instant) {
        self.doubtful = self.doubtful.max(Some(from));
    }

    /// Nothing is looked at for a while, so that the next look is a first one.
    pub(crate) fn forget_readings(&mut self) {
        self.readings = Box::default();
    }

    /// The sources: each is read if its doorbell says that it is not as last read, or if that is in doubt.
    ///
    /// # Errors
    /// That of one that could not be read. What was read of the others is not read again for that.
    pub(crate) async fn look(
        &mut self,
        context: &Context,
        policy: &Policy,
        latest: &Latest,
        interest: &[InSource],
    ) -> Result<Look, Error> {
        let mut known = std::mem::take(&mut self.readings).into_vec();
        let now = timer_now();
        // Those that are read need nobody to go on.
        let mut reads = Vec::new();
        for source in &policy.sources {
            let before =
                known.iter().position(|reading| reading.source == *source).map(|place| known.swap_remove(place));
            reads.push(self.look_at(context, source, latest, interest, before, now));
        }
        let read = join_all(reads).await;
        let mut failure = None;
        let readings = read.into_iter().filter_map(|(reading, error)| {
            failure = failure.take().or(error);
            reading
        });
        self.readings = readings.collect();
        match failure {
            Some(error) => Err(error),
            None => Ok(Look(self.readings.iter().map(|reading| reading.content.clone()).collect())),
        }
    }

    /// A source, given what was read of it before: as that, or as it is read now. If it cannot be read, what was read before, and why.
    async fn look_at(
        &self,
        context: &Context,
        source: &Source,
        latest: &Latest,
        interest: &[InSource],
        before: Option<Reading>,
        now: Instant,
    ) -> (Option<Reading>, Option<Error>) {
        // The index may not have heard yet that the spec names this one.
        let bell = latest.bell(&source.name);
        let is_covered = |reading: &Reading| {
            self.doubtful.is_none_or(|from| reading.read_at >= from)
                && bell.is_none_or(|bell| reading.covers(&bell.doorbell))
        };
        let doorbell = bell.map(|bell| bell.doorbell.clone());
        if before.as_ref().is_some_and(is_covered) {
            let mut reading = before;
            if let (Some(reading), Some(_)) = (&mut reading, &doorbell) {
                reading.heard = doorbell;
            }
            return (reading, None);
        }
        if let Some(Doorbell::Refused(error)) = &doorbell {
            return (before, Some((**error).clone()));
        }
        let not_before = bell.and_then(|bell| bell.rung).max(self.doubtful).unwrap_or(now);
        let fetch = fetch(&context.client, &source.name);
        let fetched = match interest.iter().find(|interest| *interest.about() == source.name) {
            Some(interest) => interest.ask(context.client.stop(), not_before, fetch).await,
            None => fetch.await,
        };
        match fetched {
            Ok(fetched) => {
                let is_of_interest = self.status().is_some_and(|status| status.restart_back_off_seconds.is_some());
                let mut reading = Reading::of(source, &fetched, not_before, before, doorbell);
                if is_of_interest {
                    reading.note_writer(&fetched);
                }
                (Some(reading), None)
            }
            Err(error) => (before, Some(error)),
        }
    }

    /// When the newest of the contents that there are was first read.
    pub(crate) fn content_came(&self) -> Instant {
        let contents = self.readings.iter().filter_map(|reading| reading.content.as_ref());
        contents.map(|content: &Content| content.came).max().unwrap_or_else(timer_now)
    }

    /// Whether any of the sources is there.
    pub(crate) fn has_found_any(&self) -> bool {
        self.readings.iter().any(|reading| reading.content.is_some())
    }

    /// Which objects were read, for Events about them.
    pub(crate) fn identities(&self) -> Vec<(&SourceName, &Identity)> {
        let identities = self.readings.iter().map(|reading| Some((&reading.source.name, reading.identity.as_ref()?)));
        identities.flatten().collect()
    }

    /// Which keys of the spec the sources lack, for a person, if they lack any.
    pub(crate) fn missing_keys(&self) -> Option<String> {
        let missing: Vec<&str> = self.readings.iter().filter_map(|reading| reading.missing_keys.as_deref()).collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    /// Whether what pods run with, and what they are being restarted for, is recorded as it is in this status.
    pub(crate) fn has_recorded(&self, status: &Status) -> bool {
        let is_it = |known: &Status| known.restart == status.restart && known.recorded().eq(status.recorded());
        self.status().is_some_and(is_it)
    }

    /// Whether a finding about the last readings is told now, which is once, and which of the sources that have changed have taken the place of an immutable
    /// one.
    pub(crate) fn announce(&mut self, finding: Finding, changed: &[SourceName]) -> Option<Vec<SourceName>> {
        let mut told = None;
        for reading in self.readings.iter_mut().filter(|reading| finding != Finding::Unchanged && !reading.is_announced)
        {
            reading.is_announced = true;
            let replaced: &mut Vec<SourceName> = told.get_or_insert_default();
            if finding == Finding::Modified && reading.replaces_immutable && changed.contains(&reading.source.name) {
                replaced.push(reading.source.name.clone());
            }
        }
        told
    }

    /// The time than which no reading is older.
    pub(crate) fn read_at(&self) -> Option<Instant> {
        self.readings.iter().map(|reading| reading.read_at).min()
    }

    /// The quiet period as last known.
    pub(crate) fn quiet(&self) -> Option<&Quiet> {
        self.quiet.as_deref()
    }

    /// Remembers the quiet period that a step has ended with.
    pub(crate) fn keep_quiet(&mut self, quiet: Option<Quiet>) {
        self.quiet = quiet.map(Box::new);
    }

    /// Remembers the quiet period of a step that is to be made again, if it is about the restart in the status.
    pub(crate) fn keep_quiet_of_restart(&mut self, quiet: Option<Quiet>) {
        let restart = self.status().and_then(|status| status.restart.as_deref());
        if quiet.as_ref().zip(restart).is_some_and(|(quiet, restart)| quiet.is_about(restart)) {
            self.quiet = quiet.map(Box::new);
        }
    }
}
