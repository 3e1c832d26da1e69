//! The patches that `make mutants` applies by hand still apply.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::Command;

use testenv::project;

#[test]
fn each_patch_applies() {
    let patches = fs::read_dir(project("testenv/mutants")).unwrap().map(|entry| entry.unwrap().path());
    let patches: Vec<_> = patches.filter(|path| path.extension().is_some_and(|kind| kind == "patch")).collect();
    assert!(!patches.is_empty());
    for patch in patches {
        let patch = fs::canonicalize(patch).unwrap();
        let check =
            Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(project("")).output().unwrap();
        assert!(check.status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&check.stderr));
    }
}
