//! The fields of Kubernetes objects that the operator uses. Decoding skips all others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::labels::OwnerSelector;
use super::{Resource, ResourceVersion, ServerTime, Uid, cut};

/// The maximum length of `trouble`, `crash` and `failure`, in bytes.
pub(crate) const MAX_TROUBLE: usize = 256;

/// The maximum length of the name of an object, in bytes.
pub(crate) const MAX_NAME: usize = 253;

/// `apps/v1` Deployments, the controllers of ReplicaSets.
pub const DEPLOYMENTS: Resource = Resource { api_version: "apps/v1", kind: "Deployment", plural: "deployments" };
/// `apps/v1` ReplicaSets.
pub const REPLICA_SETS: Resource = Resource { api_version: "apps/v1", kind: "ReplicaSet", plural: "replicasets" };
/// `apps/v1` StatefulSets.
pub const STATEFUL_SETS: Resource = Resource { api_version: "apps/v1", kind: "StatefulSet", plural: "statefulsets" };
/// `apps/v1` DaemonSets.
pub const DAEMON_SETS: Resource = Resource { api_version: "apps/v1", kind: "DaemonSet", plural: "daemonsets" };
/// The owners of pods with a number of desired replicas.
const WORKLOADS: [Resource; 4] = [
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    Resource { api_version: "v1", kind: "ReplicationController", plural: "replicationcontrollers" },
];

/// An object with its metadata only.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MetadataOnly {
    /// The metadata.
    pub metadata: Metadata,
}

/// The namespace, name and version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Empty if the object has no namespace.
    #[serde(default)]
    pub(crate) namespace: String,
    /// The name.
    pub name: String,
    /// The version of the object.
    pub resource_version: ResourceVersion,
}

/// A ConfigMap or a Secret with its content.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataObject {
    /// The identity, the version and the writers of the object.
    pub metadata: DataMetadata,
    /// Texts by key. In a Secret, the values are base64.
    #[serde(default)]
    pub data: Option<BTreeMap<String, String>>,
    /// Bytes by key, as base64.
    #[serde(default)]
    pub binary_data: Option<BTreeMap<String, String>>,
    /// The type of a Secret.
    #[serde(default)]
    pub r#type: Option<String>,
}

/// The metadata of an object with content.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataMetadata {
    pub(crate) uid: Uid,
    pub(crate) resource_version: ResourceVersion,
    #[serde(default)]
    managed_fields: Vec<ManagedFields>,
}

#[derive(Deserialize)]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    time: Option<ServerTime>,
}

impl DataObject {
    /// Whether this is a Secret with the token of a ServiceAccount, whose changes only count if somebody names it.
    #[must_use]
    pub fn is_token(&self) -> bool {
        self.r#type.as_deref() == Some("kubernetes.io/service-account-token")
    }
}

impl DataMetadata {
    /// The field manager that last wrote the object, and when, as far as `managedFields` says.
    pub(crate) fn last_writer(&self) -> Option<(&str, ServerTime)> {
        let writers = self.managed_fields.iter().filter_map(|fields| Some((&*fields.manager, fields.time?)));
        writers.max_by_key(|(_, at)| *at)
    }
}

/// The controller of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    pub(crate) api_version: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    pub(crate) uid: Uid,
}

impl Owner {
    /// The resource with the number of desired replicas, if the owner's kind has one.
    pub(crate) fn workload(&self) -> Option<Resource> {
        WORKLOADS.into_iter().find(|resource| self.is_of(*resource))
    }

    pub(crate) fn is_of(&self, resource: Resource) -> bool {
        self.api_version == resource.api_version && self.kind == resource.kind
    }

    /// Returns whether this is the name of a ReplicaSet that a Deployment has created. A hash has no dash.
    pub(crate) fn is_named_after(&self, deployment: &Self) -> bool {
        let hash = self.name.strip_prefix(&*deployment.name).and_then(|rest| rest.strip_prefix('-'));
        hash.is_some_and(|hash| !hash.is_empty() && !hash.contains('-'))
    }
}

/// The identity of a pod.
#[derive(Debug, Deserialize)]
#[serde(from = "PodAnswer")]
pub struct PodIdentity(pub(crate) Uid);

/// The labels of an object as JSON.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Labels(Option<Box<RawValue>>);

impl Labels {
    /// Drops labels of more than this many bytes.
    pub(crate) fn up_to(self, max: usize) -> Self {
        Self(self.0.filter(|labels| labels.get().len() <= max))
    }

    pub(crate) fn to_map(&self) -> BTreeMap<String, String> {
        self.0.as_ref().and_then(|labels| serde_json::from_str(labels.get()).ok()).unwrap_or_default()
    }
}

/// An owner of pods, or the Deployment of one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WorkloadAnswer")]
pub struct Workload {
    pub(crate) uid: Uid,
    /// The owner's own controller, such as the Deployment of a ReplicaSet.
    pub(crate) controller: Option<Arc<Owner>>,
    /// Whether its name is that of its controller and the hash of its template.
    pub(crate) is_named_after_controller: bool,
    /// The number of desired replicas.
    pub replicas: u32,
    /// How long a pod must be ready before it counts as available. A ReplicaSet has that of its Deployment.
    pub(crate) min_ready: Duration,
    pub(crate) selector: Option<OwnerSelector>,
    /// Why the owner cannot create pods, such as a quota. Only a ReplicaSet and a ReplicationController report a
    /// reason.
    pub(crate) failure: Option<String>,
    /// Whether the strategy of a Deployment lets two pods exist where one is desired.
    pub(crate) may_surge: bool,
    /// Whether some pods of a Deployment are of an earlier template.
    pub(crate) is_rolling: bool,
}

/// An object that could not be decoded. The other objects of a list remain usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// The name of the object, if that could be read.
    pub name: Option<String>,
    pub(crate) namespace: Option<String>,
    /// Never quotes a value of the object.
    pub(crate) error: String,
}

/// Decodes one object of a list or a watch.
///
/// # Errors
/// The object's name and namespace, as far as they can be read, and the error.
pub fn decode<'a, T: Deserialize<'a>>(object: &'a RawValue) -> Result<T, Undecodable> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Value,
    }
    serde_json::from_str(object.get()).map_err(|error| {
        let named: Option<Named> = serde_json::from_str(object.get()).ok();
        let text = |field| named.as_ref()?.metadata.get(field)?.as_str().map(str::to_owned);
        Undecodable { name: text("name"), namespace: text("namespace"), error: position(&error) }
    })
}

/// Where decoding failed. serde's own message may quote a value, which may be secret.
pub(crate) fn position(error: &serde_json::Error) -> String {
    let what = if error.is_data() { "unexpected shape" } else { "not JSON" };
    format!("{what} at line {} column {}", error.line(), error.column())
}

/// A pod as the API server returns it, with the annotations that `A` names, and the spec as `S`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodAnswer<A: Default = IgnoredAny, S: Default = IgnoredAny> {
    pub(crate) metadata: PodMetadata<A>,
    #[serde(default)]
    pub(crate) spec: S,
    #[serde(default)]
    pub(crate) status: PodStatus,
}

/// The parts of the spec of a pod that matter for each pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    restart_policy: String,
}

impl PodSpec {
    /// Whether the pod ends by itself, with a result.
    pub(crate) fn completes(&self) -> bool {
        matches!(&*self.restart_policy, "OnFailure" | "Never")
    }
}

/// The spec of a pod, or what is kept of it.
pub(crate) trait HasPodSpec: Default {
    fn pod_spec(&self) -> Cow<'_, PodSpec>;
}

impl HasPodSpec for PodSpec {
    fn pod_spec(&self) -> Cow<'_, PodSpec> {
        Cow::Borrowed(self)
    }
}

impl HasPodSpec for Option<Box<RawValue>> {
    fn pod_spec(&self) -> Cow<'_, PodSpec> {
        Cow::Owned(self.as_ref().and_then(|spec| serde_json::from_str(spec.get()).ok()).unwrap_or_default())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodMetadata<A: Default> {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) resource_version: ResourceVersion,
    pub(crate) creation_timestamp: ServerTime,
    pub(crate) deletion_timestamp: Option<ServerTime>,
    #[serde(default)]
    pub(crate) labels: Labels,
    #[serde(default)]
    pub(crate) annotations: A,
    #[serde(rename = "ownerReferences", default, deserialize_with = "controller")]
    pub(crate) controller: Option<Arc<Owner>>,
}

#[derive(Deserialize)]
struct OwnerReference {
    #[serde(flatten)]
    owner: Owner,
    #[serde(default)]
    controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) conditions: Vec<PodCondition>,
    pub(crate) container_statuses: Vec<ContainerStatus>,
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) ready: bool,
    pub(crate) restart_count: u32,
    pub(crate) state: ContainerState,
    pub(crate) last_state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<Waiting>,
    pub(crate) running: Option<Running>,
    pub(crate) terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Terminated {
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Running {
    pub(crate) started_at: Option<ServerTime>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodCondition {
    pub(crate) r#type: String,
    pub(crate) status: String,
    pub(crate) last_transition_time: Option<ServerTime>,
    pub(crate) reason: String,
    pub(crate) message: String,
}

#[derive(Deserialize)]
struct WorkloadAnswer {
    metadata: WorkloadMetadata,
    spec: WorkloadSpec,
    #[serde(default)]
    status: WorkloadStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadMetadata {
    #[serde(default)]
    name: String,
    uid: Uid,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    labels: Value,
    #[serde(rename = "ownerReferences", default, deserialize_with = "controller")]
    controller: Option<Arc<Owner>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadSpec {
    replicas: Option<u32>,
    #[serde(default)]
    min_ready_seconds: u32,
    selector: Option<OwnerSelector>,
    #[serde(default)]
    strategy: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadStatus {
    observed_generation: i64,
    replicas: u32,
    updated_replicas: u32,
    desired_number_scheduled: Option<u32>,
    conditions: Vec<PodCondition>,
}

impl From<PodAnswer> for PodIdentity {
    fn from(PodAnswer { metadata, .. }: PodAnswer) -> Self {
        Self(metadata.uid)
    }
}

pub(crate) fn condition<'a>(conditions: &'a [PodCondition], r#type: &str, status: &str) -> Option<&'a PodCondition> {
    conditions.iter().find(|condition| condition.r#type == r#type && condition.status == status)
}

fn controller<'de, D: Deserializer<'de>>(owners: D) -> Result<Option<Arc<Owner>>, D::Error> {
    let owners: Vec<OwnerReference> = Deserialize::deserialize(owners)?;
    let controller = owners.into_iter().find(|owner| owner.controller);
    Ok(controller.map(|controller| Arc::new(controller.owner.bounded())))
}

impl Owner {
    /// The API server takes any length here, and no object has a longer name.
    pub(crate) fn bounded(self) -> Self {
        let Self { mut api_version, mut kind, mut name, uid } = self;
        for text in [&mut api_version, &mut kind, &mut name] {
            text.truncate(text.floor_char_boundary(MAX_NAME));
        }
        Self { api_version, kind, name, uid: cut(uid.as_str(), MAX_NAME).into() }
    }
}

impl PodStatus {
    /// Whether the pod has succeeded or failed.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Since when a pod that was `created` then is ready, on the clock of its node. None if the pod is not ready.
    pub(crate) fn ready_since(&self, created: ServerTime) -> Option<ServerTime> {
        condition(&self.conditions, "Ready", "True").map(|ready| ready.last_transition_time.unwrap_or(created))
    }

    /// Whether all containers are ready. A pod may not be although they are: its node is cut off, or it has readiness
    /// gates.
    pub(crate) fn are_containers_ready(&self) -> bool {
        match self.conditions.iter().find(|condition| condition.r#type == "ContainersReady") {
            Some(condition) => condition.status == "True",
            None => !self.container_statuses.is_empty() && self.container_statuses.iter().all(|status| status.ready),
        }
    }

    /// Whether somebody ends the pod for a reason that is not its own: an eviction by the API, a preemption, or its node
    /// shuts down. A kubelet that lacks a resource says the same, and nothing if a pod exceeds a limit of its own.
    pub(crate) fn is_disrupted(&self) -> bool {
        condition(&self.conditions, "DisruptionTarget", "True").is_some()
            || matches!(&*self.reason, "Terminated" | "NodeShutdown" | "Preempting")
    }

    /// Whether nobody knows how a container ended: its node has restarted.
    pub(crate) fn is_lost(&self) -> bool {
        self.container_statuses.iter().any(ContainerStatus::is_lost)
    }

    /// The time since which all containers and the started sidecars run, on the clock of the node. None if a container
    /// does not run.
    pub(crate) fn started(&self) -> Option<ServerTime> {
        let sidecars = self.init_container_statuses.iter().filter(|status| status.state.running.is_some());
        let of = |status: &ContainerStatus| status.state.running.as_ref()?.started_at;
        let last = self.container_statuses.iter().map(of).reduce(|last, next| Some(last?.max(next?)))??;
        sidecars.map(of).try_fold(last, |last, next| Some(last.max(next?)))
    }
}

impl ContainerStatus {
    /// Whether nobody knows how the container ended: its node has restarted.
    pub(crate) fn is_lost(&self) -> bool {
        first_end([&self.last_state, &self.state])
            .is_some_and(|end| matches!(&*end.reason, "Unknown" | "ContainerStatusUnknown"))
    }
}

/// How the container ended in the first of these states that says so.
pub(crate) fn first_end(states: [&ContainerState; 2]) -> Option<&Terminated> {
    states.into_iter().find_map(|state| state.terminated.as_ref())
}

impl From<WorkloadAnswer> for Workload {
    /// Reads the desired replicas from the status of a DaemonSet and from the spec of other owners (default: 1).
    fn from(WorkloadAnswer { metadata, spec, status }: WorkloadAnswer) -> Self {
        let failure = condition(&status.conditions, "ReplicaFailure", "True");
        // The text before it names a pod that was never created, and another one at each attempt.
        let text =
            failure.map(|failure| failure.message.split_once(" is forbidden: ").map_or(&*failure.message, |it| it.1));
        let controller = metadata.controller;
        let hash = metadata.labels["pod-template-hash"].as_str();
        let is_named_after_controller = controller.as_ref().zip(hash).is_some_and(|(owner, hash)| {
            metadata.name.strip_prefix(&*owner.name).is_some_and(|rest| rest.strip_prefix('-') == Some(hash))
        });
        let surge = &spec.strategy["rollingUpdate"]["maxSurge"];
        // Fewer than desired are no sign of it: the status lags behind a pod that has another controller now.
        let has_former = status.replicas > status.updated_replicas;
        Self {
            uid: metadata.uid,
            controller,
            is_named_after_controller,
            replicas: status.desired_number_scheduled.or(spec.replicas).unwrap_or(1),
            min_ready: Duration::from_secs(spec.min_ready_seconds.into()),
            selector: spec.selector,
            failure: text.map(|text| cut(text, MAX_TROUBLE).to_owned()),
            may_surge: spec.strategy["type"] != "Recreate" && *surge != 0 && *surge != "0%",
            is_rolling: status.observed_generation < metadata.generation || has_former,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("JSON")
    }

    fn status(text: &str) -> PodStatus {
        serde_json::from_str(text).expect("a status")
    }

    #[test]
    fn an_owner_takes_little_memory_whatever_a_pod_says() {
        let text = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7","creationTimestamp":"2026-11-21T10:00:00Z",
            "ownerReferences":[{"apiVersion":"LONG","kind":"LONG","name":"LONG","uid":"LONG","controller":true}]}}"#;
        let pod: PodAnswer = decode(&raw(&text.replace("LONG", &"é".repeat(MAX_NAME)))).expect("a pod");
        let owner = pod.metadata.controller.expect("an owner");
        let lengths = [owner.api_version.len(), owner.kind.len(), owner.name.len(), owner.uid.as_str().len()];
        assert_eq!(lengths, [MAX_NAME - 1; 4]);
    }

    #[test]
    fn a_pod_has_started_when_the_last_of_its_containers_runs() {
        let started =
            |states: &str| status(&format!(r#"{{"containerStatuses":[{states}]}}"#)).started().map(|at| at.to_string());
        let running = |at: &str| format!(r#"{{"state":{{"running":{{"startedAt":"2026-11-21T10:00:{at}Z"}}}}}}"#);
        let both = [running("09"), running("05")].join(",");
        assert_eq!(started(&both).as_deref(), Some("2026-11-21T10:00:09Z"));
        assert_eq!(started(""), None);
        for other in [r#"{"state":{"waiting":{}}}"#, r#"{"state":{"running":{}}}"#, "{}"] {
            assert_eq!(started(&format!("{both},{other}")), None, "{other}");
        }
        let sidecar =
            format!(r#"{}],"initContainerStatuses":[{{"state":{{"terminated":{{}}}}}},{}"#, both, running("11"));
        assert_eq!(started(&sidecar).as_deref(), Some("2026-11-21T10:00:11Z"));
    }

    #[test]
    fn a_pod_with_another_restart_policy_than_always_runs_to_completion() {
        let of = |spec: &str| serde_json::from_str::<PodSpec>(spec).expect("a spec").completes();
        let policies =
            ["{}", r#"{"restartPolicy":"Always"}"#, r#"{"restartPolicy":"OnFailure"}"#, r#"{"restartPolicy":"Never"}"#];
        assert_eq!(policies.map(of), [false, false, true, true]);
    }

    #[test]
    fn an_owner_says_why_it_cannot_create_pods_and_not_which_pod_it_tried() {
        let failure = |conditions: &str| {
            let text = format!(
                r#"{{"metadata":{{"uid":"u","resourceVersion":"7"}},"spec":{{}},"status":{{"conditions":[{conditions}]}}}}"#
            );
            decode::<Workload>(&raw(&text)).expect("a workload").failure
        };
        let quota = r#"{"type":"ReplicaFailure","status":"True","reason":"FailedCreate",
            "message":"pods \"web-x\" is forbidden: exceeded quota: few, used: pods=3"}"#;
        assert_eq!(failure(quota).as_deref(), Some("exceeded quota: few, used: pods=3"));
        assert_eq!(
            failure(&quota.replace(" is forbidden:", "")).as_deref(),
            Some(r#"pods "web-x" exceeded quota: few, used: pods=3"#)
        );
        assert_eq!([failure(&quota.replace("True", "False")), failure("")], [None, None]);
    }

    #[test]
    fn an_undecodable_object_is_named_and_its_values_are_not_quoted() {
        let text = r#"{"metadata":{"name":"odd","uid":"u","resourceVersion":"7","creationTimestamp":"hunter2"}}"#;
        let undecodable = decode::<PodIdentity>(&raw(text)).expect_err("no time");
        assert_eq!(undecodable.name.as_deref(), Some("odd"));
        assert!(undecodable.error.starts_with("unexpected shape at line 1 column "), "{}", undecodable.error);
        assert!(!undecodable.error.contains("hunter2"), "{}", undecodable.error);
    }

    #[test]
    fn a_deployment_is_rolling_out_while_it_has_pods_of_an_earlier_template() {
        let is_rolling = |generation: i64, replicas: usize, updated: usize| {
            let metadata = json!({ "name": "web", "uid": "u", "generation": generation });
            let status = json!({ "observedGeneration": 1, "replicas": replicas, "updatedReplicas": updated });
            let deployment = json!({ "metadata": metadata, "spec": { "replicas": 3 }, "status": status });
            serde_json::from_value::<Workload>(deployment).unwrap().is_rolling
        };
        assert!(!is_rolling(1, 3, 3));
        assert!(!is_rolling(1, 2, 2), "a successor is missing");
        assert!(is_rolling(1, 3, 0) && is_rolling(1, 4, 3));
        assert!(is_rolling(2, 3, 3), "its controller has not seen the template");
    }

    #[test]
    fn desired_replicas_are_in_the_status_of_a_daemon_set_and_in_the_spec_of_others() {
        let read = |text: &str| decode::<Workload>(&raw(text)).expect("a workload").replicas;
        assert_eq!(
            read(r#"{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{},"status":{"desiredNumberScheduled":4}}"#),
            4
        );
        assert_eq!(
            read(r#"{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{"replicas":0},"status":{"replicas":2}}"#),
            0
        );
        assert_eq!(read(r#"{"metadata":{"uid":"u","resourceVersion":"7"},"spec":{}}"#), 1);
    }

    #[test]
    fn an_owner_has_a_selector_of_labels_or_of_terms() {
        let read = |selector: &str| {
            let text =
                format!(r#"{{"metadata":{{"uid":"u","resourceVersion":"7"}},"spec":{{"selector":{selector}}}}}"#);
            decode::<Workload>(&raw(&text)).expect("a workload").selector.and_then(|selector| selector.to_query())
        };
        assert_eq!(read(r#"{"app":"web","tier":"x"}"#).as_deref(), Some("app=web,tier=x"));
        let terms =
            r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"a","operator":"In","values":["b","c"]}]}"#;
        assert_eq!(read(terms).as_deref(), Some("app=web,a in (b,c)"));
        for empty in ["{}", r#"{"matchLabels":{}}"#, "null"] {
            assert_eq!(read(empty), None, "{empty}");
        }
    }
}
