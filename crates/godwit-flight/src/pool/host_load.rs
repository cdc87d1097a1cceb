//! Measures the processor and network load of this host by counters of the kernel (proc(5), sysfs).

use std::time::Instant;

/// Assumed network capacity if none is configured and the kernel reports none, bytes per second (10 Gbit/s).
const DEFAULT_CAPACITY_BYTES_PER_S: f64 = 1.25e9;

/// A sampler of kernel counters. Rates are averages over the time since the previous sample.
#[derive(Debug)]
pub(super) struct HostLoad {
    capacity_bytes_per_s: f64,
    previous: KernelCounters,
    sampled_at: Instant,
    /// Last computed rates: busy fraction of the processors (0 to 1), and network bytes per second.
    rates: (f64, f64),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct KernelCounters {
    busy_ticks: u64,
    total_ticks: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

/// Maximum number of processors of a host.
const MAX_PROCESSORS: usize = 8192;
/// Minimum interval between samples. Rates over shorter intervals are inaccurate, because the kernel counts processor
/// time in units of 10 ms.
const MIN_INTERVAL_S: f64 = 1.0;

impl HostLoad {
    /// Creates a sampler. `capacity` is the configured network capacity, bytes per second.
    pub(super) fn new(capacity: Option<f64>) -> Self {
        let capacity_bytes_per_s = capacity.or_else(fastest_link_bytes_per_s).unwrap_or(DEFAULT_CAPACITY_BYTES_PER_S);
        Self { capacity_bytes_per_s, previous: KernelCounters::read(), sampled_at: Instant::now(), rates: (0.0, 0.0) }
    }

    pub(super) fn capacity_bytes_per_s(&self) -> f64 {
        self.capacity_bytes_per_s
    }

    /// Returns the busy fraction of the processors, and the larger of sent and received bytes per second.
    pub(super) fn rates(&mut self) -> (f64, f64) {
        let seconds = self.sampled_at.elapsed().as_secs_f64();
        if seconds >= MIN_INTERVAL_S {
            let now = KernelCounters::read();
            self.rates = now.rates_since(&self.previous, seconds);
            (self.previous, self.sampled_at) = (now, Instant::now());
        }
        self.rates
    }
}

impl KernelCounters {
    fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&read("/proc/stat"), &read("/proc/net/dev"), &allowed_processors(&read("/proc/self/status")))
    }

    /// Parses the texts of `/proc/stat` and `/proc/net/dev`. Only the time of these processors counts; of all
    /// processors if the list is empty.
    fn parse(stat: &str, network: &str, processors: &[usize]) -> Self {
        let mut counters = Self::default();
        let named: Vec<String> = processors.iter().map(|number| format!("cpu{number}")).collect();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let counts = words.next().is_some_and(|name| match named.is_empty() {
                true => name == "cpu",
                false => named.iter().any(|known| known == name),
            });
            // The columns are user, nice, system, idle, iowait, irq, softirq and steal. User includes guest time
            // (proc_stat(5)).
            let times: Vec<u64> = words.take(8).filter_map(|time| time.parse().ok()).collect();
            if counts && times.len() == 8 {
                let all: u64 = times.iter().sum();
                counters.total_ticks += all;
                counters.busy_ticks += all - times[3] - times[4];
            }
        }
        for line in network.lines() {
            let Some((name, counts)) = line.split_once(':') else { continue };
            let counts: Vec<u64> = counts.split_whitespace().filter_map(|count| count.parse().ok()).collect();
            if name.trim() != "lo" && counts.len() >= 9 {
                counters.received_bytes = counters.received_bytes.saturating_add(counts[0]);
                counters.sent_bytes = counters.sent_bytes.saturating_add(counts[8]);
            }
        }
        counters
    }

    fn rates_since(&self, before: &Self, seconds: f64) -> (f64, f64) {
        let all = self.total_ticks.saturating_sub(before.total_ticks);
        let busy = self.busy_ticks.saturating_sub(before.busy_ticks) as f64 / all.max(1) as f64;
        let moved = self
            .received_bytes
            .saturating_sub(before.received_bytes)
            .max(self.sent_bytes.saturating_sub(before.sent_bytes));
        (busy.clamp(0.0, 1.0), moved as f64 / seconds)
    }
}

/// Returns the processors on which this process may run (proc_pid_status(5), `Cpus_allowed_list`). If a server is
/// restricted to some processors of a host, only these count as its load.
fn allowed_processors(status: &str) -> Vec<usize> {
    let listed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok().filter(|last| *last < MAX_PROCESSORS)?)
    };
    listed.unwrap_or_default().trim().split(',').filter_map(range).flatten().collect()
}

/// Returns the speed of the fastest network interface that is up, bytes per second.
fn fastest_link_bytes_per_s() -> Option<f64> {
    let interfaces = std::fs::read_dir("/sys/class/net").ok()?.flatten();
    let speed = |interface: std::fs::DirEntry| {
        // The file contains the speed in Mbit/s. If the speed is unknown, it contains -1 or cannot be read
        // (sysfs-class-net).
        let text = std::fs::read_to_string(interface.path().join("speed")).ok()?;
        text.trim().parse::<i64>().ok().filter(|speed| *speed > 0)
    };
    Some(interfaces.filter_map(speed).max()? as f64 * 1e6 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_kernels_counters() {
        let network = "Inter-| Receive\n face |bytes\n    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n  eth0: 1000 1 0 0 0 0 0 0 5000 1 0 0 0 0 0 0\n";
        let one = KernelCounters::parse("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1 1\n", network, &[]);
        assert_eq!(one, KernelCounters { busy_ticks: 20, total_ticks: 100, received_bytes: 1000, sent_bytes: 5000 });
        let later = network.replace("5000", "9000");
        let other = KernelCounters::parse("cpu  60 0 10 110 20 0 0 0 5 0\n", &later, &[]);
        assert_eq!(other.rates_since(&one, 2.0), (0.5, 2000.0));
        // If the counters cannot be read, the rates are zero.
        assert_eq!(KernelCounters::parse("", "x", &[]).rates_since(&one, 2.0), (0.0, 0.0));
    }

    #[test]
    fn only_processors_that_a_server_may_run_on_count() {
        let status = "Name:\tx\nCpus_allowed_list:\t1,3-4\nMems_allowed_list:\t0\n";
        assert_eq!(allowed_processors(status), [1, 3, 4]);
        assert_eq!(allowed_processors("Cpus_allowed_list:\t2-1,x,0-99999999\n"), [0; 0]);
        let stat = "cpu  20 0 0 180 0 0 0 0 0 0\ncpu0 0 0 0 100 0 0 0 0 0 0\ncpu1 20 0 0 80 0 0 0 0 0 0\n";
        let counted = |processors: &[usize]| {
            let found = KernelCounters::parse(stat, "", processors);
            (found.busy_ticks, found.total_ticks)
        };
        assert_eq!((counted(&[]), counted(&[1]), counted(&[0, 1])), ((20, 200), (20, 100), (20, 200)));
    }
}
