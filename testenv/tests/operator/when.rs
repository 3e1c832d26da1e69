//! When pods are restarted: windows, the interval, the guard against loops, canaries, and restarts on request.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use testenv::{Client, DEADLINE, Operator, eventually};
use tokio::time::sleep;

use crate::eviction::disruption_budget;
use crate::metrics::metrics_of;
use crate::refusal::{not_ready, wait_for_not_ready};
use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME, condition, message_of};

pub(crate) const REQUEST: &str = "magalix.com/restart-requested-at";
/// Who writes the ConfigMap, by its managed fields.
const WRITER: &str = "the-app-itself";
/// The name of the container of every pod here.
const CONTAINER: &str = "app";

/// A window that opens in half a year, and when it opens, as a person reads it.
pub(crate) fn far_window() -> (Value, String) {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let month = (now.month() + 5) % 12 + 1;
    let year = now.year() + i16::from(month < now.month());
    let window = json!({"schedule": format!("30 3 1 {month} *"), "durationSeconds": 60, "timeZone": "Asia/Tokyo"});
    (window, format!("{year}-{month:02}-01 03:30 JST (Asia/Tokyo)"))
}

/// A window that is always open.
pub(crate) fn open_window() -> Value {
    json!({"schedule": "* * * * *", "durationSeconds": 60})
}

fn time(text: &Value) -> Timestamp {
    text.as_str().unwrap_or_else(|| panic!("{text} is no time")).parse().unwrap()
}

fn history(monitor: &Value) -> Vec<&Value> {
    monitor["status"]["history"].as_array().into_iter().flatten().collect()
}

/// The last restart request that was carried out.
fn handled(monitor: &Value) -> &str {
    monitor["status"]["lastHandledRestartRequest"].as_str().unwrap_or_default()
}

fn results(monitor: &Value) -> Vec<&str> {
    history(monitor).into_iter().map(|entry| entry["result"].as_str().unwrap()).collect()
}

/// When restarts have begun, the last one first.
fn starts(monitor: &Value) -> Vec<Timestamp> {
    let latest = Some(&monitor["status"]["restart"]["startedAt"]).filter(|at| !at.is_null());
    latest.into_iter().chain(history(monitor).into_iter().map(|entry| &entry["startedAt"])).map(time).collect()
}

/// Waits until this operator, which may just have started, has reconciled a ConfigMonitor and has come to this reason.
async fn reconciled(operator: &Operator, reason: &str) {
    let series = format!("configmonitor_configmonitors{{reason=\"{reason}\"}} 1");
    eventually(&format!("it is counted as {reason}"), DEADLINE, async || {
        let metrics = metrics_of(operator).await;
        ensure!(metrics.lines().any(|line| line == series), "{metrics}");
        Ok(())
    })
    .await
    .unwrap();
}

/// The status of the container after its process has failed and was started anew.
fn crashed(words: &str) -> Value {
    let terminated = json!({"exitCode": 3, "reason": "Error", "message": words});
    json!({"name": CONTAINER, "image": CONTAINER, "imageID": "", "ready": true, "restartCount": 1,
        "state": {"running": {"startedAt": Timestamp::now().to_string()}}, "lastState": {"terminated": terminated}})
}

impl TestNamespace {
    /// Asks for a restart by this value.
    async fn request(&self, value: &str) {
        self.patch("configmonitors", NAME, json!({"metadata": {"annotations": {REQUEST: value}}})).await;
    }

    async fn windows(&self, windows: &[Value]) {
        self.patch("configmonitors", NAME, json!({"spec": {"windows": windows}})).await;
    }

    /// Kills this operator and starts another one, which comes to this reason.
    async fn another(&self, mut operator: Operator, reason: &str) -> Operator {
        operator.kill();
        let another = self.operator().await;
        reconciled(&another, reason).await;
        another
    }

    /// Waits until the status says this of the pods that go first.
    async fn canary_is(&self, state: &str) -> Value {
        eventually(&format!("the canary is {state}"), DEADLINE, async || {
            let monitor = self.get("configmonitors", NAME).await;
            ensure!(monitor["status"]["restart"]["canary"]["state"] == state, "{}", monitor["status"]);
            Ok(monitor)
        })
        .await
        .unwrap()
    }

    /// Begins a restart of the pods for this content, whose only canary is available and must stay so for an hour. Returns its name.
    async fn canary_for(&self, content: &str) -> String {
        let before = self.pods(APP).await;
        self.edit(NAME, content).await;
        self.canary_is("Baking").await;
        let mut new = self.pods(APP).await;
        new.retain(|name, _| !before.contains_key(name));
        assert_eq!(new.len(), 1, "{new:?} instead of {before:?}");
        new.pop_first().unwrap().0
    }

    /// Its node says something else of a pod.
    async fn set_status(&self, pod: &str, change: impl Fn(&mut Value)) {
        let mut status = self.get("pods", pod).await["status"].clone();
        change(&mut status);
        self.patch("pods", &format!("{pod}/status"), json!({"status": status})).await;
    }

    /// A pod is not ready any more.
    async fn fails(&self, pod: &str) {
        self.set_status(pod, |status| {
            let mut conditions = status["conditions"].as_array_mut().unwrap().iter_mut();
            let ready = conditions.find(|condition| condition["type"] == "Ready").unwrap();
            (ready["status"], ready["lastTransitionTime"]) = (json!("False"), json!(Timestamp::now().to_string()));
        })
        .await;
    }

    /// When the operator has asked for the deletion or eviction of each pod, and the server has done it, in this order.
    fn removals(&self, verb: &str) -> Vec<(String, Timestamp)> {
        let requests = self.requests().unwrap().into_iter();
        let removals = requests.filter(|entry| {
            let subresource = &entry["objectRef"]["subresource"];
            let is_it = entry["verb"] == verb && (verb == "delete" || subresource == "eviction");
            let code = entry["responseStatus"]["code"].as_u64().unwrap();
            is_it && entry["objectRef"]["resource"] == "pods" && (200..300).contains(&code)
        });
        removals
            .map(|entry| {
                (entry["objectRef"]["name"].as_str().unwrap().to_owned(), time(&entry["requestReceivedTimestamp"]))
            })
            .collect()
    }
}

#[tokio::test]
async fn a_change_outside_of_all_windows_waits_for_the_next_one_and_says_when_it_opens_in_its_zone() {
    let ns = TestNamespace::with_pods(2).await;
    let operator = ns.operator().await;
    let (far, opens) = far_window();
    ns.monitor(NAME, json!({"windows": [far]})).await;
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    let held = ns.settled(NAME, "OutsideWindow").await;
    let message = message_of(&held, "Reconciling");
    assert_eq!(message, format!("waiting for the next window, which opens at {opens}"));
    let [reconciling, stalled] = ["Reconciling", "Stalled"].map(|name| condition(&held, name)["status"].clone());
    assert_eq!((reconciling, stalled), (json!("True"), json!("False")));
    let operator = ns.another(operator, "OutsideWindow").await;
    assert_eq!(ns.pods(APP).await, before);

    ns.windows(&[far, open_window()]).await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(results(&settled), ["Completed"]);
    reconciled(&operator, "UpToDate").await;
    assert_eq!(ns.deletions().unwrap(), 2);
}

#[tokio::test]
async fn a_restart_that_has_begun_goes_on_after_its_window_has_closed() {
    let (ns, observer) = TestNamespace::observed(3).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"windows": [open_window()], "maxUnavailable": 1})).await;
    let before = ns.pods(APP).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.edit(NAME, "two").await;
    wait_for_not_ready(&ns, 1).await;
    ns.windows(&[far_window().0]).await;
    refusal.lift_for_all().await;
    let settled = ns.settled(NAME, "UpToDate").await;
    ns.replaced(APP, &before).await;
    assert_eq!(results(&settled), ["Completed"]);
    assert_eq!(observer.end(&settled).await.most_missing(), 1);

    ns.edit(NAME, "three").await;
    ns.settled(NAME, "OutsideWindow").await;
    assert_eq!(ns.deletions().unwrap(), 3);
}

/// The window is open in the first 20 seconds of each minute.
#[tokio::test]
async fn several_changes_are_one_restart_and_who_was_down_while_a_window_was_open_waits_for_the_next() {
    const OPEN: i64 = 20;
    let second = || Timestamp::now().as_second() % 60;
    let ns = TestNamespace::with_pods(2).await;
    let mut operator = ns.operator().await;
    ns.monitor(NAME, json!({"windows": [{"schedule": "* * * * *", "durationSeconds": OPEN}]})).await;
    let before = ns.pods(APP).await;
    operator.kill();
    for content in ["two", "three", "four"] {
        ns.edit(NAME, content).await;
    }
    // One opens and closes meanwhile.
    while second() > OPEN {
        sleep(Duration::from_millis(200)).await;
    }
    while second() <= OPEN {
        sleep(Duration::from_millis(200)).await;
    }
    let back = Timestamp::now();
    let _operator = ns.operator().await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(results(&settled), ["Completed"]);
    let start = starts(&settled)[0];
    assert!(start >= back && start.as_second() % 60 < OPEN, "back at {back}, and the restart began at {start}");
    assert_eq!(ns.deletions().unwrap(), 2);
}

#[tokio::test]
async fn between_the_starts_of_two_restarts_there_is_the_interval_also_if_the_operator_is_killed_meanwhile() {
    let ns = TestNamespace::with_pods(2).await;
    let operator = ns.operator().await;
    ns.monitor(NAME, json!({"minIntervalSeconds": 3600})).await;
    let first = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    let second = ns.replaced(APP, &first).await;
    let start = starts(&ns.settled(NAME, "UpToDate").await)[0];

    ns.edit(NAME, "three").await;
    let until = start + SignedDuration::from_hours(1);
    let message = format!("waiting until {until} (spec.minIntervalSeconds)");
    assert_eq!(message_of(&ns.settled(NAME, "MinInterval").await, "Reconciling"), message);
    let operator = ns.another(operator, "MinInterval").await;
    ns.edit(NAME, "four").await;
    eventually("the newest content is pending", DEADLINE, async || {
        let version = ns.get("configmaps", NAME).await["metadata"]["resourceVersion"].clone();
        let status = ns.get("configmonitors", NAME).await["status"].clone();
        ensure!(status["sources"][0]["resourceVersion"] == version, "{status}");
        Ok(())
    })
    .await
    .unwrap();
    reconciled(&operator, "MinInterval").await;
    assert_eq!(ns.pods(APP).await, second);

    let interval = Timestamp::now().as_second() - start.as_second() + 10;
    ns.patch("configmonitors", NAME, json!({"spec": {"minIntervalSeconds": interval}})).await;
    ns.another(operator, "MinInterval").await.kill();
    let _operator = ns.operator().await;
    ns.replaced(APP, &second).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(results(&settled), ["Completed", "Completed"], "the edits in between are one restart");
    let apart = starts(&settled)[0] - start;
    assert!(apart.total(jiff::Unit::Second).unwrap() >= f64::from(i32::try_from(interval).unwrap()), "{apart}");
}

/// An application that writes its ConfigMap whenever one of its pods starts.
async fn write_at_each_start(client: Client, pods: String, config_map: String, mut seen: BTreeSet<String>) {
    loop {
        for pod in client.list(&pods).await.unwrap() {
            if seen.insert(pod["metadata"]["uid"].as_str().unwrap().to_owned()) {
                let patch = json!({"data": {"config.cfg": format!("started as {}", pod["metadata"]["name"])}});
                client.merge_patch(&config_map, &patch).await.unwrap().ok().unwrap();
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_application_that_writes_its_own_config_map_is_slowed_down_and_gets_the_last_content_in_the_end() {
    let ns = TestNamespace::with_pods(1).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    let own = format!("{}?fieldManager={WRITER}", ns.path("configmaps", NAME));
    let pods = ns.path("pods", &format!("?labelSelector={APP}"));
    let first = ns.pods(APP).await.into_values().collect();
    let application = tokio::spawn(write_at_each_start(ns.client.clone(), pods, own, first));
    ns.edit(NAME, "two").await;

    let held = ns.messages_have(&["restarts follow each other too fast"]).await;
    let reason = |monitor: &Value| condition(monitor, "Ready")["reason"].clone();
    assert_eq!((reason(&held), &held["status"]["restartBackOffSeconds"]), (json!("RestartBackOff"), &json!(30)));
    assert_eq!(starts(&held).len(), 5);
    let named = format!("last written: ConfigMap/{NAME} by {WRITER:?}");
    let stalled = message_of(&held, "Stalled");
    assert!(stalled.contains(&named), "{stalled}");
    assert_eq!(condition(&held, "Stalled")["status"], "False");
    let event = ns.event("ConfigMonitor", "RestartBackOff").await;
    assert!(event["type"] == "Warning" && event["note"].as_str().unwrap().contains(&named), "{event}");

    let slower = eventually("the sixth restart is over, and the next one waits for longer", DEADLINE, async || {
        let monitor = ns.get("configmonitors", NAME).await;
        ensure!(starts(&monitor).len() == 6 && reason(&monitor) == "RestartBackOff", "{}", monitor["status"]);
        Ok(monitor)
    })
    .await
    .unwrap();
    assert_eq!(slower["status"]["restartBackOffSeconds"], 60);
    let apart = starts(&slower)[0] - starts(&slower)[1];
    assert!(apart.total(jiff::Unit::Second).unwrap() >= 30.0, "{apart}");

    // Whoever wants it so sets an interval, which takes the guard's place.
    application.abort();
    let before = ns.pods(APP).await;
    ns.patch("configmonitors", NAME, json!({"spec": {"minIntervalSeconds": 1}})).await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(settled["status"]["restartBackOffSeconds"], Value::Null);
    assert_eq!(starts(&settled).len(), 7);
}

#[tokio::test]
async fn a_canary_goes_first_and_the_others_only_when_it_has_been_available_for_long_enough() {
    let ns = TestNamespace::with_pods(4).await;
    let operator = ns.operator().await;
    ns.monitor(NAME, json!({"canary": {"pods": 1, "bakeSeconds": 5}})).await;
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    let baking = ns.canary_is("Baking").await;
    assert_eq!((&baking["status"]["restart"]["canary"]["pods"], starts(&baking).len()), (&json!(1), 1));
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(results(&settled), ["Completed"]);
    let removals = ns.removals("delete");
    assert_eq!(removals.len(), 4, "{removals:?}");
    let baked = removals[1].1 - removals[0].1;
    assert!(baked.total(jiff::Unit::Second).unwrap() >= 5.0, "{baked}");
    for message in ["canary available", "canary passed"] {
        operator.wait_for_message(message).await.unwrap();
    }
}

#[tokio::test]
async fn a_canary_that_is_not_ready_any_more_stops_the_restart_and_going_back_replaces_it_alone() {
    let ns = TestNamespace::with_pods(3).await;
    let operator = ns.operator().await;
    // When pods were created and content came is known in whole seconds.
    sleep(Duration::from_secs(3)).await;
    ns.monitor(NAME, json!({"canary": {"pods": 1, "bakeSeconds": 3600}})).await;
    let canary = ns.canary_for("two").await;
    sleep(Duration::from_secs(5)).await;
    ns.fails(&canary).await;
    let failed = ns.settled(NAME, "CanaryFailed").await;
    assert_eq!(condition(&failed, "Stalled")["status"], "True");
    let event = ns.event("ConfigMonitor", "CanaryFailed").await;
    assert!(event["type"] == "Warning" && event["note"].as_str().unwrap().contains(&canary), "{event}");

    // Nothing goes on by itself, not even when it is ready again.
    ns.set_status(&canary, |status| {
        let mut conditions = status["conditions"].as_array_mut().unwrap().iter_mut();
        conditions.find(|condition| condition["type"] == "Ready").unwrap()["status"] = json!("True");
    })
    .await;
    let operator = ns.another(operator, "CanaryFailed").await;
    assert_eq!(ns.deletions().unwrap(), 1);

    ns.edit(NAME, "one").await;
    let settled = ns.settled(NAME, "UpToDate").await;
    ns.ready_pods(APP, 3).await;
    reconciled(&operator, "UpToDate").await;
    assert_eq!(ns.sent_deletions()[1..], [canary]);
    assert_eq!(results(&settled), ["Completed", "Superseded"]);
}

#[tokio::test]
async fn a_canary_whose_container_is_started_anew_is_told_of_with_its_last_words_and_a_request_restarts_all_anew() {
    let ns = TestNamespace::with_pods(3).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"canary": {"pods": 1, "bakeSeconds": 3600}})).await;
    let before = ns.pods(APP).await;
    let canary = ns.canary_for("two").await;
    ns.set_status(&canary, |status| status["containerStatuses"] = json!([crashed("no such port: 80o80")])).await;
    let failed = ns.settled(NAME, "CanaryFailed").await;
    let event = ns.event("ConfigMonitor", "CanaryFailed").await;
    let note = event["note"].as_str().unwrap();
    let words = format!("pod {canary}: container \"{CONTAINER}\" restarted, last exit code 3 (Error): no such port");
    assert!(note.contains(&words) && message_of(&failed, "Stalled").contains(REQUEST), "{event}");
    assert_eq!(ns.deletions().unwrap(), 1);

    let halted = ns.pods(APP).await;
    ns.patch("configmonitors", NAME, json!({"spec": {"canary": {"bakeSeconds": 5}}})).await;
    ns.request("once more").await;
    ns.replaced(APP, &halted).await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(results(&settled), ["Completed", "Superseded"]);
    assert_eq!(handled(&settled), "once more");
    let removals = ns.removals("delete");
    assert_eq!(removals.len(), 4, "{removals:?}");
    let baked = removals[2].1 - removals[1].1;
    assert!(baked.total(jiff::Unit::Second).unwrap() >= 5.0, "it had a canary, too: {removals:?}");
}

#[tokio::test]
async fn other_content_ends_the_failure_of_a_canary_and_has_a_canary_of_its_own() {
    let ns = TestNamespace::with_pods(3).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"canary": {"pods": "40%", "bakeSeconds": 3600}})).await;
    let before = ns.pods(APP).await;
    let canary = ns.canary_for("two").await;
    ns.fails(&canary).await;
    ns.settled(NAME, "CanaryFailed").await;
    ns.edit(NAME, "three").await;
    ns.canary_is("Baking").await;
    let after = ns.pods(APP).await;
    let left = before.keys().filter(|name| after.contains_key(*name)).count();
    assert!(!after.contains_key(&canary) && left == 2, "the failed one goes first: {after:?}");
    assert_eq!(ns.deletions().unwrap(), 2);
}

#[tokio::test]
async fn canaries_are_evicted_within_the_budget_and_so_are_the_others_after_them() {
    let (ns, observer) = TestNamespace::observed(5).await;
    disruption_budget(&ns, NAME, json!({"maxUnavailable": 1})).await;
    let _operator = ns.operator().await;
    let canary = json!({"pods": 2, "bakeSeconds": 5});
    ns.monitor(NAME, json!({"canary": canary, "maxUnavailable": 1, "deletionPolicy": "Evict"})).await;
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(results(&settled), ["Completed"]);
    let (evictions, deletions) = (ns.removals("create"), ns.removals("delete"));
    assert_eq!((evictions.len(), deletions.len()), (5, 0), "{evictions:?}");
    let baked = evictions[2].1 - evictions[1].1;
    assert!(baked.total(jiff::Unit::Second).unwrap() >= 5.0, "{evictions:?}");
    assert_eq!(observer.end(&settled).await.most_missing(), 1);
}

#[tokio::test]
async fn a_request_restarts_the_pods_once_for_each_value_past_a_closed_window_and_the_interval() {
    let ns = TestNamespace::with_pods(2).await;
    let operator = ns.operator().await;
    let first = ns.pods(APP).await;
    let baseline = ns.monitor(NAME, json!({"windows": [far_window().0], "minIntervalSeconds": 3600})).await;
    ns.request("2026-11-23T10:00:00+01:00").await;
    let second = ns.replaced(APP, &first).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!((results(&settled), handled(&settled)), (vec!["Completed"], "2026-11-23T10:00:00+01:00"));
    assert_eq!(history(&settled)[0]["sources"], Value::Null);
    assert_eq!(settled["status"]["sources"], baseline["status"]["sources"]);
    let event = ns.event("ConfigMonitor", "RestartStarted").await;
    assert_eq!(event["note"], "a restart is requested: restarting 2 pods");

    let operator = ns.another(operator, "UpToDate").await;
    ns.patch("configmonitors", NAME, json!({"metadata": {"annotations": {"of": "somebody else"}}})).await;
    ns.request("2026-11-23T10:00:00+01:00").await;
    // What is done next shows that nothing was done for this.
    ns.request("once more").await;
    ns.replaced(APP, &second).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!((results(&settled).len(), handled(&settled)), (2, "once more"));
    reconciled(&operator, "UpToDate").await;
    assert_eq!(ns.deletions().unwrap(), 4);
}

#[tokio::test]
async fn a_request_makes_a_change_that_waits_for_a_window_begin_and_is_no_second_restart() {
    let ns = TestNamespace::with_pods(2).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"windows": [far_window().0]})).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "OutsideWindow").await;
    // A pod that has come since runs with the new content, and goes, too.
    ns.patch("deployments", NAME, json!({"spec": {"replicas": 3}})).await;
    let before = ns.ready_pods(APP, 3).await;
    ns.request("now").await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!((results(&settled), handled(&settled)), (vec!["Completed"], "now"));
    assert_eq!(history(&settled)[0]["sources"], json!([{"kind": "ConfigMap", "name": NAME}]));
    assert_eq!(ns.deletions().unwrap(), 3);
}

#[tokio::test]
async fn a_request_in_the_middle_of_a_restart_is_handled_after_it() {
    let (ns, observer, operator, before) = TestNamespace::one_by_one(2).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.edit(NAME, "two").await;
    wait_for_not_ready(&ns, 1).await;
    let with_two = not_ready(&ns).await;
    ns.request("in the middle").await;
    let operator = ns.another(operator, "RestartInProgress").await;
    assert_eq!(not_ready(&ns).await, with_two, "the restart under way goes on");
    refusal.lift_for_all().await;
    let settled = eventually("both are over", DEADLINE, async || {
        let monitor = ns.get("configmonitors", NAME).await;
        ensure!(handled(&monitor) == "in the middle", "{}", monitor["status"]);
        Ok(monitor)
    })
    .await
    .unwrap();
    assert_eq!(results(&settled), ["Completed", "Completed"]);
    let replaced: Vec<u64> = history(&settled).iter().map(|entry| entry["replaced"].as_u64().unwrap()).collect();
    assert_eq!(replaced, [2, 2]);
    let after = ns.replaced(APP, &before).await;
    assert!(with_two.iter().all(|name| !after.contains_key(name)), "{after:?}");
    assert_eq!(observer.end(&settled).await.most_missing(), 1);
    reconciled(&operator, "UpToDate").await;
    assert_eq!(ns.deletions().unwrap(), 4);
}

#[tokio::test]
async fn a_request_waits_while_the_config_monitor_is_suspended_and_the_status_says_so() {
    let ns = TestNamespace::with_pods(1).await;
    let operator = ns.operator().await;
    ns.create_monitor(NAME, json!({"suspend": true})).await;
    let before = ns.pods(APP).await;
    assert_eq!(condition(&ns.settled(NAME, "Suspended").await, "Ready")["status"], "True");
    ns.request("under suspend").await;
    let waits = ns.messages_have(&["a restart is requested, and has not begun"]).await;
    assert_eq!(condition(&waits, "Ready")["status"], "False");
    let _operator = ns.another(operator, "Suspended").await;
    assert_eq!(ns.pods(APP).await, before);
    ns.patch("configmonitors", NAME, json!({"spec": {"suspend": false}})).await;
    ns.replaced(APP, &before).await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(handled(&settled), "under suspend");
}
