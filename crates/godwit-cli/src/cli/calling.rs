//! Options of variant calling, shared by all verbs that call.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::value_parsers::{parse_bases, parse_duration, parse_size};
use crate::config::THIS_RUN_HEADING;

/// Options of variant calling.
#[derive(Args)]
pub struct CallingArgs {
    /// Options of the caller that change records, in one string; for bcftools those of mpileup, | and those of call
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub caller_args: String,
    /// Call only variants that start within these regions: a BED file, or regions such as chr20:1-5000,chr21; repeat for more
    #[arg(long, value_name = "BED|REGION")]
    pub regions: Vec<OsString>,
    /// Ploidy of each contig: 1, 2, X, Y, GRCh37, GRCh38, or a file as for `bcftools call --ploidy-file` [default: the caller's]
    #[arg(long, value_name = "NAME|FILE")]
    pub ploidy: Option<String>,
    /// Sex of the sample, as in that table: M or F [default: the highest ploidy]
    #[arg(long, value_name = "SEX", requires = "ploidy", help_heading = THIS_RUN_HEADING)]
    pub sex: Option<String>,
    /// Bases of a calling region (1M, 500K); runs of N do not count
    #[arg(long = "grid-size", value_name = "BASES", default_value = "1M", value_parser = parse_bases)]
    pub max_region_bases: u32,
    /// Bases on either side of a region that the caller also reads [default: the padding that the caller needs]
    #[arg(long, value_name = "BASES", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub padding: Option<u32>,
    /// Threads of each caller; --threads is the total of each worker
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub caller_threads: u32,
    /// Memory of each caller [default: bcftools 512M, freebayes 1G, others 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub caller_memory: Option<u64>,
    /// Stop a caller after this time in a region, and cut the region in halves (90s, 30m, 2h) [default: never]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub stall_after: Option<Duration>,
    /// Minimum length of a piece; a region too short to be cut is set apart without records, if a caller is stopped there
    #[arg(long, value_name = "BASES", default_value = "1K", value_parser = parse_bases)]
    pub stall_piece: u32,
}

impl CallingArgs {
    /// Returns the name of the first option without a default that the user gave on the command line, not in a
    /// configuration file or the environment.
    pub fn first_explicit_option(&self, configured: &[String]) -> Option<&'static str> {
        let given = [
            ("--caller-args", !self.caller_args.is_empty()),
            ("--regions", !self.regions.is_empty()),
            ("--ploidy", self.ploidy.is_some()),
            ("--sex", self.sex.is_some()),
            ("--padding", self.padding.is_some()),
            ("--caller-memory", self.caller_memory.is_some()),
        ];
        let by_hand = |name: &str| !configured.iter().any(|word| word.split('=').next() == Some(name));
        given.into_iter().find(|(name, given)| *given && by_hand(name)).map(|(name, _)| name)
    }
}
