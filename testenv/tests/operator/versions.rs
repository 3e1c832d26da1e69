//! Which version of Kubernetes all tests of this binary run on.

use std::collections::BTreeSet;
use std::env;

use anyhow::ensure;
use serde_json::Value;
use testenv::{DEADLINE, eventually};

use crate::world::control_plane;

#[tokio::test]
async fn the_programs_have_the_versions_that_are_selected() {
    // Without a selection there may be programs of any version in $KUBEBUILDER_ASSETS.
    let selected = |variable| env::var(variable).ok().filter(|version| !version.is_empty());
    let is_selected = |variable, version: &str| {
        selected(variable).is_none_or(|selected| version.starts_with(&format!("v{selected}.")))
    };
    let control_plane = control_plane().await;

    let text = control_plane.kubectl().ok(&["version", "--output=json"]).await.unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    let [server, client] = ["serverVersion", "clientVersion"].map(|of| answer[of]["gitVersion"].as_str().unwrap());
    assert!(
        is_selected("CONFIGMONITOR_KUBERNETES", server) && is_selected("CONFIGMONITOR_KUBECTL", client),
        "{answer}"
    );

    // The version of these two is only in what they say of themselves to the API server.
    let wanted = ["kube-controller-manager", "kube-scheduler"].map(|program| format!("{program}/{server}"));
    eventually("the controllers and the scheduler are heard of", DEADLINE, async || {
        let log = control_plane.audit_log()?;
        let agents = log.iter().filter_map(|entry| entry["userAgent"].as_str()?.split(' ').next());
        let agents: BTreeSet<&str> = agents.collect();
        ensure!(wanted.iter().all(|program| agents.contains(program.as_str())), "{agents:?}");
        Ok(())
    })
    .await
    .unwrap();
}
