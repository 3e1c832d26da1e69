//! What each ConfigMonitor says, and what around it keeps it from its work.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::list::List;
use configmonitor_operator::monitor::CONFIG_MONITORS;
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::status::Status;
use tokio::time::sleep;

use super::surroundings::Surroundings;
use super::{Finding, State, or_unknown};
use crate::ambassador::Ambassador;
use crate::conditions::{message, reason};
use crate::monitors::{Monitor, all};
use crate::outcome::Failure;
use crate::verdict::unread;

/// How long the operator may take to read an edit.
const A_READING: Duration = Duration::from_secs(2);
/// Ten restarts within this time are a loop, which may be too slow for the operator's guard.
const A_LOOP: Duration = Duration::from_secs(45 * 60);

/// Looks at the ConfigMonitors of the namespace, or of all namespaces.
pub(super) async fn look(ambassador: &Ambassador, all_namespaces: bool) -> Result<Vec<Finding>, Failure> {
    let client = ambassador.client_for(all_namespaces);
    let (read, now) = match read(ambassador, &client).await {
        // That is a finding already.
        Err(Error { cause: Cause::NoSuchResource, .. }) => return Ok(Vec::new()),
        answer => match or_unknown(answer, "ConfigMonitors")? {
            Ok(read) => read,
            Err(unknown) => return Ok(vec![unknown]),
        },
    };
    let around = or_unknown(Surroundings::read(&client).await, "pods and their owners")?;
    let mut findings: Vec<Finding> = around.as_ref().err().cloned().into_iter().collect();
    let around = around.unwrap_or_default();
    let mut unread = BTreeMap::new();
    let mut namespaces: BTreeMap<String, Vec<Monitor>> = around.keys().map(|name| (name.clone(), Vec::new())).collect();
    for (monitor, source) in read {
        unread.extend(source.map(|source| (monitor.metadata.uid.clone(), source)));
        namespaces.entry(monitor.metadata.namespace.clone()).or_default().push(monitor);
    }
    if namespaces.values().all(Vec::is_empty) {
        let place =
            if all_namespaces { "the cluster".to_owned() } else { format!("namespace {:?}", ambassador.namespace) };
        findings.push(Finding::new("ConfigMonitors", State::Note, format!("there is none in {place}")));
    }
    for (namespace, monitors) in &namespaces {
        let around = around.get(namespace);
        let mut its = around.map_or_else(Vec::new, |around| around.notes(monitors));
        for monitor in monitors {
            let name = format!("ConfigMonitor/{}", monitor.metadata.name);
            let mut wrong = around.map_or_else(Vec::new, |around| around.wrong(monitor, monitors));
            wrong.extend(unread.get(&monitor.metadata.uid).map(|source| {
                let what = format!("the operator has not read {source}, so that pods may run with old content");
                (what, "see whether the operator has its rights, and what its log says")
            }));
            let ten = monitor.status.as_ref().and_then(Status::ten_restarts_since);
            if ten.is_some_and(|since| now.since(since) < A_LOOP) {
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
    Ok(findings)
}

/// Returns all ConfigMonitors, each with a source whose content the operator has not read, and the time. Looks again if the
/// operator may be about to read a spec or a source.
async fn read(
    ambassador: &Ambassador,
    client: &Client,
) -> Result<(Vec<(Monitor, Option<SourceName>)>, ServerTime), Error> {
    let mut is_second = false;
    loop {
        let List { items, at, .. } = client.list(&all(CONFIG_MONITORS), None, Monitor::new).await?;
        let (mut monitors, mut is_read) = (Vec::new(), true);
        for monitor in items {
            let namespace: Arc<str> = monitor.metadata.namespace.as_str().into();
            let source = match monitor.contents(&ambassador.client.within(&namespace)).await {
                Ok(contents) => monitor.status.as_ref().and_then(|status| unread(status, &contents).cloned()),
                Err(Error { cause: Cause::Forbidden(_), .. }) => None,
                Err(error) => return Err(error),
            };
            is_read &= monitor.is_read() && source.is_none();
            monitors.push((monitor, source));
        }
        if is_read || is_second {
            return Ok((monitors, at));
        }
        sleep(A_READING).await;
        is_second = true;
    }
}

/// Returns what the status says.
fn said(monitor: &Monitor) -> (State, String) {
    let Some(status) = monitor.status.as_ref().filter(|_| monitor.is_read()) else {
        let namespace = &monitor.metadata.namespace;
        let next =
            format!("see that an operator runs, and that it serves the namespace {namespace:?} (docs/install.md)");
        let newest = if monitor.status.is_some() { "newest " } else { "" };
        return (State::Wrong(next), format!("no operator has read its {newest}spec"));
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
