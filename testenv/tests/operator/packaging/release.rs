//! What a release publishes: pushed to a registry that runs here, and installed by the commands of the pages.
//!
//! `make release-check` names a whole release in `CONFIGMONITOR_RELEASE`, of which each command of the workflow that
//! pushes or signs is run. Otherwise the release is an image without a program, and the chart alone is pushed.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testenv::binaries::tool;
use testenv::control_plane::free_port;
use testenv::pages::Section;
use testenv::process::printed;
use testenv::{Client, ControlPlane, DEADLINE, Process, RunDir, eventually, project};

use crate::reader::Reader;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A registry on loopback.
struct Registry {
    address: String,
    _process: Process,
}

impl Registry {
    async fn start(dir: &Path) -> Self {
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let mut command = Command::new(tool("registry").await.unwrap());
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/storage}}}}\nhttp: {{addr: '{address}'}}\n",
            dir.display()
        );
        fs::write(dir.join("registry.yml"), config).unwrap();
        command.arg("serve").arg(dir.join("registry.yml"));
        let process = Process::start(&command, &dir.join("registry.log")).unwrap();
        let client = Client::new(&format!("http://{address}"));
        eventually("the registry answers", DEADLINE, async || client.get("/v2/").await?.ok()).await.unwrap();
        Self { address, _process: process }
    }
}

/// A program of this name that adds flags to another one.
fn shim(folder: &Path, name: &str, script: &str) {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A release of an image without a program.
async fn small_release(root: &Path, dist: &Path) {
    fs::create_dir(root).unwrap();
    fs::create_dir(dist).unwrap();
    fs::write(root.join("configmonitor-operator"), "").unwrap();
    let image = dist.join(format!("configmonitor-operator-{VERSION}-image.tar"));
    let mut pack = Command::new(project("deploy/image.sh"));
    pack.arg(format!("configmonitor-operator:{VERSION}")).arg(project("deploy/Dockerfile")).arg(&image).arg(root);
    printed(&pack).await.unwrap();
    let mut package = Command::new("release/package.sh");
    package.current_dir(project("")).env("SOURCE_DATE_EPOCH", "0").arg(dist).arg(digest(&image).await);
    package.args([tool("helm").await.unwrap(), tool("kustomize").await.unwrap()]);
    printed(&package).await.unwrap();
}

/// The digest of the image in an archive.
async fn digest(archive: &Path) -> String {
    let index = printed(Command::new("tar").args(["-xOf"]).arg(archive).arg("index.json")).await.unwrap();
    let index: Value = serde_json::from_str(&index).unwrap();
    index["manifests"][0]["digest"].as_str().unwrap().to_owned()
}

/// The commands of the workflow between the login and the signatures.
fn publishing() -> Vec<String> {
    let workflow = fs::read_to_string(project(".github/workflows/release.yml")).unwrap();
    let commands = workflow.lines().filter_map(|line| line.trim().strip_prefix("- run: "));
    let begin = ["skopeo ", "helm ", "cosign ", "echo \"sha256:"];
    let commands: Vec<String> =
        commands.filter(|command| begin.iter().any(|word| command.starts_with(word))).map(str::to_owned).collect();
    assert_eq!(commands.len(), 6, "{commands:#?}");
    commands
}

#[tokio::test]
async fn whoever_follows_the_pages_installs_what_a_release_has_pushed() {
    let dir = RunDir::create().unwrap();
    let folder = fs::canonicalize(dir.path()).unwrap();
    let whole = env::var_os("CONFIGMONITOR_RELEASE").map(PathBuf::from);
    let dist = folder.join("dist");
    match &whole {
        Some(release) => symlink(fs::canonicalize(release).unwrap(), &dist).unwrap(),
        None => small_release(&folder.join("root"), &dist).await,
    }
    let digest = digest(&dist.join(format!("configmonitor-operator-{VERSION}-image.tar"))).await;
    let registry = Registry::start(&folder).await;
    publish(&folder, &registry, whole.is_some()).await;
    if whole.is_some() {
        is_pulled(&folder, &registry, &digest).await;
    }

    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.kubectl().ok(&["create", "namespace", "my-namespace"]).await.unwrap();
    let mut reader = Reader::new(&control_plane, "my-namespace").await.with_helm().await;
    let repository = env!("CARGO_PKG_REPOSITORY");
    let owner = repository.strip_prefix("https://github.com/").unwrap().split('/').next().unwrap();
    let chart = format!("oci://ghcr.io/{owner}/charts/configmonitor-operator");
    let pushed = format!("oci://{}/charts/configmonitor-operator --plain-http", registry.address);
    reader.replace(&chart, &pushed);
    reader.replace(&format!("{repository}/releases/download/v{VERSION}"), dist.to_str().unwrap());
    let image = format!("ghcr.io/{owner}/configmonitor-operator:{VERSION}@{digest}");
    let mut undo: Option<String> = None;
    for section in [Section::of("README.md", "Install"), Section::of("docs/install.md", "Install a release")] {
        let section = section.unwrap();
        for step in section.steps() {
            let removal = match &step.command {
                helm if helm.starts_with("helm install") => {
                    Some("helm uninstall configmonitor-operator --wait --namespace my-namespace".to_owned())
                }
                apply if apply.starts_with("kubectl apply") => {
                    Some(apply.replace(" apply", " delete --ignore-not-found"))
                }
                _ => None,
            };
            if removal.is_some()
                && let Some(undo) = undo.take()
            {
                reader.run(&undo).await.unwrap();
            }
            undo = removal.or(undo);
            reader.follow([step]).await;
            let installed = "kubectl get deployments --all-namespaces --selector app.kubernetes.io/name=configmonitor-operator \
                --output jsonpath='{.items[*].spec.template.spec.containers[0].image}'";
            assert_eq!(reader.run(installed).await.unwrap(), image, "{}", step.command);
        }
    }
}

/// Runs the workflow's commands, without TLS, and with a key in place of the workflow's certificate.
async fn publish(folder: &Path, registry: &Registry, whole: bool) {
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    shim(&bin, "helm", &format!("exec {} \"$@\" --plain-http", tool("helm").await.unwrap().display()));
    let mut shell = Command::new("bash");
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
    shell.current_dir(folder).env("PATH", path).env("HOME", folder).env("REGISTRY", &registry.address);
    shell.env("VERSION", VERSION).arg("-ec");
    let mut commands = publishing();
    if whole {
        let cosign = tool("cosign").await.unwrap();
        let key = "--key cosign.key --tlog-upload=false --use-signing-config=false --allow-http-registry";
        shim(&bin, "cosign", &format!("exec {} \"$@\" {key}", cosign.display()));
        let insecure = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.address);
        let of_skopeo = folder.join(".config/containers");
        fs::create_dir_all(&of_skopeo).unwrap();
        fs::write(of_skopeo.join("registries.conf"), insecure).unwrap();
        shell.env("COSIGN_PASSWORD", "");
        commands.insert(0, format!("{} generate-key-pair", cosign.display()));
    } else {
        commands.retain(|command| command.starts_with("helm"));
    }
    printed(shell.arg(commands.join("\n"))).await.unwrap();
}

/// The image is in the registry under its digest, signed, and its program runs.
async fn is_pulled(folder: &Path, registry: &Registry, digest: &str) {
    let mut shell = Command::new("bash");
    shell.current_dir(folder).env("HOME", folder);
    let (cosign, address) = (tool("cosign").await.unwrap(), &registry.address);
    let script = format!(
        "{} verify --key cosign.pub --insecure-ignore-tlog --allow-http-registry {address}/configmonitor-operator@{digest} \
             {address}/charts/configmonitor-operator@$(cat chart.digest) >verified
         skopeo copy docker://{address}/configmonitor-operator@{digest} dir:pulled >&2
         layer=$(jq -r '.layers[0].digest' pulled/manifest.json)
         tar -xf pulled/${{layer#sha256:}}
         ./configmonitor-operator --version",
        cosign.display()
    );
    let version = printed(shell.args(["-ec", &script])).await.unwrap();
    assert!(version.contains(VERSION), "{version}");
    let licenses = fs::read_to_string(folder.join("LICENSES.txt")).unwrap();
    assert!(licenses.contains("Copyright (c) Tokio Contributors") && licenses.contains("GNU Lesser"), "{licenses}");
}
