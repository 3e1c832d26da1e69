//! A real `kubectl proxy` on loopback that holds one token and nothing else.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::client::DEADLINE;
use crate::kubectl::Kubectl;
use crate::process::Process;

/// What `kubectl proxy` prints, before its port, once it listens.
const SERVING: &str = "Starting to serve on 127.0.0.1:";

/// A running `kubectl proxy`, killed when this value is dropped.
#[derive(Debug)]
pub struct Proxy {
    kubectl: Kubectl,
    log: PathBuf,
    args: Vec<String>,
    port: u16,
    process: Process,
}

impl Proxy {
    pub(crate) async fn start(kubectl: Kubectl, args: &[String]) -> Result<Self> {
        let log = kubectl.kubeconfig().with_extension("log");
        let (process, port) = launch(&kubectl, 0, args, &log).await?;
        Ok(Self { kubectl, log, args: args.to_owned(), port, process })
    }

    /// Returns the address, such as `http://127.0.0.1:8001`; it survives a restart.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the port on 127.0.0.1, which survives a restart too.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the proxy: its connections end at once and nothing listens any more.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the proxy again after [`Proxy::kill`], on the same port.
    pub async fn start_again(&mut self) -> Result<()> {
        (self.process, _) = launch(&self.kubectl, self.port, &self.args, &self.log).await?;
        Ok(())
    }

    /// Stops the proxy (SIGSTOP): connections stay open and nothing is answered.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }
}

/// Starts the process and returns it with its port once it listens; port 0 takes any free one.
async fn launch(kubectl: &Kubectl, port: u16, args: &[String], log: &Path) -> Result<(Process, u16)> {
    let port = format!("--port={port}");
    let mut command = kubectl.command(&["proxy", "--address=127.0.0.1", &port]);
    command.args(args);
    let process = Process::start(&command, log)?;
    let line = process.wait_for_line(SERVING, DEADLINE).await?;
    let port = line.trim_start_matches(SERVING).trim().parse();
    let port = port.with_context(|| format!("kubectl proxy names no port: {line}"))?;
    Ok((process, port))
}
