//! `kubectl cmon`, as kubectl finds and calls it.

use std::env;
use std::path::Path;

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME};
use testenv::pages::Section;
use testenv::process::output;

use crate::test_namespace::{TestNamespace, control_plane};

/// What a call has printed, and its exit code.
#[derive(Debug)]
struct Call {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Calls `kubectl cmon` with these words.
async fn cmon(ns: &TestNamespace, words: &str) -> Call {
    let kubectl = control_plane().await.kubectl();
    let operator = testenv::operator::binary().unwrap();
    let folders = [&operator, kubectl.program()].map(|program: &Path| program.parent().unwrap().to_owned());
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths(folders.into_iter().chain(env::split_paths(&path))).unwrap();
    let words: Vec<&str> = ["cmon"].into_iter().chain(words.split(' ')).chain(["--namespace", &ns.namespace]).collect();
    let ended = output(kubectl.command(&words).env("PATH", path)).await.unwrap();
    let [out, err] = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap());
    Call { code: ended.status.code(), out, err }
}

/// Returns a text without what differs from call to call: times, and the ends of generated names.
fn without_times(text: &str) -> String {
    let word = |word: &str| {
        let is_age = word.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<u64>().is_ok());
        match word.split_once("frontend-") {
            Some((before, _)) => format!("{before}frontend-*"),
            None if is_age || word.parse::<jiff::Timestamp>().is_ok() => "TIME".to_owned(),
            None => word.to_owned(),
        }
    };
    text.lines().map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[tokio::test]
async fn the_status_joins_sources_pods_and_history() {
    let ns = TestNamespace::with_pods(2).await;
    ns.create_monitor(NAME, json!({})).await;
    let unread = cmon(&ns, "status").await;
    assert_eq!(unread.out, "ConfigMonitor/frontend  no status: the operator has not read it\n", "{unread:?}");
    let _operator = ns.operator().await;
    ns.settled(NAME, "UpToDate").await;
    let before = ns.ready_pods(APP, 2).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    ns.settled(NAME, "UpToDate").await;
    let section = Section::of("docs/kubectl-cmon.md", "kubectl cmon").unwrap();
    let [step] = &section.sessions[0][..] else { panic!("one command") };
    step.record_run();
    let words = step.command.strip_prefix("kubectl cmon ").unwrap().replace("shop", NAME);
    let shown = cmon(&ns, &words).await;
    assert_eq!(without_times(&shown.out), without_times(&step.prints.replace("shop", NAME)), "{shown:?}");
    let all = cmon(&ns, "status -o json").await;
    let all: Value = serde_json::from_str(&all.out).unwrap();
    assert_eq!((&all[0]["status"]["pods"], all[0]["pods"].as_array().unwrap().len()), (&json!(2), 2), "{all}");
    assert_eq!(all[0]["pods"][0]["bornBeforeContent"], false);
    let line = format!("{:<24} {NAME:<32} {:<24} {:<10} ConfigMap/{NAME}\n", ns.namespace, "UpToDate", "");
    let all = cmon(&ns, "status -A").await;
    assert!(all.out.contains(&line), "{all:?}");
}

#[tokio::test]
async fn waiting_ends_with_the_content_as_of_now_or_says_why_it_does_not() {
    let ns = TestNamespace::with_pods(2).await;
    ns.create_monitor(NAME, json!({})).await;
    let unread = cmon(&ns, "wait frontend --timeout=1s").await;
    assert_eq!((unread.code, unread.err.contains("no status yet")), (Some(4), true), "{unread:?}");
    let operator = ns.operator().await;
    assert_eq!(cmon(&ns, "wait frontend").await.code, Some(0));
    // The operator reads the edit only later.
    drop(operator);
    let before = ns.ready_pods(APP, 2).await;
    ns.edit(NAME, "two").await;
    let unread = cmon(&ns, "wait --timeout=1s").await;
    assert_eq!(
        (unread.code, unread.err.contains("has not read ConfigMap/frontend yet")),
        (Some(4), true),
        "{unread:?}"
    );
    let _operator = ns.operator().await;
    let waited = cmon(&ns, "wait --for-source cm/frontend").await;
    assert_eq!((waited.code, &*waited.out), (Some(0), "configmonitor/frontend has its content\n"), "{waited:?}");
    assert!(ns.pods(APP).await.values().all(|uid| !before.values().any(|before| before == uid)));
    let other = cmon(&ns, "wait --for-source secret/frontend").await;
    assert_eq!((other.code, other.err.contains("no ConfigMonitor with the source Secret/frontend")), (Some(1), true));
    let change = async |spec: Value| ns.patch("configmonitors", NAME, json!({"spec": spec})).await;
    change(json!({"podSelector": {"app": "nobody"}})).await;
    let nobody = cmon(&ns, "wait frontend").await;
    assert_eq!((nobody.code, nobody.err.contains("no pod matched app=nobody")), (Some(1), true), "{nobody:?}");
}

#[tokio::test]
async fn what_is_suspended_is_held_until_it_is_resumed() {
    let ns = TestNamespace::with_pods(2).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    let before = ns.ready_pods(APP, 2).await;
    let suspended = cmon(&ns, "suspend frontend").await;
    assert_eq!((suspended.code, &*suspended.out), (Some(0), "configmonitor/frontend suspended\n"), "{suspended:?}");
    assert_eq!(cmon(&ns, "wait frontend").await.code, Some(0), "nothing waits");
    ns.edit(NAME, "two").await;
    assert_eq!(cmon(&ns, "wait frontend").await.code, Some(5));
    assert_eq!(ns.pods(APP).await, before);
    let resumed = cmon(&ns, "resume frontend --wait").await;
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let before = ns.replaced(APP, &before).await;
    let restarted = cmon(&ns, "restart frontend --wait").await;
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    ns.replaced(APP, &before).await;
}

#[tokio::test]
async fn a_missing_right_and_a_wrong_name_get_a_sentence() {
    let ns = TestNamespace::with_pods(0).await;
    let missing = cmon(&ns, "status shop").await;
    assert_eq!(
        (missing.code, missing.err.contains("cannot get configmonitors \"shop\"")),
        (Some(1), true),
        "{missing:?}"
    );
    let nobody = cmon(&ns, "status --as=nobody").await;
    assert_eq!((nobody.code, nobody.err.contains("User \"nobody\" cannot list")), (Some(1), true), "{nobody:?}");
    assert_eq!(cmon(&ns, "restart").await.code, Some(2));
    let help = cmon(&ns, "wait --help").await;
    assert!(help.out.contains("Usage: kubectl cmon wait"), "{help:?}");
}
