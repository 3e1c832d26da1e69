//! The Helm chart: what it installs works, and what is wrong is refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;
use testenv::fixture::{APP, Fixture, NAME, create_namespace, file};
use testenv::pages::Section;
use testenv::process::printed;
use testenv::{ControlPlane, DEADLINE, Operator, Proxy, RunDir, binaries, eventually, project};

use crate::reader::Reader;
use crate::test_namespace::{control_plane, pod_of};

pub(crate) const NAMESPACE: &str = "configmonitor-system";
pub(crate) const RELEASE: &str = "configmonitor-operator";
const CHART: &str = "charts/configmonitor-operator";

/// One of the tools of packaging, with this folder for its home.
pub(crate) async fn tool(name: &str, home: &Path) -> Command {
    let mut command = Command::new(binaries::tool(name).await.unwrap());
    command.env("HOME", home).current_dir(home);
    command
}

pub(crate) fn chart() -> String {
    fs::canonicalize(project(CHART)).unwrap().to_str().unwrap().to_owned()
}

/// What `helm template` prints.
pub(crate) async fn rendered(dir: &Path, chart: &str, more: &[String]) -> String {
    let mut helm = tool("helm", dir).await;
    helm.args(["template", RELEASE, chart, "--namespace", NAMESPACE]).args(more);
    printed(&helm).await.unwrap()
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
    let (earlier, wait) = (cluster.earlier_chart(), ["--wait", "--timeout=10m"]);
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
async fn helm_4_upgrades_after_what_the_pages_do_with_kubectl() {
    let cluster = Cluster::new("helm").await;
    let earlier = cluster.earlier_chart();
    cluster.helm(&["install", RELEASE, &earlier]).await;
    cluster.kubectl(&["scale", "deployment", "configmonitor-operator", "--replicas=0"]).await;
    cluster.helm(&["upgrade", RELEASE, &chart()]).await;
    let replicas = ["get", "deployment", "configmonitor-operator", "--output=jsonpath={.spec.replicas}"];
    assert_eq!(cluster.kubectl(&replicas).await, "1", "an upgrade ends the pause");
    cluster.helm(&["rollback", RELEASE, "1"]).await;
    cluster.kubectl(&["apply", "-f", &file("crd.yml")]).await;
    let upgrade = ["upgrade", RELEASE, &earlier, "--set=commonLabels.a=b"];
    let refusal = cluster.helm_in(&cluster.fixture.namespace, &upgrade).await.unwrap_err().to_string();
    assert!(refusal.contains("conflict"), "{refusal}");
    cluster.helm(&[&upgrade[..], &["--force-conflicts"]].concat()).await;
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

/// Whoever may not apply the policy, and whoever has lost it.
#[tokio::test]
async fn nobody_has_the_right_to_change_pods_where_there_is_no_policy() {
    let cluster = Cluster::new("helm").await;
    let (kubectl, surge) = (cluster.control_plane.kubectl(), "--set=surge.enabled=true");
    let may_patch = async |namespace: &str| {
        let operator = format!("--as=system:serviceaccount:{namespace}:configmonitor-operator");
        let asked = kubectl.ok(&["auth", "can-i", "patch", "pods", "-n", namespace, &operator]).await;
        asked.is_ok_and(|answer| answer.trim() == "yes")
    };
    let own = create_namespace(&cluster.control_plane, json!({})).await;
    let admin = ["create", "rolebinding", "bob", "--clusterrole=admin", "--user=bob", "-n", &own];
    kubectl.ok(&admin).await.unwrap();
    for part in ["policy/policy.yml", "binding/binding.yml"].map(|part| file(&format!("deploy/surge/{part}"))) {
        kubectl.ok(&["apply", "-f", &part, "-n", &own, "--as=bob"]).await.unwrap_err();
    }
    assert!(!may_patch(&own).await);

    let other = create_namespace(&cluster.control_plane, json!({})).await;
    cluster.helm(&["install", RELEASE, &chart(), surge]).await;
    let without = "--set=crds.enabled=false,clusterRoles.enabled=false,surge.policy=false";
    cluster.helm_in(&other, &["install", RELEASE, &chart(), surge, without]).await.unwrap();
    let becomes = async |expected: bool| {
        eventually("the right follows the policy", DEADLINE, async || {
            ensure!(may_patch(&other).await == expected, "it does not");
            Ok(())
        })
        .await
        .unwrap();
    };
    becomes(true).await;
    cluster.helm(&["uninstall", RELEASE, "--wait"]).await;
    becomes(false).await;
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
            ("secrets.names={shop}", "set secrets.enabled"),
            ("secrets.namespaces={shop}", "set secrets.enabled"),
            ("image.tagg=1", "tagg"),
            ("monitoring.enabled=yes", "monitoring"),
            ("namespaces={Shop}", "Shop"),
            ("allNamespaces=true,namespaces={shop}", "exclude each other"),
            ("allNamespaces=true,namespaceSelector={a==b}", "a==b"),
            ("allNamespaces=true,namespaceSelector={!a=b}", "!a=b"),
            ("namespaceSelector={a=b}", "set allNamespaces"),
            ("openshift.enabled=yes", "/openshift/enabled"),
            ("global.imageRegistry=https://mirror", "/global/imageRegistry"),
            ("networkPolicy.apiServer.cidrs={10.0.0.1/32}", "set networkPolicy.enabled"),
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
            template.args(["template", RELEASE, &chart(), "--kube-version=1.37", "--set", set]);
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

#[tokio::test]
async fn the_readme_of_the_chart_is_what_helm_docs_makes() {
    let dir = RunDir::create().unwrap();
    for name in ["Chart.yaml", "values.yaml", "README.md.gotmpl"] {
        fs::copy(project(CHART).join(name), dir.path().join(name)).unwrap();
    }
    printed(tool("helm-docs", dir.path()).await.args(["--chart-search-root=.", "--log-level=warning"])).await.unwrap();
    let read = |path: &Path| fs::read_to_string(path.join("README.md")).unwrap();
    assert!(read(&project(CHART)) == read(dir.path()), "README.md is old: please run make chart");
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
