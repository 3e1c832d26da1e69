//! Tests of the observer, with histories made by hand.

use std::time::SystemTime;

use testenv::history::Version;

use super::*;

/// A history to which versions are added.
#[derive(Default)]
struct Made(Vec<Version>);

impl Made {
    fn add(mut self, key: &str, object: Option<Value>) -> Self {
        let revision = self.0.len() as u64 + 1;
        self.0.push(Version { revision, key: format!("/registry/{key}"), observed: SystemTime::UNIX_EPOCH, object });
        self
    }

    /// Adds a ReplicaSet with these desired replicas.
    fn replica_set(self, name: &str, app: &str, replicas: usize) -> Self {
        let template = json!({"metadata": {"labels": {"app": app}}});
        let object = json!({"metadata": {"uid": name}, "spec": {"replicas": replicas, "template": template}});
        self.add(&format!("replicasets/test/{name}"), Some(object))
    }

    /// Adds a pod of the owner with this status.
    fn pod(self, name: &str, owner: &str, status: Value) -> Self {
        self.add(&format!("pods/test/{name}"), Some(pod(name, owner, status)))
    }

    fn ready(self, name: &str, owner: &str) -> Self {
        self.pod(name, owner, ready())
    }

    fn terminating(self, name: &str, owner: &str) -> Self {
        let mut pod = pod(name, owner, ready());
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:39Z");
        self.add(&format!("pods/test/{name}"), Some(pod))
    }

    fn removed(self, name: &str) -> Self {
        self.add(&format!("pods/test/{name}"), None)
    }

    fn seen(&self) -> Availability {
        Availability::of(&Timeline::of(self.0.iter(), "test"), NAME)
    }
}

fn pod(name: &str, owner: &str, status: Value) -> Value {
    let metadata = json!({"name": name, "uid": name, "ownerReferences": [{"controller": true, "uid": owner}]});
    json!({"metadata": metadata, "status": status})
}

fn ready() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

/// Returns two ReplicaSets with all of their pods.
fn whole() -> Made {
    Made::default()
        .replica_set("a", NAME, 2)
        .ready("a-0", "a")
        .ready("a-1", "a")
        .replica_set("b", NAME, 1)
        .ready("b-0", "b")
}

#[test]
fn nothing_is_missing_while_the_first_pods_are_created() {
    assert_eq!(whole().seen().most_missing(), 0);
    assert_eq!(whole().replica_set("a", NAME, 9).seen().most_missing(), 0);
}

#[test]
fn pods_missing_at_once_are_added_up_even_for_one_revision() {
    let past = whole().terminating("a-0", "a").removed("b-0").ready("b-1", "b");
    let seen = past.ready("a-2", "a").seen();
    assert_eq!(seen.most_missing(), 2);
    assert_eq!(seen.gone().iter().map(|gone| gone.name.as_str()).collect::<Vec<_>>(), ["a-0", "b-0"]);
}

#[test]
fn pods_that_are_not_ready_or_have_finished_are_missing() {
    let not_ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
    let mut finished = ready();
    finished["phase"] = json!("Failed");
    assert_eq!(whole().pod("a-0", "a", not_ready).pod("a-1", "a", finished).seen().most_missing(), 2);
}

#[test]
fn pods_of_other_owners_do_not_count() {
    let others = whole().replica_set("c", "other", 1).ready("c-0", "c").removed("c-0");
    assert_eq!(others.seen().most_missing(), 0);
}

#[test]
fn pods_beyond_the_desired_replicas_are_not_missing() {
    assert_eq!(whole().replica_set("a", NAME, 1).removed("a-0").seen().most_missing(), 0);
    let back = whole().replica_set("a", NAME, 1).removed("a-0").replica_set("a", NAME, 2);
    assert_eq!(back.seen().most_missing(), 0);
    assert_eq!(back.ready("a-2", "a").removed("a-2").seen().most_missing(), 1);
}

#[test]
fn the_desired_pods_of_a_daemon_set_are_in_its_status() {
    let template = json!({"metadata": {"labels": {"app": NAME}}});
    let object = json!({
        "metadata": {"uid": "d"}, "spec": {"template": template}, "status": {"desiredNumberScheduled": 2},
    });
    let past = Made::default().add("daemonsets/test/d", Some(object)).ready("d-0", "d").ready("d-1", "d");
    assert_eq!(past.removed("d-0").seen().most_missing(), 1);
}
