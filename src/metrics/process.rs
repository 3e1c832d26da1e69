//! The `process_*` metrics that Prometheus' client libraries export, from proc(5).

use std::fs;

use super::text::Head;

/// Clock ticks per second in /proc (`USER_HZ`): 100 on amd64 and arm64. Asking the kernel would take unsafe code.
const TICKS: f64 = 100.0;

/// Writes the metrics. Omits those that cannot be read.
pub(super) fn write(out: &mut String) {
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    write_of(out, open, |path| fs::read_to_string(path).unwrap_or_default());
}

/// Writes the metrics of a process with `open` file descriptors, from the files of proc(5).
fn write_of(out: &mut String, open: Option<usize>, read: impl Fn(&str) -> String) {
    let stat = read("/proc/self/stat");
    // The program's name in parentheses may contain spaces and parentheses. proc(5) numbers the first field after it 3.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let ticks = |number: usize| Some(fields.get(number - 3)?.parse::<f64>().ok()? / TICKS);
    let status = read("/proc/self/status");
    let bytes = |name| Some(number_after(&status, name)? * 1024);
    let cpu = ticks(14).zip(ticks(15)).map(|(user, system)| user + system);
    // In seconds since the Unix epoch.
    let boot = number_after(&read("/proc/stat"), "btime ");
    let started = boot.zip(ticks(22)).map(|(boot, ticks)| boot as f64 + ticks);
    let max = number_after(&read("/proc/self/limits"), "Max open files");
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
    Head::gauge("process_max_fds", "Maximum number of open file descriptors.").write(out, text(max));
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(open: Option<usize>, read: impl Fn(&str) -> String) -> Vec<String> {
        let mut out = String::new();
        write_of(&mut out, open, read);
        out.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn the_process_is_described_by_the_fields_of_proc() {
        let lines = written(Some(9), |path| {
            let text = match path {
                "/proc/self/stat" => "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 11 12 20 0 1 0 12350 13 14",
                "/proc/self/status" => "Name:\ta\nVmSize:\t    2000 kB\nVmRSS:\t     300 kB\n",
                "/proc/self/limits" => "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n",
                "/proc/stat" => "cpu 1 2 3\nbtime 1000\nprocesses 5\n",
                _ => panic!("{path}"),
            };
            text.to_owned()
        });
        let expected = [
            "process_cpu_seconds_total 1.75",
            "process_resident_memory_bytes 307200",
            "process_virtual_memory_bytes 2048000",
            "process_start_time_seconds 1123.5",
            "process_open_fds 9",
            "process_max_fds 1024",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        assert_eq!(written(None, |_| String::new()), [""; 0]);
        assert_eq!(written(Some(9), |_| "7 (a".to_owned()), ["process_open_fds 9"]);
    }
}
