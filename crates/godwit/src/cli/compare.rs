//! What is compared, and how.

use std::path::PathBuf;

use clap::Args;

use super::{Common, KeyArgs};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct CompareArgs {
    /// The call set to judge: VCF, plain, gzip or BGZF
    #[arg(value_name = "CALLS.vcf.gz")]
    pub calls: PathBuf,
    /// What is true
    #[arg(value_name = "TRUTH.vcf.gz")]
    pub truth: PathBuf,
    /// Count only what lies in one of these regions, BED
    #[arg(long, value_name = "BED", help_heading = THIS_RUN)]
    pub confident: Option<PathBuf>,
    /// The reference, FASTA: with it, indels are moved to the left before they are compared
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    /// Another call set: judge it too, and tell what CALLS gained and lost against it
    #[arg(long, value_name = "OTHER.vcf.gz", help_heading = THIS_RUN)]
    pub baseline: Option<PathBuf>,
    /// The sample to look at in files that have several
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN)]
    pub sample: Option<String>,
    /// Take an allele as found whatever its genotype; files may have no samples
    #[arg(long)]
    pub ignore_genotypes: bool,
    /// Compare records that a filter failed, too
    #[arg(long)]
    pub all_records: bool,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: Common,
}
