//! The operator writes and logs no value of a Secret and no UID of one, because the UID is the key of the hash, and
//! emits no Event about one.

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use testenv::history::Version;

use crate::nightly::chaos::timeline::{place, text};

/// The beginning of every value of a Secret, and the name of a key. Its length is a multiple of three, so that its
/// base64 is the beginning of the value's base64.
pub(super) const PLANTED: &str = "planted-by-user";

/// The scope and the findings of a search.
#[derive(Debug, Default)]
pub(super) struct Search {
    pub(super) violations: Vec<String>,
    /// The UIDs of all Secrets.
    uids: BTreeSet<String>,
    monitors: usize,
    events: usize,
    lines: usize,
}

/// Returns a value of a Secret, in base64.
pub(super) fn planted(content: &[u8]) -> String {
    BASE64.encode([PLANTED.as_bytes(), content].concat())
}

/// Searches all versions of the ConfigMonitors and Events of a namespace, and these lines, for the values and UIDs of
/// its Secrets.
pub(super) fn search<'a>(past: impl Iterator<Item = &'a Version> + Clone, namespace: &str, lines: &[String]) -> Search {
    let mut search = Search::default();
    let objects = |resource: &'static str| {
        let of_it =
            move |version: &&Version| place(&version.key).is_some_and(|at| (at.0, at.1) == (resource, namespace));
        past.clone().filter(of_it).filter_map(|version| version.object.as_ref())
    };
    for secret in objects("secrets") {
        search.uids.insert(text(&secret["metadata"]["uid"]));
        let values = secret["data"].as_object().into_iter().flatten();
        if values.into_iter().any(|(_, value)| !text(value).starts_with(&BASE64.encode(PLANTED))) {
            search.violations.push(format!("a Secret with a value that no user wrote: {}", secret["metadata"]["name"]));
        }
    }
    let needles: Vec<String> =
        search.uids.iter().cloned().chain([PLANTED.to_owned(), BASE64.encode(PLANTED)]).collect();
    for monitor in objects("configmonitors") {
        search.monitors += 1;
        search.look_at("a ConfigMonitor", &monitor.to_string(), &needles);
    }
    for event in objects("events") {
        search.events += 1;
        search.look_at("an Event", &event.to_string(), &needles);
        if ["involvedObject", "regarding", "related"].iter().any(|about| event[about]["kind"] == "Secret") {
            search.violations.push(format!("an Event about a Secret: {event}"));
        }
    }
    for line in lines {
        search.lines += 1;
        search.look_at("a line", line, &needles);
    }
    search
}

impl Search {
    fn look_at(&mut self, what: &str, text: &str, needles: &[String]) {
        let found = needles.iter().find(|needle| text.contains(*needle));
        self.violations.extend(found.map(|needle| format!("leaked: {needle} is in {what}: {text:.1000}")));
    }

    /// Returns whether there was nothing to find, or nothing to search.
    pub(super) fn is_empty(&self) -> bool {
        [self.uids.len(), self.monitors, self.events, self.lines].contains(&0)
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uids, monitors, events, lines, .. } = self;
        let secrets = uids.len();
        write!(
            f,
            "{secrets} Secrets sought in {monitors} versions of ConfigMonitors, {events} of Events, {lines} lines"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use std::time::SystemTime;

    use super::*;

    fn version(resource: &str, object: Value) -> Version {
        let key = format!("/registry/{resource}/n/a");
        Version { revision: 1, key, observed: SystemTime::UNIX_EPOCH, object: Some(object) }
    }

    /// Returns the number of violations with a Secret, this object and this line.
    fn found(other: Version, line: &str) -> usize {
        let secret = json!({"metadata": {"uid": "u-1"}, "data": {"a": planted(b"1")}});
        let past = [version("secrets", secret), other];
        search(past.iter(), "n", &[line.to_owned()]).violations.len()
    }

    #[test]
    fn a_leak_of_a_secret_is_found() {
        let monitor = |status: &str| version("magalix.com/configmonitors", json!({"status": status}));
        let event = |kind: &str| version("events", json!({"involvedObject": {"kind": kind}}));
        assert_eq!(found(monitor("fine"), "fine"), 0);
        assert_eq!(found(monitor("the key is u-1"), "fine"), 1);
        assert_eq!(found(monitor(&planted(b"2")), "fine"), 1);
        assert_eq!(found(monitor("fine"), "it is planted-by-user2"), 1);
        assert_eq!([found(event("ConfigMap"), "fine"), found(event("Secret"), "fine")], [0, 1]);
        assert_eq!(found(version("secrets", json!({"metadata": {"uid": "u-2"}, "data": {"a": "MQ=="}})), "fine"), 1);
    }
}
