//! Two replicas, as deploy/high-availability installs them: whatever happens to the leader, the other replica takes
//! over, and a restart is not disturbed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, apply};
use testenv::{Operator, Proxy};

use crate::availability::Observer;
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
    _proxy: Proxy,
    operator: Operator,
}

impl Replica {
    async fn leads(&self) {
        self.operator.wait_for_message("became leader").await.unwrap();
    }

    fn has_logged(&self, message: &str) -> bool {
        self.operator.log().unwrap().iter().any(|line| line["message"] == message)
    }
}

impl Installation {
    async fn new() -> Self {
        let (ns, observer) = TestNamespace::observed(PODS).await;
        apply(control_plane().await, &ns.namespace, "deploy", &["deploy/high-availability"]).await;
        let deployment = ns.get("deployments", "configmonitor-operator").await;
        Self { ns, observer, deployment }
    }

    async fn replica(&self, pod_uid: &str) -> Replica {
        let (_proxy, operator) = pod_of(control_plane().await, &self.deployment, &self.ns.namespace, pod_uid).await;
        Replica { _proxy, operator }
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
        let gone = seen.gone();
        assert_eq!((gone.len(), gone.iter().collect::<BTreeSet<_>>()), (PODS, before.values().collect()));
        assert_eq!(seen.most_missing(PODS, ""), 1);
    }
}

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_leader_and_releases_the_lease_when_it_stops() {
    let installation = Installation::new().await;
    let (mut leader, mut standby) = installation.replicas().await;
    let before = installation.begin().await;
    assert!(!standby.has_logged("became leader"));
    leader.operator.kill();
    standby.leads().await;
    let (client, lease) = (installation.ns.client.clone(), installation.ns.path("leases", "configmonitor-operator"));
    installation.has_restarted_once(&before).await;
    assert!(standby.operator.terminate().await.unwrap().success());
    assert!(standby.has_logged("leadership released"));
    let lease = client.get(&lease).await.unwrap().ok().unwrap();
    assert!(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty(), "{lease}");
}
