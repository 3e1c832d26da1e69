//! The image archive that `deploy/image.sh` packs without a container daemon.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testenv::{RunDir, hex, project};

#[test]
fn the_archive_has_the_image_of_each_architecture_under_its_digest() {
    let dir = RunDir::create().unwrap();
    let layout = Layout::unpack(&pack(dir.path(), "image", &["amd64", "arm64"]));

    let index = layout.json("index.json");
    let image = &index["manifests"][0];
    assert_eq!(image["annotations"]["io.containerd.image.name"], "docker.io/library/operator:1.2.3");
    let image = layout.blob(image);
    let labels = &image["annotations"];
    for (name, value) in [
        ("title", "ConfigMonitor operator"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("source", env!("CARGO_PKG_REPOSITORY")),
        ("revision", "0123abcd"),
    ] {
        assert_eq!(labels[format!("org.opencontainers.image.{name}")], value);
    }
    for (manifest, architecture) in image["manifests"].as_array().unwrap().iter().zip(["amd64", "arm64"]) {
        assert_eq!(manifest["platform"], json!({"architecture": architecture, "os": "linux"}));
        let manifest = layout.blob(manifest);
        let config = layout.blob(&manifest["config"]);
        assert_eq!(config["architecture"], architecture);
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(&config["config"]["Labels"], labels);
        assert_eq!(config["config"]["Entrypoint"], json!(["/configmonitor-operator"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = layout.path(&manifest["layers"][0]);
        let text = output(Command::new("tar").arg("-xOf").arg(layer).arg("./configmonitor-operator"));
        assert_eq!(text, format!("the binary for {architecture}"));
    }
    // Each blob is named by its hash.
    for blob in fs::read_dir(layout.0.join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap();
        let digest = hex(&Sha256::digest(fs::read(blob.path()).unwrap()));
        assert_eq!(blob.file_name().to_str().unwrap(), digest);
    }
}

#[test]
fn an_older_docker_load_reads_an_image_for_one_architecture() {
    let dir = RunDir::create().unwrap();
    let layout = Layout::unpack(&pack(dir.path(), "image", &["arm64"]));
    let old = &layout.json("manifest.json")[0];
    assert_eq!(old["RepoTags"], json!(["operator:1.2.3"]));
    let config = layout.json(old["Config"].as_str().unwrap());
    assert_eq!(config["architecture"], "arm64");
    assert!(layout.0.join(old["Layers"][0].as_str().unwrap()).is_file());
}

fn pack(dir: &Path, name: &str, architectures: &[&str]) -> PathBuf {
    let archive = dir.join(name).with_extension("tar");
    let mut command = Command::new(project("deploy/image.sh"));
    command.env("REVISION", "0123abcd").arg("operator:1.2.3").arg(project("deploy/Dockerfile")).arg(&archive);
    for architecture in architectures {
        let root = dir.join(architecture);
        fs::create_dir(&root).unwrap();
        fs::write(root.join("configmonitor-operator"), format!("the binary for {architecture}")).unwrap();
        command.arg(format!("{architecture}={}", root.display()));
    }
    output(&mut command);
    archive
}

struct Layout(PathBuf);

impl Layout {
    fn unpack(archive: &Path) -> Self {
        let folder = archive.with_extension("layout");
        fs::create_dir(&folder).unwrap();
        output(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&folder));
        Self(folder)
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&fs::read(self.0.join(path)).unwrap()).unwrap()
    }

    fn path(&self, descriptor: &Value) -> PathBuf {
        let path = self.0.join("blobs").join(descriptor["digest"].as_str().unwrap().replace(':', "/"));
        assert_eq!(fs::metadata(&path).unwrap().len(), descriptor["size"].as_u64().unwrap());
        path
    }

    fn blob(&self, descriptor: &Value) -> Value {
        self.json(self.path(descriptor).to_str().unwrap())
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
