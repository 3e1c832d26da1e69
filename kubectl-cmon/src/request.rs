//! `restart`, `suspend` and `resume`: an annotation and a field.

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::monitor::{CONFIG_MONITORS, REQUEST};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::options::{Change, Named};
use crate::outcome::Failure;
use crate::wait::until_done;

/// Tools that apply objects again and again, by their field managers.
const GITOPS: [&str; 4] =
    ["argocd-controller", "argocd-application-controller", "helm-controller", "kustomize-controller"];
/// The annotation of what was suspended by hand.
const SUSPENDED_AT: &str = "magalix.com/suspended-at";

#[derive(Deserialize)]
struct Written {
    metadata: Managed,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Managed {
    #[serde(default)]
    managed_fields: Vec<Manager>,
}

#[derive(Deserialize)]
struct Manager {
    #[serde(default)]
    manager: String,
}

pub(crate) async fn restart(client: &Client, restart: &Change) -> Result<(), Failure> {
    let now = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {REQUEST: now}}});
    change(client, restart, &patch, "restart requested").await
}

pub(crate) async fn suspend(client: &Client, named: &Named) -> Result<(), Failure> {
    let now = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {SUSPENDED_AT: now}}, "spec": {"suspend": true}});
    let written = client.merge::<Written>(CONFIG_MONITORS, &named.name, &patch).await?.value;
    println!("configmonitor/{} suspended", named.name);
    let managers = written.metadata.managed_fields.into_iter().map(|fields| fields.manager);
    if let Some(manager) = managers.into_iter().find(|manager| GITOPS.contains(&&**manager)) {
        eprintln!(
            "warning: {manager} applies this ConfigMonitor, and may undo this: set spec.suspend at its source, too"
        );
    }
    Ok(())
}

pub(crate) async fn resume(client: &Client, resume: &Change) -> Result<(), Failure> {
    let patch = json!({"metadata": {"annotations": {SUSPENDED_AT: null}}, "spec": {"suspend": null}});
    change(client, resume, &patch, "resumed").await
}

async fn change(client: &Client, change: &Change, patch: &Value, done: &str) -> Result<(), Failure> {
    let name = &change.named.name;
    client.merge::<Value>(CONFIG_MONITORS, name, patch).await?;
    println!("configmonitor/{name} {done}");
    match change.wait {
        true => until_done(client, std::slice::from_ref(name), &change.patience).await,
        false => Ok(()),
    }
}
