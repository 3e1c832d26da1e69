//! Temporary refusals of the API server in one namespace, by a policy: of pods that get Ready, of the deletion of a
//! pod, or of other owners of pods.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use testenv::{Answer, DEADLINE, eventually};

use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// A refusal that holds until it is lifted.
pub(crate) struct Refusal<'a> {
    ns: &'a TestNamespace,
    what: What,
    name: String,
}

enum What {
    /// No pod `app=frontend` gets Ready: kwok's update is refused. Pods that are Ready stay so.
    Ready,
    /// Pods have no owner but a ReplicaSet. This is one of them.
    OtherOwners(String),
}

impl What {
    /// Returns what distinguishes the policy from others of the same namespace.
    fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::OtherOwners(_) => "owners",
        }
    }
}

impl TestNamespace {
    pub(crate) async fn keep_new_pods_from_getting_ready(&self) -> Refusal<'_> {
        Refusal::begin(self, What::Ready).await
    }

    pub(crate) async fn refuse_other_owners(&self, pod: &str) -> Refusal<'_> {
        Refusal::begin(self, What::OtherOwners(pod.to_owned())).await
    }
}

impl<'a> Refusal<'a> {
    async fn begin(ns: &'a TestNamespace, what: What) -> Self {
        let (operation, resource, expression) = match &what {
            What::Ready => {
                let ready = "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')";
                let other = format!("object.metadata.labels['app'] != '{NAME}'");
                ("UPDATE", "pods/status", format!("{other} || !(has(object.status.conditions) && {ready})"))
            }
            What::OtherOwners(_) => {
                let owners = "object.metadata.ownerReferences.all(owner, owner.kind == 'ReplicaSet')";
                ("UPDATE", "pods", owners.to_owned())
            }
        };
        // Admission answers 422, if it is not told otherwise.
        let reason = if matches!(what, What::OtherOwners(_)) { "Forbidden" } else { "Invalid" };
        let name = format!("{}-{}", ns.namespace, what.name());
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.namespace}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]},
                ],
            },
            "validations": [{"expression": expression, "message": "not for now", "reason": reason}],
        }});
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        ns.client.create(POLICIES, &policy).await.unwrap().ok().unwrap();
        ns.client.create(BINDINGS, &binding).await.unwrap().ok().unwrap();
        let refusal = Self { ns, what, name };
        refusal.wait_until_refused(true).await;
        refusal
    }

    /// Deletes the policy and waits until it is no longer in force.
    pub(crate) async fn lift(self) {
        for collection in [BINDINGS, POLICIES] {
            self.ns.client.delete(&format!("{collection}/{}", self.name)).await.unwrap().ok().unwrap();
        }
        self.wait_until_refused(false).await;
    }

    /// Lifts the refusal, and lets the waiting pods get Ready: kwok does not retry before a pod has changed.
    pub(crate) async fn lift_for_all(self) {
        let ns = self.ns;
        self.lift().await;
        for pod in not_ready(ns).await {
            let touch = json!({"metadata": {"annotations": {"touched": "true"}}});
            // The pod may be gone by now.
            ns.client.merge_patch(&ns.path("pods", &pod), &touch).await.unwrap();
        }
    }

    async fn wait_until_refused(&self, refused: bool) {
        eventually("the policy is in force, or is not any more", DEADLINE, async || {
            ensure!(self.refuses().await? == refused, "{} refuses: {}", self.name, !refused);
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Returns whether the policy refuses a harmless request.
    async fn refuses(&self) -> Result<bool> {
        let client = &self.ns.client;
        let Answer { status, body } = match &self.what {
            What::Ready => {
                let pods = self.ns.client.list(&self.ns.path("pods", &format!("?labelSelector={APP}"))).await?;
                let Some(pod) = pods.first() else { bail!("there is no {APP}") };
                let name = pod["metadata"]["name"].as_str().unwrap();
                let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
                client.merge_patch(&self.ns.path("pods", &format!("{name}/status?dryRun=All")), &patch).await?
            }
            What::OtherOwners(pod) => {
                let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"});
                let patch = json!({"metadata": {"ownerReferences": [other]}});
                client.merge_patch(&self.ns.path("pods", &format!("{pod}?dryRun=All")), &patch).await?
            }
        };
        match (&self.what, status) {
            (_, 403 | 422) => Ok(true),
            // The operator may have been the first to delete the pod, once that was allowed.
            (_, 200) | (What::OtherOwners(_), 404) => Ok(false),
            _ => bail!("{status}: {body}"),
        }
    }
}

pub(crate) async fn wait_for_not_ready(ns: &TestNamespace, count: usize) -> Vec<String> {
    eventually(&format!("{count} pods are not Ready"), DEADLINE, async || {
        let names = not_ready(ns).await;
        ensure!(names.len() == count, "{names:?}");
        Ok(names)
    })
    .await
    .unwrap()
}

/// Returns the names of the pods `app=frontend` that are neither Ready nor terminating.
pub(crate) async fn not_ready(ns: &TestNamespace) -> Vec<String> {
    let pods = ns.client.list(&ns.path("pods", &format!("?labelSelector={APP}"))).await.unwrap();
    let going = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let not_ready = pods.iter().filter(|pod| !going(pod) && !testenv::is_ready(pod));
    not_ready.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}
