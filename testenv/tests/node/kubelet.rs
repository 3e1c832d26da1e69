//! What a kubelet reports of pods that are no pods of a calm day, as the simulated one does.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testenv::fixture::condition;

use crate::lab::{container_status, lab};

/// As of a load balancer. The node controller says the same of the pods of a node that is cut off.
#[tokio::test]
async fn a_pod_with_a_closed_readiness_gate_is_not_ready_although_its_containers_are() {
    let lab = lab().await;
    let template = lab.kubectl(&["get", "deployment", "frontend", "--output=jsonpath={.spec.template.spec}"]).await;
    let mut spec: Value = serde_json::from_str(&template.unwrap()).unwrap();
    spec["readinessGates"] = json!([{"conditionType": "example.com/registered"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"}, "spec": spec});
    lab.client().create("/api/v1/namespaces/lab/pods", &pod).await.unwrap().ok().unwrap();
    let gated = lab
        .eventually("its containers are ready", async || {
            let pod: Value = serde_json::from_str(&lab.kubectl(&["get", "pod", "gated", "--output=json"]).await?)?;
            ensure!(condition(&pod, "ContainersReady")["status"] == "True", "{}", pod["status"]);
            Ok(pod)
        })
        .await;
    let ready = condition(&gated, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ReadinessGatesNotReady")));
    assert!(container_status(&gated, "app")["ready"] == true, "{gated}");
    lab.kubectl(&["delete", "pod", "gated", "--wait=false"]).await.unwrap();
}

/// The phase of a pod that is told to go is no verdict about its content.
#[tokio::test]
async fn a_pod_that_is_deleted_has_finished_before_it_is_gone() {
    let lab = lab().await;
    let pod = lab.pods("app=frontend").await.unwrap().remove(0);
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    let keep = |finalizers: &str| format!(r#"{{"metadata":{{"finalizers":{finalizers}}}}}"#);
    lab.kubectl(&["patch", "pod", &name, "-p", &keep(r#"["example.com/keep"]"#)]).await.unwrap();
    lab.kubectl(&["delete", "pod", &name, "--wait=false"]).await.unwrap();
    let finished = lab
        .eventually("the pod has finished", async || {
            let pods = lab.pods("app=frontend").await?;
            let pod = pods.into_iter().find(|pod| pod["metadata"]["name"] == *name).context("the pod is gone")?;
            ensure!(["Failed", "Succeeded"].iter().any(|phase| pod["status"]["phase"] == *phase), "{}", pod["status"]);
            Ok(pod)
        })
        .await;
    assert!(finished["metadata"]["deletionTimestamp"].is_string(), "{finished}");
    let is_zero = container_status(&finished, "app")["state"]["terminated"]["exitCode"] == 0;
    assert_eq!(finished["status"]["phase"], if is_zero { "Succeeded" } else { "Failed" }, "{finished}");
    lab.kubectl(&["patch", "pod", &name, "--type=merge", "-p", &keep("null")]).await.unwrap();
}
