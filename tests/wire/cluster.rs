//! The operator as a process in the simulated cluster, which is served over HTTP in real time. What it decides is for the
//! simulation to show; these tests show that the process does it.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use configmonitor_operator::monitor::spec::Spec;
use serde_json::{Value, json};
use simulated_cluster::cluster::{Cluster, StateGuard};
use simulated_cluster::content::{CONFIG_MAPS, Data, hash};
use simulated_cluster::network::{Fate, Process, RequestKind, WatchFault, Watched};
use simulated_cluster::serve::Server;
use simulated_cluster::state::{ClusterState, Monitor};
use tokio::sync::oneshot;

use crate::operator::{Operator, send};
use crate::time::DEADLINE;

/// The cluster of the demo with a ConfigMonitor, and two addresses of its API server, one for each process.
struct Lab {
    cluster: Arc<Cluster>,
    urls: Vec<String>,
    before: BTreeSet<usize>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

impl Lab {
    /// The ConfigMonitor replaces the pods one by one, without a quiet period, unless `more` says something else.
    fn with(more: &Value) -> Self {
        let mut spec =
            json!({"configMap": CONFIG_MAPS[0], "podSelector": {"app": "frontend"}, "quietPeriodSeconds": 0});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spec: Spec = serde_json::from_value(spec).unwrap();
        let (started, start) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let server = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let cluster = Cluster::new(ClusterState::demo(vec![spec]));
                let first = Server::start(&cluster, Process::First).await.unwrap();
                let second = Server::start(&cluster, Process::Second).await.unwrap();
                started.send((Arc::clone(&cluster), vec![first.url(), second.url()])).unwrap();
                tokio::select! {
                    () = cluster.live() => {}
                    _ = stopped => {}
                }
            });
        });
        let (cluster, urls) = start.recv().unwrap();
        let before = cluster.state().pods.iter().map(|pod| pod.id).collect();
        Self { cluster, urls, before, stop: Some(stop), server: Some(server) }
    }

    fn new() -> Self {
        Self::with(&json!({}))
    }

    /// Starts an operator, and waits until the ConfigMonitor is up to date.
    fn operator(&self) -> Operator {
        let operator = self.operator_at(0);
        self.wait_for_reason("UpToDate");
        operator
    }

    fn operator_at(&self, process: usize) -> Operator {
        Operator::start_on(&["--proxy-url", &self.urls[process]], &[])
    }

    fn state(&self) -> StateGuard<'_> {
        self.cluster.state()
    }

    /// Edits the ConfigMap, and waits until a pod is deleted. The new pod does not get ready, so no other one goes.
    fn begin_restart(&self) {
        self.state().keep_new_pods_unready(true);
        self.edit('b');
        self.wait_until("a pod is deleted", || self.deleted().len() == 1);
    }

    /// Lets the restart go on that has begun.
    fn end_restart(&self) {
        assert_eq!(self.deleted().len(), 1);
        self.state().keep_new_pods_unready(false);
        self.is_replaced();
    }

    /// Edits the spec, and waits until the status is about that.
    fn set_spec(&self, edit: impl FnOnce(&mut Spec)) {
        self.state().set_spec(0, edit);
        self.wait_until("the spec is observed", || {
            let state = self.state();
            let Monitor { generation, raw_status, .. } = &state.monitors[0];
            let status: Value = serde_json::from_str(raw_status).unwrap();
            status["observedGeneration"] == *generation
        });
    }

    fn edit(&self, content: char) {
        self.state().set_content(CONFIG_MAPS[0], Some([Some(content), None]));
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
    lab.edit('b');
    lab.is_replaced();
    let metrics = operator.probe("/metrics").1;
    assert!(metrics.contains(r#"configmonitor_pods_removed_total{method="Delete"} 3"#), "{metrics}");
}

#[test]
fn a_process_that_is_killed_in_the_middle_of_a_restart_is_succeeded_by_one_that_ends_it() {
    let lab = Lab::new();
    let operator = lab.operator();
    lab.begin_restart();
    drop(operator);
    let _next = lab.operator_at(0);
    lab.end_restart();
}

#[test]
fn an_edit_while_no_process_runs_is_not_lost() {
    let lab = Lab::new();
    drop(lab.operator());
    lab.edit('b');
    let _next = lab.operator_at(0);
    lab.is_replaced();
}

#[test]
fn sigterm_in_the_middle_of_a_restart_stops_it_and_the_next_process_goes_on() {
    let lab = Lab::new();
    let mut operator = lab.operator();
    lab.begin_restart();
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(0));
    let _next = lab.operator_at(0);
    lab.end_restart();
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
    lab.edit('b');
    operator.wait_for("waiting for the proxy and the API server", 1);
    lab.state().network.heal();
    lab.is_replaced();
}

#[test]
fn after_410_the_operator_lists_and_finds_the_edit() {
    let lab = Lab::new();
    let _operator = lab.operator();
    {
        let mut state = lab.state();
        state.set_content(CONFIG_MAPS[0], Some([Some('b'), None]));
        state.compact();
        state.network.fail_watch(Process::First, Watched::ConfigMaps, WatchFault::Expire);
    }
    lab.is_replaced();
}

#[test]
fn an_edit_that_a_stalled_watch_does_not_show_is_read_at_the_end_of_the_quiet_period() {
    let lab = Lab::with(&json!({"quietPeriodSeconds": 600}));
    let _operator = lab.operator();
    lab.edit('b');
    lab.wait_for_reason("QuietPeriod");
    lab.state().network.fail_watch(Process::First, Watched::ConfigMaps, WatchFault::Stall);
    lab.edit('c');
    lab.state().set_spec(0, |spec| spec.quiet_period_seconds = Some(0));
    lab.is_replaced();
    let content = [None, Some(Data::There([Some('c'), None], None))];
    assert_eq!(lab.state().monitors[0].status.sources[0].hash, Some(hash(content)));
}

#[test]
fn two_processes_at_once_replace_each_pod_once() {
    let lab = Lab::new();
    let _first = lab.operator();
    let second = lab.operator_at(1);
    second.wait_for("synced", 1);
    lab.edit('b');
    lab.is_replaced();
}

#[test]
fn a_request_restarts_the_pods_without_an_edit_and_the_next_process_handles_it_no_more() {
    let lab = Lab::new();
    let operator = lab.operator();
    lab.state().ask(0, 'x');
    lab.is_replaced();
    drop(operator);
    let _next = lab.operator_at(0);
    // A step of the next process writes the status.
    lab.set_spec(|spec| spec.min_ready_seconds = Some(1));
    lab.is_replaced();
}

#[test]
fn a_restart_that_is_suspended_in_the_middle_holds_until_it_is_resumed() {
    let lab = Lab::new();
    let _operator = lab.operator();
    lab.begin_restart();
    lab.set_spec(|spec| spec.suspend = Some(true));
    lab.state().keep_new_pods_unready(false);
    lab.wait_until("all pods are ready", || lab.state().pods.iter().all(|pod| pod.ready.is_some()));
    lab.set_spec(|spec| spec.min_ready_seconds = Some(1));
    assert_eq!(lab.reason(), "Suspended");
    lab.set_spec(|spec| spec.suspend = None);
    lab.end_restart();
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
        assert_eq!(send(lab.urls[0].trim_start_matches("http://"), &line, body).0, code, "{line}");
    }
    lab.is_replaced();
}
