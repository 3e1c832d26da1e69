//! What a person sees.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use testenv::{DEADLINE, Kubectl, Process};
use tokio::time::sleep;

/// Words of the log that say nothing new here.
const LEFT_OUT: [&str; 6] = ["reconcile:", "namespace=", "namespaces=", "monitor=", "reason=", "uid="];

/// A growing log, shown line by line.
#[derive(Debug)]
pub(crate) struct Log {
    process: Process,
    shown: Cell<usize>,
}

pub(crate) fn step(title: &str) {
    println!("\n== {title}");
}

pub(crate) fn note(text: &str) {
    println!("   {text}");
}

pub(crate) async fn kubectl(kubectl: &Kubectl, args: &[&str]) -> Result<()> {
    let shown: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    command(&format!("kubectl {}", shown.join(" ")));
    for line in kubectl.ok(args).await?.lines() {
        note(line);
    }
    Ok(())
}

pub(crate) fn command(text: &str) {
    println!(" $ {text}");
}

impl Log {
    pub(crate) fn new(process: Process) -> Self {
        Self { process, shown: Cell::new(0) }
    }

    pub(crate) fn show_new(&self) -> Result<()> {
        let log = self.process.log()?;
        let whole = log.rfind('\n').map_or(0, |end| end + 1);
        for line in log[self.shown.get()..whole].lines() {
            println!(" | {}", shortened(line));
        }
        self.shown.set(whole);
        Ok(())
    }

    pub(crate) async fn wait_for(&self, text: &str) -> Result<()> {
        self.process.wait_for_line(text, DEADLINE).await.map(drop)
    }

    /// Shows new lines until the process ends, and returns how it ended.
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

/// Returns the line with the time of day alone, and without the words that say nothing new.
fn shortened(line: &str) -> String {
    let (time, rest) = line.split_once(' ').unwrap_or((line, ""));
    let time = time.get("2026-01-01T".len().."2026-01-01T00:00:00".len()).unwrap_or(time);
    let is_new = |word: &&str| !LEFT_OUT.iter().any(|field| word.starts_with(field));
    let words: Vec<&str> = rest.split_ascii_whitespace().filter(is_new).collect();
    format!("{time} {}", words.join(" "))
}
