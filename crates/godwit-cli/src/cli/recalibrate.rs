//! Options of `godwit recalibrate`.

use std::path::PathBuf;

use clap::Args;
use godwit_call::SLICE_RECORDS;

use super::CommonArgs;
use super::value_parsers::{parse_bam, parse_size};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct RecalibrateArgs {
    /// The reference that the reads were aligned to, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// BAM with its index, or the output directory of `godwit align`
    #[arg(long, value_name = "BAM|DIR", help_heading = THIS_RUN_HEADING)]
    pub reads: PathBuf,
    /// VCFs of known variants with their indexes: bases there do not count as errors
    #[arg(long, value_name = "VCF", num_args = 1.., required = true)]
    pub known_sites: Vec<PathBuf>,
    /// Output BAM; its index, table, manifest and report are written beside it
    #[arg(long, value_name = "NAME.bam", value_parser = parse_bam, help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// Number of records that one run of GATK processes
    #[arg(long, value_name = "N", default_value_t = SLICE_RECORDS, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub slice_records: u64,
    /// Memory of each GATK; --memory is the total [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub gatk_memory: Option<u64>,
    /// Resume a stopped run of the same command; finished slices are not repeated
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub resume: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}
