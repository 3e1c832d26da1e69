//! The documents name the same tested versions of Kubernetes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use testenv::binaries::VERSIONS;
use testenv::project;

#[test]
fn the_documentation_and_the_makefile_have_the_pinned_versions() {
    let pins: Vec<String> = VERSIONS.iter().map(|(_, folder)| pin(folder)).collect();
    let documentation = read("docs/versions.md");
    let documented: Vec<&str> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("| 1.")?.split_once(" |"))
        .map(|(version, _)| version)
        .collect();
    assert_eq!(documented, pins.iter().map(|pin| pin.strip_prefix("v1.").unwrap()).collect::<Vec<_>>());

    let makefile = read("Makefile");
    let run = makefile.lines().find_map(|line| line.strip_prefix("VERSIONS = ")).unwrap();
    let run: Vec<&str> = run.split(' ').filter(|version| !version.contains('/')).collect();
    assert_eq!(run, VERSIONS.map(|(version, _)| version));
}

#[test]
fn each_pinned_version_matches_its_name() {
    for (version, folder) in VERSIONS {
        assert!(pin(folder).starts_with(&format!("v{version}.")), "{folder}");
    }
    // The image may be of another patch.
    let (newest, _) = VERSIONS.last().unwrap();
    let manifest = read("deploy/operator/deployment.yml");
    let (_, image) = manifest.split_once("registry.k8s.io/kubectl:").unwrap();
    assert!(image.starts_with(&format!("v{newest}.")) && image.lines().next().unwrap().contains("@sha256:"));
}

/// Returns the version of Kubernetes that a module builds, such as `v1.37.2`.
fn pin(folder: &str) -> String {
    let go_mod = read(&format!("testenv/{folder}/go.mod"));
    let version = go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes ")).unwrap();
    version.split(' ').next().unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap()
}
