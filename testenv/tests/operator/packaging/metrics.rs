//! promtool takes what the operator serves, and what the dashboard asks for.

use std::fs;

use serde_json::{Value, json};
use testenv::fixture::NAME;
use testenv::prometheus::promtool;
use testenv::{RunDir, project};

use super::monitoring::{is_known, names_of_metrics};
use crate::metrics::metrics_of;
use crate::test_namespace::TestNamespace;

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

#[tokio::test]
async fn the_metrics_are_accepted_and_the_dashboard_asks_for_no_others() {
    let ns = TestNamespace::with_pods(1).await;
    let operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "UpToDate").await;
    is_accepted(&in_older_format(&metrics_of(&operator).await)).await;

    let text = fs::read_to_string(project("deploy/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut rules = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let unknown = names_of_metrics(query).into_iter().find(|name| !is_known(name));
            assert_eq!(unknown, None, "{query}");
            let query = query.replace("$namespace", ".*").replace("$__rate_interval", "5m");
            rules.push(json!({"record": format!("query:{}", rules.len()), "expr": query}));
        }
    }
    assert!(rules.len() > 15, "{} queries", rules.len());
    let dir = RunDir::create().unwrap();
    let groups = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(dir.path().join("queries.yml"), groups.to_string()).unwrap();
    let checked = promtool(dir.path(), &["check", "rules", "queries.yml"], "/dev/null").await.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
