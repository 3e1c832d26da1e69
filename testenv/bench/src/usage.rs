//! CPU time, wake-ups and memory of a process, from the kernel (proc(5)).

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use testenv::process::status_kib;

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// How often the process went to sleep, which is how often it was woken up.
    pub(crate) wakeups: u64,
    /// The resident memory, in KiB.
    pub(crate) resident: u64,
    /// The peak of the resident memory, in KiB.
    pub(crate) peak: u64,
}

impl Usage {
    pub(crate) fn of(process: u32) -> Result<Self> {
        let (resident, peak) = (status_kib(process, "VmRSS")?, status_kib(process, "VmHWM")?);
        let mut usage = Self { resident, peak, ..Self::default() };
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            usage.cpu += cpu(&thread)?;
            usage.wakeups += number(&fs::read_to_string(thread.join("status"))?, "voluntary_ctxt_switches:")?;
        }
        Ok(usage)
    }

    /// Returns what was used since `before`. The memory is the current one.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { cpu: self.cpu - before.cpu, wakeups: self.wakeups - before.wakeups, ..self }
    }
}

pub(crate) fn cpu_of_thread(process: u32, thread: u32) -> Result<Duration> {
    cpu(Path::new(&format!("/proc/{process}/task/{thread}")))
}

fn cpu(thread: &Path) -> Result<Duration> {
    let ran = fs::read_to_string(thread.join("schedstat"))?;
    let nanoseconds = ran.split(' ').next().context("an empty schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn number(text: &str, name: &str) -> Result<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| value.split_whitespace().next());
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}
