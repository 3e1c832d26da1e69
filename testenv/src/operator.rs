//! The operator's binary as a child process.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::client::{DEADLINE, eventually};
use crate::process::Process;
use crate::run_dir::RunDir;

const BINARY: &str = "configmonitor-operator";

/// A running operator, killed when this value is dropped.
#[derive(Debug)]
pub struct Operator {
    // Dropped before the folder that holds its log.
    process: Process,
    _dir: RunDir,
}

/// Returns the operator's binary: the one that the variable `CONFIGMONITOR_OPERATOR` names, or else the one in the
/// target folder of the running program.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("CONFIGMONITOR_OPERATOR").map(PathBuf::from) {
        ensure!(path.is_file(), "CONFIGMONITOR_OPERATOR: {} is no file", path.display());
        return Ok(std::path::absolute(path)?);
    }
    let program = env::current_exe()?;
    // Test programs lie one folder deeper than binaries, in `deps`.
    let mut candidates = program.ancestors().skip(1).take(2).map(|dir| dir.join(BINARY));
    candidates.find(|path| path.is_file()).with_context(|| format!("{BINARY} is not built: please run `cargo build`"))
}

pub fn message(line: &Value) -> &str {
    line["message"].as_str().unwrap_or_default()
}

impl Operator {
    /// Starts `binary` for one namespace, with further arguments and variables. The operator listens on a free port and
    /// logs as JSON.
    pub fn start(binary: &Path, proxy_url: &str, namespace: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Self> {
        let dir = RunDir::create()?;
        let mut command = Command::new(binary);
        command
            .args(["--proxy-url", proxy_url, "--namespace", namespace])
            .args(["--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(args)
            .envs(env.iter().copied())
            .current_dir(dir.path());
        let process = Process::start(&command, &dir.path().join("operator.log"))?;
        Ok(Self { process, _dir: dir })
    }

    /// Returns the log so far, one JSON object a line. Other lines, such as the text of a panic, are strings.
    pub fn log(&self) -> Result<Vec<Value>> {
        let log = self.process.log()?;
        // The last line may be half written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
        Ok(whole.lines().map(parse).collect())
    }

    /// Waits for the first line that `matches`, also among earlier ones.
    pub async fn wait_for_log(&self, what: &str, matches: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, DEADLINE, async || {
            let line = self.log()?.into_iter().find(&matches);
            line.ok_or_else(|| self.process.failure("has not logged it"))
        })
        .await
    }

    pub async fn wait_for_message(&self, text: &str) -> Result<Value> {
        self.wait_for_log(text, |line| message(line) == text).await
    }

    /// Returns the address of `/livez` and `/readyz`, which the first line of the log names.
    pub async fn url(&self) -> Result<String> {
        let line = self.wait_for_message("starting").await?;
        let listen = line["listen"].as_str();
        let listen = listen.ok_or_else(|| anyhow!("the operator names no address: {line}"))?;
        Ok(format!("http://{listen}"))
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.terminate(DEADLINE).await
    }

    /// Kills the process (SIGKILL) and returns when it is gone. Its log can still be read.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Returns the process: to stop it, or for its exit status or id.
    pub fn process(&self) -> &Process {
        &self.process
    }
}
