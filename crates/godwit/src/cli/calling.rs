//! How variants are called: options of every verb that calls.

use std::ffi::OsString;

use clap::Args;

use super::values::{parse_bases, parse_size};
use crate::config::THIS_RUN;

/// How variants are called.
#[derive(Args)]
pub struct CallingArgs {
    /// Options of the caller that change records, in one string; for bcftools those of mpileup, | and those of call
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub caller_args: String,
    /// Call only what starts within these regions: a BED file, or regions such as chr20:1-5000,chr21; may be given several times
    #[arg(long, value_name = "BED|REGION")]
    pub regions: Vec<OsString>,
    /// Copies of each contig: 1, 2, X, Y, GRCh37, GRCh38, or a file as for `bcftools call --ploidy-file` [default: the caller's]
    #[arg(long, value_name = "NAME|FILE")]
    pub ploidy: Option<String>,
    /// Sex of the sample, as that table has it: M or F [default: the most copies of any]
    #[arg(long, value_name = "SEX", requires = "ploidy", help_heading = THIS_RUN)]
    pub sex: Option<String>,
    /// Bases of a region that is called by itself (1M, 500K); stretches of N do not count
    #[arg(long, value_name = "BASES", default_value = "1M", value_parser = parse_bases)]
    pub grid_size: u32,
    /// Bases that the caller sees on either side of a region [default: what it needs]
    #[arg(long, value_name = "BASES", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub padding: Option<u32>,
    /// Threads of each caller; --threads are those of all together, on each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub caller_threads: u32,
    /// Memory of each caller [default: bcftools 512M, freebayes 1G, others 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub caller_memory: Option<u64>,
}

impl CallingArgs {
    /// The first option that is given and has no default, where that is not from a file or the environment.
    pub fn given(&self, configured: &[String]) -> Option<&'static str> {
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
