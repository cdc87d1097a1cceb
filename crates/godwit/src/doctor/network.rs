//! Checks of the TCP settings of this host, with their effect on a network path of given bandwidth and round-trip time.

use std::path::Path as FilePath;
use std::time::Duration;

use godwit_flight::WARMUP_MIN_RTT;
use godwit_transfer::tcp_tuning::{self, CopyMode};

use super::{Area, Finding, FindingState};

/// Fraction of a TCP buffer that contains data in flight; the rest is overhead of the kernel. Measured: with a buffer
/// of 4 MB and a round-trip time of 40 ms, one stream reached 620 Mbit/s, which is 3.1 MB in flight.
const USABLE_BUFFER_SHARE: f64 = 0.75;

/// The bandwidth and round-trip time of a network path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkPath {
    /// Bandwidth in bits per second.
    pub bandwidth_bit_per_s: u64,
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
}

/// TCP settings of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TcpSettings {
    max_receive_buffer_bytes: Option<u64>,
    max_send_buffer_bytes: Option<u64>,
    congestion_control: String,
    available_congestion_controls: String,
    /// Congestion control algorithms that unprivileged processes may use, separated by spaces.
    allowed_congestion_controls: String,
    /// Names of the settings in [`TCP_SWITCHES`] that can be read, and true if the setting is on.
    switches: Vec<(&'static str, bool)>,
    /// Default queueing discipline, which applies to interfaces that are brought up from now on.
    queueing_discipline: String,
}

/// Initial congestion window of a connection, in packets (RFC 6928).
const INITIAL_WINDOW_PACKETS: u32 = 10;
/// TCP payload of a full packet of 1500 bytes, in bytes.
const PACKET_PAYLOAD_BYTES: f64 = 1448.0;

/// Kernel settings that must be on for long network paths, with their purpose. By default, all of them are on.
const TCP_SWITCHES: [(&str, &str); 3] = [
    ("tcp_sack", "lost packets are retransmitted individually"),
    ("tcp_window_scaling", "more than 64 KiB can be in flight"),
    ("tcp_moderate_rcvbuf", "receive buffers grow with the path"),
];

impl TcpSettings {
    fn read(root: &FilePath) -> Self {
        let read = |name: String| std::fs::read_to_string(root.join(name)).unwrap_or_default().trim().to_owned();
        let text = |name: &str| read(format!("ipv4/{name}"));
        // The file contains three numbers: minimum, default and maximum.
        let most = |name: &str| text(name).split_whitespace().nth(2)?.parse().ok();
        Self {
            max_receive_buffer_bytes: most("tcp_rmem"),
            max_send_buffer_bytes: most("tcp_wmem"),
            congestion_control: text("tcp_congestion_control"),
            available_congestion_controls: text("tcp_available_congestion_control"),
            allowed_congestion_controls: text("tcp_allowed_congestion_control"),
            switches: TCP_SWITCHES
                .iter()
                .filter_map(|(name, _)| Some((*name, text(name).parse::<u8>().ok()? != 0)))
                .collect(),
            queueing_discipline: read("core/default_qdisc".to_owned()),
        }
    }

    fn findings(&self, path: Option<NetworkPath>) -> Vec<Finding> {
        let mut findings = vec![
            self.buffer_finding("tcp_rmem", self.max_receive_buffer_bytes, path),
            self.buffer_finding("tcp_wmem", self.max_send_buffer_bytes, path),
            Finding::new(
                Area::Network,
                "congestion control",
                FindingState::Fine,
                format!("{} of {}", self.congestion_control, self.available_congestion_controls),
            ),
        ];
        if path.is_some() {
            findings.extend(self.disabled_switches());
            findings.extend(self.bbr_finding());
        }
        let in_flight = self.max_receive_buffer_bytes.into_iter().chain(self.max_send_buffer_bytes).min();
        if let (Some(path), Some(bytes)) = (path, in_flight) {
            let streams = (path.bandwidth_delay_bytes() / (bytes as f64 * USABLE_BUFFER_SHARE)).ceil().max(1.0) as u64;
            let one = bytes as f64 * USABLE_BUFFER_SHARE * 8.0 / (path.rtt_ms / 1e3);
            let found = format!(
                "{:.1} MB in flight fill {} Mbit/s at {} ms; one stream carries {:.0} Mbit/s, so {streams} fill it",
                path.bandwidth_delay_bytes() / 1e6,
                path.bandwidth_bit_per_s / 1_000_000,
                path.rtt_ms,
                one.min(path.bandwidth_bit_per_s as f64) / 1e6
            );
            findings.push(Finding::new(Area::Network, "path", FindingState::Note, found));
        }
        findings.extend(path.and_then(|_| self.queue_finding()));
        findings.extend(path.and_then(slow_start_finding));
        findings
    }

    /// Checks the default queueing discipline of the kernel.
    fn queue_finding(&self) -> Option<Finding> {
        let found = format!("{}, on interfaces that are brought up from now on", self.queueing_discipline);
        let remedy = "as root, `sysctl -w net.core.default_qdisc=fq`, and for interfaces that are up `tc qdisc replace dev DEVICE root mq` \
                      (`root fq` for an interface with a single queue): rate-limited connections take less CPU time, \
                      and connections share the link evenly";
        let finding = Finding::new(Area::Network, "queue", FindingState::Note, found);
        match self.queueing_discipline.as_str() {
            "" => None,
            "fq" => Some(Finding { state: FindingState::Fine, ..finding }),
            _ => Some(finding.with_remedy(remedy)),
        }
    }

    /// Returns a finding for each setting of [`TCP_SWITCHES`] that is off.
    fn disabled_switches(&self) -> impl Iterator<Item = Finding> + '_ {
        let off = self.switches.iter().filter(|(_, on)| !on);
        off.map(|(name, _)| {
            let meaning = TCP_SWITCHES.iter().find(|(known, _)| known == name).map_or("", |(_, meaning)| meaning);
            let found = format!("off; if it is on, {meaning}");
            let remedy = format!("as root, `sysctl -w net.ipv4.{name}=1`");
            Finding::new(Area::Network, *name, FindingState::Warning, found).with_remedy(remedy)
        })
    }

    /// Checks whether the congestion control BBR, which `godwit copy --mode fast` uses, is available.
    fn bbr_finding(&self) -> Option<Finding> {
        let has = |list: &str| list.split_whitespace().any(|name| name == "bbr");
        if has(&self.allowed_congestion_controls) || self.congestion_control == "bbr" {
            return None;
        }
        let found = if has(&self.available_congestion_controls) { "available only to root" } else { "not loaded" };
        let remedy = "as root, `modprobe tcp_bbr` and `sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"`: \
                      where one packet in a thousand is lost at 100 ms, 16 streams of bbr carry twice what cubic's do";
        Some(Finding::new(Area::Network, "bbr", FindingState::Note, found).with_remedy(remedy))
    }

    fn buffer_finding(&self, name: &str, bytes: Option<u64>, path: Option<NetworkPath>) -> Finding {
        let Some(bytes) = bytes else {
            return Finding::new(Area::Network, name, FindingState::Note, "cannot be read");
        };
        let found = format!("at most {bytes} bytes");
        let needed = path
            .map_or(0, |path| (path.bandwidth_delay_bytes() / USABLE_BUFFER_SHARE) as u64)
            .next_multiple_of(1 << 20);
        if bytes >= needed {
            return Finding::new(Area::Network, name, FindingState::Fine, found);
        }
        let least_and_default = if name == "tcp_rmem" { "4096 131072" } else { "4096 16384" };
        Finding::new(Area::Network, name, FindingState::Warning, found).with_remedy(format!(
            "one stream needs {needed} bytes for this path: as root, \
             `sysctl -w net.ipv4.{name}=\"{least_and_default} {needed}\"`; or use several streams"
        ))
    }
}

impl NetworkPath {
    /// Returns the bandwidth-delay product: the number of bytes in flight that fill the path.
    fn bandwidth_delay_bytes(self) -> f64 {
        self.bandwidth_bit_per_s as f64 / 8.0 * self.rtt_ms / 1e3
    }
}

/// Returns a finding with the time until TCP slow start fills the path; `None` if the initial windows fill it.
fn slow_start_finding(path: NetworkPath) -> Option<Finding> {
    let rtt = Duration::try_from_secs_f64(path.rtt_ms / 1e3).ok()?;
    // The bytes that are acknowledged in the TLS handshake double the initial window.
    let packets = tcp_tuning::stream_count(CopyMode::Fast, None, rtt)
        * INITIAL_WINDOW_PACKETS
        * if rtt < WARMUP_MIN_RTT { 1 } else { 2 };
    let trips = (path.bandwidth_delay_bytes() / (f64::from(packets) * PACKET_PAYLOAD_BYTES)).log2().ceil();
    let ms = trips * path.rtt_ms;
    let found = format!("{trips} x {} ms, {ms:.0} ms, until a fast download with TLS fills this path", path.rtt_ms);
    let remedy = "where files are small, as root at the end that sends, `ip route change` with the line of `ip route show default` and \
                  `initcwnd 40` behind it: one round trip fewer";
    (trips >= 1.0).then(|| Finding::new(Area::Network, "slow start", FindingState::Note, found).with_remedy(remedy))
}

/// Checks the TCP settings of this host. If a path is given, the findings contain advice for this path.
pub fn network(path: Option<NetworkPath>) -> Vec<Finding> {
    TcpSettings::read(FilePath::new("/proc/sys/net")).findings(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> TcpSettings {
        TcpSettings {
            max_receive_buffer_bytes: Some(6 << 20),
            max_send_buffer_bytes: Some(4 << 20),
            congestion_control: "cubic".into(),
            available_congestion_controls: "reno cubic".into(),
            allowed_congestion_controls: "reno cubic".into(),
            switches: vec![("tcp_sack", true)],
            queueing_discipline: "fq".into(),
        }
    }

    #[test]
    fn a_path_that_the_buffers_fill_needs_nothing() {
        let findings = tcp().findings(Some(NetworkPath { bandwidth_bit_per_s: 500_000_000, rtt_ms: 40.0 }));
        assert!(findings.iter().all(|finding| finding.state != FindingState::Warning), "{findings:?}");
        assert!(findings[4].details.contains("so 1 fill it") && findings[3].subject == "bbr", "{findings:?}");
    }

    #[test]
    fn a_long_fat_path_gets_the_sysctl_lines_and_a_number_of_streams() {
        // Expected: a path of 10 Gbit/s and 40 ms needs 50 MB in flight.
        let findings = tcp().findings(Some(NetworkPath { bandwidth_bit_per_s: 10_000_000_000, rtt_ms: 40.0 }));
        let remedy = findings[1].remedy.as_deref().unwrap_or_default();
        assert!(remedy.contains("net.ipv4.tcp_wmem=\"4096 16384 67108864\""), "{remedy}");
        assert!(findings[4].details.contains("so 16 fill it"), "{}", findings[4].details);
    }

    #[test]
    fn a_switch_that_is_off_is_reported_with_the_line_that_turns_it_on() {
        let tcp = TcpSettings { switches: vec![("tcp_sack", false)], ..tcp() };
        let findings = tcp.findings(Some(NetworkPath { bandwidth_bit_per_s: 500_000_000, rtt_ms: 40.0 }));
        let remedies: Vec<&str> = findings.iter().filter_map(|finding| finding.remedy.as_deref()).collect();
        assert!(remedies.iter().any(|remedy| remedy.contains("sysctl -w net.ipv4.tcp_sack=1")), "{remedies:?}");
    }

    #[test]
    fn queues_and_slow_start_are_reported_with_the_lines_that_change_them() {
        let tcp = TcpSettings { queueing_discipline: "pfifo_fast".into(), ..tcp() };
        let of = |tcp: &TcpSettings, rtt_ms: f64, bandwidth_bit_per_s: u64| {
            tcp.findings(Some(NetworkPath { bandwidth_bit_per_s, rtt_ms }))
        };
        let named = |findings: &[Finding], what: &str| findings.iter().find(|one| one.subject == what).cloned();
        let findings = of(&tcp, 90.0, 10_000_000_000);
        assert!(named(&findings, "queue").unwrap().remedy.unwrap().contains("net.core.default_qdisc=fq"));
        // Expected: the path needs 112.5 MB in flight, and the initial windows of all connections are 463 kB together.
        let slow_start = named(&findings, "slow start").unwrap();
        assert!(slow_start.details.starts_with("8 x 90 ms, 720 ms"), "{}", slow_start.details);
        assert!(slow_start.remedy.unwrap().contains("initcwnd"));
        // Expected: the path needs 12.5 MB in flight, and the initial windows of all connections are 116 kB together.
        let near = named(&of(&tcp, 10.0, 10_000_000_000), "slow start").unwrap();
        assert!(near.details.starts_with("7 x 10 ms, 70 ms"), "{}", near.details);
        let short = of(&self::tcp(), 20.0, 100_000_000);
        assert!(named(&short, "slow start").is_none());
        assert_eq!(named(&short, "queue").map(|finding| finding.state), Some(FindingState::Fine));
    }
}
