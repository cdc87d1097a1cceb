//! Options of `godwit copy`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use godwit_transfer::LinkPolicy;
use godwit_transfer::tcp_tuning::CopyMode;

use super::value_parsers::{parse_duration, parse_rate, parse_streams};
use super::{AccessArgs, CommonArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
#[command(override_usage = "godwit copy [OPTIONS] <SRC>... <DST>")]
pub struct CopyArgs {
    /// Files and directories to copy, and the destination: local paths, or grpc+tls://HOST:PORT/PATH (grpc+tcp:// without encryption)
    #[arg(value_name = "SRC", required = true, num_args = 2..)]
    pub locations: Vec<String>,
    /// Sharing of bandwidth with other traffic
    #[arg(long, value_enum, default_value_t = ModeName::Fair, value_name = "MODE")]
    pub mode: ModeName,
    /// Connections: a number, or auto to choose by the path
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_streams)]
    pub streams: StreamCount,
    /// Greatest sending rate in bits per second (500M, 10gbit) [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// Compression of the transfer
    #[arg(long, value_enum, default_value_t = CompressionName::None, value_name = "HOW")]
    pub compress: CompressionName,
    /// A reference for --compress delta, FASTA, which the server has as well; repeat for more
    #[arg(long, value_name = "REF.fa")]
    pub reference: Vec<PathBuf>,
    /// Another server with the same files as SRC: data are copied from all of them; repeat for more
    #[arg(long, value_name = "URL", help_heading = THIS_RUN_HEADING)]
    pub also_from: Vec<String>,
    /// Copy through this server, which must run with --relay: splits a long path into two shorter ones
    #[arg(long, value_name = "URL", help_heading = THIS_RUN_HEADING)]
    pub relay: Option<String>,
    /// Copy only files that match this pattern (*.bam); repeat for more
    #[arg(long, value_name = "GLOB", help_heading = THIS_RUN_HEADING)]
    pub include: Vec<String>,
    /// Skip files and directories that match this pattern; repeat for more
    #[arg(long, value_name = "GLOB", help_heading = THIS_RUN_HEADING)]
    pub exclude: Vec<String>,
    /// Treatment of symbolic links at SRC
    #[arg(long, value_enum, default_value_t = LinksName::Follow, value_name = "HOW", help_heading = THIS_RUN_HEADING)]
    pub links: LinksName,
    /// Reject files whose checksum differs from this list (as of md5sum, sha256sum, b3sum); repeat for more
    #[arg(long, value_name = "LIST", help_heading = THIS_RUN_HEADING)]
    pub check: Vec<PathBuf>,
    /// Remove files and directories from DST that SRC does not have
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub sync: bool,
    /// Print the planned actions, and copy nothing
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub dry_run: bool,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Fail when no data have arrived for this time (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_duration)]
    pub patience: Duration,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Uses only bandwidth that no other traffic uses
    Polite,
    /// Uses at most as much as two ordinary flows
    Fair,
    /// Fills the link, at the expense of other traffic
    Fast,
}

impl From<ModeName> for CopyMode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Polite => Self::Polite,
            ModeName::Fair => Self::Fair,
            ModeName::Fast => Self::Fast,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompressionName {
    /// No compression
    None,
    /// zstd, block by block, where it reduces the size
    Zstd,
    /// Delta compression of genomes against a reference that both ends have; other files uncompressed
    Delta,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LinksName {
    /// Copy the files and directories that they point to
    Follow,
    /// Copy them as links, if they point into the copied files
    Keep,
    /// Skip them
    Skip,
}

impl From<LinksName> for LinkPolicy {
    fn from(name: LinksName) -> Self {
        match name {
            LinksName::Follow => Self::Follow,
            LinksName::Keep => Self::Preserve,
            LinksName::Skip => Self::Skip,
        }
    }
}

/// Number of connections of a copy; `None` to choose it according to the measured network path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCount(pub Option<u32>);
