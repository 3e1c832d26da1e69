//! Two replicas, as deploy/high-availability installs them: whatever happens to the leader, the other replica takes
//! over, and a restart is not disturbed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, apply};
use testenv::{DEADLINE, Operator, Prometheus, Proxy, eventually};
use tokio::time::sleep;

use crate::availability::Observer;
use crate::monitoring::rules;
use crate::rights::every_right_is_used_and_none_is_missing;
use crate::rolling::remaining;
use crate::test_namespace::{TestNamespace, control_plane, pod_of};

const PODS: usize = 5;
pub(crate) const LOST: &str = "leadership lost: shutting down";

/// A namespace with pods, and the operator's Deployment there.
struct Installation {
    ns: TestNamespace,
    observer: Observer,
    deployment: Value,
}

struct Replica {
    proxy: Proxy,
    operator: Operator,
}

impl Replica {
    async fn leads(&self) {
        self.operator.wait_for_message("became leader").await.unwrap();
    }

    fn has_logged(&self, message: &str) -> bool {
        self.operator.log().unwrap().iter().any(|line| line["message"] == message)
    }

    /// Waits until the process exits because it is no longer the leader.
    async fn exits_as_former_leader(&self) {
        let status = self.operator.process().wait(DEADLINE).await.unwrap();
        assert_eq!(status.code(), Some(1));
        assert!(self.has_logged(LOST), "{:?}", self.operator.log());
    }

    async fn terminate(&mut self) {
        let led = self.has_logged("became leader");
        assert!(self.operator.terminate().await.unwrap().success());
        assert_eq!(self.has_logged("leadership released"), led);
    }
}

async fn one_leads(replicas: &[&Replica]) {
    eventually("a replica becomes the leader", DEADLINE, async || {
        ensure!(replicas.iter().any(|replica| replica.has_logged("became leader")), "no replica is the leader");
        Ok(())
    })
    .await
    .unwrap();
}

impl Installation {
    async fn new() -> Self {
        let (ns, observer) = TestNamespace::observed(PODS).await;
        apply(control_plane().await, &ns.namespace, "deploy", &["deploy/high-availability"]).await;
        let deployment = ns.get("deployments", "configmonitor-operator").await;
        Self { ns, observer, deployment }
    }

    async fn replica(&self, pod_uid: &str) -> Replica {
        let (proxy, operator) = pod_of(control_plane().await, &self.deployment, &self.ns.namespace, pod_uid).await;
        Replica { proxy, operator }
    }

    /// Starts a leader and a standby.
    async fn replicas(&self) -> (Replica, Replica) {
        let leader = self.replica("one").await;
        leader.leads().await;
        let standby = self.replica("two").await;
        let line = standby.operator.wait_for_message("standing by").await.unwrap();
        assert!(line["leader"].as_str().unwrap().ends_with("_one"), "{line}");
        let ready = format!("{}/readyz", standby.operator.url().await.unwrap());
        assert_eq!(reqwest::get(&ready).await.unwrap().status(), 200);
        (leader, standby)
    }

    /// Begins a rolling restart, which takes at least a second for each pod, and returns in the middle of it.
    async fn begin(&self) -> BTreeMap<String, String> {
        self.ns.monitor(NAME, json!({"maxUnavailable": 1, "minReadySeconds": 1})).await;
        let before = self.ns.pods(APP).await;
        self.ns.edit(NAME, "two").await;
        self.ns.event("ConfigMonitor", "RestartStarted").await;
        remaining(&self.ns, 4).await;
        before
    }

    /// Checks that every pod was replaced once, that at most one was missing, and that the restart was reported once.
    async fn has_restarted_once(self, before: &BTreeMap<String, String>) {
        let ns = &self.ns;
        let settled = ns.settled(NAME, "UpToDate").await;
        ns.replaced(APP, before).await;
        let history = settled["status"]["history"].as_array().unwrap();
        assert_eq!((history.len(), &history[0]["result"]), (1, &json!("Completed")), "{history:?}");
        ns.event("ConfigMonitor", "RestartCompleted").await;
        for reason in ["RestartStarted", "RestartCompleted"] {
            assert_eq!(ns.events("ConfigMonitor", reason).await.len(), 1, "{reason}");
        }
        let seen = self.observer.end(&settled).await;
        let mut gone: Vec<&String> = seen.gone().iter().map(|gone| &gone.uid).collect();
        let mut old: Vec<&String> = before.values().collect();
        gone.sort();
        old.sort();
        assert_eq!((gone, seen.most_missing()), (old, 1));
    }

    /// Ends the leader in the middle of a restart, and prints how long the standby takes to become the leader.
    async fn hands_over_when(self, what: &str, end: impl AsyncFnOnce(&mut Replica)) {
        let (mut leader, standby) = self.replicas().await;
        let before = self.begin().await;
        assert!(!standby.has_logged("became leader"));
        let start = Instant::now();
        end(&mut leader).await;
        standby.leads().await;
        eprintln!("{what}: the standby is the leader after {:.1} s", start.elapsed().as_secs_f64());
        self.has_restarted_once(&before).await;
    }
}

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_leader() {
    Installation::new().await.hands_over_when("killed", async |leader| leader.operator.kill()).await;
}

#[tokio::test]
async fn a_standby_takes_over_from_a_leader_that_is_cut_off_and_exits() {
    let cut_off = async |leader: &mut Replica| {
        let start = Instant::now();
        leader.proxy.kill();
        leader.exits_as_former_leader().await;
        eprintln!("cut off: the leader exits after {:.1} s", start.elapsed().as_secs_f64());
    };
    Installation::new().await.hands_over_when("cut off", cut_off).await;
}

#[tokio::test]
async fn a_leader_that_was_stopped_for_long_exits_when_it_resumes() {
    let installation = Installation::new().await;
    let (leader, standby) = installation.replicas().await;
    let before = installation.begin().await;
    let start = Instant::now();
    leader.operator.process().pause().unwrap();
    standby.leads().await;
    eprintln!("stopped: the standby is the leader after {:.1} s", start.elapsed().as_secs_f64());
    sleep(Duration::from_secs(30).saturating_sub(start.elapsed())).await;
    leader.operator.process().resume().unwrap();
    leader.exits_as_former_leader().await;
    installation.has_restarted_once(&before).await;
}

/// As in the Deployment: a new pod is ready before an old one ends.
#[tokio::test]
async fn an_update_in_the_middle_of_a_restart_replaces_both_replicas() {
    let installation = Installation::new().await;
    let (mut leader, mut standby) = installation.replicas().await;
    let before = installation.begin().await;
    let start = Instant::now();
    let third = installation.replica("three").await;
    leader.terminate().await;
    one_leads(&[&standby, &third]).await;
    let fourth = installation.replica("four").await;
    standby.terminate().await;
    one_leads(&[&third, &fourth]).await;
    eprintln!("updated: a new replica is the leader after {:.1} s", start.elapsed().as_secs_f64());
    installation.has_restarted_once(&before).await;
}

/// The pod of an installation with one replica knows no Lease, and keeps working until both new ones are ready.
#[tokio::test]
async fn a_second_replica_can_be_installed_in_the_middle_of_a_restart() {
    let installation = Installation::new().await;
    let mut former = installation.ns.operator().await;
    let before = installation.begin().await;
    let (leader, _standby) = installation.replicas().await;
    remaining(&installation.ns, 2).await;
    assert!(former.terminate().await.unwrap().success());
    assert!(!leader.has_logged(LOST));
    installation.has_restarted_once(&before).await;
}

/// Waits until, of two replicas, the alert that none leads waits to fire, or no longer does.
async fn alerts(prometheus: &Prometheus, expected: bool) {
    let alert = "ALERTS{alertname=\"ConfigMonitorOperatorWithoutLeader\",alertstate=\"pending\"}";
    eventually("the alert is pending, or over", DEADLINE, async || {
        ensure!(prometheus.query("configmonitor_leader").await?.len() == 2);
        ensure!(prometheus.query(alert).await?.is_empty() != expected, "expected: {expected}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn without_the_right_to_leases_no_replica_leads_and_the_alert_says_so_until_one_has_it() {
    let installation = Installation::new().await;
    let (control_plane, ns) = (control_plane().await, &installation.ns);
    ns.delete("rolebindings", "configmonitor-operator-leader").await;
    let of_operator = format!("--as=system:serviceaccount:{}:configmonitor-operator", ns.namespace);
    let may_create = ["auth", "can-i", "create", "leases", "--namespace", &ns.namespace, &of_operator];
    eventually("the right is gone", DEADLINE, async || {
        ensure!(!control_plane.kubectl().run(&may_create).await?.status.success());
        Ok(())
    })
    .await
    .unwrap();
    let replicas = [installation.replica("one").await, installation.replica("two").await];
    let prometheus = Prometheus::start(&rules()).await.unwrap();
    let mut targets = Vec::new();
    for replica in &replicas {
        let is_about_leases =
            |line: &Value| line["message"] == "waiting for the right to do so" && line["resource"] == "leases";
        replica.operator.wait_for_log("the replica waits for the right", is_about_leases).await.unwrap();
        let url = replica.operator.url().await.unwrap();
        targets.push((url, json!({"namespace": ns.namespace, "pod": format!("operator-{}", targets.len())})));
    }
    prometheus.scrape(&targets).unwrap();
    alerts(&prometheus, true).await;

    apply(control_plane, &ns.namespace, "deploy", &["deploy/high-availability"]).await;
    one_leads(&[&replicas[0], &replicas[1]]).await;
    alerts(&prometheus, false).await;
}

#[tokio::test]
async fn every_right_to_the_lease_is_used_and_none_is_missing() {
    let installation = Installation::new().await;
    let replica = installation.replica("one").await;
    replica.leads().await;
    let of_lease = || {
        let mut requests = installation.ns.requests().unwrap();
        requests.retain(|entry| entry["objectRef"]["resource"] == "leases");
        requests
    };
    eventually("the Lease is renewed", DEADLINE, async || {
        ensure!(of_lease().iter().any(|entry| entry["verb"] == "update"));
        Ok(())
    })
    .await
    .unwrap();
    let requests = of_lease();
    every_right_is_used_and_none_is_missing(
        &requests,
        &[installation.ns.get("roles", "configmonitor-operator-leader").await],
    );
}
