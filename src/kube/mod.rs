//! Kubernetes over plain HTTP: the small part of the API that an operator behind `kubectl proxy` needs.
//!
//! This module knows nothing of what its callers make of the objects.

pub(crate) mod backoff;
pub mod client;
pub mod error;
pub(crate) mod faults;
pub mod labels;
mod lines;
pub mod list;
pub mod meter;
pub(crate) mod names;
pub mod objects;
pub mod references;
pub mod transport;
pub(crate) mod unlisted;
pub mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The identity of an object. An object of the same name that is created later has another one. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(Arc<str>);

/// The version of an object or of a list. Cheap to clone.
///
/// Has no order: the API promises equality only, and etcd counts backwards after a restore.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceVersion(Arc<str>);

/// A time on the API server's clock, in whole seconds, as in `creationTimestamp` and the `Date` header.
///
/// The operator's own clock may be wrong, so durations within the process are measured with `Instant`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTime(i64);

/// A resource of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The group and version as in `apiVersion`: `v1`, `apps/v1`.
    pub api_version: &'static str,
    /// The kind: `Pod`.
    pub kind: &'static str,
    /// The name in paths and in RBAC rules: `pods`.
    pub plural: &'static str,
}

/// What a request does, in the words of RBAC rules and of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    /// Such as `list` and `create`.
    pub(crate) verb: &'static str,
    pub(crate) resource: Resource,
    /// Such as `status` and `eviction`.
    pub(crate) subresource: Option<&'static str>,
    /// None for a creation, and for requests about many objects.
    pub(crate) name: Option<Arc<str>>,
}

/// `v1` ConfigMaps.
pub const CONFIG_MAPS: Resource = Resource { api_version: "v1", kind: "ConfigMap", plural: "configmaps" };
/// `v1` Namespaces.
pub const NAMESPACES: Resource = Resource { api_version: "v1", kind: "Namespace", plural: "namespaces" };
pub(crate) const SECRETS: Resource = Resource { api_version: "v1", kind: "Secret", plural: "secrets" };
/// `v1` Pods.
pub const PODS: Resource = Resource { api_version: "v1", kind: "Pod", plural: "pods" };
/// `events.k8s.io/v1` Events.
pub const EVENTS: Resource = Resource { api_version: "events.k8s.io/v1", kind: "Event", plural: "events" };
/// `coordination.k8s.io/v1` Leases.
pub const LEASES: Resource = Resource { api_version: "coordination.k8s.io/v1", kind: "Lease", plural: "leases" };

/// Locks a mutex. A panic of another holder leaves no value half written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Action {
    pub(crate) fn new(verb: &'static str, resource: Resource) -> Self {
        Self { verb, resource, subresource: None, name: None }
    }

    pub(crate) fn on(verb: &'static str, resource: Resource, name: &str) -> Self {
        Self { name: Some(name.into()), ..Self::new(verb, resource) }
    }

    pub(crate) fn of(self, subresource: &'static str) -> Self {
        Self { subresource: Some(subresource), ..self }
    }

    /// The resource as in RBAC rules: `pods/eviction`.
    #[must_use]
    pub(crate) fn rule(&self) -> String {
        let subresource = self.subresource.map_or(String::new(), |subresource| format!("/{subresource}"));
        format!("{}{subresource}", self.resource.plural)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.rule())?;
        self.name.iter().try_for_each(|name| write!(f, " {name:?}"))
    }
}

impl Uid {
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl ResourceVersion {
    /// The version as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl ServerTime {
    /// The time at this second since the Unix epoch, limited to the range of a timestamp.
    #[must_use]
    pub fn from_second(second: i64) -> Self {
        Self(second.clamp(jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second()))
    }

    /// The seconds since the Unix epoch.
    #[must_use]
    pub fn as_second(self) -> i64 {
        self.0
    }

    /// Parses an HTTP `Date` header (RFC 9110 section 5.6.7).
    fn from_http_date(text: &str) -> Option<Self> {
        let zoned = jiff::fmt::rfc2822::DateTimeParser::new().parse_zoned(text).ok()?;
        Some(Self(zoned.timestamp().as_second()))
    }

    /// The time after the whole seconds of a duration.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self::from_second(self.0.saturating_add_unsigned(duration.as_secs()))
    }

    /// The time before the whole seconds of a duration.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self::from_second(self.0.saturating_sub_unsigned(duration.as_secs()))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Formats a `MicroTime` with exactly six fractional digits: the API server refuses other numbers with 400.
    pub(crate) fn to_micro_time(self) -> String {
        self.to_string().replace('Z', ".000000Z")
    }
}

impl std::str::FromStr for ServerTime {
    type Err = jiff::Error;

    /// Reads an RFC 3339 time.
    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        Ok(Self(text.parse::<jiff::Timestamp>()?.as_second()))
    }
}

impl fmt::Display for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timestamp = jiff::Timestamp::from_second(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{timestamp}")
    }
}

impl Serialize for ServerTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServerTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| de::Error::invalid_value(de::Unexpected::Str(&text), &"an RFC 3339 time"))
    }
}

/// The longest prefix of `text` of at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_and_timestamps_are_the_same_clock() {
        let date = ServerTime::from_http_date("Sat, 21 Nov 2026 10:22:46 GMT").expect("a date");
        assert_eq!(serde_json::to_string(&date).expect("json"), "\"2026-11-21T10:22:46Z\"");
        let read: ServerTime = serde_json::from_str("\"2026-11-21T10:22:46Z\"").expect("a time");
        assert_eq!(read, date);
        assert_eq!(date.to_micro_time(), "2026-11-21T10:22:46.000000Z");
    }

    #[test]
    fn arithmetic_at_the_ends_of_time_stays_in_range() {
        let end = ServerTime::from_second(i64::MAX).plus(Duration::MAX);
        assert!(end.to_string().starts_with("9999"));
        assert_eq!(ServerTime::from_second(5).since(ServerTime::from_second(9)), Duration::ZERO);
    }

    #[test]
    fn nonsense_is_no_date() {
        for text in ["", "yesterday", "Sat, 99 Nov 2026 10:22:46 GMT"] {
            assert_eq!(ServerTime::from_http_date(text), None, "{text}");
        }
    }
}
