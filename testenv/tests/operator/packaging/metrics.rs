//! Prometheus scrapes the operator, and the API server's audit log and the statuses have the same numbers.

use std::collections::BTreeMap;
use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::counts::{Counts, counted, requests_agree};
use testenv::fixture::{APP, NAME};
use testenv::prometheus::promtool;
use testenv::{DEADLINE, Operator, Prometheus, RunDir, eventually, project};

use super::monitoring::{is_known, names_of_metrics, rules};
use crate::metrics::metrics_of;
use crate::test_namespace::TestNamespace;

const OTHER: &str = "other";

/// Returns OpenMetrics text in Prometheus' older format, in which a counter is declared with its suffix `_total`.
/// promtool reads no other one.
fn in_older_format(metrics: &str) -> String {
    let counters: Vec<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let declared = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        ["#", what, name, ..] if counters.contains(&name) => {
            line.replacen(&format!("{what} {name} "), &format!("{what} {name}_total "), 1)
        }
        _ => line.to_owned(),
    };
    metrics.lines().map(|line| declared(line) + "\n").collect()
}

pub(super) async fn is_accepted(metrics: &str) {
    let dir = RunDir::create().unwrap();
    fs::write(dir.path().join("metrics"), metrics).unwrap();
    let checked = promtool(dir.path(), &["check", "metrics"], "metrics").await.unwrap();
    let output_text = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(checked.status.success() && output_text.is_empty(), "{}: {output_text}", checked.status);
}

/// Starts a Prometheus that scrapes this operator, as if in a pod.
async fn scraped(operator: &Operator, ns: &TestNamespace) -> Prometheus {
    let prometheus = Prometheus::start(&rules()).await.unwrap();
    let labels = json!({"namespace": ns.namespace, "pod": "operator-0"});
    prometheus.scrape(&[(operator.url().await.unwrap(), labels)]).unwrap();
    prometheus
}

/// Evicts `frontend`, with a restart that is superseded while its budget allows none, and deletes `other`, except for a
/// pod that nobody would create again.
async fn play(ns: &TestNamespace) {
    let spec = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": NAME}}});
    ns.create("poddisruptionbudgets", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    ns.config_map(OTHER, "one").await;
    ns.deployment(OTHER, 2, json!({"app": OTHER})).await;
    let bare = json!({"metadata": {"name": "bare", "labels": {"app": OTHER}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    ns.create("pods", bare).await;
    ns.ready_pods("app=other", 3).await;

    ns.monitor(NAME, json!({"deletionPolicy": "Evict"})).await;
    ns.monitor(OTHER, json!({"configMap": OTHER, "podSelector": {"app": OTHER}})).await;
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "EvictionBlocked").await;
    ns.edit(NAME, "three").await;
    eventually("a restart is superseded", DEADLINE, async || {
        let monitor = ns.get("configmonitors", NAME).await;
        ensure!(
            outcomes(std::slice::from_ref(&monitor)).contains_key(&vec!["Superseded".to_owned()]),
            "{}",
            monitor["status"]
        );
        Ok(())
    })
    .await
    .unwrap();
    ns.patch("poddisruptionbudgets", NAME, json!({"spec": {"maxUnavailable": 1}})).await;
    ns.settled(NAME, "UpToDate").await;
    ns.replaced(APP, &before).await;
    for content in ["two", "three"] {
        ns.edit(OTHER, content).await;
        ns.settled(OTHER, "UpToDate").await;
    }
}

fn outcomes(monitors: &[Value]) -> Counts {
    let mut counts = Counts::new();
    for entry in monitors.iter().flat_map(|monitor| monitor["status"]["history"].as_array().into_iter().flatten()) {
        *counts.entry(vec![entry["result"].as_str().unwrap().to_owned()]).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn the_metrics_say_what_the_audit_log_and_the_statuses_say() {
    let ns = TestNamespace::with_pods(3).await;
    let operator = ns.operator().await;
    let prometheus = scraped(&operator, &ns).await;
    play(&ns).await;

    let audit = requests_agree(&prometheus, "", || ns.requests()).await.unwrap();
    let of = |verb: &str, resource: &str, codes: &[u64]| -> u64 {
        codes.iter().filter_map(|code| audit.get(&vec![verb.to_owned(), resource.to_owned(), code.to_string()])).sum()
    };
    let query = async |metric: &str, labels: &[&str]| counted(&prometheus.query(metric).await.unwrap(), labels);
    let expected = |pairs: &[(&str, u64)]| -> Counts {
        pairs.iter().map(|(label, count)| (vec![(*label).to_owned()], *count)).collect()
    };

    let (deleted, evicted) = (of("delete", "pods", &[200]), of("create", "pods/eviction", &[200, 201]));
    assert_eq!((deleted, evicted), (4, 3));
    let removed = query("configmonitor_pods_removed_total", &["method"]).await;
    assert_eq!(removed, expected(&[("Delete", deleted), ("Evict", evicted)]));
    let refused = of("create", "pods/eviction", &[429]);
    assert!(refused > 0);
    assert_eq!(query("configmonitor_evictions_refused_total", &[]).await, BTreeMap::from([(vec![], refused)]));

    let monitors = [ns.get("configmonitors", NAME).await, ns.get("configmonitors", OTHER).await];
    let ended = query("configmonitor_restarts_total", &["outcome"]).await;
    assert_eq!(ended, outcomes(&monitors));
    assert_eq!(ended, expected(&[("Completed", 3), ("Superseded", 1)]));
    assert_eq!(query("configmonitor_restart_duration_seconds_count", &[]).await, BTreeMap::from([(vec![], 4)]));
    // The bare pod, once for each restart of its application.
    assert_eq!(query("configmonitor_pods_skipped_total", &[]).await, BTreeMap::from([(vec![], 2)]));
    assert_eq!(query("configmonitor_configmonitors", &["reason"]).await, expected(&[("UpToDate", 2)]));
    assert_eq!(query("configmonitor_pending_changes", &[]).await, Counts::new());
    assert_eq!(query("configmonitor_synced", &[]).await, BTreeMap::from([(vec![], 1)]));
    is_accepted(&in_older_format(&metrics_of(&operator).await)).await;
    has_data(&prometheus).await;
}

/// Each query of the dashboard returns data, except for the panels that explain an empty result.
async fn has_data(prometheus: &Prometheus) {
    let text = fs::read_to_string(project("deploy/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        let may_be_empty = !panel["fieldConfig"]["defaults"]["noValue"].is_null();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let unknown = names_of_metrics(query).into_iter().find(|name| !is_known(name));
            assert_eq!(unknown, None, "{query}");
            let samples = query.replace("$namespace", ".*").replace("$__rate_interval", "5m");
            let samples = prometheus.query(&samples).await.unwrap();
            assert!(may_be_empty || !samples.is_empty(), "{}: no data for {query}", panel["title"]);
            queries += 1;
        }
    }
    assert!(queries > 20, "{queries} queries");
}
