//! Options of `godwit score`.

use std::path::PathBuf;

use clap::Args;

use super::query::RowFormatName;
use super::{AccessArgs, CommonArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct ScoreArgs {
    /// The model: NAME for its latest version, or NAME/VERSION
    #[arg(long, value_name = "MODEL", help_heading = THIS_RUN_HEADING)]
    pub model: String,
    /// The service: grpc+tls://HOST:PORT (grpc+tcp:// without encryption)
    #[arg(long, value_name = "URL", help_heading = THIS_RUN_HEADING)]
    pub at: String,
    /// Rows to score: Parquet, Arrow, CSV, VCF, BAM or any file that `godwit query` reads; - is stdin, Parquet, Arrow or VCF
    #[arg(value_name = "IN", required_unless_present = "sql", help_heading = THIS_RUN_HEADING)]
    pub input: Option<PathBuf>,
    /// Score the rows of a statement, for models whose features are computed
    #[arg(long, value_name = "SELECT", conflicts_with = "input", help_heading = THIS_RUN_HEADING)]
    pub sql: Option<String>,
    /// Directory, or s3://BUCKET/PREFIX, of the datasets of the statement [default: the working directory]
    #[arg(long, value_name = "DIR", conflicts_with = "input", help_heading = THIS_RUN_HEADING)]
    pub data: Option<PathBuf>,
    /// Columns to write besides the scores [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = THIS_RUN_HEADING)]
    pub columns: Option<Vec<String>>,
    /// Write only the scores
    #[arg(long, conflicts_with = "columns", help_heading = THIS_RUN_HEADING)]
    pub scores_only: bool,
    /// Format of the rows [default: by the extension of --out, or table]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<RowFormatName>,
    /// Write to this file, which is created when complete: .parquet, .arrow, .csv, .tsv or .json [default: stdout]
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING)]
    pub out: Option<PathBuf>,
    /// The reference of CRAM files, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}
