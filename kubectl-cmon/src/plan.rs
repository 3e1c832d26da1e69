//! `plan`: which pods the operator would restart, and what it would wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use configmonitor_operator::kube::transport::Transport;
use configmonitor_operator::monitor::REQUEST;
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::status::Status;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use reqwest::Url;
use serde_json::{Value, json};

use crate::ambassador::Ambassador;
use crate::conditions::{message, reason};
use crate::manifests::{self, Edit};
use crate::monitors::{Monitor, name_of};
use crate::options::{Access, Format, Plan};
use crate::outcome::Failure;
use crate::shadow::{Premise, play};
use crate::status::purpose;
use crate::text::{Node, count, pretty_json, print};

/// ConfigMonitors that are played at a time.
const AT_ONCE: usize = 8;
/// The exit code if there are pods to restart.
const SOME: u8 = 6;

/// What would become of a ConfigMonitor.
pub struct Outlook {
    name: String,
    /// The status that would be written first.
    pub(crate) status: Status,
    /// The pods that go first once the restart may begin.
    pub first: Vec<String>,
    /// The others.
    pub later: Vec<String>,
    /// Whether the restart may not begin yet.
    is_held: bool,
    /// What its Events would say, such as which pods are skipped.
    notes: Vec<String>,
    /// Whether pods are handed over, which not every operator may do.
    is_surge: bool,
    is_new: bool,
    /// Why the operator may do otherwise, by the status.
    obstacle: Option<String>,
    /// A restart that is requested waits for the one before it, or for a source.
    is_queued: bool,
}

/// What would become of the ConfigMonitors of a namespace, and the workloads that roll out by themselves.
struct Prospect {
    namespace: Arc<str>,
    outlooks: Vec<Outlook>,
    rollouts: Vec<String>,
}

pub(crate) async fn run(access: &Access, ambassador: &Ambassador, plan: &Plan) -> Result<ExitCode, Failure> {
    let mut edits: BTreeMap<Arc<str>, Vec<Edit>> = BTreeMap::new();
    if let Some(file) = &plan.filename {
        edits = manifests::dry_run(access, file).await?;
    }
    if plan.filename.is_none() || !plan.delete.is_empty() || plan.name.is_some() {
        let deleted = plan.delete.iter().cloned().map(Edit::delete);
        edits.entry(Arc::clone(&ambassador.namespace)).or_default().extend(deleted);
    }
    let (several, mut prospects) = (edits.len() > 1, Vec::new());
    for (namespace, edits) in edits {
        prospects.push(prospect(ambassador, plan, namespace, edits).await?);
    }
    let outlooks = || prospects.iter().flat_map(|prospect| &prospect.outlooks);
    let pods: usize = outlooks().map(|outlook| outlook.first.len() + outlook.later.len()).sum();
    match plan.output {
        Some(Format::Json) => {
            let of = |Prospect { namespace, outlooks, .. }: &Prospect| {
                outlooks.iter().map(|outlook| object(namespace, outlook)).collect::<Vec<_>>()
            };
            let monitors: Vec<Value> = prospects.iter().flat_map(of).collect();
            let rollouts: Vec<&String> = prospects.iter().flat_map(|prospect| &prospect.rollouts).collect();
            print(pretty_json(&json!({"configMonitors": monitors, "rollouts": rollouts})))?;
        }
        None => {
            for Prospect { namespace, outlooks, rollouts } in &prospects {
                let rollouts = rollouts
                    .iter()
                    .map(|workload| Node::leaf(format!("{workload}  its own rollout replaces its pods")));
                let nodes: Vec<Node> = outlooks.iter().map(node).chain(rollouts).collect();
                match several {
                    true => print(Node::with(format!("Namespace/{namespace}"), nodes))?,
                    false => print(nodes.iter().map(ToString::to_string).collect::<String>())?,
                }
            }
            print(if pods == 0 {
                "no pod is restarted\n".to_owned()
            } else {
                format!("to restart: {}\n", count(pods, "pod"))
            })?;
        }
    }
    // Whatever stands in the way of one that exists already is no news.
    if let Some(wrong) = outlooks().find(|outlook| outlook.is_new && outlook.is_wrong()) {
        return Err(Failure::Stalled(format!("ConfigMonitor {:?}: {}", wrong.name, message(&wrong.status))));
    }
    Ok(if pods == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME) })
}

async fn prospect(
    ambassador: &Ambassador,
    plan: &Plan,
    namespace: Arc<str>,
    edits: Vec<Edit>,
) -> Result<Prospect, Failure> {
    let client = ambassador.client.within(&namespace);
    let is_about_all = plan.filename.is_none() && plan.delete.is_empty();
    let listed = Monitor::objects(&client).await?;
    let now = plan.at.unwrap_or(listed.at);
    let mut monitors: BTreeMap<String, (Value, bool)> = BTreeMap::new();
    let (mut obstacles, mut unknown) = (BTreeMap::new(), plan.delete.clone());
    for object in listed.items {
        // What is planned for a file or a deletion is what comes of that.
        let monitor = Monitor::of(&object)?;
        unknown.retain(|deleted| !monitor.has(deleted));
        if is_about_all || plan.name.is_some() || edits.iter().any(|edit| edit.concerns(&monitor)) {
            obstacles.extend(obstacle(&object, &monitor).map(|obstacle| (name_of(&object), obstacle)));
            monitors.insert(name_of(&object), (object, false));
        }
    }
    if let Some(deleted) = unknown.first().filter(|_| namespace == ambassador.namespace) {
        return Err(Failure::Failed(format!("no ConfigMonitor with the source {deleted} in namespace {namespace:?}")));
    }
    let mut rollouts = Vec::new();
    for edit in &edits {
        match edit {
            Edit::Monitor(monitor) => {
                let name = name_of(monitor);
                obstacles.remove(&name);
                let known = monitors.get(&name).map(|(known, _)| known);
                let (is_new, status) = (known.is_none(), known.map(|known| known["status"].clone()));
                let mut edited = monitor.clone();
                edited["status"] = status.unwrap_or_default();
                // A dry run gives what it creates none.
                edited["metadata"]["resourceVersion"] = "plan".into();
                monitors.insert(name, (edited, is_new));
            }
            Edit::Template(workload) => rollouts.push(workload.clone()),
            Edit::Source { .. } | Edit::Other => {}
        }
    }
    if let Some(name) = plan.name.as_ref().filter(|_| namespace == ambassador.namespace) {
        monitors.retain(|known, _| known == name);
        if monitors.is_empty() {
            return Err(Failure::Failed(format!("no ConfigMonitor {name:?} in namespace {namespace:?}")));
        }
    }
    let objects: BTreeMap<String, Option<Value>> = edits.iter().filter_map(|edit| edit.object(&namespace)).collect();
    let own_pod = ambassador.operator(&namespace).await?;
    let plays = monitors.into_iter().map(|(name, (mut monitor, is_new))| {
        if plan.resume {
            remove(&mut monitor["spec"], &["suspend"]);
        }
        if plan.restart {
            monitor["metadata"]["annotations"][REQUEST] = Timestamp::now().to_string().into();
        }
        let (namespace, objects, own_pod) = (Arc::clone(&namespace), objects.clone(), own_pod.clone());
        look_ahead(ambassador.way(), name, Premise { namespace, monitor, objects, own_pod, now }, is_new)
    });
    let mut outlooks: Vec<Outlook> = stream::iter(plays).buffered(AT_ONCE).try_collect().await?;
    outlooks.iter_mut().for_each(|outlook| outlook.obstacle = obstacles.remove(&outlook.name));
    Ok(Prospect { namespace, outlooks, rollouts })
}

/// Lets the operator act as things are; if it waits, without what it waits for; and without a budget, which shows all
/// pods.
///
/// # Errors
/// The API server cannot be read.
pub async fn look_ahead(
    (transport, base): (&Arc<dyn Transport>, &Url),
    name: String,
    premise: Premise,
    is_new: bool,
) -> Result<Outlook, Failure> {
    let play = async |premise: &Premise| play(Arc::clone(transport), base.clone(), premise.clone()).await;
    let now = play(&premise).await?;
    let status: Status = serde_json::from_value(now.monitor["status"].clone()).unwrap_or_default();
    let mut outlook = Outlook {
        name,
        first: now.pods.clone(),
        later: Vec::new(),
        is_held: false,
        notes: now.notes,
        is_surge: !premise.monitor["spec"]["maxSurge"].is_null(),
        is_queued: asks(&now.monitor),
        status,
        is_new,
        obstacle: None,
    };
    let is_pending = outlook.status.restart.is_some() || !now.pods.is_empty() || asks(&premise.monitor);
    if is_new || !is_pending {
        return Ok(outlook);
    }
    let free = without_gates(&premise);
    if now.pods.is_empty() {
        let pods = play(&free).await?.pods;
        let has_begun = outlook.status.restart.as_ref().is_some_and(|restart| restart.begun.is_some());
        (outlook.first, outlook.is_held) = (pods, !has_begun);
    }
    let all = play(&without_budget(free)).await?;
    let first: BTreeSet<&String> = outlook.first.iter().collect();
    outlook.notes = all.notes;
    outlook.later = all.pods.into_iter().filter(|pod| !first.contains(pod)).collect();
    Ok(outlook)
}

impl Outlook {
    /// Returns whether a person must do something.
    fn is_wrong(&self) -> bool {
        Reason::from_str(reason(&self.status)).is_ok_and(Reason::needs_attention)
    }
}

/// Returns whether a restart is requested that is not under way.
fn asks(monitor: &Value) -> bool {
    let (asked, status) = (&monitor["metadata"]["annotations"][REQUEST], &monitor["status"]);
    let known = [&status["lastHandledRestartRequest"], &status["restart"]["request"]["value"]];
    asked.is_string() && !known.contains(&asked)
}

/// Returns why the operator may do otherwise, by the status.
fn obstacle(object: &Value, monitor: &Monitor) -> Option<String> {
    if object["status"].is_null() {
        return Some("no operator has read it yet".to_owned());
    }
    let status = monitor.status.as_ref().filter(|status| reason(status) == <&str>::from(Reason::Forbidden));
    status.map(|status| format!("the operator reports Forbidden: {}", message(status)))
}

/// As if every window were open, and every wait over.
fn without_gates(premise: &Premise) -> Premise {
    let mut free = premise.clone();
    let spec = &mut free.monitor["spec"];
    remove(spec, &["suspend", "windows", "minIntervalSeconds"]);
    spec["quietPeriodSeconds"] = json!(0);
    let sources = free.monitor.pointer_mut("/status/sources").and_then(Value::as_array_mut);
    sources.into_iter().flatten().for_each(|source| remove(source, &["restarts"]));
    free
}

fn without_budget(premise: Premise) -> Premise {
    let mut all = premise;
    let spec = &mut all.monitor["spec"];
    remove(spec, &["maxUnavailableTotal", "maxSurge", "restartLast", "canary"]);
    spec["maxUnavailable"] = json!("100%");
    all
}

fn remove(object: &mut Value, fields: &[&str]) {
    object.as_object_mut().into_iter().for_each(|object| object.retain(|field, _| !fields.contains(&&**field)));
}

fn object(namespace: &str, outlook: &Outlook) -> Value {
    let Outlook { name, status, first, later, is_held, notes, is_new, obstacle, is_queued, .. } = outlook;
    json!({
        "namespace": namespace,
        "name": name,
        "reason": reason(status),
        "message": message(status),
        "held": is_held,
        "new": is_new,
        "obstacle": obstacle,
        "queued": is_queued,
        "first": first,
        "later": later,
        "events": notes,
    })
}

fn node(outlook: &Outlook) -> Node {
    let Outlook { name, status, first, later, notes, is_held, is_surge, is_new, obstacle, is_queued } = outlook;
    let number = first.len() + later.len();
    let of = status.restart.iter().map(|restart| format!(" for {}", purpose(status, restart))).collect::<String>();
    let line = match number {
        0 if *is_new && outlook.is_wrong() => format!("new: {}", reason(status)),
        0 if *is_new => "new: its first content is the baseline, and restarts nothing".to_owned(),
        0 if *is_queued => format!("{}: a restart is requested, and waits", reason(status)),
        0 => format!("{}: nothing to restart", reason(status)),
        _ => format!("restarts {}{of}", count(number, "pod")),
    };
    let said = Some(message(status)).filter(|said| (number == 0 || *is_held || first.is_empty()) && !said.is_empty());
    let mut parts: Vec<Node> = obstacle.iter().cloned().chain(said).map(Node::leaf).collect();
    let pods = |title: &str, names: &[String]| {
        let names = names.iter().cloned().map(Node::leaf);
        Some(Node::with(title.to_owned(), names)).filter(Node::has_parts)
    };
    parts.extend(pods(if later.is_empty() { "all at once" } else { "first" }, first));
    parts.extend(pods("then, if each successor becomes available", later));
    if number > 0 && *is_surge {
        parts.push(Node::leaf("maxSurge: each serves on as a pod of its Deployment until it has a successor, if the operator may hand pods over".to_owned()));
    }
    parts.extend(notes.iter().cloned().map(Node::leaf));
    Node::with(format!("ConfigMonitor/{name}  {line}"), parts)
}
