//! The version of Kubernetes on which all tests of this binary run.

use std::env;

use serde_json::Value;

use crate::test_namespace::control_plane;

#[tokio::test]
async fn the_api_server_and_kubectl_have_the_selected_versions() {
    let text = control_plane().await.kubectl().ok(&["version", "--output=json"]).await.unwrap();
    let versions: Value = serde_json::from_str(&text).unwrap();
    for (variable, program) in
        [("CONFIGMONITOR_KUBERNETES", "serverVersion"), ("CONFIGMONITOR_KUBECTL", "clientVersion")]
    {
        if let Some(selected) = env::var(variable).ok().filter(|version| !version.is_empty()) {
            let version = versions[program]["gitVersion"].as_str().unwrap();
            assert!(
                version.starts_with(&format!("v{selected}.")),
                "{variable} is {selected}, and {program} is {version}"
            );
        }
    }
}
