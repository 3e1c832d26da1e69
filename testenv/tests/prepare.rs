//! A missing program is reported in one line, before anything long begins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use testenv::RunDir;

// One test, because a file that is written in one thread cannot be run while another thread starts a process.
#[test]
fn a_missing_program_is_reported_in_one_line() {
    assert!(failure("", |_| ()).contains("util-linux"));

    let line = failure("1.29", |_| ());
    assert!(line.contains("CONFIGMONITOR_KUBERNETES is 1.29, and must be one of 1.31, "), "{line}");

    let line = failure("", |bin| {
        let setpriv = bin.join("setpriv");
        fs::write(&setpriv, "#!/bin/sh\n").unwrap();
        fs::set_permissions(setpriv, Permissions::from_mode(0o755)).unwrap();
    });
    assert!(line.contains("Go is needed"), "{line}");
}

/// Returns the error of `prepare` for this version of Kubernetes, with an empty cache and only the programs that
/// `install` puts into a folder.
fn failure(version: &str, install: impl Fn(&Path)) -> String {
    let dir = RunDir::create().unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    install(&bin);
    let output = Command::new(env!("CARGO_BIN_EXE_prepare"))
        .env("PATH", &bin)
        .env("CONFIGMONITOR_CACHE", dir.path().join("cache"))
        .env("CONFIGMONITOR_KUBERNETES", version)
        .env_remove("CONFIGMONITOR_KUBECTL")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}
