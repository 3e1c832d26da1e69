//! No process and no folder outlives the process that started it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use testenv::{DEADLINE, Process, RunDir, eventually};
use tokio::time::sleep;

/// Set, to a file, for the process that [`a_killed_parent_leaves_nothing`] kills.
const PARENT: &str = "TESTENV_PARENT";

const CHILDREN: usize = 3;

#[tokio::test]
async fn a_killed_parent_leaves_nothing() {
    if let Some(file) = env::var_os(PARENT) {
        be_the_parent(Path::new(&file)).await;
    }
    let dir = RunDir::create().unwrap();
    let file = dir.path().join("parent");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_killed_parent_leaves_nothing", "--nocapture"]).env(PARENT, &file);
    let mut parent = Process::start(&command, &dir.path().join("log")).unwrap();
    let left = eventually("the parent is up", DEADLINE, async || {
        ensure!(file.exists(), parent.failure("is not up"));
        Ok(PathBuf::from(fs::read_to_string(&file)?))
    })
    .await
    .unwrap();
    let children = children(parent.id());
    assert_eq!(children.len(), CHILDREN, "{children:?}");

    parent.kill();
    eventually("the children are gone", DEADLINE, async || {
        let alive: Vec<_> = children.iter().filter(|&&id| parent_of(id).is_some()).collect();
        ensure!(alive.is_empty(), "these are alive: {alive:?}");
        Ok(())
    })
    .await
    .unwrap();

    assert!(left.exists());
    let next = RunDir::create().unwrap();
    assert!(!left.exists());
    assert!(next.path().exists() && dir.path().exists());
}

#[tokio::test]
async fn a_child_ends_on_sigterm() {
    let dir = RunDir::create().unwrap();
    let log = dir.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"]);
    let mut child = Process::start(&command, &log).unwrap();
    assert_eq!(child.wait_for_line("u", DEADLINE).await.unwrap(), "up");
    assert_eq!(child.exit_status(), None);
    assert_eq!(child.terminate(DEADLINE).await.unwrap().code(), Some(7));

    let mut missing = Process::start(&Command::new("/no/such/program"), &log).unwrap();
    let error = missing.wait_for_line("up", DEADLINE).await.unwrap_err().to_string();
    assert!(error.contains("127") && error.contains("not found"), "{error}");
    missing.kill();
}

/// Starts children, writes the path of a folder to `file`, and waits to be killed.
async fn be_the_parent(file: &Path) {
    let dir = RunDir::create().unwrap();
    let mut sleeps = Command::new("sleep");
    sleeps.arg("infinity");
    let start = |number: usize| Process::start(&sleeps, &dir.path().join(number.to_string())).unwrap();
    let _children: Vec<Process> = (0..CHILDREN).map(start).collect();
    let unfinished = file.with_extension("unfinished");
    fs::write(&unfinished, dir.path().to_str().unwrap()).unwrap();
    fs::rename(unfinished, file).unwrap();
    sleep(Duration::MAX).await;
}

fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap();
    let ids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.filter(|&id| parent_of(id) == Some(parent)).collect()
}

/// Returns the parent of a process that has not ended.
fn parent_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it is in brackets and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}
