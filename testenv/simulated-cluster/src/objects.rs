//! The objects of the cluster as JSON, with the fields that a client may read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use configmonitor_operator::kube::ServerTime;
use rules::Moment;
use serde_json::to_string;

use crate::NAMESPACE;
use crate::content::{CONFIG_MAPS, Stored, data, metadata, written};
use crate::state::{DEPLOYMENT, Deployment, DeploymentStatus, Monitor, OWNER, OwnerKind, Pod, REPLICA_SETS, Workload};
use crate::store::{Labels, Object};

/// The annotations of a pod that is handed over.
pub(crate) const HANDED_OVER_FROM: &str = "magalix.com/handed-over-from";
pub(crate) const HANDED_OVER_BY: &str = "magalix.com/handed-over-by";

/// The annotation of a ConfigMonitor that requests a restart.
const REQUEST: &str = "magalix.com/restart-requested-at";

fn no_labels() -> Labels {
    Arc::new(BTreeMap::new())
}

pub(crate) fn config_map(name: &str, stored: Stored) -> Object {
    let metadata = metadata(name, stored.version, stored.uid);
    let rest = format!(r#","data":{},"immutable":{}"#, to_string(&data(stored.content)).unwrap(), stored.immutable);
    Object { name: name.into(), id: 0, labels: no_labels(), metadata, rest }
}

/// The namespace with the objects.
pub(crate) fn namespace(version: u64, labels: Labels) -> Object {
    let json = to_string(&*labels).unwrap();
    let metadata =
        format!(r#"{{"name":"{NAMESPACE}","uid":"uid-{NAMESPACE}","resourceVersion":"{version}","labels":{json}}}"#);
    Object { name: NAMESPACE.into(), id: 0, labels, metadata, rest: String::new() }
}

pub(crate) fn monitor_metadata(monitor: &Monitor) -> String {
    let Monitor { name, uid, version, generation, request, .. } = monitor;
    let annotations = request.map_or(String::new(), |value| format!(r#","annotations":{{"{REQUEST}":"{value}"}}"#));
    format!(
        r#"{{"name":"{name}","namespace":"{NAMESPACE}","uid":"{uid}","resourceVersion":"{version}","generation":{generation}{annotations}}}"#
    )
}

pub(crate) fn monitor(id: usize, monitor: &Monitor) -> Object {
    let Monitor { name, spec, raw_status, .. } = monitor;
    let metadata = monitor_metadata(monitor);
    let status = if raw_status == "{}" { String::new() } else { format!(r#","status":{raw_status}"#) };
    let rest = format!(r#","spec":{}{status}"#, written(spec));
    Object { name: Arc::clone(name), id, labels: no_labels(), metadata, rest }
}

fn controlled_by(api_version: &str, kind: &str, name: &str, uid: &str) -> String {
    format!(
        r#","ownerReferences":[{{"apiVersion":"{api_version}","kind":"{kind}","name":"{name}","uid":"{uid}","controller":true}}]"#
    )
}

pub(crate) fn pod_metadata(pod: &Pod) -> String {
    let Pod { uid, name, created, labels, controller, mirror, gone_by, version, handed_over, .. } = pod;
    let mut text = format!(
        r#"{{"name":"{name}","namespace":"{NAMESPACE}","uid":"{uid}","resourceVersion":"{version}","creationTimestamp":"{created}","labels":{}"#,
        to_string(&**labels).unwrap()
    );
    if let Some(gone_by) = gone_by {
        write!(text, r#","deletionTimestamp":"{gone_by}","deletionGracePeriodSeconds":30"#).unwrap();
    }
    if *mirror {
        text += r#","annotations":{"kubernetes.io/config.mirror":"x"}"#;
    }
    if let Some([from, by]) = handed_over {
        write!(text, r#","annotations":{{"{HANDED_OVER_FROM}":"{from}","{HANDED_OVER_BY}":"{by}"}}"#).unwrap();
    }
    if let Some(owner) = controller {
        let (api_version, kind, name) = (owner.kind.api_version(), owner.kind, owner.name);
        let uid = if kind == OwnerKind::Deployment { uid_of_deployment() } else { format!("uid-{name}") };
        text += &controlled_by(api_version, &format!("{kind:?}"), name, &uid);
    }
    text + "}"
}

/// The spec of a pod that refers to the first ConfigMap by a volume and to the second by the environment.
fn spec(pod: &Pod, is_secret: bool, optional: bool) -> String {
    let [first, second] = pod.refers;
    let restarts = if pod.completes { "Never" } else { "Always" };
    let [volume, variables] = CONFIG_MAPS.map(|name| format!(r#""name":"{name}","optional":{optional}"#));
    let volume = if first { format!(r#"{{"name":"v","configMap":{{{volume}}}}}"#) } else { String::new() };
    let of = if is_secret { "secret" } else { "configMap" };
    let variables = if second { format!(r#"{{"{of}Ref":{{{variables}}}}}"#) } else { String::new() };
    let containers = format!(r#"[{{"name":"app","envFrom":[{variables}]}}]"#);
    format!(r#"{{"restartPolicy":"{restarts}","volumes":[{volume}],"containers":{containers}}}"#)
}

/// `by_node` tells the time of a node.
pub(crate) fn pod(pod: &Pod, is_secret: bool, optional: bool, by_node: impl Fn(Moment) -> ServerTime) -> Object {
    let phase = match (pod.finished, pod.failed) {
        (false, _) => r#""Running""#.to_owned(),
        (true, None) => r#""Succeeded""#.to_owned(),
        (true, Some("")) => r#""Failed""#.to_owned(),
        (true, Some(reason)) => format!(r#""Failed","reason":"{reason}","message":"The node lacks a resource. ""#),
    };
    let containers = if pod.is_cut_off { "True" } else { "False" };
    let conditions = pod.ready.map_or_else(
        || format!(r#"{{"type":"Ready","status":"False"}},{{"type":"ContainersReady","status":"{containers}"}}"#),
        |at| format!(r#"{{"type":"Ready","status":"True","lastTransitionTime":"{}"}}"#, by_node(at)),
    );
    let state = pod.started.map_or_else(
        || r#""waiting":{"reason":"ContainerCreating"}"#.to_owned(),
        |at| match pod.failed {
            Some(_) => format!(r#""terminated":{{"exitCode":137,"reason":"Error","startedAt":"{at}"}}"#),
            None => format!(r#""running":{{"startedAt":"{at}"}}"#),
        },
    );
    let restarts = match pod.restarts {
        0 => String::new(),
        restarts => format!(
            r#","name":"app","restartCount":{restarts},"lastState":{{"terminated":{{"exitCode":1,"reason":"Error","message":"its last words"}}}}"#
        ),
    };
    // A rejected pod has no containers.
    let containers = match pod.failed.filter(|_| pod.started.is_none()) {
        Some(_) => String::new(),
        None => format!(r#"{{"state":{{{state}}}{restarts}}}"#),
    };
    let rest = format!(
        r#","spec":{},"status":{{"phase":{phase},"conditions":[{conditions}],"containerStatuses":[{containers}]}}"#,
        spec(pod, is_secret, optional)
    );
    Object {
        name: Arc::clone(&pod.name),
        id: pod.id,
        labels: Arc::clone(&pod.labels),
        metadata: pod_metadata(pod),
        rest,
    }
}

pub(crate) fn uid_of_deployment() -> String {
    format!("uid-deployment-{DEPLOYMENT}")
}

pub(crate) fn deployment(deployment: &Deployment, status: DeploymentStatus, min_ready: u32) -> String {
    let Deployment { generation, replicas, may_surge, .. } = deployment;
    let DeploymentStatus { generation: observed, all, updated } = status;
    let (surge, uid) = (usize::from(*may_surge), uid_of_deployment());
    let names = REPLICA_SETS.map(|(name, _)| format!("{name:?}")).join(",");
    let selector = format!(r#"{{"matchExpressions":[{{"key":"{OWNER}","operator":"In","values":[{names}]}}]}}"#);
    let strategy = format!(r#"{{"type":"RollingUpdate","rollingUpdate":{{"maxSurge":{surge},"maxUnavailable":1}}}}"#);
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{DEPLOYMENT}","namespace":"{NAMESPACE}","uid":"{uid}","resourceVersion":"1","generation":{generation}}},"spec":{{"replicas":{replicas},"minReadySeconds":{min_ready},"selector":{selector},"strategy":{strategy}}},"status":{{"observedGeneration":{observed},"replicas":{all},"updatedReplicas":{updated}}}}}"#
    )
}

/// Returns a workload with these numbers of existing and available pods, and this `minReadySeconds`.
pub(crate) fn workload(workload: &Workload, present: usize, available: usize, min_ready: u32) -> String {
    let Workload { owner, deployment, labels, replicas, .. } = workload;
    let controller =
        deployment.map_or(String::new(), |name| controlled_by("apps/v1", "Deployment", name, &uid_of_deployment()));
    let hash = REPLICA_SETS.iter().find(|(set, _)| *set == owner.name);
    let hash = hash.map_or(String::new(), |(_, hash)| format!(r#","labels":{{"pod-template-hash":"{hash}"}}"#));
    let (kind, name, api_version) = (owner.kind, owner.name, owner.kind.api_version());
    let labels = to_string(&**labels).unwrap();
    let its = format!(r#"{{"{OWNER}":"{name}"}}"#);
    let selector = match kind {
        OwnerKind::ReplicationController => its,
        _ => format!(r#"{{"matchLabels":{its}}}"#),
    };
    let (desired, status) = match kind {
        OwnerKind::DaemonSet => (
            String::new(),
            format!(
                r#""desiredNumberScheduled":{replicas},"currentNumberScheduled":{present},"numberReady":{available},"numberAvailable":{available}"#
            ),
        ),
        _ => (
            format!(r#""replicas":{replicas},"#),
            format!(r#""replicas":{present},"readyReplicas":{available},"availableReplicas":{available}"#),
        ),
    };
    format!(
        r#"{{"apiVersion":"{api_version}","kind":"{kind:?}","metadata":{{"name":"{name}","namespace":"{NAMESPACE}","uid":"uid-{name}","resourceVersion":"1","generation":1{hash}{controller}}},"spec":{{{desired}"minReadySeconds":{min_ready},"selector":{selector},"template":{{"metadata":{{"labels":{labels}}}}}}},"status":{{"observedGeneration":1,{status}}}}}"#
    )
}
