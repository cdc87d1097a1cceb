//! Options of `godwit variants`.

use std::path::PathBuf;

use clap::Args;

use super::CommonArgs;
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct VariantsArgs {
    /// VCF, plain, gzip or BGZF; - is stdin
    #[arg(value_name = "IN.vcf.gz")]
    pub input: PathBuf,
    /// Output file; its extension selects the format: .parquet or .arrow
    #[arg(long, value_name = "OUT.parquet", help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    #[command(flatten)]
    pub common: CommonArgs,
}
