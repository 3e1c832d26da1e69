//! The demo on a real node: edit the ConfigMap, and the page shows the new content.

use std::process::Command;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::is_ready;
use testenv::process::printed;

use crate::lab::{Lab, Pages, REPLICAS, lab, new_message};

/// The number of repetitions of steps that may fail now and then.
const TIMES: usize = 10;

#[tokio::test]
async fn an_edit_shows_on_the_page_in_new_pods_ten_times_in_a_row() {
    let lab = lab().await;
    let mut before = lab.shows(&lab.edit().await).await;
    for _ in 0..TIMES {
        let message = lab.edit().await;
        let after = lab.shows(&message).await;
        assert!(all_new(&before, &after), "{before:?}, {after:?}");
        lab.service_shows(&message).await;
        before = after;
    }
}

#[tokio::test]
async fn an_edit_by_hand_shows_on_the_page() {
    let lab = lab().await;
    let before = lab.shows(&lab.edit().await).await;
    let message = new_message();
    let mut edit = Command::new(lab.admin().program());
    edit.args(["edit", "configmap", "flaskapp-config", "--namespace=lab"])
        .env("KUBECONFIG", lab.admin().kubeconfig())
        .env("KUBE_EDITOR", format!("sed -i 's/MSG = .*/MSG = \"{message}\"/'"));
    printed(&edit).await.unwrap();
    let after = lab.shows(&message).await;
    assert!(all_new(&before, &after), "{before:?}, {after:?}");
}

/// A kubelet reads ConfigMaps through a cache of its own, and without a quiet period nothing gives it time. The
/// operator cannot know; the test prints how often it happens.
#[tokio::test]
async fn without_a_quiet_period_every_edit_makes_new_pods() {
    let lab = lab().await;
    let mut before = lab.shows(&lab.edit().await).await;
    set(&lab, json!({"quietPeriodSeconds": 0})).await;
    let mut stale = 0;
    for _ in 0..TIMES {
        let message = lab.edit().await;
        let after = new_pages(&lab, &before).await;
        stale += after.values().filter(|(_, shown)| *shown != message).count();
        before = after;
    }
    println!("quietPeriodSeconds 0: {stale} of {} new pods were started with the old content", TIMES * REPLICAS);
    set(&lab, json!({"quietPeriodSeconds": null})).await;
    // The next edit ends what the previous one may have left behind.
    let message = lab.edit().await;
    lab.shows(&message).await;
}

#[tokio::test]
async fn rolling_evictions_keep_the_other_pods_ready() {
    let lab = lab().await;
    let before = lab.shows(&lab.edit().await).await;
    set(&lab, json!({"maxUnavailable": 1, "deletionPolicy": "Evict"})).await;
    let message = lab.edit().await;
    let mut fewest = REPLICAS;
    let after = lab
        .eventually("all pages show it", async || {
            let staying = |pod: &&Value| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
            fewest = fewest.min(lab.pods("app=frontend").await?.iter().filter(staying).count());
            let pages = lab.pages().await?;
            ensure!(pages.values().all(|(_, shown)| *shown == message), "{pages:?}");
            Ok(pages)
        })
        .await;
    assert!(all_new(&before, &after), "{before:?}, {after:?}");
    assert!(fewest >= REPLICAS - 1, "{fewest} of {REPLICAS}");
    set(&lab, json!({"maxUnavailable": "100%", "deletionPolicy": null})).await;
}

/// One reference is to a key of a ConfigMap that does not exist: with `optional`, the kubelet starts the pods all the same,
/// so the ConfigMap is an optional source.
#[tokio::test]
async fn an_edit_of_a_config_map_that_is_read_from_the_pods_shows_on_the_page() {
    let lab = lab().await;
    let message = lab.edit().await;
    lab.shows(&message).await;
    let key = json!({"configMapKeyRef": {"name": "missing", "key": "key", "optional": true}});
    let container = json!({"name": "app", "env": [{"name": "MISSING", "valueFrom": key}]});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}}).to_string();
    lab.kubectl(&["patch", "deployment", "frontend", "-p", &patch]).await.unwrap();
    lab.kubectl(&["rollout", "status", "deployment", "frontend"]).await.unwrap();
    set(&lab, json!({"configmap": null, "discover": {}})).await;
    lab.eventually("two sources are found", async || {
        let path = "/apis/magalix.com/v1/namespaces/lab/configmonitors/flakapp-config-monitor";
        let status = lab.client().get(path).await?.ok()?["status"].clone();
        let is_ready = status["conditions"][0]["reason"] == "UpToDate";
        ensure!(status["source"] == "2 discovered" && is_ready, "{status}");
        Ok(())
    })
    .await;
    let before = lab.shows(&message).await;
    let after = lab.shows(&lab.edit().await).await;
    assert!(all_new(&before, &after), "{before:?}, {after:?}");
    set(&lab, json!({"configmap": "flaskapp-config", "discover": null})).await;
    lab.kubectl(&["rollout", "undo", "deployment", "frontend"]).await.unwrap();
    lab.kubectl(&["rollout", "status", "deployment", "frontend"]).await.unwrap();
}

/// Waits until every page comes from a pod that is not one of `before`.
async fn new_pages(lab: &Lab, before: &Pages) -> Pages {
    lab.eventually("all pods are new", async || {
        let after = lab.pages().await?;
        ensure!(all_new(before, &after), "{after:?}");
        Ok(after)
    })
    .await
}

/// Sets fields of the ConfigMonitor's spec.
async fn set(lab: &Lab, fields: Value) {
    let patch = json!({"spec": fields}).to_string();
    lab.kubectl(&["patch", "cmon", "flakapp-config-monitor", "--type=merge", "-p", &patch]).await.unwrap();
    lab.eventually("the operator has seen it", async || {
        let path = "/apis/magalix.com/v1/namespaces/lab/configmonitors/flakapp-config-monitor";
        let monitor = lab.client().get(path).await?.ok()?;
        ensure!(monitor["status"]["observedGeneration"] == monitor["metadata"]["generation"], "{monitor}");
        Ok(())
    })
    .await;
}

/// Returns whether no page comes from a pod that is one of `before`.
fn all_new(before: &Pages, after: &Pages) -> bool {
    after.values().all(|(uid, _)| !before.values().any(|(old, _)| old == uid))
}
