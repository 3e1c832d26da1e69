//! What a person sees.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use testenv::{Kubectl, Process, is_ready};
use tokio::time::sleep;

/// A pod, as far as the demo looks at it.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) ready: bool,
    name: String,
    age: i64,
}

/// A growing log, shown line by line.
#[derive(Debug)]
pub(crate) struct Log {
    process: Process,
    shown: Cell<usize>,
}

/// A headline.
pub(crate) fn step(title: &str) {
    println!("\n== {title}");
}

/// A remark of the demo itself.
pub(crate) fn note(text: &str) {
    println!("   {text}");
}

/// Shows a command, runs it, and shows what it prints.
pub(crate) async fn kubectl(kubectl: &Kubectl, args: &[&str]) -> Result<()> {
    let shown: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    command(&format!("kubectl {}", shown.join(" ")));
    for line in kubectl.ok(args).await?.lines() {
        note(line);
    }
    Ok(())
}

/// Shows a command, as a person would type it.
pub(crate) fn command(text: &str) {
    println!(" $ {text}");
}

/// Shows the pods as a table.
pub(crate) fn pods(pods: &[Pod]) {
    let width = pods.iter().map(|pod| pod.name.len()).max().unwrap_or_default();
    note(&format!("{:width$}  READY  AGE  UID", "POD"));
    for Pod { uid, ready, name, age } in pods {
        let ready = if *ready { "yes" } else { "no" };
        note(&format!("{name:width$}  {ready:5}  {:3}  {uid}", format!("{age}s")));
    }
}

impl Pod {
    /// From the pod as the API server has it; `None` if it is no pod.
    pub(crate) fn new(pod: &Value) -> Option<Self> {
        let metadata = &pod["metadata"];
        let created: Timestamp = metadata["creationTimestamp"].as_str()?.parse().ok()?;
        Some(Self {
            uid: metadata["uid"].as_str()?.to_owned(),
            ready: is_ready(pod) && metadata["deletionTimestamp"].is_null(),
            name: metadata["name"].as_str()?.to_owned(),
            age: Timestamp::now().duration_since(created).as_secs(),
        })
    }
}

impl Log {
    /// The log of `process`, from its beginning.
    pub(crate) fn new(process: Process) -> Self {
        Self { process, shown: Cell::new(0) }
    }

    /// Shows what has been added since.
    pub(crate) fn show_new(&self) -> Result<()> {
        let log = self.process.log()?;
        let whole = log.rfind('\n').map_or(0, |end| end + 1);
        for line in log[self.shown.get()..whole].lines() {
            println!(" | {line}");
        }
        self.shown.set(whole);
        Ok(())
    }

    /// Shows what is added until the process ends, and returns how that went.
    pub(crate) async fn follow(&self) -> anyhow::Error {
        while self.process.exit_status().is_none() {
            if let Err(error) = self.show_new() {
                return error;
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.process.failure("has stopped")
    }
}

fn quoted(arg: &str) -> String {
    if arg.contains(['"', ' ', '{']) { format!("'{arg}'") } else { arg.to_owned() }
}
