//! TCP settings, and what they mean for a path of a given bandwidth and round-trip time.

use std::path::Path as FilePath;
use std::time::Duration;

use godwit_flight::WARMED_FROM;
use godwit_transfer::tune::{self, CopyMode};

use super::{Area, Finding, State};

/// Share of a send buffer that holds data in flight; the rest is bookkeeping. One stream with 4 MB came to 620 Mbit/s at 40
/// ms, which is 3.1 MB in flight.
const USABLE_SHARE: f64 = 0.75;

/// A network path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Bits a second.
    pub bandwidth: u64,
    /// Round-trip time.
    pub rtt_ms: f64,
}

/// What the kernel allows TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tcp {
    receive_bytes: Option<u64>,
    send_bytes: Option<u64>,
    congestion: String,
    available: String,
    /// What users without privileges may choose.
    allowed: String,
    /// Switches by name, where they can be read.
    switches: Vec<(&'static str, bool)>,
    /// What sorts packets before they leave, on interfaces that come up from now on.
    queue: String,
}

/// Packets that a new connection sends at first (RFC 6928).
const FIRST_PACKETS: u32 = 10;
/// Bytes of data in a packet.
const PACKET_BYTES: f64 = 1448.0;

/// What every long path needs, with what it is for. Stock kernels have all of them on.
const SWITCHES: [(&str, &str); 3] = [
    ("tcp_sack", "what is lost is sent again by itself"),
    ("tcp_window_scaling", "more than 64 KiB are in flight"),
    ("tcp_moderate_rcvbuf", "receive buffers grow with the path"),
];

impl Tcp {
    fn read(root: &FilePath) -> Self {
        let read = |name: String| std::fs::read_to_string(root.join(name)).unwrap_or_default().trim().to_owned();
        let text = |name: &str| read(format!("ipv4/{name}"));
        // Three numbers: least, default, most.
        let most = |name: &str| text(name).split_whitespace().nth(2)?.parse().ok();
        Self {
            receive_bytes: most("tcp_rmem"),
            send_bytes: most("tcp_wmem"),
            congestion: text("tcp_congestion_control"),
            available: text("tcp_available_congestion_control"),
            allowed: text("tcp_allowed_congestion_control"),
            switches: SWITCHES
                .iter()
                .filter_map(|(name, _)| Some((*name, text(name).parse::<u8>().ok()? != 0)))
                .collect(),
            queue: read("core/default_qdisc".to_owned()),
        }
    }

    fn findings(&self, path: Option<Path>) -> Vec<Finding> {
        let mut findings = vec![
            self.buffer("tcp_rmem", self.receive_bytes, path),
            self.buffer("tcp_wmem", self.send_bytes, path),
            Finding::new(
                Area::Network,
                "congestion control",
                State::Fine,
                format!("{} of {}", self.congestion, self.available),
            ),
        ];
        if path.is_some() {
            findings.extend(self.switched());
            findings.extend(self.bbr());
        }
        let in_flight = self.receive_bytes.into_iter().chain(self.send_bytes).min();
        if let (Some(path), Some(bytes)) = (path, in_flight) {
            let streams = (path.bytes() / (bytes as f64 * USABLE_SHARE)).ceil().max(1.0) as u64;
            let one = bytes as f64 * USABLE_SHARE * 8.0 / (path.rtt_ms / 1e3);
            let found = format!(
                "{:.1} MB in flight fill {} Mbit/s at {} ms; one stream carries {:.0} Mbit/s, so {streams} fill it",
                path.bytes() / 1e6,
                path.bandwidth / 1_000_000,
                path.rtt_ms,
                one.min(path.bandwidth as f64) / 1e6
            );
            findings.push(Finding::new(Area::Network, "path", State::Note, found));
        }
        findings.extend(path.and_then(|_| self.queueing()));
        findings.extend(path.and_then(slow_start));
        findings
    }

    /// What packets wait in before they leave.
    fn queueing(&self) -> Option<Finding> {
        let found = format!("{}, on interfaces that come up from now on", self.queue);
        let remedy = "as root, `sysctl -w net.core.default_qdisc=fq`, and for interfaces that are up `tc qdisc replace dev DEVICE root mq` \
                      (`root fq` for one that has a single queue): connections that are held at a rate take less CPU time, and all take turns";
        let finding = Finding::new(Area::Network, "queue", State::Note, found);
        match self.queue.as_str() {
            "" => None,
            "fq" => Some(Finding { state: State::Fine, ..finding }),
            _ => Some(finding.remedy(remedy)),
        }
    }

    /// Switches that are off.
    fn switched(&self) -> impl Iterator<Item = Finding> + '_ {
        let off = self.switches.iter().filter(|(_, on)| !on);
        off.map(|(name, _)| {
            let meaning = SWITCHES.iter().find(|(known, _)| known == name).map_or("", |(_, meaning)| meaning);
            let found = format!("off; with it, {meaning}");
            let remedy = format!("as root, `sysctl -w net.ipv4.{name}=1`");
            Finding::new(Area::Network, *name, State::Warning, found).remedy(remedy)
        })
    }

    /// What `godwit copy --mode fast` wants.
    fn bbr(&self) -> Option<Finding> {
        let has = |list: &str| list.split_whitespace().any(|name| name == "bbr");
        if has(&self.allowed) || self.congestion == "bbr" {
            return None;
        }
        let found = if has(&self.available) { "there, but not for users" } else { "not loaded" };
        let remedy = "as root, `modprobe tcp_bbr` and `sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"`: \
                      where one packet in a thousand is lost at 100 ms, 16 streams of bbr carry twice what cubic's do";
        Some(Finding::new(Area::Network, "bbr", State::Note, found).remedy(remedy))
    }

    fn buffer(&self, name: &str, bytes: Option<u64>, path: Option<Path>) -> Finding {
        let Some(bytes) = bytes else {
            return Finding::new(Area::Network, name, State::Note, "cannot be read here");
        };
        let found = format!("at most {bytes} bytes");
        let needed = path.map_or(0, |path| (path.bytes() / USABLE_SHARE) as u64).next_multiple_of(1 << 20);
        if bytes >= needed {
            return Finding::new(Area::Network, name, State::Fine, found);
        }
        let least_and_default = if name == "tcp_rmem" { "4096 131072" } else { "4096 16384" };
        Finding::new(Area::Network, name, State::Warning, found).remedy(format!(
            "one stream needs {needed} bytes for this path: as root, \
             `sysctl -w net.ipv4.{name}=\"{least_and_default} {needed}\"`; or use several streams"
        ))
    }
}

impl Path {
    /// Bytes in flight that fill it.
    fn bytes(self) -> f64 {
        self.bandwidth as f64 / 8.0 * self.rtt_ms / 1e3
    }
}

/// Round trips in which a path is not full yet, where there are some.
fn slow_start(path: Path) -> Option<Finding> {
    let rtt = Duration::try_from_secs_f64(path.rtt_ms / 1e3).ok()?;
    // What was acknowledged in the handshake comes on top.
    let packets = tune::streams(CopyMode::Fast, None, rtt) * FIRST_PACKETS * if rtt < WARMED_FROM { 1 } else { 2 };
    let trips = (path.bytes() / (f64::from(packets) * PACKET_BYTES)).log2().ceil();
    let ms = trips * path.rtt_ms;
    let found = format!("{trips} x {} ms, {ms:.0} ms, until a fast download with TLS fills this path", path.rtt_ms);
    let remedy = "where files are small, as root at the end that sends, `ip route change` with the line of `ip route show default` and \
                  `initcwnd 40` behind it: one round trip fewer";
    (trips >= 1.0).then(|| Finding::new(Area::Network, "slow start", State::Note, found).remedy(remedy))
}

/// TCP on this machine, with advice where a path is given.
pub fn network(path: Option<Path>) -> Vec<Finding> {
    Tcp::read(FilePath::new("/proc/sys/net")).findings(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> Tcp {
        Tcp {
            receive_bytes: Some(6 << 20),
            send_bytes: Some(4 << 20),
            congestion: "cubic".into(),
            available: "reno cubic".into(),
            allowed: "reno cubic".into(),
            switches: vec![("tcp_sack", true)],
            queue: "fq".into(),
        }
    }

    #[test]
    fn a_path_that_the_buffers_fill_needs_nothing() {
        let findings = tcp().findings(Some(Path { bandwidth: 500_000_000, rtt_ms: 40.0 }));
        assert!(findings.iter().all(|finding| finding.state != State::Warning), "{findings:?}");
        assert!(findings[4].found.contains("so 1 fill it") && findings[3].what == "bbr", "{findings:?}");
    }

    #[test]
    fn a_long_fat_path_gets_the_sysctl_lines_and_a_number_of_streams() {
        // 10 Gbit/s at 40 ms: 50 MB in flight.
        let findings = tcp().findings(Some(Path { bandwidth: 10_000_000_000, rtt_ms: 40.0 }));
        let remedy = findings[1].remedy.as_deref().unwrap_or_default();
        assert!(remedy.contains("net.ipv4.tcp_wmem=\"4096 16384 67108864\""), "{remedy}");
        assert!(findings[4].found.contains("so 16 fill it"), "{}", findings[4].found);
    }

    #[test]
    fn a_switch_that_is_off_is_told_with_the_line_that_mends_it() {
        let tcp = Tcp { switches: vec![("tcp_sack", false)], ..tcp() };
        let findings = tcp.findings(Some(Path { bandwidth: 500_000_000, rtt_ms: 40.0 }));
        let remedies: Vec<&str> = findings.iter().filter_map(|finding| finding.remedy.as_deref()).collect();
        assert!(remedies.iter().any(|remedy| remedy.contains("sysctl -w net.ipv4.tcp_sack=1")), "{remedies:?}");
    }

    #[test]
    fn queues_and_slow_start_are_told_with_the_lines_that_change_them() {
        let tcp = Tcp { queue: "pfifo_fast".into(), ..tcp() };
        let of = |tcp: &Tcp, rtt_ms: f64, bandwidth: u64| tcp.findings(Some(Path { bandwidth, rtt_ms }));
        let named = |findings: &[Finding], what: &str| findings.iter().find(|one| one.what == what).cloned();
        let findings = of(&tcp, 90.0, 10_000_000_000);
        assert!(named(&findings, "queue").unwrap().remedy.unwrap().contains("net.core.default_qdisc=fq"));
        // 112.5 MB in flight, and 463 kB at first.
        let slow_start = named(&findings, "slow start").unwrap();
        assert!(slow_start.found.starts_with("8 x 90 ms, 720 ms"), "{}", slow_start.found);
        assert!(slow_start.remedy.unwrap().contains("initcwnd"));
        // 12.5 MB, and 116 kB.
        let near = named(&of(&tcp, 10.0, 10_000_000_000), "slow start").unwrap();
        assert!(near.found.starts_with("7 x 10 ms, 70 ms"), "{}", near.found);
        let short = of(&self::tcp(), 20.0, 100_000_000);
        assert!(named(&short, "slow start").is_none());
        assert_eq!(named(&short, "queue").map(|finding| finding.state), Some(State::Fine));
    }
}
