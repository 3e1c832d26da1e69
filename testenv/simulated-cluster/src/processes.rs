//! The processes of the operator: started, killed, stopped, and elected.

use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::controller::{self, Namespaces, Readiness, Settings};
use configmonitor_operator::kube::client::Client;
use configmonitor_operator::metrics::Metrics;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::ledger::Life;
use crate::network::{Process, Running, Served};
use crate::state::{LABEL, OWN_POD};
use crate::transport::Connection;
use crate::{EMPTY, NAMESPACE};

/// After this time somebody else may take a Lease that was not released, in milliseconds.
const LEASE_DURATION: u64 = 15_000;
/// The interval in which a standby tries to become the leader.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// The limit on concurrent requests of a process.
const REQUESTS: usize = 32;

/// Starts a process, unless it is running.
pub fn start(cluster: &Arc<Cluster>, process: Process) {
    let mut state = cluster.state();
    if state.network.running[process as usize].is_some() {
        return;
    }
    let life = state.network.begin_life(process);
    let connection = Box::new(Connection { cluster: Arc::clone(cluster), life });
    let elected = CancellationToken::new();
    if state.network.lease.is_some() {
        tokio::spawn(stand_for_election(Arc::clone(cluster), life, elected.clone()));
    } else {
        elected.cancel();
    }
    if state.network.namespaces == Served::Labelled {
        state.ledger.unserved.insert(life, 0);
    }
    let stop = CancellationToken::new();
    let base = "http://api".parse().unwrap();
    let metrics: Arc<Metrics> = Arc::default();
    state.network.metrics.push(Arc::clone(&metrics));
    let client = Client::new(connection, base, REQUESTS, state.network.deletions, metrics.clone(), stop.clone());
    let namespaces = match state.network.namespaces {
        Served::One => Namespaces::Named(vec![NAMESPACE.into()]),
        Served::Two => Namespaces::Named(vec![NAMESPACE.into(), EMPTY.into()]),
        Served::All => Namespaces::All { excluded: Vec::new(), selector: None },
        Served::Labelled => Namespaces::All { excluded: Vec::new(), selector: Some(LABEL.parse().unwrap()) },
    };
    let (surges, readiness) = (state.network.surges, Readiness::of(&namespaces));
    let task = tokio::spawn(async move {
        let settings = Settings { own_pod: Some(OWN_POD.into()), surges, metrics, ..Settings::default() };
        controller::run(client, namespaces, settings, readiness, elected).await;
    });
    state.network.running[process as usize] = Some(Running { life, task: task.abort_handle(), stop });
}

/// Elects this life as soon as there is no other leader.
async fn stand_for_election(cluster: Arc<Cluster>, life: Life, elected: CancellationToken) {
    let may_act = || {
        let mut state = cluster.state();
        let ms = state.ms;
        let lease = if state.is_dead(life) { None } else { state.network.lease.as_mut() };
        lease.map(|lease| lease.is_held_by(life, ms))
    };
    while let Some(may_act) = may_act() {
        if may_act {
            return elected.cancel();
        }
        sleep(RETRY_PERIOD).await;
    }
}

pub(crate) fn crash(cluster: &Arc<Cluster>, process: Process) {
    kill(cluster, process);
    start(cluster, process);
}

/// Kills a process. Nothing that it still does reaches the cluster.
pub fn kill(cluster: &Arc<Cluster>, process: Process) {
    let mut state = cluster.state();
    if let Some(Running { life, task, .. }) = state.network.running[process as usize].take() {
        state.network.end_life(life);
        let free_from = state.ms + LEASE_DURATION;
        state.network.lease.iter_mut().for_each(|lease| lease.is_left_by(life, free_from));
        task.abort();
    }
}

/// Stops a process as SIGTERM does: it finishes its requests.
pub async fn stop(cluster: &Arc<Cluster>, process: Process) {
    let running = cluster.state().network.running[process as usize].take();
    let Some(Running { life, task, stop }) = running else { return };
    stop.cancel();
    for _ in 0..500 {
        if task.is_finished() {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let mut state = cluster.state();
    if !task.is_finished() {
        state.ledger.improper.push("a process does not exit within 5 s of SIGTERM".to_owned());
        task.abort();
    }
    state.network.end_life(life);
    let free_from = state.ms;
    state.network.lease.iter_mut().for_each(|lease| lease.is_left_by(life, free_from));
}
