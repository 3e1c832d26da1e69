//! The hosting service's workflows cannot run here, so these tests check what can be checked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;

use testenv::project;

/// How the commands begin.
const KNOWN: [&str; 14] = [
    "make ",
    ".ci/run",
    "git config --global --add safe.directory ",
    "gh run list ",
    "gh release create ",
    "skopeo copy ",
    "helm push ",
    "cosign sign ",
    "skopeo inspect ",
    "echo \"$GH_TOKEN\" | docker login ",
    // What the next commands name.
    "echo \"REGISTRY=",
    "echo \"VERSION=",
    "echo \"sha256:",
    "echo \"digest=",
];

#[test]
fn every_action_and_image_is_pinned_by_its_digest() {
    for (path, text) in workflows() {
        for action in values(&text, "uses:") {
            let pin = action.split_once('@').and_then(|(_, pin)| pin.split_once(" # v"));
            assert!(pin.is_some_and(|(digest, _)| is_hex(digest, 40)), "{}: {action}", path.display());
        }
        for image in values(&text, "container:").chain(values(&text, "image:")) {
            let digest = image.split_once("@sha256:");
            assert!(digest.is_some_and(|(_, digest)| is_hex(digest, 64)), "{}: {image}", path.display());
        }
    }
}

/// `deploy/Dockerfile` is the place where Rust's image is named.
#[test]
fn every_base_image_is_pinned_and_the_workflows_have_that_of_the_dockerfile() {
    let base = |path: &str| -> Vec<String> {
        let text = fs::read_to_string(project(path)).unwrap();
        let images = text.lines().filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next());
        let images: Vec<String> = images.filter(|image| *image != "scratch").map(str::to_owned).collect();
        assert!(images.iter().all(|image| image.split_once("@sha256:").is_some_and(|(_, digest)| is_hex(digest, 64))));
        images
    };
    let (rust, python) = (base("deploy/Dockerfile"), base("demo-app/Dockerfile"));
    assert_eq!((rust.len(), python.len()), (1, 1));
    let mut used = 0;
    for (path, text) in workflows() {
        for image in values(&text, "container:") {
            used += 1;
            assert_eq!(image, rust[0], "{}", path.display());
        }
    }
    assert!(used > 1, "{used}");
}

#[test]
fn the_workflow_signs_with_the_version_of_cosign_that_release_check_has() {
    let go_mod = fs::read_to_string(project("testenv/cosign/go.mod")).unwrap();
    let version = go_mod.lines().find_map(|line| line.trim().strip_prefix("github.com/sigstore/cosign/v3 ")).unwrap();
    let version = version.split(' ').next().unwrap();
    assert!(
        workflows().any(|(_, text)| values(&text, "cosign-release:").any(|release| release == version)),
        "{version}"
    );
}

#[test]
fn a_workflow_has_no_rights_of_its_own_and_runs_only_known_commands() {
    for (path, text) in workflows() {
        assert!(text.contains("\npermissions: {}\njobs:\n"), "{}", path.display());
        for command in values(&text, "run:") {
            let known = KNOWN.iter().any(|known| command.starts_with(known));
            assert!(known, "{}: {command}", path.display());
        }
    }
}

#[test]
fn a_job_that_may_write_runs_no_code_of_this_project() {
    for (path, text) in workflows() {
        for job in jobs(&text).iter().filter(|job| job.contains(": write")) {
            assert!(!job.contains("actions/checkout@") && !job.contains("run: make"), "{}: {job}", path.display());
        }
    }
}

/// Returns the jobs of a workflow, each of which begins with its name, two spaces deep.
fn jobs(text: &str) -> Vec<String> {
    let mut jobs = Vec::<String>::new();
    for line in text.split_once("\njobs:\n").unwrap().1.lines() {
        match jobs.last_mut() {
            Some(job) if line.starts_with("   ") => job.push_str(&format!("{line}\n")),
            _ => jobs.push(format!("{line}\n")),
        }
    }
    jobs
}

/// Returns the rest of each line that begins with `key`.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim_start().trim_start_matches("- ").strip_prefix(key)).map(str::trim)
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.chars().all(|digit| digit.is_ascii_hexdigit())
}

fn workflows() -> impl Iterator<Item = (PathBuf, String)> {
    let mut paths: Vec<_> =
        fs::read_dir(project(".github/workflows")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
}
