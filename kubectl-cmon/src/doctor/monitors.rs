//! What each ConfigMonitor says, and what around it keeps it from its work.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::status::Status;
use tokio::time::sleep;

use super::surroundings::Surroundings;
use super::{Finding, State, or_unknown};
use crate::ambassador::Ambassador;
use crate::conditions::{message, reason};
use crate::monitors::Monitor;
use crate::outcome::Failure;
use crate::verdict::unread as unread_source;

/// How long the operator may take to read an edit.
const A_READING: Duration = Duration::from_secs(2);
/// Ten restarts within this time are a loop, which may be too slow for the operator's guard.
const A_LOOP: Duration = Duration::from_secs(45 * 60);

/// Looks at the ConfigMonitors of the namespace, or of all namespaces.
pub(super) async fn look(ambassador: &Ambassador, all_namespaces: bool) -> Result<Vec<Finding>, Failure> {
    let (client, mut findings) = (ambassador.client_for(all_namespaces), Vec::new());
    let objects = match Monitor::objects(&client).await {
        // That is a finding already.
        Err(Error { cause: Cause::NoSuchResource, .. }) => return Ok(Vec::new()),
        answer => match or_unknown(answer, "ConfigMonitors")? {
            Ok(objects) => objects,
            Err(unknown) => return Ok(vec![unknown]),
        },
    };
    let mut around = match or_unknown(Surroundings::read(&client).await, "pods and their owners")? {
        Ok(around) => around,
        Err(unknown) => {
            findings.push(unknown);
            BTreeMap::new()
        }
    };
    for object in &objects.items {
        let monitor = Monitor::of(object)?;
        around.entry(monitor.metadata.namespace.clone()).or_default().monitors.push(monitor);
    }
    for (namespace, around) in &around {
        let mut its = around.notes();
        let unread = unread(&ambassador.client.within(&namespace.as_str().into()), &around.monitors).await?;
        for monitor in &around.monitors {
            let name = format!("ConfigMonitor/{}", monitor.metadata.name);
            let mut wrong: Vec<(String, &str)> = around.wrong(monitor);
            wrong.extend(unread.get(&*monitor.metadata.name).map(|source| {
                let what = format!("the operator has not read {source}, so that pods may run with old content");
                (what, "see whether the operator has its rights, and what its log says")
            }));
            let ten = monitor.status.as_ref().and_then(Status::ten_restarts_since);
            if ten.is_some_and(|since| objects.at.since(since) < A_LOOP) {
                let next = "find out who writes the source; if such restarts are intended, set minIntervalSeconds";
                wrong.push(("ten restarts within 45 minutes".to_owned(), next));
            }
            let (state, what) = said(monitor);
            if wrong.is_empty() || !matches!(state, State::Fine) {
                its.push(Finding::new(&*name, state, what));
            }
            its.extend(wrong.into_iter().map(|(what, next)| Finding::new(&*name, State::Wrong(next.to_owned()), what)));
        }
        findings.extend(its.into_iter().map(|finding| finding.within(namespace)));
    }
    if objects.items.is_empty() {
        let place =
            if all_namespaces { "the cluster".to_owned() } else { format!("namespace {:?}", ambassador.namespace) };
        findings.push(Finding::new("ConfigMonitors", State::Note, format!("there is none in {place}")));
    }
    Ok(findings)
}

/// Returns what the status says.
fn said(monitor: &Monitor) -> (State, String) {
    let Some(status) = monitor.status.as_ref().filter(|_| monitor.is_read()) else {
        let namespace = &monitor.metadata.namespace;
        let next =
            format!("see that an operator runs, and that it serves the namespace {namespace:?} (docs/install.md)");
        return (State::Wrong(next), "no operator has read its spec".to_owned());
    };
    let asked = monitor.metadata.annotations.restart_requested_at.as_ref();
    let is_pending = status.restart.is_some() || asked.is_some_and(|asked| !status.has_handled(asked));
    let state = match Reason::from_str(reason(status)) {
        Ok(reason) if reason.needs_attention() => State::Wrong(next_step(reason).to_owned()),
        Ok(reason) if reason.is_delay_by_author() && is_pending => State::Held,
        _ if is_pending => State::Waits,
        _ => State::Fine,
    };
    (state, format!("{}: {}", reason(status), message(status)))
}

/// Returns a source of each ConfigMonitor whose content the operator has not read after a while, as far as it may be read.
async fn unread(client: &Client, monitors: &[Monitor]) -> Result<BTreeMap<String, SourceName>, Failure> {
    let mut unread = BTreeMap::new();
    for monitor in monitors {
        unread.extend(unread_by(client, monitor).await?);
    }
    if !unread.is_empty() {
        sleep(A_READING).await;
    }
    let mut still = BTreeMap::new();
    for name in unread.keys() {
        match Monitor::read(client, name).await {
            Ok(monitor) => still.extend(unread_by(client, &monitor).await?),
            Err(error) if error.cause.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(still)
}

async fn unread_by(client: &Client, monitor: &Monitor) -> Result<Option<(String, SourceName)>, Failure> {
    let contents = match monitor.contents(client).await {
        Err(Error { cause: Cause::Forbidden(_), .. }) => return Ok(None),
        contents => contents?,
    };
    let source = monitor.status.as_ref().and_then(|status| unread_source(status, &contents));
    Ok(source.map(|source| (monitor.metadata.name.to_string(), source.clone())))
}

/// Returns what to do about a reason that needs attention.
fn next_step(reason: Reason) -> &'static str {
    match reason {
        Reason::KeyNotFound => "correct the keys in the spec, or the source",
        Reason::SourceNotFound => "create it, or correct its name in the spec",
        Reason::TooManySources => "exclude some, or write several ConfigMonitors",
        Reason::RestartBackOff => {
            "if the application writes the source itself, name the keys that count; else set minIntervalSeconds"
        }
        Reason::ProgressDeadlineExceeded => "look at the pods that the message names, with the command status",
        Reason::CanaryFailed => "undo the content, or request a restart for all the same, with the command restart",
        Reason::Forbidden => {
            "grant the operator what the message names, or take the field out of the spec that needs it"
        }
        Reason::InvalidStatus => "remove the status, which makes the content as of now the baseline",
        _ => "correct what the message names",
    }
}
