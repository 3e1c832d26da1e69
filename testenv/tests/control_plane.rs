//! The promises of the test environment, on the real control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::{Client, ControlPlane, DEADLINE, Process, Proxy, RunDir, eventually, is_ready};
use tokio::time::sleep;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Set, to a file, for the process that [`a_killed_parent_leaves_nothing`] kills.
const PARENT: &str = "TESTENV_PARENT";

#[tokio::test]
async fn two_control_planes_run_side_by_side() {
    let (first, second) = tokio::try_join!(ControlPlane::start(), ControlPlane::start()).unwrap();

    let client = first.client();
    let created = client.create("/apis/apps/v1/namespaces/default/deployments", &deployment()).await;
    created.unwrap().ok().unwrap();
    let before = three_ready_pods(&client).await;

    let deleted = before.first().unwrap();
    let answer = client.delete(&format!("{PODS}/{deleted}")).await;
    answer.unwrap().ok().unwrap();
    eventually("the pod is replaced", DEADLINE, async || {
        let after = three_ready_pods(&client).await;
        ensure!(!after.contains(deleted), "the pods are {after:?}");
        Ok(())
    })
    .await
    .unwrap();

    let by_admin = |entry: &&Value| {
        entry["verb"] == "delete"
            && entry["objectRef"]["name"] == deleted.as_str()
            && entry["user"]["username"] == "admin"
    };
    assert_eq!(first.audit_log().unwrap().iter().filter(by_admin).count(), 1);
    assert!(second.client().list(PODS).await.unwrap().is_empty());
}

#[tokio::test]
async fn rights_are_enforced_and_every_part_survives_an_outage() {
    let mut control_plane = ControlPlane::start().await.unwrap();
    let token = control_plane.service_account_token("default", "default").await.unwrap();
    let mut proxy = Proxy::start(&control_plane, &token, &[]).await.unwrap();
    let client = Client::new(&proxy.url());

    let answer = client.get(CONFIG_MAPS).await.unwrap();
    assert_eq!(answer.status, 403);
    assert!(answer.ok().unwrap_err().to_string().contains("cannot list resource"));

    proxy.kill();
    assert!(client.get(CONFIG_MAPS).await.is_err());
    proxy.start_again().await.unwrap();
    assert_eq!(client.get(CONFIG_MAPS).await.unwrap().status, 403);

    proxy.pause().unwrap();
    let request = tokio::time::timeout(Duration::from_millis(300), client.get(CONFIG_MAPS));
    assert!(request.await.is_err());
    proxy.resume().unwrap();
    assert_eq!(client.get(CONFIG_MAPS).await.unwrap().status, 403);

    let admin = control_plane.client();
    let config_map = json!({"metadata": {"name": "kept"}, "data": {"key": "value"}});
    admin.create(CONFIG_MAPS, &config_map).await.unwrap().ok().unwrap();
    control_plane.kill_api_server();
    // The proxy answers that the API server is unavailable.
    assert!(admin.get(CONFIG_MAPS).await.unwrap().status >= 500);
    control_plane.start_api_server().await.unwrap();
    let kept = admin.get(&format!("{CONFIG_MAPS}/kept")).await.unwrap().ok().unwrap();
    assert_eq!(kept["data"]["key"], "value");

    let kubectl = control_plane.kubectl();
    let shown = kubectl.ok(&["get", "configmap", "kept", "-o", "name"]).await.unwrap();
    assert_eq!(shown, "configmap/kept\n");
    assert!(!kubectl.run(&["get", "configmap", "other"]).await.unwrap().status.success());
}

#[tokio::test]
async fn a_killed_parent_leaves_nothing() {
    if let Some(file) = env::var_os(PARENT) {
        be_the_parent(Path::new(&file)).await;
    }
    let dir = RunDir::create().unwrap();
    let file = dir.path().join("parent");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_killed_parent_leaves_nothing", "--nocapture"]).env(PARENT, &file);
    let mut parent = Process::start(&command, &dir.path().join("log")).unwrap();
    let left = eventually("the parent is up", DEADLINE, async || {
        ensure!(file.exists(), parent.failure("is not up"));
        Ok(PathBuf::from(fs::read_to_string(&file)?))
    })
    .await
    .unwrap();
    let children = children(parent.id());
    // etcd, the API server, its three clients and the proxy.
    assert_eq!(children.len(), 6, "{children:?}");

    parent.kill();
    eventually("the children are gone", Duration::from_secs(5), async || {
        let alive: Vec<_> = children.iter().filter(|&&id| parent_of(id).is_some()).collect();
        ensure!(alive.is_empty(), "these are alive: {alive:?}");
        Ok(())
    })
    .await
    .unwrap();

    assert!(left.exists());
    let next = RunDir::create().unwrap();
    assert!(!left.exists());
    assert!(next.path().exists() && dir.path().exists());
}

#[tokio::test]
async fn a_child_ends_on_sigterm() {
    let dir = RunDir::create().unwrap();
    let log = dir.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"]);
    let mut child = Process::start(&command, &log).unwrap();
    assert_eq!(child.wait_for_line("u", DEADLINE).await.unwrap(), "up");
    assert_eq!(child.exit_status(), None);
    assert_eq!(child.terminate(DEADLINE).await.unwrap().code(), Some(7));

    let mut missing = Process::start(&Command::new("/no/such/program"), &log).unwrap();
    let error = missing.wait_for_line("up", DEADLINE).await.unwrap_err().to_string();
    assert!(error.contains("127") && error.contains("not found"), "{error}");
    missing.kill();
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "app", "image": "app"}]},
            },
        },
    })
}

/// Returns the names of the pods, once they are three and Ready.
async fn three_ready_pods(client: &Client) -> BTreeSet<String> {
    eventually("three pods are Ready", DEADLINE, async || {
        let pods = client.list(PODS).await?;
        let ready: BTreeSet<_> = pods
            .iter()
            .filter(|pod| is_ready(pod))
            .filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()))
            .collect();
        ensure!(ready.len() == 3 && pods.len() == 3, "{} of {} pods are Ready", ready.len(), pods.len());
        Ok(ready)
    })
    .await
    .unwrap()
}

/// Starts a control plane, writes its folder to `file`, and waits to be killed.
async fn be_the_parent(file: &Path) {
    let control_plane = ControlPlane::start().await.unwrap();
    let dir = control_plane.kubectl().kubeconfig().parent().unwrap();
    let unfinished = file.with_extension("unfinished");
    fs::write(&unfinished, dir.to_str().unwrap()).unwrap();
    fs::rename(unfinished, file).unwrap();
    sleep(Duration::MAX).await;
}

fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap();
    let ids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.filter(|&id| parent_of(id) == Some(parent)).collect()
}

/// Returns the parent of a process that has not ended.
fn parent_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it is in brackets and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}
