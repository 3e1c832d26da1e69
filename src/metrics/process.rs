//! The `process_*` metrics that Prometheus' client libraries export, from proc(5).

use std::fs;

use super::text::Head;

/// Clock ticks per second in /proc (`USER_HZ`): 100 on amd64 and arm64. Asking the kernel would take unsafe code.
const TICKS: f64 = 100.0;

/// Writes the metrics. Leaves out what cannot be read.
pub(super) fn write(out: &mut String) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces and parentheses. The first field after it is number 3 in the manual.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let ticks = |number: usize| Some(fields.get(number - 3)?.parse::<f64>().ok()? / TICKS);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name| Some(number_after(&status, name)? * 1024);
    let cpu = ticks(14).zip(ticks(15)).map(|(user, system)| user + system);
    let started = boot_time().zip(ticks(22)).map(|(boot, ticks)| boot + ticks);
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    let most = number_after(&fs::read_to_string("/proc/self/limits").unwrap_or_default(), "Max open files");
    let one = |value: Option<String>| value.map(|value| (Vec::new(), value));
    let text = |value: Option<u64>| one(value.map(|value| value.to_string()));
    let seconds = |value: Option<f64>| one(value.map(|value| value.to_string()));
    Head::counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
        .write(out, seconds(cpu));
    Head::gauge("process_resident_memory_bytes", "Resident memory size in bytes.").write(out, text(bytes("VmRSS:")));
    Head::gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.").write(out, text(bytes("VmSize:")));
    Head::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
        .write(out, seconds(started));
    Head::gauge("process_open_fds", "Number of open file descriptors.")
        .write(out, one(open.map(|open| open.to_string())));
    Head::gauge("process_max_fds", "Maximum number of open file descriptors.").write(out, text(most));
}

/// Returns when the machine booted, in seconds since the Unix epoch.
fn boot_time() -> Option<f64> {
    number_after(&fs::read_to_string("/proc/stat").ok()?, "btime ").map(|seconds| seconds as f64)
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
