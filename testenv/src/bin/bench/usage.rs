//! What a process has used, as the kernel counts it (proc(5)).

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// What a process has used since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// The time it ran on a processor.
    pub(crate) cpu: Duration,
    /// How often it went to sleep, which is how often it has been woken up.
    pub(crate) wakeups: u64,
    /// Its resident memory, in KiB,
    pub(crate) resident: u64,
    /// and the most that it ever had.
    pub(crate) peak: u64,
}

impl Usage {
    /// Of the process with this id.
    pub(crate) fn of(process: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let mut usage =
            Self { resident: number(&status, "VmRSS:")?, peak: number(&status, "VmHWM:")?, ..Self::default() };
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            usage.cpu += cpu(&thread)?;
            usage.wakeups += number(&fs::read_to_string(thread.join("status"))?, "voluntary_ctxt_switches:")?;
        }
        Ok(usage)
    }

    /// What was used since then. Memory is what there is now.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { cpu: self.cpu - before.cpu, wakeups: self.wakeups - before.wakeups, ..self }
    }
}

/// How long a thread of a process ran on a processor.
pub(crate) fn cpu_of_thread(process: u32, thread: u32) -> Result<Duration> {
    cpu(Path::new(&format!("/proc/{process}/task/{thread}")))
}

fn cpu(thread: &Path) -> Result<Duration> {
    let ran = fs::read_to_string(thread.join("schedstat"))?;
    let nanoseconds = ran.split(' ').next().context("an empty schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// KiB in MiB, for people.
pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn number(text: &str, name: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| value.split_whitespace().next());
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}
