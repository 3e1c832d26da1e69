//! What happens to a pod and to a node: no change is lost.

use std::os::fd::OwnedFd;

use anyhow::ensure;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use testenv::eventually;

use crate::lab::{DEADLINE, container_status, lab};

#[tokio::test]
async fn an_edit_while_the_operator_s_pod_is_replaced_is_not_lost() {
    let lab = lab().await;
    let pod = lab.operator_pod().await;
    let name = pod["metadata"]["name"].as_str().unwrap();
    lab.kubectl(&["delete", "pod", name, "--wait=false"]).await.unwrap();
    let message = lab.edit().await;
    lab.shows(&message).await;
    assert_ne!(lab.operator_pod().await["metadata"]["uid"], pod["metadata"]["uid"]);
}

#[tokio::test]
async fn an_edit_while_the_operator_is_killed_is_not_lost() {
    let lab = lab().await;
    let pod = lab.operator_pod().await;
    kill(lab.process(&pod, "app").await);
    let message = lab.edit().await;
    lab.shows(&message).await;
    let restarts = |pod| container_status(pod, "app")["restartCount"].as_u64();
    assert!(restarts(&lab.operator_pod().await) > restarts(&pod));
}

#[tokio::test]
async fn an_edit_while_the_proxy_is_killed_is_not_lost() {
    let lab = lab().await;
    let pod = lab.operator_pod().await;
    kill(lab.process(&pod, "proxycontainer").await);
    let message = lab.edit().await;
    lab.shows(&message).await;
    let after = lab.operator_pod().await;
    let restarts = |pod, container| container_status(pod, container)["restartCount"].as_u64();
    assert!(restarts(&after, "proxycontainer") > restarts(&pod, "proxycontainer"));
    assert_eq!(restarts(&after, "app"), restarts(&pod, "app"), "the operator does not end with its proxy");
}

#[tokio::test]
async fn an_edit_while_containerd_restarts_is_not_lost() {
    let mut lab = lab().await;
    lab.shows(&lab.edit().await).await;
    lab.node.stop_containerd().await.unwrap();
    let message = lab.edit().await;
    eventually("the pods are being deleted while nothing can start", DEADLINE, async || {
        let pods = lab.pods("frontend").await?;
        let deleted = pods.iter().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null()).count();
        ensure!(deleted > 0, "{} pods", pods.len());
        Ok(())
    })
    .await
    .unwrap();
    lab.node.start_containerd().await.unwrap();
    lab.shows(&message).await;
}

/// kubectl proxy dies at once when it is asked to. It must outlive the operator, which may have requests in flight.
#[tokio::test]
async fn the_operator_ends_before_its_proxy() {
    let lab = lab().await;
    let pod = lab.operator_pod().await;
    let name = pod["metadata"]["name"].as_str().unwrap();
    let operator = pidfd(lab.process(&pod, "app").await);
    let proxy = pidfd(lab.process(&pod, "proxycontainer").await);
    let ends = tokio::task::spawn_blocking(move || {
        let mut both = [PollFd::new(&operator, PollFlags::IN), PollFd::new(&proxy, PollFlags::IN)];
        poll(&mut both, None).unwrap();
        both.map(|process| process.revents().contains(PollFlags::IN))
    });
    lab.kubectl(&["delete", "pod", name]).await.unwrap();
    assert_eq!(ends.await.unwrap(), [true, false], "the operator has ended, and its proxy has not");
    lab.operator_pod().await;
}

/// A process, whatever else gets its number later.
fn pidfd(process: u32) -> OwnedFd {
    pidfd_open(Pid::from_raw(process.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap()
}

fn kill(process: u32) {
    pidfd_send_signal(pidfd(process), Signal::KILL).unwrap();
}
