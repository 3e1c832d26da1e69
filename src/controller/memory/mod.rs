//! What a keeper knows, and every rule about what of it is out of date: the ConfigMonitor as last read or written, the ConfigMap as last read, and
//! how long that has been unchanged.

mod reading;
mod record;

use std::time::{Duration, Instant};

use self::reading::Reading;
use self::record::Record;
use super::clock::timer_now;
use super::context::Context;
use super::goal::Goal;
use super::shared::{InSource, fetch};
use crate::kube::ResourceVersion;
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Identity;
use crate::monitor::ConfigMonitor;
use crate::monitor::decide::{Finding, Look, Quiet};
use crate::monitor::report::{Situation, report};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Restart, Status};

/// That the ConfigMap has another version, and nothing else is new, is written at most so often.
const VERSION_EVERY: Duration = Duration::from_secs(10);

/// What a keeper knows.
#[derive(Default)]
pub(crate) struct Memory {
    /// The ConfigMonitor as last read or written. None if it must be read: it has not been yet, or was not found, or a write of its status has
    /// failed, so that nobody knows what stands.
    record: Option<Record>,
    /// The generation of the ConfigMonitor when it was last read.
    generation: i64,
    /// The ConfigMap as last read.
    reading: Option<Reading>,
    /// It must be read again, at this time or later, whatever the doorbell says.
    doubtful: Option<Instant>,
    /// Which version of it the status last named.
    noted: Option<ResourceVersion>,
    /// The version of the ConfigMonitor in the last list that was heard of.
    listed: Option<ResourceVersion>,
    /// When nothing but another version of the ConfigMap was last written.
    version_written: Option<Instant>,
    quiet: Option<Quiet>,
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
        let noted = record.as_ref().and_then(|record| record.status.source_resource_version.clone());
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
    pub(crate) fn remembers(&self, restart: &Restart) -> bool {
        self.status().is_some_and(|status| status.restart.as_deref() == Some(restart))
    }

    /// Whether a restart is in the status, as far as is known.
    pub(crate) fn is_restarting(&self) -> bool {
        self.status().is_none_or(|status| status.restart.is_some())
    }

    /// The record for a step towards this goal, read again if it is known to be out of date; none when the ConfigMonitor is gone.
    pub(crate) async fn record(&mut self, context: &Context, goal: &Goal) -> Result<Option<&Record>, Error> {
        let relisted = self.listed != goal.listed;
        self.listed.clone_from(&goal.listed);
        let is_current = |record: &Record| {
            let metadata = &record.monitor.metadata;
            let edited = metadata.generation != goal.generation;
            let cleared = record.status.is_baselined() && !goal.baselined;
            // As after the store was restored from a backup, with a status from before.
            let another = relisted && goal.listed.as_ref().is_some_and(|listed| *listed != metadata.resource_version);
            !edited && !cleared && !another
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
        let named = record.status.source_resource_version.clone();
        let noted = std::mem::replace(&mut self.noted, named.clone());
        let disputed =
            named != noted && self.reading.as_ref().is_some_and(|reading| reading.is_disputed(named.as_ref()));
        // The source may have been another one and back; and what is to be a baseline must be what is there now.
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
        let status = self.settle(context, status, situation).await?;
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
        let version = || record.status.source_resource_version.clone();
        if is_new && (Status { source_resource_version: version(), ..status.clone() }) == record.status {
            // An annotation that changes again and again is worth no write each time.
            let now = timer_now();
            if self.version_written.is_some_and(|written| now < written + VERSION_EVERY) {
                return Ok(self.record.insert(record).status.clone());
            }
            self.version_written = Some(now);
        }
        if is_new {
            record = record.replace_status(&context.client, &status).await?;
        }
        self.noted = record.status.source_resource_version.clone();
        context.publish(notice.as_slice(), self.identity()).await;
        Ok(self.record.insert(record).status.clone())
    }

    /// When the version of the ConfigMap, if it is another one than in the status that stands, may be written.
    pub(crate) fn version_due(&self, stands: &Status, version: Option<&ResourceVersion>) -> Option<Instant> {
        let unwritten = self.version_written.filter(|_| stands.source_resource_version.as_ref() != version);
        unwritten.map(|written| written + VERSION_EVERY)
    }

    /// The ConfigMap must be read by a GET that begins at this time or later.
    pub(crate) fn doubt(&mut self, from: Instant) {
        self.doubtful = self.doubtful.max(Some(from));
    }

    /// Nothing is looked at for a while, so that the next look is a first one.
    pub(crate) fn forget_reading(&mut self) {
        self.reading = None;
    }

    /// The ConfigMap: read if the doorbell says that it is not as last read, or if that is in doubt.
    pub(crate) async fn look(
        &mut self,
        context: &Context,
        policy: &Policy,
        goal: &Goal,
        interest: Option<&InSource>,
    ) -> Result<Look, Error> {
        // The index may not have heard yet that the spec names this one. Its doorbell is that of another one then.
        let doorbell = (goal.source.as_deref() == Some(&*policy.config_map)).then(|| goal.doorbell.clone());
        if let Some(reading) = self.reading.as_mut().filter(|reading| reading.source == policy.source())
            && self.doubtful.is_none()
            && doorbell.as_ref().is_none_or(|doorbell| reading.covers(doorbell))
        {
            reading.heard = doorbell.or(reading.heard.take());
            return Ok(reading.look.clone());
        }
        // Until it is read, however often that fails.
        let rung = goal.rung.filter(|_| doorbell.is_some());
        let not_before = *self.doubtful.insert(rung.max(self.doubtful).unwrap_or_else(timer_now));
        let fetch = fetch(&context.client, &policy.config_map);
        let fetched = match interest.filter(|interest| **interest.about() == *policy.config_map) {
            Some(interest) => interest.ask(context.client.stop(), not_before, fetch).await,
            None => fetch.await,
        }?;
        self.doubtful = None;
        let reading = Reading::of(policy, &fetched, not_before, self.reading.as_ref(), doorbell);
        Ok(self.reading.insert(reading).look.clone())
    }

    /// When the content that there is was first read.
    pub(crate) fn content_came(&self) -> Instant {
        match self.reading.as_ref().map(|reading| &reading.look) {
            Some(Look::Found(content)) => content.came,
            Some(Look::Missing) | None => timer_now(),
        }
    }

    /// Which ConfigMap was read, for Events about it.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.reading.as_ref().and_then(|reading| reading.identity.as_ref())
    }

    /// Which keys of the spec the ConfigMap lacks, for a person, if it lacks any.
    pub(crate) fn missing_keys(&self) -> Option<&str> {
        self.reading.as_ref().and_then(|reading| reading.missing_keys.as_deref())
    }

    /// Whether what pods run with, and what they are being restarted for, is recorded as it is in this status.
    pub(crate) fn has_recorded(&self, status: &Status) -> bool {
        let is_it = |known: &Status| known.source == status.source && known.config_hash == status.config_hash;
        self.status().is_some_and(|known| is_it(known) && known.restart == status.restart)
    }

    /// Whether a finding about the last reading is told now, which is once, and whether the ConfigMap has taken the place of an immutable one.
    pub(crate) fn announce(&mut self, finding: Finding) -> Option<bool> {
        let reading = self.reading.as_mut().filter(|reading| finding != Finding::Unchanged && !reading.is_announced)?;
        reading.is_announced = true;
        Some(finding == Finding::Modified && reading.replaces_immutable)
    }

    /// When the ConfigMap was last read.
    pub(crate) fn read_at(&self) -> Option<Instant> {
        self.reading.as_ref().map(|reading| reading.read_at)
    }

    /// The quiet period as last known.
    pub(crate) fn quiet(&self) -> Option<&Quiet> {
        self.quiet.as_ref()
    }

    /// Remembers the quiet period that a step has ended with.
    pub(crate) fn keep_quiet(&mut self, quiet: Option<Quiet>) {
        self.quiet = quiet;
    }

    /// Remembers the quiet period of a step that is to be made again, if it is about the restart in the status.
    pub(crate) fn keep_quiet_of_restart(&mut self, quiet: Option<Quiet>) {
        let restart = self.status().and_then(|status| status.restart.as_deref());
        if quiet.as_ref().zip(restart).is_some_and(|(quiet, restart)| quiet.is_about(restart)) {
            self.quiet = quiet;
        }
    }
}
