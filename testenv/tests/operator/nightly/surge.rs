//! `maxSurge` at its bounds: rollouts, reverts and the end of ConfigMonitors at any moment, and many pods that look handed over.

use std::env;
use std::time::Duration;

use anyhow::ensure;
use fastrand::Rng;
use serde_json::{Value, json};
use testenv::fixture::{APP, Fixture, NAME, grant_surge_without_policy, install_crd, start_proxy};
use testenv::process::status_kib;
use testenv::{ControlPlane, DEADLINE, eventually, is_ready};
use tokio::time::sleep;

use crate::namespaces::start;
use crate::surge::surging;

/// As many pods as somebody has made look handed over, with 16 KiB of labels each.
const FORGED: usize = 2000;
/// What an operator takes that is not optimized, and little more. With all that is written in these pods, it takes 48.
const MAX_MEMORY_MIB: u64 = 32;
const REPLICAS: usize = 4;
const STEPS: usize = 25;

#[tokio::test]
async fn with_surge_no_pod_is_missing_whatever_users_do_meanwhile() {
    let first: u64 = env::var("CHAOS_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in (first..first + 20).step_by(4) {
        // Each has a namespace and an operator of its own.
        tokio::join!(play(seed), play(seed + 1), play(seed + 2), play(seed + 3));
    }
}

async fn play(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let surge = [json!(1), json!("50%"), json!("100%")][rng.usize(..3)].clone();
    let spec =
        json!({"maxUnavailable": null, "maxSurge": surge, "quietPeriodSeconds": rng.u8(..3), "minIntervalSeconds": 1});
    let (ns, observer, _operator) = surging(REPLICAS, spec.clone()).await;
    let own = [json!(1), json!("100%")][rng.usize(..2)].clone();
    let strategy = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": own}});
    ns.patch("deployments", NAME, json!({"spec": {"strategy": strategy}})).await;
    let image = |image: u8| json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image.to_string()}]}}}});
    let mut refusal = None;
    for _ in 0..STEPS {
        match rng.u8(..10) {
            8 | 9 => match refusal.take() {
                None => refusal = Some(ns.keep_new_pods_from_getting_ready().await),
                Some(begun) => begun.lift_for_all().await,
            },
            0..4 => ns.edit(NAME, ["one", "two", "three"][rng.usize(..3)]).await,
            4 | 5 => drop(ns.patch("deployments", NAME, image(rng.u8(..3))).await),
            // The next one may have other pods to give back or to delete.
            _ if ns.client.get(&ns.path("configmonitors", NAME)).await.unwrap().status == 404 => {
                ns.create_monitor(NAME, spec.clone()).await;
            }
            _ => ns.delete("configmonitors", NAME).await,
        }
        sleep(Duration::from_millis(rng.u64(..1500))).await;
    }
    if let Some(begun) = refusal {
        begun.lift_for_all().await;
    }
    let last = eventually("everything is at rest", DEADLINE, async || {
        let pods = ns.client.list(&ns.path("pods", &format!("?labelSelector={APP}"))).await?;
        let is_own = |pod: &Value| pod["metadata"]["labels"]["magalix.com/handed-over"].is_null();
        ensure!(pods.len() == REPLICAS && pods.iter().all(|pod| is_ready(pod) && is_own(pod)), "{} pods", pods.len());
        let deployment = ns.get("deployments", NAME).await;
        ensure!(deployment["status"]["updatedReplicas"] == REPLICAS, "{}", deployment["status"]);
        Ok(deployment)
    })
    .await
    .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    assert_eq!(observer.end(&last).await.most_missing(REPLICAS, ""), 0, "seed {seed}");
}

/// Where there is no policy.
#[tokio::test]
async fn pods_that_look_handed_over_take_little_memory() {
    let control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    let fixture = Fixture::new(&control_plane).await;
    grant_surge_without_policy(&control_plane, &fixture.namespace).await;
    fixture.create_deployment(NAME, 0, &json!({"app": NAME})).await;
    let uid = &fixture.get("deployments", NAME).await["metadata"]["uid"];
    let label = |number: usize| (format!("{}/{number:0>63}", vec!["a".repeat(63); 3].join(".")), json!("v".repeat(63)));
    let mut labels: serde_json::Map<String, Value> = (0..50).map(label).collect();
    labels.insert("magalix.com/handed-over".to_owned(), json!("true"));
    for number in 0..FORGED {
        let pod = json!({"metadata": {"name": format!("forged-{number}"), "labels": labels,
            "annotations": {"magalix.com/handed-over-from": format!("{NAME}-x/u"), "magalix.com/handed-over-by": "nobody/u/r/t"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME, "uid": uid, "controller": true}]},
            "spec": {"nodeSelector": {"is": "nowhere"}, "containers": [{"name": "app", "image": "app"}]}});
        fixture.create("pods", pod).await;
    }
    let proxy = start_proxy(&control_plane, &fixture.namespace).await;
    let operator = start(&proxy.url(), &fixture.namespace, &["--surge"]);
    operator.wait_for_message("pod deleted that was handed over").await.unwrap();
    let peak = status_kib(operator.process().id(), "VmHWM").unwrap() / 1024;
    assert!(peak < MAX_MEMORY_MIB, "{peak} MiB");
}
