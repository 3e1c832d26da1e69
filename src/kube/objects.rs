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
const MAX_TROUBLE: usize = 256;

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
    /// Whether the object is immutable. Kubelets do not watch immutable objects.
    #[serde(default)]
    pub immutable: bool,
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

/// An owner of pods.
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
}

/// A Deployment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "DeploymentAnswer")]
pub(crate) struct Deployment {
    pub(crate) uid: Uid,
    pub(crate) replicas: usize,
    pub(crate) selector: Option<OwnerSelector>,
    pub(crate) min_ready: Duration,
    /// Whether its strategy lets two pods exist where one is desired.
    pub(crate) may_surge: bool,
    /// Whether some of its pods are of an earlier template.
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

/// Why a container waits that has not been started yet. The trouble of its pod begins with one of these.
pub(crate) const CREATING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The parts of the spec of a pod that matter for each pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    restart_policy: String,
    volumes: Vec<PodVolume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodVolume {
    persistent_volume_claim: Option<IgnoredAny>,
}

impl PodSpec {
    /// Whether the pod ends by itself, with a result.
    pub(crate) fn completes(&self) -> bool {
        matches!(&*self.restart_policy, "OnFailure" | "Never")
    }

    pub(crate) fn has_claim(&self) -> bool {
        self.volumes.iter().any(|volume| volume.persistent_volume_claim.is_some())
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
    phase: String,
    reason: String,
    conditions: Vec<PodCondition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    image: String,
    ready: bool,
    restart_count: u32,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    running: Option<Running>,
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    exit_code: i32,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Running {
    started_at: Option<ServerTime>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodCondition {
    r#type: String,
    status: String,
    last_transition_time: Option<ServerTime>,
    reason: String,
    message: String,
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
    labels: WorkloadLabels,
    #[serde(rename = "ownerReferences", default, deserialize_with = "controller")]
    controller: Option<Arc<Owner>>,
}

#[derive(Default, Deserialize)]
struct WorkloadLabels {
    #[serde(rename = "pod-template-hash")]
    hash: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadSpec {
    replicas: Option<u32>,
    #[serde(default)]
    min_ready_seconds: u32,
    selector: Option<OwnerSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WorkloadStatus {
    desired_number_scheduled: Option<u32>,
    conditions: Vec<PodCondition>,
}

#[derive(Deserialize)]
struct DeploymentAnswer {
    metadata: DeploymentMetadata,
    spec: DeploymentSpec,
    #[serde(default)]
    status: DeploymentStatus,
}

#[derive(Deserialize)]
struct DeploymentMetadata {
    uid: Uid,
    #[serde(default)]
    generation: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeploymentSpec {
    replicas: Option<usize>,
    #[serde(default)]
    min_ready_seconds: u32,
    selector: Option<OwnerSelector>,
    #[serde(default)]
    strategy: DeploymentStrategy,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStrategy {
    r#type: String,
    rolling_update: RollingUpdate,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RollingUpdate {
    max_surge: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    observed_generation: i64,
    replicas: usize,
    updated_replicas: usize,
}

impl From<DeploymentAnswer> for Deployment {
    fn from(DeploymentAnswer { metadata, spec, status }: DeploymentAnswer) -> Self {
        let DeploymentStrategy { r#type, rolling_update } = spec.strategy;
        let is_none = rolling_update.max_surge == 0 || rolling_update.max_surge == "0%";
        let replicas = spec.replicas.unwrap_or(1);
        // Fewer than desired are no sign of it: the status lags behind a pod that has another controller now.
        let has_former = status.replicas > status.updated_replicas;
        Self {
            uid: metadata.uid,
            replicas,
            selector: spec.selector,
            min_ready: Duration::from_secs(spec.min_ready_seconds.into()),
            may_surge: r#type != "Recreate" && !is_none,
            is_rolling: status.observed_generation < metadata.generation || has_former,
        }
    }
}

impl From<PodAnswer> for PodIdentity {
    fn from(PodAnswer { metadata, .. }: PodAnswer) -> Self {
        Self(metadata.uid)
    }
}

fn condition<'a>(conditions: &'a [PodCondition], r#type: &str, status: &str) -> Option<&'a PodCondition> {
    conditions.iter().find(|condition| condition.r#type == r#type && condition.status == status)
}

impl PodCondition {
    fn text(&self) -> String {
        format!("{}: {}", self.reason, self.message)
    }
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

    /// Why the pod that was `created` then is not ready. The text is the same at each attempt: it contains no number of
    /// attempts, and no other time.
    pub(crate) fn trouble(&self, created: ServerTime) -> Option<Arc<str>> {
        if condition(&self.conditions, "Ready", "True").is_some() {
            return None;
        }
        let of_containers = || {
            let mut init = self.init_container_statuses.iter().filter(|container| !container.ready);
            let in_init = init.find_map(|container| container.trouble("has not finished", created));
            let mut containers = self.container_statuses.iter().filter(|container| !container.ready);
            in_init
                .or_else(|| containers.find_map(|container| container.trouble("is not ready: see its probes", created)))
        };
        let trouble = match condition(&self.conditions, "PodScheduled", "False") {
            Some(scheduled) => scheduled.text(),
            None if self.are_containers_ready() => condition(&self.conditions, "Ready", "False")?.text(),
            // Its kubelet has not seen it, or is gone.
            None if self.phase == "Pending" && self.container_statuses.is_empty() => format!("Pending since {created}"),
            None => of_containers()?,
        };
        Some(cut(trouble.trim_end_matches(": "), MAX_TROUBLE)).filter(|trouble| !trouble.is_empty()).map(Arc::from)
    }

    /// Which container restarted, and how its previous run ended, or why the pod as a whole has failed. A pod that is
    /// being deleted fails before it is gone, and does not restart its containers.
    pub(crate) fn crash(&self, is_deleted: bool) -> Option<Arc<str>> {
        // What a kubelet evicts alone has exceeded a limit of its own, and may have lost its container as well.
        let is_of_node = self.is_disrupted() || self.is_lost() && self.reason != "Evicted";
        let failure = if is_deleted || is_of_node { None } else { self.failure() };
        failure.or_else(|| self.container_statuses.iter().find_map(ContainerStatus::crash))
    }

    /// Why the pod has failed, for example because its kubelet has evicted it. A pod that its kubelet rejects has
    /// started no container, and says nothing about its content.
    fn failure(&self) -> Option<Arc<str>> {
        let mut containers = self.container_statuses.iter();
        let has_started = containers.any(|ContainerStatus { state, last_state, .. }| {
            state.running.is_some() || first_end([state, last_state]).is_some()
        });
        let reason = if self.reason.is_empty() { "a container has ended" } else { &self.reason };
        (self.phase == "Failed" && has_started).then(|| format!("failed: {reason}").into())
    }
}

impl ContainerStatus {
    /// Why the container is not ready; `runs_and` completes the reason of a running one. Leaves out messages of
    /// the runtime: they may quote an argument that comes from a ConfigMap.
    fn trouble(&self, runs_and: &str, created: ServerTime) -> Option<String> {
        let Self { name, image, restart_count, state, last_state, .. } = self;
        let failed =
            first_end([state, last_state]).filter(|terminated| terminated.exit_code != 0 || *restart_count > 0);
        match (&state.waiting, failed) {
            (_, Some(Terminated { exit_code, .. })) if *restart_count > 0 => {
                Some(format!("CrashLoopBackOff: container {name:?}, last exit code {exit_code}"))
            }
            (_, Some(Terminated { exit_code, .. })) => Some(format!("container {name:?} exited with code {exit_code}")),
            (Some(Waiting { reason, .. }), _) if matches!(&**reason, "ErrImagePull" | "ImagePullBackOff") => {
                Some(format!("ImagePullBackOff: image {image:?}"))
            }
            (Some(Waiting { reason, .. }), _) if reason.is_empty() => None,
            // The container has not been started yet: only time tells whether something is in the way.
            (Some(Waiting { reason, .. }), _) if CREATING.contains(&&**reason) => {
                Some(format!("{reason} since {created}"))
            }
            // The message names the missing object.
            (Some(Waiting { reason, message }), _) if reason == "CreateContainerConfigError" => {
                Some(format!("{reason}: {message}"))
            }
            (Some(Waiting { reason, .. }), _) => Some(format!("{reason}: container {name:?}")),
            (None, _) if state.running.is_some() => Some(format!("container {name:?} runs and {runs_and}")),
            (None, _) => None,
        }
    }

    /// Whether nobody knows how the container ended: its node has restarted.
    fn is_lost(&self) -> bool {
        first_end([&self.last_state, &self.state])
            .is_some_and(|end| matches!(&*end.reason, "Unknown" | "ContainerStatusUnknown"))
    }

    /// How the previous run of a restarted container ended, with its termination message. Leaves out the message if
    /// the container did not start: the runtime wrote it and may quote an argument that comes from a ConfigMap.
    fn crash(&self) -> Option<Arc<str>> {
        let Self { name, restart_count, state, last_state, .. } = self;
        if *restart_count == 0 || self.is_lost() {
            return None;
        }
        let Some(Terminated { exit_code, reason, message }) = first_end([last_state, state]) else {
            return Some(format!("container {name:?} restarted").into());
        };
        let mut text = format!("container {name:?} restarted, last exit code {exit_code}");
        if !reason.is_empty() {
            text += &format!(" ({reason})");
        }
        let words: Vec<&str> = message.split_whitespace().collect();
        if !words.is_empty() && !matches!(&**reason, "StartError" | "ContainerCannotRun") {
            text += &format!(": {}", words.join(" "));
        }
        Some(cut(&text, MAX_TROUBLE).into())
    }
}

/// How the container ended in the first of these states that says so.
fn first_end(states: [&ContainerState; 2]) -> Option<&Terminated> {
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
        let is_named_after_controller = controller.as_ref().zip(metadata.labels.hash).is_some_and(|(owner, hash)| {
            metadata.name.strip_prefix(&*owner.name).is_some_and(|rest| rest.strip_prefix('-') == Some(&*hash))
        });
        Self {
            uid: metadata.uid,
            controller,
            is_named_after_controller,
            replicas: status.desired_number_scheduled.or(spec.replicas).unwrap_or(1),
            min_ready: Duration::from_secs(spec.min_ready_seconds.into()),
            selector: spec.selector,
            failure: text.map(|text| cut(text, MAX_TROUBLE).to_owned()),
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
    fn a_pod_has_failed_as_a_whole_if_its_containers_had_started() {
        let crash = |text: &str| status(text).crash(false).map(|text| text.to_string());
        let ended = r#""containerStatuses":[{"name":"app","state":{"terminated":{"exitCode":137}}}]"#;
        let evicted = format!(r#"{{"phase":"Failed","reason":"Evicted",{ended}}}"#);
        assert_eq!(crash(&evicted).as_deref(), Some("failed: Evicted"));
        assert_eq!(
            crash(&format!(r#"{{"phase":"Failed",{ended}}}"#)).as_deref(),
            Some("failed: a container has ended")
        );
        assert_eq!(crash(&format!(r#"{{"phase":"Succeeded",{ended}}}"#)), None);
        let waiting = r#""containerStatuses":[{"name":"app","state":{"waiting":{"reason":"ContainerCreating"}}}]"#;
        for rejected in ["\"reason\":\"NodeAffinity\"", waiting] {
            assert_eq!(crash(&format!(r#"{{"phase":"Failed",{rejected}}}"#)), None, "{rejected}");
        }
        // Somebody drains its node, shuts it down, or deletes it, and it stops with an error.
        let disrupted =
            r#""conditions":[{"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI"}]"#;
        for reason in [disrupted, r#""reason":"Terminated""#, r#""reason":"NodeShutdown""#] {
            let text = format!(r#"{{"phase":"Failed",{reason},{ended}}}"#);
            assert!(crash(&text).is_none() && status(&text).is_disrupted(), "{reason}");
        }
        let failed = format!(r#"{{"phase":"Failed",{ended}}}"#);
        assert!(status(&failed).crash(true).is_none() && !status(&failed).is_disrupted());
        let restarted =
            r#""containerStatuses":[{"name":"app","restartCount":1,"state":{"terminated":{"exitCode":1}}}]"#;
        assert!(status(&format!(r#"{{"phase":"Failed",{restarted}}}"#)).crash(true).is_some(), "it failed before that");
        let lost = restarted.replace(r#""exitCode":1"#, r#""exitCode":255,"reason":"Unknown""#);
        let of = |more: &str| status(&format!("{{{more}{lost}}}"));
        assert!(of("").crash(false).is_none() && of("").is_lost(), "its node has restarted");
        let failed = |reason: &str| of(&format!(r#""phase":"Failed","reason":"{reason}","#)).crash(false).is_some();
        assert_eq!((failed("UnexpectedAdmissionError"), failed("Evicted")), (false, true));
    }

    #[test]
    fn the_containers_of_a_pod_may_be_ready_although_the_pod_is_not() {
        let of = |condition: &str, containers: &str| {
            let pod = r#"{"type":"Ready","status":"False","reason":"ReadinessGatesNotReady","message":"no target"}"#;
            let status = status(&format!(r#"{{"conditions":[{pod}{condition}],"containerStatuses":[{containers}]}}"#));
            (status.are_containers_ready(), status.trouble(ServerTime::from_second(0)).map(|text| text.to_string()))
        };
        let containers_ready = |value: &str| format!(r#",{{"type":"ContainersReady","status":"{value}"}}"#);
        let (ready, unready) = (r#"{"name":"a","ready":true}"#, r#"{"name":"a"}"#);
        let why = Some("ReadinessGatesNotReady: no target".to_owned());
        for condition in [String::new(), containers_ready("True")] {
            assert_eq!(of(&condition, ready), (true, why.clone()));
        }
        let sidecar = of(&containers_ready("False"), ready);
        assert_eq!((sidecar.0, of("", &format!("{ready},{unready}")).0, of("", "").0), (false, false, false));
        let silent =
            status(r#"{"conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"ready":true}]}"#);
        assert_eq!(silent.trouble(ServerTime::from_second(0)), None, "its node is cut off");
    }

    #[test]
    fn a_pod_with_another_restart_policy_than_always_runs_to_completion() {
        let of = |spec: &str| {
            let spec = serde_json::from_str::<PodSpec>(spec).expect("a spec");
            (spec.completes(), spec.has_claim())
        };
        assert_eq!(of("{}"), (false, false));
        assert_eq!(of(r#"{"restartPolicy":"Always","volumes":[{"name":"v","emptyDir":{}}]}"#), (false, false));
        let claim = r#""volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]"#;
        for policy in ["OnFailure", "Never"] {
            assert_eq!(of(&format!(r#"{{"restartPolicy":"{policy}",{claim}}}"#)), (true, true));
        }
    }

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let created = ServerTime::from_second(7);
        let trouble = |text: &str| status(text).trouble(created).map(|text| text.to_string());
        let container = |more: &str| {
            let container = format!(r#"{{"name":"app","image":"app:9","ready":false,{more}}}"#);
            trouble(&format!(r#"{{"containerStatuses":[{{"name":"b","ready":true}},{container}]}}"#))
        };
        let waiting = |reason: &str| {
            container(&format!(r#""state":{{"waiting":{{"reason":"{reason}","message":"the message"}}}}"#))
        };
        let unscheduled = r#"{"conditions":[{"type":"Ready","status":"False"},
            {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes are available"}]}"#;
        assert_eq!(trouble(unscheduled).as_deref(), Some("Unschedulable: 0/1 nodes are available"));
        for reason in ["ErrImagePull", "ImagePullBackOff"] {
            assert_eq!(waiting(reason).as_deref(), Some(r#"ImagePullBackOff: image "app:9""#));
        }
        assert_eq!(waiting("CreateContainerConfigError").as_deref(), Some("CreateContainerConfigError: the message"));
        assert_eq!(waiting("RunContainerError").as_deref(), Some(r#"RunContainerError: container "app""#));
        for reason in ["ContainerCreating", "PodInitializing"] {
            assert_eq!(waiting(reason), Some(format!("{reason} since 1970-01-01T00:00:07Z")));
        }
        let unseen = trouble(r#"{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}]}"#);
        assert_eq!(unseen.as_deref(), Some("Pending since 1970-01-01T00:00:07Z"));
        assert_eq!([waiting(""), trouble("{}")], [None, None]);
        let last = r#""lastState":{"terminated":{"exitCode":3}},"restartCount":2"#;
        for state in [r#"{"waiting":{"reason":"CrashLoopBackOff"}}"#, r#"{"running":{}}"#, "{}"] {
            let text = container(&format!(r#""state":{state},{last}"#));
            assert_eq!(text.as_deref(), Some(r#"CrashLoopBackOff: container "app", last exit code 3"#), "{state}");
        }
        let exited = container(r#""state":{"terminated":{"exitCode":1}}"#);
        assert_eq!(exited.as_deref(), Some(r#"container "app" exited with code 1"#));
        let running = container(r#""state":{"running":{}}"#);
        assert_eq!(running.as_deref(), Some(r#"container "app" runs and is not ready: see its probes"#));
        let init = r#"{"initContainerStatuses":[{"name":"init","ready":false,"state":{"terminated":{"exitCode":1}}}],
            "containerStatuses":[{"name":"app","ready":false,"state":{"waiting":{"reason":"PodInitializing"}}}]}"#;
        assert_eq!(trouble(init).as_deref(), Some(r#"container "init" exited with code 1"#));
        let waits = init.replace(r#""terminated":{"exitCode":1}"#, r#""running":{}"#);
        assert_eq!(trouble(&waits).as_deref(), Some(r#"container "init" runs and has not finished"#));
        let ready = r#"{"conditions":[{"type":"Ready","status":"True"},{"type":"PodScheduled","status":"False"}]}"#;
        assert_eq!(trouble(ready), None);
        let long = unscheduled.replace("0/1", &"0/1 ".repeat(200));
        assert_eq!(trouble(&long).map(|text| text.len()), Some(MAX_TROUBLE));
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
            serde_json::from_value::<Deployment>(deployment).unwrap().is_rolling
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
