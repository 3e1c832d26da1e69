//! The operator's pod: its processes, rights and limits.

use std::fs;

use serde_json::Value;
use testenv::process::{status_field, status_kib};

use crate::lab::{Lab, container_spec, container_status, lab};

const TOKEN: &str = "var/run/secrets/kubernetes.io/serviceaccount/token";

#[tokio::test]
async fn both_containers_run_without_any_privilege() {
    let lab = lab().await;
    let refusal = lab.kubectl(&["run", "plain", "--image=plain"]).await.unwrap_err().to_string();
    assert!(refusal.contains("violates PodSecurity \"restricted:latest\""), "{refusal}");
    let pod = lab.operator_pod().await;
    for container in ["app", "proxycontainer"] {
        assert_eq!(container_status(&pod, container)["ready"], true, "{container}");
        let process = lab.process(&pod, container).await;
        let field = |name| status_field(process, name).unwrap();
        assert_eq!(field("Uid"), "65532\t65532\t65532\t65532", "{container}");
        assert_eq!(field("CapEff"), "0000000000000000", "{container}");
        assert_eq!(field("CapBnd"), "0000000000000000", "{container}");
        assert_eq!(field("NoNewPrivs"), "1", "{container}");
        assert_eq!(field("Seccomp"), "2", "{container} has a filter");
        let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap();
        let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
        assert!(root.split(' ').nth(5).unwrap().starts_with("ro"), "{container}: {root}");
    }
}

#[tokio::test]
async fn the_token_is_the_proxy_s_alone() {
    let lab = lab().await;
    let pod = lab.operator_pod().await;
    let file = async |container| format!("/proc/{}/root/{TOKEN}", lab.process(&pod, container).await);
    let token = fs::read_to_string(file("proxycontainer").await).unwrap();
    assert_eq!(token.split('.').count(), 3, "a JSON Web Token");
    assert!(fs::metadata(file("app").await).is_err());
    let process = lab.process(&pod, "app").await;
    let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap();
    assert!(!mounts.contains("secrets"), "{mounts}");
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains(&token));
}

/// The kernel enforces the limits; the test prints the figures, for whoever sets the limits.
#[tokio::test]
async fn the_memory_of_both_containers_is_within_what_the_manifest_requests() {
    let lab = lab().await;
    lab.shows(&lab.edit().await).await;
    let pod = lab.operator_pod().await;
    for container in ["app", "proxycontainer"] {
        let (resident, peak) = memory(&lab, &pod, container).await;
        println!("{container}: {resident:.1} MiB resident, {peak:.1} MiB at most");
        let request = requested_memory(&pod, container);
        assert!(resident < request, "{container} holds {resident} MiB and requests {request} MiB");
    }
}

/// Returns the memory in MiB: the current use and the peak.
async fn memory(lab: &Lab, pod: &Value, container: &str) -> (f64, f64) {
    let process = lab.process(pod, container).await;
    let mib = |name| status_kib(process, name).unwrap() as f64 / 1024.0;
    (mib("VmRSS"), mib("VmHWM"))
}

fn requested_memory(pod: &Value, container: &str) -> f64 {
    let memory = &container_spec(pod, container)["resources"]["requests"]["memory"];
    memory.as_str().unwrap().trim_end_matches("Mi").parse().unwrap()
}
