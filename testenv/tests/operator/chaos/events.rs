//! Each beginning and each end of a restart has one Event, whoever was the leader: the process that writes the status
//! emits the Event. An Event may be missing, because a failed request is not repeated.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use testenv::history::Version;

use super::timeline::{place, text};

/// The clock skew of an operator.
const EARLY: SignedDuration = SignedDuration::from_secs(2);
/// The longest time from a decision to its Event: the operator may be stopped meanwhile.
const LATE: SignedDuration = SignedDuration::from_secs(40);

/// The beginning or the end of a restart in a status.
type Step = Timestamp;

/// The subject of a step or an Event: the UID of the ConfigMonitor and the reason.
type About = (String, &'static str);

/// Returns a violation for each superfluous Event about a restart.
pub(super) fn check_events(past: &[Version], namespace: &str) -> Vec<String> {
    let mut written = Written::default();
    let mut violations = Vec::new();
    for version in past {
        let Some(((resource, of, _), object)) = place(&version.key).zip(version.object.as_ref()) else { continue };
        match resource {
            "configmonitors" if of == namespace => written.add(object),
            "events" if of == namespace && written.events.insert(text(&object["metadata"]["uid"])) => {
                let Some((about, at)) = emitted(object) else { continue };
                let open = written.steps.entry(about).or_default();
                match open.iter().position(|step| at + EARLY >= *step && at <= *step + LATE) {
                    Some(own) => drop(open.remove(own)),
                    None => violations.push(format!(
                        "an Event too many: {} about {} at {at}, revision {}: {}",
                        text(&object["reason"]),
                        regarding(object)["name"],
                        version.revision,
                        text(&object["message"])
                    )),
                }
            }
            _ => {}
        }
    }
    violations
}

/// The steps written so far.
#[derive(Default)]
struct Written {
    /// The beginnings and ends without an Event so far.
    steps: BTreeMap<About, Vec<Step>>,
    /// What distinguishes one beginning from another.
    begun: BTreeSet<String>,
    /// The last history of each ConfigMonitor.
    histories: BTreeMap<String, Vec<Value>>,
    /// The UIDs of the Events, because the store may have several versions of one.
    events: BTreeSet<String>,
}

impl Written {
    /// Adds a version of a ConfigMonitor.
    fn add(&mut self, object: &Value) {
        let (uid, restart) = (text(&object["metadata"]["uid"]), &object["status"]["restart"]);
        if let Some(at) = time(&restart["startedAt"])
            && self.begun.insert(format!("{uid} {at} {}", restart["podsResourceVersion"]))
        {
            self.steps.entry((uid.clone(), "RestartStarted")).or_default().push(at);
        }
        let history = object["status"]["history"].as_array().cloned().unwrap_or_default();
        let before = self.histories.insert(uid.clone(), history.clone()).unwrap_or_default();
        if history == before {
            return;
        }
        // New entries are at the front. Two restarts of one second are the same entry twice.
        let new = (1..=history.len()).find(|new| before.starts_with(&history[*new..])).unwrap_or_default();
        for entry in history[..new].iter().filter(|entry| entry["result"] == "Completed") {
            if let Some(at) = time(&entry["completedAt"]) {
                self.steps.entry((uid.clone(), "RestartCompleted")).or_default().push(at);
            }
        }
    }
}

fn emitted(event: &Value) -> Option<(About, Timestamp)> {
    let reason = ["RestartStarted", "RestartCompleted"].into_iter().find(|reason| event["reason"] == *reason)?;
    let about = regarding(event);
    (about["kind"] == "ConfigMonitor").then_some(((text(&about["uid"]), reason), time(&event["eventTime"])?))
}

/// The store has another version of the Events API than the operator.
fn regarding(event: &Value) -> &Value {
    event.get("involvedObject").unwrap_or(&event["regarding"])
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;

    fn stamp(second: i64) -> String {
        Timestamp::from_second(second).unwrap().to_string()
    }

    fn version(revision: u64, resource: &str, object: Value) -> Version {
        let key = format!("/registry/{resource}/n/a");
        Version { revision, key, observed: SystemTime::UNIX_EPOCH, object: Some(object) }
    }

    fn begun(revision: u64, second: i64) -> Version {
        let restart = json!({"startedAt": stamp(second), "podsResourceVersion": revision.to_string()});
        version(
            revision,
            "magalix.com/configmonitors",
            json!({"metadata": {"uid": "m"}, "status": {"restart": restart}}),
        )
    }

    fn completed(revision: u64, seconds: &[i64]) -> Version {
        let entry = |second: &i64| json!({"startedAt": stamp(0), "completedAt": stamp(*second), "result": "Completed"});
        let history: Vec<Value> = seconds.iter().map(entry).collect();
        version(
            revision,
            "magalix.com/configmonitors",
            json!({"metadata": {"uid": "m"}, "status": {"history": history}}),
        )
    }

    fn event(revision: u64, reason: &str, second: i64) -> Version {
        let about = json!({"kind": "ConfigMonitor", "uid": "m", "name": "a"});
        let metadata = json!({"uid": revision.to_string()});
        let event =
            json!({"metadata": metadata, "reason": reason, "eventTime": stamp(second), "involvedObject": about});
        version(revision, "events", event)
    }

    fn violations(past: &[Version]) -> usize {
        check_events(past, "n").len()
    }

    #[test]
    fn a_second_event_for_one_beginning_is_a_violation() {
        assert_eq!(violations(&[begun(1, 10), event(3, "RestartStarted", 10)]), 0);
        assert_eq!(violations(&[begun(1, 10), event(3, "RestartStarted", 10), event(4, "RestartStarted", 10)]), 1);
        let two = [begun(1, 10), event(2, "RestartStarted", 10), begun(3, 20), event(4, "RestartStarted", 20)];
        assert_eq!(violations(&two), 0);
        // A beginning without an Event does not excuse a later one for ever.
        let late = [begun(1, 10), begun(2, 60), event(3, "RestartStarted", 60), event(4, "RestartStarted", 61)];
        assert_eq!(violations(&late), 1);
        // No Event is emitted before the status is written.
        assert_eq!(violations(&[event(1, "RestartStarted", 10), begun(2, 10)]), 1);
    }

    #[test]
    fn a_second_event_for_one_end_is_a_violation() {
        let end = |revision, second| event(revision, "RestartCompleted", second);
        assert_eq!(violations(&[completed(1, &[10]), end(2, 10), completed(3, &[20, 10]), end(4, 20)]), 0);
        assert_eq!(violations(&[completed(1, &[10]), end(2, 10), completed(3, &[10]), end(4, 20)]), 1);
        // Two ends in one second.
        assert_eq!(violations(&[completed(1, &[10]), end(2, 10), completed(3, &[10, 10]), end(4, 10)]), 0);
    }
}
