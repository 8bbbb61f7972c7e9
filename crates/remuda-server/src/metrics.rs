//! Metrics of the process and its connections, added to those of the API.

pub(crate) mod fleet;

use std::{fmt::Write, fs, sync::atomic::Ordering::Relaxed, time::Duration};

use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeVal,
};
use prometheus_client::{encoding::text::encode_registry, registry::Registry};

use crate::accept::Counters;

/// How an OpenMetrics text ends.
const END: &str = "# EOF\n";

/// Appends our metrics and those of the controllers to those of the API.
pub(crate) fn extend(
    api: &str,
    counters: &Counters,
    controllers: &Registry,
    more: impl FnOnce(&mut String),
) -> String {
    let mut text = api.strip_suffix(END).unwrap_or(api).to_owned();
    // Writing to a string does not fail.
    let _ = encode_registry(&mut text, controllers);
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        let total = if kind == "counter" { "_total" } else { "" };
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{total} {value}\n");
    };
    add("remuda_connections", "counter", "Connections accepted.", counters.accepted.load(Relaxed) as f64);
    add("remuda_open_connections", "gauge", "Connections open now.", counters.open.load(Relaxed) as f64);
    let failed = counters.handshakes_failed.load(Relaxed) as f64;
    add("remuda_tls_handshake_failures", "counter", "TLS handshakes that came to nothing.", failed);
    let process = Process::read();
    add("process_cpu_seconds", "counter", "Processor time used, in seconds.", process.cpu.as_secs_f64());
    add("process_resident_memory_bytes", "gauge", "Memory in use.", process.resident as f64);
    add("process_open_fds", "gauge", "Open file descriptors.", process.open_files as f64);
    add("process_max_fds", "gauge", "Most file descriptors there may be.", process.max_files as f64);
    more(&mut text);
    text.push_str(END);
    text
}

struct Process {
    cpu: Duration,
    resident: u64,
    open_files: usize,
    max_files: u64,
}

impl Process {
    fn read() -> Process {
        let usage = getrusage(UsageWho::RUSAGE_SELF);
        let cpu =
            usage.map_or(Duration::ZERO, |usage| duration(usage.user_time()) + duration(usage.system_time()));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|rest| {
            let kib: u64 = rest.trim().trim_end_matches("kB").trim().parse().ok()?;
            Some(kib * 1024)
        });
        Process {
            cpu,
            resident: resident.unwrap_or_default(),
            open_files: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
            max_files: getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft),
        }
    }
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[test]
    fn our_metrics_come_before_the_end_mark() {
        let counters = Counters::default();
        counters.accepted.store(3, Relaxed);
        let mut controllers = Registry::default();
        controllers.register("b", "Second", Gauge::<i64>::default());
        let text = extend("# TYPE a gauge\na 1\n# EOF\n", &counters, &controllers, |text| {
            text.push_str("# TYPE z gauge\nz 1\n");
        });
        let start = "# TYPE a gauge\na 1\n# HELP b Second.\n# TYPE b gauge\nb 0\n# HELP remuda_connections ";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("\nremuda_connections_total 3\n"));
        assert!(
            text.contains("\n# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes ")
        );
        assert_eq!(text.matches("# EOF").count(), 1);
        assert!(text.ends_with("\nz 1\n# EOF\n"));
    }
}
