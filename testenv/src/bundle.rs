//! The bundle for the Operator Lifecycle Manager, in the format registry+v1: from the manifests and from what no
//! manifest says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::process::printed;
use crate::project;
use crate::run_dir::RunDir;

/// The name of the package, and of almost everything in it.
const PACKAGE: &str = "configmonitor-operator";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The annotations of the bundle's folder, which are also the labels of its image.
const ANNOTATIONS: [(&str, &str); 6] = [
    ("operators.operatorframework.io.bundle.mediatype.v1", "registry+v1"),
    ("operators.operatorframework.io.bundle.manifests.v1", "manifests/"),
    ("operators.operatorframework.io.bundle.metadata.v1", "metadata/"),
    ("operators.operatorframework.io.bundle.package.v1", PACKAGE),
    ("operators.operatorframework.io.bundle.channels.v1", "stable"),
    ("operators.operatorframework.io.bundle.channel.default.v1", "stable"),
];

/// Returns the files of the bundle, by their paths in it. Without `image`, the operator's image is that of the
/// manifests.
///
/// # Errors
/// When no bundle can be made of the manifests.
pub async fn files(kubectl: &Path, image: Option<&str>) -> Result<BTreeMap<&'static str, String>> {
    let crd = project("crd.yml");
    let service_version = service_version(kubectl, image).await?;
    let annotations = ANNOTATIONS.map(|(name, value)| format!("  {name}: {value}\n")).concat();
    let labels = ANNOTATIONS.map(|(name, value)| format!("LABEL {name}={value}\n")).concat();
    Ok(BTreeMap::from([
        ("manifests/configmonitor-operator.clusterserviceversion.yaml", yaml(kubectl, &service_version).await?),
        ("manifests/configmonitors.magalix.com.crd.yaml", fs::read_to_string(crd)?),
        ("metadata/annotations.yaml", format!("annotations:\n{annotations}")),
        ("Dockerfile", format!("FROM scratch\n{labels}COPY manifests /manifests/\nCOPY metadata /metadata/\n")),
    ]))
}

/// Reads manifests: `-f` and a file, or `-k` and a folder. Needs no cluster.
///
/// # Errors
/// When the manifests cannot be read.
pub async fn manifests(kubectl: &Path, from: [&str; 2]) -> Result<Vec<Value>> {
    let text = printed(&convert(kubectl, "json", from)).await?;
    Ok(serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>()?)
}

async fn yaml(kubectl: &Path, object: &Value) -> Result<String> {
    let dir = RunDir::create()?;
    let file = dir.path().join("object.json");
    fs::write(&file, object.to_string())?;
    printed(&convert(kubectl, "yaml", ["-f", path(&file)?])).await
}

/// Returns kubectl as a converter of YAML: a patch that changes nothing, without a cluster or settings of the user.
fn convert(kubectl: &Path, format: &str, from: [&str; 2]) -> Command {
    let mut command = Command::new(kubectl);
    command.args(["patch", "--local", "--type=merge", "--patch={}", "--output", format]).args(from);
    command.env("KUBECONFIG", "/dev/null").env("KUBERC", "off");
    command
}

/// Returns the ClusterServiceVersion.
async fn service_version(kubectl: &Path, image: Option<&str>) -> Result<Value> {
    let read = async |flag: &'static str, name: &str| manifests(kubectl, [flag, path(&project(name))?]).await;
    let single = async |name: &str| -> Result<Value> {
        read("-f", name).await?.pop().with_context(|| format!("{name} is empty"))
    };
    let [mut all, mut crd, example] = [
        single("deploy/olm/clusterserviceversion.yml").await?,
        single("crd.yml").await?,
        single("demo-app/configmonitor.yml").await?,
    ];
    let installed = read("-k", "deploy/cluster-wide").await?;
    let kinds: Vec<&str> = installed.iter().filter_map(|object| object["kind"].as_str()).collect();
    // OLM creates the namespace, the service account and the binding itself.
    let expected = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment"];
    ensure!(kinds == expected, "a bundle has no place for one of these: {kinds:?}");
    let [role, mut deployment] = [installed[2].clone(), installed[4].clone()];

    let pod = &mut deployment["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].clone();
    let container = &mut pod["containers"][0]["image"];
    if let Some(image) = image {
        *container = image.into();
    }
    let image = container.clone();
    let mut related = Vec::new();
    for containers in ["initContainers", "containers"] {
        let containers = pod[containers].as_array().into_iter().flatten();
        related.extend(containers.map(|container| json!({"name": container["name"], "image": container["image"]})));
    }

    all["metadata"]["name"] = format!("{PACKAGE}.v{VERSION}").into();
    all["metadata"]["annotations"]["containerImage"] = image;
    all["metadata"]["annotations"]["alm-examples"] = serde_json::to_string_pretty(&[example])?.into();
    let spec = &mut all["spec"];
    spec["version"] = VERSION.into();
    spec["relatedImages"] = related.into();
    spec["install"] = json!({"strategy": "deployment", "spec": {
        "clusterPermissions": [{"serviceAccountName": account, "rules": role["rules"]}],
        "deployments": [{
            "name": deployment["metadata"]["name"],
            "label": deployment["metadata"]["labels"],
            "spec": deployment["spec"],
        }],
    }});
    let owned = &mut spec["customresourcedefinitions"]["owned"][0];
    let version = crd["spec"]["versions"][0].take();
    let schema = &version["schema"]["openAPIV3Schema"];
    owned["name"] = crd["metadata"]["name"].clone();
    owned["version"] = version["name"].clone();
    owned["kind"] = crd["spec"]["names"]["kind"].clone();
    owned["description"] = schema["description"].clone();
    for (descriptors, part) in [("specDescriptors", "spec"), ("statusDescriptors", "status")] {
        for descriptor in owned[descriptors].as_array_mut().into_iter().flatten() {
            let field = descriptor["path"].as_str().context("a descriptor has no path")?;
            let names = field.split('.');
            let described = names.fold(&schema["properties"][part], |schema, name| &schema["properties"][name]);
            ensure!(described.is_object(), "the schema has no {part}.{field}");
            descriptor["description"] = described["description"].clone();
        }
    }
    Ok(all)
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
