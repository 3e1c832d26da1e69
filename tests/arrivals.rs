//! No object causes a panic: objects with arbitrary values anywhere are decoded, and decisions are made from them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::time::Instant;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::kube::objects::{DataObject, MetadataOnly, Workload, decode};
use configmonitor_operator::monitor::ConfigMonitor;
use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::decide::{Content, Look, Moment, decide, observe};
use configmonitor_operator::monitor::pod::Pod;
use configmonitor_operator::monitor::report::report;
use configmonitor_operator::monitor::situation::Situation;
use configmonitor_operator::monitor::spec::Policy;
use configmonitor_operator::monitor::status::Status;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// Returns objects as the API server sends them.
fn objects() -> impl Strategy<Value = Value> {
    let metadata = json!({
        "name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 2,
        "creationTimestamp": "2026-11-21T10:00:00Z", "deletionTimestamp": "2026-11-21T10:00:30Z",
        "deletionGracePeriodSeconds": 30, "labels": {"app": "web"}, "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o", "controller": true}],
    });
    let pod = json!({
        "metadata": metadata, "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "app", "state": {"running": {"startedAt": "2026-11-21T10:00:05Z"}}},
                {"name": "b", "image": "b:1", "ready": false, "restartCount": 2,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}},
                    "lastState": {"terminated": {"exitCode": 1}}},
            ]},
    });
    let config_map =
        json!({"metadata": metadata, "data": {"key": "value"}, "binaryData": {"blob": "AAEC"}, "immutable": true});
    let workload = json!({
        "metadata": metadata,
        "spec": {"replicas": 3, "template": {"metadata": {"labels": {"app": "web"}}}},
        "status": {"desiredNumberScheduled": 3, "conditions": [
            {"type": "ReplicaFailure", "status": "True", "message": "pods \"web-1\" is forbidden: exceeded quota"},
        ]},
    });
    let time = "2026-11-21T10:00:00Z";
    let monitor = json!({
        "metadata": metadata,
        "spec": {
            "configMap": "settings", "keys": ["key", "blob"], "podSelector": {"app": "web"},
            "podSelectorExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]}, {"key": "old", "operator": "DoesNotExist"},
            ],
            "quietPeriodSeconds": 3, "progressDeadlineSeconds": 600,
            "gracePeriodSeconds": 10, "unmanagedPods": "Skip", "suspend": false,
        },
        "status": {
            "observedGeneration": 2, "source": "ConfigMap/settings", "sources": [{"kind": "ConfigMap", "name": "settings",
                "keys": ["a"], "resourceVersion": "5", "hash": "sha256:a", "changes": [
                    {"hash": "sha256:b", "since": time, "observedAt": time, "podsResourceVersion": "6", "begun": true},
                    {"hash": "other-keys", "since": time, "observedAt": time},
                ]}],
            "restart": {
                "changingSince": time, "number": 2, "startedAt": time, "podSelector": "app=web", "pods": 3, "remaining": 1, "deleted": 2,
                "lastProgressAt": time,
            },
            "history": [{"number": 1, "sources": [{"kind": "ConfigMap", "name": "settings"}], "startedAt": time, "completedAt": time, "pods": 3, "replaced": 2,
                "result": "Completed"}],
            "baselinedAt": time, "settledAt": time, "outdated": 1, "pods": 4, "skipped": 1, "skippedPods": "x (no controller)",
            "conditions": [{
                "type": "Ready", "status": "True", "observedGeneration": 2, "lastTransitionTime": time,
                "reason": "UpToDate", "message": "m",
            }],
        },
    });
    prop::sample::select(vec![pod, config_map, workload, monitor])
}

/// Generates arbitrary values, with a preference for edge cases.
fn anything() -> impl Strategy<Value = Value> {
    let odd = [
        "",
        "sha256:",
        "2026-02-30T10:00:00Z",
        "-009999-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "ä\u{0}\u{10FFFF}",
        "50%",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec![json!(0), json!(-1), json!(u64::MAX), json!(i64::MIN), json!(1e308), json!(3.5)]),
        prop::sample::select(odd.map(Value::from).to_vec()),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{0,9}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// Generates objects in which some values are replaced.
fn damaged() -> impl Strategy<Value = Value> {
    (objects(), vec((any::<prop::sample::Index>(), anything()), 0..4)).prop_map(|(mut object, damages)| {
        for (place, value) in damages {
            let mut place = place.index(places(&object));
            replace(&mut object, &mut place, value);
        }
        object
    })
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn places(value: &Value) -> usize {
    1 + children(value).into_iter().map(places).sum::<usize>()
}

/// Replaces the value at this place, counted from the top, by `new`.
fn replace(value: &mut Value, place: &mut usize, new: Value) -> Option<Value> {
    if *place == 0 {
        *value = new;
        return None;
    }
    *place -= 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    children.into_iter().try_fold(new, |new, child| replace(child, place, new))
}

/// Does everything that the operator does with an object.
fn use_up(object: &RawValue, second: i64) {
    let _ = black_box(decode::<Pod>(object));
    let _ = black_box(decode::<Workload>(object));
    let _ = black_box(decode::<MetadataOnly>(object));
    if let Ok(config_map) = decode::<DataObject>(object) {
        let keys = ["key".to_owned()].into();
        black_box([Kind::ConfigMap, Kind::Secret].map(|kind| ContentHash::of(kind, &config_map, Some(&keys))));
    }
    let Ok(monitor) = decode::<ConfigMonitor>(object) else { return };
    let Ok(policy) = Policy::of(monitor.spec.as_deref()) else { return };
    black_box(policy.selector.to_query());
    let status = monitor.status.as_deref().map(|status| serde_json::from_str::<Status>(status.get()));
    let Ok(status) = status.transpose().map(Option::unwrap_or_default) else { return };
    let (at, now) = (ServerTime::from_second(second), Instant::now());
    for hash in ["sha256:a", "sha256:b", "sha256:d"] {
        let (version, since) = (Some("8".into()), (second % 2 == 0).then_some(at));
        let content = Content { hash: ContentHash::from(hash), version, at, came: now, since, recorded: None };
        let look = Look(policy.sources.iter().map(|_| Some(content.clone())).collect());
        let moment = Moment { read_at: now, now, server_now: at };
        let (mut observed, _) = observe(&policy, status.clone(), &look, None, moment);
        let request = monitor.metadata.annotations.restart_requested_at.as_ref();
        black_box(decide(&policy, &observed, &look, request, moment));
        let settled = Situation::Settled { selector: &policy.selector, missing_keys: None, has_sources: true };
        for situation in [settled, Situation::Suspended { requested: true }, Situation::QuietPeriod { seconds: 3 }] {
            black_box(report(&situation, &mut observed, i64::MAX, at));
        }
        black_box(to_raw_value(&observed)).expect("a status can be written");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_object_causes_a_panic(object in damaged(), second in any::<i64>()) {
        use_up(&to_raw_value(&object).unwrap(), second);
    }
}
