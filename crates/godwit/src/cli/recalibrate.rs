//! Options of `godwit recalibrate`.

use std::path::PathBuf;

use clap::Args;
use godwit_pipeline::SLICE_RECORDS;

use super::Common;
use super::values::{parse_bam, parse_size};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct RecalibrateArgs {
    /// The reference that the reads were aligned to, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// BAM with its index, or the output directory of `godwit align`
    #[arg(long, value_name = "BAM|DIR", help_heading = THIS_RUN)]
    pub reads: PathBuf,
    /// VCFs of known variants with their indexes: bases there do not count as errors
    #[arg(long, value_name = "VCF", num_args = 1.., required = true)]
    pub known_sites: Vec<PathBuf>,
    /// The BAM to write; its index, table, manifest and report go beside it
    #[arg(long, value_name = "NAME.bam", value_parser = parse_bam, help_heading = THIS_RUN)]
    pub out: PathBuf,
    /// Records that one GATK takes at a time
    #[arg(long, value_name = "N", default_value_t = SLICE_RECORDS, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub slice_records: u64,
    /// Memory of each GATK; --memory is that of all together [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub gatk_memory: Option<u64>,
    /// Go on with a run of the same command that was stopped; no finished slice is done twice
    #[arg(long, help_heading = THIS_RUN)]
    pub resume: bool,
    #[command(flatten)]
    pub common: Common,
}
