//! The operator as a process in the simulated cluster, which is served over HTTP in real time. What it decides is for the
//! simulation to show; these tests show that the process does it.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use configmonitor_operator::monitor::spec::Spec;
use serde_json::json;
use simulated_cluster::cluster::{Cluster, StateGuard};
use simulated_cluster::content::CONFIG_MAPS;
use simulated_cluster::network::{Fate, Process, RequestKind, WatchFault, Watched};
use simulated_cluster::serve::Server;
use simulated_cluster::state::ClusterState;
use tokio::sync::oneshot;

use crate::operator::Operator;
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
    fn with(more: &serde_json::Value) -> Self {
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
    lab.edit('b');
    lab.wait_until("a pod is deleted", || !lab.deleted().is_empty());
    drop(operator);
    assert!(lab.deleted().len() < lab.before.len(), "it was killed too late");
    let _next = lab.operator_at(0);
    lab.is_replaced();
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
    lab.edit('b');
    lab.wait_until("a pod is deleted", || !lab.deleted().is_empty());
    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(0));
    let _next = lab.operator_at(0);
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
        state.network.fail_watch(Process::First, Watched::ConfigMaps, WatchFault::Miss);
        state.set_content(CONFIG_MAPS[0], Some([Some('b'), None]));
        state.compact();
        state.network.fail_watch(Process::First, Watched::ConfigMaps, WatchFault::Expire);
    }
    // Whatever changes wakes the watches.
    lab.state().set_content(CONFIG_MAPS[1], Some([Some('z'), None]));
    lab.is_replaced();
}

#[test]
fn an_edit_that_a_stalled_watch_does_not_show_is_read_at_the_end_of_the_quiet_period() {
    let lab = Lab::with(&json!({"quietPeriodSeconds": 2}));
    let operator = lab.operator();
    lab.edit('b');
    lab.wait_for_reason("QuietPeriod");
    lab.state().network.fail_watch(Process::First, Watched::ConfigMaps, WatchFault::Stall);
    lab.edit('c');
    lab.is_replaced();
    assert_eq!(operator.lines("restart started").len(), 1, "{}", operator.log());
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
fn a_request_restarts_the_pods_without_an_edit_and_is_handled_once() {
    let lab = Lab::new();
    let operator = lab.operator();
    lab.state().ask(0, 'x');
    lab.is_replaced();
    drop(operator);
    let looks = || lab.state().network.served(Process::First, RequestKind::GetConfigMap);
    let before = looks();
    let _next = lab.operator_at(0);
    lab.wait_until("the next process has looked", || looks() > before);
    lab.is_replaced();
}

#[test]
fn a_restart_that_is_suspended_in_the_middle_holds_until_it_is_resumed() {
    let lab = Lab::new();
    let _operator = lab.operator();
    lab.edit('b');
    lab.wait_until("a pod is deleted", || !lab.deleted().is_empty());
    lab.state().set_spec(0, |spec| spec.suspend = Some(true));
    lab.wait_for_reason("Suspended");
    let deleted = lab.deleted().len();
    assert!(deleted < lab.before.len(), "it was suspended too late");
    lab.state().set_spec(0, |spec| spec.suspend = None);
    lab.is_replaced();
}
