//! The operator as a process in the simulated cluster, which is served over HTTP in real time. What it decides is for the
//! simulation to show; these tests show that the process does it.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;
use simulated_cluster::cluster::{Cluster, StateGuard};
use simulated_cluster::content::CONFIG_MAPS;
use simulated_cluster::network::{Fate, Process, RequestKind, WatchFault, Watched};
use simulated_cluster::serve::Server;
use simulated_cluster::state::ClusterState;
use tokio::sync::oneshot;

use crate::operator::{Operator, send};
use crate::time::DEADLINE;

/// The cluster of the demo with a ConfigMonitor, and the address of its API server.
struct Lab {
    cluster: Arc<Cluster>,
    url: String,
    before: BTreeSet<usize>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

impl Lab {
    /// The ConfigMonitor replaces the pods one by one, without a quiet period.
    fn new() -> Self {
        let spec = json!({"configMap": CONFIG_MAPS[0], "podSelector": {"app": "frontend"}, "quietPeriodSeconds": 0});
        let spec = serde_json::from_value(spec).unwrap();
        let (started, start) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let server = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let cluster = Cluster::new(ClusterState::demo(vec![spec]));
                let server = Server::start(&cluster, Process::First).await.unwrap();
                started.send((Arc::clone(&cluster), server.url())).unwrap();
                tokio::select! {
                    () = cluster.live() => {}
                    _ = stopped => {}
                }
            });
        });
        let (cluster, url) = start.recv().unwrap();
        let before = cluster.state().pods.iter().map(|pod| pod.id).collect();
        Self { cluster, url, before, stop: Some(stop), server: Some(server) }
    }

    /// Starts an operator, and waits until the ConfigMonitor is up to date.
    fn operator(&self) -> Operator {
        let operator = self.next_operator();
        self.wait_for_reason("UpToDate");
        operator
    }

    fn next_operator(&self) -> Operator {
        Operator::start_on(&["--proxy-url", &self.url], &[])
    }

    fn state(&self) -> StateGuard<'_> {
        self.cluster.state()
    }

    fn edit(&self) {
        self.state().set_content(CONFIG_MAPS[0], Some([Some('b'), None]));
    }

    fn reason(&self) -> String {
        let state = self.state();
        let ready = state.monitors[0].status.conditions.iter().find(|condition| condition.r#type == "Ready");
        ready.map(|condition| condition.reason.clone()).unwrap_or_default()
    }

    fn deleted(&self) -> Vec<usize> {
        self.state().ledger.deletions.iter().map(|deletion| deletion.pod).collect()
    }

    fn wait_for_reason(&self, reason: &str) {
        self.wait_until(reason, || self.reason() == reason);
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            let (reason, deleted) = (self.reason(), self.deleted());
            assert!(
                start.elapsed() < DEADLINE,
                "waited for {what}: {reason}, deleted {deleted:?} of {:?}",
                self.before
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until each pod of the beginning is replaced, and checks that each was deleted once and no other one was.
    fn is_replaced(&self) {
        self.wait_until("all pods are deleted", || self.before.is_subset(&self.deleted().into_iter().collect()));
        self.wait_for_reason("UpToDate");
        let deleted = self.deleted();
        assert_eq!(BTreeSet::from_iter(deleted.iter().copied()), self.before);
        assert_eq!(deleted.len(), self.before.len(), "{deleted:?}");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(server) = self.server.take()
            && !thread::panicking()
        {
            server.join().unwrap();
        }
    }
}

#[test]
fn an_edit_replaces_each_pod_once_and_the_metrics_say_so() {
    let lab = Lab::new();
    let operator = lab.operator();
    lab.edit();
    lab.is_replaced();
    let metrics = operator.probe("/metrics").1;
    assert!(metrics.contains(r#"configmonitor_pods_removed_total{method="Delete"} 3"#), "{metrics}");
    assert!(
        metrics.contains(r#"configmonitor_watch_last_activity_timestamp_seconds{resource="configmaps"}"#),
        "{metrics}"
    );
}

#[test]
fn a_process_that_is_killed_in_the_middle_of_a_restart_is_succeeded_by_one_that_ends_it() {
    let lab = Lab::new();
    let operator = lab.operator();
    // The new pod does not get ready, so no other one goes.
    lab.state().keep_new_pods_unready(true);
    lab.edit();
    lab.wait_until("a pod is deleted", || lab.deleted().len() == 1);
    drop(operator);
    let _next = lab.next_operator();
    assert_eq!(lab.deleted().len(), 1);
    lab.state().keep_new_pods_unready(false);
    lab.is_replaced();
}

#[test]
fn an_edit_while_the_api_server_is_away_is_not_lost() {
    let lab = Lab::new();
    let operator = lab.operator();
    {
        let network = &mut lab.state().network;
        network.set_lasting_fate(RequestKind::Any, Some(Fate::ProxyError));
        network.fail_watch(Process::First, Watched::ConfigMaps, WatchFault::Break);
        network.fail_watch(Process::First, Watched::Monitors, WatchFault::Break);
    }
    lab.edit();
    operator.wait_for("waiting for the proxy and the API server", 1);
    lab.state().network.heal();
    lab.is_replaced();
}

/// A user may send what the cluster does not serve.
#[test]
fn what_a_user_sends_stops_no_cluster() {
    let lab = Lab::new();
    let _operator = lab.operator();
    let (pods, maps) = ("/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps/flaskapp-config");
    let monitors = "/apis/magalix.com/v1/namespaces/default/configmonitors";
    for (line, body, code) in [
        (format!("GET {pods}?watch=true"), "", 405),
        (format!("GET {pods}?limit=x"), "", 405),
        (format!("DELETE {pods}/frontend-a-100"), "", 405),
        (format!("PATCH {maps}"), "{", 400),
        (format!("PATCH {monitors}/m"), "spec: {podSelector: 7}", 422),
        (format!("GET {pods}?labelSelector=app%3Dfrontend"), "", 200),
        (format!("PATCH {maps}"), "data:\n  config.cfg: |\n    MSG = \"Hello\"\n", 200),
    ] {
        assert_eq!(send(lab.url.trim_start_matches("http://"), &line, body).0, code, "{line}");
    }
    lab.is_replaced();
}
