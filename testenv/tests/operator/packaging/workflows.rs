//! The hosting service's workflows cannot run here.

use std::fs;
use std::process::Command;

use testenv::binaries::tool;
use testenv::project;

#[tokio::test]
async fn actionlint_finds_nothing_wrong_with_the_workflows() {
    let workflows = fs::read_dir(project(".github/workflows")).unwrap();
    let actionlint = tool("actionlint").await.unwrap();
    // The result must not depend on which of these two a machine has.
    let mut command = Command::new(actionlint);
    command.args(["-no-color", "-shellcheck=", "-pyflakes="]).args(workflows.map(|entry| entry.unwrap().path()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
