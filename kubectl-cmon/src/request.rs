//! `restart`, `suspend` and `resume`: an annotation and a field.

use std::io;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::monitor::{CONFIG_MONITORS, REQUEST};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::ambassador::Ambassador;
use crate::monitors::{Monitor, name_of};
use crate::options::{Named, Restart, Resume};
use crate::outcome::Failure;
use crate::plan;
use crate::text::{count, print, say};
use crate::wait::until_done;

/// Tools that apply objects again and again, by their field managers.
const GITOPS: [&str; 4] =
    ["argocd-controller", "argocd-application-controller", "helm-controller", "kustomize-controller"];
/// The annotation of what was suspended by hand.
pub(crate) const SUSPENDED_AT: &str = "magalix.com/suspended-at";
/// How often a status is written that somebody else writes at the same time.
const ATTEMPTS: usize = 5;

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

pub(crate) async fn restart(client: &Client, restart: &Restart) -> Result<(), Failure> {
    let name = &restart.named.name;
    let patch = json!({"metadata": {"annotations": {REQUEST: Timestamp::now().to_string()}}});
    client.merge::<Value>(CONFIG_MONITORS, name, &patch).await?;
    print(format_args!("configmonitor/{name} restart requested\n"))?;
    match restart.wait {
        true => until_done(client, std::slice::from_ref(name), &restart.limit).await,
        false => Ok(()),
    }
}

pub(crate) async fn suspend(client: &Client, named: &Named) -> Result<(), Failure> {
    let now = Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {SUSPENDED_AT: now}}, "spec": {"suspend": true}});
    let written = client.merge::<Written>(CONFIG_MONITORS, &named.name, &patch).await?.value;
    print(format_args!("configmonitor/{} suspended\n", named.name))?;
    let mut managers = written.metadata.managed_fields.into_iter().map(|fields| fields.manager);
    if let Some(manager) = managers.find(|manager| GITOPS.contains(&&**manager)) {
        say(format_args!(
            "warning: {manager} applies this ConfigMonitor, and may undo this: set spec.suspend at its source, too"
        ));
    }
    Ok(())
}

pub(crate) async fn resume(ambassador: &Ambassador, resume: &Resume) -> Result<(), Failure> {
    let client = &ambassador.client.within(&ambassador.namespace);
    let names = match &resume.name {
        Some(name) => vec![name.clone()],
        None => suspended(ambassador, resume).await?,
    };
    let mut failed = None;
    for name in &names {
        match resume_one(client, name, resume.as_baseline).await {
            Ok(()) => print(format_args!("configmonitor/{name} resumed\n"))?,
            // The others are not to wait for this one.
            Err(failure) => {
                say(format_args!("error: configmonitor/{name}: {failure}"));
                failed = Some(failure);
            }
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None if resume.wait => until_done(client, &names, &resume.limit).await,
        None => Ok(()),
    }
}

async fn resume_one(client: &Client, name: &str, as_baseline: bool) -> Result<(), Failure> {
    if as_baseline {
        forget_content(client, name).await?;
    }
    let patch = json!({"metadata": {"annotations": {SUSPENDED_AT: null}}, "spec": {"suspend": null}});
    client.merge::<Value>(CONFIG_MONITORS, name, &patch).await?;
    Ok(())
}

/// Returns what was suspended by hand and still is, once somebody has agreed to what it restarts.
async fn suspended(ambassador: &Ambassador, resume: &Resume) -> Result<Vec<String>, Failure> {
    let client = ambassador.client.within(&ambassador.namespace);
    let listed = Monitor::objects(&client).await?;
    let is_by_hand = |monitor: &Value| {
        monitor["metadata"]["annotations"][SUSPENDED_AT].is_string() && monitor["spec"]["suspend"] == true
    };
    let by_hand: Vec<Value> = listed.items.into_iter().filter(is_by_hand).collect();
    let names: Vec<String> = by_hand.iter().map(name_of).collect();
    if names.is_empty() {
        print(format_args!("nothing in namespace {:?} was suspended by the command suspend\n", ambassador.namespace))?;
    }
    if resume.yes || names.is_empty() {
        return Ok(names);
    }
    for monitor in by_hand {
        let name = name_of(&monitor);
        match resume.as_baseline {
            true => print(format_args!("ConfigMonitor/{name}  restarts nothing: its content becomes the baseline\n"))?,
            false => print(plan::resumed(ambassador, name, monitor, listed.at).await?)?,
        }
    }
    print(format_args!("Resume {}? [y/N] ", count(names.len(), "ConfigMonitor")))?;
    match &*line().await?.to_lowercase() {
        "y" | "yes" => Ok(names),
        _ => Err(Failure::failed("nothing was resumed")),
    }
}

/// Reads a line of standard input. A thread of its own, which nobody joins, so that a signal ends the wait.
async fn line() -> Result<String, Failure> {
    let (sender, line) = oneshot::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        // Nobody listens any more after a signal.
        let _ = sender.send(io::stdin().read_line(&mut text).map(|_| text));
    });
    Ok(line.await.map_err(Failure::failed)??.trim().to_owned())
}

/// Makes the operator take the next content that it reads for that of the pods.
async fn forget_content(client: &Client, name: &str) -> Result<(), Failure> {
    let mut attempt = 0;
    loop {
        let mut monitor: Value = client.get(CONFIG_MONITORS, name).await?.value;
        if monitor["spec"]["suspend"] != true {
            return Err(Failure::failed("it is not suspended, so that a restart may be under way"));
        }
        let request = monitor["metadata"]["annotations"].get(REQUEST).cloned();
        if let Some(status) = monitor["status"].as_object_mut() {
            status.retain(|field, _| !["sources", "restart"].contains(&&**field));
            if let Some(request) = request {
                status.insert("lastHandledRestartRequest".to_owned(), request);
            }
        }
        attempt += 1;
        match client.replace::<Value>((CONFIG_MONITORS, Some("status")), name, &monitor).await {
            // The operator has written it meanwhile.
            Err(Error { cause: Cause::Conflict(_), .. }) if attempt < ATTEMPTS => {}
            written => return Ok(written.map(drop)?),
        }
    }
}
