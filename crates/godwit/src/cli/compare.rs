//! Options of `godwit compare`.

use std::path::PathBuf;

use clap::Args;

use super::{CommonArgs, KeyArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct CompareArgs {
    /// Call set to evaluate: VCF, plain, gzip or BGZF
    #[arg(value_name = "CALLS.vcf.gz")]
    pub calls: PathBuf,
    /// Truth set
    #[arg(value_name = "TRUTH.vcf.gz")]
    pub truth: PathBuf,
    /// Count only variants in these regions, BED
    #[arg(long, value_name = "BED", help_heading = THIS_RUN_HEADING)]
    pub confident: Option<PathBuf>,
    /// The reference, FASTA: with it, indels are left-aligned before they are compared
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    /// Another call set: evaluate it too, and report what CALLS gained and lost against it
    #[arg(long, value_name = "OTHER.vcf.gz", help_heading = THIS_RUN_HEADING)]
    pub baseline: Option<PathBuf>,
    /// Sample to compare in files with several
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN_HEADING)]
    pub sample: Option<String>,
    /// Count an allele as found whatever its genotype; files may have no samples
    #[arg(long)]
    pub ignore_genotypes: bool,
    /// Also compare records that failed a filter
    #[arg(long)]
    pub all_records: bool,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}
