//! The Helm chart: it renders what kustomize builds, the API server takes it, and what it installs works.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};
use testenv::fixture::{APP, Fixture, NAME, create_namespace, file, relative};
use testenv::kubectl::manifests;
use testenv::pages::Section;
use testenv::process::{output, printed};
use testenv::{ControlPlane, DEADLINE, Kubectl, Operator, Proxy, RunDir, binaries, eventually, project};

use crate::monitoring::prometheus_operator;
use crate::reader::Reader;
use crate::test_namespace::{control_plane, pod_of};

const NAMESPACE: &str = "configmonitor-system";
const RELEASE: &str = "configmonitor-operator";
const CHART: &str = "charts/configmonitor-operator";

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

/// One of the tools of packaging, with this folder for its home.
async fn tool(name: &str, home: &Path) -> Command {
    let mut command = Command::new(binaries::tool(name).await.unwrap());
    command.env("HOME", home).current_dir(home);
    command
}

fn chart() -> String {
    fs::canonicalize(project(CHART)).unwrap().to_str().unwrap().to_owned()
}

/// What `helm template` prints.
async fn rendered(dir: &Path, chart: &str, more: &[String]) -> String {
    let mut helm = tool("helm", dir).await;
    helm.args(["template", RELEASE, chart, "--namespace", NAMESPACE]).args(more);
    printed(&helm).await.unwrap()
}

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
async fn objects(kubectl: &Kubectl, file: &str) -> BTreeMap<[String; 3], Value> {
    let mut objects = BTreeMap::new();
    for mut object in manifests(kubectl.program(), Path::new(file)).await.unwrap() {
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
        let (chart, kustomize) = (
            objects(control_plane.kubectl(), &file("chart.yml")).await,
            objects(control_plane.kubectl(), &file("kustomize.yml")).await,
        );
        assert!(chart.keys().eq(kustomize.keys()), "{values:?}: {:?}, {:?}", chart.keys(), kustomize.keys());
        for (key, object) in &chart {
            assert_eq!(object, &kustomize[key], "{values:?}: {key:?}");
        }
        is_valid(control_plane, schema_dir.path(), &file("chart.yml")).await;
    }
    let values = format!("--values={}/ci/all-values.yaml", chart());
    let all = rendered(&folder, &chart(), &[values]).await;
    fs::write(file("chart.yml"), &all).unwrap();
    has_all_values(&all, &objects(control_plane.kubectl(), &file("chart.yml")).await);
    let few = [
        "--set=networkPolicy.enabled=true,serviceAccount.create=false,global.imageRegistry=localhost:5000",
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

/// Text of the CRD that an earlier version of the chart has otherwise.
const NOW: &str = "description: The API version of this object, magalix.com/v1.";
const EARLIER: &str = "description: An earlier version of this schema.";

/// A cluster of its own, an application in it, and one of the two Helms.
struct Cluster {
    helm: &'static str,
    control_plane: ControlPlane,
    fixture: Fixture,
    dir: RunDir,
}

impl Cluster {
    async fn new(helm: &'static str) -> Self {
        let control_plane = ControlPlane::start().await.unwrap();
        let namespace = create_namespace(&control_plane, json!({})).await;
        let fixture = Fixture { namespace, client: control_plane.client() };
        fixture.config_map(NAME, "one").await;
        fixture.deployment(NAME, 2, json!({"app": NAME})).await;
        Self { helm, control_plane, fixture, dir: RunDir::create().unwrap() }
    }

    async fn helm(&self, args: &[&str]) -> String {
        self.helm_in(&self.fixture.namespace, args).await.unwrap()
    }

    async fn helm_in(&self, namespace: &str, args: &[&str]) -> Result<String> {
        let mut helm = tool(self.helm, self.dir.path()).await;
        helm.env("KUBECONFIG", self.control_plane.kubectl().kubeconfig()).args(args);
        printed(helm.args(["--namespace", namespace])).await
    }

    /// The chart as it might have been before.
    fn earlier_chart(&self) -> String {
        let folder = self.dir.path().join("earlier");
        for part in ["", "files", "templates"] {
            fs::create_dir_all(folder.join(part)).unwrap();
            for entry in fs::read_dir(Path::new(&chart()).join(part)).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    let text = text.replace(NOW, EARLIER).replace("\nversion: ", "\nversion: 0.0.1-before-");
                    fs::write(folder.join(part).join(entry.file_name()), text).unwrap();
                }
            }
        }
        folder.to_str().unwrap().to_owned()
    }

    async fn kubectl(&self, args: &[&str]) -> String {
        let namespace = &*self.fixture.namespace;
        self.control_plane.kubectl().ok(&[args, &["--namespace", namespace]].concat()).await.unwrap()
    }

    /// What a pod of the Deployment that is installed would run.
    async fn pod(&self) -> (Proxy, Operator) {
        let deployment = self.fixture.get("deployments", "configmonitor-operator").await;
        pod_of(&self.control_plane, &deployment, &self.fixture.namespace, "one").await
    }

    /// The CRD has this text, and an operator as it is installed restarts the pods for an edit.
    async fn works(&self, schema: &str, content: &str) {
        assert!(self.kubectl(&["get", "crd", "configmonitors.magalix.com", "--output=yaml"]).await.contains(schema));
        let before = self.fixture.ready_pods(APP, 2).await;
        let _running = self.pod().await;
        self.fixture.settled(NAME, "UpToDate").await;
        self.fixture.edit(NAME, content).await;
        self.fixture.replaced(APP, &before).await;
        self.fixture.settled(NAME, "UpToDate").await;
    }
}

/// The commands of the chart's README.
async fn an_edit_works_after_install_upgrade_rollback_and_reinstall(helm: &'static str) {
    let cluster = Cluster::new(helm).await;
    let (earlier, wait) = (cluster.earlier_chart(), ["--wait", "--timeout=3m"]);
    let printed = cluster.helm(&[&["install", RELEASE, &earlier], &wait[..]].concat()).await;
    assert!(printed.contains("kubectl rollout status deployment/configmonitor-operator"), "{printed}");
    cluster.fixture.create_monitor(NAME, json!({})).await;
    cluster.works(EARLIER, "two").await;
    cluster.helm(&[&["upgrade", RELEASE, &chart()], &wait[..]].concat()).await;
    cluster.works(NOW, "three").await;
    cluster.helm(&[&["rollback", RELEASE, "1"], &wait[..]].concat()).await;
    cluster.works(EARLIER, "four").await;

    let before = cluster.fixture.ready_pods(APP, 2).await;
    cluster.helm(&["uninstall", RELEASE, "--wait"]).await;
    let left =
        ["deployments,roles,rolebindings,serviceaccounts", "--selector=app.kubernetes.io/name=configmonitor-operator"];
    assert_eq!(cluster.kubectl(&[&["get", "--output=name"], &left[..]].concat()).await, "");
    cluster.fixture.get("configmonitors", NAME).await;
    cluster.fixture.edit(NAME, "five").await;
    cluster.helm(&[&["install", RELEASE, &chart()], &wait[..]].concat()).await;
    let _running = cluster.pod().await;
    cluster.fixture.replaced(APP, &before).await;
}

/// Each page has a release of its own, in the namespace that the page names.
#[tokio::test]
async fn whoever_follows_the_pages_installs_the_chart() {
    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.kubectl().ok(&["create", "namespace", "my-namespace"]).await.unwrap();
    let mut reader = Reader::new(&control_plane, "my-namespace").await.with_helm().await;
    reader.follow(Section::of("docs/install.md", "Install with Helm").unwrap().steps()).await;
    reader.run("helm uninstall configmonitor-operator --wait --namespace my-namespace").await.unwrap();

    // The chart's README is for somebody in the clone.
    reader.replace(" charts/", " configmonitor-operator/charts/");
    let install = Section::of("charts/configmonitor-operator/README.md", "configmonitor-operator").unwrap();
    reader.follow(install.steps()).await;
    for section in [
        Section::of("charts/configmonitor-operator/README.md", "Upgrade and uninstall"),
        Section::of("charts/configmonitor-operator/README.md", "Which namespaces"),
    ] {
        reader.follow(section.unwrap().steps()).await;
    }
    let installed = "kubectl get deployment configmonitor-operator --namespace configmonitor-system --output name";
    reader.run(installed).await.unwrap();
}

#[tokio::test]
async fn helm_4_installs_upgrades_rolls_back_and_uninstalls() {
    an_edit_works_after_install_upgrade_rollback_and_reinstall("helm").await;
}

#[tokio::test]
async fn helm_3_installs_upgrades_rolls_back_and_uninstalls() {
    an_edit_works_after_install_upgrade_rollback_and_reinstall("helm3").await;
}

#[tokio::test]
async fn helm_takes_over_what_kubectl_has_installed() {
    let cluster = Cluster::new("helm").await;
    cluster.kubectl(&["apply", "-k", &file("")]).await;
    let uid = ["get", "deployment", "configmonitor-operator", "--output=jsonpath={.metadata.uid}"];
    let before = cluster.kubectl(&uid).await;
    cluster.helm(&["install", RELEASE, &chart(), "--take-ownership", "--force-conflicts", "--wait"]).await;
    assert_eq!(cluster.kubectl(&uid).await, before);
    cluster.fixture.create_monitor(NAME, json!({})).await;
    cluster.works(NOW, "two").await;
}

#[tokio::test]
async fn a_second_release_is_told_that_the_first_one_has_what_belongs_to_the_cluster() {
    let cluster = Cluster::new("helm").await;
    cluster.helm(&["install", RELEASE, &chart()]).await;
    let other = create_namespace(&cluster.control_plane, json!({})).await;
    let refusal = cluster.helm_in(&other, &["install", RELEASE, &chart()]).await.unwrap_err().to_string();
    assert!(refusal.contains("invalid ownership metadata"), "{refusal}");
    let without = ["install", RELEASE, &chart(), "--set=crds.enabled=false,clusterRoles.enabled=false"];
    cluster.helm_in(&other, &without).await.unwrap();

    cluster.helm(&["uninstall", RELEASE, "--wait"]).await;
    let upgrade = ["upgrade", RELEASE, &chart(), "--set=crds.enabled=true,clusterRoles.enabled=true"];
    let refusal = cluster.helm_in(&other, &upgrade).await.unwrap_err().to_string();
    assert!(refusal.contains("invalid ownership metadata"), "{refusal}");
    cluster.helm_in(&other, &[&upgrade[..], &["--take-ownership"]].concat()).await.unwrap();
}

/// One namespace, and then two, of which none is that of the release.
#[tokio::test]
async fn a_list_of_namespaces_is_served() {
    let cluster = Cluster::new("helm").await;
    let namespaces = [create_namespace(&cluster.control_plane, json!({})).await, cluster.fixture.namespace.clone()];
    let release = create_namespace(&cluster.control_plane, json!({})).await;
    let set = |count: usize| format!("--set=namespaces={{{}}}", namespaces[..count].join(","));
    cluster.helm_in(&release, &["install", RELEASE, &chart(), &set(1)]).await.unwrap();
    let [first, second] =
        namespaces.clone().map(|namespace| Fixture { namespace, client: cluster.control_plane.client() });
    first.config_map(NAME, "one").await;
    first.deployment(NAME, 2, json!({"app": NAME})).await;
    for (fixtures, content) in [(&[&first][..], "two"), (&[&first, &second], "three")] {
        cluster.helm_in(&release, &["upgrade", RELEASE, &chart(), &set(fixtures.len())]).await.unwrap();
        let of_release = Fixture { namespace: release.clone(), client: cluster.control_plane.client() };
        let deployment = of_release.get("deployments", "configmonitor-operator").await;
        let (_proxy, _operator) = pod_of(&cluster.control_plane, &deployment, &release, "one").await;
        for fixture in fixtures {
            let before = fixture.ready_pods(APP, 2).await;
            fixture.create_monitor(content, json!({})).await;
            fixture.settled(content, "UpToDate").await;
            fixture.edit(NAME, content).await;
            fixture.replaced(APP, &before).await;
        }
    }
}

/// `helm lint` and the schema of the values: what is misspelt or contradicts itself is refused, with its name.
#[tokio::test]
async fn values_that_are_wrong_are_refused() {
    let dir = RunDir::create().unwrap();
    for helm in ["helm", "helm3"] {
        let values = format!("{}/ci/all-values.yaml", chart());
        for more in [&[][..], &["--values", &values]] {
            printed(tool(helm, dir.path()).await.args(["lint", "--strict", &chart()]).args(more)).await.unwrap();
        }
        for (set, word) in [
            ("secret.enabled=true", "secret"),
            ("image.tagg=1", "tagg"),
            ("monitoring.enabled=yes", "monitoring"),
            ("namespaces={Shop}", "Shop"),
            ("allNamespaces=true,namespaces={shop}", "exclude each other"),
            ("allNamespaces=true,namespaceSelector={a==b}", "a==b"),
            ("allNamespaces=true,namespaceSelector={!a=b}", "!a=b"),
            ("namespaceSelector={a=b}", "set allNamespaces"),
            ("openshift.enabled=yes", "/openshift/enabled"),
            ("networkPolicy.apiServer.cidrs={kubernetes}", "/networkPolicy/apiServer/cidrs/0"),
            ("networkPolicy.apiServer.ports={https}", "/networkPolicy/apiServer/ports/0"),
            ("monitoring.monitor=Probe", "'ServiceMonitor'"),
            ("monitoring.thresholds.apiRequestsFailingRatio=2", "maximum: got 2"),
            ("serviceAccount.name=shop:operator", "/serviceAccount/name"),
            ("serviceAccount.annotation.a=b", "'annotation'"),
            ("global.imageRegistry=5", "/global/imageRegistry"),
            ("commonLabels.a=5", "/commonLabels/a"),
            ("extraObjects={a}", "/extraObjects/0"),
            ("proxy.image.tag=v1.35.0", "registry.k8s.io/kubectl is not that of the tag v1.35.0"),
        ] {
            let mut template = tool(helm, dir.path()).await;
            // A Helm that was not built by its own Makefile takes the cluster for an old one.
            template.args(["template", RELEASE, &chart(), "--kube-version=1.36", "--set", set]);
            let error = printed(&template).await.unwrap_err().to_string();
            // Before this is the command.
            let (_, error) = error.split_once(" fails: ").unwrap();
            assert!(error.contains(word) && !error.contains("panic"), "{error}");
        }
    }
}

#[tokio::test]
async fn each_value_that_the_docs_set_changes_what_is_rendered() {
    let dir = RunDir::create().unwrap();
    let read = |page| fs::read_to_string(project(page)).unwrap();
    let docs = ["README.md", "docs/install.md"].map(read).concat();
    let values = docs.split("--set ").skip(1).map(|rest| rest.split(['`', '\n']).next().unwrap().replace('\'', ""));
    let values: BTreeSet<String> = values.collect();
    assert_eq!(values.len(), 9, "{values:?}");
    let default = rendered(dir.path(), &chart(), &[]).await;
    for value in values {
        let with = rendered(dir.path(), &chart(), &[format!("--set={value}")]).await;
        assert!(with != default, "{value} changes nothing");
    }
}

/// What is copied into the chart is what lies elsewhere, and its README is what helm-docs makes.
#[tokio::test]
async fn what_is_generated_of_the_chart_is_up_to_date() {
    let same = |name: &str, source: &str| {
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert!(read(&project(CHART).join(name)) == read(&project(source)), "{name} is old: please run make chart");
    };
    same("files/crd.yml", "crd.yml");
    same("files/rules.yml", "deploy/monitoring/rules.yml");
    same("files/policies/operator.yml", "deploy/policies/operator.yml");
    same("files/policies/configmonitors.yml", "deploy/policies/configmonitors.yml");
    same("files/surge/policy.yml", "deploy/surge/policy.yml");
    same("files/dashboard.json", "deploy/monitoring/dashboard.json");
    let dir = RunDir::create().unwrap();
    for name in ["Chart.yaml", "values.yaml", "README.md.gotmpl"] {
        fs::copy(project(CHART).join(name), dir.path().join(name)).unwrap();
    }
    printed(tool("helm-docs", dir.path()).await.args(["--chart-search-root=.", "--log-level=warning"])).await.unwrap();
    same("README.md", dir.path().join("README.md").to_str().unwrap());
}

/// What Artifact Hub gets: images, examples and versions are those of the chart.
#[tokio::test]
async fn the_annotations_of_the_chart_are_true() {
    let text = fs::read_to_string(project(CHART).join("Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("\nversion: {version}\nappVersion: {version}\n")));
    let annotation = |name: &str| -> String {
        let (_, block) = text.split_once(&format!("  artifacthub.io/{name}: |\n")).unwrap();
        let lines = block.lines().map_while(|line| line.strip_prefix("    "));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let dir = RunDir::create().unwrap();
    let values = |chart: &str| -> Vec<String> {
        let images = chart.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("image: "));
        images.map(|image| image.trim_matches('"').to_owned()).collect()
    };
    let (mut named, mut used) = (values(&annotation("images")), values(&rendered(dir.path(), &chart(), &[]).await));
    named.sort();
    used.sort();
    assert_eq!(named, used);

    let examples = dir.path().join("examples.yml");
    fs::write(&examples, format!("apiVersion: v1\nkind: List\nitems:\n{}", annotation("crdsExamples"))).unwrap();
    let create = ["create", "--dry-run=server", "--output=name", "-f", examples.to_str().unwrap()];
    let created = control_plane().await.kubectl().ok(&create).await.unwrap();
    assert!(created.starts_with("configmonitor.magalix.com/"), "{created}");
}
