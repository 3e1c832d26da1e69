//! `doctor`: what keeps ConfigMonitors from doing their work, each with the next step.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::objects::DEPLOYMENTS;
use configmonitor_operator::kube::{LEASES, PODS, Resource, ServerTime};
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::status::Status;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::ambassador::{Ambassador, OPERATORS, kubectl, operators};
use crate::conditions::{message, reason};
use crate::monitors::{Monitor, name_of};
use crate::options::{Access, Format, Search};
use crate::outcome::Failure;
use crate::surroundings::Surroundings;
use crate::text::{compact_json, count, in_one_line, print};
use crate::verdict::unread as unread_source;

const CRD: &str = include_str!("../../crd.yml");
const CRDS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
};
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What stands before the tag of the operator's image.
const IMAGE: &str = "configmonitor-operator:";
const LEASE: &str = "Lease/configmonitor-operator";
const NAME_OF_CRD: &str = "CustomResourceDefinition/configmonitors.magalix.com";
/// The name of the Lease.
const OPERATOR: &str = "configmonitor-operator";
/// A leader renews its Lease every two seconds. Its clock may be another one than the API server's.
const EXPIRED_AFTER: Duration = Duration::from_secs(60);

/// How long the operator may take to read an edit.
const A_READING: Duration = Duration::from_secs(2);
/// Ten restarts within this time are a loop, which may be too slow for the operator's guard.
const A_LOOP: Duration = Duration::from_secs(45 * 60);

/// What was found about an object.
struct Finding {
    state: State,
    namespace: Option<String>,
    object: String,
    what: String,
}

enum State {
    Fine,
    /// Its author holds a restart.
    Held,
    /// What to do.
    Wrong(String),
    /// A right is missing to look, or there is nothing to look at.
    Unknown,
}

impl Finding {
    fn new(object: impl Into<String>, state: State, what: impl Into<String>) -> Self {
        Self { state, namespace: None, object: object.into(), what: what.into() }
    }

    fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }
}

pub(crate) async fn run(access: &Access, ambassador: &Ambassador, search: &Search) -> Result<(), Failure> {
    let mut wrong = 0;
    // What was found counts even if the next step fails.
    wrong += show(&[schema(access, ambassador).await?], search)?;
    wrong += show(&operator(ambassador).await?, search)?;
    wrong += show(&monitors(ambassador, search.all_namespaces).await?, search)?;
    if wrong > 0 { Err(Failure::Failed(format!("{} to act on", count(wrong, "finding")))) } else { Ok(()) }
}

/// Prints findings, and returns how many are wrong.
fn show(findings: &[Finding], search: &Search) -> Result<usize, Failure> {
    for Finding { state, namespace, object, what } in findings {
        let (word, next) = match state {
            State::Fine => ("ok", None),
            State::Held => ("held", None),
            State::Unknown => ("unknown", None),
            State::Wrong(next) => ("wrong", Some(next)),
        };
        print(match search.output {
            Some(Format::Json) => {
                compact_json(
                    &json!({"state": word, "namespace": namespace, "object": object, "what": what, "next": next}),
                ) + "\n"
            }
            None => {
                let what = in_one_line(what);
                let place = namespace.as_ref().map(|namespace| format!("{namespace}  ")).unwrap_or_default();
                let next = next.map(|next| format!("         {next}\n")).unwrap_or_default();
                format!("{word:<7}  {place}{object}  {what}\n{next}")
            }
        })?;
    }
    Ok(findings.iter().filter(|finding| matches!(finding.state, State::Wrong(_))).count())
}

/// Turns a missing right to look at an object into a finding.
fn or_unknown<T>(answer: Result<T, Error>, object: &str) -> Result<Result<T, Finding>, Failure> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(error @ Error { cause: Cause::Forbidden(_), .. }) => {
            Ok(Err(Finding::new(object, State::Unknown, error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}

/// Compares the schema with that of this version.
async fn schema(access: &Access, ambassador: &Ambassador) -> Result<Finding, Failure> {
    let next = "apply crd.yml of the operator's version: kubectl apply --server-side -f crd.yml".to_owned();
    let answer = ambassador.client.get::<Value>(CRDS, "configmonitors.magalix.com").await;
    if matches!(&answer, Err(Error { cause: Cause::NotFound(_), .. })) {
        return Ok(Finding::new(NAME_OF_CRD, State::Wrong(next), "does not exist"));
    }
    let installed = match or_unknown(answer, NAME_OF_CRD)? {
        Ok(installed) => installed.value,
        Err(unknown) => return Ok(unknown),
    };
    // Only kubectl reads YAML.
    let mut command = kubectl(access);
    command.args(["patch", "--local", "--type=merge", "--patch={}", "--output=json", "--filename=-"]);
    let mut read = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = read.stdin.take() {
        input.write_all(CRD.as_bytes()).await?;
    }
    let output = read.wait_with_output().await?;
    let own: Value = serde_json::from_slice(&output.stdout).map_err(Failure::failed)?;
    let fields = |crd: &Value| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clone();
    Ok(match fields(&own) == fields(&installed) {
        true => Finding::new(NAME_OF_CRD, State::Fine, format!("is that of version {VERSION}")),
        false => {
            let what = format!("is not that of version {VERSION}, which this plugin has");
            Finding::new(NAME_OF_CRD, State::Wrong(next), what)
        }
    })
}

/// Looks at the operator's pods, and at the Lease of several.
async fn operator(ambassador: &Ambassador) -> Result<Vec<Finding>, Failure> {
    let pods = ambassador.client.list(&operators(PODS), None, |pod: Value| pod).await;
    let pods = match or_unknown(pods, "operator")? {
        Ok(pods) => pods,
        Err(unknown) => return Ok(vec![unknown]),
    };
    if pods.items.is_empty() {
        let deployments = ambassador.client.list(&operators(DEPLOYMENTS), None, |deployment: Value| deployment).await;
        let off =
            deployments.map(|found| found.items.into_iter().find(|deployment| deployment["spec"]["replicas"] == 0));
        let Ok(Some(off)) = off else {
            let next = State::Wrong("install it, or look for it in another cluster".to_owned());
            return Ok(vec![Finding::new("operator", next, format!("does not run: no pod has the label {OPERATORS}"))]);
        };
        let (name, namespace) = (name_of(&off), off["metadata"]["namespace"].as_str().unwrap_or_default());
        let next = State::Wrong(format!("kubectl scale deployment {name} -n {namespace} --replicas=1"));
        return Ok(vec![Finding::new(format!("Deployment/{name}"), next, "is scaled to 0").within(namespace)]);
    }
    let mut findings = Vec::new();
    let mut namespaces = Vec::new();
    for pod in &pods.items {
        let of = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (of("namespace"), of("name"));
        if !namespaces.contains(&namespace) {
            namespaces.push(namespace);
        }
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let ready =
            conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let images: Vec<&str> = containers.filter_map(|container| container["image"].as_str()).collect();
        let tags = images.iter().filter_map(|image| image.rsplit_once(IMAGE)?.1.split('@').next());
        let other = tags.into_iter().find(|tag| *tag != VERSION);
        let images = images.join(" and ");
        let (state, what) = match (ready, other) {
            (true, None) => (State::Fine, format!("is ready, with {images}")),
            (true, Some(_)) => {
                let next = State::Wrong("use the plugin of the operator's version".to_owned());
                (next, format!("is of another version than this plugin, {VERSION}: {images}"))
            }
            (false, _) => {
                let next = State::Wrong(format!("kubectl describe pod {name} -n {namespace}"));
                (next, format!("is not ready, with {images}"))
            }
        };
        findings.push(Finding::new(format!("Pod/{name}"), state, what).within(namespace));
    }
    for namespace in namespaces {
        let client = ambassador.client.within(&namespace.into());
        let lease = match client.get::<Value>(LEASES, OPERATOR).await {
            Ok(lease) => Some(leader(&lease.value, pods.at)),
            Err(Error { cause: Cause::NotFound(_), .. }) => None,
            Err(error) => or_unknown::<()>(Err(error), LEASE)?.err(),
        };
        findings.extend(lease.map(|finding| finding.within(namespace)));
    }
    Ok(findings)
}

fn leader(lease: &Value, now: ServerTime) -> Finding {
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse::<ServerTime>().ok());
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    match renewed.filter(|renewed| now.since(*renewed) < EXPIRED_AFTER && !holder.is_empty()) {
        Some(_) => Finding::new(LEASE, State::Fine, format!("is held by {holder}")),
        None => {
            let next =
                "look at the logs of the operator's pods, or delete the Lease if they run without leader election";
            Finding::new(LEASE, State::Wrong(next.to_owned()), "has not been renewed for a minute")
        }
    }
}

/// Looks at the ConfigMonitors of the namespace, or of all namespaces.
async fn monitors(ambassador: &Ambassador, all_namespaces: bool) -> Result<Vec<Finding>, Failure> {
    let objects = match Monitor::objects(&ambassador.client_for(all_namespaces)).await {
        // That is a finding already.
        Err(Error { cause: Cause::NoSuchResource, .. }) => return Ok(Vec::new()),
        answer => match or_unknown(answer, "ConfigMonitors")? {
            Ok(objects) => objects,
            Err(unknown) => return Ok(vec![unknown]),
        },
    };
    let mut namespaces: BTreeMap<String, Vec<Monitor>> = BTreeMap::new();
    for object in &objects.items {
        let monitor = Monitor::of(object)?;
        namespaces.entry(monitor.metadata.namespace.clone()).or_default().push(monitor);
    }
    let mut findings = Vec::new();
    for (namespace, monitors) in &namespaces {
        let client = ambassador.client.within(&namespace.as_str().into());
        let around = match or_unknown(Surroundings::read(&client).await, "pods and their owners")? {
            Ok(around) => around,
            Err(unknown) => {
                findings.push(unknown.within(namespace));
                Surroundings::default()
            }
        };
        let unread = unread(&client, monitors).await?;
        for monitor in monitors {
            let name = format!("ConfigMonitor/{}", monitor.metadata.name);
            let mut wrong: Vec<(String, &str)> = around.wrong(monitor, monitors);
            wrong.extend(unread.get(&*monitor.metadata.name).map(|source| {
                let what = format!("the operator has not read {source}, so that pods may run with old content");
                (what, "see whether the operator has its rights, and what its log says")
            }));
            if monitor
                .status
                .as_ref()
                .and_then(Status::ten_restarts_since)
                .is_some_and(|since| objects.at.since(since) < A_LOOP)
            {
                let next = "find out who writes the source; if such restarts are intended, set minIntervalSeconds";
                wrong.push(("ten restarts within 45 minutes".to_owned(), next));
            }
            let (state, what) = said(monitor);
            if wrong.is_empty() || !matches!(state, State::Fine) {
                findings.push(Finding::new(&*name, state, what).within(namespace));
            }
            let wrong = wrong.into_iter().map(|(what, next)| Finding::new(&*name, State::Wrong(next.to_owned()), what));
            findings.extend(wrong.map(|finding| finding.within(namespace)));
        }
    }
    if findings.is_empty() {
        let nowhere = match all_namespaces {
            true => "are in no namespace".to_owned(),
            false => format!("are not in namespace {:?}", ambassador.namespace),
        };
        findings.push(Finding::new("ConfigMonitors", State::Unknown, nowhere));
    }
    Ok(findings)
}

/// Returns what the status says.
fn said(monitor: &Monitor) -> (State, String) {
    let Some(status) = monitor.status.as_ref().filter(|_| monitor.is_read()) else {
        let next = format!("let an operator serve the namespace {:?}", monitor.metadata.namespace);
        return (State::Wrong(next), "no operator has read its newest spec".to_owned());
    };
    let state = match Reason::from_str(reason(status)) {
        Ok(reason) if reason.needs_attention() => State::Wrong(next_step(reason).to_owned()),
        Ok(reason) if reason.is_delay_by_author() && status.restart.is_some() => State::Held,
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
        still.extend(unread_by(client, &Monitor::read(client, name).await?).await?);
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
        Reason::Forbidden => "grant the operator the right that the message names",
        Reason::InvalidStatus => "remove the status, which makes the content as of now the baseline",
        _ => "correct what the message names",
    }
}
