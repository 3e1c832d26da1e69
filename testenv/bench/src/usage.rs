//! CPU time and memory of a process, from the kernel (proc(5)).

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use testenv::process::status_kib;

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
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
            usage.cpu += cpu(&thread?.path())?;
        }
        Ok(usage)
    }

    /// Returns what was used since `before`. The memory is the current one.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { cpu: self.cpu - before.cpu, ..self }
    }
}

fn cpu(thread: &Path) -> Result<Duration> {
    let ran = fs::read_to_string(thread.join("schedstat"))?;
    let nanoseconds = ran.split(' ').next().context("an empty schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
