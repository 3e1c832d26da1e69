//! The Helm chart renders what kustomize builds, and the API server takes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testenv::fixture::relative;
use testenv::process::{output, printed};
use testenv::{ControlPlane, DEADLINE, RunDir, eventually, manifests};

use crate::packaging::chart::{NAMESPACE, RELEASE, chart, rendered, tool};
use crate::packaging::monitoring::prometheus_operator;
use crate::test_namespace::control_plane;

/// Values that are Components, with their folders. The last one is for all namespaces only.
const PARTS: [(&str, &str); 7] = [
    ("secrets.enabled=true", "secrets"),
    ("highAvailability.enabled=true", "high-availability"),
    ("monitoring.enabled=true", "monitoring"),
    ("policies.enabled=true", "policies"),
    ("surge.enabled=true", "surge"),
    ("networkPolicy.enabled=true", "network-policy"),
    ("namespaceSelector={magalix.com/configmonitors=enabled}", "namespace-selector"),
];

/// Labels that only Helm adds.
const OF_HELM: [&str; 4] =
    ["helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"];

/// What `kustomize build` prints for the same as these values.
async fn built(dir: &Path, all_namespaces: bool, parts: &[(&str, &str)]) -> String {
    let operator = if all_namespaces { "deploy/cluster-wide" } else { "deploy" };
    let folder = |part: &str| match part {
        "secrets" | "surge" | "namespace-selector" => format!("{operator}/{part}"),
        other => format!("deploy/{other}"),
    };
    let from_here = |path: &str| relative(dir, path);
    let of_cluster = ["crd.yml", "deploy/cluster-roles.yml", "deploy/cluster-role-admin.yml"];
    let of_cluster = &of_cluster[..if all_namespaces { 2 } else { 3 }];
    let resources: Vec<String> = of_cluster.iter().copied().chain([operator]).map(from_here).collect();
    let components: Vec<String> = parts.iter().map(|(_, part)| from_here(&folder(part))).collect();
    let kustomization = json!({"namespace": NAMESPACE, "resources": resources, "components": components});
    fs::write(dir.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let mut kustomize = tool("kustomize", dir).await;
    kustomize.args(["build", "--load-restrictor=LoadRestrictionsNone", "."]);
    printed(&kustomize).await.unwrap()
}

/// The objects of a file of YAML, by kind, namespace and name, without what only Helm or only kustomize adds.
fn objects(file: &str) -> BTreeMap<[String; 3], Value> {
    let mut objects = BTreeMap::new();
    for mut object in manifests(Path::new(file)).unwrap() {
        let key = ["/kind", "/metadata/namespace", "/metadata/name"]
            .map(|path| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned());
        // Helm creates the namespace of a release by --create-namespace.
        if key[0] == "Namespace" {
            continue;
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.retain(|name, _| !OF_HELM.contains(&&**name));
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("helm.sh/resource-policy");
        }
        metadata.retain(|_, value| *value != json!({}));
        for containers in ["containers", "initContainers"] {
            if let Some(env) = object.pointer_mut(&format!("/spec/template/spec/{containers}/0/env")) {
                env.as_array_mut().unwrap().sort_by_key(|variable| variable["name"].to_string());
            }
        }
        assert!(objects.insert(key, object).is_none());
    }
    objects
}

/// The schemas of these groups as the API server has them, in files for kubeconform, with nothing allowed that they do not name.
async fn schemas(control_plane: &ControlPlane, dir: &Path) {
    for group in [
        "api/v1",
        "apis/apps/v1",
        "apis/networking.k8s.io/v1",
        "apis/policy/v1",
        "apis/rbac.authorization.k8s.io/v1",
        "apis/admissionregistration.k8s.io/v1",
        "apis/apiextensions.k8s.io/v1",
        "apis/magalix.com/v1",
    ] {
        // That of a CRD is there a moment after the CRD.
        let path = format!("/openapi/v3/{group}");
        let openapi = async || control_plane.client().get(&path).await?.ok();
        let mut openapi = eventually("the API server has the schemas", DEADLINE, openapi).await.unwrap();
        let all = format!("{}.all", group.replace('/', "-"));
        let file = fs::canonicalize(dir).unwrap().join(&all);
        for (name, schema) in openapi["components"]["schemas"].as_object_mut().unwrap() {
            close(schema);
            for kind in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let part = |name: &str| kind[name].as_str().unwrap().to_lowercase();
                let one = json!({"$ref": format!("file://{}#/components/schemas/{name}", file.display())});
                // kubeconform takes what is before the slash for the group: of v1, that is v1.
                let group = if part("group").is_empty() { part("version") } else { part("group") };
                let of_kind = format!("{}-{group}-{}.json", part("kind"), part("version"));
                fs::write(dir.join(of_kind), one.to_string()).unwrap();
            }
        }
        fs::write(file, openapi.to_string()).unwrap();
    }
}

/// Lets an object have the named properties only.
fn close(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        let is_open = ["additionalProperties", "x-kubernetes-preserve-unknown-fields"]
            .iter()
            .any(|name| fields.contains_key(*name));
        if fields.contains_key("properties") && !is_open {
            fields.insert("additionalProperties".to_owned(), false.into());
        }
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(close),
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// kubeconform and the API server have nothing against what is in this file.
async fn is_valid(control_plane: &ControlPlane, schemas: &Path, file: &str) {
    let mut kubeconform = tool("kubeconform", schemas).await;
    let location =
        format!("{}/{{{{.ResourceKind}}}}-{{{{.Group}}}}-{{{{.ResourceAPIVersion}}}}.json", schemas.display());
    // What is here of the Prometheus Operator has no schema.
    kubeconform.args([
        "-strict",
        "-skip",
        "PodMonitor,ServiceMonitor,PrometheusRule",
        "-schema-location",
        &location,
        file,
    ]);
    let said = output(&kubeconform).await.unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", file];
    control_plane.kubectl().ok(&apply).await.unwrap();
}

#[tokio::test]
async fn each_pair_of_values_renders_what_kustomize_builds_and_the_api_server_takes_it() {
    let control_plane = control_plane().await;
    prometheus_operator().await;
    for namespace in [NAMESPACE, "shop", "billing", "123"] {
        let namespace = json!({"metadata": {"name": namespace}});
        control_plane.client().create("/api/v1/namespaces", &namespace).await.unwrap().ok().unwrap();
    }
    let (dir, schema_dir) = (RunDir::create().unwrap(), RunDir::create().unwrap());
    schemas(control_plane, schema_dir.path()).await;
    let folder = fs::canonicalize(dir.path()).unwrap();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let mut sets = Vec::new();
    for all_namespaces in [false, true] {
        let (at_most, parts) = if all_namespaces { (1, PARTS.len()) } else { (2, PARTS.len() - 1) };
        let subsets =
            (0..1 << parts).map(|bits| PARTS.into_iter().enumerate().filter(move |(index, _)| bits >> index & 1 == 1));
        let subsets = subsets.map(|parts| parts.map(|(_, part)| part).collect::<Vec<_>>());
        sets.extend(subsets.filter(|parts| parts.len() <= at_most).map(|parts| (all_namespaces, parts)));
    }
    assert_eq!(sets.len(), 30);
    for (all_namespaces, parts) in sets {
        let mut values: Vec<String> = parts.iter().map(|(value, _)| format!("--set={value}")).collect();
        values.push(format!("--set=allNamespaces={all_namespaces}"));
        fs::write(file("chart.yml"), rendered(&folder, &chart(), &values).await).unwrap();
        fs::write(file("kustomize.yml"), built(&folder, all_namespaces, &parts).await).unwrap();
        let (chart, kustomize) = (objects(&file("chart.yml")), objects(&file("kustomize.yml")));
        assert!(chart.keys().eq(kustomize.keys()), "{values:?}: {:?}, {:?}", chart.keys(), kustomize.keys());
        for (key, object) in &chart {
            assert_eq!(object, &kustomize[key], "{values:?}: {key:?}");
        }
        is_valid(control_plane, schema_dir.path(), &file("chart.yml")).await;
    }
    let values = format!("--values={}/ci/all-values.yaml", chart());
    let all = rendered(&folder, &chart(), &[values]).await;
    fs::write(file("chart.yml"), &all).unwrap();
    has_all_values(&all, &objects(&file("chart.yml")));
    let few = [
        "--set=networkPolicy.enabled=true,serviceAccount.create=false,global.imageRegistry=localhost:5000/",
        "--set-json=networkPolicy.from=[]",
    ];
    let few = rendered(&folder, &chart(), &few.map(str::to_owned)).await;
    for text in [
        concat!("image: \"localhost:5000/configmonitor-operator:", env!("CARGO_PKG_VERSION"), "\""),
        "image: \"localhost:5000/kubectl:",
        "serviceAccountName: \"configmonitor-operator\"",
        "policyTypes: [\"Ingress\"]",
    ] {
        assert!(few.contains(text), "{text}: {few}");
    }
    // A rule of ingress without "from" would let everybody in.
    for text in ["kind: ServiceAccount\nmetadata:", "ingress:"] {
        assert!(!few.contains(text), "{text}: {few}");
    }
    let fenced =
        "--set=allNamespaces=true,policies.enabled=true,namespaceSelector={a/team=shop,!legacy,b!=}".to_owned();
    let fenced = rendered(&folder, &chart(), &[fenced, "--namespace=shop".to_owned()]).await;
    for text in [
        "expression: \"['a/team=shop', '!legacy', 'b!=']\"",
        "'system:serviceaccount:shop:configmonitor-operator' || variables.selector",
        "value: \"a/team=shop,!legacy,b!=\"",
    ] {
        assert!(fenced.contains(text), "{fenced}");
    }
    for text in [all, few, fenced] {
        fs::write(file("chart.yml"), text).unwrap();
        is_valid(control_plane, schema_dir.path(), &file("chart.yml")).await;
    }
}

/// What `ci/all-values.yaml` sets is in the text that the chart renders, and in its objects.
fn has_all_values(all: &str, objects: &BTreeMap<[String; 3], Value>) {
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    for text in [
        "https://docs.example.com/operations.md#configmonitorstalled",
        "expression: \"['kube-system', 'gke-*']\"",
        "image: \"mirror.example.com/all/kubectl:v1.35.0\"",
        &format!("image: \"mirror.example.com/all/configmonitor-operator:0.1.0-1@{digest}\""),
        "_oldest_pending_change_timestamp_seconds > 600\n",
        "_oldest_handed_over_timestamp_seconds > 1800\n",
        "              > 0.25\n",
    ] {
        assert!(all.contains(text), "{text}: {all}");
    }
    // OpenShift chooses the user, and the policies know the operator by the name of its ServiceAccount.
    for text in
        ["docs/operations.md#", "runAsUser", "runAsGroup", ":configmonitor-operator$'", ":configmonitor-operator'"]
    {
        assert!(!all.contains(text), "{text}: {all}");
    }
    assert_eq!(all.matches("'^system:serviceaccount:[^:]+:restarts[.]platform$'").count(), 2);
    assert_eq!(all.matches(":restarts.platform'").count(), 2);

    let of_kind = |kind: &'static str| objects.iter().filter(move |(key, _)| key[0] == kind).map(|(_, object)| object);
    let one = |kind| -> &Value {
        let [object] = of_kind(kind).collect::<Vec<_>>()[..] else { panic!("not one {kind}") };
        object
    };
    for (key, object) in objects.iter().filter(|(key, _)| key[2] != "extra") {
        assert_eq!(object["metadata"]["labels"]["cost-center"], "42", "{key:?}");
    }
    let extra = &objects[&["ConfigMap", NAMESPACE, "extra"].map(str::to_owned)];
    assert_eq!(extra["data"]["release"], RELEASE);
    let note = json!({"example.com/note": "true"});
    assert_eq!(one("ServiceAccount")["metadata"]["name"], "restarts.platform");
    assert_eq!(one("ServiceAccount")["metadata"]["annotations"], note);
    for binding in of_kind("RoleBinding") {
        assert_eq!(binding["subjects"][0]["name"], "restarts.platform", "{binding}");
    }
    let (deployment, pod) = (one("Deployment"), &one("Deployment")["spec"]["template"]["spec"]);
    assert_eq!(deployment["metadata"]["annotations"], note);
    assert_eq!(pod["serviceAccountName"], "restarts.platform");
    assert_eq!(
        pod["securityContext"],
        json!({"fsGroupChangePolicy": "OnRootMismatch", "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    let [spread] = &pod["topologySpreadConstraints"].as_array().unwrap()[..] else { panic!("{pod}") };
    assert_eq!(spread["topologyKey"], "topology.kubernetes.io/zone");
    assert_eq!(one("PodDisruptionBudget")["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
    assert_eq!(
        one("NetworkPolicy")["spec"],
        json!({
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "configmonitor-operator"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {}}], "ports": [{"protocol": "TCP", "port": 8080}]}],
            "egress": [{
                "to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}, {"ipBlock": {"cidr": "fd00::1/128"}}],
                "ports": [{"protocol": "TCP", "port": 6443}],
            }],
        })
    );
    let (monitor, service) = (one("ServiceMonitor"), one("Service"));
    assert_eq!(of_kind("PodMonitor").count(), 0);
    assert_eq!(monitor["metadata"]["labels"]["release"], "kube-prometheus-stack");
    for (name, label) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&service["metadata"]["labels"][name], label, "{name}");
    }
    let endpoint = json!({"port": service["spec"]["ports"][0]["name"], "path": "/metrics", "honorLabels": true});
    assert_eq!(monitor["spec"]["endpoints"], json!([endpoint]));
}
