//! `/metrics` shows what has happened.

use std::time::Duration;

use anyhow::ensure;
use jiff::Timestamp;
use serde_json::json;
use testenv::fixture::NAME;
use testenv::{Client, DEADLINE, Operator, eventually};
use tokio::time::sleep;

use crate::refusal::wait_for_not_ready;
use crate::test_namespace::TestNamespace;

pub(crate) async fn metrics_of(operator: &Operator) -> String {
    let client = Client::new(&operator.url().await.unwrap());
    client.get("/metrics").await.unwrap().ok().unwrap().as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_change_that_waits_for_a_window_is_pending_and_ages_from_the_start_of_its_restart() {
    let ns = TestNamespace::with_pods(1).await;
    let labels = format!("namespace=\"{}\",name=\"{NAME}\"", ns.namespace);
    let oldest = &*format!("configmonitor_oldest_pending_change_timestamp_seconds{{{labels}}} ");
    let operator = ns.operator().await;
    // The 29th of February.
    ns.monitor(NAME, json!({"windows": [{"schedule": "0 8 29 2 *", "durationSeconds": 60}]})).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "OutsideWindow").await;
    let lines = ["configmonitor_configmonitors{reason=\"OutsideWindow\"} 1", "configmonitor_pending_changes 1"];
    let is_in = |metrics: &str, line: &str| metrics.lines().any(|other| other == line);
    let metrics = eventually("the ConfigMonitor is counted", DEADLINE, async || {
        let metrics = metrics_of(&operator).await;
        ensure!(lines.iter().all(|line| is_in(&metrics, line)), "{metrics}");
        Ok(metrics)
    })
    .await
    .unwrap();
    assert!(!metrics.lines().any(|line| line.starts_with(oldest)), "{metrics}");

    // Times are whole seconds.
    sleep(Duration::from_secs(2)).await;
    let _refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.patch("configmonitors", NAME, json!({"spec": {"windows": null}})).await;
    wait_for_not_ready(&ns, 1).await;
    let monitor = ns.settled(NAME, "RestartInProgress").await;
    let start: Timestamp = monitor["status"]["restart"]["startedAt"].as_str().unwrap().parse().unwrap();
    let line = format!("{oldest}{}", start.as_second());
    eventually("the oldest change is as old as the restart", DEADLINE, async || {
        let metrics = metrics_of(&operator).await;
        ensure!(is_in(&metrics, &line), "{line} is not in {metrics}");
        Ok(())
    })
    .await
    .unwrap();
}
