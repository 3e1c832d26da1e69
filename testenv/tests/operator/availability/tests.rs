//! That it sees what it must, in pasts made by hand.

use std::time::SystemTime;

use super::*;

/// A past to which versions are added.
#[derive(Default)]
struct Made(Vec<Version>);

impl Made {
    fn add(mut self, key: &str, object: Option<Value>) -> Self {
        let revision = self.0.len() as u64 + 1;
        self.0.push(Version { revision, key: format!("/registry/{key}"), heard: SystemTime::UNIX_EPOCH, object });
        self
    }

    /// A ReplicaSet that wants so many pods.
    fn wants(self, name: &str, app: &str, replicas: usize) -> Self {
        let template = json!({"metadata": {"labels": {"app": app}}});
        let object = json!({"metadata": {"uid": name}, "spec": {"replicas": replicas, "template": template}});
        self.add(&format!("replicasets/test/{name}"), Some(object))
    }

    /// A pod of it, with this in its status.
    fn pod(self, name: &str, owner: &str, status: Value) -> Self {
        self.pod_that_goes(name, owner, status, None)
    }

    /// Ready since this second.
    fn ready(self, name: &str, owner: &str, second: u32) -> Self {
        self.pod(name, owner, ready(second))
    }

    fn pod_that_goes(self, name: &str, owner: &str, status: Value, second: Option<u32>) -> Self {
        let object = json!({"metadata": {
            "name": name, "uid": name, "ownerReferences": [{"controller": true, "uid": owner}],
            "deletionTimestamp": second.map(|second| format!("2026-01-01T00:00:{:02}Z", second + 30)),
            "deletionGracePeriodSeconds": 30,
        }, "status": status});
        self.add(&format!("pods/test/{name}"), Some(object))
    }

    fn removed(self, name: &str) -> Self {
        self.add(&format!("pods/test/{name}"), None)
    }

    fn seen(&self) -> Availability {
        self.seen_when_ripe_after(0)
    }

    fn seen_when_ripe_after(&self, min_ready: i64) -> Availability {
        Availability::of(&self.0, "/registry/pods/test/", &json!({"app": NAME}), min_ready)
    }
}

fn ready(second: u32) -> Value {
    let since = format!("2026-01-01T00:00:{second:02}Z");
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]})
}

/// Two ReplicaSets with all of their pods, the last at revision 5.
fn whole() -> Made {
    Made::default()
        .wants("a", NAME, 2)
        .ready("a-0", "a", 0)
        .ready("a-1", "a", 0)
        .wants("b", NAME, 1)
        .ready("b-0", "b", 0)
}

#[test]
fn nothing_is_missing_while_pods_come_for_the_first_time() {
    assert_eq!(whole().seen().most_missing(EVER), 0);
    assert_eq!(whole().wants("a", NAME, 9).seen().most_missing(EVER), 0);
}

#[test]
fn what_is_missing_at_once_is_added_up_even_for_one_revision() {
    let past = whole().pod_that_goes("a-0", "a", ready(0), Some(9)).removed("b-0").ready("b-1", "b", 9);
    let seen = past.ready("a-2", "a", 9).seen();
    assert_eq!(seen.most_missing(EVER), 2);
    assert_eq!((seen.most_missing_of("replicasets/a", EVER), seen.most_missing_of("replicasets/b", EVER)), (1, 1));
    assert_eq!((seen.most_missing(0..=5), seen.most_missing(6..=6), seen.most_missing(9..=9)), (0, 1, 0));
    // What was so before it began is still so.
    assert_eq!(seen.most_missing(7..=7), 2);
    assert_eq!(seen.gone(EVER).iter().map(|gone| gone.name.as_str()).collect::<Vec<_>>(), ["a-0", "b-0"]);
}

#[test]
fn pods_that_are_not_ready_or_have_finished_are_missing() {
    let not_ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
    let mut finished = ready(0);
    finished["phase"] = json!("Failed");
    assert_eq!(whole().pod("a-0", "a", not_ready).pod("a-1", "a", finished).seen().most_missing(EVER), 2);
}

#[test]
fn others_are_not_counted() {
    let others = whole().wants("c", "other", 1).ready("c-0", "c", 0).removed("c-0");
    assert_eq!(others.seen().most_missing(EVER), 0);
}

#[test]
fn what_is_not_wanted_any_more_is_not_missing() {
    assert_eq!(whole().wants("a", NAME, 1).removed("a-0").seen().most_missing(EVER), 0);
    let back = whole().wants("a", NAME, 1).removed("a-0").wants("a", NAME, 2);
    assert_eq!(back.seen().most_missing(EVER), 0);
    assert_eq!(back.ready("a-2", "a", 0).removed("a-2").seen().most_missing(EVER), 1);
}

#[test]
fn a_daemon_set_wants_what_its_status_says() {
    let template = json!({"metadata": {"labels": {"app": NAME}}});
    let object = json!({
        "metadata": {"uid": "d"}, "spec": {"template": template}, "status": {"desiredNumberScheduled": 2},
    });
    let past = Made::default().add("daemonsets/test/d", Some(object)).ready("d-0", "d", 0).ready("d-1", "d", 0);
    assert_eq!(past.removed("d-0").seen().most_missing_of("daemonsets/d", EVER), 1);
}

#[test]
fn a_pod_that_goes_too_early_finds_others_missing() {
    let past = |second| whole().removed("a-0").ready("a-2", "a", 10).pod_that_goes("a-1", "a", ready(0), Some(second));
    assert_eq!(past(14).seen_when_ripe_after(5).most_missing(EVER), 2);
    assert_eq!(past(15).seen_when_ripe_after(5).most_missing(EVER), 1);
}

#[test]
fn pods_that_are_missing_while_a_monitor_is_up_to_date_are_seen() {
    let monitor = |past: Made, reason: &str| {
        let ready = json!({"type": "Ready", "reason": reason});
        past.add("magalix.com/configmonitors/test/m", Some(json!({"status": {"conditions": [ready]}})))
    };
    let in_progress = monitor(monitor(whole(), "UpToDate"), "RestartInProgress").removed("a-0");
    assert_eq!(in_progress.seen().most_missing_while_up_to_date(), 0);
    assert_eq!(monitor(in_progress, "UpToDate").seen().most_missing_while_up_to_date(), 1);
}
