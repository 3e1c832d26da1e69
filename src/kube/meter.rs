//! What the client reports about its requests and watches, so that somebody can count them.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::Action;

/// Counts requests and watches. `()` counts nothing.
pub trait Meter: Send + Sync {
    /// Counts a request whose answer began, or that was given up, after this time. `code` is the status code, `none`
    /// without an answer, or `canceled`.
    fn requested(&self, _verb: &'static str, _resource: String, _code: Cow<'static, str>, _after: Duration) {}

    /// Counts a watch until its pulse is dropped.
    fn watch_opened(&self, _resource: &'static str, _pulse: &Arc<Pulse>) {}

    /// Counts a watch that is opened again or listed again.
    fn watch_restarted(&self, _resource: &'static str, _reason: &'static str) {}
}

impl Meter for () {}

/// The last activity of one watch, in milliseconds since the Unix epoch.
pub struct Pulse(pub(crate) AtomicU64);

/// A request in flight. Dropping this value reports the request, as canceled without a call of [`Exchange::ended`].
pub(crate) struct Exchange<'a> {
    meter: &'a dyn Meter,
    verb: &'static str,
    resource: String,
    started: Instant,
    code: Cow<'static, str>,
}

impl Pulse {
    /// The pulse of a watch on this resource, which is active now.
    pub(crate) fn of(meter: &dyn Meter, resource: &'static str) -> Arc<Self> {
        let pulse = Arc::new(Self(AtomicU64::default()));
        pulse.beat();
        meter.watch_opened(resource, &pulse);
        pulse
    }

    /// Records activity: a page of a list, an event or a bookmark.
    pub(crate) fn beat(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.store(now.as_millis() as u64, Ordering::Relaxed);
    }
}

impl<'a> Exchange<'a> {
    pub(crate) fn begin(meter: &'a dyn Meter, action: &Action) -> Self {
        let (verb, resource) = (action.verb, action.rule());
        Self { meter, verb, resource, started: Instant::now(), code: "canceled".into() }
    }

    /// Sets the status code of the answer, if there was one.
    pub(crate) fn ended(&mut self, code: Option<u16>) {
        self.code = code.map_or("none".into(), |code| code.to_string().into());
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let (resource, code) = (std::mem::take(&mut self.resource), std::mem::take(&mut self.code));
        self.meter.requested(self.verb, resource, code, self.started.elapsed());
    }
}
