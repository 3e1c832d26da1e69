//! `restart`, `suspend` and `resume`: an annotation and a field.

use std::io::{self, Write as _};

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::monitor::{CONFIG_MONITORS, REQUEST};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ambassador::Ambassador;
use crate::monitors::Monitor;
use crate::options::{Change, Named, Resume};
use crate::outcome::Failure;
use crate::plan;
use crate::wait::until_done;

/// Tools that apply objects again and again, by their field managers.
const GITOPS: [&str; 4] =
    ["argocd-controller", "argocd-application-controller", "helm-controller", "kustomize-controller"];
/// The annotation of what was suspended by hand.
pub(crate) const SUSPENDED_AT: &str = "magalix.com/suspended-at";

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

pub(crate) async fn resume(ambassador: &Ambassador, resume: &Resume) -> Result<(), Failure> {
    let client = &ambassador.client.within(&ambassador.namespace);
    let names = match &resume.name {
        Some(name) => vec![name.clone()],
        None => suspended(ambassador, resume).await?,
    };
    for name in &names {
        if resume.as_baseline {
            forget_content(client, name).await?;
        }
        let patch = json!({"metadata": {"annotations": {SUSPENDED_AT: null}}, "spec": {"suspend": null}});
        client.merge::<Value>(CONFIG_MONITORS, name, &patch).await?;
        println!("configmonitor/{name} resumed");
    }
    match resume.wait {
        true => until_done(client, &names, &resume.patience).await,
        false => Ok(()),
    }
}

/// Returns what was suspended by hand, once somebody has agreed to what it restarts.
async fn suspended(ambassador: &Ambassador, resume: &Resume) -> Result<Vec<String>, Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let listed = Monitor::objects(&client).await?;
    let is_by_hand = |monitor: &Value| monitor["metadata"]["annotations"][SUSPENDED_AT].is_string();
    let by_hand: Vec<Value> = listed.items.into_iter().filter(is_by_hand).collect();
    let name_of = |monitor: &Value| monitor["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = by_hand.iter().map(name_of).collect();
    if names.is_empty() {
        println!("nothing is suspended by `kubectl cmon suspend` in namespace {:?}", ambassador.namespace);
    }
    if resume.yes || names.is_empty() {
        return Ok(names);
    }
    for monitor in by_hand {
        if resume.as_baseline {
            println!("ConfigMonitor/{}  restarts nothing: its content becomes the baseline", name_of(&monitor));
        } else {
            print!("{}", plan::resumed(ambassador, name_of(&monitor), monitor, listed.at).await?);
        }
    }
    print!("Resume {} ConfigMonitors? [y/N] ", names.len());
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(names),
        _ => Err(Failure::failed("nothing was resumed")),
    }
}

/// Makes the operator take the next content that it reads for that of the pods.
async fn forget_content(client: &Client, name: &str) -> Result<(), Failure> {
    let mut monitor: Value = client.get(CONFIG_MONITORS, name).await?.value;
    if monitor["spec"]["suspend"] != true {
        return Err(Failure::Failed(format!(
            "ConfigMonitor {name:?} is not suspended, so that a restart may be under way"
        )));
    }
    if let Some(status) = monitor["status"].as_object_mut() {
        status.retain(|field, _| !["sources", "restart"].contains(&&**field));
    }
    client.replace_status::<Value>(CONFIG_MONITORS, name, &monitor).await?;
    Ok(())
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
