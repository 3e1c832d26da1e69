//! `doctor`: what keeps ConfigMonitors from doing their work, each with the next step.

use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::{LEASES, PODS, Resource, ServerTime};
use configmonitor_operator::monitor::reason::Reason;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::ambassador::{Ambassador, OPERATORS, kubectl};
use crate::monitors::{Monitor, all};
use crate::options::{Access, Findings, Format};
use crate::outcome::Failure;
use crate::text::{Colour, coloured, count, print};
use crate::verdict::{message, reason};

const CRD: &str = include_str!("../../crd.yml");
const CRDS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
};
/// The name of the Lease.
const OPERATOR: &str = "configmonitor-operator";
/// A leader renews its Lease every two seconds. Its clock may be another one than the API server's.
const EXPIRED_AFTER: Duration = Duration::from_secs(60);

/// What was looked at.
enum Finding {
    Fine(String),
    /// Its author holds a restart.
    Held(String),
    /// What is wrong, and what to do.
    Wrong(String, String),
    /// A right is missing to look.
    Unknown(String),
}

pub(crate) async fn run(access: &Access, ambassador: &Ambassador, options: &Findings) -> Result<(), Failure> {
    let mut wrong = 0;
    // What was found counts even if the next step fails.
    wrong += show(&[schema(access, ambassador).await?], options)?;
    wrong += show(&operator(ambassador).await?, options)?;
    wrong += show(&monitors(ambassador, options.all_namespaces).await?, options)?;
    if wrong > 0 { Err(Failure::Failed(format!("somebody is needed for {}", count(wrong, "finding")))) } else { Ok(()) }
}

/// Prints findings, and returns how many are wrong.
fn show(findings: &[Finding], options: &Findings) -> Result<usize, Failure> {
    for finding in findings {
        let ((state, colour), what, next) = match finding {
            Finding::Fine(what) => (("ok", Colour::Green), what, None),
            Finding::Held(what) => (("held", Colour::Yellow), what, None),
            Finding::Unknown(why) => (("unknown", Colour::Yellow), why, None),
            Finding::Wrong(what, next) => (("wrong", Colour::Red), what, Some(next)),
        };
        print(match options.output {
            Some(Format::Json) => format!("{}\n", json!({"state": state, "what": what, "next": next})),
            None => {
                let next = next.map(|next| format!("         {next}\n")).unwrap_or_default();
                format!("{}  {what}\n{next}", coloured(&format!("{state:<7}"), colour))
            }
        })?;
    }
    Ok(findings.iter().filter(|finding| matches!(finding, Finding::Wrong(..))).count())
}

/// Turns a missing right into a finding.
fn or_unknown<T>(answer: Result<T, Error>) -> Result<Result<T, Finding>, Failure> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(error @ Error { cause: Cause::Forbidden(_), .. }) => Ok(Err(Finding::Unknown(error.to_string()))),
        Err(error) => Err(error.into()),
    }
}

/// Compares the schema with that of this version.
async fn schema(access: &Access, ambassador: &Ambassador) -> Result<Finding, Failure> {
    let next = "apply crd.yml of the operator's version: kubectl apply --server-side -f crd.yml".to_owned();
    let answer = ambassador.client.get::<Value>(CRDS, "configmonitors.magalix.com").await;
    if matches!(&answer, Err(Error { cause: Cause::NotFound(_), .. })) {
        return Ok(Finding::Wrong("there is no CustomResourceDefinition of ConfigMonitors".to_owned(), next));
    }
    let installed = match or_unknown(answer)? {
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
    let version = env!("CARGO_PKG_VERSION");
    Ok(match fields(&own) == fields(&installed) {
        true => Finding::Fine(format!("the CustomResourceDefinition is that of version {version}")),
        false => Finding::Wrong(
            format!("the CustomResourceDefinition is not that of version {version}, which this plugin has"),
            next,
        ),
    })
}

/// Looks at the operator's pods, and at the Lease of several.
async fn operator(ambassador: &Ambassador) -> Result<Vec<Finding>, Failure> {
    let its = Selection { labels: Some(OPERATORS.to_owned()), ..all(PODS) };
    let pods = match or_unknown(ambassador.client.list(&its, None, |pod: Value| pod).await)? {
        Ok(pods) => pods,
        Err(unknown) => return Ok(vec![unknown]),
    };
    if pods.items.is_empty() {
        let next = "install it, or look for it in another cluster".to_owned();
        return Ok(vec![Finding::Wrong(format!("no pod has the label {OPERATORS}: no operator runs"), next)]);
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
        let what = format!("Pod {namespace}/{name} of {}", images.join(" and "));
        findings.push(match ready {
            true => Finding::Fine(format!("{what} is ready")),
            false => {
                Finding::Wrong(format!("{what} is not ready"), format!("kubectl describe pod {name} -n {namespace}"))
            }
        });
    }
    for namespace in namespaces {
        let client = ambassador.client.within(&namespace.into());
        match client.get::<Value>(LEASES, OPERATOR).await {
            Ok(lease) => findings.push(leader(&lease.value, pods.at)),
            Err(Error { cause: Cause::NotFound(_), .. }) => {}
            Err(error) => findings.extend(or_unknown::<()>(Err(error))?.err()),
        }
    }
    Ok(findings)
}

fn leader(lease: &Value, now: ServerTime) -> Finding {
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse::<ServerTime>().ok());
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    match renewed.filter(|renewed| now.since(*renewed) < EXPIRED_AFTER && !holder.is_empty()) {
        Some(_) => Finding::Fine(format!("{holder} leads")),
        None => Finding::Wrong(
            "no operator has renewed its Lease for a minute".to_owned(),
            "look at the logs of its pods, or delete the Lease if they run without leader election".to_owned(),
        ),
    }
}

/// Looks at the ConfigMonitors of the namespace, or of all namespaces.
async fn monitors(ambassador: &Ambassador, all_namespaces: bool) -> Result<Vec<Finding>, Failure> {
    let client = match all_namespaces {
        true => ambassador.client.clone(),
        false => ambassador.client.within(&ambassador.namespace),
    };
    let objects = match Monitor::objects(&client).await {
        // That is a finding already.
        Err(Error { cause: Cause::NoSuchResource, .. }) => return Ok(Vec::new()),
        answer => match or_unknown(answer)? {
            Ok(objects) => objects.items,
            Err(unknown) => return Ok(vec![unknown]),
        },
    };
    let mut findings = Vec::new();
    for object in &objects {
        let monitor = Monitor::of(object)?;
        let namespace = &monitor.metadata.namespace;
        let of = if all_namespaces { format!("{namespace}  ") } else { String::new() };
        let name = format!("{of}ConfigMonitor/{}", monitor.metadata.name);
        let is_read = monitor.is_read();
        match monitor.status.filter(|_| is_read) {
            Some(status) => {
                let what = format!("{name}  {}: {}", reason(&status), message(&status));
                let reason = Reason::from_str(reason(&status)).ok();
                findings.push(match reason {
                    Some(reason) if reason.needs_attention() => Finding::Wrong(what, next_step(reason).to_owned()),
                    Some(reason) if reason.is_delay_by_author() => Finding::Held(what),
                    _ => Finding::Fine(what),
                });
            }
            None => {
                let next = format!("let an operator serve the namespace {namespace:?}");
                findings.push(Finding::Wrong(format!("{name}  no operator has read its newest spec"), next));
            }
        }
    }
    if findings.is_empty() {
        let place =
            if all_namespaces { "a namespace".to_owned() } else { format!("namespace {:?}", ambassador.namespace) };
        findings.push(Finding::Unknown(format!("no ConfigMonitor is in {place}")));
    }
    Ok(findings)
}

/// Returns what to do about a reason that needs attention.
fn next_step(reason: Reason) -> &'static str {
    match reason {
        Reason::NoPodsSelected => "compare spec.podSelector with the labels of the pods",
        Reason::KeyNotFound => "correct the keys in the spec, or the source",
        Reason::SourceNotFound => "create it, or correct its name in the spec",
        Reason::TooManySources => "exclude some, or write several ConfigMonitors",
        Reason::RestartBackOff => {
            "if the application writes the source itself, name the keys that count; else set minIntervalSeconds"
        }
        Reason::ProgressDeadlineExceeded => "look at the pods that the message names: kubectl cmon status",
        Reason::CanaryFailed => "undo the content, or request a restart for all the same: kubectl cmon restart",
        Reason::Forbidden => "grant the operator the right that the message names",
        Reason::InvalidStatus => "remove the status, which makes the content as of now the baseline",
        _ => "correct what the message names",
    }
}
