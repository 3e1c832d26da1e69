//! The `process_*` metrics that Prometheus' client libraries export.

use std::fmt;

use procfs::prelude::*;
use procfs::process::{LimitValue, Process};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads proc(5) at each scrape, and leaves out what cannot be read.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok(process) = Process::myself() else { return Ok(()) };
        let (stat, ticks) = (process.stat().ok(), procfs::ticks_per_second());
        if let Some(stat) = &stat {
            let help = "Total user and system CPU time spent in seconds.";
            let cpu = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new((stat.utime + stat.stime) as f64 / ticks as f64).encode(cpu)?;
        }
        let mut gauge = |name, help, value: Option<u64>| match value {
            Some(value) => {
                ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
            }
            None => Ok(()),
        };
        let resident = stat.as_ref().map(|stat| stat.rss_bytes().get());
        gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident)?;
        gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", stat.as_ref().map(|stat| stat.vsize))?;
        let started = stat.zip(procfs::boot_time_secs().ok()).map(|(stat, boot)| boot + stat.starttime / ticks);
        gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", started)?;
        let open = process.fd_count().ok().map(|open| open as u64);
        gauge("process_open_fds", "Number of open file descriptors.", open)?;
        let most = match process.limits().map(|limits| limits.max_open_files.soft_limit) {
            Ok(LimitValue::Value(most)) => Some(most),
            Ok(LimitValue::Unlimited) | Err(_) => None,
        };
        gauge("process_max_fds", "Maximum number of open file descriptors.", most)
    }
}
