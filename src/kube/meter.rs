//! What the client reports about its requests and watches, so that somebody can count them.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Counts requests and watches. `()` counts nothing.
pub trait Meter: Send + Sync {
    /// Counts a request whose answer began, or that failed, after this time. `code` is the status code, or `none`.
    fn requested(&self, _verb: &'static str, _resource: String, _code: Cow<'static, str>, _after: Duration) {}

    /// Counts a watch until its pulse is dropped.
    fn watch_opened(&self, _resource: &'static str, _pulse: &Arc<Pulse>) {}

    /// Counts a watch that is opened again or listed again.
    fn watch_restarted(&self, _resource: &'static str, _reason: &'static str) {}
}

impl Meter for () {}

/// The last activity of one watch, in milliseconds since the Unix epoch.
pub struct Pulse(pub(crate) AtomicU64);

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
