//! What is copied, where to, and how.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use godwit_transfer::Links;
use godwit_transfer::tune::CopyMode;

use super::values::{parse_duration, parse_rate, parse_streams};
use super::{AccessArgs, Common};
use crate::config::THIS_RUN;

#[derive(Args)]
#[command(override_usage = "godwit copy [OPTIONS] <SRC>... <DST>")]
pub struct CopyArgs {
    /// Files and directories to copy, and where to: paths here, or grpc+tls://HOST:PORT/PATH (grpc+tcp:// without encryption)
    #[arg(value_name = "SRC", required = true, num_args = 2..)]
    pub places: Vec<String>,
    /// What the copy is to others on the way
    #[arg(long, value_enum, default_value_t = ModeName::Fair, value_name = "MODE")]
    pub mode: ModeName,
    /// Connections: a number, or auto for what the path needs
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_streams)]
    pub streams: Streams,
    /// Bits a second that are sent at most (500M, 10gbit) [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// Compress on the way
    #[arg(long, value_enum, default_value_t = CompressionName::None, value_name = "HOW")]
    pub compress: CompressionName,
    /// A reference for --compress delta, FASTA, which the server has as well; may be given again
    #[arg(long, value_name = "REF.fa")]
    pub reference: Vec<PathBuf>,
    /// Another server that has what SRC has: what is copied comes from all of them; may be given again
    #[arg(long, value_name = "URL", help_heading = THIS_RUN)]
    pub also_from: Vec<String>,
    /// Have what is copied go through this server, whose --relay option lets it: a long path is then two shorter ones
    #[arg(long, value_name = "URL", help_heading = THIS_RUN)]
    pub relay: Option<String>,
    /// Copy only files that fit this pattern (*.bam); may be given again
    #[arg(long, value_name = "GLOB", help_heading = THIS_RUN)]
    pub include: Vec<String>,
    /// Leave out files and directories that fit this pattern; may be given again
    #[arg(long, value_name = "GLOB", help_heading = THIS_RUN)]
    pub exclude: Vec<String>,
    /// What to do with symbolic links at SRC
    #[arg(long, value_enum, default_value_t = LinksName::Follow, value_name = "HOW", help_heading = THIS_RUN)]
    pub links: LinksName,
    /// Give no file its name that has another checksum than this list says (as of md5sum, sha256sum, b3sum); may be given again
    #[arg(long, value_name = "LIST", help_heading = THIS_RUN)]
    pub check: Vec<PathBuf>,
    /// Remove from DST what SRC does not have
    #[arg(long, help_heading = THIS_RUN)]
    pub sync: bool,
    /// Tell what would be done, and do nothing
    #[arg(long, help_heading = THIS_RUN)]
    pub dry_run: bool,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Give up when nothing has arrived for so long (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_duration)]
    pub patience: Duration,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Takes what nobody else wants
    Polite,
    /// As heavy as two ordinary flows at most
    Fair,
    /// Fills the link, whatever it costs others
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
    /// Blocks as they are
    None,
    /// zstd, block by block, where that makes them smaller
    Zstd,
    /// Genomes as what differs from a reference that both ends have, where they do; all else as it is
    Delta,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LinksName {
    /// Copy the files and directories that they lead to
    Follow,
    /// Copy them as links, where they lead to something within what is copied
    Keep,
    /// Leave them out
    Skip,
}

impl From<LinksName> for Links {
    fn from(name: LinksName) -> Self {
        match name {
            LinksName::Follow => Self::Follow,
            LinksName::Keep => Self::Keep,
            LinksName::Skip => Self::Skip,
        }
    }
}

/// A number of connections; `None` for what the path needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams(pub Option<u32>);
