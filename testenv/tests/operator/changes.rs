//! Which edits are a change of content.

use std::collections::BTreeSet;

use serde_json::json;
use testenv::operator::message;

use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME};

#[tokio::test]
async fn an_edit_replaces_every_selected_pod_once_and_no_other() {
    let ns = TestNamespace::with_pods(3).await;
    ns.deployment("other", 2, json!({"app": "other"})).await;
    let operator = ns.operator().await;
    let monitor = ns.monitor(NAME, json!({})).await;
    let (before, others) = (ns.pods(APP).await, ns.pods("app=other").await);

    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    let after = ns.settled(NAME, "UpToDate").await;
    assert_eq!(ns.pods("app=other").await, others);
    assert_eq!(ns.deletions().unwrap(), 3);
    assert_ne!(after["status"]["sources"][0]["hash"], monitor["status"]["sources"][0]["hash"]);
    let history = &after["status"]["history"];
    assert_eq!(history.as_array().unwrap().len(), 1);
    assert_eq!((&history[0]["result"], &history[0]["pods"]), (&json!("Completed"), &json!(3)));
    assert_eq!(history[0]["sources"], json!([{"kind": "ConfigMap", "name": NAME}]));
    for kind in ["ConfigMonitor", "Deployment"] {
        for reason in ["RestartStarted", "RestartCompleted"] {
            ns.event(kind, reason).await;
        }
    }
    ns.event("ConfigMap", "RestartCompleted").await;
    for message in ["starting", "synced", "modification detected", "restart started", "restart over"] {
        operator.wait_for_message(message).await.unwrap();
    }
    let log = operator.log().unwrap();
    let deleted = log.iter().filter(|line| message(line) == "pod deleted").map(|line| line["uid"].as_str().unwrap());
    assert_eq!(deleted.collect::<BTreeSet<_>>(), before.values().map(String::as_str).collect());
}
