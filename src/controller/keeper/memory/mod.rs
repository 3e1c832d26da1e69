//! What a keeper knows, and the rules that say when it is stale: the ConfigMonitor as last read or written, and its sources
//! as last read.

mod reading;
mod record;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use self::reading::Reading;
use self::record::Record;
use crate::controller::clock::timer_now;
use crate::controller::keeper::context::Context;
use crate::controller::latest::Latest;
use crate::controller::shared::{KeySets, fetch};
use crate::kube::error::Error;
use crate::kube::{ResourceVersion, Uid};
use crate::monitor::ConfigMonitor;
use crate::monitor::content::Kind;
use crate::monitor::decide::{Content, Look};
use crate::monitor::source::{Origin, Source, SourceName};
use crate::monitor::spec::Policy;
use crate::monitor::status::Status;

/// How many sources a keeper reads at once: such a read takes 4 KB, and a ConfigMonitor may discover 128 sources.
const MOST_LOOKS: usize = 16;

#[derive(Default)]
pub(crate) struct Memory {
    /// The ConfigMonitor as last read or written. `None` if it must be read: after the start, after 404, or after a
    /// failed write of the status, whose outcome is unknown.
    record: Option<Record>,
    /// The sources as last read, in the order of the spec.
    readings: Box<[Reading]>,
    /// The sources must be read at this time or later, whatever the doorbells say.
    read_from: Option<Instant>,
    /// The version of the ConfigMonitor in the last list.
    listed: Option<ResourceVersion>,
    /// A source is gone. The next list of pods shows whether pods still refer to it.
    pub(super) awaits_pods: bool,
}

/// The outcome of reading the ConfigMonitor again before pods are deleted.
pub(crate) enum Confirmation {
    /// Spec and status are as they were when the deletion was decided.
    Confirmed(Confirmed),
    /// Spec or status differ. Everything must be decided again.
    Changed,
    Gone,
}

/// The proof that pods may be deleted. After these pods were listed, either the intent was written, or the
/// ConfigMonitor was read and is unchanged. Nothing else makes a `Confirmed`.
pub(crate) struct Confirmed {
    generation: i64,
}

impl Confirmed {
    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }
}

impl Memory {
    /// Creates the memory of a keeper whose ConfigMonitor comes from a list or a watch.
    pub(crate) fn of(monitor: ConfigMonitor) -> Self {
        // A GET by any keeper that begins from now on is fresh enough.
        Self { record: Record::of(monitor).ok(), read_from: Some(timer_now()), ..Self::default() }
    }

    /// Returns the generation of the ConfigMonitor as last read, or 0 if it must be read.
    pub(crate) fn generation(&self) -> i64 {
        self.record.as_ref().map_or(0, |record| record.generation)
    }

    pub(crate) fn status(&self) -> Option<&Status> {
        self.record.as_ref().map(|record| &record.status)
    }

    pub(crate) fn request(&self) -> Option<Arc<str>> {
        self.record.as_ref()?.request.clone()
    }

    /// Returns whether the request has not been handled yet.
    pub(crate) fn is_requested(&self) -> bool {
        self.status().zip(self.request()).is_some_and(|(status, request)| !status.has_handled(&request))
    }

    /// Returns, for a message, who last wrote the sources with changed content.
    pub(crate) fn writers(&self, status: &Status) -> Vec<String> {
        let changed = status.changed();
        let readings = self.readings.iter().filter(|reading| changed.contains(&reading.source.name));
        readings.filter_map(|reading| reading.writer.as_deref().map(str::to_owned)).collect()
    }

    /// Reads the record again if it is stale. Returns `None` if the ConfigMonitor is deleted.
    pub(crate) async fn record(&mut self, context: &Context, latest: &Latest) -> Result<Option<&Record>, Error> {
        let relisted = self.listed != latest.listed;
        self.listed.clone_from(&latest.listed);
        let version = self.record.as_ref().map(|record| &record.version);
        // As after a restore from backup with an earlier status.
        let another = relisted && latest.listed.as_ref().is_some_and(|listed| Some(listed) != version);
        let is_current = |record: &Record| {
            let edited = record.generation != latest.generation;
            let cleared = record.status.is_baselined() && !latest.baselined;
            let requested = record.request != latest.request;
            !edited && !cleared && !requested && !another
        };
        if !self.record.as_ref().is_some_and(is_current) {
            self.record = None;
            let record = self.read(context).await?;
            self.record = record;
            // Another process may have read versions that this one has not, the spec may have named other sources in
            // between, and a baseline must be the current content.
            self.require_read_from(timer_now());
        }
        Ok(self.record.as_ref())
    }

    pub(crate) async fn confirm(&mut self, context: &Context) -> Result<Confirmation, Error> {
        let Some(now) = self.read(context).await? else {
            self.record = None;
            return Ok(Confirmation::Gone);
        };
        let is_same = self.record.as_ref().is_some_and(|before| before.has_same_spec_and_status(&now));
        self.record = Some(now);
        if is_same {
            return Ok(Confirmation::Confirmed(Confirmed { generation: self.generation() }));
        }
        self.require_read_from(timer_now());
        Ok(Confirmation::Changed)
    }

    /// `None` if the ConfigMonitor is deleted.
    async fn read(&self, context: &Context) -> Result<Option<Record>, Error> {
        match Record::read(context).await {
            Err(error) if error.cause.is_not_found() => Ok(None),
            read => read,
        }
    }

    /// Requires that the sources are read by a GET that begins at this time or later.
    pub(crate) fn require_read_from(&mut self, from: Instant) {
        self.read_from = self.read_from.max(Some(from));
    }

    /// Drops the readings: until the next look anything may happen, as in a crash.
    pub(crate) fn forget_readings(&mut self) {
        self.readings = Box::default();
    }

    /// Reads each source whose doorbell names another version than the last one read, or that must be read again.
    ///
    /// # Errors
    /// The first failure. The sources that were read are not read again for it.
    pub(crate) async fn look(&mut self, context: &Context, policy: &Policy, latest: &Latest) -> Result<Look, Error> {
        let mut earlier = std::mem::take(&mut self.readings).into_vec();
        let now = timer_now();
        let mut before = |source: &Source| {
            let place = earlier.iter().position(|reading| reading.source.reads_like(source))?;
            let mut reading = earlier.swap_remove(place);
            reading.source.origin = source.origin;
            Some(reading)
        };
        let mut read = Vec::new();
        for sources in policy.sources.chunks(MOST_LOOKS) {
            let looks = sources.iter().map(|source| self.look_at(context, source, latest, before(source), now));
            read.extend(join_all(looks).await);
        }
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

    /// Returns the reading of a source: the earlier one if it is current, otherwise a new one. If the GET fails,
    /// returns the earlier one and the error.
    async fn look_at(
        &self,
        context: &Context,
        source: &Source,
        latest: &Latest,
        before: Option<Reading>,
        now: Instant,
    ) -> (Option<Reading>, Option<Error>) {
        let refused = latest.no_config_maps.as_deref().filter(|_| source.name.kind == Kind::ConfigMap);
        if let Some(error) = refused {
            return (before, Some(error.clone()));
        }
        // `None` if the index does not know yet that the spec names this source.
        let bell = latest.bell(&source.name);
        let known = self.status().and_then(|status| status.source(&source.name));
        let recorded = known.filter(|known| known.hash.is_some()).map(|known| &known.keys);
        let recorded = recorded.filter(|recorded| **recorded != source.keys);
        let is_covered = |reading: &Reading| {
            reading.is_comparable(recorded)
                && self.read_from.is_none_or(|from| reading.read_at >= from)
                && bell.is_none_or(|bell| reading.covers(bell))
        };
        if before.as_ref().is_some_and(is_covered) {
            let mut reading = before;
            if let (Some(reading), Some(bell)) = (&mut reading, bell) {
                reading.bell = Some(Arc::clone(bell));
            }
            return (reading, None);
        }
        let not_before = bell.and_then(|bell| bell.rung).max(self.read_from).unwrap_or(now);
        let interest = context.shared.sources.interest(&source.name);
        let part = KeySets { keys: source.keys.clone(), recorded: recorded.cloned() };
        let fetch = |_| fetch(&context.client, &source.name, &part);
        match interest.ask(context.client.stop(), not_before, &part, fetch).await {
            Ok(fetched) => {
                let bell = bell.map(Arc::clone);
                let last = known.and_then(|known| known.last());
                (Some(Reading::of(source, (recorded, last), &fetched, not_before, before, bell)), None)
            }
            Err(error) => (before, Some(error)),
        }
    }

    /// Returns when the newest of the current contents was first read.
    pub(crate) fn content_came(&self) -> Instant {
        let contents = self.readings.iter().filter_map(|reading| reading.content.as_ref());
        contents.map(|content: &Content| content.came).max().unwrap_or_else(timer_now)
    }

    /// Returns the discovered sources that do not exist, although pods refer to them: these pods would not start again.
    pub(crate) fn missing_discovered(&self) -> BTreeSet<SourceName> {
        let is_missing = |reading: &&Reading| reading.content.is_none() && reading.source.origin == Origin::Referred;
        self.readings.iter().filter(is_missing).map(|reading| reading.source.name.clone()).collect()
    }

    /// Returns the UIDs of the sources that exist.
    pub(crate) fn uids(&self) -> Vec<(&SourceName, &Uid)> {
        let uids = self.readings.iter().filter_map(|reading| Some((&reading.source.name, reading.uid.as_ref()?)));
        uids.collect()
    }

    pub(crate) fn missing_keys(&self) -> Option<String> {
        let missing: Vec<&str> = self.readings.iter().filter_map(|reading| reading.missing_keys.as_deref()).collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    /// Returns whether the journals and the restart are stored as they are in this status.
    pub(crate) fn has_recorded(&self, status: &Status) -> bool {
        self.status().is_some_and(|stored| stored.has_recorded(status))
    }

    /// Marks what was read as announced. Returns whether some of it was not.
    pub(crate) fn announce(&mut self) -> bool {
        let is_news = self.readings.iter().any(|reading| !reading.is_announced);
        self.readings.iter_mut().for_each(|reading| reading.is_announced = true);
        is_news
    }

    pub(crate) fn read_at(&self) -> Option<Instant> {
        self.readings.iter().map(|reading| reading.read_at).min()
    }
}
