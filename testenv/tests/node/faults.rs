//! Faults of a pod and of a node: no change is lost.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::ensure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use testenv::eventually;

use crate::lab::{DEADLINE, container_status, lab};

#[tokio::test]
async fn an_edit_while_the_proxy_is_killed_is_not_lost() {
    let lab = lab().await;
    let before = lab.operator_pod().await;
    pidfd_send_signal(pidfd(lab.process(&before, "proxycontainer").await), Signal::KILL).unwrap();
    let message = lab.edit().await;
    lab.shows(&message).await;
    let after = lab.operator_pod().await;
    let pods = lab.describe().await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{pods}");
    assert!(restarts(&after, "proxycontainer") > restarts(&before, "proxycontainer"), "{pods}");
    assert_eq!(restarts(&after, "app"), restarts(&before, "app"), "the operator outlives its proxy: {pods}");
}

/// kubectl proxy exits at once on SIGTERM. It must outlive the operator, which may have requests in flight.
#[tokio::test]
async fn the_operator_exits_before_its_proxy() {
    let lab = lab().await;
    let pod = lab.operator_pod().await;
    let name = pod["metadata"]["name"].as_str().unwrap();
    let operator = pidfd(lab.process(&pod, "app").await);
    let proxy = pidfd(lab.process(&pod, "proxycontainer").await);
    // A stopped process does not exit.
    pidfd_send_signal(&operator, Signal::STOP).unwrap();
    lab.kubectl(&["delete", "pod", name, "--wait=false"]).await.unwrap();
    let proxy_has_ended = ends_within(&proxy, Duration::from_secs(5)).await;
    pidfd_send_signal(&operator, Signal::CONT).unwrap();
    assert!(!proxy_has_ended);
    assert!(ends_within(&operator, DEADLINE).await);
    assert!(ends_within(&proxy, DEADLINE).await);
    assert_ne!(lab.operator_pod().await["metadata"]["uid"], pod["metadata"]["uid"]);
}

/// A restart helps an operator that hangs. It does not help one that gets no CPU on a busy node, so the liveness probe
/// is patient.
#[tokio::test]
async fn an_unresponsive_operator_is_restarted_but_not_within_a_minute() {
    let lab = lab().await;
    let pod = lab.operator_pod().await;
    let operator = pidfd(lab.process(&pod, "app").await);
    pidfd_send_signal(&operator, Signal::STOP).unwrap();
    // SIGTERM does not end a stopped process: the kubelet kills it after the grace period of 30 s.
    let too_early = ends_within(&operator, Duration::from_secs(60 + 15)).await;
    let in_the_end = ends_within(&operator, DEADLINE).await;
    if !in_the_end {
        // The other tests need the operator.
        pidfd_send_signal(&operator, Signal::CONT).unwrap();
    }
    lab.shows(&lab.edit().await).await;
    assert!(in_the_end && !too_early, "{}", lab.describe().await);
}

async fn ends_within(process: &OwnedFd, patience: Duration) -> bool {
    let has_ended = async || {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        ensure!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now))? == 1, "it still runs");
        Ok(())
    };
    eventually("a process ends", patience, has_ended).await.is_ok()
}

fn restarts(pod: &Value, container: &str) -> Option<u64> {
    container_status(pod, container)["restartCount"].as_u64()
}

/// Returns a process, whatever else gets its number later.
fn pidfd(process: u32) -> OwnedFd {
    pidfd_open(Pid::from_raw(process.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap()
}
