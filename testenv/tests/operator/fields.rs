//! What the fields of the spec do, and what kubectl shows of the status.

use anyhow::ensure;
use serde_json::json;
use testenv::{DEADLINE, eventually};

use crate::test_namespace::{TestNamespace, control_plane};
use testenv::fixture::{APP, NAME};

/// Returns the output of `kubectl get cmon`: the names of the columns, and the cells of the one row.
async fn table(ns: &TestNamespace) -> (Vec<String>, Vec<String>) {
    let args = ["get", "cmon", "--namespace", &ns.namespace];
    let text = control_plane().await.kubectl().ok(&args).await.unwrap();
    let (header, row) = text.trim_end().split_once('\n').unwrap();
    // Columns are three spaces apart, and the name of one contains a space.
    let cells =
        |line: &str| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    (cells(header), cells(row))
}

#[tokio::test]
async fn kubectl_shows_the_progress_of_a_restart() {
    let ns = TestNamespace::with_pods(3).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    let (columns, row) = table(&ns).await;
    assert_eq!(columns, ["NAME", "SOURCE", "READY", "REASON", "PROGRESS", "LAST RESTART", "AGE"]);
    assert_eq!(row[..4], [NAME, "ConfigMap/frontend", "True", "UpToDate"]);
    assert!(!row.iter().any(|cell| cell.contains("/3")), "{row:?}");

    let before = ns.pods(APP).await;
    let (resists, _) = before.first_key_value().unwrap();
    let refusal = ns.refuse_deletion(resists).await;
    ns.edit(NAME, "two").await;
    eventually("two of three pods are replaced, and one is refused", DEADLINE, async || {
        let refused = ns.settled(NAME, "DeletionRefused").await;
        ensure!(refused["status"]["restart"]["progress"] == "2/3", "{}", refused["status"]);
        Ok(())
    })
    .await
    .unwrap();
    let (_, row) = table(&ns).await;
    assert_eq!(row[..5], [NAME, "ConfigMap/frontend", "False", "DeletionRefused", "2/3"]);

    refusal.lift().await;
    ns.settled(NAME, "UpToDate").await;
    let (_, row) = table(&ns).await;
    assert!(!row.iter().any(|cell| cell.contains("/3")), "{row:?}");
}
