//! What path is made, and what is copied over it.

use clap::Args;

use super::TableFormat;
use super::copy::{ModeName, Streams};
use super::values::{parse_milliseconds, parse_rate, parse_share, parse_size, parse_streams};

#[derive(Args)]
pub struct BenchPathArgs {
    /// Bandwidth of the path in bits a second, packet headers included
    #[arg(long, value_name = "RATE", default_value = "1G", value_parser = parse_rate)]
    pub rate: u64,
    /// Round-trip time of the path, milliseconds
    #[arg(long, value_name = "MS", default_value = "40", value_parser = parse_milliseconds)]
    pub rtt: f64,
    /// Packets that are lost at random, of one (0.0001: one in ten thousand), each way
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub loss: Option<f64>,
    /// Single packets that are lost each second, each way
    #[arg(long, value_name = "N")]
    pub loss_per_second: Option<u32>,
    /// Delay that is added at random to that of each packet, at most, milliseconds each way
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    pub jitter: Option<f64>,
    /// What the queue before the path holds: bytes (64k, 4m), time (20ms), or bandwidth times round-trip time (0.25bdp)
    #[arg(long, value_name = "SIZE", default_value = "1bdp", value_parser = parse_queue)]
    pub queue: String,
    /// Bytes to copy
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    pub bytes: u64,
    /// What the copy is to others on the way
    #[arg(long, value_enum, default_value_t = ModeName::Fast, value_name = "MODE")]
    pub mode: ModeName,
    /// Connections: a number, or auto for what the path needs
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_streams)]
    pub streams: Streams,
    /// How often to copy; the median is told
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seed of what is drawn: which packets are lost or late
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Directory for what is copied [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<std::path::PathBuf>,
    /// How to print results
    #[arg(long, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT")]
    pub format: TableFormat,
    /// Print events as JSON lines on stderr
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PathEmulatorArgs {
    /// What the emulator is told
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
}

/// A size as the emulator takes it.
fn parse_queue(text: &str) -> Result<String, String> {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let known = ["", "k", "m", "bdp", "ms"].contains(&&text[number.len()..]);
    match number.parse::<f64>() {
        Ok(value) if known && value > 0.0 && value < 1e12 => Ok(text.to_owned()),
        _ => Err("a queue is written like 64k, 4m, 20ms or 0.25bdp".to_owned()),
    }
}
