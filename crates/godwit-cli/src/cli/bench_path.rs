//! Options of `godwit bench path`.

use clap::Args;

use super::TableFormat;
use super::copy::{ModeName, StreamCount};
use super::value_parsers::{parse_milliseconds, parse_rate, parse_share, parse_size, parse_streams};

#[derive(Args)]
pub struct BenchPathArgs {
    /// Bandwidth of the path in bits per second, packet headers included
    #[arg(long, value_name = "RATE", default_value = "1G", value_parser = parse_rate)]
    pub rate: u64,
    /// Round-trip time of the path, milliseconds
    #[arg(long, value_name = "MS", default_value = "40", value_parser = parse_milliseconds)]
    pub rtt: f64,
    /// Fraction of packets lost at random, in each direction (0.0001: one in ten thousand)
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub loss: Option<f64>,
    /// Single packets lost per second, in each direction
    #[arg(long, value_name = "N")]
    pub loss_per_second: Option<u32>,
    /// Greatest random delay added to each packet, milliseconds, in each direction
    #[arg(long, value_name = "MS", value_parser = parse_milliseconds)]
    pub jitter: Option<f64>,
    /// Size of the queue before the path: bytes (64k, 4m), time (20ms), or bandwidth-delay products (0.25bdp)
    #[arg(long, value_name = "SIZE", default_value = "1bdp", value_parser = parse_queue)]
    pub queue: String,
    /// Bytes to copy
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    pub bytes: u64,
    /// Sharing of bandwidth with other traffic
    #[arg(long, value_enum, default_value_t = ModeName::Fast, value_name = "MODE")]
    pub mode: ModeName,
    /// Connections: a number, or auto to choose by the path
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_streams)]
    pub streams: StreamCount,
    /// Number of copies; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seed of the random packet losses and delays
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Directory for the copied files [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<std::path::PathBuf>,
    /// Format of the results
    #[arg(long, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT")]
    pub format: TableFormat,
    /// Print events as JSON lines on stderr
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PathEmulatorArgs {
    /// Settings of the emulator
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// Validates the size of a queue, and returns the text unchanged, because the emulator parses it itself.
fn parse_queue(text: &str) -> Result<String, String> {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let known = ["", "k", "m", "bdp", "ms"].contains(&&text[number.len()..]);
    match number.parse::<f64>() {
        Ok(value) if known && value > 0.0 && value < 1e12 => Ok(text.to_owned()),
        _ => Err("a queue size has the form 64k, 4m, 20ms or 0.25bdp".to_owned()),
    }
}
