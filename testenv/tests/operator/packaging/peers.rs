//! `kubectl cmon convert` for a chart of somebody who uses another controller.

use std::fs;
use std::process::Command;

use testenv::binaries::tool;
use testenv::process::printed;
use testenv::{RunDir, project};

use crate::plugin::cmon;
use crate::test_namespace::{TestNamespace, control_plane};

/// All annotations in the README of Reloader at 655a2b38, in its `pkg/common/common.go`, and in the README of wave at
/// b4e8d70c.
const ANNOTATIONS: [&str; 21] = [
    "configmap.reloader.stakater.com/auto",
    "configmap.reloader.stakater.com/reload",
    "configmaps.exclude.reloader.stakater.com/reload",
    "deployment.reloader.stakater.com/pause-period",
    "deployment.reloader.stakater.com/paused-at",
    "reloader.stakater.com/auto",
    "reloader.stakater.com/ignore",
    "reloader.stakater.com/last-reloaded-from",
    "reloader.stakater.com/match",
    "reloader.stakater.com/rollout-strategy",
    "reloader.stakater.com/search",
    "secret.reloader.stakater.com/auto",
    "secret.reloader.stakater.com/reload",
    "secretproviderclass.reloader.stakater.com/auto",
    "secretproviderclass.reloader.stakater.com/reload",
    "secretproviderclasses.exclude.reloader.stakater.com/reload",
    "secrets.exclude.reloader.stakater.com/reload",
    "wave.pusher.com/config-hash",
    "wave.pusher.com/extra-configmaps",
    "wave.pusher.com/extra-secrets",
    "wave.pusher.com/update-on-config-change",
];

/// The chart has each annotation as that documentation shows it, and `converted.yaml` what comes of it.
#[tokio::test]
async fn a_chart_with_all_annotations_of_the_peers_is_converted() {
    let ns = TestNamespace::new().await;
    let dir = RunDir::create().unwrap();
    let mut helm = Command::new(tool("helm").await.unwrap());
    helm.args(["template", "peers"]).arg(project("testenv/charts/peers")).env("HOME", dir.path());
    let manifests = printed(&helm).await.unwrap();
    assert_eq!(ANNOTATIONS.iter().find(|annotation| !manifests.contains(*annotation)), None);
    let file = dir.path().join("manifests.yaml");
    fs::write(&file, manifests).unwrap();
    let converted = cmon(&ns, &format!("convert -f {}", file.display())).await;
    let out = converted.out.replace(&format!("  namespace: \"{}\"\n", ns.namespace), "");
    assert_eq!(out, fs::read_to_string(project("testenv/charts/converted.yaml")).unwrap());
    let notes = "\
note: DaemonSet/named: \"app-.*\" is a pattern: the ConfigMonitor discovers all that the pods refer to
note: Deployment/searching: reloader.stakater.com/search: the ConfigMonitor discovers all that the pods refer to: exclude what does not count
note: Deployment/pausing: deployment.reloader.stakater.com/pause-period: set quietPeriodSeconds, at most 3600
note: Deployment/pausing: deployment.reloader.stakater.com/paused-at: what Reloader has paused, nobody else resumes: kubectl rollout resume
note: Deployment/csi: secretproviderclass.reloader.stakater.com/auto: what the Secrets Store CSI driver mounts is no source
note: Deployment/csi: secretproviderclass.reloader.stakater.com/reload: what the Secrets Store CSI driver mounts is no source
note: Deployment/csi: secretproviderclasses.exclude.reloader.stakater.com/reload: what the Secrets Store CSI driver mounts is no source
note: Deployment/checksum: its pods restart, too, when the annotation checksum/config of the pod template changes
note: Deployment/waved: wave.pusher.com/extra-configmaps: add to sources each object that the pods do not refer to
note: Deployment/waved: wave.pusher.com/extra-secrets: add to sources each object that the pods do not refer to
note: Job/job: pods of Jobs are not restarted
note: Rollout/rollout: reloader.stakater.com/rollout-strategy: pods are deleted, whatever it says
note: maxSurge is left out, as no operator is seen that hands pods over: --surge adds it
";
    assert_eq!(converted.err, notes);
    fs::write(&file, converted.out).unwrap();
    let kubectl = control_plane().await.kubectl();
    kubectl.ok(&["apply", "--dry-run=server", "-n", &ns.namespace, "-f", file.to_str().unwrap()]).await.unwrap();
}
