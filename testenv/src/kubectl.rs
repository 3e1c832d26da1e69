//! kubectl with a kubeconfig of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};

use crate::process::output;

/// The program with one kubeconfig and a home of its own, so that no setting of the user counts and no cache is written
/// there.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf, home: &Path) -> Self {
        Self { program, kubeconfig, home: home.to_owned() }
    }

    /// Returns the program, of the same version as the control plane.
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl with `args`, which must let it exit by itself.
    pub async fn run(&self, args: &[&str]) -> Result<Output> {
        output(&self.command(args)).await
    }

    pub async fn ok(&self, args: &[&str]) -> Result<String> {
        let output = self.run(args).await?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {} fails: {}", args.join(" "), error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.home);
        command
    }
}
