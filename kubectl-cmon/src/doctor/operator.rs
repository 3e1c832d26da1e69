//! The CustomResourceDefinition, the operator's pods and its Lease.

use std::collections::BTreeSet;
use std::time::Duration;

use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::objects::DEPLOYMENTS;
use configmonitor_operator::kube::{LEASES, PODS, Resource, ServerTime};
use serde_json::Value;

use super::{Finding, State, or_unknown};
use crate::ambassador::{Ambassador, OPERATORS, operators};
use crate::monitors::{name_of, namespace_of};
use crate::outcome::Failure;

const CRD: &str = include_str!("../../../crd.yml");
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

/// Compares the schema with that of this version.
pub(super) async fn schema(ambassador: &Ambassador) -> Result<Finding, Failure> {
    let next = "apply crd.yml of the operator's version: kubectl apply --server-side -f crd.yml".to_owned();
    let answer = ambassador.client.get::<Value>(CRDS, "configmonitors.magalix.com").await;
    if matches!(&answer, Err(Error { cause: Cause::NotFound(_), .. })) {
        return Ok(Finding::new(NAME_OF_CRD, State::Wrong(next), "does not exist"));
    }
    let installed = match or_unknown(answer, NAME_OF_CRD)? {
        Ok(installed) => installed.value,
        Err(unknown) => return Ok(unknown),
    };
    let own: Value = serde_norway::from_str(CRD).map_err(Failure::failed)?;
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
pub(super) async fn look(ambassador: &Ambassador) -> Result<Vec<Finding>, Failure> {
    let pods = ambassador.client.list(&operators(PODS), None, |pod: Value| pod).await;
    let pods = match or_unknown(pods, "operator")? {
        Ok(pods) => pods,
        Err(unknown) => return Ok(vec![unknown]),
    };
    let mut findings = Vec::new();
    let deployments = ambassador.client.list(&operators(DEPLOYMENTS), None, |deployment: Value| deployment).await;
    let deployments = or_unknown(deployments, "Deployments of the operator")?;
    findings.extend(deployments.as_ref().err().cloned());
    for deployment in deployments.into_iter().flat_map(|deployments| deployments.items) {
        let (name, namespace) = (name_of(&deployment), namespace_of(&deployment));
        if pods.items.iter().any(|pod| namespace_of(pod) == namespace) {
            continue;
        }
        let (what, next) = match &deployment["spec"]["replicas"] {
            replicas if *replicas == 0 => {
                ("is scaled to 0", format!("kubectl scale deployment {name} -n {namespace} --replicas=1"))
            }
            _ => ("has no pod", format!("kubectl describe replicasets -n {namespace} -l {OPERATORS}")),
        };
        // Another operator may serve the namespaces.
        let state = if pods.items.is_empty() { State::Wrong(next) } else { State::Note };
        findings.push(Finding::new(format!("Deployment/{name}"), state, what).within(&namespace));
    }
    if pods.items.is_empty() && findings.is_empty() {
        let next = State::Wrong("install it, or look for it in another cluster".to_owned());
        findings.push(Finding::new("operator", next, format!("does not run: no pod has the label {OPERATORS}")));
    }
    let mut namespaces = BTreeSet::new();
    for pod in &pods.items {
        let (namespace, name) = (namespace_of(pod), name_of(pod));
        namespaces.insert(namespace.clone());
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
        findings.push(Finding::new(format!("Pod/{name}"), state, what).within(&namespace));
    }
    for namespace in namespaces {
        let client = ambassador.client.within(&namespace.as_str().into());
        let lease = match client.get::<Value>(LEASES, OPERATOR).await {
            Ok(lease) => Some(leader(&lease.value, pods.at)),
            Err(Error { cause: Cause::NotFound(_), .. }) => None,
            Err(error) => or_unknown::<()>(Err(error), LEASE)?.err(),
        };
        findings.extend(lease.map(|finding| finding.within(&namespace)));
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
