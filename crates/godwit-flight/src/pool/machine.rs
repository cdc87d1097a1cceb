//! How busy this machine is: its processors and its network, as the kernel counts them (proc(5), sysfs).

use std::time::Instant;

/// What a network carries where nobody says, bytes a second: 10 Gbit/s.
const USUAL_CAPACITY: f64 = 1.25e9;

/// Looks at counters now and then; rates are those since it last looked.
#[derive(Debug)]
pub(super) struct Machine {
    capacity: f64,
    before: Counters,
    looked: Instant,
    /// Busy share and bytes a second.
    rates: (f64, f64),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    busy: u64,
    all: u64,
    received: u64,
    sent: u64,
}

/// Of a machine that this is made for.
const MOST_PROCESSORS: usize = 8192;
/// Less is noise: the kernel counts processors in hundredths of a second, and what clients ask for is done in less.
const LEAST_INTERVAL_S: f64 = 1.0;

impl Machine {
    /// `capacity`: what the network carries, bytes a second, where somebody said.
    pub(super) fn new(capacity: Option<f64>) -> Self {
        let capacity = capacity.or_else(fastest_link).unwrap_or(USUAL_CAPACITY);
        Self { capacity, before: Counters::now(), looked: Instant::now(), rates: (0.0, 0.0) }
    }

    pub(super) fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Share of processors that is busy, and bytes a second, sent or received, whichever is more.
    pub(super) fn rates(&mut self) -> (f64, f64) {
        let seconds = self.looked.elapsed().as_secs_f64();
        if seconds >= LEAST_INTERVAL_S {
            let now = Counters::now();
            self.rates = now.since(&self.before, seconds);
            (self.before, self.looked) = (now, Instant::now());
        }
        self.rates
    }
}

impl Counters {
    fn now() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::of(&read("/proc/stat"), &read("/proc/net/dev"), &own_processors(&read("/proc/self/status")))
    }

    /// `processors`: whose time counts; all of them where none is named.
    fn of(stat: &str, network: &str, processors: &[usize]) -> Self {
        let mut counters = Self::default();
        let named: Vec<String> = processors.iter().map(|number| format!("cpu{number}")).collect();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let counts = words.next().is_some_and(|name| match named.is_empty() {
                true => name == "cpu",
                false => named.iter().any(|known| known == name),
            });
            // user nice system idle iowait irq softirq steal; guests are in user (proc_stat(5)).
            let times: Vec<u64> = words.take(8).filter_map(|time| time.parse().ok()).collect();
            if counts && times.len() == 8 {
                let all: u64 = times.iter().sum();
                counters.all += all;
                counters.busy += all - times[3] - times[4];
            }
        }
        for line in network.lines() {
            let Some((name, counts)) = line.split_once(':') else { continue };
            let counts: Vec<u64> = counts.split_whitespace().filter_map(|count| count.parse().ok()).collect();
            if name.trim() != "lo" && counts.len() >= 9 {
                counters.received = counters.received.saturating_add(counts[0]);
                counters.sent = counters.sent.saturating_add(counts[8]);
            }
        }
        counters
    }

    fn since(&self, before: &Self, seconds: f64) -> (f64, f64) {
        let all = self.all.saturating_sub(before.all);
        let busy = self.busy.saturating_sub(before.busy) as f64 / all.max(1) as f64;
        let moved = self.received.saturating_sub(before.received).max(self.sent.saturating_sub(before.sent));
        (busy.clamp(0.0, 1.0), moved as f64 / seconds)
    }
}

/// Processors that this process may run on (proc_pid_status(5), `Cpus_allowed_list`): a server that was given some of a machine's is as
/// busy as those are.
fn own_processors(status: &str) -> Vec<usize> {
    let listed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok().filter(|last| *last < MOST_PROCESSORS)?)
    };
    listed.unwrap_or_default().trim().split(',').filter_map(range).flatten().collect()
}

/// What the fastest interface that is up carries, bytes a second.
fn fastest_link() -> Option<f64> {
    let interfaces = std::fs::read_dir("/sys/class/net").ok()?.flatten();
    let speed = |interface: std::fs::DirEntry| {
        // Mbit/s; -1 or an error where there is none (sysfs-class-net).
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
        let one = Counters::of("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1 1\n", network, &[]);
        assert_eq!(one, Counters { busy: 20, all: 100, received: 1000, sent: 5000 });
        let later = network.replace("5000", "9000");
        let other = Counters::of("cpu  60 0 10 110 20 0 0 0 5 0\n", &later, &[]);
        assert_eq!(other.since(&one, 2.0), (0.5, 2000.0));
        // Counters that cannot be read say nothing.
        assert_eq!(Counters::of("", "x", &[]).since(&one, 2.0), (0.0, 0.0));
    }

    #[test]
    fn only_processors_that_a_server_may_run_on_count() {
        let status = "Name:\tx\nCpus_allowed_list:\t1,3-4\nMems_allowed_list:\t0\n";
        assert_eq!(own_processors(status), [1, 3, 4]);
        assert_eq!(own_processors("Cpus_allowed_list:\t2-1,x,0-99999999\n"), [0; 0]);
        let stat = "cpu  20 0 0 180 0 0 0 0 0 0\ncpu0 0 0 0 100 0 0 0 0 0 0\ncpu1 20 0 0 80 0 0 0 0 0 0\n";
        let counted = |processors: &[usize]| {
            let found = Counters::of(stat, "", processors);
            (found.busy, found.all)
        };
        assert_eq!((counted(&[]), counted(&[1]), counted(&[0, 1])), ((20, 200), (20, 100), (20, 200)));
    }
}
