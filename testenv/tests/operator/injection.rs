//! A policy that adds a reference to a ConfigMap to each pod that is created in one namespace.

use anyhow::ensure;
use serde_json::json;
use testenv::{DEADLINE, eventually};

use crate::test_namespace::TestNamespace;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// An injection that goes on until it is ended.
pub(crate) struct Injection<'a> {
    ns: &'a TestNamespace,
    config_map: &'a str,
}

impl<'a> Injection<'a> {
    /// Returns none if the API server is older than 1.36, the first version that has such policies by default.
    pub(crate) async fn begin(ns: &'a TestNamespace, config_map: &'a str) -> Option<Self> {
        let from = "Object.spec.containers.envFrom";
        let value = format!("{from}{{configMapRef: {from}.configMapRef{{name: '{config_map}'}}}}");
        let patch = format!("[JSONPatch{{op: 'add', path: '/spec/containers/0/envFrom/-', value: {value}}}]");
        let policy = json!({"metadata": {"name": ns.namespace}, "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.namespace}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
                ],
            },
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        }});
        let binding = json!({"metadata": {"name": ns.namespace}, "spec": {"policyName": ns.namespace}});
        let created = ns.client.create(&format!("{GROUP}/mutatingadmissionpolicies"), &policy).await.unwrap();
        if created.status == 404 && std::env::var_os("CONFIGMONITOR_KUBERNETES").is_some() {
            return None;
        }
        created.ok().unwrap();
        ns.client.create(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).await.unwrap().ok().unwrap();
        let injection = Self { ns, config_map };
        injection.wait_until_injected(true).await;
        Some(injection)
    }

    /// Deletes the policy and waits until it is no longer in force.
    pub(crate) async fn end(self) {
        for collection in ["mutatingadmissionpolicybindings", "mutatingadmissionpolicies"] {
            let path = format!("{GROUP}/{collection}/{}", self.ns.namespace);
            self.ns.client.delete(&path).await.unwrap().ok().unwrap();
        }
        self.wait_until_injected(false).await;
    }

    async fn wait_until_injected(&self, injected: bool) {
        let container = json!({"name": "app", "image": "app", "envFrom": [{"configMapRef": {"name": "a"}}]});
        let pod = json!({"metadata": {"name": "probe"}, "spec": {"containers": [container]}});
        eventually("the policy is in force, or is not any more", DEADLINE, async || {
            let created = self.ns.client.create(&self.ns.path("pods", "?dryRun=All"), &pod).await?.ok()?;
            let from = created["spec"]["containers"][0]["envFrom"].as_array().into_iter().flatten();
            let is_injected = from.into_iter().any(|from| from["configMapRef"]["name"] == self.config_map);
            ensure!(is_injected == injected, "{created}");
            Ok(())
        })
        .await
        .unwrap();
    }
}
