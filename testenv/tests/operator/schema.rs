//! The schema and the operator's types describe the same fields and must not drift apart.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::kube::labels::{LabelSelector, LabelSelectorOperator, LabelSelectorRequirement};
use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::source::{ObjectSpec, SourceName, SourceSpec};
use configmonitor_operator::monitor::spec::{CanarySpec, DeletionPolicy, IntOrString, Spec, UnmanagedPods};
use configmonitor_operator::monitor::spec::{Discover, ExcludedObject};
use configmonitor_operator::monitor::status::{
    Begun, Canary, CanaryState, Change, Condition, Entry, Outcome, Restart, RestartRequest, SourceStatus, Status,
};
use configmonitor_operator::monitor::window::WindowSpec;
use serde_json::{Value, json};
use simulated_cluster::content::written;

use crate::test_namespace::TestNamespace;
use testenv::ControlPlane;
use testenv::fixture::{APP, NAME, create_crd, file};

/// Returns specs with every field set in one of them, except for the alternative spelling.
fn specs() -> [Spec; 2] {
    let keys = || Some(vec!["y".to_owned(), "config.cfg".to_owned()]);
    let object = ObjectSpec { name: NAME.to_owned(), keys: keys(), optional: Some(true) };
    let config_map = SourceSpec { config_map: Some(object.clone()), secret: None };
    let several =
        Spec { sources: Some(vec![config_map, SourceSpec { config_map: None, secret: Some(object) }]), ..spec() };
    [several, Spec { config_map: Some(NAME.to_owned()), keys: keys(), ..spec() }]
}

fn spec() -> Spec {
    Spec {
        config_map: None,
        config_map_lower_case: None,
        keys: None,
        sources: None,
        discover: Some(Discover {
            kinds: [Kind::ConfigMap, Kind::Secret].into(),
            exclude: vec![ExcludedObject { kind: Some(Kind::Secret), name: NAME.into() }],
        }),
        pod_selector: BTreeMap::from([("example.com/app".to_owned(), "x".to_owned()), ("y".to_owned(), String::new())]),
        pod_selector_expressions: vec![LabelSelectorRequirement {
            key: "example.com/tier".to_owned(),
            operator: LabelSelectorOperator::NotIn,
            values: vec!["back".to_owned(), String::new()],
        }],
        quiet_period_seconds: Some(1),
        progress_deadline_seconds: Some(2),
        grace_period_seconds: NonZeroU32::new(4),
        unmanaged_pods: Some(UnmanagedPods::Delete),
        suspend: Some(true),
        max_unavailable: Some(IntOrString::String("25%".to_owned())),
        max_unavailable_total: Some(IntOrString::Int(NonZeroU32::MIN)),
        max_surge: None,
        restart_last: Some(LabelSelector {
            match_labels: BTreeMap::from([("example.com/role".to_owned(), "primary".to_owned())]),
            match_expressions: vec![LabelSelectorRequirement {
                key: "role".to_owned(),
                operator: LabelSelectorOperator::In,
                values: vec!["primary".to_owned(), String::new()],
            }],
        }),
        windows: vec![WindowSpec {
            schedule: "0 2 * * SUN".to_owned(),
            duration_seconds: 60,
            time_zone: Some("America/Argentina/Buenos_Aires".to_owned()),
        }],
        min_interval_seconds: Some(6),
        canary: Some(CanarySpec { pods: IntOrString::Int(NonZeroU32::MIN), bake_seconds: 7 }),
        min_ready_seconds: Some(5),
        deletion_policy: Some(DeletionPolicy::Evict),
    }
}

/// Returns statuses with every field set in one of them.
fn statuses() -> [Status; 2] {
    let at = ServerTime::from_second(1_800_000_000);
    let name = SourceName { kind: Kind::ConfigMap, name: "frontend".into() };
    [CanaryState::Baking { available_at: at }, CanaryState::Failed { message: "pod x crashed".to_owned() }].map(
        |state| Status {
            observed_generation: Some(1),
            source: Some("ConfigMap/frontend".to_owned()),
            sources: vec![SourceStatus {
                name: name.clone(),
                discovered: true,
                unreferenced_since: Some(at),
                keys: Some(["config.cfg".to_owned()].into()),
                resource_version: Some("7".into()),
                hash: Some(ContentHash::absent()),
                changes: vec![Change {
                    hash: "sha256:2".into(),
                    since: at,
                    observed_at: at,
                    pods_resource_version: Some("7".into()),
                    begun: true,
                }],
                restarts: vec![at],
            }],
            baselined_at: Some(at),
            settled_at: Some(at),
            outdated: Some(2),
            pods: Some(4),
            skipped: 1,
            skipped_pods: "x (no controller)".to_owned(),
            restart: Some(Box::new(Restart {
                changing_since: Some(at),
                request: Some(RestartRequest {
                    value: "now".into(),
                    taken_over: true,
                    observed_at: at,
                    pods_resource_version: Some("7".into()),
                }),
                begun: Some(Begun {
                    canary: Some(Canary { pods: 1, state }),
                    ..Begun::new(2, at, "y=".to_owned(), 3).with_remaining(2)
                }),
            })),
            last_handled_restart_request: Some("then".into()),
            history: vec![Entry {
                number: 1,
                sources: vec![name.clone()],
                started_at: at,
                completed_at: at,
                pods: 3,
                replaced: 2,
                result: Outcome::Superseded,
                requested: true,
            }],
            conditions: vec![Condition {
                r#type: "Ready".into(),
                status: "False".into(),
                observed_generation: Some(1),
                last_transition_time: at,
                reason: "RestartInProgress".into(),
                message: "1 of 3 pods deleted".into(),
            }],
        },
    )
}

fn object(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec})
}

async fn create_strictly(ns: &TestNamespace, object: &Value) -> testenv::Answer {
    let path = format!("{}?fieldValidation=Strict", ns.collection("configmonitors"));
    ns.client.create(&path, object).await.unwrap()
}

#[tokio::test]
async fn every_field_of_the_types_is_in_the_schema() {
    let ns = TestNamespace::new().await;
    let mut created = Value::Null;
    for (number, spec) in specs().into_iter().enumerate() {
        let sent = written(&spec);
        let name = if number == 0 { NAME.to_owned() } else { format!("{NAME}-{number}") };
        let answer = create_strictly(&ns, &object(&name, &sent)).await.ok().unwrap();
        assert_eq!(answer["spec"], sent);
        created = if number == 0 { answer } else { created };
    }

    let path = format!("{}/status?fieldValidation=Strict", ns.path("configmonitors", NAME));
    for status in statuses() {
        let sent = serde_json::to_value(status).unwrap();
        created["status"] = sent.clone();
        let updated = ns.client.replace(&path, &created).await.unwrap().ok().unwrap();
        assert_eq!(updated["status"], sent);
        created = ns.get("configmonitors", NAME).await;
        assert_eq!(created["status"], sent);
    }
}

#[tokio::test]
async fn the_defaults_of_the_schema_are_the_defaults_of_the_operator() {
    let ns = TestNamespace::new().await;
    let spec = json!({"configMap": NAME, "podSelector": {"app": NAME}});
    let policy = |spec: &Value| {
        let text = serde_json::value::RawValue::from_string(spec.to_string()).unwrap();
        configmonitor_operator::monitor::spec::Policy::of(Some(&text)).unwrap()
    };
    let created = create_strictly(&ns, &object(NAME, &spec)).await.ok().unwrap();
    assert_ne!(created["spec"], spec);
    assert_eq!(policy(&created["spec"]), policy(&spec));
}

#[tokio::test]
async fn the_schema_refuses_what_cannot_work() {
    let ns = TestNamespace::new().await;
    let long = "a".repeat(64);
    let selector = json!({"app": NAME});
    let with = |field: &str, value: Value| {
        let mut spec = json!({"configMap": NAME, "podSelector": selector});
        spec[field] = value;
        spec
    };
    let refused = [
        json!({"podSelector": selector}),
        json!({"configMap": NAME}),
        with("configmap", json!(NAME)),
        with("sources", json!([{"configMap": {"name": NAME}}])),
        json!({"sources": [], "podSelector": selector}),
        json!({"sources": [{}], "podSelector": selector}),
        json!({"sources": [{"configMap": {"name": "Not a name"}}], "podSelector": selector}),
        json!({"sources": [{"configMap": {"name": "a", "keys": []}}], "podSelector": selector}),
        json!({"sources": [{"configMap": {"name": "a"}}, {"configMap": {"name": "a", "keys": ["b"]}}], "podSelector": selector}),
        json!({"sources": [{"configMap": {"name": "a"}, "secret": {"name": "a"}}], "podSelector": selector}),
        json!({"sources": [{"secret": {"name": "a"}}, {"secret": {"name": "a", "keys": ["b"]}}], "podSelector": selector}),
        json!({"sources": [{"configMap": {"name": "a"}}], "keys": ["b"], "podSelector": selector}),
        json!({"sources": (0..17).map(|number| json!({"configMap": {"name": format!("a{number}")}})).collect::<Vec<_>>(),
            "podSelector": selector}),
        with("configMap", json!("")),
        with("configMap", json!("Not a name")),
        with("configMap", json!("a..b")),
        with("configMap", json!("a".repeat(254))),
        with("podSelector", json!({})),
        with("podSelector", json!({"": "x"})),
        with("podSelector", json!((0..33).map(|label| (label.to_string(), "x")).collect::<BTreeMap<_, _>>())),
        with("podSelector", json!({"a b": "x"})),
        with("podSelector", json!({"/a": "x"})),
        with("podSelector", json!({"Prefix/a": "x"})),
        with("podSelector", json!({"a/b/c": "x"})),
        with("podSelector", json!({long.clone(): "x"})),
        with("podSelector", json!({"a": long})),
        with("podSelector", json!({"a": "-"})),
        with("podSelector", json!({"a": "b c"})),
        with("podSelector", json!("app=frontend")),
        with("podSelectorExpressions", json!([{"operator": "Exists"}])),
        with("podSelectorExpressions", json!([{"key": "a"}])),
        with("podSelectorExpressions", json!([{"key": "a", "operator": "Like"}])),
        with("podSelectorExpressions", json!([{"key": "", "operator": "Exists"}])),
        with("podSelectorExpressions", json!([{"key": "a b", "operator": "Exists"}])),
        with("podSelectorExpressions", json!([{"key": "Prefix/a", "operator": "Exists"}])),
        with("podSelectorExpressions", json!([{"key": format!("a/{long}"), "operator": "Exists"}])),
        with("podSelectorExpressions", json!([{"key": format!("{}/a", "a".repeat(254)), "operator": "Exists"}])),
        with("podSelectorExpressions", json!([{"key": "a", "operator": "Exists", "values": ["x"]}])),
        with("podSelectorExpressions", json!([{"key": "a", "operator": "DoesNotExist", "values": ["x"]}])),
        with("podSelectorExpressions", json!([{"key": "a", "operator": "In"}])),
        with("podSelectorExpressions", json!([{"key": "a", "operator": "NotIn", "values": []}])),
        with("podSelectorExpressions", json!([{"key": "a", "operator": "In", "values": ["x", "b c"]}])),
        with("podSelectorExpressions", json!([{"key": "a", "operator": "In", "values": vec!["x"; 33]}])),
        with("podSelectorExpressions", json!(vec![json!({"key": "a", "operator": "Exists"}); 17])),
        with("keys", json!([])),
        with("keys", json!(["x", "x"])),
        with("keys", json!((0..65).map(|key| key.to_string()).collect::<Vec<_>>())),
        with("quietPeriodSeconds", json!(-1)),
        with("quietPeriodSeconds", json!(3601)),
        with("quietPeriodSeconds", json!(1.5)),
        with("maxUnavailable", json!(0)),
        with("maxUnavailable", json!("0%")),
        with("maxUnavailable", json!("101%")),
        with("maxUnavailable", json!("3")),
        with("maxUnavailableTotal", json!(0)),
        with("maxSurge", json!(0)),
        with("maxUnavailableTotal", json!("101%")),
        with("restartLast", json!({})),
        with("restartLast", json!({"matchLabels": {}, "matchExpressions": []})),
        with("restartLast", json!({"matchLabels": {"a b": "x"}})),
        with("restartLast", json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
        with("windows", json!([{"schedule": "@daily"}])),
        with("windows", json!([{"durationSeconds": 60}])),
        with("windows", json!([{"schedule": "0 2 * *", "durationSeconds": 60}])),
        with("windows", json!([{"schedule": format!("{} 2 * * *", "1,".repeat(60) + "1"), "durationSeconds": 60}])),
        with("windows", json!([{"schedule": "@daily", "durationSeconds": 0}])),
        with("windows", json!([{"schedule": "@daily", "durationSeconds": 31_622_401}])),
        with("windows", json!([{"schedule": "@daily", "durationSeconds": 60, "timeZone": ""}])),
        with("windows", json!([{"schedule": "@daily", "durationSeconds": 60, "timeZone": "Mars/Base"}])),
        with("windows", json!([{"schedule": "0,60 * * * *", "durationSeconds": 60}])),
        with("windows", json!([{"schedule": "0 1-24 * * *", "durationSeconds": 60}])),
        with("windows", json!([{"schedule": "0 0 0 * *", "durationSeconds": 60}])),
        with("windows", json!([{"schedule": "0 0 32 * *", "durationSeconds": 60}])),
        with("windows", json!([{"schedule": "0 0 * 13 *", "durationSeconds": 60}])),
        with("windows", json!([{"schedule": "0 0 * * 8", "durationSeconds": 60}])),
        with("windows", json!(vec![json!({"schedule": "@daily", "durationSeconds": 60}); 17])),
        with("minIntervalSeconds", json!(-1)),
        with("canary", json!({"pods": 1})),
        with("canary", json!({"bakeSeconds": 1})),
        with("canary", json!({"pods": 0, "bakeSeconds": 1})),
        with("canary", json!({"pods": "0%", "bakeSeconds": 1})),
        with("canary", json!({"pods": 1, "bakeSeconds": -1})),
        with("minReadySeconds", json!(-1)),
        with("deletionPolicy", json!("Kill")),
        with("progressDeadlineSeconds", json!(0)),
        with("gracePeriodSeconds", json!(0)),
        with("gracePeriodSeconds", json!(2_147_483_648_u64)),
        with("unmanagedPods", json!("Maybe")),
        with("suspend", json!("yes")),
        with("nonsense", json!(1)),
    ];
    for spec in &refused {
        let answer = create_strictly(&ns, &object(NAME, spec)).await;
        assert!(matches!(answer.status, 400 | 422), "{spec} gave {}", answer.status);
    }
    let accepted = [
        json!({"configmap": "kube-root-ca.crt", "podSelector": {"app.kubernetes.io/name": "", "A_b.c-9": "v1.2_3-x"}}),
        with("podSelectorExpressions", json!([])),
        with(
            "podSelectorExpressions",
            json!([{"key": "a", "operator": "In", "values": ["", "x", "x"]}, {"key": "a", "operator": "Exists", "values": []}]),
        ),
        with("quietPeriodSeconds", json!(0)),
        with("maxUnavailable", json!(1)),
        with("maxUnavailable", json!("100%")),
        with("maxUnavailableTotal", json!("50%")),
        with("maxSurge", json!("50%")),
        with("restartLast", json!({"matchLabels": {"role": ""}})),
        with("canary", json!({"pods": "100%", "bakeSeconds": 0})),
        with("podSelector", json!({format!("{}/{}", "a".repeat(253), "b".repeat(63)): "c".repeat(63)})),
    ];
    for (number, spec) in accepted.iter().enumerate() {
        create_strictly(&ns, &object(&format!("good-{number}"), spec)).await.ok().unwrap();
    }
}

#[tokio::test]
async fn the_schema_accepts_every_key_that_a_config_map_may_have() {
    let ns = TestNamespace::new().await;
    let (longest, too_long) = ("a".repeat(253), "a".repeat(254));
    let keys =
        ["a", "config.cfg", ".env", ".", "..", "..a", ".a..", "-", "_", "A.b-9", "", "a b", "a/b", "a,b", "ä", "a\n"];
    for (number, key) in keys.into_iter().chain([longest.as_str(), &too_long]).enumerate() {
        let name = format!("key-{number}");
        let config_map = json!({"metadata": {"name": name}, "data": {key: "x"}});
        let made = ns.client.create(&ns.collection("configmaps"), &config_map).await.unwrap().status;
        let spec = json!({"configMap": NAME, "podSelector": {"app": NAME}, "keys": [key]});
        let monitor = create_strictly(&ns, &object(&name, &spec)).await;
        assert_eq!(monitor.status == 201, made == 201, "{key:?}: {made}");
    }
}

/// Except for `@every`, which names no time, and for schedules that never come. 7 for Sunday, and the second Monday, are taken
/// here only.
#[tokio::test]
async fn a_window_accepts_the_schedules_and_time_zones_that_a_cron_job_accepts() {
    let ns = TestNamespace::new().await;
    let schedules = [
        "0 2 * * *",
        "@hourly",
        "@daily",
        "@weekly",
        "@yearly",
        "@reboot",
        "@every 5m",
        "*/5 9-17/2 1,15 jan-MAR mon-fri",
        "0 0 ? * 0",
        "0 0 30 2 *",
        "60 0 * * *",
        "0 0 L * *",
        "0 0 * * 1#2",
        "0 0 * *",
        "0 0 0 * * *",
        "",
        "TZ=UTC 0 0 * * *",
        "0 0 5-1 * *",
        "0 0 * * */0",
        "* * * * xyz",
        "0 0 * * 7",
        "59 23 31 2,4,6,9,11 +1",
        "0 0 1,,15 * *",
        ", 0 * * *",
        "0 0 */2/3 * *",
        "5/99 0 * * *",
    ];
    let zones = [
        "UTC",
        "Etc/UTC",
        "Europe/Berlin",
        "America/Argentina/Buenos_Aires",
        "CET",
        "Local",
        "",
        "Mars/Base",
        "+02:00",
    ];
    let with_schedule = schedules.map(|schedule| (schedule, None));
    for (number, (schedule, zone)) in
        with_schedule.into_iter().chain(zones.map(|zone| ("@daily", Some(zone)))).enumerate()
    {
        let name = format!("job-{number}");
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}});
        let spec = json!({"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": {"template": template}}});
        let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec});
        let path = format!("/apis/batch/v1/namespaces/{}/cronjobs", ns.namespace);
        let made = ns.client.create(&path, &job).await.unwrap().status;
        let mut window = json!({"schedule": schedule, "durationSeconds": 60});
        if let Some(zone) = zone {
            window["timeZone"] = zone.into();
        }
        let spec = json!({"configMap": NAME, "podSelector": {"app": NAME}, "windows": [window]});
        let text = serde_json::value::to_raw_value(&spec).unwrap();
        let policy = configmonitor_operator::monitor::spec::Policy::of(Some(&text));
        let is_taken = policy.is_ok() && create_strictly(&ns, &object(&name, &spec)).await.status == 201;
        let is_ours = matches!(schedule, "0 0 * * 7" | "0 0 * * 1#2");
        let expected = (made == 201 || is_ours) && !matches!(schedule, "@every 5m" | "0 0 30 2 *" | ", 0 * * *");
        assert_eq!(is_taken, expected, "{schedule:?} in {zone:?}: {made}, {policy:?}");
    }
}

/// On a control plane of its own, because the CRD belongs to the cluster.
#[tokio::test]
async fn with_an_older_crd_pods_still_restart() {
    let control_plane = ControlPlane::start().await.unwrap();
    let kubectl = control_plane.kubectl();
    let shipped = ["create", "--dry-run=client", "--output=json", "-f", &file("crd.yml")];
    let mut crd: Value = serde_json::from_str(&kubectl.ok(&shipped).await.unwrap()).unwrap();
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    crd.pointer_mut(status).unwrap().as_object_mut().unwrap().remove("pods").unwrap();
    create_crd(&control_plane, &crd).await;

    let ns = TestNamespace::on(&control_plane).await;
    ns.config_map(NAME, "one").await;
    ns.deployment(NAME, 2, json!({"app": NAME})).await;
    ns.create_monitor(NAME, json!({})).await;
    let mut operator = ns.operator().await;
    let monitor = ns.settled(NAME, "UpToDate").await;
    assert_eq!(monitor["status"]["pods"], Value::Null);
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    operator.wait_for_message("restart over").await.unwrap();
    operator.terminate().await.unwrap();
    let monitor = ns.get("configmonitors", NAME).await;
    assert_eq!(monitor["status"]["history"].as_array().unwrap().len(), 1);
    let requests = ns.requests_on(&control_plane).unwrap();
    let writes = requests.iter().filter(|entry| entry["objectRef"]["subresource"] == "status").count();
    assert!(writes < 20, "{writes}");
}
