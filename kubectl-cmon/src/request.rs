//! `restart`, `suspend` and `resume`: an annotation and a field.

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::monitor::{CONFIG_MONITORS, REQUEST};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::monitors::{Monitor, name_of};
use crate::options::{Restart, Resume, Suspend};
use crate::outcome::Failure;
use crate::text::{print, say};
use crate::wait::until_done;

/// Tools that apply objects again and again, by their field managers.
const GITOPS: [&str; 4] =
    ["argocd-controller", "argocd-application-controller", "helm-controller", "kustomize-controller"];
/// The annotation of what was suspended by hand.
pub(crate) const SUSPENDED_AT: &str = "magalix.com/suspended-at";
/// How often a status is written that somebody else writes at the same time.
const ATTEMPTS: usize = 5;

pub(crate) async fn restart(client: &Client, restart: &Restart) -> Result<(), Failure> {
    let name = &restart.name;
    let patch = json!({"metadata": {"annotations": {REQUEST: Timestamp::now().to_string()}}});
    client.merge::<Value>(CONFIG_MONITORS, name, &patch).await?;
    print(format_args!("configmonitor/{name} restart requested\n"))?;
    match restart.wait {
        true => until_done(client, std::slice::from_ref(name), &restart.limit).await,
        false => Ok(()),
    }
}

pub(crate) async fn suspend(client: &Client, suspend: &Suspend) -> Result<(), Failure> {
    let goes_on = |monitor: &Value| monitor["spec"]["suspend"] != true;
    let names = match &suspend.name {
        Some(name) => vec![name.clone()],
        None => Monitor::objects(client).await?.items.iter().filter(|monitor| goes_on(monitor)).map(name_of).collect(),
    };
    if names.is_empty() {
        print(format_args!("nothing in namespace {:?} is left to suspend\n", client.namespace()))?;
    }
    let at = json!({ SUSPENDED_AT: Timestamp::now().to_string() });
    let patch = json!({"metadata": {"annotations": at}, "spec": {"suspend": true}});
    for name in names {
        let written = client.merge::<Value>(CONFIG_MONITORS, &name, &patch).await?.value;
        print(format_args!("configmonitor/{name} suspended\n"))?;
        let fields = written["metadata"]["managedFields"].as_array().into_iter().flatten();
        let mut managers = fields.filter_map(|fields| fields["manager"].as_str());
        if let Some(manager) = managers.find(|manager| GITOPS.contains(manager)) {
            say(format_args!(
                "warning: {manager} applies {name}, and may undo this: set spec.suspend at its source, too"
            ));
        }
    }
    Ok(())
}

pub(crate) async fn resume(client: &Client, resume: &Resume) -> Result<(), Failure> {
    let names = match &resume.name {
        Some(name) => vec![name.clone()],
        None => suspended(client).await?,
    };
    let mut failed = Vec::new();
    for name in &names {
        match resume_one(client, name, resume.as_baseline).await {
            Ok(()) => print(format_args!("configmonitor/{name} resumed\n"))?,
            // The others are not to wait for this one.
            Err(failure) => failed.push(format!("configmonitor/{name}: {failure}")),
        }
    }
    match failed.is_empty() {
        false => Err(Failure::Failed(failed.join("\n       "))),
        true if resume.wait => until_done(client, &names, &resume.limit).await,
        true => Ok(()),
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

/// Returns what was suspended by hand and still is.
async fn suspended(client: &Client) -> Result<Vec<String>, Failure> {
    let is_by_hand = |monitor: &&Value| {
        monitor["metadata"]["annotations"][SUSPENDED_AT].is_string() && monitor["spec"]["suspend"] == true
    };
    let names: Vec<String> = Monitor::objects(client).await?.items.iter().filter(is_by_hand).map(name_of).collect();
    if names.is_empty() {
        let namespace = client.namespace();
        print(format_args!(
            "nothing in namespace {namespace:?} was suspended by the command suspend; name what to resume\n"
        ))?;
    }
    Ok(names)
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
