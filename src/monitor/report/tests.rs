use super::*;
use crate::docs::{REFERENCE, code, table};
use crate::kube::error::{Cause, Error};
use crate::kube::objects::Owner;
use crate::kube::{Action, PODS, Resource};
use crate::monitor::content::{ContentHash, Kind};
use crate::monitor::notice::{completed, started};
use crate::monitor::pod::Pod;
use crate::monitor::restart::standing::{Move, Standing, Unsettled};
use crate::monitor::selector::Selector;
use crate::monitor::status::Begun;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

static SELECTOR: LazyLock<Selector> =
    LazyLock::new(|| Selector::new(BTreeMap::from([("app".to_owned(), "web".to_owned())]), Vec::new()).unwrap());
static SOURCES: LazyLock<[SourceName; 1]> =
    LazyLock::new(|| [SourceName { kind: Kind::ConfigMap, name: "settings".into() }]);
static DENIED: LazyLock<Error> =
    LazyLock::new(|| Action::on("get", PODS, "web-9").failed(Cause::Refused("denied".to_owned())));

static UNKNOWN: LazyLock<ContentHash> = LazyLock::new(|| "blake9:00".into());
static OUTSIDE: LazyLock<Hold> = LazyLock::new(|| {
    let opens = "2026-11-24T02:00:00+01:00[Europe/Berlin]".parse().unwrap();
    Hold::OutsideWindow(Some(opens))
});
static INTERVAL: LazyLock<Hold> = LazyLock::new(|| Hold::MinInterval(server(3600)));
static BACK_OFF: LazyLock<Hold> = LazyLock::new(|| Hold::BackOff(server(60)));

fn waiting(hold: &'static Hold) -> Situation<'static> {
    Situation::Held { hold, writers: vec!["ConfigMap/settings by \"app\" at 1970-01-01T00:00:30Z".to_owned()] }
}

fn server(second: i64) -> ServerTime {
    ServerTime::from_second(second)
}

fn settled(missing_keys: Option<&'static str>) -> Situation<'static> {
    Situation::Settled { selector: &SELECTOR, missing_keys, has_sources: true }
}

/// The reason and the messages of Ready, Reconciling and Stalled.
fn reported(situation: &Situation<'_>, status: &Status) -> (String, [String; 3]) {
    let mut status = status.clone();
    report(situation, &mut status, 1, server(0));
    let messages = [0, 1, 2].map(|number| status.conditions[number].message.to_string());
    (status.conditions[0].reason.to_string(), messages)
}

/// One pod of three is terminating, one is left.
fn standing() -> Standing<'static> {
    Standing {
        next: Move::Replace { remove: Vec::new(), hand_over: Vec::new() },
        remaining: 1,
        lacking: 1,
        on_their_way: 1,
        unsettled: Vec::new(),
        unavailable: Vec::new(),
        unstartable: Vec::new(),
        last: Vec::new(),
        is_any_last: false,
        terminating: Vec::new(),
        handed_over: Vec::new(),
        obstacles: Vec::new(),
        canary: None,
    }
}

fn owner(name: &str) -> Owner {
    let (api_version, kind) = ("apps/v1".to_owned(), "ReplicaSet".to_owned());
    Owner { api_version, kind, name: name.to_owned(), uid: "u".into() }
}

fn text_of(names: &[String]) -> Progress {
    let (owners, names): (Vec<Owner>, Vec<&str>) = names.iter().map(|name| (owner(name), name.as_str())).unzip();
    let pods: Vec<Pod> = names.iter().map(|name| Pod::named(name)).collect();
    let standing = Standing {
        unsettled: owners.iter().map(|owner| Unsettled { owner, available: 2, expected: 3, failure: None }).collect(),
        unavailable: pods.iter().collect(),
        terminating: names,
        ..standing()
    };
    Progress::of(&begun(), &standing)
}

#[test]
fn the_message_says_which_pods_wait_for_the_label_of_restart_last() {
    let standing = Standing { last: vec!["web-8", "web-9"], ..standing() };
    let mut status = Status::default();
    for situation in [Situation::RestartInProgress, |progress| Situation::ProgressDeadlineExceeded(progress, None)] {
        report(&situation(Progress::of(&begun(), &standing)), &mut status, 1, server(1));
        let words = "kept until a selected pod matches spec.restartLast: web-8, web-9";
        assert!(status.conditions.iter().any(|condition| condition.message.contains(words)), "{:?}", status.conditions);
    }
}

fn progress() -> Progress {
    text_of(&["web-9".to_owned()])
}

#[test]
fn the_reference_has_the_annotation_that_requests_a_restart() {
    let documented: Vec<&str> = table(REFERENCE, "## Annotation").iter().map(|row| row[0]).collect();
    assert_eq!(documented, [code(REQUEST)]);
}

/// Every situation, the status of Ready, Reconciling and Stalled in it, and the reason of its Event.
fn situations() -> Vec<(Situation<'static>, [&'static str; 3], Option<&'static str>)> {
    let (ready, moving, resting, stalled) = (
        ["True", "False", "False"],
        ["False", "True", "False"],
        ["False", "False", "False"],
        ["False", "False", "True"],
    );
    vec![
        (settled(None), ready, None),
        (settled(Some("no key")), resting, Some("KeyNotFound")),
        (Situation::Suspended { requested: false }, ready, None),
        (Situation::QuietPeriod { seconds: 3 }, moving, None),
        (waiting(&OUTSIDE), moving, None),
        (waiting(&INTERVAL), moving, None),
        (waiting(&BACK_OFF), moving, Some("RestartBackOff")),
        (Situation::Suspended { requested: true }, resting, None),
        (Situation::WaitingForOtherRestart, moving, None),
        (Situation::RestartInProgress(progress()), moving, None),
        (Situation::DeletionRefused(progress(), &DENIED), moving, Some("DeletionRefused")),
        (Situation::EvictionBlocked(progress(), &DENIED), moving, Some("EvictionBlocked")),
        (Situation::SourceNotFound(&*SOURCES), resting, Some("SourceNotFound")),
        (Situation::ProgressDeadlineExceeded(progress(), Some(&DENIED)), stalled, Some("ProgressDeadlineExceeded")),
        (Situation::CanaryFailed("pod a: it crashed"), stalled, Some("CanaryFailed")),
        (Situation::InvalidSpec("no source"), stalled, Some("InvalidSpec")),
        (Situation::InvalidStatus(&UNKNOWN), stalled, Some("InvalidStatus")),
        (Situation::Forbidden(&DENIED), stalled, Some("Forbidden")),
    ]
}

fn pending() -> Status {
    let change = r#"{"hash":"sha256:2","since":"2026-11-21T10:00:00Z","observedAt":"2026-11-21T10:00:00Z"}"#;
    let source = format!(r#"{{"kind":"ConfigMap","name":"settings","hash":"sha256:1","changes":[{change}]}}"#);
    let text = format!(r#"{{"source":"ConfigMap/settings","sources":[{source}],"restart":{{}}}}"#);
    serde_json::from_str(&text).unwrap()
}

fn begun() -> Begun {
    Begun { deleted: 3, ..Begun::new(1, server(100), "app=web".to_owned(), 3).with_remaining(1) }
}

fn statuses(status: &Status) -> Vec<(&str, &str)> {
    status.conditions.iter().map(|condition| (&*condition.r#type, &*condition.status)).collect()
}

#[test]
fn every_situation_reads_as_kstatus_expects_it() {
    for (situation, [ready, reconciling, stalled], _) in situations() {
        let mut status = Status::default();
        report(&situation, &mut status, 4, server(7));
        let expected = [("Ready", ready), ("Reconciling", reconciling), ("Stalled", stalled)];
        assert_eq!(statuses(&status), expected, "{situation:?}");
        assert_eq!(status.observed_generation, Some(4));
        for condition in &status.conditions {
            assert_eq!(condition.reason, situation.described(&status).0.word());
            assert_eq!((condition.observed_generation, condition.last_transition_time), (Some(4), server(7)));
            assert!(!condition.message.is_empty(), "{situation:?}");
        }
    }
}

#[test]
fn a_request_that_waits_for_the_restart_under_way_is_said() {
    let mut status = pending();
    report(&Situation::QuietPeriod { seconds: 3 }, &mut status, 1, server(0));
    let before = status.clone();
    report_request(&mut status);
    assert_eq!(status, before, "it is part of what is pending");
    status.restart.iter_mut().for_each(|restart| restart.begun = Some(begun()));
    report_request(&mut status);
    assert!(status.conditions[1].message.ends_with("another restart is requested, and begins once this one is over"));
}

#[test]
fn suspended_is_ready_unless_something_is_pending_and_says_what_a_lift_would_do() {
    let mut status = pending();
    assert_eq!(report(&Situation::Suspended { requested: false }, &mut status, 1, server(0)), None);
    assert_eq!(statuses(&status), [("Ready", "False"), ("Reconciling", "False"), ("Stalled", "False")]);
    let [ready, reconciling] = [0, 1].map(|number| &*status.conditions[number].message);
    assert_eq!(ready, "the content of ConfigMap/settings has changed; the restart has not begun");
    assert_eq!(reconciling, "suspended: restarts the selected pods once spec.suspend is false");
    let (_, [ready, reconciling, _]) = reported(&Situation::Suspended { requested: false }, &Status::default());
    assert_eq!(
        (&*ready, &*reconciling),
        ("no change of the sources is pending", "suspended: records changes, but restarts no pod")
    );
}

#[test]
fn a_restart_that_waits_says_until_when_and_a_loop_who_writes() {
    let says = |situation: &Situation<'_>, activity: &str, advice: &str| {
        let not_begun = "the content of ConfigMap/settings has changed; the restart has not begun";
        assert_eq!(reported(situation, &pending()).1, [not_begun, activity, advice]);
    };
    let opens = "waiting for the next window, which opens at 2026-11-24 02:00 CET (Europe/Berlin)";
    says(&waiting(&OUTSIDE), opens, NO_ACTION_NEEDED);
    says(&waiting(&INTERVAL), "waiting until 1970-01-01T01:00:00Z (spec.minIntervalSeconds)", NO_ACTION_NEEDED);
    let until = "waiting until 1970-01-01T00:01:00Z, because restarts follow each other too fast";
    let advice = "if an application writes the source, leave its keys out of spec.keys; if such restarts are intended, \
                  set spec.minIntervalSeconds";
    let writer = r#"last written: ConfigMap/settings by "app" at 1970-01-01T00:00:30Z"#;
    says(&waiting(&BACK_OFF), until, &format!("{advice}; {writer}"));
    says(&Situation::Held { hold: &BACK_OFF, writers: Vec::new() }, until, advice);
    let quiet = "waiting until the content has been unchanged for 3 s";
    says(&Situation::QuietPeriod { seconds: 3 }, quiet, NO_ACTION_NEEDED);
}

#[test]
fn a_request_is_what_is_reported_of_unless_the_content_has_changed_too() {
    let mut requested = Status { sources: Vec::new(), ..pending() };
    let request = r#"{"value":"now","observedAt":"2026-11-21T10:00:00Z"}"#;
    requested.restart.as_mut().unwrap().request = Some(serde_json::from_str(request).unwrap());
    assert_eq!(requested.why(), Why::Requested);
    for (is_new, status) in [(false, &requested), (true, &Status::default())] {
        let (_, [ready, reconciling, _]) = reported(&Situation::Suspended { requested: is_new }, status);
        assert_eq!((&*ready, reconciling.starts_with("suspended: restarts")), (NOT_BEGUN, true), "{reconciling}");
    }
    let (_, [ready, reconciling, _]) = reported(&Situation::QuietPeriod { seconds: 3 }, &requested);
    assert_eq!((&*ready, &*reconciling), (NOT_BEGUN, "waiting until the pods can be listed"));
    requested.restart.as_mut().unwrap().begun = Some(begun());
    requested.sources = pending().sources;
    requested.sources[0].hash = Some("sha256:2".into());
    let (_, [_, reconciling, _]) = reported(&Situation::QuietPeriod { seconds: 3 }, &requested);
    assert_eq!(reconciling, "waiting until the content has been unchanged for 3 s");
    let (_, [ready, ..]) = reported(&Situation::RestartInProgress(progress()), &requested);
    assert_eq!(ready, "2 of 3 pods deleted as requested");
    let note = started(1, "ConfigMap/settings", Why::Requested, 2).note;
    assert_eq!(note, "restart 1: requested: restarting 2 pods");
    let over = completed("ConfigMap/settings", Why::Requested, Vec::new(), &begun(), 0, server(142));
    assert_eq!(over.note, "restart 1: restarted 3 pods as requested within 43 s");
    requested.sources = pending().sources;
    assert_eq!(requested.why(), Why::Changed);
}

#[test]
fn a_missing_config_map_says_that_a_restart_is_held() {
    for (mut status, held) in [(Status::default(), false), (pending(), true)] {
        let notice = report(&Situation::SourceNotFound(&*SOURCES), &mut status, 1, server(0)).unwrap();
        assert!(
            notice.note.contains("settings") && notice.note.contains("; the restart is held") == held,
            "{}",
            notice.note
        );
    }
}

#[test]
fn a_condition_keeps_its_time_while_its_status_is_the_same() {
    let mut status = Status::default();
    report(&Situation::QuietPeriod { seconds: 3 }, &mut status, 1, server(10));
    report(&Situation::RestartInProgress(progress()), &mut status, 2, server(20));
    let times = |status: &Status| -> Vec<ServerTime> {
        status.conditions.iter().map(|condition| condition.last_transition_time).collect()
    };
    assert_eq!(times(&status), [server(10), server(10), server(10)]);
    assert_eq!((&*status.conditions[0].reason, status.observed_generation), ("RestartInProgress", Some(2)));
    report(&settled(None), &mut status, 2, server(30));
    assert_eq!(times(&status), [server(30), server(30), server(10)]);
    report(&Situation::InvalidSpec("no source"), &mut status, 3, server(40));
    assert_eq!(times(&status), [server(40), server(30), server(40)]);
}

#[test]
fn a_status_is_the_same_when_nothing_has_changed() {
    for (situation, ..) in situations() {
        let mut status = pending();
        report(&situation, &mut status, 1, server(10));
        let before = status.clone();
        report(&situation, &mut status, 1, server(99));
        assert_eq!(status, before, "{situation:?} would be written again and again");
    }
}

#[test]
fn a_transition_is_one_event_and_what_lasts_is_none() {
    for (situation, _, reason) in situations() {
        for before in [settled(None), Situation::QuietPeriod { seconds: 3 }] {
            let mut status = Status::default();
            report(&before, &mut status, 1, server(10));
            let notice = report(&situation, &mut status, 1, server(20));
            assert_eq!(notice.as_ref().map(|notice| notice.reason), reason, "{situation:?}");
            assert!(notice.is_none_or(|notice| notice.warning && notice.sources.is_empty() && !notice.note.is_empty()));
            assert_eq!(report(&situation, &mut status, 2, server(30)), None, "{situation:?} lasts");
            report(&before, &mut status, 2, server(40));
            let again = report(&situation, &mut status, 2, server(50));
            assert_eq!(again.map(|notice| notice.reason), reason, "{situation:?} has come again");
        }
    }
}

/// What a restart that stands like this waits for.
fn activity(progress: Progress) -> String {
    let (_, [ready, reconciling, _]) = reported(&Situation::RestartInProgress(progress), &pending());
    assert_eq!(ready, "2 of 3 pods deleted for the content of ConfigMap/settings");
    reconciling
}

#[test]
fn progress_counts_the_pods_and_names_those_that_are_in_the_way() {
    assert_eq!(activity(text_of(&[])), "deleting pods");
    let expected = "waiting: ReplicaSet web-9 has 2 of 3 available; unavailable: web-9; terminating: web-9";
    assert_eq!(activity(progress()), expected);
    let pod = |name: &str, ready_since| Pod { ready_since, ..Pod::named(name) };
    let pods = [pod("a", None), pod("b", Some(server(0)))];
    assert_eq!(activity(text_of(&[]).not_deleted(pods.iter())), "waiting: not deleted: a (not ready), b");
    let cut_off = |trouble: Option<&str>| Pod {
        are_containers_ready: true,
        trouble: trouble.map(Arc::from),
        ..Pod::named(trouble.map_or("c", |_| "d"))
    };
    let pods = [cut_off(None), cut_off(Some("ReadinessGatesNotReady: no target")), pod("a", None)];
    let standing_of = Standing { unavailable: pods.iter().collect(), ..standing() };
    let expected =
        "waiting: not ready although their containers are: c, d (ReadinessGatesNotReady: no target); unavailable: a";
    assert_eq!(activity(Progress::of(&begun(), &standing_of)), expected);
    let canary = Standing { canary: Some((1, Some(server(60)))), ..standing() };
    let expected = "waiting: canary: 1 pod must stay available until 1970-01-01T00:01:00Z";
    assert_eq!(activity(Progress::of(&begun(), &canary)), expected);
}

#[test]
fn no_two_conditions_say_the_same_and_an_event_says_what_they_all_do() {
    for (situation, _, event) in situations() {
        let mut status = pending();
        let notice = report(&situation, &mut status, 1, server(0));
        let [ready, reconciling, stalled] = [0, 1, 2].map(|number| &*status.conditions[number].message);
        for (one, other) in [(ready, reconciling), (ready, stalled), (reconciling, stalled)] {
            assert!(!one.contains(other) && !other.contains(one), "{situation:?}: {one}; {other}");
        }
        let doing = if situation.described(&status).0.holds() == Holds::Reconciling {
            format!("{reconciling}; ")
        } else {
            String::new()
        };
        let note = format!("{ready}; {doing}{stalled}");
        assert_eq!(notice.map(|notice| notice.note), event.map(|_| note), "{situation:?}");
    }
}

#[test]
fn what_a_restart_waits_for_is_said_in_the_words_of_the_pod_and_of_its_owner() {
    let owner = owner("web");
    let pod = Pod { trouble: Some(Arc::from("Unschedulable: no node")), ..Pod::named("web-1") };
    let failure = Some("exceeded quota: few");
    let halts = Standing {
        next: Move::Wait(None),
        unsettled: vec![Unsettled { owner: &owner, available: 1, expected: 3, failure }],
        unavailable: vec![&pod],
        ..standing()
    };
    let progress = Progress::of(&begun(), &halts);
    let halted = "the budget allows no further deletion; ReplicaSet web has 1 of 3 available (exceeded quota: few); \
                  unavailable: web-1 (Unschedulable: no node)";
    let messages = |situation: &Situation<'_>| reported(situation, &pending()).1;
    let [_, reconciling, stalled] = messages(&Situation::RestartInProgress(progress.clone()));
    assert_eq!((&*reconciling, &*stalled), (&*format!("waiting: {halted}"), NO_ACTION_NEEDED));
    let others_wait = Standing { remaining: 2, unstartable: vec!["web-1"], last: vec!["web-9"], ..halts.clone() };
    let first = ["waiting: ReplicaSet web", "waiting: kept until"];
    for (standing, first) in [Standing { remaining: 0, ..halts }, others_wait].into_iter().zip(first) {
        let [_, reconciling, _] = messages(&Situation::RestartInProgress(Progress::of(&begun(), &standing)));
        assert!(reconciling.starts_with(first), "no budget keeps back what is not there: {reconciling}");
    }
    let error = r#"cannot get pods "web-9": denied"#;
    for (situation, tried) in [
        (Situation::DeletionRefused(progress.clone(), &DENIED), "deletions"),
        (Situation::EvictionBlocked(progress.clone(), &DENIED), "evictions"),
    ] {
        let expected = format!("retrying the {tried} with exponential backoff: {error}; {halted}");
        assert_eq!(messages(&situation)[1], expected);
    }
    let overdue = "no progress within spec.progressDeadlineSeconds";
    let [ready, _, stalled] = messages(&Situation::ProgressDeadlineExceeded(progress.clone(), None));
    assert_eq!(ready, "2 of 3 pods deleted for the content of ConfigMap/settings");
    assert_eq!(stalled, format!("{overdue}; {halted}"));
    let [.., stalled] = messages(&Situation::ProgressDeadlineExceeded(progress, Some(&DENIED)));
    assert_eq!(stalled, format!("{overdue}; fix the cause: {error}; {halted}"));
}

#[test]
fn that_nothing_is_left_to_do_says_what_that_rests_on() {
    let status = |more: &str| -> Status {
        let text = format!(r#"{{"source":"ConfigMap/settings","sources":[]{more}}}"#);
        serde_json::from_str(&text).unwrap()
    };
    let restart = |result: &str, numbers: &str| {
        let times = r#""startedAt":"2026-11-21T10:00:00Z","completedAt":"2026-11-21T10:00:09Z""#;
        let entry = format!(r#"{{"number":1,{times},{numbers},"result":"{result}"}}"#);
        status(&format!(r#","pods":4,"history":[{entry}]"#))
    };
    let ready = |status: &Status| reported(&settled(None), status);
    let says = |status: &Status, text: &str| {
        let (reason, [ready, reconciling, stalled]) = ready(status);
        assert_eq!((&*reason, &*ready), ("UpToDate", text));
        assert_eq!((&*reconciling, &*stalled), (NO_RESTART_PENDING, NO_ACTION_NEEDED));
    };
    let at = r#","baselinedAt":"2026-11-21T10:00:00Z""#;
    let recorded = "the content of ConfigMap/settings was recorded at 2026-11-21T10:00:00Z";
    let assumed = "the selected pods are assumed to run with it";
    says(&status(at), recorded);
    says(&status(&format!(r#"{at},"pods":4"#)), &format!("{recorded}; {assumed}"));
    let by = "restarted for the content of ConfigMap/settings by 2026-11-21T10:00:09Z";
    says(&restart("Completed", r#""pods":4"#), &format!("4 of 4 pods {by}"));
    let skipped = |status: Status| Status { skipped: 1, skipped_pods: "x (no controller)".to_owned(), ..status };
    let left = "skipped: x (no controller)";
    says(&skipped(restart("Completed", r#""pods":3"#)), &format!("3 of 4 pods {by}; {left}"));
    says(&skipped(status(at)), &format!("0 of 1 pod {}; {left}", by.replace('9', "0")));
    let unknown = "no change of ConfigMap/settings is pending";
    says(&status(""), unknown);
    says(&restart("Superseded", r#""pods":4"#), unknown);
    let (reason, [ready, _, stalled]) = ready(&status(&format!(r#"{at},"pods":0"#)));
    assert_eq!(
        (&*reason, ready),
        ("NoPodsSelected", format!("no pod matched app=web when pods were last listed; {recorded}"))
    );
    assert_eq!(stalled, "check spec.podSelector");
    let (reason, [ready, _, stalled]) = reported(&settled(Some("no key")), &status(&format!(r#"{at},"pods":0"#)));
    assert_eq!(
        (&*reason, ready),
        ("KeyNotFound", format!("no key; no pod matched app=web when pods were last listed; {recorded}"))
    );
    assert_eq!(stalled, "check the keys that the spec names");
}

#[test]
fn keys_that_a_config_map_lacks_are_named() {
    let config_map = |data: &str| -> DataObject {
        let metadata = r#"{"name":"settings","uid":"u","resourceVersion":"1"}"#;
        serde_json::from_str(&format!(r#"{{"metadata":{metadata}{data}}}"#)).unwrap()
    };
    let missing = |data: &str| missing_keys(&SOURCES[0], &config_map(data), &["a", "b"].map(str::to_owned).into());
    let both = r#","data":{"a":"secret"},"binaryData":{"b":"c2VjcmV0"}"#;
    assert_eq!(missing(both), None);
    let lacks = r#"ConfigMap "settings" lacks "a", which the spec names"#;
    assert_eq!(missing(&both.replace(r#""a""#, r#""c""#)).as_deref(), Some(lacks));
    let lacks = r#"ConfigMap "settings" lacks "a", "b", which the spec names"#;
    assert_eq!(missing("").as_deref(), Some(lacks));
}

#[test]
fn a_missing_right_says_what_waits_for_it() {
    let replica_sets = Resource { api_version: "apps/v1", kind: "ReplicaSet", plural: "replicasets" };
    let right = Action::on("get", replica_sets, "web").failed(Cause::Forbidden("no".to_owned()));
    let waits = |status: &Status| reported(&Situation::Forbidden(&right), status).1;
    let why = "waits for the right to get replicasets";
    assert_eq!(waits(&pending())[0], format!("the restart {why}"));
    let mut under_way = pending();
    under_way.restart.as_mut().unwrap().begun = Some(begun());
    let grant = "grant the operator the right to get replicasets; cannot get replicasets \"web\": no";
    let expected = [&*format!("the restart {why}"), "retrying with exponential backoff", grant];
    assert_eq!(waits(&under_way), expected);
    assert!(waits(&Status::default())[0].starts_with("changes wait for the right to"));
    let right = Action::new("list", SECRETS).failed(Cause::Forbidden("no".to_owned()));
    assert_eq!(
        reported(&Situation::Forbidden(&right), &Status::default()).1[2],
        "grant the operator the right to get, list and watch secrets (deploy/secrets has a Role, deploy/cluster-wide/secrets a ClusterRole, the chart secrets.enabled); cannot list secrets: no"
    );
}

proptest! {
    #[test]
    fn no_number_is_a_panic(
        (pods, remaining, names) in any::<(usize, usize, Vec<String>)>(),
        (seconds, generation, now, began) in any::<(u64, i64, i64, i64)>(),
    ) {
        let begun = Begun { pods, remaining, started_at: server(began), ..begun() };
        let progress = Progress { pods, gone: remaining, ..text_of(&names) };
        let mut status = Status::default();
        for situation in [
            Situation::RestartInProgress(progress.clone()),
            Situation::ProgressDeadlineExceeded(progress, None),
            Situation::QuietPeriod { seconds },
        ] {
            report(&situation, &mut status, generation, server(now));
        }
        let over = completed("ConfigMap/settings", Why::Changed, SOURCES.to_vec(), &begun, names.len(), server(now).plus(Duration::from_secs(seconds)));
        prop_assert!(!over.note.is_empty());
    }
}
