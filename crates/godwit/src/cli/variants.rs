//! Which variants become columns.

use std::path::PathBuf;

use clap::Args;

use super::Common;
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct VariantsArgs {
    /// VCF, plain, gzip or BGZF; - is stdin
    #[arg(value_name = "IN.vcf.gz")]
    pub input: PathBuf,
    /// What to write, in the format its ending says: .parquet or .arrow
    #[arg(long, value_name = "OUT.parquet", help_heading = THIS_RUN)]
    pub out: PathBuf,
    #[command(flatten)]
    pub common: Common,
}
